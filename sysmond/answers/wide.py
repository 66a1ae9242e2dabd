# SPDX-License-Identifier: Apache-2.0
"""Answers about wide tables: the series that paths mean, with the gaps, events and warnings that belong to them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sysmond.answers.dropping import Dropped, left_of_series
from sysmond.answers.series import gaps
from sysmond.answers.series.query import Query
from sysmond.answers.times import Times
from sysmond.base import paths
from sysmond.base.model import TIERS_NS, Cause, Sensitivity
from sysmond.base.result import Gap, Result
from sysmond.base.timespec import FOREVER_NS
from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.machine.folders import Folders
from sysmond.store import ring_reach
from sysmond.store.holdings import anew
from sysmond.store.of_ring import Hole, SeriesKey
from sysmond.store.timeline import Timeline

if TYPE_CHECKING:
    from sysmond.plan.plan import PlannedProbe

# A refusal names so many damages: one of a few is the reason, of many each is as good as any.
DAMAGES_TOLD_MAX = 8

_T = TypeVar("_T")


class SeriesQuestion(NamedTuple):
    """What is asked for, checked. ``stats_of``: the statistics of a series; ``is_whole``: one bucket for the range.

    ``drop``: what is left out of what the patterns mean.
    """

    patterns: Sequence[str]
    when: Times
    boot: str | int | None
    stats_of: Callable[[SeriesKey], Sequence[str]]
    raw: bool = False
    explain: bool = False
    is_whole: bool = False
    drop: Sequence[Dropped] = ()


def answer(place: Folders, classes: Collection[Sensitivity], asked: SeriesQuestion) -> Result:
    """Answer a question about series.

    :raises UsageError: for a pattern that means nothing, and for an answer beyond all measure. :raises
        NotPermittedError: for what we may not read. :raises Error: where nothing is recorded.
    """
    return opened(place, classes, asked.when, asked.boot, lambda line: answer_from(line, place, asked))


def opened(
    place: Folders,
    classes: Collection[Sensitivity],
    when: Times,
    boot: str | int | None,
    use: Callable[[Timeline], _T],
) -> _T:
    """What is made of a time line that is opened for a range or a boot, anew where its files change meanwhile.

    :raises Error: as ``use`` does.
    """
    return anew(lambda: _opened(place, classes, None if boot is not None else when, use))


def _opened(place: Folders, classes: Collection[Sensitivity], when: Times | None, use: Callable[[Timeline], _T]) -> _T:
    """Answer from what is there now: of rings, else of files near the range, where others cannot matter, else of all.

    :raises FileNotFoundError: where a file was merged or flushed meanwhile.
    """
    if when is not None and when.start_ns != -FOREVER_NS:
        # Whatever is refused, all files are asked: they may know better.
        with suppress(Error):
            return _of_some(place, classes, when, use)
    with closing(Timeline(place, classes)) as line:
        return use(line)


def _of_some(place: Folders, classes: Collection[Sensitivity], when: Times, use: Callable[[Timeline], _T]) -> _T:
    """Answer from rings, else from files near the range.

    :raises OnlyAllError: where neither can say what is asked. :raises Error: as ``_opened``.
    """
    if ring_reach.may_have(place, classes, when.now_ns - when.start_ns):
        span = when.start_ns - 2 * when.step_ns, when.end_ns
        try:
            with closing(Timeline(place, classes, span, of_rings=True)) as line:
                return use(line)
        except ring_reach.OnlyAllError:  # Files near the range have no more than rings, which have all of it.
            raise
        except Error:
            pass
    margin_ns = 2 * max(when.step_ns, *TIERS_NS.values())
    span = when.start_ns - margin_ns, when.end_ns + margin_ns
    with closing(Timeline(place, classes, span)) as line:
        return use(line)


def recent_tables(
    place: Folders, classes: Collection[Sensitivity], since_ns: int, now_ns: int
) -> frozenset[str] | None:
    """The tables of which rings have rows; None where these do not have all since a moment (UTC)."""
    if ring_reach.may_have(place, classes, now_ns - since_ns):
        span = since_ns, now_ns
        with suppress(Error, FileNotFoundError), closing(Timeline(place, classes, span, of_rings=True)) as line:
            series = line.keys()
            return frozenset(key.table for key in series)
    return None


def answer_from(line: Timeline, place: Folders, asked: SeriesQuestion) -> Result:
    """Answer from a time line.

    :raises TooLittleError: where what was left out of it may matter. :raises Error: as ``answer``.
    """
    boot, when = find_boot(line, asked.boot), asked.when
    patterns = [paths.parse(pattern, place.state) for pattern in asked.patterns]
    keys, empty = match(patterns, line.keys(), line, place)
    keys, notes = left_of_series(keys, asked.drop)
    query = Query(line, keys, when.start_ns, when.end_ns, boot)
    tables = query.tables | _without_rows(line, patterns)
    line.demand(tables, (), is_empty=bool(empty))
    if asked.raw:
        result = query.raw()
    else:
        wanted = {key: asked.stats_of(key) for key in keys}
        result = query.whole(wanted) if asked.is_whole else query.buckets(when.step_ns, wanted)
    gaps_read = [*gaps.lost(line, empty, boot, when.now_ns), *query.gaps]
    inside = gaps_within(line, place, tables, when, boot, gaps_read, keys)
    if not asked.raw:
        inside = tuple(gaps.coalesce([*inside, *gaps.of_first_readings(line, boot, result, query.rates(), inside)]))
    line.demand(tables, inside)
    warnings = dict.fromkeys([*empty.values(), *(damage.reason for damage in line.damages)])
    may_be_read_by = sensitivity(line.restricted & tables)
    result = result._replace(
        gaps=inside,
        warnings=(*warnings, *_unknown(query), *line.redefinitions({(key.table, key.metric) for key in query.keys})),
        events=tuple(line.events(boot, when.start_ns, when.end_ns, may_be_read_by)),
        sensitivity=may_be_read_by,
        notes=tuple(notes),
    )
    if asked.explain:
        from sysmond.answers.series.explain import explain  # noqa: PLC0415  few ask for it

        result = result._replace(explanations=explain(query, result))
    return result


def gaps_within(
    line: Timeline,
    place: Folders,
    tables: Collection[str],
    when: Times,
    boot: str | None,
    gaps_read: Iterable[Gap],
    keys: Iterable[SeriesKey],
) -> tuple[Gap, ...]:
    """The gaps of tables in a range, and of series that are asked for; ``gaps_read``: those that only reading tells."""
    found = gaps.find(line, tables, boot, when.now_ns, keys)
    known = [*gaps.recorded_elsewhere(found, when.now_ns, place), *gaps_read]
    start_ns = when.start_ns if boot is None else -FOREVER_NS
    begins = gaps.begins(line, tables, known, start_ns, boot)
    known += gaps.outside(begins, start_ns, when.end_ns, when.now_ns)
    return tuple(gap for gap in gaps.coalesce(known) if gap.end_ns > when.start_ns and gap.start_ns < when.end_ns)


def _unknown(query: Query) -> list[str]:
    """What is asked for and kept by no tier, where rows are gone."""
    return [gaps.only_buckets(table, stats) for table, stats in sorted(query.without_rows.items())]


def match(
    patterns: Sequence[paths.Pattern], keys: Iterable[SeriesKey], line: Timeline, place: Folders
) -> tuple[list[SeriesKey], dict[paths.Pattern, str]]:
    """The series that patterns mean; patterns that mean tables without any, and why there are none.

    :raises Error: where that is all of them.
    """
    every = list(keys)
    if not every:
        raise _nothing(line, place)
    matchers = [paths.Matcher(pattern) for pattern in patterns]
    tables = {table for table in {key.table for key in every} if any(one.table(table) for one in matchers)}
    of_tables = sorted(key for key in every if key.table in tables)

    def derived() -> Sequence[SeriesKey]:
        from sysmond.answers.series import derived  # noqa: PLC0415  few ask for them

        return derived.named(line, of_tables)

    try:
        return [SeriesKey(*key) for key in paths.select(patterns, of_tables, (), derived, line.aliases)], {}
    except UsageError:
        known = sorted(every)
        long_tables = line.long_tables()
        empty = _empty(patterns, known, line, place)
        left = [pattern for pattern in patterns if pattern not in empty]
        if empty and not left:
            raise Error(next(iter(empty.values()))) from None
        declared = planned_tables(place)
        chosen = paths.select(left, known, long_tables, derived, line.aliases, declared)
        return [SeriesKey(*key) for key in chosen], empty


def _empty(
    patterns: Sequence[paths.Pattern], known: Sequence[SeriesKey], line: Timeline, place: Folders
) -> dict[paths.Pattern, str]:
    """Patterns that mean tables without rows, and why: what was recorded of that, and what damage may have taken.

    :raises UsageError: for a long table. :raises NotPermittedError: for one that we may not read.
    """
    tables = {key.table for key in known}
    whys: dict[paths.Pattern, str] = {}
    for pattern in patterns:
        matcher = paths.Matcher(pattern)
        if any(matcher.table(table) for table in tables):
            continue
        if pattern.table in line.long_tables():
            raise UsageError(f"path {pattern.text!r}: {paths.is_long(pattern.table)}")
        if line.refused and _is_restricted(matcher, place):
            raise NotPermittedError(f"path {pattern.text!r}: no permission to read {line.refused[0]}")
        holes = [hole for hole in line.holes(line.tables - tables) if matcher.table(hole.table)]
        absences = sorted((hole.table, f"{hole.cause}: {hole.detail}") for hole in holes if not _is_damage(hole))
        if reasons := [*(said for _, said in absences[:1]), *_damages(line)]:
            whys[pattern] = f"path {pattern.text!r}: nothing recorded; {'; '.join(reasons)}"
        elif is_planned(pattern.table, place):
            whys[pattern] = paths.not_recorded(pattern.table)
    return whys


def _is_restricted(matcher: paths.Matcher, folders: Folders) -> bool:
    """Whether the plan has a restricted table of that name; without one to read, it may be so."""
    planned = _planned(folders)
    if planned is None:
        return True
    return any(matcher.table(probe.table) for probe in planned if probe.sensitivity is Sensitivity.RESTRICTED)


def is_planned(table: str, folders: Folders) -> bool:
    """Whether the recorder has a probe of that table, though there may be nothing for it to read."""
    return table in planned_tables(folders)


def planned_tables(folders: Folders) -> list[str]:
    """The tables of which the recorder has a probe."""
    return [probe.table for probe in _planned(folders) or ()]


def _planned(folders: Folders) -> "Sequence[PlannedProbe] | None":
    """The probes of the plan; None without one to read."""
    from sysmond.plan import plan  # noqa: PLC0415  only for an error

    for place in (folders.runtime, folders.state):
        try:
            return plan.read(f"{place}/plan.json").probes
        except (Error, OSError):
            continue
    return None


def _nothing(line: Timeline, place: Folders) -> Error:
    if line.refused:
        return NotPermittedError(f"{line.refused[0]}: no permission to read it")
    tables = line.long_tables()
    if tables:
        recorded = f"no series, only long tables: {', '.join(tables)}"
    else:
        from sysmond.machine.lock import elsewhere  # noqa: PLC0415  only for an error

        recorded = f"nothing recorded yet{elsewhere(place)}"
    return Error("; ".join([f"{place.state}: {recorded}", *_damages(line)]))


def _without_rows(line: Timeline, patterns: Iterable[paths.Pattern]) -> set[str]:
    """The tables that were declared, and that patterns mean, of which there are no rows."""
    matchers = [paths.Matcher(pattern) for pattern in patterns]
    empty = line.tables.difference(*(track.tables for track in line.tracks))
    return {table for table in empty if any(matcher.table(table) for matcher in matchers)}


def _is_damage(hole: Hole) -> bool:
    return hole.cause is Cause.DAMAGED_FILE


def _damages(line: Timeline) -> list[str]:
    """What is damaged, some of it in words: holes that files tell of, then what cannot be read."""
    details = [hole.detail for hole in line.holes(line.tables) if _is_damage(hole)]
    said = list(dict.fromkeys([*(damage.reason for damage in line.damages), *details]))
    return [*said[:DAMAGES_TOLD_MAX], *([f"and {len(said) - DAMAGES_TOLD_MAX} more"] * (len(said) > DAMAGES_TOLD_MAX))]


def sensitivity(restricted: Collection[str]) -> Sensitivity:
    """Of what an answer is made of these restricted tables."""
    return Sensitivity.RESTRICTED if restricted else Sensitivity.PUBLIC


def find_boot(line: Timeline, boot: str | int | None) -> str | None:
    """The id of the boot that is meant; None for all.

    :raises UsageError: for one that was not recorded.
    """
    return None if boot is None else paths.find_boot(boot, line.boots())
