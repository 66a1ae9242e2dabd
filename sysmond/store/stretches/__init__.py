# SPDX-License-Identifier: Apache-2.0
"""Records of one long table over some readings: a row where something changed.

Comes in: frames of a ring, columns of a file. Goes out: a ``stretch``, which says what each thing was at each reading,
and neighbouring ones as one line (``chain``) or one stretch (``joined``). Called by both files and answers.

``cut`` is what holds at some of its readings, in memory, for excerpts and for who goes from moment to moment.
``sparse_of_ring`` makes stretches of frames, ``increments`` says by how much counters grew, ``ends`` whose end was told
by somebody else, ``undeclared`` what holds of tables that declare nothing of answers, ``exit_codes`` who left one.
"""
