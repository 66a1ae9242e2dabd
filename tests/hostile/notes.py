# SPDX-License-Identifier: Apache-2.0
"""Small JSON files that somebody made up: each reader gives what it may make of one, or says that it is damaged.

For each note a genuine one is taken, and every value in it is put in the place of others; then come contents that are
no note at all, and things that are no file. Whoever reads one, and works with what was read, must get a value or one of
our errors, in time, and without much memory.
"""

import json
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from sysmond.archiver import auto_pins, boot_before, children, disk_writes, merge_job, retention_job, weights
from sysmond.base.model import FINEST_TIER
from sysmond.errors import Error
from sysmond.machine import control, note
from sysmond.machine.folders import Folders, create, create_classes
from sysmond.plan import catalogue, plan, retention
from sysmond.plan.retention import Believed
from sysmond.probe import Table, counter
from sysmond.ring import frame, progress, skipped_rings
from sysmond.ring.frame import Layout
from sysmond.sampler import bursts, quarantine
from sysmond.sampler.bursts import Bursts
from sysmond.sampler.quarantine import Conduct, Record
from sysmond.sources import settings
from sysmond.store import archive, pins
from sysmond.store.pins import Pin
from sysmond.tasks.bpf import report
from tests.faults.trial import Totals
from tests.support.memory import counted_bytes
from tests.support.waiting import HANG_S

BOOT = "b" * 32
DATA_BYTES_MAX = 512 * 1024 * 1024
DEEP = 200_000
Place = tuple[Any, ...]

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 2**63, -(2**70), 10**400, float("nan"), float("inf"), "", "x", "\x1b]0;P\x07\n", "\0",
    "\ud800", "../" * 40, "y" * 70_000, [], [[]], {}, {"": None}, [0] * 1000,
)  # fmt: skip

ODD_CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "a NUL": b"\0",
    "no UTF-8": b"\xff\xfe\xfa",
    "half a note": b'{"boot": "',
    "two notes": b"{}{}",
    "arrays, deep": b"[" * DEEP,
    "arrays, deep and closed": b"[" * DEEP + b"]" * DEEP,
    "objects, deep": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a number of 100,000 digits": b"1" * 100_000,
    "an exponent": b"1e999999999",
    "one name, often": b"{" + b",".join([b'"boot": 1'] * 10_000) + b"}",
    "spaces, too many": b" " * (17 * 1024 * 1024),
    "a long text": b'"' + b"x" * (17 * 1024 * 1024) + b'"',
}


class Reader(NamedTuple):
    """Who reads a note: where it lies, a genuine one, and all that is done with it."""

    path: str
    genuine: Any
    use: Callable[[], object]


def run(rounds: int, seed: int) -> Totals:
    """Try all contents with every reader; ``rounds``: how many of the genuine ones' changes, 0 for all."""
    problems: list[str] = []
    tried = 0
    with tempfile.TemporaryDirectory(prefix="sysmond-notes-", dir="/dev/shm") as base:
        folders = prepare(Path(base))
        for name, reader in readers(folders).items():
            changes = list(product(_places(reader.genuine), ODD_VALUES))
            chosen = random.Random(seed).sample(changes, min(rounds, len(changes))) if rounds else changes
            for case, content in [*ODD_CONTENTS.items(), *cases(reader.genuine, chosen)]:
                Path(reader.path).write_bytes(content)
                problems += attempt(f"{name}, {case}", reader)
                tried += 1
            for case, make in STRANGE.items():
                os.unlink(reader.path)
                make(reader.path)
                problems += attempt(f"{name}, {case}", reader)
                os.rmdir(reader.path) if os.path.isdir(reader.path) else os.unlink(reader.path)
                Path(reader.path).write_bytes(b"")
                tried += 1
            os.unlink(reader.path)
        for case, content in ODD_CONTENTS.items():
            if case == "one name, often":  # An order that nobody knows.
                continue
            problems += messages(case, content)
            tried += 1
    return {"problems": problems, "notes": tried}


STRANGE: dict[str, Callable[[str], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "a link to itself": lambda path: os.symlink(os.path.basename(path), path),
    "a device": lambda path: os.symlink("/dev/zero", path),
    "larger than memory": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 2**40),
}


def attempt(what: str, reader: Reader) -> Iterator[str]:
    """What is wrong when a child reads a note as it lies there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be(reader, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGALRM:
        yield f"{what}: not read within {HANG_S:g} s"
    elif status:
        yield f"{what}: {said or f'exit code {status}'}"


def _be(reader: Reader, writing: int) -> None:
    code = 0
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(HANG_S))
        bytes_max = counted_bytes() + DATA_BYTES_MAX
        resource.setrlimit(resource.RLIMIT_DATA, (bytes_max, bytes_max))
        reader.use()
    except (Error, OSError) as refusal:
        if len(str(refusal).splitlines()) > 1:
            code = 1
            os.write(writing, f"more than a line: {str(refusal)!r:.200}".encode())
    except BaseException as failure:  # noqa: BLE001  the parent hears of it
        code = 1
        os.write(writing, f"{type(failure).__name__}: {failure}".encode("utf-8", "replace")[:300])
    finally:
        os._exit(code)


def messages(case: str, content: bytes) -> Iterator[str]:
    """What is wrong when a part hears it as an order, or a ring has it for a layout."""

    def hear() -> None:
        answer = control._answer(content, lambda _: {}, 0)
        if not isinstance(answer, dict) or "error" not in answer:
            raise AssertionError(f"{answer!r:.100}")

    def decode() -> None:
        frame.decode_layout(content)
        raise AssertionError("taken")

    for what, use in (("an order", hear), ("a layout", decode)):
        yield from attempt(f"{what}, {case}", Reader("", None, use))


def cases(genuine: Any, changes: Iterable[tuple[Place, Any]]) -> Iterator[tuple[str, bytes]]:
    """A genuine note with one of its values, or all of it, another."""
    for place, value in changes:
        changed = _changed(genuine, place, value)
        yield f"{'.'.join(map(str, place))} = {value!r:.30}", json.dumps(_sealed(changed)).encode()


def _places(value: Any, above: Place = ()) -> Iterator[Place]:
    yield above
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from _places(each, (*above, key))


def _changed(value: Any, place: Place, to: Any) -> Any:
    if not place:
        return to
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _changed(value[place[0]], place[1:], to)
    return copy


def _sealed(value: Any) -> Any:
    """With a checksum that is right, where there is one: whoever makes a note up can do that."""
    if isinstance(value, dict) and type(value.get(note.CHECKSUM)) is int:
        rest = {name: each for name, each in value.items() if name != note.CHECKSUM}
        return {**rest, note.CHECKSUM: note.checksum(rest.get("pins", rest))}
    return value


def prepare(base: Path) -> Folders:
    """Folders as the daemon has them."""
    folders = Folders(f"{base}/state", f"{base}/run")
    create(folders, os.geteuid())
    for part in ("archiver", "sampler", "background"):
        create_classes(f"{folders.runtime}/{part}")
    create_classes(folders.state, FINEST_TIER)
    return folders


def readers(folders: Folders) -> dict[str, Reader]:
    """All that read notes, with a genuine one as its writer leaves it."""
    archiver = f"{folders.runtime}/archiver"
    ring = f"{folders.runtime}/sampler/public/1.ring"
    Path(ring).write_bytes(b"")
    held = Record(last_ns=1, level=1, until_ns=2, reason="it hangs")
    there = plan.builtin()
    pinned = [Pin(1, 2, "why", "who")._asdict()]
    return {
        "pins": Reader(
            f"{folders.state}/{pins.FILE}",
            {"pins": pinned, "crc32": 0},
            lambda: pins.add(folders.state, [Pin(1, 2, "why", "who")]),
        ),
        "progress": Reader(
            f"{archiver}/{progress.FILE}",
            {ring: [1, 2, 0], "crc32": 0},
            lambda: progress.Progress.read(folders).write(folders),
        ),
        "aside": Reader(
            f"{archiver}/{skipped_rings.FILE}", [{ring: 1}, {ring: 5}], lambda: skipped_rings.blame(folders, [ring])
        ),
        "conduct": Reader(
            f"{folders.runtime}/sampler/{quarantine.FILE}",
            {"boot": BOOT, "judged_ns": 1, "tables": {"disk": held._asdict()}},
            lambda: _misbehave(f"{folders.runtime}/sampler"),
        ),
        "burst": Reader(
            f"{folders.runtime}/sampler/{bursts.FILE}",
            {"boot": BOOT, "began_ns": 1},
            lambda: Bursts(f"{folders.runtime}/sampler", BOOT).begin(3, 0),
        ),
        "incidents": Reader(
            f"{archiver}/{auto_pins.FILE}",
            [BOOT, 1, 2],
            lambda: auto_pins._write(archiver, auto_pins._read(archiver)),
        ),
        "left alone": Reader(
            f"{archiver}/{merge_job.LEFT_ALONE_FILE}",
            [ring],
            lambda: merge_job._leave_alone(folders, {ring}),
        ),
        "weights": Reader(
            f"{archiver}/{weights.FILE}",
            {f"{folders.state}/public/1s/1.h5": [1, 2, None, 3, 4, {"cpu": 5}]},
            lambda: weights.Weights(folders).write(),
        ),
        "believed": Reader(
            f"{folders.state}/{retention_job.BELIEVED_FILE}",
            Believed(1, BOOT, 1)._asdict(),
            lambda: _believe(f"{folders.state}/{retention_job.BELIEVED_FILE}"),
        ),
        "ledger": Reader(
            f"{folders.state}/{disk_writes.FILE}",
            {"boot": "", "counts": {"size": [1, 2, 3, 4]}},
            lambda: disk_writes.leave(folders.state, disk_writes.take(folders.state), {"size": [1, 1, 1, 1]}),
        ),
        "boot before": Reader(
            f"{folders.state}/{boot_before.FILE}",
            {"boot": BOOT, "settings": {"vm.swappiness": "60"}},
            lambda: boot_before.carry_on(folders, {}, BOOT[::-1]),
        ),
        "settings": Reader(
            f"{archiver}/{settings.NOTE_BEFORE}",
            {"vm.swappiness": "60"},
            lambda: settings.noted(f"{archiver}/{settings.NOTE_BEFORE}"),
        ),
        "place": Reader(
            f"{archiver}/{children.PLACE_FILE}", {"point": "/", "disks": ["sda"]}, lambda: children.known_place(folders)
        ),
        "sequences": Reader(
            f"{archiver}/{archive.SEQUENCES_FILE}",
            {BOOT: 1, f"{BOOT} process": 2},
            lambda: archive.next_sequence(BOOT, folders),
        ),
        "plan": Reader(
            f"{folders.runtime}/plan.json",
            {**json.loads(plan.encode(there._replace(probes=there.probes[:1]))), "crc32": None},
            lambda: plan.first_valid([f"{folders.runtime}/plan.json"]),
        ),
        "catalogue": Reader(
            f"{folders.runtime}/{catalogue.FILE}",
            json.loads(catalogue.encode(catalogue.Catalogue({}, (), (catalogue.EffectiveSetting("a", "b"),)))),
            lambda: catalogue.read(folders.runtime),
        ),
        "answers": Reader(
            f"{folders.runtime}/{catalogue.ANSWERS_FILE}",
            {"disk": {"derived": [["wait", "s", "time / reads", "How long."]]}, "task": {"show": ["pid"]}},
            lambda: catalogue.answers_in(folders.runtime),
        ),
        "bpf": Reader(
            f"{folders.runtime}/{report.REPORT}",
            {"folder": "/x", "programs": {"snapshot": {"refused": "no"}}},
            lambda: (report.refused(folders.runtime, "snapshot"), report.pins_with("snapshot", folders.runtime)),
        ),
        "layout": Reader(
            f"{folders.runtime}/layout",
            json.loads(frame.encode_layout(Layout(Table("t", (counter("m", "B", "."),)), 10**9))),
            lambda: frame.decode_layout(note.read_bytes(f"{folders.runtime}/layout", note.NOTE_BYTES_MAX)),
        ),
    }


def _misbehave(folder: str) -> None:
    table = Conduct(folder, BOOT)
    table.read()
    table.offend("disk", 3, "again")


def _believe(path: str) -> None:
    before = retention_job._believed(path)
    if before is not None:
        retention.believe(before, BOOT, 2, 2)


if __name__ == "__main__":
    print(json.dumps(run(0, 1), indent=1))
    sys.exit(0)
