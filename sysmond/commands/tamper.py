# SPDX-License-Identifier: Apache-2.0
"""Tampering: copies of files are cut, or a bit of them is turned over, what they still say is held against the truth.

For the self-test and the fault programs; no file of an archive is ever written here.
"""

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import Int64Array
from sysmond.errors import Error
from sysmond.ring.frame import SUFFIX
from sysmond.ring.snapshot import snapshot
from sysmond.store.files.dense_file import Segment
from sysmond.store.of_ring import Block, Recording, Strand, TierBlock, of_snapshot

BLOCK_BYTES = 512


class Contents(NamedTuple):
    """Everything that a file holds, in memory: its recording, and the values of each block and of each tier."""

    recording: Recording
    values: list[Int64Array]
    tiers: list[tuple[object, list[Int64Array]]] = []  # noqa: RUF012  never changed

    def same(self, other: "Contents") -> bool:
        """Whether two files say the same in every respect."""
        mine, others = self.recording, other.recording
        return (
            mine._replace(blocks=(), tiers=()) == others._replace(blocks=(), tiers=())
            and [step_ns for step_ns, _ in self.tiers] == [step_ns for step_ns, _ in other.tiers]
            and all(_equal(ours, theirs) for (_, ours), (_, theirs) in zip(self.tiers, other.tiers, strict=True))
            and [_frame(block) for block in mine.blocks] == [_frame(block) for block in others.blocks]
            and _equal([block.ticks for block in mine.blocks], [block.ticks for block in others.blocks])
            and _equal(self.values, other.values)
        )

    def rows(self) -> dict[tuple[Strand, object, int], int]:
        """Every value by its strand, series and tick."""
        rows = {}
        for block, values in zip(self.recording.blocks, self.values, strict=True):
            at = block.ticks.tolist()
            for key, row in zip(block.keys, values.tolist(), strict=True):
                rows.update({(block.strand, key, tick): value for tick, value in zip(at, row, strict=True)})
        return {where: value for where, value in rows.items() if value != ABSENT}


def _equal(these: Sequence[Int64Array], those: Sequence[Int64Array]) -> bool:
    return len(these) == len(those) and all(map(np.array_equal, these, those))


def _frame(block: Block) -> tuple[object, ...]:
    return block.strand, block.closed, list(block.keys)


def contents(path: str) -> Contents:
    """Read all of a ring or segment.

    :raises Error: where it is damaged.
    """
    if path.endswith(SUFFIX):
        recording = of_snapshot(snapshot(path))
        return Contents(recording, [block.read(range(len(block.keys))) for block in recording.blocks])
    with Segment(path) as opened:
        values = [block.read(range(len(block.keys))) for block in opened.recording.blocks]
        return Contents(opened.recording, values, [_of_tier(block) for block in opened.recording.tiers])


def _of_tier(block: TierBlock) -> tuple[object, list[Int64Array]]:
    """What a block of a tier is, and all its numbers."""
    numbers: list[Int64Array] = list(block.axis)
    for kind in dict.fromkeys(block.stats):
        buckets = block.buckets([row for row, stats in enumerate(block.stats) if stats == kind])
        numbers += [buckets.stats[stat] for stat in sorted(buckets.stats)]
        numbers += list(buckets.edges or ())
    return (block.strand, list(block.keys), list(block.stats), block.closed), numbers


class Tampering(NamedTuple):
    """A change to a copy: cut to so many bytes, or one bit turned over."""

    length: int
    bit: int = -1

    def apply(self, content: bytes) -> bytes:
        """Give the damaged copy."""
        if self.bit < 0:
            return content[: self.length]
        damaged = bytearray(content)
        damaged[self.bit // 8] ^= 1 << self.bit % 8
        return bytes(damaged)


def damages(size: int, flips: int, truncations: int, chance: random.Random) -> list[Tampering]:
    """Choose damages: cuts at boundaries of 512 bytes, of these at most ``truncations``, and bits at random."""
    cuts = list(range(0, size, BLOCK_BYTES))
    if len(cuts) > truncations:
        cuts = chance.sample(cuts, truncations)
    return [Tampering(cut) for cut in cuts] + [Tampering(size, chance.randrange(size * 8)) for _ in range(flips)]


def silently_wrong(path: str, todo: Sequence[Tampering], folder: str) -> dict[str, int]:
    """Damage copies of a file in ``folder``, read them, and count: refused, unharmed, fewer, wrong, crashed the reader.

    A ring may lose rows, without an error (fewer); those that it still gives must be right. A child does the reading.
    """
    counts, done = Counter[str](), 0
    while done < len(todo):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _read_damaged(path, todo[done:], folder, writing)
        os.close(writing)
        with open(reading, "rb") as answers:
            said = answers.read().decode("ascii").split()
        counts.update(said)
        done += len(said)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            counts["crashed"] += 1
            done += 1
    return dict(counts)


def _read_damaged(path: str, todo: Sequence[Tampering], folder: str, answers: int) -> None:
    """Be the child; never returns."""
    code = 1
    try:
        with open(path, "rb") as file:
            content = file.read()
        is_ring = path.endswith(SUFFIX)
        copy = f"{folder}/damaged-{os.getpid()}{SUFFIX if is_ring else '.h5'}"
        with open(copy, "wb") as file:
            file.write(content)
        true = contents(copy)
        rows = true.rows() if is_ring else {}
        for damage in todo:
            with open(copy, "wb") as file:
                file.write(damage.apply(content))
            os.write(answers, _verdict(copy, true, rows, is_ring=is_ring) + b"\n")
        os.unlink(copy)
        code = 0
    finally:
        os._exit(code)


def _verdict(path: str, true: Contents, rows: dict[tuple[Strand, object, int], int], *, is_ring: bool) -> bytes:
    try:
        now = contents(path)
    except Error:
        return b"refused"
    if is_ring:
        given = now.rows()
        is_true = given.items() <= rows.items()
        return b"wrong" if not is_true else b"fewer" if len(given) < len(rows) else b"unharmed"
    return b"unharmed" if now.same(true) else b"wrong"
