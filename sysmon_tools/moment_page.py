# SPDX-License-Identifier: Apache-2.0
"""Lays out a moment: what was asked of it in, lines of text out, for a terminal of any size. Pure.

No line is wider than the terminal; where there are too few lines, the lists are shortened, the last first.
"""

import math
import time
from collections.abc import Collection, Sequence

from sysmon_tools.command_output import duration
from sysmon_tools.curves import BUCKETS, Curve, Spike
from sysmon_tools.moment import MomentScene, ProcessShare, WaitShare
from sysmon_tools.quantities import size
from sysmon_tools.show import Text, cell_len
from sysmon_tools.signs import SIGNS, Signs, sparkline
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause
from sysmond.base.result import Event

_LABEL_WIDTH = 12
_VALUE_WIDTH = 32
_LABEL, _DIM, _CURSOR = "bold", "dim", "reverse"
# Lines for each list at least, where there is room for anything.
_LIST_MIN = 3
_HOT = 90.0
_WARM = 70.0
_CURSOR_SIGN = "^"
_EVENT_SIGN = "!"


def page(moment: MomentScene, width: int, height: int, signs: Signs = SIGNS, *, is_live: bool = False) -> list[Text]:
    """Give at most ``height`` lines of at most ``width`` columns."""
    lines = [head(moment, is_live=is_live), *remarks(moment), *curve_lines(moment, width, signs), Text()]
    return _cut_to([*lines, *lists(moment, width, height - len(lines))], width, height)


def lists(moment: MomentScene, width: int, height: int) -> list[Text]:
    """Who used most, what threads waited for, and what happened, in at most so many lines."""
    of = [
        (_process_title(moment), [_process_line(share) for share in moment.processes]),
        ("Threads", [_wait_line(share) for share in moment.waits]),
        ("Events", [_event_line(event, moment) for event in _by_distance(moment)]),
    ]
    return _cut_to(_lists([(title, rows) for title, rows in of if rows], height), width, height)


def _cut_to(lines: list[Text], width: int, height: int) -> list[Text]:
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[: max(0, height)]


def local(time_ns: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Spell a moment in the local time of who looks."""
    return time.strftime(form, time.localtime(time_ns / SECOND_NS))


def head(moment: MomentScene, *, is_live: bool = False, span: tuple[int, int] | None = None) -> Text:
    """The first line: whose machine, when, how long ago, and of which time its figures are: ``span``, or the view's."""
    view = moment.view
    away_s = (moment.now_ns - view.at_ns) / SECOND_NS
    ago = f"{duration(away_s)} ago" if away_s >= 1 else "now" if away_s > -1 else f"in {duration(-away_s)}"
    parts = ["REPLAY", local(view.at_ns), ago]
    if moment.is_snapshot:
        before = f"{duration(away_s)} before its end" if away_s >= 1 else "its end"
        parts = ["SNAPSHOT", local(view.at_ns), before]
    elif is_live and moment.asked_ns is None:
        parts = ["LIVE", local(view.at_ns)]
    begin, end = (local(edge_ns, "%H:%M:%S") for edge_ns in _recorded(moment, *(span or view.span)))
    parts += [f"showing {begin} to {end}"]
    return Text.assemble((moment.host or "sysmon", "bold cyan"), f"  {' · '.join(parts)}")


def _recorded(moment: MomentScene, start_ns: int, end_ns: int) -> tuple[int, int]:
    """A span without what is not there yet, and without what was before the first recording."""
    before = [gap.end_ns for gap in moment.gaps if gap.cause is Cause.BEFORE_RECORDING and gap.start_ns <= start_ns]
    first_ns, last_ns = max(start_ns, min(before, default=start_ns)), min(end_ns, moment.now_ns)
    return (first_ns, last_ns) if first_ns < last_ns else (start_ns, end_ns)


def remarks(moment: MomentScene) -> list[Text]:
    """What is not as it was asked for, what is missing and why, and what could not be read."""
    lines = []
    if moment.asked_ns is not None:
        lines.append(Text(f"nothing is recorded at {local(moment.asked_ns)}; showing the nearest moment", "yellow"))
    causes = dict.fromkeys(f"{gap.cause}{f' ({gap.detail})' if gap.detail else ''}" for gap in moment.gaps)
    lines += [Text(f"missing: {', '.join(causes)}", "yellow")] if causes else []
    return lines + [Text(f"warning: {warning}", "yellow") for warning in moment.warnings[:2]]


def curve_lines(
    moment: MomentScene, width: int, signs: Signs = SIGNS, labels: Collection[str] | None = None
) -> list[Text]:
    """The curves, below a line that says of which time they are; ``labels``: only those."""
    first, room = _window(width, moment.view.number)
    curves = [curve for curve in moment.curves if labels is None or curve.label in labels]
    if not curves:
        return []
    lines = [
        _scale(moment, first, room),
        *(_curve_line(curve, moment.view.number - first, first, room, signs) for curve in curves),
    ]
    return _cut_to(lines, width, len(lines))


def bucket_at(moment: MomentScene, column: int, width: int) -> int | None:
    """Which bucket of the curves is drawn in a column of the screen; None where none is."""
    first, room = _window(width, moment.view.number)
    number = column - _LABEL_WIDTH
    return first + number if 0 <= number < room else None


def _window(width: int, number: int) -> tuple[int, int]:
    """The first bucket for which there is room, and how many there are; that with the number is among them."""
    room = max(10, min(BUCKETS, width - _LABEL_WIDTH - _VALUE_WIDTH))
    return min(BUCKETS - room, max(0, number - room // 2)), room


def _scale(moment: MomentScene, first: int, room: int) -> Text:
    """The times at both ends, where the moment is, and a sign where something happened.

    Then how long a bucket is, and that the values below are of the one at the moment.
    """
    view = moment.view
    begin, end = (local(view.start_ns + (first + more) * view.step_ns, "%H:%M:%S") for more in (0, room))
    at = view.number - first
    if at >= room - len(end):  # Of the moment itself the first line has the time.
        end = ""
    line = [*begin.ljust(room - len(end)), *end]
    for event in moment.events:
        number = (event.time_ns - view.start_ns) // view.step_ns - first
        if len(begin) < number < room - len(end) - 1:
            line[number] = _EVENT_SIGN
    line[at] = _CURSOR_SIGN
    by = duration(view.step_ns / SECOND_NS)
    return Text(f"{' ' * _LABEL_WIDTH}{''.join(line)} by {by}; at {_CURSOR_SIGN}", _DIM)


def _curve_line(curve: Curve, at: int, first: int, room: int, signs: Signs) -> Text:
    values = curve.values[first : first + room].tolist()
    now = values[at]
    known = [value for value in values if math.isfinite(value)]
    top = 100.0 if curve.unit == "%" else max(known, default=0.0)
    drawn = sparkline((_share(value, top) for value in values), signs)
    line = Text.assemble((f"{curve.label:{_LABEL_WIDTH}}", _LABEL), (drawn[:at], "green"), (drawn[at], _CURSOR))
    line.append(drawn[at + 1 :], "green")
    peak = f", at most {spelled(max(known), curve.unit)}" if known else ""
    return Text.assemble(line, " ", (spelled(now, curve.unit), _warmth(now, curve.unit)), (peak, _DIM))


def _share(value: float, top: float) -> float | None:
    if not math.isfinite(value):
        return None
    return value / top if top > 0 else 0.0


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


def spike_line(there: Spike | None, step_ns: int) -> str:
    """Say which curves rise at a spike, and how high; ``step_ns``: of a bucket, by half of which it goes on."""
    if there is None:
        return f"no spike in sight; went on by {duration(BUCKETS // 2 * step_ns / SECOND_NS)}"
    rising = sorted(there.peaks, key=lambda peak: peak[2] / peak[1] if peak[1] > 0 else 1.0)
    said = [f"{curve.label} {spelled(peak, curve.unit)} (usually {spelled(usual, curve.unit)})"
            for curve, peak, usual in rising]  # fmt: skip
    return f"a spike: {', '.join(said)}"


def _process_title(moment: MomentScene) -> str:
    order = {"cpu": "CPU", "memory": "memory", "disk": "disk"}[moment.view.order]
    return f"Processes by {order}: CPU of one, memory, read and written"


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
