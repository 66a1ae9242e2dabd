# SPDX-License-Identifier: Apache-2.0
"""The tables ``ip``, ``icmp``, ``tcp`` and ``udp``: exact values, kernels that differ, garbage, this machine."""

import re
import shutil
from pathlib import Path

import pytest
from sysmond_probes import snmp

from sysmond.base.model import Semantics, check_table
from sysmond.probe import ABSENT, Host, Probe

FIXTURES = Path(__file__).parent.parent / "fixtures"


def probes() -> dict[str, Probe]:
    return {probe.table.name: probe for probe in snmp.sysmond_probes()}


def row_of(root: Path, table: str) -> dict[str, int | str]:
    probe, host = probes()[table], Host(str(root))
    [(instance, values)] = probe.read(host)
    host.close()
    assert instance == ""
    return dict(zip((metric.name for metric in probe.table.metrics), values, strict=True))


def present(row: dict[str, int | str]) -> dict[str, int | str]:
    return {name: value for name, value in row.items() if value != ABSENT}


def snake(name: str) -> str:
    """Spell a name of the kernel's as the tables do."""
    name = re.sub(r"^(TCP|Tcp)(?=.)", "", name)
    for word, spelled in (("OKs", "Oks"), ("ACKs", "Acks"), ("RTOs", "Rtos"), ("SACK", "Sack"), ("MTUP", "Mtup")):
        name = name.replace(word, spelled)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return name.lower()


@pytest.mark.parametrize(("table", "metrics"), [("ip", 38), ("icmp", 29), ("tcp", 150), ("udp", 9)])
def test_the_tables_are_well_formed(table: str, metrics: int) -> None:
    declared = probes()[table].table
    check_table(declared)
    assert len(declared.metrics) == metrics
    assert len({metric.origin for metric in declared.metrics}) == metrics


def test_names_are_those_of_the_kernel_in_another_spelling() -> None:
    metrics = [metric for probe in probes().values() for metric in probe.table.metrics]
    wrong = [
        (metric.name, metric.origin)
        for metric in metrics
        if metric.name.replace("_", "") != snake(metric.origin.split()[2]).replace("_", "")
    ]
    assert wrong == []


def test_what_goes_up_and_down_is_no_counter() -> None:
    others = {
        f"{probe.table.name}/{metric.name}": metric.semantics
        for probe in probes().values()
        for metric in probe.table.metrics
        if metric.semantics is not Semantics.COUNTER
    }
    assert others == {
        "ip/forwarding": Semantics.STATE,
        "ip/default_ttl": Semantics.GAUGE,
        "tcp/rto_algorithm": Semantics.STATE,
        "tcp/rto_min": Semantics.GAUGE,
        "tcp/rto_max": Semantics.GAUGE,
        "tcp/max_conn": Semantics.GAUGE,
        "tcp/curr_estab": Semantics.GAUGE,
    }


def test_a_kernel_of_today_has_every_number() -> None:
    root = FIXTURES / "linux618"
    for table in ("ip", "icmp", "tcp", "udp"):
        row = row_of(root, table)
        assert present(row) == row, table
    ip = row_of(root, "ip")
    assert (ip["forwarding"], ip["default_ttl"], ip["in_receives"], ip["out_transmits"]) == (2, 64, 14542, 7747)
    tcp = row_of(root, "tcp")
    assert (tcp["rto_min"], tcp["rto_max"], tcp["max_conn"]) == (200, 120000, -1)
    assert (tcp["active_opens"], tcp["in_segs"], tcp["out_rsts"]) == (47, 14448, 67)
    assert (tcp["tw"], tcp["hp_hits"], tcp["rcv_coalesce"], tcp["delivered"]) == (12, 332, 11197, 514)
    assert row_of(root, "udp")["out_datagrams"] == 94


def test_every_number_of_the_kernel_is_recorded() -> None:
    """Every name in both files that belongs to one of the tables has its metric, with that name's number."""
    root = FIXTURES / "linux618"
    expected: dict[str, int] = {}
    for file in ("snmp", "netstat"):
        lines = (root / "proc/net" / file).read_text().splitlines()
        for names, numbers in zip(lines[::2], lines[1::2], strict=True):
            section, *fields = names.split()
            for field, number in zip(fields, numbers.split()[1:], strict=True):
                expected[f"/proc/net/{file} {section} {field}"] = int(number)
    found: dict[str, int | str] = {}
    for table, probe in probes().items():
        row = row_of(root, table)
        found |= {metric.origin: row[metric.name] for metric in probe.table.metrics}
    elsewhere = ("IcmpMsg:", "UdpLite:", "MPTcpExt:")
    assert found == {origin: number for origin, number in expected.items() if origin.split()[1] not in elsewhere}


def test_numbers_an_older_kernel_lacks_are_absent() -> None:
    root = FIXTURES / "linux415"
    assert list(present(row_of(root, "icmp")).values()) == list(range(1, 28))
    assert row_of(root, "icmp")["out_rate_limit_global"] == ABSENT
    assert row_of(root, "icmp")["out_dest_unreachs"] == 17
    ip = row_of(root, "ip")
    assert ip["frag_creates"] == 1017
    assert (ip["out_transmits"], ip["in_octets"], ip["out_octets"], ip["in_ce_pkts"]) == (ABSENT, 22, 23, 24)
    assert ip["in_mcast_octets"] == ABSENT
    udp = row_of(root, "udp")
    assert list(udp.values()) == [61, 62, 63, 64, 65, 66, 67, ABSENT, ABSENT], "not those of UdpLite"


def test_names_are_found_wherever_an_older_kernel_has_them() -> None:
    tcp = row_of(FIXTURES / "linux415", "tcp")
    assert tcp["curr_estab"] == 505
    assert {name: value for name, value in present(tcp).items() if isinstance(value, int) and 10 < value < 20} == {
        "syncookies_sent": 11,
        "tw": 14,
        "memory_pressures": 15,
        "timeouts": 16,
    }


def test_numbers_and_names_may_change_between_ticks(tmp_path: Path) -> None:
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    read, host = probes()["udp"].read, Host(str(tmp_path))
    seen: list[list[int | str]] = []
    for names, numbers in (
        (b"InDatagrams NoPorts", b"1 2"),
        (b"InDatagrams NoPorts", b"1 2"),
        (b"InDatagrams NoPorts", b"1 3"),
        (b"NoPorts InDatagrams", b"1 3"),
    ):
        (net / "snmp").write_bytes(b"Udp: " + names + b"\nUdp: " + numbers + b"\n")
        host.new_tick()
        seen.extend(list(values[:2]) for _, values in read(host))
    assert seen == [[1, 2], [1, 2], [1, 3], [3, 1]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"Udp: InDatagrams\n",
        b"Udp: InDatagrams\nUdp: 1",
        b"Udp: InDatagrams NoPorts\nUdp: 1\n",
        b"Udp: InDatagrams NoPorts\nUdp: 1 x\n",
        b"Udp: InDatagrams\nUdp: 1 2\n",
        b"UdpLite: InDatagrams\nUdpLite: 1\n",
    ],
)
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    net = tmp_path / "proc/net"
    net.mkdir(parents=True)
    (net / "snmp").write_bytes(content)
    with pytest.raises(ValueError, match=r"not found|names|invalid literal"):
        row_of(tmp_path, "udp")


def test_garbage_leaves_nothing_behind(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "linux415/proc", tmp_path / "proc")
    path = tmp_path / "proc/net/snmp"
    content = path.read_bytes()
    read, host = probes()["udp"].read, Host(str(tmp_path))
    first = list(read(host))
    path.write_bytes(content.replace(b"Udp: 61", b"Udp: 6x"))
    host.new_tick()
    with pytest.raises(ValueError, match="invalid literal"):
        list(read(host))
    path.write_bytes(content)
    host.new_tick()
    assert list(read(host)) == first


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        row_of(tmp_path, "tcp")


def test_it_agrees_with_an_independent_reading_of_this_machine() -> None:
    def independent() -> dict[str, int]:
        numbers: dict[str, int] = {}
        for path in ("/proc/net/snmp", "/proc/net/netstat"):
            for names, values in re.findall(r"^(\w+: [A-Za-z].*)\n(\w+: .*)$", Path(path).read_text(), re.MULTILINE):
                section, *fields = names.split()
                numbers |= {
                    f"{path} {section} {field}": int(value)
                    for field, value in zip(fields, values.split()[1:], strict=True)
                }
        return numbers

    before = independent()
    rows = {
        metric.origin: (metric, value)
        for table, probe in probes().items()
        for metric, value in zip(probe.table.metrics, row_of(Path("/"), table).values(), strict=True)
    }
    after = independent()
    for origin, (metric, value) in rows.items():
        if origin not in before:
            assert value == ABSENT, origin
        elif metric.semantics is Semantics.COUNTER:
            assert before[origin] <= int(value) <= after[origin], origin
        elif origin != "/proc/net/snmp Tcp: CurrEstab":
            assert value == before[origin], origin
