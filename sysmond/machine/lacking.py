# SPDX-License-Identifier: Apache-2.0
"""What a part, or the plan, lacks while it goes on: told to the service manager, and left for whoever asks.

``systemctl status`` shows it (``STATUS=``, sd_notify(3)), ``sysmonctl status`` reads the notes. Standard library only.
"""

import os
from collections.abc import Iterable
from contextlib import suppress

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.machine.notify import notify

FILE = "lacking.json"
LINES_MAX = 8
LINE_LENGTH_MAX = 400


class LackingReport:
    """What the part of a folder lacks now; nothing at first, whatever the one before lacked."""

    def __init__(self, folder: str) -> None:
        """``folder``: the part's own."""
        self._path = f"{folder}/{FILE}"
        self._lines: tuple[str, ...] = ()
        with suppress(OSError):
            os.unlink(self._path)

    def tell(self, lines: Iterable[str]) -> None:
        """Say what is lacking now, where that is another than before."""
        now = tuple(" ".join(line.split())[:LINE_LENGTH_MAX] for line in lines)[:LINES_MAX]
        if now == self._lines:
            return
        self._lines = now
        notify(f"STATUS={'; '.join(now)}")
        with suppress(OSError):  # Where there is no room for that, the service manager knows it.
            if now:
                note.write(self._path, {"lines": now})
            else:
                os.unlink(self._path)


def read(folder: str) -> list[str]:
    """What the part of a folder lacks, or in the runtime folder itself the plan, as far as it could leave it there."""
    try:
        return note.read(f"{folder}/{FILE}", lambda noted: list(map(note.text, note.array(noted["lines"]))))
    except (OSError, CorruptError):
        return []
