# SPDX-License-Identifier: Apache-2.0
"""Queues in which packets wait to be sent, their drops and their length, as ``tc -s qdisc`` shows them.

Source: tc(8), tc-fq_codel(8), and the kernel by netlink (``sysmond.sources.tc``).
"""

import socket
from collections.abc import Iterator
from errno import ENOENT
from itertools import islice

from sysmond.probe import (
    ABSENT,
    Answers,
    Derived,
    Host,
    Lane,
    Metric,
    Probe,
    Row,
    Table,
    counter,
    gauge,
    hookimpl,
    text,
)
from sysmond.sources.tc import Qdisc, qdiscs, spelled_parent

INTERVAL_S = 10.0
QDISCS_MAX = 256
FOLDER = "/sys/class/net"


def _times(name: str, doc: str, origin: str) -> Metric:
    return counter(name, "1", doc, origin=f"RTM_GETQDISC {origin}")


QDISC = Table(
    "qdisc",
    per="interface:parent",
    doc="Queueing disciplines: an instance is an interface for its root, with :1:10 or :ingress for one attached below."
    f" One with classes, such as mq, has the sums of those below it. The first {QDISCS_MAX} count; noqueue counts"
    " nothing and is left out. Drops and similar counters have 32 bits: a wrap is a counter reset.",
    metrics=(
        counter("sent_bytes", "B", "Bytes that left it.", origin="RTM_GETQDISC TCA_STATS_BASIC bytes"),
        _times("packets", "Packets that left it.", "TCA_STATS_BASIC packets"),
        _times("drops", "Packets dropped.", "TCA_STATS_QUEUE drops"),
        _times("overlimits", "Times a packet met a limit and had to wait.", "TCA_STATS_QUEUE overlimits"),
        _times(
            "requeues", "Packets that the device did not accept, and that were put back.", "TCA_STATS_QUEUE requeues"
        ),
        gauge("queued", "1", "Packets waiting now.", origin="RTM_GETQDISC TCA_STATS_QUEUE qlen"),
        gauge("backlog", "B", "Bytes waiting now.", origin="RTM_GETQDISC TCA_STATS_QUEUE backlog"),
        _times("ecn_marks", "fq_codel: packets marked (ECN) instead of dropped.", "tc_fq_codel_qd_stats ecn_mark"),
        _times("ce_marks", "fq_codel: packets marked for waiting too long.", "tc_fq_codel_qd_stats ce_mark"),
        _times("new_flows", "fq_codel: times a flow was new.", "tc_fq_codel_qd_stats new_flow_count"),
        _times("overlimit_drops", "fq_codel: drops because it was full.", "tc_fq_codel_qd_stats drop_overlimit"),
        _times("memory_drops", "fq_codel: drops because its memory was full.", "tc_fq_codel_qd_stats drop_overmemory"),
        gauge(
            "memory",
            "B",
            "fq_codel: memory of the waiting packets.",
            origin="RTM_GETQDISC tc_fq_codel_qd_stats memory_usage",
        ),
        text("kind", "Queueing discipline, such as fq_codel.", "RTM_GETQDISC TCA_KIND"),
    ),
    answers=Answers(
        derived=(
            Derived("drops_percent", "%", "drops / (packets + drops) * 100", "Share of packets that were dropped."),
        ),
    ),
)
_NOT_FAIR = (ABSENT,) * 6


def row(name: str, qdisc: Qdisc) -> Row:
    """Give the row of a qdisc, of an interface of this name."""
    where, fair = spelled_parent(qdisc.parent), qdisc.fair
    values = qdisc.sent_bytes, qdisc.packets, qdisc.drops, qdisc.overlimits, qdisc.requeues, qdisc.queued
    of_fair = _NOT_FAIR
    if fair is not None:
        marks = fair.ecn_marks, fair.ce_marks, fair.new_flows
        of_fair = *marks, fair.overlimit_drops, fair.memory_drops, fair.memory_bytes
    return f"{name}:{where}" if where else name, (*values, qdisc.backlog_bytes, *of_fair, qdisc.kind)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each qdisc of this machine; that of a copied tree cannot be asked.

    :raises FileNotFoundError: for such a tree.
    """
    if host.root:
        raise FileNotFoundError(ENOENT, f"qdiscs: only the running kernel can be asked, not {host.root}")
    names = dict(socket.if_nameindex())
    counting = (each for each in qdiscs() if each.kind != "noqueue" and each.interface in names)
    yield from dict(row(names[each.interface], each) for each in islice(counting, QDISCS_MAX)).items()


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``qdisc``."""
    return [Probe(QDISC, read, INTERVAL_S, Lane.BACKGROUND, subsystems=("net",), needs=(f"{FOLDER}/*",))]
