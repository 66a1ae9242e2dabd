# SPDX-License-Identifier: Apache-2.0
"""Percentiles, smallest and largest of rows of a lasting table, by time: against lists of what held in each second."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.clock import SECOND_NS
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import BOOTED_NS, Row, put, stretch

US = 1_000_000
STATS = {"min": 0, "p10": 10, "p50": 50, "p95": 95, "max": 100}


class Life(NamedTuple):
    """A process: when it started (second of boot time), and what it had at each reading, if it was there."""

    pid: int
    start_s: int
    cpu: Sequence[int | None]
    rss: Sequence[int | None]


class Recorded(NamedTuple):
    """Readings at these seconds of boot time, in two files of which the second begins with reading ``cut``."""

    ticks: Sequence[int]
    cut: int
    lives: Sequence[Life]


@st.composite
def recordings(draw: st.DrawFn) -> Recorded:
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 7]), min_size=5, max_size=40))
    ticks = [100 + int(at) for at in np.cumsum(steps)]
    cut = draw(st.integers(2, len(ticks) - 2))
    lives = []
    for pid in range(1, draw(st.integers(1, 4)) + 1):
        born = draw(st.sampled_from([0, 0, cut, draw(st.integers(1, len(ticks) - 1))]))
        # What ended is known to be gone at the next reading of all there is.
        gone = draw(st.sampled_from([len(ticks), cut])) if born < cut else len(ticks)
        cpu: list[int | None] = [None] * len(ticks)
        rss: list[int | None] = [None] * len(ticks)
        total, held = draw(st.integers(0, 5)), draw(st.integers(0, 9))
        for at in range(born, gone):
            total = draw(st.sampled_from([total, total, total + 1, total + 4, total // 3]))
            held = draw(st.sampled_from([held, held, 0, held + 1]))
            cpu[at], rss[at] = total, held
        # It started well before the reading that saw it first, or just then.
        start_s = draw(st.sampled_from([1, ticks[born]])) if born else 1
        lives.append(Life(pid, start_s, cpu, rss))
    return Recorded(ticks, cut, lives)


def archive_of(folder: str, recorded: Recorded) -> Archive:
    """Rows where something changed, and all of them in the first reading of each file."""
    place = Folders(f"{folder}/state", f"{folder}/run")
    for low, high in ((0, recorded.cut), (recorded.cut, len(recorded.ticks))):
        rows: list[tuple[int, Row]] = []
        for life in recorded.lives:
            before: tuple[int | None, int | None] = (None, None)
            for at in range(low, high):
                now = (life.cpu[at], life.rss[at])
                if now[0] is not None and now[1] is not None and now != before:
                    values = {"cpu": now[0] * US, "rss_anon": now[1]}
                    rows.append((at - low, {"pid": life.pid, "start": life.start_s * SECOND_NS, **values}))
                before = now
        put(place, stretch(PROCESS, recorded.ticks[low:high], rows), low + 1, high)
    return Archive(place)


def held(recorded: Recorded, life: Life, second: int) -> int | None:
    """What a gauge was in a second: a reading holds until the next one, and over a gap for one interval."""
    at = max((at for at, tick in enumerate(recorded.ticks) if tick <= second), default=None)
    if at is None or second - recorded.ticks[at] >= 1:
        return None
    return life.rss[at]


def rates(recorded: Recorded, life: Life, seconds: Sequence[int]) -> list[float]:
    """By how much a counter grew in each of these seconds that ends with a reading, in percent."""
    found = []
    for second in seconds:
        at = recorded.ticks.index(second) if second in recorded.ticks else 0
        if not at or second - recorded.ticks[at - 1] != 1:
            continue
        now, before = life.cpu[at], life.cpu[at - 1]
        if before is None and life.start_s >= recorded.ticks[at - 1]:
            before = 0
        if now is not None and before is not None and 2 * now >= before:
            found.append(100.0 * max(0, now - before))
    return found


def of(values: Sequence[float], percent: int) -> float | None:
    """The smallest value at or below which so many percent of them are."""
    return sorted(values)[max(1, ceil(Fraction(len(values) * percent, 100))) - 1] if values else None


@given(recordings(), st.sampled_from([None, 3, 10]))
def test_rows_have_the_percentiles_of_what_held_in_each_second(recorded: Recorded, step_s: int | None) -> None:
    first, last = recorded.ticks[0] // 10 * 10, recorded.ticks[-1] + 3
    with TemporaryDirectory() as folder:
        # ``rss`` is a total, of which ``rss_anon`` is all that there is here.
        labels = ["pid", *(f"{name}:{stat}" for name in ("cpu", "rss_anon", "rss") for stat in STATS)]
        found = archive_of(folder, recorded).records(
            "process",
            start=BOOTED_NS + first * SECOND_NS,
            end=BOOTED_NS + last * SECOND_NS,
            step=None if step_s is None else step_s * SECOND_NS,
            columns=labels,
        )
    lives = {life.pid: life for life in recorded.lives}
    assert len(found.times_ns)
    for time, pid, *values in found.records.tolist():
        begin = (time - BOOTED_NS) // SECOND_NS
        end = last if step_s is None else min(last, begin + step_s)
        seconds = range(max(first, begin), end)
        grown = rates(recorded, lives[pid], seconds)
        held_there = [float(value) for second in seconds if (value := held(recorded, lives[pid], second)) is not None]
        expected = [of(part, percent) for part in (grown, held_there) for percent in STATS.values()]
        got = [None if np.isnan(value) else value for value in values[:10]]
        assert np.array_equal(values[10:], values[5:10], equal_nan=True)
        # The largest that a gauge was is also what it began the bucket with, for no time.
        if got[-1] is not None and (got[-1] != expected[-1]):
            assert got[-1] >= max(held_there, default=0)
            expected[-1] = got[-1]
        assert got == expected, (pid, begin)


def test_conditions_and_orders_take_percentiles(tmp_path: Path) -> None:
    busy = Life(1, 1, list(range(0, 40, 2)), [5] * 20)
    lazy = Life(2, 1, [0] * 18 + [90, 90], [5] * 20)
    archive = archive_of(str(tmp_path), Recorded(range(100, 120), 10, [busy, lazy]))
    assert archive.records("process", columns="pid", by="cpu:p50", top=1).column("pid").values.tolist() == [1]
    assert archive.records("process", columns="pid", by="cpu:max", top=1).column("pid").values.tolist() == [2]
    found = archive.records("process", columns="pid", where="cpu:p90 <= 100% and cpu:max > 100%")
    assert found.column("pid").values.tolist() == [2]
    found = archive.records("process", columns="pid,cpu", stat="p50,p100", top=1)
    assert [(column.path, column.unit) for column in found.columns[1:]] == [("cpu:p50", "%"), ("cpu:p100", "%")]


@pytest.mark.parametrize("label", ["cpu:p101", "comm:p50", "cpu:p", "pid:p95"])
def test_what_is_no_percentile_of_a_column_is_one_line(tmp_path: Path, label: str) -> None:
    archive = archive_of(str(tmp_path), Recorded(range(100, 120), 10, [Life(1, 1, [1] * 20, [5] * 20)]))
    for said in ({"columns": label}, {"by": label}, {"where": f"{label} > 1"}):
        with pytest.raises(Exception, match=f"no column '{label}'"):
            archive.records("process", **said)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="column 'cpu:p95': groups have no p95; expected mean, sum, max"):
        archive.records("process", group_by="comm", columns="cpu:p95")
