# SPDX-License-Identifier: Apache-2.0
"""A question, and what was recorded for it: series, or rows.

Comes in: paths or tables, a time range, an interval, conditions, groups. Goes out: arrays with a time each, gaps with
their causes, marks and events. Whatever a caller may not read is left out and said. Called by ``history``, the public
door, which ``sysmon-extract`` and the bus stand on.

Series: ``times`` reads the range; ``wide`` answers for wide tables by ``series``, which reads values by ``reading``
and makes rates by ``rates``; ``long_series`` answers for long ones, ``derived`` by ``formulas``, ``saved_answer`` from
a file.
Rows: ``question`` is what all are asked by, ``batch`` what they come in. ``wide_rows`` lays series beside each other;
``records`` answers for long tables, with ``columns`` for what can be asked of one, ``rows`` for rows of records,
``from_tiers`` for rows of buckets, ``joins``, ``beside`` and ``other_tables`` for what other tables have;
``event_rows`` for events. ``grouping`` sums rows and chooses the first, ``dropping`` leaves out, ``summary`` is of a
whole range.
``sql`` gives every table to DuckDB (``sql_query``, ``sql_wide``, ``sql_long``).

Which resolution answers ``which_tier`` says of series, ``from_tiers`` of rows (``store.holdings``: which files).
Why something is missing: ``gaps``, for long tables ``record_gaps``. How a number came about: ``explain``, of rows
``explain_rows``. A percentile is computed in ``rates`` for series; for rows in ``rollup.spread`` over the readings of a
step, and in ``grouping`` over the steps of a range.
"""
