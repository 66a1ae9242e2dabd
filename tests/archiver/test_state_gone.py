# SPDX-License-Identifier: Apache-2.0
"""The file system of the state folder is gone under a running recorder: it lets go of it, and heals later."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sysmond.base.model import Sensitivity
from sysmond.errors import BusyError, Error
from sysmond.history import Archive
from sysmond.machine import control
from sysmond.machine.folders import Folders
from sysmond.machine.lock import only_one
from sysmond.store import archive
from tests.support.order import first
from tests.support.waiting import HANG_S, wait_until
from tests.support.whole import Recorder, a_recorder

IMAGE_BYTES = 64 * 1024 * 1024


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)


class Disk:
    """An ext4 file system of its own on a loop device."""

    def __init__(self, base: Path) -> None:
        self.image, self.point = base / "image", base / "disk"
        self.point.mkdir()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True)

    def mount(self) -> None:
        """Mount it: one that is still in use comes back as it was, read-only by itself."""
        done = run("mount", "-o", "loop", str(self.image), str(self.point))
        assert done.returncode == 0, done.stderr

    def abort(self) -> None:
        """Have the kernel make it read-only, as where it finds the disk at fault."""
        done = run("mount", "-o", "remount,abort", str(self.point))
        assert done.returncode == 0, done.stderr

    def repair(self) -> None:
        """Check it, as whoever finds it read-only does, once nobody uses it, in whatever mount namespace."""
        wait_until(lambda: str(self.image) not in run("losetup", "-a").stdout)
        assert run("e2fsck", "-f", "-p", str(self.image)).returncode in {0, 1}


def why_not() -> str:
    """Why there can be no file system of our own here; nothing where there can."""
    if os.geteuid():
        return "only root mounts"
    with tempfile.TemporaryDirectory() as base:
        try:
            disk = Disk(Path(base))
        except (OSError, subprocess.CalledProcessError) as failure:
            return f"no ext4: {failure}"
        done = run("mount", "-o", "loop", str(disk.image), str(disk.point))
        run("umount", str(disk.point))
        return done.stderr.strip()


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "no loop device")


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        made.folders = Folders(f"{made.base}/disk/state", made.folders.runtime)
        yield made


@pytest.fixture
def disk(recorder: Recorder) -> Iterator[Disk]:
    made = Disk(recorder.base)
    made.mount()
    try:
        yield made
    finally:
        recorder.kill()
        while run("umount", "-l", str(made.point)).returncode == 0:
            pass


def times(recorder: Recorder) -> set[int]:
    with suppress(Error):
        return set(Archive(recorder.folders).select("memory/total", raw=True).times_ns.tolist())
    return set()


def is_flushed(recorder: Recorder) -> bool:
    return bool(control.ask(f"{recorder.folders.runtime}/archiver", {"do": "flush"}, HANG_S)["ok"])


def waiting(recorder: Recorder) -> set[str]:
    return {file for each in Sensitivity for file in archive.files(archive.ram_folder(recorder.folders, each))}


def is_locked(folder: str) -> bool:
    try:
        with only_one(folder):
            return False
    except BusyError:
        return True


def check_healed(recorder: Recorder, before: set[int], waited: set[str]) -> None:
    """What waited in RAM goes to the disk without anybody asking, under a lock; and nothing is missing."""
    assert waited
    wait_until(lambda: waited.isdisjoint(waiting(recorder)), recorder.said)
    wait_until(lambda: is_locked(recorder.folders.state), recorder.said)
    recorder.end()
    assert sorted(before - times(recorder)) == []


@pytest.mark.parametrize("kills", first(1, ["archiver", ""]))
def test_a_disk_that_the_kernel_made_read_only_is_repaired_beneath_the_recorder(
    recorder: Recorder, disk: Disk, kills: str
) -> None:
    recorder.start()
    wait_until(lambda: len(times(recorder)) > 2, recorder.said)
    assert is_flushed(recorder)
    disk.abort()
    wait_until(lambda: not is_flushed(recorder), recorder.said)
    before, waited = times(recorder), waiting(recorder)
    wait_until(lambda: run("umount", str(disk.point)).returncode == 0, lambda: f"busy: {recorder.said()}")
    if kills:  # What it holds, or does not hold, is known to the next one as well.
        pid = recorder.pid(kills)
        os.kill(pid, 9)
        wait_until(lambda: recorder.pid(kills) != pid, recorder.said)
    disk.repair()
    disk.mount()
    check_healed(recorder, before, waited)


def test_a_disk_that_is_unmounted_while_it_is_in_use_is_let_go_of(recorder: Recorder, disk: Disk) -> None:
    recorder.start()
    wait_until(lambda: len(times(recorder)) > 2, recorder.said)
    assert is_flushed(recorder)
    disk.abort()
    assert run("umount", "-l", str(disk.point)).returncode == 0
    wait_until(lambda: not is_flushed(recorder), recorder.said)
    assert f"{disk.point} is not mounted" in recorder.said()
    before, waited = times(recorder), waiting(recorder)
    # Once nobody holds it, the kernel gives back the loop device: only then is it mounted as one that is well.
    wait_until(lambda: str(disk.image) not in run("losetup", "-a").stdout, recorder.said)
    disk.repair()
    disk.mount()
    check_healed(recorder, before, waited)
