# SPDX-License-Identifier: Apache-2.0
"""Files of HDF5, of both codings: written whole or not at all, and hostile until they were read here.

Comes in: blocks of series, stretches of records, events, answers. Goes out: the bytes of a file, and what a file holds,
checked against ``invariants``. Called by what lists files (``store.holdings``) and by the jobs that write them.

``hdf5`` alone speaks h5py (``packed`` unpacks its chunks). ``dense_file`` has wide tables with their ``declarations``,
``sparse_file`` long ones, ``event_records`` events, ``saved`` answers that somebody kept; ``opening`` opens them for an
answer. docs/format.md specifies each.
"""
