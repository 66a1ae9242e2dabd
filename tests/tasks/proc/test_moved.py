# SPDX-License-Identifier: Apache-2.0
"""What /proc tells of the bytes of a process itself: against a process that is made up, and knows the truth."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.tasks.proc import moved
from sysmond.tasks.proc.files import Task, TaskFiles
from sysmond.tasks.proc.moved import IoContext, Moved, OwnBytes, ThreadBudget
from sysmond.tasks.proc.text import Io, stat
from tests.tasks.proc.test_proc_files import STAT

IO = "rchar: {0}\nwchar: {0}\nsyscr: 0\nsyscw: 0\nread_bytes: {0}\nwrite_bytes: {0}\ncancelled_write_bytes: 0\n"
PID = 10


class Machine:
    """One process below a folder: threads that move bytes, children that it waits for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.threads = {PID: 0}
        self.ended = self.by_children = self.waited = 0
        self.number = PID
        self.put()
        self.files = TaskFiles(str(root), 0)
        self.task = Task(str(PID))
        self.bytes = OwnBytes(str(PID))
        self.room = ThreadBudget()

    @property
    def own(self) -> int:
        return self.ended + sum(self.threads.values())

    def start(self) -> None:
        self.number += 1
        self.threads[self.number] = 0
        self.put()

    def end(self) -> None:
        """The newest thread ends, but not the first."""
        if len(self.threads) > 1:
            tid, count = self.threads.popitem()
            self.ended += count
            for name in ("io", "stat", ""):
                path = self.root / f"{PID}/task/{tid}" / name
                path.unlink() if name else path.rmdir()

    def wait_for(self, count: int) -> None:
        self.waited += 1
        self.by_children += count

    def put(self) -> None:
        folder = self.root / str(PID)
        for tid, count in self.threads.items():
            (folder / f"task/{tid}").mkdir(parents=True, exist_ok=True)
            (folder / f"task/{tid}/io").write_text(IO.format(count))
            self.put_stat(f"task/{tid}", minor=3)
        (folder / "io").write_text(IO.format(self.own + self.by_children))
        # Each thread, those that ended included, had 5 page faults.
        self.put_stat("", minor=5 * (self.number - PID + 1) - 2, waited=self.waited)

    def put_stat(self, folder: str, minor: int, waited: int = 0) -> None:
        fields = {"pid": PID, "comm": "x", "state": "S", "ppid": 1, "user": 0, "threads": 1, "start": 1}
        text = STAT.format(minor=minor, **fields)
        assert f" {minor} 0 2 0 " in text  # Faults, those of children, and faults that needed storage.
        (self.root / f"{PID}/{folder}/stat").write_text(text.replace(f" {minor} 0 2 ", f" {minor} {waited} 2 "))

    def read(self, *, several: bool) -> Moved:
        self.put()
        told = stat((self.root / f"{PID}/stat").read_bytes())
        assert told.waited == self.waited
        return self.bytes.read(self.task, told, self.files, self.room, IoContext(several))

    def close(self) -> None:
        self.bytes.close(self.files)
        self.files.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


def same(count: int) -> Io:
    return Io(count, count, count, count)


def test_a_shell_has_not_what_its_commands_wrote(machine: Machine) -> None:
    machine.threads[PID] = 5
    assert machine.read(several=False) == Moved(same(5), same(5), unseen=False)
    machine.wait_for(1000)
    assert machine.read(several=False) == Moved(same(5), same(1005), unseen=False)


def test_threads_that_end_unseen_beside_a_child_make_a_lower_bound(machine: Machine) -> None:
    machine.start()
    machine.threads[PID + 1] = 7
    assert machine.read(several=True) == Moved(same(7), same(7), unseen=False)
    machine.threads[PID + 1] = 9
    machine.wait_for(100)
    assert machine.read(several=True).own == same(7 + 2)
    machine.threads[PID + 1] = 19
    machine.end()
    assert machine.read(several=True).own == same(19)  # No child since: the sum is its own.
    machine.start()
    machine.threads[PID + 2] = 50
    assert machine.read(several=True) == Moved(same(69), same(169), unseen=False)
    machine.threads[PID + 2] = 60
    machine.end()
    machine.wait_for(100)
    assert machine.read(several=True) == Moved(same(69), same(279), unseen=True)


def test_what_began_before_is_known_as_far_as_its_threads_live(machine: Machine) -> None:
    machine.start()
    machine.threads[PID + 1] = 7
    machine.end()
    machine.threads[PID] = 3
    machine.wait_for(100)
    assert machine.read(several=True) == Moved(same(3), same(110), unseen=True)


def test_more_threads_than_a_pass_reads_are_not_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved, "THREADS_PER_PASS_MAX", 1)
    machine.start()
    machine.threads[PID] = 3
    machine.read(several=True)
    machine.room.new_pass()
    machine.threads[PID] = 5
    machine.wait_for(100)
    assert machine.read(several=True) == Moved(same(3), same(105), unseen=True)
    machine.threads[PID] = 6
    assert machine.read(several=True).own == same(4)  # What it grew by since.


STEPS = st.lists(st.sampled_from(["read", "move", "start", "end", "child", "look"]), max_size=30)


@given(steps=STEPS, amounts=st.lists(st.integers(1, 10**6), min_size=30, max_size=30))
def test_it_is_never_more_than_the_truth_and_never_falls(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], amounts: list[int]
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    before, several, unread, is_exact = 0, False, set[str](), True
    for step, amount in zip([*steps, "read"], [*amounts, 1], strict=False):
        if step == "move":
            machine.threads[[*machine.threads][amount % len(machine.threads)]] += amount
        elif step == "start":
            machine.start()
            several = True
        elif step == "end":
            machine.end()
        elif step == "child":
            machine.wait_for(amount)
        else:
            told = machine.read(several=several)
            assert before <= told.own.written <= machine.own
            assert told.all == same(machine.own + machine.by_children)
            # Of a thread that began and ended between two readings nobody knows.
            is_exact &= not {"end", "child"} <= unread
            assert told.own == same(machine.own) or told.unseen or not is_exact
            before, unread = told.own.written, set()
        unread.add(step)
    machine.close()
