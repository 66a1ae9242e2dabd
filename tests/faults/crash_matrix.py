# SPDX-License-Identifier: Apache-2.0
"""Let every system call of sealing, flushing, merging and forgetting fail, one after the other, and crash before each.

A machine with rows in a ring, segments in RAM and small segments on disk does one job in a child. Before the
n-th call that changes a file the child dies, or the call fails with ENOSPC or EIO, once or from then on; n runs
over all there are. Then nothing visible may be broken, and every row must be there, with the value it had (where
rows were to be forgotten, every tier its part of it), and the same jobs without a fault must bring all of it to
disk. After each death the power is cut as well, in a model: what was not synced has no content, and what a folder
was not synced after is there or is not.

    python tests/faults/crash_matrix.py [--rounds 1] [--json]      (--rounds 0: every 127th call)
"""

import builtins
import errno
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from sysmond.archiver import main as archiver
from sysmond.archiver import merge_job, retention_job, rollup_job, seal_job
from sysmond.archiver.coding import DENSE
from sysmond.archiver.retention_job import Keeper
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, EVENTS, FINEST_TIER, TIERS_NS, Sensitivity
from sysmond.commands import tamper
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import note
from sysmond.machine.folders import Folders
from sysmond.plan.retention import Limit
from sysmond.ring.progress import ring_files
from sysmond.store import archive
from tests.faults.trial import Totals, main
from tests.support.machine import Machine, counter, gauge

PIECES, PIECE_TICKS = 4, 20
DIED = 77
STRIDE = 127
FAULTS = ("crash", "ENOSPC", "EIO", "ENOSPC for good", "EIO for good")
# What changes files: calls by the name they have in os.
CALLS = ("open", "write", "fsync", "rename", "replace", "unlink", "mkdir", "fchmod", "chmod", "posix_fallocate")


def forget(folders: Folders) -> None:
    """Make room where there is none: all rows go, once the tiers have them."""
    limits = {tier: Limit(1 if tier == FINEST_TIER else 10**9) for tier in TIERS_NS}
    make_room = retention_job.keeper(folders).make_room
    Keeper(folders, limits, 0, lambda _: rollup_job.roll_up(folders, DENSE, make_room, set())).make_room(FINEST_TIER, 0)


STEPS: dict[str, Callable[[Folders], object]] = {
    "seal": seal_job.seal,
    "flush": archiver.flush,
    "merge": merge_job.merge,
    "forget": forget,
}
# What is done before it, without a fault.
BEFORE = {"seal": (), "flush": ("seal",), "merge": ("seal", "flush"), "forget": ("seal", "flush")}


class Disk:
    """What of a state folder a power cut would leave: names by synced folders, contents by synced files."""

    def __init__(self, root: str) -> None:
        """Take all that is there for synced."""
        self._root = root
        there = [f"{folder}/{name}" for folder, _, names in os.walk(root) for name in names]
        self._inodes = dict(enumerate(there))
        self.names = {path: number for number, path in enumerate(there)}
        self.synced_names = dict(self.names)
        self.contents = {number: Path(path).read_bytes() for number, path in enumerate(there)}

    def note(self, call: str, paths: list[str]) -> None:
        """Follow a call that succeeded."""
        if not paths[0].startswith(self._root):
            return
        match call:
            case "open" if paths[0] not in self.names and not os.path.isdir(paths[0]):
                self.names[paths[0]] = len(self._inodes)
                self._inodes[len(self._inodes)] = paths[0]
            case "fsync" if os.path.isdir(paths[0]):
                inside = {path: number for path, number in self.names.items() if os.path.dirname(path) == paths[0]}
                kept = {path: n for path, n in self.synced_names.items() if os.path.dirname(path) != paths[0]}
                self.synced_names = {**kept, **inside}
            case "fsync":
                self.contents[self.names[paths[0]]] = Path(paths[0]).read_bytes()
            case "rename" | "replace":
                self.names[paths[1]] = self.names.pop(paths[0])
            case "unlink":
                self.names.pop(paths[0], None)
            case _:
                pass

    def after_a_cut(self) -> Iterator[dict[str, bytes]]:
        """The worst and the best that may be found: without, and with, the names that were not synced."""
        for names in (self.synced_names, self.names):
            yield {path: self.contents.get(number, b"") for path, number in names.items()}


def _name_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


class Tripwire:
    """Stands in for the calls that change files, counts them, and lets one fail."""

    def __init__(self, roots: tuple[str, ...], at: int, fault: str, disk: Disk, report: int) -> None:
        self._roots, self._at, self._fault, self._disk, self._report = roots, at, fault, disk, report
        self._real = {name: getattr(os, name) for name in CALLS}
        self.count = 0

    def arm(self) -> None:
        """Replace the calls, in this process for good."""
        for name in CALLS:
            setattr(os, name, partial(self._call, name))
        open_file = builtins.open

        def open_to_read(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
            """What is written through a file object would not be seen here."""
            if set(mode) & set("wax+") and not isinstance(file, int):
                raise AssertionError(f"{file}: opened to write by open(); expected sysmond.machine.note")
            return open_file(file, mode, *rest, **more)

        builtins.open = open_to_read

    def _paths(self, name: str, arguments: tuple[Any, ...], folders: dict[str, Any]) -> list[str]:
        """The files that a call is about, those relative to a descriptor of their folder too."""
        places = ("src_dir_fd", "dst_dir_fd") if name in {"rename", "replace"} else ("dir_fd",)
        paths = []
        for path, place in zip(arguments, places, strict=False):
            if isinstance(path, int):
                paths.append(_name_of(path))
            else:
                paths.append(f"{_name_of(folders[place])}/{path}" if place in folders else str(path))
        return paths

    def _call(self, name: str, *arguments: Any, **more: Any) -> Any:
        paths = self._paths(name, arguments, more)
        changes = name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if not changes or not paths[0].startswith(self._roots):
            return self._real[name](*arguments, **more)
        self.count += 1
        if self.count == self._at or (self.count > self._at > 0 and self._fault.endswith("for good")):
            self._trip(name, arguments)
        result = self._real[name](*arguments, **more)
        self._disk.note(name, paths)
        return result

    def _trip(self, name: str, arguments: tuple[Any, ...]) -> None:
        if self._fault == "crash":
            if name == "write":
                self._real["write"](arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            for variant in self._disk.after_a_cut():
                self._real["write"](self._report, repr(variant).encode() + b"\n")
            os._exit(DIED)
        number = errno.ENOSPC if self._fault.startswith("ENOSPC") else errno.EIO
        raise OSError(number, os.strerror(number), "injected")


def prepare(root: Path) -> None:
    """A machine with rows in a ring, segments that wait in RAM, and small ones on disk."""
    machine = Machine(root)
    for piece in range(PIECES):
        forget_rings(machine.folders)  # Else every row would stay in RAM for ever.
        writer = machine.start(0.5 + piece * PIECE_TICKS)
        writer.tick(range(1 + piece * PIECE_TICKS, 1 + (piece + 1) * PIECE_TICKS))
        writer.ring.event((2 + piece * PIECE_TICKS) * SECOND_NS, "mark", "", str(piece))
        if piece < PIECES - 1:
            machine.seal()
        if piece < PIECES - 2:
            machine.flush()
        writer.ring.close()
    Path(machine.folders.runtime, "plan.json").write_text("{}")


def forget_rings(folders: Folders) -> None:
    """Remove the rings, as their writers do with those that are sealed."""
    for path in ring_files(folders):
        os.unlink(path)


def _broken(folders: Folders) -> Iterator[str]:
    """Visible files that do not read."""
    for sensitivity in Sensitivity:
        on_disk = (archive.disk_folder(folders, sensitivity, tier) for tier in (*TIERS_NS, EVENTS))
        for folder in (archive.ram_folder(folders, sensitivity), *on_disk):
            for file in archive.files(folder):
                try:
                    tamper.contents(f"{folder}/{file}")
                except Error as damage:
                    yield f"broken: {damage}"


def look(folders: Folders, *, forgot: bool = False) -> list[str]:
    """Whatever is wrong: a visible file that does not read, a row that is missing or has another value.

    ``forgot``: rows may be gone; what the tiers have of them must be whole all the same.
    """
    problems = list(_broken(folders))
    history = Archive(folders)
    if (told := [event.text for event in history.events()]) != [str(piece) for piece in range(PIECES)]:
        problems.append(f"events: {told}; expected one of each of {PIECES} pieces")
    for path, stat, true in (
        ("disk/queue", "count", PIECES * PIECE_TICKS),
        ("disk/queue", "sum", sum(map(gauge, range(1, 1 + PIECES * PIECE_TICKS)))),
        ("disk/read_bytes", "sum", counter(PIECES * PIECE_TICKS) - counter(1)),
    ):
        buckets = history.select(path, step="10s", stat=stat).columns[0].integers
        total = 0 if buckets is None else sum(value for value in buckets.tolist() if value != ABSENT)
        if total != true:
            problems.append(f"{stat} of {path} in steps of 10 s: {total}; expected {true}")
    if forgot:
        return problems
    result = history.select("disk/read_bytes", "disk/queue", raw=True)
    expected = list(range(1, 1 + PIECES * PIECE_TICKS))
    for column, right in zip(result.columns, (counter, gauge), strict=True):
        found = [] if column.integers is None else column.integers.tolist()
        if found != [right(second) for second in expected]:
            problems.append(f"{column.path}: {len(found)} of {len(expected)} rows, or other values")
    return problems


def attempt(template: str, root: str, step: str, at: int, fault: str) -> tuple[bool, list[str], int]:
    """Let one call of one job fail; whether it was reached, what is wrong then, and how many cuts were tried."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)  # To where it was made: the memory of the archiver has paths.
    folders = Folders(f"{root}/state", f"{root}/run")
    for earlier in BEFORE[step]:
        STEPS[earlier](folders)
        if earlier == "seal":
            forget_rings(folders)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        tripwire = Tripwire((folders.state, folders.runtime), at, fault, Disk(folders.state), writing)
        tripwire.arm()
        with suppress(OSError, Error):
            STEPS[step](folders)
        os._exit(0 if tripwire.count < at else 1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        variants = [eval(line) for line in pipe]  # noqa: S307  the child's own words
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        return False, [], 0
    forgot = step == "forget"
    problems = [f"right after it: {problem}" for problem in look(folders, forgot=forgot)]
    for number, files in enumerate(variants):
        left = _after_cut(folders, files, f"{root}-cut")
        problems += [f"power cut {number}: {problem}" for problem in look(left, forgot=forgot)]
    for again in ("seal", "flush", "forget" if forgot else "merge"):
        STEPS[again](folders)
    problems += [f"after trying again: {problem}" for problem in look(folders, forgot=forgot)]
    problems += [f"left behind: {name}" for name in _left_behind(folders)]
    return True, problems, len(variants)


def _after_cut(folders: Folders, files: dict[str, bytes], root: str) -> Folders:
    """What was still in RAM when the power went, and what is on disk, must together be everything."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(folders.runtime, f"{root}/run")
    for path, content in files.items():
        place = Path(f"{root}/state{path.removeprefix(folders.state)}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return Folders(f"{root}/state", f"{root}/run")


def _left_behind(folders: Folders) -> Iterator[str]:
    for folder, _, names in os.walk(folders.state):
        yield from (f"{folder}/{name}" for name in names if name.endswith(note.TEMPORARY_SUFFIX))
    for sensitivity in Sensitivity:
        yield from archive.files(archive.ram_folder(folders, sensitivity))


def run(rounds: int, seed: int) -> Totals:
    """Go through all calls of all jobs."""
    problems: list[str] = []
    tried: Counter[str] = Counter()
    stride = 1 if rounds else STRIDE
    with tempfile.TemporaryDirectory(prefix="sysmond-matrix-", dir="/dev/shm") as base:
        prepare(Path(base, "tried"))
        shutil.copytree(f"{base}/tried", f"{base}/template")
        for step in STEPS:
            for fault in FAULTS:
                at = 1 + seed % stride
                while True:
                    reached, found, cuts = attempt(f"{base}/template", f"{base}/tried", step, at, fault)
                    if not reached:
                        break
                    tried[step] += 1
                    tried["power cuts"] += cuts
                    problems += [f"{step}, call {at}, {fault}: {problem}" for problem in found]
                    at += stride
    return {**tried, "problems": problems}


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=1))
