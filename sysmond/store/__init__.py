# SPDX-License-Identifier: Apache-2.0
"""What was recorded, in files: both codings, what files there are, and what a file may say.

Comes in: frames of rings, rows that a job merged, names in folders. Goes out: blocks and stretches of arrays, checked
against ``invariants``, with the holes in them; files that are published whole or not at all. Files are hostile until
they were read here. Called by ``archiver`` (writes), ``rollup``, ``answers`` and ``commands`` (read).

``hdf5`` alone speaks h5py. Wide tables are ``dense``: series times ticks (``dense_file``, ``dense_coding``,
``timeline``). Long ones are ``sparse``: a row where something changed (``sparse_file``, ``sparse_coding``,
``census``). Both put numbers into the fewest bytes by ``integers``. ``holdings`` lists what there is and opens what an
answer has to look at, ``invariants`` says how much a file may claim. docs/format.md has the formats.
"""
