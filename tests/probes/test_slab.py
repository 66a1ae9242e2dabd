# SPDX-License-Identifier: Apache-2.0
"""The table ``slab``: exact values, a choice that lasts, garbage, no permission, this machine."""

import os
from pathlib import Path

import pytest
from sysmond_probes import slab

from sysmond.base.model import check_table
from sysmond.probe import Host, Sensitivity
from tests.support import sysfs

PAGE = os.sysconf("SC_PAGE_SIZE")
HEADINGS = "slabinfo - version: 2.1\n# name            <active_objs> …\n"


def write(root: Path, **slabs: int) -> Host:
    lines = [f"{name} 5 10 100 10 1 : tunables 0 0 0 : slabdata {count} {count} 0\n" for name, count in slabs.items()]
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/slabinfo").write_text(HEADINGS + "".join(lines))
    return Host(str(root))


def test_the_table_is_well_formed_and_for_few() -> None:
    [probe] = slab.sysmond_probes()
    check_table(probe.table)
    assert probe.sensitivity is Sensitivity.RESTRICTED


def test_a_server(tmp_path: Path) -> None:
    host = Host(str(sysfs.build(tmp_path, "server", "md")))
    assert list(slab.Slabs().read(host, caches=2)) == [
        ("dentry", (2000 * PAGE, 41000 * 192, 41000)),
        ("ext4_inode_cache", (800 * 8 * PAGE, 21000 * 1176, 21000)),
        ("others", [50 * PAGE + 10 * 8 * PAGE, 1500 * 104 + 80 * 2496, 1580]),
    ]


def test_the_choice_lasts_until_one_is_far_from_the_largest(tmp_path: Path) -> None:
    slabs = slab.Slabs()
    readings = (
        {"a": 9, "b": 8, "c": 7, "d": 1, "e": 1},
        {"a": 9, "b": 7, "c": 8, "d": 1, "e": 1},  # c is larger, but b is not far.
        {"a": 9, "b": 1, "c": 8, "d": 4, "e": 3},  # Four are larger than b.
    )
    chosen = [[name for name, _ in slabs.read(write(tmp_path, **sizes), caches=2)] for sizes in readings]
    assert chosen == [["a", "b", "others"], ["a", "b", "others"], ["a", "c", "others"]]


def test_a_cache_that_is_gone_makes_room(tmp_path: Path) -> None:
    slabs = slab.Slabs()
    list(slabs.read(write(tmp_path, a=9, b=8, c=7), caches=2))
    assert [name for name, _ in slabs.read(write(tmp_path, b=8, c=7), caches=2)] == ["b", "c", "others"]


@pytest.mark.parametrize("line", ["dentry 1 2\n", "dentry 1 2 3 4 5 : tunables 0 0 0 : slabdata\n", "\n"])
def test_garbage_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="unpack|expected 'slabdata'"):
        slab.parse(line)


def test_a_name_may_have_blanks() -> None:
    line = "my cache 5 10 100 10 1 : tunables 0 0 0 : slabdata 3 3 0"
    assert slab.parse(line) == ("my cache", (3 * PAGE, 500, 5))


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/slabinfo").write_text("slabinfo - version: 3.0\n\n")
    with pytest.raises(ValueError, match="expected version 2"):
        list(slab.Slabs().read(Host(str(tmp_path))))


def test_no_file_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(slab.Slabs().read(Host(str(tmp_path))))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read it")
def test_it_adds_up_to_the_slab_of_meminfo_on_this_machine() -> None:
    total = sum(int(values[0]) for _, values in slab.Slabs().read(Host()))
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert total == pytest.approx(int(meminfo["Slab"].split()[0]) * 1024, rel=0.25)
