# SPDX-License-Identifier: Apache-2.0
"""What the command line decided, as every part receives it."""

from typing import NamedTuple

from sysmond.folders import Folders

PARTS = ("sampler", "background", "archiver", "bus")
"""In the order in which they are started; the bus only where there is one."""

NO_BUS = "none"


class Settings(NamedTuple):
    """``root``: below which probes read. ``ticks``: end after so many, or None. ``config``: the only file to read.

    ``lifeline``: a descriptor that becomes readable when the parent of the parts dies.
    ``state_locked``: whether the parent, or this process, holds the state folder. ``again``: this part is
    started anew, the daemon is not; ``stuck``: because the one before did not tick any more. ``bus``: ``none``,
    ``system``, ``session`` or an address.
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
