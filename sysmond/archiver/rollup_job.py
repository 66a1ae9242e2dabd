# SPDX-License-Identifier: Apache-2.0
"""Jobs that roll up: segments of rows become files of every tier, and small files of a tier larger ones.

All tiers are made from one reading of the rows, each from the one before it. Memory is bounded by the batches of
series in which rows are read and buckets written.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from sysmond.base.model import ABSENT, Sensitivity
from sysmond.base.result import Int64Array
from sysmond.errors import Error
from sysmond.machine.folders import FILE_MODES, Folders, create_classes
from sysmond.machine.memory import BoundError, working_on
from sysmond.rollup.series import roll_up
from sysmond.store import archive, tiers
from sysmond.store.archive import Name
from sysmond.store.dense_file import Segment
from sysmond.store.of_ring import (
    Block,
    BlockPlan,
    join,
    plan_of,
    strands,
)

# So many sealed segments (a day and a half) are rolled up at once: bounds memory, whatever was left undone.
SEALS_AT_ONCE = 288


class Due(NamedTuple):
    """Neighbouring segments of rows that some tiers do not have; ``before``: the one before, which they have."""

    names: list[Name]
    tiers: tuple[str, ...]
    before: Name | None


def due(rows_folder: str, tier_folders: dict[str, str], left_alone: Iterable[str] = ()) -> list[Due]:
    """Find what is to be rolled up: runs of segments of one boot that the same tiers lack."""
    covers = {tier: tiers.covered(folder) for tier, folder in tier_folders.items()}
    alone = set(left_alone)
    found: list[Due] = []
    before: Name | None = None
    for name in archive.names(rows_folder):
        lacking = tuple(tier for tier in covers if not tiers.hold(covers[tier], name))
        if f"{rows_folder}/{name.file}" in alone:
            before = None
            found.append(Due([], (), None))  # It parts its neighbours: a range would claim it.
            continue
        last = found[-1] if found else None
        if lacking and last and last.tiers == lacking and before in last.names and _fits(last, name):
            last.names.append(name)
        elif lacking:
            found.append(Due([name], lacking, before if before and before.boot == name.boot else None))
        before = name
    return [each for each in found if each.names]


def _fits(run: Due, name: Name) -> bool:
    return run.names[0].boot == name.boot and name.last - run.names[0].first < SEALS_AT_ONCE


def roll_up_rows(folders: Folders, make_room: Callable[[str, int], object], left_alone: set[str]) -> None:
    """Make the files of the tiers of segments that are on disk and in no tier yet.

    ``make_room``: is told the tier and how many bytes will come; ``left_alone``: paths of what is not tried, to which
    those are added that are damaged.
    """
    create_classes(folders.state, *tiers.COARSE)
    for sensitivity in Sensitivity:
        rows = archive.disk_folder(folders, sensitivity)
        places = {tier: archive.disk_folder(folders, sensitivity, tier) for tier in tiers.COARSE}
        for place in places.values():
            archive.remove_temporary(place)
        for run in due(rows, places, left_alone):
            for name, images in _rolled_up(rows, run, left_alone):
                for tier, image in images.items():
                    make_room(tier, len(image))
                    archive.publish(places[tier], name.file, image, FILE_MODES[sensitivity])


def _rolled_up(rows: str, run: Due, left_alone: set[str]) -> Iterator[tuple[Name, dict[str, bytes]]]:
    """Roll up a run; where that fails each of its segments by itself, so that one alone is left out."""
    whole = Name(run.names[0].boot, run.names[0].first, run.names[-1].last)
    try:
        with working_on(*(f"{rows}/{name.file}" for name in run.names)):
            images = roll_up_files(rows, run)
        yield whole, images
    except FileNotFoundError:
        return
    except (Error, BoundError) as failure:
        if len(run.names) == 1:
            left_alone.add(f"{rows}/{whole.file}")
            if isinstance(failure, BoundError):
                raise
            return
        for before, name in zip([run.before, *run.names], run.names, strict=False):
            yield from _rolled_up(rows, Due([name], run.tiers, before), left_alone)


def roll_up_files(rows_folder: str, run: Due) -> dict[str, bytes]:
    """Make the files of the tiers that lack these segments, by tier.

    :raises Error: where one is damaged, or they declare a table differently.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(Segment(f"{rows_folder}/{name.file}")).recording for name in run.names]
        joined = join(opened)
        known: list[Block] = []
        if run.before is not None:
            try:
                known = list(stack.enter_context(Segment(f"{rows_folder}/{run.before.file}")).recording.blocks)
            except (Error, FileNotFoundError):
                known = []  # What it had in common with the others, if anything, is then counted twice.
        covers = [Name(run.names[0].boot, run.names[0].first, run.names[-1].last)]
        plans = [plan for strand in strands(joined.blocks) if (plan := _without(plan_of(strand), known)) is not None]
        return roll_up(joined._replace(covers=covers), plans, run.tiers)


def _without(plan: BlockPlan, known: Iterable[Block]) -> BlockPlan | None:
    """Leave out what was rolled up before: a segment may begin with rows that the one before it ends with.

    Of the last common tick either may have tables that the other has not.
    """
    shared = [b for b in known if b.strand == plan.strand and len(b.ticks) and b.ticks[-1] >= plan.ticks[0]]
    if not shared:
        return plan
    reached = max(int(block.ticks[-1]) for block in shared)
    first = int(np.searchsorted(plan.ticks, reached))
    if first == len(plan.ticks):
        return None
    holders = [block for block in shared if int(block.ticks[-1]) == reached] if plan.ticks[first] == reached else []
    return plan._replace(ticks=plan.ticks[first:], batches=_unknown(plan, first, holders))


def _unknown(plan: BlockPlan, first: int, holders: Sequence[Block]) -> Iterator[Int64Array]:
    places = [{key: row for row, key in enumerate(block.keys)} for block in holders]
    start = 0
    for values in plan.batches:
        kept = values[:, first:].copy()
        for block, place in zip(holders, places, strict=True):
            batch = plan.keys[start : start + len(values)]
            mine = [row for row, key in enumerate(batch) if key in place]
            if mine:
                there = block.read([place[batch[row]] for row in mine])[:, -1] != ABSENT
                kept[np.array(mine)[there], 0] = ABSENT
        start += len(values)
        yield kept
