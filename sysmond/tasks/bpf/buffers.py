# SPDX-License-Identifier: Apache-2.0
"""Pinned ring buffers that BPF programs fill: until one is full, nothing is lost while nobody takes.

Standard library only: the real-time sampler reads by this.
"""

from contextlib import suppress

from sysmond.errors import Error, refusal
from sysmond.tasks.bpf.report import pins_with, report_of

# Of struct lost of bpf/events.bpf.c.
_LOST = {"exits": 0, "execs": 1, "cgroups": 2}
_LOST_BYTES = 2 * 8 * len(_LOST)
_HEAD_BYTES = 8


class Buffer:
    """A ring buffer, and the count of records for which it had no room. There is one reader."""

    def __init__(self, runtime: str, program: str, name: str, record_bytes: int = _HEAD_BYTES) -> None:
        """Open what the loader pinned for a runtime folder, if the program that fills it is there.

        ``record_bytes``: with the 8 in front of each. Without them records may have any length; ``each`` takes those.

        :raises Error: where it is not, saying why.
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
        """Give what is there, of one reading; it is given again until it is released."""
        return self._drain.look()

    def release(self) -> None:
        """Give back what was looked at."""
        self._drain.release()

    def take(self) -> bytes:
        """Look, copy and release."""
        return self._drain.take()

    def each(self) -> list[bytes]:
        """Copy record by record, without the 8 in front, and release."""
        return self._drain.each()

    def lost(self) -> int:
        """How many were lost since somebody asked last, in whichever process."""
        lost, told = self._counts[self._place], self._place + len(_LOST)
        before, self._counts[told] = self._counts[told], lost
        return int(lost - before)

    def is_current(self) -> bool:
        """Whether the loader has not run since it was opened, which may have pinned another."""
        return report_of(self._runtime) == self._report

    def close(self) -> None:
        """Let go of the mappings; what is pinned stays."""
        self._counts.release()
        self._array.close()
        with suppress(BufferError):  # Records are still in use: memory is given back when those go.
            self._drain.close()
