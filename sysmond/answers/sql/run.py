# SPDX-License-Identifier: Apache-2.0
"""SQL over every table, by DuckDB: it sees the rows of a range as relations, and nothing of the machine.

A table is a relation of its own name, with a row a recorded row (``of_wide``, ``of_long``), and of its name with a
tier (``cpu_1min``) with a row a bucket; ``event`` has what happened. DuckDB's own parser says which a query needs,
which columns, and between which times (``parsed``): only that is read.
"""

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sysmond.answers import event_rows, wide
from sysmond.answers.records import Answering
from sysmond.answers.rows.question import Request, times_of
from sysmond.answers.series import gaps
from sysmond.answers.sql import of_long, of_wide, parsed, refusals
from sysmond.answers.sql.of_long import Array, SqlTable
from sysmond.answers.sql.parsed import Named, Span
from sysmond.base import paths, timespec
from sysmond.base.model import ABSENT, EVENTS, TIERS_NS, Sensitivity
from sysmond.base.result import Event, Gap, Result, not_installed, polars_of, unicode
from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.machine import snapshot_note
from sysmond.machine.folders import Folders
from sysmond.store import events
from sysmond.store.census import Census
from sysmond.store.stretches.stretch import lasts
from sysmond.store.tiers import COARSE
from sysmond.store.timeline import Timeline

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What a connection may do: no network, no extension, and no file but in a folder of its own. What does not fit into its
# memory waits there, where nobody else may look, and goes with the answer.
# What means the moment of a query has a zone in DuckDB and cannot be compared with ``time``, which is UTC without one.
_NOW = ("now", "current_timestamp", "get_current_timestamp", "transaction_timestamp")
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "memory_limit": "128MB",
    "max_temp_directory_size": "8GB",
}
# In a relation, most of them in that folder: a month of two columns of twelve CPUs has 140 million.
_VALUES_MAX = 250_000_000


class SqlTime(NamedTuple):
    """A point in time, in UTC nanoseconds; DuckDB gives it to the microsecond."""

    time_ns: int


class SqlAnswer(NamedTuple):
    """The answer to a query: names of its columns, and its rows; None where a value is absent.

    ``gaps``: why there is nothing where there is nothing of the tables that the query names, in the range in which it
    looks at them. ``events``: what happened in that range.
    """

    names: Sequence[str]
    rows: Sequence[Sequence[object]]
    warnings: Sequence[str]
    sensitivity: Sensitivity
    gaps: Sequence[Gap] = ()
    events: Sequence[Event] = ()

    def to_arrow(self) -> "pa.Table":
        """The answer as an Arrow table: times are timestamps of nanoseconds in UTC, what is absent is null.

        :raises Error: where pyarrow is not installed.
        """
        try:
            import pyarrow as pa  # noqa: PLC0415  optional, and 100 ms to import
        except ImportError as missing:
            raise not_installed("pyarrow") from missing

        def array(cells: Sequence[object]) -> Any:  # noqa: ANN401  an array of a library without types
            if any(isinstance(cell, SqlTime) for cell in cells):
                times_ns = [cell.time_ns if isinstance(cell, SqlTime) else None for cell in cells]
                return pa.array(times_ns, pa.timestamp("ns", "UTC"))
            return pa.array([unicode(cell) if isinstance(cell, str) else cell for cell in cells])

        names = [unicode(name) for name in self.names]
        return pa.Table.from_arrays([array(cells) for cells in self._columns()], names=names)

    def to_polars(self) -> "pl.DataFrame":
        """The answer as a polars DataFrame, by way of Arrow.

        :raises Error: where polars or pyarrow is not installed.
        """
        return polars_of(self.to_arrow)

    def to_pandas(self) -> "pd.DataFrame":
        """The answer as a DataFrame: times are in UTC, whole numbers Int64; what is absent is missing.

        :raises Error: where pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415  optional, and 300 ms to import
        except ImportError as missing:
            raise not_installed("pandas") from missing

        def series(cells: Sequence[object]) -> "pd.Series[Any]":
            if any(isinstance(cell, SqlTime) for cell in cells):
                times_ns = [cell.time_ns if isinstance(cell, SqlTime) else ABSENT for cell in cells]
                # The smallest number is NaT.
                return pd.Series(pd.DatetimeIndex(np.array(times_ns, np.int64).view("datetime64[ns]"), tz="UTC"))
            are_whole = all(cell is None or type(cell) is int for cell in cells)
            return pd.Series(list(cells), dtype="Int64" if cells and are_whole else None)

        frame = pd.concat([series(cells) for cells in self._columns()], axis=1)
        frame.columns = pd.Index(self.names)
        return frame

    def _columns(self) -> list[list[object]]:
        return [[row[at] for row in self.rows] for at in range(len(self.names))]


def ask(folders: Folders, classes: Collection[Sensitivity], query: str, request: Request) -> SqlAnswer:
    """Run a query over the tables it names, in the range and boot of a request.

    :raises Error: where DuckDB is not installed, or nothing is recorded. :raises UsageError: for a wrong query.
    :raises NotPermittedError: where a table that it names may not be read.
    """
    try:
        import duckdb  # noqa: PLC0415  optional, and 30 ms to import
    except ImportError as missing:
        raise not_installed("DuckDB") from missing
    with (
        tempfile.TemporaryDirectory(prefix="sysmond-sql-") as folder,
        closing(Census(folders, classes)) as census,
        duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": folder}) as opened,
    ):
        moment = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
        macros = (f"create macro {name}() as timestamp '{moment}'" for name in _NOW)
        for statement in ("set timezone = 'UTC'", *macros, "set lock_configuration = true"):
            opened.execute(statement).fetchall()
        source = _Source(opened, census, folders, classes, request)
        source.fill(query)
        names, rows = _run(opened, query, source)
        happened = source.happened()
    known = tuple(gaps.coalesce(source.gaps))
    return SqlAnswer(names, rows, tuple(dict.fromkeys(source.warnings)), source.sensitivity, known, tuple(happened))


class _Source:
    """Fills the relations that a query names; then has what there is to say of it."""

    def __init__(
        self,
        opened: "duckdb.DuckDBPyConnection",
        census: Census,
        folders: Folders,
        classes: Collection[Sensitivity],
        request: Request,
    ) -> None:
        self.warnings: list[str] = []
        self.gaps: list[Gap] = []
        self.is_restricted = False
        # All that each of the relations that are named has: it is made of those that are named.
        self.columns: dict[str, list[str]] = {}
        self._opened = opened
        self._folders = folders
        self._classes = classes
        self._request = request
        self._named = Named(frozenset(), frozenset(), frozenset(), {})
        self._times = times_of(request, snapshot_note.now(folders.state))
        self._census = census
        # By what knows names of numbers, the column that has them in what is named.
        self.names: dict[str, str] = {}
        self._wide_tables: list[str] | None = None
        # In which ranges it looks at tables, and of which boot; what was found of them that is an event.
        self._spans: list[tuple[int, int]] = []
        self._boot: str | None = None
        self._own_events: list[Event] = []

    def fill(self, query: str) -> None:
        """Make the relations that a query names.

        :raises UsageError: where none is, and where it is no query. :raises Error: where one cannot be filled.
        """
        self._named = self._parsed(query)
        left = set(self._named.tables)
        for table in self._census.tables():
            for name, step in _relations(table):
                if name in left:
                    left.discard(name)
                    self._fill_long(table, name, step)
        if EVENTS in left:
            left.discard(EVENTS)
            self._fill_events()
        if left or not self._named.tables:
            done = self._of_wide(lambda line: self._fill_wide(line, left))
            if not done and left == self._named.tables:
                self._refuse(query)

    def _parsed(self, query: str) -> Named:
        import duckdb  # noqa: PLC0415  as above

        try:
            return parsed.read(self._opened, query)
        except duckdb.Error as wrong:
            said = refusals.refused(wrong, self.tables(), {}, {})
        raise UsageError(f"query {query!r}: {said}")

    def _of_wide(self, use: Callable[[Timeline], bool]) -> bool:
        return wide.opened(self._folders, self._classes, self._times, self._request.boot, use)

    def _refuse(self, query: str) -> None:
        """Say what there is, where a query names nothing of it.

        :raises Error: always.
        """
        if self._census.refused:
            raise NotPermittedError(f"{self._census.refused[0]}: no permission to read it")
        known, named = self.tables(), sorted(self._named.tables)
        for table in named:
            if table not in known and wide.is_planned(table, self._folders):
                raise Error(f"query {query!r}: {paths.not_recorded(table)}")
        if not named:
            raise UsageError(f"query {query!r}: no table is named{refusals.recorded(known)}")
        planned = list(wide.planned_tables(self._folders))
        wrong = refusals.without_table(f"there is no table {named[0]!r}", named[0], known, planned)
        raise UsageError(f"query {query!r}: {wrong}")

    @property
    def sensitivity(self) -> Sensitivity:
        """Who may read it."""
        return Sensitivity.RESTRICTED if self.is_restricted else Sensitivity.PUBLIC

    def happened(self) -> list[Event]:
        """What happened in the range in which the query looks at tables; nothing where it is about that itself."""
        if not self._spans:
            return []
        starts_ns, ends_ns = zip(*self._spans, strict=True)
        happened = self._census.happened(self.sensitivity, min(starts_ns), max(ends_ns), self._boot)
        self.warnings += self._census.warnings
        return events.among(happened, dict.fromkeys(self._own_events))

    def tables(self) -> list[str]:
        """The tables there are; each of them but ``event`` in tiers, too."""
        if self._wide_tables is None:
            self._wide_tables = []
            with suppress(Error):  # Where there are long tables alone.
                self._of_wide(self._note_wide)
        return sorted({*self._census.tables(), *self._wide_tables, EVENTS})

    def _note_wide(self, line: Timeline) -> bool:
        self._wide_tables = sorted(line.declared)
        return bool(self._wide_tables)

    def _fill_long(self, table: str, name: str, step: str) -> None:
        source = Answering(self._census, self._request._replace(table=table, step=step or None))
        if step and not lasts(source.table):
            raise UsageError(f"table {name!r}: {table} has no buckets; expected {table} itself")
        # All columns of it are those of the table itself.
        offer = source.offer if self._named.columns_of(name) is None else source.whole_offer()
        self.names |= {join.table: text for join in offer.answers.joins for text, _ in join.columns}
        if not step:
            if not source.has_rows:
                raise Error(
                    f"table {table!r}: rows of that range are no longer kept; expected {table}_{COARSE[0]} "
                    "or a coarser tier, which has the largest users"
                )
            self.columns[name] = [*of_long.of_rows(name, source.offer, None).types]
            relation = of_long.of_rows(name, offer, self._named.columns_of(name))
            self._insert(relation, () if name in self._named.described else of_long.rows(source, offer, relation))
            own_events = source.meanings
            if source.has_buckets and self._times.start_ns != -timespec.FOREVER_NS:
                text = f"of a part of the range only buckets are left; {table}_{COARSE[0]} has them"
                self.warnings.append(f"table {table!r}: {text}")
        else:
            self.columns[name] = of_long.columns_of_buckets(source.offer)

            def ask_for(labels: Sequence[str]) -> Result:
                nonlocal source
                request = self._request._replace(table=table, step=step, columns=labels)
                source = Answering(self._census, request)
                return source.answer()

            self._opened.register(name, of_long.buckets(offer, ask_for, self._named.columns_of(name)))
            own_events = source.own_events()
        self._tell(source, self._named.spans.get(name, Span()), own_events)

    def _tell(self, source: Answering, looked_at: Span, own_events: Iterable[Event]) -> None:
        """Keep what there is to say of a long table that was read; ``own_events``: what else belongs among events."""
        known, (low_ns, high_ns) = source.gaps(source.buckets()), source.span
        start_ns, end_ns = self._range(looked_at)
        start_ns, end_ns = max(start_ns, low_ns), min(end_ns, high_ns)
        self.gaps += [gap for gap in known if gap.end_ns > start_ns and gap.start_ns < end_ns]
        self._own_events += [event for event in own_events if start_ns <= event.time_ns < end_ns]
        self._spans.append((start_ns, end_ns))
        self._boot = source.boot
        self.warnings += source.warnings()
        self.is_restricted = self.is_restricted or source.is_restricted()

    def _fill_wide(self, line: Timeline, left: Collection[str]) -> bool:
        """Make the relations of wide tables; whether there are any of these."""
        boot = wide.find_boot(line, self._request.boot)
        self._note_wide(line)
        filled: dict[str, tuple[int, int]] = {}
        known: list[Gap] = []
        for table in line.declared:
            mine = list(line.metrics(table).values())
            for name, step in _relations(table):
                if name in left:
                    span = filled[name] = self._range(self._named.spans.get(name, Span()))
                    gaps_read: list[Gap] = []
                    named = self._named.columns_of(name)
                    make = of_wide.of_buckets if step else of_wide.of_rows
                    self.columns[name] = [*make(name, mine, None).types]
                    relation = make(name, mine, named, () if named is None else line.derived(table))
                    pieces: Iterable[Mapping[str, Array]] = ()
                    is_read = name not in self._named.described
                    if is_read and step:
                        pieces = of_wide.buckets(line, table, relation, span, boot, gaps_read, TIERS_NS[step])
                    elif is_read:
                        pieces = of_wide.rows(line, table, relation, span, boot, gaps_read)
                    self._insert(relation, pieces)
                    when = self._times._replace(start_ns=span[0], end_ns=span[1])
                    keys = [key for key in line.keys(boot) if key.table == table]
                    inside = wide.gaps_within(line, self._folders, {table}, when, boot, gaps_read, keys)
                    known += inside
                    if not step and of_wide.has_rates(mine, relation):
                        before = gaps.before_first(line, boot, table, inside)
                        known += [gap for gap in before if span[0] <= gap.end_ns < span[1]]
                    line.demand([table], known)
                    self.is_restricted = self.is_restricted or table in line.restricted
        line.demand((), (), is_empty=bool(set(left) - set(filled)))
        # Only now: what was left out of the time line may matter, and then all of this is done anew.
        self.gaps += known
        self.warnings += [damage.reason for damage in line.damages]
        if filled:
            self._spans += filled.values()
            self._boot = boot
        return bool(filled)

    def _fill_events(self) -> None:
        span = self._range(self._named.spans.get(EVENTS, Span()))
        happened = events.read(self._folders, self._classes, *span, self._request.boot)
        specs = {metric.name: event_rows.offer().specs[metric.name] for metric in event_rows.TABLE.metrics}
        batch = event_rows.EventBatch(happened.events, np.array(span, np.int64))
        columns: dict[str, Array] = {"time": batch.times_ns.view("M8[ns]")}
        columns |= {name: of_long.values(batch.cells(spec), spec) for name, spec in specs.items()}
        types = {name: of_long.type_of(spec) for name, spec in specs.items()}
        self.columns[EVENTS] = ["time", *types]
        self._insert(SqlTable(EVENTS, {"time": "TIMESTAMP_NS", **types}), [columns])
        self.warnings += happened.warnings
        self.is_restricted = self.is_restricted or happened.is_restricted

    def _insert(self, relation: SqlTable, pieces: Iterable[Mapping[str, Array]]) -> None:
        """Make a relation of pieces: what one piece takes is free again before the next is read."""
        types = ", ".join(f"{_quoted(name)} {kind}" for name, kind in relation.types.items())
        self._opened.execute(f"create or replace table {_quoted(relation.name)} ({types})").fetchall()
        columns = ", ".join(map(_quoted, relation.types))
        rows = 0
        for piece in pieces:
            rows += len(piece["time"])
            if rows * len(relation.types) > _VALUES_MAX:
                raise UsageError(f"more than {_VALUES_MAX} values; ask for a shorter range or fewer columns")
            self._opened.register("piece of it", dict(piece))
            into = f"insert into {_quoted(relation.name)} select {columns}"
            self._opened.execute(f'{into} from "piece of it"').fetchall()
            self._opened.unregister("piece of it")

    def _range(self, span: Span) -> tuple[int, int]:
        """The range that is asked for, as far as a query looks at it."""
        start_ns = self._times.start_ns if span.since_ns is None else max(self._times.start_ns, span.since_ns)
        return start_ns, self._times.end_ns if span.until_ns is None else min(self._times.end_ns, span.until_ns)


def _relations(table: str) -> Iterator[tuple[str, str]]:
    """The names by which a table is a relation, and the step of each; none for its rows."""
    yield table, ""
    yield from ((f"{table}_{tier}", tier) for tier in COARSE)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _run(opened: "duckdb.DuckDBPyConnection", query: str, source: _Source) -> tuple[list[str], list[list[object]]]:
    import duckdb  # noqa: PLC0415  as above

    try:
        result = opened.execute(query)
        rows = result.fetchall()
        return [column[0] for column in result.description or ()], [[_plain(cell) for cell in row] for row in rows]
    except duckdb.Error as wrong:
        said = refusals.refused(wrong, source.tables(), source.columns, source.names)
    # Not within the clause: what DuckDB raised would keep its connection.
    raise UsageError(f"query {query!r}: {said}")


def _plain(cell: object) -> object:
    if isinstance(cell, datetime):
        at = cell if cell.tzinfo else cell.replace(tzinfo=UTC)
        since = at - _EPOCH
        return SqlTime((since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000)
    return cell
