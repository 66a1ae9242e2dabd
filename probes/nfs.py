# SPDX-License-Identifier: Apache-2.0
"""The NFS client: what mounts read and wrote, and how long their servers took.

Source: nfsstat(8), mountstats(8), the kernel's ``fs/nfs/super.c`` and ``net/sunrpc/stats.c``, which write
``/proc/self/mountstats`` from memory: a server that does not answer keeps nobody waiting here.
"""

import re
from collections.abc import Iterator

from sysmond.probe import ABSENT, Answers, Derived, Host, Lane, Metric, Probe, Row, Table, counter, hookimpl, rows_of

MOUNTSTATS = "/proc/self/mountstats"
RPC = "/proc/net/rpc/nfs"
INTERVAL_S = 10.0
MOUNTS_MAX = 64

NFS = Table(
    "nfs",
    doc="The NFS client as a whole. The kernel's counters have 32 bits: a wrap is a counter reset.",
    metrics=(
        counter("calls", "1", "Requests to servers.", origin=f"{RPC} rpc 1"),
        counter("retransmissions", "1", "Requests sent again.", origin=f"{RPC} rpc 2"),
        counter("authentications", "1", "Times that credentials were refreshed.", origin=f"{RPC} rpc 3"),
    ),
)


def _bytes(name: str, words: str, doc: str) -> Metric:
    return counter(name, "B", doc, origin=f"{MOUNTSTATS} bytes: {words}")


def _operations(name: str, operations: str, word: int, doc: str, *, is_time: bool = False) -> Metric:
    unit, scale = ("s", 3) if is_time else ("1", 0)
    return counter(name, unit, doc, scale, f"{MOUNTSTATS} {operations}: {word}")


NFS_MOUNT = Table(
    "nfs_mount",
    per="mount",
    doc=f"NFS by mount point, the first {MOUNTS_MAX}. Times are sums over requests: divided by the number of requests"
    " they are averages.",
    metrics=(
        _bytes("read_bytes", "1 + 3", "Bytes that programs read."),
        _bytes("written_bytes", "2 + 4", "Bytes that programs wrote."),
        _bytes("server_read_bytes", "5", "Bytes read from the server."),
        _bytes("server_written_bytes", "6", "Bytes written to the server."),
        _operations("requests", "*", 1, "Requests, of every kind."),
        _operations("transmissions", "*", 2, "Requests sent, including those sent again."),
        _operations("timeouts", "*", 3, "Requests that had no answer in time."),
        _operations("queue_time", "*", 6, "Time until requests were sent.", is_time=True),
        _operations("server_time", "*", 7, "Time from sending to the answer.", is_time=True),
        _operations("request_time", "*", 8, "Total time that requests took.", is_time=True),
        _operations("errors", "*", 9, "Requests that failed; since Linux 5.3."),
        _operations("reads", "READ", 1, "Requests to read."),
        _operations("read_time", "READ", 8, "Time that they took.", is_time=True),
        _operations("writes", "WRITE", 1, "Requests to write."),
        _operations("write_time", "WRITE", 8, "Time that they took.", is_time=True),
    ),
    answers=Answers(
        derived=(
            Derived("request_await", "s", "request_time / requests", "How long a request took."),
            Derived("server_await", "s", "server_time / requests", "How long the server took for a request."),
            Derived("read_await", "s", "read_time / reads", "How long a read took."),
            Derived("write_await", "s", "write_time / writes", "How long a write took."),
        ),
    ),
)

_OF_NFS = re.compile(r"device .+? mounted on (.+) with fstype nfs4? statvers=\S+")
_OPERATION = re.compile(r"\t\s*([A-Z0-9_]+): ((?:\d+ ?)+)\s*")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_BYTES = "\tbytes:\t"
_SHOWN = 8  # What kernels have shown of an operation, always; then the errors.


def mounts(lines: list[str]) -> dict[str, list[str]]:
    """Split the file: the lines of each mount of NFS, by mount point."""
    lines_by_mount: dict[str, list[str]] = {}
    lines_of: list[str] = []
    for line in lines:
        if line.startswith("device "):
            lines_of = []
            if match := _OF_NFS.fullmatch(line.rstrip()):
                lines_by_mount[_ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), match[1])] = lines_of
        else:
            lines_of.append(line)
    return lines_by_mount


def parse(lines: list[str]) -> list[int]:
    """Read what stands about one mount.

    :raises ValueError: where there are no bytes, or no operations.
    """
    moved = [[*map(int, line.removeprefix(_BYTES).split())] for line in lines if line.startswith(_BYTES)]
    matches = [match for match in map(_OPERATION.fullmatch, lines) if match]
    each = {match[1]: [*map(int, match[2].split())] for match in matches}
    if not moved or len(moved[0]) < 6 or not each or min(map(len, each.values())) < _SHOWN:  # noqa: PLR2004
        raise ValueError(f"{MOUNTSTATS}: expected 6 numbers of bytes, and {_SHOWN} of each operation")
    read, written, read_direct, written_direct, from_server, to_server, *_ = moved[0]
    rows = [(*row[:_SHOWN], row[_SHOWN] if len(row) > _SHOWN else ABSENT) for row in each.values()]
    sums = [sum(column) for column in zip(*rows, strict=True)]
    errors = ABSENT if any(row[_SHOWN] == ABSENT for row in rows) else sums[_SHOWN]
    reads, writes = each.get("READ"), each.get("WRITE")
    of_kinds = [kind[word] if kind else ABSENT for kind in (reads, writes) for word in (0, 7)]
    server = [read + read_direct, written + written_direct, from_server, to_server]
    return [*server, *sums[:3], *sums[5:_SHOWN], errors, *of_kinds]


def read(host: Host) -> Iterator[Row]:
    """Give the one row of the client.

    :raises ValueError: where the line of RPC is missing.
    """
    for line in host.lines(RPC):
        if line.startswith("rpc "):
            calls, again, renewed = map(int, line.split()[1:])
            yield "", (calls, again, renewed)
            return
    raise ValueError(f"{RPC}: expected a line 'rpc' with three numbers")


def read_mounts(host: Host) -> Iterator[Row]:
    """Give a row for each mount of NFS."""
    lines_by_mount = mounts(host.lines(MOUNTSTATS))
    return rows_of(list(lines_by_mount)[:MOUNTS_MAX], lambda point: parse(lines_by_mount[point]))


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``nfs`` and ``nfs_mount``, where the kernel's client is loaded."""
    offered = ((NFS, read), (NFS_MOUNT, read_mounts))
    return [Probe(table, each, INTERVAL_S, Lane.BACKGROUND, needs=(RPC,)) for table, each in offered]
