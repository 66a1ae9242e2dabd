# SPDX-License-Identifier: Apache-2.0
"""Connections of Wi-Fi: what the kernel says of them, byte by byte, what becomes of it, garbage, and a real group."""

import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sysmond_probes import wifi

from sysmond.base.model import Sensitivity, check_table
from sysmond.probe import Host
from sysmond.sources import wifi_connections
from sysmond.sources.netlink import HEADER, Multicast
from sysmond.sources.nl80211 import CONNECT, DISCONNECT, ROAM, WifiConnection, parse_connection
from sysmond.sources.wifi_connections import Connections, CountedConnections, NamedConnections, text_of
from tests.support import sysfs
from tests.support.wireless import attribute, message, u16, u32

FIRST, SECOND = "02004c4f4f50", "020047554553"
NAMED = bytes((1, 2, 0x82, 0x84, 0, 4)) + b"home" + bytes((48, 0))
"""Elements of a request: rates, the name of the network, and one that is empty."""


def connected(point: str = FIRST, name: bytes = NAMED, status: int = 0, interface: int = 3) -> bytes:
    return message(
        CONNECT, u32(1, 0), u32(3, interface), attribute(6, bytes.fromhex(point)), u16(72, status), attribute(77, name)
    )


def roamed(point: str = SECOND) -> bytes:
    return message(ROAM, u32(1, 0), u32(3, 3), attribute(6, bytes.fromhex(point)), attribute(77, NAMED))


def disconnected(reason: int = 0, *, is_of_ap: bool = False) -> bytes:
    said = [u16(54, reason)] if reason else []
    return message(DISCONNECT, u32(1, 0), u32(3, 3), *said, *([attribute(71, b"")] if is_of_ap else []))


def test_what_is_told_of_a_connection_is_read() -> None:
    assert parse_connection(connected()) == WifiConnection(3, CONNECT, 0, 0, False, "02:00:4c:4f:4f:50", b"home")
    assert parse_connection(connected(status=17)) == parse_connection(connected())._replace(status=17)  # type: ignore[union-attr]
    assert parse_connection(roamed()) == WifiConnection(3, ROAM, address="02:00:47:55:45:53", network=b"home")
    assert parse_connection(disconnected(15, is_of_ap=True)) == WifiConnection(3, DISCONNECT, 0, 15, is_of_ap=True)
    assert parse_connection(message(CONNECT, u32(3, 3), attribute(65, b""))) == WifiConnection(3, CONNECT, 1)


@pytest.mark.parametrize("content", [b"", b"\x2e", message(19, u32(3, 3)), message(60)])
def test_what_is_about_something_else_is_none(content: bytes) -> None:
    assert parse_connection(content) is None


@pytest.mark.parametrize(
    ("elements", "network"),
    [
        (b"", b""),
        (b"\0", b""),
        (b"\0\0", b""),
        (b"\0\x05ab", b"ab"),
        (b"\0\xff" + b"x" * 255, b"x" * 32),
        (b"\x01\xff", b""),
        (b"\x01\x01\x00" * 99 + b"\0\1z", b"z"),
    ],
)
def test_elements_that_are_cut_short_cost_nothing(elements: bytes, network: bytes) -> None:
    told = parse_connection(connected(name=elements))
    assert told is not None
    assert told.network == network


@pytest.mark.parametrize("seed", range(20))
def test_garbage_is_refused_or_read(seed: int) -> None:
    chance = random.Random(seed)
    for whole in (connected(), roamed(), disconnected(3)):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            told = parse_connection(bytes(damaged[: chance.randrange(1, len(damaged) + 1)]))
        except ValueError:
            continue
        assert told is None or len(told.network) <= 32


@pytest.mark.parametrize(
    ("done", "connection", "text"),
    [
        ("connected", WifiConnection(3, CONNECT), "connected"),
        ("refused", WifiConnection(3, CONNECT, 17), "refused, status 17"),
        ("disconnected", WifiConnection(3, DISCONNECT), "disconnected"),
        ("disconnected", WifiConnection(3, DISCONNECT, 0, 4), "disconnected, reason 4 (inactivity)"),
        (
            "disconnected",
            WifiConnection(3, DISCONNECT, 0, 99, is_of_ap=True),
            "disconnected by the access point, reason 99",
        ),
    ],
)
def test_why_is_said(done: str, connection: WifiConnection, text: str) -> None:
    assert text_of(done, connection) == text


class Air:
    """A kernel that says what a test has it say: real datagrams, over a real socket."""

    def __init__(self) -> None:
        self.heard, self.says = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def connections(self) -> Multicast:
        return Multicast(self.heard)

    def say(self, *contents: bytes) -> None:
        for content in contents:
            self.says.send(HEADER.pack(HEADER.size + len(content), 30, 0, 0, 0) + content)


@pytest.fixture
def air(monkeypatch: pytest.MonkeyPatch) -> Iterator[Air]:
    made = Air()
    monkeypatch.setattr(wifi_connections, "Wireless", lambda _: made)
    monkeypatch.setattr(wifi_connections, "interface_name", lambda number: f"wlan{number - 3}")
    with closing(made.heard), closing(made.says):
        yield made


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(str(sysfs.build(tmp_path, "laptop", "wifi")))
    with closing(made):
        yield made


def events(host: Host) -> list[tuple[str, str, str]]:
    return [event[:3] for event in host.take_events()]


def test_only_what_names_no_network_is_public() -> None:
    offered = {one.table.name: one for one in wifi.sysmond_probes()}
    check_table(offered["wifi_connection"].table)
    assert offered["wifi_connection"].sensitivity is Sensitivity.PUBLIC
    assert offered["wifi_connection"].told_kinds == ("wifi",)
    for table in ("wifi_ssid", "wifi_bssid"):
        assert (offered[table].sensitivity, offered[table].enabled) == (Sensitivity.RESTRICTED, False)
        assert offered[table].told_kinds != ("wifi",)


def test_connections_are_counted_and_told_without_names_and_wake(air: Air, host: Host) -> None:
    counted = CountedConnections()
    assert dict(counted.read(host)) == {"wlan0": (0, 0, 0, 0)}
    assert host.wakes is not None
    assert host.wakes.poll(0) == []
    air.say(connected(), roamed(), connected(FIRST), disconnected(4, is_of_ap=True), connected(status=17), connected())
    assert host.wakes.poll(0) != []
    assert dict(counted.read(host)) == {"wlan0": (2, 2, 1, 1)}
    roaming = ("wifi", "wlan0", "roamed to another access point")
    assert events(host) == [
        ("wifi", "wlan0", "connected"),
        roaming,
        roaming,
        ("wifi", "wlan0", "disconnected by the access point, reason 4 (inactivity)"),
        ("wifi", "wlan0", "refused, status 17"),
        ("wifi", "wlan0", "connected"),
    ]
    assert host.wakes.poll(0) == []
    assert (dict(counted.read(host)), events(host)) == ({"wlan0": (2, 2, 1, 1)}, [])


def test_who_connects_anew_to_the_same_access_point_has_not_roamed(air: Air, host: Host) -> None:
    connections = Connections()
    assert connections.take(host) == []
    air.say(connected(), connected())
    assert [change.done for change in connections.take(host)] == ["connected", "connected"]


def test_garbage_is_no_news_and_what_follows_is_heard(air: Air, host: Host) -> None:
    connections = Connections()
    connections.take(host)
    air.says.send(b"\xff" * 7)
    air.say(connected()[:-5])
    air.say(message(19, u32(3, 3)))
    air.say(connected())
    changes = [*connections.take(host), *connections.take(host)]
    assert [change.done for change in changes] == ["connected"]


def test_a_storm_is_taken_in_bounded_pieces(air: Air, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wifi_connections, "MESSAGES_MAX", 4)
    connections = Connections()
    connections.take(host)
    air.say(*[connected()] * 6)
    assert [len(connections.take(host)) for _ in range(3)] == [4, 2, 0]


def test_a_name_is_told_when_it_is_another(air: Air, host: Host) -> None:
    named = NamedConnections(
        "wifi access point", lambda _, connection: connection.address, lambda _: [("wlan0", ("x",))]
    )
    assert list(named.read(host)) == [("wlan0", ("x",))]
    air.say(connected(), disconnected(), connected(), connected(SECOND, status=1), roamed())
    named.read(host)
    assert events(host) == [
        ("wifi access point", "wlan0", "02:00:4c:4f:4f:50"),
        ("wifi access point", "wlan0", "02:00:47:55:45:53"),
    ]


def test_the_name_of_a_network_is_made_printable(air: Air, host: Host) -> None:
    named = NamedConnections("wifi network", wifi._network, lambda _: [])
    named.read(host)
    air.say(connected(name=b"\0\x08a\x1b[2J\xffb"))
    named.read(host)
    assert events(host) == [("wifi network", "wlan0", "a [2J\ufffdb")]


def test_a_copied_tree_is_not_heard(host: Host) -> None:
    with pytest.raises(FileNotFoundError):
        list(CountedConnections().read(host))


# In a network of its own, where its loopback interface is turned on.
HEARS = """
import subprocess, select
from sysmond.sources.netlink import Multicast
listening = Multicast.join(0, 1)  # RTNLGRP_LINK
wakes = select.epoll()
wakes.register(listening.fileno(), select.EPOLLIN)
assert wakes.poll(0) == [] and list(listening.heard(9)) == []
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
assert wakes.poll(10) != []
print([kind for kind, content in listening.heard(9) if content])
"""


def test_a_real_group_is_heard_and_wakes() -> None:
    words = ["unshare", "-rn", sys.executable, "-c", HEARS]
    ran = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    if "unshare:" in ran.stderr or "'ip'" in ran.stderr:
        pytest.skip(f"no network of one's own here: {ran.stderr.splitlines()[-1]}")
    assert "16" in ran.stdout, ran.stderr  # RTM_NEWLINK


def test_a_group_that_there_is_not_is_refused() -> None:
    with pytest.raises(OSError, match=r"Invalid argument|No such file"):
        Multicast.join(16, 1 << 30)
