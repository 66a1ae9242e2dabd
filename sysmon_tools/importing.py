# SPDX-License-Identifier: Apache-2.0
r"""Makes an archive of an answer: ``sysmon-extract --import FILE --output-dir DIR``, of CSV, TSV or JSON that we wrote.

The file is a stranger's until it is read: all that it says is checked here, and what is wrong is one line with the
number of a line or a row. What comes of it is a recording of a boot of its own, with the exact numbers of the file. A
counter is one only where the file says so and has it as it was stored (JSON of ``--raw``); all other numbers, rates
among them, are gauges.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import (
    ABSENT,
    FINEST_TIER,
    INTERVAL_MIN_NS,
    SCALE_MAX,
    Metric,
    Semantics,
    Sensitivity,
    Table,
    check_table,
)
from sysmond.base.result import Int64Array
from sysmond.base.terminal import put
from sysmond.base.timespec import DAY_NS, parse_time
from sysmond.errors import Error, UsageError
from sysmond.machine.folders import FILE_MODES, Folders, create_classes
from sysmond.ring.frame import VALUE_MAX
from sysmond.store import archive, dense
from sysmond.store.files.invariants import check_relations, check_ticks
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand

IMPORT_BYTES_MAX = 64 * 1024 * 1024
# A file of an archive has 16 MiB at most, whatever the values.
CELLS_PER_FILE = 1_000_000
TEXT_BYTES_MAX = 4096
WRITER = "import"
DOC = "Imported."

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})(?:\.([0-9]{1,15}))?")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
    r"|[0-9]{1,11}(\.[0-9]{1,9})?"
)
_ESCAPE = re.compile(r"\\(?:([\\nrt])|x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.?))")
_PLAIN = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_INSTANCE = "instance"
_TEXTS = frozenset({"text", "time"})


class ImportedColumn(NamedTuple):
    """A column of the file: numbers as they are spelled, or texts; None where there is nothing."""

    label: str
    unit: str
    semantics: Semantics
    cells: list[str | None]
    is_text: bool


class ImportedAnswer(NamedTuple):
    """All columns over one time axis. ``places``: where in the file each row stands, as messages say it."""

    times_ns: list[int]
    columns: list[ImportedColumn]
    places: "Places"


class Places(NamedTuple):
    """How messages name a row: by its line where it has one, else by its number."""

    path: str
    lines: list[int] | None = None

    def of(self, row: int) -> str:
        """Name a row."""
        return f"{self.path}:{self.lines[row]}" if self.lines else f"{self.path}: row {row + 1}"


class _Series(NamedTuple):
    """A series to be written: what it is of, and its values, int64[row] of all rows of the axis."""

    key: SeriesKey
    metric: Metric
    values: Int64Array


def run(path: str, table: str, output_dir: str) -> None:
    """Make an archive of a file. ``table``: of which its rows are; empty where they are of series.

    :raises Error: saying where in the file what is wrong. :raises UsageError: where that cannot be done there.
    """
    if os.path.lexists(output_dir) and (not os.path.isdir(output_dir) or os.listdir(output_dir)):
        raise UsageError(f"--output-dir={output_dir}: not empty; expected a new or empty folder")
    content, sensitivity = _content(path)
    answer = _json(path, content) if content.lstrip()[:1] == b"{" else _delimited(path, content)
    texts: dict[str, int] = {}
    axis_ns, series = _of_rows(answer, table, texts) if table else _of_series(answer, texts)
    if not len(axis_ns):
        raise Error(f"{path}: has no rows; expected at least one")
    boot = hashlib.sha256(content).hexdigest()[:32]
    spelled = {number: text for text, number in texts.items()}
    try:
        recordings = _recordings(boot, sensitivity, axis_ns, series, spelled)
        images = [dense.encode([recording]) for recording in recordings]
    except (UsageError, ValueError) as wrong:  # Names that are none, and more than an archive may hold.
        raise Error(f"{path}: {wrong}") from wrong
    place = Folders(os.path.abspath(output_dir), "")
    create_classes(place.state, FINEST_TIER)
    folder = archive.disk_folder(place, sensitivity)
    for number, image in enumerate(images, start=1):
        archive.publish(folder, archive.Name(boot, number, number).file, image, FILE_MODES[sensitivity])
    put(f"{len(axis_ns)} moments of {len(series)} series; --state-dir={output_dir} reads them")


def _content(path: str) -> tuple[bytes, Sensitivity]:
    """A file, and of which class it is: what others may not read was restricted, and stays so."""
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        content = file.read(IMPORT_BYTES_MAX + 1)
    if len(content) > IMPORT_BYTES_MAX:
        raise Error(f"{path}: more than {IMPORT_BYTES_MAX} bytes; export it in parts, with --from and --to")
    return content, Sensitivity.PUBLIC if mode & stat.S_IROTH else Sensitivity.RESTRICTED


# CSV and TSV


def _delimited(path: str, content: bytes) -> ImportedAnswer:
    """Read lines of fields: comments, units among them, a header, rows."""
    labels: list[str] = []
    units: list[str] = []
    cells: list[list[str | None]] = []
    times_ns: list[int] = []
    lines: list[int] = []
    known: dict[str, str] = {}  # The same text is kept once.
    delimiter = ","
    for number, raw in enumerate(content.split(b"\n"), start=1):
        where = f"{path}:{number}"
        line = _decoded(where, raw.removesuffix(b"\r"))
        if line.startswith("#") or not line:
            if line.startswith(("# unit,", "# unit\t")):
                units = [field or "" for field in fields_of(where, line, line[len("# unit")])]
            continue
        if not labels:
            delimiter = "\t" if line.startswith("time\t") else ","
            header = [field or "" for field in fields_of(where, line, delimiter)]
            if header[0] != "time" or len(header) == 1:
                raise Error(f"{where}: not a header; expected time and columns, as written by sysmon-extract")
            labels, cells = header[1:], [[] for _ in header[1:]]
            continue
        fields = fields_of(where, line, delimiter)
        if len(fields) != len(labels) + 1:
            raise Error(f"{where}: {len(fields)} fields; expected {len(labels) + 1}, as in the header")
        times_ns.append(_time_ns(where, fields[0]))
        lines.append(number)
        for column, field in zip(cells, fields[1:], strict=True):
            column.append(None if field is None else known.setdefault(field, field))
    if units and len(units) != len(labels) + 1:
        raise Error(f"{path}: {len(units)} units for {len(labels) + 1} columns; expected one each")
    of_columns = units[1:] or [""] * len(labels)
    columns = [
        ImportedColumn(label, unit, Semantics.GAUGE, values, unit in _TEXTS or not _are_numbers(values))
        for label, unit, values in zip(labels, of_columns, cells, strict=True)
    ]
    return ImportedAnswer(times_ns, columns, Places(path, lines))


def _are_numbers(cells: Sequence[str | None]) -> bool:
    return all(cell is None or _NUMBER.fullmatch(cell) for cell in cells)


def _decoded(where: str, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as wrong:
        raise Error(f"{where}: byte {wrong.start + 1} is not UTF-8") from wrong


def fields_of(where: str, line: str, delimiter: str) -> list[str | None]:
    """The fields of a line, escapes undone; None where there is none, which an empty text in quotes is not."""
    field = re.compile(rf'"((?:[^"]|"")*)"|([^"{delimiter}]*)')
    fields: list[str | None] = []
    at = 0
    while True:
        match = field.match(line, at)
        assert match is not None  # noqa: S101  it may be empty
        text = match[2] if match[1] is None else match[1].replace('""', '"')
        fields.append(_unescaped(where, text) if text or match[1] is not None else None)
        at = match.end()
        if at == len(line):
            return fields
        if line[at] != delimiter:
            raise Error(f"{where}: {line[at]!r} at character {at + 1}; expected {delimiter!r} or the end of the line")
        at += 1


def _unescaped(where: str, text: str) -> str:
    r"""Undo escapes: a byte that is no UTF-8 is ``\x80`` to ``\xff``, all else its number."""

    def sign(match: re.Match[str]) -> str:
        plain, byte, short, long, wrong = match.groups()
        if wrong is not None:
            raise Error(f"{where}: {match[0]!r} is not an escape sequence; expected each backslash to be doubled")
        if plain:
            return _PLAIN[plain]
        number = int(byte or short or long, 16)
        if number > 0x10FFFF:  # noqa: PLR2004  Unicode ends there
            raise Error(f"{where}: {match[0]!r} is not a character")
        return chr(number + 0xDC00 if byte and number >= 0x80 else number)  # noqa: PLR2004  ASCII

    return _ESCAPE.sub(sign, text) if "\\" in text else text


# JSON


def _json(path: str, content: bytes) -> ImportedAnswer:
    """Read an object of series, times and values."""

    def refuse(word: str) -> None:
        raise Error(f"{path}: {word} is not a value; expected a number or null")

    try:
        said = json.loads(content, parse_float=_Spelled, parse_int=_Spelled, parse_constant=refuse)
    except json.JSONDecodeError as wrong:
        raise Error(f"{path}:{wrong.lineno}: not JSON: {wrong.msg} at character {wrong.colno}") from wrong
    except (UnicodeDecodeError, RecursionError) as wrong:
        raise Error(f"{path}: not JSON of sysmon-extract: {type(wrong).__name__}") from wrong
    match said:
        case {"series": [*series], "time": [*times], "values": [*values]} if len(series) == len(values) and series:
            pass
        case _:
            raise Error(f"{path}: not an answer; expected series, time and as many values, as in sysmon-extract's JSON")
    places = Places(path)
    times_ns = [_time_ns(places.of(row), time) for row, time in enumerate(times)]
    paths = [entry.get("path") if isinstance(entry, dict) else None for entry in series]
    has_stats = len({str(name) for name in paths}) < len(paths)
    columns = [
        _json_column(f"{path}: series {number + 1}", about, cells, len(times), has_stats=has_stats)
        for number, (about, cells) in enumerate(zip(series, values, strict=True))
    ]
    return ImportedAnswer(times_ns, columns, places)


class _Spelled(str):
    """A number as JSON spelled it; texts are other strings."""

    __slots__ = ()


def _json_column(where: str, about: Any, cells: Any, rows: int, *, has_stats: bool) -> ImportedColumn:  # noqa: ANN401  a stranger's
    match about:
        case {"path": str(label), "unit": str(unit), "semantics": str(semantics), "stat": str(statistic)}:
            pass
        case _:
            raise Error(f"{where}: expected path, unit, semantics and stat")
    if not isinstance(cells, list) or len(cells) != rows:
        raise Error(f"{where}: expected {rows} values, one for each time")
    for row, cell in enumerate(cells):
        if cell is not None and not isinstance(cell, str):
            raise Error(f"{where}, value {row + 1}: expected a number, a text or null")
    is_text = unit in _TEXTS or any(cell is not None and not isinstance(cell, _Spelled) for cell in cells)
    if not is_text and not _are_numbers(cells):
        raise Error(f"{where}: a number with an exponent, or too many digits; expected a plain number")
    if semantics not in tuple(Semantics):
        raise Error(f"{where}: semantics {semantics!r}; expected {', '.join(Semantics)}")
    # What was stored is what it was; a rate, or another statistic of a counter, is how much there was of something.
    meant = Semantics(semantics) if statistic == "raw" or semantics == Semantics.STATE else Semantics.GAUGE
    return ImportedColumn(f"{label}:{statistic}" if has_stats else label, unit, meant, cells, is_text)


# What they mean


def _time_ns(where: str, text: object) -> int:
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        raise Error(f"{where}: time {str(text)[:40]!r}; expected 2025-01-31T14:30:00+01:00 or seconds since the epoch")
    try:
        return parse_time(text, now_ns=0)
    except UsageError as wrong:
        raise Error(f"{where}: {wrong}") from wrong


def _of_series(answer: ImportedAnswer, texts: dict[str, int]) -> tuple[Int64Array, list[_Series]]:
    """Of each column its label is the path of a series."""
    axis_ns = _axis(answer)
    columns: dict[SeriesKey, ImportedColumn] = {}
    for column in answer.columns:
        path, _, instance = column.label.partition("@")
        table, slash, metric = path.partition("/")
        key = SeriesKey(table, metric, instance)
        if not slash:
            right = "expected table/metric@instance, or of rows their table as PATH"
            raise Error(f"{answer.places.path}: column {column.label!r} is not a series; {right}")
        if key in columns:
            raise Error(f"{answer.places.path}: column {column.label!r} appears twice; expected each once")
        columns[key] = column
    metrics = {
        (table, name): _metric(name, [column for other, column in columns.items() if other[:2] == (table, name)])
        for table, name in {key[:2] for key in columns}
    }
    made = [(key, metrics[key.table, key.metric], column) for key, column in columns.items()]
    return axis_ns, [_Series(key, metric, _values(answer, column, metric, texts)) for key, metric, column in made]


def _of_rows(answer: ImportedAnswer, table: str, texts: dict[str, int]) -> tuple[Int64Array, list[_Series]]:
    """A row is of an instance at a moment; without a column ``instance``, of all of the system."""
    times_ns = np.array(answer.times_ns, np.int64)
    axis_ns = np.unique(times_ns)
    at = np.searchsorted(axis_ns, times_ns)
    of_instances = next((column.cells for column in answer.columns if column.label == _INSTANCE), None)
    instances = [instance or "" for instance in of_instances or [""] * len(times_ns)]
    rows_of: dict[str, dict[int, int]] = {}
    for row, (moment, instance) in enumerate(zip(at.tolist(), instances, strict=True)):
        rows = rows_of.setdefault(instance, {})
        if moment in rows:
            right = "expected one row for each, as in tables with a column instance"
            raise Error(f"{answer.places.of(row)}: {instance!r} appears twice at one moment; {right}")
        rows[moment] = row
    series = []
    for column in answer.columns:
        if column.label == _INSTANCE:
            continue
        metric = _metric(column.label, [column])
        values = _values(answer, column, metric, texts)
        for instance, rows in rows_of.items():
            spread = np.full(len(axis_ns), ABSENT, np.int64)
            spread[list(rows)] = values[list(rows.values())]
            series.append(_Series(SeriesKey(table, column.label, instance), metric, spread))
    return axis_ns, series


def _axis(answer: ImportedAnswer) -> Int64Array:
    """The time axis, which has each moment once."""
    times_ns = np.array(answer.times_ns, np.int64)
    (back,) = np.nonzero(np.diff(times_ns) <= 0)
    if len(back):
        where = answer.places.of(int(back[0]) + 1)
        right = "expected one boot, as --boot gives it; rows of a table are imported by its name: 'disk --import FILE'"
        raise Error(f"{where}: not later than the row before; {right}")
    return times_ns


def _metric(name: str, columns: Sequence[ImportedColumn]) -> Metric:
    """What all columns of a name are, those of all its instances."""
    if any(column.is_text for column in columns):
        return Metric(name, "text", Semantics.STATE, DOC)
    scale = max((len(cell.partition(".")[2]) for column in columns for cell in column.cells if cell), default=0)
    return Metric(name, columns[0].unit or "1", columns[0].semantics, DOC, scale)


def _values(answer: ImportedAnswer, column: ImportedColumn, metric: Metric, texts: dict[str, int]) -> Int64Array:
    """A column as it is stored: integers of a scale, or the numbers of texts."""
    values = np.full(len(column.cells), ABSENT, np.int64)
    for row, cell in enumerate(column.cells):
        if cell is None:
            continue
        if metric.is_text:
            if cell not in texts:
                _check_text(answer.places.of(row), cell)
            values[row] = texts.setdefault(cell, len(texts) + 1)
            continue
        whole, _, fraction = cell.partition(".")
        number = int(whole + fraction.ljust(metric.scale, "0"))
        if abs(number) > VALUE_MAX or metric.scale > SCALE_MAX:
            right = f"expected 18 in all, and {SCALE_MAX} decimals at most"
            raise Error(f"{answer.places.of(row)}: {metric.name} {cell}: too many digits; {right}")
        values[row] = number
    return values


def _check_text(where: str, text: str) -> None:
    """Refuse a text that no recorder would have."""
    try:
        length = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as wrong:
        raise Error(f"{where}: {text[:40]!r}: half of a surrogate pair; expected whole characters") from wrong
    if length > TEXT_BYTES_MAX or "\0" in text:
        raise Error(f"{where}: {text[:40]!r}: expected at most {TEXT_BYTES_MAX} bytes, without NUL")


# What is written


def _recordings(
    boot: str, sensitivity: Sensitivity, axis_ns: Int64Array, series: Sequence[_Series], texts: dict[int, str]
) -> Iterator[Recording]:
    """One recording a file: a block a table, of the moments at which it has any value."""
    tables: dict[str, list[_Series]] = {}
    for one in series:
        tables.setdefault(one.key.table, []).append(one)
    declared = {name: _table(name, members) for name, members in tables.items()}
    # Boot time is made up: it begins a second before the first moment.
    ticks = axis_ns - axis_ns[0] + SECOND_NS
    relation = Relation(SECOND_NS, int(axis_ns[0]), SECOND_NS)
    check_ticks("times", ticks)
    check_relations([relation])
    lanes = {name: _interval_ns(ticks, members) for name, members in tables.items()}
    step = max(1, CELLS_PER_FILE // len(series))
    for first in range(0, len(ticks), step):
        blocks = []
        for name, members in tables.items():
            matrix = np.array([one.values[first : first + step] for one in members])
            there = (matrix != ABSENT).any(axis=0)
            if there.any():
                strand = Strand(boot, f"{WRITER}_{name}", 0, lanes[name])
                keys = [one.key for one in members]
                blocks.append(MemoryBlock(strand, ticks[first : first + step][there], keys, matrix[:, there]))
        if blocks:
            yield Recording(sensitivity, declared, blocks, texts, {boot: [relation]}, ())


def _table(name: str, members: Sequence[_Series]) -> Table:
    """What is known of a table."""
    per = _INSTANCE if any(one.key.instance for one in members) else ""
    made = Table(name, tuple({one.metric.name: one.metric for one in members}.values()), per, DOC)
    for instance in {one.key.instance for one in members}:
        _check_text(f"table {name!r}", instance)
    check_table(made)
    return made


def _interval_ns(ticks: Int64Array, members: Sequence[_Series]) -> int:
    """How often a table was read: the middle one of its distances."""
    there = np.logical_or.reduce([one.values != ABSENT for one in members])
    distances = np.diff(ticks[there])
    middle = int(np.median(distances)) if len(distances) else SECOND_NS
    return min(max(middle, INTERVAL_MIN_NS), DAY_NS)
