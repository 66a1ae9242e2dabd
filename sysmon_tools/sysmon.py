# SPDX-License-Identifier: Apache-2.0
"""The program ``sysmon``, for people: what the machine does now, and what it did when it stuttered ten minutes ago."""

import argparse
import gc
import importlib
import os
import shlex
import sys
import termios
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sysmon_tools.output import abandon_standard_output, described
from sysmond import __version__
from sysmond.base import clock, timespec
from sysmond.base.terminal import put, say
from sysmond.errors import EXIT_PARTIAL, Error, NotPermittedError, UsageError
from sysmond.machine import recorders
from sysmond.machine.commandline import Parser
from sysmond.machine.lock import elsewhere

if TYPE_CHECKING:
    from sysmon_tools.moment import View
    from sysmond.history import Archive

PROGRAM = "sysmon"
NOBODY_RECORDS = "no recorder runs: this is the last that was recorded; 'sysmond' starts one"
DESCRIPTION = """Show what this machine is doing now, or what it did at any recorded moment.

Without --at or a COMMAND, show what is happening now; T goes back in time, ? lists the keys."""
EPILOG = """examples:
  sysmon                              what is happening now
  sysmon --at '10 minutes ago'        what happened when the machine stuttered
  sysmon replay 14:05                 the same as --at 14:05; spelled as in the tool 'below'
  sysmon --at yesterday --plain       one page, for a pipe or an email
  sysmon plot cpu/busy@total          a picture of the last hour
  sysmon plot disk/await --from=-1d -o disk.svg
  sysmon report --at 14:05 -o incident.html
  sysmon snapshot --from=14:00 --to=14:10 -o incident.sysmon
  sysmon bootchart -b -1 -o boot.html
  sysmon compare 'yesterday 14:00..15:00' 'today 14:00..15:00'
  sysmon changes --from=-7d           packages, unit files, boots and settings of a week

keys: Right Left (t T) later, earlier; + - zoom; ] [ next, previous spike; p processes, c cgroups, w waits, d disks,
  n networks, h sensors, e events; / search, f filter, Enter: into a row, Space: back to now; ? all keys; q quit.

exit status: 0 success; 1 failure; 2 wrong usage; 3 something could not be read; 77 no permission.
"""
REPLAY, DUMP = "replay", "dump"
# Each is a module of its name, which describes its options; only where one is called it is imported.
COMMANDS = {
    "plot": "draw series over a range of time",
    "compare": "put two spans of time side by side, the largest differences first",
    "report": "write what happened around a moment as a page for a browser",
    "snapshot": "write what was recorded in a span of time into one file, to send or to keep",
    DUMP: "like sysmon-extract, but takes the options of 'below dump' (below is another monitor)",
    "boots": "list the recorded boots: how long starting up took, and how each ended",
    "bootchart": "draw the first minutes of a boot: units and processes as bars over time",
    "changes": "tell what changed between two moments: packages, boots, settings",
}
PLAIN_WIDTH, PLAIN_HEIGHT = 104, 45
FRAMES_MAX = 100_000


def parser(words: Sequence[str] | None = None) -> Parser:
    """Describe the command line; the help in the documentation is made of it.

    ``words``: what it is for; where these have no command, none is given its options.
    """
    made = Parser(
        PROGRAM,
        usage="%(prog)s [--at T] [options] | %(prog)s COMMAND ...",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--at", "-r", metavar="T", help="show this moment: '10 minutes ago', yesterday, 14:05, 2025-01-31 14:05")
    _add_pages(made)
    _add_place(made, is_default=True)
    add("--version", action="version", version=f"{PROGRAM} {__version__}", help="print the version and exit")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", prog=PROGRAM, parser_class=Parser)

    def command(name: str, says: str) -> Parser:
        sub: Parser = commands.add_parser(
            name, help=says, description=f"{says[0].upper()}{says[1:]}.", allow_abbrev=False
        )
        _add_place(sub, is_default=False)
        return sub

    again = command(REPLAY, "show a moment, as --at does")
    again.add_argument("at", metavar="T", help="the moment to show")
    _add_pages(again)
    has_options = words is None or _may_be_of_commands(made, words)
    for name, says in COMMANDS.items():
        sub = command(name, says)
        if has_options:
            _module(name).add_options(sub)
    return made


def _may_be_of_commands(made: Parser, words: Sequence[str]) -> bool:
    """Whether a command is among these words, or an option that is none of the program's own."""
    own = made.own_options()
    return any(word in COMMANDS or (word[:1] == "-" and word.partition("=")[0] not in own) for word in words)


def _module(command: str) -> Any:  # noqa: ANN401  a module: mypy knows no other type of what one has
    return importlib.import_module(f"sysmon_tools.{command}")


def _add_pages(made: Parser) -> None:
    add = made.add_argument
    add("--plain", action="store_true", help="print a page instead of drawing on the terminal")
    add("--frames", type=int, metavar="N", help="number of pages, one a second (with --plain; default: 1)")


def _add_place(made: Parser, *, is_default: bool) -> None:
    """Whose archive: before a command and behind it these mean the same."""
    flag, text = (False, None) if is_default else (argparse.SUPPRESS, argparse.SUPPRESS)
    add = made.add_argument
    add("--user", action="store_true", default=flag, help="your own recorder (the default while it runs)")
    add(
        "--system",
        action="store_true",
        default=flag,
        help="the machine's recorder (the default if you run none)",
    )
    add("--state-dir", metavar="D", default=text, help="where the archive is (default: /var/lib/sysmond)")
    add(
        "--runtime-dir",
        metavar="D",
        default=text,
        help="folder in RAM, for data not yet on disk (default: /run/sysmond)",
    )


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    :raises UsageError: naming what is wrong, and what would be right.
    """
    made = parser(argv)
    made.refuse_misspelled(argv)
    options = made.parse_args(argv)
    if options.command not in {None, REPLAY}:
        return options
    if options.frames is not None and not 1 <= options.frames <= FRAMES_MAX:
        raise UsageError(f"--frames {options.frames}: expected 1 to {FRAMES_MAX}")
    options.at_ns = None if options.at is None else timespec.parse_moment(options.at, clock.relation())
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit code is returned."""
    try:
        options = read_arguments(sys.argv[1:] if argv is None else argv)
        return _dump(options) if options.command == DUMP else _run(options)
    except BrokenPipeError:
        abandon_standard_output()
        return 0
    except Error as problem:
        say(str(problem), PROGRAM)
        return problem.exit_code
    except (OSError, termios.error) as problem:
        say(described(problem) if isinstance(problem, OSError) else str(problem), PROGRAM)
        return Error.exit_code


def _dump(options: argparse.Namespace) -> int:
    """Have sysmon-extract answer what was asked in below's words."""
    words, remarks = _module(DUMP).words(options)
    place = {"--state-dir": options.state_dir, "--runtime-dir": options.runtime_dir}
    words += [f"{option}={folder}" for option, folder in place.items() if folder is not None]
    words += [option for option, is_meant in (("--user", options.user), ("--system", options.system)) if is_meant]
    for remark in remarks:
        say(remark, PROGRAM)
    if options.show:
        put(shlex.join(["sysmon-extract", *words]))
        return 0
    from sysmon_tools import extract  # noqa: PLC0415  as below

    return extract.main(words)


def _is_drawn(options: argparse.Namespace) -> bool:
    """Whether there is a terminal to draw the screen on, and nothing else is asked for."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return is_terminal and options.command not in COMMANDS and not options.plain and options.frames is None


def _run(options: argparse.Namespace) -> int:
    is_drawn = _is_drawn(options)
    if is_drawn:  # What is imported stays, and to look for garbage in it took a tenth of starting: ``heap`` does later.
        gc.disable()
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not before the command line is right

    is_named = options.user or options.system or (options.state_dir, options.runtime_dir) != (None, None)
    is_sampling = is_drawn and options.at_ns is None and not is_named
    try:
        archive = history.open(
            state_dir=options.state_dir, runtime_dir=options.runtime_dir, user=options.user, system=options.system
        )
        said = elsewhere(archive.place)
        if (is_sampling or said) and not archive.boots():
            raise Error(f"{archive.state_dir}: nothing recorded yet{said}")
    except NotPermittedError:
        raise
    except Error:
        if not is_sampling:
            raise
        _sample(options)
        return 0
    if options.at is not None and options.command not in COMMANDS:  # In a snapshot, now is its end.
        options.at_ns = timespec.parse_moment(options.at, archive.now())
    if options.command in COMMANDS:
        return _tell(_module(options.command).run(archive, options))
    introduction = recorders.introduction(archive.place, system=options.system)
    if is_drawn:
        _draw(archive, options, introduction)
        return 0
    if introduction:
        say(introduction, PROGRAM)
    _print(archive, options)
    return 0


def _tell(warnings: Sequence[str]) -> int:
    """Say what could not be read, and give the exit code."""
    for warning in warnings:
        say(f"warning: {warning}", PROGRAM)
    return EXIT_PARTIAL if warnings else 0


def _print(archive: "Archive", options: argparse.Namespace) -> None:
    """Pages as they are, one below the other."""
    from sysmon_tools import moment, moment_page, show  # noqa: PLC0415  as above
    from sysmon_tools.signs import ASCII_SIGNS, SIGNS  # noqa: PLC0415  as above

    is_ascii = show.console().options.ascii_only
    begin, remark = _beginning(archive, options)
    if remark:
        say(remark, PROGRAM)
    for number in range(options.frames or 1):
        if number:
            time.sleep(1.0)
            put("")
        now_ns = archive.now().realtime_ns
        shown = moment.look(archive, begin or moment.of_now(now_ns), now_ns)
        signs = ASCII_SIGNS if is_ascii else SIGNS
        lines = moment_page.page(shown, PLAIN_WIDTH, PLAIN_HEIGHT, signs, is_live=begin is None)
        put(*(line.plain.rstrip() for line in lines))
        sys.stdout.flush()


def _beginning(archive: "Archive", options: argparse.Namespace) -> "tuple[View | None, str]":
    """The moment to begin with, None for now, and what is to be said of it: where nobody records it is the last one."""
    from sysmon_tools.moment import NOW_BACK_NS, View, last_view  # noqa: PLC0415  as above

    if options.at_ns is not None:
        return View(options.at_ns), ""
    if last := last_view(archive):
        return last, ""
    said = elsewhere(archive.place).removeprefix("; ")
    is_live = not said and recorders.is_recording(archive.place)
    if is_live or (last_ns := archive.last_ns()) is None:
        return None, ""
    return View(last_ns - NOW_BACK_NS), said or NOBODY_RECORDS


def _sample(options: argparse.Namespace) -> None:
    """The screen of what it samples itself, as long as it is open: nobody has recorded anything yet."""
    from sysmon_tools.screen.own_recorder import INTRODUCTION, OwnRecorder  # noqa: PLC0415  as above
    from sysmond.history import Archive  # noqa: PLC0415  as above

    with OwnRecorder() as own:
        options.state_dir, options.runtime_dir = own.place
        _draw(Archive(own.place), options, INTRODUCTION)


def _draw(archive: "Archive", options: argparse.Namespace, introduction: str) -> None:
    """The screen, until somebody has enough."""
    from sysmon_tools.screen import look, preferences  # noqa: PLC0415  as above
    from sysmon_tools.screen.app import SysmonApp  # noqa: PLC0415  as above
    from sysmond.store.holdings import staying_open  # noqa: PLC0415  as above

    for fixed in ("COLUMNS", "LINES"):
        os.environ.pop(fixed, None)
    view, remark = _beginning(archive, options)
    begin = look.live(time.time_ns()) if view is None else look.Look(view)
    introduction = remark or introduction
    try:
        preferred = preferences.read(preferences.place(os.environ))
    except Error as problem:
        preferred, introduction = preferences.default(), str(problem)
    where = argparse.Namespace(**{**vars(options), "bus": None})
    end_ns = archive.now().realtime_ns
    now = (lambda: end_ns) if archive.is_snapshot else time.time_ns
    with staying_open():
        SysmonApp(archive, begin, where, introduction, now, preferred).run()


if __name__ == "__main__":
    sys.exit(main())
