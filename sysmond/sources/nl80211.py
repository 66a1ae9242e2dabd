# SPDX-License-Identifier: Apache-2.0
"""Wireless interfaces, the stations they speak with, the channels in use, as ``iw`` asks for them; and connections.

Source: the kernel's ``include/uapi/linux/nl80211.h`` and ``genetlink.h``. Requests need no privilege, and send nothing
over the air; drivers are asked, so whoever calls asks about no device that sleeps.
"""

import sys
from collections.abc import Callable, Iterator
from errno import ENOENT, EOPNOTSUPP
from itertools import islice
from struct import Struct
from typing import NamedTuple

from sysmond.probe import ABSENT, Host
from sysmond.sources.netlink import Multicast, ask, attribute, attributes, dump

NETLINK_GENERIC = 16
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2
CTRL_ATTR_MCAST_GROUPS, CTRL_ATTR_MCAST_GRP_NAME, CTRL_ATTR_MCAST_GRP_ID = 7, 1, 2
GET_INTERFACE, GET_STATION, GET_SURVEY = 5, 17, 50
IFINDEX, IFTYPE, MAC, STA_INFO, WIPHY_FREQ, SSID, SURVEY_INFO = 3, 5, 6, 21, 38, 52, 84
CONNECT, ROAM, DISCONNECT = 46, 47, 48
REASON_CODE, TIMED_OUT, DISCONNECTED_BY_AP, STATUS_CODE, REQ_IE = 54, 65, 71, 72, 77
# Of the elements of a request (IEEE 802.11) that with the name of the network.
SSID_ELEMENT = 0
# Of all groups of listeners that of connections.
CONNECTIONS = b"mlme\0"
CHANNEL_WIDTH, WIPHY_FREQ_OFFSET, MLO_LINKS = 159, 290, 312
RATE_BITRATE, RATE_BITRATE32 = 1, 5
SURVEY_FREQUENCY, SURVEY_NOISE, SURVEY_IN_USE, SURVEY_OFFSET = 1, 2, 3, 12
# How iw spells the types of interfaces, and which of them have one access point.
TYPES = (
    *("unspecified", "IBSS", "managed", "AP", "AP/VLAN", "WDS", "monitor", "mesh point", "P2P-client", "P2P-GO"),
    *("P2P-device", "OCB", "NAN"),
)
CLIENTS = ("managed", "P2P-client")
# By enum nl80211_chan_width; 80+80 is as wide as 160.
WIDTHS_MHZ = (20, 20, 40, 80, 160, 160, 5, 10, 1, 2, 4, 8, 16, 320)
# Stations of an interface, and channels of a radio; the largest has some hundred.
ANSWERS_MAX = 512
SSID_BYTES_MAX, MAC_BYTES = 32, 6
MHZ = 1_000_000
FOLDER = "/sys/class/ieee80211"

# Of bands their first centre in MHz, what is beyond them, that of a channel 0, and how far channels are apart.
_BANDS = (
    *((2412, 2484, 2407, 5), (2484, 2485, 2414, 5), (4910, 4981, 4000, 5), (5000, 5925, 5000, 5)),
    *((5935, 5936, 5925, 5), (5950, 45001, 5950, 5), (58320, 70201, 56160, 2160)),
)
_GENERIC = Struct("=BBH")  # Command, version, reserved (struct genlmsghdr).
_VERSION = 1
_INT64_MAX = 2**63 - 1
# In the order of Station: NL80211_STA_INFO_SIGNAL, SIGNAL_AVG, BEACON_SIGNAL_AVG; RX_PACKETS, TX_PACKETS, TX_RETRIES,
# TX_FAILED, BEACON_LOSS, RX_DROP_MISC, CONNECTED_TIME; RX_BITRATE, TX_BITRATE.
_LEVELS, _COUNTS, _RATES = (7, 13, 30), (9, 10, 11, 12, 18, 28, 16), (14, 8)
# In the order of Survey: NL80211_SURVEY_INFO_TIME, TIME_BUSY, TIME_EXT_BUSY, TIME_RX, TIME_TX, TIME_SCAN.
_TIMES = (4, 5, 6, 7, 8, 9)


class WirelessInterface(NamedTuple):
    """A wireless interface; ABSENT where it is on no channel. ``kind``: one of ``TYPES``."""

    kind: str
    frequency_hz: int = ABSENT
    width_hz: int = ABSENT


class Station(NamedTuple):
    """What is counted and measured of a station; ABSENT for what the driver does not tell."""

    address: str = ""
    signal_dbm: int = ABSENT
    signal_average_dbm: int = ABSENT
    beacon_signal_dbm: int = ABSENT
    received_packets: int = ABSENT
    sent_packets: int = ABSENT
    retries: int = ABSENT
    failures: int = ABSENT
    beacon_losses: int = ABSENT
    receive_drops: int = ABSENT
    connected_s: int = ABSENT
    receive_bit_s: int = ABSENT
    send_bit_s: int = ABSENT


class Survey(NamedTuple):
    """What is known of a channel in use: its noise, and how long the radio was on it, found it busy, and why."""

    frequency_hz: int
    noise_dbm: int
    active_ms: int
    busy_ms: int
    extension_busy_ms: int
    receive_ms: int
    transmit_ms: int
    scan_ms: int


class WifiConnection(NamedTuple):
    """What became of the connection of an interface, by its number: ``command`` is CONNECT, ROAM or DISCONNECT.

    ``status``: 0 where it was made, else why it was refused; ``reason``: why it ended, 0 for unknown; ``is_of_ap``: the
    access point ended it. ``address`` of the access point and ``network``, its name: empty where it does not say.
    """

    interface: int
    command: int
    status: int = 0
    reason: int = 0
    is_of_ap: bool = False
    address: str = ""
    network: bytes = b""


class Wireless:
    """The wireless part of the kernel, to be asked about interfaces by their number."""

    def __init__(self, host: Host) -> None:
        """Find out by which number nl80211 is called.

        :raises OSError: where it cannot be asked; ``FileNotFoundError`` where nothing wireless is, or in a copied
            tree.
        :raises ValueError: where the answer is not what it should be.
        """
        if host.root or not host.names(FOLDER):  # To ask for nl80211 where it is not would load its module.
            raise FileNotFoundError(ENOENT, "no wireless device that nl80211 knows", f"{host.root}{FOLDER}")
        name = attribute(CTRL_ATTR_FAMILY_NAME, b"nl80211\0")
        request = _GENERIC.pack(CTRL_CMD_GETFAMILY, _VERSION, 0) + name
        values = _answer([content for _, content in ask(NETLINK_GENERIC, GENL_ID_CTRL, request)])
        self._family = _number(values, CTRL_ATTR_FAMILY_ID)
        self._groups = attributes(values.get(CTRL_ATTR_MCAST_GROUPS, b"")).values()

    def connections(self) -> Multicast:
        """Listen to what becomes of connections.

        :raises OSError: as the kernel says. :raises ValueError: where it has no such group.
        """
        for group in map(attributes, self._groups):
            if group.get(CTRL_ATTR_MCAST_GRP_NAME) == CONNECTIONS:
                return Multicast.join(NETLINK_GENERIC, _number(group, CTRL_ATTR_MCAST_GRP_ID))
        raise ValueError("nl80211: no group of listeners for connections")

    def interface(self, index: int) -> WirelessInterface:
        """Say what an interface is, and on which channel.

        :raises OSError: as the kernel says; ``ENODEV`` where it is gone.
        :raises ValueError: where the answer is not what it should be.
        """
        return parse_interface(_answer(list(self._asked(ask, GET_INTERFACE, index))))

    def network(self, index: int) -> bytes:
        """Give the name of the network (SSID) of an interface: up to 32 bytes of any kind; none where it has none.

        :raises OSError: as the kernel says.
        :raises ValueError: where the answer is not what it should be.
        """
        return _answer(list(self._asked(ask, GET_INTERFACE, index))).get(SSID, b"")[:SSID_BYTES_MAX]

    def stations(self, index: int) -> list[Station] | None:
        """Give the stations that an interface speaks with: its access point, or those that it serves.

        At most ``ANSWERS_MAX``; None where the driver cannot tell.

        :raises OSError: as the kernel says.
        :raises ValueError: where an answer is not what it should be.
        """
        stations = self._dumped(GET_STATION, index)
        return None if stations is None else [parse_station(each) for each in stations]

    def channels(self, index: int, frequency_hz: int) -> list[Survey]:
        """Give the channels in use by the radio of an interface, and that of its own frequency.

        None of them where the driver cannot tell. Not all drivers tell which is in use.

        :raises OSError: as the kernel says.
        :raises ValueError: where an answer is not what it should be.
        """
        found = (parse_survey(each, frequency_hz) for each in self._dumped(GET_SURVEY, index) or [])
        return [survey for survey in found if survey is not None]

    def noise_dbm(self, index: int, frequency_hz: int) -> int:
        """Give the noise on the channel of an interface; ABSENT where its driver cannot tell, or refuses to.

        :raises ValueError: where an answer is not what it should be.
        """
        try:
            found = self.channels(index, frequency_hz) if frequency_hz != ABSENT else []
        except OSError:
            return ABSENT
        return next((each.noise_dbm for each in found if each.frequency_hz == frequency_hz), ABSENT)

    def _dumped(self, command: int, index: int) -> list[dict[int, bytes]] | None:
        try:
            answers = list(islice(self._asked(dump, command, index), ANSWERS_MAX))
        except OSError as refusal:
            if refusal.errno == EOPNOTSUPP:
                return None
            raise
        return [attributes(content[_GENERIC.size :]) for content in answers]

    def _asked(
        self, way: Callable[[int, int, bytes], Iterator[tuple[int, bytes]]], command: int, index: int
    ) -> Iterator[bytes]:
        request = _GENERIC.pack(command, 0, 0) + attribute(IFINDEX, index.to_bytes(4, sys.byteorder))
        return (content for kind, content in way(NETLINK_GENERIC, self._family, request) if kind == self._family)


def parse_interface(values: dict[int, bytes]) -> WirelessInterface:
    """Read the attributes of an interface; one on several channels (Wi-Fi 7) has that of its first link.

    :raises ValueError: where one is cut short.
    """
    kind = _number(values, IFTYPE)
    links = attributes(values.get(MLO_LINKS, b"")).values()
    tuned = next((each for each in (values, *map(attributes, links)) if WIPHY_FREQ in each), {})
    width = _number(tuned, CHANNEL_WIDTH)
    return WirelessInterface(
        TYPES[kind] if 0 <= kind < len(TYPES) else TYPES[0],
        _frequency_hz(tuned, WIPHY_FREQ, WIPHY_FREQ_OFFSET),
        WIDTHS_MHZ[width] * MHZ if 0 <= width < len(WIDTHS_MHZ) else ABSENT,
    )


def parse_station(values: dict[int, bytes]) -> Station:
    """Read the attributes of a station.

    :raises ValueError: where one is cut short.
    """
    info = attributes(values.get(STA_INFO, b""))
    levels = (_number(info, kind, signed=True) for kind in _LEVELS)
    counts = (_number(info, kind) for kind in _COUNTS)
    rates = (_rate(attributes(info.get(kind, b""))) for kind in _RATES)
    return Station(values.get(MAC, b"").hex(":"), *levels, *counts, *rates)


def parse_survey(values: dict[int, bytes], frequency_hz: int = ABSENT) -> Survey | None:
    """Read the attributes of a channel; None where it is neither in use nor of that frequency.

    :raises ValueError: where one is cut short.
    """
    info = attributes(values.get(SURVEY_INFO, b""))
    surveyed_hz = _frequency_hz(info, SURVEY_FREQUENCY, SURVEY_OFFSET)
    if surveyed_hz == ABSENT or (SURVEY_IN_USE not in info and surveyed_hz != frequency_hz):
        return None
    noise_dbm = _number(info, SURVEY_NOISE, signed=True)
    return Survey(surveyed_hz, noise_dbm, *(_number(info, kind) for kind in _TIMES))


def parse_connection(content: bytes) -> WifiConnection | None:
    """Read what is told of a connection; None for what is about something else, or no interface.

    :raises ValueError: where it is cut short.
    """
    command = content[0] if content else 0
    if command not in {CONNECT, ROAM, DISCONNECT}:
        return None
    values = attributes(content[_GENERIC.size :])
    interface, status = _number(values, IFINDEX), _number(values, STATUS_CODE)
    if interface == ABSENT:
        return None
    return WifiConnection(
        interface,
        command,
        1 if TIMED_OUT in values else max(0, status),
        max(0, _number(values, REASON_CODE)),
        DISCONNECTED_BY_AP in values,
        values.get(MAC, b"")[:MAC_BYTES].hex(":"),
        _network(values.get(REQ_IE, b"")),
    )


def _network(elements: bytes) -> bytes:
    """The name of the network in the elements of a request, each a type, a length, and that many bytes."""
    place = 0
    while place + 2 <= len(elements):
        kind, length = elements[place], elements[place + 1]
        if kind == SSID_ELEMENT:
            return elements[place + 2 : place + 2 + min(length, SSID_BYTES_MAX)]
        place += 2 + length
    return b""


def channel_number(frequency_hz: int) -> int:
    """Say how a channel is called that has this centre; ABSENT where it has no number.

    Source: ``ieee80211_freq_khz_to_channel`` in the kernel's ``net/wireless/util.c``.
    """
    mhz = frequency_hz // MHZ
    return next(((mhz - zero) // step for low, end, zero, step in _BANDS if low <= mhz < end), ABSENT)


def _answer(contents: list[bytes]) -> dict[int, bytes]:
    """Give the attributes of the one message that answers.

    :raises ValueError: where there is none, or it is cut short.
    """
    if not contents:
        raise ValueError("nl80211: no answer; expected one")
    return attributes(contents[0][_GENERIC.size :])


def _number(values: dict[int, bytes], kind: int, *, signed: bool = False) -> int:
    """Read a number of 1, 2, 4 or 8 bytes; ABSENT where there is none, or more than 63 bits hold."""
    value = values.get(kind)
    if value is None:
        return ABSENT
    if len(value) not in (1, 2, 4, 8):
        raise ValueError(f"nl80211: attribute {kind} has {len(value)} bytes; expected a number of 1, 2, 4 or 8")
    number = int.from_bytes(value, sys.byteorder, signed=signed)
    return number if number <= _INT64_MAX else ABSENT


def _frequency_hz(values: dict[int, bytes], kind: int, offset: int) -> int:
    """Read a frequency in MHz, and in kHz what it is above that."""
    mhz = _number(values, kind)
    return ABSENT if mhz == ABSENT else mhz * MHZ + max(0, _number(values, offset)) * 1000


def _rate(values: dict[int, bytes]) -> int:
    """Read a rate in bit/s: beyond 6.5 Gbit/s it has another attribute."""
    number = _number(values, RATE_BITRATE32 if RATE_BITRATE32 in values else RATE_BITRATE)
    return ABSENT if number == ABSENT else number * 100_000
