# SPDX-License-Identifier: Apache-2.0
"""A question about history, as the bus part hands it to a reader, in JSON."""

from collections.abc import Sequence
from typing import NamedTuple


class HistoryQuestion(NamedTuple):
    """What is asked. Times are UTC nanoseconds, 0 for the first sample and for now; ``step_ns`` 0: as recorded.

    ``last_ns``: the range is as long, up to now. ``has_rows``: what answers with rows has to be loaded.
    """

    do: str
    state: str
    runtime: str
    classes: Sequence[str]
    paths: Sequence[str] = ()
    start_ns: int = 0
    end_ns: int = 0
    step_ns: int = 0
    stats: Sequence[str] = ()
    boot: str = ""
    bytes_max: int = 0
    described_bytes_max: int = 0
    timespan_s: int = 0
    resolution: int = 0
    table: str = ""
    columns: Sequence[str] = ()
    where: str = ""
    group_by: Sequence[str] = ()
    by: str = ""
    top: int = 0
    percentile: float | None = None
    drop: Sequence[str] = ()
    summary: bool = False
    raw: bool = False
    explain: bool = False
    last_ns: int = 0
    has_rows: bool = False
    uid: int | None = None
    gids: Sequence[int] = ()
