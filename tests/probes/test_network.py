# SPDX-License-Identifier: Apache-2.0
"""The table ``network``: exact values, odd spellings, garbage, this machine against sysfs."""

import os
from pathlib import Path

import pytest
from sysmond_probes import network

from sysmond.base.model import check_table
from sysmond.probe import Host

FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMES = [metric.name for metric in network.NETWORK.metrics]
HEADER = (FIXTURES / "linux618/proc/net/dev").read_bytes().split(b"\n")[:2]

# What sysfs calls each of the columns that are one counter there, not a sum of several.
IN_SYSFS = {
    "received_bytes": "rx_bytes",
    "received_packets": "rx_packets",
    "receive_errors": "rx_errors",
    "receive_fifo_errors": "rx_fifo_errors",
    "received_compressed": "rx_compressed",
    "received_multicast": "multicast",
    "sent_bytes": "tx_bytes",
    "sent_packets": "tx_packets",
    "send_errors": "tx_errors",
    "send_drops": "tx_dropped",
    "send_fifo_errors": "tx_fifo_errors",
    "collisions": "collisions",
    "sent_compressed": "tx_compressed",
}


def rows_of(root: Path) -> dict[str, dict[str, int | str]]:
    host = Host(str(root))
    rows = {interface: dict(zip(NAMES, values, strict=True)) for interface, values in network.NetDev().read(host)}
    host.close()
    return rows


def write(root: Path, *lines: bytes) -> None:
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    (root / "proc/net/dev").write_bytes(b"\n".join(lines) + b"\n")


def test_the_table_is_well_formed() -> None:
    [probe] = network.sysmond_probes()
    check_table(probe.table)
    assert probe.table.name == "network"
    assert len(NAMES) == 16


def test_every_interface_has_every_column() -> None:
    rows = rows_of(FIXTURES / "linux618")
    assert list(rows) == ["lo", "ifb0", "ifb1", "eth0"]
    eth0 = rows["eth0"]
    assert {name: value for name, value in eth0.items() if value} == {
        "received_bytes": 520775164,
        "received_packets": 14519,
        "sent_bytes": 759336,
        "sent_packets": 7732,
    }


def test_columns_are_told_apart_and_aliases_too() -> None:
    rows = rows_of(FIXTURES / "linux415")
    assert list(rows) == ["eth0", "eth0:1", "lo"]
    assert list(rows["eth0"].values()) == [2**64 - 1, *range(2, 17)]
    assert rows["eth0:1"] == {
        "received_bytes": 101,
        "received_packets": 102,
        "receive_errors": 103,
        "receive_drops": 104,
        "receive_fifo_errors": 105,
        "receive_frame_errors": 106,
        "received_compressed": 107,
        "received_multicast": 108,
        "sent_bytes": 109,
        "sent_packets": 110,
        "send_errors": 111,
        "send_drops": 112,
        "send_fifo_errors": 113,
        "collisions": 114,
        "send_carrier_errors": 115,
        "sent_compressed": 116,
    }


def test_every_tick_shows_the_present_values_and_interfaces(tmp_path: Path) -> None:
    read, host = network.NetDev().read, Host(str(tmp_path))
    seen = []
    for line in (b"eth0: 1", b"eth0: 1", b"eth0: 7", b"wlan0: 7"):
        write(tmp_path, *HEADER, line + b" 0" * 15)
        host.new_tick()
        seen.append([(interface, values[0]) for interface, values in read(host)])
    assert seen == [[("eth0", 1)], [("eth0", 1)], [("eth0", 7)], [("wlan0", 7)]]


def test_a_name_that_is_not_utf8_survives(tmp_path: Path) -> None:
    write(tmp_path, *HEADER, b"eth\xe9: 1" + b" 0" * 15)
    [interface] = rows_of(tmp_path)
    assert os.fsencode(interface) == b"eth\xe9"


@pytest.mark.parametrize("line", [b"eth0: 1 2 3", b"eth0" + b" 1" * 16, b"eth0: x" + b" 1" * 15, b"eth0:" + b" 1" * 17])
def test_garbage_is_refused(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, *HEADER, line)
    with pytest.raises(ValueError, match=r"16 numbers|invalid literal"):
        rows_of(tmp_path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, b"something", b"else")
    with pytest.raises(ValueError, match="header"):
        rows_of(tmp_path)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rows_of(tmp_path)


def test_it_agrees_with_sysfs_on_this_machine() -> None:
    before = rows_of(Path("/"))
    statistics = {
        interface: {
            name: int(Path(f"/sys/class/net/{interface}/statistics/{there}").read_text())
            for name, there in IN_SYSFS.items()
        }
        for interface in before
    }
    after = rows_of(Path("/"))
    assert "lo" in before
    for interface, counters in statistics.items():
        for name, value in counters.items():
            assert int(before[interface][name]) <= value <= int(after[interface][name]), (interface, name)
