# SPDX-License-Identifier: Apache-2.0
"""Damage the rings of a daemon that was killed: every answer is the truth, or says what is missing, and why.

A real daemon records some seconds, all of it is killed at once, and its rings are damaged one place at a time: a bit,
a byte, bytes of ones, a sector of zeros or of another place, the end cut off; of the places, many lie in headers and in
frames that explain others. What is asked of the damaged ring is asked again after it was sealed and removed as a
successor does.

    python tests/hostile/rings.py [--rounds 2300] [--json]      (rounds: damages)
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from sysmond.archiver import seal_job
from sysmond.base import paths
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, FINEST_TIER, Cause
from sysmond.base.result import Gap, Result
from sysmond.commands import selftest
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create_classes
from sysmond.plan.catalogue import ANSWERS_FILE
from sysmond.ring.frame import EXPLAINING, FRAME_BYTES, HEAD, HEADER, HEADER_BYTES, MIRROR_BYTES, U32
from sysmond.ring.leftovers import remove_sealed
from sysmond.ring.progress import WRITERS, ring_files, stream_files
from sysmond.ring.snapshot import fill, snapshot
from sysmond.store.of_ring import of_snapshot
from tests.faults.trial import Totals, main

RECORDED_S = 6.0
CONFIGURATION = "archive: {seal_interval: 1h, flush_interval: 1h}\n"
SECTOR_BYTES = 512
# Every so many damages the ring is sealed as well.
SEAL_EVERY = 8
GONE_S = 10.0


class Ring(NamedTuple):
    """A ring to damage: where in its file its header, what explains and everything used lies; what is asked of it.

    ``name``: what every text that names it has, wherever the runtime folder is.
    """

    path: str
    name: str
    header: list[int]
    explaining: list[int]
    used_bytes: int
    tables: list[str]
    is_long: bool


class Damage(NamedTuple):
    """Bytes that take the place of others; ``size``: where the file ends then."""

    at: int
    content: bytes
    size: int

    def __str__(self) -> str:
        return f"{len(self.content)} bytes at {self.at}, {self.size} in all"


class Answer(NamedTuple):
    """What is answered of a ring's tables: every row, with its table and time first; gaps; warnings; refusals by table.

    ``wrong``: what is wrong with it whatever the truth is.
    """

    rows: frozenset[tuple[Any, ...]]
    gaps: tuple[Gap, ...]
    warnings: tuple[str, ...]
    refusals: dict[str, str]
    wrong: str = ""


def record(base: str) -> Folders:
    """Let a daemon record for some seconds and kill all of it at once."""
    folders = Folders(f"{base}/state", f"{base}/run")
    daemon = selftest.Daemon(base, folders, CONFIGURATION)
    try:
        daemon.wait_for_ticks()
        time.sleep(RECORDED_S)
        pids = [pid for part in (*WRITERS.values(), "archiver", "parent") if (pid := daemon.pid(part))]
        for pid in [daemon.process.pid, *pids]:  # The parent first: nobody is started again.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.process.wait()
        limit_s = time.monotonic() + GONE_S
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < limit_s:
            time.sleep(0.05)
    finally:
        daemon.process.kill()
    return folders


def rings(folders: Folders) -> Iterator[Ring]:
    """Those that hold rows, and where everything is in them."""
    for path in (*ring_files(folders), *stream_files(folders)):
        taken, head = snapshot(path), fill(path)[0]
        if taken.lost or not taken.frames:
            raise RuntimeError(f"{path}: empty, or too small for {RECORDED_S} s")
        explaining: list[int] = []
        for place in taken.frames:
            kind, _, _, payload = taken.frame(place)
            if kind in EXPLAINING:
                explaining += range(HEADER_BYTES + place, HEADER_BYTES + place + FRAME_BYTES + min(len(payload), 64))
        recording = of_snapshot(taken)
        is_long = path.count("/") - folders.runtime.count("/") == len(("part", "class", "table", "ring"))
        written = [*range(HEADER.size + U32.size), *range(HEAD * 8, HEAD * 8 + 24)]
        header = [at + place for at in (0, MIRROR_BYTES) for place in written]
        tables = sorted(
            recording.tables if is_long else {key.table for block in recording.blocks for key in block.keys}
        )
        if tables:
            yield Ring(
                path,
                path.removeprefix(os.path.dirname(folders.runtime)),
                header,
                explaining,
                HEADER_BYTES + head,
                tables,
                is_long,
            )


def damage(ring: Ring, content: bytes, chance: random.Random) -> Damage:
    """Choose what happens to a ring."""
    place = chance.choice((ring.header, ring.explaining, range(ring.used_bytes), range(ring.used_bytes)))
    at = chance.choice(place)
    sector = at - at % SECTOR_BYTES
    match chance.choices(("bit", "byte", "ones", "zeros", "misplaced", "cut"), (70, 8, 6, 6, 6, 4))[0]:
        case "bit":
            said = bytes([content[at] ^ 1 << chance.randrange(8)])
        case "byte":
            said = bytes([chance.randrange(256)])
        case "ones":
            said = b"\xff" * chance.randint(1, 16)
        case "zeros":
            at, said = sector, bytes(SECTOR_BYTES)
        case "misplaced":
            other = chance.randrange(ring.used_bytes // SECTOR_BYTES) * SECTOR_BYTES
            at, said = sector, content[other : other + SECTOR_BYTES]
        case _:
            return Damage(0, b"", chance.randrange(len(content)))
    return Damage(at, said[: len(content) - at], len(content))


@contextmanager
def applied(path: str, content: bytes, done: Damage) -> Iterator[None]:
    """Damage a file within the block; afterwards it is as it was."""
    with open(path, "r+b", buffering=0) as file:
        file.seek(done.at)
        file.write(done.content)
        file.truncate(done.size)
    try:
        yield
    finally:
        with suppress(FileNotFoundError), open(path, "r+b", buffering=0) as file:
            file.truncate(len(content))
            at = min(done.at, done.size)
            end = done.at + len(done.content) if done.size == len(content) else len(content)
            file.seek(at)
            file.write(content[at:end])


def ask(folders: Folders, ring: Ring, start_ns: int, end_ns: int) -> Answer:
    """Everything that was recorded in a ring, as answers have it.

    All wide tables are asked for at once; where that is refused, each by itself: none may have anything to tell then.
    """
    archive = Archive(folders)

    def records(table: str) -> Answer:
        result = archive.records(table, start=start_ns, end=end_ns, step=SECOND_NS)
        return _answer(_by_row(table, result), result)

    def select(*tables: str) -> Answer:
        result = archive.select(*tables, raw=True, start=start_ns, end=end_ns)
        return _answer(_by_value(result), result)

    if ring.is_long:
        return _joined([_asked(records, table) for table in ring.tables])
    whole = _asked(select, *ring.tables)
    if not whole.refusals:
        return whole
    alone = _joined([_asked(select, table) for table in ring.tables])
    if alone.rows:
        alone = alone._replace(wrong=f"refused together, not alone: {whole.refusals[ring.tables[0]]}")
    return alone


def _asked(ask_for: Callable[..., Answer], *tables: str) -> Answer:
    try:
        return ask_for(*tables)
    except Error as refusal:
        return Answer(frozenset(), (), (), dict.fromkeys(tables, str(refusal)))


def _answer(rows: Iterable[tuple[Any, ...]], result: Result) -> Answer:
    gaps = tuple(gap for gap in result.gaps if gap.cause is Cause.DAMAGED_FILE)
    return Answer(frozenset(rows), gaps, result.warnings, {})


def _joined(answers: Sequence[Answer]) -> Answer:
    return Answer(
        frozenset(row for each in answers for row in each.rows),
        tuple(gap for each in answers for gap in each.gaps),
        tuple(said for each in answers for said in each.warnings),
        {table: said for each in answers for table, said in each.refusals.items()},
    )


def _by_value(result: Result) -> Iterator[tuple[Any, ...]]:
    times = result.times_ns.tolist()
    for column in result.columns:
        values = column.texts if column.texts is not None else column.integers
        for time_ns, value in zip(times, () if values is None else values, strict=False):
            if value is not None and value != ABSENT:
                yield paths.parse(column.path).table, time_ns, column.path, str(value)


def _by_row(table: str, result: Result) -> Iterator[tuple[Any, ...]]:
    columns = [column.texts if column.texts is not None else column.values for column in result.columns]
    for number, time_ns in enumerate(result.times_ns.tolist()):
        yield (table, time_ns, *(str(values[number]) for values in columns))


def judge(ring: Ring, truth: Answer, found: Answer, counts: Counter[str]) -> str:
    """Count an answer; what is wrong with it, empty where nothing is."""
    wrong = found.wrong
    if not ring.is_long and (invented := found.rows - truth.rows):
        wrong = f"{len(invented)} values that nobody wrote"
    lacking: dict[str, list[int]] = {}
    for table, time_ns, *_ in truth.rows - found.rows:
        lacking.setdefault(table, []).append(time_ns)
    for table, times_ns in lacking.items():
        wrong = wrong or _unnamed(ring, table, times_ns, found)
    counts["wrong" if wrong else "named" if lacking else "equal"] += 1
    return wrong


def _unnamed(ring: Ring, table: str, times_ns: Sequence[int], found: Answer) -> str:
    """What is not said of rows of a table that are missing at these times; empty where all is."""
    lacking = f"{len(times_ns)} rows of {table} missing"
    if table in found.refusals:
        refusal = found.refusals[table]
        return "" if ring.name in refusal else f"{lacking}, refused without the ring: {refusal}"
    gaps = [gap for gap in found.gaps if gap.table == table]
    if not any(ring.name in said for said in (*found.warnings, *(gap.detail for gap in gaps))):
        return f"{lacking}, the ring is not named"
    if ring.is_long:  # What changed in a row that is lost is missing until that changes again.
        outside = [] if gaps else times_ns
    else:
        outside = [at for at in times_ns if not any(gap.start_ns <= at < gap.end_ns for gap in gaps)]
    return f"{lacking}, {len(outside)} of them in no gap" if outside else ""


def sealed(folders: Folders, into: str, ring: Ring, start_ns: int, end_ns: int) -> Answer:
    """What is answered after a successor sealed the rings and removed those that it holds as a whole."""
    shutil.rmtree(into, ignore_errors=True)
    copy = Folders(f"{into}/state", f"{into}/run")
    create_classes(copy.state, FINEST_TIER)
    create_classes(f"{copy.runtime}/archiver")
    # What their tables declare about answers rings do not say.
    for path in (*ring_files(folders), *stream_files(folders), f"{folders.runtime}/{ANSWERS_FILE}"):
        there = copy.runtime + path.removeprefix(folders.runtime)
        os.makedirs(os.path.dirname(there), exist_ok=True)
        shutil.copyfile(path, there)
    seal_job.seal(copy)
    for writer in (*WRITERS.values(), "archiver"):
        remove_sealed(copy, writer)
    moved = ring._replace(path=copy.runtime + ring.path.removeprefix(folders.runtime))
    return ask(copy, moved, start_ns, end_ns)


def run(rounds: int, seed: int, folder: Path | None = None) -> Totals:
    """Damage rings so often. ``folder``: where to, in memory where not told."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sysmond-rings-", dir=folder or "/dev/shm") as base:
        began_ns = time.time_ns()
        folders = record(base)
        end_ns = time.time_ns() + SECOND_NS
        truths = {ring.path: ask(folders, ring, began_ns, end_ns) for ring in rings(folders)}
        found = [ring for ring in rings(folders) if truths[ring.path].rows]  # Some tables had nothing to tell.
        content = {ring.path: Path(ring.path).read_bytes() for ring in found}
        after = {ring.path: sealed(folders, f"{base}/sealed", ring, began_ns, end_ns) for ring in found}
        problems += [
            f"{ring.path}: {len(truths[ring.path].rows)} rows, {len(after[ring.path].rows)} when sealed"
            for ring in found
            if truths[ring.path].rows != after[ring.path].rows
        ]
        for number in range(rounds):
            ring = found[number % len(found)]
            # The first of every ring takes rows for sure: chance alone may spare them all in a short run.
            is_first = number < len(found)
            done = Damage(0, b"", ring.used_bytes // 2) if is_first else damage(ring, content[ring.path], chance)
            with applied(ring.path, content[ring.path], done):
                wrong = judge(ring, truths[ring.path], ask(folders, ring, began_ns, end_ns), counts)
                if not wrong and number // len(found) % SEAL_EVERY == 0:
                    answer = sealed(folders, f"{base}/sealed", ring, began_ns, end_ns)
                    if wrong := judge(ring, after[ring.path], answer, counts):
                        wrong = f"after sealing: {wrong}"
            if wrong:
                problems.append(f"{ring.path.removeprefix(base)}: {done}: {wrong}")
    return {"problems": problems, "skipped": [], "rings": len(found), "damages": rounds, **counts}


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=2300))
