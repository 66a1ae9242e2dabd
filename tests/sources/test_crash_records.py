# SPDX-License-Identifier: Apache-2.0
"""Crash records and watchdogs: how the boot before ended is told once a boot, whatever a dying kernel wrote."""

import os
import time
from pathlib import Path

import pytest
from sysmond_probes import last_boot as probe

from sysmond.base.model import Lane, Sensitivity, check_table
from sysmond.probe import ABSENT, Host, HostEvent
from sysmond.sources import crash_records
from sysmond.sources.crash_records import CrashRecords, cause_of, parse, watchdogs

LINE = "Kernel panic - not syncing: Fatal exception in interrupt"
RECORD = f"Panic#2 Part1\n<4>[  99.1] Call Trace:\n<0>[  99.2] {LINE}\n<0>[  99.3] Kernel Offset: disabled\n".encode()
OOPS = b"Oops#1 Part1\n<1>[   12.0] BUG: kernel NULL pointer dereference\n"
AN_HOUR_NS, SECOND_NS = 3600 * 10**9, 10**9


@pytest.fixture
def host(tmp_path: Path) -> Host:
    root, lane = tmp_path / "root", tmp_path / "lane"
    (root / "sys/fs/pstore").mkdir(parents=True)
    lane.mkdir()
    made = Host(str(root))
    made.folder = str(lane)
    return made


def booted_ns() -> int:
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def leave(host: Host, path: str, content: bytes, written_ns: int) -> None:
    """A record, as a kernel of before left it."""
    file = Path(f"{host.root}/{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    os.utime(file, ns=(written_ns, written_ns))


def read(host: Host, records: CrashRecords | None = None) -> tuple[int, list[HostEvent]]:
    [(_, (count,))] = (records or CrashRecords()).read(host)
    return int(count), host.take_events()


def test_the_tables_are_in_the_background_and_records_are_restricted() -> None:
    offered = {one.table.name: one for one in probe.sysmond_probes()}
    for one in offered.values():
        check_table(one.table)
        assert one.lane == Lane.BACKGROUND
    assert offered["pstore"].sensitivity == Sensitivity.RESTRICTED
    assert offered["watchdog"].sensitivity == Sensitivity.PUBLIC


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (RECORD, LINE),
        (b"====1700000000.123456-D\nPanic#1 Part1\n<4>[ 1.0] nothing of it is left", "Kernel panic"),
        (OOPS, ""),
        (b"", ""),
        (b"\xff\x00" * 999, ""),
        (b"Kernel panic - not syncing: \x1b[2J\xff\x00evil\rname\n", "Kernel panic - not syncing: [2J\ufffd evil name"),
        (b"Kernel panic - not syncing: " + b"x" * 99999, "Kernel panic - not syncing: " + "x" * 172),
    ],
)
def test_of_a_record_only_the_line_of_the_panic_is_read(content: bytes, expected: str) -> None:
    assert parse(content) == expected


def test_a_panic_is_told_once_a_boot_with_its_time(host: Host) -> None:
    at_ns = booted_ns() - AN_HOUR_NS
    leave(host, "sys/fs/pstore/dmesg-ramoops-0", RECORD, at_ns)
    leave(host, "sys/fs/pstore/console-ramoops-0", RECORD, at_ns)
    records = CrashRecords()
    count, [event] = read(host, records)
    assert count == 1
    assert event == HostEvent("boot ended", "panic", LINE, happened_ns=at_ns, known_from="pstore")
    assert read(host, records) == (1, [])
    assert read(host) == (1, [])


def test_of_several_panics_the_last_is_told(host: Host) -> None:
    last_s = booted_ns() // SECOND_NS - 100
    older, newer = (RECORD.replace(b"Fatal", word) for word in (b"Older", b"Newer"))
    leave(host, f"sys/fs/pstore/dmesg-efi-{last_s - 9000}01001", older, booted_ns() - AN_HOUR_NS)
    leave(host, f"sys/fs/pstore/dmesg-efi-{last_s}02001", newer, booted_ns() - AN_HOUR_NS)
    leave(host, f"sys/fs/pstore/dmesg-efi-{last_s}01001", OOPS, booted_ns() - AN_HOUR_NS)
    count, [event] = read(host)
    assert (count, event.text) == (3, LINE.replace("Fatal", "Newer"))
    assert event.happened_ns == last_s * SECOND_NS


def test_what_systemd_moved_in_this_boot_counts_and_what_it_moved_earlier_does_not(host: Host) -> None:
    folder = "var/lib/systemd/pstore/17"
    leave(host, f"{folder}1/dmesg.txt", RECORD.replace(b"Fatal", b"Older"), booted_ns() - AN_HOUR_NS)
    assert read(host) == (0, [])
    leave(host, f"{folder}2/001/dmesg.txt", RECORD, booted_ns() + SECOND_NS)
    count, [event] = read(host)
    assert (count, event.text, event.happened_ns, event.known_from) == (1, LINE, ABSENT, "pstore")


def test_a_record_that_does_not_say_when_it_was_has_no_time(host: Host) -> None:
    leave(host, "sys/fs/pstore/dmesg-erst-1", RECORD, time.time_ns())
    assert read(host)[1][0].happened_ns == ABSENT


def test_a_survived_oops_ended_no_boot(host: Host) -> None:
    leave(host, "sys/fs/pstore/dmesg-ramoops-0", OOPS, booted_ns() - AN_HOUR_NS)
    assert read(host) == (1, [])


def test_what_is_no_record_is_left_alone(host: Host) -> None:
    pstore = Path(f"{host.root}/sys/fs/pstore")
    os.mkfifo(pstore / "dmesg-pipe-1")
    (pstore / "dmesg-link-1").symlink_to("/etc/passwd")
    (pstore / "dmesg-folder-1").mkdir()
    (pstore / "dmesg-efi-1 2").write_bytes(RECORD)
    assert read(host) == (0, [])


def test_more_records_than_there_can_be_are_not_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_records, "RECORDS_MAX", 3)
    for number in range(9):
        leave(host, f"sys/fs/pstore/dmesg-ramoops-{number}", RECORD, booted_ns() - AN_HOUR_NS)
    assert read(host)[0] == 3


def dog(host: Host, name: str, **says: str) -> None:
    folder = Path(f"{host.root}/sys/class/watchdog/{name}")
    folder.mkdir(parents=True)
    for file, content in says.items():
        (folder / file).write_text(content)


def test_a_watchdog_that_reset_the_machine_is_told_once_a_boot(host: Host) -> None:
    dog(host, "watchdog0", bootstatus="32\n", timeout="30\n", identity="iTCO_wdt\n")
    dog(host, "watchdog1", bootstatus="0\n", timeout="60\n", identity="Software Watchdog\n")
    dog(host, "watchdog2")
    assert list(watchdogs(host)) == [
        ("watchdog0", (32, 30, "iTCO_wdt")),
        ("watchdog1", (0, 60, "Software Watchdog")),
        ("watchdog2", (ABSENT, ABSENT, ABSENT)),
    ]
    [event] = host.take_events()
    assert event == HostEvent("boot ended", "watchdog", "watchdog0 (iTCO_wdt): nobody fed it", known_from="watchdog")
    list(watchdogs(host))
    assert host.take_events() == []


@pytest.mark.parametrize("content", ["", "-1", "x", "99999999999999999999", "\x00"])
def test_nonsense_of_a_watchdog_is_no_reset(host: Host, content: str) -> None:
    dog(host, "watchdog0", bootstatus=content, identity="\x1b[2J" * 99)
    [(_, (status, _, identity))] = watchdogs(host)
    assert isinstance(status, int)
    assert str(identity).isprintable()
    assert host.take_events() == []


@pytest.mark.parametrize(("status", "cause"), [(0x21, "nobody fed it, overheated"), (0x100, "status 256")])
def test_bits_are_causes(status: int, cause: str) -> None:
    assert cause_of(status) == cause
