# SPDX-License-Identifier: Apache-2.0
"""The Manager interface, as far as it steers: probes, plan, flushes, pins, marks, and what is known of all that."""

from typing import TYPE_CHECKING

from sysmond import __version__, clock
from sysmond.bus import names
from sysmond.bus.interface import Changes, Interface, prop

if TYPE_CHECKING:
    from sysmond.bus.part import Part


class Steering(Interface):
    """What an administrator does."""

    NAME = names.MANAGER

    def __init__(self, part: "Part") -> None:
        """``part``: whose plan and folders these are."""
        self._part = part

    @prop("s", changes=Changes.NEVER)
    def version(self) -> str:
        """The version of sysmond."""
        return __version__

    @prop("s", changes=Changes.NEVER)
    def boot_id(self) -> str:
        """The id of this boot, 32 hexadecimal digits."""
        return clock.boot_id()
