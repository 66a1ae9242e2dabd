# SPDX-License-Identifier: Apache-2.0
"""Cgroups: mounts, trees that change, limits, what is read and what need not be; on files, and on this kernel's own."""

import os
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from sysmond.base.model import ABSENT
from sysmond.cgroups import batch
from sysmond.cgroups import files as cgroup_files
from sysmond.cgroups import tree as cgroups
from sysmond.cgroups.files import CgroupFiles, File, Role, settled
from sysmond.cgroups.tree import Forest, Hierarchy, Tree, hierarchies
from sysmond.machine import descriptors
from sysmond.probe import Host
from tests.support.cgrouptree import V1_LINE, V2_LINE, Machine, mount, number, put, v2

HYBRID = b"""\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
35 31 0:32 / /sys/fs/cgroup/mem\\040ory rw,relatime shared:7 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
42 31 0:39 / /sys/fs/cgroup/net_cls rw,relatime - cgroup cgroup rw,net_cls,net_prio
43 31 0:38 /inner /mnt/again rw,relatime - cgroup2 cgroup2 rw
44 31 0:28 / /mnt/trap rw - tmpfs cgroup rw
"""


def test_hierarchies_are_found_wherever_they_are_mounted() -> None:
    assert hierarchies(HYBRID) == [
        Hierarchy("/sys/fs/cgroup/unified"),
        Hierarchy("/sys/fs/cgroup/cpu,cpuacct", ("cpu", "cpuacct")),
        Hierarchy("/sys/fs/cgroup/systemd", ("name=systemd",)),
        Hierarchy("/sys/fs/cgroup/mem ory", ("memory",)),
        Hierarchy("/sys/fs/cgroup/net_cls", ("net_cls", "net_prio")),
    ]


def test_the_view_from_the_root_is_taken_and_the_later_mount_of_one_place() -> None:
    inner, whole = "1 0 0:9 /a /x rw - cgroup2 c rw\n", "2 0 0:9 / /y rw - cgroup2 c rw\n"
    assert hierarchies((inner + whole).encode()) == [Hierarchy("/y")]
    assert hierarchies(inner.encode()) == [Hierarchy("/x")]
    assert hierarchies(b"1 0 0:9 / /x rw - cgroup c rw,cpu\n2 0 0:8 / /x rw - cgroup2 c rw\n") == [Hierarchy("/x")]


@pytest.mark.parametrize("line", [b"1 0 - cgroup2\n", b"1 0 0:9 / /x rw - cgroup\n"])
def test_what_is_no_line_of_mountinfo_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="unpack"):
        hierarchies(line)


def test_a_machine_without_cgroups_says_so(tmp_path: Path) -> None:
    mount(tmp_path)
    with pytest.raises(FileNotFoundError, match="no control groups are mounted"):
        Forest({""}).look(Host(str(tmp_path)), 10)
    mount(tmp_path, V1_LINE.format(31, 27, "/cg", "net_cls"))
    with pytest.raises(FileNotFoundError, match="no control groups are mounted"):
        Forest({"", "cpu"}).look(Host(str(tmp_path)), 10)


def test_a_tree_follows_what_comes_and_goes(tmp_path: Path) -> None:
    put(tmp_path, "/a/b")
    tree = Tree(str(tmp_path))
    assert tree.look(10)
    assert list(tree.groups) == ["/", "/a", "/a/b"]
    assert not tree.look(10)
    put(tmp_path, "/a/b/c/d")
    put(tmp_path, "/e")
    assert tree.look(10)
    assert set(tree.groups) == {"/", "/a", "/a/b", "/a/b/c", "/a/b/c/d", "/e"}
    shutil.rmtree(tmp_path / "a")
    assert tree.look(10)
    assert set(tree.groups) == {"/", "/e"}


def test_a_cgroup_made_again_between_two_looks_has_another_inode(tmp_path: Path) -> None:
    put(tmp_path, "/a/b")
    tree = Tree(str(tmp_path))
    tree.look(10)
    before = dict(tree.groups)
    (tmp_path / "a").rename(tmp_path.parent / f"{tmp_path.name}-gone")  # Its inode stays in use.
    put(tmp_path, "/a/c")
    assert tree.look(10)
    assert set(tree.groups) == {"/", "/a", "/a/c"}
    assert tree.groups["/a"] != before["/a"]


def test_one_goes_and_another_comes_while_the_number_of_folders_stays(tmp_path: Path) -> None:
    put(tmp_path, "/a/old")
    tree = Tree(str(tmp_path))
    tree.look(10)
    (tmp_path / "a/old").rename(tmp_path / "a/new")
    assert tree.look(10)
    assert set(tree.groups) == {"/", "/a", "/a/new"}


def test_the_limit_leaves_out_the_deepest_and_takes_them_when_there_is_room(tmp_path: Path) -> None:
    for name in "abcd":
        put(tmp_path, f"/{name}/below")
    tree = Tree(str(tmp_path))
    tree.look(6)
    assert list(tree.groups) == ["/", "/a", "/b", "/c", "/d", "/a/below"]
    assert tree.left_out == 3
    shutil.rmtree(tmp_path / "a")
    tree.look(6)
    assert len(tree.groups) == 6
    assert tree.left_out == 1
    shutil.rmtree(tmp_path / "b")
    tree.look(6)
    assert set(tree.groups) == {"/", "/c", "/d", "/c/below", "/d/below"}
    assert tree.left_out == 0


def test_a_folder_system_that_does_not_count_folders_is_listed_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.stat

    def stat(path: str, **options: Any) -> os.stat_result:
        fields = list(real(path, **options))
        fields[3] = 1
        return os.stat_result(fields)

    monkeypatch.setattr("sysmond.cgroups.tree.os.stat", stat)
    tree = Tree(str(tmp_path))
    tree.look(10)
    put(tmp_path, "/late")
    assert tree.look(10)
    assert "/late" in tree.groups


def test_names_of_all_kinds_are_kept(tmp_path: Path) -> None:
    names = [b"with blank", b"a\\x2db.service", b"line\nend", b"\xff\xfe", b"@:*"]
    for name in names:
        os.mkdir(os.fsencode(tmp_path) + b"/" + name)
    tree = Tree(str(tmp_path))
    tree.look(10)
    assert {os.fsencode(path[1:]) for path in tree.groups} == {b"", *names}


def test_hierarchies_are_joined_by_path(tmp_path: Path) -> None:
    mount(
        tmp_path, V2_LINE.format("/u"), V1_LINE.format(31, 27, "/m", "memory"), V1_LINE.format(32, 28, "/n", "net_cls")
    )
    for folder in ("/u/both", "/u/only", "/m/both", "/m/else", "/n/none"):
        put(tmp_path, folder)
    forest = Forest({"", "memory"})
    forest.look(Host(str(tmp_path)), 10)
    assert {path: tuple(map(bool, inodes)) for path, inodes in forest.groups.items()} == {
        "/": (True, True),
        "/both": (True, True),
        "/only": (True, False),
        "/else": (False, True),
    }


def test_the_kernels_count_says_when_to_look(tmp_path: Path) -> None:
    top = v2(tmp_path)
    stat = (
        put(tmp_path, "/sys/fs/cgroup", {"cgroup.stat": "nr_descendants 0\nnr_dying_descendants 0\n"}) / "cgroup.stat"
    )
    host, forest = Host(str(tmp_path)), Forest({""})
    forest.look(host, 10)
    (top / "new").mkdir()
    host.new_tick()
    forest.look(host, 10)
    assert "/new" not in forest.groups
    stat.write_text("nr_descendants 1\nnr_dying_descendants 0\n")
    host.new_tick()
    forest.look(host, 10)
    assert "/new" in forest.groups


def test_every_so_often_it_is_looked_whatever_the_count_says(tmp_path: Path) -> None:
    mount(tmp_path, V1_LINE.format(31, 27, "/m", "memory"))
    put(tmp_path, "/m")
    put(tmp_path, "/proc", {"cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t9\t1\n"})
    host, forest = Host(str(tmp_path)), Forest({"memory"})
    forest.look(host, 10)
    put(tmp_path, "/m/new")
    for _ in range(cgroups.LOOK_EVERY):
        host.new_tick()
        forest.look(host, 10)
    assert "/new" in forest.groups


@pytest.mark.parametrize("descriptors", [0, 1, 100])
def test_files_are_read_with_and_without_kept_descriptors(tmp_path: Path, descriptors: int) -> None:
    machine = Machine(tmp_path)
    machine.put("/a", number=1)
    machine.put("/b", number=2)
    machine.put("/c")
    assert machine.read(descriptors=descriptors) == {"/": [None], "/a": [1], "/b": [2], "/c": [None]}
    (tmp_path / "sys/fs/cgroup/a/number").write_text("3\n")
    assert machine.read(descriptors=descriptors)["/a"] == [3]
    assert len(machine.descriptors()) == machine.watch._open_count == min(descriptors, 2)
    machine.watch.close()


def test_kept_descriptors_leave_those_to_others_that_select_can_wait_for(tmp_path: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= descriptors.DESCRIPTORS_FROM:
        pytest.skip("this process may not have so many descriptors")
    machine = Machine(tmp_path)
    machine.put("/a", number=1)
    machine.read()
    [descriptor] = machine.descriptors()
    assert descriptor >= descriptors.DESCRIPTORS_FROM
    del machine
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_where_room_is_short_only_what_is_read_often_is_staying_open(tmp_path: Path) -> None:
    often, seldom = File("", ("often",), number), File("", ("seldom",), number, is_sum=True)
    machine = Machine(tmp_path, often, seldom)
    machine.put("/a", often=1, seldom=2)
    machine.put("/b", often=3, seldom=4)
    assert machine.read(descriptors=3) == {"/": [None, None], "/a": [1, 2], "/b": [3, 4]}
    assert sorted(os.path.basename(os.readlink(f"/proc/self/fd/{each}")) for each in machine.descriptors()) == [
        "often",
        "often",
    ]
    machine.put("/b", seldom=5)
    assert machine.read(descriptors=3)["/b"] == [3, 5]


def test_where_no_descriptor_is_to_be_had_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "DESCRIPTORS_FROM", 2**30)
    machine = Machine(tmp_path)
    machine.put("/a", number=1)
    assert machine.read()["/a"] == [1]
    assert machine.read()["/a"] == [1]


def test_a_controller_switched_on_later_is_found(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("first",), number), File("", ("second",), number))
    machine.put("/a", first=1)
    assert machine.read()["/a"] == [1, None]
    machine.put("/a", second=2)
    seen = [machine.read()["/a"] for _ in range(cgroup_files.ASK_AGAIN_EVERY + 1)]
    assert seen[-1] == [1, 2]


def test_a_file_that_goes_costs_one_row_and_then_its_part(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("first",), number), File("", ("second",), number))
    machine.put("/a", first=1, second=2)
    assert machine.read(descriptors=0)["/a"] == [1, 2]
    (machine.top / "a/second").unlink()
    assert "/a" not in machine.read(descriptors=0)
    assert machine.read(descriptors=0)["/a"] == [1, None]


def test_a_large_file_is_read_whole_and_seen_to_change_anywhere(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("large",), lambda content: content[-3:-1]))
    for ending in ("ab", "cd"):
        machine.put("/a", large="x" * 3 * batch.READ_BYTES + ending)
        for most in (100, 0):
            assert machine.read(descriptors=most)["/a"] == [ending.encode()]


def test_instead_of_is_not_read_beside(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("new",), number), File("", ("old", "older"), number, unless=0))
    machine.put("/a", new=1, old=2)
    machine.put("/b", old=3)
    machine.put("/c", older=4)
    assert machine.read() == {"/": [None, None], "/a": [1, None], "/b": [None, 3], "/c": [None, 4]}


def test_what_is_the_same_above_is_not_read_below_and_read_again_when_it_moves(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("number",), number, is_sum=True))
    for path in ("", "/a", "/a/b"):
        machine.put(path, number=1)
    for _ in range(5):
        assert machine.read() == {"/": [1], "/a": [1], "/a/b": [1]}
    machine.put("/a/b", number=2)  # A kernel would tell above, too: this shows that it is not read.
    assert machine.read()["/a/b"] == [1]
    machine.put("/a", number=2)
    assert machine.read() == {"/": [1], "/a": [2], "/a/b": [2]}, "of the root nothing is concluded"


def test_a_sum_that_is_not_at_rest_is_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path, File("", ("number",), number, is_at_rest=lambda part: part == 0, is_sum=True))
    machine.put("/a", number=5)
    machine.put("/a/b", number=5)
    for _ in range(5):
        machine.read()
    machine.put("/a/b", number=4)
    assert machine.read()["/a/b"] == [4]


def test_a_follower_is_read_with_its_leader_and_now_and_then(tmp_path: Path) -> None:
    files = File("", ("lead",), number, role=Role.LEADER), File("", ("follow",), number, role=Role.FOLLOWER)
    machine = Machine(tmp_path, *files)
    machine.put("/a", lead=1, follow=1)
    machine.put("/b", follow=1)  # Without a leader it goes alone.
    for _ in range(6):
        machine.read()
    machine.put("/a", lead=2, follow=2)
    assert machine.read()["/a"] == [2, 2], "at the same reading"
    for _ in range(cgroup_files.READ_ON):
        machine.read()
    # From here on it is left alone, but for one reading now and then.
    late = []
    for value in range(3, 3 + 2 * cgroup_files.FOLLOW_EVERY):
        machine.put("/a", follow=value)
        machine.put("/b", follow=value)
        row = machine.read()
        assert row["/b"] == [None, value]
        late.append(row["/a"] != [2, value])
        if not late[-1]:  # A change is followed up.
            for _ in range(cgroup_files.READ_ON):
                machine.read()
    assert any(late)
    assert not all(late[: cgroup_files.FOLLOW_EVERY])


def test_one_made_again_under_its_name_is_told_from_the_one_before(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put("/a", number=7)
    assert machine.ages() == {"/": None, "/a": None}
    (machine.top / "a").rename(tmp_path / "gone")
    machine.put("/b", number=1)
    assert machine.ages() == {"/": None, "/b": None}, "one that is new has nothing before it"
    machine.put("/a", number=9)
    assert [machine.ages()["/a"] for _ in range(3)] == [0, 1, 2]


def test_one_made_again_between_two_readings_is_told_as_well(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put("/a", number=7)
    machine.read()
    (machine.top / "a").rename(tmp_path / "gone")
    machine.put("/a", number=9)
    assert machine.ages()["/a"] == 0
    assert machine.read()["/a"] == [9]


def test_one_that_the_limit_left_out_meanwhile_is_still_the_same(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put("/a", number=7)
    machine.read()
    machine.watch.forest._trees[0].groups.clear()
    machine.read(limit=1)
    assert "/a" not in machine.read(limit=1)
    assert machine.ages()["/a"] is None


def test_counters_of_one_made_again_fall_to_nothing_and_then_pause() -> None:
    row = [11, 500, ABSENT, 30]
    assert [settled(row, (1, 2), age, ABSENT) for age in (None, 0, 1, 2)] == [
        row,
        [11, 0, ABSENT, 30],
        [11, ABSENT, ABSENT, 30],
        row,
    ]


def test_names_that_are_gone_are_forgotten_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup_files, "NAMES_MAX", 8)
    machine = Machine(tmp_path)
    for index in range(30):
        folder = machine.put(f"/{index}", number=index)
        machine.read()
        shutil.rmtree(folder)
    machine.read()
    assert len(machine.watch._known) <= 9


def kernel_cgroup2() -> str:
    with open("/proc/self/mountinfo", "rb") as file:
        return next((each.point for each in hierarchies(file.read()) if not each.controllers), "")


@pytest.fixture
def real() -> Iterator[str]:
    """A cgroup of this kernel to make others in."""
    path = f"{kernel_cgroup2()}/sysmond-test-{os.getpid()}"
    if os.geteuid() or not kernel_cgroup2():
        pytest.skip("making control groups needs root and cgroup2")
    try:
        os.mkdir(path)
    except OSError as refusal:
        pytest.skip(f"no control group can be made: {refusal}")
    yield path
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)


def real_rows(watch: CgroupFiles, host: Host, top: str) -> dict[str, int]:
    host.new_tick()
    name = f"/{os.path.basename(top)}"
    return {
        group.path.removeprefix(name): -1 if group.age is None else group.age
        for group in watch.read(host, 4096, 4096)
        if group.path.startswith(name)
    }


def test_this_kernels_cgroups_come_go_and_come_again(real: str) -> None:
    watch, host = CgroupFiles([File("", ("cgroup.procs",), len), File("", ("cpu.stat",), len)]), Host()
    with ExitStack() as ending:
        ending.callback(watch.close)
        ending.callback(host.close)
        os.makedirs(f"{real}/a/b")
        assert real_rows(watch, host, real) == {"": -1, "/a": -1, "/a/b": -1}
        os.rmdir(f"{real}/a/b")
        os.mkdir(f"{real}/a/c")  # As many as before: only the descriptor tells.
        rows = [real_rows(watch, host, real) for _ in range(2)]
        assert "/a/b" not in rows[0]
        assert rows[1] == {"": -1, "/a": -1, "/a/c": -1}
        os.mkdir(f"{real}/a/b")
        assert real_rows(watch, host, real)["/a/b"] == 0
        os.rmdir(f"{real}/a/b")
        os.mkdir(f"{real}/a/b")
        assert "/a/b" not in real_rows(watch, host, real)
        assert [real_rows(watch, host, real)["/a/b"] for _ in range(2)] == [0, 1]


def test_what_this_kernel_says_of_a_busy_cgroup_is_what_is_recorded(real: str) -> None:
    watch, host = CgroupFiles([File("", ("cpu.stat",), bytes, is_sum=True)]), Host()
    os.mkdir(f"{real}/busy")
    os.mkdir(f"{real}/idle")
    child = os.fork()
    if child == 0:
        with open(f"{real}/busy/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")
        for _ in range(8):
            sum(range(200_000))
            time.sleep(0.02)
        os._exit(0)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        host.new_tick()
        watch.read(host, 4096, 4096)
    for _ in range(100):  # A process that has ended still works for a moment on ending.
        host.new_tick()
        parts = {group.path.rpartition("/")[2]: group.parts[0] for group in watch.read(host, 4096, 4096)}
        if all(parts[name] == Path(f"{real}/{name}/cpu.stat").read_bytes() for name in ("busy", "idle")):
            break
    else:
        pytest.fail("what is recorded stays behind what the kernel says")
    assert int(parts["busy"].split()[1]) > 0
    watch.close()
    host.close()
