# SPDX-License-Identifier: Apache-2.0
"""Writes rows that have no time of their own: names, and values of any kind a row; None for absent."""

import json
import math
from collections.abc import Callable, Iterator, Sequence

from sysmon_tools.formats import delimited_field, encoded, printable

Rows = Sequence[Sequence[object]]
Writer = Callable[[Sequence[str], Rows], Iterator[bytes]]


def _spelled(value: object, absent: str = "") -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return absent
    if isinstance(value, float):
        return f"{value:.12g}"
    return printable(str(value))


def _delimited(names: Sequence[str], rows: Rows, delimiter: str) -> Iterator[bytes]:
    separator = delimiter.encode()
    for row in (names, *rows):
        fields = ["" if value is None else _spelled(value) for value in row]
        yield separator.join(delimited_field(field, delimiter) if field else b"" for field in fields) + b"\n"


def write_csv(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Comma-separated values, a header first."""
    return _delimited(names, rows, ",")


def write_tsv(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Tab-separated values."""
    return _delimited(names, rows, "\t")


def _plain(value: object) -> object:
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return value if value is None or isinstance(value, int | bool | str) else str(value)


def write_jsonl(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Write an object a row."""
    for row in rows:
        yield json.dumps(dict(zip(names, map(_plain, row), strict=True))).encode() + b"\n"


def write_json(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Write a list of objects."""
    yield json.dumps([dict(zip(names, map(_plain, row), strict=True)) for row in rows], indent=1).encode() + b"\n"


def write_table(names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Write aligned columns for people."""
    cells = [[printable(name) for name in names], *([_spelled(value, "-") for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_number = [all(isinstance(row[place], int | float | None) for row in rows) for place in range(len(names))]
    for row in cells:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, is_number, strict=True)
        ]
        yield encoded("  ".join(padded).rstrip()) + b"\n"


WRITERS: dict[str, Writer] = {
    "csv": write_csv,
    "tsv": write_tsv,
    "json": write_json,
    "jsonl": write_jsonl,
    "table": write_table,
}
