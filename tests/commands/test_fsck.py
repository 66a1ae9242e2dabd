# SPDX-License-Identifier: Apache-2.0
"""A check names what is wrong, and a repair loses nothing: what was damaged is kept, what can be read is read again."""

import os
from pathlib import Path

import h5py
import numpy as np

from sysmond.base.model import Metric, Semantics, Sensitivity, Table
from sysmond.commands import fsck
from sysmond.machine.folders import Folders
from sysmond.store import archive
from sysmond.store.archive import Name
from sysmond.store.files import dense_file
from sysmond.store.files.dense_file import Segment
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand

BOOT = "e" * 32
SECOND = 10**9
TABLE = Table("load", tuple(Metric(f"m{number}", "1", Semantics.GAUGE, "Load.") for number in range(20)))


def put(folders: Folders, name: Name) -> Path:
    values = np.random.default_rng(1).integers(0, 100, (20, 500))
    ticks = np.arange(500, dtype=np.int64) * SECOND + name.first
    keys = [SeriesKey("load", metric.name, "") for metric in TABLE.metrics]
    block = MemoryBlock(Strand(BOOT, "sampler", 1, SECOND), ticks, keys, values)
    image = dense_file.encode(Recording(Sensitivity.PUBLIC, {"load": TABLE}, [block], {}, {}, []), "a test")
    path = Path(archive.disk_folder(folders, Sensitivity.PUBLIC), name.file)
    path.write_bytes(image)
    return path


def test_a_sound_archive_has_no_findings(folders: Folders) -> None:
    put(folders, Name(BOOT, 1, 1))
    assert fsck.check(folders) == []


def test_everything_wrong_is_named(folders: Folders) -> None:
    whole = put(folders, Name(BOOT, 1, 2))
    put(folders, Name(BOOT, 1, 1))
    put(folders, Name(BOOT, 3, 3)).write_bytes(whole.read_bytes()[:3000])
    (whole.parent / "notes.txt").write_text("mine", encoding="utf-8")
    (whole.parent / f"{whole.name}.new").write_bytes(b"")
    os.mkfifo(whole.parent / Name(BOOT, 4, 4).file)
    (whole.parent / Name(BOOT, 5, 5).file).mkdir()
    (whole.parent / Name(BOOT, 6, 6).file).symlink_to("nowhere")
    found = {Path(each.path).name: each.kind for each in fsck.check(folders)}
    assert found == {
        Name(BOOT, 1, 1).file: "superseded",
        Name(BOOT, 3, 3).file: "damaged",
        "notes.txt": "unknown",
        f"{whole.name}.new": "left over",
        **{Name(BOOT, number, number).file: "unknown" for number in (4, 5, 6)},
    }


def test_what_can_be_read_of_a_damaged_file_is_salvaged(folders: Folders) -> None:
    path = put(folders, Name(BOOT, 1, 1))
    with h5py.File(path) as file:
        chunk = file["block/0/i1"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + chunk.size // 2] ^= 0xFF
    path.write_bytes(content)
    [finding] = fsck.check(folders)
    assert (finding.kind, finding.series, finding.salvageable) == ("damaged", 20, 12)
    said = list(fsck.repair(folders, [finding]))
    assert len(said) == 2
    [kept] = Path(folders.state, fsck.DAMAGED_FOLDER).iterdir()
    assert kept.read_bytes() == content
    [file] = path.parent.glob("*.h5")
    assert file.name == path.name
    with Segment(str(file)) as opened:
        assert len(opened.recording.blocks[0].keys) == 12
    assert fsck.check(folders) == []
