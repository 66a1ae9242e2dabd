# SPDX-License-Identifier: Apache-2.0
"""Asks an archive for what a look shows: curves and events around the moment, and the rows of the view.

It has no engine of its own: everything is asked of ``sysmond.history``, as anybody can.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sysmon_tools import moment
from sysmon_tools.curves import BUCKETS, CurveWindow
from sysmon_tools.grid import Display, Field
from sysmon_tools.moment import ZOMBIE, ZOOMS, MomentScene
from sysmon_tools.screen import trees
from sysmon_tools.screen.look import Look
from sysmon_tools.screen.views import EVENTS_VIEW, Sheet, SheetColumns
from sysmon_tools.style import Style
from sysmon_tools.terminal_answer import as_fields
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import END
from sysmond.base.paths import not_recorded
from sysmond.base.result import Column, Result
from sysmond.errors import Error, UsageError, expected, nearest
from sysmond.history import Archive

TIME = "time"
# What tells a row from others of its sheet, or whether a process has ended, and is not shown.
_HIDDEN, _OF_PROCESSES = frozenset({"start", "ppid"}), frozenset({"start", "ppid", END})
# These a sheet has whatever columns somebody chooses: by them a row is told from others.
_IDENTITY = frozenset({"pid", "tid", "instance"})
# Why there are no rows, where that is no wonder.
_NOTHING = {
    "thread_state": "(no thread was seen running, or waiting for a device or a lock; those that sleep are not listed)"
}
ENDED = "ended"


class SheetRows(NamedTuple):
    """Rows as they are shown: ``fields`` have the text of each row of the answer, ``order`` says which come.

    ``before``: what is drawn before the name of each, of a tree. ``by``: the column by which they come.
    ``starts_ns``: when what each row is about began, in UTC, of processes and events.
    """

    fields: Sequence[Field]
    order: Sequence[int]
    before: Sequence[str] = ()
    by: str = ""
    hidden: Sequence[Field] = ()
    starts_ns: Sequence[int] = ()

    @property
    def every(self) -> Sequence[Field]:
        """The fields, also those that are not shown."""
        return (*self.fields, *self.hidden)

    def cells(self, at: int) -> dict[str, str | None]:
        """The texts of a row as they are, by the names of their columns; ``at``: its place in the order."""
        row = self.order[at]
        return {field.name: field.cell(row) for field in self.every}

    def started_ns(self, at: int) -> int:
        """When what a row is about began, in UTC nanoseconds; 0 where that is not known."""
        return self.starts_ns[self.order[at]] if self.starts_ns else 0


def rows_of(result: Result) -> SheetRows:
    """The rows of any answer, in its order, as a table of the screen shows them."""
    fields = as_fields(result, Style(), Display(None))
    return SheetRows(fields[1:], range(len(result.times_ns)))


class ScreenPage(NamedTuple):
    """All that a look shows. ``rows``: of its sheet; ``says``: why there are none."""

    look: Look
    scene: MomentScene
    rows: SheetRows = SheetRows((), ())
    says: str = ""


class Questions:
    """Asks an archive again and again; what it knows already of curves and columns is not asked anew."""

    def __init__(
        self, archive: Archive, *, is_ascii: bool = False, chosen: Mapping[str, SheetColumns] = MappingProxyType({})
    ) -> None:
        """Know nothing yet; ``chosen``: the columns of sheets, by view and sheet, where they are not their own."""
        self._archive = archive
        self._curves = CurveWindow(archive)
        self._columns: dict[str, frozenset[str]] = {}
        # What somebody chose for sheets, by view and sheet.
        self.chosen: dict[str, SheetColumns] = dict(chosen)
        self._display = Display(None, is_ascii=is_ascii)
        self._style = Style()

    def page(self, look: Look, now_ns: int) -> ScreenPage:
        """Ask for all of it; a question that was refused is told in place of its rows.

        :raises Error: where nothing is recorded at all.
        """
        sheet = look.asked
        labels = look.shown.curves if sheet and look.is_live else None
        scene = moment.look(self._archive, look.moment, now_ns, self._curves, has_lists=sheet is None, labels=labels)
        look = look._replace(moment=scene.view)
        if sheet is None:
            return ScreenPage(look, scene)
        try:
            rows = self._rows(look, sheet)
        except Error as problem:
            return ScreenPage(look, scene, says=str(problem))
        return ScreenPage(look, scene, rows, "" if rows.order else _nothing(look, sheet))

    def _rows(self, look: Look, sheet: Sheet) -> SheetRows:
        start_ns, end_ns = span_of(look, sheet)
        columns = [name for name in self.columns(look.view, sheet) if self._has(sheet.table, name)]
        if not columns:
            raise Error(f"table {sheet.table!r}: it has none of the columns of this view")
        result = self._archive.records(
            sheet.table, start=start_ns, end=end_ns, columns=columns, where=look.condition, group_by=sheet.group_by
        )
        fields = as_fields(result, self._style, self._display)
        return _arranged(look, sheet, result, fields, self._display, self.hidden(look.view, sheet))

    def columns(self, view: str, sheet: Sheet) -> Sequence[str]:
        """The columns of a sheet: its own, or those that somebody chose, behind what tells its rows apart."""
        if (chosen := self.chosen.get(f"{view}/{sheet.name}")) is None:
            return sheet.columns
        needed = {*_IDENTITY, *_hidden(sheet), *sheet.group_by}
        first = [name for name in sheet.columns if name in needed]
        return list(dict.fromkeys([*first, *chosen.names]))

    def hidden(self, view: str, sheet: Sheet) -> frozenset[str]:
        """The columns of a sheet that are asked for and not shown, unless somebody chose them."""
        chosen = self.chosen.get(f"{view}/{sheet.name}")
        return _hidden(sheet).difference(chosen.names if chosen else ())

    def _has(self, table: str, column: str) -> bool:
        if table not in self._columns:
            try:
                self._columns[table] = frozenset(name for name, *_ in self._archive.columns(table))
            except UsageError:  # A table that somebody else named is no mistake of who looks.
                raise Error(not_recorded(table)) from None
        return column in self._columns[table]


def _nothing(look: Look, sheet: Sheet) -> str:
    """Why there are no rows."""
    if look.view == EVENTS_VIEW and look.moment.zoom < len(ZOOMS) - 1:
        return "(no events in that time; '-' shows a longer one)"
    return _NOTHING.get(sheet.table, "(no rows in that time)")


def span_of(look: Look, sheet: Sheet) -> tuple[int, int]:
    """From when to when rows are asked for: what is shown of time, and no less than how seldom the table is read."""
    view = look.moment
    if look.view == EVENTS_VIEW:
        return view.start_ns, view.start_ns + BUCKETS * view.step_ns
    start_ns, end_ns = view.span
    reach_ns = int(sheet.reach_s * SECOND_NS)
    if look.is_live:
        return view.at_ns + SECOND_NS - reach_ns, view.at_ns + SECOND_NS
    return min(start_ns, end_ns - reach_ns), end_ns


def _arranged(
    look: Look, sheet: Sheet, result: Result, fields: Sequence[Field], display: Display, not_shown: Collection[str]
) -> SheetRows:
    """Rows in their order, as a tree where that is wanted."""
    by = look.by or sheet.by
    if sheet.table == "process":
        ends = next((field.cell for field in fields if field.name == END), lambda _: None)
        fields = [_or_ended(field, ends) if field.name == "state" else field for field in fields]
    by_name = {field.name: column for field, column in zip(fields[1:], result.columns, strict=True)}
    if by not in by_name and by != TIME:
        by = next(iter(by_name), TIME)
    order = _sorted(_times(result) if by == TIME else by_name[by], is_reversed=look.is_reversed)
    before: Sequence[str] = ()
    if look.is_tree and (tree := look.shown.tree) and tree[0] in by_name:
        cells = {field.name: field.cell for field in fields}
        names = [cells[tree[0]](row) for row in range(len(order))]
        parents = (
            [cells[tree[1]](row) for row in range(len(order))]
            if tree[1]
            else [trees.parent_path(name or "") for name in names]
        )
        order, before = trees.below(order, names, parents, is_ascii=display.is_ascii)
    has_time = look.view == EVENTS_VIEW
    shown = [field for field in (fields if has_time else fields[1:]) if field.name not in not_shown]
    starts = by_name.get("start")
    starts_ns = starts.integers.tolist() if starts is not None and starts.integers is not None else ()
    if has_time:
        starts_ns = result.times_ns.tolist()
    others = [field for field in fields if field.name in not_shown]
    return SheetRows(shown, order, before, by, others, starts_ns)


def _hidden(sheet: Sheet) -> frozenset[str]:
    return _OF_PROCESSES if sheet.table == "process" else _HIDDEN


def _or_ended(state: Field, end: Callable[[int], str | None]) -> Field:
    """The state of processes; of one that ended in the time that is shown, that, whatever it was seen doing before.

    One that nobody has waited for is still there.
    """

    def cell(row: int) -> str | None:
        seen = state.cell(row)
        return seen if seen == ZOMBIE or (seen and not end(row)) else ENDED

    return state._replace(cell=cell)


def _times(result: Result) -> Column:
    return result.columns[0]._replace(texts=None, floats=None, integers=result.times_ns, scale=9)


def _sorted(column: Column, *, is_reversed: bool) -> list[int]:
    """Rows by a column: numbers from the largest, texts from the first letter; those without any come last."""
    if column.texts is not None:
        texts = column.texts
        known = sorted((row for row, text in enumerate(texts) if text), key=lambda row: str(texts[row]).casefold())
        without = [row for row, text in enumerate(texts) if not text]
    else:
        values = column.values
        known = np.argsort(-values, kind="stable")[: int(np.isfinite(values).sum())].tolist()
        without = np.flatnonzero(~np.isfinite(values)).tolist()
    return [*(reversed(known) if is_reversed else known), *without]


def asked_for(text: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Read names of columns with commas between them.

    :raises UsageError: for one that there is not.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in columns:
            raise UsageError(f"there is no column {name!r}{nearest(name, columns, expected(columns))}")
    return names
