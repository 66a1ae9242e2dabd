# SPDX-License-Identifier: Apache-2.0
"""Draws a picture as one page for a browser, which zooms: it loads nothing, and only its own script may run. Pure.

The same curves are in it at several resolutions; the page takes the coarsest that fills its width. Names and texts are
JSON, which the script only ever puts into text.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from sysmon_tools.picture import Picture, Trace
from sysmon_tools.quantities import duration
from sysmon_tools.style import Style
from sysmon_tools.svg import COLOURS
from sysmond.base.clock import SECOND_NS
from sysmond.base.result import Float64Array
from sysmond.base.terminal import printable

# Digits of a value: what a curve of a thousand points shows of it, and the legend says.
_DIGITS = 4
_STYLE = (
    ":root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:1em auto;max-width:1200px;padding:0 1em}"
    "h1{font-size:1.2em}p{color:#888}table{border-collapse:collapse}td{padding:.1em 1em .1em 0;vertical-align:top}"
    ".u-over{touch-action:pan-y}"
)
_KEYS = (
    "Drag, turn the wheel or press + to zoom in, ← → to move, 0 or double-click for all;"
    " one finger moves, two fingers zoom."
)


def draw(pictures: Sequence[Picture], title: str, style: Style) -> str:
    """The text of an HTML file; ``pictures``: the same curves of the same range, the coarsest first."""
    web = files("sysmon_tools") / "web"
    names = ("uPlot.iife.min.js", "fingers.js", "curves.js", "uPlot.min.css")
    *scripts, look = ((web / name).read_text(encoding="utf-8") for name in names)
    script, css = "\n".join(scripts), f"{look}\n{_STYLE}"
    policy = f"default-src 'none'; script-src {hash_of(script)}; style-src {hash_of(css)}"
    # Within a script element '<' could end it, whatever JSON says.
    said = json.dumps(_page(pictures), separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    first = pictures[0]
    heard = [(event.time_ns, f"{event.kind} {event.subject} {event.text}") for event in first.events]
    missing = [(gap.start_ns, f"no {gap.table}: {gap.cause} {gap.detail}") for gap in first.gaps]
    rows = "".join(
        f"<tr><td>{_text(style.time(time_ns // SECOND_NS * SECOND_NS))}</td><td>{_text(line)}</td></tr>"
        for time_ns, line in sorted([*heard, *missing])
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}"><title>{_text(title)}</title>'
        f'<style>{css}</style></head><body><h1>{_text(title)}</h1><p id="told"></p><p>{_text(_KEYS)}</p>'
        f'<div id="pictures"></div><table>{rows}</table>'
        f'<script type="application/json" id="curves">{said}</script><script>{script}</script></body></html>\n'
    )


def hash_of(content: str) -> str:
    """What a content policy says of the one script, or style, that it lets through."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    return escape(printable(text))


def _page(pictures: Sequence[Picture]) -> dict[str, Any]:
    first = pictures[0]
    curves = [curve for panel in first.panels for curve in panel.curves]
    colours = {curve.path: COLOURS[number % len(COLOURS)] for number, curve in enumerate(curves)}
    return {
        "from": first.start_ns / SECOND_NS,
        "to": first.end_ns / SECOND_NS,
        "panels": [
            {
                "unit": panel.unit,
                "curves": [
                    {"path": printable(curve.path), "colour": colours[curve.path], "band": curve.low is not None}
                    for curve in panel.curves
                ],
            }
            for panel in first.panels
        ],
        "levels": [_level(picture) for picture in pictures],
        "gaps": [[gap.start_ns / SECOND_NS, gap.end_ns / SECOND_NS] for gap in first.gaps],
        "events": [[event.time_ns / SECOND_NS] for event in first.events],
    }


def _level(picture: Picture) -> dict[str, Any]:
    """One resolution: a value each step, also where there is none."""
    step_ns = picture.step_ns
    start_ns = picture.start_ns // step_ns * step_ns
    count = max(1, -(-(picture.end_ns - start_ns) // step_ns))
    at = (picture.times_ns - start_ns) // step_ns

    def spread(values: Float64Array | None) -> list[float | None] | None:
        if values is None:
            return None
        made = np.full(count, np.nan)
        inside = (at >= 0) & (at < count)
        made[at[inside]] = values[inside]
        return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in made.tolist()]

    def curve(trace: Trace) -> dict[str, Any]:
        made = {"mean": spread(trace.values)}
        return {**made, "low": spread(trace.low), "high": spread(trace.high)} if trace.low is not None else made

    return {
        "start": start_ns / SECOND_NS,
        "step": step_ns / SECOND_NS,
        "count": count,
        "says": duration(step_ns / SECOND_NS),
        "panels": [[curve(trace) for trace in panel.curves] for panel in picture.panels],
    }
