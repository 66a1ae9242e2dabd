# SPDX-License-Identifier: Apache-2.0
"""Gaps: why there is nothing where there is nothing.

A table's ticks are compared with the time line as a whole, whatever range is asked for: a gap tells its true
ends. Where several things could be blamed, what was recorded counts first, then damage, then the clocks.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sysmond.base import clock
from sysmond.base.model import Cause, series_path
from sysmond.base.paths import Matcher, Pattern, is_wild
from sysmond.base.result import BoolArray, Gap, Result
from sysmond.base.timespec import FOREVER_NS
from sysmond.machine import snapshot_note
from sysmond.machine.folders import Folders
from sysmond.store import archive
from sysmond.store.coding.statistics import GAP_FACTOR
from sysmond.store.holdings import Damage
from sysmond.store.of_ring import Hole, SeriesKey

if TYPE_CHECKING:
    from sysmond.answers.series.reading import TrackView
    from sysmond.store.timeline import Timeline
    from sysmond.store.tracks import TickRun, Track

# Until the last tick is this many intervals ago, nothing is missing yet.
TRAILING_INTERVALS = 3
# A machine that starts needs a while until it records: less than this is a part of being off.
STARTING_NS = 300 * clock.SECOND_NS


class _Break(NamedTuple):
    """Two neighbouring ticks, in UTC, with a hole between them."""

    start_ns: int
    end_ns: int
    start_tick_ns: int
    end_tick_ns: int
    cause: Cause
    detail: str = ""


class Things:
    """What is asked for, by table: of an absence of one instance nobody is told who asks for others."""

    def __init__(self, keys: Iterable[SeriesKey]) -> None:
        """Gather the instances of series."""
        self._of: dict[str, set[str]] = {}
        for key in keys:
            self._of.setdefault(key.table, set()).add(f"{key.table}@{key.instance}" if key.instance else key.table)
        self._spaced = [name for names in self._of.values() for name in names if ": " in name]

    def names(self, table: str) -> Collection[str]:
        """The instances of a table that are asked for, as ``TABLE@INSTANCE``."""
        return self._of.get(table, ())

    def of(self, hole: Hole) -> str | None:
        """What an absence concerns: its table, an instance as ``TABLE@INSTANCE``; None where nobody asks for that."""
        if not hole.detail.startswith(f"{hole.table}@"):
            return hole.table
        name = next((each for each in self._spaced if hole.detail.startswith(each)), hole.detail.partition(": ")[0])
        return name if name in self.names(hole.table) else None


def find(
    line: "Timeline", tables: Collection[str], boot: str | None, now_ns: int, asked: Iterable[SeriesKey] = ()
) -> list[Gap]:
    """Every gap of these tables, and of the instances that are ``asked`` for, whenever it was, in order of time."""
    tracks = [track for track in line.tracks if boot in {None, track.lineage.boot}]
    things = Things(asked)
    recorded = [
        hole.up_to_reading(_begun_ns(tracks, hole))
        for hole in line.holes(tables)
        if boot in {None, hole.boot} and things.of(hole)
    ]
    known = _Known(recorded, things, tracks)
    gaps = [_gap(line, hole) for hole in recorded]
    gaps += [_unread(line, hole, keys) for hole, keys in line.unread.items()]
    for track in tracks:
        for hole, table in product([*_breaks(track, line), *_damaged_start(track, line)], track.tables & set(tables)):
            if hole.cause is Cause.CLOCK_STEP:
                gaps += _leapt(hole, table, track, tracks, line)
            else:
                gaps += _unexplained(hole, table, track, known, line)
    for table in tables:
        mine = [track for track in tracks if table in track.tables]
        gaps += _between(mine, table, line)
        if mine and boot in {None, line.boots()[-1]}:
            gaps += _trailing(mine, table, line, now_ns)
    damaged = [gap for gap in gaps if gap.cause is Cause.DAMAGED_FILE]
    gaps = [gap for gap in gaps if not _is_explained(gap, damaged)]
    return coalesce(_with_lost_boots(gaps, line) if boot is None else gaps)


def begins(
    line: "Timeline", tables: Collection[str], gaps: Iterable[Gap], start_ns: int, boot: str | None = None
) -> dict[str, int]:
    """When what is known of each table begins, in a boot or in all, UTC: with its first tick, or a gap before that.

    Where the first tick came within an interval of the beginning of the range, none came too late.
    """
    known = [(gap.table, gap.start_ns) for gap in gaps]
    for track in line.tracks:
        if boot not in {None, track.lineage.boot}:
            continue
        first_ns = line.moment_ns(track.lineage.boot, track.first_ns)
        is_at_once = 0 <= first_ns - start_ns <= track.lineage.interval_ns
        known += [(table, start_ns if is_at_once else first_ns) for table in track.tables]
    return {table: begin_ns for table, begin_ns in sorted(known, reverse=True) if table in tables}


def only_buckets(table: str, stats: Iterable[str]) -> str:
    """Say that some statistics are not known for all of the range, since rows are gone."""
    return f"table {table!r}: of a part of the range only buckets are left, which keep no {', '.join(sorted(stats))}"


def outside(begin_ns: Mapping[str, int], start_ns: int, end_ns: int, now_ns: int) -> Iterator[Gap]:
    """The parts of a range of which nothing can be known: before recording began, and from now on.

    ``begin_ns``: when it began, by table. A range for which no end was asked is open, or ends behind what is now.
    """
    for table, since_ns in begin_ns.items():
        first_ns = open_start_ns(since_ns, end_ns) if start_ns == -FOREVER_NS else start_ns
        if first_ns < since_ns:
            yield Gap(first_ns, since_ns, table, Cause.BEFORE_RECORDING)
        if now_ns + 1 < end_ns < FOREVER_NS:
            yield Gap(max(start_ns, now_ns), end_ns, table, Cause.IN_THE_FUTURE)


def recorded_elsewhere(gaps: Collection[Gap], until_ns: int, place: Folders) -> list[Gap]:
    """The gaps, none of which says that recording ended where it goes on, in a runtime folder that nobody named.

    ``until_ns``: up to when gaps go after the last reading. How long a recorder has gone on there is not known.
    """
    ended = {gap for gap in gaps if gap.end_ns == until_ns and gap.cause in {Cause.CLEAN_SHUTDOWN, Cause.DAEMON_DOWN}}
    if ended:
        from sysmond.machine.lock import elsewhere  # noqa: PLC0415  most recordings go on, or are asked where they do

        if said := elsewhere(place).removeprefix("; "):
            return [gap._replace(cause=Cause.NO_SOURCE, detail=said) if gap in ended else gap for gap in gaps]
    return list(gaps)


def of_first_readings(
    line: "Timeline", boot: str | None, result: Result, rates: Collection[SeriesKey], known: Collection[Gap]
) -> Iterator[Gap]:
    """The interval before the first reading of a table: what counters grew by in it nobody knows.

    Told where a step of the answer has nothing else of these ``rates``, and no known gap says so.
    """
    paths = {series_path(*key) for key in rates}
    for table in sorted({key.table for key in rates}):
        for gap in before_first(line, boot, table, known):
            at = int(np.searchsorted(result.times_ns, gap.end_ns, "right")) - 1
            if at < 0 or gap.end_ns >= int(result.times_ns[at]) + result.step_ns:
                continue
            mine = [one for one in result.columns if one.path in paths and one.path.startswith(f"{table}/")]
            if np.isnan([column.values[at] for column in mine]).all():
                yield gap


def before_first(line: "Timeline", boot: str | None, table: str, known: Collection[Gap]) -> Iterator[Gap]:
    """The interval before the first reading of a table; nothing where a known gap has it."""
    firsts = [
        (line.moment_ns(track.lineage.boot, track.first_ns), track.lineage.interval_ns)
        for track in line.tracks
        if boot in {None, track.lineage.boot} and table in track.tables
    ]
    for first_ns, interval_ns in sorted(firsts)[:1]:
        if not any(gap.table == table and gap.start_ns < first_ns <= gap.end_ns for gap in known):
            yield Gap(first_ns - interval_ns, first_ns, table, Cause.BEFORE_RECORDING)


def open_start_ns(begin_ns: int, end_ns: int) -> int:
    """Where a range begins for which no start was asked: with what is recorded, UTC.

    Where it ends before that, it is its last second, which has a gap and nothing else.
    """
    return begin_ns if begin_ns < end_ns else end_ns - clock.SECOND_NS


def _is_explained(gap: Gap, damaged: Iterable[Gap]) -> bool:
    """Whether damage is to blame for all of a gap that seems to be because nothing was recorded."""
    return gap.cause in {Cause.DAEMON_DOWN, Cause.CLEAN_SHUTDOWN, Cause.NO_SOURCE} and any(
        damage.table == gap.table and damage.start_ns <= gap.start_ns and gap.end_ns <= damage.end_ns
        for damage in damaged
    )


def _with_lost_boots(gaps: list[Gap], line: "Timeline") -> list[Gap]:
    """Blame files of boots of which nothing can be read: what seems off, the last time before they were written."""
    known = set(line.boots())
    for damage in line.damages:
        if damage.name is None or damage.name.boot in known or not damage.modified_ns:
            continue
        last: dict[str, Gap] = {}
        for gap in sorted(gaps):
            if gap.cause is Cause.OFF and gap.start_ns <= damage.modified_ns:
                last[gap.table] = gap
        gaps = [
            gap._replace(cause=damage.cause, detail=damage.reason) if last.get(gap.table) == gap else gap
            for gap in gaps
        ]
    return gaps


def lost(line: "Timeline", patterns: Collection[Pattern], boot: str | None, now_ns: int) -> Iterator[Gap]:
    """Where damage may have taken the rows of tables of which there are none at all."""
    matchers = [Matcher(pattern) for pattern in patterns]
    tables = {pattern.table for pattern in patterns if not is_wild(pattern.table)}
    tables |= {table for table in line.tables if any(matcher.table(table) for matcher in matchers)}
    for hole in line.holes(tables):
        if hole.cause is Cause.DAMAGED_FILE and boot in {None, hole.boot}:
            yield _gap(line, hole)
    for damage in line.damages:
        ticks = line.damaged_ticks(damage)
        if damage.name and ticks and boot in {None, damage.name.boot}:
            start_ns, end_ns = (min(now_ns, line.moment_ns(damage.name.boot, tick_ns)) for tick_ns in ticks)
            yield from (Gap(start_ns, end_ns, table, damage.cause, damage.reason) for table in tables)


def silent(
    view: "TrackView", missing: Mapping[str, BoolArray], line: "Timeline", asked: Iterable[SeriesKey]
) -> Iterator[Gap]:
    """Where a table has ticks, but none of the series asked for has a value: it was not there to be read.

    ``missing``: by table, where on the view's axis that is so, bool[row].
    """
    boot, interval_ns = view.track.lineage.boot, view.track.lineage.interval_ns
    things = Things(asked)
    recorded = [hole for hole in [*line.holes(missing), *line.unread] if hole.boot == boot]
    known = _Known(recorded, things, line.tracks)
    for table, absent in sorted(missing.items()):
        edges = np.flatnonzero(np.diff(absent & view.inside, prepend=False, append=False)).tolist()
        for first, after in zip(edges[::2], edges[1::2], strict=True):
            if _is_between_readings(view, absent, first, after):
                continue
            span = int(view.axis.first[first]), int(view.axis.last[after - 1]) + interval_ns
            # What is recorded of one instance explains nothing of another one.
            for name in things.names(table):
                for start_ns, end_ns in known.left(view.track, table, span, name):
                    last_ns = end_ns - interval_ns
                    utc_ns = line.moment_ns(boot, start_ns), line.moment_ns(boot, last_ns) + interval_ns
                    yield Gap(*utc_ns, table, *_why_silent(line, boot, table, start_ns))


def _is_between_readings(view: "TrackView", absent: BoolArray, first: int, after: int) -> bool:
    """Whether a table was just not due at these rows of a view: another of its interval was read out of turn."""
    axis, interval_ns = view.axis, view.track.lineage.interval_ns
    has_before = first > 0 and not absent[first - 1]
    has_after = after < len(absent) and not absent[after]
    begin_ns = int(axis.last[first - 1] if has_before else axis.first[first])
    end_ns = int(axis.first[after] if has_after else axis.last[after - 1])
    limit_ns = interval_ns * GAP_FACTOR if has_before and has_after else interval_ns
    return (has_before or has_after) and end_ns - begin_ns < limit_ns


def _why_silent(line: "Timeline", boot: str, table: str, tick_ns: int) -> tuple[Cause, str]:
    """Blame the file whose values could not be read at a tick, else say that there was no source."""
    for hole in sorted(line.unread):
        if (hole.boot, hole.table) == (boot, table) and hole.start_ns <= tick_ns < hole.end_ns:
            return hole.cause, hole.detail
    return _last_word(line, boot, table, tick_ns) or (Cause.NO_SOURCE, "")


def _last_word(line: "Timeline", boot: str, table: str, tick_ns: int) -> tuple[Cause, str] | None:
    """Why a table is silent at a tick, by the last absence that was recorded of it; None where that says nothing.

    It does where the table was disabled or in quarantine, and nothing that began since then has any of its series.
    """
    holes = [hole for hole in line.holes((table,)) if hole.boot == boot and hole.start_ns <= tick_ns]
    last = max(holes, key=lambda hole: hole.start_ns, default=None)
    if last is None or last.cause not in {Cause.DISABLED, Cause.QUARANTINED}:
        return None
    for track in line.tracks:
        if track.lineage.boot == boot and table in track.tables:
            for keys, first_ns, _, _ in track.extents():
                if last.end_ns < first_ns <= tick_ns and any(key.table == table for key in keys):
                    return None
    return last.cause, last.detail


def _unexplained(whole: _Break, table: str, track: "Track", known: "_Known", line: "Timeline") -> Iterator[Gap]:
    """What is left of a hole in a track's ticks beside what is known otherwise, as gaps of a table."""
    boot, span = track.lineage.boot, (whole.start_tick_ns, whole.end_tick_ns)
    for start_ns, end_ns in known.left(track, table, span):
        part = whole._replace(
            start_ns=whole.start_ns if start_ns == span[0] else line.moment_ns(boot, start_ns),
            end_ns=whole.end_ns if end_ns == span[1] else line.moment_ns(boot, end_ns),
            start_tick_ns=start_ns,
            end_tick_ns=end_ns,
        )
        yield _blamed(Gap(part.start_ns, part.end_ns, table, part.cause, part.detail), part, track, line)


class _Span(NamedTuple):
    """A stretch of boot time that is explained; ``slack_ns``: so much may be missing on either side of it."""

    start_ns: int
    end_ns: int
    slack_ns: int


def _left(start_ns: int, end_ns: int, spans: Iterable[_Span]) -> Iterator[tuple[int, int]]:
    """What is left of a stretch beside some others, up to these themselves."""
    reached_ns = after_ns = start_ns
    for span in [*sorted(spans), _Span(end_ns, end_ns, 0)]:
        if span.start_ns - span.slack_ns > reached_ns:
            yield after_ns, min(span.start_ns, end_ns)
        reached_ns, after_ns = max(reached_ns, span.end_ns + span.slack_ns), max(after_ns, span.end_ns)


class _Known:
    """What explains holes: what was recorded of them, and other tracks, which have the rows themselves."""

    def __init__(self, holes: Iterable[Hole], things: Things, tracks: "Collection[Track]") -> None:
        self._tracks = tracks
        # By boot, and by table or instance, in order of time and joined where they touch.
        self._recorded: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for hole in sorted(holes, key=lambda hole: (hole.start_ns, hole.end_ns)):
            if (name := things.of(hole)) is None:
                continue
            recorded = self._recorded.setdefault((hole.boot, name), [])
            if recorded and hole.start_ns <= recorded[-1][1]:
                recorded[-1] = recorded[-1][0], max(recorded[-1][1], hole.end_ns)
            else:
                recorded.append((hole.start_ns, hole.end_ns))

    def left(self, track: "Track", table: str, span: tuple[int, int], instance: str = "") -> Iterator[tuple[int, int]]:
        """What nothing explains of a stretch of a track (start, end) in which a table, or an instance, has no rows."""
        spans: list[_Span] = []
        # Neither of two readings that are missing side by side is explained by what lies around both.
        slack_ns = (track.lineage.interval_ns - 1) // 2
        for name in {table, instance or table}:
            recorded = self._recorded.get((track.lineage.boot, name), [])
            first = bisect_left(recorded, span[0] - slack_ns, key=lambda hole: hole[1])
            after = bisect_right(recorded, span[1] + slack_ns, key=lambda hole: hole[0])
            spans += [_Span(*hole, slack_ns) for hole in recorded[first:after]]
        if any(_left(*span, spans)):
            spans += _elsewhere(self._tracks, track, table, *span)
        return _left(*span, spans)


def _elsewhere(tracks: "Iterable[Track]", track: "Track", table: str, start_ns: int, end_ns: int) -> list[_Span]:
    """Where other tracks have a table's series near these ticks: it changed its interval, lane or class."""
    spans: list[_Span] = []
    mine: set[tuple[str, str]] | None = None
    for other in tracks:
        if other is track or other.lineage.boot != track.lineage.boot or table not in other.tables:
            continue
        slack_ns = round(max(other.lineage.interval_ns, track.lineage.interval_ns) * GAP_FACTOR)
        near = [
            _Span(run.first_ns, run.last_ns + other.lineage.interval_ns, slack_ns)
            for run in other.stretches
            if run.first_ns - slack_ns <= end_ns and run.last_ns + slack_ns >= start_ns
        ]
        if near:
            mine = {(key.metric, key.instance) for key in track.keys if key.table == table} if mine is None else mine
            if any((key.metric, key.instance) in mine for key in other.keys if key.table == table):
                spans += near
    return spans


def _begun_ns(tracks: "Iterable[Track]", hole: Hole) -> Iterator[int]:
    """When blocks begin that have rows of the table of a hole that was held back."""
    for track in tracks if hole.cause is Cause.HOLD_BACK else ():
        if track.lineage.boot == hole.boot and hole.table in track.tables:
            for keys, first_ns, _, _ in track.extents():
                if any(key.table == hole.table for key in keys):
                    yield first_ns


def _gap(line: "Timeline", hole: Hole) -> Gap:
    start_ns, end_ns = (line.moment_ns(hole.boot, moment) for moment in (hole.start_ns, hole.end_ns))
    return Gap(start_ns, max(start_ns, end_ns), hole.table, hole.cause, hole.detail)


def _unread(line: "Timeline", hole: Hole, keys: Collection[SeriesKey]) -> Gap:
    """Where values of some series are damaged in a file that has others: a gap that names the first of them."""
    first, *others = sorted(series_path(*key) for key in keys)
    more = f" and {len(others)} more" if others else ""
    return _gap(line, hole._replace(detail=f"{first}{more}: {hole.detail}"))


def _breaks(track: "Track", line: "Timeline") -> Iterator[_Break]:
    """The holes in a track's ticks, and those that the wall clock made by jumping ahead."""
    for before, after in pairwise(track.stretches):
        yield _broken(track, line, before, after)
    for first_ns, last_ns, missing in track.thin:
        boot = track.lineage.boot
        yield _Break(
            line.moment_ns(boot, first_ns),
            line.moment_ns(boot, last_ns),
            first_ns,
            last_ns,
            Cause.LATE_TICK,
            f"{missing} ticks in this time",
        )
    for at_ns, by_ns in line.course(track.lineage.boot).steps():
        if by_ns > 0:
            yield from _stepped(track, line, at_ns)


def _broken(track: "Track", line: "Timeline", before: "TickRun", after: "TickRun") -> _Break:
    boot, interval_ns = track.lineage.boot, track.lineage.interval_ns
    tick_ns, next_ns = before.last_ns, after.first_ns
    if line.course(boot).asleep_ns(tick_ns, next_ns) * 2 > next_ns - tick_ns - interval_ns:
        cause = Cause.SUSPENDED
    elif before.last_writer == after.first_writer:
        cause = Cause.LATE_TICK
    else:
        cause = Cause.CLEAN_SHUTDOWN if before.last_writer in track.closed else Cause.DAEMON_DOWN
    start_ns = line.moment_ns(boot, tick_ns) + interval_ns
    return _Break(start_ns, max(start_ns, line.moment_ns(boot, next_ns)), tick_ns + interval_ns, next_ns, cause)


def _stepped(track: "Track", line: "Timeline", at_ns: int) -> Iterator[_Break]:
    """The hole in wall-clock time where the clock was set ahead between two neighbouring ticks."""
    boot, interval_ns = track.lineage.boot, track.lineage.interval_ns
    before, after = track.neighbours(at_ns)
    if before is None or after is None or after - before > interval_ns * GAP_FACTOR:
        return  # A hole in boot time, told as such.
    start_ns, end_ns = line.moment_ns(boot, before) + interval_ns, line.moment_ns(boot, after)
    yield _Break(start_ns, end_ns, before + interval_ns, after, Cause.CLOCK_STEP)


def _leapt(step: _Break, table: str, track: "Track", tracks: "Iterable[Track]", line: "Timeline") -> Iterator[Gap]:
    """The time that a step ahead left out: where other boots had rows in it, the machine was off after those.

    Many a boot begins in 1970, until its clock is set.
    """
    gap = Gap(step.start_ns, step.end_ns, table, Cause.CLOCK_STEP)
    within = [
        other
        for other in tracks
        if other.lineage.boot != track.lineage.boot
        and table in other.tables
        and step.start_ns < _end_ns(other, line) < step.end_ns
    ]
    if not within:
        yield gap
        return
    first_ns = min(line.moment_ns(other.lineage.boot, other.first_ns) for other in within)
    if step.start_ns < first_ns:
        yield gap._replace(end_ns=first_ns)
    latest = max(within, key=lambda other: _end_ns(other, line))
    off = Gap(_end_ns(latest, line), step.end_ns, table, Cause.OFF)
    yield from _off(latest, line, off, step.end_ns - step.end_tick_ns, Cause.CLOCK_STEP)


def _blamed(gap: Gap, hole: _Break, track: "Track", line: "Timeline") -> Gap:
    """A hole where a file that cannot be read, or is not there, may have had its rows is that file's fault."""
    if gap.cause in {Cause.CLOCK_STEP, Cause.SUSPENDED}:
        return gap
    damages = _damages(line, track)
    if gap.cause is Cause.LATE_TICK:  # Its writer lived on: what it wrote may be gone.
        damages += _missing(line, track)
    for damage in damages:
        after_ns, before_ns = line.damaged_ticks(damage) or (0, 0)
        if after_ns < hole.end_tick_ns and hole.start_tick_ns < before_ns:
            return gap._replace(cause=damage.cause, detail=damage.reason)
    return gap


def _damages(line: "Timeline", track: "Track") -> list[Damage]:
    return [
        damage
        for damage in line.damages
        if damage.name and damage.name.boot == track.lineage.boot and damage.sensitivity is track.lineage.sensitivity
    ]


def _missing(line: "Timeline", track: "Track") -> list[Damage]:
    return [
        Damage(name, track.lineage.sensitivity, archive.spelled_missing(name))
        for name in line.missing
        if name.boot == track.lineage.boot
    ]


def _damaged_start(track: "Track", line: "Timeline") -> Iterator[_Break]:
    """The time before a track's first tick, where the file that may have held it cannot be read."""
    boot = track.lineage.boot
    for damage in _damages(line, track):
        after_ns, before_ns = line.damaged_ticks(damage) or (0, 0)
        if not after_ns and before_ns <= track.first_ns:
            start_ns, end_ns = line.moment_ns(boot, 0), line.moment_ns(boot, track.first_ns)
            yield _Break(start_ns, end_ns, 0, track.first_ns, damage.cause)


def _damaged_end(track: "Track", line: "Timeline") -> tuple[Cause, str] | None:
    """Whether the file that held what came after a track's last tick cannot be read."""
    for damage in _damages(line, track):
        _, before_ns = line.damaged_ticks(damage) or (0, 0)
        if before_ns > track.last_ns:
            return damage.cause, damage.reason
    return None


def _end_ns(track: "Track", line: "Timeline") -> int:
    return line.moment_ns(track.lineage.boot, track.last_ns) + track.lineage.interval_ns


def _between(tracks: "Sequence[Track]", table: str, line: "Timeline") -> Iterator[Gap]:
    """Where a table's rows move on from one track to another: another boot, interval, lane or class."""
    latest: Track | None = None
    for track in tracks:  # In order of boots and beginnings.
        boot = track.lineage.boot
        begin_ns = line.moment_ns(boot, track.first_ns)
        if latest is not None and begin_ns > (end_ns := _end_ns(latest, line)):
            if boot == latest.lineage.boot:
                away_ns = track.first_ns - latest.last_ns
                if away_ns > max(track.lineage.interval_ns, latest.lineage.interval_ns) * GAP_FACTOR:
                    yield from _blamed_end(latest, line, Gap(end_ns, begin_ns, table, *_stopped(latest, table, line)))
            else:
                yield from _off(latest, line, Gap(end_ns, begin_ns, table, Cause.OFF), line.moment_ns(boot, 0))
        if latest is None or _end_ns(track, line) >= _end_ns(latest, line):
            latest = track


def _stopped(track: "Track", table: str, line: "Timeline") -> tuple[Cause, str]:
    """Why a table has nothing after the last tick of a track."""
    said = _last_word(line, track.lineage.boot, table, track.last_ns + track.lineage.interval_ns)
    return said or (Cause.CLEAN_SHUTDOWN if track.ended_well else Cause.DAEMON_DOWN, "")


def _off(
    before: "Track", line: "Timeline", gap: Gap, started_ns: int, late: Cause = Cause.DAEMON_DOWN
) -> Iterator[Gap]:
    """Between two boots: off until the machine started, and then not recorded, where that took long."""
    if gap.end_ns - started_ns > STARTING_NS and started_ns > gap.start_ns:
        yield from _blamed_end(before, line, gap._replace(end_ns=started_ns))
        yield gap._replace(start_ns=started_ns, cause=late)
    else:
        yield from _blamed_end(before, line, gap)


def _blamed_end(track: "Track", line: "Timeline", gap: Gap) -> Iterator[Gap]:
    damage = _damaged_end(track, line)
    yield gap._replace(cause=damage[0], detail=damage[1]) if damage else gap


def _trailing(tracks: "Sequence[Track]", table: str, line: "Timeline", now_ns: int) -> Iterator[Gap]:
    """What is missing between the last tick and now; also of one writer of several that a table has."""
    boot = clock.boot_id()
    newest = max(tracks, key=lambda track: _end_ns(track, line))
    if snapshot_note.of(line.folders.state):  # Its last boot goes on up to its end, whatever machine this is.
        boot = newest.lineage.boot
    if newest.lineage.boot != boot:
        gap = Gap(_end_ns(newest, line), now_ns, table, Cause.OFF)
        if gap.end_ns - gap.start_ns > TRAILING_INTERVALS * newest.lineage.interval_ns:
            runs_now = any(track.lineage.boot == boot for track in line.tracks)
            started_ns = now_ns - clock.boottime_ns()
            yield from _off(newest, line, gap, started_ns, Cause.NO_SOURCE if runs_now else Cause.DAEMON_DOWN)
        return
    for track in tracks:
        gap = Gap(_end_ns(track, line), now_ns, table, *_stopped(track, table, line))
        overdue = gap.end_ns - gap.start_ns > TRAILING_INTERVALS * track.lineage.interval_ns
        if overdue and track.lineage.boot == boot and not _is_continued(track, tracks, table):
            yield from _blamed_end(track, line, gap)


def _is_continued(track: "Track", tracks: "Sequence[Track]", table: str) -> bool:
    """Whether a later track of the boot goes on with this one's series of a table."""
    mine = _series(track, table)
    later = [other for other in tracks if other.lineage.boot == track.lineage.boot and other.last_ns > track.last_ns]
    return any(mine & _series(other, table) for other in later)


def _series(track: "Track", table: str) -> set[tuple[str, str]]:
    """The series of a table in a track's newest block; all that it had, where it left the track before that."""
    newest = {(key.metric, key.instance) for key in track.last_keys() if key.table == table}
    return newest or {(key.metric, key.instance) for key in track.keys if key.table == table}


def coalesce(gaps: Iterable[Gap]) -> list[Gap]:
    """Join gaps of one table and cause that touch or overlap, and give them in order of time."""
    joined: list[Gap] = []
    for gap in sorted(set(gaps), key=lambda gap: (gap.table, gap.cause, gap.detail, gap.start_ns, gap.end_ns)):
        last = joined[-1] if joined else None
        if last and last[2:] == gap[2:] and gap.start_ns <= last.end_ns:
            joined[-1] = last._replace(end_ns=max(last.end_ns, gap.end_ns))
        else:
            joined.append(gap)
    return sorted(joined)
