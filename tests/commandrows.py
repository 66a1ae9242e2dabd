# SPDX-License-Identifier: Apache-2.0
"""Rows of the table ``command`` as a reader sees them, and waiting for what has to come."""

import struct
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sysmond.probe import Records
from sysmond.tasks.pieces import ABSENT_TEXT

# For what has to happen sooner or later; nothing is decided by how soon.
PATIENCE_S = 30.0


class Row(NamedTuple):
    """A row but for its pid."""

    start_ns: int
    uid: int
    program: bytes | None
    command: bytes


def rows_in(reading: Sequence[Records]) -> dict[int, Row]:
    """Resolve what a reading refers to, by pid."""
    found = {}
    for piece in reading:
        for start_ns, pid, uid, program, command in struct.iter_unpack("<q I I Q Q", piece.rows):
            texts = [None if word == ABSENT_TEXT else _text(piece.blob, word) for word in (program, command)]
            found[pid] = Row(start_ns, uid, texts[0], texts[1] or b"")
    return found


def _text(blob: bytes, word: int) -> bytes:
    offset, length = word & 0xFFFFFFFF, word >> 32
    assert offset + length <= len(blob)
    return blob[offset : offset + length]


def until(met: Callable[[], bool]) -> None:
    """Try until it is true."""
    end_s = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < end_s, "it never came to be"
        time.sleep(0.02)
