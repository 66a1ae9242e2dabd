# SPDX-License-Identifier: Apache-2.0
"""Who logged in and out while nobody recorded, as ``/var/lib/wtmpdb/wtmp.db`` has it, which newer systems write.

Source: wtmpdb(8). It is a database of SQLite, whose library would stay in the lane with 2 MB: a child reads it, which
ends, and is killed where it does not. What it says is checked like the file itself. Standard library only.
"""

import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from errno import EIO
from typing import Any

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.sources.unread import printable
from sysmond.sources.wtmp import RECORDS_MAX, PastLogin

PATH = "/var/lib/wtmpdb/wtmp.db"
KNOWN_FROM = "wtmpdb"
USER_PROCESS = 3
DEADLINE_S = 3.0
ANSWER_BYTES_MAX = 1024 * 1024
TEXT_LENGTH_MAX = 64
_QUERY = (
    "SELECT substr(User, 1, ?), substr(TTY, 1, ?), substr(RemoteHost, 1, ?), Login, Logout FROM wtmp"
    " WHERE Type = ? AND (Login > ? OR Logout > ?) ORDER BY ID DESC LIMIT ?"
)


def is_there(path: str) -> bool:
    """Whether there is such a file."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def read(path: str, since_ns: int, until_ns: int) -> list[PastLogin]:
    """Give the logins and logouts of a span, in the order of their times.

    :raises OSError: where it may not be read, or is damaged; ``TimeoutError`` where that takes too long.
    """
    alone = "-I" if sys.flags.isolated else "-P"  # As this program itself.
    command = [sys.executable, alone, "-m", __name__, path, str(since_ns // 1000)]
    reading, writing = os.pipe()
    try:
        try:
            child = os.posix_spawn(
                command[0],
                command,
                {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
                file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)],
                setsigmask=[],
                setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGPIPE],
            )
        finally:
            os.close(writing)
        try:
            content = _answer(reading)
        finally:
            os.kill(child, signal.SIGKILL)  # It has said all that it had to, or is too late.
            os.waitpid(child, 0)
    finally:
        os.close(reading)
    try:
        logins = note.parse(content, _shaped, path)
    except CorruptError as damage:
        raise OSError(EIO, str(damage), path) from damage
    return sorted(login for login in logins if since_ns < login.time_ns <= until_ns)


def _answer(reading: int) -> bytes:
    content, until_s = b"", time.monotonic() + DEADLINE_S
    while len(content) <= ANSWER_BYTES_MAX:
        if not select.select([reading], [], [], max(0.0, until_s - time.monotonic()))[0]:
            raise TimeoutError(f"{KNOWN_FROM}: no answer within {DEADLINE_S:g} s")
        piece = os.read(reading, 65536)
        if not piece:
            return content
        content += piece
    raise OSError(EIO, f"{KNOWN_FROM}: more than {ANSWER_BYTES_MAX} bytes")


def _shaped(said: Any) -> list[PastLogin]:  # noqa: ANN401  as JSON has it
    """Take rows as ``main`` gives them.

    :raises TypeError: where they have another form. :raises ValueError: where it says what is wrong instead.
    """
    if type(said) is str:
        raise ValueError(said)
    return [login for row in note.array(said) for login in _logins(*note.array(row))]


def _logins(user: Any, terminal: Any, remote: Any, login_us: Any, logout_us: Any) -> Iterator[PastLogin]:  # noqa: ANN401
    name, line, other = (_text(note.text(text or "")) for text in (user, terminal, remote))
    for time_us, has_come in ((login_us, True), (logout_us, False)):
        if name and time_us is not None and (time_ns := note.integer(note.integer(time_us) * 1000)) > 0:
            yield PastLogin(time_ns, name, f"from {other}" if other and has_come else line, has_come=has_come)


def _text(text: str) -> str:
    return printable(text.encode("utf-8", "surrogateescape"))


def main() -> None:
    """Be the child: print the last rows of a span as JSON, or, as a text, what is wrong."""
    import sqlite3  # noqa: PLC0415  the lane does without

    path, since_us = sys.argv[1], int(sys.argv[2])
    try:
        place = "".join(f"%{byte:02x}" for byte in os.fsencode(path))
        database = sqlite3.connect(f"file:{place}?mode=ro", uri=True, timeout=DEADLINE_S / 3)
        database.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        lengths = (TEXT_LENGTH_MAX,) * 3
        rows = database.execute(_QUERY, (*lengths, USER_PROCESS, since_us, since_us, RECORDS_MAX)).fetchall()
        said = json.dumps(rows)
    except (sqlite3.Error, OverflowError, TypeError) as problem:
        said = json.dumps(f"sqlite: {problem}")
    note.write_whole(1, said.encode())


if __name__ == "__main__":
    main()
