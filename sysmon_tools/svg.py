# SPDX-License-Identifier: Apache-2.0
"""Draws a picture as SVG: text that can be selected, light or dark as the viewer is, nothing from elsewhere. Pure.

What is behind a mark, a gap or a curve is told where the pointer rests on it (``title``).
"""

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from sysmon_tools.axes import time_marks, value_marks
from sysmon_tools.grid import clipped
from sysmon_tools.picture import Panel, Picture, Trace
from sysmon_tools.quantities import duration, with_unit
from sysmon_tools.style import Style
from sysmond.base.clock import SECOND_NS
from sysmond.base.result import Event, Float64Array, Gap, Int64Array
from sysmond.base.terminal import printable

WIDTH = 960
LEFT, RIGHT, TOP, HEIGHT, FOOT, LINE = 90, 20, 48, 180, 26, 17
TITLE_MAX = 110
# Wong, Nature Methods 8, 441 (2011): told apart by who sees few colours; with more curves the strokes differ as well.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b8a900")
DASHES = ("", "6 3", "2 2")
VALUE_MARKS, TIME_MARKS = 5, 8
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.s{fill:#777;font-size:11px}.g{stroke:#ddd}.x{stroke:#999}"
    ".n{fill:#8882}.e{stroke:#c33;stroke-dasharray:3 2}svg{background:#fff}"
    "@media(prefers-color-scheme:dark){svg{background:#181818}text{fill:#ddd}.s{fill:#999}.g{stroke:#333}}"
)


def draw(picture: Picture, title: str, style: Style) -> str:
    """The text of an SVG file."""
    lines: list[str] = []
    top = TOP
    for panel in picture.panels:
        lines += _panel(picture, panel, top, style)
        top += _height(panel)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">'
    begin, end = (style.time(time_ns // SECOND_NS * SECOND_NS) for time_ns in (picture.start_ns, picture.end_ns))
    span = f"{begin} to {end}"
    said = f"{span}, a value each {duration(picture.step_ns / SECOND_NS)}"
    return "\n".join(
        [
            head,
            f"<title>{_text(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<text x="{LEFT}" y="18">{_text(clipped(title, TITLE_MAX, is_ascii=False))}</text>',
            f'<text class="s" x="{LEFT}" y="34">{_text(said)}</text>',
            *lines,
            "</svg>",
            "",
        ]
    )


def _height(panel: Panel) -> int:
    return HEIGHT + FOOT + LINE * len(panel.curves) + 14


class _Scale:
    """From times and values to places on the page."""

    def __init__(self, picture: Picture, low: float, high: float, top: int) -> None:
        self._start_ns, self._length_ns = picture.start_ns, max(1, picture.end_ns - picture.start_ns)
        self._low, self._high, self._top = low, high, top

    def x(self, time_ns: float) -> float:
        share = min(1.0, max(0.0, (time_ns - self._start_ns) / self._length_ns))
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(self._top + HEIGHT * (1 - (value - self._low) / (self._high - self._low)), 1)


def _panel(picture: Picture, panel: Panel, top: int, style: Style) -> Iterator[str]:
    marks = value_marks(*panel.extent, panel.unit, VALUE_MARKS)
    scale, bottom = _Scale(picture, marks[0][0], marks[-1][0], top), top + HEIGHT
    for gap in picture.gaps:
        if any(curve.path.partition("/")[0] == gap.table for curve in panel.curves):
            yield _missing(gap, scale, top, style)
    for value, text in marks:
        y = scale.y(value)
        yield f'<line class="g" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>'
        yield f'<text class="s" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{_text(text)}</text>'
    for time_ns, text in time_marks(picture.start_ns, picture.end_ns, TIME_MARKS, style.zone):
        x = scale.x(time_ns)
        yield f'<line class="x" x1="{x}" y1="{bottom}" x2="{x}" y2="{bottom + 4}"/>'
        yield f'<text class="s" x="{x}" y="{bottom + 16}" text-anchor="middle">{_text(text)}</text>'
    middle_ns = picture.times_ns + picture.step_ns // 2
    for number, curve in enumerate(panel.curves):
        yield from _curve(curve, middle_ns, picture.step_ns, scale, number)
    for event in picture.events:
        if picture.start_ns <= event.time_ns < picture.end_ns:
            yield _mark(event, scale, top, style)
    for number, curve in enumerate(panel.curves):
        yield from _legend(curve, panel.unit, bottom + FOOT + LINE * number + 6, number)


def _curve(curve: Trace, middle_ns: Int64Array, step_ns: int, scale: _Scale, number: int) -> Iterator[str]:
    """A band of what each bucket reached, and the line of its mean; both are broken where there is nothing."""
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    said = f"<title>{_text(curve.path)}</title>"
    for run in runs(curve.values, middle_ns, step_ns):
        if curve.low is not None and curve.high is not None:
            edge = [(place, curve.high) for place in run] + [(place, curve.low) for place in reversed(run)]
            points = " ".join(f"{scale.x(middle_ns[at])},{scale.y(values[at])}" for at, values in edge)
            yield f'<polygon points="{points}" fill="{colour}" fill-opacity="0.15">{said}</polygon>'
        points = " ".join(f"{scale.x(middle_ns[at])},{scale.y(curve.values[at])}" for at in run)
        if len(run) == 1:
            x, y = points.split(",")
            yield f'<circle cx="{x}" cy="{y}" r="1.5" fill="{colour}">{said}</circle>'
        else:
            stroke = f'stroke="{colour}" stroke-width="1.4"' + (f' stroke-dasharray="{dash}"' if dash else "")
            yield f'<polyline points="{points}" fill="none" {stroke}>{said}</polyline>'


def runs(values: Float64Array, times_ns: Int64Array, step_ns: int) -> list[list[int]]:
    """Places of values, float64[time], at times, int64[time], that follow each other without a hole."""
    there = np.flatnonzero(np.isfinite(values))
    if not there.size:
        return []
    breaks = np.flatnonzero((np.diff(there) > 1) | (np.diff(times_ns[there]) > 1.5 * step_ns)) + 1
    return [part.tolist() for part in np.split(there, breaks)]


def _missing(gap: Gap, scale: _Scale, top: int, style: Style) -> str:
    left, right = scale.x(gap.start_ns), scale.x(gap.end_ns)
    why = f"{gap.table}: {gap.cause}{f' ({gap.detail})' if gap.detail else ''}"
    said = f"{style.time(gap.start_ns)} to {style.time(gap.end_ns)}: no {why}"
    place = f'x="{left}" y="{top}" width="{max(0.5, right - left):.1f}" height="{HEIGHT}"'
    return f'<rect class="n" {place}><title>{_text(said)}</title></rect>'


def _mark(event: Event, scale: _Scale, top: int, style: Style) -> str:
    x = scale.x(event.time_ns)
    said = " ".join(filter(None, [style.time(event.time_ns), event.kind, event.subject, event.text]))
    line = f'<line class="e" x1="{x}" y1="{top}" x2="{x}" y2="{top + HEIGHT}"/>'
    # A line is hard to point at.
    around = f'<rect x="{x - 3}" y="{top}" width="6" height="{HEIGHT}" fill="none" pointer-events="all"/>'
    return f"<g><title>{_text(said)}</title>{line}{around}</g>"


def _legend(curve: Trace, unit: str, y: int, number: int) -> Iterator[str]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    stroke = f' stroke-dasharray="{dash}"' if dash else ""
    yield f'<line x1="{LEFT}" y1="{y - 4}" x2="{LEFT + 22}" y2="{y - 4}" stroke="{colour}" stroke-width="2"{stroke}/>'
    yield f'<text x="{LEFT + 28}" y="{y}">{_text(curve.path)}</text>'
    yield f'<text class="s" x="{WIDTH - RIGHT}" y="{y}" text-anchor="end">{_text(said_of(curve, unit))}</text>'


def said_of(curve: Trace, unit: str, *, is_ascii: bool = False) -> str:
    """The mean and the extremes of a curve, for people."""
    known = curve.values[np.isfinite(curve.values)]
    if not known.size:
        return "no value"
    low, high = curve.extent
    numbers: Sequence[float] = (float(known.mean()), low, high)
    mean, least, most = (with_unit(value, unit, is_ascii=is_ascii) for value in numbers)
    return f"mean {mean}, from {least} to {most}"


def _text(text: str) -> str:
    return escape(printable(text))
