# SPDX-License-Identifier: Apache-2.0
"""What a row stands for, where something is to be done to it: a process, a unit, a control group. Pure but for names.

Who is asked for a signal's name is asked about a row; by the time of the answer another may be below the cursor. So
what is meant is decided when the question is put.
"""

import pwd
from collections.abc import Mapping
from typing import NamedTuple

from sysmon_tools.screen.look import Look
from sysmon_tools.screen.views import CGROUPS, PROCESSES, UNITS
from sysmon_tools.targets import GroupTarget, target_of
from sysmond.errors import Error, UsageError

PAST = "this is the past; press space for what happens now"
SIGNAL, FREEZE, THAW, IONICE, NICE = "signal", "freeze", "thaw", "ionice", "nice"
_OF_PROCESSES = frozenset({SIGNAL, IONICE, NICE})
_OF_GROUPS = frozenset({SIGNAL, FREEZE, THAW})


class ProcessRow(NamedTuple):
    """A process: its number, and its start in UTC nanoseconds, by which it is told from a later one of that number."""

    pid: int
    started_ns: int
    comm: str = ""

    @property
    def name(self) -> str:
        """As people see it."""
        return f"process {self.pid} ({self.comm})"


Subject = ProcessRow | GroupTarget


def subject(action: str, look: Look, cells: Mapping[str, str | None], started_ns: int) -> Subject:
    """What an action is to be done to; ``cells``: the texts of the row below the cursor, none where there is no row.

    :raises Error: where the row is of the past. :raises UsageError: where it is nothing to which that can be done.
    """
    if not look.is_live:
        raise Error(PAST)
    if look.view == PROCESSES and action in _OF_PROCESSES and (pid := cells.get("pid")):
        return ProcessRow(int(pid), started_ns, cells.get("comm") or "")
    if action in _OF_GROUPS:
        if look.view == CGROUPS and (path := cells.get("instance")):
            return target_of(path)
        if look.view == UNITS and (unit := cells.get("unit")):
            return GroupTarget(unit)
        if look.view == UNITS and (unit := cells.get("user_unit")):
            return GroupTarget(unit, "", _uid(cells.get("username") or ""))
    raise UsageError(f"no row to {action}: expected {_where(action)}, and the cursor on a row")


def _where(action: str) -> str:
    processes = ["'p' processes"] if action in _OF_PROCESSES else []
    groups = ["'c' cgroups", "'u' units"] if action in _OF_GROUPS else []
    return " or ".join([*processes, *groups])


def _uid(username: str) -> int:
    """:raises Error: where nobody is called so here."""
    try:
        return int(username) if username.isdecimal() else pwd.getpwnam(username).pw_uid
    except KeyError:
        raise Error(f"there is no user {username!r} here; expected a unit of a user of this machine") from None
