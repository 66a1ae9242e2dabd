# SPDX-License-Identifier: Apache-2.0
"""Writes the catalogue of what has been recorded: path, unit, semantics, from, to, resolution, sensitivity.

A long table is one line of it: instead of semantics it says what its rows are about.
"""

import json
from collections.abc import Callable, Iterable, Iterator

from sysmon_tools.formats import Style, delimited_field, encoded, printable
from sysmond.result import Entry, LongEntry
from sysmond.timespec import Notation, format_step

FIELDS = ("path", "unit", "semantics", "from", "to", "resolution", "sensitivity")

Listed = Entry | LongEntry
Writer = Callable[[Iterable[Listed], Style], Iterator[bytes]]


def _fields(listed: Listed, style: Style) -> tuple[str, ...]:
    unit, semantics = (listed.unit, str(listed.semantics)) if isinstance(listed, Entry) else ("", f"per {listed.per}")
    times = style.time(listed.start_ns), style.time(listed.end_ns)
    return listed.path, unit, semantics, *times, format_step(listed.interval_ns), str(listed.sensitivity)


def _delimited(entries: Iterable[Listed], style: Style, delimiter: str) -> Iterator[bytes]:
    separator = delimiter.encode()
    yield separator.join(map(str.encode, FIELDS)) + b"\n"
    for entry in entries:
        yield separator.join(delimited_field(field, delimiter) for field in _fields(entry, style)) + b"\n"


def _table(entries: Iterable[Listed], style: Style) -> Iterator[bytes]:
    rows = [FIELDS, *(tuple(map(printable, _fields(entry, style))) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield encoded("  ".join(map(str.ljust, row, widths)).rstrip()) + b"\n"


def _json_entry(entry: Listed, style: Style) -> bytes:
    fields: dict[str, str | int | float] = dict(zip(FIELDS, _fields(entry, style), strict=True))
    if style.notation is Notation.EPOCH:
        fields["from"], fields["to"] = (_number(style.time(time_ns)) for time_ns in (entry.start_ns, entry.end_ns))
    return json.dumps({**fields, "doc": entry.doc}).encode()


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _json(entries: Iterable[Listed], style: Style) -> Iterator[bytes]:
    yield b"[" + b",\n".join(_json_entry(entry, style) for entry in entries) + b"]\n"


def _jsonl(entries: Iterable[Listed], style: Style) -> Iterator[bytes]:
    for entry in entries:
        yield _json_entry(entry, style) + b"\n"


WRITERS: dict[str, Writer] = {
    "csv": lambda entries, style: _delimited(entries, style, ","),
    "tsv": lambda entries, style: _delimited(entries, style, "\t"),
    "json": _json,
    "jsonl": _jsonl,
    "table": _table,
}
