# SPDX-License-Identifier: Apache-2.0
"""Blocks of tiers: what is written comes back, by the program and by docs/format.md alone."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.snapshot import snapshot
from sysmond.ring.writer import RingWriter
from sysmond.store.archive import Name
from sysmond.store.coding import statistics
from sysmond.store.coding.statistics import Buckets, Stat
from sysmond.store.files import dense_file
from sysmond.store.files.dense_file import Segment, Writer
from sysmond.store.of_ring import BootEvent, Hole, Recording, SeriesKey, Strand, of_snapshot

BOOT = "c" * 32
SECOND = 10**9
TABLE = Table(
    "disk",
    (
        Metric("read", "B", Semantics.COUNTER, "Read."),
        Metric("queue", "1", Semantics.GAUGE, "Waiting.", 2),
        Metric("model", "text", Semantics.STATE, "Made by."),
    ),
    "device",
)
STRAND = Strand(BOOT, "sampler", 5, SECOND, 10 * SECOND)
EVENTS = [BootEvent(BOOT, 7 * SECOND, "mark", "", "deploy 12"), BootEvent(BOOT, 8 * SECOND, "pin", "oom", "köln")]
HOLES = [Hole(BOOT, "disk", 1, 5, Cause.DROPPED, "")]
RECORDING = Recording(
    Sensitivity.PUBLIC,
    {"disk": TABLE},
    (),
    {7: "ACME"},
    {BOOT: [Relation(1, 10**18, 1)]},
    HOLES,
    EVENTS,
    (),
    [Name(BOOT, 3, 9)],
)


def rolled(values: Int64Array, hollow: bool) -> tuple[statistics.Axis, list[tuple[list[SeriesKey], Buckets]]]:
    """Buckets of each kind of series, made of these rows."""
    ticks = (np.arange(values.shape[1], dtype=np.int64) + 3) * SECOND
    if hollow:
        ticks = ticks * np.array([1]) + np.cumsum(values[0] % 3 == 0) * 5 * SECOND
    starts = statistics.cut(ticks, 10 * SECOND, np.zeros(len(ticks), bool))
    made = []
    for metric in TABLE.metrics:
        keys = [SeriesKey("disk", metric.name, f"sd{row}") for row in range(len(values))]
        made.append((keys, statistics.of_rows(statistics.stats_of(metric), values, ticks, starts, SECOND)))
    return made[0][1].axis, made


def write(path: Path, axis: statistics.Axis, parts: list[tuple[list[SeriesKey], Buckets]]) -> None:
    with Writer(RECORDING, [key for keys, _ in parts for key in keys], {BOOT}, "a test") as writer:
        tier = writer.tier(STRAND, axis, closed=True)
        for keys, buckets in parts:
            tier.add(keys, buckets)
        tier.finish()
        path.write_bytes(writer.image())


@st.composite
def matrices(draw: st.DrawFn) -> Int64Array:
    length = draw(st.integers(1, 60))
    cell = st.one_of(st.integers(0, 60), st.just(ABSENT), st.integers(-(2**45), 2**45))
    kind = draw(st.sampled_from([st.integers(0, 60), cell]))
    return np.array([draw(st.lists(kind, min_size=length, max_size=length)) for _ in range(3)], np.int64)


def same(one: Buckets, other: Buckets) -> bool:
    alike = all(np.array_equal(a, b) for a, b in zip(one.axis, other.axis, strict=True))
    alike = alike and all(np.array_equal(array, other.stats[stat]) for stat, array in one.stats.items())
    if one.edges is None or other.edges is None:
        return alike and one.edges is other.edges
    return alike and all(np.array_equal(a, b) for a, b in zip(one.edges, other.edges, strict=True))


@given(matrices(), st.booleans())
def test_buckets_come_back_from_a_file(
    tmp_path_factory: pytest.TempPathFactory, values: Int64Array, hollow: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "tier.h5"
    axis, parts = rolled(values, hollow)
    write(path, axis, parts)
    with Segment(str(path)) as opened:
        assert not opened.recording.blocks
        [tier] = opened.recording.tiers
        assert (tier.strand, tier.closed) == (STRAND, True)
        for keys, buckets in parts:
            rows = [list(tier.keys).index(key) for key in keys]
            assert {tier.stats[row] for row in rows} == {statistics.stats_of(_metric(keys[0]))}
            assert same(buckets, tier.buckets(rows))
            some = tier.buckets(rows[1:2], [Stat.MAX, Stat.LAST])
            for stat in some.stats:
                assert np.array_equal(some.stats[stat], buckets.stats[stat][1:2])
        with pytest.raises(ValueError, match="one kind"):
            tier.buckets(range(len(tier.keys)))


def _metric(key: SeriesKey) -> Metric:
    return next(metric for metric in TABLE.metrics if metric.name == key.metric)


def test_everything_else_comes_back_too(tmp_path: Path) -> None:
    write(tmp_path / "a.h5", *rolled(np.arange(30, dtype=np.int64)[None], hollow=False))
    with Segment(str(tmp_path / "a.h5")) as opened:
        found = opened.recording
        assert (found.events, found.covers, found.holes) == (EVENTS, [Name(BOOT, 3, 9)], HOLES)
        assert (found.texts, found.clocks, found.tables) == (RECORDING.texts, RECORDING.clocks, RECORDING.tables)


def test_series_that_never_move_share_rows_and_come_back(tmp_path: Path) -> None:
    stood = np.array([0, 7, -(2**40)], np.int64)
    axis, parts = rolled(np.repeat(stood[:, None], 400, axis=1), hollow=False)
    _, still = rolled(np.zeros((1, 400), np.int64), hollow=False)
    with Writer(RECORDING, [key for keys, _ in parts for key in keys], {BOOT}, "a test") as writer:
        tier = writer.tier(STRAND, axis, closed=True)
        for (keys, _), (_, buckets) in zip(parts, still, strict=True):
            tier.add_steady(keys, stood.tolist(), buckets)
        tier.finish()
        (tmp_path / "a.h5").write_bytes(writer.image())
    found = by_the_document(tmp_path / "a.h5")
    with Segment(str(tmp_path / "a.h5")) as opened:
        [block] = opened.recording.tiers
        for keys, buckets in parts:
            again = block.buckets([block.keys.index(key) for key in keys])
            assert same(again, buckets)
            for row, key in enumerate(keys):
                assert {stat.name.lower(): array[row].tolist() for stat, array in buckets.stats.items()} == {
                    name: column.tolist() for name, column in found[key.metric, key.instance].items() if name != "edges"
                }
    with h5py.File(tmp_path / "a.h5") as file:
        assert len(file["tier/0/i1"]) < len(parts) * len(stood)


def by_the_document(path: Path) -> dict[tuple[str, str], dict[Any, Any]]:
    """Statistics by metric and instance, with h5py and numpy alone."""
    absent = -(2**63)
    found: dict[tuple[str, str], dict[Any, Any]] = {}
    with h5py.File(path) as file:
        assert "block" not in file
        [group] = file["tier"].values()
        ticks, rows = group["ticks"][:], group["rows"][:]
        kinds = {}
        for entry in group["series"][:]:
            metric = file["metrics"][entry["metric"]]
            key = metric["name"].decode(), file["instances"][entry["instance"]].decode()
            kinds[key] = metric["semantics"].decode()
            width = entry["width"]
            codes = group[f"i{width}"][entry["row"]].astype("i8") if width else 0 * ticks
            missing = codes == (-(2 ** (8 * int(width) - 1)) if width else 1)
            values = np.where(missing | (entry["first"] == absent), absent, entry["first"] + codes)
            found.setdefault(key, {})[int(entry["stat"])] = values
        for key, small in found.items():
            count = rows - small[1]
            there = count > 0
            stats = {"count": count}
            if kinds[key] == "counter":
                stats["sum"] = small[2]
                stats["max"] = np.where(there, small[4] + small[2] // np.maximum(count, 1), absent)
                stats["leap"], stats["leap_ns"] = small[7], small[8]
            else:
                stats["last"] = small[5]
                if 2 in small:
                    stats["sum"] = np.where(there, small[2] + count * small[5], 0)
                    stats["min"] = np.where(there, small[5] - small[3], absent)
                    stats["max"] = np.where(there, small[5] + small[4], absent)
            if 6 in small:
                stats["tmax"] = np.where(there, ticks + small[6] * group.attrs["interval_ns"], absent)
            found[key] = stats
        for edge in group["edges"][:]:
            name = file["metrics"][edge["metric"]]["name"].decode()
            fields = ("first_value", "first_ns", "last_value", "last_ns")
            found[name, file["instances"][edge["instance"]].decode()]["edges"] = [int(edge[field]) for field in fields]
    return found


def test_a_tier_is_read_by_the_document(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    values = np.cumsum(random.integers(0, 1000, (3, 400)), axis=1)
    values[1, 17:60] = ABSENT
    values[2, 200:] -= values[2, 199]
    axis, parts = rolled(values, hollow=True)
    write(tmp_path / "a.h5", axis, parts)
    found = by_the_document(tmp_path / "a.h5")
    for keys, buckets in parts:
        for row, key in enumerate(keys):
            said = found[key.metric, key.instance]
            for stat, array in buckets.stats.items():
                assert said[stat.name.lower()].tolist() == array[row].tolist(), (key, stat)
            if buckets.edges:
                assert said["edges"] == [int(column[row]) for column in buckets.edges]


def test_an_event_goes_through_the_ring(tmp_path: Path) -> None:
    path = str(tmp_path / "1.ring")
    writer = RingWriter(path, 1 << 16, Identity(BOOT, "archiver", Sensitivity.PUBLIC, 1, 1), [Layout(TABLE, SECOND)])
    for event in EVENTS:
        writer.event(event.boottime_ns, event.kind, event.subject, event.text)
    recording = of_snapshot(snapshot(path))
    assert recording.events == EVENTS
    (tmp_path / "a.h5").write_bytes(dense_file.encode(recording, "a test"))
    with Segment(str(tmp_path / "a.h5")) as opened:
        assert opened.recording.events == EVENTS
    writer.event(1, "mark", "", "x" * 5000)
    assert len(of_snapshot(snapshot(path)).events[-1].text) == 1024
