# SPDX-License-Identifier: Apache-2.0
"""Sockets in use and the memory they hold, from ``/proc/net/sockstat`` and ``sockstat6``.

Source: proc(5) and the kernel's ``net/ipv4/proc.c`` and ``net/ipv6/proc.c``, which write these files.
"""

import os
from collections.abc import Iterator

from sysmond.probe import Fields, Host, Probe, Row, Table, gauge, hookimpl

INTERVAL_S = 5.0
PATH = "/proc/net/sockstat"
PATH_6 = "/proc/net/sockstat6"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

SOCKET = Table(
    "socket",
    doc="Sockets by protocol. The IPv6 metrics count IPv6 sockets only, and are absent where the kernel has no IPv6.",
    metrics=(
        gauge("used", "1", "Sockets of every kind.", origin=f"{PATH} sockets: used"),
        gauge("tcp_in_use", "1", "TCP sockets over IPv4, listening ones included.", origin=f"{PATH} TCP: inuse"),
        gauge(
            "tcp_orphaned", "1", "TCP sockets that no process holds any more (orphans).", origin=f"{PATH} TCP: orphan"
        ),
        gauge("tcp_time_wait", "1", "TCP connections in TIME_WAIT.", origin=f"{PATH} TCP: tw"),
        gauge("tcp_allocated", "1", "TCP sockets allocated, in any state.", origin=f"{PATH} TCP: alloc"),
        gauge("tcp_memory", "B", "Memory of TCP's buffers.", origin=f"{PATH} TCP: mem"),
        gauge("udp_in_use", "1", "UDP sockets over IPv4.", origin=f"{PATH} UDP: inuse"),
        gauge("udp_memory", "B", "Memory of UDP's buffers.", origin=f"{PATH} UDP: mem"),
        gauge("udplite_in_use", "1", "UDP-Lite sockets over IPv4.", origin=f"{PATH} UDPLITE: inuse"),
        gauge("raw_in_use", "1", "Raw IPv4 sockets.", origin=f"{PATH} RAW: inuse"),
        gauge("frag_in_use", "1", "IPv4 datagrams waiting for their fragments.", origin=f"{PATH} FRAG: inuse"),
        gauge("frag_memory", "B", "Memory of IPv4 fragments.", origin=f"{PATH} FRAG: memory"),
        gauge("tcp6_in_use", "1", "TCP sockets over IPv6, listening ones included.", origin=f"{PATH_6} TCP6: inuse"),
        gauge("udp6_in_use", "1", "UDP sockets over IPv6.", origin=f"{PATH_6} UDP6: inuse"),
        gauge("udplite6_in_use", "1", "UDP-Lite sockets over IPv6.", origin=f"{PATH_6} UDPLITE6: inuse"),
        gauge("raw6_in_use", "1", "Raw IPv6 sockets.", origin=f"{PATH_6} RAW6: inuse"),
        gauge("frag6_in_use", "1", "IPv6 datagrams waiting for their fragments.", origin=f"{PATH_6} FRAG6: inuse"),
        gauge("frag6_memory", "B", "Memory of IPv6 fragments.", origin=f"{PATH_6} FRAG6: memory"),
    ),
)

# The kernel counts these in pages, and the memory of fragments in bytes.
_FACTORS = tuple(PAGE_BYTES if metric.origin.endswith(": mem") else 1 for metric in SOCKET.metrics)


class Sockstat:
    """Reads both files, whose lines are a protocol followed by pairs of a name and a number."""

    def __init__(self) -> None:
        """Know no layout yet."""
        self._fields = Fields((metric.origin.split(" ", 1)[1].encode() for metric in SOCKET.metrics), _FACTORS)
        self._layout: list[bytes] = []
        self._names: list[bytes] = []

    def read(self, host: Host) -> Iterator[Row]:
        """Give the one row."""
        content = host.read(PATH) + _read_if_there(host, PATH_6)
        # Joining the protocol to its first name leaves names and numbers in turn: "TCP:inuse 1 orphan 0".
        words = content.replace(b": ", b":").split()
        layout, numbers = words[::2], words[1::2]
        if len(layout) != len(numbers):
            raise ValueError(f"{PATH}: a name without a number")
        if layout != self._layout:
            self._learn(layout)
        yield "", self._fields.pick(self._names, numbers)

    def _learn(self, layout: list[bytes]) -> None:
        protocol, names = b"", []
        for word in layout:
            before, colon, name = word.rpartition(b":")
            protocol = before if colon else protocol
            names.append(protocol + b": " + name)
        self._layout, self._names = layout, names


def _read_if_there(host: Host, path: str) -> bytes:
    try:
        return host.read(path)
    except FileNotFoundError:  # A kernel without IPv6.
        return b""


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``socket``."""
    return [Probe(SOCKET, Sockstat().read, INTERVAL_S, pure=True)]
