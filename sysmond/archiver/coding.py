# SPDX-License-Identifier: Apache-2.0
"""The two codings as the jobs on disk see them: what differs between dense and sparse files; all else they do alike.

What seals asks ``store.dense`` and ``store.sparse`` themselves, and so loads nothing of tiers.
"""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sysmond.base.model import EVENTS
from sysmond.rollup import neighbours, series
from sysmond.store import dense, sparse, tiers
from sysmond.store.archive import Candidate, Name
from sysmond.store.pins import Pin
from sysmond.store.tiers import Beside, Due, TierFile


class Coding(NamedTuple):
    """What a job asks a coding about files on disk; the modules named below say what each function raises.

    ``check``: read all of a file. ``span_ns``: UTC of its outermost rows. ``weighed``: a file of rows as the plan of
    merges sees it. ``merged``: the image of what several become, given to how many bits numbers are shortened and what
    is pinned. ``plan_tier``: which small files of a tier become one, given its folder, the current boot, how large a
    file may be, which rows have no buckets yet, and what is left alone. ``merged_tier``: the image of what they become.

    ``tiers``: those that are made of rows. ``roll_up``: the images of the tiers of a run of files in a folder, given
    where rows of other tables are.
    ``ripe_bytes``: how many bytes of rows are worth rolling up, however few seals. ``seals_at_once``,
    ``bytes_at_once``: how much of rows is rolled up at once.
    """

    is_long: bool
    tiers: tuple[str, ...]
    check: Callable[[str], None]
    span_ns: Callable[[str], tuple[int, int]]
    weighed: Callable[[str, Candidate], Candidate]
    merged: Callable[[Sequence[str], int, Sequence[Pin]], bytes]
    plan_tier: Callable[[str, str, int, Sequence[Name], set[str]], list[list[TierFile]]]
    merged_tier: Callable[[Sequence[str]], bytes]
    roll_up: Callable[[str, Due, Beside], dict[str, bytes]]
    ripe_bytes: int
    seals_at_once: int
    bytes_at_once: int


DENSE = Coding(
    is_long=False,
    tiers=(*tiers.COARSE, EVENTS),
    check=dense.check,
    span_ns=dense.span_ns,
    weighed=dense.weighed,
    merged=dense.merged,
    plan_tier=dense.plan_tier,
    merged_tier=series.merged,
    roll_up=series.roll_up_files,
    ripe_bytes=4 * 1024 * 1024,
    seals_at_once=series.SEALS_AT_ONCE,
    bytes_at_once=sys.maxsize,
)
SPARSE = Coding(
    is_long=True,
    tiers=tiers.COARSE,
    check=sparse.check,
    span_ns=sparse.span_ns,
    weighed=sparse.weighed,
    merged=sparse.merged,
    plan_tier=sparse.plan_tier,
    merged_tier=neighbours.merged,
    roll_up=neighbours.roll_up_files,
    ripe_bytes=256 * 1024,
    seals_at_once=neighbours.SEALS_AT_ONCE,
    bytes_at_once=neighbours.BYTES_AT_ONCE,
)


def coding_of(*, is_long: bool) -> Coding:
    """The coding of wide tables, or that of long ones."""
    return SPARSE if is_long else DENSE
