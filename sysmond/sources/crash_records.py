# SPDX-License-Identifier: Apache-2.0
"""What is left of a boot that ended badly: the crash records of pstore, and what watchdogs say of the last reset.

Source: the kernel's ``Documentation/ABI/testing/pstore`` and ``sysfs-class-watchdog``, ``uapi/linux/watchdog.h``, and
systemd-pstore.service(8), which moves records to ``/var/lib/systemd/pstore``. A dying kernel, or firmware, may have
written anything: of a record only the line of the panic is read. Standard library only.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from sysmond.probe import ABSENT, Host, Row, rows_of
from sysmond.sources.unread import printable

PSTORE, MOVED, WATCHDOGS = "/sys/fs/pstore", "/var/lib/systemd/pstore", "/sys/class/watchdog"
KIND, PANIC, WATCHDOG = "boot ended", "panic", "watchdog"
PANIC_NOTE, WATCHDOG_NOTE = "pstore.seen", "watchdog.seen"
# One crash may have some dozens of records, of a few KiB; systemd-pstore moves them into folders in folders.
RECORDS_MAX, RECORD_BYTES_MAX, FOLDERS_MAX, DEPTH_MAX = 256, 64 * 1024, 64, 2
WATCHDOGS_MAX, LINE_LENGTH_MAX = 16, 200
SECOND_NS = 1_000_000_000
_NAME = re.compile(r"dmesg(?:-[\w.:-]+|\.txt)", re.ASCII)
# EFI's records are named by their second (10 digits), part and number.
_DATED = re.compile(r"dmesg-efi(?:_pstore)?-(?P<second>1\d{9})\d{3}")
_PANIC = re.compile(rb"Kernel panic - not syncing[^\n]*")
_PANICKED = re.compile(rb"^Panic#\d+ Part\d+", re.MULTILINE)
# By the bits of WDIOF_*.
CAUSES = {0x20: "nobody fed it", 0x01: "overheated", 0x02: "a fan failed", 0x10: "too little power",
          0x40: "too much power", 0x04: "external relay 1", 0x08: "external relay 2"}  # fmt: skip


class CrashRecord(NamedTuple):
    """A record of a crash: when it was (UTC ns, ABSENT where that is unknown), and the line of its panic, if any."""

    time_ns: int
    line: str


def parse(content: bytes) -> str:
    """Give the line of the panic; empty where there was none, as of an oops, which a kernel may survive."""
    panic = _PANIC.search(content)
    line = panic[0] if panic else b"Kernel panic" if _PANICKED.search(content) else b""
    return printable(line, LINE_LENGTH_MAX)


class CrashRecords:
    """Looks for records of crashes, and tells of the last panic once a boot."""

    def __init__(self) -> None:
        """Nothing is looked at yet."""
        self._there: dict[str, int] = {}

    def read(self, host: Host) -> Iterator[Row]:
        """Give the one row.

        :raises OSError: where there is no pstore, or it may not be read.
        """
        if not any(os.path.isdir(f"{host.root}{folder}") for folder in (PSTORE, MOVED)):
            raise FileNotFoundError(errno.ENOENT, "no pstore", PSTORE)
        there = dict(_paths(host))
        if there != self._there:
            self._there = there
            panics = [record for record in (_record(path, ns) for path, ns in there.items()) if record.line]
            if panics and is_first(host, PANIC_NOTE):
                last = max(panics)
                host.tell_event(KIND, PANIC, last.line, happened_ns=last.time_ns, known_from="pstore")
        yield "", (len(there),)


def _paths(host: Host) -> Iterator[tuple[str, int]]:
    """Path and time of each record that lies in pstore, and of each that was moved from there in this boot.

    One that cannot tell when it was written has a time of this boot.
    """
    booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    in_pstore = _listed(f"{host.root}{PSTORE}", 0)
    moved = (record for record in _listed(f"{host.root}{MOVED}", DEPTH_MAX) if record[1] >= booted_ns)
    for path, written_ns in islice((*in_pstore, *moved), RECORDS_MAX):
        dated = _DATED.match(os.path.basename(path))
        at_ns = int(dated["second"]) * SECOND_NS if dated else written_ns
        yield path, at_ns if 0 < at_ns < booted_ns else ABSENT


def _listed(folder: str, depth: int) -> list[tuple[str, int]]:
    """The records in a folder, and so deep below it, by name; with the time of each file."""
    records, folders = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    records.append((entry.path, entry.stat(follow_symlinks=False).st_mtime_ns))
    except FileNotFoundError:
        return []
    # The newest are those of the highest numbers.
    below = sorted(folders, reverse=True)[:FOLDERS_MAX] if depth else []
    return [*sorted(records)[:RECORDS_MAX], *(record for path in below for record in _listed(path, depth - 1))]


def _record(path: str, time_ns: int) -> CrashRecord:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return CrashRecord(time_ns, parse(file.read(RECORD_BYTES_MAX)))
    return CrashRecord(time_ns, "")


def watchdogs(host: Host) -> Iterator[Row]:
    """Give a row for each watchdog, and tell once a boot which of them reset the machine."""
    rows = list(rows_of(islice(host.names(WATCHDOGS), WATCHDOGS_MAX), lambda name: _watchdog(host, name)))
    resets = [f"{name} ({row[2]}): {cause_of(int(row[0]))}" for name, row in rows if row and int(row[0]) > 0]
    if resets and is_first(host, WATCHDOG_NOTE):
        host.tell_event(KIND, WATCHDOG, "; ".join(resets), known_from="watchdog")
    yield from rows


def _watchdog(host: Host, name: str) -> Sequence[int | str]:
    """What a watchdog says; its files are there where the kernel has CONFIG_WATCHDOG_SYSFS."""
    status, timeout_s = (host.integer(f"{WATCHDOGS}/{name}/{of}") for of in ("bootstatus", "timeout"))
    identity = host.word(f"{WATCHDOGS}/{name}/identity")
    return status, timeout_s, printable(identity.encode("utf-8", "replace")) if isinstance(identity, str) else identity


def cause_of(status: int) -> str:
    """Why a watchdog reset the machine, by its ``bootstatus``."""
    return ", ".join(cause for bit, cause in CAUSES.items() if status & bit) or f"status {status}"


def is_first(host: Host, note: str) -> bool:
    """Whether nobody has told of it in this boot: the folder of the lane lasts as long as that does."""
    if not host.folder:
        return True
    with suppress(OSError), open(f"{host.folder}/{note}", "x", encoding="ascii"):
        return True
    return False
