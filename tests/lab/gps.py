# SPDX-License-Identifier: Apache-2.0
"""A receiver of GPS that qemu plugs in behind a serial line of USB: what it says is where the machine is.

For the lab (``make lab``).
"""

from collections.abc import Iterator
from functools import reduce
from operator import xor
from pathlib import Path

import pytest

from tests.lab.ground import Ground
from tests.lab.outside import Outside
from tests.lab.sensed import plugged, pulled, sensing
from tests.support.waiting import wait_until

DEVICE = "/dev/ttyUSB0"


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with sensing(("gps",), device=DEVICE) as ground:
        yield ground


@pytest.fixture
def outside() -> Iterator[Outside]:
    opened = Outside()
    yield opened
    opened.receive()
    opened.close()


def sentence(text: str) -> str:
    return f"${text}*{reduce(xor, text.encode(), 0):02X}"


def test_receiver_says_where_the_machine_is_while_it_is_plugged_in(ground: Ground, outside: Outside) -> None:
    outside.receive(
        sentence("GPGGA,123519.00,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,"),
        sentence("GPRMC,123519.00,A,4807.038,N,01131.000,E,022.4,084.4,230394,,,A"),
        sentence("GPGSV,3,1,11,03,03,111,00,04,15,270,00,06,01,010,00,13,06,292,00"),
    )
    add = "device_add usb-serial,chardev=receiver,id=gps,bus=usb.0"
    assert plugged(ground, "gps", lambda: outside.monitor(add), Path(DEVICE)) == DEVICE
    munich = {
        "fix": 3, "latitude": 481_173_000, "longitude": 115_166_667, "altitude": 545_400, "speed": 11_524,
        "satellites_used": 8, "satellites_seen": 11,
    }  # fmt: skip
    ground.comes_to("gps", DEVICE, lambda: munich)
    # It moves to the south and west, and loses its altitude.
    outside.receive(sentence("GPRMC,123520.00,A,3351.600,S,07038.400,W,000.0,084.4,230394,,,A"))
    moved = {"fix": 2, "latitude": -338_600_000, "longitude": -706_400_000, "altitude": None, "speed": 0}
    ground.comes_to("gps", DEVICE, lambda: moved)
    outside.receive(sentence("GPRMC,123521.00,V,,,,,,,230394,,,N"))
    ground.comes_to("gps", DEVICE, lambda: {"fix": 1, "latitude": None, "longitude": None})
    outside.receive()
    wait_until(lambda: not ground.last("gps", DEVICE))
    outside.receive(sentence("GPRMC,123522.00,A,4807.038,N,01131.000,E,022.4,084.4,230394,,,A"))
    ground.comes_to("gps", DEVICE, lambda: {"fix": 2, "latitude": 481_173_000})
    pulled(ground, "gps", DEVICE, lambda: outside.monitor("device_del gps"), Path(DEVICE))
