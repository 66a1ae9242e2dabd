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
        description="Record what this machine does, once a second, until stopped. With a COMMAND, do that instead.",
        epilog="If --state-dir is given without --runtime-dir, a command reaches a running recorder only if "
        "that recorder writes to the given folder. "
        "Exit codes: 0 success; 1 failure, including a path that is not a folder; 2 wrong usage or configuration; "
        "77 no permission.",
    )
    made.without_command = "; 'sysmond' alone records, 'sysmonctl' asks a recorder"
    made.add_argument("--config", metavar="FILE", help="read only this configuration file")
    _add_folders(made, default=None)
    made.add_argument("--root", metavar="R", default="/", help="let probes read R/proc and R/sys instead")
    made.add_argument(
        "--bus",
        metavar="BUS",
        default=NO_BUS,
        help="the D-Bus bus to offer the service on: none, system, session or an address",
    )
    made.add_argument("--ticks", metavar="N", type=_ticks, help="stop after N readings, once everything is on disk")
    made.add_argument("--part", metavar="NAME", help=f"run only this part: {', '.join(ALONE)}")
    made.add_argument("--version", action="version", version=f"sysmond {__version__}")
    _add_commands(made.add_subparsers(dest="command", metavar="COMMAND", help="what to do instead of recording"))
    return made


def _add_folders(made: argparse.ArgumentParser, default: str | None) -> None:
    """Options that every command knows; before the command they mean the same."""
    personal = default if default is not None else False
    made.add_argument(
        "--user", action="store_true", default=personal, help="use this user's own folders (XDG), even for root"
    )
    for option, help_text in (
        ("--state-dir", "where the archive is (default: /var/lib/sysmond)"),
        ("--runtime-dir", "folder in RAM, for data not yet on disk (default: /run/sysmond)"),
    ):
        made.add_argument(option, metavar="D", default=default, help=help_text)


def _add_commands(commands: "argparse._SubParsersAction[Parser]") -> None:
    def command(name: str, says: str) -> Parser:
        made = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.", allow_abbrev=False)
        _add_folders(made, default=argparse.SUPPRESS)
        return made

    command("flush", "write everything that is in RAM to disk now")
    command("reload", "read the configuration again, without missing a reading; if it is invalid, nothing changes")
    add_remembering(command)
    pins = command("pins", "list what is pinned")
    pins.add_argument("--json", action="store_true", help="as one JSON list")
    budget = command(
        "budget", "say how many days will be kept at each resolution, judging by the archive's present size"
    )
    by_these = "use the limits in this configuration, which need not be in effect"
    budget.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=by_these)
    budget.add_argument("--json", action="store_true", help="as one JSON object")
    fsck = command("fsck", "read every file of the archive, and name the damaged ones")
    fsck.add_argument(
        "--repair", action="store_true", help="move damaged files aside, and rewrite what can still be read"
    )
    fsck.add_argument("--json", action="store_true", help="as one JSON object")
    selftest = command("selftest", "start a test daemon, kill it, damage copies of its files, and count what is lost")
    selftest.add_argument(
        "--kill", metavar="N", type=_kills, default=10, help="how many times to kill it (default: %(default)s)"
    )
    selftest.add_argument("--json", action="store_true", help="as one JSON object")
    probe = command("probe", "read a probe twice without recording, and show what it returns; for authors of probes")
    probe.add_argument("probe", metavar="NAME|FILE", help="the name of a table, or a file that contains a probe")
    probe.add_argument("--root", metavar="R", default=argparse.SUPPRESS, help="read R/proc and R/sys (default: /)")
    service = command(
        "service",
        "install or remove a system service that runs this copy of sysmond, if the Debian package is not installed",
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
