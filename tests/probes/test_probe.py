# SPDX-License-Identifier: Apache-2.0
"""What a probe's author leans on: Fields, files read anew, listings that are kept, options."""

import os
from collections.abc import Sequence
from errno import EIO, ENODEV
from pathlib import Path

import pytest

from sysmond import probe
from sysmond.machine import asleep
from sysmond.probe import ABSENT, Absence, Cause, Fields, Host, Option, rows_of


def test_fields_come_in_the_wanted_order_and_absent_ones_say_so() -> None:
    fields = Fields((b"c", b"a", b"z"))
    assert fields.pick([b"a", b"b", b"c"], [b"1", b"2", b"3"]) == [3, 1, ABSENT]


def test_a_single_field_is_a_sequence_too() -> None:
    assert Fields((b"b",)).pick([b"a", b"b"], [b"10", b"27"]) == [27]
    assert Fields((b"b", b"a")).pick([b"a"], [b"10"]) == [ABSENT, 10]


def test_positions_are_learnt_anew_when_names_change() -> None:
    fields = Fields((b"a", b"b"))
    assert fields.pick([b"a", b"b"], [b"1", b"2"]) == [1, 2]
    assert fields.pick([b"b", b"x", b"a"], [b"1", b"2", b"3"]) == [3, 1]
    assert fields.pick([b"a"], [b"7"]) == [7, ABSENT]


def test_factors_multiply_what_is_there() -> None:
    fields = Fields((b"a", b"b", b"c"), (1024, 1, 1000))
    assert fields.pick([b"a", b"b"], [b"3", b"3"]) == [3072, 3, ABSENT]
    assert fields.pick([b"c", b"b", b"a"], [b"5", b"0", b"-1"]) == [-1024, 0, 5000]


def test_what_is_wrong_is_never_a_number() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Fields((b"a",)).pick([b"a"], [b"many"])
    with pytest.raises(ValueError, match="none of the 2 expected names is there; the first here is b'x'"):
        Fields((b"a", b"b")).pick([b"x"], [b"1"])


def test_the_caller_keeps_its_lists() -> None:
    numbers = [b"1"]
    Fields((b"a",)).pick([b"a"], numbers)
    assert numbers == [b"1"]


def test_a_file_read_anew_is_not_staying_open(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "file").write_bytes(b"old" * 50_000)
    assert host.read_anew("/file") == b"old" * 50_000
    (tmp_path / "other").write_bytes(b"new")
    (tmp_path / "other").replace(tmp_path / "file")
    assert host.read_anew("/file") == b"new"


def test_a_file_read_anew_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "FILE_BYTES_MAX", 10)
    (tmp_path / "file").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        Host(str(tmp_path)).read_anew("/file")


def test_content_that_stays_the_same_is_the_same_object(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "file").write_bytes(b"1")
    first = host.read("/file")
    noted = host.note()
    host.new_tick()
    assert host.is_unchanged(noted)
    assert host.read("/file") is first
    (tmp_path / "file").write_bytes(b"2")
    assert host.is_unchanged(noted), "within a tick a file is read once"
    host.new_tick()
    assert not host.is_unchanged(noted)
    assert host.read("/file") == b"2"
    (tmp_path / "file").unlink()
    host.close()
    with pytest.raises(FileNotFoundError):
        host.is_unchanged(noted)


def test_a_listing_is_kept_until_told_to_look_again_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(probe, "monotonic", lambda: now_s)
    host = Host(str(tmp_path))
    assert host.names("/block") == []
    (tmp_path / "block/sda").mkdir(parents=True)
    host.new_tick()
    assert (host.names("/block"), host.is_dated()) == ([], True)
    assert host.names_anew("/block") == ["sda"]
    host.look_again()
    assert (host.names("/block"), host.is_dated()) == (["sda"], False)
    host.names("/block").append("mine")
    assert (host.names("/block"), host.is_dated()) == (["sda"], False)  # Of this very tick.
    (tmp_path / "block/sdb").mkdir()
    host.new_tick()
    now_s += probe.LISTING_S - 0.1
    assert host.names("/block") == ["sda"]
    now_s += 0.2
    assert host.names("/block") == ["sda", "sdb"]
    for number in range(probe.LISTINGS_MAX + 10):
        host.names(f"/nowhere/{number}")
    assert len(host._listings) <= probe.LISTINGS_MAX


def test_to_look_again_opens_files_anew(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    (tmp_path / "stat").write_text("old")
    assert host.read("/stat") == b"old"
    (tmp_path / "new").write_text("new")
    (tmp_path / "new").replace(tmp_path / "stat")
    host.new_tick()
    assert host.read("/stat") == b"old"
    host.look_again()
    host.new_tick()
    assert host.read("/stat") == b"new"


@pytest.mark.parametrize(
    ("option", "right", "accepted", "refused"),
    [
        (Option("o", default=True, doc="x"), "true or false", [False, True], [0, 1, "true", None, 1.0]),
        (Option("o", 5, "x", 1, 9), "a whole number from 1 to 9", [1, 9], [0, 10, 2.0, True, "5", None]),
        (Option("o", 5.0, "x", low=1), "a number from 1", [1, 1.5, 1e9], [0, -1.0, True, "5", float("nan")]),
        (Option("o", "a", "x"), "a text", ["", "b"], [1, True, None]),
        (Option("o", "a", "x", choices=("a", "b")), "a or b", ["a", "b"], ["c", "", 1]),
        (Option("o", "", "x", pattern="(a+)?"), "a text as its documentation says", ["", "aa"], ["ab", "a\n", 1]),
    ],
)
def test_an_option_accepts_what_it_says_is_right(
    option: Option, right: str, accepted: list[object], refused: list[object]
) -> None:
    assert option.right() == right
    assert all(option.accepts(value) for value in [option.default, *accepted])
    assert not any(option.accepts(value) for value in refused)


def device(root: Path, path: str, **files: str) -> None:
    folder = root / "sys/devices" / path
    (folder / "power").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", "/")).write_text(content + "\n")


@pytest.mark.parametrize(
    ("files", "sleeps"),
    [
        ({"power__runtime_status": "active", "power_state": "D0"}, False),
        ({"power__runtime_status": "unsupported", "power_state": "unknown"}, False),
        ({"power__runtime_status": "suspended"}, True),
        ({"power__runtime_status": "suspending"}, True),
        ({"power__runtime_status": "active", "power_state": "D3cold"}, True),
        ({}, False),
    ],
)
def test_a_device_sleeps_where_it_or_what_it_hangs_on_is_suspended(
    tmp_path: Path, files: dict[str, str], sleeps: bool
) -> None:
    device(tmp_path, "pci0000:00/0000:01:00.0", **files)
    device(tmp_path, "pci0000:00/0000:01:00.0/drm/card1", power__runtime_status="active")
    (tmp_path / "sys/class/drm").mkdir(parents=True)
    (tmp_path / "sys/class/drm/card1").symlink_to("../../devices/pci0000:00/0000:01:00.0/drm/card1")
    host = Host(str(tmp_path))
    assert host.is_asleep("/sys/class/drm/card1") is sleeps
    assert host.is_asleep("/sys/devices/pci0000:00/0000:01:00.0") is sleeps
    assert host.is_asleep("/sys/class/drm/card7") is False


def test_an_adapter_of_i2c_is_never_what_sleeps(tmp_path: Path) -> None:
    device(tmp_path, "pci0000:00/0000:00:1f.4/i2c-0", power__runtime_status="suspended")
    device(tmp_path, "pci0000:00/0000:00:1f.4/i2c-0/0-0048/hwmon/hwmon0", power__runtime_status="unsupported")
    host = Host(str(tmp_path))
    chip = "/sys/devices/pci0000:00/0000:00:1f.4/i2c-0/0-0048/hwmon/hwmon0"
    assert not host.is_asleep(chip)
    device(tmp_path, "pci0000:00/0000:00:1f.4", power__runtime_status="suspended")
    assert Host(str(tmp_path)).is_asleep(chip)


def test_hosts_of_a_lane_ask_a_device_once_a_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(asleep, "monotonic", lambda: now_s[0])
    device(tmp_path, "pci0000:00/0000:01:00.0", power__runtime_status="active")
    device(tmp_path, "pci0000:00/0000:01:00.0/drm/card1", power__runtime_status="unsupported")
    card, above = "/sys/devices/pci0000:00/0000:01:00.0/drm/card1", "/sys/devices/pci0000:00/0000:01:00.0"
    one, other = Host(str(tmp_path)), Host(str(tmp_path))
    other.sleep_states = one.sleep_states
    asked: list[str] = []
    open_file = os.open

    def open_noting(path: str, flags: int) -> int:
        asked.append(path)
        return open_file(path, flags)

    monkeypatch.setattr(os, "open", open_noting)
    assert not any(host.is_asleep(device) for host in (one, other) for device in (card, above))
    assert len(asked) == len(set(asked)) == 2
    device(tmp_path, "pci0000:00/0000:01:00.0", power__runtime_status="suspended")
    assert not other.is_asleep(card)
    for host in (one, other):
        host.new_tick()
    assert all(host.is_asleep(device) for host in (one, other) for device in (card, above))
    device(tmp_path, "pci0000:00/0000:01:00.0", power__runtime_status="active")
    now_s[0] += asleep.ANSWER_S  # Of a tick in which something hangs.
    assert not one.is_asleep(card)


def test_what_a_device_hangs_on_is_found_anew_when_told_and_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(asleep, "monotonic", lambda: now_s[0])
    device(tmp_path, "sleeps", power__runtime_status="suspended")
    device(tmp_path, "wakes", power__runtime_status="active")
    link = tmp_path / "sys/class/drm/card0"
    link.parent.mkdir(parents=True)

    def lead(to: str) -> None:
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../devices/{to}")

    states = asleep.SleepStates(str(tmp_path))
    lead("sleeps")
    assert states.is_asleep("/sys/class/drm/card0")
    lead("wakes")
    states.look_again()
    assert not states.is_asleep("/sys/class/drm/card0")
    lead("sleeps")
    now_s[0] += asleep.KEPT_S
    assert states.is_asleep("/sys/class/drm/card0")


def test_an_interface_of_a_usb_device_sleeps_only_with_the_device(tmp_path: Path) -> None:
    hub, interface = "pci0000:00/0000:00:14.0/usb1/1-4", "1-4.2/1-4.2:1.0"
    device(tmp_path, f"{hub}/1-4.2", power__runtime_status="active")
    device(tmp_path, f"{hub}/{interface}", power__runtime_status="suspended")
    device(tmp_path, f"{hub}/{interface}/input/input7", power__runtime_status="unsupported")
    host = Host(str(tmp_path))
    mouse = f"/sys/devices/{hub}/{interface}/input/input7"
    assert not host.is_asleep(mouse)
    device(tmp_path, f"{hub}/1-4.2", power__runtime_status="suspended")
    host.sleep_states.new_tick()
    assert host.is_asleep(mouse)


def test_a_bad_instance_costs_no_other() -> None:
    failures = {
        "gone": OSError(ENODEV, "No such device"),
        "shut": PermissionError("not for you"),
        "broken": OSError(EIO, "Input/output error"),
        "garbage": ValueError("no number"),
    }

    def values(name: str) -> Sequence[int | str] | None:
        if name in failures:
            raise failures[name]
        return None if name == "other" else (1, "text")

    assert list(rows_of([*failures, "other", "good"], values)) == [
        ("shut", Absence(Cause.NO_PERMISSION, "PermissionError: not for you")),
        ("broken", Absence(Cause.PROBE_FAILED, "Input/output error")),
        ("garbage", Absence(Cause.PROBE_FAILED, "ValueError: no number")),
        ("good", (1, "text")),
    ]


def test_a_mistake_of_the_probe_is_not_one_of_an_instance() -> None:
    empty: dict[str, list[int]] = {}
    with pytest.raises(KeyError):
        list(rows_of(["a"], empty.__getitem__))


def test_a_word_is_without_its_line_end_or_absent(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("clean\n")
    (tmp_path / "empty").write_text("\n")
    host = Host(str(tmp_path))
    assert [host.word(path) for path in ("/state", "/empty", "/none")] == ["clean", ABSENT, ABSENT]
