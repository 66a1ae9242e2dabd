# SPDX-License-Identifier: Apache-2.0
"""Names of cgroups: of the hierarchy in use, each told once, all when asked; on files, and on this kernel's own."""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sysmond.cgroups.tree import Hierarchy, hierarchies, numbering_now
from sysmond.probe import Host, Records
from sysmond.records import record_bytes
from sysmond.tasks.bpf.loader import CGROUPS_BYTES, LoadRequest, load, unload
from sysmond.tasks.cgroup_names import CgroupNames
from sysmond.tasks.pieces import ABSENT_TEXT, PIECE_BYTES_MAX, pieces
from sysmond.tasks.tables import CGROUP_NAME, COMMAND
from tests.support.cgrouptree import V1_LINE, V2_LINE, mount, put, v2
from tests.support.pinned import why_not


def unified(root: Path) -> Path:
    """Make a machine with version 2 alone, whose controllers are on; gives the folder of its root cgroup."""
    return put(root, f"/{v2(root).relative_to(root)}", {"cgroup.controllers": "cpu io memory pids\n"})


def names_in(reading: Sequence[Records]) -> dict[bytes, int]:
    """Resolve what a reading refers to, the way a reader does."""
    found = {}
    for piece in reading:
        for ident, text in struct.iter_unpack("<q Q", piece.rows):
            offset, length = text & 0xFFFFFFFF, text >> 32
            found[piece.blob[offset : offset + length]] = ident
    return found


def read(names: CgroupNames, host: Host, *, full: bool = False) -> dict[bytes, int]:
    host.new_tick()
    reading = names.records(host, full=full)
    assert {piece.full for piece in reading} == {full}
    return names_in(reading)


def test_cgroups_are_told_once_and_all_when_asked(tmp_path: Path) -> None:
    top = unified(tmp_path)
    put(top, "/system.slice/ssh.service")
    host, names = Host(str(tmp_path)), CgroupNames()
    first = read(names, host, full=True)
    assert set(first) == {b"/", b"/system.slice", b"/system.slice/ssh.service"}
    assert first[b"/system.slice"] == (top / "system.slice").stat().st_ino
    assert read(names, host) == {}
    put(top, "/system.slice/late.service")
    (top / "system.slice/ssh.service").rmdir()
    assert set(read(names, host)) == {b"/system.slice/late.service"}
    assert set(read(names, host, full=True)) == {b"/", b"/system.slice", b"/system.slice/late.service"}


def test_the_same_number_under_another_name_is_told_again(tmp_path: Path) -> None:
    top = unified(tmp_path)
    put(top, "/before")
    host, names = Host(str(tmp_path)), CgroupNames()
    read(names, host, full=True)
    (top / "before").rename(top / "after")
    assert set(read(names, host)) == {b"/after"}


def test_names_are_left_as_they_are(tmp_path: Path) -> None:
    top = unified(tmp_path)
    odd = [rb"dev-disk-by\x2duuid.swap", b"_cgroup.procs", b"not utf-8 \xff", b"with\x1bescape", rb"slash\x2fed"]
    for name in odd:
        os.mkdir(os.fsencode(top) + b"/" + name)
    assert set(read(CgroupNames(), Host(str(tmp_path)), full=True)) == {b"/", *(b"/" + name for name in odd)}


def test_what_the_limit_leaves_out_is_counted(tmp_path: Path) -> None:
    top = unified(tmp_path)
    for number in range(5):
        put(top, f"/{number}")
    host, names = Host(str(tmp_path)), CgroupNames(limit=4)
    (reading,) = names.records(host, full=True)
    assert (len(names_in([reading])), reading.lost, reading.walked) == (4, 2, 6)
    host.new_tick()
    (reading,) = names.records(host, full=False)
    assert (len(names_in([reading])), reading.lost) == (0, 0)  # They were counted when they were missed.
    put(top, "/one-more")
    host.new_tick()
    assert names.records(host, full=False)[0].lost == 1


@pytest.mark.parametrize(
    ("controllers", "chosen"), [("cpu io memory pids", "/cg/two"), ("hugetlb", "/cg/memory"), ("", "/cg/memory")]
)
def test_the_hierarchy_that_sorts_processes_is_looked_at(tmp_path: Path, controllers: str, chosen: str) -> None:
    mount(tmp_path, V1_LINE.format(40, 1, "/cg/memory", "memory"), V2_LINE.format("/cg/two"))
    put(tmp_path, "/cg/two", {"cgroup.controllers": controllers + "\n"})
    put(tmp_path, "/cg/memory")
    host = Host(str(tmp_path))
    assert numbering_now(host).point == chosen
    put(tmp_path, chosen + "/child")
    assert set(read(CgroupNames(), host, full=True)) == {b"/", b"/child"}


def test_version_1_alone_will_do_and_none_is_an_absence(tmp_path: Path) -> None:
    mount(tmp_path, V1_LINE.format(40, 1, "/cg/memory", "memory"))
    put(tmp_path, "/cg/memory")
    assert numbering_now(Host(str(tmp_path))) == Hierarchy("/cg/memory", ("memory",))
    mount(tmp_path)
    with pytest.raises(FileNotFoundError, match="no control groups are mounted"):
        CgroupNames().records(Host(str(tmp_path)), full=True)


def test_another_hierarchy_being_mounted_has_all_told_anew(tmp_path: Path) -> None:
    lines = [V1_LINE.format(40, 1, "/cg/pids", "pids")]
    mount(tmp_path, *lines)
    put(tmp_path, "/cg/pids/box")
    host, names = Host(str(tmp_path)), CgroupNames()
    assert set(read(names, host, full=True)) == {b"/", b"/box"}
    mount(tmp_path, *lines, V1_LINE.format(41, 2, "/cg/memory", "memory"))
    put(tmp_path, "/cg/memory/slice")
    host.look_again()
    host.new_tick()
    (reading,) = names.records(host, full=False)
    assert reading.full
    assert set(names_in([reading])) == {b"/", b"/slice"}


def test_many_names_come_in_pieces_each_text_once_in_its_own() -> None:
    rows = [(number, b"/a/%d" % (number % 5000) * 20) for number in range(20_000)]
    reading = pieces(CGROUP_NAME, rows, full=True, lost=3, walked=20_003)
    assert len(reading) > 4
    assert all(len(piece.rows) + len(piece.blob) <= PIECE_BYTES_MAX for piece in reading)
    assert [piece.lost for piece in reading] == [3] + [0] * (len(reading) - 1)
    assert {(piece.full, piece.walked) for piece in reading} == {(True, 20_003)}
    assert sum(len(piece.rows) for piece in reading) == 20_000 * record_bytes(CGROUP_NAME)
    assert names_in(reading) == {text: number for number, text in rows}
    (twice,) = pieces(CGROUP_NAME, [(1, b"/same"), (2, b"/same")], full=False)
    assert twice.blob == b"/same"


def test_a_missing_text_is_told_from_an_empty_one() -> None:
    (piece,) = pieces(COMMAND, [(5, 7, 0, None, b"")], full=False)
    assert struct.unpack("<q I I Q Q", piece.rows) == (5, 7, 0, ABSENT_TEXT, 0)
    (nothing,) = pieces(COMMAND, [], full=True)
    assert (bytes(nothing.rows), nothing.full) == (b"", True)


@pytest.fixture
def own_cgroup() -> Iterator[tuple[Hierarchy, Path]]:
    """A cgroup of this kernel, in the hierarchy that is in use."""
    try:
        hierarchy = numbering_now(Host())
        folder = Path(hierarchy.point) / f"sysmond\\x2dtest-{os.getpid()}"
        folder.mkdir()
    except OSError as problem:
        pytest.skip(f"no cgroup can be made here: {problem}")
    yield hierarchy, folder
    if folder.exists():
        folder.rmdir()


def test_the_kernels_own_cgroups_come_and_go(own_cgroup: tuple[Hierarchy, Path]) -> None:
    hierarchy, folder = own_cgroup
    assert hierarchy in hierarchies(Path("/proc/self/mountinfo").read_bytes())
    name = f"/{folder.name}".encode()
    host, names = Host(), CgroupNames()
    assert read(names, host, full=True)[name] == folder.stat().st_ino
    (folder / "below").mkdir()
    assert name + b"/below" in read(names, host)
    (folder / "below").rmdir()
    folder.rmdir()
    assert not any(each.startswith(name) for each in read(names, host, full=True))


@pytest.fixture
def heard(runtime: Path) -> Iterator[tuple[Host, CgroupNames]]:
    """What reads names, and hears of those that are made."""
    if why_not():
        pytest.skip(why_not())
    try:
        load(LoadRequest(str(runtime)))
        host, names = Host(), CgroupNames()
        host.runtime = str(runtime)
        read(names, host, full=True)
        assert names.way == "by looking, and by BPF"
        yield host, names
    finally:
        unload(str(runtime))


def test_what_comes_and_goes_between_two_looks_is_told_once(
    heard: tuple[Host, CgroupNames], own_cgroup: tuple[Hierarchy, Path]
) -> None:
    host, names = heard
    hierarchy, folder = own_cgroup
    made = {}
    for number in range(50):
        below = folder / f"a\\x2db {number}"
        below.mkdir()
        made[f"/{folder.name}/{below.name}".encode()] = below.stat().st_ino
        below.rmdir()
    for other in hierarchies(Path("/proc/self/mountinfo").read_bytes()):
        if other != hierarchy:
            elsewhere = Path(other.point) / f"{folder.name}-elsewhere"
            with suppress(OSError):
                elsewhere.mkdir()
                elsewhere.rmdir()
    found = {name: ident for name, ident in read(names, host).items() if folder.name.encode() in name}
    assert found == {**made, f"/{folder.name}".encode(): folder.stat().st_ino}
    assert not made.keys() & read(names, host).keys()
    assert not made.keys() & read(names, host, full=True).keys()


def test_a_path_that_was_cut_is_no_name_and_what_found_no_room_is_counted(
    heard: tuple[Host, CgroupNames], own_cgroup: tuple[Hierarchy, Path]
) -> None:
    host, names = heard
    _, folder = own_cgroup
    deep = folder / ("d" * 240)
    deeper = deep / ("e" * 240)
    last = deeper / ("f" * 240)
    for each in (deep, deeper, last):
        each.mkdir()
    for each in (last, deeper, deep):
        each.rmdir()
    found = {name for name in read(names, host) if folder.name.encode() in name}
    assert found == {b"/" + str(each.relative_to(folder.parent)).encode() for each in (folder, deep, deeper)}
    room = CGROUPS_BYTES // (16 + len(str(deep.relative_to(folder.parent))))
    for _ in range(room + 20):
        deep.mkdir()
        deep.rmdir()
    host.new_tick()
    assert sum(piece.lost for piece in names.records(host, full=False)) >= 20
    assert sum(piece.lost for piece in names.records(host, full=False)) == 0


def test_where_the_kernel_does_not_tell_a_look_has_to_do_and_that_is_said(tmp_path: Path) -> None:
    host, names = Host(), CgroupNames()
    host.runtime, host.folder = str(tmp_path), str(tmp_path)
    try:
        read(names, host, full=True)
    except OSError as problem:
        pytest.skip(f"no cgroups here: {problem}")
    said = "by looking; not by BPF: the BPF loader has not run"
    assert (tmp_path / "cgroup_name.way").read_text() == f"{said}\n"
