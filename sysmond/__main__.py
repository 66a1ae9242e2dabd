# SPDX-License-Identifier: Apache-2.0
"""The program ``sysmond``: reads its command line, has the plan resolved, and becomes the daemon.

Reading arguments and resolving plugins needs modules that the daemon must not carry in locked memory:
the plan is made by a child (``sysmond.resolver``), and this process then replaces itself by
``sysmond.runner``.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from sysmond import __version__, folders
from sysmond.errors import EXIT_PARTIAL, Error, UsageError, nearest
from sysmond.lock import only_one
from sysmond.settings import PARTS, Settings

BUSES = ("none", "system", "session")
RESOLVER = "resolver"
# Two that start at once look at the locks for a moment; one that ends is waited for.
START_WAIT_S = 0.2
LOCK_WAIT_S = 5.0
# Asked to stop while it starts, the daemon ends in order: these wait until somebody looks.
STOP_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT))


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; a wrong option with those that come nearest."""

    def error(self, message: str) -> NoReturn:
        """:raises UsageError: always."""
        for word in message.split():
            if message.startswith("unrecognized arguments:") and word.startswith("-"):
                option = word.partition("=")[0]
                raise UsageError(f"unknown option {option!r}{nearest(option, self._option_string_actions)}")
        raise UsageError(message)


def parser() -> Parser:
    """Describe the command line."""
    made = Parser(
        prog="sysmond",
        allow_abbrev=False,
        description="Record what this machine does, once a second, until told to stop.",
        epilog="Exit codes: 0 ended in order; 1 failure; 2 wrong usage or configuration; 77 no permission.",
    )
    made.add_argument("--config", metavar="FILE", help="read this configuration instead of all others")
    made.add_argument("--user", action="store_true", help="use the XDG folders, for root too")
    made.add_argument("--state-dir", metavar="D", help="where the archive lies (default: /var/lib/sysmond)")
    made.add_argument("--runtime-dir", metavar="D", help="where the part in RAM lies (default: /run/sysmond)")
    made.add_argument("--root", metavar="R", default="/", help="let probes read R/proc and R/sys")
    made.add_argument("--bus", metavar="BUS", default="none", help="none, system, session or an address")
    made.add_argument("--ticks", metavar="N", type=_ticks, help="end after N ticks, everything flushed")
    made.add_argument("--part", metavar="NAME", help=f"be one part only: {', '.join((RESOLVER, *PARTS))}")
    made.add_argument("--version", action="version", version=f"sysmond {__version__}")
    return made


def _ticks(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ticks; 1 or more is right")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; give its exit code."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {*STOP_SIGNALS, signal.SIGCHLD})
        return _start(parser().parse_args(arguments))
    except Error as wrong:
        _say(str(wrong))
        return wrong.exit_code


def _start(options: argparse.Namespace) -> int:
    """Resolve the plan and become the daemon or a part; returns only where that is not to be."""
    _check(options)
    settings = Settings(
        folders.choose(
            user=options.user,
            state_dir=options.state_dir,
            runtime_dir=options.runtime_dir,
            environ=os.environ,
            uid=os.geteuid(),
        ),
        os.path.abspath(options.root),
        options.ticks,
        options.user,
        options.config,
    )
    if options.part is None:
        _make_way(settings)
    if options.part in {None, RESOLVER}:
        code = _resolve(settings)
        if code is None:
            return 0
        if code or options.part == RESOLVER:
            return code
    if not folders.is_volatile(settings.folders.runtime):
        _say(f"{settings.folders.runtime}: not on tmpfs; every tick is written to a disk")
    if options.part is None:
        _announce(settings)
    return _become(settings, options.part)


def _become(settings: Settings, part: str | None) -> NoReturn:
    """Replace this process by the daemon, or by one part of it."""
    fields = {**settings._asdict(), "part": part}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *_flags(), "-m", "sysmond.runner", json.dumps(fields)])  # noqa: S606


def _check(options: argparse.Namespace) -> None:
    if options.part is not None and options.part not in (RESOLVER, *PARTS):
        known = (RESOLVER, *PARTS)
        raise UsageError(f"--part {options.part!r}: no such part{nearest(options.part, known)}; {', '.join(known)} are")
    if options.bus not in BUSES and ":" not in options.bus:
        raise UsageError(f"--bus {options.bus!r}: not a bus{nearest(options.bus, BUSES)}; {', '.join(BUSES)} are")
    if options.bus != "none":
        raise UsageError(f"--bus {options.bus}: not yet; 'none' is right")
    if not os.path.isdir(options.root):
        raise UsageError(f"--root {options.root!r}: not a folder; one with proc and sys in it is right")


def _make_way(settings: Settings) -> None:
    """Refuse before anything is touched where another daemon runs; the daemon itself then takes the locks.

    :raises BusyError: naming the process that holds a folder.
    """
    for folder in settings.folders:
        with suppress(OSError), only_one(folder, wait_s=START_WAIT_S, ending_wait_s=LOCK_WAIT_S):
            pass


def _resolve(settings: Settings) -> int | None:
    """Have the plan made by a child; with a wrong configuration nothing starts. None where told to stop meanwhile."""
    # The state folder may come later, and is the archiver's business.
    folders.create(settings.folders._replace(state=settings.folders.runtime), os.geteuid())
    plan = f"{settings.folders.runtime}/plan.json"
    command = [sys.executable, *_flags(), "-m", "sysmond.resolver", "--output", plan]
    command.append("--user" if settings.user or os.geteuid() else "--system")
    if settings.config is not None:
        command += ["--config", settings.config]
    # It can be ended, but an interrupt from the terminal is for this process.
    child = os.posix_spawn(sys.executable, command, os.environ, setsigmask=(signal.SIGINT,))
    if signal.sigwait({*STOP_SIGNALS, signal.SIGCHLD}) in STOP_SIGNALS:
        os.kill(child, signal.SIGKILL)
        return None
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code in {UsageError.exit_code, EXIT_PARTIAL, 77}:
        return code
    if code:
        _say("the plan could not be made; going on with the last good one")
    return 0


def _flags() -> list[str]:
    """Start our other programs with the same isolation from the environment as this one."""
    return ["-I"] if sys.flags.isolated else ["-P"]


def _announce(settings: Settings) -> None:
    sys.stdout.write(f"sysmond: recording to {settings.folders.state}, the newest in {settings.folders.runtime}\n")


def _say(line: str) -> None:
    sys.stderr.write(f"sysmond: {line}\n")


if __name__ == "__main__":
    sys.exit(main())
