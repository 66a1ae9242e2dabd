# SPDX-License-Identifier: Apache-2.0
"""The program ``sysmon``, for people: what the machine does now, and what it did when it stuttered ten minutes ago."""

import argparse
import os
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sysmon_tools.output import abandon_standard_output
from sysmond import __version__
from sysmond.base import clock, timespec
from sysmond.base.terminal import put, say
from sysmond.errors import Error, UsageError
from sysmond.machine import recorders
from sysmond.machine.commandline import Parser

if TYPE_CHECKING:
    from sysmond.history import Archive
    from sysmond.machine.folders import Folders

PROGRAM = "sysmon"
DESCRIPTION = """Show what this machine is doing, and what it did at any moment that is recorded.

Without --at it is the live view of the running recorder; T there goes back in time."""
EPILOG = """examples:
  sysmon                              what happens now
  sysmon --at '10 minutes ago'        what happened then: it stuttered
  sysmon replay 14:05                 the same, as below has it
  sysmon --at yesterday --plain       one page, for a pipe or a mail

keys: Right Left (t T) later, earlier; + - zoom; s S next, previous spike; e E event; C M D sort; l live; q quit.

exit status: 0; 1 failure; 2 wrong usage; 77 no permission.
"""
REPLAY = "replay"
PLAIN_WIDTH, PLAIN_HEIGHT = 104, 45
FRAMES_MAX = 100_000


def parser() -> Parser:
    """Describe the command line; the help in the documentation is made of it."""
    made = Parser(
        PROGRAM,
        usage="%(prog)s [replay T | --at T] [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("words", nargs="*", metavar="replay T", help="the same as --at T")
    add("--at", "-r", metavar="T", help="look at that moment: '10 minutes ago', yesterday, 14:05, 2025-01-31 14:05")
    add("--plain", action="store_true", help="print a page instead of drawing on the terminal")
    add("--frames", type=int, metavar="N", help="so many pages, one a second (with --plain; default: 1)")
    add("--user", action="store_true", help="your own recorder (default: while it runs)")
    add("--system", action="store_true", help="the machine's recorder (default where you may read it)")
    add("--state-dir", metavar="D", help="where the archive is (default: /var/lib/sysmond)")
    add("--runtime-dir", metavar="D", help="where the daemon keeps what is in RAM (default: /run/sysmond)")
    add("--version", action="version", version=f"{PROGRAM} {__version__}", help="print the version and end")
    return made


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    :raises UsageError: naming what is wrong, and what would be right.
    """
    made = parser()
    options, rest = made.parse_known_args(argv)
    made.refuse_unknown(rest)
    if options.words:
        if options.words[0] != REPLAY or len(options.words) != 2:  # noqa: PLR2004  the word and the time
            raise UsageError(f"{' '.join(options.words)!r}: expected 'replay T', or --at T")
        if options.at is not None:
            raise UsageError("replay and --at: expected only one of them")
        options.at = options.words[1]
    if options.frames is not None and not 1 <= options.frames <= FRAMES_MAX:
        raise UsageError(f"--frames {options.frames}: expected 1 to {FRAMES_MAX}")
    options.at_ns = None if options.at is None else timespec.parse_moment(options.at, clock.relation())
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit code is returned."""
    try:
        return _run(read_arguments(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:
        abandon_standard_output()
        return 0
    except Error as problem:
        say(str(problem), PROGRAM)
        return problem.exit_code
    except (OSError, termios.error) as problem:
        say(str(problem), PROGRAM)
        return Error.exit_code


def _run(options: argparse.Namespace) -> int:
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not before the command line is right

    archive = history.open(
        state_dir=options.state_dir, runtime_dir=options.runtime_dir, user=options.user, system=options.system
    )
    is_drawn = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if options.plain or options.frames is not None or not is_drawn:
        if introduction := recorders.introduction(archive.place, system=options.system):
            say(introduction, PROGRAM)
        _print(archive, options)
        return 0
    _draw(archive, archive.place, options.at_ns)
    return 0


def _print(archive: "Archive", options: argparse.Namespace) -> None:
    """Pages as they are, one below the other."""
    from sysmon_tools import moment, moment_page, show  # noqa: PLC0415  as above
    from sysmon_tools.panel import ASCII_SIGNS, SIGNS  # noqa: PLC0415  as above

    is_ascii = show.console().options.ascii_only
    for number in range(options.frames or 1):
        if number:
            time.sleep(1.0)
            put("")
        now_ns = time.time_ns()
        view = moment.of_now(now_ns) if options.at_ns is None else moment.View(options.at_ns)
        shown = moment.look(archive, view, now_ns)
        lines = moment_page.page(shown, PLAIN_WIDTH, PLAIN_HEIGHT, ASCII_SIGNS if is_ascii else SIGNS)
        put(*(line.plain.rstrip() for line in lines))
        sys.stdout.flush()


def _draw(archive: "Archive", place: "Folders", at_ns: int | None) -> None:
    """Live view and replay by turns, until somebody has enough."""
    from sysmon_tools import live, moment, replay, show  # noqa: PLC0415  as above

    for fixed in ("COLUMNS", "LINES"):
        os.environ.pop(fixed, None)
    out = show.console()
    woken = live.wake_on_signals()
    with live.keys_at_once(), suppress(BrokenPipeError):
        while True:
            if at_ns is None:
                view = live.Screen(place, None, out, "T goes back in time  q quits; recording goes on")
                if not live.show(view, out, woken, leaves=b"Tt"):
                    return
                at_ns = moment.of_now(time.time_ns()).at_ns
            if not replay.Replay(archive, out, at_ns).show(woken):
                return
            at_ns = None


if __name__ == "__main__":
    sys.exit(main())
