# SPDX-License-Identifier: Apache-2.0
"""How far back rings have all that was recorded: then no file need be opened to answer.

The rings of a writer are let go of in order, class by class. So if the oldest of a class has a moment, all that is
later is in rings, unless a later one went round since it was begun.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.base.wall_clock import Course
from sysmond.errors import Error
from sysmond.machine.folders import Folders
from sysmond.ring.progress import ARCHIVER, LANES, WRITERS, ring_files
from sysmond.ring.snapshot import reach_ns

STAYING = frozenset((*(WRITERS[lane] for lane in LANES), ARCHIVER))
"""Writers whose rings go on for as long as the recorder runs."""

SLACK = 1.25
"""By how much rings may go back further than it seems; to read them for nothing costs as much as to open files."""


class TooLittleError(Error):
    """What was opened does not answer a question; everything there is may."""


class OnlyAllError(TooLittleError):
    """Nothing was opened that has rows of a table: only everything there is can tell whether anything has."""


class RingBegin(NamedTuple):
    """From which boot time on a ring has all that its writer wrote; ``went_round``: it had more before."""

    writer: str
    sensitivity: Sensitivity
    boot: str
    begins_ns: int
    went_round: bool


def reach_of_rings_ns(folders: Folders, classes: Collection[Sensitivity], table: str = "") -> int:
    """About how far back all rings of those who stay go, of wide tables or of a long one; 0 where nobody can say."""
    begin = len(folders.runtime) + 1
    rings = [path for path in ring_files(folders, classes, table) if path[begin:].partition("/")[0] in STAYING]
    with suppress(Error, OSError):
        return min(map(reach_ns, rings), default=0)
    return 0


def may_have(folders: Folders, classes: Collection[Sensitivity], back_ns: int, table: str = "") -> bool:
    """Whether rings of wide tables, or of a long one, may well have all of so long ago: only then they are read."""
    return back_ns < SLACK * reach_of_rings_ns(folders, classes, table)


def complete_since(rings: Iterable[RingBegin], needed: Collection[str] = ()) -> tuple[str, int]:
    """The one boot of these rings, and the boot time from which on they have all that their writers wrote.

    ``rings``: in the order in which they were begun. ``needed``: writers of which there has to be one.

    :raises TooLittleError: where they are of several boots, or a writer lacks.
    """
    since_ns: dict[tuple[str, Sensitivity], int] = {}
    boots: set[str] = set()
    for writer, sensitivity, boot, begins_ns, went_round in rings:
        boots.add(boot)
        if went_round or (writer, sensitivity) not in since_ns:
            since_ns[writer, sensitivity] = begins_ns
    if len(boots) != 1 or not {writer for writer, _ in since_ns}.issuperset(needed):
        raise TooLittleError("rings do not have all of the span")
    return boots.pop(), max(since_ns.values())


def was_set(course: Course) -> bool:
    """Whether the wall clock of a boot was set by more than a second: then files may know a time better."""
    return sum(abs(by_ns) for _, by_ns in course.steps()) > SECOND_NS
