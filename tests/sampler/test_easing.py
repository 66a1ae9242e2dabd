# SPDX-License-Identifier: Apache-2.0
"""The background lane reads more seldom on battery, and what its firmware answers slowly."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from sysmond.base.eased_pace import EASED_MAX_S, READINGS
from sysmond.base.model import Lane, Sensitivity
from sysmond.plan.plan import PlannedProbe
from sysmond.probe import Host, Probe, Row
from sysmond.ring.snapshot import snapshot
from sysmond.sampler.easing import Easing
from sysmond.store.of_ring import of_snapshot
from tests.support.bench import SECOND, Bench, steady, table
from tests.support.waiting import wait_until

PLANNED = PlannedProbe("slow", "p", Lane.BACKGROUND, 10 * SECOND, Sensitivity.PUBLIC)


def plug(root: Path, online: int) -> None:
    for name, files in {"AC": {"type": "Mains", "online": str(online)}, "BAT0": {"type": "Battery"}}.items():
        folder = root / "sys/class/power_supply" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_text(content + "\n")


def test_what_feeds_the_machine_is_found_when_asked_and_told_when_it_changes(tmp_path: Path) -> None:
    told: list[bool] = []
    plug(tmp_path, online=1)
    easing = Easing(str(tmp_path), lambda: told.append(easing.is_on_battery))
    easing.ask()
    wait_until(lambda: easing._asking and not easing._asking.is_alive())
    assert (told, easing.interval_ns(PLANNED, 2)) == ([], 10 * SECOND)
    plug(tmp_path, online=0)
    easing.ask()
    wait_until(lambda: told)
    assert told == [True]
    assert easing.interval_ns(PLANNED, 2) == 20 * SECOND
    assert easing.interval_ns(PLANNED, 1) == 10 * SECOND
    assert easing.interval_ns(PLANNED._replace(on_battery_ns=5 * SECOND), 2) == 5 * SECOND


def test_three_long_readings_in_a_row_halve_the_pace_and_as_many_short_ones_give_it_back() -> None:
    easing = Easing("/nowhere", lambda: None)

    def interval_ns(planned: PlannedProbe = PLANNED) -> int:
        return easing.eased_ns(planned.table, easing.interval_ns(planned, 2))

    def judge(*took_ms: float) -> list[bool]:
        now_ns = interval_ns()
        return [bool(easing.judge("slow", now_ns, 0.005, took / 1000)) for took in took_ms]

    assert judge(6, 6, 4, 6, 6) == [False] * 5
    assert judge(6) == [True]
    assert interval_ns() == 20 * SECOND
    assert judge(7, 7, 7) == [False, False, True]
    assert interval_ns() == 40 * SECOND
    for _ in range(100):
        judge(9)
    assert interval_ns() == EASED_MAX_S * SECOND
    assert interval_ns(PLANNED._replace(interval_ns=600 * SECOND)) == 600 * SECOND
    for _ in range(1000):
        judge(1)
    assert interval_ns() == 10 * SECOND


@pytest.fixture
def bench(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(runtime, monkeypatch)


def test_a_lane_on_battery_reads_half_as_often(bench: Bench, tmp_path: Path) -> None:
    plug(tmp_path, online=0)
    bench.root = str(tmp_path)
    bench.offer("calm", steady, lane=Lane.BACKGROUND, interval_ns=10 * SECOND)
    lane = bench.sampler(Lane.BACKGROUND)
    ticks = count(10, 10)

    def interval_ns() -> int:
        lane.tick(next(ticks) * SECOND)
        return next(source.interval_ns for source in lane._roster.sources if source.table == "calm")

    wait_until(lambda: interval_ns() == 20 * SECOND)
    plug(tmp_path, online=1)
    lane._obey({"do": "look", "subsystems": ["power_supply"]})
    wait_until(lambda: interval_ns() == 10 * SECOND)
    lane.close()


def test_a_lane_is_easy_on_slow_firmware_and_says_so(bench: Bench) -> None:
    def read(host: Host) -> Iterator[Row]:
        yield "a", (1, 2)

    bench.take(Probe(table("slow"), read, 10.0, Lane.BACKGROUND, costly_s=1e-9))
    lane = bench.sampler(Lane.BACKGROUND)
    for number in range(1, READINGS + 2):
        lane.tick(number * 10 * SECOND)
    assert {source.interval_ns for source in lane._roster.sources if source.table == "slow"} == {20 * SECOND}
    events = [event for ring in bench.rings("background") for event in of_snapshot(snapshot(ring)).events]
    assert [(event.kind, event.subject) for event in events] == [("eased", "slow")]
    lane.close()


def test_firmware_is_not_asked_oftener_than_every_ten_seconds_whoever_wants_it(bench: Bench) -> None:
    for name, costly_s in (("quick", 0.0), ("firmware", 60.0), ("slow", 1e-9)):
        bench.take(Probe(table(name), steady, 60.0, Lane.BACKGROUND, costly_s=costly_s))
    lane = bench.sampler(Lane.BACKGROUND)
    lane.tick(60 * SECOND)
    order = {"do": "hold", "tables": ["quick", "firmware", "slow"], "interval_ns": SECOND, "seconds": 600}
    assert lane._obey(order)["ok"]

    def intervals_s() -> dict[str, int]:
        return {source.table: source.interval_ns // SECOND for source in lane._roster.sources if source.table != "self"}

    lane.tick(120 * SECOND)
    assert intervals_s() == {"quick": 1, "firmware": 10, "slow": 10}
    for number in range(13, 13 + READINGS):
        lane.tick(number * 10 * SECOND)
    assert intervals_s() == {"quick": 1, "firmware": 10, "slow": 20}
    lane.close()
