# SPDX-License-Identifier: Apache-2.0
"""The runtime folder, or what is in it, is removed under a running recorder: it is noticed, and nothing is lost.

logind does that to ``/run/user`` and ``/dev/shm`` at a user's last logout.
"""

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Event, Result
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.ring.frame import RING_BYTES_MIN, Identity, Layout
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store.of_ring import of_snapshot
from sysmond.tasks.bpf import bpffs
from tests.support.order import first
from tests.support.waiting import HANG_S, wait_until
from tests.support.whole import Recorder, a_recorder

TICKS = 3
AT_FDCWD, RENAME_EXCHANGE = -100, 2
IDENTITY = Identity("0123456789abcdef" * 2, "sampler", Sensitivity.RESTRICTED, 42, 5)
LOADS = Layout(Table("load", (Metric("avg1", "1", Semantics.GAUGE, "Load.", 2, "test"),)), SECOND_NS)


@pytest.fixture
def recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    with a_recorder() as made:
        made.config.write_text(getattr(request, "param", "{}\n"))
        made.start()
        wait_for_ticks(made)
        yield made


def result(recorder: Recorder) -> Result | None:
    try:
        return Archive(recorder.folders).select("memory/total", raw=True)
    except Error:
        return None


def times(recorder: Recorder) -> set[int]:
    found = result(recorder)
    return set() if found is None else set(found.times_ns.tolist())


def wait_for_ticks(recorder: Recorder, more: int = TICKS) -> None:
    """Wait until so many ticks are on record that are not there now."""
    before = times(recorder)
    wait_until(lambda: len(times(recorder) - before) >= more, recorder.said)


def wait_for_another(recorder: Recorder, part: str, pid: int) -> None:
    def is_there() -> bool:
        try:
            return recorder.pid(part) != pid
        except (OSError, ValueError):
            return False

    wait_until(is_there, recorder.said)


def ended(code: int) -> int:
    """Have a process end with this code, and give its number."""
    with subprocess.Popen(["sh", "-c", f"exit {code}"]) as process:
        process.wait()
    return process.pid


def exit_codes(recorder: Recorder) -> dict[int, int]:
    return {row["pid"]: row["exit_code"] for row in recorder.records("exits", "pid,exit_code", start="-10min")}


def wait_for_end(recorder: Recorder, pid: int) -> None:
    wait_until(lambda: pid in exit_codes(recorder), recorder.said)


def pending(pid: int) -> int:
    """The signals that were sent to a process and have not come to it, as a mask."""
    lines = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["SigPnd"], 16) | int(lines["ShdPnd"], 16)


def removals(recorder: Recorder) -> list[Event]:
    return [event for event in Archive(recorder.folders).events() if event.kind == "removed"]


def check(recorder: Recorder, ticks_before: set[int], pid_before: int) -> None:
    """Everything that was on record is on disk in the end, and what is missing has its cause."""
    wait_for_ticks(recorder)
    pid_after = ended(8)
    wait_for_end(recorder, pid_after)
    recorder.end()
    found = result(recorder)
    assert found is not None
    assert not found.warnings
    there = found.times_ns.tolist()
    assert sorted(ticks_before - set(there)) == []
    assert exit_codes(recorder)[pid_before] == 7
    assert exit_codes(recorder)[pid_after] == 8
    for before_ns, after_ns in pairwise(there):
        if after_ns - before_ns > SECOND_NS * 3 // 2:
            assert causes(found, before_ns + SECOND_NS) == {Cause.DAEMON_DOWN}, (before_ns, after_ns, found.gaps)
    assert not list(Path(recorder.folders.runtime).rglob("*.ring"))


def remove_all(runtime: str) -> None:
    """As ``rm -rf`` does: a BPF file system in it is emptied, and stays where it is mounted."""
    shutil.rmtree(runtime, ignore_errors=True)


def move_away(runtime: str) -> None:
    os.rename(runtime, f"{runtime}.away")
    bpffs.remove(f"{runtime}.away")


def replace(runtime: str) -> None:
    """At once: where nothing is for a moment, the recorder makes a folder anew."""
    other = f"{runtime}.away"
    shutil.copytree(runtime, other, ignore=shutil.ignore_patterns("control", "bpf"))
    assert (
        ctypes.CDLL(None).renameat2(AT_FDCWD, os.fsencode(runtime), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0
    )
    bpffs.remove(other)


@pytest.mark.parametrize("ticks", [3, 5000])
def test_a_ring_without_a_file_is_saved_as_it_is_and_written_on(runtime: Path, ticks: int) -> None:
    path = f"{runtime}/5.ring"
    ring = RingWriter(path, RING_BYTES_MIN, IDENTITY, [LOADS])
    for tick in range(ticks):
        ring.rows(0, tick, ("",), [tick])
    before = snapshot(path)
    assert not ring.is_gone()
    shutil.copy(path, f"{path}.copy")
    os.rename(f"{path}.copy", path)
    assert ring.is_gone()  # Another file in its place.
    os.unlink(path)
    assert ring.is_gone()
    ring.save()
    assert not ring.is_gone()
    assert snapshot(path) == before
    assert os.stat(path).st_mode & 0o777 == 0o640
    ring.rows(0, ticks, ("",), [ticks])
    ring.close(is_over=False)
    after = snapshot(path)
    assert after.end_offset > before.end_offset
    assert not after.damages
    assert not after.closed
    assert os.listdir(runtime) == ["5.ring"]


@pytest.mark.parametrize("remove", first(1, [remove_all, move_away, replace]))
def test_a_runtime_folder_that_is_removed_is_made_anew_and_nothing_is_lost(
    recorder: Recorder, remove: Callable[[str], None]
) -> None:
    pid = ended(7)
    wait_for_end(recorder, pid)
    before, daemon = times(recorder), recorder.pid("daemon")
    sampler = recorder.pid("sampler")
    remove(recorder.folders.runtime)
    wait_for_another(recorder, "sampler", sampler)
    assert recorder.pid("daemon") == daemon  # Whoever supervises it sees the same process.
    check(recorder, before, pid)
    (event,) = removals(recorder)
    assert event.subject == recorder.folders.runtime
    assert f"{recorder.folders.runtime}: removed" in recorder.said()


def test_rings_that_are_removed_are_sealed_and_others_begun(recorder: Recorder) -> None:
    pid = ended(7)
    wait_for_end(recorder, pid)
    before = times(recorder)
    pids = {part: recorder.pid(part) for part in ("sampler", "background", "archiver")}
    for ring in list(Path(recorder.folders.runtime).rglob("*.ring")):
        ring.unlink()
    for part, number in pids.items():
        wait_for_another(recorder, part, number)
    check(recorder, before, pid)
    # An archiver whose own ring is gone ends, and what it was told just before goes with it; each folder by itself is
    # tested below.
    subjects = {event.subject for event in removals(recorder)}
    assert subjects
    assert subjects <= {f"{recorder.folders.runtime}/{part}" for part in pids}


@pytest.mark.parametrize("part", first(1, ["sampler", "background", "archiver"]))
def test_the_folder_of_a_part_that_is_removed_is_made_anew(recorder: Recorder, part: str) -> None:
    pid = ended(7)
    wait_for_end(recorder, pid)
    before, number = times(recorder), recorder.pid(part)
    shutil.rmtree(f"{recorder.folders.runtime}/{part}")
    wait_for_another(recorder, part, number)
    check(recorder, before, pid)
    assert [event.subject for event in removals(recorder)] == [f"{recorder.folders.runtime}/{part}"]


@pytest.mark.long
@pytest.mark.parametrize(
    "recorder",
    ["sampler: {ring_size: 64KiB}\nprobes: {cpu: {interval: 20ms}, memory: {interval: 100ms}}\n"],
    indirect=True,
)
def test_rings_that_have_gone_round_name_what_was_in_ram_alone_as_dropped(recorder: Recorder) -> None:
    """What was on disk is no gap, what nobody has any more is one, with its cause."""
    flushed = times(recorder)
    recorder.flush()
    wait_until(lambda: held_since(recorder) > max(flushed) + 5 * SECOND_NS, recorder.said)
    before = times(recorder)
    shutil.rmtree(f"{recorder.folders.runtime}/archiver")
    wait_until(lambda: removals(recorder), recorder.said)
    wait_for_ticks(recorder)
    recorder.end()
    found = result(recorder)
    assert found is not None
    there = set(found.times_ns.tolist())
    assert flushed <= there
    missing = before - there
    assert missing
    assert min(missing) > max(flushed)
    for at_ns in missing:
        assert causes(found, at_ns) == {Cause.DROPPED}
    assert not [at_ns for at_ns in there if Cause.DROPPED in causes(found, at_ns)]


def causes(found: Result, at_ns: int) -> set[Cause]:
    return {gap.cause for gap in found.gaps if gap.start_ns <= at_ns < gap.end_ns}


def held_since(recorder: Recorder) -> int:
    """The first tick of memory that the ring still has, in UTC; long ago where it has not gone round."""
    (ring,) = Path(recorder.folders.runtime, "sampler", "public").glob("*.ring")
    recording = of_snapshot(snapshot(str(ring)))
    memory = [block for block in recording.blocks if any(key.table == "memory" for key in block.keys)]
    ticks = [int(block.ticks[0]) for block in memory if len(block.ticks)]
    (relation, *_) = next(iter(recording.clocks.values()))
    return min(ticks) - relation.boottime_ns + relation.realtime_ns if ticks else 0


def test_told_to_end_at_once_after_that_it_ends_with_everything_on_disk(recorder: Recorder) -> None:
    pid = ended(7)
    wait_for_end(recorder, pid)
    before = times(recorder)
    remove_all(recorder.folders.runtime)
    recorder.end()
    assert before <= times(recorder)
    assert exit_codes(recorder)[pid] == 7


def test_told_to_end_while_it_ends_its_parts_to_begin_anew_it_does_not_begin(recorder: Recorder) -> None:
    before, sampler = times(recorder), recorder.pid("sampler")
    os.kill(sampler, signal.SIGSTOP)  # So its parent has to wait for it.
    remove_all(recorder.folders.runtime)
    wait_until(lambda: "beginning anew" in recorder.said(), recorder.said)
    (process,) = recorder.processes
    process.terminate()
    # Whether the signal has come is for the kernel to say: it is pending no more.
    wait_until(lambda: not pending(process.pid) & 1 << signal.SIGTERM - 1, recorder.said)
    os.kill(sampler, signal.SIGCONT)
    assert process.wait(HANG_S) == 0, recorder.said()
    recorder.processes.clear()
    assert before <= times(recorder)
