# SPDX-License-Identifier: Apache-2.0
"""Snapshot files: what is written is read again, and nothing else is ever unpacked, whoever made the file."""

import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sysmond.errors import CorruptError, Error, ForeignError
from sysmond.machine import snapshot_file, snapshot_note

BOOT = "0123456789abcdef" * 2
PATHS = (f"public/1s/{BOOT}-00000001-00000001.h5", f"restricted/command/1s/{BOOT}-00000001-00000001.h5")
FILES = [(path, f"content of {path}".encode()) for path in PATHS]


def written(path: Path, files: Sequence[tuple[str, bytes]] = FILES) -> Path:
    with path.open("wb") as file:
        snapshot_file.write(file, {"by": "a test"}, files)
    return path


def content(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def without_manifest(folder: str) -> dict[str, bytes]:
    return {path: image for path, image in content(folder).items() if path != snapshot_note.MANIFEST}


def forged(path: Path, manifest: dict[str, Any], members: Sequence[tarfile.TarInfo]) -> Path:
    """A file that another program made."""
    image = json.dumps(manifest).encode()
    first = tarfile.TarInfo(snapshot_note.MANIFEST)
    first.size = len(image)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(first, io.BytesIO(image))
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def manifest(*paths: str, version: object = 1, size_bytes: object = 1) -> dict[str, Any]:
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # Of one x.
    files = [{"path": path, "size_bytes": size_bytes, "sha256": digest} for path in paths]
    return {"format": snapshot_note.FORMAT, "version": version, "files": files}


def member(path: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(path)
    made.type, made.linkname, made.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
    return made


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.sysmon")
    assert snapshot_file.is_one(str(path))
    assert without_manifest(snapshot_file.unpacked(str(path))) == dict(FILES)
    assert snapshot_file.unpacked(str(path)) == snapshot_file.unpacked(str(path))


def test_it_says_where_it_ends_and_now_is_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.sysmon"
    with path.open("wb") as file:
        snapshot_file.write(file, {"to": "2026-01-31T14:10:00.5+01:00", "anonymous": True}, FILES)
    folder = snapshot_file.unpacked(str(path))
    end_ns = 1_769_865_000_500_000_000
    assert snapshot_note.of(folder) == (end_ns, True, False)
    assert snapshot_note.now(folder).realtime_ns == end_ns
    assert snapshot_note.named(folder) == str(path)


@pytest.mark.parametrize("about", [{"to": "nonsense"}, {"to": 5}, {"format": "another"}])
def test_any_other_folder_is_no_snapshot_and_its_now_is_that_of_the_clocks(tmp_path: Path, about: Any) -> None:
    (tmp_path / snapshot_note.MANIFEST).write_text(json.dumps({**manifest(), **about}))
    assert snapshot_note.of(str(tmp_path)) is None
    assert snapshot_note.of(str(tmp_path / "missing")) is None
    assert snapshot_note.now(str(tmp_path)).realtime_ns > 1_769_865_000_500_000_000
    assert snapshot_note.named(str(tmp_path)) == str(tmp_path)


def test_any_program_for_tar_reads_it(tmp_path: Path) -> None:
    with tarfile.open(written(tmp_path / "a.sysmon")) as tar:
        assert tar.getnames() == [snapshot_note.MANIFEST, *PATHS]
        said = tar.extractfile(snapshot_note.MANIFEST)
        assert said is not None
        assert json.load(said)["by"] == "a test"


def test_what_was_unpacked_ends_with_the_process(tmp_path: Path) -> None:
    path = written(tmp_path / "a.sysmon")
    script = "import sys; from sysmond.machine import snapshot_file; print(snapshot_file.unpacked(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert "sysmon-snapshot-" in done.stdout
    assert not os.path.exists(done.stdout.strip())


def test_what_a_process_that_was_killed_had_unpacked_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as ended:
        pass
    for pid in (ended.pid, os.getpid()):
        (tmp_path / f"sysmon-snapshot-{pid}-abc").mkdir()
    folder = snapshot_file.unpacked(str(written(tmp_path / "a.sysmon")))
    assert {path.name for path in tmp_path.iterdir()} == {
        "a.sysmon", f"sysmon-snapshot-{os.getpid()}-abc", Path(folder).name
    }  # fmt: skip


def test_another_file_is_none(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\x89HDF\r\n\x1a\n")
    assert not snapshot_file.is_one(str(other))
    assert not snapshot_file.is_one(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    "path",
    ["../evil.h5", "/etc/evil.h5", f"public/1s/../../{BOOT}-00000001-00000001.h5", "public/1s/x.h5", "pins.json",
     f"public/10s/{BOOT}-00000001-00000001.h5", f"other/1s/{BOOT}-00000001-00000001.h5", ""],
)  # fmt: skip
def test_a_name_that_is_none_of_ours_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(CorruptError, match=r"manifest\.json"):
        snapshot_file.unpacked(str(forged(tmp_path / "a.sysmon", manifest(path), [member(path or "x")])))


@pytest.mark.parametrize(
    "made", [member(PATHS[0], tarfile.SYMTYPE, "/etc/passwd"), member(PATHS[0], tarfile.LNKTYPE, "manifest.json"),
             member(PATHS[0], tarfile.FIFOTYPE), member(PATHS[0], tarfile.DIRTYPE), member(PATHS[1])],
)  # fmt: skip
def test_what_is_no_plain_file_or_another_than_the_manifest_says_is_refused(
    tmp_path: Path, made: tarfile.TarInfo
) -> None:
    with pytest.raises(CorruptError):
        snapshot_file.unpacked(str(forged(tmp_path / "a.sysmon", manifest(PATHS[0]), [made])))


@pytest.mark.parametrize("size_bytes", [2, -1, 2**63, 1.5, "1", None])
def test_a_size_that_is_wrong_is_refused(tmp_path: Path, size_bytes: object) -> None:
    said = manifest(PATHS[0], size_bytes=size_bytes)
    with pytest.raises(CorruptError):
        snapshot_file.unpacked(str(forged(tmp_path / "a.sysmon", said, [member(PATHS[0])])))


def test_one_path_twice_is_refused(tmp_path: Path) -> None:
    said = manifest(PATHS[0], PATHS[0])
    with pytest.raises(CorruptError):
        snapshot_file.unpacked(str(forged(tmp_path / "a.sysmon", said, [member(PATHS[0])] * 2)))


def test_a_later_version_is_said(tmp_path: Path) -> None:
    with pytest.raises(ForeignError, match="version 2; expected 1"):
        snapshot_file.unpacked(str(forged(tmp_path / "a.sysmon", manifest(version=2), [])))


def test_a_damaged_file_gives_what_was_written_or_is_refused(tmp_path: Path) -> None:
    image = written(tmp_path / "a.sysmon").read_bytes()
    chance = random.Random(17)
    refused: list[str] = []
    for number in range(300):
        damaged = bytearray(image)
        if number % 3:
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(len(image) - 4096)] = chance.randrange(256)
        else:
            del damaged[chance.randrange(len(image)) :]
        path = tmp_path / f"{number}.sysmon"
        path.write_bytes(damaged)
        if not snapshot_file.is_one(str(path)):
            continue
        try:
            assert without_manifest(snapshot_file.unpacked(str(path))) == dict(FILES)
        except Error as refusal:
            refused.append(str(refusal))
    assert len(refused) > 100
    assert all(".sysmon: " in line for line in refused)
