# SPDX-License-Identifier: Apache-2.0
"""A file that nobody can look at stands in no other one's way: all others are answered, flushed, merged and forgotten.

What stat(2) refuses comes as a link to itself (ELOOP), and as an inode whose checksum is wrong (EBADMSG), on ext4.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.archiver import children, retention_job
from sysmond.base.model import FINEST_TIER, TIERS_NS, Sensitivity
from sysmond.commands import fsck
from sysmond.errors import CorruptError
from sysmond.history import Archive
from sysmond.machine import listing
from sysmond.machine.folders import Folders, create_classes
from sysmond.plan.retention import Limit
from sysmond.store import archive
from sysmond.store.archive import Name
from sysmond.tasks.tables import PROCESS
from tests.faults import trial
from tests.support.longarchive import Row, put, ring, stretch
from tests.support.machine import BOOT, Machine

DISK_BYTES = 8 * 1024 * 1024
ROWS = 120


def process(pid: int) -> Row:
    return {"pid": pid, "start": 10**9, "state": "S"}


def recorded(machine: Machine) -> None:
    """Three segments on disk, the last rows in a ring; of a long table two files and a ring."""
    create_classes(machine.folders.state, *TIERS_NS)
    writer = machine.start(0.5)
    for first in range(1, 1 + ROWS, ROWS // 4):
        writer.tick(range(first, first + ROWS // 4))
        if first + ROWS // 4 < ROWS:
            machine.seal()
            machine.flush()
    for number in (1, 2):
        put(machine.folders, stretch(PROCESS, range(10 * number, 10 * number + 10), [(0, process(5))]), number)
    ring(machine.folders, PROCESS, [(30 + second, second == 0, [process(5)]) for second in range(5)])


def trap(folder: Path, file: str) -> str:
    """A file of a segment's name that stat(2) refuses."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).symlink_to(file)
    return str(folder / file)


def traps(machine: Machine) -> list[str]:
    """One in every folder that holds files or rings."""
    folders = machine.folders
    first, later = Name(BOOT, 1, 9).file, Name(BOOT, 90, 90).file
    found = []
    for table in ("", "process"):
        for tier in TIERS_NS:
            folder = Path(archive.disk_folder(folders, Sensitivity.PUBLIC, tier, table))
            found += [trap(folder, file) for file in (later, "x.h5")]
        found.append(trap(Path(archive.ram_folder(folders, Sensitivity.PUBLIC, table)), Name(BOOT, 91, 91).file))
        found.append(trap(Path(folders.runtime, "sampler", "public", table), "7.ring"))
    # Another one of a name that claims all that lies there.
    return [*found, trap(Path(archive.disk_folder(folders, Sensitivity.PUBLIC)), first)]


def rows(folders: Folders) -> tuple[int, int]:
    """How many rows of the wide table and of the long one are answered."""
    opened = Archive(folders)
    wide = opened.select("disk/read_bytes", raw=True).columns[0].integers
    return 0 if wide is None else len(wide), len(opened.records("process").records)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    recorded(found)
    return found


def test_all_others_are_answered_and_it_is_named(machine: Machine) -> None:
    before = rows(machine.folders)
    assert before[0] == ROWS
    placed = traps(machine)
    assert rows(machine.folders) == before
    warned = [*machine.archive.select("disk", raw=True).warnings, *machine.archive.records("process").warnings]
    unnamed = [path for path in placed if not any(path in warning for warning in warned)]
    # A file of a tier is opened where the tier is asked for, and of long tables nothing of a strange name.
    assert [path for path in unnamed if not re.search(r"/(10s|1min|5min)/|/process/.*x\.h5", path)] == []


def test_what_is_recorded_later_is_sealed_flushed_and_merged(machine: Machine) -> None:
    before = rows(machine.folders)
    placed = traps(machine)
    told: dict[str, object] = {}
    children.seal(machine.folders)
    children.flush(machine.folders, told.__setitem__)
    assert told["files"]
    assert [path for path in map(str, Path(machine.folders.runtime).rglob("*.h5")) if path not in placed] == []
    children.merge(machine.folders)
    assert rows(machine.folders) == before
    assert [path for path in placed if not os.path.lexists(path)] == []


def test_a_budget_counts_and_forgets_all_others(machine: Machine) -> None:
    placed = traps(machine)
    for is_long in (False, True):
        keeper = retention_job.Keeper(machine.folders, dict.fromkeys(TIERS_NS, Limit(1)), 0, is_long=is_long)
        gone = keeper.make_room(FINEST_TIER, 0)
        assert gone
        assert not set(gone) & set(placed)


def test_a_check_names_it_and_repairs_the_rest(machine: Machine) -> None:
    placed = traps(machine)
    torn = Path(archive.disk_folder(machine.folders, Sensitivity.PUBLIC), Name(BOOT, 2, 2).file)
    torn.write_bytes(torn.read_bytes()[:3000])
    findings = fsck.check(machine.folders)
    kinds = {each.path: each.kind for each in findings}
    state = [path for path in placed if path.startswith(machine.folders.state)]
    assert {kinds[path] for path in state} == {"damaged", "unknown"}  # By its name.
    assert kinds[str(torn)] == "damaged"
    steps = list(fsck.repair(machine.folders, findings))
    assert any(str(torn) in step for step in steps)
    assert not torn.exists()


def test_what_cannot_be_looked_at_is_damage_with_a_name(tmp_path: Path) -> None:
    path = trap(tmp_path, "x.h5")
    with pytest.raises(CorruptError, match=rf"{re.escape(path)}: Too many levels of symbolic links"):
        listing.look(path)
    assert listing.files(str(tmp_path), ".h5") == ["x.h5"]
    with pytest.raises(FileNotFoundError):
        listing.look(str(tmp_path / "nothing"))
    looping = trap(tmp_path, "folder")
    with pytest.raises(CorruptError, match=rf"{re.escape(looping)}: Too many levels of symbolic links"):
        listing.files(looping, ".h5")


def test_a_folder_that_cannot_be_listed_costs_its_own_files(machine: Machine) -> None:
    before = rows(machine.folders)
    folder = Path(archive.disk_folder(machine.folders, Sensitivity.RESTRICTED))
    folder.rmdir()
    folder.symlink_to(folder.name)
    assert rows(machine.folders) == before
    warned = machine.archive.select("disk", raw=True).warnings
    assert any(str(folder) in warning for warning in warned)
    assert [(each.path, each.kind) for each in fsck.check(machine.folders)] == [(str(folder), "damaged")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of its own."""
    if reason := trial.cannot_mount("mkfs.ext4", "debugfs", "losetup"):
        pytest.skip(reason)
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    trial.command("mkfs.ext4", "-q", "-F", str(image))
    trial.command("mount", "-o", "loop", str(image), str(place))
    yield place
    trial.command("umount", "-l", str(place))


def break_inodes(disk: Path, paths: list[Path]) -> None:
    """Make the checksums of inodes wrong, as a bad sector does."""
    inodes = [path.stat().st_ino for path in paths]
    image = disk.parent / "image"
    trial.command("umount", str(disk))
    trial.wait_until_released(str(image))
    for inode in inodes:
        trial.command("debugfs", "-w", "-R", f"set_inode_field <{inode}> checksum 0xdead", str(image))
    trial.command("mount", "-o", "loop", str(image), str(disk))


def test_an_inode_that_is_damaged_costs_its_own_file(tmp_path: Path, disk: Path) -> None:
    made = _moved(Machine(tmp_path / "machine"), disk)
    recorded(made)
    wide, long = rows(made.folders)
    folder = archive.disk_folder(made.folders, Sensitivity.PUBLIC, table="process")
    broken = [made.files()[1], Path(folder, Name(BOOT, 2, 2).file)]
    break_inodes(disk, broken)
    with pytest.raises(OSError, match="Bad message"):
        os.stat(broken[0])
    assert rows(made.folders) == (wide - ROWS // 4, long)
    told: dict[str, object] = {}
    children.seal(made.folders)
    children.flush(made.folders, told.__setitem__)
    assert told["files"]
    children.merge(made.folders)
    assert rows(made.folders) == (wide - ROWS // 4, long)
    assert {each.path for each in fsck.check(made.folders) if each.kind == "damaged"} == set(map(str, broken))


def _moved(machine: Machine, disk: Path) -> Machine:
    """The same machine with its state on a disk."""
    machine.folders = machine.folders._replace(state=f"{disk}/state")
    for sensitivity in Sensitivity:
        os.makedirs(archive.disk_folder(machine.folders, sensitivity))
    return machine
