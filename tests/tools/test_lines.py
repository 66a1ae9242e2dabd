# SPDX-License-Identifier: Apache-2.0
"""The table of the screen spells what is seen of it, once, however many rows there are."""

import asyncio
from collections import Counter

import pytest
from textual.app import App, ComposeResult
from textual.strip import Strip

from sysmon_tools.grid import Field
from sysmon_tools.screen.lines import Lines, TableLines
from sysmon_tools.screen.question import SheetRows
from sysmon_tools.show import Text

ROWS, LINES = 1000, 20


class Shown(App[None]):
    CSS = "#line { height: 1; } #table { height: 1fr; overflow-x: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self.line, self.table = Lines("line"), TableLines("table")

    def compose(self) -> ComposeResult:
        yield from (self.line, self.table)

    def seen(self) -> list[str]:
        strips = self.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def test_a_row_is_spelled_once_and_those_that_are_not_seen_are_not() -> None:
    asked: Counter[tuple[str, int]] = Counter()

    def field(name: str) -> Field:
        def cell(row: int) -> str:
            asked[name, row] += 1
            return f"{name}{row}"

        return Field(name, cell)

    async def run() -> None:
        app = Shown()
        async with app.run_test(size=(60, LINES)) as pilot:
            for order in (range(ROWS), range(ROWS - 1, -1, -1)):
                at = app.table.at
                asked.clear()
                app.table.draw(SheetRows([field("pid"), field("comm")], order, hidden=[field("start")]))
                await pilot.pause()
                assert [f"pid{at}", f"comm{at}"] in [line.split()[:2] for line in app.seen()]
                rows = {row for name, row in asked if name == "comm"}
                assert len(rows) <= LINES
                assert all(asked["comm", row] == 1 for row in rows)
                # What is hidden only tells the row below the cursor from others, and of these the first text does.
                assert {row for name, row in asked if name == "start"} <= {order[app.table.at]}
                app.table.go(300)
                await pilot.pause()

    asyncio.run(run())


def test_lines_that_stay_are_not_drawn_again() -> None:
    async def run() -> None:
        app = Shown()
        drawn: list[int] = []
        async with app.run_test(size=(60, LINES)) as pilot:
            plain = app.line.render_line

            def counted(y: int) -> Strip:
                drawn.append(y)
                return plain(y)

            app.line.render_line = counted  # type: ignore[method-assign]
            for text, style, times in (("a", "", 1), ("a", "", 1), ("a", "dim", 2), ("b", "dim", 3)):
                app.line.draw([Text(text, style)])
                await pilot.pause()
                assert len(drawn) == times
                assert app.seen()[0] == text

    asyncio.run(run())


def test_of_a_table_only_lines_that_changed_are_drawn_again() -> None:
    async def run() -> None:
        app = Shown()
        drawn: set[int] = set()
        texts = [f"of {row}" for row in range(ROWS)]
        fields = [Field("pid", str), Field("comm", lambda row: texts[row], is_text=True)]
        async with app.run_test(size=(60, LINES)) as pilot:
            app.table.draw(SheetRows(fields, range(ROWS)))
            await pilot.pause()
            plain = app.table.render_line

            def counted(y: int) -> Strip:
                drawn.add(y)
                return plain(y)

            app.table.render_line = counted  # type: ignore[method-assign]
            # A row that is seen, one that is not, and a row less: only the scrollbar is another then.
            for row, text, rows, lines in (
                (3, "by 3", ROWS, {4}),
                (LINES, "by 20", ROWS, set()),
                (7, "by 7", ROWS - 1, {8}),
            ):
                texts[row] = text
                drawn.clear()
                app.table.draw(SheetRows(fields, range(rows)))
                await pilot.pause()
                assert drawn == lines
                seen = [line.split(maxsplit=1) for line in app.seen()[2:]]
                assert seen == [[str(at), texts[at]] for at in range(LINES - 2)]

    asyncio.run(run())


def test_what_had_room_can_be_scrolled_once_there_are_more_rows() -> None:
    async def run() -> None:
        app = Shown()
        async with app.run_test(size=(60, LINES)) as pilot:
            for rows in (3, ROWS):
                app.table.draw(SheetRows([Field("pid", str)], range(rows)))
                await pilot.pause()
            app.table.go(ROWS - 1)
            await pilot.pause()
            assert app.seen()[-1].split() == [str(ROWS - 1)]

    asyncio.run(run())


def test_where_rows_go_the_table_does_not_end_in_the_middle() -> None:
    """Who looks at the last row sees as many above it as there is room for, wherever that row comes to be."""

    def rows(order: range) -> SheetRows:
        return SheetRows([Field("pid", lambda row: f"pid{row}"), Field("comm", lambda row: f"comm{row}")], order)

    async def run() -> None:
        app = Shown()
        async with app.run_test(size=(60, LINES)) as pilot:
            seen = LINES - 2  # Without the line above, and the heading.
            app.table.draw(rows(range(ROWS)))
            await pilot.pause()
            app.table.go(ROWS - 1)
            await pilot.pause()
            # Those from here on go, the row below the cursor goes up; and the rest turns round.
            for order in (range(ROWS - 5), range(100, ROWS - 20), range(50, ROWS - 40), range(ROWS - 41, 49, -1)):
                app.table.draw(rows(order))
                await pilot.pause()
                listed = [line.split()[0] for line in app.seen() if line.startswith("pid") and line.split()[0] != "pid"]
                assert len(listed) == seen
                assert f"pid{order[app.table.at]}" in listed
            await pilot.resize_terminal(60, 10)
            await pilot.pause()
            assert any(f"pid{order[app.table.at]} " in line for line in app.seen())

    asyncio.run(run())


@pytest.mark.parametrize(("is_ascii", "sign"), [(False, "…"), (True, ".")])
def test_a_line_that_is_wider_than_the_screen_says_so(is_ascii: bool, sign: str) -> None:
    async def run() -> None:
        app = Shown()
        app.table.is_ascii = is_ascii
        async with app.run_test(size=(60, LINES)) as pilot:
            texts = ["x" * 55, "x" * 56, "日" * 28, "short"]
            app.table.draw(
                SheetRows([Field("n", str), Field("command", lambda row: texts[row], is_text=True)], range(4))
            )
            await pilot.pause()
            assert app.seen()[1:6] == [
                "n  command",
                f"0  {'x' * 55}",
                f"1  {'x' * 56}",
                f"2  {'日' * 28}",
                "3  short",
            ]
            texts[0], texts[2] = "x" * 58, "日" * 29
            app.table.draw(app.table.rows)
            await pilot.pause()
            assert app.seen()[2] == f"0  {'x' * 56}{sign}"
            assert app.seen()[4] == f"2  {'日' * 28}{sign}"
            app.table.draw(SheetRows([Field("n" * 61, str)], range(4)))
            await pilot.pause()
            assert app.seen()[1] == "n" * 59 + sign

    asyncio.run(run())
