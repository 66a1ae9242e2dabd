# SPDX-License-Identifier: Apache-2.0
"""The dense coding as jobs see it: what of a ring becomes a file, and when the rows of one are from."""

from collections.abc import Iterator, Mapping, Sequence

from sysmond import CREATED_BY
from sysmond.base.model import Answers, Cause, Sensitivity
from sysmond.ring.progress import Sealed
from sysmond.ring.snapshot import snapshot
from sysmond.store import dense_file, of_ring, tiers
from sysmond.store.dense_file import Segment
from sysmond.store.of_ring import Block, Hole, MemoryBlock, Recording, coalesce, of_snapshot
from sysmond.store.unsealed import FilePart, Unsealed, dropped, has_ended_since


def unsealed(path: str, before: Sealed, skipped: int, _: Mapping[str, Answers]) -> Unsealed:
    """What a ring has beyond what was sealed ``before`` and the offset up to which it is ``skipped``.

    :raises FileNotFoundError: where it is gone. :raises PermissionError: where we may not read it.
    :raises Error: where it is no ring of ours, or so damaged that nobody can say what or when rows were.
    """
    is_skipped = skipped > before.offset
    taken = snapshot(path, max(before.offset, skipped))
    recording = of_snapshot(taken)
    blocks = [block for block in recording.blocks if len(block.ticks)]
    last_ns = max([before.last_tick_ns, *(int(block.ticks[-1]) for block in blocks)])
    reached = Sealed(taken.end_offset, last_ns, int(taken.closed))
    lost = dropped(taken, before, _firsts_ns(blocks), is_skipped=is_skipped, how="overwritten before it was sealed")
    if has_ended_since(taken, before, is_skipped=is_skipped):
        there = {block.strand for block in blocks}
        blocks += [block for block in _last_ticks(of_snapshot(taken.before())) if block.strand not in there]
    if not blocks and not recording.events:
        # The gap of what is skipped is told with the first row after it.
        return Unsealed([], before if is_skipped and not taken.closed else reached, recording.damage)
    whole = recording._replace(blocks=blocks, holes=[*recording.holes, *lost])
    part = FilePart(taken.identity.boot, recording.sensitivity, "", whole, recording.tables)
    return Unsealed([part], reached, recording.damage)


def _firsts_ns(blocks: Sequence[Block]) -> dict[str, int]:
    """The first tick of each table: blocks of other intervals begin at other ticks."""
    found: dict[str, int] = {}
    for block in blocks:
        for table in {key.table for key in block.keys}:
            found[table] = min(found.get(table, int(block.ticks[0])), int(block.ticks[0]))
    return found


def _last_ticks(recording: Recording) -> Iterator[Block]:
    """The last tick of each block once more: a place for the news that it was the last."""
    for block in recording.blocks:
        if len(block.ticks):
            values = block.read(range(len(block.keys)))[:, -1:]
            yield MemoryBlock(block.strand, block.ticks[-1:], block.keys, values, block.closed)


def join(contents: Sequence[Recording]) -> Recording:
    """Put what becomes one file side by side.

    :raises Error: where two declare a table differently.
    """
    return of_ring.join(contents)


def encode(content: Recording) -> bytes:
    """The image of a file.

    :raises Error: where it has more than a file may.
    """
    return dense_file.encode(content, CREATED_BY)


def emptied(path: str, why: str) -> tuple[Sensitivity, bytes]:
    """The class of a file, and one that has of it all but its rows, and in their place their absence.

    :raises Error: where it is damaged.
    """
    with Segment(path) as opened:
        recording = opened.recording
        holes = [
            Hole(boot, table, int(block.ticks[0]), int(block.ticks[-1]) + interval_ns, Cause.DROPPED, why)
            for block in recording.blocks
            if len(block.ticks)
            for boot, interval_ns in [(block.strand.boot, block.strand.interval_ns)]
            for table in sorted({key.table for key in block.keys})
        ]
        told = recording._replace(blocks=(), texts={}, holes=coalesce([*recording.holes, *holes]))
        return recording.sensitivity, encode(told)


def span_ns(path: str) -> tuple[int, int]:
    """UTC of the outermost rows of a file, in nanoseconds; 0 where it has none.

    :raises Error: where it is damaged.
    """
    with Segment(path) as opened:
        return tiers.span_ns(opened.recording)
