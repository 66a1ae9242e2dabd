# SPDX-License-Identifier: Apache-2.0
"""What a query names, as DuckDB's own parser has it: tables, columns, and between which times it looks at them.

More than it needs may be named (a name of another table's column, say), never less: what is named is read.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sysmond.errors import UsageError

if TYPE_CHECKING:
    import duckdb

# Of every relation, whether it is named or not.
TIME = "time"
# How a query may say since when, and until when it looks; and the same said the other way round.
_SINCE = frozenset({"COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO"})
_UNTIL = frozenset({"COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO"})
# DuckDB counts in microseconds where it says what now is: a bound that is read reaches a little further.
MARGIN_NS = 1_000_000_000

ONE_SELECT = "expected a single SELECT"
# What DuckDB calls a PIVOT that does not say which values become columns.
_NO_SELECT = {"MULTI": "PIVOT without IN (...)", "LOAD": "INSTALL or LOAD", "CALL": "CALL or CHECKPOINT"}
# What SHOW, which DuckDB takes for a SELECT, may ask for: tables and databases, of which it has what a query names.
_OF_TABLES = frozenset({"SHOW_SPECIAL", "SHOW_FROM"})
# What only names columns and their types: no row changes that.
_DESCRIBE = "DESCRIBE"

Tree = dict[str, Any]


class Span(NamedTuple):
    """Between which UTC nanoseconds a query looks at a table; None where it does not say."""

    since_ns: int | None = None
    until_ns: int | None = None


class Named(NamedTuple):
    """What a query names, in lower case. ``whole``: of which tables it names all columns. ``spans``: by table.

    ``described``: the tables of which it wants columns and types alone, so that no row is read.
    """

    tables: frozenset[str]
    columns: frozenset[str]
    whole: frozenset[str]
    spans: Mapping[str, Span]
    described: frozenset[str] = frozenset()

    def columns_of(self, table: str) -> frozenset[str] | None:
        """The columns of a table that are named; None for all."""
        return None if table in self.whole else self.columns


def read(opened: "duckdb.DuckDBPyConnection", query: str) -> Named:
    """Ask DuckDB what a query names.

    :raises UsageError: where it is no SELECT, or several. :raises duckdb.Error: where it is none at all.
    """
    kinds = [statement.type.name for statement in opened.extract_statements(query)]
    if kinds != ["SELECT"]:
        said = _NO_SELECT.get(kinds[0], kinds[0]) if len(kinds) == 1 else f"{len(kinds) or 'no'} statements"
        raise UsageError(f"query {query!r}: {said}; {ONE_SELECT}")
    parsed = json.loads(_single_value(opened, "select json_serialize_sql(?)", query))
    if parsed.get("error", True):
        # No plain SELECT: which tables it names is known, which columns is not.
        known = frozenset(map(str.lower, opened.get_table_names(query)))
        return Named(known, frozenset(), known, {})
    tables: set[str] = set()
    columns: set[str] = set()
    aliases: set[str] = set()
    alone: set[str] = set()
    for node in _nodes(parsed):
        if node.get("type") == "SHOW_REF" and node.get("show_type") in _OF_TABLES:
            raise UsageError(f"query {query!r}: SHOW; {ONE_SELECT}; 'sysmon-extract --list' lists the tables")
        if node.get("type") == "BASE_TABLE":
            tables.add(str(node["table_name"]).lower())
            aliases |= {str(node["table_name"]).lower(), str(node.get("alias", "")).lower()}
        elif node.get("class") == "COLUMN_REF":
            names = [str(name).lower() for name in node["column_names"]]
            columns.update(names)
            alone.update(names[:1] if len(names) == 1 else ())
        columns.update(str(name).lower() for name in node.get("using_columns") or ())
    # The name of a relation by itself is a row of it.
    whole = tables if alone & aliases else _whole(parsed)
    spans, described = _spans(opened, parsed, tables), frozenset(tables - _with_rows(parsed))
    return Named(frozenset(tables), frozenset(columns), frozenset(whole), spans, described)


def _with_rows(parsed: Tree) -> set[str]:
    """The tables of which rows are wanted: those that are named elsewhere than in a DESCRIBE."""
    nodes = _nodes(parsed, beside=_DESCRIBE, key="show_type")
    return {str(node["table_name"]).lower() for node in nodes if node.get("type") == "BASE_TABLE"}


def _whole(parsed: Tree) -> set[str]:
    """The tables of which all columns are meant: a star, or a natural join, means those that its own SELECT is from."""
    whole: set[str] = set()
    for select in _nodes(parsed):
        if select.get("type") == "SELECT_NODE":
            parts = list(_nodes(list(select.values()), beside="SELECT_NODE"))
            if any(part.get("class") == "STAR" or part.get("ref_type") == "NATURAL" for part in parts):
                whole.update(str(part["table_name"]).lower() for part in parts if part.get("type") == "BASE_TABLE")
    return whole


def _nodes(tree: Any, beside: str = "", key: str = "type") -> Iterator[Tree]:  # noqa: ANN401  JSON
    """Every object in a tree, however deep; ``beside``: not those of this type (by ``key``), nor what is in them."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and not (beside and node.get(key) == beside):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _spans(opened: "duckdb.DuckDBPyConnection", parsed: Tree, tables: set[str]) -> dict[str, Span]:
    """By table between which times every part of a query looks at it that names it.

    Only where a SELECT is from one table: in a join, what is left out of one side may change the other.
    """
    mentions: dict[str, int] = dict.fromkeys(tables, 0)
    by_table: dict[str, list[Span]] = {table: [] for table in tables}
    for node in _nodes(parsed):
        if node.get("type") == "BASE_TABLE":
            mentions[str(node["table_name"]).lower()] += 1
        if node.get("type") == "SELECT_NODE" and (source := node.get("from_table") or {}).get("type") == "BASE_TABLE":
            table = str(source["table_name"]).lower()
            by_table[table].append(_span(opened, node.get("where_clause")))
    spans = {}
    for table, parts in by_table.items():
        if len(parts) == mentions[table]:
            since = [part.since_ns for part in parts]
            until = [part.until_ns for part in parts]
            spans[table] = Span(
                None if None in since else min(filter(None, since), default=None),
                None if None in until else max(filter(None, until), default=None),
            )
    return spans


def _span(opened: "duckdb.DuckDBPyConnection", where: Tree | None) -> Span:
    since: list[int] = []
    until: list[int] = []
    waiting = [where]
    while waiting:
        clause = waiting.pop() or {}
        kind = clause.get("type")
        if kind == "CONJUNCTION_AND":
            waiting.extend(clause["children"])
        elif clause.get("class") == "BETWEEN" and kind == "COMPARE_BETWEEN" and _is_time(clause["input"]):
            since += _moment(opened, clause["lower"], -MARGIN_NS)
            until += _moment(opened, clause["upper"], MARGIN_NS)
        elif kind in _SINCE | _UNTIL:
            left, right = clause["left"], clause["right"]
            is_since = (kind in _SINCE) == _is_time(left)
            if _is_time(left) or _is_time(right):
                value = right if _is_time(left) else left
                (since if is_since else until).extend(_moment(opened, value, -MARGIN_NS if is_since else MARGIN_NS))
    return Span(max(since, default=None), min(until, default=None))


def _is_time(node: Tree) -> bool:
    return node.get("class") == "COLUMN_REF" and str(node["column_names"][-1]).lower() == TIME


def _moment(opened: "duckdb.DuckDBPyConnection", node: Tree, margin_ns: int) -> list[int]:
    """What an expression means, in UTC nanoseconds and a margin; nothing where only rows tell it."""
    import duckdb  # noqa: PLC0415  optional

    if any(each.get("class") in {"COLUMN_REF", "SUBQUERY", "WINDOW", "PARAMETER"} for each in _nodes(node)):
        return []
    with suppress(duckdb.Error):
        tree = json.loads(_single_value(opened, "select json_serialize_sql(?)", "select 0 as said"))
        tree["statements"][0]["node"]["select_list"] = [{**node, "alias": "said"}]
        sql = _single_value(opened, "select json_deserialize_sql(?::json)", json.dumps(tree))
        value = _single_value(opened, f"select epoch_ns(said::timestamp_ns) from ({sql})")  # noqa: S608  an expression alone
        return [] if value is None else [int(value) + margin_ns]
    return []


def _single_value(opened: "duckdb.DuckDBPyConnection", query: str, *values: str) -> Any:  # noqa: ANN401  as below
    """The one value that a query gives; all of it is fetched, or the connection would wait for more."""
    [[value]] = opened.execute(query, list(values)).fetchall()
    return value
