# SPDX-License-Identifier: Apache-2.0
"""SQL over long tables, by DuckDB: it sees the rows of a range as relations, and nothing of the machine.

A relation has a row a recorded row: ``time``, metrics in their units, and what is joined where the query names it. A
counter is what it grew by since the row before of its key (NULL where that is not known), so that its sum is right;
``NAME_total`` is the counter itself. Only tables and columns whose names are in the query are read.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sysmond.answers.columns import LAST, Of, Spec
from sysmond.answers.question import Request
from sysmond.answers.records import Answering
from sysmond.answers.rows import VALUES_MAX, JoinedRows, MomentBatch, NumberColumn, UtcBuckets
from sysmond.base.model import ABSENT, END, START, Semantics, Sensitivity
from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.machine.folders import Folders
from sysmond.rollup.condition import Words
from sysmond.store.census import Census, Line
from sysmond.store.ends import GRAIN_NS
from sysmond.store.stretch import Stretch, StretchPart, key_of

if TYPE_CHECKING:
    import duckdb

TOTAL = "_total"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# ``select *`` and ``p.*``, but not ``count(*)`` nor a product.
_ALL = re.compile(r"(?:\bselect\s+|\bdistinct\s+|,\s*|\.)\*", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Array = npt.NDArray[Any]


class SqlTime(NamedTuple):
    """A point in time, in UTC nanoseconds; DuckDB gives it to the microsecond."""

    time_ns: int


class Found(NamedTuple):
    """The answer to a query: names of its columns, and its rows; None where a value is absent."""

    names: Sequence[str]
    rows: Sequence[Sequence[object]]
    warnings: Sequence[str]
    sensitivity: Sensitivity


def ask(folders: Folders, classes: Collection[Sensitivity], query: str, request: Request) -> Found:
    """Run a query over the tables it names, in the range and boot of a request.

    :raises Error: where DuckDB is not installed, or nothing is recorded. :raises UsageError: for a wrong query.
    :raises NotPermittedError: where a table that it names may not be read.
    """
    try:
        import duckdb  # noqa: PLC0415  optional, and 30 ms to import
    except ImportError as missing:
        raise Error("DuckDB is not installed; 'pip install sysmond[sql]' adds it") from missing
    words = {word.lower() for word in _WORD.findall(query)}
    census = Census(folders, classes)
    named = [name for name in census.tables() if name in words]
    if not named:
        if census.refused:
            raise NotPermittedError(f"{census.refused[0]}: no permission to read it")
        raise UsageError(f"query {query!r}: it names no table; recorded are {', '.join(census.tables()) or 'none'}")
    everything = bool(_ALL.search(query))
    with duckdb.connect(":memory:", config={"enable_external_access": "false", "lock_configuration": "true"}) as opened:
        warnings: list[str] = []
        restricted = False
        for name in named:
            source = Answering(census, request._replace(table=name))
            if not source.has_rows:
                raise Error(
                    f"table {name!r}: its rows are not kept for that range any more; without --sql, tiers answer"
                )
            relation = _relation(source, None if everything else words)
            warnings += source.warnings()
            restricted = restricted or source.is_restricted()
            opened.register(name, relation)
        names, rows = _run(opened, query)
    sensitivity = Sensitivity.RESTRICTED if restricted else Sensitivity.PUBLIC
    return Found(names, rows, tuple(dict.fromkeys(warnings)), sensitivity)


def _run(opened: "duckdb.DuckDBPyConnection", query: str) -> tuple[list[str], list[list[object]]]:
    import duckdb  # noqa: PLC0415  as above

    try:
        result = opened.execute(query)
        rows = result.fetchall()
        return [column[0] for column in result.description or ()], [[_plain(cell) for cell in row] for row in rows]
    except duckdb.Error as wrong:
        said = " ".join(str(wrong).split("\n\n", maxsplit=1)[0].split())
    # Not within the clause: what DuckDB raised would keep its connection.
    raise UsageError(f"query {query!r}: {said}")


def _plain(cell: object) -> object:
    if isinstance(cell, datetime):
        at = cell if cell.tzinfo else cell.replace(tzinfo=UTC)
        since = at - _EPOCH
        return SqlTime((since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000)
    return cell


def _relation(source: Answering, words: set[str] | None) -> Mapping[str, Array]:
    """The rows of a table over a range, a column each; those of a table that nobody names a column of are counted."""
    specs = list(_wanted(source, words))
    buckets, lines = source.buckets(), source.joined(spec for _, spec, _ in specs)
    pieces: dict[str, list[Array]] = {"time": [], **{label: [] for label, _, _ in specs}}
    rows = 0
    for line, joined in lines:
        carried: dict[str, dict[tuple[int, ...], int]] = {}
        for part, earlier in zip(line.parts, [None, *(part.stretch for part in line.parts)], strict=False):
            batch = _Batch(part, line, joined, buckets, earlier)
            rows += len(batch.bucket)
            if rows * len(pieces) > VALUES_MAX:
                raise UsageError(f"more than {VALUES_MAX} values; ask for a shorter range or fewer columns")
            pieces["time"].append(batch.times_ns.view("M8[ns]"))
            for label, spec, is_grown in specs:
                before = carried.setdefault(label, {})
                pieces[label].append(_values(batch.grown(spec, before) if is_grown else batch.cells(spec), spec))
    return {name: _joined(pieces_of) for name, pieces_of in pieces.items()}


def _wanted(source: Answering, words: set[str] | None) -> Iterator[tuple[str, Spec, bool]]:
    """The columns that a query may mean: name, what it is of, whether it is what a counter grew by."""
    for label, spec in source.offer.specs.items():
        name, said, stat = label.partition(":")
        if spec.of in {Of.COUNT, Of.LIFE} or (said and stat != LAST):
            continue
        is_counter = spec.semantics is Semantics.COUNTER
        if said and not is_counter:
            continue
        name += TOTAL if said else ""
        if (words is None and spec.of is not Of.JOIN) or (words is not None and name.lower() in words):
            yield name, spec, is_counter and not said


class _Batch(MomentBatch):
    """The rows of a part as they were recorded, of any table."""

    def __init__(
        self, part: StretchPart, line: Line, joined: JoinedRows, buckets: UtcBuckets, earlier: Stretch | None = None
    ) -> None:
        super().__init__(part, line, joined, buckets, before=earlier)
        # Who started since then, was not there before.
        self._since_ns = int(part.stretch.ticks[0] if earlier is None else earlier.ticks[-1]) - GRAIN_NS

    def grown(self, spec: Spec, before: dict[tuple[int, ...], int]) -> NumberColumn:
        """By how much a counter grew since the row before of its key; ``before``: what they had in the part before."""
        stretch = self._stretch
        values = stretch.column(spec.name)
        base = np.empty_like(values)
        base[1:] = values[:-1]
        keys = list(zip(*(stretch.keys[name].tolist() for name in key_of(stretch.table)), strict=True))
        starts = stretch.keys[START] if START in stretch.keys else np.full(len(keys), -1)
        fresh = np.where(starts >= self._since_ns, 0, ABSENT)
        base[stretch.begins] = [before.get(key, new) for key, new in zip(keys, fresh.tolist(), strict=True)]
        before.update(zip(keys, stretch.last(spec.name).tolist(), strict=True))
        unknown = (base == ABSENT) | (values == ABSENT)
        grown = np.where(unknown, ABSENT, np.maximum(0, np.where(unknown, 0, values - np.where(unknown, 0, base))))
        return NumberColumn(grown[self._rows], spec.scale)


def _values(cells: NumberColumn | Words, spec: Spec) -> Array:
    if isinstance(cells, Words):
        texts = np.array([*(_valid(text) for text in cells.texts), None], object)
        strings: Array = texts[cells.codes]
        return strings
    if spec.name in {START, END}:
        return np.asarray(cells.values, np.int64).view("M8[ns]")
    if spec.semantics is Semantics.STATE and not cells.scale:
        values = np.asarray(cells.values, np.int64)
        masked: Array = np.ma.masked_equal(values, ABSENT)
        return masked
    return cells.floats()


def _valid(text: str) -> str:
    """A text as UTF-8 has it: DuckDB knows no other."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _joined(pieces: Sequence[Array]) -> Array:
    if any(isinstance(piece, np.ma.MaskedArray) for piece in pieces):
        column: Array = np.ma.concatenate(pieces)  # type: ignore[no-untyped-call]
        return column
    return np.concatenate(pieces)
