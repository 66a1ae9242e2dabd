# SPDX-License-Identifier: Apache-2.0
"""The table ``resctrl``: groups of both kinds, what a processor cannot tell, machines without."""

import os
from pathlib import Path

import pytest
from sysmond_probes import resctrl

from sysmond.probe import ABSENT, Host

GROUPS = ("", "mon_groups/web/", "batch/", "batch/mon_groups/night/")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A processor with two caches; every group has files beside its folders."""
    top = tmp_path / "sys/fs/resctrl"
    for number, group in enumerate(GROUPS):
        for cache in (0, 1):
            domain = top / f"{group}mon_data/mon_L3_0{cache}"
            domain.mkdir(parents=True)
            for place, file in enumerate(("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")):
                (domain / file).write_text(f"{1000 * number + 100 * cache + place}\n")
    (top / "info/L3").mkdir(parents=True)
    (top / "batch/mon_groups").mkdir(exist_ok=True)
    (top / "schemata").write_text("L3:0=fffff;1=fffff\n")
    (top / "batch/tasks").write_text("12\n")
    return tmp_path


def rows(root: Path) -> dict[str, object]:
    return dict(resctrl.read(Host(str(root))))


def test_each_group_has_its_caches(root: Path) -> None:
    assert rows(root) == {
        "L3_00": [0, 1, 2],
        "L3_01": [100, 101, 102],
        "/web:L3_00": [1000, 1001, 1002],
        "/web:L3_01": [1100, 1101, 1102],
        "batch:L3_00": [2000, 2001, 2002],
        "batch:L3_01": [2100, 2101, 2102],
        "batch/night:L3_00": [3000, 3001, 3002],
        "batch/night:L3_01": [3100, 3101, 3102],
    }


def test_what_the_processor_cannot_tell_is_absent(root: Path) -> None:
    domain = root / "sys/fs/resctrl/mon_data/mon_L3_00"
    (domain / "mbm_total_bytes").write_text("Unavailable\n")
    (domain / "mbm_local_bytes").unlink()
    assert rows(root)["L3_00"] == [0, ABSENT, ABSENT]


@pytest.mark.parametrize("content", ["", "garbage", "-5", "1.5", "1 2", "0x10", "9" * 30, "\0", "Error"])
def test_garbage_is_absent_and_costs_nothing_else(content: str, root: Path) -> None:
    (root / "sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy").write_text(content)
    (root / "sys/fs/resctrl/batch/mon_data/mon_L3_01/mbm_total_bytes").write_text(content)
    found = rows(root)
    assert found["L3_00"] == [ABSENT, 1, 2]
    assert found["batch:L3_01"] == [2100, ABSENT, 2102]
    assert len(found) == 8


def test_a_group_with_an_odd_name_and_one_that_goes_in_mid_read(root: Path) -> None:
    top = root / "sys/fs/resctrl"
    (top / "batch").rename(top / "b\x1b[2J\n")
    assert "b\x1b[2J\n:L3_00" in rows(root)
    (top / "mon_groups/web/mon_data").rename(top / "mon_groups/gone")
    assert not any(name.startswith("/web") for name in rows(root))


def test_no_file_stays_open_that_would_keep_it_mounted(root: Path) -> None:
    host = Host(str(root))
    assert len(list(resctrl.read(host))) == 8
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert [path for path in opened if path.startswith(str(root))] == []


def test_domains_are_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resctrl, "DOMAINS_MAX", 3)
    assert len(rows(root)) == 3


def test_where_nobody_mounted_it_there_are_no_rows(tmp_path: Path) -> None:
    assert rows(tmp_path) == {}
