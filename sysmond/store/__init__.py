# SPDX-License-Identifier: Apache-2.0
"""What was recorded, in files: both codings, what files there are, and what a file may say.

Comes in: frames of rings, rows that a job merged, names in folders. Goes out: blocks and stretches of arrays, checked
against ``files.invariants``, with the holes in them; files that are published whole or not at all. Files are hostile
until they were read here. Called by ``archiver`` (writes), ``rollup``, ``answers`` and ``commands`` (read).

Below: ``files`` reads and writes HDF5 (``files.hdf5`` alone speaks h5py), ``coding`` are numbers in few bytes, and
``stretches`` the records of long tables. ``archive`` has the names of files and publishes them, ``tiers`` those of
coarser tiers, ``pins`` what stays. For jobs: ``dense`` are wide tables, series times ticks (``of_ring`` makes them of a
ring, ``tracks`` joins blocks); ``sparse`` are long ones, a row where something changed. For both: ``unsealed``, what a
ring has that no file has.
For an answer: ``holdings`` lists and opens, ``timeline`` joins wide tables, ``census`` long ones; ``ring_reach`` says
whether rings do without files, ``ring_copies`` keeps copies of them for a program that asks again; ``unread`` are rings
that cannot be read, ``alone`` is one file by itself. ``excerpt`` cuts what a span has out of all of it, as files,
``anonymous`` those that name nobody.
docs/format.md has the formats.

An event is stored like this: ``ring.writer`` (for ``sampler``, and for ``archiver.disk_writes``) puts it into a ring,
``files.event_records`` into files; ``events`` reads it from all of these, with ``ring_events`` for rings.
"""
