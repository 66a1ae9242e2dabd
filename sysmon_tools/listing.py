# SPDX-License-Identifier: Apache-2.0
"""Writes the catalogue of what has been recorded: path, unit, semantics, from, to, resolution."""

import json
from collections.abc import Callable, Iterable, Iterator

from sysmon_tools.formats import Style, delimited_field, encoded, printable
from sysmond.result import Entry
from sysmond.timespec import Notation, format_step

FIELDS = ("path", "unit", "semantics", "from", "to", "resolution")

Writer = Callable[[Iterable[Entry], Style], Iterator[bytes]]


def _fields(entry: Entry, style: Style) -> tuple[str, ...]:
    return (
        entry.path,
        entry.unit,
        str(entry.semantics),
        style.time(entry.start_ns),
        style.time(entry.end_ns),
        format_step(entry.interval_ns),
    )


def _delimited(entries: Iterable[Entry], style: Style, delimiter: str) -> Iterator[bytes]:
    separator = delimiter.encode()
    yield separator.join(map(str.encode, FIELDS)) + b"\n"
    for entry in entries:
        yield separator.join(delimited_field(field, delimiter) for field in _fields(entry, style)) + b"\n"


def _table(entries: Iterable[Entry], style: Style) -> Iterator[bytes]:
    rows = [FIELDS, *(tuple(map(printable, _fields(entry, style))) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield encoded("  ".join(map(str.ljust, row, widths)).rstrip()) + b"\n"


def _json_entry(entry: Entry, style: Style) -> bytes:
    fields: dict[str, str | int | float] = dict(zip(FIELDS, _fields(entry, style), strict=True))
    if style.notation is Notation.EPOCH:
        fields["from"], fields["to"] = (_number(style.time(time_ns)) for time_ns in (entry.start_ns, entry.end_ns))
    return json.dumps({**fields, "sensitivity": entry.sensitivity, "doc": entry.doc}).encode()


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _json(entries: Iterable[Entry], style: Style) -> Iterator[bytes]:
    yield b"[" + b",\n".join(_json_entry(entry, style) for entry in entries) + b"]\n"


def _jsonl(entries: Iterable[Entry], style: Style) -> Iterator[bytes]:
    for entry in entries:
        yield _json_entry(entry, style) + b"\n"


WRITERS: dict[str, Writer] = {
    "csv": lambda entries, style: _delimited(entries, style, ","),
    "tsv": lambda entries, style: _delimited(entries, style, "\t"),
    "json": _json,
    "jsonl": _jsonl,
    "table": _table,
}
