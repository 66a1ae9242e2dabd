# SPDX-License-Identifier: Apache-2.0
"""What the command line decided, as every part receives it."""

import os
import sys
from typing import NamedTuple

from sysmond.machine import folders
from sysmond.machine.folders import SYSTEM_RUNTIME, Folders

PARTS = ("sampler", "background", "archiver", "bus")
"""In the order in which they are started; the bus only where there is one."""

ONESHOTS = ("smart",)
"""Those that are started now and then, and end."""

NO_BUS = "none"

PLAN_CACHE = "/var/cache/sysmond"

# A plugin that hangs is given up after ten seconds, and there may be several.
RESOLVE_S = 60.0
# A lane follows a new plan at its next tick, and may wait for a probe before that.
FOLLOW_S = 15.0

REMOVED = "SYSMOND_REMOVED"
"""In the environment of a daemon that begins anew because its runtime folder was removed: that folder."""


class Settings(NamedTuple):
    """``root``: below which probes read. ``ticks``: end after so many, or None. ``config``: the only file to read.

    ``lifeline``: a descriptor that becomes readable when the parent of the parts dies.
    ``state_locked``: whether the parent, or this process, holds the state folder. ``again``: this part is
    started anew, the daemon is not; ``stuck``: because the one before did not tick any more. ``bus``: ``none``,
    ``system``, ``session`` or an address. ``words``: of the command line, as they were.
    ``on_demand``: whether this part is started again by whoever asks something of it, so that it need not stay.
    ``was_killed``: whether the daemon before this one, in the same boot, ended without having been told to.
    """

    folders: Folders
    root: str = "/"
    ticks: int | None = None
    user: bool = False
    config: str | None = None
    lifeline: int | None = None
    state_locked: bool = False
    again: bool = False
    bus: str = NO_BUS
    stuck: bool = False
    words: tuple[str, ...] = ()
    on_demand: bool = False
    was_killed: bool = False


def isolation() -> list[str]:
    """Start our other programs with the same isolation from the environment as this one."""
    return ["-I"] if sys.flags.isolated else ["-P"]


def plan_file(settings: Settings) -> str:
    """Where the current plan lies."""
    return f"{settings.folders.runtime}/plan.json"


def daemon_command(settings: Settings) -> list[str]:
    """The whole daemon, as it was called."""
    return [sys.executable, *isolation(), "-m", "sysmond", *settings.words]


def plan_cache_folder(settings: Settings) -> str:
    """Where the plan of the machine's own recorder is kept for its next start; empty for others, and where none is."""
    is_installed = settings.folders.runtime == SYSTEM_RUNTIME and settings.config is None and not settings.user
    return PLAN_CACHE if is_installed and os.path.isdir(PLAN_CACHE) else ""


def resolver_command(settings: Settings) -> list[str]:
    """The program that makes the plan, and what it is told."""
    command = [sys.executable, *isolation(), "-m", "sysmond.plan.resolver", "--output", plan_file(settings)]
    command.append("--user" if settings.user or os.geteuid() else "--system")
    if folder := plan_cache_folder(settings):
        command += ["--cache", folder]
    if settings.config is not None:
        return [*command, "--config", settings.config]
    is_default = settings.folders == folders.ours(user=settings.user, state_dir=None, runtime_dir=None)
    return command if is_default else [*command, "--borrowed"]
