# SPDX-License-Identifier: Apache-2.0
"""The kernel's messages: counted by level, and those that tell of trouble recognised by their kind.

Source: ``/dev/kmsg`` (the kernel's Documentation/ABI/testing/dev-kmsg). Whoever reads it is woken by each message, and
takes none away. Standard library only.
"""

import errno
import os
import re
import select
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import clock_gettime_ns
from typing import NamedTuple

from sysmond.probe import ABSENT, EVENT_TEXT_MAX, EVENTS_MAX, Host, Row

PATH = "/dev/kmsg"
NOTE = "kernel_message.seen"
LEVELS = ("emergencies", "alerts", "critical", "errors", "warnings", "notices", "infos", "debugs")
WARNING, LEVEL_BITS, LEVEL_MASK = 4, 3, 7
# The kernel gives one message a read, of at most 8 KiB; what is beyond in a reading is passed over, and counted.
RECORD_BYTES = 8192
RECORDS_MAX = 2048
TEXT_LENGTH_MAX = 300
# What was reported so long before it is read is told with its own time.
LATE_NS = 5_000_000_000
CLOCK_MONOTONIC, CLOCK_REALTIME = 1, 0
OTHER = "kernel message"

# What is trouble whatever its level: the kind of event, how it is recognised, and which group says what it is about.
KINDS = {
    "oom kill": (r"(?:Out of memory|Memory cgroup out of memory): Killed process \d+ \((?P<subject>.*?)\)",),
    "hung task": (r"INFO: task (?P<subject>.+?):\d+ blocked for more than",),
    "lockup": (
        r"watchdog: BUG: soft lockup",
        r"rcu: INFO: \w+ (?:self-)?detected stall",
        r"Watchdog detected hard LOCKUP",
    ),
    "machine check": (r"\[Hardware Error\]: ", r"EDAC (?P<subject>\w+): .*\b[CU]E\b"),
    "file system error": (
        (
            r"(?:EXT4-fs|XFS|BTRFS|F2FS-fs|FAT-fs)\b(?=.*(?:error|orruption|critical|emounting filesystem read-only))"
            r"[^(]*(?:\((?:device )?(?P<subject>[^)\s]+)\))?"
        ),
    ),
    "disk error": (
        r"(?:I/O|critical \w+) error, dev (?P<subject>\w+)",
        r"nvme (?P<subject>nvme\d+): .*(?:timeout|reset|controller is down)",
        r"(?P<subject>ata\d+(?:\.\d+)?): (?:hard resetting link|SATA link down|failed command|exception)",
    ),
    "overheated": (r"(?P<subject>CPU\d+): (?:Core|Package) temperature(?:/speed)? (?:is )?above threshold",),
    "crash": (
        r"(?:traps: )?(?P<subject>\S+)\[\d+\]:? (?:segfault at|general protection|trap )",
        r"Kernel panic",
        r"Oops: ",
        r"BUG: ",
    ),
}
_PATTERNS = tuple((kind, re.compile(pattern)) for kind, patterns in KINDS.items() for pattern in patterns)


class KernelMessage(NamedTuple):
    """A message: its level (0 to 7), number, when it was written (µs of the kernel's own clock), and its first line.

    ``is_kernels``: the kernel wrote it, not a program.
    """

    level: int
    number: int
    time_us: int
    text: str
    is_kernels: bool = True


def parse(record: bytes) -> KernelMessage | None:
    """Read one record (``priority,number,µs,flags[,…];text``); None for what is none, as further lines of one."""
    head, semicolon, text = record.partition(b";")
    fields = head.split(b",")
    if not semicolon or len(fields) < 3 or not all(field.isdigit() for field in fields[:3]):  # noqa: PLR2004  as above
        return None
    priority, number, time_us = map(int, fields[:3])
    line = text.partition(b"\n")[0].decode("utf-8", "backslashreplace")
    return KernelMessage(priority & LEVEL_MASK, number, time_us, line[:TEXT_LENGTH_MAX], not priority >> LEVEL_BITS)


def kind_of(message: KernelMessage) -> tuple[str, str]:
    """Say of which kind of event a message tells, and what it is about; two empty texts where it is none."""
    for kind, pattern in _PATTERNS if message.is_kernels else ():
        if match := pattern.search(message.text):
            return kind, match.groupdict().get("subject") or ""
    return (OTHER, "") if message.is_kernels and message.level <= WARNING else ("", "")


class KernelMessages:
    """Reads on from where it was; what was there before it began is counted, and told with its own time."""

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._descriptor = -1
        self._counts = [0] * len(LEVELS)
        self._missed = 0
        self._next = -1
        self._last = -1

    def read(self, host: Host) -> Iterator[Row]:
        """Give the one row, and tell what is trouble.

        :raises OSError: where it may not be read.
        """
        if self._descriptor < 0:
            self._open(host)
        troubles: list[tuple[KernelMessage, str, str]] = []
        for message in self._come():
            self._counts[message.level] += 1
            if self._next >= 0:  # What was overwritten before the first reading is no part of this.
                self._missed += max(0, message.number - self._next)
            self._next = message.number + 1
            # Of what is none nothing stays: at the start there are thousands.
            if message.number > self._last and (trouble := kind_of(message))[0]:
                troubles.append((message, *trouble))
        self._tell(host, troubles)
        yield "", (*self._counts, self._missed)

    def _open(self, host: Host) -> None:
        self._descriptor = os.open(f"{host.root}{PATH}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._last = _noted(host)
        host.at_close(self._close)
        wakes = select.epoll()
        host.at_close(wakes.close)
        with suppress(PermissionError):  # An ordinary file, as a copied tree has.
            wakes.register(self._descriptor, select.EPOLLIN | select.EPOLLET)
            host.wakes = wakes

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _come(self) -> Iterator[KernelMessage]:
        """The messages that wait, so many of them; where there are more, the others are passed over and missed."""
        for _ in range(RECORDS_MAX):
            try:
                content = os.read(self._descriptor, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as problem:
                if problem.errno != errno.EPIPE:  # What was to come was overwritten; the next read goes on behind it.
                    raise
                continue
            if not content:
                return
            for line in content.splitlines():
                if message := parse(line):
                    yield message
        with suppress(OSError):
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def _tell(self, host: Host, troubles: Sequence[tuple[KernelMessage, str, str]]) -> None:
        """Tell of each that is trouble; of ordinary warnings only their number, where there are many."""
        known = [trouble for trouble in troubles if trouble[1] != OTHER]
        others = [trouble for trouble in troubles if trouble[1] == OTHER]
        room = max(0, EVENTS_MAX - 2 - len(known))
        events = [(message, kind, subject, message.text) for message, kind, subject in known]
        if len(others) <= room:
            events += [(message, kind, subject, message.text) for message, kind, subject in others]
        else:
            last = others[-1][0]
            events.append(
                (last, OTHER, "", f"{len(others)} warnings or worse at once, as: {last.text}"[:EVENT_TEXT_MAX])
            )
        now_ns, offset_ns = clock_gettime_ns(CLOCK_MONOTONIC), clock_gettime_ns(CLOCK_REALTIME)
        for message, kind, subject, text in events:
            age_ns = now_ns - message.time_us * 1000
            is_late = age_ns > LATE_NS
            host.tell_event(
                kind,
                subject,
                text,
                happened_ns=offset_ns - age_ns if is_late else ABSENT,
                known_from="kernel messages" if is_late else "",
            )
        if troubles and host.folder:
            self._last = max(self._last, troubles[-1][0].number)
            with suppress(OSError), open(f"{host.folder}/{NOTE}", "w", encoding="ascii") as file:
                file.write(f"{self._last}\n")


def _noted(host: Host) -> int:
    """Up to which message a reader before told; -1 for none. It is of this boot: the folder is in RAM."""
    try:
        with open(f"{host.folder}/{NOTE}", "rb") as file:
            return int(file.read(32)) if host.folder else -1
    except (OSError, ValueError):
        return -1
