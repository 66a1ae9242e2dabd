# SPDX-License-Identifier: Apache-2.0
"""What belongs together is one event, however far apart its parts are announced; what does not is more than one."""

from collections.abc import Iterable

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.sampler.device_groups import (
    ADDED,
    DEVICES_LISTED_MAX,
    GONE_QUIET_NS,
    HOLD_NS,
    QUIET_NS,
    REMOVED,
    STORM,
    WAITING_MAX,
    Announced,
    DeviceChange,
    DeviceGroups,
)

ROOT = "/devices/pci0000:00/0000:00:14.0/usb1"
HUB = f"{ROOT}/1-4"
ONE, TWO = f"{HUB}/1-4.1", f"{HUB}/1-4.2"
# As Linux 6.12 announces a keyboard that comes; when it goes, the other way round. Pauses lie between the lines.
KEYBOARD = (
    ("usb", "1-5"),
    ("usb", "1-5/1-5:1.0"),
    ("input", "1-5/1-5:1.0/0003:0627:0001.0002/input/input5"),
    ("input", "1-5/1-5:1.0/0003:0627:0001.0002/input/input5/event4"),
)


class Machine:
    """Its devices, its clock, and what was told of them."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.groups = DeviceGroups(lambda path: path not in self.gone)
        self.now_ns = 100 * SECOND_NS
        self.told: list[DeviceChange] = []

    def announce(self, kind: str, path: str, subsystem: str = "usb") -> None:
        """Have the kernel announce a device."""
        self.groups.add([Announced(subsystem, kind, path.rpartition("/")[2], path=path)], self.now_ns)

    def passes(self, length_ns: int) -> None:
        """Let time pass, as the lane does: it looks when it is time to."""
        until_ns = self.now_ns + length_ns
        while (due_ns := self.groups.due_ns()) and due_ns <= until_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.told += self.groups.over(self.now_ns)
        self.now_ns = until_ns
        self.told += self.groups.over(self.now_ns)

    def says(self) -> list[tuple[str, str, str]]:
        """All that was told once everything is over."""
        self.passes(2 * HOLD_NS)
        assert not self.groups.due_ns()
        return [event[1:] for event in self.told]


@pytest.fixture
def machine() -> Machine:
    return Machine()


def seconds(events: Iterable[DeviceChange]) -> list[float]:
    return [event.at_ns / SECOND_NS for event in events]


@pytest.mark.parametrize("pause_ns", [0, SECOND_NS // 2, QUIET_NS - 1])
def test_a_keyboard_is_one_event_at_the_time_of_the_first_part(machine: Machine, pause_ns: int) -> None:
    for subsystem, path in KEYBOARD:
        machine.announce(ADDED, f"{ROOT}/{path}", subsystem)
        machine.passes(pause_ns)
    assert machine.says() == [(ADDED, "usb/1-5", "with usb/1-5:1.0, input/input5, input/event4")]
    machine.told.clear()
    machine.now_ns = 1000 * SECOND_NS
    for subsystem, path in reversed(KEYBOARD):
        machine.announce(REMOVED, f"{ROOT}/{path}", subsystem)
        machine.passes(pause_ns)
    assert machine.says() == [(REMOVED, "usb/1-5", "with usb/1-5:1.0, input/input5, input/event4")]
    assert seconds(machine.told) == [1000.0]


def test_siblings_that_go_one_after_the_other_are_two_events(machine: Machine) -> None:
    for path in (f"{ONE}/1-4.1:1.0", ONE, f"{TWO}/1-4.2:1.0", TWO):
        machine.announce(REMOVED, path)
        machine.passes(SECOND_NS)
    assert machine.says() == [
        (REMOVED, "usb/1-4.1", "with usb/1-4.1:1.0"),
        (REMOVED, "usb/1-4.2", "with usb/1-4.2:1.0"),
    ]
    assert seconds(machine.told) == [100.0, 102.0]


def test_a_hub_with_what_hangs_on_it_is_one_event(machine: Machine) -> None:
    for path in (f"{ONE}/1-4.1:1.0", ONE, f"{TWO}/1-4.2:1.0", TWO, f"{HUB}/1-4:1.0", HUB):
        machine.announce(REMOVED, path)
        machine.passes(SECOND_NS)
    ((kind, subject, text),) = machine.says()
    assert (kind, subject) == (REMOVED, "usb/1-4")
    assert set(text.removeprefix("with ").split(", ")) == {
        f"usb/{name}" for name in ("1-4.1", "1-4.1:1.0", "1-4.2", "1-4.2:1.0", "1-4:1.0")
    }
    assert seconds(machine.told) == [100.0]


def test_what_went_waits_longer_where_it_went_with_more(machine: Machine) -> None:
    machine.announce(REMOVED, f"{ONE}/1-4.1:1.0/input/input5", "input")
    machine.gone.add(f"{ONE}/1-4.1:1.0/input")  # The folder of its kind goes with the last in it.
    machine.passes(QUIET_NS)
    assert [event.subject for event in machine.told] == ["input/input5"]
    machine.announce(REMOVED, f"{TWO}/1-4.2:1.0/input/input6", "input")
    machine.gone |= {f"{TWO}/1-4.2:1.0/input", f"{TWO}/1-4.2:1.0", TWO}
    machine.passes(GONE_QUIET_NS - 1)
    machine.announce(REMOVED, TWO)
    assert machine.says()[1:] == [(REMOVED, "usb/1-4.2", "with input/input6")]


def test_what_is_never_announced_is_not_waited_for_without_end(machine: Machine) -> None:
    machine.gone.add(ONE)
    machine.announce(REMOVED, f"{ONE}/1-4.1:1.0")
    machine.passes(GONE_QUIET_NS)
    assert [event.subject for event in machine.told] == ["usb/1-4.1:1.0"]
    machine.announce(ADDED, TWO)
    for number in range(20):
        machine.passes(SECOND_NS)
        machine.announce(ADDED, f"{TWO}/{number}")
    assert machine.told[1].text.endswith(", 1 more")
    assert machine.told[1][:3] == (105 * SECOND_NS, ADDED, "usb/1-4.2")


def test_a_late_part_belongs_to_what_came_and_a_later_one_does_not(machine: Machine) -> None:
    machine.announce(ADDED, ONE)
    machine.passes(QUIET_NS - 1)
    machine.announce(ADDED, f"{ONE}/late")
    machine.passes(QUIET_NS)
    machine.announce(ADDED, f"{ONE}/later")
    assert machine.says() == [(ADDED, "usb/1-4.1", "with usb/late"), (ADDED, "usb/later", "")]


def test_what_comes_and_goes_and_comes_is_three_events_in_their_order(machine: Machine) -> None:
    for kind in (ADDED, REMOVED, ADDED, ADDED):
        machine.announce(kind, f"{ONE}")
        machine.announce(kind, f"{ONE}/part")
    assert [kind for kind, subject, _ in machine.says() if subject == "usb/1-4.1"] == [ADDED, REMOVED, ADDED, ADDED]


def test_names_that_begin_alike_are_no_parts(machine: Machine) -> None:
    for path in (f"{HUB}0", HUB, f"{HUB}00"):
        machine.announce(REMOVED, path)
    assert machine.says() == [(REMOVED, f"usb/{name}", "") for name in ("1-40", "1-4", "1-400")]


def test_many_at_once_are_their_number_and_a_storm_holds_no_more_than_it_may(machine: Machine) -> None:
    for number in range(DEVICES_LISTED_MAX + 1):
        machine.announce(ADDED, f"{ROOT}/{number}", "block")
    assert machine.says() == [(STORM, "block", f"{DEVICES_LISTED_MAX + 1} events")]
    devices = [Announced("block", ADDED, "sda", number, "/devices/sda") for number in range(1000)]
    for _ in range(3):
        machine.groups.add(devices, machine.now_ns)
        assert len(machine.groups._groups) <= WAITING_MAX
        assert [event.text for event in machine.groups.over(machine.now_ns)] == ["1000 events"]
    machine.groups.add(devices[:3], machine.now_ns)
    (lossy,) = machine.groups.over(machine.now_ns, 5)
    assert lossy.text == "3 events; 5 more, of whatever devices, were lost"
    assert not machine.groups.due_ns()


def test_what_waits_at_the_end_is_told(machine: Machine) -> None:
    machine.announce(ADDED, ONE)
    assert [event[1:] for event in machine.groups.rest()] == [(ADDED, "usb/1-4.1", "")]
    assert machine.groups.rest() == []
