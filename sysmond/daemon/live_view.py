# SPDX-License-Identifier: Apache-2.0
"""The live view beside a daemon that runs on a terminal: starts it, notices its end, restores the terminal.

It is a program of its own (``sysmon_tools.live``), known here by name only: its imports must not be in the memory of
the parts. Its death ends nothing; ending it by a key ends the daemon. While it has the screen, messages of the parts go
to a file, which the view shows and which is printed at the end.
"""

import os
import signal
import sys
import termios
import time
from contextlib import suppress
from typing import Any, NamedTuple, Self

from sysmond.base.model import FINEST_TIER
from sysmond.base.terminal import say
from sysmond.errors import CorruptError
from sysmond.machine import listing
from sysmond.machine.folders import Folders
from sysmond.plan.settings import Settings
from sysmond.store import archive

PROGRAM = "sysmon_tools.live"
MESSAGES_FILE = "messages"
# The parts append to it; beyond this it is emptied.
MESSAGES_BYTES_MAX = 1024 * 1024
END_S = 2.0
# Leave the alternate screen, show the cursor, end all colours.
_SCREEN_RESTORED = b"\x1b[?1049l\x1b[?25h\x1b[0m"
_ERROR = 2


class Terminal(NamedTuple):
    """What the view replaces: the settings of the terminal, and where messages went before."""

    settings: list[Any]
    stderr: int


class LiveView:
    """The live view of one daemon; without a terminal it does nothing."""

    def __init__(self, settings: Settings) -> None:
        """Start it where this process has a terminal to itself."""
        self._folders = settings.folders
        self._messages = f"{settings.folders.runtime}/daemon/{MESSAGES_FILE}"
        self._before = _on_disk(settings.folders)
        self._pid: int | None = None
        self._terminal: Terminal | None = None
        if settings.ticks is None and has_terminal():
            with suppress(OSError, termios.error):
                self._start()

    def __enter__(self) -> Self:
        """Use it while the daemon runs."""
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the terminal, and print the messages."""
        self.end()
        self._conclude()

    def _start(self) -> None:
        before = termios.tcgetattr(0)
        log = os.open(self._messages, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._terminal = Terminal(before, os.dup(_ERROR))
        os.dup2(log, _ERROR)
        os.close(log)
        isolation = "-I" if sys.flags.isolated else "-P"
        command = [sys.executable, isolation, "-m", PROGRAM, "--state-dir", self._folders.state]
        command += ["--runtime-dir", self._folders.runtime, "--messages", self._messages]
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # Its end must not pass before it is waited for.
        # The parent blocks the signals that it waits for; a view that inherited that could not be stopped.
        self._pid = os.posix_spawn(sys.executable, command, os.environ, setsigmask=[])

    def ended_by_key(self) -> bool:
        """Whether the user ended the view, and with it the recording; its death is reported, and ends nothing."""
        if self._pid is None:
            return False
        if os.fstat(_ERROR).st_size > MESSAGES_BYTES_MAX:
            os.ftruncate(_ERROR, 0)
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        if not ended:
            return False
        self._pid = None
        self._restore(screen=status != 0)
        if status == 0:
            self._say("ending: what is in RAM goes to the disk")
            return True
        code = os.waitstatus_to_exitcode(status)
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self._say(f"the live view ended ({reason}); recording goes on, Ctrl-C ends it")
        return False

    def end(self) -> None:
        """Restore the terminal, when the daemon was told to end."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)
            limit_s = time.monotonic() + END_S
            while not os.waitpid(self._pid, os.WNOHANG)[0]:
                if time.monotonic() >= limit_s:
                    os.kill(self._pid, signal.SIGKILL)
                    os.waitpid(self._pid, 0)
                    break
                time.sleep(0.01)
            self._pid = None
            self._restore(screen=True)

    def _conclude(self) -> None:
        """Print what the parts said meanwhile, and what was written where."""
        if self._terminal is None:
            return
        messages = os.pread(_ERROR, MESSAGES_BYTES_MAX, 0)  # Whether or not the file is still in its folder.
        os.dup2(self._terminal.stderr, _ERROR)
        for line in os.fsdecode(messages).removesuffix("\n").split("\n") if messages else ():
            say(line, "", _ERROR)
        added = sorted(_on_disk(self._folders).items() - self._before.items())
        waiting = [name for folder in _ram(self._folders) for name in archive.files(folder)]
        if added:
            size_kib = sum(size for _, size in added) / 1024
            self._say(f"flushed to {self._folders.state}: {_files(len(added))}, {size_kib:.0f} KiB")
        if waiting or not added:
            self._say(f"{_files(len(waiting))} in RAM only, not on disk: {self._folders.runtime}/archiver")

    def _restore(self, *, screen: bool) -> None:
        """Restore the terminal; the screen too, where the view may not have done so."""
        if self._terminal is not None:
            with suppress(OSError, termios.error):
                if screen:
                    os.write(1, _SCREEN_RESTORED)
                termios.tcsetattr(0, termios.TCSADRAIN, self._terminal.settings)

    def _say(self, text: str) -> None:
        """Print on the terminal, wherever standard error goes now."""
        if self._terminal is not None:
            say(text, descriptor=self._terminal.stderr)


def has_terminal() -> bool:
    """Whether this process is in the foreground of a terminal that can show more than lines."""
    try:
        return os.isatty(0) and os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp() and os.environ.get("TERM") != "dumb"
    except OSError:
        return False


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _ram(folders: Folders) -> list[str]:
    return [archive.ram_folder(folders, *place) for place in archive.ram_folders(folders)]


def _on_disk(folders: Folders) -> dict[str, int]:
    """Path and size of every segment on disk that we may see."""
    sizes = {}
    for sensitivity, table in archive.disk_folders(folders):
        folder = archive.disk_folder(folders, sensitivity, FINEST_TIER, table)
        with suppress(OSError, CorruptError):
            for file in archive.files(folder):
                with suppress(CorruptError):
                    sizes[f"{folder}/{file}"] = listing.look(f"{folder}/{file}").size_bytes
    return sizes
