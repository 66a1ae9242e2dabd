# SPDX-License-Identifier: Apache-2.0
"""The two codings as the jobs see them: what differs between dense and sparse files; all else the jobs do alike."""

from collections.abc import Callable
from typing import NamedTuple

from sysmond.store import dense, sparse


class Coding(NamedTuple):
    """What a job asks of a coding.

    ``span_ns``: UTC of the outermost rows of a file, in nanoseconds; raises Error where it is damaged.
    """

    span_ns: Callable[[str], tuple[int, int]]


DENSE = Coding(dense.span_ns)
SPARSE = Coding(sparse.span_ns)


def coding_of(*, is_long: bool) -> Coding:
    """The coding of wide tables, or that of long ones."""
    return SPARSE if is_long else DENSE
