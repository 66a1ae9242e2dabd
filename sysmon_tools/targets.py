# SPDX-License-Identifier: Apache-2.0
"""Whom a row of the screen means, where it is no process: a unit of systemd, or a control group of no unit. Pure."""

from typing import NamedTuple

# What a unit's own control group may end in. Below it lie groups that the unit makes itself.
_UNITS = (".service", ".scope", ".mount", ".socket", ".swap")
_SLICE = ".slice"
_USER = "user@"


class GroupTarget(NamedTuple):
    """``unit``: of systemd; else empty, and ``path`` is the control group.

    ``uid``: of whose systemd the unit is, None for the machine's.
    """

    unit: str = ""
    path: str = ""
    uid: int | None = None

    @property
    def name(self) -> str:
        """As people see it."""
        return self.unit or self.path


def target_of(path: str) -> GroupTarget:
    """Name what a control group is of; ``path`` as in /proc/PID/cgroup, from the root of the hierarchy."""
    names = [name.removeprefix("_") for name in path.split("/") if name]
    uid = None
    at = next((at for at, name in enumerate(names) if _is_user(name)), None)
    if at is not None and at + 1 < len(names) and all(name.endswith(_SLICE) for name in names[:at]):
        uid = int(names[at].removeprefix(_USER).partition(".")[0])
        names = names[at + 1 :]
    *around, last = names or [""]
    is_unit = last.endswith((*_UNITS, _SLICE)) and all(name.endswith(_SLICE) for name in around)
    return GroupTarget(last, path, uid) if is_unit else GroupTarget("", path)


def _is_user(name: str) -> bool:
    number = name.removeprefix(_USER).partition(".")
    return name.startswith(_USER) and number[0].isdecimal() and number[2] == "service"
