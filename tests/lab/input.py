# SPDX-License-Identifier: Apache-2.0
"""A keyboard and mice that qemu plugs in and uses, or the kernel plays: what is counted is what was done.

For the lab (``make lab``).
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.ground import Ground, number
from tests.lab.outside import Outside
from tests.lab.sensed import instances, run, sensing
from tests.support import uinput
from tests.support.inputs import EV_REL, LEFT, REPORT, each_millisecond
from tests.support.waiting import wait_until

NODES = Path("/dev/input")
KEYS, CLICKS = 7, 3
FAST, FAST_S = "lab mouse of 1 kHz", 10.0


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with sensing(("input",), period_s=1) as ground:
        yield ground


@pytest.fixture
def outside() -> Iterator[Outside]:
    opened = Outside()
    yield opened
    opened.close()


def keep_awake(node: str) -> None:
    """Have a USB device stay awake: udev lets those of qemu sleep (60-autosuspend.hwdb), and then none is opened."""
    interface = next(each for each in Path(f"/sys/class/input/{node}/device").resolve().parents if ":1." in each.name)
    control, status = (interface.parent / "power" / name for name in ("control", "runtime_status"))
    print(f"{node}: {control.read_text().strip()}, {status.read_text().strip()}")
    control.write_text("on")


def plugged_in(ground: Ground, outside: Outside, kind: str) -> str:
    """Plug an input device in; its instance, once it has a row."""
    before, begin_ns = instances(ground, "input"), time.time_ns()
    nodes = set(NODES.glob("event*"))
    outside.monitor(f"device_add {kind},id={kind},bus=usb.0")
    wait_until(lambda: set(NODES.glob("event*")) - nodes)
    keep_awake((set(NODES.glob("event*")) - nodes).pop().name)

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
    ground.comes_to("input", name, lambda: {"keys": begun + KEYS, "buttons": None})  # It has none.
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


def test_mouse_of_1_khz_is_counted_exactly(ground: Ground) -> None:
    run("modprobe", "uinput")
    mouse = uinput.Device(FAST, range(LEFT, LEFT + 8), (0, 1, 6, 8))
    wait_until(lambda: ground.last("input", FAST), ground.recorder.said)
    reports = each_millisecond(lambda: mouse.send((EV_REL, 0, 3), (EV_REL, 1, -4), REPORT), FAST_S)
    print(f"{reports} reports in {FAST_S:.0f} s")
    ground.comes_to("input", FAST, lambda: {"pointer_distance": 5 * reports})
    mouse.unplug()
