# SPDX-License-Identifier: Apache-2.0
"""Lays columns out for a terminal: no line is wider than the screen. Pure.

Columns for which there is no room are left out, the least wanted first, and named below, as are those that never had a
value.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from sysmond.base.terminal import printable

# Rows by which widths are measured, so that the first lines of a long answer need not wait for its last.
MEASURED_MAX = 2000
# A text is cut to no less than that.
TEXT_MIN = 28
_BETWEEN = "  "
_ABSENT = "-"
# A heading may be folded behind an underscore and before a statistic.
_FOLDS = re.compile(r"(?<=_)|(?=:)")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


class Display(NamedTuple):
    """What is written on. ``columns``: how many signs a line has; None to leave nothing out, however long it becomes.

    ``is_exact``: numbers with all their digits, in base units. ``is_ascii``: no other signs. ``has_pager``: what has
    more lines goes through a pager.
    """

    columns: int | None
    is_exact: bool = False
    is_ascii: bool = False
    has_pager: bool = True


class Field(NamedTuple):
    """A column on the screen. ``cell`` gives the text of a row, None where it has none.

    ``is_empty``: no row has any. ``stays``: it says what a row is about, so it is never left out. ``rank``: how little
    it is wanted.
    """

    name: str
    cell: Callable[[int], str | None]
    unit: str = ""
    is_text: bool = False
    is_empty: bool = False
    stays: bool = False
    rank: int = 0


class _Placed(NamedTuple):
    """A column with its width, and its heading in lines."""

    field: Field
    width: int
    head: list[str]

    def pad(self, text: str) -> str:
        spaces = " " * (self.width - length(text))
        return text + spaces if self.field.is_text else spaces + text


def lay_out(fields: Sequence[Field], rows: int, screen: Display, *, keeps_empty: bool = False) -> Iterator[str]:
    """Give the lines of a table: headings, units where there are any, rows, and what was left out.

    ``keeps_empty``: also columns without any value are meant.
    """
    meant = [field for field in fields if keeps_empty or field.stays or not field.is_empty] or list(fields)
    measured = [[_spelled(field, row) for field in meant] for row in range(min(rows, MEASURED_MAX))]
    natural = [max((length(row[at]) for row in measured), default=1) for at in range(len(meant))]
    placed = _placed(meant, natural, screen.columns)
    lines = max(len(place.head) for place in placed)
    for line in range(lines):
        yield _joined(place.pad(_from_below(place.head, lines)[line]) for place in placed)
    if any(place.field.unit for place in placed):
        yield _joined(place.pad(place.field.unit) for place in placed)
    for row in range(rows):
        cells = (_spelled(place.field, row) for place in placed)
        yield _joined(
            place.pad(clipped(cell, place.width, is_ascii=screen.is_ascii))
            for place, cell in zip(placed, cells, strict=True)
        )
    there = {id(place.field) for place in placed}
    no_room = [field for field in meant if id(field) not in there]
    yield from _left_out(no_room, [field for field in fields if field not in meant], screen)


def clipped(text: str, width: int, *, is_ascii: bool) -> str:
    """Cut a text that is too long, so that this is seen."""
    if length(text) <= width:
        return text
    sign = "." * min(3, width) if is_ascii else "…"
    return cut(text, width - len(sign)) + sign


def cut(text: str, width: int) -> str:
    """The beginning of a text for which there is room in so many columns."""
    if text.isascii():
        return text[:width]
    for at, sign in enumerate(text):
        width -= 1 if sign.isascii() else _columns(sign)
        if width < 0:
            return text[:at]
    return text


def length(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    beyond = _BEYOND_ASCII.findall(text)  # Mostly a dash or an ellipsis in a long line.
    return len(text) - len(beyond) + sum(map(_columns, beyond))


@lru_cache(4096)
def _columns(sign: str) -> int:
    return 0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF")


def _spelled(field: Field, row: int) -> str:
    text = field.cell(row)
    return _ABSENT if text is None else printable(text)


def _joined(cells: Iterator[str]) -> str:
    return _BETWEEN.join(cells).rstrip()


def _placed(fields: Sequence[Field], natural: Sequence[int], columns: int | None) -> list[_Placed]:
    """Choose columns and widths: headings are folded, then texts cut, then columns left out, where there is no room."""
    whole = [max(width, len(field.name), len(field.unit)) for field, width in zip(fields, natural, strict=True)]
    if columns is None or _total(whole) <= columns:
        return [_Placed(field, width, [field.name]) for field, width in zip(fields, whole, strict=True)]
    narrow = [
        max(min(width, TEXT_MIN) if field.is_text else width, _narrowest(field.name), len(field.unit))
        for field, width in zip(fields, natural, strict=True)
    ]
    places = list(range(len(fields)))
    while len(places) > 1 and _total([narrow[at] for at in places]) > columns:
        places.remove(max(places, key=lambda at: (not fields[at].stays, fields[at].rank, at)))
    widths = {at: narrow[at] for at in places}
    for at in places:  # What is left over goes to texts that were cut.
        spare = columns - _total(widths.values())
        if fields[at].is_text and spare > 0:
            widths[at] += min(spare, max(0, natural[at] - widths[at]))
    if len(places) == 1:
        widths[places[0]] = min(widths[places[0]], columns)
    for at in places:  # And then to headings.
        spare = columns - _total(widths.values())
        widths[at] += min(max(0, spare), max(0, len(fields[at].name) - widths[at]))
    return [_Placed(fields[at], width, _folded(fields[at].name, width)) for at, width in widths.items()]


def _total(widths: Collection[int]) -> int:
    return sum(widths) + len(_BETWEEN) * (len(widths) - 1)


def _narrowest(name: str) -> int:
    return max(map(len, _FOLDS.split(name)))


def _folded(name: str, width: int) -> list[str]:
    lines = [""]
    for piece in _FOLDS.split(name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def _from_below(head: list[str], lines: int) -> list[str]:
    return [""] * (lines - len(head)) + head


def _left_out(dropped: Sequence[Field], empty: Sequence[Field], screen: Display) -> Iterator[str]:
    for why, fields, helps in (("no room for", dropped, "; see --all-columns"), ("empty columns not shown", empty, "")):
        if fields:
            names = ", ".join(field.name for field in fields)
            if screen.columns is not None:
                names = clipped(names, max(1, screen.columns - len(why) - len(helps) - 4), is_ascii=screen.is_ascii)
            line = f"({why}: {names}{helps})"
            yield line if screen.columns is None else clipped(line, screen.columns, is_ascii=screen.is_ascii)
