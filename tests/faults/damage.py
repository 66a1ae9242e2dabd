# SPDX-License-Identifier: Apache-2.0
"""Cut and flip every kind of file, and look that nothing is ever silently wrong.

Each kind is cut at every boundary of 512 bytes, and in copies of it a thousand single bits are turned over. A
segment (fresh, merged, of a tier) then says that it is damaged, or is read as what it was. A ring may lose rows,
but not change one. With a damaged note of progress everything held is still sealed; a damaged plan is refused
and the last good one followed; with damaged pins everything counts as pinned. A ring that
crashes the job is set aside, and stops nobody. One damaged file of an archive costs
its own rows only, and is named as the cause.

    python tests/faults/damage.py [--rounds 1000] [--json]      (rounds: bits turned over a kind)
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from sysmond.archiver import merge_job, retention_job, seal_job
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, TIERS_NS, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.commands import tamper
from sysmond.errors import CorruptError, Error
from sysmond.machine.control import ask
from sysmond.plan import plan
from sysmond.plan.retention import Limit
from sysmond.ring import skipped_rings
from sysmond.ring.frame import HEADER_BYTES, RING_BYTES_MIN, Identity, Layout
from sysmond.ring.progress import ring_files
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store import pins
from sysmond.store.files.dense_file import Segment
from tests.faults.trial import Totals, main
from tests.support.machine import BOOT, NOON_NS, TABLE, Machine, Writer, counter

TICKS = 240
# A tick of two devices takes at least so many bytes of a ring.
RING_TICK_BYTES = 64
CUTS_MAX = 100_000
SEALS_MAX = 200
HANG_S = 60.0  # Only against hanging for ever.


def machine_with_everything(root: Path) -> Machine:
    """Record four minutes in four segments, the last of them in a ring."""
    machine = Machine(root)
    writer = machine.start(0.5)
    for first in range(1, TICKS, TICKS // 4):
        writer.tick(range(first, first + TICKS // 4), ("sda", "sdb"))
        if first + TICKS // 4 < TICKS:
            machine.seal()
            machine.flush()
    return machine


def full_ring(folder: str) -> str:
    """Write a ring that is so small that it came round: nearly all of its bytes are those of frames."""
    path = f"{folder}/{SECOND_NS // 2}.ring"
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, SECOND_NS // 2)
    ring = RingWriter(path, RING_BYTES_MIN, identity, [Layout(TABLE, SECOND_NS)])
    writer = Writer(ring, NOON_NS)
    writer.tick(range(1, 1 + RING_BYTES_MIN // RING_TICK_BYTES), ("sda", "sdb"))
    if os.path.getsize(path) != HEADER_BYTES + RING_BYTES_MIN or not snapshot(path).lost:
        raise RuntimeError(f"{path}: did not come round")
    return path


def kinds(base: str) -> Iterator[tuple[str, str]]:
    """Give a file of each kind that holds rows, copied to where nobody changes it."""
    machine = machine_with_everything(Path(base, "machine"))
    yield "ring", full_ring(base)
    yield "segment", shutil.copyfile(machine.files()[0], f"{base}/fresh.h5")
    machine.merge()
    yield "merged", shutil.copyfile(machine.files()[0], f"{base}/merged.h5")
    merge_job.merge(machine.folders)
    tiers = Path(machine.folders.state, str(Sensitivity.PUBLIC))
    for tier in sorted(tiers.iterdir()):
        if tier.name != FINEST_TIER and (found := sorted(tier.glob("*.h5"))):
            yield f"tier {tier.name}", shutil.copyfile(found[0], f"{base}/{tier.name}.h5")


def progress(base: str, flips: int, chance: random.Random) -> tuple[dict[str, int], list[str]]:
    """Damage the note of how far the rings are sealed: every row of the ring must get into a segment."""
    machine = Machine(Path(base, "progress"))
    writer = machine.start(0.5)
    writer.tick(range(1, 21))
    machine.seal()
    writer.tick(range(21, 41))
    saved = f"{base}/progress-saved"
    shutil.copytree(f"{base}/progress", saved)
    note = f"{machine.folders.runtime}/archiver/progress.json"
    content = Path(note).read_bytes()
    problems = []
    todo = tamper.damages(len(content), flips, CUTS_MAX, chance)
    for damage in todo:
        shutil.rmtree(f"{base}/progress")
        shutil.copytree(saved, f"{base}/progress")
        Path(note).write_bytes(damage.apply(content))
        seal_job.seal(machine.folders)
        for ring in ring_files(machine.folders):
            os.unlink(ring)  # What is in no segment now would be gone when the ring turns over.
        column = machine.archive.select("disk/read_bytes", raw=True).columns[0]
        found = set() if column.integers is None else set(column.integers.tolist())
        if missing := {counter(second) for second in range(1, 41)} - found:
            problems.append(f"progress.json, {damage}: {len(missing)} rows were never sealed")
    return {"tried": len(todo), "lost rows": len(problems)}, problems


def planned(base: str, flips: int, chance: random.Random) -> tuple[dict[str, int], list[str]]:
    """Damage the plan: it is refused, or says what it said, and the last good one is followed."""
    path = f"{base}/plan.json"
    plan.write(plan.builtin(), path)
    content = Path(path).read_bytes()
    true, good = plan.read(path), f"{base}/good.json"
    shutil.copyfile(path, good)
    problems = []
    todo = tamper.damages(len(content), flips, CUTS_MAX, chance)
    for damage in todo:
        Path(path).write_bytes(damage.apply(content))
        try:
            if plan.read(path) != true:
                problems.append(f"plan.json, {damage}: read as another plan")
        except CorruptError:
            followed, reasons = plan.first_valid([path, good])
            if followed != true or not reasons:
                problems.append(f"plan.json, {damage}: the last good one is not followed, or it is not said")
    return {"tried": len(todo), "read as another": len(problems)}, problems


def pinned(base: str, flips: int, chance: random.Random) -> tuple[dict[str, int], list[str]]:
    """Damage the list of pins: it is refused, or says what it said, and what it pinned stays either way."""
    machine = machine_with_everything(Path(base, "pinned"))
    files = machine.files()
    start_ns = NOON_NS + SECOND_NS
    pins.add(machine.folders.state, [pins.Pin(start_ns, start_ns + SECOND_NS, f"spike {n}", "me") for n in range(3)])
    path = Path(machine.folders.state, pins.FILE)
    true, content = pins.read(machine.folders.state), path.read_bytes()
    problems = []
    todo = tamper.damages(len(content), flips, CUTS_MAX, chance)
    for damage in todo:
        path.write_bytes(damage.apply(content))
        with suppress(CorruptError):
            if pins.read(machine.folders.state) != true:
                problems.append(f"pins.json, {damage}: read as other pins")
        keep = retention_job.Keeper(machine.folders, dict.fromkeys(TIERS_NS, Limit(1)), 10**9)
        if str(files[0]) in keep.make_room(FINEST_TIER, 0):
            problems.append(f"pins.json, {damage}: rows that were pinned are gone")
            break
    return {"tried": len(todo), "read as other pins": len(problems)}, problems


def unsealable(base: str) -> list[str]:
    """Let a ring, whole by its checksums, crash the real archiver's job: it is set aside, everybody else sealed."""
    machine = Machine(Path(base, "unsealable"))
    writer = machine.start(0.5)
    writer.tick(range(1, 21))
    no_scale = Metric("nonsense", "B", Semantics.COUNTER, "Of a scale that no segment can note.", -400)
    culprit = machine.start(0.7, writer="background", table=Table("thing", (no_scale,)))
    for second in range(1, 21):
        culprit.relation(second * SECOND_NS)
        culprit.ring.rows(0, second * SECOND_NS, ("",), [second])
    plan.write(plan.Plan(()), f"{machine.folders.runtime}/plan.json")
    command = [sys.executable, "-m", "sysmond", "--part", "archiver"]
    command += ["--state-dir", machine.folders.state, "--runtime-dir", machine.folders.runtime]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for done in range(SEALS_MAX):
            with suppress(Error):
                ask(f"{machine.folders.runtime}/archiver", {"do": "seal"}, HANG_S)
            if os.path.exists(f"{machine.folders.runtime}/archiver/{skipped_rings.FOLDER}"):
                break
            time.sleep(0.1 * (done < SEALS_MAX // 2))  # It may not listen yet.
        writer.tick(range(21, 41))
        is_sealed = ask(f"{machine.folders.runtime}/archiver", {"do": "seal"}, HANG_S)["ok"]
        process.terminate()
        said = process.communicate(timeout=HANG_S)[1]
    finally:
        process.kill()
        process.wait()
    problems = []
    if f"{culprit.ring.path}: set aside after {skipped_rings.TRIES} tries" not in said:
        problems.append(f"a ring that crashes the job: not set aside; the archiver said {said!r}")
    if not is_sealed or process.returncode:
        problems.append(f"a ring that crashes the job: sealing {is_sealed}, exit code {process.returncode}")
    os.unlink(writer.ring.path)
    column = machine.archive.select("disk/read_bytes", raw=True).columns[0]
    if column.integers is None or column.integers.tolist() != [counter(second) for second in range(1, 41)]:
        problems.append("a ring that crashes the job: rows of another were not sealed")
    return problems


def neighbours(base: str) -> list[str]:
    """Damage one file of an archive in several ways: the others' rows are there, and the gap has its cause."""
    problems = []
    machine = machine_with_everything(Path(base, "neighbours"))
    second = machine.files()[1]
    content = second.read_bytes()
    ways: dict[str, Callable[[], object]] = {
        "cut in half": lambda: second.write_bytes(content[: len(content) // 2]),
        "empty": lambda: second.write_bytes(b""),
        "another program's": lambda: second.write_bytes(b"SQLite format 3\0" * 100),
        "its rows damaged": lambda: _damage_values(second, content),
    }
    for way, damage in ways.items():
        damage()
        result = machine.archive.select("disk", raw=True)
        column = result.column("disk/read_bytes@sda")
        found = set() if column.integers is None else set(column.integers.tolist())
        lost = {s for s in range(1, 1 + TICKS) if counter(s) not in found}
        if not lost <= set(range(1 + TICKS // 4, 1 + TICKS // 2)):
            problems.append(f"{way}: neighbours lost rows too: {len(lost)}")
        causes = {gap.cause for gap in result.gaps}
        if not result.warnings or (lost and Cause.DAMAGED_FILE not in causes):
            problems.append(f"{way}: {sorted(causes)}, {len(result.warnings)} warnings")
    return problems


def _damage_values(path: Path, content: bytes) -> None:
    """Turn over bytes until the file opens but does not read to its end."""
    for place in range(len(content) - 1, 0, -64):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        with suppress(Error):
            with Segment(str(path)):
                pass
            try:
                tamper.contents(str(path))
            except CorruptError:
                return
    raise RuntimeError(f"{path}: no byte of it is that of a value")


def run(rounds: int, seed: int) -> Totals:
    """Damage every kind."""
    chance = random.Random(seed)
    totals: Totals = {"problems": [], "skipped": []}
    with tempfile.TemporaryDirectory(prefix="sysmond-damage-", dir="/dev/shm") as base:
        found = dict(kinds(base))
        for kind, path in found.items():
            todo = tamper.damages(os.path.getsize(path), rounds, CUTS_MAX, chance)
            counts = tamper.silently_wrong(path, todo, base)
            totals[kind] = counts
            totals["problems"] += [f"{kind}: {counts[bad]} {bad}" for bad in ("wrong", "crashed") if bad in counts]
        if not any(kind.startswith("tier") for kind in found):
            totals["problems"].append("no file of a tier was made")
        totals["progress.json"], problems = progress(base, rounds, chance)
        totals["problems"] += problems
        totals["plan.json"], problems = planned(base, rounds, chance)
        totals["problems"] += problems
        totals["pins.json"], problems = pinned(base, rounds, chance)
        totals["problems"] += problems + neighbours(base) + unsealable(base)
    return totals


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=1000))
