# SPDX-License-Identifier: Apache-2.0
"""A real daemon and odd tasks: names, numbers that are used again, cgroups that go, and parts that are killed."""

import ctypes
import errno
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sysmon_tools import extract
from sysmond.archiver import merge_job
from sysmond.base.model import ABSENT
from sysmond.base.wall_clock import CLOCK_QUANTUM_NS
from sysmond.cgroups.tree import numbering_now
from sysmond.history import Archive
from sysmond.probe import Host
from sysmond.tasks.bpf import loader, pins
from sysmond.tasks.tables import EXITS
from tests.support.order import first
from tests.support.pinned import why_not
from tests.support.waiting import wait_until
from tests.support.whole import CAPABILITIES, Recorder, a_recorder, within

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF")
OBJECTS = Path(loader.__file__).parent


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        yield made


ODD_NAMES = (b"new\nline", b"\x1b[31mred\x1b[0m", b"\xff\xfe\x80", b"\",;\t'", b"\r\x07\x9b\x7f", "zwölf".encode())


RENAMING = f"""
import ctypes, itertools, os, time
set_name = ctypes.CDLL(None).prctl
parent = os.getppid()
for name in itertools.cycle({ODD_NAMES!r}):
    set_name(15, name, 0, 0, 0)
    if os.getppid() != parent:
        break
    time.sleep(1)
"""


FORMATS = ("csv", "tsv", "json", "jsonl", "kv", "table")


def test_a_process_that_renames_itself_every_tick_to_whatever(recorder: Recorder) -> None:
    recorder.start()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", RENAMING]) as child:
        recorder.wait_for("process", f"pid = {child.pid}", "pid")
        wait_until(lambda: len(names(recorder, child.pid)) >= len(ODD_NAMES))
        child.kill()
    recorder.wait_for("exits", f"pid = {child.pid}", "pid")
    end_s = int(time.time()) + 1
    wait_until(lambda: time.time() > end_s)
    with subprocess.Popen(["true"]) as later:
        later.wait()
    recorder.wait_for("exits", f"pid = {later.pid}", "pid")  # What happens from now on is in none of the answers.
    wanted = {name.decode("utf-8", "surrogateescape") for name in ODD_NAMES}
    for table, step in (("process", ["--sample=1s"]), ("exits", [])):
        span = [f"--from=@{end_s - 600}", f"--to=@{end_s}"]
        words = [table, *span, f"--where=pid={child.pid}", "--columns=pid,comm", *step]
        out = {each: recorder.extract(*words, f"--format={each}").out for each in FORMATS}
        for each in ("csv", "tsv", "kv", "table"):
            out[each].decode()
            assert not any((byte < 32 and byte not in b"\n\t") or byte == 127 for byte in out[each]), each
            assert "\x9b" not in out[each].decode()
        told = [json.loads(line) for line in out["jsonl"].decode().splitlines()]
        rows = [row for row in told if row.get("pid") == child.pid]
        assert rows
        assert {row["comm"] for row in rows} <= wanted, {row["comm"] for row in rows}
        assert out["jsonl"].isascii()
        assert json.loads(out["json"].decode("ascii"))["series"][1]["path"] == "comm"
        parsed = recorder.extract(*words, "--format=csv").rows
        assert len(parsed) == len(rows)
        assert {row["pid"] for row in parsed} == {str(child.pid)}
        on_a_terminal = terminal([*words, "--no-pager", *recorder.where()])
        assert b"\x1b" not in on_a_terminal
        assert on_a_terminal.count(b"\r\n") == out["table"].count(b"\n")


def names(recorder: Recorder, pid: int) -> set[str]:
    return {str(row["comm"]) for row in recorder.records("process", "comm", where=f"pid = {pid}", step="1s")}


def terminal(words: Sequence[str]) -> bytes:
    """What sysmon-extract writes to a terminal."""
    leader, follower = pty.openpty()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(follower, 1)
            sys.stdout = os.fdopen(1, "w", closefd=False)
            extract.main(words)
        finally:
            os._exit(0)
    os.close(follower)
    pieces = []
    with suppress(OSError):
        while piece := os.read(leader, 65536):
            pieces.append(piece)
    os.close(leader)
    os.waitpid(child, 0)
    return b"".join(pieces)


# From <linux/sched.h>: clone3, and where its arguments have the numbers to give.
CLONE3 = 435
CLONE_ARGUMENTS = struct.Struct("<11Q")


def numbered(pid: int, does: Callable[[], object]) -> None:
    """Fork a child that has this number, which is free."""
    wanted = ctypes.c_int(pid)
    arguments = CLONE_ARGUMENTS.pack(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), 1, 0)
    made = ctypes.CDLL(None, use_errno=True).syscall(CLONE3, ctypes.c_char_p(arguments), CLONE_ARGUMENTS.size)
    if made == 0:
        try:
            does()
        finally:
            os._exit(255)
    if made < 0 and ctypes.get_errno() in {errno.EPERM, errno.ENOSYS, errno.EINVAL}:
        pytest.skip("this kernel lets nobody choose the number of a process")
    assert made == pid, os.strerror(ctypes.get_errno())


def reused(recorder: Recorder) -> int:
    """Have a number used twice within a second by what is too short to be seen, and twice by what is seen."""
    with subprocess.Popen(["true"]) as free:
        free.wait()
    pid = free.pid
    for code in (3, 4):
        numbered(pid, lambda code=code: os._exit(code))  # type: ignore[misc]
        os.waitpid(pid, 0)
    for _ in range(2):
        before = {row["start"] for row in recorder.records("process", "pid,start", where=f"pid = {pid}")}
        numbered(pid, signal.pause)
        wait_until(
            lambda before=before: len(  # type: ignore[misc]
                {row["start"] for row in recorder.records("process", "pid,start", where=f"pid = {pid}")} - before
            )
        )
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return pid


@pytest.mark.parametrize("prefix", first(1, [[], within(drop=CAPABILITIES)]), ids=["BPF", "proc"])
def test_a_number_that_is_used_again_within_a_second_is_another_process(recorder: Recorder, prefix: list[str]) -> None:
    recorder.prefix = prefix
    recorder.start()
    recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
    with subprocess.Popen(["true"]) as first:
        first.wait()
    recorder.wait_for("exits", f"pid = {first.pid}", "pid")
    pid = reused(recorder)

    def ends() -> list[dict[str, Any]]:
        return recorder.records("exits", "pid,start,end,exit_code,signal", where=f"pid = {pid}")

    wait_until(lambda: len(ends()) >= 5, ends)
    codes = [(0, 0), (3, 0), (4, 0), (ABSENT, 9), (ABSENT, 9)]
    assert [(row["exit_code"], row["signal"]) for row in ends()] == codes
    assert len({row["start"] for row in ends()}) == 5
    seen = recorder.records("process", "pid,start,end", where=f"pid = {pid}")
    assert len({row["start"] for row in seen}) >= 2
    # Each ends when its own record says so, not that of another life. The lanes, each of which may have read one of the
    # tables, ask for the time of day by themselves.
    told = [row["end"] for row in ends()]
    assert all(any(abs(row["end"] - end) <= CLOCK_QUANTUM_NS for end in told) for row in seen), (seen, told)
    recorder.end()
    assert len(ends()) == 5
    assert [(row["exit_code"], row["signal"]) for row in ends()] == codes


@contextmanager
def a_cgroup(*words: str) -> Iterator[Path]:
    """Cgroups below each other in the hierarchy that sorts processes here, and moved out of and removed at the end."""
    hierarchy = numbering_now(Host())
    made: list[Path] = []
    try:
        for word in words:
            made.append((made[-1] if made else Path(hierarchy.point)) / word)
            made[-1].mkdir()
        yield made[-1]
    finally:
        for path in reversed(made):
            with suppress(FileNotFoundError):
                path.rmdir()


def test_cgroups_with_odd_names_that_go_while_processes_are_recorded_in_them(recorder: Recorder) -> None:
    recorder.start()
    recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
    words = (f"sysmond-test-{os.getpid()}.slice", "dev-disk-by\\x2dlabel\\x2fa.mount", "\x1b[31m \udcff")
    with a_cgroup(*words) as folder, subprocess.Popen(["sleep", "600"]) as child:
        (folder / "cgroup.procs").write_text(str(child.pid))
        with pytest.raises(OSError, match="busy"):
            folder.rmdir()
        recorder.wait_for("process", f"pid = {child.pid} and cgroup ~ 'dev-disk'", "pid")
        (folder.parent.parent.parent / "cgroup.procs").write_text(str(child.pid))
        folder.rmdir()
        folder.parent.rmdir()
        recorder.wait_for("process", f"pid = {child.pid} and not cgroup ~ 'dev-disk'", "pid", start="-2s")
        child.kill()
    path = "/" + "/".join(words)
    steps = recorder.records("process", "cgroup_path", where=f"pid = {child.pid}", step="1s")
    assert path in {row["cgroup_path"] for row in steps}, steps
    told = recorder.extract("process", "--from=-10min", "--group-by=cgroup", "--sample=1s", "--format=csv")
    assert told.code == 0, told.err
    assert b"\x1b" not in told.out
    assert any(r"dev-disk-by\\x2dlabel" in row["cgroup"] for row in told.rows)
    tree = recorder.extract("cgroup_name", "--from=-10min", "--columns=path", "--format=json")
    assert path in json.loads(tree.out)["values"][0]


def test_killing_every_part_loses_no_end_and_tells_none_twice(recorder: Recorder) -> None:
    recorder.start()
    recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
    made: list[tuple[int, int]] = []
    for number in range(200):
        with subprocess.Popen(["sh", "-c", f"exit {number % 199 + 1}"]) as child:
            child.wait()
        made.append((child.pid, number % 199 + 1))
        if number % 4 == 1:
            part = ("sampler", "archiver", "background")[number // 4 % 3]
            with suppress(OSError, ValueError):
                os.kill(recorder.pid(part), signal.SIGKILL)
    pids = {pid for pid, _ in made}

    def ends() -> list[tuple[int, int]]:
        found = recorder.records("exits", "pid,exit_code", where="exit_code > 0")
        return sorted((row["pid"], row["exit_code"]) for row in found if row["pid"] in pids)

    wait_until(lambda: set(ends()) >= set(made), lambda: (sorted(set(made) - set(ends())), recorder.said()))
    assert ends() == sorted(made)
    recorder.end()
    assert ends() == sorted(made)
    told = recorder.extract("exits", "--from=-10min", "--format=csv")
    rows = [(int(row["pid"]), int(row["exit_code"])) for row in told.rows if int(row["pid"]) in pids]
    assert sorted(rows) == sorted(made)


@pytest.mark.long
def test_a_sampler_that_dies_before_it_says_what_it_took_makes_no_end_two(recorder: Recorder) -> None:
    """Records are given back to the kernel once they are in the ring: whoever dies in between leaves them in both."""
    assert EXITS.packing is not None
    source = Path(pins.__file__).resolve()
    begin = '        """Release what ``look`` gave: the kernel may write there."""\n'
    flag = recorder.base / "dies"
    its = f"self._stride == {struct.calcsize(EXITS.packing.format)} and self._seen > self._read_to[0]"
    dying = f"        if {its} and os.path.exists({str(flag)!r}):\n"
    dying += f"            os.unlink({str(flag)!r})\n            os.kill(os.getpid(), 9)\n"
    program = source.read_text()
    assert program.count(begin) == 1
    (recorder.base / "pins.py").write_text(program.replace(begin, begin + dying))
    recorder.prefix = within(f"mount --bind {recorder.base}/pins.py {source}")
    recorder.start()
    recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
    before = recorder.pid("sampler")
    flag.touch()
    made = []
    for _ in range(20):
        with subprocess.Popen(["sh", "-c", "exit 9"]) as child:
            child.wait()
        made.append(child.pid)
    wait_until(lambda: recorder.pid("sampler") != before, recorder.said)
    recorder.wait_for("exits", f"pid = {made[-1]}", "pid")

    def ends() -> list[int]:
        return sorted(row["pid"] for row in recorder.records("exits", "pid", where="exit_code = 9"))

    def lives() -> list[int]:
        return sorted(row["pid"] for row in recorder.records("process", "pid", where="exit_code = 9"))

    for _ in range(2):
        assert set(made) <= set(ends())
        assert [ends().count(pid) for pid in made] == [1] * len(made)
        assert [lives().count(pid) for pid in made] == [1] * len(made)
        recorder.flush()
    recorder.end()
    merge_job.merge(recorder.folders)
    if find_spec("duckdb"):
        asked = Archive(recorder.folders).sql("select count(*) from exits where exit_code = 9", start="-1h")
        assert asked.rows == [[len(ends())]]
    assert [ends().count(pid) for pid in made] == [1] * len(made)
    assert [lives().count(pid) for pid in made] == [1] * len(made)
