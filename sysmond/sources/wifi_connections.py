# SPDX-License-Identifier: Apache-2.0
"""When a wireless interface connects, roams to another access point, or is disconnected: the kernel says so and wakes.

Source: the group ``mlme`` of nl80211, which ``sysmond.sources.nl80211`` speaks. Nothing is sent over the air, and no
driver is asked. Standard library only.
"""

import select
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from sysmond.probe import Host, Row
from sysmond.sources import wireless
from sysmond.sources.netlink import NLMSG_OVERRUN, Multicast, interface_name
from sysmond.sources.nl80211 import DISCONNECT, ROAM, WifiConnection, Wireless, parse_connection

KIND = "wifi"
MESSAGES_MAX = 256
CONNECTED, ROAMED, DISCONNECTED, REFUSED = "connected", "roamed to another access point", "disconnected", "refused"
COUNTED = (CONNECTED, ROAMED, DISCONNECTED, REFUSED)
# By IEEE 802.11; there are some sixty more.
REASONS = {
    1: "unspecified", 2: "no longer authenticated", 3: "it leaves", 4: "inactivity", 5: "too many stations",
    6: "not authenticated", 7: "not associated", 8: "it leaves", 15: "no answer to the key",
    16: "no answer to the new key", 23: "802.1X refused",
}  # fmt: skip


class ConnectionChange(NamedTuple):
    """What was done with an interface, of ``COUNTED``, in words, and what was told of it."""

    interface: str
    done: str
    text: str
    connection: WifiConnection


class Connections:
    """Listens from the first wireless interface on, and knows which access point each had last."""

    def __init__(self) -> None:
        """Hear nothing yet."""
        self._listening: Multicast | None = None
        self._at: dict[int, str] = {}

    def take(self, host: Host) -> list[ConnectionChange]:
        """Give what has come.

        :raises OSError: where there is nothing wireless, or the kernel may not be heard. :raises ValueError: likewise.
        """
        listening = self._listening or self._open(host)
        changes = []
        with suppress(ValueError):  # What is cut short is no news.
            for kind, content in listening.heard(MESSAGES_MAX):
                with suppress(ValueError):
                    if kind != NLMSG_OVERRUN and (connection := parse_connection(content)) is not None:
                        changes.append(self._change(connection))
        return changes

    def _open(self, host: Host) -> Multicast:
        listening = Wireless(host).connections()
        wakes = select.epoll()
        wakes.register(listening.fileno(), select.EPOLLIN)
        host.at_close(wakes.close)
        host.at_close(self._close)
        self._listening, host.wakes = listening, wakes
        return listening

    def _close(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()

    def _change(self, connection: WifiConnection) -> ConnectionChange:
        """What a connection means; with some drivers who roams connects anew."""
        before = self._at.pop(connection.interface, "")
        done = CONNECTED
        if connection.command == DISCONNECT:
            done = DISCONNECTED
        elif connection.status:
            done = REFUSED
        else:
            self._at[connection.interface] = connection.address
            if connection.command == ROAM or (before and before != connection.address):
                done = ROAMED
        return ConnectionChange(interface_name(connection.interface), done, text_of(done, connection), connection)


def text_of(done: str, connection: WifiConnection) -> str:
    """Say what was done, and why."""
    if done == REFUSED:
        return f"{done}, status {connection.status}"
    if done != DISCONNECTED:
        return done
    by = " by the access point" if connection.is_of_ap else ""
    known = f" ({REASONS[connection.reason]})" if connection.reason in REASONS else ""
    return f"{done}{by}{f', reason {connection.reason}{known}' if connection.reason else ''}"


class CountedConnections:
    """Counts what becomes of connections, and tells of it, without names."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._connections = Connections()
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTED, 0))

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each wireless interface.

        :raises OSError: where nl80211 cannot be heard. :raises ValueError: likewise.
        """
        for change in self._connections.take(host):
            if change.interface in self._counts or len(self._counts) < wireless.INTERFACES_MAX:
                self._counts[change.interface][change.done] += 1
            host.tell_event(KIND, change.interface, change.text)
        for name in wireless.names(host):
            yield name, tuple(self._counts[name].values())


class NamedConnections:
    """Reads a table of names, and tells which name an interface has from now on, as soon as it has another."""

    def __init__(
        self, kind: str, name: Callable[[Host, WifiConnection], str], read: Callable[[Host], Iterable[Row]]
    ) -> None:
        """``kind`` of event; ``name``: what a connection has that is worth it; ``read``: gives the rows."""
        self._connections = Connections()
        self._kind, self._name, self._rows = kind, name, read
        self._names: dict[str, str] = {}

    def read(self, host: Host) -> Iterable[Row]:
        """Give the rows, and tell.

        :raises OSError: where nl80211 cannot be asked.
        """
        with suppress(OSError, ValueError):
            for change in self._connections.take(host):
                self._tell(host, change)
        return self._rows(host)

    def _tell(self, host: Host, change: ConnectionChange) -> None:
        name = self._name(host, change.connection) if change.done in {CONNECTED, ROAMED} else ""
        if name and name != self._names.get(change.interface):
            self._names[change.interface] = name
            host.tell_event(self._kind, change.interface, name)
