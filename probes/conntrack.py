# SPDX-License-Identifier: Apache-2.0
"""Connections that the packet filter tracks, and how full their table is.

Source: the kernel's ``Documentation/networking/nf_conntrack-sysctl.rst`` and ``ct_cpu_seq_show`` in
``net/netfilter/nf_conntrack_standalone.c``, whose line for each CPU is of hexadecimal numbers.
"""

from collections.abc import Iterator

from sysmond.probe import Fields, Host, Lane, Metric, Probe, Row, Table, counter, gauge, hookimpl

SYSCTL = "/proc/sys/net/netfilter"
STAT = "/proc/net/stat/nf_conntrack"
INTERVAL_S = 5.0
_HEX = 16
_WRAPS_AT = 2**32


def _times(name: str, field: str, doc: str) -> Metric:
    return counter(name, "1", doc, origin=f"{STAT} {field}")


CONNTRACK = Table(
    "conntrack",
    doc="Connections that the packet filter tracks, for NAT and stateful rules. When the table is"
    " full, new ones are dropped. The kernel's counters have 32 bits: when their sum wraps, that"
    " is a counter reset.",
    metrics=(
        gauge("connections", "1", "Connections tracked now.", origin=f"{SYSCTL}/nf_conntrack_count"),
        gauge("connections_max", "1", "Their upper limit.", origin=f"{SYSCTL}/nf_conntrack_max"),
        _times("drops", "drop", "Packets dropped because no connection could be added."),
        _times("early_drops", "early_drop", "Connections dropped to make room for new ones."),
        _times("insert_failed", "insert_failed", "Connections that could not be added, because they existed already."),
        _times("invalid", "invalid", "Packets that belong to no connection."),
        _times("clashes", "clashres", "Times two packets started the same connection; since Linux 5.9."),
        _times("icmp_errors", "icmp_error", "Packets dropped because of a faulty ICMP message."),
        _times("search_restarts", "search_restart", "Lookups restarted because the table was being resized."),
    ),
)
_FIELDS = Fields(metric.origin.split()[1].encode() for metric in CONNTRACK.metrics[2:])


def parse(content: bytes) -> list[int]:
    """Sum up the lines of all CPUs, below their heading, modulo 2^32: so the number of one CPU may wrap unnoticed.

    There are as many lines as the machine may ever have CPUs, so that none is missing when one goes offline.

    :raises ValueError: where they are not hexadecimal numbers, one a word of the heading.
    """
    heading, *lines = [line.split() for line in content.splitlines()] or [[]]
    if not lines or any(len(line) != len(heading) for line in lines):
        raise ValueError(f"{STAT}: {content[:80]!r}; expected a heading and a line for each CPU")
    sums = [sum(int(word, _HEX) for word in words) % _WRAPS_AT for words in zip(*lines, strict=True)]
    return _FIELDS.pick(heading, [str(number).encode() for number in sums])


def read(host: Host) -> Iterator[Row]:
    """Give the one row."""
    connections, limit = (int(host.read(f"{SYSCTL}/nf_conntrack_{name}")) for name in ("count", "max"))
    yield "", [connections, limit, *parse(host.read(STAT))]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``conntrack``."""
    return [Probe(CONNTRACK, read, INTERVAL_S, Lane.BACKGROUND, needs=(f"{SYSCTL}/nf_conntrack_count",))]
