# SPDX-License-Identifier: Apache-2.0
"""The table ``zswap``: with and without debugfs, garbage, kernels without, this machine."""

from pathlib import Path

import pytest
from sysmond_probes import zswap

from sysmond.probe import ABSENT, Host
from tests.support import sysfs


def row(root: Path) -> list[int | str]:
    [(instance, values)] = zswap.read(Host(str(root)))
    assert instance == ""
    return list(values)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "md")


def test_settings_are_there_where_debugfs_is_not(server: Path) -> None:
    assert row(server) == [1, 20, *[ABSENT] * 5, "zstd"]


def test_with_debugfs_it_says_what_was_refused(server: Path) -> None:
    counts = server / "sys/kernel/debug/zswap"
    counts.mkdir(parents=True)
    for number, metric in enumerate(zswap.ZSWAP.metrics[2:7]):
        (counts / metric.origin.rpartition("/")[2]).write_text(f"{number}\n")
    assert row(server) == [1, 20, 0, 1, 2, 3, 4, "zstd"]


@pytest.mark.parametrize("content", ["", "maybe\n"])
def test_garbage_is_refused(server: Path, content: str) -> None:
    (server / "sys/module/zswap/parameters/enabled").write_text(content)
    with pytest.raises(ValueError, match="expected Y or N"):
        row(server)


def test_a_kernel_without_it_has_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        row(tmp_path)


@pytest.mark.skipif(not Path("/sys/module/zswap/parameters/enabled").exists(), reason="this kernel has no zswap")
def test_this_machine_says_how_it_compresses() -> None:
    assert row(Path("/"))[-1] == Path("/sys/module/zswap/parameters/compressor").read_text().strip()
