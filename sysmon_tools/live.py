# SPDX-License-Identifier: Apache-2.0
"""The live view: what is being recorded right now, on a terminal, until ``q`` or Ctrl-C.

``sysmond`` shows it when it runs on a terminal; ``python -m sysmon_tools.live`` looks at one that runs elsewhere.
"""

import argparse
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from sysmon_tools.busiest import PROCESS, Busiest
from sysmon_tools.panel import Scene, Storage, frame
from sysmon_tools.show import Console, Group, console, screen, stacked
from sysmon_tools.signs import ASCII_SIGNS, SIGNS
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, TIERS_NS, Sensitivity
from sysmond.base.terminal import say
from sysmond.errors import CorruptError, Error
from sysmond.machine import folders, listing
from sysmond.machine.folders import Folders
from sysmond.machine.listing import FileStatus
from sysmond.plan import catalogue
from sysmond.ring.newest import Follower
from sysmond.ring.progress import streams_in
from sysmond.store import archive

# Reading takes a moment: looking this long after the whole second finds that second's tick.
AFTER_TICK_NS = 120_000_000
BUSIEST_MAX = 3
MESSAGES_MAX = 5
MESSAGE_BYTES_MAX = 4096
_ENDING_KEYS = frozenset(b"qQ\x03\x04")
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


class StoredFolders:
    """What lies in RAM and on disk; a folder is read anew only when it changed."""

    def __init__(self, place: Folders) -> None:
        """Know nothing yet."""
        self._place = place
        self._known: dict[str, tuple[int, tuple[int, int, float]]] = {}
        self._tables: dict[str, tuple[int, list[str]]] = {}

    def look(self) -> Storage:
        """Count files and bytes, those of long tables too."""
        ram, disk = [], []
        for sensitivity in Sensitivity:
            tables = ("", *self._tables_in(archive.ram_folder(self._place, sensitivity)))
            ram += [self._sum(archive.ram_folder(self._place, sensitivity, table)) for table in tables]
            tables = ("", *self._tables_in(f"{self._place.state}/{sensitivity}"))
            tier = FINEST_TIER
            disk += [self._sum(archive.disk_folder(self._place, sensitivity, tier, table)) for table in tables]
        newest_s = max(folder[2] for folder in disk)
        return Storage(
            sum(folder[0] for folder in ram),
            sum(folder[1] for folder in ram),
            sum(folder[0] for folder in disk),
            sum(folder[1] for folder in disk),
            newest_s or None,
            self._place.state,
        )

    def _tables_in(self, folder: str) -> list[str]:
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:
            return []
        if folder not in self._tables or self._tables[folder][0] != changed_ns:
            self._tables[folder] = (changed_ns, [name for name in streams_in(folder) if name not in TIERS_NS])
        return self._tables[folder][1]

    def _sum(self, folder: str) -> tuple[int, int, float]:
        try:
            changed_ns = os.stat(folder).st_mtime_ns
            if folder not in self._known or self._known[folder][0] != changed_ns:
                files = list(_statuses(folder))
                newest_ns = max((file.written_ns for file in files), default=0)
                total = len(files), sum(file.size_bytes for file in files), newest_ns / SECOND_NS
                self._known[folder] = (changed_ns, total)
            return self._known[folder][1]
        except (OSError, CorruptError):
            return 0, 0, 0.0


def _statuses(folder: str) -> Iterator[FileStatus]:
    for file in archive.files(folder):
        with suppress(FileNotFoundError, CorruptError):
            yield listing.look(f"{folder}/{file}")


def last_lines(path: str | None) -> list[str]:
    """The last messages of sysmond's parts."""
    if path is None:
        return []
    try:
        with open(path, "rb", buffering=0) as file:
            length = os.fstat(file.fileno()).st_size
            content = os.pread(file.fileno(), MESSAGE_BYTES_MAX, max(0, length - MESSAGE_BYTES_MAX))
    except OSError:
        return []
    return os.fsdecode(content).removesuffix("\n").split("\n")[-MESSAGES_MAX:] if content else []


class Screen:
    """The screen, kept current."""

    def __init__(self, place: Folders, messages: str | None, console: Console) -> None:
        """Follow the rings of these folders."""
        self._busiest = Busiest()
        self._follower = Follower(
            place, streams={PROCESS: self._busiest.take}, declared=partial(catalogue.answers_there, place.runtime)
        )
        self._stored = StoredFolders(place)
        self._messages = messages
        self._console = console
        self._keys = "q or Ctrl-C ends the recording" if messages else "q or Ctrl-C ends the view; recording goes on"
        self._scene = self._look()

    def _look(self) -> Scene:
        now = clock.relation()
        read = self._follower.read()
        return Scene(
            read,
            self._stored.look(),
            now.boottime_ns,
            now.realtime_ns / SECOND_NS,
            last_lines(self._messages),
            self._keys,
            tuple(self._busiest.first(BUSIEST_MAX)),
        )

    def renew(self) -> None:
        """Read what is new."""
        self._scene = self._look()

    def drawn(self) -> Group:
        """Lay out what is known for the terminal as it is now."""
        width, height = self._console.size
        signs = ASCII_SIGNS if self._console.options.ascii_only else SIGNS
        return stacked(frame(self._scene, width, height, signs))


def show(view: Screen, out: Console, woken: int) -> None:
    """Refresh after every tick and every change of size, until asked to end."""
    parent = os.getppid()
    with screen(out, view.drawn(), whole=True) as live:
        live.refresh()
        due_ns = _after_next_tick_ns()
        while os.getppid() == parent:
            wait_s = (due_ns - clock.boottime_ns()) / SECOND_NS
            ready, _, _ = select.select([sys.stdin, woken], [], [], max(0.0, wait_s))
            if sys.stdin in ready:
                keys = os.read(sys.stdin.fileno(), 64)
                if not keys or not _ENDING_KEYS.isdisjoint(keys):
                    return
            if woken in ready and not set(os.read(woken, 64)).isdisjoint(ENDING_SIGNALS):
                return
            if clock.boottime_ns() >= due_ns:
                view.renew()
                due_ns = _after_next_tick_ns()
            live.update(view.drawn(), refresh=True)


def _after_next_tick_ns() -> int:
    return (clock.boottime_ns() // SECOND_NS + 1) * SECOND_NS + AFTER_TICK_NS


@contextmanager
def keys_at_once() -> Iterator[None]:
    """Have the terminal give each key as it is pressed, Ctrl-C and Ctrl-Z too, and nothing echoed."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    settings = termios.tcgetattr(terminal)
    settings[3] &= ~(termios.ICANON | termios.ECHO)
    settings[6][termios.VMIN], settings[6][termios.VTIME] = 1, 0
    for key in (termios.VINTR, termios.VSUSP):
        settings[6][key] = b"\0"  # A key like any other: who started us must not be interrupted on its own.
    termios.tcsetattr(terminal, termios.TCSADRAIN, settings)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def wake_on_signals() -> int:
    """Make signals that end the view, and changes of the terminal's size, readable on a descriptor."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (*ENDING_SIGNALS, signal.SIGWINCH):
        signal.signal(number, lambda *_: None)
    return reading


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    made = argparse.ArgumentParser(prog="python -m sysmon_tools.live", description="Show what is being recorded.")
    made.add_argument("--user", action="store_true", help="the recorder of this user, not of the system")
    made.add_argument("--state-dir", metavar="D", help="where the archive is (default: /var/lib/sysmond)")
    made.add_argument(
        "--runtime-dir", metavar="D", help="folder in RAM, for data not yet on disk (default: /run/sysmond)"
    )
    made.add_argument("--messages", metavar="F", help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; the exit code is returned."""
    options = parser().parse_args(arguments)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say("the live view needs a terminal; 'sysmon-extract' writes to files and pipes", "")
        return 2
    for fixed in ("COLUMNS", "LINES"):
        os.environ.pop(fixed, None)  # What a shell exports at its start is not the size for ever.
    out = console()
    try:
        place = folders.asked(user=options.user, state_dir=options.state_dir, runtime_dir=options.runtime_dir)
        woken = wake_on_signals()
        with keys_at_once(), suppress(BrokenPipeError):
            show(Screen(place, options.messages, out), out, woken)
    except Error as failure:
        say(str(failure), "")
        return failure.exit_code
    except (OSError, termios.error):
        return Error.exit_code  # The terminal is gone: there is nobody to tell.
    return 0


if __name__ == "__main__":
    sys.exit(main())
