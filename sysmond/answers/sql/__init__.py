# SPDX-License-Identifier: Apache-2.0
"""SQL over every table, by DuckDB.

Comes in: a query. Goes out: columns of whatever it selects. Called by ``history``.

``parsed`` asks DuckDB's own parser which tables, columns and times a query needs; ``of_wide`` and ``of_long`` give just
these as relations, and ``run`` lets DuckDB see them and nothing else of the machine. ``refusals`` says why it refuses a
query.
"""
