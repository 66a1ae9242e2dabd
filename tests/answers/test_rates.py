# SPDX-License-Identifier: Apache-2.0
"""Statistics, against an oracle that goes through the rows one by one."""

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.answers.series import rates
from sysmond.answers.series.rates import LineagePart, Statistic
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Metric, Semantics
from sysmond.base.statistic import STATISTICS
from sysmond.store.coding.statistics import stats_of

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = Metric("read_bytes", "B", Semantics.COUNTER, "Read.")
CPU = Metric("user", "s", Semantics.COUNTER, "CPU time.", 2)
GAUGE = Metric("queue", "1", Semantics.GAUGE, "Waiting.", 2)
STATE = Metric("state", "1", Semantics.STATE, "State.")
TEXT = Metric("model", "text", Semantics.STATE, "Model.")


class Sample(NamedTuple):
    """A row as the oracle takes it: tick in seconds, value, bucket."""

    tick: int
    value: int
    bucket: int


def parts_of(samples: list[Sample], metric: Metric, interval_s: int = 1) -> list[LineagePart]:
    """What history makes of rows: rolled up where their bucket changes."""
    if not samples:
        return []
    ticks, values, buckets = (np.array([sample[column] for sample in samples], np.int64) for column in range(3))
    number = np.where(buckets < 0, rates.OUTSIDE, buckets)
    starts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    interval_ns = interval_s * SECOND_NS
    made, more = rates.of_rows(stats_of(metric), values[None], ticks * SECOND_NS, starts, interval_ns, in_full=True)
    place, kept = rates.once(number[starts], {**rates.statistics_of(made), **more})
    return [LineagePart(place, {stat: each[0] for stat, each in kept.items()}, interval_ns)]


@st.composite
def counters(draw: st.DrawFn) -> list[Sample]:
    """A counter over a minute, with gaps, resets, corrections and a wall clock that may be set back."""
    tick = draw(st.integers(0, 5))
    value = draw(st.integers(0, 10**9))
    samples = []
    for _ in range(draw(st.integers(1, 40))):
        shift = draw(st.sampled_from([0] * 8 + [-7]))
        bucket = max(-1, (tick + shift) // 5 - draw(st.sampled_from([0] * 9 + [100])))
        samples.append(Sample(tick, value, bucket))
        tick += draw(st.sampled_from([1] * 8 + [2, 13]))
        change = draw(st.sampled_from(["grow"] * 8 + ["stay", "correct", "reset", "wrap"]))
        if change == "grow":
            value += draw(st.integers(0, 10**6))
        elif change == "correct":
            value -= value // 1000
        elif change == "reset":
            value = draw(st.integers(0, 1 + value // 4))
        elif change == "wrap":
            value = (value + 2**31) % 2**32
    return samples


class Growth(NamedTuple):
    """An increment as the oracle has it, and the tick that ends it."""

    amount: int
    length: int
    bucket: int
    tick: int


def grown(samples: list[Sample]) -> list[Growth]:
    """Growth by growth: what falls by more than half began anew, what falls by less was corrected."""
    return [
        Growth(after.value - before.value, after.tick - before.tick, after.bucket, after.tick)
        for before, after in pairwise(samples)
        if after.value >= before.value // 2 and after.bucket >= 0
    ]


def mean_of(group: list[Growth], step: int) -> Fraction | None:
    over = [each for each in group if each.length > 1]
    if sum(each.length for each in over) > step:
        group = [each for each in group if each.length == 1]
    if not group:
        return None
    return max(Fraction(0), Fraction(sum(each.amount for each in group), sum(each.length for each in group)))


def statistic(growth: list[Growth], stat: str, step: int) -> dict[int, Fraction]:
    """The value of each bucket that has one."""
    by_bucket: dict[int, list[Growth]] = {}
    for each in growth:
        by_bucket.setdefault(each.bucket, []).append(each)
    if stat == "sum":
        return {bucket: Fraction(sum(each.amount for each in group)) for bucket, group in by_bucket.items()}
    if stat == "mean":
        means = {bucket: mean_of(group, step) for bucket, group in by_bucket.items()}
        return {bucket: mean for bucket, mean in means.items() if mean is not None}
    choices: dict[str, Callable[[list[Growth]], int]] = {
        "min": lambda group: max(0, min(each.amount for each in group)),
        "max": lambda group: max(0, *(each.amount for each in group)),
        "tmax": lambda group: next(each.tick for each in group if each.amount == max(other.amount for other in group)),
        "first": lambda group: max(0, group[0].amount),
        "last": lambda group: max(0, group[-1].amount),
        "count": len,
    }
    single = {bucket: [each for each in group if each.length == 1] for bucket, group in by_bucket.items()}
    return {bucket: Fraction(choices[stat](group)) for bucket, group in single.items() if group}


def numbers(made: Statistic) -> dict[int, Fraction]:
    """What a statistic says, bucket by bucket."""
    if made.integers is not None:
        held = enumerate(made.integers.tolist())
        return {bucket: Fraction(value, 10**made.scale) for bucket, value in held if value != ABSENT}
    assert made.floats is not None
    return {bucket: Fraction(value) for bucket, value in enumerate(made.floats.tolist()) if not np.isnan(value)}


@given(counters(), st.sampled_from(STATISTICS), st.sampled_from([1, 5, 20]), st.sampled_from([BYTES, CPU]))
def test_counters_are_as_the_oracle_says(samples: list[Sample], stat: str, step: int, metric: Metric) -> None:
    buckets = max(sample.bucket for sample in samples) + 1
    made = rates.of_counter(parts_of(samples, metric), metric, stat, step * SECOND_NS, buckets)
    expected = statistic(grown(samples), stat, step)
    if metric is CPU and stat == "sum":
        expected = {bucket: value / 100 for bucket, value in expected.items()}
    if stat == "count":
        expected = {bucket: expected.get(bucket, Fraction(0)) for bucket in range(buckets)}
    found = numbers(made)
    assert found.keys() == expected.keys()
    for bucket, value in expected.items():
        assert abs(found[bucket] - value) <= abs(value) / 10**12 + Fraction(1, 2 * 10**made.decimals)
        assert found[bucket] >= 0 or stat == "sum"
    if stat in {"sum", "count"}:
        assert found == expected


@given(counters(), st.lists(st.integers(0, 120), max_size=20))
def test_sums_over_any_partition_are_the_total(samples: list[Sample], cuts: list[int]) -> None:
    def total(edges: list[int]) -> int:
        places = [sum(sample.tick >= edge for edge in edges) for sample in samples]
        cut = [sample._replace(bucket=place) for sample, place in zip(samples, places, strict=True)]
        made = rates.of_counter(parts_of(cut, BYTES), BYTES, "sum", SECOND_NS, len(edges) + 1)
        return int(sum(numbers(made).values()))

    assert (
        total(sorted(cuts)) == total([]) == sum(each.amount for each in grown([s._replace(bucket=0) for s in samples]))
    )


@given(counters())
def test_a_mean_lies_between_minimum_and_maximum_where_there_is_no_gap(samples: list[Sample]) -> None:
    whole = [sample._replace(tick=index) for index, sample in enumerate(samples)]
    buckets = max(sample.bucket for sample in whole) + 1
    growth = parts_of(whole, BYTES)
    low, mean, high = (
        numbers(rates.of_counter(growth, BYTES, stat, 5 * SECOND_NS, buckets)) for stat in ("min", "mean", "max")
    )
    assert low.keys() == mean.keys() == high.keys()
    for bucket, value in mean.items():
        assert low[bucket] - Fraction(1, 10) <= value <= high[bucket] + Fraction(1, 10)


@given(counters(), st.integers(0, 40))
def test_series_may_come_in_pieces(samples: list[Sample], cut: int) -> None:
    """Boots come one by one; between them nothing grows."""
    pieces = [piece for piece in (samples[:cut], samples[cut:]) if piece]
    buckets = max(sample.bucket for sample in samples) + 1
    growth = [part for piece in pieces for part in parts_of(piece, BYTES)]
    found = numbers(rates.of_counter(growth, BYTES, "sum", SECOND_NS, buckets))
    assert sum(found.values()) == sum(each.amount for piece in pieces for each in grown(piece))


def counter_of(values: list[int], ticks: list[int] | None = None, metric: Metric = BYTES) -> list[LineagePart]:
    at = ticks or list(range(len(values)))
    return parts_of([Sample(tick, value, 0) for tick, value in zip(at, values, strict=True)], metric)


@pytest.mark.parametrize(
    ("values", "total", "resets"),
    [
        ([5], None, []),
        ([100, 99, 101, 105], 5, []),  # iowait steps back now and then.
        ([2**32 - 10, 5, 9], 4, [[0, 1]]),
        ([1000, 10, 20], 10, [[0, 1]]),
        ([0, 0, 0], 0, []),
        ([10, 6, 12], 2, []),
        ([1000, ABSENT, 10, 20], 10, [[0, 2]]),
    ],
)
def test_resets_wraps_and_corrections(values: list[int], total: int | None, resets: list[list[int]]) -> None:
    made = rates.of_counter(counter_of(values), BYTES, "sum", SECOND_NS, 1)
    assert numbers(made) == ({} if total is None else {0: total})
    assert rates.resets(np.array(values, np.int64)).tolist() == resets


def test_growth_across_a_gap_is_in_sums_and_in_means_it_fits_into_but_in_no_maximum() -> None:
    growth = counter_of([0, 1, 2, 1002, 1003], [0, 1, 2, 12, 13])

    def one(stat: str, step_s: int) -> dict[int, Fraction]:
        return numbers(rates.of_counter(growth, BYTES, stat, step_s * SECOND_NS, 1))

    assert one("sum", 5) == {0: 1003}
    assert one("max", 60) == one("min", 60) == one("mean", 5) == {0: 1}
    assert one("tmax", 60) == {0: 1}
    assert one("mean", 60)[0] == pytest.approx(1003 / 13, abs=0.01)


def test_parts_of_several_intervals_share_a_bucket() -> None:
    slow = parts_of([Sample(60, 60, 0), Sample(120, 240, 0)], BYTES, 60)
    both = [*counter_of([0, 1, 2]), *slow]
    assert numbers(rates.of_counter(both, BYTES, "max", 120 * SECOND_NS, 1)) == {0: 3}
    assert numbers(rates.of_counter(both, BYTES, "tmax", 120 * SECOND_NS, 1)) == {0: 120}
    assert numbers(rates.of_counter(both, BYTES, "mean", 120 * SECOND_NS, 1))[0] == pytest.approx(182 / 62, abs=0.01)


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62 - 1), st.integers(-1, 6)), min_size=1, max_size=40))
def test_gauges_are_as_the_oracle_says(cells: list[tuple[int, int]]) -> None:
    parts = parts_of([Sample(tick, value, bucket) for tick, (value, bucket) in enumerate(cells)], GAUGE)
    by_bucket: dict[int, list[int]] = {}
    for value, bucket in cells:
        if bucket >= 0:
            by_bucket.setdefault(bucket, []).append(value)
    oracle: dict[str, Callable[[list[int]], Fraction]] = {
        "mean": lambda group: Fraction(sum(group), len(group) * 100),
        "sum": lambda group: Fraction(sum(group), 100),
        "min": lambda group: Fraction(min(group), 100),
        "max": lambda group: Fraction(max(group), 100),
        "first": lambda group: Fraction(group[0], 100),
        "last": lambda group: Fraction(group[-1], 100),
    }
    for stat, choose in oracle.items():
        made = rates.of_gauge(parts, GAUGE, stat, 7)
        found = numbers(made)
        assert found.keys() == by_bucket.keys()
        for bucket, group in by_bucket.items():
            room = Fraction(max(map(abs, group)) * len(group), 10**14) + Fraction(1, 2 * 10**made.decimals)
            assert abs(found[bucket] - choose(group)) <= (0 if made.integers is not None else room)


def test_the_sum_of_a_large_gauge_does_not_wrap() -> None:
    parts = parts_of([Sample(tick, 2**62 - 1, 0) for tick in range(10)], GAUGE)
    assert numbers(rates.of_gauge(parts, GAUGE, "sum", 1))[0] == pytest.approx(10 * 2**62 / 100)
    assert numbers(rates.of_gauge(parts, GAUGE, "mean", 1))[0] == pytest.approx(2**62 / 100)


@pytest.mark.parametrize(
    ("scale", "divisor", "decimals"),
    [(0, 1, 0), (0, 10, 1), (0, 60, 2), (2, 1, 2), (2, 3, 3), (0, 1000, 3), (9, 1e9, 15), (0, 0.1, 0), (-2, 10, 0)],
)
def test_numbers_have_as_many_digits_as_they_carry(scale: int, divisor: float, decimals: int) -> None:
    assert rates.decimals_of(scale, divisor) == decimals


def test_rates_have_the_digits_of_their_unit() -> None:
    made = rates.of_counter(counter_of([0, 25, 50], metric=CPU), CPU, "mean", SECOND_NS, 1)
    assert (made.unit, made.decimals, made.floats) == ("%", 1, np.array([25.0]))
    assert rates.of_counter(counter_of([0, 7]), BYTES, "max", SECOND_NS, 1).decimals == 0
    assert rates.of_counter(counter_of([0, 7]), BYTES, "max", SECOND_NS, 1).unit == "B/s"
    exact = rates.of_gauge(parts_of([Sample(0, 125, 0)], GAUGE), GAUGE, "mean", 1)
    assert numbers(exact) == {0: Fraction(5, 4)}


@pytest.mark.parametrize("metric", [STATE, TEXT])
def test_a_state_has_no_mean_and_no_sum(metric: Metric) -> None:
    parts = parts_of([Sample(0, 9, 0), Sample(1, 3, 0), Sample(2, 5, 0)], metric)
    for stat in ("mean", "sum", "last"):
        assert numbers(rates.of_gauge(parts, metric, stat, 1)) == {0: 5}
    assert numbers(rates.of_gauge(parts, metric, "first", 1)) == {0: 9}
    assert numbers(rates.of_gauge(parts, metric, "max", 1)) == {0: 5 if metric.is_text else 9}
    assert numbers(rates.of_gauge(parts, metric, "count", 1)) == {0: 3}


@pytest.mark.parametrize("stat", STATISTICS)
def test_nothing_gives_nothing(stat: str) -> None:
    zero = {0: 0, 1: 0} if stat == "count" else {}
    assert numbers(rates.of_counter([], BYTES, stat, SECOND_NS, 2)) == zero
    assert numbers(rates.of_gauge([], GAUGE, stat, 2)) == zero
