# SPDX-License-Identifier: Apache-2.0
"""What must hold of every file that is read, whoever made it: bounds of what it claims, and values that cannot be.

Pure. Checksums tell of broken hardware only: who makes a file up makes its checksums, too. A claim costs its maker
nothing (a million zeros are a kilobyte), so each kind of element has a bound, asked before anything is made of it:
above all that is recorded honestly, and low enough that a reader pays for no more. A file that breaks one is damaged.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, INTERVAL_MIN_NS, Sensitivity
from sysmond.base.result import Int64Array
from sysmond.base.timespec import DAY_NS, TIME_MAX_NS
from sysmond.ring.frame import VALUE_MAX
from sysmond.store.coding.integers import is_beyond

# One a boot and class: a file of a tier may have those of months.
BOOTS_MAX = 4096
# A block is one life of a writer at one interval: that of a daemon that dies every minute for a day.
BLOCKS_MAX = 2048
# A day of three a second. Of faster tables a day is several files.
TICKS_MAX = 256 * 1024
# Of all blocks of a file together: 2,600 cgroups with 50 metrics each.
SERIES_MAX = 128 * 1024
# Values that a file may stand for, with or without codes: series times ticks, of all blocks together.
CELLS_MAX = 64 * 1024 * 1024
# A gap each, where no tick came when one was due; ten minutes at 10 ms have 40,000 at most.
BREAKS_MAX = 64 * 1024
# In a tier each series has several rows.
TIER_ROWS_MAX = 8 * SERIES_MAX
# What ended in an hour of 300 a second is 1,080,000; each has a key.
KEYS_MAX = 1152 * 1024
# A file of 15 MB has 3.1 million, of a busy machine.
ROWS_MAX = 3584 * 1024
# Rows of a long table times its columns.
FIELDS_MAX = 192 * 1024 * 1024
KEY_COLUMNS_MAX = 8
# So much is read of a file when it is opened, once unpacked.
OPENING_BYTES_MAX = 64 * 1024 * 1024
# Nothing is recorded more often (10 ms); all rows of others would lie on the grid of a shorter interval. A bucket is an
# hour at most, and a day is more than that.
INTERVAL_MAX_NS = DAY_NS
# Added to the latest wall-clock time it is still an int64.
UPTIME_MAX_NS = 50 * 365 * DAY_NS
# The longest text that is recorded has 4096 bytes, documentation 400 characters.
STRING_BYTES_MAX = 8192

# A path ends in CLASS/TABLE/TIER/FILE, or less of it.
FOLDERS_MAX = 4

WIDE_ELEMENTS_MAX: Mapping[str, int] = {
    "tables": 4096,
    "metrics": 64 * 1024,
    "instances": SERIES_MAX,
    "boots": BOOTS_MAX,
    # The clock may be set, or the machine put to sleep, once a minute for three weeks.
    "clocks": 32 * 1024,
    "texts": 64 * 1024,
    "gaps": 64 * 1024,
    "events": 64 * 1024,
    "covers": 64 * 1024,
    "ticks": TICKS_MAX,
    "last": TICKS_MAX,
    "rows": TICKS_MAX,
    "series": TIER_ROWS_MAX,
    "edges": SERIES_MAX,
}
"""How many elements a dataset of this name may have, in a segment."""
LONG_ELEMENTS_MAX: Mapping[str, int] = {
    "declaration": 1024 * 1024,
    "lives": 64 * 1024,
    "clocks": 64 * 1024,
    "gaps": 64 * 1024,
    "vectors": 4096,
    # Readers of a file with more find them in its rows.
    "resets": 64 * 1024,
    # A byte each.
    "texts": 64 * 1024 * 1024,
    "text_ends": 1024 * 1024,
}
"""The same in a file of a long table."""
LENGTHS_MAX = {"readings": TICKS_MAX, "keys": KEYS_MAX, "rows": ROWS_MAX}
"""How long its vectors may be."""


class Claims:
    """What the blocks of a file claim together; who writes one asks the same, or no reader would accept it."""

    def __init__(self, series_max: int) -> None:
        """``series_max``: of rows ``SERIES_MAX``, of tiers ``TIER_ROWS_MAX``."""
        self._series_max = series_max
        self._ticks = self._series = self._cells = self._breaks = 0

    def add(self, ticks: Int64Array, series: int, interval_ns: int) -> None:
        """Count one block; ``ticks``: int64[tick].

        :raises ValueError: where they are too many.
        """
        self._ticks += len(ticks)
        self._series += series
        self._cells += len(ticks) * series
        self._breaks += int(np.count_nonzero(np.diff(ticks) > interval_ns + interval_ns // 2))
        check_count("ticks", self._ticks, TICKS_MAX)
        check_count("series", self._series, self._series_max)
        check_count("values", self._cells, CELLS_MAX)
        check_count("gaps between ticks", self._breaks, BREAKS_MAX)


class Room:
    """How much may be read of a file: elements of each dataset by its name, and bytes of all while it is opened."""

    def __init__(self, elements_max: Mapping[str, int], opening_bytes_max: int = OPENING_BYTES_MAX) -> None:
        """``is_opening``: what is read later is only what somebody asks for."""
        self.is_opening = True
        self._elements_max = elements_max
        self._left = self._opening_bytes_max = opening_bytes_max

    def take(self, name: str, elements: int, size: int) -> None:
        """Take room for a dataset of so many elements and bytes.

        :raises ValueError: where there is not so much.
        """
        check_count(name, elements, self._elements_max.get(name, TICKS_MAX))
        if self.is_opening:
            self._left -= size
            if self._left < 0:
                raise ValueError(f"more than {self._opening_bytes_max} bytes to read at once")


def check_count(what: str, count: int, most: int) -> None:
    """Refuse more of something than there can be.

    :raises ValueError: naming it, as all functions here do.
    """
    if not 0 <= count <= most:
        raise ValueError(f"{count} {what}; expected at most {most}")


def check_type(what: str, given: "np.dtype[Any]", expected: "np.dtype[Any]") -> None:
    """Refuse elements that are not of a type, or of one that fits into it; of records each of its fields."""
    for name in expected.names or (None,):
        if name is not None and name not in (given.names or ()):
            raise ValueError(f"{what} lack {name}")
        there, right = (given, expected) if name is None else (given[name], expected[name])
        if there.names or not (there.kind == right.kind == "S" or np.can_cast(there, right, "safe")):
            raise ValueError(f"{f'{name} of ' if name else ''}{what}: {there} is not of the type {right}")


def check_boots(boots: Collection[str]) -> None:
    """Refuse what is no boot id: 32 hexadecimal digits."""
    for boot in boots:
        if len(boot) != 32 or not set(boot) <= _HEXADECIMAL:  # noqa: PLR2004  digits of an id
            raise ValueError(f"a boot {boot[:64]!r}; expected 32 hexadecimal digits")
    if len(set(boots)) != len(boots):
        raise ValueError("a boot is there twice")


def check_relations(relations: Iterable[Relation]) -> None:
    """Refuse clocks that no machine has: before 1970 or after 2200, or up for longer than there are computers."""
    for relation in relations:
        if not 0 <= relation.realtime_ns < TIME_MAX_NS:
            raise ValueError(f"a wall clock at {relation.realtime_ns} ns; expected the years 1970 to 2200")
        if not (0 <= relation.boottime_ns <= UPTIME_MAX_NS and 0 <= relation.monotonic_ns <= UPTIME_MAX_NS):
            raise ValueError(f"clocks at {relation.boottime_ns} and {relation.monotonic_ns} ns since the boot")


def check_interval(what: str, interval_ns: int) -> None:
    """Refuse an interval or a step that is none."""
    if not INTERVAL_MIN_NS <= interval_ns <= INTERVAL_MAX_NS:
        raise ValueError(f"{what} of {interval_ns} ns; expected {INTERVAL_MIN_NS} to {INTERVAL_MAX_NS}")


def check_moments(what: str, *moments_ns: int) -> None:
    """Refuse boot times before the boot, or too late to have been."""
    for moment_ns in moments_ns:
        if not 0 <= moment_ns <= UPTIME_MAX_NS:
            raise ValueError(f"{what} at {moment_ns} ns since the boot; expected 0 to {UPTIME_MAX_NS}")


def check_span(what: str, start_ns: int, end_ns: int) -> None:
    """Refuse a span that is not of a boot; it may begin or end an interval outside the ticks."""
    if not -INTERVAL_MAX_NS <= start_ns <= end_ns <= UPTIME_MAX_NS + INTERVAL_MAX_NS:
        raise ValueError(f"{what} from {start_ns} to {end_ns} ns since the boot")


def check_length(what: str, length: int, columns: int = 0) -> None:
    """Refuse vectors of a long table that are too long: of ``readings``, ``keys``, or ``rows`` of so many columns."""
    check_count(what, length, LENGTHS_MAX[what])
    check_count("fields", length * columns, FIELDS_MAX)


def check_ticks(what: str, ticks: Int64Array) -> None:
    """Refuse a time axis, int64[tick] nanoseconds of boot time, that does not increase, or leaves the boot."""
    if len(ticks):
        if (ticks[1:] <= ticks[:-1]).any():
            raise ValueError(f"{what} that do not increase")
        check_moments(what, int(ticks[0]), int(ticks[-1]))


def check_series(numbers: Int64Array, first: Int64Array) -> None:
    """Refuse series that are there twice, by a number each, and first values that are none: int64[series] both."""
    ordered = np.sort(numbers)
    if (ordered[1:] == ordered[:-1]).any():
        raise ValueError("a series is there twice")
    if is_beyond(first[first != ABSENT]).any():
        raise ValueError(f"a series begins with an impossible value; expected -{VALUE_MAX} to {VALUE_MAX}")


def check_place(path: str, sensitivity: Sensitivity, table: str = "") -> None:
    """Refuse a file in the folder of another class than it says, which decides who may read it, or of another table."""
    folders = path.split("/")[-FOLDERS_MAX:-1]
    for number, folder in reversed([*enumerate(folders)]):
        if folder in _CLASSES:
            if folder != sensitivity:
                raise ValueError(f"a {sensitivity} file in a folder of {folder} ones")
            if table and folders[number + 1 :][:1] != [table]:
                raise ValueError(f"a file of the table {table} in {path!r}")
            return


_CLASSES = frozenset(Sensitivity)
_HEXADECIMAL = frozenset("0123456789abcdef")
