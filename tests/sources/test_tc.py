# SPDX-License-Identifier: Apache-2.0
"""Qdiscs as the kernel tells of them: one of each kind by the structures of its headers, and what is cut short."""

import struct

import pytest

from sysmond.sources import tc

FAIR = (1514, 1, 2, 3, 4, 5, 6, 7, 8)


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def message(kind: str, *stats: bytes, parent: int = tc.ROOT) -> bytes:
    head = struct.pack("=BxxxiIII", 0, 4, 0x80010000, parent, 2)
    return head + attribute(tc.TCA_KIND, kind.encode() + b"\0") + attribute(tc.TCA_STATS2, b"".join(stats))


BASIC = attribute(tc.TCA_STATS_BASIC, struct.pack("=QI4x", 2**40, 1000))
QUEUE = attribute(tc.TCA_STATS_QUEUE, struct.pack("=5I", 3, 4500, 7, 8, 9))


def test_fq_codel_has_what_it_counts_beside() -> None:
    found = tc.parse(message("fq_codel", BASIC, QUEUE, attribute(tc.TCA_STATS_APP, struct.pack("=10I", 0, *FAIR))))
    assert found == tc.Qdisc(4, tc.ROOT, "fq_codel", 2**40, 1000, 3, 4500, 7, 8, 9, tc.FairQueue(*FAIR))
    assert found.fair is not None
    assert (found.fair.ecn_marks, found.fair.memory_bytes, found.fair.memory_drops) == (2, 7, 8)


def test_packets_beyond_32_bits_are_told_apart() -> None:
    assert tc.parse(message("fq", BASIC, attribute(tc.TCA_STATS_PKT64, struct.pack("=Q", 2**33)))).packets == 2**33


@pytest.mark.parametrize(
    ("kind", "application"),
    [("pfifo_fast", struct.pack("=10I", 0, *FAIR)), ("fq_codel", b""), ("fq_codel", struct.pack("=10I", 1, *FAIR))],
)
def test_others_old_kernels_and_classes_have_none_of_that(kind: str, application: bytes) -> None:
    assert tc.parse(message(kind, BASIC, QUEUE, attribute(tc.TCA_STATS_APP, application))).fair is None


@pytest.mark.parametrize(
    "content",
    [b"", message("fq_codel")[:-1], message("mq", attribute(tc.TCA_STATS_BASIC, b"1")), bytes(20) + b"\3\0"],
)
def test_what_is_cut_short_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="qdisc:|netlink:"):
        tc.parse(content)


@pytest.mark.parametrize(
    ("parent", "spelled"),
    [(tc.ROOT, ""), (tc.INGRESS, "ingress"), (0x10010, "1:10"), (2, ":2"), (0x80010002, "8001:2")],
)
def test_a_parent_is_spelled_as_tc_does(parent: int, spelled: str) -> None:
    assert tc.spelled_parent(parent) == spelled
