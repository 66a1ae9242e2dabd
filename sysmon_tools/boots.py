# SPDX-License-Identifier: Apache-2.0
"""Lists the boots that are recorded: when each was, how it started and ended, which kernel ran. ``sysmon boots``."""

import argparse
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sysmon_tools.grid import clipped
from sysmon_tools.output import add_format, display
from sysmon_tools.quantities import duration
from sysmon_tools.signs import ASCII_SIGNS, SIGNS, Signs, sparkline
from sysmon_tools.startups import PHASES, MeasuredBoot, measured, unfinished_ns
from sysmond.base import clock, paths, timespec
from sysmond.base.clock import SECOND_NS
from sysmond.base.event_kinds import BOOT_ENDED
from sysmond.base.model import ABSENT
from sysmond.base.terminal import say
from sysmond.errors import Error, UsageError

if TYPE_CHECKING:
    from sysmond.base.result import Boot, Event
    from sysmond.history import Archive

_PHASES_S = tuple(f"{phase}_s" for phase in PHASES)
NAMES = ("boot", "id", "from", "to", "lasted_s", "kernel", "ended", "startup_s", *_PHASES_S, "startup")
CHAIN_NAMES = ("unit", "began_s", "took_s")
NAMES_FOR_PEOPLE = ("boot", "from", "to", "lasted", "kernel", "ended", "startup", *PHASES)
# What is still recorded was seen so recently, where nothing says that the recorder ended.
RUNNING_NS = 120 * SECOND_NS
# What happened so shortly before the last row says how a boot ended.
LAST_NS = 180 * SECOND_NS
# The recorder may begin so long after a boot was over.
FIRST_NS = 3600 * SECOND_NS
# A boot is a sign; behind them there is room for what is said of all.
TRENDS_MAX, _LABEL_WIDTH, _SAID_WIDTH = 60, 11, 36
# Of how many pieces of its time it is asked which kernel ran.
STEPS = 4000
_ORDERLY, _REQUESTED = "stop", "shutdown"
_TROUBLE = frozenset(
    {"lockup", "machine check", "hung task", "overheated", "disk error", "file system error", "oom kill"}
)
RUNNING, IN_ORDER, UNKNOWN = "running", "in order", "unknown: power loss, hang or reset"
# Of what the next boot tells of it the first of these says most.
_BY_WEIGHT = ("panic", "watchdog", IN_ORDER)
NOT_RECORDED = "running, not recorded any more"
NOT_KNOWN = "not known: a snapshot ends before the boot did"
# What there is instead of the length of a boot; nothing where none was recorded.
FINISHED, UNFINISHED, WITHOUT = "finished", "unfinished", "no systemd"
# Rings of parts end at ticks of their own: the end of the recorder may come so long before the last row.
ORDERLY_NS = 5 * SECOND_NS


class ListedBoot(NamedTuple):
    """A boot: 0 is the last one, -1 the one before; times in UTC ns; empty where the kernel is not recorded.

    ``is_late``: long after it began it was not over. ``init``: the first process; empty likewise.
    """

    number: int
    boot: "Boot"
    kernel: str
    ended: str
    startup: MeasuredBoot | None = None
    is_late: bool = False
    init: str = ""

    @property
    def fields(self) -> tuple[object, ...]:
        """As ``NAMES`` has it."""
        start_ns, end_ns = self.boot.start_ns, self.boot.end_ns
        start, end = timespec.format_time(start_ns), timespec.format_time(end_ns)
        lasted_s = (end_ns - start_ns) / SECOND_NS
        known = self.number, self.boot.boot, start, end, lasted_s, self.kernel, self.ended
        return *known, *self.lengths_s, self.started

    @property
    def started(self) -> str:
        """Whether it came to its end; empty where nobody recorded that."""
        if self.startup is not None:
            return FINISHED
        return UNFINISHED if self.is_late else WITHOUT if self.init not in {"", "systemd"} else ""

    @property
    def lengths_s(self) -> tuple[float | None, ...]:
        """How long it took to start, in all and by phase; None where that is unknown, or there was no such phase."""
        if self.startup is None:
            return (None,) * (1 + len(PHASES))
        return round(self.startup.total_s, 3), *(length or None for length in self.startup.phases_s)


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    made.add_argument(
        "--explain", action="store_true", help="say since which boot boots are slower, and what changed just before"
    )
    made.add_argument("--chain", nargs="?", const="0", metavar="-1|ID", help="show what a boot waited for, the last"
        " first: 0 is the current one (default), -1 the one before, or a boot id")  # fmt: skip
    add_format(made)


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """List them, and give the warnings.

    :raises UsageError: for a boot that is not recorded. :raises Error: where nothing is recorded.
    """
    from sysmon_tools.rows import RowTable, send_rows  # noqa: PLC0415  numpy: --help needs none of it

    if options.explain and options.chain is not None:
        raise UsageError("--explain and --chain: expected only one of them")
    listed = boots(archive)
    if options.chain is not None:
        table = RowTable(CHAIN_NAMES, _chain(listed, options.chain))
        send_rows(options.format, table, table, nothing="")
        return list(dict.fromkeys(archive.warnings))
    if options.explain:
        from sysmon_tools.slower_boots import NAMES as REASONS  # noqa: PLC0415  numpy, as above
        from sysmon_tools.slower_boots import explained  # noqa: PLC0415  as above

        rows, nothing = explained(
            archive, clock.relation().realtime_ns, [one.started for one in listed if one.startup is None]
        )
        told = RowTable(REASONS, rows)
        send_rows(options.format, told, told, nothing=nothing)
        if nothing and display() is None:
            say(nothing, "sysmon")
        return list(dict.fromkeys(archive.warnings))
    exact = RowTable(NAMES, [one.fields for one in listed])
    for_people = RowTable(NAMES_FOR_PEOPLE, _spelled(listed))
    send_rows(
        options.format,
        exact,
        for_people,
        nothing="no boot is recorded",
        below=lambda screen: trends(listed, screen.columns, ASCII_SIGNS if screen.is_ascii else SIGNS),
    )
    return list(dict.fromkeys(archive.warnings))


def boots(archive: "Archive") -> list[ListedBoot]:
    """Every boot with anything recorded, oldest first."""
    there = archive.boots()
    if not there:
        return []
    happened = archive.events(there[0].start_ns - FIRST_NS, there[-1].end_ns + LAST_NS)
    startups = measured(happened)
    kernels, inits = texts(archive, there, "host/kernel"), texts(archive, there, "init/name")
    late_ns = unfinished_ns(happened)
    is_cut = archive.is_snapshot
    afterwards = _afterwards(there, happened)
    return [
        ListedBoot(
            number - len(there) + 1,
            boot,
            kernels[number],
            _ended(boot, happened, afterwards.get(number, {}), is_cut=is_cut and boot == there[-1]),
            _started(startups, there[number - 1].end_ns if number else 0, boot.end_ns),
            any(boot.start_ns <= time_ns <= boot.end_ns + SECOND_NS for time_ns in late_ns),
            inits[number],
        )
        for number, boot in enumerate(there)
    ]


def find(listed: Sequence[ListedBoot], boot: str | int) -> ListedBoot:
    """The boot that is meant: by id or its beginning, or counted back from the newest, 0.

    :raises UsageError: where it is not recorded.
    """
    wanted = paths.find_boot(boot, [one.boot.boot for one in listed])
    return next(one for one in listed if one.boot.boot == wanted)


def _chain(listed: Sequence[ListedBoot], boot: str) -> list[tuple[object, ...]]:
    """What a boot waited for, the last first.

    :raises Error: where that is not recorded.
    """
    one = find(listed, boot)
    if one.startup is None or not one.startup.chain:
        raise Error(f"boot {one.number}: what it waited for is not recorded; systemd reports it after the boot")
    return [(link.unit, link.begin_s, link.length_s or None) for link in one.startup.chain]


def _afterwards(there: Sequence["Boot"], happened: Sequence["Event"]) -> Mapping[int, Mapping[str, str]]:
    """What the next boot tells of how each ended, by place in the list: the text, by what it was.

    What has a time of its own happened then; all else is told in the boot after it.
    """
    starts_ns = [boot.start_ns for boot in there]
    ends: dict[int, dict[str, str]] = {}
    for event in happened:
        if event.kind == BOOT_ENDED:
            number = bisect_right(starts_ns, event.time_ns) - (1 if event.happened_ns != ABSENT else 2)
            ends.setdefault(number, {})[event.subject] = event.text
    return ends


def _ended(boot: "Boot", happened: Sequence["Event"], afterwards: Mapping[str, str], *, is_cut: bool) -> str:
    """How a boot ended, as far as what happened last, and what the next boot found, tells.

    ``is_cut``: more may have been recorded of it than there is here.
    """
    if boot.boot == clock.boot_id():
        if is_cut:
            return RUNNING
        is_silent = clock.relation().realtime_ns - boot.end_ns >= RUNNING_NS
        has_ended = any(event.kind == _ORDERLY and event.time_ns >= boot.end_ns - ORDERLY_NS for event in happened)
        return NOT_RECORDED if is_silent or has_ended else RUNNING
    last = [event for event in happened if boot.end_ns - LAST_NS <= event.time_ns <= boot.end_ns + LAST_NS // 3]
    is_orderly = any(event.kind == _ORDERLY for event in last)
    known = next((how for how in _BY_WEIGHT if how in afterwards), IN_ORDER if is_orderly else "")
    if known == IN_ORDER:
        requested_ns = [event.time_ns for event in last if event.kind == _REQUESTED and event.time_ns <= boot.end_ns]
        after = f", {(boot.end_ns - requested_ns[-1]) / SECOND_NS:.0f} s after it was requested" if requested_ns else ""
        return f"{IN_ORDER}{after}"
    if known:
        return f"{known}: {afterwards[known]}".removesuffix(": ")  # Without names, no text says more.
    if is_cut:
        return NOT_KNOWN
    before = [event for event in last if event.kind in _TROUBLE]
    return f"{UNKNOWN}; {before[-1].kind} before it" if before else UNKNOWN


def texts(archive: "Archive", there: Sequence["Boot"], path: str) -> list[str]:
    """What a text was at the end of each boot; empty where it is not recorded."""
    start_ns, end_ns = there[0].start_ns, there[-1].end_ns + SECOND_NS
    step_s = max(1, (end_ns - start_ns) // SECOND_NS // STEPS)
    try:
        result = archive.select(path, start=start_ns, end=end_ns, step=f"{step_s}s", stat="last")
    except Error:
        return [""] * len(there)
    values = result.columns[0].texts or ()
    seen = [(time, text) for time, text in zip(result.times_ns.tolist(), values, strict=True) if text]
    step_ns = step_s * SECOND_NS
    return [
        next((text for time, text in reversed(seen) if boot.start_ns - step_ns < time <= boot.end_ns), "")
        for boot in there
    ]


def _started(startups: Sequence[MeasuredBoot], since_ns: int, until_ns: int) -> MeasuredBoot | None:
    """How a boot started: what was over after the one before it was last seen, and before it was itself."""
    return next((startup for startup in reversed(startups) if since_ns < startup.time_ns <= until_ns), None)


def _spelled(listed: Sequence[ListedBoot]) -> list[tuple[object, ...]]:
    """For people: to the tenth of a second."""
    rows: list[tuple[object, ...]] = []
    for one in listed:
        lasted_s = (one.boot.end_ns - one.boot.start_ns) / SECOND_NS
        span = _short(timespec.format_time(one.boot.start_ns)), _short(timespec.format_time(one.boot.end_ns))
        lengths = [None if length is None else f"{length:.1f} s" for length in one.lengths_s]
        if one.startup is None:
            lengths[0] = one.started or None
        rows.append((one.number, *span, duration(lasted_s), one.kernel, one.ended, *lengths))
    return rows


def trends(listed: Sequence[ListedBoot], columns: int | None, signs: Signs) -> list[str]:
    """How long boots took to start, a sign each and the last one at the right: a line in all, and one for each phase.

    Each is drawn from nothing to its own longest. No line where fewer than two boots are known.
    """
    room = TRENDS_MAX if columns is None else max(1, min(TRENDS_MAX, columns - _LABEL_WIDTH - _SAID_WIDTH))
    by_line = list(zip(*(one.lengths_s for one in listed[-room:]), strict=True))
    if sum(length is not None for length in by_line[0]) <= 1:
        return []
    lines = ["", "how long they took to start, the last one at the right"]
    for label, lengths in zip(("in all", *PHASES), by_line, strict=True):
        if known := [length for length in lengths if length is not None]:
            shares = (None if length is None else length / max(known) for length in lengths)
            last, least, most = (f"{length:.1f} s" for length in (known[-1], min(known), max(known)))
            said = last if least == most else f"{last}, from {least} to {most}"
            lines.append(f"{label:{_LABEL_WIDTH}}{sparkline(shares, signs)}  {said}")
    return lines if columns is None else [clipped(line, columns, is_ascii=signs is ASCII_SIGNS) for line in lines]


def _short(time: str) -> str:
    """A local time to the second."""
    return time[:19].replace("T", " ")
