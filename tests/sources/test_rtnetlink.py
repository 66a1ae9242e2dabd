# SPDX-License-Identifier: Apache-2.0
"""Addresses and default routes in a network of its own, as a real kernel tells of them and announces them."""

import os
import shutil
import struct
import subprocess
import sys

import pytest
from sysmond_probes import address as probe

from sysmond.base.model import Lane, Sensitivity, check_table
from sysmond.probe import ADDRESSES, Host
from sysmond.sampler.device_events import address_of
from sysmond.sampler.device_groups import Announced
from sysmond.sources.rtnetlink import InterfaceAddress, parse

alone = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"), reason="no network of one's own here"
)
# What it prints is compared; each line that begins with a hyphen is a command.
SCRIPT = """
import select, subprocess, sys
from sysmond_probes import address
from sysmond.probe import ADDRESSES, Host
from sysmond.sampler.changes import RowChanges
from sysmond.sampler.device_events import DeviceEvents
from sysmond.sampler.source import Reading

host = Host()
devices = DeviceEvents(print)
probes = address.sysmond_probes()
changes = [RowChanges([metric.name for metric in probe.table.metrics], probe.tells) for probe in probes]


def look():
    for probe, changed in zip(probes, changes):
        rows = list(probe.read(host))
        names, values = tuple(name for name, _ in rows), [value for _, row in rows for value in row]
        for change in changed.of(Reading(names, values)):
            print(change.kind, change.subject, change.text, sep="|")


look()
for line in sys.stdin.read().splitlines():
    subprocess.run(["ip", *line.split()], check=True)
    seen = set()
    while devices.descriptors() and select.select(devices.descriptors(), [], [], 0.05)[0]:
        devices.hear()
        while not devices.descriptors():
            seen |= devices.changed()
    if ADDRESSES in seen:
        look()
    print("after", line)
"""


def told(*commands: str) -> list[str]:
    """What is told after what, in a network of its own: only where it was heard, it is looked for."""
    words = ["unshare", "-n", sys.executable, "-c", SCRIPT]
    done = subprocess.run(words, input="\n".join(commands), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_tables_are_restricted_and_in_the_background() -> None:
    for offered in probe.sysmond_probes():
        check_table(offered.table)
        assert (offered.lane, offered.sensitivity) == (Lane.BACKGROUND, Sensitivity.RESTRICTED)
        with pytest.raises(OSError, match="only the running machine"):
            list(offered.read(Host("/elsewhere")))


@alone
def test_addresses_and_the_way_to_the_world_are_told_as_the_kernel_announces_them() -> None:
    setup = ("link add d0 type veth peer name d1", "link set d1 up", "link set d0 up")
    assert told(
        *setup,
        "address add 192.0.2.7/24 dev d0",
        "address add fe80::7/64 dev d0",
        "address add 2001:db8::7/64 dev d0 nodad",
        "route add default via 192.0.2.1",
        "route add 203.0.113.0/24 via 192.0.2.1",
        "route add 128.0.0.0/1 dev d0",
        "address del 192.0.2.7/24 dev d0",
    )[-13:] == [
        "address|d0 192.0.2.7/24|is there",
        "after address add 192.0.2.7/24 dev d0",
        "after address add fe80::7/64 dev d0",
        "address|d0 2001:db8::7/64|is there",
        "after address add 2001:db8::7/64 dev d0 nodad",
        "default route|ipv4|none by none → 192.0.2.1 by d0",
        "after route add default via 192.0.2.1",
        "after route add 203.0.113.0/24 via 192.0.2.1",
        "default route|ipv4|192.0.2.1 by d0 → none by d0",
        "after route add 128.0.0.0/1 dev d0",
        "address|d0 192.0.2.7/24|is gone",
        "default route|ipv4|none by d0 → none by none",
        "after address del 192.0.2.7/24 dev d0",
    ]


V4 = InterfaceAddress("interface 0", "192.0.2.7/24", 4, is_temporary=False)
V6 = InterfaceAddress("interface 0", "2001:db8::7/64", 6, is_temporary=True)


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


@pytest.mark.parametrize(
    ("head", "values", "expected"),
    [
        ((2, 24, 0, 0, 0), {1: b"\xc0\0\2\7"}, V4),
        (
            (2, 24, 1, 0, 0),
            {1: b"\xc0\0\2\1", 2: b"\xc0\0\2\7"},
            V4,
        ),
        (
            (10, 64, 1, 0, 0),
            {1: b" \1\r\xb8" + bytes(11) + b"\7"},
            V6,
        ),
        ((10, 64, 0, 253, 0), {1: bytes(16)}, None),
        ((28, 64, 0, 0, 0), {}, None),
    ],
)
def test_what_the_kernel_says_is_read(
    head: tuple[int, ...], values: dict[int, bytes], expected: InterfaceAddress | None
) -> None:
    content = struct.pack("=BBBBi", *head) + b"".join(attribute(kind, value) for kind, value in values.items())
    assert parse(content) == expected


@pytest.mark.parametrize("content", [b"", b"\2\x18\0\0", b"\2\x18\0\0\0\0\0\0", b"\2\x18\0\0\0\0\0\0\xff\xff"])
def test_what_is_cut_short_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"rtnetlink|netlink|does not appear"):
        parse(content)


def message(kind: int, *, length: int) -> bytes:
    return struct.pack("=IHHII", 28, kind, 0, 0, 0) + struct.pack("=BB10x", 2, length)


def test_of_routes_only_those_to_much_of_the_world_wake() -> None:
    for kind in (24, 25):
        heard = [bool(address_of(message(kind, length=length)).subsystem) for length in (0, 1, 2, 24, 32)]
        assert heard == [True, True, False, False, False]
    assert address_of(message(20, length=24)) == Announced(ADDRESSES)
    assert address_of(message(24, length=0)[:17]) == Announced("")
