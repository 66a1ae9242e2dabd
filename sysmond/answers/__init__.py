# SPDX-License-Identifier: Apache-2.0
"""A question, and what was recorded for it: series, or rows.

Comes in: paths or tables, a time range, an interval, conditions, groups. Goes out: arrays with a time each, gaps with
their causes, marks and events. Whatever a caller may not read is left out and said. Called by ``history``, the public
door, which ``sysmon-extract`` and the bus stand on.

``wide`` answers for wide tables by ``series``, with rates by ``rates``, and ``wide_rows`` lays series beside each
other; ``records`` answers for long ones, whose rows ``rows`` makes of records and ``from_tiers`` of buckets.
``question`` is what all rows are asked by, ``batch`` what they come in, ``grouping`` sums them and chooses the first;
``sql`` gives every table to DuckDB. ``derived`` makes series of others by formulas. Which resolution answers
``which_tier`` says of series, ``from_tiers`` of rows (which files have it: ``store.holdings``); ``gaps`` and, for long
tables, ``record_gaps`` why something is missing; ``explain`` how a number came about.
"""
