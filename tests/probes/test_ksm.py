# SPDX-License-Identifier: Apache-2.0
"""The table ``ksm``: exact values, an old kernel, garbage, kernels without, this machine."""

from pathlib import Path

import pytest
from sysmond_probes import ksm

from sysmond.probe import ABSENT, Host
from tests.support import sysfs


def row(root: Path) -> list[int | str]:
    [(instance, values)] = ksm.read(Host(str(root)))
    assert instance == ""
    return list(values)


def test_a_server_whose_merging_costs_more_than_it_saves_on_a_kernel_without_smart_scan(tmp_path: Path) -> None:
    assert row(sysfs.build(tmp_path, "server", "md")) == [1, 100, 2500, 700, 12, 0, 991234, ABSENT, 42, -8192]


@pytest.mark.parametrize("content", ["", "on\n"])
def test_garbage_is_refused(tmp_path: Path, content: str) -> None:
    server = sysfs.build(tmp_path, "server", "md")
    (server / "sys/kernel/mm/ksm/run").write_text(content)
    with pytest.raises(ValueError, match="invalid literal"):
        row(server)


def test_a_kernel_without_it_has_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        row(tmp_path)


@pytest.mark.skipif(not Path("/sys/kernel/mm/ksm/run").exists(), reason="this kernel merges no pages")
def test_this_machine_says_whether_it_runs() -> None:
    assert row(Path("/"))[0] == int(Path("/sys/kernel/mm/ksm/run").read_text())
