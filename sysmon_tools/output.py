# SPDX-License-Identifier: Apache-2.0
"""Sends bytes to standard output, or into a file that appears whole or not at all."""

import errno
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from sysmond.errors import Error

if TYPE_CHECKING:
    from sysmond.base.result import Result

STANDARD_OUTPUT = "-"
# What needs a file: the format, and the usual suffix of its name.
FILE_FORMATS = {"hdf5": "h5", "parquet": "parquet", "arrow": "arrow"}
# What rows of any kind are written in; answers have more.
ROW_FORMATS = ("csv", "tsv", "json", "jsonl", "table")

# What ends a program from outside; SIGINT is a KeyboardInterrupt already.
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_SIGNAL_EXIT = 128


def send(pieces: Iterable[bytes], path: str | None, *, is_restricted: bool) -> None:
    """Write pieces to a file, or to standard output where there is none."""
    if path is None or path == STANDARD_OUTPUT:
        if sys.stdout is None:
            raise Error("standard output is closed; --output-file=F writes a file")
        with _naming("standard output"):
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.flush()
        return

    def write(where: str) -> None:
        with open(where, "wb") as file:
            file.writelines(pieces)

    put_in_place(path, write, is_restricted=is_restricted)


def put_file(result: "Result", path: str, chosen: str, *, is_restricted: bool) -> None:
    """Write an answer in one of ``FILE_FORMATS``; as ``put_in_place``.

    :raises Error: where the library of the format is not installed.
    """

    def write(where: str) -> None:
        if chosen == "hdf5":
            from sysmond.store.files import saved  # noqa: PLC0415  most formats do without

            saved.write(result, where)
            return
        from sysmon_tools import arrow_file  # noqa: PLC0415  as above

        arrow_file.write(result, where, chosen)

    put_in_place(path, write, is_restricted=is_restricted)


def put_in_place(path: str, write: Callable[[str], None], *, is_restricted: bool) -> None:
    """Let ``write`` make a file under a temporary name, then give it its own; nothing remains of a failure.

    What is no ordinary file (a pipe, /dev/null) is written where it is; a link stays a link. What is restricted is
    for its owner alone, and where it takes the place of another file, for that file's group.

    :raises OSError: naming the path.
    """
    target = os.path.realpath(path)
    mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        with _naming(path):
            write(target)
        return
    temporary = os.path.join(os.path.dirname(target), f".sysmon-extract-{os.getpid()}.part")
    with _naming(path), _removed_on_failure(temporary):
        fresh = 0o600 if is_restricted else 0o666
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, fresh))
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode) & ~(stat.S_IRWXO if is_restricted else 0))
        write(temporary)
        _persist(temporary)
        os.replace(temporary, target)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Let errors name the place that was asked for, not a temporary one, nor none."""
    try:
        yield
    except OSError as problem:
        if problem.errno is None:
            raise
        raise OSError(problem.errno, os.strerror(problem.errno), where) from problem


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _persist(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _removed_on_failure(path: str) -> Iterator[None]:
    """Remove a file where the block fails, or the program is asked to end."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(_SIGNAL_EXIT + number)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    except BaseException:
        if os.path.lexists(path):
            os.unlink(path)
        raise
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def abandon_standard_output() -> None:
    """Point standard output nowhere, so that the interpreter's last flush finds no broken pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
