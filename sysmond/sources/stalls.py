# SPDX-License-Identifier: Apache-2.0
"""Stalls: when tasks wait for memory or disks for much of two seconds, the kernel wakes us; nothing is polled.

Source: the kernel's ``Documentation/accounting/psi.rst``, triggers of ``/proc/pressure``. Who has no CAP_SYS_RESOURCE
may watch whole multiples of two seconds only, and before Linux 6.5 nothing. Standard library only.
"""

import errno
import os
import re
import select
from collections.abc import Iterator, Mapping
from time import monotonic_ns

from sysmond.probe import Host, Row

FOLDER = "/proc/pressure"
WINDOW_US = 2_000_000
# For how long of it any task has to wait.
STALLED_US = {"memory": 400_000, "io": 1_000_000}
CALLED = {"memory": "memory", "io": "disks"}
KIND = "pressure"
# What goes on is told once, until there was none for so long.
QUIET_NS = 60 * 1_000_000_000
# What was waited for in a longer time may have been waited for little by little.
LATELY_NS = 2 * WINDOW_US * 1000
_TOTAL = re.compile(rb"some .*total=([0-9]+)")


class Stalls:
    """Watches the resources of this machine, counts the stalls of each, and tells when they begin."""

    def __init__(self) -> None:
        """Nothing is watched yet."""
        self._poll: select.epoll | None = None
        self._is_woken = False
        self._counts = dict.fromkeys(STALLED_US, 0)
        self._totals_us: dict[str, int] = {}
        self._looked_ns = 0
        self._last_ns: dict[str, int] = {}

    def fileno(self) -> int:
        """What becomes readable when there is a stall; the lane waits for it."""
        return -1 if self._poll is None else self._poll.fileno()

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """Take in that something woke us; by which resource, the kernel has forgotten as soon as it is waited for."""
        self._is_woken = True
        return [] if self._poll is None else self._poll.poll(timeout, maxevents)

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each resource.

        :raises OSError: where this kernel has none, or may not be asked; never of another machine's files.
        """
        if self._poll is None:
            self._open(host)
        now_ns = monotonic_ns()
        totals_us = {resource: parse(host.read(f"{FOLDER}/{resource}")) for resource in STALLED_US}
        if self._is_woken and self._totals_us:
            waited_us = {resource: total - self._totals_us[resource] for resource, total in totals_us.items()}
            self._note(host, stalled(waited_us, is_lately=now_ns - self._looked_ns <= LATELY_NS))
        self._is_woken, self._totals_us, self._looked_ns = False, totals_us, now_ns
        for resource, count in self._counts.items():
            yield resource, (count,)

    def _open(self, host: Host) -> None:
        if host.root:  # To watch is to write into the file.
            raise OSError(errno.ENOENT, "only the running machine can be watched", FOLDER)
        watching = select.epoll()
        host.at_close(self._close)
        try:
            for resource, stalled_us in STALLED_US.items():
                descriptor = os.open(f"{FOLDER}/{resource}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                host.at_close(lambda descriptor=descriptor: os.close(descriptor))  # type: ignore[misc]
                os.write(descriptor, f"some {stalled_us} {WINDOW_US}\0".encode())
                watching.register(descriptor, select.EPOLLPRI)
        except OSError as refusal:
            watching.close()
            raise OSError(refusal.errno, refusal.strerror, FOLDER) from refusal
        self._poll, host.wakes = watching, self

    def _close(self) -> None:
        watching, self._poll = self._poll, None
        if watching is not None:
            watching.close()

    def _note(self, host: Host, resources: Iterator[str]) -> None:
        now_ns = monotonic_ns()
        for resource in resources:
            self._counts[resource] += 1
            if now_ns - self._last_ns.get(resource, -QUIET_NS) >= QUIET_NS:
                share = STALLED_US[resource] * 100 // WINDOW_US
                host.tell_event(KIND, resource, f"tasks waited for {CALLED[resource]} for at least {share} % of 2 s")
            self._last_ns[resource] = now_ns


def parse(content: bytes) -> int:
    """For how long any task had to wait since boot, in µs.

    :raises ValueError: where it does not say.
    """
    match = _TOTAL.match(content)
    if match is None:
        raise ValueError(f"{content[:40]!r}: expected 'some avg10=… total=…'")
    return int(match[1])


def stalled(waited_us: Mapping[str, int], *, is_lately: bool) -> Iterator[str]:
    """Which resources woke us, by how long tasks waited for each since the last look.

    ``is_lately``: that look was a moment ago, so what was waited for about as long as a stall lasts is one, and nothing
    else: Linux (6.18) wakes who has just begun to watch though nobody waits. Otherwise it is the longest.
    """
    if is_lately:
        yield from (resource for resource, waited in waited_us.items() if waited >= STALLED_US[resource] // 2)
    else:
        yield max(waited_us, key=lambda resource: waited_us[resource] / STALLED_US[resource])
