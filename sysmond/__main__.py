# SPDX-License-Identifier: Apache-2.0
"""The program ``sysmond``: reads its command line, has the plan resolved, and becomes the daemon.

Reading arguments and resolving plugins needs modules that the daemon must not carry in locked memory:
the plan is made by a child (``sysmond.plan.resolver``), and this process then replaces itself by
``sysmond.daemon.runner``.
"""

import argparse
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from sysmond.base.event_kinds import DAEMON
from sysmond.base.terminal import put, say
from sysmond.daemon.arguments import ALONE, LOADER, RESOLVER, parser
from sysmond.errors import EXIT_PARTIAL, BusyError, Error, UsageError, expected, nearest
from sysmond.machine import folders, mounts, recorders
from sysmond.machine.lock import only_one
from sysmond.plan import plan as plans
from sysmond.plan import plan_cache
from sysmond.plan.settings import NO_BUS, REMOVED, Settings, isolation, plan_cache_folder, plan_file, resolver_command
from sysmond.sampler.self_cost import read_pid
from sysmond.tasks.bpf.launch import loader_command

BUSES = (NO_BUS, "system", "session")
# The module of ``sysmond.commands`` and its function that carry out each command: only that module is imported.
COMMANDS = {
    "mark": ("orders", "mark"),
    "flush": ("orders", "flush"),
    "reload": ("orders", "reload"),
    "pin": ("pins", "pin"),
    "unpin": ("pins", "unpin"),
    "pins": ("pins", "list_pins"),
    "budget": ("upkeep", "budget"),
    "fsck": ("upkeep", "fsck"),
    "selftest": ("upkeep", "selftest"),
    "probe": ("try_probe", "try_probe"),
    "service": ("service", "service"),
}
# Those that change files of a recorder; those of the machine's as the user who owns them: what root makes is root's.
CHANGING = ("pin", "unpin", "fsck")
# Those that read a snapshot as they read a folder.
READING = ("pins", "fsck")
# Those that sysmonctl has, too, of the machine's recorder; and whether an archive without a recorder is enough.
ORDERS = {"flush": False, "reload": False, "mark": False, "pin": True, "unpin": True}
# Two that start at once look at the locks for a moment; one that ends is waited for.
START_WAIT_S = 0.2
LOCK_WAIT_S = 5.0
# Loading BPF programs takes a quarter of a second; on a slow machine that starts, many times that.
LOAD_S = 60.0
# Asked to stop while it starts, the daemon ends in order: these wait until somebody looks.
STOP_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; give its exit code."""
    os.umask(folders.UMASK)
    try:
        made = parser()
        made.refuse_misspelled(sys.argv[1:] if arguments is None else arguments)
        options = made.parse_args(arguments)
        if options.command is not None:
            return _command(options)
        signal.pthread_sigmask(signal.SIG_BLOCK, {*STOP_SIGNALS, signal.SIGCHLD})
        if options.part is None:  # A hang-up means one thing with a terminal and another without: the daemon looks.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        return _start(options, sys.argv[1:] if arguments is None else arguments)
    except Error as wrong:
        say(str(wrong))
        return wrong.exit_code
    except BrokenPipeError:  # Who read has read enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)
        return 0


def _command(options: argparse.Namespace) -> int:
    """Carry out a command."""
    module, function = COMMANDS[options.command]
    is_snapshot = False
    if options.state_dir and options.command in READING and not getattr(options, "repair", False):
        from sysmond.machine import snapshot_file  # noqa: PLC0415  tar: seldom needed

        is_snapshot = snapshot_file.is_one(options.state_dir)
    place = folders.asked(
        user=options.user, state_dir=options.state_dir, runtime_dir=options.runtime_dir, or_file=is_snapshot
    )
    if options.command in ORDERS and not options.user and options.state_dir is None and options.runtime_dir is None:
        recorders.check_own(options.command, may_wait=ORDERS[options.command])
    if options.command in CHANGING and place.state == folders.SYSTEM_STATE:
        folders.become_owner(place.state)
    code: int = getattr(importlib.import_module(f"sysmond.commands.{module}"), function)(place, options)
    return code


def _start(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Resolve the plan and become the daemon or a part; returns only where that is not to be."""
    _check(options)
    settings = Settings(
        folders.ours(user=options.user, state_dir=options.state_dir, runtime_dir=options.runtime_dir),
        os.path.abspath(options.root),
        options.ticks,
        options.user,
        options.config,
        bus=options.bus,
        words=tuple(words),
    )
    if options.part is None:
        _make_way(settings)
    cache = plan_cache_folder(settings) if options.part == RESOLVER else ""
    if cache and plan_cache.reuse(settings.folders.runtime, cache):
        return 0
    if options.part in {None, RESOLVER}:
        code = _resolve(settings)
        if code is None:
            return 0
        if code or options.part == RESOLVER:
            return code
    if not folders.is_volatile(settings.folders.runtime):
        say(f"{settings.folders.runtime}: not on tmpfs; every tick is written to a disk")
    if options.part in {None, LOADER}:
        _load_kernel(settings)
        if options.part == LOADER:
            return 0
        if REMOVED not in os.environ:
            settings = _announced(settings)
    return _become(settings, options.part)


def _become(settings: Settings, part: str | None) -> NoReturn:
    """Replace this process by the daemon, or by one part of it."""
    fields = {**settings._asdict(), "part": part}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *isolation(), "-m", "sysmond.daemon.runner", json.dumps(fields)])  # noqa: S606


def _check(options: argparse.Namespace) -> None:
    if options.part is not None and options.part not in ALONE:
        raise UsageError(
            f"--part {options.part!r}: there is no such part{nearest(options.part, ALONE, expected(ALONE))}"
        )
    if options.bus not in BUSES and ":" not in options.bus:
        raise UsageError(f"--bus {options.bus!r}: not a bus{nearest(options.bus, BUSES, expected(BUSES))}")
    if options.part == "bus" and options.bus == NO_BUS:
        raise UsageError("--part bus: needs a bus; expected --bus system, session or an address")
    if not os.path.isdir(options.root):
        raise UsageError(f"--root {options.root!r}: not a folder; expected one with proc and sys in it")


def _make_way(settings: Settings) -> None:
    """Refuse before anything is touched where another daemon runs; the daemon itself then takes the locks.

    :raises BusyError: naming the process that holds a folder. :raises NotPermittedError: where one is somebody else's.
    :raises Error: where that is so, and the state folder is a file besides: then that is the mistake.
    """
    there = [folder for folder in settings.folders if not mounts.awaited(folder)]
    for folder in there:
        with suppress(OSError):
            folders.check_trusted(folder)
        try:
            with suppress(OSError), only_one(folder, wait_s=START_WAIT_S, ending_wait_s=LOCK_WAIT_S):
                pass
        except BusyError:
            state = settings.folders.state
            if os.path.exists(state) and not os.path.isdir(state):
                raise Error(f"{state}: not a folder; expected a sysmond state folder") from None
            raise


def _resolve(settings: Settings) -> int | None:
    """Have the plan made by a child; with a wrong configuration nothing starts. None where told to stop meanwhile."""
    # The state folder may come later, and is the archiver's business.
    folders.create(settings.folders._replace(state=settings.folders.runtime), os.geteuid())
    command = resolver_command(settings)
    # It can be ended, but an interrupt from the terminal is for this process.
    child = os.posix_spawn(sys.executable, command, os.environ, setsigmask=(signal.SIGINT,))
    if signal.sigwait({*STOP_SIGNALS, signal.SIGCHLD}) in STOP_SIGNALS:
        os.kill(child, signal.SIGKILL)
        return None
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # One that begins anew unasked goes on with what it had, whatever the configuration has come to say.
    if code in {UsageError.exit_code, EXIT_PARTIAL, 77} and REMOVED not in os.environ:
        return code
    if code:
        say("the plan could not be made; going on with the last good one")
    return 0


def _load_kernel(settings: Settings) -> None:
    """Have the BPF programs loaded by a child; where they cannot be, /proc has to do, and the doctor says why."""
    try:
        command = loader_command(settings, plans.read(plan_file(settings)))
    except (OSError, Error):
        return
    if not command:
        return
    child = os.posix_spawn(sys.executable, command, os.environ, setsigmask=(signal.SIGINT,))
    if signal.sigtimedwait({signal.SIGCHLD}, LOAD_S) is None:  # A signal to stop waits for the daemon.
        say(f"the BPF programs were not loaded within {LOAD_S:.0f} s; /proc is read instead")
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _announced(settings: Settings) -> Settings:
    """Say where is recorded, and whether the machine went down under the last run; the daemon says if it was killed."""
    from sysmond.archiver import boot_before  # noqa: PLC0415  a command needs none of that

    put(f"sysmond: recording to {settings.folders.state}, the newest in {settings.folders.runtime}")
    if boot_before.was_cut_off(settings.folders.state):
        say("the last run ended by power loss, a hang or a reset; nobody told it to stop")
    return settings._replace(was_killed=read_pid(settings.folders.runtime, DAEMON) is not None)


if __name__ == "__main__":
    sys.exit(main())
