# SPDX-License-Identifier: Apache-2.0
"""The table ``kernel_message``: counts by level, trouble by its kind, and nothing told twice."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sysmond_probes import kernel_message

from sysmond.base.model import ABSENT, check_table
from sysmond.probe import EVENTS_MAX, Host, HostEvent, Sensitivity
from sysmond.sources import kmsg
from tests.support.waiting import wait_until


class Kernel:
    """A pipe in the place of /dev/kmsg, and a reader of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "dev").mkdir(parents=True)
        (root / "lane").mkdir()
        os.mkfifo(root / "dev/kmsg")
        self._holds = os.open(root / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
        self._number = 0
        self.begin()

    def begin(self) -> None:
        """Read anew, as a lane that was started again."""
        self.host = Host(str(self.root))
        self.host.folder = str(self.root / "lane")
        self.messages = kmsg.KernelMessages()

    def says(self, text: str, level: int = 6, *, facility: int = 0, ago_s: float = 0.0, skips: int = 0) -> None:
        self._number += skips
        time_us = round((time.clock_gettime(time.CLOCK_MONOTONIC) - ago_s) * 1e6)
        record = f"{facility << 3 | level},{self._number},{time_us},-;{text}\n DEVICE=+pci:0\n"
        os.write(self._holds, record.encode("utf-8", "surrogateescape"))
        self._number += 1

    def read(self) -> dict[str, int]:
        [(_, row)] = self.messages.read(self.host)
        names = [metric.name for metric in kernel_message.KERNEL_MESSAGE.metrics]
        return dict(zip(names, map(int, row), strict=True))

    def told(self) -> list[HostEvent]:
        self.read()
        return self.host.take_events()

    def close(self) -> None:
        self.host.close()
        os.close(self._holds)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    made = Kernel(tmp_path)
    yield made
    made.close()


def test_the_table_is_well_formed_and_restricted() -> None:
    [probe] = kernel_message.sysmond_probes()
    check_table(probe.table)
    assert probe.sensitivity is Sensitivity.RESTRICTED


def test_messages_are_counted_by_level_and_those_that_were_overwritten_as_missed(kernel: Kernel) -> None:
    kernel.says("one", 6)
    kernel.says("two", 4)
    kernel.says("three", 6, skips=5)
    row = kernel.read()
    assert (row["infos"], row["warnings"], row["missed"]) == (2, 1, 5)
    kernel.says("four", 3)
    assert kernel.read()["errors"] == 1


@pytest.mark.parametrize(
    ("text", "kind", "subject"),
    [
        ("Out of memory: Killed process 1234 (chrome) total-vm:9kB, anon-rss:5kB", "oom kill", "chrome"),
        ("Memory cgroup out of memory: Killed process 9 (a (b)) total-vm:9kB", "oom kill", "a (b"),
        ("INFO: task jbd2/sda1-8:250 blocked for more than 120 seconds.", "hung task", "jbd2/sda1-8"),
        ("watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [x:1]", "lockup", ""),
        ("mce: [Hardware Error]: Machine check events logged", "machine check", ""),
        ("EXT4-fs error (device sda1): ext4_lookup:1855: inode #2", "file system error", "sda1"),
        ("EXT4-fs (sda1): Remounting filesystem read-only", "file system error", "sda1"),
        ("XFS (dm-0): Metadata corruption detected at x", "file system error", "dm-0"),
        ("I/O error, dev sdb, sector 0 op 0x0:(READ)", "disk error", "sdb"),
        ("blk_update_request: critical medium error, dev sda, sector 5", "disk error", "sda"),
        ("nvme nvme0: I/O 5 QID 2 timeout, aborting", "disk error", "nvme0"),
        ("ata3: hard resetting link", "disk error", "ata3"),
        ("CPU3: Package temperature above threshold, cpu clock throttled", "overheated", "CPU3"),
        ("foo[123]: segfault at 0 ip 00 sp 00 error 4 in foo[1000]", "crash", "foo"),
    ],
)
def test_trouble_is_told_by_its_kind_whatever_its_level(kernel: Kernel, text: str, kind: str, subject: str) -> None:
    kernel.says(text, 6)
    assert kernel.told() == [HostEvent(kind, subject, text)]


@pytest.mark.parametrize("text", ["EXT4-fs (sda1): mounted filesystem r/w", "usb 1-1: new device", ""])
def test_what_is_usual_is_none(kernel: Kernel, text: str) -> None:
    kernel.says(text, 6)
    assert kernel.told() == []


def test_warnings_of_the_kernel_are_told_and_those_of_programs_are_not(kernel: Kernel) -> None:
    kernel.says("something odd", 4)
    kernel.says("Out of memory: Killed process 1 (me) by a joker", 3, facility=1)
    assert kernel.told() == [HostEvent("kernel message", "", "something odd")]


def test_a_flood_is_one_event_with_its_number_and_hides_no_trouble(kernel: Kernel) -> None:
    for number in range(100):
        kernel.says(f"warning {number}", 4)
    kernel.says("I/O error, dev sdb, sector 0", 3)
    found = kernel.told()
    assert [event.kind for event in found] == ["disk error", "kernel message"]
    assert found[1].text == "100 warnings or worse at once, as: warning 99"
    for number in range(3 * EVENTS_MAX):
        kernel.says(f"I/O error, dev sd{number}", 3)
    *told, over = kernel.told()
    assert len(told) == EVENTS_MAX
    last = f"sd{3 * EVENTS_MAX - 1}"
    assert over == HostEvent("disk error", last, f"{2 * EVENTS_MAX} more at once, the last: I/O error, dev {last}")


def test_what_many_old_ones_say_has_the_time_of_the_last_of_them(kernel: Kernel) -> None:
    ago_s = min(3600.0, time.clock_gettime(time.CLOCK_MONOTONIC) / 2)  # Since the machine started.
    for number in range(2 * EVENTS_MAX):
        kernel.says(f"I/O error, dev sd{number}", 3, ago_s=ago_s)
    for number in range(100):
        kernel.says(f"warning {number}", 4, ago_s=ago_s)
    assert {event.known_from for event in kernel.told()} == {"kernel messages"}


def test_what_was_there_before_is_told_with_its_own_time(kernel: Kernel) -> None:
    ago_s = min(3600.0, time.clock_gettime(time.CLOCK_MONOTONIC) / 2)  # Since the machine started.
    kernel.says("I/O error, dev sdb, sector 0", 3, ago_s=ago_s)
    [event] = kernel.told()
    assert event.known_from == "kernel messages"
    assert abs(time.time() - ago_s - event.happened_ns / 1e9) < ago_s / 6
    kernel.says("I/O error, dev sdc, sector 0", 3)
    [event] = kernel.told()
    assert (event.known_from, event.happened_ns) == ("", ABSENT)


def test_a_reader_that_is_started_again_tells_nothing_twice(kernel: Kernel) -> None:
    kernel.says("I/O error, dev sdb, sector 0", 3)
    assert len(kernel.told()) == 1
    kernel.host.close()
    kernel.begin()
    kernel._number = 0  # The kernel gives the same messages again.
    kernel.says("I/O error, dev sdb, sector 0", 3)
    kernel.says("I/O error, dev sdc, sector 0", 3)
    assert [event.subject for event in kernel.told()] == ["sdc"]
    assert kernel.read()["errors"] == 2


@pytest.mark.parametrize(
    "record",
    [b"", b"\n", b";", b"x,y,z;a", b"6;a", b"6,1;a", b"\xff\xfe,1,2,-;a", b"6,-1,2,-;a", b" SUBSYSTEM=pci", b"\0"],
)
def test_what_is_no_record_is_passed_over(record: bytes) -> None:
    assert kmsg.parse(record) is None


def test_hostile_texts_are_kept_as_texts(kernel: Kernel) -> None:
    message = kmsg.parse(b"3,7,5,-;\xff\x1b]0;owned\x07 I/O error, dev s\xffda" + b"x" * 5000)
    assert message is not None
    assert len(message.text) <= kmsg.TEXT_LENGTH_MAX
    assert message.text.startswith("\\xff")


def test_a_machine_without_it_has_no_table(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        list(kmsg.KernelMessages().read(host))
    host.close()


@pytest.mark.skipif(os.geteuid() != 0 or not os.access("/dev/kmsg", os.W_OK), reason="needs root and /dev/kmsg")
def test_the_kernel_of_this_machine_wakes_and_is_counted() -> None:
    host, messages = Host(), kmsg.KernelMessages()

    def warnings() -> int:
        [(_, row)] = messages.read(host)
        return int(row[4])

    before = warnings()
    assert host.wakes is not None
    Path("/dev/kmsg").write_bytes(b"<4>sysmond: a line of its tests\n")
    assert host.wakes.poll(10.0)
    wait_until(lambda: warnings() > before)
    host.close()
