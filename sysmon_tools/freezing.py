# SPDX-License-Identifier: Apache-2.0
"""Freezing and thawing from a shell, as the screen does it; what was done is marked, where a recorder runs."""

import argparse
import os

from sysmon_tools import unit_deeds
from sysmon_tools.command_output import CommandOutput
from sysmon_tools.connecting import connect
from sysmon_tools.targets import GroupTarget, target_of
from sysmond.base.terminal import put
from sysmond.errors import Error, UsageError


async def run(options: argparse.Namespace) -> CommandOutput:
    """Freeze, or thaw.

    :raises Error: where nothing was done.
    """
    target = _target(options.unit, user=options.user)
    if options.command == "freeze":
        done = await unit_deeds.freeze(target, unit_deeds.freezing_time_s(options.duration))
    else:
        done = await unit_deeds.thaw(target)
    unmarked = ""
    try:
        async with connect(options) as recorder:
            await recorder.call("Mark", "sa{sv}", done, {})
    except Error as problem:
        unmarked = str(problem)
    said = f"{done}; not marked: {unmarked}" if unmarked else done
    return CommandOutput({"done": done, "marked": not unmarked}, lambda: put(said))


def _target(name: str, *, user: bool) -> GroupTarget:
    """Read the name of a unit, which is a service where it does not say so, or the path of a control group.

    :raises UsageError: where it is neither.
    """
    if name.startswith("/"):
        return target_of(name)
    if not name or "/" in name:
        raise UsageError(f"{name!r}: expected the name of a unit, or the path of a control group, such as /docker/…")
    return GroupTarget(name if "." in name else f"{name}.service", "", os.geteuid() if user else None)
