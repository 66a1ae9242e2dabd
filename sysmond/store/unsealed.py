# SPDX-License-Identifier: Apache-2.0
"""What a ring has that no file has yet, as both codings tell it to the job that seals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sysmond.base.model import Cause, Sensitivity, Table
from sysmond.ring.frame import Identity
from sysmond.ring.progress import Sealed
from sysmond.store.of_ring import Hole

SET_ASIDE = "set aside: sealing failed on it"


class FilePart(NamedTuple):
    """What becomes a file, or a part of one: of a boot and a class, and of a long ``table``, if it is of one.

    ``content``: what the coding knows how to join and encode. ``declared``: the wide tables, by name; those that agree
    may share a file. None: it has a file of its own.
    """

    boot: str
    sensitivity: Sensitivity
    table: str
    content: Any
    declared: Mapping[str, Table] | None = None

    def may_join(self, other: "FilePart") -> bool:
        """Whether both may be in one file: after an upgrade two declarations of a table may meet."""
        if self.declared is None or other.declared is None:
            return False
        if (self.boot, self.sensitivity) != (other.boot, other.sensitivity):
            return False
        return all(other.declared.get(name, table) == table for name, table in self.declared.items())


class Unsealed(NamedTuple):
    """What is sealed of a ring now, and how far it is sealed then. ``damage``: what cannot be read, in words."""

    parts: Sequence[FilePart]
    reached: Sealed
    damage: str = ""


def has_ended_since(before: Sealed, *, closed: bool, is_skipped: bool) -> bool:
    """Whether it is news that the writer ended in good order."""
    return bool(closed and before.offset and not before.closed and not is_skipped)


def dropped(
    ring: Identity, lost: int, before: Sealed, firsts_ns: Mapping[str, int], *, is_skipped: bool, how: str
) -> Iterator[Hole]:
    """Say what the ring overwrote before it could be sealed, ``lost`` bytes, or what was set aside.

    ``firsts_ns``: the first tick of each table that is there. ``how``: it was lost, unless it is skipped.
    """
    if lost or is_skipped:
        # Perhaps no tick of it was sealed.
        start_ns = max(before.last_tick_ns + 1, ring.started_ns)
        for table, end_ns in sorted(firsts_ns.items()):
            detail = SET_ASIDE if is_skipped else how
            yield Hole(ring.boot, table, start_ns, end_ns, Cause.DROPPED, detail)
