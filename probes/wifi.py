# SPDX-License-Identifier: Apache-2.0
"""Wi-Fi: how well a wireless interface hears its access point, how fast it is, and how busy its channel.

Source: the kernel by nl80211 (``sysmond.sources.nl80211``), as ``iw`` shows it, else ``/proc/net/wireless``. Drivers
tell what they count anyway: nothing is sent over the air. A device that sleeps, or is turned off, is not asked.
"""

from collections.abc import Iterable, Iterator, Sequence

from sysmond.probe import (
    ABSENT,
    Answers,
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
    state,
    text,
)
from sysmond.sources import wireless
from sysmond.sources.nl80211 import CLIENTS, MHZ, Station, Survey, WifiConnection, Wireless, channel_number
from sysmond.sources.unread import printable
from sysmond.sources.wifi_connections import KIND, CountedConnections, NamedConnections
from sysmond.sources.wireless import FOLDER, INTERFACES_MAX

NETWORK, POINT = "wifi network", "wifi access point"
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
    " counters and rates are about the access point that an interface is connected to, and absent for one that serves"
    " others, such as a hotspot. Counters restart with each connection, and most have only 32 bits in the kernel."
    " Drivers differ in what they count.",
    metrics=(
        _level("signal", "Strength at which its access point was last heard.", f"{_STATION}SIGNAL"),
        _level("signal_average", "The same, averaged by the driver.", f"{_STATION}SIGNAL_AVG"),
        _level("beacon_signal", "The same for beacons only, averaged.", f"{_STATION}BEACON_SIGNAL_AVG"),
        _count("received_packets", "Packets received from its access point.", "RX_PACKETS"),
        _count("sent_packets", "Packets sent to it.", "TX_PACKETS"),
        _count("retries", "Times a packet had to be sent again.", "TX_RETRIES"),
        _count("failures", "Packets given up, because nobody acknowledged them.", "TX_FAILED"),
        _count("beacon_losses", "Times that so many beacons were missed that the driver reported it.", "BEACON_LOSS"),
        _count("receive_drops", "Packets received and dropped, for unspecified reasons.", "RX_DROP_MISC"),
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
            "Stations it talks to: 1 if it is connected to an access point, otherwise how many it serves.",
            origin="NL80211_CMD_GET_STATION",
        ),
        text("type", "managed, AP, monitor, mesh point …, in the words of iw.", f"{_INTERFACE}IFTYPE"),
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
    doc="Channels used by wireless interfaces, if the driver surveys them, which not all do. An"
    " instance is an interface on a channel, such as wlan0:2437: each channel has its own times.",
    metrics=(
        _level("noise", "Noise on it.", f"{_SURVEY}NOISE"),
        _time("active_time", "How long the radio was on it, or turned on at all, depending on the driver.", "TIME"),
        _time("busy_time", "How long the channel was busy, whoever used it.", "TIME_BUSY"),
        _time("extension_busy_time", "How long its extension to 40 MHz was busy.", "TIME_EXT_BUSY"),
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
WIFI_CONNECTION = Table(
    "wifi_connection",
    per="interface",
    doc="How often a wireless interface was connected and disconnected since the recorder started."
    " Each time is an event, which does not name the network: those of wifi_ssid and wifi_bssid"
    " do.",
    metrics=(
        counter("connected", "1", "How often it was connected.", origin="NL80211_CMD_CONNECT"),
        counter("roamed", "1", "How often it roamed to another access point.", origin="NL80211_CMD_ROAM"),
        counter("disconnected", "1", "How often its connection ended.", origin="NL80211_CMD_DISCONNECT"),
        counter(
            "refused",
            "1",
            "How often an access point refused it, or did not answer.",
            origin="NL80211_CMD_CONNECT",
        ),
    ),
)
WIFI_BSSID = Table(
    "wifi_bssid",
    per="interface",
    doc="Which access point an interface is connected to. Its address reveals where the machine is.",
    metrics=(text("bssid", "Address of the access point.", f"{_INTERFACE}MAC"),),
)
WIFI_SSID = Table(
    "wifi_ssid",
    per="interface",
    doc="The name of the network that an interface is in, or offers. Many such names reveal whose it is, and where.",
    metrics=(text("ssid", "Name of the network; unprintable characters are shown as spaces.", f"{_INTERFACE}SSID"),),
)


def read(host: Host) -> Iterable[Row]:
    """Give a row for each wireless interface.

    :raises FileNotFoundError: where neither nl80211 is there, nor the older interface.
    """
    try:
        kernel = Wireless(host)
    except (OSError, ValueError):
        return wireless.older(host, lambda station, noise_dbm: (*station[1:], noise_dbm, *(ABSENT,) * 5))

    def values(index: int) -> Sequence[int | str]:
        interface, stations = kernel.interface(index), kernel.stations(index)
        station = stations[0] if stations and interface.kind in CLIENTS else Station()
        channel = channel_number(interface.frequency_hz)
        where = kernel.noise_dbm(index, interface.frequency_hz), interface.frequency_hz, interface.width_hz, channel
        return *station[1:], *where, ABSENT if stations is None else len(stations), interface.kind

    return wireless.rows(host, values)


def read_bssid(host: Host) -> Iterable[Row]:
    """Give a row for each interface that is connected to an access point.

    :raises OSError: where nl80211 cannot be asked.
    """
    kernel = Wireless(host)

    def values(index: int) -> tuple[str] | None:
        stations = kernel.stations(index) if kernel.interface(index).kind in CLIENTS else None
        return (stations[0].address,) if stations else None

    return wireless.rows(host, values)


def read_ssid(host: Host) -> Iterable[Row]:
    """Give a row for each interface that is in a network with a name.

    :raises OSError: where nl80211 cannot be asked.
    """
    kernel = Wireless(host)
    return wireless.rows(host, lambda index: (name,) if (name := printable(kernel.network(index))) else None)


def _network(host: Host, connection: WifiConnection) -> str:
    """The name of the network, of the kernel where the driver did not tell it."""
    return printable(connection.network or Wireless(host).network(connection.interface))


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

        for name, lacking in wireless.rows(host, values):
            if lacking:
                yield from ((channel, lacking) for channel in self._known.get(name, []))
                continue
            channels = {f"{name}:{each.frequency_hz / MHZ:g}": each[1:] for each in surveys}
            self._known[name] = list(channels)
            yield from channels.items()


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables of Wi-Fi; two, which have names, are left to the administrator."""
    lane, phy = Lane.BACKGROUND, f"{FOLDER}/*/phy80211"
    wifi = Probe(WIFI, read, 5.0, lane, subsystems=("net",), needs=(phy, f"{FOLDER}/*/wireless"))
    channel = Probe(WIFI_CHANNEL, Channels().read, 10.0, lane, subsystems=("net",), needs=(phy,))
    connection = Probe(WIFI_CONNECTION, CountedConnections().read, 60.0, lane, subsystems=("net",), needs=(phy,))
    named = Probe(WIFI_BSSID, tuple, 10.0, lane, Sensitivity.RESTRICTED, ("net",), enabled=False, needs=(phy,))
    bssids = NamedConnections(POINT, lambda _, connection: connection.address, read_bssid)
    ssids = NamedConnections(NETWORK, _network, read_ssid)
    bssid = named._replace(read=bssids.read, told_kinds=(POINT,))
    ssid = named._replace(table=WIFI_SSID, read=ssids.read, told_kinds=(NETWORK,))
    return [wifi, channel, connection._replace(told_kinds=(KIND,)), bssid, ssid]
