# SPDX-License-Identifier: Apache-2.0
"""The number of the cgroup that /proc/PID/cgroup names: the inode of its folder, which is the kernel's own number.

Numbers are those of version 2, unless only version 1 has one of the controllers that group processes.
"""

import os

from sysmond.base.model import ABSENT
from sysmond.cgroups.tree import MOUNTINFO, Hierarchy, hierarchies, numbering

_DELETED = b" (deleted)"


class CgroupNumbers:
    """Turns paths into numbers; looks each path up once a reading, since a cgroup may be made again."""

    def __init__(self, root: str) -> None:
        """Look for the hierarchies of the machine below ``root``."""
        self._root = root
        self._top = b""
        self._begin: bytes | None = None
        self._numbers: dict[bytes, int] = {}
        self.look_again()

    def look_again(self) -> None:
        """Read which hierarchies are mounted where."""
        self._begin = None
        try:
            with open(self._root + MOUNTINFO, "rb") as file:
                mounted = hierarchies(file.read())
        except (OSError, ValueError):
            return
        version_2 = next((hierarchy for hierarchy in mounted if not hierarchy.controllers), None)
        controllers = b"" if version_2 is None else self._controllers(version_2)
        chosen = numbering(mounted, controllers.decode("ascii", "replace").split())
        if chosen is not None:
            self._top = os.fsencode(self._root + chosen.point)
            self._begin = os.fsencode(f":{','.join(chosen.controllers)}:")

    def new_reading(self) -> None:
        """Forget the numbers."""
        self._numbers.clear()

    def number(self, content: bytes, before: int) -> int:
        """Give the number of the cgroup in the text of /proc/PID/cgroup; ``before`` where the cgroup is gone."""
        if self._begin is None:
            return ABSENT
        for line in content.split(b"\n"):
            at = line.find(b":")
            if at >= 0 and line.startswith(self._begin, at):
                path = line[at + len(self._begin) :]
                number = self._numbers.get(path)
                if number is None:
                    number = self._numbers[path] = self._look(path)
                return before if number == ABSENT and path.endswith(_DELETED) else number
        return ABSENT

    def _controllers(self, hierarchy: Hierarchy) -> bytes:
        try:
            with open(f"{self._root}{hierarchy.point}/cgroup.controllers", "rb") as file:
                return file.read()
        except OSError:
            return b""

    def _look(self, path: bytes) -> int:
        if b"/.." in path:  # Outside of the cgroup namespace that sysmond runs in.
            return ABSENT
        try:
            return os.stat(self._top + path).st_ino
        except OSError:
            return ABSENT
