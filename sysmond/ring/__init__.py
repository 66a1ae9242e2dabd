# SPDX-License-Identifier: Apache-2.0
"""Rings: the last minutes of every table in RAM, written by one lane, read by anybody who may, without a lock.

Comes in: rows of a tick from a lane. Goes out: frames, for archiving, following and answering. ``frame`` has the bytes,
``walk`` goes from one frame to the next, ``writer`` is the only writer, ``snapshot`` makes a consistent copy, ``tail``
reads the frames since the last look, ``newest`` has the last rows; ``progress`` says how far each ring is in files
already, ``leftovers`` deals with the rings of dead writers, and ``skipped_rings`` with what no job can read. Called by
``sampler`` (writes), ``archiver``, ``store``, ``answers`` and ``bus`` (read).

The standard library only: the real-time lane holds this in locked memory. docs/format.md has the format.
"""
