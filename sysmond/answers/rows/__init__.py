# SPDX-License-Identifier: Apache-2.0
"""Rows: what is recorded of each thing at each moment, filtered, grouped, ordered.

Comes in: a ``question`` about one table. Goes out: batches of columns, a value a row, and the first of them that were
asked for. Called by ``answers.records`` and ``answers.wide_rows``.

``from_records`` makes rows of records, ``from_tiers`` of buckets, both as a ``batch``. ``columns`` says which there are
and how one is computed (``formulas``), ``joins`` and ``beside`` put columns of other tables next to them, ``grouping``
sums rows and chooses the first, ``summary`` says what a whole range came to; ``record_gaps`` why something is missing.
"""
