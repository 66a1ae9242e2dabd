# SPDX-License-Identifier: Apache-2.0
"""Addresses of interfaces, and which way packets to the world go, as the kernel answers by rtnetlink(7).

Nothing is sent to anybody: the kernel is asked which route it would take. Standard library only.
"""

import struct
import sys
from collections.abc import Iterator
from errno import EACCES, EHOSTUNREACH, ENETUNREACH
from socket import inet_ntop, inet_pton
from typing import NamedTuple

from sysmond.sources.netlink import ask, attribute, attributes, dump, interface_name

NETLINK_ROUTE = 0
RTM_GETADDR, RTM_GETROUTE = 22, 26
_ADDRESS = struct.Struct("=BBBBi")  # Family, length of the prefix, flags, scope, interface (struct ifaddrmsg).
_ROUTE = struct.Struct("=BBBBBBBBI")  # Family, lengths of destination and source, … (struct rtmsg).
IFA_ADDRESS, IFA_LOCAL = 1, 2
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_VIA = 1, 4, 5, 18
SCOPE_SITE, FLAG_TEMPORARY = 200, 0x01
_IPV4, _IPV6 = 2, 10  # AF_INET and AF_INET6: families of addresses, by which nothing is sent here.
FAMILIES = {"ipv4": _IPV4, "ipv6": _IPV6}
_FAMILY_OF = {4: _IPV4, 16: _IPV6}  # By the bytes of an address.
# An address that is nobody's in particular: that of a root server of DNS.
WORLD = {"ipv4": "198.41.0.4", "ipv6": "2001:503:ba3e::2:30"}
NO_ROUTE = frozenset({ENETUNREACH, EHOSTUNREACH, EACCES})  # EACCES: a route that prohibits.


class InterfaceAddress(NamedTuple):
    """An address of an interface, with the length of its prefix."""

    interface: str
    address: str
    version: int
    is_temporary: bool


class NextHop(NamedTuple):
    """Where packets go next; without a gateway the interface leads there by itself."""

    interface: str
    gateway: str


def addresses() -> Iterator[InterfaceAddress]:
    """All addresses but those that mean nothing beyond their link or their machine.

    :raises OSError: as the kernel says. :raises ValueError: where its answer is cut short.
    """
    for _, content in dump(NETLINK_ROUTE, RTM_GETADDR, _ADDRESS.pack(0, 0, 0, 0, 0)):
        if (parsed := parse(content)) is not None:
            yield parsed


def parse(content: bytes) -> InterfaceAddress | None:
    """Read a message; None for an address that means nothing beyond its link.

    :raises ValueError: where it is cut short.
    """
    if len(content) < _ADDRESS.size:
        raise ValueError(f"rtnetlink: {len(content)} bytes for an address; expected {_ADDRESS.size} or more")
    family, prefix, flags, scope, interface = _ADDRESS.unpack_from(content)
    values = attributes(content[_ADDRESS.size :])
    packed = values.get(IFA_LOCAL) or values.get(IFA_ADDRESS, b"")
    if scope > SCOPE_SITE or family not in FAMILIES.values():
        return None
    is_temporary = family == _IPV6 and bool(flags & FLAG_TEMPORARY)
    version = 4 if family == _IPV4 else 6
    return InterfaceAddress(interface_name(interface), f"{_text(packed)}/{prefix}", version, is_temporary)


def way_to(family: str) -> NextHop | None:
    """Which way a packet to the world would go; None where it would go nowhere.

    :raises OSError: as the kernel says. :raises ValueError: where its answer makes no sense.
    """
    number = FAMILIES[family]
    packed = inet_pton(number, WORLD[family])
    request = _ROUTE.pack(number, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0) + attribute(RTA_DST, packed)
    try:
        [(_, content)] = ask(NETLINK_ROUTE, RTM_GETROUTE, request)
    except OSError as refusal:
        if refusal.errno in NO_ROUTE:
            return None
        raise
    values = attributes(content[_ROUTE.size :])
    if (interface := int.from_bytes(values.get(RTA_OIF, b""), sys.byteorder)) == 0:
        return None
    gateway = values.get(RTA_GATEWAY) or values.get(RTA_VIA, b"")[2:]
    return NextHop(interface_name(interface), _text(gateway) if gateway else "")


def _text(packed: bytes) -> str:
    """Spell an address; ``ipaddress`` does that, too, and takes 0.2 MB.

    :raises ValueError: where it is none.
    """
    if len(packed) not in _FAMILY_OF:
        raise ValueError(f"rtnetlink: an address of {len(packed)} bytes; expected 4 or 16")
    return inet_ntop(_FAMILY_OF[len(packed)], packed)
