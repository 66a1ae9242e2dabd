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


GENERIC, CONTROLLER, GETFAMILY, FAMILY_ID, FAMILY_NAME = 16, 16, 3, 1, 2


def family(name: bytes) -> list[tuple[int, bytes]]:
    """Ask for one family of generic netlink by its name."""
    head = struct.pack("=BBH", GETFAMILY, 1, 0)
    return list(netlink.ask(GENERIC, CONTROLLER, head + netlink.attribute(FAMILY_NAME, name + b"\0")))


def test_one_thing_is_asked_for_and_comes_once() -> None:
    [(kind, content)] = family(b"nlctrl")
    told = netlink.attributes(content[4:])
    assert (kind, told[FAMILY_ID], told[FAMILY_NAME]) == (CONTROLLER, struct.pack("=H", CONTROLLER), b"nlctrl\0")


def test_what_the_kernel_does_not_have_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        family(b"none such")


@pytest.mark.parametrize(
    ("value", "spelled"), [(b"", "04000700"), (b"abc", "0700070061626300"), (b"abcd", "0800070061626364")]
)
def test_an_attribute_is_padded_and_says_how_long_it_is(value: bytes, spelled: str) -> None:
    assert netlink.attribute(7, value) == bytes.fromhex(spelled)
    assert netlink.attributes(netlink.attribute(7, value)) == {7: value}


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 2**31 - 1, 2**32, 2**63 - 1])
def test_an_interface_that_there_is_not_has_its_number(number: int) -> None:
    assert netlink.interface_name(number) == f"interface {number}"
