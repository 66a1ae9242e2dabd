# SPDX-License-Identifier: Apache-2.0
"""Writes rows that have no time axis: names, and values of any kind a row; None for absent.

Those of an answer have its gaps and events beside them, as in ``formats``; those of a list have none.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from sysmon_tools.formats import (
    Remarks,
    comments,
    delimited_field,
    json_remarks,
    jsonl_remarks,
    kv_remarks,
    no_formula,
)
from sysmon_tools.grid import Display
from sysmon_tools.key_values import spelled_line
from sysmon_tools.output import display, send, show
from sysmon_tools.style import Style
from sysmon_tools.terminal_answer import write_remarks, write_rows
from sysmond.base.terminal import printable, put

Rows = Iterable[Sequence[object]]
Writer = Callable[[Sequence[str], Rows], Iterator[bytes]]


def _is_absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _spelled(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _delimited(names: Sequence[str], rows: Rows, *, delimiter: str) -> Iterator[bytes]:
    """A header and a line a row; an absent cell is empty, an empty text is quoted."""
    separator = delimiter.encode()
    for row in (names, *rows):
        cells = (b"" if _is_absent(value) else delimited_field(_spelled(value), delimiter) for value in row)
        yield separator.join(cells) + b"\n"


def _plain(value: object) -> object:
    if _is_absent(value):
        return None
    return value if isinstance(value, int | float | str) else str(value)


def _objects(names: Sequence[str], rows: Rows) -> Iterator[str]:
    for row in rows:
        yield json.dumps(dict(zip(names, map(_plain, row), strict=True)))


def _json(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    yield ("[" + ",\n".join(_objects(names, rows)) + "]\n").encode()


def _jsonl(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    yield from (f"{text}\n".encode() for text in _objects(names, rows))


def _kv(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    for row in rows:
        yield spelled_line(
            (name, _spelled(cell)) for name, cell in zip(names, row, strict=True) if not _is_absent(cell)
        )


def _table(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Aligned columns for people, numbers to the right; '-' for absent."""
    listed = list(rows)
    cells = [["-" if _is_absent(value) else printable(_spelled(value)) for value in row] for row in (names, *listed)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_number = [
        bool(listed) and all(isinstance(row[at], int | float | None) for row in listed) for at in range(len(names))
    ]
    for row in cells:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, is_number, strict=True)
        ]
        yield "  ".join(padded).rstrip().encode() + b"\n"


WRITERS: dict[str, Writer] = {
    "csv": partial(_delimited, delimiter=","),
    "tsv": partial(_delimited, delimiter="\t"),
    "json": _json,
    "jsonl": _jsonl,
    "kv": _kv,
    "table": _table,
}


# What has gaps and events after the rows, as rows of their own.
_AFTER = {"jsonl": jsonl_remarks, "kv": kv_remarks}


class RowTable(NamedTuple):
    """Rows with the names of their columns."""

    names: Sequence[str]
    rows: Sequence[Sequence[object]]


def send_rows(
    chosen: str | None,
    exact: RowTable,
    for_people: RowTable,
    *,
    nothing: str,
    below: Callable[[Display], Iterable[str]] = lambda _: (),
) -> None:
    """Write rows to standard output: in a format, by default as CSV, and on a terminal for people.

    ``nothing``: what people are told where there are none. ``below``: lines that they see below the rows.
    """
    screen = display() if chosen in {None, "table"} else None
    if screen is None:
        names, rows = for_people if chosen == "table" else exact
        send(WRITERS[chosen or "csv"](names, rows), None, is_restricted=False)
    elif for_people.rows:
        lines = (f"{line}\n".encode() for line in below(screen))
        show(chain(write_rows(*for_people, screen), lines), None, Style(screen=screen), is_restricted=False)
    else:
        put(nothing)


def answered(chosen: str, names: Sequence[str], rows: Rows, remarks: Remarks, style: Style) -> Iterator[bytes]:
    """Write the rows of an answer in a format, with its gaps and events."""
    if chosen == "json":
        yield b'{"rows": ' + b"".join(_json(names, rows)).rstrip() + b",\n" + json_remarks(remarks, style) + b"}\n"
        return
    if style.screen is not None:
        yield from write_rows(names, rows, style.screen)
        yield from write_remarks(remarks, style, style.screen)
        return
    if chosen not in _AFTER:
        yield from comments(remarks, style)
    if style.is_spreadsheet:
        rows = ([no_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    yield from WRITERS[chosen](names, rows)
    if chosen in _AFTER:
        yield from _AFTER[chosen](remarks, style)
