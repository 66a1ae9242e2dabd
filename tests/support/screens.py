# SPDX-License-Identifier: Apache-2.0
"""The screen of sysmon without a terminal: keys in, what is seen out."""

import argparse
import asyncio
from collections.abc import Sequence

from textual.pilot import Pilot

from sysmon_tools.screen.app import SysmonApp
from sysmon_tools.screen.look import Look
from sysmond.history import Archive
from tests.support.waiting import HANG_S

STEP_S = 0.02


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
        app = SysmonApp(archive, look, argparse.Namespace())
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            shown = [seen(app)]
            for key in keys:
                await pilot.press(*([*key[1:], "enter"] if key.startswith(" ") else [key]))
                await settled(pilot)
                shown.append(seen(app))
            return shown

    return asyncio.run(run())
