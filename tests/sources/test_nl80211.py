# SPDX-License-Identifier: Apache-2.0
"""Answers of nl80211: exact values, what drivers leave out, what is cut short, garbage, machines without Wi-Fi."""

import os
import random
from pathlib import Path

import pytest

from sysmond.probe import ABSENT, Host
from sysmond.sources import nl80211
from sysmond.sources.netlink import attributes
from sysmond.sources.nl80211 import Station, Survey, WirelessInterface
from tests.support import wireless
from tests.support.wireless import attribute, message, nested, survey, u8, u16, u32, u64

PARSERS = nl80211.parse_interface, nl80211.parse_station, nl80211.parse_survey
MESSAGES = wireless.CLIENT, wireless.ACCESS_POINT, wireless.SURVEYS[0]


def told(content: bytes) -> dict[int, bytes]:
    return attributes(content[4:])


def test_an_interface_has_type_channel_and_width() -> None:
    assert nl80211.parse_interface(told(wireless.CLIENT)) == WirelessInterface("managed", 5_180_000_000, 80_000_000)
    assert nl80211.parse_interface(told(wireless.HOTSPOT)) == WirelessInterface("AP", 2_437_000_000, 20_000_000)


def test_an_interface_on_no_channel_has_none() -> None:
    assert nl80211.parse_interface(told(wireless.IDLE)) == WirelessInterface("managed", ABSENT, ABSENT)


def test_what_a_later_kernel_calls_another_type_or_width_is_not_known() -> None:
    later = message(7, u32(5, 99), u32(38, 5180), u32(159, 99))
    assert nl80211.parse_interface(told(later)) == WirelessInterface("unspecified", 5_180_000_000, ABSENT)


def test_an_interface_of_several_links_is_on_the_channel_of_the_first() -> None:
    links = nested(312, nested(1, u8(313, 0)), nested(2, u8(313, 1), u32(38, 5955), u32(159, 13)))
    found = nl80211.parse_interface(told(message(7, u32(5, 2), links)))
    assert found == WirelessInterface("managed", 5_955_000_000, 320_000_000)


def test_a_channel_may_lie_between_two_megahertz() -> None:
    content = told(message(7, u32(5, 2), u32(38, 902), u32(290, 500), u32(159, 8)))
    assert nl80211.parse_interface(content) == WirelessInterface("managed", 902_500_000, 1_000_000)


def test_a_station_has_what_the_driver_counts() -> None:
    assert nl80211.parse_station(told(wireless.ACCESS_POINT)) == Station(
        *("02:00:4c:4f:4f:50", -52, -54, -55, 70_001, 30_002, 4_003, 17, 2, 345, 86_400),
        *(650_000_000, 12_010_200_000),
    )


def test_what_a_driver_does_not_count_is_absent() -> None:
    assert nl80211.parse_station(told(message(19))) == Station()
    assert nl80211.parse_station(told(message(19, nested(21, u32(11, 0))))) == Station(retries=0)


def test_a_number_beyond_63_bits_is_absent() -> None:
    assert nl80211.parse_station(told(message(19, nested(21, u64(28, 2**64 - 1))))).receive_drops == ABSENT
    assert nl80211.parse_station(told(message(19, nested(21, u64(28, 2**63 - 1))))).receive_drops == 2**63 - 1


def test_an_older_kernel_tells_rates_in_16_bits() -> None:
    assert nl80211.parse_station(told(message(19, nested(21, nested(8, u16(1, 10)))))).send_bit_s == 1_000_000


def test_of_channels_that_in_use_is_told() -> None:
    in_use, other = map(nl80211.parse_survey, map(told, wireless.SURVEYS))
    assert in_use == Survey(5_180_000_000, -92, 90_000, 30_500, 10, 20_250, 4_125, 600)
    assert other is None


def test_a_driver_that_does_not_tell_which_is_in_use_has_that_of_the_interface() -> None:
    found = nl80211.parse_survey(told(wireless.SURVEYS[1]), 5_200_000_000)
    assert found == Survey(5_200_000_000, -90, 90_000, 30_500, 10, 20_250, 4_125, 600)
    assert nl80211.parse_survey(told(message(51)), ABSENT) is None


def test_a_channel_of_which_nothing_is_measured_has_its_frequency() -> None:
    assert nl80211.parse_survey(told(survey(2412))) == Survey(2_412_000_000, *(ABSENT,) * 7)


@pytest.mark.parametrize(
    ("mhz", "number"),
    [
        *[(2412, 1), (2437, 6), (2472, 13), (2484, 14), (4920, 184), (5180, 36), (5825, 165), (5935, 2), (5955, 1)],
        *[(6415, 93), (7115, 233), (58320, 1), (64800, 4), (902, ABSENT), (2400, ABSENT), (5940, ABSENT)],
    ],
)
def test_channels_are_called_as_the_kernel_does(mhz: int, number: int) -> None:
    assert nl80211.channel_number(mhz * 1_000_000) == number
    assert nl80211.channel_number(ABSENT) == ABSENT


@pytest.mark.parametrize("content", [attribute(7, b""), attribute(7, b"abc"), attribute(7, bytes(16))])
def test_a_number_of_another_size_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="attribute 7 has .* bytes; expected a number"):
        nl80211.parse_station(told(message(19, nested(21, content))))


@pytest.mark.parametrize(("parse", "content"), list(zip(PARSERS, MESSAGES, strict=True)))
def test_what_is_cut_short_or_garbled_is_refused_or_read_and_nothing_else(parse: object, content: bytes) -> None:
    assert callable(parse)
    chance, refused = random.Random(0), 0
    cut = [content[:length] for length in range(len(content))]
    garbled = [bytearray(content) for _ in range(2000)]
    for garbage in garbled:
        garbage[chance.randrange(len(garbage))] = chance.randrange(256)
    for each in [*cut, *map(bytes, garbled), *(chance.randbytes(64) for _ in range(500))]:
        try:
            parse(told(each))
        except ValueError:
            refused += 1
    assert refused > len(content) // 2


def test_a_machine_without_wireless_devices_is_not_asked_and_a_copied_tree_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no wireless device that nl80211 knows: .*ieee80211"):
        nl80211.Wireless(Host(str(tmp_path)))
    if not os.path.isdir(nl80211.FOLDER):
        with pytest.raises(FileNotFoundError, match="nl80211"):
            nl80211.Wireless(Host())


@pytest.mark.skipif(not os.path.isdir(nl80211.FOLDER), reason="no wireless device here; make lab has a simulated one")
def test_this_kernel_answers() -> None:
    kernel = nl80211.Wireless(Host())
    for path in Path("/sys/class/net").glob("*/phy80211"):
        index = int((path.parent / "ifindex").read_text())
        assert kernel.interface(index).kind in nl80211.TYPES
        assert kernel.stations(index) is None or not kernel.stations(10**6)
