# SPDX-License-Identifier: Apache-2.0
"""Two widgets for any program of textual: ``Lines`` of text, and ``TableLines``, a table of any length.

They get lines and fields, and know no archive. A table spells only the rows that are seen: ten thousand scroll as ten.
"""

from collections.abc import Callable, Mapping, Sequence

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from sysmon_tools.grid import Field, clipped, length
from sysmon_tools.screen.question import SheetRows
from sysmon_tools.show import Text
from sysmond.base.terminal import printable

# A text is cut to that, but for the last column, which has the rest of the line.
TEXT_MAX = 24
_BETWEEN = "  "
_TREE_COLUMNS = ("comm", "instance")
# What a row is about stands in one of these; behind it what is to be noted of that.
_NAMES = ("comm", "instance", "unit", "user_unit")


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
        """Show these lines."""
        self._lines = lines
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Give a line, as wide as there is room."""
        line = self._lines[y] if y < len(self._lines) else Text()
        return _strip(line, self)

    def on_click(self, event: events.Click) -> None:
        """Tell where."""
        self.post_message(self.Pointed(self, event.x, event.y))


class TableLines(ScrollView, can_focus=False):
    """Rows below a heading, of which only those that are seen are spelled, however many there are.

    The cursor stays with its row when the rows change, as far as the texts of ``stays`` tell it.
    """

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
        self._head = 1 + any(field.unit for field in rows.fields)
        names = tuple(field.name for field in rows.fields)
        if bool(rows.before) != self._is_tree:
            self._is_tree, self._widths = bool(rows.before), {}
        if names != self._names:
            self._names, self._widths, self._left, self.at = names, {}, 0, 0
        elif before and self._is_following:
            self.at = next((at for at in range(len(rows.order)) if self._meaning(at) == before), self.at)
        self.at = max(0, min(self.at, len(rows.order) - 1))
        for number in range(self.scroll_offset.y, min(self.scroll_offset.y + self.page_rows(), len(rows.order))):
            self._row(number)  # So that the heading is as wide as what is below it.
        self.virtual_size = Size(self.size.width, len(rows.order) + self._head)
        self._is_following = True
        self._follow()
        self.refresh()

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
        self.refresh()

    def aside(self, count: int) -> None:
        """Leave out so many more columns behind the first, or fewer."""
        self._left = max(0, min(self._left + count, len(self.rows.fields) - 2))
        self.refresh()

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
        self.refresh()
        return False

    def page_rows(self) -> int:
        """How many rows are seen at once."""
        return max(1, self.size.height - self._head)

    def cells(self) -> dict[str, str | None]:
        """The texts of the row below the cursor, by the names of columns; nothing where there is no row."""
        return self.rows.cells(self.at) if self.rows.order else {}

    def started_ns(self) -> int:
        """When what the row below the cursor is about began; 0 where that is not known."""
        return self.rows.started_ns(self.at) if self.rows.order else 0

    def render_line(self, y: int) -> Strip:
        """Give a line of the heading, or a row."""
        if y < self._head:
            return _strip(self._heading(y), self)
        at = self.scroll_offset.y + y - self._head
        return _strip(self._row(at) if at < len(self.rows.order) else Text(), self)

    def on_click(self, event: events.Click) -> None:
        """Choose a column by its heading, or a row; twice goes into it."""
        if event.y < self._head:
            end = 0
            for field in self._shown():
                end += self._width(field) + len(_BETWEEN)
                if event.x < end:
                    self.post_message(self.Chosen(field.name))
                    return
            return
        self.go(self.scroll_offset.y + event.y - self._head)
        if event.chain > 1:
            self.post_message(self.Chosen())

    def _meaning(self, at: int | None = None) -> tuple[str | None, ...]:
        if not self.rows.order:
            return ()
        cells = self.rows.cells(self.at if at is None else at)
        return tuple(cells[name] for name in self._stays if name in cells)

    def _follow(self) -> None:
        """Scroll to where the cursor is seen."""
        top, seen = self.scroll_offset.y, self.page_rows()
        if self.at < top:
            self.scroll_to(y=self.at, animate=False)
        elif self.at >= top + seen:
            self.scroll_to(y=self.at - seen + 1, animate=False)

    def _shown(self) -> Sequence[Field]:
        fields = self.rows.fields
        return [*fields[:1], *fields[1 + self._left :]]

    def _has(self, at: int) -> bool:
        row = self.rows.order[at]
        return any(self.searched in (field.cell(row) or "").casefold() for field in self.rows.fields)

    def _width(self, field: Field) -> int:
        return max(self._widths.get(field.name, 0), len(field.name), len(field.unit))

    def _heading(self, y: int) -> Text:
        parts: list[tuple[str, str]] = []
        for field in self._shown():
            text = field.unit if y else field.name
            width = self._width(field)
            padded = text.ljust(width) if field.is_text else text.rjust(width)
            parts += [(padded, "bold reverse" if field.name == self.rows.by and not y else "bold"), (_BETWEEN, "")]
        return Text.assemble(*parts)

    def _row(self, at: int) -> Text:
        row = self.rows.order[at]
        shown = self._shown()
        cells = []
        note = self.note(self.rows.cells(at)) if self.note else ""
        for field in shown:
            text = printable(field.cell(row) or "–" if field.is_text else field.cell(row) or "-")
            if self.rows.before and field.name in _TREE_COLUMNS:
                text = self.rows.before[at] + text
            if field is not shown[-1]:
                longest = self.lengths.get(field.name, TEXT_MAX)
                text = clipped(text, longest + len(self.rows.before[at] if self.rows.before else ""),
                               is_ascii=self.is_ascii)  # fmt: skip
                if field.name in _NAMES:
                    text += note
                self._widths[field.name] = max(self._widths.get(field.name, 0), length(text))
            spaces = " " * max(0, self._width(field) - length(text))
            cells.append(text + spaces if field.is_text else spaces + text)
        line = Text(_BETWEEN.join(cells), "reverse" if at == self.at else "")
        if self.searched and at != self.at and self._has(at):
            line.stylize("yellow")
        return line


def _strip(line: Text, widget: Widget) -> Strip:
    made = Strip(list(line.render(widget.app.console))).simplify()
    return made.adjust_cell_length(widget.size.width)
