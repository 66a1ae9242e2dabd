# SPDX-License-Identifier: Apache-2.0
"""A control group with little memory, and swap for it: where a program can be starved and the machine is not.

A group's limit counts what its processes touch first. What others have in memory already, as Python and its libraries,
would not count, and would never be paged out: so what is started here runs from copies, put in the place of the
originals in a mount namespace, whose pages nobody has yet. As root.
"""

import errno
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks.measure import ROOT
from sysmond.cgroups.tree import MOUNTINFO, hierarchies

PROGRAMS = ("unshare", "mount", "mkswap", "swapon", "swapoff")
ZRAM = "zram0"
# What of Python's own library no program of ours imports, and takes long to copy.
LEFT_OUT = ("test", "tests", "idlelib", "ensurepip", "site-packages", "config-*", "*.a")
PACKAGES = ("sysmond", "sysmond_probes", "sysmon_tools", "probes", "build")
SHOW_MAPPED = "import ctypes, ssl, sqlite3, numpy, h5py; print(open('/proc/self/maps').read())"
REMOVALS_MAX = 3000
_REQUIRED = re.compile(r"[A-Za-z0-9._-]+")


class Group(NamedTuple):
    """A control group: where its files are, by what names, and how many bytes it may have in memory."""

    folder: str
    name: str
    limit_file: str
    kills_file: str
    limit_bytes: int

    @property
    def members_file(self) -> str:
        """Who writes his number there becomes a member."""
        return f"{self.folder}/cgroup.procs"

    @property
    def mark(self) -> str:
        """What the kernel says of whom it kills here, as a pattern."""
        return rf"task_memcg=/{re.escape(self.name)}[,/]"

    def kills(self) -> int:
        """How often the kernel has killed a process for want of memory here."""
        with open(f"{self.folder}/{self.kills_file}", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))


def why_not() -> str:
    """Why there can be no such group; empty where there can."""
    if os.geteuid():
        return "only root can limit memory, and add swap"
    return lacking() or ("" if _top() else "no hierarchy of control groups here has the controller of memory")


def lacking() -> str:
    """Which programs are missing to add swap; empty where none is."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"{', '.join(missing)}: not installed" if missing else ""


def _top() -> tuple[str, bool] | None:
    """Where groups with a limit of memory can be made, and whether of version 1."""
    with open(MOUNTINFO, "rb") as file:
        mounted = hierarchies(file.read())
    for hierarchy in mounted:
        if "memory" in hierarchy.controllers:
            return hierarchy.point, True
        with suppress(OSError):
            if not hierarchy.controllers:
                with open(f"{hierarchy.point}/cgroup.subtree_control", encoding="ascii") as file:
                    if "memory" in file.read().split():
                        return hierarchy.point, False
    return None


@contextmanager
def group(limit_bytes: int) -> Iterator[Group]:
    """Make a group whose processes may have so much in memory, and any amount in swap; it goes with the block.

    :raises RuntimeError: where there is no controller of memory.
    """
    top = _top()
    if top is None:
        raise RuntimeError(why_not())
    name = f"sysmond-benchmark-{os.getpid()}"
    names = ("memory.limit_in_bytes", "memory.oom_control") if top[1] else ("memory.max", "memory.events")
    made = Group(f"{top[0]}/{name}", name, *names, limit_bytes)
    os.mkdir(made.folder)
    try:
        with open(f"{made.folder}/{made.limit_file}", "w", encoding="ascii") as file:
            file.write(str(limit_bytes))
        yield made
    finally:
        with suppress(OSError), open(f"{made.folder}/memory.force_empty", "w", encoding="ascii") as file:
            file.write("0")
        remove(made.folder)


def remove(folder: str) -> None:
    """Remove a control group, where it is; a process that was just killed keeps it for a moment."""
    for _ in range(REMOVALS_MAX):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError as refusal:
            if refusal.errno != errno.EBUSY:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def swap(size_bytes: int, kind: str) -> Iterator[None]:
    """Add swap: compressed in memory (``zram``), or in a ``file``; it goes with the block.

    :raises RuntimeError: where others use that of compressed memory. :raises CalledProcessError: where it is refused.
    """
    with ExitStack() as ends:
        if kind == "zram":
            path = f"/dev/{ZRAM}"
            ends.enter_context(_zram(size_bytes))
        else:
            folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="sysmond-swap-", dir=os.path.dirname(ROOT)))
            path = f"{folder}/swap"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.posix_fallocate(descriptor, 0, size_bytes)
            os.close(descriptor)
        subprocess.run(["mkswap", path], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["swapon", path], check=True)
        ends.callback(subprocess.run, ["swapoff", path], check=False)
        yield


@contextmanager
def _zram(size_bytes: int) -> Iterator[None]:
    device = f"/sys/block/{ZRAM}"
    with open(f"{device}/disksize", encoding="ascii") as file:
        if int(file.read()):
            raise RuntimeError(f"{ZRAM} is in use")
    with open(f"{device}/disksize", "w", encoding="ascii") as file:
        file.write(str(size_bytes))
    try:
        yield
    finally:
        with open(f"{device}/reset", "w", encoding="ascii") as file:
            file.write("1")


@contextmanager
def beginning(inside: Group) -> Iterator[list[str]]:
    """Copy what our programs run from; gives what starts a program in the group, with the copies in their place."""
    with tempfile.TemporaryDirectory(prefix="sysmond-copies-", dir=os.path.dirname(ROOT)) as folder:
        lines = ["set -e"]
        for number, original in enumerate(_originals()):
            copy = f"{folder}/{number}"
            _copy(original, copy)
            lines.append(f"mount --bind '{copy}' '{original}'")
        os.sync()  # File by file would take minutes.
        for path in (f"{at}/{name}" for at, _, names in os.walk(folder) for name in names):
            _let_go(path)
        lines += ["echo 0 >/proc/self/oom_score_adj", f"echo $$ >'{inside.members_file}'", 'exec "$@"', ""]
        script = f"{folder}/begin.sh"
        with open(script, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        yield ["unshare", "-m", "--propagation", "private", "sh", script]


def _originals() -> list[str]:
    """Python, what is installed that we need, what of the system these map, and ourselves."""
    base = os.path.realpath(sys.base_prefix)
    of_us = [f"{ROOT}/{name}" for name in PACKAGES if os.path.isdir(f"{ROOT}/{name}")]
    installed = [path for path in sys.path if path.endswith("site-packages") and path.startswith(sys.prefix)]
    folders = [f"{base}/bin", f"{base}/lib", *installed, *of_us]
    said = subprocess.run([sys.executable, "-c", SHOW_MAPPED], stdout=subprocess.PIPE, text=True, check=True).stdout
    mapped = {line.split(None, 5)[5].rstrip() for line in said.splitlines() if line.count("/") and "[" not in line}
    places = [os.path.realpath(folder) for folder in folders]
    others = [path for path in mapped if os.path.isfile(path) and not any(path.startswith(place) for place in places)]
    return [*folders, *sorted(others)]


def _copy(original: str, copy: str) -> None:
    if os.path.isfile(original):
        shutil.copy2(original, copy)
    elif original.endswith("site-packages"):
        os.mkdir(copy)
        for name in _needed(original):
            _copy_any(f"{original}/{name}", f"{copy}/{name}")
    else:
        left_out = LEFT_OUT if original.endswith("/lib") else ()
        shutil.copytree(original, copy, symlinks=True, ignore=shutil.ignore_patterns(*left_out))


def _copy_any(original: str, copy: str) -> None:
    if os.path.isdir(original):
        shutil.copytree(original, copy, symlinks=True, ignore=shutil.ignore_patterns("tests"))
    else:
        shutil.copy2(original, copy)


def _needed(site: str) -> list[str]:
    """What of installed packages is ours, or what we require: the names of files and folders there."""
    waiting, names, seen = ["sysmond"], set[str](), set[str]()
    while waiting:
        package = waiting.pop().lower().replace("_", "-")
        if package in seen:
            continue
        seen.add(package)
        try:
            distribution = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # Of another system, or an extra.
        names.update(str(file).partition("/")[0] for file in distribution.files or ())
        required = [text for text in distribution.requires or () if "extra ==" not in text]
        waiting += [match[0] for text in required if (match := _REQUIRED.match(text))]
    return sorted(name for name in names if name != ".." and os.path.exists(f"{site}/{name}"))


def _let_go(path: str) -> None:
    """Have a file that is on the disk in no memory: whoever reads it pays for that."""
    if os.path.islink(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def faults(pid: int) -> int:
    """How often a process had to wait for a page from a disk, or from swap (/proc/PID/stat, majflt)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[9])


def victims(log: int, mark: str, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Of whom the kernel says from here on that it killed them for want of memory, but those of these names.

    ``log``: /dev/kmsg, which does not block. ``mark``: a pattern of what it says of those that are meant.
    """
    with suppress(BlockingIOError):
        while True:
            try:
                line = os.read(log, 8192).decode("utf-8", "replace")
            except BrokenPipeError:  # Some were overwritten before they were read.
                continue
            found = re.search(rf"oom-kill:.*{mark}.*task=([^,]*),pid=([0-9]+)", line)
            if found and found[1] not in names:
                yield int(found[2]), found[1]
