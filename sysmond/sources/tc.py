# SPDX-License-Identifier: Apache-2.0
"""Queueing disciplines of network interfaces and what they count, as ``tc -s qdisc`` asks for them.

Source: the kernel's ``include/uapi/linux/rtnetlink.h``, ``gen_stats.h`` and ``pkt_sched.h``.
"""

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from sysmond.sources.netlink import attributes, dump

NETLINK_ROUTE = 0
RTM_NEWQDISC, RTM_GETQDISC = 36, 38
TCA_KIND, TCA_STATS2 = 1, 7
TCA_STATS_BASIC, TCA_STATS_QUEUE, TCA_STATS_APP, TCA_STATS_PKT64 = 1, 3, 4, 8
ROOT, INGRESS = 0xFFFFFFFF, 0xFFFFFFF1

_TCMSG = Struct("=BxxxiIII")  # Family, interface, handle, parent, references (struct tcmsg).
_BASIC = Struct("=QI")  # Bytes, packets (struct gnet_stats_basic).
_PACKETS = Struct("=Q")
_QUEUE = Struct("=5I")  # Packets and bytes that wait, drops, requeues, overlimits (struct gnet_stats_queue).
_FQ_CODEL = Struct("=10I")  # 0 for that of a qdisc, then struct tc_fq_codel_qd_stats.


class FairQueue(NamedTuple):
    """What fq_codel counts beside that, in the kernel's order."""

    packet_bytes_max: int
    overlimit_drops: int
    ecn_marks: int
    new_flows: int
    flows_new_now: int
    flows_old_now: int
    ce_marks: int
    memory_bytes: int
    memory_drops: int


class Qdisc(NamedTuple):
    """One qdisc. ``interface``: its number; ``fair``: None where it is no fq_codel."""

    interface: int
    parent: int
    kind: str
    sent_bytes: int
    packets: int
    queued: int
    backlog_bytes: int
    drops: int
    requeues: int
    overlimits: int
    fair: FairQueue | None


def qdiscs() -> Iterator[Qdisc]:
    """Yield the qdiscs of all interfaces; those that count nothing, as noqueue, too.

    :raises OSError: as the kernel says.
    :raises ValueError: where an answer is not what it should be.
    """
    for kind, content in dump(NETLINK_ROUTE, RTM_GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0)):
        if kind == RTM_NEWQDISC:
            yield parse(content)


def parse(content: bytes) -> Qdisc:
    """Read the message about one qdisc.

    :raises ValueError: where it is cut short.
    """
    try:
        _, interface, _, parent, _ = _TCMSG.unpack_from(content)
        told = attributes(content[_TCMSG.size :])
        kind = told.get(TCA_KIND, b"").rstrip(b"\0").decode("ascii", "replace")
        counted = attributes(told.get(TCA_STATS2, b""))
        sent_bytes, packets = _BASIC.unpack_from(counted.get(TCA_STATS_BASIC, bytes(_BASIC.size)))
        if TCA_STATS_PKT64 in counted:  # Where 32 bits do not hold the packets.
            (packets,) = _PACKETS.unpack_from(counted[TCA_STATS_PKT64])
        queued, backlog, drops, requeues, overlimits = _QUEUE.unpack_from(
            counted.get(TCA_STATS_QUEUE, bytes(_QUEUE.size))
        )
        fair = _fair_queue(counted.get(TCA_STATS_APP, b"")) if kind == "fq_codel" else None
    except error as problem:
        raise ValueError(f"qdisc: {problem}") from None
    return Qdisc(interface, parent, kind, sent_bytes, packets, queued, backlog, drops, requeues, overlimits, fair)


def _fair_queue(content: bytes) -> FairQueue | None:
    """Read what fq_codel counts; kernels before 4.7 do not tell of memory: nothing then."""
    if len(content) < _FQ_CODEL.size:
        return None
    of_class, *numbers = _FQ_CODEL.unpack_from(content)
    return None if of_class else FairQueue(*numbers)


def spelled_parent(parent: int) -> str:
    """Spell where it hangs, as tc does: nothing for the root, ``ingress``, ``1:10``."""
    if parent in (ROOT, INGRESS):
        return "ingress" if parent == INGRESS else ""
    major, minor = parent >> 16, parent & 0xFFFF
    return f"{major:x}:{minor:x}" if major else f":{minor:x}"
