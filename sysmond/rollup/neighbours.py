# SPDX-License-Identifier: Apache-2.0
"""Tiers of long tables: a run of files, with what its neighbours know of it, becomes files of every tier.

A bucket that begins before the run needs the files before it; what ended is told by another table, perhaps later.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import numpy as np

from sysmond import CREATED_BY
from sysmond.base.model import END, TIERS_NS, Semantics
from sysmond.base.result import Array, Int64Array
from sysmond.base.wall_clock import course_of
from sysmond.errors import Error
from sysmond.rollup import file_edges
from sysmond.rollup.top import roll_up
from sysmond.store import archive, sparse
from sysmond.store.archive import Name
from sysmond.store.files import sparse_file
from sysmond.store.files.sparse_file import FileStretch
from sysmond.store.stretches.chain import Chain, Ends
from sysmond.store.stretches.stretch import key_of
from sysmond.store.stretches.undeclared import answers_of
from sysmond.store.tiers import BEFORE_FILES, Beside, Due, nothing_beside

# So much is rolled up at once: bounds memory, whatever was left undone.
SEALS_AT_ONCE = 36
BYTES_AT_ONCE = 8 * 1024 * 1024
# What ended may be told so much later than it did.
LATE_NS = 60_000_000_000


def roll_up_files(rows_folder: str, run: Due, beside: Beside = nothing_beside) -> dict[str, bytes]:
    """Make the files of the tiers that lack these, by tier.

    ``beside``: gives the folders of rows of a table, of which one tells what ended.

    :raises Error: where one is damaged, or they declare the table differently. :raises FileNotFoundError: where one is
        gone.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(sparse_file.open_file(f"{rows_folder}/{name.file}")) for name in run.names]
        if len({sparse_file.declares(each) for each in opened}) > 1:
            raise Error(f"{rows_folder}: {run.names[0].file} and later ones: of several declarations")
        telling = [each for each in opened if len(each.ticks)]
        before, is_whole = _before(stack, rows_folder, run, telling[0]) if telling else ([], True)
        stretches = [*before, *opened]
        chain = Chain(stretches, _ended(beside, [*before, *telling]))
        steps_ns = [TIERS_NS[tier] for tier in run.tiers]
        made = roll_up(stretches, steps_ns, len(before), chain=chain, is_cut=not is_whole)
        return {tier: sparse_file.encode(each, CREATED_BY) for tier, each in zip(run.tiers, made, strict=True)}


def _before(stack: ExitStack, folder: str, run: Due, first: FileStretch) -> tuple[list[FileStretch], bool]:
    """The files before a run that have a part of its first bucket, or else the one that ends before it.

    And whether they have all of that part.
    """
    course = course_of(list(first.relations), first.interval_ns)
    longest_ns = max(TIERS_NS[tier] for tier in run.tiers)
    begin_ns = int(first.ticks[0]) - course.moment_ns(int(first.ticks[0])) % longest_ns
    stretches: list[FileStretch] = []
    for name in reversed(run.before):
        try:
            opened = stack.enter_context(sparse_file.open_file(f"{folder}/{name.file}"))
        except (Error, FileNotFoundError):
            return stretches, False
        if opened.table._replace(answers=None) != first.table._replace(answers=None):
            return stretches, False
        if len(opened.ticks):
            stretches.insert(0, opened)
            if opened.ticks[0] < begin_ns:
                return stretches, True
    return stretches, len(run.before) < BEFORE_FILES


def _ended(beside: Beside, stretches: Sequence[FileStretch]) -> Ends | None:
    """What is told of what ended while these were recorded; None where nothing tells that."""
    ending = answers_of(stretches[-1].table).ended_by if stretches else None
    if ending is None:
        return None
    table = stretches[-1].table
    names = [dict(ending.by)[name] for name in key_of(table)]
    low_ns, high_ns = int(stretches[0].ticks[0]), int(stretches[-1].ticks[-1]) + LATE_NS
    keys: list[Array] = []
    ends: list[Array] = []
    paths: list[str] = []
    shared: set[str] = {metric.name for metric in table.metrics}
    for path in (path for folder in beside(ending.table) for path in _reaching(folder, stretches[0].boot, low_ns)):
        with suppress(Error, FileNotFoundError), sparse_file.open_file(path) as opened:
            columns = {metric.name for metric in opened.table.metrics if not metric.is_text}
            if not columns.issuperset([END, *names]):
                return None
            if len(opened.ticks) and opened.ticks[0] > high_ns:
                break
            ends.append(opened.last(END))
            keys.append(np.stack([opened.last(name) for name in names], axis=1))
            paths.append(path)
            shared &= columns
    if not ends:
        return None
    counters = [metric.name for metric in table.metrics if metric.semantics is Semantics.COUNTER]
    totals = {name: partial(_column, paths, name) for name in counters if name in shared}
    groups = {name: partial(_column, paths, name) for name in answers_of(table).others_by if name in shared}
    return Ends(np.concatenate(keys), np.concatenate(ends), totals, groups)


def _column(paths: Sequence[str], name: str) -> Int64Array:
    """What the last row of each key of some files has."""
    values = []
    for path in paths:
        with sparse_file.open_file(path) as opened:
            values.append(opened.last(name))
    return np.concatenate(values)


def _reaching(folder: str, boot: str, low_ns: int) -> Iterator[str]:
    """The files of a boot, in order, from the first one on that reaches a boot time."""
    names = [name for name in archive.names(folder) if name.boot == boot]

    def last_ns(name: Name) -> int:
        with suppress(Error, FileNotFoundError), sparse_file.open_file(f"{folder}/{name.file}") as opened:
            return int(opened.ticks[-1]) if len(opened.ticks) else low_ns
        return low_ns

    for name in names[bisect_left(names, low_ns, key=last_ns) :]:
        yield f"{folder}/{name.file}"


def merged(paths: Sequence[str]) -> bytes:
    """What files of a tier become when they are merged.

    :raises Error: where one of them is damaged.
    """
    with ExitStack() as stack:
        return sparse.encode([file_edges.merged([stack.enter_context(sparse_file.open_file(path)) for path in paths])])
