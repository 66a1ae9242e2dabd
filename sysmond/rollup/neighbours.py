# SPDX-License-Identifier: Apache-2.0
"""Tiers of long tables: neighbouring files become one."""

from collections.abc import Sequence
from contextlib import ExitStack

from sysmond.rollup import file_edges
from sysmond.store import sparse, sparse_file


def merged(paths: Sequence[str]) -> bytes:
    """What files of a tier become when they are merged.

    :raises Error: where one of them is damaged.
    """
    with ExitStack() as stack:
        return sparse.encode(file_edges.merged([stack.enter_context(sparse_file.open_file(path)) for path in paths]))
