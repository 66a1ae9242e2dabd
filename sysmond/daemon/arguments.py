# SPDX-License-Identifier: Apache-2.0
"""The command line of ``sysmond``: its options and commands, and errors in one line."""

import argparse

from sysmond import __version__
from sysmond.machine.commandline import Parser, add_remembering
from sysmond.plan.settings import NO_BUS, ONESHOTS, PARTS

RESOLVER, LOADER = "resolver", "loader"
ALONE = (RESOLVER, LOADER, *PARTS, *ONESHOTS)
"""What can be run by itself."""
KILLS_MAX = 10_000


def parser() -> Parser:
    """Describe the command line."""
    made = Parser(
        prog="sysmond",
        allow_abbrev=False,
        description="Record what this machine does, once a second, until told to stop. With a command: do that.",
        epilog="A command with --state-dir alone asks the recorder that writes to that folder, and no other. "
        "Exit codes: 0 ended in order; 1 failure, also where a folder is none; 2 wrong usage or configuration; "
        "77 no permission.",
    )
    made.add_argument("--config", metavar="FILE", help="read this configuration instead of all others")
    _add_folders(made, default=None)
    made.add_argument("--root", metavar="R", default="/", help="let probes read R/proc and R/sys")
    made.add_argument(
        "--bus", metavar="BUS", default=NO_BUS, help="be found on this bus: none, system, session or an address"
    )
    made.add_argument("--ticks", metavar="N", type=_ticks, help="end after N ticks, everything flushed")
    made.add_argument("--part", metavar="NAME", help=f"be one part only: {', '.join(ALONE)}")
    made.add_argument("--version", action="version", version=f"sysmond {__version__}")
    _add_commands(made.add_subparsers(dest="command", metavar="COMMAND", help="what to do instead of recording"))
    return made


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

    command("flush", "have all that is in RAM written to the disk now")
    command("reload", "have the configuration read again, without losing a tick; a wrong one changes nothing")
    add_remembering(command)
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
    probe = command("probe", "read a probe twice, without recording, and show what it gives; for authors of probes")
    probe.add_argument("probe", metavar="NAME|FILE", help="the name of a table, or a file with a probe")
    probe.add_argument("--root", metavar="R", default=argparse.SUPPRESS, help="read R/proc and R/sys (default: /)")
    service = command(
        "service", "install the machine's service for this interpreter, or remove it; for who has no package"
    )
    service.add_argument("do", metavar="DO", choices=("install", "uninstall"), help="install or uninstall")


def _ticks(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ticks; expected 1 or more")
    return int(text)


def _kills(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= KILLS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of kills; expected 1 to {KILLS_MAX}")
    return int(text)
