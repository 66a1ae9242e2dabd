# SPDX-License-Identifier: Apache-2.0
"""Bursts begin where something happened, seldom enough, and end in time, or earlier where they cost too much."""

import errno
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sysmond.base import clock
from sysmond.base.event_kinds import INCIDENTS
from sysmond.base.model import Lane
from sysmond.machine import control
from sysmond.probe import Host
from sysmond.ring.snapshot import snapshot
from sysmond.sampler import bursts, lane
from sysmond.sampler.bursts import APART_NS, CPU_PERCENT_MAX, FILE, LASTS_NS, TABLE, Bursts
from sysmond.sampler.lane import Sampler
from sysmond.store.of_ring import of_snapshot
from tests.support.bench import SECOND, Bench, Read, steady

BOOT = "a" * 32
BEGAN = {"do": "burst", "kind": "oom kill"}


@pytest.fixture
def bench(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(runtime, monkeypatch)


def test_one_lasts_half_a_minute_and_the_next_begins_after_five_minutes(tmp_path: Path) -> None:
    made = Bursts(str(tmp_path), BOOT)
    assert not made.is_on(0)
    assert made.begin(1000, 0)
    assert made.is_on(1000 + LASTS_NS - 1)
    assert not made.is_on(1000 + LASTS_NS)
    assert not made.begin(1000, 0)
    assert not made.begin(1000 + APART_NS - 1, 0)
    assert made.begin(1000 + APART_NS, 0)


def test_the_next_incarnation_knows_when_the_last_began_and_ends_it(tmp_path: Path) -> None:
    Bursts(str(tmp_path), BOOT).begin(1000, 0)
    after = Bursts(str(tmp_path), BOOT)
    assert not after.is_on(1001)
    assert not after.begin(1001, 0)
    assert Bursts(str(tmp_path), "b" * 32).begin(1001, 0)


@pytest.mark.parametrize("noted", ["[1", "{}", '{"boot": "%s", "began_ns": "x"}', '{"boot": "%s", "began_ns": 1e99}'])
def test_a_damaged_note_costs_what_it_told(tmp_path: Path, noted: str) -> None:
    (tmp_path / FILE).write_text(noted.replace("%s", BOOT))
    assert Bursts(str(tmp_path), BOOT).begin(5, 0)


def test_no_burst_takes_more_than_its_share_of_a_core(tmp_path: Path) -> None:
    made = Bursts(str(tmp_path), BOOT)
    made.begin(0, 7)
    in_two_seconds_ns = 2 * SECOND * CPU_PERCENT_MAX // 100
    assert made.judge(SECOND // 10, 7 + in_two_seconds_ns) == ""  # One reading tells nothing.
    assert made.judge(10 * SECOND, 7 + 5 * in_two_seconds_ns) == ""
    assert made.judge(10 * SECOND, 7 + 6 * in_two_seconds_ns) == (
        "ended after 10.0 s: the sampler used 6.0 % of a core; at most 5 % are allowed"
    )
    assert not made.is_on(10 * SECOND)
    assert made.judge(11 * SECOND, 10**12) == ""


def lane_of(bench: Bench, read: Read = steady, kinds: Sequence[str] = INCIDENTS) -> Sampler:
    bench.offer(TABLE, read)
    sampler = bench.sampler()
    settings = sampler._plan.sampler._replace(burst_kinds=tuple(kinds))
    sampler._plan = sampler._plan._replace(sampler=settings)
    sampler.tick(first_ns())
    return sampler


def first_ns() -> int:
    return clock.boottime_ns() // SECOND * SECOND + SECOND


def interval_ns(sampler: Sampler) -> int:
    source = sampler._roster.find(TABLE)
    assert source is not None
    return source.interval_ns


def burst_events(bench: Bench) -> list[tuple[str, str]]:
    return [
        (event.subject, event.text)
        for path in bench.rings()
        for event in of_snapshot(snapshot(path)).events
        if event.kind == "burst"
    ]


def test_the_lane_reads_threads_more_often_and_says_why(bench: Bench) -> None:
    sampler = lane_of(bench)
    assert sampler._obey(dict(BEGAN)) == {"ok": True}
    at_ns = sampler._now_ns
    sampler.tick(at_ns + SECOND)
    assert interval_ns(sampler) == bursts.INTERVAL_NS
    assert burst_events(bench) == [(TABLE, "read every 0.1 s for 30 s: oom kill")]
    assert sampler._obey(dict(BEGAN)) == {"ok": False}
    sampler.tick(at_ns + LASTS_NS)
    assert interval_ns(sampler) == SECOND
    assert len(burst_events(bench)) == 1
    sampler.close()


def test_a_burst_that_costs_too_much_ends_early_and_that_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spent_ns = 0
    monkeypatch.setattr(lane, "process_time_ns", lambda: spent_ns)
    sampler = lane_of(bench)
    sampler._obey(dict(BEGAN))
    at_ns = sampler._now_ns
    sampler.tick(at_ns + SECOND)
    spent_ns = SECOND // 2
    sampler.tick(at_ns + 4 * SECOND)
    sampler.tick(at_ns + 5 * SECOND)
    assert interval_ns(sampler) == SECOND
    assert [text for _, text in burst_events(bench)][1:] == [
        "ended after 4.0 s: the sampler used 12.5 % of a core; at most 5 % are allowed"
    ]
    sampler.close()


def absent(host: Host) -> Any:
    raise OSError(errno.ENOENT, "not by BPF")


def test_where_threads_are_not_read_there_is_none(bench: Bench) -> None:
    sampler = lane_of(bench, absent)
    assert sampler._obey(dict(BEGAN)) == {"ok": False}
    sampler.tick(sampler._now_ns + SECOND)
    assert interval_ns(sampler) == SECOND
    assert burst_events(bench) == []
    sampler.close()


def test_where_another_holds_them_back_there_is_none(bench: Bench) -> None:
    sampler = lane_of(bench)
    hold = {"do": "hold", "tables": [TABLE], "interval_ns": 0, "seconds": 60, "back_ns": 5 * SECOND, "why": "a test"}
    sampler._obey(hold)
    sampler.tick(sampler._now_ns + 5 * SECOND)
    assert sampler._obey(dict(BEGAN)) == {"ok": False}
    sampler.close()


def test_only_incidents_have_one_as_the_configuration_says(bench: Bench) -> None:
    sampler = lane_of(bench, kinds=["link"])
    assert sampler._obey(dict(BEGAN)) == {"ok": False}
    assert sampler._obey({"do": "burst", "kind": "link"}) == {"ok": True}
    sampler.close()


class Throttled:
    """A probe that tells what a test has it tell."""

    def __init__(self) -> None:
        self.tells: list[dict[str, Any]] = []

    def __call__(self, host: Host) -> Iterator[tuple[str, tuple[int, int]]]:
        for told in self.tells:
            host.tell_event(**told)
        self.tells.clear()
        yield "a", (1, 2)


def test_the_background_lane_asks_for_one_when_it_records_an_incident_as_it_happens(bench: Bench) -> None:
    probe = Throttled()
    bench.offer("heat", probe, lane=Lane.BACKGROUND)
    sampler = bench.sampler(Lane.BACKGROUND)
    folder = bench.runtime / "sampler"
    folder.mkdir(exist_ok=True)
    orders: list[control.Order] = []

    def obey(order: control.Order) -> control.Order:
        orders.append(order)
        return {}

    def told(kind: str, **more: Any) -> list[control.Order]:
        probe.tells = [{"kind": kind, "subject": "x", "text": "y", **more}] * 3
        sampler.tick(max(clock.boottime_ns(), sampler._now_ns) // SECOND * SECOND + SECOND)
        assert probe.tells == []
        orders.clear()
        listener.serve(obey)
        return [{name: order[name] for name in ("do", "kind")} for order in orders]

    with control.listen(str(folder)) as listener:
        assert told("throttled") == [{"do": "burst", "kind": "throttled"}]
        assert told("lid") == []
        assert told("oom kill", happened_ns=5, known_from="kernel messages") == []
    sampler.close()


def test_the_note_says_no_more_than_it_must(tmp_path: Path) -> None:
    Bursts(str(tmp_path), BOOT).begin(1000, 0)
    assert json.loads((tmp_path / FILE).read_text()) == {"boot": BOOT, "began_ns": 1000}
