# SPDX-License-Identifier: Apache-2.0
"""Draws the first minutes of a boot as one page for a browser: it loads nothing, and only its own script may run. Pure.

Names stand in a column of text, which can be selected; beside them one drawing has all bars in milliseconds, and the
script only changes which of these are seen.
"""

from html import escape
from importlib.resources import files

from sysmon_tools import boot_svg
from sysmon_tools.boot_scene import BootScene
from sysmon_tools.boot_svg import BAR, BARS, ROW, text
from sysmon_tools.html_plot import hash_of
from sysmon_tools.quantities import with_unit
from sysmon_tools.style import Style

_STYLE = (
    f"{BARS}:root{{color-scheme:light dark}}body{{font:13px system-ui,sans-serif;margin:1em}}"
    "h1{font-size:1.2em;margin:.3em 0}p{margin:.3em 0}.s,i{color:#888}i{font-style:normal}"
    "#chart{display:grid;grid-template-columns:minmax(10em,22em) 1fr}#told{min-height:1.3em}"
    f"#names{{padding-top:24px;overflow:hidden}}#names div{{height:{ROW}px;font-size:11px;line-height:{ROW}px;"
    "white-space:nowrap;overflow:hidden;text-overflow:ellipsis}"
    "#time{position:relative;min-width:0}#axis{height:24px;position:sticky;top:0;background:Canvas;overflow:hidden}"
    "#axis span{position:absolute;bottom:2px;transform:translateX(-50%);font-size:11px;white-space:nowrap}"
    "#bars{display:block;width:100%;touch-action:pan-y;cursor:grab}"
    "#lines line{stroke:#8885;vector-effect:non-scaling-stroke}.r{stroke:#c33;vector-effect:non-scaling-stroke}"
    + "".join(f".d{depth}{{padding-left:{depth * boot_svg.INDENT}px}}" for depth in range(boot_svg.DEPTH_MAX + 1))
)
_KEYS = (
    "Drag or ← → to move, + and −, two fingers or the wheel with Ctrl to zoom, 0 or a double-click for all;"
    " a click on a bar says below what it is."
)


def draw(scene: BootScene, style: Style) -> str:
    """The text of an HTML file."""
    web = files("sysmon_tools") / "web"
    script = "\n".join((web / name).read_text(encoding="utf-8") for name in ("fingers.js", "bootchart.js"))
    policy = f"default-src 'none'; script-src {hash_of(script)}; style-src {hash_of(_STYLE)}"
    title, phases, how = boot_svg.heading(scene, style)
    names, bars = _rows(scene)
    height = ROW * len(names)
    begin_ms, end_ms = (round(time_s * 1000) for time_s in (scene.start_s, scene.end_s))
    drawing = (
        f'<svg id="bars" xmlns="http://www.w3.org/2000/svg" height="{height}" preserveAspectRatio="none"'
        f' viewBox="{begin_ms} 0 {end_ms - begin_ms} {height}"'
        f' data-from="{begin_ms}" data-to="{end_ms}" data-height="{height}">'
        f'{_phases(scene, height)}<g id="lines"></g>{"".join(bars)}</svg>'
    )
    buttons = "".join(
        f'<button type="button" id="{name}">{said}</button> '
        for name, said in (("closer", "+"), ("wider", "−"), ("all", "all"))
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}"><title>{text(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{text(title)}</h1><p>{text(phases)}</p>"
        f'<p class="s">{text(how)}</p><p class="s">{text(_KEYS)}</p><p>{buttons}</p><p id="told"></p>'
        f'<div id="chart"><div id="names">{"".join(names)}</div>'
        f'<div id="time"><div id="axis"></div>{drawing}</div></div>'
        f'<p class="s">{text(boot_svg.left_out(scene))}</p><script>{script}</script></body></html>\n'
    )


def _rows(scene: BootScene) -> tuple[list[str], list[str]]:
    """The names, and beside them the bars; an empty line parts units and processes."""
    names, bars = [], []
    for number, row in enumerate(boot_svg.rows(scene)):
        if number == len(scene.units) and number:
            names.append("<div></div>")
        top = ROW * len(names)
        names.append(
            f'<div class="d{row.depth}" title="{text(row.said)}">{text(row.name)} <i>{text(row.beside)}</i></div>'
        )
        bar = "".join(row.bar(lambda time_s: round(time_s * 1000, 1), top, top + BAR))
        bars.append(f'<g data-row="{number}"><title>{text(row.said)}</title>{bar}</g>')
    return names, bars


def _phases(scene: BootScene, height: int) -> str:
    """Behind all bars: which phase it was, and the first reading."""
    drawn = []
    for number, span in enumerate(scene.phases):
        said = f"{span.name} {with_unit(span.end_s - span.begin_s, 's')}"
        begin_ms, length_ms = round(span.begin_s * 1000), round((span.end_s - span.begin_s) * 1000)
        place = f'x="{begin_ms}" y="0" width="{length_ms}" height="{height}"'
        drawn.append(f'<g data-row="{text(span.name)}"><title>{text(said)}</title>')
        drawn.append(f'<rect class="q{number % 2}" {place}/></g>')
    at_ms = round(scene.first_s * 1000)
    drawn.append(f'<line class="r" x1="{at_ms}" y1="0" x2="{at_ms}" y2="{height}" stroke-dasharray="2 3"/>')
    return "".join(drawn)
