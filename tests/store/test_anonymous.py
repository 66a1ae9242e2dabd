# SPDX-License-Identifier: Apache-2.0
"""An archive that names nobody: what was planted in names and texts is nowhere in it, however it is spelled."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from sysmond import history
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Table
from sysmond.history import Archive
from sysmond.machine import snapshot_file
from sysmond.machine.folders import Folders
from sysmond.store.anonymous import Anonymity
from sysmond.store.excerpt import ExcerptFile
from sysmond.store.of_ring import BootEvent
from tests.support import planted
from tests.support.longarchive import BOOT, BOOTED_NS
from tests.support.planted import PLANTED, SECONDS, seen_in


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return planted.archive(tmp_path)


def content(files: Sequence[ExcerptFile]) -> bytes:
    """All bytes of files, unpacked, with their names."""
    told: list[bytes] = []

    def tell(name: str, thing: h5py.Dataset | h5py.Group) -> None:
        told.extend([name.encode(), *(np.asarray(value).tobytes() for value in thing.attrs.values())])
        if isinstance(thing, h5py.Dataset):
            told.append(np.asarray(thing[()]).tobytes())

    for path, image, table in files:
        told += [path.encode(), table.encode(), image]
        with h5py.File(io.BytesIO(image)) as file:
            tell("", file)
            file.visititems(tell)
    return b"\0".join(told)


def test_nothing_that_was_planted_is_in_it(folders: Folders) -> None:
    named, nameless = (content(Archive(folders).excerpt(anonymous=each)) for each in (False, True))
    # The last stands nowhere; all others would be seen.
    assert seen_in(named) == PLANTED[:-1]
    assert seen_in(nameless) == []
    assert BOOT.encode() in named
    assert BOOT.encode() not in nameless


@pytest.mark.parametrize(
    ("kind", "subject", "expected"),
    [
        ("pressure", "io", "io"),
        ("boot ended", "panic", "panic"),
        ("boot ended", "my secret", "thing-1"),
        ("disk error", "io", "thing-1"),
    ],
)
def test_what_is_called_alike_on_all_machines_stays(kind: str, subject: str, expected: str) -> None:
    event = BootEvent(BOOT, 1, kind, subject, "of disk", "sda")
    nameless = Anonymity().event(event)
    assert (nameless.kind, nameless.subject, nameless.text, nameless.detail) == (kind, expected, "", "")


@pytest.mark.parametrize(
    ("table", "instance", "expected"),
    [
        (Table("disk", (), "device"), "sda", "device-1"),
        (Table("smart", (), "disk"), "sda", "device-1"),
        (Table("smart_attribute", (), "disk:attribute"), "sda:194 temperature", "device-1:attribute-1"),
        (Table("disk", (), "device"), "sda3", "device-1p3"),
        (Table("swap", (), "device"), "/dev/sda3", "device-1p3"),
        (Table("cgroup_io", (), "cgroup:device"), "/a:sda", "cgroup-1:device-1"),
        (Table("smart", (), "disk"), "nvme0", "device-2"),
        (Table("disk", (), "device"), "nvme0n1p2", "device-2n1p2"),
        (Table("md", (), "array"), "md0", "device-3"),
        (Table("md_member", (), "array:device"), "md0:nvme0n1", "device-3:device-2n1"),
        (Table("disk", (), "device"), "md0", "device-3"),
    ],
)
def test_a_disk_has_one_name_in_all_tables(table: Table, instance: str, expected: str) -> None:
    names = Anonymity()
    for disk in ("sda", "nvme0", "md0"):
        names.instance(Table("disk", (), "device"), disk)
    assert names.instance(table, instance) == expected
    assert names.text("filesystem", "device", "/dev/sda1") == "device-1p1"


def test_what_is_left_can_still_be_put_together(folders: Folders, tmp_path: Path) -> None:
    path = tmp_path / "nameless.sysmon"
    with path.open("wb") as file:
        files = Archive(folders).excerpt(anonymous=True)
        snapshot_file.write(file, {}, [(each.path, each.image) for each in files])
    part = history.open(state_dir=str(path))
    start_ns, end_ns = (BOOTED_NS + second * SECOND_NS for second in (SECONDS[0], SECONDS[-1]))
    columns = ["comm", "state", "cgroup_path"]
    rows = part.records("process", start=start_ns, end=end_ns, columns=columns, where="pid = 7")
    assert {column.path: column.texts for column in rows.columns if column.path in columns} == {
        "comm": ("program-2",),
        "state": ("S",),
        "cgroup_path": ("cgroup-3",),
    }
    paths = {re.sub(r"-\d", "-N", entry.path) for entry in part.catalogue()}
    assert {"disk/n@device-N", "cgroup_io/n@cgroup-N:device-N", "filesystem/n@mount-N", "plugin/n@shelf-N"} <= paths
    assert {"host/n", "setting/n@setting-N"} <= paths
    [event] = part.events()
    assert (event.kind, event.subject, event.text, event.detail) == ("disk error", "thing-1", "", "")
    assert {"process", "exits", "cgroup_name"} == {entry.path for entry in part.long_tables()} - {"event"}
