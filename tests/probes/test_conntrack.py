# SPDX-License-Identifier: Apache-2.0
"""The table ``conntrack``: exact values, an old kernel, garbage, kernels without, this machine."""

from pathlib import Path

import pytest
from sysmond_probes import conntrack

from sysmond.probe import ABSENT, Host
from tests.support import sysfs


def row(root: Path) -> list[int | str]:
    [(instance, values)] = conntrack.read(Host(str(root)))
    assert instance == ""
    return list(values)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "md")


def test_counters_are_those_of_all_cpus(server: Path) -> None:
    assert row(server) == [81234, 262144, 0x15, 0x20, 0x2C, 0x10F, 5, 2, 0]


def test_a_cpu_whose_counter_wraps_is_no_reset_of_the_sum() -> None:
    """Each CPU counts in 32 bits; the sum is what was counted, and wraps when that does."""

    def drops(*counts: int) -> int:
        lines = "".join(f"{count:08x} {count:08x}\n" for count in counts)
        return conntrack.parse(f"entries drop\n{lines}".encode())[0]

    counts = [0xFFFF_FFF0, 0x10], [0xFFFF_FFFF, 0x15], [0x0000_0004, 0x16]
    assert [drops(*each) for each in counts] == [0x0, 0x14, 0x1A]
    grown = [drops(0xFFFF_FFF0 + more & 0xFFFF_FFFF, 0x8000_0000) for more in (0, 8, 16, 24)]
    assert [later - grown[0] for later in grown] == [0, 8, 16, 24]


def test_what_an_old_kernel_calls_otherwise_is_absent(server: Path) -> None:
    stat = server / "proc/net/stat/nf_conntrack"
    stat.write_text(stat.read_text().replace("clashres", "searched"))
    assert row(server)[6] == ABSENT


@pytest.mark.parametrize("content", [b"", b"entries drop\n", b"entries drop\n00 00 00\n", b"entries drop\n00 many\n"])
def test_garbage_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="expected a heading|invalid literal"):
        conntrack.parse(content)


def test_a_kernel_without_tracking_has_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        row(tmp_path)


@pytest.mark.skipif(not Path("/proc/sys/net/netfilter/nf_conntrack_max").exists(), reason="this kernel tracks nothing")
def test_this_machine_has_all_of_it() -> None:
    values = row(Path("/"))
    assert values[1] == int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text())
    assert ABSENT not in values
