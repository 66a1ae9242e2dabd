# SPDX-License-Identifier: Apache-2.0
"""Where somebody looks, and where an action leads from there. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from sysmon_tools.curves import BUCKETS, Curve, Spike, spike
from sysmon_tools.moment import NOW_BACK_NS, NOW_NUMBER, ZOOMS, View, of_now
from sysmon_tools.screen.views import BY_NAME, OVERVIEW, ScreenView, Sheet
from sysmond.base.result import Event

# By which column of processes each of these comes.
_ORDERS = {"by cpu": ("cpu", "cpu_percent"), "by memory": ("memory", "rss"), "by disk": ("disk", "written_bytes")}
_QUOTES = ("'", '"')


class Step(NamedTuple):
    """How somebody came further in: the look before, what was chosen there, and the condition that it became."""

    before: "Look"
    says: str
    condition: str


class Look(NamedTuple):
    """What is looked at.

    ``is_live``: the moment moves on by itself. ``by``: the column by which rows come, else the sheet's own. ``where``:
    a condition that was typed. ``steps``: the way in. ``group_by``: which columns of waits are put together, else the
    sheet's own.
    """

    moment: View
    is_live: bool = False
    view: str = OVERVIEW
    sheet: int = 0
    by: str = ""
    is_reversed: bool = False
    where: str = ""
    steps: tuple[Step, ...] = ()
    group_by: tuple[str, ...] = ()
    is_tree: bool = False

    @property
    def shown(self) -> ScreenView:
        """The view."""
        return BY_NAME[self.view]

    @property
    def asked(self) -> Sheet | None:
        """The sheet; None for the overview, which has none."""
        sheets = self.shown.sheets
        if not sheets:
            return None
        sheet = sheets[self.sheet]
        if self.group_by and not self.sheet:
            columns = (*(name for name in sheet.columns if name not in sheet.group_by), *self.group_by)
            return sheet._replace(group_by=self.group_by, columns=columns)
        return sheet

    @property
    def condition(self) -> str:
        """All conditions that rows have to meet, as one."""
        return " and ".join(f"({one})" for one in (*(step.condition for step in self.steps), self.where) if one)


class Around(NamedTuple):
    """What is known around a moment, to which keys may lead."""

    curves: Sequence[Curve]
    events: Sequence[Event]


def live(now_ns: int) -> Look:
    """The overview of now, which is at the end of the curves."""
    return Look(of_now(now_ns), is_live=True)


def renewed(look: Look, now_ns: int) -> Look:
    """The same, of now, where it is live."""
    if not look.is_live:
        return look
    return look._replace(moment=look.moment._replace(at_ns=now_ns - NOW_BACK_NS, number=NOW_NUMBER))


def opened(look: Look, name: str) -> Look:
    """Another view at the same moment; again the same one is its first sheet."""
    return Look(look.moment, is_live=look.is_live, view=name, is_tree=look.is_tree and BY_NAME[name].tree is not None)


def inward(look: Look, cells: dict[str, str | None]) -> Look:
    """Go into a row, of which ``cells`` are the texts as they are; the same look where no way leads further."""
    way, sheet = look.shown.way, look.asked
    if way is None or sheet is None:
        return look
    columns = [(here, there) for here, there in way.columns if here in sheet.columns]
    if (look.view, look.sheet) == (way.view, way.sheet):
        return look  # Already there.
    meant = [(there, cells.get(here)) for here, there in columns]
    conditions = [condition(there, text) for there, text in meant if text is not None]
    if not conditions:
        return look
    says = ", ".join(text for _, text in meant if text) or "(none)"
    step = Step(look, says, " and ".join(conditions))
    return Look(look.moment, look.is_live, way.view, way.sheet, steps=(*look.steps, step))


def outward(look: Look) -> Look:
    """Go back to where one came from, at the moment that is shown; without a way in, forget what was typed."""
    if look.steps:
        return look.steps[-1].before._replace(moment=look.moment, is_live=look.is_live)
    return look._replace(where="", group_by=()) if look.where or look.group_by else look


def condition(column: str, text: str) -> str:
    """Say that a column has that text, whatever quotes are in it."""
    quote = next((quote for quote in _QUOTES if quote not in text), None)
    if quote is None:
        pattern = re.escape(text).replace(_QUOTES[0], ".")
        return f"{column} ~ {_QUOTES[0]}^{pattern}${_QUOTES[0]}"
    return f"{column} = {text if text.isdecimal() else f'{quote}{text}{quote}'}"


def ordered(look: Look, columns: Sequence[str], step: int) -> Look:
    """Order rows by the column that many places from the one by which they come; ``columns`` as they are shown."""
    sheet = look.asked
    if sheet is None or not columns:
        return look
    by = look.by or sheet.by
    at = columns.index(by) if by in columns else 0
    return look._replace(by=columns[(at + step) % len(columns)], is_reversed=False)


def moved(look: Look, action: str, around: Around, now_ns: int) -> Look:
    """Where an action leads; the same look for one that leads nowhere."""
    if action in _ORDERS:
        return _by(look, *_ORDERS[action])
    moment, sheets = look.moment, look.shown.sheets
    match action:
        case "pause":
            return renewed(look._replace(is_live=not look.is_live), now_ns)
        case "next sheet" | "previous sheet":
            number = look.sheet + (1 if action == "next sheet" else -1)
            return look._replace(sheet=number % max(1, len(sheets)), by="", is_reversed=False)
        case "reverse" | "tree":
            is_tree = look.is_tree != (action == "tree" and look.shown.tree is not None)
            return look._replace(is_reversed=look.is_reversed != (action == "reverse"), is_tree=is_tree)
        case "closer" | "wider":
            zoom = min(len(ZOOMS) - 1, max(0, moment.zoom + (1 if action == "wider" else -1)))
            return look._replace(moment=moment._replace(zoom=zoom))
        case _:
            return at(look, _moment(moment, action, around), now_ns)


def _by(look: Look, order: str, column: str) -> Look:
    """Order the processes of the overview, and rows that have the column."""
    look = look._replace(moment=look.moment._replace(order=order))
    has_column = look.asked is not None and column in look.asked.columns
    return look._replace(by=column, is_reversed=False) if has_column else look


def lacks(look: Look, action: str) -> str:
    """The column by which an action sorts, where the rows that are shown have none of that name; else empty."""
    if look.asked is None or action not in _ORDERS:
        return ""
    column = _ORDERS[action][1]
    return "" if column in look.asked.columns else column


def at(look: Look, at_ns: int | None, now_ns: int) -> Look:
    """Look at another moment; never beyond now."""
    if at_ns is None or at_ns == look.moment.at_ns:
        return look
    moment = look.moment._replace(at_ns=min(now_ns, at_ns), number=BUCKETS // 2)
    return look._replace(moment=moment, is_live=False)


def bucket(look: Look, number: int, now_ns: int) -> Look:
    """Look at the bucket of the curves to which somebody pointed."""
    return at(look, look.moment.start_ns + number * look.moment.step_ns, now_ns)


def spike_from(moment: View, action: str, around: Around) -> Spike | None:
    """The next spike from a moment on, or the previous one, as the action says; None where none is in sight."""
    is_next, here = action == "next spike", moment.number
    return spike(around.curves, lambda number: number > here if is_next else number < here, here)


def _moment(moment: View, action: str, around: Around) -> int | None:
    match action:
        case "later" | "earlier":
            return moment.at_ns + (moment.span_ns if action == "later" else -moment.span_ns)
        case "next spike" | "previous spike":
            there = spike_from(moment, action, around)
            away = there.number - moment.number if there else (BUCKETS if action == "next spike" else -BUCKETS) // 2
            return moment.at_ns + away * moment.step_ns
        case "next event":
            return min((event.time_ns for event in around.events if event.time_ns > moment.at_ns), default=None)
        case "previous event":
            return max((event.time_ns for event in around.events if event.time_ns < moment.at_ns), default=None)
        case _:
            return None
