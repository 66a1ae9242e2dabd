# SPDX-License-Identifier: Apache-2.0
"""Lays out a moment: what was asked of it in, lines of text out, for a terminal of any size. Pure.

No line is wider than the terminal; where there are too few lines, the lists are shortened, the last first.
"""

import math
import time
from collections.abc import Sequence

from sysmon_tools.moment import BUCKETS, Curve, MomentScene, ProcessShare, WaitShare
from sysmon_tools.panel import SIGNS, Signs
from sysmon_tools.quantities import size
from sysmon_tools.show import Text, cell_len, duration
from sysmond.base.clock import SECOND_NS
from sysmond.base.result import Event

KEYS = "→ ← later, earlier  + - zoom  s S next, previous spike  e E event  C M D sort  l live  ? help  q quit"
HELP = (
    ("t T, → ←", "later, earlier, by the time that is shown"),
    ("+ -", "show a shorter, a longer time"),
    ("s S", "go to the next, the previous spike"),
    ("e E", "go to the next, the previous event"),
    ("C M D", "sort processes by CPU, memory, disk (P is C)"),
    ("n", "go to now"),
    ("l", "the live view"),
    ("?", "show or hide this help"),
    ("q", "end"),
)
_LABEL_WIDTH = 12
_VALUE_WIDTH = 32
_LABEL, _DIM, _CURSOR = "bold", "dim", "reverse"
# Lines for each list at least, where there is room for anything.
_LIST_MIN = 3
_HOT = 90.0
_WARM = 70.0
_CURSOR_SIGN = "^"


def page(moment: MomentScene, width: int, height: int, signs: Signs = SIGNS, *, is_help: bool = False) -> list[Text]:
    """Give at most ``height`` lines of at most ``width`` columns."""
    lines = [*_head(moment), *_said(moment)]
    if is_help:
        lines += [Text.assemble((f"  {keys:10}", _LABEL), what) for keys, what in HELP]
    else:
        lines += _curve_lines(moment, width, signs)
        lists = [
            (_process_title(moment), [_process_line(share) for share in moment.processes]),
            ("Threads", [_wait_line(share) for share in moment.waits]),
            ("Events", [_event_line(event, moment) for event in _by_distance(moment)]),
        ]
        lines += _lists([(title, rows) for title, rows in lists if rows], height - len(lines))
    for line in lines:
        line.truncate(width)
    return lines[:height]


def local(time_ns: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Spell a moment in the local time of who looks."""
    return time.strftime(form, time.localtime(time_ns / SECOND_NS))


def _head(moment: MomentScene) -> list[Text]:
    view = moment.view
    away_s = (moment.now_ns - view.at_ns) / SECOND_NS
    ago = f"{duration(away_s)} ago" if away_s >= 1 else "now" if away_s > -1 else f"in {duration(-away_s)}"
    parts = ["REPLAY", local(view.at_ns), ago, f"showing {duration(view.span_ns / SECOND_NS)}"]
    return [Text.assemble((moment.host or "sysmon", "bold cyan"), f"  {'  ·  '.join(parts)}")]


def _said(moment: MomentScene) -> list[Text]:
    lines = []
    if moment.asked_ns is not None:
        lines.append(Text(f"nothing is recorded at {local(moment.asked_ns)}; showing the nearest moment", "yellow"))
    causes = dict.fromkeys(f"{gap.cause}{f' ({gap.detail})' if gap.detail else ''}" for gap in moment.gaps)
    lines += [Text(f"missing: {', '.join(causes)}", "yellow")] if causes else []
    return lines + [Text(f"warning: {warning}", "yellow") for warning in moment.warnings[:2]]


def _curve_lines(moment: MomentScene, width: int, signs: Signs) -> list[Text]:
    room = max(10, min(BUCKETS, width - _LABEL_WIDTH - _VALUE_WIDTH))
    first = (BUCKETS - room) // 2
    lines = [_curve_line(curve, first, room, signs) for curve in moment.curves]
    if not lines:
        return []
    at = BUCKETS // 2 - first
    begin, end = (local(moment.view.start_ns + (first + more) * moment.view.step_ns, "%H:%M:%S") for more in (0, room))
    scale = begin + " " * max(1, at - len(begin)) + _CURSOR_SIGN
    scale += " " * max(1, room - len(scale) - len(end)) + end
    return [Text(" " * _LABEL_WIDTH + scale, _DIM), *lines, Text()]


def _curve_line(curve: Curve, first: int, room: int, signs: Signs) -> Text:
    values = curve.values[first : first + room].tolist()
    now = values[BUCKETS // 2 - first]
    known = [value for value in values if math.isfinite(value)]
    top = 100.0 if curve.unit == "%" else max(known, default=0.0)
    drawn = "".join(_level(value, top, signs) for value in values)
    at = BUCKETS // 2 - first
    line = Text.assemble((f"{curve.label:{_LABEL_WIDTH}}", _LABEL), (drawn[:at], "green"), (drawn[at], _CURSOR))
    line.append(drawn[at + 1 :], "green")
    peak = f", at most {spelled(max(known), curve.unit)}" if known else ""
    return Text.assemble(line, " ", (spelled(now, curve.unit), _warmth(now, curve.unit)), (peak, _DIM))


def _level(value: float, top: float, signs: Signs) -> str:
    if not math.isfinite(value):
        return " "
    return signs.curve[min(len(signs.curve) - 1, int(value / top * len(signs.curve)))] if top > 0 else signs.curve[0]


def _warmth(value: float, unit: str) -> str:
    if unit != "%" or not math.isfinite(value):
        return ""
    return "red" if value >= _HOT else "yellow" if value >= _WARM else ""


def spelled(value: float | None, unit: str) -> str:
    """Spell a value of a unit for people; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    match unit:
        case "%":
            return f"{value:.1f} %"
        case "Cel":
            return f"{value:.1f} °C"
        case "B":
            return size(value)
        case _:
            return f"{size(value)}/s"


def _process_title(moment: MomentScene) -> str:
    order = {"cpu": "CPU", "memory": "memory", "disk": "disk"}[moment.view.order]
    return f"Processes by {order}"


def _process_line(share: ProcessShare) -> Text:
    cpu = spelled(share.cpu_percent, "%")
    return Text(
        f"{share.pid:>8} {_cut(share.comm, 16)} {_cut(share.user, 10)} {cpu:>9} "
        f"{spelled(share.resident_bytes, 'B'):>10} {spelled(share.disk_bytes_s, 'B/s'):>12}  {share.state or 'ended'}"
    )


def _wait_line(share: WaitShare) -> Text:
    state = {"D": "waiting for a device or a lock", "R": "running, or waiting for a CPU"}.get(share.state, share.state)
    return Text(f"{share.seen:>8} {_cut(share.comm, 16)} {state}{f', in {share.place}' if share.place else ''}")


def _by_distance(moment: MomentScene) -> list[Event]:
    """The events, those nearest to the moment first."""
    return sorted(moment.events, key=lambda event: (abs(event.time_ns - moment.view.at_ns), event.time_ns))


def _event_line(event: Event, moment: MomentScene) -> Text:
    away_s = (event.time_ns - moment.view.at_ns) / SECOND_NS
    when = "now" if abs(away_s) < 1 else f"{duration(abs(away_s))} {'later' if away_s > 0 else 'before'}"
    said = " ".join(filter(None, (event.subject, event.text)))
    head = (f"{when:>16}  ", _DIM), (event.kind, _LABEL)
    return Text.assemble(f"{local(event.time_ns, '%H:%M:%S')} ", *head, f" {said}")


def _cut(text: str, width: int) -> str:
    cut = text if cell_len(text) <= width else text[: width - 1] + "…"
    return cut + " " * max(0, width - cell_len(cut))


def _lists(lists: Sequence[tuple[str, Sequence[Text]]], height: int) -> list[Text]:
    """Lists below each other, each with its title, in as many lines as there are."""
    lines: list[Text] = []
    for number, (title, rows) in enumerate(lists):
        reserved = max(_LIST_MIN, height // 4)
        later = sum(min(len(others), reserved) + 1 for _, others in lists[number + 1 :])
        room = max(min(len(rows), _LIST_MIN), height - len(lines) - later - 1)
        lines += [Text(title, _LABEL), *rows[:room]]
    return lines[: max(0, height)]
