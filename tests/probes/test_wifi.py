# SPDX-License-Identifier: Apache-2.0
"""The tables of Wi-Fi: exact values, what sleeps, refusals, the older interface."""

import os
from errno import EIO, ENODEV, EOPNOTSUPP
from pathlib import Path

import pytest
from sysmond_probes import wifi

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Absence, Cause, Host, Lane, Sensitivity
from sysmond.sources.nl80211 import GET_INTERFACE, GET_STATION, GET_SURVEY
from sysmond.sources.wireless import INTERFACES_MAX
from tests.support import sysfs, wireless
from tests.support.wireless import Stand

OF_STATION = (-52, -54, -55, 70_001, 30_002, 4_003, 17, 2, 345, 86_400, 650_000_000, 12_010_200_000)
CONNECTED = (*OF_STATION, -92, 5_180_000_000, 80_000_000, 36, 1, "managed")
NONE = (ABSENT,) * len(OF_STATION)
HEADER = """Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE
 face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22
"""
PCI = "sys/devices/pci0000:00/0000:00:14.3"
ASLEEP = Absence(Cause.ASLEEP)


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "laptop", "wifi")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Stand:
    """A kernel that answers, whatever the root."""
    stand = Stand()
    monkeypatch.setattr(wifi, "Wireless", stand.wireless)
    return stand


def rows(root: Path) -> dict[str, object]:
    return dict(wifi.read(Host(str(root))))


def another(root: Path, name: str) -> None:
    """A second interface of the same radio, with the number 4."""
    folder = root / PCI / "net" / name
    (folder / "phy80211").mkdir(parents=True)
    (folder / "flags").write_text("0x1003\n")
    (folder / "ifindex").write_text("4\n")
    (folder / "device").symlink_to(root / PCI)
    (root / "sys/class/net" / name).symlink_to(folder)


def sleeps(root: Path) -> None:
    (root / PCI / "power").mkdir()
    (root / PCI / "power/runtime_status").write_text("suspended\n")


def test_the_tables_are_well_formed_and_tell_no_name_and_no_address_of_a_network_by_themselves() -> None:
    probes = wifi.sysmond_probes()
    for probe in probes:
        check_table(probe.table)
        assert probe.lane is Lane.BACKGROUND
        if probe.enabled or probe.sensitivity is Sensitivity.PUBLIC:
            assert not {"ssid", "bssid", "address"} & {metric.name for metric in probe.table.metrics}
    assert [(probe.enabled, probe.sensitivity) for probe in probes] == [
        *[(True, Sensitivity.PUBLIC)] * 3,
        *[(False, Sensitivity.RESTRICTED)] * 2,
    ]


def test_a_connected_interface_has_a_row(laptop: Path, kernel: Stand) -> None:
    assert rows(laptop) == {"wlan0": CONNECTED}


def test_an_interface_that_looks_for_a_network_has_no_station(laptop: Path, kernel: Stand) -> None:
    kernel.answers |= {(GET_INTERFACE, 3): [wireless.IDLE], (GET_STATION, 3): []}
    assert rows(laptop) == {"wlan0": (*NONE, *(ABSENT,) * 4, 0, "managed")}
    assert (GET_SURVEY, 3) not in kernel.asked, "it is on no channel"


def test_of_those_whom_a_hotspot_serves_only_the_number_is_told(laptop: Path, kernel: Stand) -> None:
    kernel.answers |= {(GET_INTERFACE, 3): [wireless.HOTSPOT], (GET_STATION, 3): [wireless.GUEST] * 3}
    kernel.answers[GET_SURVEY, 3] = [wireless.survey(2437)]
    assert rows(laptop) == {"wlan0": (*NONE, ABSENT, 2_437_000_000, 20_000_000, 6, 3, "AP")}
    assert list(wifi.read_bssid(Host(str(laptop)))) == []


def test_a_device_that_sleeps_is_not_asked(laptop: Path, kernel: Stand) -> None:
    channels, host = wifi.Channels(), Host(str(laptop))
    assert list(dict(channels.read(host))) == ["wlan0:5180"]
    sleeps(laptop)
    host.sleep_states.look_again()  # A device has that file from the start.
    kernel.asked.clear()
    assert rows(laptop) == {"wlan0": ASLEEP}
    assert dict(channels.read(host)) == {"wlan0:5180": ASLEEP}
    assert list(wifi.read_bssid(host)) == list(wifi.read_ssid(host)) == [("wlan0", ASLEEP)]
    assert kernel.asked == []


def test_an_interface_that_is_turned_off_is_not_asked(laptop: Path, kernel: Stand) -> None:
    (laptop / PCI / "net/wlan0/flags").write_text("0x1002\n")
    assert rows(laptop) == {"wlan0": Absence(Cause.NO_SOURCE, "it is turned off")}
    assert kernel.asked == []


@pytest.mark.parametrize("command", [GET_INTERFACE, GET_STATION])
def test_an_interface_that_goes_in_mid_read_has_no_row(laptop: Path, kernel: Stand, command: int) -> None:
    another(laptop, "wlan1")
    kernel.answers |= {(each, 4): kernel.answers[each, 3] for each in (GET_INTERFACE, GET_STATION, GET_SURVEY)}
    assert list(rows(laptop)) == ["wlan0", "wlan1"]
    kernel.answers[command, 3] = OSError(ENODEV, os.strerror(ENODEV))
    assert rows(laptop) == {"wlan1": CONNECTED}


@pytest.mark.parametrize("number", [EIO, EOPNOTSUPP])
def test_a_driver_that_cannot_survey_costs_the_noise_alone(laptop: Path, kernel: Stand, number: int) -> None:
    kernel.answers[GET_SURVEY, 3] = OSError(number, os.strerror(number))
    assert rows(laptop) == {"wlan0": (*OF_STATION, ABSENT, *CONNECTED[13:])}
    assert list(wifi.Channels().read(Host(str(laptop)))) == []


def test_a_driver_that_knows_no_stations_does_not_count_none(laptop: Path, kernel: Stand) -> None:
    kernel.answers[GET_STATION, 3] = OSError(EOPNOTSUPP, os.strerror(EOPNOTSUPP))
    assert rows(laptop) == {"wlan0": (*NONE, *CONNECTED[12:16], ABSENT, "managed")}


def test_garbage_costs_its_own_row_alone(laptop: Path, kernel: Stand) -> None:
    another(laptop, "wlan1")
    kernel.answers |= {(each, 4): kernel.answers[each, 3] for each in (GET_INTERFACE, GET_STATION, GET_SURVEY)}
    kernel.answers[GET_STATION, 3] = [wireless.ACCESS_POINT[:-3]]
    found = rows(laptop)
    assert isinstance(found["wlan0"], Absence)
    assert found["wlan0"].cause is Cause.PROBE_FAILED
    assert found["wlan0"].detail.startswith("ValueError: netlink: ")
    assert found["wlan1"] == CONNECTED
    kernel.answers[GET_INTERFACE, 3] = []
    assert rows(laptop)["wlan0"] == Absence(Cause.PROBE_FAILED, "ValueError: nl80211: no answer; expected one")


def test_a_channel_has_its_times_and_another_is_another_instance(laptop: Path, kernel: Stand) -> None:
    channels, host = wifi.Channels(), Host(str(laptop))
    assert dict(channels.read(host)) == {"wlan0:5180": (-92, 90_000, 30_500, 10, 20_250, 4_125, 600)}
    kernel.answers[GET_SURVEY, 3] = [wireless.survey(2437)]
    assert dict(channels.read(host)) == {"wlan0:2437": (ABSENT,) * 7}
    kernel.answers[GET_SURVEY, 3] = OSError(EIO, "Input/output error")
    failure = Absence(Cause.PROBE_FAILED, "Input/output error")
    assert dict(channels.read(host)) == {"wlan0:2437": failure}
    kernel.answers[GET_INTERFACE, 3] = [wireless.IDLE]
    assert dict(channels.read(host)) == {}


def test_who_asks_for_it_is_told_which_access_point_it_is(laptop: Path, kernel: Stand) -> None:
    assert list(wifi.read_bssid(Host(str(laptop)))) == [("wlan0", ("02:00:4c:4f:4f:50",))]


def test_who_asks_for_it_is_told_the_name_of_the_network(laptop: Path, kernel: Stand) -> None:
    assert list(wifi.read_ssid(Host(str(laptop)))) == [("wlan0", ("a name of a network",))]
    assert kernel.asked == [(GET_INTERFACE, 3)]
    kernel.answers[GET_INTERFACE, 3] = [wireless.IDLE]
    assert list(wifi.read_ssid(Host(str(laptop)))) == []


@pytest.mark.parametrize(
    ("spelled", "ssid"),
    [(b"caf\xc3\xa9 \x1b[2J\xff", "café [2J\ufffd"), (b"\0" * 32, ""), (b"x" * 99, "x" * 32)],
)
def test_a_name_of_a_network_is_whatever_somebody_typed(spelled: bytes, ssid: str, laptop: Path, kernel: Stand) -> None:
    kernel.answers[GET_INTERFACE, 3] = [wireless.message(7, wireless.u32(3, 3), wireless.attribute(52, spelled))]
    assert dict(wifi.read_ssid(Host(str(laptop)))) == ({"wlan0": (ssid,)} if ssid else {})


def test_interfaces_are_bounded_and_their_names_are_whatever_they_are(laptop: Path, kernel: Stand) -> None:
    name = os.fsdecode(b"w\x1b[2J\xff")
    another(laptop, name)
    kernel.answers |= {(each, 4): kernel.answers[each, 3] for each in (GET_INTERFACE, GET_STATION, GET_SURVEY)}
    assert rows(laptop) == {"wlan0": CONNECTED, name: CONNECTED}
    for number in range(2 * INTERFACES_MAX):
        another(laptop, f"v{number:02}")
    assert len(rows(laptop)) == INTERFACES_MAX


# --- The older interface


def older(root: Path, *lines: str) -> dict[str, object]:
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    (root / "proc/net/wireless").write_bytes(os.fsencode(HEADER + "".join(f"{line}\n" for line in lines)))
    return rows(root)


def test_where_the_kernel_cannot_be_asked_the_file_is_read(laptop: Path) -> None:
    found = older(laptop, " wlan0: 0000   54.  -56.  -256        0      0      0      7     23        2")
    of_station = (-56, *(ABSENT,) * 5, 7, 2, 23, *(ABSENT,) * 3)
    assert found == {"wlan0": (*of_station, *(ABSENT,) * 6)}
    assert older(laptop, " wlan0: 0000   54.  -56.  -93.   0 0 0 0 0 0")["wlan0"] == (
        *(-56, *(ABSENT,) * 5, 0, 0, 0, *(ABSENT,) * 3),
        *(-93, *(ABSENT,) * 5),
    )


def test_a_level_in_units_of_the_driver_is_absent(laptop: Path) -> None:
    of_station = (ABSENT,) * 6 + (0,) * 3 + (ABSENT,) * 3
    assert older(laptop, "wlan0: 0000 54. 68. 0. 0 0 0 0 0 0") == {"wlan0": (*of_station, *(ABSENT,) * 6)}


def test_names_of_the_file_are_whatever_they_are(laptop: Path) -> None:
    name = os.fsdecode(b"w\x1c\xff")
    another(laptop, name)
    assert list(older(laptop, f"{name}: 0000 54. -56. -256 0 0 0 0 0 0", "eth9: 0 0 0 0 0 0 0 0 0 0")) == [name]


@pytest.mark.parametrize("line", ["wlan0:", "wlan0: 0 0 0", "wlan0: 0 0 a b 0 0 0 0 0 0", "wlan0: - - - - - - - - - -"])
def test_a_garbled_line_costs_its_own_row_alone(laptop: Path, line: str) -> None:
    another(laptop, "wlan1")
    found = older(laptop, line, "no colon", "wlan1: 0000 54. -56. -256 0 0 0 0 0 0")
    assert isinstance(found["wlan0"], Absence)
    assert found["wlan0"].cause is Cause.PROBE_FAILED
    assert found["wlan1"][0] == -56  # type: ignore[index]


def test_the_file_is_not_read_while_a_device_sleeps_that_would_be_asked(laptop: Path) -> None:
    sleeps(laptop)
    assert older(laptop, "wlan0: 0000 54. -56. -256 0 0 0 0 0 0") == {"wlan0": ASLEEP}


def test_a_machine_with_neither_has_no_source(laptop: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rows(laptop)
    for read in (wifi.Channels().read, wifi.read_bssid, wifi.read_ssid):
        with pytest.raises(FileNotFoundError, match="nl80211"):
            list(read(Host(str(laptop))))
