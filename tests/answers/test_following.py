# SPDX-License-Identifier: Apache-2.0
"""What is followed is what is asked afterwards: the same values and rows, each tick once, with gaps and events."""

import os
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from sysmond.answers import following
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Result
from sysmond.errors import Error, UsageError
from sysmond.records import Records, codes, record_bytes
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import Row, pack
from tests.support.machine import BOOT, NOON_NS, Machine

MEMORY = Table(
    "memory", (Metric("total", "B", Semantics.GAUGE, "All."), Metric("available", "B", Semantics.GAUGE, "Left."))
)
DISKS = ("sda", "sdb")


@pytest.fixture
def each_look(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterator[None]], None]:
    """Have something recorded before each look, instead of waiting for it; the last time it ends."""

    def recorded(steps: Iterator[None]) -> None:
        monkeypatch.setattr(following, "wait", lambda: next(steps))

    return recorded


def followed(results: Iterator[Result]) -> list[Result]:
    """What there is until nothing more is recorded."""
    found: list[Result] = []

    def take() -> None:
        for result in results:
            found.append(result)  # noqa: PERF402  what came before the end stays

    with pytest.raises(RuntimeError, match="StopIteration"):  # A generator may not end by the end of another.
        take()
    return found


def test_series_are_those_that_are_asked_for_later(
    machine: Machine, each_look: Callable[[Iterator[None]], None]
) -> None:
    """One tick or several between two looks; a counter that begins anew; a gap; what was there before is not told."""
    writer = machine.start(0.5)
    writer.tick(range(1, 20), DISKS)

    def steps() -> Iterator[None]:
        for seconds, offset in ((range(20, 21), 0), (range(21, 24), 0), (range(30, 33), 0), (range(33, 40), -900)):
            writer.offset = offset
            writer.tick(seconds, DISKS)
            yield

    each_look(steps())
    found = followed(machine.archive.follow("disk/read_bytes", "disk/queue@sdb", "disk/model@sda"))
    seconds = [*range(20, 24), *range(30, 40)]
    assert [result.times_ns.tolist() for result in found] == [[NOON_NS + second * SECOND_NS] for second in seconds]
    paths = ["disk/read_bytes@sda", "disk/read_bytes@sdb", "disk/queue@sdb", "disk/model@sda"]
    asked = machine.archive.select(*paths, start=NOON_NS + 20 * SECOND_NS, step="1s")
    for result in found:
        at = asked.times_ns.tolist().index(int(result.times_ns[0]))
        assert sorted(column.path for column in result.columns) == sorted(paths)
        for column in result.columns:
            same = asked.column(column.path)
            assert (column.unit, column.semantics) == (same.unit, same.semantics)
            if column.texts is not None:
                assert same.texts is not None
                assert column.texts == (same.texts[at],)
            else:
                assert column.values == pytest.approx([same.values[at]], nan_ok=True)
    unknown = [result for result in found if np.isnan(result.column("disk/read_bytes@sda").values[0])]
    assert [int(result.times_ns[0]) for result in unknown] == [NOON_NS + second * SECOND_NS for second in (30, 33)]


def test_derived_columns_and_gaps_are_told(machine: Machine, each_look: Callable[[Iterator[None]], None]) -> None:
    writer = machine.start(0.5, table=MEMORY)

    def tick(second: int, available: int) -> None:
        writer.relation(second * SECOND_NS)
        writer.ring.rows(0, second * SECOND_NS, ("",), [1000, available])

    def steps() -> Iterator[None]:
        tick(2, 250)
        yield
        writer.ring.absence(0, 3 * SECOND_NS, Cause.PROBE_FAILED, "no such file")
        yield
        tick(4, ABSENT)
        writer.ring.event(4 * SECOND_NS, "mark", "", "here")
        yield
        tick(5, 500)
        yield

    tick(1, 100)
    each_look(steps())
    found = followed(machine.archive.follow("memory/used_percent"))
    assert [column.path for result in found for column in result.columns] == ["memory/used_percent"] * 3
    values = [float(result.columns[0].values[0]) for result in found if result.columns]
    assert values == pytest.approx([75.0, np.nan, 50.0], nan_ok=True)
    at_ns = NOON_NS + 3 * SECOND_NS
    gaps = [(gap.start_ns, gap.end_ns, gap.table, gap.cause, gap.detail) for result in found for gap in result.gaps]
    assert gaps == [(at_ns, at_ns + SECOND_NS, "memory", Cause.PROBE_FAILED, "no such file")]
    assert [(event.kind, event.text) for result in found for event in result.events] == [("mark", "here")]


def test_rows_of_long_tables_are_those_that_are_stored(
    machine: Machine, each_look: Callable[[Iterator[None]], None]
) -> None:
    """Also where a reading has several frames, of which the last comes later."""
    folder = f"{machine.folders.runtime}/sampler/restricted/process"
    os.makedirs(folder)
    identity = Identity(BOOT, "sampler", Sensitivity.RESTRICTED, 1, SECOND_NS)
    ring = RingWriter(f"{folder}/{SECOND_NS}.ring", 1 << 20, identity, [Layout(PROCESS, SECOND_NS)])
    machine.start(0.5).relation(SECOND_NS)
    kind = list(zip(PROCESS.metrics, codes(PROCESS), strict=True))

    def records(second: int, pids: range, pieces: int = 1) -> None:
        made = []
        for number in range(pieces):
            rows: list[Row] = [
                {"pid": pid, "start": pid * SECOND_NS, "comm": f"p{pid}", "cpu": second * pid, "state": "S"}
                for pid in pids[number::pieces]
            ]
            packed, blob = pack(PROCESS, kind, rows)
            made.append(Records(packed, second == 1, 0, len(rows), blob))
        ring.records(0, second * SECOND_NS, made, record_bytes(PROCESS))

    def steps() -> Iterator[None]:
        records(2, range(1, 3))
        yield
        records(3, range(1, 2))
        records(4, range(1, 8), pieces=3)
        yield

    ring.clock(Relation(SECOND_NS, NOON_NS + SECOND_NS, SECOND_NS))
    records(1, range(1, 8))
    each_look(steps())
    found = followed(machine.archive.follow("process"))
    assert [(result.table, len(result.times_ns), result.sensitivity) for result in found] == [
        ("process", rows, Sensitivity.RESTRICTED) for rows in (2, 1, 7)
    ]
    labels = "pid,start,comm,cpu,state,ppid"
    asked = machine.archive.records("process", raw=True, columns=labels, start=NOON_NS + 2 * SECOND_NS)
    given = [row for result in found for row in result.records[["time", *labels.split(",")]].tolist()]
    assert sorted(given) == sorted(asked.records.tolist())


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("disk/reed_bytes", "there is no metric 'disk/reed_bytes'; did you mean disk/read_bytes"),
        ("nix", "there is no table 'nix'"),
        ("disk@sdz", "path 'disk@sdz': no such instance"),
    ],
)
def test_what_is_not_recorded_is_refused_at_once(machine: Machine, pattern: str, said: str) -> None:
    with pytest.raises(Error, match="nothing is being recorded there"):
        machine.archive.follow(pattern)
    machine.start(0.5).tick(range(1, 3))
    with pytest.raises(UsageError) as refusal:
        machine.archive.follow(pattern)
    assert said in str(refusal.value)


def test_events_alone_can_be_followed(machine: Machine, each_look: Callable[[Iterator[None]], None]) -> None:
    writer = machine.start(0.5)
    writer.tick(range(1, 3))

    def steps() -> Iterator[None]:
        yield
        writer.ring.event(4 * SECOND_NS, "mark", "", "here")
        yield
        yield

    each_look(steps())
    found = followed(machine.archive.follow("event"))
    assert [(len(result.times_ns), [event.text for event in result.events]) for result in found] == [(0, ["here"])]


def test_a_look_comes_after_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for now_ns, expected_s in ((10 * SECOND_NS, 0.15), (10 * SECOND_NS + 150_000_000, 1.0), (11 * SECOND_NS - 1, 0.15)):
        monkeypatch.setattr(clock, "boottime_ns", lambda now_ns=now_ns: now_ns)
        following.wait()
        assert slept[-1] == pytest.approx(expected_s)
