# SPDX-License-Identifier: Apache-2.0
"""sysmonctl: sees and steers a running sysmond, over D-Bus or, where it is on no bus, directly."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from sysmond import __version__
from sysmond.base.terminal import put, say
from sysmond.errors import Error
from sysmond.machine.commandline import Parser, add_remembering

if TYPE_CHECKING:
    from sysmon_tools.command_output import CommandOutput

PROGRAM = "sysmonctl"
PROBE = "probe"
HOLD = "hold"
# Commands about a probe, before whose name the word may stand.
_OF_PROBES = frozenset({"enable", "disable", "reset"})
_WITH_VALUE = frozenset({"--bus", "--runtime-dir", "--state-dir"})
# What a recorder that is on no bus tells by its files alone: no event loop is needed to read them.
_LOOKS = frozenset({"status", "show", "config", "overhead"})
_LOOKS_LISTED = frozenset({"probes", "tables"})
LISTS = ("probes", "tables", "metrics", "clients", "boots", "pins")

EPILOG = """\
'sysmonctl COMMAND --help' shows the arguments of a command. There, NAME is a probe (see
'sysmonctl list probes') and T is a time, such as '10 minutes ago' or 14:05; 'sysmon-extract --help'
lists all forms of T.

exit status: 0 done; 1 failure, or no recorder is running; 2 wrong usage; 77 no permission.
"""


HOLD_EPILOG = """\
examples:
  sysmonctl hold --interval 30s --why 'on battery'
  sysmonctl hold process cgroup --interval 10s -- make -j8
  sysmonctl hold disk --interval 100ms -- dd if=/dev/zero of=file bs=1M count=1000
  sysmonctl hold --no-flush -- ./measure

The hold lasts while COMMAND runs, or without a COMMAND until Ctrl-C, and never longer than this program.

exit status: COMMAND's own; 126 COMMAND cannot be started; 127 COMMAND is not found; 128 + N signal N ended COMMAND.
"""


def parser() -> Parser:
    """Describe the command line; documentation, completion and manual are made of it."""
    made = Parser(
        PROGRAM,
        description="Ask a running sysmond how it is doing, and change what it does.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_common(made, default=None)
    made.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}", help="print the version")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def command(name: str, says: str) -> Parser:
        sub: Parser = commands.add_parser(
            name, help=says, description=f"{says[0].upper()}{says[1:]}.", allow_abbrev=False
        )
        _add_common(sub, default=argparse.SUPPRESS)
        return sub

    command("status", "show how the recorder is doing")
    command("list", "list probes, tables, metrics, clients, boots or pins").add_argument(
        "what", metavar="WHAT", choices=LISTS, help=f"{', '.join(LISTS)}"
    )
    for name, says in (
        ("enable", "let a probe record, now and after every restart"),
        ("disable", "stop a probe from recording, now and after every restart"),
    ):
        _add_probe(command(name, says))
    settable = command("set", "change a setting, now and after every restart")
    settable.add_argument(
        "words",
        metavar="KEY VALUE",
        nargs="+",
        help="a key that 'config' shows, and its value: 'tiers.1s.size 1GB'; for a probe also 'memory interval 5s', "
        "'process sensitivity restricted'; the value 'default' restores the default",
    )
    _add_probe(command("reset", "let a probe run as planned again, after it failed or was too slow"))
    command("show", "show everything about a probe").add_argument("name", metavar="NAME", help="the probe's table")
    command("flush", "write everything that is in RAM to disk now")
    command("reload", "read the configuration again")
    shown = command("config", "show every setting, and where it is set")
    shown.add_argument("--changed", action="store_true", help="only settings that a file changes, without the defaults")
    command("budget", "say how many days will be kept at each resolution")
    add_remembering(command)
    events = command("events", "list what happened, or follow it as it happens")
    events.add_argument("--from", "--since", dest="start", metavar="T", help="first moment (default: 1 hour ago)")
    events.add_argument("--to", "--until", dest="end", metavar="T", help="up to this moment (default: now)")
    events.add_argument(
        "--follow",
        action="store_true",
        help="show new events until interrupted or sysmond ends; with --from, begin with past events",
    )
    command("overhead", "say what sysmond itself costs, by part and by probe")
    command("doctor", "say which sources this machine has, and how to get the others")
    report = command(
        "report-bug", "collect information for a bug report, without private data, and list what was collected"
    )
    report.add_argument("--output-file", "-o", metavar="FILE", help="write the report to this file, a .tar.gz")
    complete = command("complete", "print possible completions, one per line; for shells")
    complete.add_argument("kind", metavar="KIND", choices=("probes", "paths"), help="probes or paths")
    complete.add_argument("word", metavar="WORD", nargs="?", default="", help="the word as typed so far")
    watch = command("watch", "show the newest values, every second")
    watch.add_argument("paths", metavar="METRIC", nargs="+", help="table[/metric][@instance], with * and ?")
    watch.add_argument("--count", metavar="N", type=_count, help="stop after N times")
    _add_hold(command(HOLD, "while a command runs, read probes at another interval, or write nothing to disk"))
    _add_freezing(command)
    return made


def _add_freezing(command: Callable[[str, str], Parser]) -> None:
    frozen = command("freeze", "freeze a systemd unit for a while, after setting a timer that will thaw it")
    frozen.add_argument(
        "--for", dest="duration", metavar="D", default="2min", help="for how long, at most 10min (default: 2min)"
    )
    for sub in (frozen, command("thaw", "thaw a frozen unit")):
        sub.add_argument(
            "unit",
            metavar="UNIT",
            help="a unit (with --user, one of your own systemd), or the path of a control group that is not a unit",
        )


def _add_hold(made: argparse.ArgumentParser) -> None:
    made.usage = "%(prog)s [NAME ...] [--interval D] [--no-flush] [--why TEXT] [-- COMMAND ...]"
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.epilog = HOLD_EPILOG
    made.add_argument(
        "names", metavar="NAME", nargs="*", help="the tables of probes (default: all that are read more often)"
    )
    made.add_argument(
        "--interval", metavar="D", help="how often to read them: less often than now (1s to 60s), or more often"
    )
    made.add_argument("--no-flush", action="store_true", help="write nothing to disk, unless memory is full")
    made.add_argument("--why", metavar="TEXT", help="the reason that the gap gives (default: the command)")
    made.set_defaults(run=[])


def _add_common(made: argparse.ArgumentParser, default: str | None) -> None:
    flag = default if default is not None else False
    made.add_argument("--bus", metavar="ADDRESS", default=default, help="ask over the bus at this address")
    made.add_argument("--user", action="store_true", default=flag, help="your own recorder (the default while it runs)")
    made.add_argument(
        "--system",
        action="store_true",
        default=flag,
        help="the machine's recorder (the default if you run none)",
    )
    made.add_argument("--runtime-dir", metavar="D", default=default, help="the recorder with this runtime folder")
    made.add_argument("--state-dir", metavar="D", default=default, help="the recorder that writes to this archive")
    made.add_argument("--json", action="store_true", default=flag, help="print JSON")


def _add_probe(made: argparse.ArgumentParser) -> None:
    made.add_argument("kind", metavar=PROBE, choices=(PROBE,), help=f"the word '{PROBE}', which you may leave out")
    made.add_argument("name", metavar="NAME", help="the probe's table")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of times; expected 1 or more")
    return int(text)


def with_kind(words: Sequence[str]) -> list[str]:
    """Add the word ``probe`` where only a probe can be meant, and it was left out."""
    at = next((at for at, word in enumerate(words) if word in _OF_PROBES), None)
    if at is None:
        return list(words)
    rest = words[at + 1 :]
    values = {place + 1 for place, word in enumerate(rest) if word in _WITH_VALUE}
    named = [word for place, word in enumerate(rest) if place not in values and not word.startswith("-")]
    is_left_out = len(named) == 1 and named[0] == rest[0]
    return [*words[: at + 1], *([PROBE] if is_left_out else []), *rest]


def with_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off the command that ``hold`` runs: all behind the first ``--``."""
    own = list(takewhile(lambda word: word != "--", words))
    values = {place + 1 for place, word in enumerate(own) if word in _WITH_VALUE}
    named = [word for place, word in enumerate(own) if place not in values and not word.startswith("-")]
    return (own, list(words[len(own) + 1 :])) if named[:1] == [HOLD] else (list(words), [])


def _complete(options: argparse.Namespace) -> int:
    from sysmon_tools.complete import offer  # noqa: PLC0415  as below; this one needs none of that

    put(*offer(options.kind, options.word, user=options.user))
    return 0


def _run(options: argparse.Namespace) -> int:
    output = _looked(options) if _only_looks(options) else None
    if output is None:
        import asyncio  # noqa: PLC0415  as below

        output = asyncio.run(_answer(options))
    if output is None:
        return 0
    if isinstance(output, int):
        return output
    if options.json:
        put(json.dumps(output.document))
    else:
        output.show()
    return output.code


def _only_looks(options: argparse.Namespace) -> bool:
    """Whether files of the recorder have all that is asked for, so that nobody is waited for."""
    return options.command in _LOOKS or (options.command == "list" and options.what in _LOOKS_LISTED)


def _looked(options: argparse.Namespace) -> "CommandOutput | int | None":
    """The answer without an event loop; None where a bus may have the recorder."""
    from sysmon_tools.commands import COMMANDS  # noqa: PLC0415  as below
    from sysmon_tools.connecting import at_hand, finished  # noqa: PLC0415  as below

    client = at_hand(options)
    return None if client is None else finished(COMMANDS[options.command](client, options))


async def _answer(options: argparse.Namespace) -> "CommandOutput | int | None":
    from sysmon_tools.commands import COMMANDS  # noqa: PLC0415  as above
    from sysmon_tools.connecting import connect  # noqa: PLC0415  what speaks to the bus: not for a wrong option

    if options.command == "report-bug":  # That the recorder does not answer may be the bug.
        from sysmon_tools.bug_report import report_bug  # noqa: PLC0415  seldom asked for

        return await report_bug(options)
    if options.command in {"freeze", "thaw"}:  # No recorder is needed.
        from sysmon_tools.freezing import run  # noqa: PLC0415  as above

        return await run(options)
    async with connect(options) as client:
        return await COMMANDS[options.command](client, options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; give its exit code."""
    try:
        words, command = with_command(sys.argv[1:] if arguments is None else arguments)
        options = parser().parse_args(with_kind(words))
        if command:
            options.run = command
        code = _complete(options) if options.command == "complete" else _run(options)
        sys.stdout.flush()
    except Error as wrong:
        say(str(wrong), PROGRAM)
        return wrong.exit_code
    except BrokenPipeError:  # Who read has read enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as failure:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Nothing more is tried when the interpreter ends.
        say(f"not written: {failure.strerror or failure}", PROGRAM)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
