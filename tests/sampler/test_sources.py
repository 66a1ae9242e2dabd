# SPDX-License-Identifier: Apache-2.0
"""A lane that follows another plan between two ticks: no tick is lost, and every silence has its cause."""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from sysmond.base import clock
from sysmond.base.model import ABSENT, Cause, Lane, Sensitivity, Table
from sysmond.errors import Error
from sysmond.machine.folders import Folders, create_classes
from sysmond.plan import plan as plans
from sysmond.plan.plan import Plan, PlannedProbe, SamplerSettings
from sysmond.plan.settings import Settings
from sysmond.probe import Host, Option, Probe, counter
from sysmond.ring.frame import SUFFIX
from sysmond.ring.progress import LANES
from sysmond.ring.snapshot import snapshot
from sysmond.sampler import sources
from sysmond.sampler.lane import Sampler
from sysmond.sampler.quarantine import APART_FIRST_NS, Conduct
from sysmond.sampler.source import with_options
from sysmond.store.of_ring import Hole, of_snapshot
from tests.support.waiting import HANG_S

SECOND = 1_000_000_000
BOTH = ("sampler", "background")


def steady(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
    yield "a", (1,)


class Bench:
    """Lanes that read probes of the test's own making, by a plan in its file."""

    def __init__(self, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runtime = runtime
        self.said: list[str] = []
        self.loaded: list[str] = []
        self.probes: dict[str, Probe] = {}
        monkeypatch.setattr(sources, "load", self._load)
        for part in BOTH:
            create_classes(str(runtime / part))

    def _load(self, planned: PlannedProbe) -> Probe:
        self.loaded.append(planned.table)
        if planned.table not in self.probes:
            raise Error("there is no such thing")
        return self.probes[planned.table]

    def planned(
        self,
        table: str,
        interval_ns: int = SECOND,
        *,
        lane: Lane = Lane.REALTIME,
        sensitivity: Sensitivity = Sensitivity.PUBLIC,
        enabled: bool = True,
        options: dict[str, plans.Scalar] | None = None,
        needs: tuple[str, ...] = (),
    ) -> PlannedProbe:
        declared = Table(table, (counter("n", "1", "A number."),), per="thing")
        self.probes.setdefault(table, Probe(declared, steady))
        return PlannedProbe(
            table,
            "sysmond_probes.test",
            lane,
            interval_ns,
            sensitivity,
            enabled=enabled,
            options=options or {},
            needs=needs,
        )

    def lane(self, *planned: PlannedProbe, lane: Lane = Lane.REALTIME, ring_bytes: int = 1 << 20) -> Sampler:
        folders = Folders(str(self.runtime / "state"), str(self.runtime))
        return Sampler(Settings(folders), Plan(planned, (), SamplerSettings(ring_bytes, 0)), lane, self.said.append)

    def follow(self, lane: Sampler, *planned: PlannedProbe, ring_bytes: int = 1 << 20) -> None:
        plans.write(Plan(planned, (), SamplerSettings(ring_bytes, 0)), str(self.runtime / "plan.json"))
        assert lane._obey({"do": "plan"}) == {"ok": True}

    def rings(self, sensitivity: Sensitivity = Sensitivity.PUBLIC, writer: str = "sampler") -> list[str]:
        folder = self.runtime / writer / sensitivity
        return sorted((str(path) for path in folder.glob(f"*{SUFFIX}")), key=lambda path: (len(path), path))

    def rows(
        self, table: str, sensitivity: Sensitivity = Sensitivity.PUBLIC, writer: str = "sampler"
    ) -> dict[int, list[int]]:
        """The seconds at which a table has values, by its interval in milliseconds."""
        found: dict[int, list[int]] = {}
        for path in self.rings(sensitivity, writer):
            for block in of_snapshot(snapshot(path)).blocks:
                mine = [row for row, key in enumerate(block.keys) if key.table == table]
                there = (block.read(mine) != ABSENT).any(axis=0) if mine else []
                ticks = [
                    tick // SECOND for tick, is_there in zip(block.ticks.tolist(), there, strict=False) if is_there
                ]
                if ticks:
                    found.setdefault(block.strand.interval_ns // 1_000_000, []).extend(ticks)
        return found

    def holes(self, table: str, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> list[Hole]:
        recordings = [of_snapshot(snapshot(path)) for path in self.rings(sensitivity)]
        return [hole for recording in recordings for hole in recording.holes if hole.table == table]


@pytest.fixture
def bench(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(runtime, monkeypatch)


def run(lane: Sampler, seconds: range) -> None:
    for second in seconds:
        lane.tick(second * SECOND)


def test_what_stays_the_same_goes_on_and_what_is_new_begins_in_the_same_ring(bench: Bench) -> None:
    old = bench.planned("old")
    lane = bench.lane(old)
    run(lane, range(1, 5))
    source = lane._roster.sources[0]
    bench.follow(lane, old, bench.planned("new"))
    run(lane, range(5, 10))
    assert lane._roster.sources[0] is source
    assert bench.loaded == ["old", "new"]
    assert bench.rows("old") == {1000: list(range(1, 10))}
    assert bench.rows("new") == {1000: list(range(5, 10))}
    assert len(bench.rings()) == 1
    lane.close()


@pytest.mark.parametrize("is_named", [True, False])
def test_what_is_disabled_or_gone_says_so_once(bench: Bench, is_named: bool) -> None:
    other, gone = bench.planned("other"), bench.planned("gone")
    lane = bench.lane(gone, other)
    run(lane, range(1, 5))
    bench.follow(lane, *([gone._replace(enabled=False)] if is_named else []), other)
    run(lane, range(5, 8))
    (hole,) = bench.holes("gone")
    assert (hole.start_ns, hole.end_ns, hole.cause) == (5 * SECOND, 6 * SECOND, Cause.DISABLED)
    assert bench.rows("gone") == {1000: [1, 2, 3, 4]}
    bench.follow(lane, gone, other)
    run(lane, range(8, 10))
    assert bench.rows("gone") == {1000: [1, 2, 3, 4, 8, 9]}
    assert bench.rows("other") == {1000: list(range(1, 10))}
    lane.close()


def test_another_interval_is_another_layout_of_the_same_source(bench: Bench) -> None:
    old = bench.planned("t")
    lane = bench.lane(old, bench.planned("other"))
    run(lane, range(1, 5))
    lane._roster.sources[0].cost.failures = 7
    bench.follow(lane, old._replace(interval_ns=2 * SECOND), bench.planned("other"))
    run(lane, range(5, 10))
    assert bench.loaded == ["t", "other"]
    assert bench.rows("t") == {1000: [1, 2, 3, 4], 2000: [5, 6, 8]}
    assert bench.holes("t") == []
    assert lane._roster.sources[0].cost.failures == 7
    lane.close()


def test_other_options_load_the_probe_anew(bench: Bench) -> None:
    old = bench.planned("t")
    lane = bench.lane(old)
    run(lane, range(1, 3))
    bench.follow(lane, old._replace(options={"limit": 5}))
    run(lane, range(3, 5))
    assert bench.loaded == ["t", "t"]
    assert (bench.rows("t"), bench.holes("t")) == ({1000: [1, 2, 3, 4]}, [])
    lane.close()


def test_another_class_is_another_ring_and_the_public_one_says_why(bench: Bench) -> None:
    old = bench.planned("t")
    lane = bench.lane(old, bench.planned("other"))
    run(lane, range(1, 3))
    bench.follow(lane, old._replace(sensitivity=Sensitivity.RESTRICTED), bench.planned("other"))
    run(lane, range(3, 5))
    assert bench.rows("t") == {1000: [1, 2]}
    assert bench.rows("t", Sensitivity.RESTRICTED) == {1000: [3, 4]}
    (hole,) = bench.holes("t")
    assert (hole.start_ns, hole.cause, hole.detail) == (3 * SECOND, Cause.DISABLED, "restricted from now on")
    bench.follow(lane, old, bench.planned("other"))
    run(lane, range(5, 7))
    assert bench.rows("t") == {1000: [1, 2, 5, 6]}
    assert bench.holes("t", Sensitivity.RESTRICTED) == []
    lane.close()


def test_another_lane_takes_over_without_a_word(bench: Bench) -> None:
    old, other = bench.planned("t"), bench.planned("other")
    realtime, background = bench.lane(old, other), bench.lane(old, other, lane=Lane.BACKGROUND)
    run(realtime, range(1, 3))
    for lane in (realtime, background):
        bench.follow(lane, old._replace(lane=Lane.BACKGROUND), other)
        run(lane, range(3, 5))
    assert (bench.rows("t"), bench.rows("t", writer="background")) == ({1000: [1, 2]}, {1000: [3, 4]})
    assert bench.holes("t") == []
    realtime.close()
    background.close()


def test_a_ring_without_room_for_one_more_layout_gives_way_to_another(bench: Bench) -> None:
    first = bench.planned("first", 60 * SECOND)
    lane = bench.lane(first)
    run(lane, range(1, 3))
    many = [bench.planned(f"{'x' * 30}{number}") for number in range(100)]
    bench.follow(lane, first, *many)
    run(lane, range(3, 6))
    assert len(bench.rings()) == 2
    assert bench.rows("first") == {60000: [1, 3]}
    assert all(bench.rows(planned.table) == {1000: [3, 4, 5]} for planned in many)
    lane.close()


def test_a_hundred_changes_of_interval_fit_into_one_ring(bench: Bench) -> None:
    planned = bench.planned("t")
    lane = bench.lane(planned)
    for second in range(1, 500):
        bench.follow(lane, planned._replace(interval_ns=SECOND + second % 99 * 1000))
        lane.tick(second * 2 * SECOND)
    assert len(bench.rings()) == 1
    assert sum(map(len, bench.rows("t").values())) > 99
    lane.close()


def test_another_ring_size_begins_another_ring(bench: Bench) -> None:
    planned = bench.planned("t", SECOND // 100)
    lane = bench.lane(planned, ring_bytes=1 << 20)
    run(lane, range(1, 3))
    bench.follow(lane, planned, ring_bytes=1 << 18)
    run(lane, range(3, 5))
    first, second = map(os.path.getsize, bench.rings())
    assert first > second
    assert bench.rows("t") == {10: [1, 2, 3, 4]}
    lane.close()


def test_a_plan_that_cannot_be_read_changes_nothing(bench: Bench) -> None:
    lane = bench.lane(bench.planned("t"))
    run(lane, range(1, 3))
    for content in (None, b"", b"{}"):
        if content is not None:
            (bench.runtime / "plan.json").write_bytes(content)
        with pytest.raises(Error, match=r"^plan: "):
            lane._obey({"do": "plan"})
    run(lane, range(3, 5))
    assert bench.rows("t") == {1000: [1, 2, 3, 4]}
    lane.close()


def test_a_probe_that_does_not_load_is_left_out_and_said_once(bench: Bench) -> None:
    good, bad = bench.planned("good"), bench.planned("bad")
    del bench.probes["bad"]
    lane = bench.lane(good, bad)
    run(lane, range(1, 3))
    assert lane._obey({"do": "hold", "tables": ["good"], "interval_ns": SECOND // 10, "seconds": 1})["ok"]
    run(lane, range(3, 8))
    assert [line for line in bench.said if "bad" in line] == ["probe bad is left out: there is no such thing"]
    bench.planned("bad")
    bench.follow(lane, good, bad)
    run(lane, range(8, 10))
    assert bench.rows("bad") == {1000: [8, 9]}
    lane.close()


# --- Held for a while


def test_a_hold_samples_oftener_and_ends_by_itself(bench: Bench) -> None:
    lane = bench.lane(bench.planned("t"), bench.planned("other"))
    run(lane, range(1, 3))
    order = {"do": "hold", "tables": ["t", "nowhere"], "interval_ns": SECOND // 10, "seconds": 2}
    assert lane._obey(order) == {"ok": True, "tables": ["t"]}
    for tenth in range(21, 61):
        lane.tick(tenth * SECOND // 10)
    assert (len(bench.rows("t")[100]), bench.rows("t")[1000]) == (19, [1, 2, 4, 5, 6])
    assert bench.rows("other") == {1000: [1, 2, 3, 4, 5, 6]}
    assert bench.loaded == ["t", "other"]
    assert bench.holes("t") == []
    lane.close()


def test_a_hold_is_renewed_by_repeating_it_and_ended_by_zero(bench: Bench) -> None:
    lane = bench.lane(bench.planned("t"))
    run(lane, range(1, 3))
    order: dict[str, object] = {"do": "hold", "tables": ["t"], "interval_ns": SECOND // 10, "seconds": 2}
    for second in (2, 3, 4):
        lane.tick(second * SECOND)
        lane._obey(order)
    assert lane._roster.review_ns == 6 * SECOND
    lane._obey({**order, "interval_ns": 0})
    assert lane._roster.intervals_ns == {SECOND}
    lane.close()


def test_a_hold_that_ends_between_two_seconds_leaves_no_row_there(bench: Bench) -> None:
    lane = bench.lane(bench.planned("t"), bench.planned("other"))
    run(lane, range(1, 3))
    lane._obey({"do": "hold", "tables": ["t"], "interval_ns": SECOND // 10, "seconds": 2})
    for tenth in range(21, 25):
        lane.tick(tenth * SECOND // 10)
    lane._obey({"do": "hold", "tables": ["t"], "interval_ns": 0, "seconds": 0})
    for tenth in (25, 30):  # The first of them was due by the interval before.
        lane.tick(tenth * SECOND // 10)
    assert (len(bench.rows("t")[100]), bench.rows("t")[1000]) == (4, [1, 2, 3])
    assert bench.rows("other") == {1000: [1, 2, 3]}
    lane.close()


def test_a_hold_never_samples_less_often(bench: Bench) -> None:
    lane = bench.lane(bench.planned("t"))
    lane._obey({"do": "hold", "tables": ["t"], "interval_ns": 5 * SECOND, "seconds": 2})
    assert lane._roster.intervals_ns == {SECOND}
    lane.close()


BACK = {"do": "hold", "tables": ["t"], "interval_ns": 0, "seconds": 600, "back_ns": 5 * SECOND, "why": "me: battery"}


def test_a_table_that_is_held_back_is_read_less_often_and_says_why(bench: Bench) -> None:
    lane = bench.lane(bench.planned("t"), bench.planned("other"))
    run(lane, range(1, 4))
    assert lane._obey(dict(BACK)) == {"ok": True, "tables": ["t"]}
    run(lane, range(4, 18))
    lane._obey({**BACK, "back_ns": 0})
    run(lane, range(18, 20))
    assert bench.rows("t") == {1000: [1, 2, 3, 18, 19], 5000: [4, 5, 10, 15]}
    assert bench.rows("other") == {1000: list(range(1, 20))}
    [hole] = bench.holes("t")
    assert (hole.start_ns, hole.end_ns) == (4 * SECOND, 18 * SECOND), "up to where it is read again"
    assert (hole.cause, hole.detail) == (Cause.HOLD_BACK, "read every 5 s for me: battery")
    assert bench.holes("other") == []
    lane.close()


@pytest.mark.parametrize(
    ("planned_s", "change", "interval_s", "is_slowed"),
    [
        (1, {}, 5, True),
        (1, {"interval_ns": 2 * SECOND}, 2, True),
        (1, {"interval_ns": 10 * SECOND}, 5, True),
        (1, {"interval_ns": SECOND // 10}, 0.1, False),
        (10, {}, 10, False),
        (10, {"interval_ns": 2 * SECOND}, 2, False),
    ],
)
def test_of_all_that_is_wanted_the_shortest_interval_wins(
    bench: Bench, planned_s: int, change: dict[str, int], interval_s: float, is_slowed: bool
) -> None:
    lane = bench.lane(bench.planned("t", planned_s * SECOND))
    assert lane._obey({**BACK, **change})["ok"]
    source = lane._roster.find("t")
    assert source is not None
    assert source.interval_ns == interval_s * SECOND
    assert (source.slowed is not None) == is_slowed
    lane.close()


def test_a_hold_back_ends_where_nobody_repeats_it(bench: Bench) -> None:
    lane = bench.lane(bench.planned("t"))
    run(lane, range(1, 2))
    lane._obey({**BACK, "seconds": 10})
    run(lane, range(2, 15))
    assert bench.rows("t") == {1000: [1, 11, 12, 13, 14], 5000: [2, 5, 10]}
    lane.close()


def test_what_shows_that_the_lane_lives_is_never_held_back(bench: Bench) -> None:
    lane = bench.lane(
        bench.planned("t"), PlannedProbe("self", "sysmond_probes.own", Lane.REALTIME, SECOND, Sensitivity.PUBLIC)
    )
    assert lane._obey({**BACK, "tables": ["self", "t"]}) == {"ok": True, "tables": ["t"]}
    lane.close()


@pytest.mark.parametrize(
    ("lane", "change", "right"),
    [
        (Lane.REALTIME, {"back_ns": 60 * SECOND + 1}, "0 to 60000000000"),
        (Lane.REALTIME, {"back_ns": -1}, "0 to 60000000000"),
        (Lane.REALTIME, {"interval_ns": 0, "back_ns": SECOND, "seconds": 0}, "1 to 3600"),
        (Lane.REALTIME, {"interval_ns": SECOND // 100 - 1}, "10000000 or more"),
        (Lane.BACKGROUND, {"interval_ns": SECOND - 1}, "1000000000 or more"),
        (Lane.REALTIME, {"interval_ns": -1}, "10000000 or more"),
        (Lane.REALTIME, {"seconds": 3601}, "1 to 3600"),
        (Lane.REALTIME, {"seconds": 0}, "1 to 3600"),
    ],
)
def test_an_absurd_hold_is_refused(bench: Bench, lane: Lane, change: dict[str, int], right: str) -> None:
    sampler = bench.lane(bench.planned("t", lane=lane), lane=lane)
    with pytest.raises(Error, match=right):
        sampler._obey({"do": "hold", "tables": ["t"], "interval_ns": SECOND, "seconds": 5, **change})
    sampler.close()


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"do": "hold"},
        {"do": "hold", "tables": "t", "interval_ns": 1, "seconds": 1},
        {"do": "hold", "tables": ["t"], "interval_ns": "1", "seconds": 1},
        {"do": "look", "subsystems": "block"},
        {"do": "forgive"},
        {"do": 5},
    ],
)
def test_an_order_that_lacks_something_is_an_error(bench: Bench, order: dict[str, object]) -> None:
    lane = bench.lane(bench.planned("t"))
    assert "not an order" in str(lane._obey(order)["error"])
    lane.close()


# --- Devices


def listing(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
    for name in host.names("/block"):
        yield name, (int(host.read(f"/block/{name}/stat")),)


@pytest.mark.parametrize("kind", [Lane.REALTIME, Lane.BACKGROUND])
def test_a_device_is_found_when_told_and_one_that_is_gone_takes_no_other_along(
    bench: Bench, tmp_path: Path, kind: Lane
) -> None:
    def plug(name: str) -> None:
        (tmp_path / "block" / name).mkdir(parents=True)
        (tmp_path / "block" / name / "stat").write_text("5")

    planned = bench.planned("t", lane=kind)
    bench.probes["t"] = Probe(bench.probes["t"].table, listing, subsystems=("block",))
    folders = Folders(str(bench.runtime / "state"), str(bench.runtime))
    lane = Sampler(Settings(folders, root=str(tmp_path)), Plan((planned,)), kind, bench.said.append)
    plug("sda")
    run(lane, range(1, 3))
    plug("sdb")
    run(lane, range(3, 5))
    assert lane._obey({"do": "look", "subsystems": ["net"]}) == {"ok": True, "tables": []}
    run(lane, range(5, 6))
    assert lane._obey({"do": "look", "subsystems": ["net", "block"]}) == {"ok": True, "tables": ["t"]}
    run(lane, range(6, 8))
    (tmp_path / "block/sda/stat").unlink()
    (tmp_path / "block/sda").rmdir()
    lane._roster.hosts[0].look_again()
    plug("sdc")
    run(lane, range(8, 10))
    (tmp_path / "block/sdb/stat").unlink()
    (tmp_path / "block/sdb").rmdir()  # Its descriptor still reads; what is told, is gone.
    lane._obey({"do": "look", "subsystems": ["block"]})
    run(lane, range(10, 12))
    (path,) = bench.rings(writer="sampler" if kind is Lane.REALTIME else "background")
    recording = of_snapshot(snapshot(path))
    (block,) = recording.blocks
    seconds = {
        key.instance: [
            tick // SECOND
            for tick, value in zip(block.ticks.tolist(), block.read([row])[0].tolist(), strict=True)
            if value != ABSENT
        ]
        for row, key in enumerate(block.keys)
    }
    assert seconds == {"sda": list(range(1, 8)), "sdb": list(range(6, 10)), "sdc": list(range(8, 12))}
    assert recording.holes == []
    lane.close()


def test_what_an_old_listing_names_and_is_gone_costs_no_tick(bench: Bench, tmp_path: Path) -> None:
    planned = bench.planned("t")

    def unkept(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        for name in host.names("/block"):
            yield name, (int(host.read_anew(f"/block/{name}/stat")),)

    bench.probes["t"] = Probe(bench.probes["t"].table, unkept)
    folders = Folders(str(bench.runtime / "state"), str(bench.runtime))
    lane = Sampler(Settings(folders, root=str(tmp_path)), Plan((planned,)), Lane.REALTIME, bench.said.append)
    for name in ("sda", "sdb"):
        (tmp_path / "block" / name).mkdir(parents=True)
        (tmp_path / "block" / name / "stat").write_text("5")
    run(lane, range(1, 3))
    (tmp_path / "block/sda/stat").unlink()
    (tmp_path / "block/sda").rmdir()
    run(lane, range(3, 5))
    assert (bench.rows("t"), bench.holes("t")) == ({1000: [1, 2, 3, 4]}, [])
    lane.close()


# --- Conduct


def test_options_reach_the_probe(tmp_path: Path, runtime: Path) -> None:
    """With a plugin of its own file, in a process of its own."""
    plugin = tmp_path / "sized.py"
    plugin.write_text(
        "from sysmond.probe import Option, Probe, Table, counter, hookimpl\n"
        "def read(host, *, size, name):\n"
        '    print("no answer")\n'
        "    yield name, (size,)\n"
        "@hookimpl\n"
        "def sysmond_probes():\n"
        '    options = (Option("size", 3, "A size."), Option("name", "a", "A name."))\n'
        '    return [Probe(Table("sized", (counter("n", "1", "N."),), "thing"), read, options=options)]\n'
    )
    create_classes(str(runtime / "background"))
    planned = PlannedProbe("sized", str(plugin), Lane.BACKGROUND, SECOND, Sensitivity.PUBLIC, options={"size": 7})
    settings = Settings(Folders(str(runtime / "state"), str(runtime)))
    said: list[str] = []
    lane = Sampler(settings, Plan((planned, planned._replace(table="other"))), Lane.BACKGROUND, said.append)
    run(lane, range(1, 4))
    (ring,) = (runtime / "background/public").glob(f"*{SUFFIX}")
    (block,) = of_snapshot(snapshot(str(ring))).blocks
    assert ([key.instance for key in block.keys], block.read([0])[0].tolist()) == (["a"], [7, 7, 7])
    assert any("offers no table 'other'" in line for line in said)
    assert Conduct(str(runtime / "background"), lane._boot).records == {}
    process = lane._roster.readers[lane._roster.sources[0]].process
    assert process is not None
    lane.close()
    assert process.is_gone()


@pytest.mark.parametrize(
    ("options", "wrong"),
    [({"size": "x"}, "option size: 'x'; expected a whole number"), ({"sise": 1}, "has no option sise")],
)
def test_options_that_do_not_fit_leave_the_probe_out(options: dict[str, plans.Scalar], wrong: str) -> None:
    probe = Probe(Table("t", ()), steady, options=(Option("size", 3, "A size."),))
    planned = PlannedProbe("t", "x", Lane.REALTIME, SECOND, Sensitivity.PUBLIC, options=options)
    with pytest.raises(Error, match=wrong):
        with_options(probe, planned)


def test_a_table_of_the_real_time_lane_that_is_late_three_times_is_let_go_of(bench: Bench) -> None:
    slow, other = bench.planned("slow"), bench.planned("other")
    bench.probes["slow"] = bench.probes["slow"]._replace(deadline_s=1e-9)
    lane = bench.lane(slow, other)
    run(lane, range(1, 10))
    assert bench.rows("slow") == {1000: [1, 2, 3, 4]}  # The first one opened the ring.
    assert bench.holes("slow") == []
    assert [line.split(":")[:2] for line in bench.said] == [["probe slow", " moved"]]
    (event,) = of_snapshot(snapshot(bench.rings()[0])).events
    assert (event.kind, event.subject, event.boottime_ns) == ("moved", "slow", 4 * SECOND)
    bench.probes["slow"] = bench.probes["slow"]._replace(deadline_s=HANG_S)
    background = bench.lane(slow, other, lane=Lane.BACKGROUND)
    run(background, range(10, 13))
    assert bench.rows("slow", writer="background") == {1000: [10, 11, 12]}
    assert lane._obey({"do": "forgive", "table": "slow"}) == {"ok": True}
    bench.follow(background, slow, other)
    run(lane, range(13, 15))
    run(background, range(13, 15))
    assert bench.rows("slow") == {1000: [1, 2, 3, 4, 13, 14]}
    assert bench.rows("slow", writer="background") == {1000: [10, 11, 12]}
    lane.close()
    background.close()


def test_a_quarantine_is_an_absence_a_tick_until_it_is_over(bench: Bench) -> None:
    planned = bench.planned("t")
    lane = bench.lane(planned, bench.planned("other"))
    run(lane, range(1, 3))
    source = lane._roster.sources[0]
    lane.offends(source, "spat")
    lane.offends(source, "spat again")
    run(lane, range(3, 20))
    (hole,) = bench.holes("t")
    assert (hole.start_ns, hole.end_ns) == (3 * SECOND, 12 * SECOND)
    assert (hole.cause, hole.detail) == (Cause.QUARANTINED, "spat again; not read for 10 s")
    assert bench.rows("t") == {1000: [1, 2, *range(12, 20)]}
    events = of_snapshot(snapshot(bench.rings()[0])).events
    assert [(event.kind, event.text) for event in events] == [
        ("stuck", "spat"),
        ("quarantine", "spat again; not read for 10 s"),
        ("released", "its quarantine is over"),
    ]
    lane.close()


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("interval_s", [1, 100, 1000])
def test_a_probe_that_raises_is_tried_ever_more_seldom_until_it_does_not(
    bench: Bench, lane: Lane, interval_s: int
) -> None:
    tried: list[int] = []
    second = 0

    def read(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        tried.append(second)
        if len(tried) < 14:
            raise ValueError("no such luck")
        return steady(host)

    planned = bench.planned("t", interval_s * SECOND, lane=lane)
    bench.probes["t"] = bench.probes["t"]._replace(read=read)
    running = bench.lane(planned, lane=lane)
    longest = max(1, 300 // interval_s)  # In intervals.
    waits = [min(2**number, longest) for number in range(13)]
    ticks = range(interval_s, (sum(waits) + 4) * interval_s, interval_s)
    for second in ticks:
        running.tick(second * SECOND)
    assert [(after - before) // interval_s for before, after in pairwise(tried)] == [*waits, 1, 1]
    part = "sampler" if lane is Lane.REALTIME else "background"
    recorded = [of_snapshot(snapshot(path)) for path in bench.rings(writer=part)]
    first, rest = [hole for each in recorded for hole in each.holes]
    assert (first.cause, first.detail) == (Cause.PROBE_FAILED, "ValueError: no such luck")
    assert (rest.cause, rest.detail) == (Cause.PROBE_FAILED, f"{first.detail}; tried again at growing intervals")
    assert (first.start_ns, first.end_ns) == (ticks[0] * SECOND, ticks[1] * SECOND)
    assert (rest.start_ns, rest.end_ns) == (ticks[1] * SECOND, tried[13] * SECOND)
    assert bench.rows("t", writer=part) == {1000 * interval_s: tried[13:]}
    assert running._roster.sources[0].cost.failures == 13
    running.close()


def test_one_failure_is_forgotten_by_the_next_reading(bench: Bench) -> None:
    tried: list[int] = []

    def read(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        tried.append(1)
        if len(tried) % 2:
            raise ValueError("now and then")
        return steady(host)

    planned = bench.planned("t")
    bench.probes["t"] = bench.probes["t"]._replace(read=read)
    lane = bench.lane(planned)
    run(lane, range(1, 41))
    assert len(tried) == 40
    assert bench.rows("t") == {1000: list(range(2, 41, 2))}
    lane.close()


PLUGIN = """
import os, time
from sysmond.probe import Probe, Table, counter, hookimpl
{body}
@hookimpl
def sysmond_probes():
    return [Probe(Table("late", (counter("n", "1", "N."),)), lambda host: [("", (1,))])]
"""


def foreign(runtime: Path, plugin: Path, body: str) -> tuple[Sampler, list[str]]:
    """A background lane with a plugin of a stranger, and what it says."""
    plugin.write_text(PLUGIN.format(body=body))
    create_classes(str(runtime / "background"))
    planned = PlannedProbe("late", str(plugin), Lane.BACKGROUND, SECOND, Sensitivity.PUBLIC)
    said: list[str] = []
    settings = Settings(Folders(str(runtime / "state"), str(runtime)))
    return Sampler(settings, Plan((planned,)), Lane.BACKGROUND, said.append), said


def test_a_plugin_that_loads_slowly_joins_when_it_is_ready(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LOAD_WAIT_S", 0.0)
    ready = tmp_path / "ready"
    lane, said = foreign(runtime, tmp_path / "late.py", f"while not os.path.exists({str(ready)!r}): time.sleep(0.01)")
    lane._now_ns = 0
    lane._roster.plan_review(0)
    run(lane, range(1, 5))
    assert (lane._roster.sources, said) == ([], [])
    assert lane._roster.intervals_ns == {SECOND}
    (loading,) = lane._roster._loading.values()
    lane._roster._loading["late"] = loading._replace(since_ns=0)
    ready.touch()
    while loading.process.hello is None:
        loading.process.hear()
    run(lane, range(5, 8))
    (ring,) = (runtime / "background/public").glob(f"*{SUFFIX}")
    (block,) = of_snapshot(snapshot(str(ring))).blocks
    assert [tick // SECOND for tick in block.ticks.tolist()] == [5, 6, 7]
    assert said == []
    lane.close()
    assert loading.process.is_gone()


def test_a_plugin_that_never_loads_is_tried_again_ever_more_seldom(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LOAD_WAIT_S", 0.0)
    lane, said = foreign(runtime, tmp_path / "late.py", "time.sleep(3600)")
    (loading,) = lane._roster._loading.values()
    lane._roster._loading["late"] = loading._replace(since_ns=0)
    lane._roster.plan_review(0)
    run(lane, range(1, 200))
    reasons = [line for line in said if "quarantine:" in line]
    assert reasons == [
        f"probe late: quarantine: not loaded within 30 s; not read for {length}" for length in ("10 s", "60 s", "6 min")
    ]
    assert lane._roster._loading == {}
    lane.close()
    assert loading.process.is_gone()


def test_a_plugin_that_is_disabled_while_it_loads_is_let_go_of(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LOAD_WAIT_S", 0.0)
    lane, said = foreign(runtime, tmp_path / "late.py", "time.sleep(3600)")
    (loading,) = lane._roster._loading.values()
    plans.write(Plan(()), str(runtime / "plan.json"))
    assert lane._obey({"do": "plan"}) == {"ok": True}
    assert loading.process.end
    assert (lane._roster._loading, said) == ({}, [])
    lane.close()


def test_the_number_of_processes_is_bounded(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "WORKERS_MAX", 1)
    lane, said = foreign(runtime, tmp_path / "late.py", "")
    run(lane, range(1, 3))
    other = tmp_path / "other.py"
    other.write_text(PLUGIN.format(body="").replace('"late"', '"other"'))
    (planned,) = lane._plan.probes
    wanted = (planned, planned._replace(table="other", plugin=str(other)))
    plans.write(Plan(wanted), str(runtime / "plan.json"))
    assert lane._obey({"do": "plan"}) == {"ok": True}
    run(lane, range(3, 5))
    assert said == ["probe other is left out: 1 others are read in processes of their own"]
    assert [source.table for source in lane._roster.sources] == ["late"]
    plans.write(Plan(wanted[1:]), str(runtime / "plan.json"))
    lane._obey({"do": "plan"})
    lane._obey({"do": "plan"})  # What is let go of makes room.
    assert [source.table for source in lane._roster.sources] == ["other"]
    lane.close()


def test_what_hung_is_read_with_the_others_again_when_it_has_long_been_well(runtime: Path) -> None:
    create_classes(str(runtime / "background"))
    begin_s = clock.boottime_ns() // SECOND
    held = Conduct(str(runtime / "background"), clock.boot_id())
    held.set_apart("cpu", (begin_s + 10) * SECOND - APART_FIRST_NS, "no answer within 4 s")
    planned = PlannedProbe("cpu", "sysmond_probes.cpu", Lane.BACKGROUND, SECOND, Sensitivity.PUBLIC)
    said: list[str] = []
    settings = Settings(Folders(str(runtime / "state"), str(runtime)))
    lane = Sampler(settings, Plan((planned,)), Lane.BACKGROUND, said.append)
    while not lane._roster.sources:
        lane._roster.follow(lane._plan, (), begin_s * SECOND)
    ((_, pid),) = lane._roster.workers()
    run(lane, range(begin_s, begin_s + 10))
    assert (len(lane._roster.workers()), said) == (1, [])
    run(lane, range(begin_s + 10, begin_s + 15))
    assert (lane._roster.workers(), said) == ([], ["probe cpu: released: read with the others again"])
    (ring,) = (runtime / "background/public").glob(f"*{SUFFIX}")
    ticks = {tick // SECOND for block in of_snapshot(snapshot(str(ring))).blocks for tick in block.ticks.tolist()}
    assert ticks == set(range(begin_s, begin_s + 15))
    lane.close()
    assert not os.path.exists(f"/proc/{pid}")


def test_what_the_machine_lacks_is_not_loaded_before_it_is_there(bench: Bench, tmp_path: Path) -> None:
    """An event tells that it came, else a look after a minute; and then it stays."""
    lacking = [
        bench.planned(name, lane=Lane.BACKGROUND, needs=(f"{tmp_path}/{name}/bat*/type",)) for name in ("told", "seen")
    ]
    lane = bench.lane(bench.planned("there", lane=Lane.BACKGROUND), *lacking, lane=Lane.BACKGROUND)
    lane.tick(SECOND)
    assert bench.loaded == ["there"]
    (tmp_path / "told/bat0").mkdir(parents=True)
    assert lane._obey({"do": "look", "subsystems": ["power_supply"]}) == {"ok": True, "tables": []}
    (tmp_path / "told/bat0/type").write_text("Battery")
    assert lane._obey({"do": "look", "subsystems": ["power_supply"]}) == {"ok": True, "tables": ["told"]}
    lane.tick(2 * SECOND)
    assert bench.loaded == ["there", "told"]
    (tmp_path / "seen/bat1").mkdir(parents=True)
    (tmp_path / "seen/bat1/type").write_text("Battery")
    for tick in range(3, 62):
        lane.tick(tick * SECOND)
    assert bench.loaded == ["there", "told"]
    lane.tick(63 * SECOND)
    assert bench.loaded == ["there", "told", "seen"]
    (tmp_path / "told/bat0/type").unlink()
    bench.follow(lane, bench.planned("there", lane=Lane.BACKGROUND), *lacking)
    assert [source.table for source in lane._roster.sources] == ["there", "told", "seen"]
    lane.close()


@pytest.mark.parametrize(
    ("needs", "is_possible"),
    [
        ((), True),
        (("/sys/class/net",), True),
        (("/sys/class/*",), True),
        (("/sys/class/n*t/eth*/speed",), True),
        (("/sys/class/n*t/wlan*/speed", "/sys/class/*/lo"), True),
        (("/sys/class/n*t/*/carrier",), False),
        (("/sys/bus/*/devices",), False),
        (("/sys/class/net/eth0/speed/*",), False),
    ],
)
def test_a_probe_is_possible_where_one_of_its_needs_is_there(
    tmp_path: Path, needs: tuple[str, ...], is_possible: bool
) -> None:
    for name in ("eth0", "lo"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0/speed").write_text("1000")
    planned = PlannedProbe("t", "p", Lane.BACKGROUND, SECOND, Sensitivity.PUBLIC, needs=needs)
    assert planned.is_possible(str(tmp_path)) is is_possible
    assert planned.is_possible(f"{tmp_path}/") is is_possible
