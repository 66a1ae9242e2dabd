# SPDX-License-Identifier: Apache-2.0
"""Checking an archive: which files are damaged, left over or unknown, and putting right what can be.

Nothing is deleted: a damaged file is moved to ``<state>/damaged`` and what can still be read of it written anew.
"""

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from sysmond import CREATED_BY
from sysmond.base.model import EVENTS, FINEST_TIER, TIERS_NS, Sensitivity
from sysmond.errors import CorruptError, Error, ForeignError, NotPermittedError
from sysmond.machine.folders import FILE_MODES, Folders
from sysmond.machine.memory import BoundError, working_on
from sysmond.machine.note import TEMPORARY_SUFFIX, sync_folder
from sysmond.store import archive, pins, sparse, tiers
from sysmond.store.archive import SUFFIX
from sysmond.store.coding.dense_coding import CHUNK_SERIES
from sysmond.store.files import dense_file
from sysmond.store.of_ring import Block, MemoryBlock, Recording

DAMAGED_FOLDER = "damaged"


class Finding(NamedTuple):
    """What is wrong with a file. ``kind``: damaged, superseded, left over, unknown or refused.

    ``series``, ``salvageable``: how many series it has, and of how many the values can be read.
    """

    path: str
    kind: str
    reason: str
    sensitivity: Sensitivity
    tier: str
    series: int = 0
    salvageable: int = 0


def _ignored(path: str) -> None:
    """Take no notice of a file."""


def check(folders: Folders, when_read: Callable[[str], object] = _ignored) -> list[Finding]:
    """Read every file of the archive on disk, whole. ``when_read``: called with the path of each that was read."""
    findings = list(_check_pins(folders))
    for sensitivity, table in archive.disk_folders(folders):
        for tier in TIERS_NS if table else (*TIERS_NS, EVENTS):
            folder = archive.disk_folder(folders, sensitivity, tier, table)
            try:
                findings += _check_folder(folder, sensitivity, tier, table, when_read)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except CorruptError as damage:
                findings.append(Finding(folder, "damaged", str(damage), sensitivity, tier))
            except PermissionError as refusal:
                reason = refusal.strerror or "no permission"
                findings.append(Finding(folder, "refused", reason, sensitivity, tier))
    return findings


def _check_pins(folders: Folders) -> Iterator[Finding]:
    try:
        pins.read(folders.state)
    except CorruptError:
        reason = "it is unknown what is pinned"
        yield Finding(f"{folders.state}/{pins.FILE}", "damaged", reason, Sensitivity.PUBLIC, "pins")
    except Error as refusal:
        yield Finding(f"{folders.state}/{pins.FILE}", "refused", str(refusal), Sensitivity.PUBLIC, "pins")


def _check_folder(
    folder: str, sensitivity: Sensitivity, tier: str, table: str, when_read: Callable[[str], object]
) -> Iterator[Finding]:
    superseded, strangers = _superseded(folder, FINEST_TIER if table else tier), archive.strangers(folder)
    for file in sorted(os.listdir(folder)):
        path = f"{folder}/{file}"
        if file in strangers:  # Whoever opens a pipe waits for ever.
            yield Finding(path, "unknown", "called like a segment, but no file", sensitivity, tier)
        elif file.endswith(SUFFIX + TEMPORARY_SUFFIX):
            yield Finding(path, "left over", "a writer was interrupted", sensitivity, tier)
        elif not file.endswith(SUFFIX) or not tiers.is_name(file):
            yield Finding(path, "unknown", "no name that a segment has", sensitivity, tier)
        else:
            problem = _check_file(path, sensitivity, tier, table)
            when_read(path)
            if problem is not None:
                yield problem
            elif file in superseded:
                yield Finding(path, "superseded", "another file has all of its rows", sensitivity, tier)


def _superseded(folder: str, tier: str) -> set[str]:
    if tier == FINEST_TIER:
        return {name.file for name in archive.superseded(folder)}
    files, _ = tiers.listing(folder)
    return {file.file for file in files} - {file.file for file in tiers.counting(files)}


def _check_file(path: str, sensitivity: Sensitivity, tier: str, table: str) -> Finding | None:
    try:
        return _check_whole(path, sensitivity, tier, table)
    except BoundError as limit:
        return Finding(path, "refused", str(limit), sensitivity, tier)


def _check_whole(path: str, sensitivity: Sensitivity, tier: str, table: str) -> Finding | None:
    try:
        if table:
            with working_on(path):
                sparse.check(path)
            return None
        with working_on(path), dense_file.Segment(path) as opened:
            return _check_values(path, opened.recording, sensitivity, tier)
    except FileNotFoundError:
        return None  # Merged or expired meanwhile.
    except NotPermittedError as refusal:
        return Finding(path, "refused", str(refusal), sensitivity, tier)
    except ForeignError as stranger:
        return Finding(path, "unknown", str(stranger), sensitivity, tier)
    except CorruptError as damage:
        return Finding(path, "damaged", str(damage), sensitivity, tier)


def _check_values(path: str, recording: Recording, sensitivity: Sensitivity, tier: str) -> Finding | None:
    series = whole = 0
    reason = ""
    reads: list[tuple[int, int, Callable[[list[int]], object]]] = [
        *((len(block.keys), CHUNK_SERIES, block.read) for block in recording.blocks),
        *((len(block.keys), 1, block.buckets) for block in recording.tiers),
    ]
    for length, step, read in reads:
        series += length
        for first in range(0, length, step):
            rows = list(range(first, min(first + step, length)))
            with working_on(path):
                good, problem = _readable_rows(read, rows)
            whole += good
            reason = reason or problem
    return Finding(path, "damaged", reason, sensitivity, tier, series, whole) if reason else None


def _readable_rows(read: Callable[[list[int]], object], rows: list[int]) -> tuple[int, str]:
    """How many rows can be read, and why others cannot: all at once, and one by one where that fails."""
    try:
        read(rows)
    except CorruptError as damage:
        if isinstance(damage.__cause__, MemoryError):
            raise
        if len(rows) == 1:
            return 0, str(damage)
    else:
        return len(rows), ""
    readable = [_readable_rows(read, [row]) for row in rows]
    return sum(good for good, _ in readable), next((problem for _, problem in readable if problem), "")


def repair(folders: Folders, findings: list[Finding]) -> Iterator[str]:
    """Move damaged files aside and write what can be read of their rows anew; tells every step.

    Under the same name: by it a tier tells whether it has these rows. Buckets are not written anew but made again of
    rows where these are still there. Call it while no archiver runs.

    :raises OSError: where the disk refuses; nothing is lost then.
    """
    for finding in findings:
        if finding.kind != "damaged":
            continue
        image = _salvaged(finding) if finding.tier == FINEST_TIER and finding.salvageable else None
        target = _free(f"{folders.state}/{DAMAGED_FOLDER}", finding)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        try:
            os.rename(finding.path, target)
        except OSError as refusal:  # Of one file: the disk refuses others by itself.
            yield f"{finding.path}: stays where it is: {refusal.strerror}"
            continue
        sync_folder(os.path.dirname(target))
        sync_folder(os.path.dirname(finding.path))
        yield f"{finding.path}: moved to {target}"
        if image is not None:
            folder, file = os.path.split(finding.path)
            archive.publish(folder, file, image, FILE_MODES[finding.sensitivity])
            yield f"{finding.path}: written anew with {finding.salvageable} of {finding.series} series"


def _free(folder: str, finding: Finding) -> str:
    target = path = f"{folder}/{finding.sensitivity}-{finding.tier}-{os.path.basename(finding.path)}"
    number = 1
    while os.path.exists(path):
        path, number = f"{target}.{number}", number + 1
    return path


def _salvaged(finding: Finding) -> bytes | None:
    """A segment of the series that can be read; None where even that fails."""
    try:
        with dense_file.Segment(finding.path) as opened:
            recording = opened.recording
            blocks = [readable for block in recording.blocks if (readable := _readable(block)) is not None]
            return dense_file.encode(recording._replace(blocks=blocks), f"{CREATED_BY} fsck")
    except (Error, FileNotFoundError):
        return None


def _readable(block: Block) -> MemoryBlock | None:
    """The series of a block that can be read; None where there are none."""
    keys, rows = [], []
    for row, key in enumerate(block.keys):
        try:
            rows.append(block.read([row])[0])
            keys.append(key)
        except CorruptError:
            continue
    if not keys:
        return None
    return MemoryBlock(block.strand, block.ticks, keys, np.array(rows), block.closed, block.significant_bits)
