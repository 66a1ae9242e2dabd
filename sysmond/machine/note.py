# SPDX-License-Identifier: Apache-2.0
"""Notes: the small JSON files in which the parts keep what they know, read within bounds and written whole.

Whoever reads one gives a ``shape``: a function that makes its own type of the decoded value, and raises as Python does
where the value has another form. Whatever is wrong with a note, its reader hears one of two things: the system's
OSError, or CorruptError. Standard library only.
"""

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from zlib import crc32

from sysmond.errors import CorruptError

# The largest note of our own, of 2,000 rings sealed, has 0.2 MB.
NOTE_BYTES_MAX = 1024 * 1024
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
# A file appears under its name when it is whole; until then it has this behind it.
TEMPORARY_SUFFIX = ".new"
# Under which name a note has the checksum of what else is in it.
CHECKSUM = "crc32"

_Shaped = TypeVar("_Shaped")


def read(path: str, shape: Callable[[Any], _Shaped], bytes_max: int = NOTE_BYTES_MAX) -> _Shaped:
    """Read a note.

    :raises OSError: where it cannot be read, FileNotFoundError where it is not there.
    :raises CorruptError: naming it, where it is no regular file, too large, not JSON, or of another form.
    """
    return parse(read_bytes(path, bytes_max), shape, path)


def read_bytes(path: str, bytes_max: int) -> bytes:
    """Read a small file.

    :raises OSError: where it cannot be read. :raises CorruptError: where it is no regular file, or larger.
    """
    # A FIFO of this name would keep us waiting for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CorruptError(f"{path}: not a regular file; expected a file that sysmond wrote")
        content = b""
        while len(content) <= bytes_max and (more := os.read(descriptor, bytes_max + 1 - len(content))):
            content += more
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:
        raise CorruptError(f"{path}: larger than {bytes_max} bytes, the most that sysmond writes")
    return content


def parse(content: bytes, shape: Callable[[Any], _Shaped], name: str = "a message") -> _Shaped:
    """Make of JSON what ``shape`` makes of it; ``name``: whose content it is, for the error.

    :raises CorruptError: where it is not JSON, nested too deeply, or has another form.
    """
    try:
        return shape(json.loads(content))
    except CorruptError:
        raise
    except KeyError as missing:
        raise CorruptError(f"{name}: damaged ({missing} is missing)") from missing
    except RecursionError as damage:
        raise CorruptError(f"{name}: damaged (nested too deeply)") from damage
    except (json.JSONDecodeError, UnicodeDecodeError) as damage:
        raise CorruptError(f"{name}: not JSON ({damage})") from damage
    except (ValueError, TypeError, AttributeError, IndexError, OverflowError) as damage:
        raise CorruptError(f"{name}: damaged ({damage})") from damage


def checksum(value: object) -> int:
    """The CRC-32 of a value as JSON: without it, a bit turned over would make another note, as valid as this."""
    return crc32(json.dumps(value).encode())


def check(value: object, said: object) -> None:
    """Compare a value with what its note has as its checksum; for shapes.

    :raises ValueError: where that is the checksum of another.
    """
    if said != checksum(value):
        raise ValueError("its checksum does not match")


def write(path: str, value: object, *, mode: int = 0o644, lasting: bool = False, indent: int | None = None) -> None:
    """Write a note; see ``put``."""
    put(path, json.dumps(value, indent=indent).encode("utf-8", "replace"), mode=mode, lasting=lasting)


def put(path: str, content: bytes, *, mode: int = 0o644, lasting: bool = False) -> None:
    """Put a small file in place, whole or not at all; ``lasting``: even through a power cut.

    :raises OSError: as the file system says; what was there before stays.
    """
    with create(path, mode) as descriptor:
        write_whole(descriptor, content)
        if lasting:
            os.fsync(descriptor)
    if lasting:
        sync_folder(os.path.dirname(path) or ".")


@contextmanager
def create(path: str, mode: int) -> Iterator[int]:
    """Open a file without a name of its own to write to; when the block ends well, it is ``path``, of just that mode.

    It is made in the folder that ``path`` means now, never through a link and never of a file that is there: one
    that a dead writer left is removed first. Each file has one writer, so nobody else is at it.

    :raises OSError: as the file system says; nothing is left behind, and what was there before stays.
    """
    folder, _, name = path.rpartition("/")
    place = os.open(folder or ("/" if path.startswith("/") else "."), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    temporary = name + TEMPORARY_SUFFIX
    try:
        descriptor = _open_fresh(path + TEMPORARY_SUFFIX, place)
        try:
            os.fchmod(descriptor, mode)  # The mode is a promise, whatever the umask.
            yield descriptor
            os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place)
            raise
        finally:
            os.close(descriptor)
    finally:
        os.close(place)


def _open_fresh(path: str, folder: int) -> int:
    name = os.path.basename(path)
    try:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=folder)  # Narrow until its mode is set.
    except IsADirectoryError as in_the_way:
        raise FileExistsError(errno.EEXIST, "a folder is in the way", path) from in_the_way
    except OSError as failure:
        failure.filename = path  # The system was told it without its folder.
        raise


def write_whole(descriptor: int, content: bytes) -> None:
    """Write all of it, however often the system takes a part only."""
    view = memoryview(content)
    while view:
        written = os.write(descriptor, view)
        if not written:
            raise OSError(errno.EIO, "the file system does not accept any data")
        view = view[written:]


def sync_folder(folder: str) -> None:
    """Make renames and removals in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def integer(value: object) -> int:
    """Take a number of at most 64 bits, with sign, for what it is; for shapes.

    :raises TypeError: where it is something else: ``int()`` would make 1 of ``true``, of ``1.9`` and of ``"1"``.
    :raises OverflowError: where it is larger than any count, time or size of ours.
    """
    if type(value) is not int:
        raise TypeError(f"{_short(value)} is not an integer")
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise OverflowError("an integer of more than 64 bits")
    return value


def text(value: object) -> str:
    """Take a text for what it is; for shapes.

    :raises TypeError: where it is something else.
    """
    if type(value) is not str:
        raise TypeError(f"{_short(value)} is not a text")
    return value


def array(value: object) -> list[Any]:
    """Take an array for what it is; for shapes.

    :raises TypeError: where it is something else.
    """
    if type(value) is not list:
        raise TypeError(f"{_short(value)} is not an array")
    return value


def fields(value: object) -> dict[str, Any]:
    """Take an object for what it is; for shapes.

    :raises TypeError: where it is something else.
    """
    if type(value) is not dict:
        raise TypeError(f"{_short(value)} is not an object")
    return value


def _short(value: object) -> str:
    return repr(value) if isinstance(value, bool | int | float | None) else f"a {type(value).__name__}"
