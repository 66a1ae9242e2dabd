# SPDX-License-Identifier: Apache-2.0
"""The command line of ``sysmond``: its options, its commands, and what is wrong with a line, in one line."""

import argparse
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from sysmond import __version__
from sysmond.errors import UsageError, nearest
from sysmond.settings import NO_BUS, PARTS

RESOLVER = "resolver"
KILLS_MAX = 10_000
# argparse words this differently from one Python to the next, but the wrong word is always quoted first.
_WRONG_COMMAND = re.compile(r"argument COMMAND: invalid choice: '(.*?)'")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with what comes nearest. What begins with ``-`` and a digit is a time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  as argparse has them
        super().__init__(*arguments, **options)
        self._negative_number_matcher = re.compile(r"^-\d")

    def error(self, message: str) -> NoReturn:
        """:raises UsageError: always."""
        for word in message.split():
            if message.startswith("unrecognized arguments:") and word.startswith("-"):
                option = word.partition("=")[0]
                raise UsageError(f"unknown option {option!r}{nearest(option, self._option_string_actions)}")
        if match := _WRONG_COMMAND.match(message):
            commands = [name for name, _ in subparsers(self)]
            raise UsageError(f"no such command {match[1]!r}{nearest(match[1], commands)}; {', '.join(commands)} are")
        raise UsageError(message)


def parser() -> Parser:
    """Describe the command line."""
    made = Parser(
        prog="sysmond",
        allow_abbrev=False,
        description="Record what this machine does, once a second, until told to stop. With a command: do that.",
        epilog="Exit codes: 0 ended in order; 1 failure; 2 wrong usage or configuration; 77 no permission.",
    )
    made.add_argument("--config", metavar="FILE", help="read this configuration instead of all others")
    _add_folders(made, default=None)
    made.add_argument("--root", metavar="R", default="/", help="let probes read R/proc and R/sys")
    made.add_argument(
        "--bus", metavar="BUS", default=NO_BUS, help="be found on this bus: none, system, session or an address"
    )
    made.add_argument("--ticks", metavar="N", type=_ticks, help="end after N ticks, everything flushed")
    made.add_argument("--part", metavar="NAME", help=f"be one part only: {', '.join((RESOLVER, *PARTS))}")
    made.add_argument("--version", action="version", version=f"sysmond {__version__}")
    _add_commands(made.add_subparsers(dest="command", metavar="COMMAND", help="what to do instead of recording"))
    return made


def subparsers(made: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands of a parser, by name."""
    for action in made._actions:  # noqa: SLF001  argparse offers no other list of what it was told
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  as above
            yield from action.choices.items()


def _add_folders(made: argparse.ArgumentParser, default: str | None) -> None:
    """Options that every command knows; before the command they mean the same."""
    personal = default if default is not None else False
    made.add_argument("--user", action="store_true", default=personal, help="use the XDG folders, for root too")
    for option, help_text in (
        ("--state-dir", "where the archive lies (default: /var/lib/sysmond)"),
        ("--runtime-dir", "where the part in RAM lies (default: /run/sysmond)"),
    ):
        made.add_argument(option, metavar="D", default=default, help=help_text)


def _add_commands(commands: "argparse._SubParsersAction[Parser]") -> None:
    def command(name: str, says: str) -> Parser:
        made = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.", allow_abbrev=False)
        _add_folders(made, default=argparse.SUPPRESS)
        return made

    command("mark", "put a marker into the recording").add_argument(
        "text", metavar="TEXT", nargs="+", help="what to remember this moment by"
    )
    command("flush", "have all that is in RAM written to the disk now")
    command("reload", "have the configuration read again, without losing a tick; a wrong one changes nothing")
    pin = command("pin", "keep a span of time as it was recorded, whatever else has to go")
    pin.add_argument("start", metavar="FROM", help="its first moment, spelled as for sysmon-extract")
    pin.add_argument("end", metavar="TO", help="up to this moment, which is excluded")
    pin.add_argument("--why", metavar="TEXT", default="", help="what happened then")
    unpin = command("unpin", "release what is pinned")
    unpin.add_argument("at", metavar="T", nargs="?", help="a moment: what is pinned around it")
    unpin.add_argument("--all", action="store_true", help="everything")
    pins = command("pins", "list what is pinned")
    pins.add_argument("--json", action="store_true", help="as one JSON list")
    budget = command("budget", "say how many days each tier will keep, from what the archive takes now")
    by_these = "by the limits of this configuration, before it holds"
    budget.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=by_these)
    budget.add_argument("--json", action="store_true", help="as one JSON object")
    fsck = command("fsck", "read every file of the archive, and name what is damaged")
    fsck.add_argument("--repair", action="store_true", help="move it aside, and write what can be read of it anew")
    fsck.add_argument("--json", action="store_true", help="as one JSON object")
    selftest = command("selftest", "kill a daemon of its own, damage copies of its files, and count what is lost")
    selftest.add_argument("--kill", metavar="N", type=_kills, default=10, help="so many kills (default: %(default)s)")
    selftest.add_argument("--json", action="store_true", help="as one JSON object")


def _ticks(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ticks; 1 or more is right")
    return int(text)


def _kills(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= KILLS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of kills; 1 to {KILLS_MAX} is right")
    return int(text)
