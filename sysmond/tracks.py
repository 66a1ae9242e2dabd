# SPDX-License-Identifier: Apache-2.0
"""Tracks: the blocks of one writer in one boot, in order of time, over all files and incarnations.

Pure. Blocks that overlap (sealed but still in the ring, flushed but still in RAM, merged but its sources not
removed yet) form one run; ticks are joined within it.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from sysmond.archive import Name
from sysmond.model import Sensitivity
from sysmond.recording import Block, Key, Recording
from sysmond.result import Int64Array


class Lineage(NamedTuple):
    """What shares a sequence of ticks: boot, writing part, class and interval, over restarts of the part."""

    boot: str
    writer: str
    sensitivity: Sensitivity
    interval_ns: int


class Source(NamedTuple):
    """A ring (which has no name) or a segment, opened."""

    name: Name | None
    recording: Recording


class Member(NamedTuple):
    """A block of a lineage, and where it came from."""

    source: Source
    block: Block


class Run(NamedTuple):
    """Ticks in order, from blocks that overlap each other; ``incarnation``: int64[tick], who wrote it, by its start."""

    ticks: Int64Array
    incarnation: Int64Array
    members: list[Member]


class Track(NamedTuple):
    """All that one lineage has: its runs in order of time, and which incarnations ended in good order."""

    lineage: Lineage
    runs: list[Run]
    keys: frozenset[Key]
    tables: frozenset[str]
    closed: frozenset[int]

    @property
    def first_ns(self) -> int:
        """The first tick."""
        return int(self.runs[0].ticks[0])

    @property
    def last_ns(self) -> int:
        """The last tick."""
        return int(self.runs[-1].ticks[-1])

    @property
    def ended_well(self) -> bool:
        """Whether the writer of the last tick ended in good order."""
        return int(self.runs[-1].incarnation[-1]) in self.closed


def distinct(values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Each value once, in order, and the index where it stood first.

    As ``np.unique`` has it, which imports numpy.ma: a tenth of a cold start.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.ones(len(values), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new], order[new]


def join(lineage: Lineage, members: list[Member]) -> Track:
    """Put the blocks of a lineage in order; those that overlap become one run."""
    ordered = sorted(members, key=lambda member: int(member.block.ticks[0]))
    groups: list[list[Member]] = []
    until_ns = int(ordered[0].block.ticks[0]) - 1
    for member in ordered:
        if int(member.block.ticks[0]) > until_ns:
            groups.append([])
        groups[-1].append(member)
        until_ns = max(until_ns, int(member.block.ticks[-1]))
    keys = frozenset(key for member in ordered for key in member.block.keys)
    closed = frozenset(member.block.strand.started_ns for member in ordered if member.block.closed)
    return Track(lineage, [_run(group) for group in groups], keys, frozenset(key.table for key in keys), closed)


def _run(members: list[Member]) -> Run:
    blocks = [member.block for member in members]
    if len(blocks) == 1:
        ticks = blocks[0].ticks
        return Run(ticks, np.broadcast_to(np.int64(blocks[0].strand.started_ns), len(ticks)), members)
    ticks, first = distinct(np.concatenate([block.ticks for block in blocks]))
    started = np.concatenate([np.full(len(block.ticks), block.strand.started_ns) for block in blocks])
    return Run(ticks, started[first], members)


def chosen_rows(members: Iterable[Member], wanted: Collection[Key]) -> dict[int, dict[Key, int]]:
    """Which rows of each block are wanted, by the block's id."""
    return {
        id(member.block): {key: row for row, key in enumerate(member.block.keys) if key in wanted} for member in members
    }
