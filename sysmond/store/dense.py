# SPDX-License-Identifier: Apache-2.0
"""The dense coding as jobs see it: of when the rows of a file of wide tables are."""

from sysmond.store import tiers
from sysmond.store.dense_file import Segment


def span_ns(path: str) -> tuple[int, int]:
    """UTC of the outermost rows of a file, in nanoseconds; 0 where it has none.

    :raises Error: where it is damaged.
    """
    with Segment(path) as opened:
        return tiers.span_ns(opened.recording)
