# SPDX-License-Identifier: Apache-2.0
"""Draws the first minutes of a boot as SVG: a bar for each unit and process, time to the right. Pure.

In the bar of a process its share of a processor rises from below, what it read from disks and wrote hangs from above;
what else is known of it is told where the pointer rests. Bars are areas without lines, so that a page may stretch them.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from sysmon_tools.axes import value_marks
from sysmon_tools.boot_scene import BootProcess, BootScene, BootUnit, UseSpan
from sysmon_tools.grid import clipped
from sysmon_tools.quantities import with_unit
from sysmon_tools.style import Style
from sysmond.base.clock import SECOND_NS
from sysmond.base.terminal import printable

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 1200, 300, 20, 92, 15, 11
NAME_MAX, DEPTH_MAX, TITLE_MAX, MARKS = 44, 12, 140, 10
INDENT = 8
# So much of a bar is for the processor, the rest for the disk: neither hides the other.
CPU_PART = 0.6
# What is in a bar: looks of the SVG file and of the page alike.
BARS = (
    ".b{fill:#8883}.p{fill:#0072b2}.m{fill:#d55e00}.w{fill:#e69f00}.a{fill:#009e7366}.f{fill:#c33}"
    ".b,.p,.m,.w,.a{stroke-width:.6}.b,.p,.m,.w,.a,.f{vector-effect:non-scaling-stroke}"
    ".b{stroke:#8885}.w{stroke:#e69f00}.a{stroke:#009e73}.f{stroke:#c33;stroke-width:2}"
    ".q0{fill:#cc79a726}.q1{fill:#56b4e926}"
)
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#222}.h{font-size:14px}.s{fill:#777}.g{stroke:#ddd}.r{stroke:#c33}"
    "svg{background:#fff}"
    "@media(prefers-color-scheme:dark){svg{background:#181818}text{fill:#ddd}.s{fill:#999}.g{stroke:#333}}"
)
Scale = Callable[[float], float]


class ChartRow(NamedTuple):
    """A line of the chart: a name, what is said beside it and in full, and who draws its bar (scale, top, bottom)."""

    name: str
    beside: str
    said: str
    depth: int
    bar: Callable[[Scale, float, float], Iterator[str]]


def heading(scene: BootScene, style: Style) -> tuple[str, str, str]:
    """The title, how long each phase took, and how to read it."""
    one = scene.listed
    began = style.time(one.boot.start_ns // SECOND_NS * SECOND_NS)
    title = f"{scene.host or 'sysmond'}, boot {one.number} ({one.boot.boot[:8]}), recorded since {began}"
    lengths = ", ".join(f"{span.name} {with_unit(span.end_s - span.begin_s, 's')}" for span in scene.phases)
    total_s = sum(span.end_s - span.begin_s for span in scene.phases)
    phases = f"started in {with_unit(total_s, 's')}: {lengths}" if scene.phases else "how long it took is not recorded"
    moved = f": disk, up to {with_unit(scene.moved_max, 'B/s')}" if scene.moved_max else ": disk"
    before = f"; what ended in the first {with_unit(scene.first_s, 's')} is not recorded" if scene.first_s > 0 else ""
    title += f", kernel {one.kernel}" * bool(one.kernel)
    how = f"In a bar from below: share of a processor; from above{moved}{before}."
    return title, phases, how


def left_out(scene: BootScene) -> str:
    """How many processes are not shown; empty where all are."""
    number, cpu_s, moved = scene.left_out
    used = f"{with_unit(cpu_s, 's')} of a processor and {with_unit(moved, 'B')} of disk"
    return f"{number} more, of which none used more than {used}" if number else ""


def rows(scene: BootScene) -> list[ChartRow]:
    """Units, then processes."""
    units = [_unit_row(unit, scene) for unit in scene.units]
    return units + [_process_row(process, scene) for process in scene.processes]


def draw(scene: BootScene, style: Style) -> str:
    """The text of an SVG file."""
    lines = rows(scene)
    places = [TOP + ROW * number + (ROW if number >= len(scene.units) else 0) for number in range(len(lines))]
    bottom = (places[-1] if places else TOP) + ROW
    height = bottom + 3 * ROW
    length_s = scene.end_s - scene.start_s

    def scale(time_s: float) -> float:
        share = min(1.0, max(0.0, (time_s - scene.start_s) / length_s))
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    drawn: list[str] = []
    for row, top in zip(lines, places, strict=True):
        name = clipped(f"{row.name}  {row.beside}", NAME_MAX - row.depth, is_ascii=False)
        at = f'x="{6 + INDENT * row.depth}" y="{top + BAR - 1}"'
        bar = "".join(row.bar(scale, top, top + BAR))
        drawn.append(f"<g><title>{text(row.said)}</title><text {at}>{text(name)}</text>{bar}</g>")
    title, phases, how = heading(scene, style)
    size = f'width="{WIDTH}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}">',
            f"<title>{text(title)}</title>",
            f"<style>{BARS}{_STYLE}</style>",
            f'<text class="h" x="6" y="18">{text(clipped(title, TITLE_MAX, is_ascii=False))}</text>',
            f'<text x="6" y="36">{text(phases)}</text>',
            f'<text class="s" x="6" y="52">{text(how)}</text>',
            *_phases(scene, scale, bottom),
            *_marks(scene, scale, bottom),
            *drawn,
            f'<text class="s" x="6" y="{bottom + 2 * ROW}">{text(left_out(scene))}</text>',
            "</svg>",
            "",
        ]
    )


def _phases(scene: BootScene, scale: Scale, bottom: int) -> Iterator[str]:
    """Behind all bars: which phase it was, and since when anything is recorded."""
    for number, span in enumerate(scene.phases):
        left, right = scale(span.begin_s), scale(span.end_s)
        said = f"{span.name} {with_unit(span.end_s - span.begin_s, 's')}"
        place = f'x="{left}" y="58" width="{max(0.5, right - left):.1f}" height="14"'
        room = int((right - left) / 6)
        label = span.name if len(span.name) <= room else ""
        yield f'<g><title>{text(said)}</title><rect class="q{number % 2}" {place}/>'
        yield f'<text class="s" x="{left + 2}" y="69">{text(label)}</text></g>'
    x = scale(scene.first_s)
    yield f'<g><title>the first reading</title><line class="r" x1="{x}" y1="74" x2="{x}" y2="{bottom}"'
    yield ' stroke-dasharray="2 3"/></g>'


def _marks(scene: BootScene, scale: Scale, bottom: int) -> Iterator[str]:
    for time_s, said in value_marks(scene.start_s, scene.end_s, "s", MARKS):
        if scene.start_s <= time_s <= scene.end_s:
            x = scale(time_s)
            yield f'<line class="g" x1="{x}" y1="{TOP - 6}" x2="{x}" y2="{bottom}"/>'
            yield f'<text class="s" x="{x}" y="{TOP - 8}" text-anchor="middle">{text(said)}</text>'


def _process_row(process: BootProcess, scene: BootScene) -> ChartRow:
    lives = process.members or [process]
    used = with_unit(process.cpu_s, "s")
    moved = f", {with_unit(process.moved_bytes, 'B')}" if process.moved_bytes else ""
    until = "" if process.end_s is None else f" to {with_unit(process.end_s, 's')}"
    which = f"process {process.pid}" if len(lives) == 1 else f"{len(lives)} short processes"
    said = f"{process.comm}, {which} of {process.parent}, from {with_unit(process.begin_s, 's')}{until}: "
    said += f"{used} of a processor" + f"{moved} of disk" * bool(moved) + f", in {process.unit}" * bool(process.unit)

    def bar(scale: Scale, top: float, bottom: float) -> Iterator[str]:
        for life in lives:
            end_s = scene.end_s if life.end_s is None else min(life.end_s, scene.end_s)
            yield _rect("b", scale(life.begin_s), scale(end_s), top, bottom)
        middle = bottom - (bottom - top) * CPU_PART
        yield from _area("p", process.uses, lambda use: use.cpu, scale, bottom, middle)
        if scene.moved_max:
            yield from _area("m", process.uses, lambda use: use.moved / scene.moved_max, scale, top, middle)

    name = (process.comm or f"process {process.pid}") + f" × {len(lives)}" * (len(lives) > 1)
    return ChartRow(name, f"{used}{moved}", said, min(process.depth, DEPTH_MAX), bar)


def _unit_row(unit: BootUnit, scene: BootScene) -> ChartRow:
    active_s, end_s = unit.active_s, scene.end_s if unit.end_s is None else min(unit.end_s, scene.end_s)
    facts = [
        f"took {with_unit(unit.length_s, 's')}" if unit.length_s else "",
        f"active at {with_unit(active_s, 's')}" if active_s is not None else "",
        f"{'failed' if unit.trouble else 'ended'} at {with_unit(unit.end_s, 's')}" if unit.end_s is not None else "",
        unit.trouble,
        "of the critical chain" if unit.is_critical else "",
    ]
    said = f"{unit.name}: {', '.join(filter(None, facts)) or 'nothing is known of when'}"

    def bar(scale: Scale, top: float, bottom: float) -> Iterator[str]:
        if active_s is not None:
            begin_s = active_s if unit.begin_s is None else unit.begin_s
            if end_s > active_s:
                yield _rect("a", scale(active_s), scale(end_s), top, bottom)
            yield _rect("w", scale(begin_s), scale(active_s), top, bottom)
        if unit.trouble and unit.end_s is not None:
            yield _rect("f", scale(end_s), scale(end_s), top, bottom)

    beside = facts[0].removeprefix("took "), "critical" if unit.is_critical else ""
    return ChartRow(unit.name, ", ".join(filter(None, beside)), said, 0, bar)


def _rect(look: str, left: float, right: float, top: float, bottom: float) -> str:
    # Without any width it would not be seen.
    place = _short(left), _short(top), _short(max(0.1, right - left)), _short(bottom - top)
    return '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>'.format(look, *place)


def _area(
    look: str, uses: Sequence[UseSpan], share: Callable[[UseSpan], float], scale: Scale, foot: float, top: float
) -> Iterator[str]:
    """What was used in each piece, as high as its share of the bar; nothing where there is none of it."""
    pieces = []
    for use in uses:
        left, right = scale(use.begin_s), scale(use.end_s)
        height = round((top - foot) * min(1.0, share(use)), 1)
        if height and right > left:
            pieces.append(f"M{_short(left)} {_short(foot)}v{_short(height)}H{_short(right)}v{_short(-height)}z")
    if pieces:
        yield f'<path class="{look}" d="{"".join(pieces)}"/>'


def _short(place: float) -> str:
    """To the tenth, which is enough for pixels and milliseconds; they are most of a file."""
    return f"{place:.1f}".removesuffix(".0")


def text(said: str) -> str:
    """As it may stand in XML."""
    return escape(printable(said))
