# SPDX-License-Identifier: Apache-2.0
"""Why DuckDB refuses a query, in one line: its words, what would be right, and the tables that there are."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sysmond.answers.rows.joins import names_of
from sysmond.answers.sql.of_long import TOTAL
from sysmond.errors import listed, nearest
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
        said = said.removesuffix(no_table[2] or "").removesuffix("!") + nearest(no_table[1], tables)
    elif no_number := _NO_NUMBER.search(said):
        said += _named(no_number[1], names)
    elif isinstance(wrong, duckdb.OutOfMemoryException):
        said += "; ask for a shorter range, fewer columns or fewer rows"
    elif isinstance(wrong, duckdb.BinderException) and columns:
        said += _lacking(said, columns)
        # DuckDB names what comes nearest, which may be one of forty.
        said += "".join(f"; {table}: {listed(there).removeprefix('; ')}" for table, there in columns.items())
    return said + recorded(tables)


def recorded(tables: Sequence[str]) -> str:
    """Say which tables there are."""
    return f"; recorded: {', '.join(tables)}" if tables else "; nothing is recorded"


def _named(word: str, names: Mapping[str, str]) -> str:
    """Say which column has the name that a number was compared with."""
    column = next((column for reader, column in names.items() if (of := names_of(reader)) and word in of()), "")
    return f"; expected a number, or {column} = '{word}'" if column else ""


def _lacking(said: str, columns: Mapping[str, Sequence[str]]) -> str:
    """Say why a tier has no totals, where one is asked for."""
    found = _NO_COLUMN.search(said)
    column = (found[1] or found[2]).rpartition(".")[2] if found else ""
    tier = next((table for table in columns if table.endswith(tuple(f"_{tier}" for tier in COARSE))), "")
    if not tier or not column.endswith(TOTAL):
        return ""
    rows = tier.rpartition("_")[0]
    return f"; {tier} keeps how much a counter grew, not what it stood at; {rows} has {column}"
