# SPDX-License-Identifier: Apache-2.0
"""Snapshot files: a part of an archive in one file, ``incident.sysmon``, that every program reads as a state folder.

An uncompressed tar: first ``manifest.json``, which names each file that follows with its size and SHA-256, then these
files, as they lie in a state folder. Whoever sends one may mean harm: what is taken out of it has a name of ours, and
is what the manifest says; a file that has anything else is refused as a whole. Standard library only.
"""

import atexit
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, BinaryIO, NamedTuple

from sysmond.errors import CorruptError, ForeignError, NotPermittedError
from sysmond.machine import note, snapshot_note
from sysmond.machine.snapshot_note import FORMAT, MANIFEST, MANIFEST_BYTES_MAX

SUFFIX = ".sysmon"
VERSION = 1
FILES_MAX = 4096
_BLOCK_BYTES = tarfile.BLOCKSIZE
_PATH = re.compile(r"(?:public|restricted)/(?:[a-z][a-z0-9_]{0,63}/)?1s/[0-9a-f]{32}-\d{8}-\d{8}\.h5")
_MODE = 0o644
_UNPACKED = re.compile(r"sysmon-snapshot-(\d+)-\w+", re.ASCII)


class SnapshotMember(NamedTuple):
    """A file of a snapshot, as the manifest has it."""

    path: str
    size_bytes: int
    sha256: str


def write(file: BinaryIO, about: dict[str, object], files: Sequence[tuple[str, bytes]]) -> None:
    """Write a snapshot of ``files``, pairs of path and content; ``about``: what else the manifest says.

    :raises OSError: as the system says.
    """
    listed = [SnapshotMember(path, len(content), _digest(content)) for path, content in files]
    said = {"format": FORMAT, "version": VERSION, **about, "files": [member._asdict() for member in listed]}
    manifest = json.dumps(said, indent=1).encode()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, content in [(MANIFEST, manifest), *files]:
            header = tarfile.TarInfo(path)
            header.size, header.mode = len(content), _MODE
            tar.addfile(header, io.BytesIO(content))


def is_one(path: str) -> bool:
    """Whether a file is a snapshot, by how it begins; what cannot be read is none."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MANIFEST) + 1) == MANIFEST.encode() + b"\0"
    except OSError:
        return False


def unpacked(path: str) -> str:
    """Give a folder of this process alone, in which lies what a snapshot has; it is removed when the process ends.

    :raises CorruptError: where the file does not have what its manifest says. :raises ForeignError: where it is of a
        later version. :raises NotPermittedError: where we may not read it. :raises OSError: where there is no room.
    """
    status = os.stat(path)
    return _unpacked(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))


@cache
def _unpacked(path: str, _identity: tuple[int, ...]) -> str:
    _remove_leftovers(tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix=f"sysmon-snapshot-{os.getpid()}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with open(path, "rb") as file:
            _unpack(file, path, folder)
    except PermissionError as refusal:
        raise NotPermittedError(f"{path}: {refusal.strerror}; its owner may read it") from refusal
    snapshot_note.FILES[folder] = path
    return folder


def _remove_leftovers(base: str) -> None:
    """Remove what processes of ours unpacked that were killed."""
    with suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            left = _UNPACKED.fullmatch(entry.name)
            is_ours = left and entry.is_dir(follow_symlinks=False)
            is_ours = is_ours and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if left and is_ours and not os.path.exists(f"/proc/{left[1]}"):
                shutil.rmtree(entry.path, ignore_errors=True)


def _unpack(file: BinaryIO, path: str, folder: str) -> None:
    name, size_bytes = _header(file, path)
    if name != MANIFEST or size_bytes > MANIFEST_BYTES_MAX:
        raise CorruptError(f"{path}: begins with {name!r} of {size_bytes} bytes; expected {MANIFEST}")
    manifest = _content(file, size_bytes, path)
    members = note.parse(manifest, _members, f"{path}: {MANIFEST}")
    with open(f"{folder}/{MANIFEST}", "xb") as target:
        target.write(manifest)
    for member in members:
        name, size_bytes = _header(file, path)
        if (name, size_bytes) != (member.path, member.size_bytes):
            raise CorruptError(
                f"{path}: has {name!r} of {size_bytes} bytes; expected {member.path}, {member.size_bytes}"
            )
        content = _content(file, size_bytes, path)
        if _digest(content) != member.sha256:
            raise CorruptError(f"{path}: {member.path} does not match the manifest; the file is damaged")
        os.makedirs(f"{folder}/{os.path.dirname(name)}", exist_ok=True)
        with open(f"{folder}/{name}", "xb") as target:
            target.write(content)


def _header(file: BinaryIO, path: str) -> tuple[str, int]:
    """Read the header of the next file: name and size.

    Only plain files with short names are written, so tarfile is not asked: it follows what headers claim.
    """
    block = file.read(_BLOCK_BYTES)
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as damage:
        raise CorruptError(f"{path}: {damage}; expected the next file of the snapshot") from damage
    if header.type != tarfile.REGTYPE or header.size < 0:
        raise CorruptError(f"{path}: {header.name!r} is not a regular file")
    return header.name, header.size


def _content(file: BinaryIO, size_bytes: int, path: str) -> bytes:
    padded = -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
    left_bytes = os.fstat(file.fileno()).st_size - file.tell()
    content = file.read(padded) if padded <= left_bytes else b""
    if len(content) < padded:
        raise CorruptError(f"{path}: ends too early; expected {padded} bytes more")
    return content[:size_bytes]


def _members(said: Any) -> list[SnapshotMember]:  # noqa: ANN401  what JSON gives
    fields = note.fields(said)
    if fields.get("format") != FORMAT:
        raise ValueError("no manifest of a snapshot")
    if note.integer(fields["version"]) != VERSION:
        raise ForeignError(f"a snapshot of version {fields['version']}; expected {VERSION}; a newer sysmond reads it")
    files = [note.fields(file) for file in note.array(fields["files"])]
    if len(files) > FILES_MAX:
        raise ValueError(f"{len(files)} files; expected at most {FILES_MAX}")
    members = [
        SnapshotMember(note.text(file["path"]), note.integer(file["size_bytes"]), note.text(file["sha256"]))
        for file in files
    ]
    for member in members:
        if not _PATH.fullmatch(member.path):
            raise ValueError(f"{member.path!r}: not a file of an archive")
    if len({member.path for member in members}) < len(members):
        raise ValueError("names a file twice")
    return members


def _digest(content: bytes) -> str:
    import hashlib  # noqa: PLC0415  most programs read folders

    return hashlib.sha256(content).hexdigest()
