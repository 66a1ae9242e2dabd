# SPDX-License-Identifier: Apache-2.0
"""A keyboard and a mouse that qemu plugs in and uses: what is counted is what was done.

For the lab (``make lab``).
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.ground import Ground, number
from tests.lab.outside import Outside
from tests.lab.sensed import instances, sensing
from tests.support.waiting import wait_until

NODES = Path("/dev/input")
KEYS, CLICKS = 7, 3


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with sensing(("input",), period_s=1) as ground:
        yield ground


@pytest.fixture
def outside() -> Iterator[Outside]:
    opened = Outside()
    yield opened
    opened.close()


def plugged_in(ground: Ground, outside: Outside, kind: str) -> str:
    """Plug an input device in; its instance, once it has a row."""
    before, begin_ns = instances(ground, "input"), time.time_ns()
    nodes = set(NODES.glob("event*"))
    outside.monitor(f"device_add {kind},id={kind},bus=usb.0")
    wait_until(lambda: set(NODES.glob("event*")) - nodes)

    def new() -> set[str]:
        """There is a keyboard of the machine's own, too."""
        return {name for name in instances(ground, "input", begin_ns) - before if "USB" in name}

    wait_until(new, ground.recorder.said)
    return min(new())


def test_keys_that_are_pressed_are_counted(ground: Ground, outside: Outside) -> None:
    name = plugged_in(ground, outside, "usb-kbd")
    begun = number(ground.last("input", name)["keys"])
    for _ in range(KEYS):
        outside.monitor("sendkey a")
        time.sleep(0.3)  # It is held for a tenth of a second.
    ground.comes_to("input", name, lambda: {"keys": begun + KEYS, "buttons": 0})
    outside.monitor("device_del usb-kbd")


def test_clicks_and_ways_of_a_mouse_are_counted(ground: Ground, outside: Outside) -> None:
    name = plugged_in(ground, outside, "usb-mouse")
    cells = ground.last("input", name)
    clicks, way = number(cells["buttons"]), number(cells["pointer_distance"])
    for _ in range(CLICKS):
        for order in ("mouse_button 1", "mouse_button 0", "mouse_move 30 0"):
            outside.monitor(order)
            time.sleep(0.3)
    ground.comes_to("input", name, lambda: {"buttons": clicks + CLICKS, "pointer_distance": way + 30 * CLICKS})
    outside.monitor("device_del usb-mouse")
