# SPDX-License-Identifier: Apache-2.0
"""Writes the catalogue of what has been recorded: path, unit, semantics, from, to, resolution, sensitivity.

A long table is one line of it: instead of semantics it says what its rows are about. What is derived is marked so.
For people who name nothing it is a line a table, and for those who name a table a line a metric. Instances are listed
where they are asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import shorten

from sysmon_tools import terminal_answer
from sysmon_tools.rows import WRITERS
from sysmon_tools.style import Style
from sysmond.base.result import Entry, LongEntry
from sysmond.base.timespec import Notation, format_step
from sysmond.errors import Error

FIELDS = ("path", "unit", "semantics", "from", "to", "resolution", "sensitivity")
# Of what programs read, not people: also what it is.
_DOC = "doc"
_SHORT_FIELDS = ("path", "unit", "semantics", "every", "meaning")
_OF_METRICS = ("path", "unit", "semantics", "every", "instances", "meaning")
_OF_INSTANCES = ("table", "instance", "per", "series", "from", "to", "sensitivity")
_OF_TABLES = ("table", "per", "series", "sensitivity", "about")
# So long is what is said of a table, at most.
_WIDTH = 72
_OBJECTS = frozenset({"json", "jsonl"})

Listed = Entry | LongEntry


def write(chosen: str, entries: Iterable[Listed], style: Style) -> Iterator[bytes]:
    """Write entries in one of the formats of rows."""
    if style.screen is not None:
        rows = ((entry.path, *_for_people(entry)) for entry in entries)
        return terminal_answer.write_rows(_SHORT_FIELDS, rows, style.screen)
    if chosen not in _OBJECTS:
        return WRITERS[chosen](FIELDS, (_fields(entry, style.time) for entry in entries))

    def moment(time_ns: int) -> str | float:
        said = style.time(time_ns)
        return said if style.notation is not Notation.EPOCH else float(said) if "." in said else int(said)

    return WRITERS[chosen]((*FIELDS, _DOC), ((*_fields(entry, moment), _meaning(entry)) for entry in entries))


def _for_people(listed: Listed) -> tuple[str, ...]:
    """What it is, and how often it is read; since when stands in what programs read."""
    if isinstance(listed, LongEntry):
        return "", f"per {listed.per}", _every(listed.interval_ns), listed.doc
    return (
        listed.unit,
        "derived" if listed.formula else str(listed.semantics),
        _every(listed.interval_ns),
        _meaning(listed),
    )


def _every(interval_ns: int) -> str:
    return format_step(interval_ns) if interval_ns else ""


def tables(entries: Iterable[Listed], style: Style) -> Iterator[bytes]:
    """Write a line a table, for people: what its rows are about, how many series it has, and what is in it."""
    by_table: dict[str, list[Listed]] = {}
    for entry in entries:
        by_table.setdefault(entry.path.partition("/")[0], []).append(entry)
    rows = (_table(name, listed) for name, listed in sorted(by_table.items()))
    yield from _aligned(_OF_TABLES, rows, style)
    yield b"# --list TABLE lists its metrics, --list TABLE --instances its instances, --list TABLE/METRIC its series\n"


def metrics(entries: Iterable[Listed], style: Style) -> Iterator[bytes]:
    """Write a line a metric, for people: what it is, and how many instances have it. Of a long table it is one line."""
    by_metric: dict[str, list[Listed]] = {}
    for entry in entries:
        by_metric.setdefault(entry.path.partition("@")[0], []).append(entry)
    rows = (_metric(path, listed) for path, listed in by_metric.items())
    yield from _aligned(_OF_METRICS, rows, style)


def instances(chosen: str, entries: Iterable[Listed], style: Style) -> Iterator[bytes]:
    """Write a line an instance in one of the formats of rows: how many series it has, and from when to when.

    :raises Error: where there is none.
    """
    by_instance: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        path, separator, instance = entry.path.partition("@")
        if separator and isinstance(entry, Entry):
            by_instance.setdefault((path.partition("/")[0], instance), []).append(entry)
    if not by_instance:
        raise Error("no instances: such tables have one row for the whole system, or rows that come and go")

    def row(table: str, instance: str, listed: Sequence[Entry]) -> tuple[object, ...]:
        times = min(entry.start_ns for entry in listed), max(entry.end_ns for entry in listed)
        first = listed[0]
        return table, instance, first.per, len(listed), *map(style.time, times), str(first.sensitivity)

    rows = [row(*key, listed) for key, listed in sorted(by_instance.items())]
    if chosen == "table":
        return _aligned(_OF_INSTANCES, rows, style)
    return WRITERS[chosen](_OF_INSTANCES, rows)


def _aligned(names: Sequence[str], rows: Iterable[Sequence[object]], style: Style) -> Iterator[bytes]:
    if style.screen is None:
        return WRITERS["table"](names, rows)
    return terminal_answer.write_rows(names, rows, style.screen)


def _metric(path: str, listed: Sequence[Listed]) -> tuple[object, ...]:
    unit, semantics, every, meaning = _for_people(listed[0])
    count = sum("@" in entry.path for entry in listed)
    return path, unit, semantics, every, count or None, meaning


def _table(name: str, listed: Sequence[Listed]) -> tuple[object, ...]:
    first = listed[0]
    if isinstance(first, LongEntry):
        return name, first.per, None, str(first.sensitivity), shorten(first.doc, _WIDTH, placeholder=" …")
    paths = [entry.path.partition("/")[2].partition("@") for entry in listed]
    columns = ", ".join(dict.fromkeys(metric for metric, _, _ in paths))
    per = first.per or ("instance" if any(separator for _, separator, _ in paths) else None)
    return name, per, len(listed), str(first.sensitivity), shorten(columns, _WIDTH, placeholder=" …")


def _meaning(listed: Listed) -> str:
    formula = listed.formula if isinstance(listed, Entry) else ""
    return f"{listed.doc} Derived: {formula}" if formula else listed.doc


def _fields(listed: Listed, moment: Callable[[int], object]) -> tuple[object, ...]:
    unit, semantics = "", ""
    if isinstance(listed, Entry):
        unit, semantics = listed.unit, "derived" if listed.formula else str(listed.semantics)
    else:
        semantics = f"per {listed.per}"
    times = moment(listed.start_ns), moment(listed.end_ns)
    return (
        listed.path,
        unit,
        semantics,
        *times,
        _every(listed.interval_ns),
        str(listed.sensitivity),
    )
