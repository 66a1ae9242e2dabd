# SPDX-License-Identifier: Apache-2.0
"""Wi-Fi: how well a wireless interface hears its access point, how fast it is, and how busy its channel.

Source: the kernel by nl80211 (``sysmond.sources.nl80211``), as ``iw`` shows it, else ``/proc/net/wireless``. Drivers
tell what they count anyway: nothing is sent over the air. A device that sleeps, or is turned off, is not asked.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from sysmond.probe import (
    ABSENT,
    Absence,
    Answers,
    Cause,
    Derived,
    Host,
    Lane,
    Metric,
    Probe,
    Row,
    Sensitivity,
    Table,
    counter,
    gauge,
    hookimpl,
    rows_of,
    state,
    text,
)
from sysmond.sources.nl80211 import CLIENTS, MHZ, Station, Survey, Wireless, WirelessInterface, channel_number
from sysmond.sources.unread import printable

FOLDER = "/sys/class/net"
PROC = "/proc/net/wireless"
INTERFACES_MAX = 16
IFF_UP = 1
UNKNOWN_DBM = -256
HEADER_LINES, PROC_WORDS = 2, 10

_STATION, _SURVEY, _INTERFACE = "NL80211_STA_INFO_", "NL80211_SURVEY_INFO_", "NL80211_ATTR_"


def _level(name: str, doc: str, origin: str) -> Metric:
    return gauge(name, "dBm", doc, origin=origin)


def _count(name: str, doc: str, origin: str) -> Metric:
    return counter(name, "1", doc, origin=_STATION + origin)


def _time(name: str, doc: str, origin: str) -> Metric:
    return counter(name, "s", doc, 3, _SURVEY + origin)


WIFI = Table(
    "wifi",
    per="interface",
    doc=f"Wireless interfaces, the first {INTERFACES_MAX} by name; their bytes are in the table network. Signal,"
    " counters and rates are about the access point that an interface is connected to, and absent of one that serves"
    " others, as a hotspot does. Counters begin anew with each connection, and the kernel has most of them in 32 bits."
    " Drivers differ in what they count.",
    metrics=(
        _level("signal", "Strength at which its access point was last heard.", f"{_STATION}SIGNAL"),
        _level("signal_average", "The same, averaged by the driver.", f"{_STATION}SIGNAL_AVG"),
        _level("beacon_signal", "The same of beacons alone, averaged.", f"{_STATION}BEACON_SIGNAL_AVG"),
        _count("received_packets", "Packets received from its access point.", "RX_PACKETS"),
        _count("sent_packets", "Packets sent to it.", "TX_PACKETS"),
        _count("retries", "Times a packet had to be sent again.", "TX_RETRIES"),
        _count("failures", "Packets given up, since nobody acknowledged them.", "TX_FAILED"),
        _count("beacon_losses", "Times that beacons were missed for so long that it was noticed.", "BEACON_LOSS"),
        _count("receive_drops", "Packets received and dropped, for reasons that are not told.", "RX_DROP_MISC"),
        gauge("connected_time", "s", "How long it has been connected.", origin=f"{_STATION}CONNECTED_TIME"),
        gauge("receive_rate", "bit/s", "Bit rate of what was last received.", origin=f"{_STATION}RX_BITRATE"),
        gauge("send_rate", "bit/s", "Bit rate of what is sent.", origin=f"{_STATION}TX_BITRATE"),
        _level("noise", "Noise on its channel.", f"{_SURVEY}NOISE"),
        gauge("frequency", "Hz", "Centre of its primary channel.", origin=f"{_INTERFACE}WIPHY_FREQ"),
        gauge("width", "Hz", "Width of its channel.", origin=f"{_INTERFACE}CHANNEL_WIDTH"),
        state("channel", "Number of its primary channel; frequency tells the band.", f"{_INTERFACE}WIPHY_FREQ"),
        gauge(
            "stations",
            "1",
            "Stations that it speaks with: 1 where it is connected to an access point, or how many it serves.",
            origin="NL80211_CMD_GET_STATION",
        ),
        text("type", "managed, AP, monitor, mesh point …, as iw calls it.", f"{_INTERFACE}IFTYPE"),
    ),
    answers=Answers(
        derived=(
            Derived("snr", "dB", "signal - noise", "How far the signal is above the noise."),
            Derived("retries_per_packet", "1", "retries / sent_packets", "How often a packet had to be sent again."),
            Derived("failures_percent", "%", "failures / sent_packets * 100", "Share of packets that were given up."),
        )
    ),
)
WIFI_CHANNEL = Table(
    "wifi_channel",
    per="interface:MHz",
    doc="Channels in use by wireless interfaces, where the driver surveys them, which not all do. An instance is an"
    " interface on a channel, as wlan0:2437: each channel has its own times.",
    metrics=(
        _level("noise", "Noise on it.", f"{_SURVEY}NOISE"),
        _time("active_time", "How long the radio was on it, or turned on at all, as the driver has it.", "TIME"),
        _time("busy_time", "How long the channel was found busy, by whomever.", "TIME_BUSY"),
        _time("extension_busy_time", "How long that part of it was busy that makes it 40 MHz.", "TIME_EXT_BUSY"),
        _time("receive_time", "How long the radio received.", "TIME_RX"),
        _time("transmit_time", "How long the radio sent.", "TIME_TX"),
        _time("scan_time", "How long it looked for networks.", "TIME_SCAN"),
    ),
    answers=Answers(
        derived=(
            Derived("busy_percent", "%", "busy_time / active_time * 100", "Share of time in which it was busy."),
            Derived("receive_percent", "%", "receive_time / active_time * 100", "Share of time spent receiving."),
            Derived("transmit_percent", "%", "transmit_time / active_time * 100", "Share of time spent sending."),
        )
    ),
)
WIFI_BSSID = Table(
    "wifi_bssid",
    per="interface",
    doc="Which access point an interface is connected to. Its address tells where the machine is.",
    metrics=(text("bssid", "Address of the access point.", f"{_INTERFACE}MAC"),),
)
WIFI_SSID = Table(
    "wifi_ssid",
    per="interface",
    doc="The name of the network that an interface is in, or offers. Many tell whose it is, and where.",
    metrics=(text("ssid", "Name of the network; what is not printable in it is a space.", f"{_INTERFACE}SSID"),),
)


def read(host: Host) -> Iterable[Row]:
    """Give a row for each wireless interface.

    :raises FileNotFoundError: where neither nl80211 is there, nor the older interface.
    """
    try:
        kernel = Wireless(host)
    except (OSError, ValueError):
        return _older(host)

    def values(index: int) -> Sequence[int | str]:
        interface, stations = kernel.interface(index), kernel.stations(index)
        station = stations[0] if stations and interface.kind in CLIENTS else Station()
        channel = channel_number(interface.frequency_hz)
        where = _noise_dbm(kernel, interface, index), interface.frequency_hz, interface.width_hz, channel
        return *station[1:], *where, ABSENT if stations is None else len(stations), interface.kind

    return _rows(host, values)


def read_bssid(host: Host) -> Iterable[Row]:
    """Give a row for each interface that is connected to an access point.

    :raises OSError: where nl80211 cannot be asked.
    """
    kernel = Wireless(host)

    def values(index: int) -> tuple[str] | None:
        stations = kernel.stations(index) if kernel.interface(index).kind in CLIENTS else None
        return (stations[0].address,) if stations else None

    return _rows(host, values)


def read_ssid(host: Host) -> Iterable[Row]:
    """Give a row for each interface that is in a network with a name.

    :raises OSError: where nl80211 cannot be asked.
    """
    kernel = Wireless(host)

    def values(index: int) -> tuple[str] | None:
        name = printable(kernel.network(index))
        return (name,) if name else None

    return _rows(host, values)


class Channels:
    """Asks for them, and remembers which each interface had, for as long as it sleeps or fails."""

    def __init__(self) -> None:
        """Know of none yet."""
        self._known: dict[str, list[str]] = {}

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each channel in use.

        :raises OSError: where nl80211 cannot be asked.
        """
        kernel = Wireless(host)
        surveys: list[Survey] = []

        def values(index: int) -> tuple[()]:
            frequency_hz = kernel.interface(index).frequency_hz
            surveys[:] = kernel.channels(index, frequency_hz) if frequency_hz != ABSENT else []
            return ()

        for name, lacking in _rows(host, values):
            if lacking:
                yield from ((channel, lacking) for channel in self._known.get(name, []))
                continue
            channels = {f"{name}:{each.frequency_hz / MHZ:g}": each[1:] for each in surveys}
            self._known[name] = list(channels)
            yield from channels.items()


def _names(host: Host) -> list[str]:
    """Name the wireless interfaces; one whose driver knows the older interface alone has no phy80211."""
    marks = ("phy80211", "wireless")
    names = host.names(FOLDER)
    wireless = (name for name in names if any(os.path.isdir(f"{host.root}{FOLDER}/{name}/{mark}") for mark in marks))
    return list(islice(wireless, INTERFACES_MAX))


def _rows(host: Host, values: Callable[[int], Sequence[int | str] | None]) -> Iterator[Row]:
    """Give a row for each wireless interface, by its number; one that sleeps or is turned off is not asked."""

    def asked(name: str) -> Sequence[int | str] | None:
        if host.is_asleep(f"{FOLDER}/{name}/device"):
            return Absence(Cause.ASLEEP)
        if not int(host.read(f"{FOLDER}/{name}/flags"), 16) & IFF_UP:
            return Absence(Cause.NO_SOURCE, "it is turned off")
        return values(int(host.read(f"{FOLDER}/{name}/ifindex")))

    return rows_of(_names(host), asked)


def _noise_dbm(kernel: Wireless, interface: WirelessInterface, index: int) -> int:
    """Give the noise on the channel of an interface; a driver that cannot tell costs nothing else."""
    wanted_hz = interface.frequency_hz
    try:
        surveys = kernel.channels(index, wanted_hz) if wanted_hz != ABSENT else []
    except OSError:
        return ABSENT
    return next((each.noise_dbm for each in surveys if each.frequency_hz == wanted_hz), ABSENT)


def _older(host: Host) -> Iterable[Row]:
    """Give what ``/proc/net/wireless`` tells. All drivers are asked for it, so not while one of their devices sleeps.

    :raises FileNotFoundError: where there is none.
    """
    names = _names(host)
    if any(host.is_asleep(f"{FOLDER}/{name}/device") for name in names):
        return [(name, Absence(Cause.ASLEEP)) for name in names]
    lines = (line.rpartition(b":") for line in host.read(PROC).splitlines()[HEADER_LINES:])
    told = {name.strip().decode("utf-8", "surrogateescape"): numbers for name, _, numbers in lines}
    return rows_of((name for name in names if name in told), lambda name: parse(told[name]))


def parse(numbers: bytes) -> Sequence[int | str]:
    """Read the numbers of an interface in ``/proc/net/wireless`` as a row: levels in dBm are less than zero.

    :raises ValueError: where they are fewer than ten, or none.
    """
    words = numbers.replace(b".", b" ").split()
    level, noise, _, _, _, failures, drops, losses = map(int, words[2:PROC_WORDS])
    signal, noise_dbm = (each if UNKNOWN_DBM < each < 0 else ABSENT for each in (level, noise))
    station = Station("", signal, failures=failures, receive_drops=drops, beacon_losses=losses)
    return *station[1:], noise_dbm, *(ABSENT,) * 5


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``wifi`` and ``wifi_channel``, and two that are left to the administrator."""
    lane, phy = Lane.BACKGROUND, f"{FOLDER}/*/phy80211"
    wifi = Probe(WIFI, read, 5.0, lane, subsystems=("net",), needs=(phy, f"{FOLDER}/*/wireless"))
    channel = Probe(WIFI_CHANNEL, Channels().read, 10.0, lane, subsystems=("net",), needs=(phy,))
    bssid = Probe(WIFI_BSSID, read_bssid, 10.0, lane, Sensitivity.RESTRICTED, ("net",), enabled=False, needs=(phy,))
    return [wifi, channel, bssid, bssid._replace(table=WIFI_SSID, read=read_ssid)]
