# SPDX-License-Identifier: Apache-2.0
"""Draws a picture in the signs of a terminal: braille where it has these, else letters, a row of axes a panel. Pure."""

from collections.abc import Iterator, Sequence

import numpy as np

from sysmon_tools.axes import time_marks, value_marks
from sysmon_tools.grid import clipped
from sysmon_tools.picture import Panel, Picture
from sysmon_tools.style import Style
from sysmon_tools.svg import said_of
from sysmond.base.result import Float64Array
from sysmond.base.terminal import printable

LINES_MIN, LINES_MAX = 4, 14
_BRAILLE = 0x2800
# The bit of a dot, by its row and column in a sign of four rows and two columns (Unicode, U+2800).
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_LETTERS = "*+xo#@%&"
_MARKS, _MARK_WIDTH = 3, 12


def draw(picture: Picture, style: Style, columns: int, lines: int, *, is_ascii: bool) -> Iterator[str]:
    """Give lines no wider than ``columns``; about ``lines`` of them."""
    legends = sum(len(panel.curves) for panel in picture.panels)
    room = (lines - legends) // len(picture.panels) - 2
    for number, panel in enumerate(picture.panels):
        if number:
            yield ""
        yield from _panel(picture, panel, style, columns, min(LINES_MAX, max(LINES_MIN, room)), is_ascii=is_ascii)
    for event in picture.events:
        line = " ".join(filter(None, [style.time(event.time_ns), event.kind, event.subject, event.text]))
        yield clipped(printable(line), columns, is_ascii=is_ascii)


def _panel(picture: Picture, panel: Panel, style: Style, columns: int, rows: int, *, is_ascii: bool) -> Iterator[str]:
    marks = value_marks(*panel.extent, panel.unit, _MARKS)
    texts = [printable(text) for _, text in marks]
    margin = max(map(len, texts)) + 1
    width = max(10, columns - margin - 1)
    low, high = marks[0][0], marks[-1][0]
    shares = [_shares(picture, curve.values, width * (1 if is_ascii else 2), low, high) for curve in panel.curves]
    canvas = _letters(shares, width, rows) if is_ascii else _braille(shares, width, rows)
    labels = {
        round((rows - 1) * (1 - (value - low) / (high - low))): text
        for (value, _), text in zip(marks, texts, strict=True)
    }
    bar = "|" if is_ascii else "│"
    for row, line in enumerate(canvas):
        yield f"{labels.get(row, ''):>{margin - 1}} {bar}{line}".rstrip()
    yield _times(picture, style, margin + 1, width)
    for number, curve in enumerate(panel.curves):
        sign = f"{_LETTERS[number % len(_LETTERS)]} " if is_ascii and len(panel.curves) > 1 else ""
        line = f"{'':{margin + 1}}{sign}{curve.path}  {said_of(curve, panel.unit, is_ascii=is_ascii)}"
        yield clipped(printable(line), columns, is_ascii=is_ascii)


def _shares(picture: Picture, values: Float64Array, width: int, low: float, high: float) -> Float64Array:
    """How high a curve is at each column, from 0 to 1; float64[column], NaN where it has nothing."""
    shares = np.full(width, np.nan)
    length_ns = max(1, picture.end_ns - picture.start_ns)
    first = (picture.times_ns - picture.start_ns) * width // length_ns
    last = (picture.times_ns + picture.step_ns - picture.start_ns) * width // length_ns
    for value, begin, end in zip(values.tolist(), first.tolist(), last.tolist(), strict=True):
        if np.isfinite(value) and begin < width and end >= 0:
            place = slice(max(0, begin), max(begin + 1, min(width, end)))
            # Of several values in a column, the highest: what is looked for is what stands out.
            shares[place] = np.fmax(shares[place], (value - low) / (high - low))
    return shares


def _braille(curves: Sequence[Float64Array], width: int, rows: int) -> Iterator[str]:
    dots = rows * len(_DOTS)
    signs = np.zeros((rows, width), np.int64)
    for shares in curves:
        before: int | None = None
        for column, share in enumerate(shares.tolist()):
            if not np.isfinite(share):
                before = None
                continue
            dot = min(dots - 1, max(0, round((1 - share) * (dots - 1))))
            first, last = sorted((dot, dot if before is None else before))
            for at in range(first, last + 1):
                signs[at // len(_DOTS), column // 2] |= _DOTS[at % len(_DOTS)][column % 2]
            before = dot
    return ("".join(chr(_BRAILLE + sign) if sign else " " for sign in row) for row in signs.tolist())


def _letters(curves: Sequence[Float64Array], width: int, rows: int) -> Iterator[str]:
    signs = [[" "] * width for _ in range(rows)]
    for number, shares in enumerate(curves):
        for column, share in enumerate(shares.tolist()):
            if np.isfinite(share):
                signs[min(rows - 1, max(0, round((1 - share) * (rows - 1))))][column] = _LETTERS[number % len(_LETTERS)]
    return ("".join(row) for row in signs)


def _times(picture: Picture, style: Style, margin: int, width: int) -> str:
    line = " " * (margin + width)
    for time_ns, text in time_marks(picture.start_ns, picture.end_ns, max(2, width // _MARK_WIDTH), style.zone):
        place = margin + (time_ns - picture.start_ns) * (width - 1) // max(1, picture.end_ns - picture.start_ns)
        place = min(place, margin + width - len(text))
        if not line[max(0, place - 1) : place + len(text) + 1].strip():
            line = line[:place] + text + line[place + len(text) :]
    return line.rstrip()
