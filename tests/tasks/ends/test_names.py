# SPDX-License-Identifier: Apache-2.0
"""What ended processes were called, where the proc connector alone tells of them: a right name, or none."""

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sysmond_probes.exits import Ended

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT
from sysmond.errors import Error
from sysmond.probe import Host, Records
from sysmond.tasks.ends import starts as at_start
from sysmond.tasks.ends.connector import Lives
from sysmond.tasks.ends.exits_netlink import Heard, NameReader
from sysmond.tasks.ends.names import Names, ProcessName
from sysmond.tasks.ends.starts import BY_EXECS, Starts
from sysmond.tasks.passes import Passes, passes_of
from sysmond.tasks.tables import EXITS, EXITS_RECORD, PROCESS
from tests.support.waiting import HANG_S, wait_until

COLUMNS = [metric.name for metric in EXITS.metrics]
FORK, EXEC, UID, COMM = 0x1, 0x2, 0x4, 0x200
CLONE3 = 435


def name(since_ns: int, until_ns: int, comm: bytes = b"right") -> ProcessName:
    return ProcessName(since_ns, until_ns, 1, 9, 1000, 77, comm)


def comm_of(seen: ProcessName | None) -> bytes | None:
    return None if seen is None else seen.comm.rstrip(b"\0")


def test_what_was_read_between_the_last_exec_and_the_end_is_the_name() -> None:
    names = Names()
    names.began(42, 10)
    names.began(42, 20)
    names.learn(42, name(20, 25))
    assert names.pop(42, 30) == name(20, 25)
    assert names.pop(42, 30) is None
    assert len(names) == 0


def test_what_was_read_before_an_exec_is_no_name() -> None:
    names = Names()
    names.began(42, 10)
    names.learn(42, name(10, 15, b"before"))
    names.began(42, 20)
    assert names.pop(42, 30) is None


def test_what_was_read_after_the_end_is_about_another() -> None:
    names = Names()
    names.began(42, 10)
    names.learn(42, name(10, 31, b"another"))
    assert names.pop(42, 30) is None


def test_a_number_given_anew_has_no_name_of_the_one_before() -> None:
    names = Names()
    names.began(42, 10)
    names.learn(42, name(10, 15, b"first"))
    names.began(42, 40)
    assert names.pop(42, 30) is None  # Which is lost: not that of the second.
    names.learn(42, name(10, 16, b"first"))
    assert names.pop(42, 50) is None
    names.began(42, 60)
    names.learn(42, name(60, 61, b"third"))
    assert comm_of(names.pop(42, 70)) == b"third"


def test_a_reading_that_comes_late_does_not_stay() -> None:
    names = Names()
    names.began(42, 10)
    assert names.pop(42, 20) is None
    names.end_reading()
    names.learn(42, name(10, 25))
    assert len(names) == 0


@pytest.mark.parametrize("is_late", [False, True])
def test_a_process_that_renames_itself_has_its_last_name(is_late: bool) -> None:
    names = Names()
    names.began(42, 10)
    if not is_late:
        names.learn(42, name(10, 12, b"before"))
    names.changed(42, 20, b"middle")
    names.changed(42, 21, b"after")
    names.changed(42, 22, uid=33)
    if is_late:
        names.end_reading()
        names.learn(42, name(10, 12, b"before"))
    seen = names.pop(42, 30)
    assert seen is not None
    assert (seen.comm, seen.uid, seen.cgroup) == (b"after", 33, 77)


def test_a_change_does_not_bring_back_what_was_read_before_an_exec() -> None:
    names = Names()
    names.began(42, 10)
    names.learn(42, name(10, 12, b"before"))
    names.began(42, 20)
    names.changed(42, 21, b"after")
    assert names.pop(42, 30) is None


def test_after_a_loss_nothing_read_before_it_is_a_name() -> None:
    names = Names()
    names.began(42, 10)
    names.learn(42, name(10, 12))
    names.learn_pass(Records(b"", full=True), Relation(15, 15, 15))
    was_blank = names.is_blank
    names.doubt(20)
    assert (was_blank, names.is_blank) == (False, True)
    names.learn(42, name(19, 25))
    assert names.pop(42, 30) is None
    names.learn(43, name(21, 25))
    assert comm_of(names.pop(43, 30)) == b"right"


def test_no_more_names_than_the_bound_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.ends.names.KNOWN_MAX", 3)
    names = Names()
    for pid in range(5):
        names.learn(pid, name(10, 12))
    assert len(names) == 3
    for pid in range(10):
        names.began(pid, 20 + pid)
    assert len(names) <= 6


def message(what: int, time_ns: int, *numbers: int) -> bytes:
    return struct.pack("=IHHII IIIIHH IIQ 6I", 76, 3, 0, 1, 0, 1, 1, 1, 0, 40, 0, what, 0, time_ns, *numbers)


def test_the_messages_say_what_a_process_did_and_not_what_its_threads_did() -> None:
    lives = Lives()
    comm = struct.unpack("=4I", b"mine".ljust(16, b"\0"))
    others = struct.unpack("=4I", b"of a thread".ljust(16, b"\0"))
    lives.follow(message(FORK, 10, 9, 9, 42, 42, 0, 0) + message(EXEC, 11, 42, 42, 0, 0, 0, 0), 0)
    lives.names.learn(42, name(11, 12))
    lives.follow(message(COMM, 13, 42, 42, *comm) + message(COMM, 14, 43, 42, *others), 0)
    lives.follow(message(UID, 15, 42, 42, 5, 6, 0, 0) + message(UID, 16, 43, 42, 7, 7, 0, 0), 0)
    seen = lives.names.pop(42, 20)
    assert seen is not None
    assert (comm_of(seen), seen.uid) == (b"mine", 5)


def test_a_pass_names_who_ran_when_it_began() -> None:
    assert PROCESS.packing
    passes = Passes("/nowhere", "/")
    names = Names()
    passes.tell(names)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    wait_until(lambda: Path(f"/proc/{child.pid}/comm").read_bytes() == b"cat\n")
    time.sleep(0.02)  # It began a clock tick ago.
    passes.records("process", 1, full=False)
    assert not names.is_blank
    seen = names.pop(child.pid, time.monotonic_ns())
    child.communicate(b"\n")
    passes.close()
    assert seen is not None
    assert comm_of(seen) == b"cat"
    assert (seen.ppid, seen.uid) == (os.getpid(), os.getuid())


def test_a_pass_names_nobody_who_began_within_it() -> None:
    assert PROCESS.packing
    numbers = [0] * 18, [0] * 4  # What it used; threads, last_cpu, priority, nice …
    row = struct.pack(PROCESS.packing.format, 995_000_000, 42, 9, 0, 7, b"", *numbers[0], *numbers[1], 0, b"S", 0, 0, 0)
    names = Names()
    names.learn_pass(Records(row), Relation(1_000_000_000, 0, 1_000_000_000))
    assert len(names) == 0
    names.learn_pass(Records(row), Relation(1_005_000_000, 0, 1_005_000_000))
    assert names.pop(42, 2_000_000_000) is not None


class Hearing:
    """The connector alone, and the records that it gave so far."""

    def __init__(self) -> None:
        try:
            self.way = Heard()
        except Error as problem:
            pytest.skip(f"unavailable here: {problem}")
        self.records: dict[int, dict[str, Any]] = {}

    def take(self) -> None:
        for row in EXITS_RECORD.iter_unpack(self.way.take().rows):
            record = dict(zip(COLUMNS, row, strict=True))
            record["comm"] = record["comm"].rstrip(b"\0")
            self.records[record["pid"]] = record

    def of(self, pids: set[int]) -> list[dict[str, Any]]:
        """What was recorded of processes, as soon as all are."""

        def are_there() -> bool:
            self.take()
            return pids <= self.records.keys()

        wait_until(are_there)
        return [self.records[pid] for pid in pids]


@pytest.fixture
def hearing() -> Iterator[Hearing]:
    made = Hearing()
    yield made
    made.way.close()


def test_programs_that_live_a_twentieth_of_a_second_have_names(hearing: Hearing) -> None:
    sleeping = [subprocess.Popen(["sleep", "0.06"]) for _ in range(60)]
    for child in sleeping:
        child.wait(HANG_S)
    named = [record for record in hearing.of({child.pid for child in sleeping}) if record["comm"]]
    assert {record["comm"] for record in named} == {b"sleep"}
    assert {(record["uid"], record["ppid"]) for record in named} == {(os.getuid(), os.getpid())}
    assert len(named) >= 54
    here = NameReader().read(os.getpid())
    assert here is not None
    assert {record["cgroup"] for record in named} == {here[3]}


def test_a_child_that_executes_nothing_has_the_name_that_it_gave_itself(hearing: Hearing) -> None:
    program = """
import os, sys, time
for number in range(2):
    child = os.fork()
    if not child:
        time.sleep(0.1)
        if number:
            open("/proc/self/comm", "w").write("renamed")
        time.sleep(0.01)
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-IS", "-c", program], stdout=subprocess.PIPE, check=True)
    first, second = map(int, done.stdout.split())
    hearing.of({first, second})
    assert hearing.records[second]["comm"] == b"renamed"
    assert hearing.records[first]["comm"].startswith(b"python")


def test_who_became_another_user_ended_as_that(hearing: Hearing) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    child = os.fork()
    if not child:
        time.sleep(0.1)
        os.setuid(65534)
        os._exit(0)
    os.waitpid(child, 0)
    (record,) = hearing.of({child})
    assert record["uid"] == 65534


SPAWNING = """
import os, sys
for _ in range(int(sys.argv[1])):
    print(child := os.posix_spawn("/bin/true", ["true"], {}))
    os.waitpid(child, 0)
"""


def test_in_a_storm_names_are_right_or_unknown_and_reading_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_start, "READS_PER_S", 20)
    hearing = Hearing()
    read: list[int] = []
    work = hearing.way._starts._work
    reading, begun_s = work._read, time.monotonic()

    def counted(pid: int) -> Any:
        read.append(pid)
        return reading(pid)

    monkeypatch.setattr(work, "_read", counted)
    done = subprocess.run([sys.executable, "-IS", "-c", SPAWNING, "1000"], stdout=subprocess.PIPE, check=True)
    records = hearing.of(set(map(int, done.stdout.split())))
    bound = 20 * (time.monotonic() - begun_s) + 20
    hearing.way.close()
    assert {record["comm"] for record in records} <= {b"", b"true"}
    assert len(read) <= bound
    assert hearing.way.names.unread >= len(records) - bound - 20


# Run by a process of one thread: whatever else a thread holds when it is cloned, nobody gives back to the child.
SPAWNING_AS = """
import ctypes, json, os, sys
pid, clone3, *programs = json.loads(sys.argv[1])
numbers = ctypes.c_int32(pid)
fields = [0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(numbers), 1, 0]
given = (ctypes.c_uint64 * len(fields))(*fields)
# PyDLL: the child has this thread alone, which must have the lock of the interpreter.
library = ctypes.PyDLL(None, use_errno=True)
for program in programs:
    child = library.syscall(clone3, given, ctypes.sizeof(given))
    if child == 0:
        os.execvp(program[0], program)
    if child < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    os.waitpid(child, 0)
"""


def spawned_as(pid: int, *programs: Sequence[str]) -> None:
    """Run programs, one after the other, in processes of this number, which clone3(2) gives them."""
    asked = json.dumps([pid, CLONE3, *programs])
    done = subprocess.run(
        [sys.executable, "-IS", "-c", SPAWNING_AS, asked], stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no number may be chosen here: {done.stderr}")


def test_a_number_that_is_used_again_at_once_has_each_time_its_own_name(hearing: Hearing) -> None:
    first = subprocess.Popen(["sleep", "0.05"])
    first.wait(HANG_S)
    programs = [("sh", "-c", "sleep 0.03; exit 4"), ("true",), ("sleep", "0.05"), ("tail", "--version")]
    spawned_as(first.pid, *programs)
    rows: list[tuple[Any, ...]] = []

    def lives() -> list[bytes]:
        rows.extend(EXITS_RECORD.iter_unpack(hearing.way.take().rows))
        return [row[9].rstrip(b"\0") for row in sorted(rows, key=lambda row: row[1]) if row[2] == first.pid]

    wait_until(lambda: len(lives()) >= 5)
    right = [b"sleep", *(program[0].encode() for program in programs)]
    assert len(lives()) == len(right)
    assert all(comm in {b"", expected} for comm, expected in zip(lives(), right, strict=True))
    for program in programs[::2]:  # Where records are made after each, those that live a moment have their names.
        rows.clear()
        spawned_as(first.pid, program)
        wait_until(lives)
        assert lives() == [program[0].encode()]


def listening(read: Callable[[int], Any]) -> Starts[Any]:
    try:
        return Starts(read, BY_EXECS)
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")


def test_where_one_reading_hangs_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    hung: list[int] = []

    def read(pid: int) -> int:
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\x000.4711\0"):
                hung.append(pid)
                go_on.wait(HANG_S)
        return pid

    monkeypatch.setattr(at_start, "HANGS_S", 0.02)
    starts = listening(read)
    read_of: set[int] = set()

    def is_read(pid: int) -> bool:
        read_of.update(start.reading for start in starts.take()[0])
        return pid in read_of

    def goes_on(hanging: int) -> None:
        with subprocess.Popen(["sleep", "0.4711"]):
            wait_until(lambda: len(hung) >= hanging)
            with subprocess.Popen(["sleep", "30"]) as other:
                wait_until(lambda: is_read(other.pid))
                other.kill()

    for hanging in (1, 2, 3):
        goes_on(hanging)
    before = threading.active_count()
    go_on.set()
    wait_until(lambda: threading.active_count() <= before - 3)
    starts.close()
    wait_until(lambda: threading.active_count() <= before - 4)
    assert not read_of & set(hung)


def test_who_is_dropped_without_a_close_leaves_no_thread() -> None:
    before = threading.active_count()
    starts = listening(lambda pid: pid)
    assert threading.active_count() == before + 1
    del starts
    wait_until(lambda: threading.active_count() == before)


def test_the_probe_names_what_ran_before_it_listened(tmp_path: Path) -> None:
    host, ended = Host(), Ended()
    host.runtime = str(tmp_path)
    child = subprocess.Popen(["sleep", "0.5"])
    time.sleep(0.05)
    try:
        ended.records(host, False)
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")
    passes_of(host).records("process", 1, full=False)
    rows: list[tuple[Any, ...]] = []

    def is_there() -> bool:
        rows.extend(EXITS_RECORD.iter_unpack(ended.records(host, False).rows))
        child.poll()
        return any(row[2] == child.pid for row in rows)

    wait_until(is_there)
    (row,) = [row for row in rows if row[2] == child.pid]
    assert ended._exits
    ended._exits.close()
    passes_of(host).close()
    record = dict(zip(COLUMNS, row, strict=True))
    assert record["comm"].rstrip(b"\0") == b"sleep" or not ended.way.startswith("by proc connector;")
    assert record["cgroup"] != ABSENT
    assert record["start"] != ABSENT


def test_where_no_thread_can_be_started_that_is_said_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    listening(lambda pid: pid).close()
    wait_until(lambda: "starts" not in {thread.name for thread in threading.enumerate()})

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Error, match="^proc connector: can't start new thread; expected a descriptor and a thread$"):
        Starts(lambda pid: pid)
    assert len(os.listdir("/proc/self/fd")) == before
