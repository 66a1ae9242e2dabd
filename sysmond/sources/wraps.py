# SPDX-License-Identifier: Apache-2.0
"""Sums over CPUs of which each counts in 32 bits: they go on where the numbers of some have wrapped.

Source: ``unsigned int`` in ``struct irqstat`` (``kernel/irq``), ``irq_cpustat_t``. A timer wraps after seven weeks.
"""

from collections.abc import Hashable, Mapping

WRAPS_AT = 2**32


class Wraps:
    """How often the numbers behind each sum have wrapped so far, by what the sum is of."""

    def __init__(self) -> None:
        """Know of none."""
        self._cpus: Hashable = None
        self._before: Mapping[bytes, int] = {}
        self._wraps: dict[bytes, int] = {}

    def count_on(self, cpus: Hashable, sums: Mapping[bytes, int]) -> dict[bytes, int]:
        """Give these sums as they would be without wraps.

        ``cpus``: which CPUs are in them. Where these are others than before, a sum falls by what those had counted that
        are gone, and no wrap is made of that.
        """
        self._wraps = {key: self._wraps.get(key, 0) for key in sums}
        if cpus == self._cpus:
            for key, total in sums.items():
                # It fell by as many wraps, but for what was counted meanwhile.
                fell = self._before.get(key, 0) - total
                self._wraps[key] += max(0, (fell + WRAPS_AT // 2) // WRAPS_AT)
        self._cpus, self._before = cpus, sums
        return {key: total + self._wraps[key] * WRAPS_AT for key, total in sums.items()}
