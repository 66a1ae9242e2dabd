# SPDX-License-Identifier: Apache-2.0
"""What people read: text that a terminal shows and does not obey.

Names of files, mounts, devices and processes, marks and the reasons of pins are other people's. Whatever is
written to a terminal or to standard error goes through ``printable``, most of it by ``say`` and ``put``; what is drawn
or written in columns does it by ``sysmon_tools.show`` and ``sysmon_tools.formats``.
"""

import os
import sys
from contextlib import suppress
from types import TracebackType

from sysmond.errors import Error

# Of exceptions that led to each other.
_LED_MAX = 8
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    r"""Spell what a terminal may obey, and what ends a line, as an escape; all else stays.

    Controls are ``\n`` and ``\x1b``; what turns a line round or is not to be seen, ``\u202e``; a byte that is no UTF-8,
    as ``os.fsdecode`` has it, ``\xff``. A backslash stays one: where it must be told from an escape, JSON does.
    """
    return text if text.isprintable() else "".join(map(escape, text))


def escape(sign: str) -> str:
    """Spell one character as ``printable`` does."""
    if sign.isprintable():
        return sign
    if sign in _NAMED:
        return _NAMED[sign]
    number = ord(sign)
    if 0xDC80 <= number <= 0xDCFF:  # noqa: PLR2004  surrogateescape: a byte that is not UTF-8.
        return f"\\x{number - 0xDC00:02x}"
    if number < 0x80:  # noqa: PLR2004  ASCII
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004  What \u has room for.


def say(text: str, program: str = "sysmond", descriptor: int | None = None) -> None:
    """Say one line to people: ``PROGRAM: TEXT``, or the text alone where ``program`` is empty.

    It goes to standard error or, past what Python buffers, to this descriptor. Where nobody can hear it, it is lost.
    """
    line = printable(f"{program}: {text}" if program else text) + "\n"
    with suppress(OSError, ValueError):  # ValueError: standard error was closed.
        if descriptor is not None:
            os.write(descriptor, line.encode())
        elif sys.stderr is not None:
            sys.stderr.write(line)
            sys.stderr.flush()


def put(*lines: str) -> None:
    """Write lines to standard output; what its encoding lacks is an escape, too.

    :raises Error: where it is closed. :raises OSError: where it cannot be written to.
    """
    if sys.stdout is None:
        raise Error("standard output is closed; expected one that can be written to")
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        sys.stdout.write(printable(line).encode(encoding, "backslashreplace").decode(encoding) + "\n")


def confess(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:  # noqa: ARG001
    """Say what nobody expected, and where, as ``sys.excepthook``: what an exception cites may be anybody's."""
    from traceback import format_tb  # noqa: PLC0415  only to speak of a mistake, and every part would carry it

    led: list[BaseException] = []
    before: BaseException | None = problem
    while before is not None and len(led) < _LED_MAX:
        led.insert(0, before)
        before = before.__cause__ or (None if before.__suppress_context__ else before.__context__)
    for member in led:
        say("Traceback (most recent call last):", "")
        for line in "".join(format_tb(member.__traceback__)).splitlines():
            say(line, "")
        say(f"{type(member).__name__}: {member}", "")


def end(code: int) -> None:
    """End the program at once, with all that was written: to take numpy and h5py apart costs 10 ms, and serves nobody.

    Where it cannot be brought out, the interpreter is left to say so, as it ends.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code)
