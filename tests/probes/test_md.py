# SPDX-License-Identifier: Apache-2.0
"""The tables ``md`` and ``md_member``: exact values, stripes, garbage, members that go, machines without arrays."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sysmond_probes import md

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Absence, Cause, Host, Row
from tests.support import sysfs


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "server", "md")


def rows(read: Callable[[Host], Iterator[Row]], root: Path) -> dict[str, object]:
    return dict(read(Host(str(root))))


def test_the_tables_are_well_formed() -> None:
    for probe in md.sysmond_probes():
        check_table(probe.table)


def test_a_mirror_an_array_that_is_rebuilt_and_stripes(server: Path) -> None:
    nothing = (ABSENT,) * 5
    assert rows(md.read, server) == {
        "md0": (2, 0, ABSENT, ABSENT, ABSENT, 128 * 512, "raid1", "clean", "idle"),
        "md1": (4, 1, 1200 * 512, 1953382400 * 512, 101376 * 1024, 0, "raid5", "active", "recover"),
        "md2": (2, *nothing, "raid0", "clean", ABSENT),
    }


def test_members_are_named_by_their_array(server: Path) -> None:
    assert rows(md.read_members, server) == {
        "md0:sda1": (0, 0, "in_sync"),
        "md0:sdb1": (24, 1, "in_sync,write_mostly"),
        "md1:sdc1": (7, ABSENT, "faulty"),
    }


def test_a_resync_that_waits_for_another_has_no_progress(server: Path) -> None:
    (server / "sys/class/block/md1/md/sync_completed").write_text("delayed\n")
    assert rows(md.read, server)["md1"] == (4, 1, ABSENT, ABSENT, 101376 * 1024, 0, "raid5", "active", "recover")


@pytest.mark.parametrize("file", ["raid_disks", "sync_completed"])
def test_garbage_costs_its_own_row_alone(server: Path, file: str) -> None:
    (server / "sys/class/block/md1/md" / file).write_text("many / more\n")
    found = rows(md.read, server)
    failure = found["md1"]
    assert isinstance(failure, Absence)
    assert failure.cause is Cause.PROBE_FAILED
    assert "invalid literal" in failure.detail
    assert found["md0"] == (2, 0, ABSENT, ABSENT, ABSENT, 128 * 512, "raid1", "clean", "idle")


def test_an_empty_file_is_garbage_too(server: Path) -> None:
    (server / "sys/class/block/md1/md/raid_disks").write_text("")
    assert rows(md.read, server)["md1"] == Absence(
        Cause.PROBE_FAILED, "ValueError: invalid literal for int() with base 10: b''"
    )


def test_an_array_and_a_member_that_go_in_mid_read_have_no_row(server: Path) -> None:
    reading = md.read(Host(str(server)))
    assert next(reading)[0] == "md0"
    (server / "sys/class/block/md1").unlink()
    assert [name for name, _ in reading] == ["md2"]
    members = md.read_members(Host(str(server)))
    (server / "sys/class/block/md0/md/dev-sda1/state").unlink()
    assert [name for name, _ in members] == ["md0:sdb1"]


def test_a_machine_without_arrays_has_no_rows(tmp_path: Path) -> None:
    assert rows(md.read, tmp_path) == rows(md.read_members, tmp_path) == {}
