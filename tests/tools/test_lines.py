# SPDX-License-Identifier: Apache-2.0
"""The table of the screen spells what is seen of it, once, however many rows there are."""

import asyncio
from collections import Counter

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
                # To find again the row below the cursor, no more is spelled of others than that they are not it.
                assert {row for name, row in asked if name == "start"} == rows
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
