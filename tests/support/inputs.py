# SPDX-License-Identifier: Apache-2.0
"""Input devices below a folder: what sysfs says of them, and pipes through which events come as the kernel writes them.

A pipe has no ioctls, so whoever reads them has ``evdev.mask`` do nothing; real devices are for the lab.
"""

import os
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from struct import calcsize, pack

EVENT = "@LLHHi"
EVENT_BYTES = calcsize(EVENT)
# A pipe gives what is written at once as a whole; more of it may end amid an event, as no device does.
AT_ONCE_BYTES = select.PIPE_BUF // EVENT_BYTES * EVENT_BYTES
EV_SYN, EV_KEY, EV_REL, EV_ABS = range(4)
REPORT = (EV_SYN, 0, 0)
DROPPED = (EV_SYN, 3, 0)
TOUCH = 0x14A
LEFT = 0x110
# The capabilities that the kernel prints of a usual keyboard, mouse, touchpad, tablet and joystick, on 64 bits.
CAPABILITIES = {
    "keyboard": {"ev": "120013", "key": "402000000 3803078f800d001 feffffdfffefffff fffffffffffffffe", "rel": "0"},
    "mouse": {"ev": "17", "key": "ffff0000 0 0 0 0", "rel": "1943"},
    "touchpad": {"ev": "b", "key": "e520 10000 0 0 0 0", "abs": "260800000000003"},
    "tablet": {"ev": "1f", "key": "70000 0 0 0 0", "rel": "100", "abs": "3"},
    "joystick": {"ev": "1b", "key": "ffff00000000 0 0 0 0", "abs": "30027"},
    "lid": {"ev": "21"},
}
Event = tuple[int, int, int]


class Inputs:
    """The devices of a machine below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pipes: dict[str, int] = {}
        (root / "dev/input").mkdir(parents=True)
        (root / "sys/class/input").mkdir(parents=True)

    def plug(self, node: str, kind: str, name: str = "", phys: str = "") -> None:
        """Add a device of a kind."""
        device = self.root / "sys/class/input" / node / "device"
        (device / "capabilities").mkdir(parents=True)
        for each in ("ev", "key", "rel", "abs"):
            (device / "capabilities" / each).write_text(CAPABILITIES[kind].get(each, "0") + "\n")
        (device / "name").write_text((name or kind) + "\n")
        (device / "phys").write_text(phys + "\n")
        os.mkfifo(self.root / "dev/input" / node)

    def unplug(self, node: str) -> None:
        """Take a device away."""
        (self.root / "dev/input" / node).unlink()
        (self.root / "sys/class/input" / node).rename(self.root / f"was-{node}")
        self.hang_up(node)

    def send(self, node: str, *events: Event, at_us: int = 0) -> bytes:
        """Have a device that is listened to say something; gives its bytes."""
        if node not in self._pipes:
            self._pipes[node] = os.open(
                self.root / "dev/input" / node, os.O_WRONLY | os.O_NONBLOCK
            )  # Not where nobody listens.
            os.set_blocking(self._pipes[node], True)
        told = b"".join(pack(EVENT, at_us // 1_000_000, at_us % 1_000_000, *event) for event in events)
        for at in range(0, len(told), AT_ONCE_BYTES):
            os.write(self._pipes[node], told[at : at + AT_ONCE_BYTES])
        return told

    def hang_up(self, node: str) -> None:
        """Have it gone for who listens."""
        if node in self._pipes:
            os.close(self._pipes.pop(node))

    def close(self) -> None:
        """Let go of all."""
        for node in list(self._pipes):
            self.hang_up(node)


def pressed(*codes: int) -> Iterable[Event]:
    """Keys pressed and let go, one after the other."""
    for code in codes:
        yield from ((EV_KEY, code, 1), REPORT, (EV_KEY, code, 0), REPORT)


def each_millisecond(report: Callable[[], object], seconds: float) -> int:
    """Report as a mouse of 1 kHz does, for so long; how often. What comes too late is left out, and not made up for."""
    next_s = time.monotonic()
    end_s, reports = next_s + seconds, 0
    while next_s < end_s:
        report()
        reports += 1
        now_s = time.monotonic()
        next_s = max(next_s + 0.001, now_s)
        time.sleep(next_s - now_s)
    return reports
