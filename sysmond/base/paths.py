# SPDX-License-Identifier: Apache-2.0
"""Paths of series: ``table[/metric][@instance]``, with ``*`` and ``?`` as the only wildcards.

The first ``@`` splits, so an instance may contain anything: ``filesystem/used@/home``. A bare table is
all its metrics; without an instance all of them are meant, with an empty one (``load/one@``) only the
row that is about the whole system. A wildcard in an instance also stands for ``/``. And boots, as people name them.
"""

import fnmatch
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from sysmond.base.model import series_path
from sysmond.errors import Error, UsageError, listed, nearest

PATH_FORM = "expected table[/metric][@instance], with the wildcards * and ?"

# Fewer digits are a number of boots, not the beginning of an id.
_BOOT_ID_DIGITS_MIN = 8
# So many boots are listed where none is meant.
_BOOTS_LISTED = 5
# So many parts of paths are compiled at once: a screen asks for the same ones every second.
COMPILED_MAX = 256
# What lists tables, and with more words what is in them.
_LIST = "sysmon-extract --list"

Series = tuple[str, str, str]


class Pattern(NamedTuple):
    """A path as asked for. ``instance``: None for any, the empty string for the whole system's row."""

    text: str
    table: str
    metric: str = "*"
    instance: str | None = None


def parse(text: str, state_dir: str | None = None) -> Pattern:
    """Read a path; an absolute one below the state folder loses that prefix.

    :raises UsageError: naming the path and what would be right.
    """
    relative = _below(text, state_dir) if text.startswith("/") else text
    name, separator, instance = relative.partition("@")
    table, slash, metric = name.partition("/")
    if not table or (slash and not metric) or "/" in metric:
        raise UsageError(f"path {text!r}: not the path of a series; {PATH_FORM}")
    return Pattern(text, table, metric or "*", instance if separator else None)


def _below(text: str, state_dir: str | None) -> str:
    if state_dir is None:
        raise UsageError(f"path {text!r}: is absolute, and there is no state folder; {PATH_FORM}")
    # Only the prefix is taken for a path of files: the rest may hold an instance, where '//' and '..' count.
    folder = posixpath.normpath(state_dir).lstrip("/")
    below = text.lstrip("/")
    if folder in {"", "."}:
        return below or "*"
    if below != folder and not below.startswith(f"{folder}/"):
        raise UsageError(f"path {text!r}: not below the state folder {state_dir}; {PATH_FORM}")
    return below[len(folder) :].lstrip("/") or "*"


@lru_cache(COMPILED_MAX)
def _part(pattern: str) -> re.Pattern[str]:
    """Compile one part of a path; fnmatch never goes back over a star, so that no pattern is slow to match."""
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")))


class Matcher:
    """A pattern made ready to be held against many series."""

    def __init__(self, pattern: Pattern) -> None:
        """Compile the parts of a pattern."""
        self.is_named = not is_wild(pattern.metric)
        """Whether it names one metric: derived ones are meant by their names alone."""
        self._table = _part(pattern.table)
        self._metric = _part(pattern.metric)
        self._instance = None if pattern.instance is None else _part(pattern.instance)

    def table(self, table: str) -> bool:
        """Whether the pattern means a table of that name."""
        return self._table.fullmatch(table) is not None

    def metric(self, table: str, metric: str) -> bool:
        """Whether the pattern means that metric of that table."""
        return self.table(table) and self._metric.fullmatch(metric) is not None

    def instance(self, instance: str) -> bool:
        """Whether the pattern means that instance, of whatever metric."""
        return self._instance is None or self._instance.fullmatch(instance) is not None

    def series(self, table: str, metric: str, instance: str) -> bool:
        """Whether the pattern means that series."""
        return self.metric(table, metric) and self.instance(instance)


def matches(pattern: Pattern, table: str, metric: str, instance: str) -> bool:
    """Say whether a pattern means a series; ``select`` is faster for many."""
    return Matcher(pattern).series(table, metric, instance)


def naming(pattern: str) -> Callable[[str], bool]:
    """Whether a name, and nothing else, is what a pattern means; ``*`` and ``?`` are wildcards."""
    compiled = _part(pattern)
    return lambda name: compiled.fullmatch(name) is not None


def is_wild(part: str) -> bool:
    """Whether a part of a path may mean several names."""
    return "*" in part or "?" in part


def is_long(table: str) -> str:
    """Say that the series of a table are not listed, and how it is asked for instead."""
    return f"{table} is a long table, whose series are not listed; expected 'sysmon-extract {table}' by itself"


def select(
    patterns: Iterable[Pattern],
    series: Iterable[Series],
    others: Sequence[str] = (),
    derived: Callable[[], Iterable[Series]] = tuple,
    aliases: Callable[[], Iterable[tuple[str, str]]] = tuple,
    declared: Iterable[str] = (),
) -> list[Series]:
    """Choose what the patterns mean: in the order of the patterns, then as given; each series once.

    ``others``: tables that have no series, but may have been meant. ``derived``: series that no wildcard means, but a
    metric that is named in full. ``aliases``: what tables say that other programs call their metrics: pairs of a name
    and a path. ``declared``: tables that may have been meant, too, though nothing of them is recorded.

    :raises UsageError: naming the first pattern that means none of them, and what comes nearest.
    """
    known = list(dict.fromkeys(series))
    order = {one: number for number, one in enumerate(known)}
    by_name = _by_name(known)
    chosen: dict[Series, None] = {}
    named: list[Series] | None = None
    named_by: _ByName = {}
    for pattern in patterns:
        matcher = Matcher(pattern)
        matching = sorted(_meant(matcher, by_name), key=order.__getitem__)
        if not matching and not is_wild(pattern.metric):
            if named is None:
                named = list(derived())
                named_by = _by_name(named)
                order |= {one: len(known) + number for number, one in enumerate(named)}
            matching = sorted(_meant(matcher, named_by), key=order.__getitem__)
            if not matching:
                raise UsageError(_unknown(pattern, matcher, [*known, *named], others, aliases(), declared))
        if not matching:
            raise UsageError(_unknown(pattern, matcher, known, others, aliases(), declared))
        chosen.update(dict.fromkeys(matching))
    return list(chosen)


_ByName = dict[str, dict[str, list[Series]]]


def _by_name(series: Iterable[Series]) -> _ByName:
    """Series by table and metric: of these there are far fewer, so each is held against a pattern once."""
    by_name: _ByName = {}
    for one in series:
        by_name.setdefault(one[0], {}).setdefault(one[1], []).append(one)
    return by_name


def _meant(matcher: Matcher, by_name: _ByName) -> Iterator[Series]:
    """Those that a pattern means."""
    for table, metrics in by_name.items():
        if matcher.table(table):
            for metric, group in metrics.items():
                if matcher.metric(table, metric):
                    yield from (one for one in group if matcher.instance(one[2]))


def _unknown(
    pattern: Pattern,
    matcher: Matcher,
    known: list[Series],
    others: Sequence[str],
    aliases: Iterable[tuple[str, str]],
    declared: Iterable[str],
) -> str:
    """Say which part of a path is unknown; the parts before it are known."""
    from sysmond.base import elsewhere  # noqa: PLC0415  only to speak of a mistake

    if not any(matcher.table(table) for table, _, _ in known):
        tables = [*(table for table, _, _ in known), *others]
        meant = elsewhere.suggest(pattern.text.partition("@")[0], aliases)
        if meant:
            return f"there is no table or metric {pattern.text!r}{meant}"
        return f"there is no table {pattern.table!r}{_suggest(pattern.table, tables, _LIST, declared)}"
    if not any(matcher.metric(table, metric) for table, metric, _ in known):
        spelled = {f"{table}/{metric}" for table, metric, _ in known if matcher.table(table)}
        wanted = f"{pattern.table}/{pattern.metric}"
        own = [path.partition("/")[2] for path in spelled]
        of_table = [(name, path.partition("/")[2]) for name, path in aliases if path.startswith(f"{pattern.table}/")]
        meant = elsewhere.suggest_column(pattern.metric, pattern.table, own, of_table)
        lists = _LIST if is_wild(pattern.table) else f"{_LIST} {pattern.table}"
        meant = meant or _suggest(pattern.metric, own, lists, before=f"{pattern.table}/")
        return f"there is no metric {wanted!r}{meant}"
    full = {series_path(*one) for one in known if matcher.metric(one[0], one[1])}
    instances = {path.partition("@")[2] for path in full}
    wanted = pattern.instance or ""
    lists = f"{_LIST} {pattern.text.partition('@')[0]} --instances"
    return f"path {pattern.text!r}: no such instance{_suggest(wanted, filter(None, instances), lists)}"


def not_recorded(table: str) -> str:
    """Why there is nothing of a table that a probe of this recorder declares."""
    reason = "this machine has nothing of the kind, or it is off; 'sysmonctl doctor' says which"
    return f"the table {table!r} is not recorded: {reason}"


def no_rows(
    table: str, known: Collection[str], built_in: Collection[str] = (), hint: str = "", declared: Iterable[str] = ()
) -> Error:
    """Why there are no rows of a table: nobody knows it, or, where nothing tells that, nothing is recorded yet.

    ``known``: tables that are recorded. ``built_in``: those that may be. ``hint``: where it may be found. ``declared``:
    tables that may have been meant, too.
    """
    if table in built_in or not known:
        return Error(f"table {table!r}: nothing is recorded yet{hint}")
    return UsageError(f"there is no table {table!r}{_suggest(table, known, _LIST, declared)}")


def _suggest(wanted: str, known: Iterable[str], command: str, declared: Iterable[str] = (), *, before: str = "") -> str:
    """Say what may have been meant, else what there is; ``command``: what lists that."""
    names = sorted(set(known))
    close = nearest(wanted, [*names, *declared], before=before)
    return close or listed([f"{before}{name}" for name in names], command)


def find_boot(boot: str | int, known: Sequence[str]) -> str:
    """A boot of those that are recorded, oldest first: by id or its beginning, or counted back from the newest, 0.

    :raises UsageError: where it is none, or several.
    """
    text = str(boot)
    if text.removeprefix("-").isdecimal() and len(text) < _BOOT_ID_DIGITS_MIN:
        back = -int(text)
        if 0 <= back < len(known):
            return known[-1 - back]
        if len(known) <= 1:
            recorded = "only one boot is recorded; expected 0" if known else "no boot is recorded"
            raise UsageError(f"boot {boot!r}: {recorded}")
        raise UsageError(f"boot {boot!r}: only {len(known)} boots are recorded; expected 0 to -{len(known) - 1}")
    beginning = text.replace("-", "").lower()
    boots = [boot_there for boot_there in known if beginning and boot_there.startswith(beginning)]
    if len(boots) != 1:
        raise UsageError(f"boot {boot!r}: no such boot; recorded: {', '.join(known[-_BOOTS_LISTED:]) or 'none'}")
    return boots[0]
