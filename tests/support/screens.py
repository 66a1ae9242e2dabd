# SPDX-License-Identifier: Apache-2.0
"""The screen of sysmon without a terminal: keys in, what is seen out; as a program it draws the README's picture."""

import argparse
import asyncio
import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from textual.pilot import Pilot

from sysmon_tools.moment import View
from sysmon_tools.screen.app import SysmonApp
from sysmon_tools.screen.look import Look
from sysmond.base.clock import SECOND_NS
from sysmond.base.terminal import put
from sysmond.history import Archive
from tests.support.stall import STALL_NS, stuck
from tests.support.waiting import HANG_S

STEP_S = 0.02
PICTURE = Path(__file__).parents[2] / "docs/screen.svg"
PICTURE_SIZE = (112, 26)
# Ten minutes after what it was that stuttered.
NOW_NS = STALL_NS + 600 * SECOND_NS


def seen(app: SysmonApp) -> str:
    """All lines of the screen."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


async def settled(pilot: Pilot[None]) -> None:
    """Wait until what is looked at is answered, and drawn."""
    app = pilot.app
    assert isinstance(app, SysmonApp)
    async with asyncio.timeout(HANG_S):
        while app._page is None or app._wanted.is_set() or app._page.look != app._look:
            await pilot.pause(STEP_S)
    await pilot.pause()


def after(archive: Archive, look: Look, keys: Sequence[str], size: tuple[int, int] = (100, 30)) -> str:
    """What is seen after these keys; one that begins with a space is a text that is typed, and Enter."""
    return each_after(archive, look, keys, size)[-1]


def each_after(archive: Archive, look: Look, keys: Sequence[str], size: tuple[int, int]) -> list[str]:
    """What is seen at first, and after each of these keys."""

    async def run() -> list[str]:
        app = SysmonApp(archive, look, argparse.Namespace(), now=lambda: NOW_NS)
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            shown = [seen(app)]
            for key in keys:
                await pilot.press(*([*key[1:], "enter"] if key.startswith(" ") else [key]))
                await settled(pilot)
                shown.append(seen(app))
            return shown

    return asyncio.run(run())


def picture(folder: Path) -> str:
    """The screen of the README as SVG, which loads nothing from elsewhere; the archive is made in a folder."""

    async def run() -> str:
        app = SysmonApp(Archive(stuck(folder, "")), Look(View(STALL_NS)), argparse.Namespace(), now=lambda: NOW_NS)
        async with app.run_test(size=PICTURE_SIZE) as pilot:
            await settled(pilot)
            await pilot.press("D")
            await settled(pilot)
            return app.export_screenshot(title="sysmon", simplify=True)

    drawn = re.sub(r"@font-face \{.*?\}", "", asyncio.run(run()), flags=re.DOTALL)
    return re.sub(r"terminal-\d+", "screen", drawn)


if __name__ == "__main__":
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory() as made:
        PICTURE.write_text(picture(Path(made)), encoding="utf-8")
    put(f"{PICTURE}: drawn anew")
