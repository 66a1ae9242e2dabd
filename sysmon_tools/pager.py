# SPDX-License-Identifier: Apache-2.0
"""The pager: a program that shows an answer which is longer than the terminal, a screen at a time.

Apart from ``output``, since most answers go elsewhere, and what starts programs takes long to be imported.
"""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain


def size() -> os.terminal_size:
    """How many columns and lines the terminal has."""
    return shutil.get_terminal_size()


def through(pieces: Iterable[bytes], *, is_wide: bool) -> Iterable[bytes]:
    """Show lines that are more than the terminal has through the pager (PAGER, else less); give what is left to write.

    That is all of them, where they are few, or there is no pager. ``is_wide``: lines may be longer than the terminal
    is wide, and should not be folded. It gets the first lines before the last are made, and whoever ends it has seen
    enough.
    """
    waiting, rows = iter(pieces), size().lines - 1
    first = b""
    for piece in waiting:
        first += piece
        if first.count(b"\n") >= rows:
            break
    else:
        return [first]
    words = _pager()
    program = shutil.which(words[0]) if words else None
    if program is None:
        return chain([first], waiting)
    environment = {"LESS": f"FRX{'S' * is_wide}", **os.environ}
    # It is who asks that chose the pager; Ctrl-C is for it.
    with subprocess.Popen([program, *words[1:]], stdin=subprocess.PIPE, env=environment) as pager:  # noqa: S603
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                assert pager.stdin is not None  # noqa: S101  asked for
                for piece in chain([first], waiting):
                    pager.stdin.write(piece)
                pager.stdin.close()
            pager.wait()
        finally:
            signal.signal(signal.SIGINT, before)
    return ()


def _pager() -> list[str]:
    """The words of the program that PAGER names; none where there is to be none."""
    if os.environ.get("TERM", "dumb") == "dumb":
        return []
    try:
        return shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # A quotation without an end.
        return []
