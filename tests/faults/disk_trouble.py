# SPDX-License-Identifier: Apache-2.0
"""Give a running daemon every kind of bad disk, one after the other, and look that it goes on and heals.

The state folder of a real daemon is full, becomes read-only, fails with EIO, vanishes and comes back, and takes
five seconds for each fsync; on tmpfs and on ext4 on a loop device. All the time both lanes must tick; a second
daemon must be refused; and once the trouble is over, a flush must bring everything to disk. At the end nothing
may be missing but ticks that were late, nothing be broken, and nothing left in RAM.

    python tests/faults/disk_trouble.py [--rounds 1] [--json]      (as root; --rounds 0: each trouble short)
"""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.commands import selftest
from sysmond.errors import Error
from sysmond.machine import control
from sysmond.machine.folders import Folders
from sysmond.store import archive
from tests.faults import trial
from tests.faults.trial import Totals, main

SHIM_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "faulty.c")
INTERVAL_NS = SECOND_NS // 5
DISK_BYTES = 64 * 1024 * 1024
FSYNC_S, FSYNC_SHORT_S = 5.0, 0.4
TROUBLE_S, TROUBLE_SHORT_S = 4.0, 0.5
HEAL_S, ASK_S = 180.0, 120.0


class Trouble(NamedTuple):
    """What is done to the disk, and undone; ``refuses``: whether a flush must fail meanwhile."""

    name: str
    begin: Callable[[], object]
    end: Callable[[], object]
    refuses: bool = True


class Disk:
    """A small file system at ``mount_point``, below which the state folder lies."""

    def __init__(self, kind: str, base: str) -> None:
        self.kind = kind
        self.mount_point = f"{base}/disk"
        self.control = f"{base}/control"
        self._image = f"{base}/image"
        self._kept = f"{base}/kept"
        os.mkdir(self.mount_point)
        os.mkdir(self._kept)
        if kind == "ext4":
            with open(self._image, "wb") as file:
                file.truncate(DISK_BYTES)
            trial.command("mkfs.ext4", "-q", "-F", self._image)
            trial.command("mount", "-o", "loop", self._image, self.mount_point)
        else:
            trial.command(
                "mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "sysmond-fault", self.mount_point
            )

    def troubles(self, fsync_s: float, *, shimmed: bool) -> Iterator[Trouble]:
        """All that can be done to it."""
        filler = f"{self.mount_point}/filler"
        yield Trouble("full", lambda: _fill(filler), lambda: os.unlink(filler))
        yield Trouble("read-only", self._lock, lambda: trial.command("umount", "-l", self.mount_point))
        # Moved to another place and back: files stay open in it, new ones find an empty folder.
        yield Trouble("gone", self._take_away, self._bring_back)
        if shimmed:
            yield Trouble("EIO", lambda: self.say(errno.EIO, 100, 0), lambda: self.say(0, 0, 0))
            yield Trouble("EIO now and then", lambda: self.say(errno.EIO, 30, 0), lambda: self.say(0, 0, 0), False)
            yield Trouble("EIO on reading", lambda: self.say(errno.EIO, 100, 0, 1), lambda: self.say(0, 0, 0), False)
            slow_ms = int(fsync_s * 1000)
            yield Trouble("slow", lambda: self.say(0, 0, slow_ms), lambda: self.say(0, 0, 0), refuses=False)

    def say(self, number: int, percent: int, fsync_ms: int, reads: int = 0) -> None:
        """Tell the preloaded library what to do."""
        with open(f"{self.control}.new", "w", encoding="ascii") as file:
            file.write(f"{number} {percent} {fsync_ms} {reads}\n")
        os.rename(f"{self.control}.new", self.control)

    def _lock(self) -> None:
        # The lock file is open for writing, so it is the same folder mounted once more that is read-only.
        trial.command("mount", "--bind", self.mount_point, self.mount_point)
        trial.command("mount", "-o", "remount,bind,ro", self.mount_point)

    def _take_away(self) -> None:
        trial.command("mount", "--move", self.mount_point, self._kept)
        # Nobody can write to what is below it, not even root: as where a disk is not there at boot.
        trial.command("mount", "-t", "tmpfs", "-o", "ro,size=4k,mode=755", "sysmond-fault", self.mount_point)

    def _bring_back(self) -> None:
        trial.command("umount", "-l", self.mount_point)
        trial.command("mount", "--move", self._kept, self.mount_point)

    def unmount(self) -> None:
        """Let go of it, whatever state it is in."""
        for folder in (self.mount_point, self._kept):
            with suppress(subprocess.CalledProcessError):
                trial.command("umount", "-l", folder)


def _fill(path: str) -> None:
    with suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(64 * 1024))
    with suppress(OSError), open(path, "ab", buffering=0) as file:
        while True:
            file.write(bytes(64))


def shim(base: str) -> str | None:
    """Compile the library that makes disks slow and faulty; None where there is no compiler."""
    library = f"{base}/faulty.so"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    done = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, SHIM_SOURCE, "-ldl"], check=False, capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"{SHIM_SOURCE}: {done.stderr.decode()}")
    return library


def flush(folders: Folders) -> bool:
    """Ask for a flush; whether all of it is on disk now."""
    try:
        return bool(control.ask(f"{folders.runtime}/archiver", {"do": "flush"}, ASK_S).get("ok"))
    except Error:
        return False


def left_in_ram(folders: Folders) -> int:
    """How many segments wait."""
    return sum(len(archive.files(archive.ram_folder(folders, sensitivity))) for sensitivity in Sensitivity)


@contextmanager
def machine(kind: str) -> Iterator[tuple[Disk, selftest.Daemon, bool]]:
    """A daemon whose state folder lies on a file system of its own."""
    with selftest.place() as (root, folders):
        library = shim(root)
        disk = Disk(kind, root)
        environ = {"FAULTY_BELOW": disk.mount_point, "FAULTY_CONTROL": disk.control}
        if library:
            environ["LD_PRELOAD"] = library
        # Budgets follow the size of the disk, which is small and is filled: nothing is to be forgotten for that.
        configuration = selftest.configuration(INTERVAL_NS).replace(
            "archive: {", "archive: {share_percent: 100, free_percent: 0, "
        )
        at = Folders(f"{disk.mount_point}/state", folders.runtime)
        daemon = selftest.Daemon(root, at, configuration, environ)
        try:
            yield disk, daemon, library is not None
        finally:
            disk.say(0, 0, 0)
            if daemon.process.poll() is None:
                daemon.end()
            disk.unmount()


def suffer(trouble: Trouble, daemon: selftest.Daemon, lasting_s: float) -> Iterator[str]:
    """Let the disk be in trouble for a while, and look whether the daemon records on and heals."""
    folders = daemon.folders
    trouble.begin()
    try:
        began_s = time.monotonic()
        daemon.wait_for_ticks()
        took_s = time.monotonic() - began_s
        is_flushed = flush(folders)
        if trouble.refuses and is_flushed:
            yield "a flush that cannot have worked is said to have"
        time.sleep(max(0.0, lasting_s - (time.monotonic() - began_s)))
        daemon.wait_for_ticks()
        if took_s > FSYNC_S:
            yield f"the next ticks took {took_s:.1f} s to be seen"
    finally:
        trouble.end()
    if not trial.wait_until(lambda: flush(folders), HEAL_S):
        yield f"not healed within {HEAL_S:.0f} s: {daemon.said()[-3:]}"


def on(kind: str, lasting_s: float, fsync_s: float) -> tuple[Totals, list[str], list[str]]:
    """Give a daemon on a file system of this kind all the troubles there are."""
    problems: list[str] = []
    skipped = []
    with machine(kind) as (disk, daemon, shimmed):
        folders = daemon.folders
        daemon.wait_for_ticks()
        if not shimmed:
            skipped.append(f"{kind}: EIO and slow fsync: no C compiler")
        if not trial.wait_until(lambda: flush(folders), HEAL_S):
            problems.append(f"{kind}: nothing can be flushed at all: {daemon.said()[-3:]}")
        troubles = list(disk.troubles(fsync_s, shimmed=shimmed))
        for trouble in troubles:
            problems += [f"{kind}, {trouble.name}: {problem}" for problem in suffer(trouble, daemon, lasting_s)]
        code = daemon.end()
        if code:
            problems.append(f"{kind}: exit code {code}: {daemon.said()[-3:]}")
        if left := left_in_ram(folders):
            problems.append(f"{kind}: {left} segments are left in RAM")
        seen = selftest.Seen(folders)
        seen.look()
        problems += seen.broken
        lost = ticks = late = 0
        for lane, interval_ns in selftest.intervals_ns(INTERVAL_NS).items():
            found = selftest.loss(folders, lane, [], seen, interval_ns)
            problems += [f"{kind}: {problem}" for problem in found.problems]
            if selftest.counted(folders, selftest.LANES[lane]) != found.ticks:
                problems.append(f"{kind}: {lane}: the tiers count other ticks than there are")
            lost, ticks, late = lost + found.lost, ticks + found.ticks, late + found.late
    return {"troubles": len(troubles), "ticks": ticks, "lost": lost, "late": late}, problems, skipped


def run(rounds: int, seed: int) -> Totals:
    """Try both kinds of file systems."""
    totals: Totals = {"problems": [], "skipped": []}
    for _ in range(max(1, rounds)):
        for kind in ("tmpfs", "ext4") if rounds else ("tmpfs",):
            found, problems, skipped = on(kind, *((TROUBLE_S, FSYNC_S) if rounds else (TROUBLE_SHORT_S, FSYNC_SHORT_S)))
            totals[kind] = found
            totals["problems"] += problems
            totals["skipped"] += skipped
    return totals


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=1, missing=lambda: trial.cannot_mount("mkfs.ext4", "losetup")))
