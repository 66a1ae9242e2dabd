# SPDX-License-Identifier: Apache-2.0
"""Bytes of a process are its own: one dd below a shell is counted once, by BPF and by /proc, by a real daemon.

Against what the kernel says of us, who waited for it, and against what the disk says that it wrote.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults import trial
from tests.support.pinned import why_not
from tests.support.waiting import wait_until
from tests.support.whole import CAPABILITIES, Recorder, a_recorder, within

BY_EACH_WAY = pytest.mark.parametrize(
    "has_bpf",
    [
        pytest.param(True, id="BPF", marks=pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF")),
        pytest.param(
            False, id="proc", marks=[pytest.mark.long, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
        ),
    ],
)

MIB = 1 << 20
WRITTEN = 64 * MIB
# The shell stays, since something follows; dd is waited for by timeout, timeout by the shell, the shell by us.
SCRIPT = f"timeout 20 dd if=/dev/zero of=$0 bs=1M count={WRITTEN // MIB} conv=fsync 2>/dev/null; exit 0"

NAMES = {"bash", "timeout", "dd"}
SECTOR_BYTES = 512
# Whose children are the threads of the kernel.
KERNEL = 2


def written_here() -> int:
    """Bytes that this process sent towards storage, with what children did that it waited for."""
    return int(Path("/proc/self/io").read_text().partition("\nwrite_bytes: ")[2].split()[0])


def family(rows: Sequence[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """A process and all below it."""
    pids = {first}
    while more := {row["pid"] for row in rows if row["ppid"] in pids} - pids:
        pids |= more
    return [row for row in rows if row["pid"] in pids]


@BY_EACH_WAY
def test_what_is_written_below_a_shell_is_counted_once(tmp_path: Path, *, has_bpf: bool) -> None:
    with a_recorder() as recorder:
        recorder.prefix = [] if has_bpf else within(drop=CAPABILITIES)
        recorder.start()
        recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
        before = written_here()
        with subprocess.Popen(["bash", "-c", SCRIPT, str(tmp_path / "file")]) as shell:
            shell.wait()
        disk = written_here() - before
        if disk < WRITTEN:
            pytest.skip(f"nothing that is written to {tmp_path} is counted")
        check(recorder, shell.pid, disk, has_bpf=has_bpf)


def check(recorder: Recorder, shell: int, disk: int, *, has_bpf: bool) -> None:
    columns = "pid,ppid,comm,written_bytes:sum"

    def ended() -> list[dict[str, Any]]:
        there = {row["pid"] for row in recorder.records("exits", "pid")}
        return [row for row in family(recorder.records("process", columns), shell) if row["pid"] in there]

    wait_until(lambda: len(ended()) == len(NAMES), recorder.said)
    tree = ended()
    assert {row["comm"] for row in tree} == NAMES
    (dd,) = (row for row in tree if row["comm"] == "dd")
    assert max(tree, key=lambda row: float(row["written_bytes:sum"])) == dd
    # Taskstats counts whole KiB.
    assert sum(row["written_bytes:sum"] for row in tree) == pytest.approx(disk, rel=0.03)
    assert sum(row["written_bytes:sum"] for row in tree if row is not dd) < WRITTEN * 0.03
    (first,) = recorder.records("process", columns, top=1, by="written_bytes", where="comm ~ ^(bash|timeout|dd)$")
    assert first["pid"] == dd["pid"]
    ours = f"pid = {os.getpid()}"
    names = ("written_bytes:last", "written_bytes_with_children:last")
    (own,) = recorder.wait_for("process", f"{ours} and {names[1]} >= {disk}", ",".join(names))
    assert own[names[0]] <= own[names[1]] - disk  # Its parents inherit nothing.
    ends = {row["pid"]: row for row in recorder.records("exits", "pid,written_bytes,written_bytes_with_children")}
    assert ends[dd["pid"]]["written_bytes"] == pytest.approx(disk, rel=0.03)
    if has_bpf:
        assert ends[shell]["written_bytes"] < WRITTEN * 0.03
        assert ends[shell]["written_bytes_with_children"] == pytest.approx(disk, rel=0.03)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of its own with a file system, in memory: what its kernel thread writes there is no storage to anybody."""
    if reason := trial.cannot_mount("mkfs.ext4", "losetup"):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="sysmond-", dir="/dev/shm") as name:
        image, place = Path(name, "image"), Path(name, "disk")
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(4 * WRITTEN)
        trial.command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(image))
        trial.command("mount", "-o", "loop", str(image), str(place))
        try:
            yield place
        finally:
            trial.command("umount", "-l", str(place))
            trial.wait_until_released(str(image))


def written_to(disk: Path) -> int:
    """Bytes that the device of a file system has written, by its counter, once nothing of it waits in memory."""
    trial.command("sync", "--file-system", str(disk))
    device = disk.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return int(stat[6]) * SECTOR_BYTES


def ancestors() -> set[int]:
    """This process and all above it, to whom what is written below them might be counted once more."""
    pids = {pid := os.getpid()}
    while pid := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]):
        pids.add(pid)
    return pids


@BY_EACH_WAY
def test_all_processes_wrote_what_the_disk_wrote(disk: Path, *, has_bpf: bool) -> None:
    """Of all there are but those of other programs, which write to other disks meanwhile and nothing to this one."""
    with a_recorder() as recorder:
        recorder.prefix = [] if has_bpf else within(drop=CAPABILITIES)
        recorder.start()
        recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
        before, began_ns = written_to(disk), time.time_ns()
        with subprocess.Popen(["bash", "-c", SCRIPT, str(disk / "file")]) as shell:
            shell.wait()
        by_disk = written_to(disk) - before
        assert by_disk >= WRITTEN
        recorder.wait_for("exits", f"pid = {shell.pid}", "pid")
        inherited = f"pid = {os.getpid()} and written_bytes_with_children:last >= {WRITTEN}"
        recorder.wait_for("process", inherited, "written_bytes_with_children:last")
        rows = recorder.records("process", "pid,ppid,comm,written_bytes:sum", start=began_ns)
    ours = {row["pid"] for row in family(rows, shell.pid)} | ancestors()
    strangers = [row for row in rows if row["pid"] not in ours and row["ppid"] not in {0, KERNEL}]
    of_disk = [row for row in rows if row not in strangers]
    # Of one that is there for a single reading nothing is known: it did not write all this.
    by_processes = float(np.nansum([row["written_bytes:sum"] for row in of_disk]))
    assert by_processes == pytest.approx(by_disk, rel=0.03)
    assert max(of_disk, key=lambda row: np.nan_to_num(row["written_bytes:sum"]))["comm"] == "dd"
