# SPDX-License-Identifier: Apache-2.0
"""Opens files for an answer. What speaks HDF5 is imported here, and only once there is a file to be opened.

That takes a fifth of the processor time of a cold answer, and what rings, or names of files, answer needs none of it.
Who writes files, or reads them in a job, imports ``dense_file`` and ``sparse_file`` themselves.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sysmond.base.result import BoolArray, Int64Array

if TYPE_CHECKING:
    from sysmond.store.files.dense_file import EventsOfFile, Segment
    from sysmond.store.files.sparse_file import FileStretch
    from sysmond.store.stretches.stretch import Stretch


def segment(path: str) -> "Segment":
    """Open a segment of wide tables; see ``Segment``."""
    from sysmond.store.files import dense_file  # noqa: PLC0415  see above

    return dense_file.Segment(path)


def events(path: str, choose: Callable[[Int64Array], BoolArray] | None = None) -> "EventsOfFile":
    """Open a segment for what happened; ``choose``: of which events, bool[event], by their times, int64[event] UTC."""
    from sysmond.store.files import dense_file  # noqa: PLC0415  see above

    return dense_file.EventsOfFile(path, choose)


def stretch(path: str) -> "FileStretch":
    """Open a file of a long table; see ``FileStretch``."""
    from sysmond.store.files import sparse_file  # noqa: PLC0415  see above

    return sparse_file.open_file(path)


def reopened(again: "Callable[[], FileStretch]") -> "Stretch":
    """Follow a file of a long table that may be closed meanwhile; see ``ReopenedStretch``."""
    from sysmond.store.files import sparse_file  # noqa: PLC0415  see above

    return sparse_file.ReopenedStretch(again)
