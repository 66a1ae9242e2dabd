# SPDX-License-Identifier: Apache-2.0
"""The two codings as the jobs see them: what differs between dense and sparse files; all else the jobs do alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sysmond.base.model import Answers, Sensitivity
from sysmond.ring.progress import Sealed
from sysmond.store import dense, sparse
from sysmond.store.unsealed import Unsealed


class Coding(NamedTuple):
    """What a job asks of a coding; the modules ``dense`` and ``sparse`` say what they raise.

    ``unsealed``: what a ring has that no file has yet, given its path, how far it was sealed, up to which offset it is
    skipped, and what tables declare about answers. ``join``, ``encode``: what the parts of a file are together, and its
    image. ``emptied``: the class of a file, and the image of one without its rows, given why. ``span_ns``: UTC of the
    outermost rows of a file.
    """

    unsealed: Callable[[str, Sealed, int, Mapping[str, Answers]], Unsealed]
    join: Callable[[Sequence[Any]], Any]
    encode: Callable[[Any], bytes]
    emptied: Callable[[str, str], tuple[Sensitivity, bytes]]
    span_ns: Callable[[str], tuple[int, int]]


DENSE = Coding(dense.unsealed, dense.join, dense.encode, dense.emptied, dense.span_ns)
SPARSE = Coding(sparse.unsealed, sparse.join, sparse.encode, sparse.emptied, sparse.span_ns)


def coding_of(*, is_long: bool) -> Coding:
    """The coding of wide tables, or that of long ones."""
    return SPARSE if is_long else DENSE
