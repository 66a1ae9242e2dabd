# SPDX-License-Identifier: Apache-2.0
"""Bytes of a process are its own: one dd below a shell is counted once, by BPF and by /proc, by a real daemon."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.pinned import why_not
from tests.support.waiting import wait_until
from tests.support.whole import CAPABILITIES, Recorder, a_recorder, within

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF")

MIB = 1 << 20
WRITTEN = 64 * MIB
# The shell stays, since something follows; dd is waited for by timeout, timeout by the shell, the shell by us.
SCRIPT = f"timeout 20 dd if=/dev/zero of=$0 bs=1M count={WRITTEN // MIB} conv=fsync 2>/dev/null; exit 0"

NAMES = {"bash", "timeout", "dd"}


def written_here() -> int:
    """Bytes that this process sent towards storage, with what children did that it waited for."""
    return int(Path("/proc/self/io").read_text().partition("\nwrite_bytes: ")[2].split()[0])


def family(rows: Sequence[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """A process and all below it."""
    pids = {first}
    while more := {row["pid"] for row in rows if row["ppid"] in pids} - pids:
        pids |= more
    return [row for row in rows if row["pid"] in pids]


@pytest.mark.parametrize("has_bpf", [True, False], ids=["BPF", "proc"])
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
