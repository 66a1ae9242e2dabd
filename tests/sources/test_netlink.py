# SPDX-License-Identifier: Apache-2.0
"""Dumps by netlink: of this kernel, refusals, and what is cut short."""

import socket
import struct

import pytest

from sysmond.sources import netlink

RTM_GETLINK, RTM_NEWLINK = 18, 16
IFLA_IFNAME = 3
OF_LINKS = struct.pack("=BxHiII", 0, 0, 0, 0, 0)  # struct ifinfomsg


def test_the_interfaces_of_this_machine_are_dumped() -> None:
    found = []
    for kind, content in netlink.dump(0, RTM_GETLINK, OF_LINKS):
        assert kind == RTM_NEWLINK
        found.append(netlink.attributes(content[len(OF_LINKS) :])[IFLA_IFNAME].rstrip(b"\0").decode())
    assert sorted(found) == sorted(name for _, name in socket.if_nameindex())


def test_a_refusal_is_an_error_of_the_kernel() -> None:
    with pytest.raises(OSError, match="Operation not supported"):
        list(netlink.dump(0, 2000, OF_LINKS))


def test_attributes_lose_their_flags_and_their_padding() -> None:
    nested = struct.pack("=HH3sx", 7, 0x8002, b"abc")
    assert netlink.attributes(nested + struct.pack("=HHI", 8, 1, 5)) == {2: b"abc", 1: b"\5\0\0\0"}


@pytest.mark.parametrize("content", [b"\1", b"\2\0\1\0", b"\x10\0\1\0abcd", b"\0\0\0\0"])
def test_what_is_cut_short_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="netlink:"):
        netlink.attributes(content)
