# SPDX-License-Identifier: Apache-2.0
"""What history answers with: columns over one time axis, gaps with causes, and the catalogue."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from sysmond.errors import Error
from sysmond.model import ABSENT, Cause, Semantics

if TYPE_CHECKING:
    import pandas as pd

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


class Gap(NamedTuple):
    """A reasoned absence: half-open, in UTC nanoseconds. ``instance``: empty for the whole table."""

    start_ns: int
    end_ns: int
    table: str
    cause: Cause
    detail: str = ""


class Column(NamedTuple):
    """One series, one statistic, over the time axis of its ``Result``.

    Either ``integers`` is there (int64[time]: the value is the integer divided by 10**scale, ABSENT
    where there is none) or ``floats`` is (float64[time], NaN where there is none; ``decimals`` says
    how many decimal places they carry), or ``texts`` is (one ``str`` or None a time).
    """

    path: str
    unit: str
    semantics: Semantics
    stat: str
    integers: Int64Array | None = None
    scale: int = 0
    floats: Float64Array | None = None
    decimals: int = 0
    texts: tuple[str | None, ...] | None = None

    @property
    def values(self) -> Float64Array:
        """The numbers as float64[time], NaN where absent.

        :raises Error: for a series of texts.
        """
        if self.floats is not None:
            return self.floats
        if self.integers is None:
            raise Error(f"{self.path}: holds texts, not numbers; .texts has them")
        numbers = self.integers / 10.0**self.scale
        numbers[self.integers == ABSENT] = np.nan
        return numbers


class Result(NamedTuple):
    """Columns over one time axis.

    ``times_ns``: int64[time], UTC nanoseconds: the starts of buckets, or ticks when raw.
    ``step_ns``: length of a bucket, 0 when raw. ``warnings``: what could not be read, a line each.
    """

    times_ns: Int64Array
    columns: tuple[Column, ...]
    gaps: tuple[Gap, ...]
    step_ns: int
    warnings: tuple[str, ...] = ()

    @property
    def times(self) -> npt.NDArray[np.datetime64]:
        """The time axis as datetime64[ns], UTC."""
        return self.times_ns.view("datetime64[ns]")

    def column(self, path: str) -> Column:
        """The first column of that path.

        :raises KeyError: where the result has no such series.
        """
        for column in self.columns:
            if column.path == path:
                return column
        raise KeyError(path)

    def to_pandas(self) -> "pd.DataFrame":
        """The result as a DataFrame with a UTC time index; one column a series.

        :raises Error: where pandas is not installed.
        """
        try:
            import pandas as pd  # noqa: PLC0415  pandas is optional, and 300 ms to import
        except ImportError as missing:
            raise Error("pandas is not installed; 'pip install sysmond[pandas]' adds it") from missing
        several = len({column.stat for column in self.columns}) > 1
        return pd.DataFrame(
            {
                f"{column.path}:{column.stat}" if several else column.path: (
                    column.values if column.texts is None else list(column.texts)
                )
                for column in self.columns
            },
            index=pd.DatetimeIndex(self.times, tz="UTC", name="time"),
        )


class Entry(NamedTuple):
    """A recorded series: what it is, from when to when (UTC nanoseconds), how often."""

    path: str
    unit: str
    semantics: Semantics
    doc: str
    start_ns: int
    end_ns: int
    interval_ns: int
