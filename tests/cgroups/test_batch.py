# SPDX-License-Identifier: Apache-2.0
"""What is not read of cgroups: nothing that changed is missed, whatever comes, goes, fails and is switched on."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.cgroups import files as cgroup_files
from sysmond.cgroups.batch import NOT_OPEN, READ_BYTES, Batch, Group
from sysmond.cgroups.files import File, Role
from tests.support.cgrouptree import Machine, number

CPU, IO, MEMORY, TASKS, STALL = range(5)


def is_calm(part: int) -> bool:
    return part % 3 == 0


FILES = (
    File("", ("cpu",), number, is_sum=True, role=Role.LEADER),
    File("", ("io",), number, is_sum=True),
    File("", ("memory",), number),
    File("", ("tasks",), number, role=Role.FOLLOWER),
    File("", ("stall",), number, is_at_rest=is_calm, is_sum=True, role=Role.FOLLOWER),
)


class Kernel:
    """Counts for cgroups as the kernel does: what one does counts for all above it, and some only where CPU is used."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = Machine(root, *FILES)
        self.numbers: dict[str, list[int]] = {}
        self.make("")

    def make(self, path: str) -> None:
        self.numbers[path] = [0] * len(FILES)
        self.machine.put(path, **{file.names[0]: 0 for file in FILES})

    def remove(self, path: str) -> None:
        for below in [each for each in self.numbers if each == path or each.startswith(f"{path}/")]:
            del self.numbers[below]
        shutil.rmtree(f"{self.machine.top}{path}")

    def count(self, path: str, *files: int) -> None:
        for index in files:
            self.numbers[path][index] += self.random.randrange(1, 5)
            (self.machine.top / path[1:] / FILES[index].names[0]).write_text(f"{self.numbers[path][index]}\n")

    def step(self) -> None:
        """Let a moment pass."""
        paths = list(self.numbers)
        if self.random.random() < 0.2 and len(paths) < 25:
            self.make(f"{self.random.choice([each for each in paths if each.count('/') < 3])}/{self.random.random()}")
        if self.random.random() < 0.1 and len(paths) > 10:
            self.remove(self.random.choice(paths[1:]))
        for path in self.random.sample(list(self.numbers), min(2, len(self.numbers))):
            files = self.random.choice(((CPU,), (CPU, STALL), (IO,), (MEMORY,), (CPU, TASKS), (CPU, STALL, TASKS)))
            self.count(path, *files)
            above = path
            while above:
                above = above.rpartition("/")[0]
                self.count(above, *(index for index in files if FILES[index].is_sum))
        for path, numbers in self.numbers.items():
            if not is_calm(numbers[STALL]) and self.random.random() < 0.3:
                self.count(path, STALL)  # Averages come down by themselves.


@pytest.mark.parametrize(("seed", "descriptors"), [(0, 0), (1, 40), (2, 1000), (3, 1000)])
def test_what_is_recorded_is_always_what_a_plain_reading_finds(tmp_path: Path, seed: int, descriptors: int) -> None:
    kernel = Kernel(tmp_path, seed)
    for tick in range(100):
        # Now and then nothing happens for long enough to be left alone.
        for _ in range(kernel.random.choice((1, 1, 6))):
            found = kernel.machine.read(descriptors=descriptors)
            assert found == {path or "/": numbers for path, numbers in kernel.numbers.items()}, tick
        kernel.step()
    assert len(kernel.machine.descriptors()) == kernel.machine.watch._open_count <= descriptors
    for batches in kernel.machine.watch._batches:
        paths = {above.path for above in batches if above is not None}
        assert paths <= kernel.numbers.keys(), "nothing is kept of those that are gone"


def test_a_pretended_kernel_is_not_read_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, 1)
    for index in range(20):
        kernel.make(f"/{index % 4}" if index < 4 else f"/{index % 4}/{index}")
    for _ in range(cgroup_files.READ_ON + 2):
        kernel.machine.read()
    reads, real = [], os.pread

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        reads.append(descriptor)
        return real(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", pread)
    for _ in range(cgroup_files.FOLLOW_EVERY):
        kernel.machine.read()
    everything = len(kernel.numbers) * len(FILES) * cgroup_files.FOLLOW_EVERY
    assert len(reads) < everything / 2


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Batch]:
    found = Batch(None, 0)
    for name in "abcd":
        (tmp_path / name).write_text(name)
        descriptor = NOT_OPEN if name == "b" else os.open(tmp_path / name, os.O_RDONLY)
        found.add(Group(name, 1), str(tmp_path / name), descriptor)
    yield found
    del found


def all_of(batch: Batch) -> dict[str, bytes]:
    return {batch.groups[place].path: content for place, content in batch.read(range(len(batch.groups)))}


def test_a_batch_tells_what_is_another_than_what_is_kept(batch: Batch, tmp_path: Path) -> None:
    assert all_of(batch) == {"a": b"a", "b": b"b", "c": b"c", "d": b"d"}
    for place, content in batch.read(range(4)):
        batch.keep(place, content)
    assert all_of(batch) == {}
    (tmp_path / "b").write_text("other")
    (tmp_path / "c").write_text("other")
    assert batch.read([0, 2]) == [(2, b"other")]
    assert all_of(batch) == {"b": b"other", "c": b"other"}
    batch.forget()
    assert all_of(batch) == {"a": b"a", "b": b"other", "c": b"other", "d": b"d"}


@pytest.mark.parametrize("gone", range(4))
def test_who_leaves_a_batch_takes_nothing_of_others_along(batch: Batch, gone: int) -> None:
    groups = list(batch.groups)
    for place, content in batch.read(range(4)):
        batch.keep(place, content)
    batch.restless = {3: 7, gone: 8}
    had = batch._descriptors[gone]
    assert batch.drop(groups[gone]) == (had != NOT_OPEN)
    if had != NOT_OPEN:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(had)
    assert groups[gone] not in batch
    left = [group for group in groups if group is not groups[gone]]
    assert sorted(batch.groups, key=lambda group: group.path) == left
    assert all(group in batch for group in left)
    assert all_of(batch) == {}, "what is kept of each moved along"
    restless = {batch.groups[place].path: until for place, until in batch.restless.items()}
    assert restless == ({} if groups[gone].path == "d" else {"d": 7})
    for group in left:
        batch.drop(group)
    assert not batch.groups


def test_what_does_not_fit_one_reading_is_read_whole(batch: Batch, tmp_path: Path) -> None:
    for size in (478, 479, 480, READ_BYTES, 5 * READ_BYTES, 3):
        for name in "ab":
            (tmp_path / name).write_text("x" * (size - 1) + "y")
        found = batch.read([0, 1])
        assert [len(content) for _, content in found] == [size, size]
        assert all(content.endswith(b"xy") for _, content in found)
        for place, content in found:
            batch.keep(place, content)
        assert batch.read([0, 1]) == []


def test_what_is_gone_is_told_once_more_at_every_reading(batch: Batch, tmp_path: Path) -> None:
    (tmp_path / "b").unlink()
    assert set(all_of(batch)) == {"a", "c", "d"}
    assert [group.path for group in batch.failed] == ["b"]
    assert batch.read([0]) == [(0, b"a")]
    assert batch.failed == []
    batch.read([1])
    assert [group.path for group in batch.failed] == ["b"]


def test_a_controller_that_is_switched_on_for_a_tree_is_found_in_all_of_it_at_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("first",), number), File("", ("second",), number))
    paths = ("/a", "/a/b", "/a/b/c", "/a/d")
    for path in paths:
        machine.put(path, first=1)
    machine.read()
    for path in paths:
        machine.put(path, second=2)
    rows = [machine.read() for _ in range(cgroup_files.ASK_AGAIN_EVERY)]
    first = next(row for row in rows if row["/a"] == [1, 2])
    assert [first[path] for path in paths] == [[1, 2]] * len(paths)


def test_a_file_that_the_cgroup_above_lacks_is_asked_for_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup_files, "ASK_ALL_EVERY", 2)
    machine = Machine(tmp_path, File("", ("first",), number), File("", ("second",), number))
    machine.put("/a", first=1)
    machine.put("/a/b", first=1)
    machine.read()
    machine.put("/a/b", second=2)
    rows = [machine.read() for _ in range(2 * cgroup_files.ASK_AGAIN_EVERY)]
    assert rows[-1]["/a/b"] == [1, 2]


def test_what_changed_is_followed_for_a_while_whatever_is_above(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("number",), number, is_sum=True))
    for path in ("/a", "/a/b"):
        machine.put(path, number=1)
    for value in range(2, 5):
        for _ in range(cgroup_files.READ_ON):
            assert machine.read()["/a/b"] == [value - 1]
        machine.put("/a/b", number=value)
    for _ in range(cgroup_files.READ_ON + 1):
        assert machine.read()["/a/b"] == [4]
    machine.put("/a/b", number=9)
    assert machine.read()["/a/b"] == [4], "left alone"


def test_where_the_cgroup_above_cannot_tell_those_below_are_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("number",), number, is_sum=True))
    for path in ("/a", "/a/b"):
        machine.put(path, number=1)
    for _ in range(cgroup_files.READ_ON + 2):
        machine.read(descriptors=0)
    (machine.top / "a/number").unlink()
    for value in (2, 3):
        machine.put("/a/b", number=value)
        assert machine.read(descriptors=0)["/a/b"] == [value]


def test_one_made_again_below_one_that_tells_of_late_stands_before_those_below_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("number",), number, is_sum=True))
    machine.put("/a")
    for path in ("/a/b", "/a/b/c"):
        machine.put(path, number=1)
    machine.read()
    machine.put("/a", number=1)
    for _ in range(cgroup_files.ASK_AGAIN_EVERY):
        machine.read()
    (machine.top / "a/b").rename(tmp_path / "gone")
    for path in ("/a/b", "/a/b/c"):
        machine.put(path, number=1)
    for _ in range(cgroup_files.READ_ON + 2):
        machine.read()
    for path in ("/a", "/a/b", "/a/b/c"):
        machine.put(path, number=2)
    assert machine.read() == {"/": [None], "/a": [2], "/a/b": [2], "/a/b/c": [2]}


def test_garbage_costs_the_file_of_the_cgroup_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("number",), number, is_sum=True), File("", ("other",), number))
    for path in ("/a", "/a/b", "/a/c"):
        machine.put(path, number=1, other=7)
    for _ in range(cgroup_files.READ_ON + 2):
        machine.read()
    machine.put("/a", number=2)
    machine.put("/a/b", number="garbage")
    machine.put("/a/c", number=2)
    for _ in range(2):
        assert machine.read() == {"/": [None, None], "/a": [2, 7], "/a/b": [None, 7], "/a/c": [2, 7]}
    machine.put("/a/b", number=3)
    assert machine.read() == {"/": [None, None], "/a": [2, 7], "/a/b": [3, 7], "/a/c": [2, 7]}


@pytest.mark.parametrize("garbage", ["", "garbage"])
def test_garbage_that_stays_the_same_hides_nothing_of_what_is_below_or_follows(tmp_path: Path, garbage: str) -> None:
    leader = File("", ("leader",), number, is_sum=True, role=Role.LEADER)
    machine = Machine(tmp_path, leader, File("", ("follower",), number, role=Role.FOLLOWER))
    machine.put("/a", leader=garbage, follower=0)
    machine.put("/a/b", leader=0, follower=0)
    for _ in range(cgroup_files.READ_ON + 2):
        machine.read()
    for value in range(1, 2 * cgroup_files.READ_ON):
        machine.put("/a", follower=value)
        machine.put("/a/b", leader=value, follower=value)
        assert machine.read() == {"/": [None, None], "/a": [None, value], "/a/b": [value, value]}


def test_garbage_is_named_for_the_doctor_until_it_is_gone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.host.folder = str(tmp_path)
    said = tmp_path / "table.way"

    def complaint() -> str:
        machine.read()
        machine.watch.complain(machine.host, "table")
        return said.read_text() if said.exists() else ""

    for name in "abc":
        machine.put(f"/{name}", number=1)
    assert complaint() == "", "nothing to be said"
    machine.put("/a", number="garbage")
    assert complaint().startswith("/a/number cannot be understood: ValueError: invalid literal")
    machine.put("/c", number="garbage")
    assert complaint().endswith("; 1 more like it\n")
    shutil.rmtree(machine.top / "c")
    assert "/a/number" in complaint()
    assert "more" not in complaint()
    machine.put("/a", number=2)
    assert complaint() == "every file is as the kernel documents it\n"


def test_the_same_cgroups_are_the_same_list_and_those_that_changed_are_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put("/a", number=1)
    machine.put("/b", number=1)

    def reading() -> tuple[list[Group], set[str]]:
        machine.host.new_tick()
        return machine.watch.read(machine.host, 100, 100), {group.path for group in machine.watch.changed}

    first, changed = reading()
    assert changed == {"/", "/a", "/b"}
    assert reading() == (first, set())
    machine.put("/b", number=2)
    second, changed = reading()
    assert second is first
    assert changed == {"/b"}
    machine.put("/c", number=3)
    third, changed = reading()
    assert [group.path for group in third] == ["/", "/a", "/b", "/c"]
    assert changed == {"/c"}
    (machine.top / "c/number").unlink()
    assert [reading()[0] is third for _ in range(2)] == [True, True], "a kept file of tmpfs lasts"
