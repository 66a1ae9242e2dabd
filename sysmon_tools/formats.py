# SPDX-License-Identifier: Apache-2.0
"""Writes a result in the formats people ask for, a bounded block of bytes at a time.

Every writer is a function from a result and a style to pieces of text. HDF5, which needs a file, is written by
``sysmond.store.files.saved``.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from sysmon_tools.cells import Cells, TimeCells, blocks, column_cells, integer_cells
from sysmon_tools.key_values import LineCells, PairCells, spelled_line, word
from sysmon_tools.style import Style
from sysmond.base.result import TIME_SCALE, TIME_UNIT, Column, Event, Gap, Int64Array, Result
from sysmond.base.terminal import printable
from sysmond.base.timespec import Notation

# Between the cells of a table while it is laid out: texts have none, since control characters are escaped.
_CELL_END, _ROW_END = "\x1f", "\x1e"
# What a spreadsheet computes instead of showing it.
_FORMULA_SIGNS = ("=", "+", "-", "@")
_NO_UNITS = frozenset(("", "1", "text"))
# In place of a unit, of what is no quantity.
_WORDS = frozenset(("", "text", TIME_UNIT))


Writer = Callable[[Result, Style], Iterator[bytes]]


class Remarks(Protocol):
    """What an answer of any kind has beside its rows: why something is missing, and what happened."""

    @property
    def gaps(self) -> Sequence[Gap]:
        """Why there is nothing where there is nothing."""

    @property
    def events(self) -> Sequence[Event]:
        """What happened."""


def labels(columns: Sequence[Column]) -> list[str]:
    """Name the columns: by path, and by ``path:stat`` where several statistics of a path stand side by side."""
    several = len({column.path for column in columns}) < len(columns)
    return [column.label if several else column.path for column in columns]


def time_cells(times_ns: Int64Array, style: Style, quote: str = "", absent: bytes = b"") -> Cells:
    """Cells of times, int64[row] of UTC nanoseconds, all with the fractional digits that the finest of them needs."""
    if style.notation is Notation.EPOCH:
        return integer_cells(times_ns, TIME_SCALE, absent=absent)
    return TimeCells(times_ns, style.notation, style.zone, quote=quote.encode(), absent=absent)


def value_cells(
    column: Column, style: Style, *, absent: bytes = b"", spell: Callable[[str], bytes] = str.encode, quote: str = ""
) -> Cells:
    """Cells of a column; points in time are spelt like the time axis."""
    if column.is_time and column.integers is not None:
        return time_cells(column.integers, style, quote, absent)
    return column_cells(column, absent=absent, spell=spell)


def delimited_field(text: str, delimiter: str) -> bytes:
    """Spell a field printable, and quote it where it must be (RFC 4180); an empty text is quoted: it is not absent.

    So is a text with ``#``: gaps and events stand in lines that begin with it, and who reads these as comments
    (``pandas.read_csv(comment="#")``) would lose the rest of the row. A backslash is doubled, so that one that begins
    an escape can be told from one that was there.
    """
    text = printable(text.replace("\\", "\\\\"))
    if not text or delimiter in text or '"' in text or "#" in text:
        text = '"' + text.replace('"', '""') + '"'
    return text.encode()


def gap_line(gap: Gap, style: Style) -> str:
    """Spell a gap as the comment line ``# gap FROM TO TABLE CAUSE (detail)``."""
    line = f"# gap {style.time(gap.start_ns)} {style.time(gap.end_ns)} {gap.table} {gap.cause}"
    return printable(f"{line} ({gap.detail})" if gap.detail else line)


def event_line(event: Event, style: Style) -> str:
    """Spell an event as the comment line ``# event TIME KIND SUBJECT TEXT``; ``-`` for no subject."""
    words = (event.kind, event.subject or "-", event.text)
    return printable(" ".join(["# event", style.time(event.time_ns), *words])).rstrip()


def comments(remarks: Remarks, style: Style) -> Iterator[bytes]:
    """Write gaps and events as lines that begin with ``#``, where such lines are wanted."""
    if not style.has_comments:
        return
    yield from (f"{gap_line(gap, style)}\n".encode() for gap in remarks.gaps)
    yield from (f"{event_line(event, style)}\n".encode() for event in style.shown(remarks.events))


def headings(columns: Sequence[Column], style: Style) -> list[str]:
    """Name the columns, with their units in parentheses where these are wanted."""
    if not style.has_units:
        return labels(columns)
    units = ("" if column.is_time or column.texts is not None else column.unit for column in columns)
    return [
        f"{label} ({unit})" if unit not in _NO_UNITS else label
        for label, unit in zip(labels(columns), units, strict=True)
    ]


def no_formula(text: str) -> str:
    """Have a spreadsheet take a text for a text: one that it would compute begins with an apostrophe."""
    return f"'{text}" if text.startswith(_FORMULA_SIGNS) else text


def _delimited(result: Result, style: Style, delimiter: str) -> Iterator[bytes]:
    """Write gaps, events and units as comments, one header, and a line a row; an absent cell is empty.

    The units stand in the line ``# unit``, in columns as below it: the first, of the times, has its name.
    """
    separator = delimiter.encode()

    def spell(text: str) -> bytes:
        return delimited_field(no_formula(text) if style.is_spreadsheet else text, delimiter)

    yield b"".join(comments(result, style))
    units = [column.unit for column in result.columns]
    if style.has_comments and not style.has_units and not _WORDS.issuperset(units):
        words = (delimited_field(unit, delimiter) if unit else b"" for unit in units)
        yield separator.join([b"# unit", *words]) + b"\n"
    yield separator.join([b"time", *map(spell, headings(result.columns, style))]) + b"\n"
    parts: list[bytes | Cells] = [time_cells(result.times_ns, style)]
    for column in result.columns:
        parts += [separator, value_cells(column, style, spell=spell)]
    yield from blocks([*parts, b"\n"], len(result.times_ns))


def write_csv(result: Result, style: Style) -> Iterator[bytes]:
    """Comma-separated values."""
    return _delimited(result, style, ",")


def write_tsv(result: Result, style: Style) -> Iterator[bytes]:
    """Tab-separated values."""
    return _delimited(result, style, "\t")


def json_text(text: str) -> bytes:
    """Spell a text as JSON; ASCII, so that whatever a machine calls its things remains valid."""
    return json.dumps(text).encode()


def _json_columns(result: Result, style: Style) -> list[Cells]:
    return [value_cells(column, style, absent=b"null", spell=json_text, quote='"') for column in result.columns]


def _json_list(cells: Cells, rows: int) -> Iterator[bytes]:
    """Write a list; the comma after the last element is never sent."""
    yield b"["
    pending = b""
    for block in blocks([cells, b","], rows):
        yield pending
        pending = block
    yield pending[:-1]
    yield b"]"


def _json_gap(gap: Gap, style: Style) -> str:
    times = (style.time(gap.start_ns), style.time(gap.end_ns))
    start, end = times if style.notation is Notation.EPOCH else (json.dumps(time) for time in times)
    words = json.dumps({"table": gap.table, "cause": str(gap.cause), "detail": gap.detail})
    return f'{{"from": {start}, "to": {end}, {words[1:]}'


def _json_event(event: Event, style: Style) -> str:
    time = style.time(event.time_ns)
    words = json.dumps({"kind": event.kind, "subject": event.subject, "text": event.text})
    return f'{{"time": {time if style.notation is Notation.EPOCH else json.dumps(time)}, {words[1:]}'


def json_remarks(remarks: Remarks, style: Style) -> bytes:
    """Gaps and events as two members of an object."""
    gaps = ",\n".join(_json_gap(gap, style) for gap in remarks.gaps)
    events = ",\n".join(_json_event(event, style) for event in style.shown(remarks.events))
    return f'"gaps": [{gaps}],\n"events": [{events}]'.encode()


def jsonl_remarks(remarks: Remarks, style: Style) -> Iterator[bytes]:
    """Write an object for each gap, ``{"gap": …}``, and for each event."""
    yield from (f'{{"gap": {_json_gap(gap, style)}}}\n'.encode() for gap in remarks.gaps)
    yield from (f'{{"event": {_json_event(event, style)}}}\n'.encode() for event in style.shown(remarks.events))


def write_json(result: Result, style: Style) -> Iterator[bytes]:
    """Write one object: series, time, values (a list a series), gaps and events."""
    rows = len(result.times_ns)
    series = [
        {"path": column.path, "unit": column.unit, "semantics": str(column.semantics), "stat": column.stat}
        for column in result.columns
    ]
    yield b'{"series": ' + json.dumps(series).encode() + b',\n"time": '
    yield from _json_list(time_cells(result.times_ns, style, '"'), rows)
    yield b',\n"values": ['
    for number, cells in enumerate(_json_columns(result, style)):
        yield b",\n" if number else b"\n"
        yield from _json_list(cells, rows)
    yield b"],\n" + json_remarks(result, style) + b"}\n"


def write_jsonl(result: Result, style: Style) -> Iterator[bytes]:
    """Write an object a row, with null for absent; then one a gap, ``{"gap": …}``, and one an event."""
    parts: list[bytes | Cells] = [b'{"time": ', time_cells(result.times_ns, style, '"')]
    for label, cells in zip(labels(result.columns), _json_columns(result, style), strict=True):
        parts += [b", " + json_text(label) + b": ", cells]
    yield from blocks([*parts, b"}\n"], len(result.times_ns))
    yield from jsonl_remarks(result, style)


def kv_remarks(remarks: Remarks, style: Style) -> Iterator[bytes]:
    """Write a line for each gap, ``gap=CAUSE table=… from=… to=…``, and for each event, ``event=KIND time=…``."""
    if not style.has_comments:
        return
    for gap in remarks.gaps:
        times = ("from", style.time(gap.start_ns)), ("to", style.time(gap.end_ns))
        detail = [("detail", gap.detail)] if gap.detail else []
        yield spelled_line([("gap", str(gap.cause)), ("table", gap.table), *times, *detail])
    for event in style.shown(remarks.events):
        words = ("subject", event.subject), ("text", event.text)
        said = [(name, text) for name, text in words if text]
        yield spelled_line([("event", event.kind), ("time", style.time(event.time_ns)), *said])


def write_kv(result: Result, style: Style) -> Iterator[bytes]:
    """Write ``key=value`` lines: of rows one each, of series one a moment and instance that has any value."""
    times: list[bytes | Cells] = [b"time=", time_cells(result.times_ns, style)]
    of_things: dict[str, list[PairCells]] = {}
    for label, column in zip(labels(result.columns), result.columns, strict=True):
        thing, key = ("", label) if result.table else _of_thing(label, column)
        pair = PairCells(key, value_cells(column, style, spell=word))
        of_things.setdefault(thing, []).append(pair)
    if "" in of_things:
        parts: list[bytes | Cells] = [*times, *of_things[""], b"\n"]
    else:
        parts = [LineCells([*times, thing.encode()], pairs) for thing, pairs in of_things.items()]
    yield from blocks(parts, len(result.times_ns))
    yield from kv_remarks(result, style)


def _of_thing(label: str, column: Column) -> tuple[str, str]:
    """What a series is about, as words of a line, and what it is called there; nothing for what is no series."""
    path, at, instance = column.path.partition("@")
    table, slash, metric = path.partition("/")
    if not slash:
        return "", label
    thing = f" table={table}" + (f" instance={word(instance).decode()}" if at else "")
    return thing, metric + label.removeprefix(column.path)


def _table_text(text: str) -> bytes:
    return printable(text).encode()


class _Widths(NamedTuple):
    """Of a table's column: characters before the decimal point, and from it on. Texts have no point."""

    whole: int
    fraction: int
    is_text: bool

    def pad(self, cell: str) -> str:
        if self.is_text:
            return cell.ljust(self.whole)
        whole, point, fraction = cell.partition(".")
        return f"{whole.rjust(self.whole)}{(point + fraction).ljust(self.fraction)}"

    def total(self) -> int:
        return self.whole + self.fraction


def write_table(result: Result, style: Style) -> Iterator[bytes]:
    """Write aligned columns for people: decimal points below each other, '-' for absent."""
    parts: list[bytes | Cells] = [time_cells(result.times_ns, style)]
    for column in result.columns:
        parts += [_CELL_END.encode(), value_cells(column, style, absent=b"-", spell=_table_text)]
    parts.append(_ROW_END.encode())
    heads = [("time", ""), *zip(map(printable, labels(result.columns)), _units(result.columns), strict=True)]
    is_text = [True, *(column.texts is not None or column.is_time for column in result.columns)]
    widths = [_Widths(0, 0, text) for text in is_text]
    for row in _table_rows(parts, len(result.times_ns)):  # written twice, so that not all of it is in memory
        widths = [_widened(width, cell) for width, cell in zip(widths, row, strict=True)]
    widths = [width._replace(whole=max(width.whole, _longest(head) - width.fraction))
              for width, head in zip(widths, heads, strict=True)]  # fmt: skip
    yield from comments(result, style)
    for line in zip(*heads, strict=True):
        yield _table_line(
            text.ljust(width.total()) if width.is_text else text.rjust(width.total())
            for text, width in zip(line, widths, strict=True)
        )
    for row in _table_rows(parts, len(result.times_ns)):
        yield _table_line(width.pad(cell) for width, cell in zip(widths, row, strict=True))


def without_time(lines: Iterable[bytes], width: int) -> Iterator[bytes]:
    """A table whose rows are all of one time, ``width`` characters long, without it."""
    for line in lines:
        yield line if line.startswith(b"#") else line[width + 2 :] or b"\n"


def _units(columns: Sequence[Column]) -> list[str]:
    return ["" if column.texts is not None or column.is_time else column.unit for column in columns]


def _longest(head: tuple[str, str]) -> int:
    return max(map(len, head))


def _widened(width: _Widths, cell: str) -> _Widths:
    whole = len(cell) if width.is_text else len(cell.partition(".")[0])
    fraction = 0 if width.is_text else len(cell) - whole
    if whole <= width.whole and fraction <= width.fraction:
        return width
    return _Widths(max(whole, width.whole), max(fraction, width.fraction), width.is_text)


def _table_rows(parts: Sequence[bytes | Cells], rows: int) -> Iterator[list[str]]:
    for block in blocks(parts, rows):
        for line in block.decode().split(_ROW_END)[:-1]:
            yield line.split(_CELL_END)


def _table_line(cells: Iterator[str]) -> bytes:
    return "  ".join(cells).rstrip().encode() + b"\n"


def _write_openmetrics(result: Result, style: Style) -> Iterator[bytes]:
    from sysmon_tools.openmetrics import write  # noqa: PLC0415  most runs write something else

    return write(result, style)


WRITERS: dict[str, Writer] = {
    "csv": write_csv,
    "tsv": write_tsv,
    "json": write_json,
    "jsonl": write_jsonl,
    "kv": write_kv,
    "table": write_table,
    "openmetrics": _write_openmetrics,
}
