# SPDX-License-Identifier: Apache-2.0
"""What merges know of files: of each that stays as it is, a later merge knows what it needs without opening it."""

import os
from pathlib import Path

import pytest

from sysmond.archiver import coding, merge_job
from sysmond.archiver.weights import FILE
from sysmond.machine.folders import Folders
from sysmond.store import archive
from tests.archiver.test_sparse_merge import on_disk, recorded
from tests.support.longs import BOOT


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that merges open to weigh them."""
    paths: list[str] = []
    weighed = coding.SPARSE.weighed

    def noting(path: str, candidate: archive.Candidate) -> archive.Candidate:
        paths.append(path)
        return weighed(path, candidate)

    monkeypatch.setattr(merge_job, "SPARSE", coding.SPARSE._replace(weighed=noting))
    monkeypatch.setattr(merge_job, "boot_id", lambda: BOOT)
    monkeypatch.setattr(archive, "SMALL_BYTES", 0)  # So that several stay.
    return paths


def merged(folders: Folders, opened: list[str]) -> list[str]:
    """What a merge opened."""
    opened.clear()
    merge_job.merge(folders)
    return list(opened)


def test_a_file_that_stays_is_opened_by_one_merge_only(folders: Folders, opened: list[str]) -> None:
    recorded(folders, 6, BOOT)
    before = on_disk(folders)
    assert merged(folders, opened) == before
    staying = set(before) & set(on_disk(folders))
    made = set(on_disk(folders)) - set(before)
    assert staying
    assert made
    assert set(merged(folders, opened)) == made
    assert merged(folders, opened) == []


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": [1]}', b'{"a": [1, 1, true, 1, 1, {}]}', b"\xff"])
def test_a_damaged_note_costs_a_look_at_each_file(folders: Folders, opened: list[str], content: bytes) -> None:
    recorded(folders, 3, BOOT)
    while merged(folders, opened):
        pass
    note = Path(folders.runtime, "archiver", FILE)
    sound = note.read_bytes()
    note.write_bytes(content)
    assert merged(folders, opened) == on_disk(folders)
    assert note.read_bytes() == sound


def test_another_file_of_the_same_name_is_opened(folders: Folders, opened: list[str]) -> None:
    recorded(folders, 3, BOOT)
    while merged(folders, opened):
        pass
    [first, *_] = on_disk(folders)
    written_ns = os.stat(first).st_mtime_ns
    os.utime(first, ns=(written_ns, written_ns + 1))
    assert merged(folders, opened) == [first]
