# SPDX-License-Identifier: Apache-2.0
"""Lists the boots that are recorded: when each was, which kernel ran, and how it ended. ``sysmon boots``."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sysmon_tools.output import add_format
from sysmon_tools.quantities import duration
from sysmond.base import clock, timespec
from sysmond.base.clock import SECOND_NS
from sysmond.errors import Error

if TYPE_CHECKING:
    from sysmond.base.result import Boot, Event
    from sysmond.history import Archive

NAMES = ("boot", "id", "from", "to", "lasted_s", "kernel", "ended")
NAMES_FOR_PEOPLE = ("boot", "from", "to", "lasted", "kernel", "ended")
# What runs was seen so recently.
RUNNING_NS = 120 * SECOND_NS
# What happened so shortly before the last row says how a boot ended.
LAST_NS = 180 * SECOND_NS
# Of how many pieces of its time it is asked which kernel ran.
STEPS = 4000
_ORDERLY = "stop"
_TROUBLE = frozenset(
    {"lockup", "machine check", "hung task", "overheated", "disk error", "file system error", "oom kill"}
)
RUNNING, IN_ORDER, UNKNOWN = "running", "in order", "unknown: power loss, hang or reset"


class ListedBoot(NamedTuple):
    """A boot: 0 is the last one, -1 the one before; times in UTC ns; empty where the kernel is not recorded."""

    number: int
    boot: "Boot"
    kernel: str
    ended: str

    @property
    def fields(self) -> tuple[int, str, str, str, float, str, str]:
        """As ``NAMES`` has it."""
        start_ns, end_ns = self.boot.start_ns, self.boot.end_ns
        start, end = timespec.format_time(start_ns), timespec.format_time(end_ns)
        return self.number, self.boot.boot, start, end, (end_ns - start_ns) / SECOND_NS, self.kernel, self.ended


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add_format(made)


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """List them, and give the warnings.

    :raises Error: where nothing is recorded.
    """
    from sysmon_tools.rows import RowTable, send_rows  # noqa: PLC0415  numpy: --help needs none of it

    listed = boots(archive)
    exact = RowTable(NAMES, [one.fields for one in listed])
    for_people = RowTable(NAMES_FOR_PEOPLE, [_spelled(one) for one in listed])
    send_rows(options.format, exact, for_people, nothing="no boot is recorded")
    return list(dict.fromkeys(archive.warnings))


def boots(archive: "Archive") -> list[ListedBoot]:
    """Every boot with anything recorded, oldest first."""
    there = archive.boots()
    if not there:
        return []
    happened = archive.events(there[0].start_ns, there[-1].end_ns + LAST_NS)
    kernels = _kernels(archive, there)
    return [
        ListedBoot(number - len(there) + 1, boot, kernels[number], _ended(boot, happened))
        for number, boot in enumerate(there)
    ]


def _ended(boot: "Boot", happened: Sequence["Event"]) -> str:
    """How a boot ended, as far as what happened last tells."""
    if boot.boot == clock.boot_id() and clock.relation().realtime_ns - boot.end_ns < RUNNING_NS:
        return RUNNING
    last = [event for event in happened if boot.end_ns - LAST_NS <= event.time_ns <= boot.end_ns + LAST_NS // 3]
    if any(event.kind == _ORDERLY for event in last):
        return IN_ORDER
    before = [event for event in last if event.kind in _TROUBLE]
    return f"{UNKNOWN}; {before[-1].kind} before it" if before else UNKNOWN


def _kernels(archive: "Archive", there: Sequence["Boot"]) -> list[str]:
    """The kernel of each boot; empty where it is not recorded."""
    start_ns, end_ns = there[0].start_ns, there[-1].end_ns + SECOND_NS
    step_s = max(1, (end_ns - start_ns) // SECOND_NS // STEPS)
    try:
        result = archive.select("host/kernel", start=start_ns, end=end_ns, step=f"{step_s}s", stat="last")
    except Error:
        return [""] * len(there)
    texts = result.columns[0].texts or ()
    seen = [(time, text) for time, text in zip(result.times_ns.tolist(), texts, strict=True) if text]
    step_ns = step_s * SECOND_NS
    return [
        next((text for time, text in reversed(seen) if boot.start_ns - step_ns < time <= boot.end_ns), "")
        for boot in there
    ]


def _spelled(one: ListedBoot) -> tuple[object, ...]:
    number, _, start, end, lasted_s, kernel, ended = one.fields
    return number, _short(start), _short(end), duration(lasted_s), kernel, ended


def _short(time: str) -> str:
    """A local time to the second."""
    return time[:19].replace("T", " ")
