# SPDX-License-Identifier: Apache-2.0
"""What rows become in the buckets of a tier: of long tables the first by each measure, and the rest by group.

Comes in: stretches of rows in order. Goes out: rows of buckets, each with what it stands for, such that buckets of
buckets are the buckets of the rows. Called by ``archiver`` (tiers) and ``answers`` (the same buckets, made for a
question). Series of wide tables have closed statistics instead (``store.coding.statistics``); ``series`` makes their
tiers.

Only ``series`` and ``neighbours`` open files. ``keys_in_buckets`` counts, by ``portion`` (what is read of one stretch)
and ``buckets`` (what each key did in each), ``top`` says who a bucket keeps, ``ended`` adds what ended between two
readings, ``file_edges`` joins a bucket that two files share. For answers: ``condition`` filters, ``spread`` has
percentiles.
"""
