# SPDX-License-Identifier: Apache-2.0
"""Two widgets for any program of textual: ``Lines`` of text, and ``TableLines``, a table of any length.

They get lines and fields, and know no archive. A table spells only the rows that are seen: ten thousand scroll as ten.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from sysmon_tools.grid import Field, clipped, cut, length
from sysmon_tools.screen.question import SheetRows
from sysmon_tools.show import Text, segment
from sysmond.base.terminal import printable

# A text is cut to that, but for the last column, which has the rest of the line.
TEXT_MAX = 24
_BETWEEN = "  "
_TREE_COLUMNS = ("comm", "instance")
# What a row is about stands in one of these; behind it what is to be noted of that.
_NAMES = ("comm", "instance", "unit", "user_unit")
# Texts side by side, each with its style.
_Parts = Sequence[tuple[str, str]]


class Lines(Widget):
    """Lines of text, drawn as they are; a click says where it was."""

    class Pointed(Message):
        """Somebody clicked on a line, or on a column of it."""

        def __init__(self, lines: "Lines", column: int, line: int) -> None:
            super().__init__()
            self.lines, self.column, self.line = lines, column, line

    def __init__(self, name: str) -> None:
        """Show nothing yet; ``name``: by which styles and messages know it."""
        super().__init__(id=name)
        self._lines: Sequence[Text] = ()

    def draw(self, lines: Sequence[Text]) -> None:
        """Show these lines; where they are those of before, nothing is drawn."""
        if [(line, line.style) for line in lines] != [(line, line.style) for line in self._lines]:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Give a line, as wide as there is room."""
        line = self._lines[y] if y < len(self._lines) else Text()
        return Strip(list(line.render(self.app.console))).simplify().adjust_cell_length(self.size.width)

    def on_click(self, event: events.Click) -> None:
        """Tell where."""
        self.post_message(self.Pointed(self, event.x, event.y))


class TableLines(ScrollView, can_focus=False):
    """Rows below a heading, of which only those that are seen are spelled, however many there are.

    The cursor stays with its row when the rows change, as far as the texts of ``stays`` tell it. Of the lines that are
    seen only those are drawn again that have changed: of a second to the next most rows have not.
    """

    # Textual would lay out the whole screen, and draw all of the table.
    virtual_size = Reactive(Size(0, 0), repaint=False)

    class Chosen(Message):
        """Somebody pointed at a column's heading, or chose a row."""

        def __init__(self, column: str = "") -> None:
            super().__init__()
            self.column = column

    def __init__(self, name: str, *, stays: Sequence[str] = ("pid", "start", "tid", "instance")) -> None:
        """Show no rows yet."""
        super().__init__(id=name)
        self.rows = SheetRows((), ())
        self.at = 0
        self.searched = ""
        self.is_ascii = False
        # What is to be noted of what a row is about, by its texts; None for nothing of any row.
        self.note: Callable[[Mapping[str, str | None]], str] | None = None
        # How long the texts of some columns may be.
        self.lengths: Mapping[str, int] = {}
        self._stays = stays
        # The texts of rows that were seen, by place, and how wide each is.
        self._spelled: dict[int, list[tuple[str, int]]] = {}
        # The lines as they were drawn last.
        self._drawn: dict[int, _Parts] = {}
        self._left = 0
        self._widths: dict[str, int] = {}
        self._names: tuple[str, ...] = ()
        self._head = 1
        self._is_following = True
        self._is_tree = False

    def draw(self, rows: SheetRows) -> None:
        """Show these rows; where they are of the same columns, no column becomes narrower."""
        before = self._meaning()
        self.rows = rows
        self._spelled.clear()
        self._head = 1 + any(field.unit for field in rows.fields)
        names = tuple(field.name for field in rows.fields)
        if bool(rows.before) != self._is_tree:
            self._is_tree, self._widths = bool(rows.before), {}
        if names != self._names:
            self._names, self._widths, self._left, self.at = names, {}, 0, 0
        elif before and self._is_following:
            # Most rows differ in the first text: no other of them is spelled.
            telling = [(field.cell, before[field.name]) for field in rows.every if field.name in before]
            same = (at for at, row in enumerate(rows.order) if all(cell(row) == text for cell, text in telling))
            self.at = next(same, self.at)
        self._widths = {one.name: max(len(one.name), len(one.unit), self._widths.get(one.name, 0))
                        for one in rows.fields}  # fmt: skip
        self.at = max(0, min(self.at, len(rows.order) - 1))
        self.virtual_size = Size(self.size.width, len(rows.order) + self._head)
        self._is_following = True
        self._follow()
        self._draw_changed()

    def home(self) -> None:
        """Put the cursor on the first row, and leave it there with the next rows: their order is another."""
        self.at, self._is_following = 0, False

    def move(self, count: int) -> None:
        """Move the cursor by so many rows."""
        self.go(self.at + count)

    def go(self, at: int) -> None:
        """Put the cursor on a row."""
        self.at = max(0, min(at, len(self.rows.order) - 1))
        self._follow()
        self._draw_changed()

    def aside(self, count: int) -> None:
        """Leave out so many more columns behind the first, or fewer."""
        self._left = max(0, min(self._left + count, len(self.rows.fields) - 2))
        self._spelled.clear()
        self._draw_changed()

    def search(self, text: str, step: int = 1) -> bool:
        """Go to the next row that has a text, from here on, or with ``step`` 0 from this row on; whether there is one.

        What is searched for is shown.
        """
        self.searched = text.casefold()
        count = len(self.rows.order)
        if self.searched:
            for away in range(count):
                at = (self.at + (away + step if step >= 0 else step - away)) % count
                if self._has(at):
                    self.go(at)
                    return True
        self._draw_changed()
        return False

    def page_rows(self) -> int:
        """How many rows are seen at once."""
        return max(1, self.size.height - self._head)

    def cells(self) -> dict[str, str | None]:
        """The texts of the row below the cursor, by the names of columns; nothing where there is no row."""
        return self.rows.cells(self.at) if self.rows.order else {}

    def cut_text(self) -> str:
        """The text that ends the row below the cursor, where the row is wider than the screen; else nothing."""
        if not self.rows.order or length(self._row(self.at).rstrip()) <= self.size.width:
            return ""
        return self._texts(self.at)[-1][0]

    def started_ns(self) -> int:
        """When what the row below the cursor is about began; 0 where that is not known."""
        return self.rows.started_ns(self.at) if self.rows.order else 0

    def watch_virtual_size(self, size: Size) -> None:
        """Another number of rows is another scrollbar; where it comes or goes, another layout."""
        if self.show_vertical_scrollbar and size.height > self.size.height:
            self.vertical_scrollbar.window_virtual_size = size.height
        else:
            self.refresh(repaint=False, layout=True)

    def on_resize(self) -> None:
        """Keep the cursor in sight."""
        self._follow()

    def render_line(self, y: int) -> Strip:
        """Give a line of the heading, or a row."""
        self._drawn[y] = line = self._line(y)
        return _strip(line, self.size.width, is_ascii=self.is_ascii)

    def on_click(self, event: events.Click) -> None:
        """Choose a column by its heading, or a row; twice goes into it."""
        if event.y < self._head:
            end = 0
            for field in self._shown():
                end += self._widths[field.name] + len(_BETWEEN)
                if event.x < end:
                    self.post_message(self.Chosen(field.name))
                    return
            return
        self.go(self.scroll_offset.y + event.y - self._head)
        if event.chain > 1:
            self.post_message(self.Chosen())

    def _meaning(self) -> dict[str, str | None]:
        """What tells the row below the cursor from others."""
        row = self.rows.order[self.at] if self.rows.order else None
        telling = [field for field in self.rows.every if field.name in self._stays]
        return {} if row is None else {field.name: field.cell(row) for field in telling}

    def _draw_changed(self) -> None:
        """Have those lines drawn that are others than before."""
        width, height = self.size
        changed = [Region(0, y, width, 1) for y in range(height) if self._line(y) != self._drawn.get(y)]
        if changed:
            self.refresh(*changed)

    def _follow(self) -> None:
        """Scroll to where the cursor is seen, and no further than to the last row."""
        top, seen = self.scroll_offset.y, self.page_rows()
        wanted = max(self.at - seen + 1, min(self.at, top, max(0, len(self.rows.order) - seen)))
        if wanted != top:
            self.scroll_to(y=wanted, animate=False)

    def _shown(self) -> Sequence[Field]:
        fields = self.rows.fields
        return [*fields[:1], *fields[1 + self._left :]]

    def _has(self, at: int) -> bool:
        row = self.rows.order[at]
        return any(self.searched in (field.cell(row) or "").casefold() for field in self.rows.fields)

    def _line(self, y: int) -> _Parts:
        """What is seen in a line."""
        top = self.scroll_offset.y
        if y < self._head:
            for at in range(top, min(top + self.page_rows(), len(self.rows.order))):
                self._texts(at)  # So that the heading is as wide as what is below it.
            return self._heading(y)
        at = top + y - self._head
        if at >= len(self.rows.order):
            return []
        is_hit = self.searched and at != self.at and self._has(at)
        return [(self._row(at), "reverse" if at == self.at else "yellow" if is_hit else "")]

    def _heading(self, y: int) -> _Parts:
        parts: list[tuple[str, str]] = []
        for field in self._shown():
            text = field.unit if y else field.name
            width = self._widths[field.name]
            padded = text.ljust(width) if field.is_text else text.rjust(width)
            parts += [(padded, "bold reverse" if field.name == self.rows.by and not y else "bold"), (_BETWEEN, "")]
        return parts

    def _row(self, at: int) -> str:
        cells = []
        for field, (text, wide) in zip(self._shown(), self._texts(at), strict=True):
            spaces = " " * (self._widths[field.name] - wide)
            cells.append(text + spaces if field.is_text else spaces + text)
        return _BETWEEN.join(cells)

    def _texts(self, at: int) -> list[tuple[str, int]]:
        """The texts of a row, which is spelled once, and how wide each is: so wide its column becomes at least."""
        if at in self._spelled:
            return self._spelled[at]
        row = self.rows.order[at]
        # Nothing hidden is spelled, as when a process began.
        cells = {field.name: field.cell(row) for field in self.rows.fields}
        shown = self._shown()
        self._spelled[at] = texts = []
        note = self.note(cells) if self.note else ""
        for field in shown:
            text = printable(cells[field.name] or ("–" if field.is_text else "-"))
            if self.rows.before and field.name in _TREE_COLUMNS:
                text = self.rows.before[at] + text
            if field is not shown[-1]:
                longest = self.lengths.get(field.name, TEXT_MAX)
                text = clipped(text, longest + len(self.rows.before[at] if self.rows.before else ""),
                               is_ascii=self.is_ascii)  # fmt: skip
                if field.name in _NAMES:
                    text += note
                self._widths[field.name] = max(self._widths[field.name], length(text))
            texts.append((text, length(text)))
        return texts


def folded(text: str, width: int, lines_max: int) -> list[Text]:
    """A text in lines, at spaces where it has them; what is left over is not shown."""
    return [Text(line) for line in textwrap.wrap(printable(text), width, max_lines=lines_max, placeholder=" ...")]


def _strip(line: _Parts, width: int, *, is_ascii: bool) -> Strip:
    """A line of exactly that width, which is told to textual, so that it need not measure it.

    What there is no room for is seen to be missing.
    """
    is_cut = length("".join(text for text, _ in line).rstrip()) > width
    sign = "" if not is_cut else "." if is_ascii else "…"
    segments, left = [], width - len(sign)
    for text, style in line:
        there = cut(text, left)
        segments.append(segment(there, style))
        left -= length(there)
    return Strip([*segments, segment(sign + " " * left, "")], width)
