# SPDX-License-Identifier: Apache-2.0
"""Gaps of long tables: why there are no rows where there are none. ``gaps`` does the same for wide ones.

What was recorded of a hole counts first; then the end of a life, a sleep, a file that cannot be read or lacks.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from sysmond.base.model import Cause
from sysmond.base.result import Gap
from sysmond.store import archive
from sysmond.store.census import SEQUENCES_END, Line
from sysmond.store.stretches.stretch import GAP_INTERVALS, Incarnation, Stretch

# So many counters that began anew are told one by one.
RESETS_LISTED_MAX = 20
# Until the last reading is this many intervals ago, nothing is missing yet.
TRAILING_INTERVALS = 3


def find(lines: Sequence[Line], table: str, start_ns: int, end_ns: int, *, is_followed: bool = False) -> list[Gap]:
    """Where nothing was recorded of a table within a range, and why. ``is_followed``: there is a later boot."""
    known: list[Gap] = []
    for number, line in enumerate(lines):
        known += holes(line, table)
        recorded = list(known)
        known += [left for gap in _silences(line, table) for left in unexplained(gap, recorded)]
        known += _damaged_start(line, table)
        if number:
            before = lines[number - 1]
            since_ns = before.last_ns + before.parts[-1].stretch.interval_ns
            if begins := line.begins_after(since_ns):
                known.append(Gap(since_ns, min(begins), table, Cause.OFF))
    if lines:
        last = lines[-1]
        interval_ns = last.parts[-1].stretch.interval_ns
        begin_ns = max([last.last_ns, *(gap.end_ns - interval_ns for gap in known)])
        if end_ns - begin_ns > (TRAILING_INTERVALS + 1) * interval_ns:
            life = next(iter(last.parts[-1].stretch.lives[-1:]), None)
            cause = Cause.OFF if is_followed else _ended(life, last.closed())
            later = (hole.detail for hole in last.unread if hole.boot != last.boot)
            detail = _lost_between(last, last.parts[-1].stretch, None) or next(later, "")
            cause = Cause.DAMAGED_FILE if detail else cause
            known.append(Gap(begin_ns + interval_ns, end_ns, table, cause, detail))
        known = _with_lost_boots(known, last.lost_boots)
    return sorted({gap for gap in known if gap.end_ns > start_ns and gap.start_ns < end_ns})


def _with_lost_boots(gaps: Sequence[Gap], lost_boots: Iterable[tuple[int, str]]) -> list[Gap]:
    """Blame files of boots of which nothing can be read: what seems off, the last time before they were written."""
    blamed = {}
    for at_ns, why in lost_boots:
        off = [gap for gap in gaps if gap.cause is Cause.OFF and gap.start_ns <= at_ns]
        if off:
            blamed[max(off)] = why
    return [gap._replace(cause=Cause.DAMAGED_FILE, detail=blamed[gap]) if gap in blamed else gap for gap in gaps]


def holes(line: Line, table: str) -> Iterator[Gap]:
    """The holes that stretches of a line tell of, and its rings that cannot be read."""
    moment = line.course.moment_ns
    unread = (hole for hole in line.unread if hole.boot == line.boot)
    begun_ns = [int(part.stretch.ticks[0]) for part in line.parts]
    for recorded in chain(unread, *(stretch.holes for stretch in line.all_stretches)):
        hole = recorded.up_to_reading(begun_ns)
        yield Gap(moment(hole.start_ns), moment(hole.end_ns), table, hole.cause, hole.detail)


def unexplained(gap: Gap, known: Sequence[Gap]) -> Iterable[Gap]:
    """What is left of a gap beside those that are known."""
    at_ns = gap.start_ns
    for start_ns, end_ns in sorted((other.start_ns, other.end_ns) for other in known):
        if start_ns < gap.end_ns and end_ns > at_ns:
            if start_ns > at_ns:
                yield gap._replace(start_ns=at_ns, end_ns=start_ns)
            at_ns = end_ns
    if at_ns < gap.end_ns or at_ns == gap.start_ns:
        yield gap._replace(start_ns=at_ns)


def _silences(line: Line, table: str) -> Iterable[Gap]:
    """The holes between readings, within stretches and between them."""
    before_ns, before, closed = None, None, line.closed()
    last: Stretch | None = None
    for part in line.parts:
        stretch = part.stretch
        lost = ""
        ticks = stretch.ticks
        interval_ns = stretch.interval_ns
        pairs = [(int(ticks[at]), int(ticks[at + 1]), Cause.LATE_TICK)
                 for at in (ticks[1:] - ticks[:-1] > interval_ns * GAP_INTERVALS).nonzero()[0].tolist()]  # fmt: skip
        if before_ns is not None and int(ticks[0]) - before_ns > interval_ns * GAP_INTERVALS:
            is_within = bool(before and stretch.lives and before.started_ns == stretch.lives[0].started_ns)
            lost = _lost_between(line, last, stretch, is_within=is_within)
            why = Cause.LATE_TICK if is_within else _ended(before, closed)
            pairs.append((before_ns, int(ticks[0]), Cause.DAMAGED_FILE if lost else why))
        for low_ns, high_ns, why in pairs:
            gap = silence(line, table, (low_ns, high_ns), interval_ns, why, stretch.lives)
            yield gap._replace(detail=lost) if gap.cause is Cause.DAMAGED_FILE else gap
        last = stretch
        before_ns, before = int(ticks[-1]), next(iter(stretch.lives[-1:]), None)


def _lost_between(line: Line, before: Stretch | None, after: Stretch | None, *, is_within: bool = False) -> str:
    """Which file between two stretches cannot be read, or is missing within a life; else nothing."""
    low, high = (archive.parse_name(os.path.basename(side.path)) if side else None for side in (before, after))
    if low is None:
        return ""
    end = high.first if high else SEQUENCES_END
    for name, why in sorted(line.damaged.items()):
        if low.last < name.first and name.last < end:
            return why
    if not is_within or high is None or line.names is None:
        return ""
    between = (side for side in archive.missing_of(line.names) if low.last < side.first < end)
    return next(map(archive.spelled_missing, between), "")


def _damaged_start(line: Line, table: str) -> Iterator[Gap]:
    """The time before a line's first reading, where the file that may have had it cannot be read."""
    first = archive.parse_name(os.path.basename(line.parts[0].stretch.path))
    for name, why in sorted(line.damaged.items())[:1]:
        has_earlier = any(
            name_there not in line.damaged and name_there.last < name.first for name_there in line.names or ()
        )
        if (first is None or name.last < first.first) and not has_earlier:
            yield Gap(line.course.moment_ns(0), line.first_ns, table, Cause.DAMAGED_FILE, why)


def silence(
    line: Line, table: str, between_ns: tuple[int, int], interval_ns: int, why: Cause, lives: Sequence[Incarnation]
) -> Gap:
    """The gap between two readings, because of ``why`` where neither the end of a life nor a sleep explains it."""
    low_ns, high_ns = between_ns
    begun = {life.first_ns: index for index, life in enumerate(lives)}
    cause = why
    # Of a merged file, one life is as many as it was files.
    if (index := begun.get(high_ns)) and lives[index - 1].started_ns != lives[index].started_ns:
        cause = _ended(lives[index - 1], line.closed())
    if line.course.asleep_ns(low_ns, high_ns) * 2 > high_ns - low_ns - interval_ns:
        cause = Cause.SUSPENDED
    start_ns = line.course.moment_ns(low_ns) + interval_ns
    return Gap(start_ns, max(start_ns, line.course.moment_ns(high_ns)), table, cause)


def _ended(life: Incarnation | None, closed: Collection[int]) -> Cause:
    """How the writer ended before a gap. ``closed``: the lives that did in good order."""
    return Cause.CLEAN_SHUTDOWN if life and life.started_ns in closed else Cause.DAEMON_DOWN


def resets_within(resets: Iterable[Gap], start_ns: int, end_ns: int) -> Iterator[Gap]:
    """The gaps of counters that began anew within a range: the first ones, and of each metric all others as one."""
    inside = sorted(gap for gap in resets if gap.end_ns > start_ns and gap.start_ns < end_ns)
    yield from inside[:RESETS_LISTED_MAX]
    more: dict[str, list[Gap]] = {}
    for gap in inside[RESETS_LISTED_MAX:]:
        more.setdefault(gap.detail.partition("@")[0], []).append(gap)
    for metric, gaps in more.items():
        whole = gaps[0]._replace(end_ns=max(gap.end_ns for gap in gaps))
        yield whole._replace(detail=f"{metric}: {len(gaps)} more")


def losses(lines: Sequence[Line], table: str, start_ns: int, end_ns: int) -> list[str]:
    """Say how many records had to be left out within a range."""
    lost = 0
    for line in lines:
        low_ns, high_ns = line.course.window(start_ns, end_ns)
        for part in line.parts:
            ticks = part.stretch.ticks
            inside = (ticks >= low_ns) & (ticks < min(high_ns, part.end_ns))
            lost += int(part.stretch.lost[inside].sum())
    return [f"{table}: {lost} records were lost while it was recorded"] if lost else []
