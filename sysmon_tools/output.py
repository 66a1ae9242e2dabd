# SPDX-License-Identifier: Apache-2.0
"""Sends bytes to standard output, to a pager, or into a file that appears whole or not at all."""

import argparse
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
    from sysmon_tools.grid import Display
    from sysmon_tools.style import Style
    from sysmond.answers.sql.run import SqlAnswer
    from sysmond.base.result import Result

STANDARD_OUTPUT = "-"
# What needs a file: the format, and the usual suffix of its name.
FILE_FORMATS = {"hdf5": "h5", "parquet": "parquet", "arrow": "arrow"}
# What rows of any kind are written in; answers have more.
ROW_FORMATS = ("csv", "tsv", "json", "jsonl", "kv", "table")

# What ends a program from outside; SIGINT is a KeyboardInterrupt already.
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_SIGNAL_EXIT = 128


def add_format(made: argparse.ArgumentParser) -> None:
    """Add the option that says how rows are written."""
    made.add_argument(
        "--format",
        metavar="FORMAT",
        choices=ROW_FORMATS,
        help=f"{', '.join(ROW_FORMATS)} (default: csv; on a terminal, table)",
    )


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


def display(*, all_columns: bool = False, is_exact: bool = False, has_pager: bool = True) -> "Display | None":
    """The terminal for which an answer is laid out; None where standard output is none.

    ``all_columns``: leave nothing out. The rest is as the display has it.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    from sysmon_tools import pager  # noqa: PLC0415  most answers go elsewhere
    from sysmon_tools.grid import Display  # noqa: PLC0415  as above

    columns = None if all_columns else pager.size().columns
    is_ascii = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    return Display(columns, is_exact=is_exact, is_ascii=is_ascii, has_pager=has_pager)


def show(pieces: Iterable[bytes], path: str | None, style: "Style", *, is_restricted: bool) -> None:
    """Write an answer where it is to go; on a terminal, through the pager where it is longer than that."""
    if style.screen is None or not style.screen.has_pager:
        send(pieces, path, is_restricted=is_restricted)
        return
    from sysmon_tools import pager  # noqa: PLC0415  as above

    waiting = pager.through(pieces, is_wide=style.screen.columns is None)
    send(waiting, None, is_restricted=False)


def put_file(result: "Result | SqlAnswer", path: str, chosen: str, *, is_restricted: bool) -> None:
    """Write an answer in one of ``FILE_FORMATS``, what SQL found as Parquet or Arrow; as ``put_in_place``.

    :raises Error: where the library of the format is not installed.
    """

    def write(where: str) -> None:
        if chosen == "hdf5":
            from sysmond.base.result import Result  # noqa: PLC0415  most formats do without
            from sysmond.store.files import saved  # noqa: PLC0415  as above

            assert isinstance(result, Result)  # noqa: S101  what SQL found has no form in HDF5, and is refused before
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


def put_text(path: str, text: str, *, is_restricted: bool) -> None:
    """Write a text into a file as ``put_in_place``; what is no UTF-8 in it is an escape."""

    def write(where: str) -> None:
        with open(where, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)

    put_in_place(path, write, is_restricted=is_restricted)


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


def described(problem: OSError) -> str:
    """What went wrong, and with which file."""
    where = f"{os.fsdecode(problem.filename)}: " if isinstance(problem.filename, str | bytes) else ""
    return f"{where}{problem.strerror or problem}"


def abandon_standard_output() -> None:
    """Point standard output nowhere, so that the interpreter's last flush finds no broken pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
