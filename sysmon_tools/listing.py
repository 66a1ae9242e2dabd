# SPDX-License-Identifier: Apache-2.0
"""Writes the catalogue of what has been recorded: path, unit, semantics, from, to, resolution, sensitivity.

A long table is one line of it: instead of semantics it says what its rows are about. What is derived is marked so.
For people who name nothing it is a line a table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import shorten

from sysmon_tools import terminal_answer
from sysmon_tools.rows import WRITERS
from sysmon_tools.style import Style
from sysmond.base.result import Entry, LongEntry
from sysmond.base.timespec import Notation, format_step

FIELDS = ("path", "unit", "semantics", "from", "to", "resolution", "sensitivity")
# Of what programs read, not people: also what it is.
_DOC = "doc"
_SHORT_FIELDS = ("path", "unit", "semantics", "every", "meaning")
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
    if style.screen is None:
        yield from WRITERS["table"](_OF_TABLES, rows)
    else:
        yield from terminal_answer.write_rows(_OF_TABLES, rows, style.screen)
    yield b"# --list PATH lists the series of a table, or a metric of every table\n"


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
