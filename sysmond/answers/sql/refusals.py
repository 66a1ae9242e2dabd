# SPDX-License-Identifier: Apache-2.0
"""Why DuckDB refuses a query, in one line: its words, what would be right, and the tables that there are."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sysmond.answers.rows.joins import names_of
from sysmond.answers.sql.of_long import TOTAL
from sysmond.errors import LISTED_MAX, listed, nearest
from sysmond.store.tiers import COARSE

if TYPE_CHECKING:
    import duckdb

_NO_TABLE = re.compile(r'Table with name (\S+) does not exist!( Did you mean ".*"\?)?$')
_NO_COLUMN = re.compile(r'"([^"]+)" not found in FROM clause|does not have a column named "([^"]+)"')
_NO_NUMBER = re.compile(r"Could not convert string '(.*)' to (?:INT|DOUBLE)")


def words_of(wrong: "duckdb.Error") -> str:
    """What DuckDB says, in one line."""
    if "pytz" in str(wrong):
        return "a column is TIMESTAMP WITH TIME ZONE; expected NAME::timestamp, which is UTC"
    return " ".join(str(wrong).split("\n\n", maxsplit=1)[0].split())


def refused(
    wrong: "duckdb.Error", tables: Sequence[str], columns: Mapping[str, Sequence[str]], names: Mapping[str, str]
) -> str:
    """Say why, and what would be right.

    ``tables``: those that there are. ``columns``: those of each table that the query names. ``names``: by what knows
    names of numbers, the column that has them.
    """
    import duckdb  # noqa: PLC0415  optional

    said = words_of(wrong)
    if no_table := _NO_TABLE.search(said):
        # DuckDB looks among its own tables, too.
        return without_table(said.removesuffix(no_table[2] or "").removesuffix("!"), no_table[1], tables)
    if no_number := _NO_NUMBER.search(said):
        said += _named(no_number[1], names)
    elif isinstance(wrong, duckdb.OutOfMemoryException):
        said += "; ask for a shorter range, fewer columns or fewer rows"
    elif isinstance(wrong, duckdb.BinderException) and columns and (no_column := _NO_COLUMN.search(said)):
        return without_column(said, (no_column[1] or no_column[2]).rpartition(".")[2], columns)
    return said + recorded(tables)


def without_table(said: str, table: str, tables: Sequence[str], planned: Sequence[str] = ()) -> str:
    """Say that there is no such table, and which may have been meant; ``planned``: of these nothing is there yet."""
    near = nearest(table, [*tables, *planned])
    return said + (near or recorded(tables))


def recorded(tables: Sequence[str]) -> str:
    """Say which tables there are; of many, what lists them."""
    if len(tables) > LISTED_MAX:
        return "; 'sysmon-extract --list' lists the tables"
    return f"; recorded: {', '.join(tables)}" if tables else "; nothing is recorded"


def _named(word: str, names: Mapping[str, str]) -> str:
    """Say which column has the name that a number was compared with."""
    column = next((column for reader, column in names.items() if (of := names_of(reader)) and word in of()), "")
    return f"; expected a number, or {column} = '{word}'" if column else ""


def without_column(said: str, column: str, columns: Mapping[str, Sequence[str]]) -> str:
    """Say that no table of the query has a column, and which may have been meant, else which there are."""
    # DuckDB names what comes nearest in spelling alone, however far that is.
    said = said.partition("! Candidate bindings")[0].removesuffix("!")
    near = _lacking(column, columns) or nearest(column, [name for there in columns.values() for name in there])
    if near:
        return said + near
    pieces = (
        (table, listed(there, f"sysmon-extract --sql='describe {table}'").removeprefix("; "))
        for table, there in columns.items()
    )
    return said + "".join(f"; {table}: {piece}" for table, piece in pieces)


def _lacking(column: str, columns: Mapping[str, Sequence[str]]) -> str:
    """Say why a tier has no totals, where one is asked for."""
    tier = next((table for table in columns if table.endswith(tuple(f"_{tier}" for tier in COARSE))), "")
    if not tier or not column.endswith(TOTAL):
        return ""
    rows = tier.rpartition("_")[0]
    return f"; {tier} keeps how much a counter grew, not what it stood at; {rows} has {column}"
