# SPDX-License-Identifier: Apache-2.0
"""A question, and what was recorded for it: series, or rows.

Comes in: paths or tables, a time range, an interval, conditions, groups. Goes out: arrays with a time each, gaps with
their causes, marks and events. Whatever a caller may not read is left out and said. Called by ``history``, the public
door, which ``sysmon-extract`` and the bus stand on.

Series: ``times`` reads the range; ``wide`` answers for wide tables by what is in ``series``, ``long_series`` for long
ones, ``saved_answer`` from a file.
Rows: ``wide_rows`` lays series beside each other and ``records`` answers for long tables, both by what is in ``rows``;
``other_tables`` is what other tables have beside them, ``event_rows`` are events. ``dropping`` leaves out,
``explain_rows`` says of rows how they came about (of series, ``series.explain``).
``sql`` gives every table to DuckDB. ``following`` gives what is recorded from now on, by rings alone.

Which resolution answers ``series.which_tier`` says of series, ``rows.from_tiers`` of rows (``store.holdings``: which
files). Why something is missing: ``series.gaps``, for long tables ``rows.record_gaps``. A percentile is computed in
``series.rates`` for series; for rows in ``rollup.spread`` over the readings of a step, and in ``rows.grouping`` over
the steps of a range.
"""
