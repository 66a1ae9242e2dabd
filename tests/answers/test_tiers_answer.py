# SPDX-License-Identifier: Apache-2.0
"""Answers from tiers: equal to those from rows wherever both are, and there where rows are not any more."""

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.archiver import merge_job
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Sensitivity
from sysmond.base.result import Result
from sysmond.base.statistic import STATISTICS
from sysmond.plan.retention import TIERS_NS
from sysmond.store import archive
from tests.support.machine import NOON_NS, Machine, Writer, counter, gauge
from tests.support.order import first

READ = "disk/read_bytes@sda"
QUEUE = "disk/queue@sda"
RESET = Cause.COUNTER_RESET
TIERS = [tier for tier, step_ns in TIERS_NS.items() if step_ns]


def keep(machine: Machine) -> None:
    """Let everything in the rings reach all tiers, and small files become larger ones."""
    machine.seal()
    machine.flush()
    merge_job.merge(machine.folders)


def forget(machine: Machine, *tiers: str) -> None:
    """Take tiers away."""
    for tier in tiers:
        for sensitivity in Sensitivity:
            shutil.rmtree(archive.disk_folder(machine.folders, sensitivity, tier), ignore_errors=True)


def cells(result: Result) -> dict[tuple[str, str], list[object]]:
    """Everything that it says, to be compared."""
    found: dict[tuple[str, str], list[object]] = {("", "time"): list(result.times_ns.tolist())}
    for column in result.columns:
        values = column.texts if column.texts is not None else column.values.tolist()
        found[column.path, column.stat] = [None if value != value else value for value in values or ()]  # noqa: PLR0124
    return found


def write(writer: Writer, second: int, length: int, event: str, devices: tuple[str, ...]) -> int:
    """Tick for a while after something happened; give the next second."""
    if event == "step":
        writer.wall_ns += 37 * SECOND_NS
    elif event == "back":
        writer.wall_ns -= 61 * SECOND_NS
    elif event == "asleep":
        writer.asleep_ns += 100 * SECOND_NS
        second += 100
    elif event == "late":
        second += 7
    writer.tick(range(second, second + length), devices)
    return second + length


EVENTS = ("", "", "step", "back", "asleep", "late")
DEVICES = (("sda",), ("sda", "sdb"), ("sdb",))


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_a_tier_answers_as_rows_do(machine: Machine, seed: int) -> None:
    chance = random.Random(seed)
    writer = machine.start(99)
    second = 100
    for _ in range(4):
        second = write(writer, second, chance.randint(1, 400), chance.choice(EVENTS), chance.choice(DEVICES))
        if chance.random() < 0.7:
            keep(machine)
    start_ns = NOON_NS + chance.randint(0, 900) * SECOND_NS
    end_ns = start_ns + chance.randint(1, 2000) * SECOND_NS
    asked: list[dict[str, Any]] = [
        {"step": step, **more}
        for step in ("10s", "1min", "90s", "5min", "7s", "1h")
        for more in (
            {"stat": STATISTICS},
            {"stat": "mean,max,tmax,sum,count"},
            {"stat": "mean,max,tmax,sum,count", "start": start_ns, "end": end_ns},
        )
    ]
    both = [cells(machine.archive.select("disk", **each)) for each in asked]
    forget(machine, *TIERS)
    for each, found in zip(asked, both, strict=True):
        assert found == cells(machine.archive.select("disk", **each)), each


def test_what_only_a_tier_has_is_answered_from_it(machine: Machine) -> None:
    machine.start(99).tick(range(100, 1000))
    keep(machine)
    whole = cells(machine.archive.select("disk", step="5min", stat="mean,max,tmax,sum,count"))
    forget(machine, "1s")
    assert cells(machine.archive.select("disk", step="5min", stat="mean,max,tmax,sum,count")) == whole
    forget(machine, "10s")
    assert cells(machine.archive.select("disk", step="5min", stat="mean,max,tmax,sum,count")) == whole
    fine = machine.archive.select(READ, QUEUE, step="10s", stat="sum,count")
    assert np.diff(fine.times_ns).tolist() == [10 * SECOND_NS] * (len(fine.times_ns) - 1)
    there = fine.times_ns[fine.column(QUEUE, "count").values > 0]
    assert (there % (60 * SECOND_NS) == 0).all()
    assert np.nansum(fine.column(READ, "sum").values) == counter(999) - counter(100)
    assert fine.column(QUEUE, "count").values.sum() == 900
    entry = machine.archive.catalogue("disk/queue")[0]
    assert (entry.start_ns, entry.interval_ns) == (NOON_NS + 100 * SECOND_NS, 60 * SECOND_NS)


def test_rows_and_a_tier_meet_without_a_seam(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 700))
    keep(machine)
    forget(machine, "1s")
    (Path(archive.disk_folder(machine.folders, Sensitivity.PUBLIC))).mkdir()
    writer.tick(range(700, 1000))
    for step in ("1s", "10s", "5min", "1h"):
        result = machine.archive.select(READ, QUEUE, step=step, stat="sum,count")
        assert np.nansum(result.column(READ, "sum").values) == counter(999) - counter(100), step
        assert result.column(QUEUE, "count").values.sum() == 900, step
        assert not [gap for gap in result.gaps if gap.end_ns < NOON_NS + 10000 * SECOND_NS]
    maximum = machine.archive.select(QUEUE, step="1h", stat="max")
    assert maximum.columns[0].values.tolist() == [max(gauge(second) for second in range(100, 1000)) / 100]
    raw = machine.archive.select(QUEUE, raw=True)
    assert len(raw.times_ns) == 300


def test_a_counter_that_was_reset_is_a_gap_in_a_tier_too(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 400))
    writer.offset = -counter(400)
    writer.tick(range(400, 700), ("sda", "sdb"))
    writer.tick(range(700, 900))
    keep(machine)
    rows = [gap for gap in machine.archive.select("disk/read_bytes", step="1s").gaps if gap.cause is RESET]
    assert [(gap.start_ns, gap.detail) for gap in rows] == [(NOON_NS + 399 * SECOND_NS, READ)]
    for tier, step_s in (("1s", 10), ("10s", 60)):
        forget(machine, tier)
        result = machine.archive.select("disk/read_bytes", step=f"{step_s}s")
        (gap,) = [gap for gap in result.gaps if gap.cause is RESET]
        assert gap.detail == READ
        assert gap.start_ns <= NOON_NS + 400 * SECOND_NS <= gap.end_ns < gap.start_ns + step_s * SECOND_NS


def test_an_explanation_names_what_answered(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick(range(100, 700))
    keep(machine)
    forget(machine, "1s")
    (Path(archive.disk_folder(machine.folders, Sensitivity.PUBLIC))).mkdir()
    writer.tick([*range(700, 800), *range(810, 1000)])
    result = machine.archive.select(READ, QUEUE, step="20s", stat="mean,max", explain=True)
    assert [(each.path, each.stat) for each in result.explanations] == [
        (column.path, column.stat) for column in result.columns
    ]
    mean = result.explanations[0]
    assert (mean.path, mean.unit, mean.formula) == (READ, "B/s", "increase ÷ time it took")
    spans = [
        (part.tier, (part.start_ns - NOON_NS) // SECOND_NS, (part.end_ns - NOON_NS) // SECOND_NS)
        for part in mean.answered
    ]
    assert spans == [("10s", 100, 700), ("rows", 700, 1000)]
    assert "10s" in mean.resampling
    assert ("late tick", 1) in [(str(gap.cause), gap.number) for gap in mean.gaps]
    raw = machine.archive.select(QUEUE, raw=True, explain=True).explanations[0]
    assert (raw.formula, raw.step_ns, [part.tier for part in raw.answered]) == ("as stored", 0, ["rows"])
    assert not machine.archive.select(READ).explanations
    long_ago = machine.archive.select(READ, start=0, end=SECOND_NS, explain=True).explanations[0]
    assert (long_ago.answered, long_ago.resampling) == ((), "nothing to resample")


def test_every_statistic_has_a_formula(machine: Machine) -> None:
    machine.start(99).tick(range(100, 130))
    told = machine.archive.select("disk", step="10s", stat=STATISTICS, explain=True).explanations
    formulas = {(each.path, each.stat): each.formula for each in told}
    assert len(formulas) == 3 * len(STATISTICS)
    assert formulas[READ, "max"] == "largest increase from row to row ÷ interval"
    assert formulas[READ, "count"] == "number of increases"
    assert formulas[QUEUE, "mean"] == "sum of values ÷ their number"
    assert formulas["disk/model@sda", "mean"] == "last value"
    assert formulas["disk/model@sda", "tmax"] == "nothing"


def test_a_lost_tick_in_a_tier_is_a_gap(machine: Machine) -> None:
    writer = machine.start(99)
    writer.tick([*range(100, 200), *range(203, 600)])
    keep(machine)
    forget(machine, "1s", "10s", "1min")
    gap = machine.archive.select(QUEUE, step="5min").gaps[0]
    assert (str(gap.cause), gap.detail) == ("late tick", "3 ticks in this time")
    assert gap.start_ns <= NOON_NS + 200 * SECOND_NS < gap.end_ns
