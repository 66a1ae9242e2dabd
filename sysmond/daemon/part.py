# SPDX-License-Identifier: Apache-2.0
"""One part as a process of its own: as the parent forks it, ``sysmond --part`` becomes it, or systemd starts it.

``python -m sysmond.daemon.part NAME`` is a part of the machine's recorder, with a user of its own perhaps, and reads no
command line but that; the unit says the rest. Its imports are what the part has in memory, so each part brings its own.
"""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

from sysmond.base import terminal
from sysmond.errors import EXIT_AGAIN, Error, UsageError
from sysmond.machine import mounts
from sysmond.machine.folders import (
    SYSTEM_RUNTIME,
    SYSTEM_STATE,
    UMASK,
    Folders,
    check_trusted,
    create,
    create_classes,
    link_state,
    trusted_uids,
)
from sysmond.machine.lock import only_one
from sysmond.plan.plan import Plan, first_valid
from sysmond.plan.settings import ONESHOTS, PARTS, Settings
from sysmond.sampler import self_cost

# How long an earlier daemon that has said that it ends is waited for.
LOCK_WAIT_S = 5.0
# Jobs of a killed archiver are killed with it; its locks stay until they are gone.
ORPHANS_S = 2.0
# In a part's folder, put there by whoever killed it because it did not go on: the next one is told the reason.
STUCK_FILE = "stuck"
_ERROR = 2


def say(part: str) -> Callable[[str], None]:
    """Make the function by which a part reports: one line to standard error."""
    return partial(terminal.say, program=part, descriptor=_ERROR)


def run_part(part: str, settings: Settings, plan: Plan, state: ExitStack | None = None) -> int:
    """Run one part, in this process, until told to stop. ``state``: its locks on the state folder."""
    folder = f"{settings.folders.runtime}/{part}"
    if part == "bus":
        with suppress(OSError):
            os.makedirs(folder, exist_ok=True)
    else:
        create_classes(folder)
    self_cost.write_pid(folder)
    match part:
        case "bus":
            from sysmond.bus import main as bus  # noqa: PLC0415  the other parts do without

            return bus.run(settings, plan, say(part))
        case "sampler" | "background":
            from sysmond.base.model import Lane  # noqa: PLC0415  as above
            from sysmond.sampler import lane  # noqa: PLC0415  as above

            return lane.run(settings, plan, Lane.REALTIME if part == "sampler" else Lane.BACKGROUND, say(part))
        case "smart":
            from sysmond.sampler import oneshot  # noqa: PLC0415  it is a part for moments

            return oneshot.run(settings, plan, say(part))
        case _:
            from sysmond.archiver import main as archiver  # noqa: PLC0415  as above

            link_state(settings.folders)
            return archiver.run(settings, plan, say(part), state)


def plan_files(folders: Folders) -> tuple[str, ...]:
    """Paths of the current plan and the last good one; that only where no other user could have made it up."""
    last = f"{folders.state}/plan.json"
    with suppress(OSError):
        if os.stat(last).st_uid not in trusted_uids():
            return (f"{folders.runtime}/plan.json",)
    return f"{folders.runtime}/plan.json", last


def lock_state(stack: ExitStack, folders: Folders, wait_s: float = 0.0) -> list[int]:
    """Lock the state folder against other daemons, waiting ``wait_s`` for one that records there.

    A folder that cannot be written now, or whose file system is not mounted yet, is left to the archiver.

    :raises BusyError: naming the process that records there. :raises NotPermittedError: where it is somebody else's.
    """
    from sysmond.archiver.children import known_place  # noqa: PLC0415  the lanes do without

    if mounts.awaited(folders.state, known_place(folders).point):
        return []
    with suppress(OSError):
        check_trusted(folders.state)
    with suppress(Error):
        create(folders, os.geteuid())
    with suppress(OSError):
        return [stack.enter_context(only_one(folders.state, wait_s=wait_s, ending_wait_s=LOCK_WAIT_S))]
    return []


def begin(part: str, settings: Settings) -> int:
    """Be this part, and say in one line why that cannot be; gives the exit code.

    What it was before it died is known by the note of its process, which goes when it ends as it was told to.
    """
    speak = say(part)
    runtime = settings.folders.runtime
    pid_file = f"{runtime}/{part}/{self_cost.PID_FILE}"
    try:
        # The state folder may appear later; the archiver takes care of it.
        create(settings.folders._replace(state=runtime), os.geteuid())
        plan, reasons = first_valid(plan_files(settings.folders))
        for reason in reasons:
            speak(reason)
        settings = settings._replace(again=os.path.exists(pid_file), stuck=_was_stuck(f"{runtime}/{part}"))
        with ExitStack() as state:
            if part == "archiver":
                locks = lock_state(state, settings.folders, wait_s=ORPHANS_S)
                settings = settings._replace(state_locked=bool(locks))
            code = run_part(part, settings, plan, state)
    except Error as failure:
        speak(str(failure))
        return failure.exit_code
    if code != EXIT_AGAIN and part not in ONESHOTS:
        with suppress(OSError):
            os.unlink(pid_file)
    return code


def _was_stuck(folder: str) -> bool:
    """Whether the part that ran here before was killed because it did not go on; asked once, it is forgotten."""
    try:
        os.unlink(f"{folder}/{STUCK_FILE}")
    except OSError:
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """Run the program: its argument is the name of a part of the machine's recorder."""
    os.umask(UMASK)
    words = sys.argv[1:] if arguments is None else arguments
    known = (*PARTS, *ONESHOTS)
    if len(words) != 1 or words[0] not in known:
        wrong = UsageError(f"{' '.join(words)!r} is not a part; expected one of {', '.join(known)}")
        say("sysmond")(str(wrong))
        return wrong.exit_code
    # The bus has its unit started (D-Bus Specification, Message Bus Starting Services).
    settings = Settings(Folders(SYSTEM_STATE, SYSTEM_RUNTIME), bus="system", on_demand=words[0] == "bus")
    return begin(words[0], settings)


if __name__ == "__main__":
    sys.excepthook = terminal.confess
    sys.exit(main())
