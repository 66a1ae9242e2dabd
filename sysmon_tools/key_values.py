# SPDX-License-Identifier: Apache-2.0
"""Spells ``key=value`` lines, as logfmt has them: quoted as in JSON where that is needed; what is absent is left out.

A line is words with a blank between them. A value that is empty, or has a blank, ``=``, ``"``, a backslash or anything
beyond printable ASCII in it, is a JSON string; so is a key, which only SQL can call so.
"""

import json
import re
from collections.abc import Iterable, Sequence

import numpy as np

from sysmon_tools.cells import Cells, Words, constant

_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")


def word(text: str) -> bytes:
    """Spell a key or a value."""
    return text.encode() if _PLAIN.fullmatch(text) else json.dumps(text).encode()


def spelled_line(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Spell a line."""
    return b" ".join(word(key) + b"=" + word(value) for key, value in pairs) + b"\n"


class PairCells:
    """The cells of a column with their key before them, and nothing at all where there is no value."""

    def __init__(self, key: str, cells: Cells) -> None:
        """``cells``: empty where there is no value."""
        self._key = constant(b" " + word(key) + b"=")
        self._cells = cells
        self.width = len(self._key) + cells.width

    def fill(self, words: Words, start: int) -> None:
        """Write the rows from ``start`` on."""
        value = words[:, len(self._key) :]
        self._cells.fill(value, start)
        words[:, : len(self._key)] = np.where(value.any(axis=1, keepdims=True), self._key, 0)


class LineCells:
    """A line a row: what it always has, then pairs; nothing at all where none of them has a value."""

    def __init__(self, before: Sequence[bytes | Cells], pairs: Sequence[PairCells]) -> None:
        """``before``: what tells one line from another."""
        self._parts = [part if not isinstance(part, bytes) else constant(part) for part in before]
        self._pairs = pairs
        self._end = constant(b"\n")
        widths = [len(part) if isinstance(part, np.ndarray) else part.width for part in self._parts]
        self._widths = widths
        self.width = sum(widths) + sum(pair.width for pair in pairs) + len(self._end)

    def fill(self, words: Words, start: int) -> None:
        """Write the rows from ``start`` on."""
        position = 0
        for part, width in zip(self._parts, self._widths, strict=True):
            if isinstance(part, np.ndarray):
                words[:, position : position + width] = part
            else:
                part.fill(words[:, position : position + width], start)
            position += width
        begin = position
        for pair in self._pairs:
            pair.fill(words[:, position : position + pair.width], start)
            position += pair.width
        words[:, position:] = self._end
        if begin < position:
            words[~words[:, begin:position].any(axis=1)] = 0
