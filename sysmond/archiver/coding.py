# SPDX-License-Identifier: Apache-2.0
"""The two codings as the jobs see them: what differs between dense and sparse files; all else the jobs do alike."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sysmond.base.model import Answers, Sensitivity
from sysmond.ring.progress import Sealed
from sysmond.rollup import neighbours, series
from sysmond.store import dense, sparse
from sysmond.store.archive import Candidate, Name
from sysmond.store.pins import Pin
from sysmond.store.tiers import Beside, Due, TierFile
from sysmond.store.unsealed import Unsealed


class Coding(NamedTuple):
    """What a job asks of a coding; the modules ``dense`` and ``sparse`` say what they raise.

    ``unsealed``: what a ring has that no file has yet, given its path, how far it was sealed, up to which offset it is
    skipped, and what tables declare about answers. ``encode``: the image of a file of several such parts.
    ``emptied``: the class of a file, and the image of one without its rows, given why.

    ``check``: read all of a file. ``span_ns``: UTC of its outermost rows. ``weighed``: a file of rows as the plan of
    merges sees it. ``merged``: the image of what several become, given to how many bits numbers are shortened and what
    is pinned. ``plan_tier``: which small files of a tier become one, given its folder, the current boot, how large a
    file may be, which rows have no buckets yet, and what is left alone. ``merged_tier``: the image of what they become.

    ``roll_up``: the images of the tiers of a run of files in a folder, given where rows of other tables are.
    ``seals_at_once``, ``bytes_at_once``: how much of rows is rolled up at once.
    """

    is_long: bool
    unsealed: Callable[[str, Sealed, int, Mapping[str, Answers]], Unsealed]
    encode: Callable[[Sequence[Any]], bytes]
    emptied: Callable[[str, str], tuple[Sensitivity, bytes]]
    check: Callable[[str], None]
    span_ns: Callable[[str], tuple[int, int]]
    weighed: Callable[[str, Candidate], Candidate]
    merged: Callable[[Sequence[str], int, Sequence[Pin]], bytes]
    plan_tier: Callable[[str, str, int, Sequence[Name], set[str]], list[list[TierFile]]]
    merged_tier: Callable[[Sequence[str]], bytes]
    roll_up: Callable[[str, Due, Beside], dict[str, bytes]]
    seals_at_once: int
    bytes_at_once: int


DENSE = Coding(
    is_long=False,
    unsealed=dense.unsealed,
    encode=dense.encode,
    emptied=dense.emptied,
    check=dense.check,
    span_ns=dense.span_ns,
    weighed=dense.weighed,
    merged=dense.merged,
    plan_tier=dense.plan_tier,
    merged_tier=series.merged,
    roll_up=series.roll_up_files,
    seals_at_once=series.SEALS_AT_ONCE,
    bytes_at_once=sys.maxsize,
)
SPARSE = Coding(
    is_long=True,
    unsealed=sparse.unsealed,
    encode=sparse.encode,
    emptied=sparse.emptied,
    check=sparse.check,
    span_ns=sparse.span_ns,
    weighed=sparse.weighed,
    merged=sparse.merged,
    plan_tier=sparse.plan_tier,
    merged_tier=neighbours.merged,
    roll_up=neighbours.roll_up_files,
    seals_at_once=neighbours.SEALS_AT_ONCE,
    bytes_at_once=neighbours.BYTES_AT_ONCE,
)


def coding_of(*, is_long: bool) -> Coding:
    """The coding of wide tables, or that of long ones."""
    return SPARSE if is_long else DENSE
