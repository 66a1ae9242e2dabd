# SPDX-License-Identifier: Apache-2.0
"""The table ``socket``: exact values, a kernel without IPv6, garbage, this machine."""

import os
import re
from pathlib import Path

import pytest
from sysmond_probes import sockets

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Host

FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMES = [metric.name for metric in sockets.SOCKET.metrics]
PAGE = os.sysconf("SC_PAGE_SIZE")


def row_of(root: Path) -> dict[str, int | str]:
    host = Host(str(root))
    [(instance, values)] = sockets.Sockstat().read(host)
    host.close()
    assert instance == ""
    return dict(zip(NAMES, values, strict=True))


def write(root: Path, sockstat: bytes, sockstat6: bytes | None = None) -> None:
    net = root / "proc/net"
    net.mkdir(parents=True, exist_ok=True)
    (net / "sockstat").write_bytes(sockstat)
    if sockstat6 is not None:
        (net / "sockstat6").write_bytes(sockstat6)


def test_the_table_is_well_formed() -> None:
    [probe] = sockets.sysmond_probes()
    check_table(probe.table)
    assert probe.table.name == "socket"


def test_a_kernel_of_today_has_every_number() -> None:
    row = row_of(FIXTURES / "linux618")
    assert ABSENT not in row.values()
    assert {name: value for name, value in row.items() if value} == {
        "used": 13,
        "tcp_in_use": 1,
        "tcp_allocated": 1,
        "tcp_memory": 127 * PAGE,
    }


def test_a_kernel_without_ipv6_lacks_its_numbers() -> None:
    row = row_of(FIXTURES / "linux415")
    assert {name: value for name, value in row.items() if value != ABSENT} == {
        "used": 1203,
        "tcp_in_use": 31,
        "tcp_orphaned": 2,
        "tcp_time_wait": 17,
        "tcp_allocated": 44,
        "tcp_memory": 9 * PAGE,
        "udp_in_use": 12,
        "udp_memory": 5 * PAGE,
        "raw_in_use": 1,
        "frag_in_use": 3,
        "frag_memory": 7040,
    }


def test_ipv6_is_told_from_ipv4(tmp_path: Path) -> None:
    write(
        tmp_path,
        b"sockets: used 9\nTCP: inuse 1 mem 2\nUDP: inuse 3 mem 4\nFRAG: inuse 5 memory 6\n",
        b"TCP6: inuse 11\nUDP6: inuse 12\nUDPLITE6: inuse 13\nRAW6: inuse 14\nFRAG6: inuse 15 memory 16\n",
    )
    row = row_of(tmp_path)
    assert [row[name] for name in NAMES[-6:]] == [11, 12, 13, 14, 15, 16]
    assert [row[name] for name in ("tcp_in_use", "udp_in_use", "frag_in_use", "frag_memory")] == [1, 3, 5, 6]
    assert (row["tcp_memory"], row["udp_memory"]) == (2 * PAGE, 4 * PAGE)


def test_ipv6_may_come_later(tmp_path: Path) -> None:
    read, host = sockets.Sockstat().read, Host(str(tmp_path))
    place = NAMES.index("tcp6_in_use")
    write(tmp_path, b"sockets: used 9\n")
    [(_, before)] = read(host)
    write(tmp_path, b"sockets: used 9\n", b"TCP6: inuse 11\n")
    host.new_tick()
    [(_, after)] = read(host)
    assert (before[place], after[place]) == (ABSENT, 11)


@pytest.mark.parametrize(
    "content", [b"sockets: used\n", b"sockets: used x\n", b"one two\n", b"sockets: used 1\nTCP: inuse\n"]
)
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, content)
    with pytest.raises(ValueError, match=r"without a number|invalid literal|none of the"):
        row_of(tmp_path)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        row_of(tmp_path)


def test_it_agrees_with_an_independent_reading_of_this_machine() -> None:
    text = Path("/proc/net/sockstat").read_text()
    row = row_of(Path("/"))
    again = Path("/proc/net/sockstat").read_text()
    for name, pattern in (
        ("used", r"sockets: used (\d+)"),
        ("tcp_in_use", r"TCP: inuse (\d+)"),
        ("raw_in_use", r"RAW: inuse (\d+)"),
    ):
        values = [int(match[1]) for match in (re.search(pattern, text), re.search(pattern, again)) if match]
        assert min(values) <= int(row[name]) <= max(values), name
