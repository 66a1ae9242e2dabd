# SPDX-License-Identifier: Apache-2.0
"""What one pass over all tasks gives, whichever way it was made."""

from typing import NamedTuple, Protocol

from sysmond.records import Records

# More tasks than this are counted, not recorded.
TASKS_MAX = 65_536


class Taken(NamedTuple):
    """The records of the tables PROCESS, THREAD (None where they were not asked for) and PROCESS_PRIVATE."""

    process: Records
    thread: Records | None
    private: Records


class Tasks(Protocol):
    """A way to go over all tasks."""

    def take(self, *, full: bool, threads: bool) -> Taken:
        """Give what changed since the call before, or all there are.

        ``full``: all that there are are asked for; a way may give them unasked, and says so in ``Records.full``.

        :raises OSError: where there is nothing to be read at all.
        """

    def close(self) -> None:
        """Let go of what is kept open."""
