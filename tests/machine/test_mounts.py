# SPDX-License-Identifier: Apache-2.0
"""Where a folder lies, and what must be mounted before it is the right one."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sysmond.machine.mounts import Location, Mount, awaited, mount_of, mounts, place

MOUNTINFO = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:26 / /run rw,nosuid - tmpfs tmpfs rw,size=100k
40 22 254:16 / /srv/my\\040disk rw - ext4 /dev/vdb rw
41 22 0:40 /sub /home rw - btrfs /dev/mapper/home rw,subvol=/sub
42 41 254:2 / /home rw - ext4 /dev/vda2 rw
"""
FSTAB = """\
# /etc/fstab
UUID=1 / ext4 defaults 0 1
UUID=2 /var/lib ext4 defaults 0 2
UUID=3 /srv/my\\040disk ext4 defaults 0 2
UUID=4 /media/stick vfat noauto,user 0 0
UUID=5 none swap sw 0 0
"""


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    (tmp_path / "fstab").write_text(FSTAB)
    return {"mountinfo": str(tmp_path / "mountinfo"), "fstab": str(tmp_path / "fstab")}


@pytest.mark.parametrize(
    ("folder", "point", "device"),
    [
        ("/var/lib/sysmond", "/", "254:1"),
        ("/srv/my disk/state", "/srv/my disk", "254:16"),
        ("/srv/my diskette", "/", "254:1"),
        ("/run", "/run", "0:26"),
        ("/home/ann/.local/state", "/home", "254:2"),
    ],
)
def test_a_folder_lies_on_the_longest_and_latest_mount(
    folder: str, point: str, device: str, tables: dict[str, str]
) -> None:
    found = mount_of(folder, mounts(tables["mountinfo"]))
    assert found is not None
    assert (found.point, found.device) == (point, device)
    assert mount_of(folder, []) is None


@pytest.mark.parametrize(
    ("folder", "known", "missing"),
    [
        ("/var/lib/sysmond", "", "/var/lib"),
        ("/srv/my disk/state", "", ""),
        ("/media/stick/state", "", ""),
        ("/media/stick/state", "/media/stick", "/media/stick"),
        ("/home/ann", "/home", ""),
        ("/opt/state", "", ""),
    ],
)
def test_what_was_or_will_be_mounted_is_waited_for(
    folder: str, known: str, missing: str, tables: dict[str, str]
) -> None:
    assert awaited(folder, known, **tables) == missing


def test_a_machine_without_fstab_waits_for_what_was_mounted_only(tables: dict[str, str]) -> None:
    tables["fstab"] += ".none"
    assert awaited("/var/lib/sysmond", **tables) == ""
    assert awaited("/var/lib/sysmond", "/var", **tables) == "/var"


def machine(folder: Path, mine: str, kind: str) -> dict[str, str]:
    """A made-up sysfs in which device ``mine`` is a mapping over a partition of sda and the whole of nvme0n1."""
    devices = folder / "devices"
    for name in ("sda/sda2", "nvme0n1", "dm-0/slaves"):
        (devices / name).mkdir(parents=True)
    (devices / "sda/sda2/partition").write_text("2\n")
    (devices / "sda/sda2/dev").write_text("8:2\n")
    os.symlink(devices / "sda/sda2", devices / "dm-0/slaves/sda2")
    os.symlink(devices / "nvme0n1", devices / "dm-0/slaves/nvme0n1")
    block = folder / "dev/block"
    block.mkdir(parents=True)
    os.symlink(devices / "dm-0", block / mine)
    (folder / "mountinfo").write_text(f"22 1 {mine} / / rw - {kind} /dev/some rw\n")
    return {"mountinfo": str(folder / "mountinfo"), "sysfs": str(folder)}


def test_a_mapped_device_means_the_whole_disks_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(tmp_path, "253:0", "ext4")
    real = os.stat

    def mapped(path: str, **options: bool) -> object:
        return SimpleNamespace(st_dev=os.makedev(253, 0)) if path == str(tmp_path) else real(path, **options)

    monkeypatch.setattr(os, "stat", mapped)
    assert place(str(tmp_path), **made) == Location("/", ("nvme0n1", "sda"))


def test_a_file_system_without_a_device_may_be_on_any_disk(tmp_path: Path, runtime: Path) -> None:
    made = machine(tmp_path, "0:99", "zfs")
    if os.major(os.stat(runtime).st_dev) == 0:
        assert place(str(runtime), **made) == Location("/", ())
    with pytest.raises(FileNotFoundError):
        place(f"{runtime}/none", **made)


def test_this_machine_has_a_root() -> None:
    assert isinstance(mount_of("/", mounts()), Mount)
