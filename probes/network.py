# SPDX-License-Identifier: Apache-2.0
"""Network interfaces: what they received and sent, from ``/proc/net/dev``.

Source: proc(5) and the kernel's ``Documentation/networking/statistics.rst``, whose definitions of
``struct rtnl_link_stats64`` stand behind the 16 columns.
"""

from collections.abc import Collection

from sysmond.probe import Host, Probe, Row, Table, counter, hookimpl

PATH = "/proc/net/dev"
COLUMNS = 16
_HEADER = b"Inter-|   Receive "
_HEADER_LINES = 2

NETWORK = Table(
    "network",
    per="interface",
    doc="Network interfaces of the sampler's network namespace. Each driver decides what it counts as"
    " errors and drops.",
    metrics=(
        counter("received_bytes", "B", "Bytes received.", origin=f"{PATH} Receive bytes"),
        counter("received_packets", "1", "Packets received.", origin=f"{PATH} Receive packets"),
        counter("receive_errors", "1", "Bad packets received.", origin=f"{PATH} Receive errs"),
        counter(
            "receive_drops",
            "1",
            "Packets received but not processed: no room, an unknown protocol, or a missed interrupt.",
            origin=f"{PATH} Receive drop",
        ),
        counter("receive_fifo_errors", "1", "Receive FIFO overruns.", origin=f"{PATH} Receive fifo"),
        counter(
            "receive_frame_errors",
            "1",
            "Packets of wrong length, alignment or checksum, or overrunning the ring.",
            origin=f"{PATH} Receive frame",
        ),
        counter("received_compressed", "1", "Compressed packets received.", origin=f"{PATH} Receive compressed"),
        counter("received_multicast", "1", "Multicast packets received.", origin=f"{PATH} Receive multicast"),
        counter("sent_bytes", "B", "Bytes sent.", origin=f"{PATH} Transmit bytes"),
        counter("sent_packets", "1", "Packets sent.", origin=f"{PATH} Transmit packets"),
        counter("send_errors", "1", "Packets that could not be sent.", origin=f"{PATH} Transmit errs"),
        counter("send_drops", "1", "Packets dropped on their way out.", origin=f"{PATH} Transmit drop"),
        counter("send_fifo_errors", "1", "Send FIFO underruns.", origin=f"{PATH} Transmit fifo"),
        counter("collisions", "1", "Collisions while sending.", origin=f"{PATH} Transmit colls"),
        counter(
            "send_carrier_errors",
            "1",
            "Failed transmissions: no carrier, aborted, late, or without heartbeat.",
            origin=f"{PATH} Transmit carrier",
        ),
        counter("sent_compressed", "1", "Compressed packets sent.", origin=f"{PATH} Transmit compressed"),
    ),
)


def parse(line: bytes) -> Row:
    """Read one interface's line.

    :raises ValueError: where it has not a name, a colon and 16 numbers.
    """
    # An alias' name has a colon of its own; old kernels write no blank after the last one.
    name, colon, numbers = line.rpartition(b":")
    values = tuple(map(int, numbers.split()))
    if not colon or len(values) != COLUMNS:
        raise ValueError(f"{PATH}: {line[:80]!r}; expected a name, ':' and {COLUMNS} numbers")
    return name.strip().decode("utf-8", "surrogateescape"), values


class NetDev:
    """Reads the file; a line that is the same as a tick ago keeps its row."""

    def __init__(self) -> None:
        """Know no line yet."""
        self._rows: dict[bytes, Row] = {}

    def read(self, host: Host) -> Collection[Row]:
        """Give a row for every interface."""
        known, content = self._rows, host.read(PATH)
        if not content.startswith(_HEADER):
            raise ValueError(f"{PATH}: {content[:80]!r}; its header is missing")
        lines = content.split(b"\n")[_HEADER_LINES:]
        self._rows = rows = {line: known.get(line) or parse(line) for line in lines if line}
        return rows.values()


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``network``."""
    return [Probe(NETWORK, NetDev().read, subsystems=("net",), pure=True)]
