# SPDX-License-Identifier: Apache-2.0
"""Readings of long tables with texts: packed in pieces, each text once in its piece."""

from collections.abc import Iterable, Sequence
from struct import Struct

from sysmond.base.model import Table
from sysmond.records import Records, reference

PIECE_BYTES_MAX = 128 * 1024
"""Rows and texts of a piece together; the smallest ring takes frames of an eighth of it."""
ABSENT_TEXT = 0xFFFFFFFFFFFFFFFF
"""What a row holds where there is no text."""


def pieces(
    table: Table,
    rows: Iterable[Sequence[int | bytes | None]],
    *,
    full: bool,
    lost: int = 0,
    walked: int = 0,
) -> list[Records]:
    """Pack rows, whose texts are bytes or None, into as many pieces as it takes, at least one.

    ``full``, ``lost``, ``walked``: of the reading, as in ``Records``; the first piece carries the number of lost rows.

    :raises struct.error: where a number does not fit.
    """
    record = Struct(table.packing.format if table.packing else "")
    done: list[Records] = []
    packed, blob = bytearray(), bytearray()
    places: dict[bytes, int] = {}

    def finish() -> None:
        nonlocal packed, blob
        done.append(Records(packed, full, 0 if done else lost, walked, bytes(blob)))
        packed, blob = bytearray(), bytearray()
        places.clear()

    for row in rows:
        texts = {value for value in row if isinstance(value, bytes)}
        missing = sum(len(text) for text in texts if text not in places)
        if packed and len(packed) + record.size + len(blob) + missing > PIECE_BYTES_MAX:
            finish()
        for text in texts:
            if text not in places:
                places[text] = reference(len(blob), len(text))
                blob += text
        packed += record.pack(
            *(places[value] if isinstance(value, bytes) else ABSENT_TEXT if value is None else value for value in row)
        )
    if packed or not done:
        finish()
    return done
