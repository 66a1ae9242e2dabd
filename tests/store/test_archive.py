# SPDX-License-Identifier: Apache-2.0
"""The archive: names, what replaces what, which files are merged, and how one becomes visible."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import FILE_BYTES_MAX, FINEST_TIER, Metric, Semantics, Sensitivity, Table
from sysmond.machine import note
from sysmond.machine.folders import Folders, create_classes
from sysmond.store import archive
from sysmond.store.archive import (
    SMALL_BYTES,
    Candidate,
    Name,
    current,
    flush,
    parse_name,
    plan_merges,
    publish,
    superseded,
)

BOOTS = ("a" * 32, "b" * 32)


def ram(folders: Folders, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> str:
    return archive.ram_folder(folders, sensitivity)


def disk(folders: Folders, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> str:
    return archive.disk_folder(folders, sensitivity)


def put(folder: str, first: int, last: int, content: bytes = b"x") -> None:
    Path(folder, Name(BOOTS[0], first, last).file).write_bytes(content)


# --- names ----------------------------------------------------------------------------------------

numbers = st.integers(1, 40)
ranges = st.tuples(st.sampled_from(BOOTS), numbers, numbers).map(lambda n: Name(n[0], min(n[1:]), max(n[1:])))


@given(ranges)
def test_a_name_is_read_as_it_is_spelt(name: Name) -> None:
    assert parse_name(name.file) == name
    for other in (
        name.file + ".new",
        name.file.replace("-", "_"),
        "x" + name.file,
        name.file.upper(),
        name.file + "\n",
    ):
        assert parse_name(other) is None


@given(st.lists(ranges))
def test_what_is_left_out_is_contained_in_what_is_kept(found: list[Name]) -> None:
    kept = current(found)
    assert set(kept) <= set(found)
    for name in found:
        assert any(each.contains(name) for each in kept)
    for one in kept:
        assert not any(other.contains(one) for other in kept if other != one)


def test_a_folder_lists_its_segments_and_what_merged_ones_replace(folders: Folders) -> None:
    folder = disk(folders)
    for first, last in [(1, 1), (2, 2), (1, 3), (5, 5), (4, 6)]:
        put(folder, first, last)
    Path(folder, "notes.h5").write_bytes(b"")
    Path(folder, f"{BOOTS[0]}-00000009-00000009.h5.new").write_bytes(b"")
    assert archive.names(folder) == [Name(BOOTS[0], 1, 3), Name(BOOTS[0], 4, 6)]
    assert superseded(folder) == [Name(BOOTS[0], 1, 1), Name(BOOTS[0], 2, 2), Name(BOOTS[0], 5, 5)]
    assert len(archive.files(folder)) == 6
    assert archive.free_sequence(BOOTS[0], folders) == 7
    assert archive.free_sequence(BOOTS[1], folders) == 1
    archive.remove_temporary(folder)
    assert [name for name in os.listdir(folder) if name.endswith(".new")] == []
    assert archive.files(f"{folder}/absent") == []


# --- the plan -------------------------------------------------------------------------------------


def table(doc: str) -> Table:
    return Table("t", (Metric("m", "1", Semantics.GAUGE, doc),))


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    found = []
    for boot in BOOTS:
        day, sequence = draw(st.integers(0, 3)), 1
        for _ in range(draw(st.integers(0, 30))):
            length = draw(st.sampled_from([1, 1, 1, 1, 8, 64]))
            day += draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
            sequence += draw(st.sampled_from([0, 0, 0, 3]))
            size = draw(st.sampled_from([1000, 10**6, 3 * 10**6, FILE_BYTES_MAX]))
            tables = {"t": table(draw(st.sampled_from(["one", "one", "one", "two"])))} if draw(st.booleans()) else {}
            name = Name(boot, sequence, sequence + length - 1)
            is_rolled_up = draw(st.sampled_from([True, True, True, False]))
            found.append(Candidate(name, size, draw(st.sampled_from([day] * 9 + [None])), tables, is_rolled_up))
            sequence += length
    return draw(st.permutations(found))


@given(candidates(), st.sampled_from([*BOOTS, "c" * 32]))
def test_a_merge_covers_neighbours_that_belong_together_and_nothing_else(found: list[Candidate], boot: str) -> None:
    by_name = {candidate.name: candidate for candidate in found}
    merges = plan_merges(found, boot)
    merged = [name for group in merges for name in group]
    assert len(merged) == len(set(merged))
    for group in merges:
        members = [by_name[name] for name in group]
        assert len(members) > 1
        assert len({(member.name.boot, member.day, member.is_rolled_up) for member in members}) == 1
        assert members[0].day is not None
        assert sum(member.size_bytes for member in members) <= FILE_BYTES_MAX
        assert len({member.tables["t"] for member in members if member.tables}) <= 1
        whole = Name(group[0].boot, group[0].first, group[-1].last)
        assert [name for name in sorted(by_name) if whole.contains(name)] == group, "it replaces nothing else"


@given(candidates())
def test_merging_comes_to_an_end(found: list[Candidate]) -> None:
    for _ in range(len(found) + 1):
        merges = plan_merges(found, BOOTS[0])
        if not merges:
            return
        found = merged(found, merges)
    pytest.fail("the plan never rests")


def merged(found: list[Candidate], merges: list[list[Name]]) -> list[Candidate]:
    by_name = {candidate.name: candidate for candidate in found}
    for group in merges:
        members = [by_name.pop(name) for name in group]
        tables = {name: each for member in members for name, each in member.tables.items()}
        whole = Name(group[0].boot, group[0].first, group[-1].last)
        size = sum(member.size_bytes for member in members)
        by_name[whole] = Candidate(whole, size, members[0].day, tables, members[0].is_rolled_up)
    return list(by_name.values())


@pytest.mark.parametrize("step", [1, 2])
def test_a_row_is_rewritten_few_times(step: int) -> None:
    """Sequences in steps of two: each seal gives a segment to both classes."""
    found: list[Candidate] = []
    rewritten: dict[int, int] = {}
    for number in range(450):
        found.append(Candidate(Name(BOOTS[0], 1 + number * step, 1 + number * step), SMALL_BYTES, number // 150, {}))
        merges = plan_merges(found, BOOTS[0])
        for group in merges:
            for sequence in range(group[0].first, group[-1].last + 1):
                rewritten[sequence] = rewritten.get(sequence, 0) + 1
        found = merged(found, merges)
    digits = (150).bit_length()  # A day of them is one file.
    assert max(rewritten.values()) <= digits + 1, "once a power of two, and when the day is over"
    assert [sum(candidate.day == day for candidate in found) for day in (0, 1)] == [1, 1]
    assert len(found) <= 2 + digits


def test_what_is_small_is_merged_at_once_and_what_is_large_when_as_much_has_come() -> None:
    sizes = [16 * SMALL_BYTES, 3 * SMALL_BYTES, SMALL_BYTES // 4, 100, 100]
    found = [Candidate(Name(BOOTS[0], at, at), size, 1, {}) for at, size in enumerate(sizes, 1)]
    assert plan_merges(found, BOOTS[0]) == [[found[number].name for number in (2, 3, 4)]]
    found = [*found[:2], Candidate(Name(BOOTS[0], 3, 5), 4 * SMALL_BYTES, 1, {})]
    assert plan_merges(found, BOOTS[0]) == [[found[1].name, found[2].name]]
    found[1] = found[1]._replace(is_rolled_up=False)
    assert plan_merges(found, BOOTS[0]) == []


def test_a_clock_that_was_wrong_for_a_while_costs_no_rewriting() -> None:
    sizes = [SMALL_BYTES << digits for digits in range(5, 0, -1)]
    found = [Candidate(Name(BOOTS[0], 1, 1), 1000, 30000, {})]
    found += [Candidate(Name(BOOTS[0], number, number), size, 20000, {}) for number, size in enumerate(sizes, 2)]
    assert plan_merges(found, BOOTS[0]) == []


# --- becoming visible -----------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0, 0o077])
def test_a_file_appears_whole_with_its_mode(folders: Folders, umask: int) -> None:
    before = os.umask(umask)
    try:
        publish(ram(folders), "a.h5", b"content", 0o640)
    finally:
        os.umask(before)
    path = Path(ram(folders), "a.h5")
    assert path.read_bytes() == b"content"
    assert path.stat().st_mode & 0o7777 == 0o640
    assert os.listdir(ram(folders)) == ["a.h5"]


def test_nothing_is_overwritten_and_the_same_again_is_fine(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ram(folders)
    publish(folder, "a.h5", b"content", 0o644)
    synced: list[str] = []
    monkeypatch.setattr(archive, "sync_folder", synced.append)
    publish(folder, "a.h5", b"content", 0o644)
    assert synced == [folder], "it may have been published without having become durable"
    with pytest.raises(FileExistsError):
        publish(folder, "a.h5", b"other", 0o644)
    assert Path(folder, "a.h5").read_bytes() == b"content"
    assert os.listdir(folder) == ["a.h5"]


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "fchmod"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_refuses_leaves_nothing_visible(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(f"sysmond.store.archive.os.{call}", refuse)
        with pytest.raises(OSError, match=os.strerror(number)):
            publish(ram(folders), "a.h5", b"content", 0o644)
    assert os.listdir(ram(folders)) == []
    publish(ram(folders), "a.h5", b"content", 0o644)


def test_short_writes_are_continued(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr("sysmond.store.archive.os.write", lambda fd, content: write(fd, bytes(content[:3])))
    publish(ram(folders), "a.h5", b"content of a file", 0o644)
    assert Path(ram(folders), "a.h5").read_bytes() == b"content of a file"


@pytest.fixture
def full_disk(tmp_path: Path, folders: Folders) -> Iterator[Folders]:
    """A state folder with room for a few pages only."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=0755", "none", str(tmp_path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    full = folders._replace(state=str(tmp_path))
    create_classes(full.state, FINEST_TIER)
    yield full
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_keeps_segments_in_ram(full_disk: Folders) -> None:
    for number in range(1, 9):
        put(ram(full_disk), number, number, bytes([number]) * 4000)
    with pytest.raises(OSError, match="No space left"):
        flush(full_disk)
    there, waiting = archive.names(disk(full_disk)), archive.names(ram(full_disk))
    assert [name.first for name in there] == list(range(1, len(there) + 1)), "the oldest first"
    assert 0 < len(there) < 8
    assert len(there) + len(waiting) == 8
    for name in there:
        assert Path(disk(full_disk), name.file).read_bytes() == bytes([name.first]) * 4000
        Path(disk(full_disk), name.file).unlink()
    flush(full_disk)
    assert len(archive.files(disk(full_disk))) + len(archive.files(ram(full_disk))) == len(waiting)


# --- flush ----------------------------------------------------------------------------------------


def test_a_flush_moves_every_class_to_its_folder(folders: Folders) -> None:
    put(ram(folders), 1, 1, b"one")
    put(ram(folders, Sensitivity.RESTRICTED), 2, 2, b"two")
    assert flush(folders) == (2, 6)
    assert flush(folders) == (0, 0)
    assert os.listdir(ram(folders)) == os.listdir(ram(folders, Sensitivity.RESTRICTED)) == []
    secret = Path(disk(folders, Sensitivity.RESTRICTED), Name(BOOTS[0], 2, 2).file)
    assert secret.read_bytes() == b"two"
    assert secret.stat().st_mode & 0o7777 == 0o640
    assert Path(disk(folders), Name(BOOTS[0], 1, 1).file).stat().st_mode & 0o7777 == 0o644


def test_a_flush_that_was_interrupted_goes_on(folders: Folders) -> None:
    put(ram(folders), 1, 1, b"one")
    put(disk(folders), 1, 1, b"one")
    flush(folders)
    assert archive.names(disk(folders)) == [Name(BOOTS[0], 1, 1)]
    assert os.listdir(ram(folders)) == []


@pytest.mark.parametrize("there", [(3, 3), (1, 8)])
def test_a_sequence_that_an_earlier_run_had_used_loses_nothing(folders: Folders, there: tuple[int, int]) -> None:
    """The disk was not there when the sequence was chosen: what has that name, or a merged one over it, is another."""
    put(disk(folders), *there, b"earlier")
    put(ram(folders), 3, 3, b"later")
    put(ram(folders), 4, 4, b"latest")
    flush(folders)
    kept = {Path(disk(folders), name.file).read_bytes() for name in archive.names(disk(folders))}
    assert kept == {b"earlier", b"later", b"latest"}
    assert superseded(disk(folders)) == []
    assert os.listdir(ram(folders)) == []


def test_what_is_called_like_a_segment_and_is_no_file_is_in_nobodys_way(folders: Folders) -> None:
    for folder, number in ((ram(folders), 1), (disk(folders), 2)):
        os.mkdir(f"{folder}/{Name(BOOTS[0], number, number).file}")
    os.mkfifo(f"{ram(folders)}/{Name(BOOTS[0], 3, 3).file}")
    os.mkdir(f"{disk(folders)}/{Name(BOOTS[0], 4, 4).file}{note.TEMPORARY_SUFFIX}")
    for number in (2, 4, 5):
        put(ram(folders), number, number, b"rows %d" % number)
    assert archive.strangers(ram(folders)) == [Name(BOOTS[0], number, number).file for number in (1, 3)]
    assert flush(folders).files == 3
    there = archive.names(disk(folders))
    assert {Path(disk(folders), name.file).read_bytes() for name in there} == {b"rows 2", b"rows 4", b"rows 5"}
    assert archive.names(ram(folders)) == []
    assert len(os.listdir(ram(folders))) == 2


def test_a_sequence_is_given_once_and_the_disk_looked_at_for_the_first(folders: Folders) -> None:
    disk = archive.disk_folder(folders, Sensitivity.PUBLIC)
    os.makedirs(f"{folders.runtime}/archiver", exist_ok=True)
    Path(disk, archive.Name(BOOTS[0], 3, 6).file).write_bytes(b"")
    assert [archive.next_sequence(BOOTS[0], folders) for _ in range(2)] == [7, 8]
    Path(disk, archive.Name(BOOTS[0], 20, 20).file).write_bytes(b"")
    assert archive.next_sequence(BOOTS[0], folders) == 9
    assert archive.next_sequence(BOOTS[1], folders) == 1
    Path(folders.runtime, "archiver", archive.SEQUENCES_FILE).write_text("[")
    assert archive.next_sequence(BOOTS[0], folders) == 21
