# SPDX-License-Identifier: Apache-2.0
"""Pinned ring buffers that BPF programs fill: while nobody reads one, nothing is lost until it is full.

Standard library only: the real-time sampler reads by this.
"""

import select
from contextlib import suppress

from sysmond.errors import Error, refusal
from sysmond.tasks.bpf.report import pins_with, report_of

# Of struct lost of bpf/events.bpf.c.
_LOST = {"exits": 0, "execs": 1, "cgroups": 2, "kills": 3}
_LOST_BYTES = 2 * 8 * len(_LOST)
_HEAD_BYTES = 8


class Buffer:
    """A ring buffer with one reader, and the count of records that it had no room for."""

    def __init__(self, runtime: str, program: str, name: str, record_bytes: int = _HEAD_BYTES) -> None:
        """Open what the loader pinned for a runtime folder, if the program that fills it is there.

        ``record_bytes``: of a record with its 8-byte header. By default records may have any length; read them with
        ``records``.

        :raises Error: where it is missing, with the reason.
        """
        self._runtime, self._report = runtime, report_of(runtime)
        try:
            folder = pins_with(program, runtime)
            from sysmond.tasks.bpf.pins import Array, Drain  # noqa: PLC0415  no part of other ways

            self._array = Array(f"{folder}/lost", _LOST_BYTES)
            try:
                self._drain = Drain(f"{folder}/{name}", record_bytes - _HEAD_BYTES)
            except OSError:
                self._array.close()
                raise
        except OSError as failure:
            raise Error(f"BPF: {refusal(failure)}; expected what the loader pins") from None
        except Error as problem:
            raise Error(f"BPF: {problem}") from None
        self._counts = self._array.memory.cast("Q")
        self._place = _LOST[name]

    def look(self) -> memoryview:
        """Give the records there, up to the bound of a reading; they are given again until released."""
        return self._drain.look()

    def release(self) -> None:
        """Release the records that ``look`` gave."""
        self._drain.release()

    def take(self) -> bytes:
        """Look, copy and release."""
        return self._drain.take()

    def records(self) -> list[bytes]:
        """Copy the records, without their headers, and release them."""
        return self._drain.records()

    def lost(self) -> int:
        """How many were lost since the last call, in whichever process that was."""
        lost, previous = self._counts[self._place], self._place + len(_LOST)
        before, self._counts[previous] = self._counts[previous], lost
        return int(lost - before)

    def wakes(self) -> select.epoll:
        """What becomes readable when a reading should not wait; its owner closes it.

        :raises OSError: as the kernel says.
        """
        return self._drain.wakes()

    def is_current(self) -> bool:
        """Whether this is still the newest: the loader has not run since it was opened."""
        return report_of(self._runtime) == self._report

    def close(self) -> None:
        """Unmap it; what is pinned stays."""
        self._counts.release()
        self._array.close()
        with suppress(BufferError):  # Records are still in use: memory is given back when those go.
            self._drain.close()
