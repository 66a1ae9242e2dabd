# SPDX-License-Identifier: Apache-2.0
"""Notes: read within bounds, written whole, and never through what somebody else prepared."""

import json
import os
import stat
from pathlib import Path

import pytest

from sysmond.errors import CorruptError
from sysmond.machine import note


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_note_comes_back(tmp_path: Path) -> None:
    path = str(tmp_path / "a.json")
    note.write(path, {"boot": "b", "count": 3}, lasting=True)
    assert note.read(path, note.fields) == {"boot": "b", "count": 3}
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("umask", [0, 0o077])
def test_its_mode_is_a_promise_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        note.write(str(tmp_path / "public"), 1)
        note.write(str(tmp_path / "restricted"), 1, mode=0o640)
    finally:
        os.umask(before)
    assert (mode_of(tmp_path / "public"), mode_of(tmp_path / "restricted")) == (0o644, 0o640)


def test_a_link_in_the_place_of_the_new_file_is_removed_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "a.json.new").symlink_to(victim)
    note.write(str(tmp_path / "a.json"), 1)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "a.json").is_symlink()


def test_what_a_dead_writer_left_is_not_written_into(tmp_path: Path) -> None:
    left = tmp_path / "a.json.new"
    left.write_text("half")
    with left.open() as held:
        note.write(str(tmp_path / "a.json"), 1)
        assert held.read() == "half", "whoever has it open reads nothing of ours"


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json.new").mkdir()
    with pytest.raises(FileExistsError, match=r"a folder is in the way: .*/a\.json\.new"):
        note.write(str(tmp_path / "a.json"), 1)


def test_the_folder_that_was_opened_is_written_to_even_when_its_name_changes(tmp_path: Path) -> None:
    place, trap = tmp_path / "place", tmp_path / "trap"
    place.mkdir()
    trap.mkdir()
    with note.create(str(place / "a"), 0o644) as descriptor:
        os.rename(place, tmp_path / "moved")
        place.symlink_to(trap)
        os.write(descriptor, b"x")
    assert os.listdir(trap) == []
    assert os.listdir(tmp_path / "moved") == ["a"]


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), note.create(str(path), 0o644):
        raise ZeroDivisionError
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "damaged"),
        (b"[]", "an array|a list"),
        (b" " * (note.NOTE_BYTES_MAX + 1), "larger than"),
    ],
)
def test_what_is_no_note_is_damage_with_its_name(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(CorruptError, match=problem) as caught:
        note.read(str(tmp_path / "a"), note.fields)
    assert str(tmp_path / "a") in str(caught.value)


def test_a_fifo_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(CorruptError, match="not a regular file"):
        note.read(str(tmp_path / "a"), note.fields)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 2**63, -(2**63) - 1])
def test_an_integer_is_one_of_64_bits(value: object) -> None:
    with pytest.raises(CorruptError):
        note.parse(json.dumps(value).encode(), note.integer)


@pytest.mark.parametrize("shape", [note.text, note.array, note.fields, note.integer])
def test_a_value_of_another_kind_is_refused(shape: type) -> None:
    with pytest.raises(CorruptError):
        note.parse(b"1.5", shape)


def test_a_value_is_told_from_another_by_its_checksum() -> None:
    value = {"offset": 4096, "paths": ["/a"]}
    note.check(value, note.checksum(json.loads(json.dumps(value))))
    with pytest.raises(ValueError, match="checksum"):
        note.check({**value, "offset": 4097}, note.checksum(value))
