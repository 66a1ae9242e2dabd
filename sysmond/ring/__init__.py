# SPDX-License-Identifier: Apache-2.0
"""Rings: the last minutes of every table in RAM, written by one lane, read by anybody who may, without a lock.

Comes in: rows of a tick from a lane. Goes out: frames, to whoever archives, follows or answers. ``frame`` has the
bytes, ``walk`` the way from one frame to the next, ``writer`` the only writer, ``snapshot`` a copy that is whole or an
error, ``tail`` what came since the last look, ``newest`` the last row; ``progress`` says up to where files have it
already, ``leftovers`` what a dead writer left. Called by ``sampler`` (writes), ``archiver``, ``store``, ``answers`` and
``bus`` (read).

The standard library only: the real-time lane holds this in locked memory. docs/format.md has the format.
"""
