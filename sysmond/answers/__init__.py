# SPDX-License-Identifier: Apache-2.0
"""A question, and what was recorded for it: series, or rows.

Comes in: paths or tables, a time range, an interval, conditions, groups. Goes out: arrays with a time each, gaps with
their causes, marks and events. Whatever a caller may not read is left out and said. Called by ``history``, the public
door, which ``sysmon-extract`` and the bus stand on.

``series`` answers for wide tables, ``rows`` and ``records`` for long ones; ``which_tier`` and ``from_tiers`` choose
the files; ``gaps`` says why something is missing; ``explain`` how a number came about.
"""
