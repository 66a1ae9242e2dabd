# SPDX-License-Identifier: Apache-2.0
"""Rows of the table ``command`` as a reader sees them."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from sysmond.probe import Records
from sysmond.tasks.pieces import ABSENT_TEXT


class Row(NamedTuple):
    """A row but for its pid."""

    start_ns: int
    uid: int
    program: bytes | None
    command: bytes


def rows_in(reading: Sequence[Records]) -> dict[int, Row]:
    """Resolve what a reading refers to, by pid."""
    rows = {}
    for piece in reading:
        for start_ns, pid, uid, program, command in struct.iter_unpack("<q I I Q Q", piece.rows):
            texts = [None if word == ABSENT_TEXT else _text(piece.blob, word) for word in (program, command)]
            rows[pid] = Row(start_ns, uid, texts[0], texts[1] or b"")
    return rows


def _text(blob: bytes, word: int) -> bytes:
    offset, length = word & 0xFFFFFFFF, word >> 32
    assert offset + length <= len(blob)
    return blob[offset : offset + length]
