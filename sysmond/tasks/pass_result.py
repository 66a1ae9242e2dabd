# SPDX-License-Identifier: Apache-2.0
"""What one pass over all tasks gives, whichever way it was made."""

from typing import NamedTuple, Protocol

from sysmond.records import Records

# More tasks than this are counted, not recorded.
TASKS_MAX = 65_536


class PassResult(NamedTuple):
    """The records of the tables PROCESS, THREAD (None where nobody asked for them) and PROCESS_PRIVATE."""

    process: Records
    thread: Records | None
    private: Records


class Tasks(Protocol):
    """A way to go over all tasks."""

    def take(self, *, full: bool, threads: bool) -> PassResult:
        """Give the tasks that changed since the call before, or all.

        ``full``: give all; a way may do so unasked, and says so in ``Records.full``.

        :raises OSError: where nothing can be read at all.
        """

    def close(self) -> None:
        """Close what is open."""
