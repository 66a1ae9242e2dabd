# SPDX-License-Identifier: Apache-2.0
"""One file by itself, asked like an archive: of which class, table and tier it is, as it says itself."""

from typing import NamedTuple

from sysmond.base.model import FINEST_TIER, TIERS_NS, Sensitivity
from sysmond.base.result import Result
from sysmond.errors import CorruptError, ForeignError
from sysmond.store.archive import Name
from sysmond.store.files import dense_file, hdf5, saved, sparse_file
from sysmond.store.stretches.stretch import is_of_buckets
from sysmond.store.tiers import COARSE

_EXPECTED = "expected a sysmond state folder, a segment from one, or an answer that was saved as HDF5"


class SingleFile(NamedTuple):
    """Where a file would be in an archive.

    ``table``: the long one that it is of, else empty; ``name``: what it would be called then. ``answer``: what was
    saved there, where it is no segment.
    """

    sensitivity: Sensitivity
    tier: str = FINEST_TIER
    table: str = ""
    name: Name | None = None
    answer: Result | None = None


def look(path: str) -> SingleFile:
    """Say what a file is of.

    :raises ForeignError: where it is neither a segment nor an answer. :raises CorruptError: where it is damaged.
    :raises NotPermittedError: where we may not read it. :raises FileNotFoundError: where it is gone.
    """
    try:
        form = hdf5.format_of(path)
    except CorruptError as damage:
        raise CorruptError(f"{damage}; {_EXPECTED}") from damage
    if form == dense_file.FORMAT.name:
        with dense_file.Segment(path) as segment:
            return SingleFile(segment.recording.sensitivity)
    if form == saved.FORMAT.name:
        answer = saved.read(path)
        return SingleFile(answer.sensitivity, table=answer.table, answer=answer)
    if form != sparse_file.FORMAT.name:
        raise ForeignError(f"{path}: not a file of sysmond; {_EXPECTED}")
    with sparse_file.open_file(path) as stretch:
        steps = {TIERS_NS[tier]: tier for tier in COARSE}
        tier = steps.get(stretch.interval_ns, COARSE[-1]) if is_of_buckets(stretch.table) else FINEST_TIER
        return SingleFile(stretch.sensitivity, tier, stretch.table.name, Name(stretch.boot, 1, 1))
