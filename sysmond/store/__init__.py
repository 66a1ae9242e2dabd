# SPDX-License-Identifier: Apache-2.0
"""What was recorded, in files: both codings, what files there are, and what a file may say.

Comes in: frames of rings, rows that a job merged, names in folders. Goes out: blocks and stretches of arrays, checked
against ``invariants``, with the holes in them; files that are published whole or not at all. Files are hostile until
they were read here. Called by ``archiver`` (writes), ``rollup``, ``answers`` and ``commands`` (read).

Files: ``archive`` has their names and publishes them, ``tiers`` those of coarser tiers, ``pins`` what stays,
``hdf5`` alone speaks h5py (``packed`` unpacks its chunks), ``invariants`` says how much a file may claim.
Wide tables are dense, series times ticks: ``of_ring`` makes them of a ring, ``dense_file`` a file of them (with
``declarations`` and ``dense_coding``), ``dense`` is what jobs ask, ``statistics`` rolls up, ``tracks`` joins blocks.
Long tables are sparse, a row where something changed: ``sparse_of_ring``, ``sparse_file`` and ``sparse_coding``,
``sparse`` for jobs; a ``stretch`` is what one file has, ``chain`` and ``joined`` are several, ``increments`` and
``ends`` say what rows mean, ``undeclared`` what old tables mean. For both: ``integers`` in the fewest bytes;
``unsealed``, what a ring has that no file has.
For an answer: ``holdings`` lists and opens, ``timeline`` joins wide tables, ``census`` long ones; ``unread`` are rings
that cannot be read, ``alone`` is one file by itself, ``saved`` an answer as a file. docs/format.md has the formats.

An event is stored like this: ``ring.writer`` (for ``sampler``, and for ``archiver.disk_writes``) puts it into a ring,
``event_records`` into files; ``events`` reads it from all of these, with ``ring_events`` for rings.
"""
