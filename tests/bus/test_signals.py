# SPDX-License-Identifier: Apache-2.0
"""Subscriptions, events and holds on the bus: who is told what, when, and when it ends."""

import math
import os
import select
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Lane, Metric, Semantics, Sensitivity, Table
from sysmond.bus.events import BURST, Events
from sysmond.bus.holds import HOLDS_PER_USER_MAX
from sysmond.bus.latest import Latest
from sysmond.bus.subscriptions import (
    ABOVE,
    BELOW,
    RULES_MAX,
    SUBSCRIPTIONS_PER_USER_MAX,
    UNKNOWN,
    Pace,
    Rule,
    Subscription,
)
from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.interface import Signal
from sysmond.bus.wire.names import OBJECT_PATH, SUBSCRIPTION
from sysmond.machine import control
from sysmond.machine.folders import Folders
from sysmond.plan.plan import Plan, PlannedProbe
from sysmond.ring.newest import Follower
from tests.support.clients import ANYBODY, STRANGER, Client, RefusedError, a_client, a_part
from tests.support.machine import Machine, Writer
from tests.support.onbus import Bus, a_bus, call, pytestmark
from tests.support.waiting import HANG_S, wait_until

__all__ = ["pytestmark"]

HEAT = Table(
    "heat",
    (Metric("degrees", "°C", Semantics.GAUGE, "How hot.", 1), Metric("beats", "1", Semantics.COUNTER, "C.")),
    "zone",
)
KEYS = Table("keys", (Metric("pressed", "1", Semantics.COUNTER, "Keys."),))
# Ticks are stamped ahead of time: whatever the machine is busy with, they do not grow stale.
AHEAD = 3600
TENTH_NS = SECOND_NS // 10
NAN = math.nan
PLAN = Plan(
    (
        PlannedProbe("heat", "sysmond_probes.load", Lane.REALTIME, SECOND_NS, Sensitivity.PUBLIC),
        PlannedProbe("slow", "sysmond_probes.host", Lane.BACKGROUND, SECOND_NS, Sensitivity.PUBLIC),
        PlannedProbe("keys", "sysmond_probes.vm", Lane.REALTIME, SECOND_NS, Sensitivity.RESTRICTED),
    )
)
as_stranger = pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user")


class Zones:
    """A table that a test writes as it needs it."""

    def __init__(self, machine: Machine) -> None:
        now_ns = clock.boottime_ns()
        self.second = now_ns // SECOND_NS + AHEAD
        self.writer: Writer = machine.start(now_ns // SECOND_NS, boot=clock.boot_id(), table=HEAT, wall_ns=10**18)
        self.tick(20.0)

    def tick(self, *degrees: float) -> int:
        """One tick: a zone a number; gives its boot time."""
        self.second += 1
        tick_ns = self.second * SECOND_NS
        self.writer.relation(tick_ns)
        values = [value for degree in degrees for value in (round(degree * 10), self.second)]
        self.writer.ring.rows(0, tick_ns, tuple(f"zone{index}" for index in range(len(degrees))), values)
        return tick_ns


@pytest.fixture(scope="module")
def bus() -> Iterator[Bus]:
    with a_bus(owner=ANYBODY) as made:
        yield made


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="sysmond-", dir="/dev/shm"))
    folder.chmod(0o755)
    yield Machine(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def zones(machine: Machine) -> Zones:
    return Zones(machine)


class Lanes:
    """The control sockets of the other parts, and what they were ordered; what they do about it is their own test."""

    def __init__(self, folders: Folders) -> None:
        self.orders: dict[str, list[control.Order]] = {"sampler": [], "background": [], "archiver": []}
        self.refusal = ""
        self.missing: dict[str, str] = {}
        """What a lane does not read, by table: the part that does not."""
        self._stack = ExitStack()
        self._listeners = {}
        for part in self.orders:
            os.makedirs(f"{folders.runtime}/{part}", exist_ok=True)
            self._listeners[part] = self._stack.enter_context(control.listen(f"{folders.runtime}/{part}"))
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            watched = [descriptor for listener in self._listeners.values() for descriptor in listener.descriptors()]
            ready, _, _ = select.select([self._ended, *watched], [], [])
            if self._ended in ready:
                return
            for part, listener in self._listeners.items():
                listener.serve(self._obeying(part))

    def _obeying(self, part: str) -> Callable[[control.Order], control.Order]:
        def obey(order: control.Order) -> control.Order:
            self.orders[part].append({key: value for key, value in order.items() if key != "uid"})
            if self.refusal:
                return {"error": self.refusal}
            there = order.get("tables")
            return {
                "ok": True,
                "tables": [table for table in there if self.missing.get(str(table)) != part]
                if isinstance(there, list)
                else [],
            }

        return obey

    def last(self, part: str) -> control.Order:
        return self.orders[part][-1] if self.orders[part] else {}

    def close(self) -> None:
        os.close(self._end)
        self._thread.join()
        self._stack.close()
        os.close(self._ended)


@pytest.fixture(scope="module")
def part(bus: Bus, machine: Machine, zones: Zones) -> Iterator[Folders]:
    with a_part(bus, machine.folders, PLAN):
        yield machine.folders


@pytest.fixture
def lanes(part: Folders) -> Iterator[Lanes]:
    made = Lanes(part)
    yield made
    made.close()


@pytest.fixture
def client(bus: Bus, part: Folders) -> Iterator[Client]:
    with a_client(bus) as made:
        yield made


def subscribe(client: Client, *rules: Sequence[Any], **options: Any) -> str:
    path: str = client.call(
        "Subscribe", "a(sdda{sv})a{sv}", [(*rule, {}) if len(rule) == 3 else rule for rule in rules], options
    )
    return path


# --- subscriptions --------------------------------------------------------------------------------


def test_a_crossing_is_told_once_and_hysteresis_keeps_still(client: Client, zones: Zones) -> None:
    zones.tick(20.0)
    path = subscribe(client, ("heat/degrees@zone0", 80.0, 70.0), max_wakeups_per_min=("u", 600))
    above_ns = zones.tick(80.0)
    assert client.signal(path) == ("Crossed", ("heat/degrees@zone0", 80.0, ABOVE, above_ns))
    zones.tick(75.0)
    zones.tick(90.0)
    zones.tick(71.0)
    below_ns = zones.tick(69.5)
    assert client.signal(path) == ("Crossed", ("heat/degrees@zone0", 69.5, BELOW, below_ns))
    zones.tick(85.0)
    assert client.signal(path)[1][2] == ABOVE
    zones.writer.ring.absence(0, zones.tick(85.0) + 1, Cause.NO_SOURCE, "unplugged")
    name, (series, value, state, _) = client.signal(path)
    assert (name, series, state) == ("Crossed", "heat/degrees@zone0", UNKNOWN)
    assert math.isnan(value)
    client.call("Close", path=path, interface=SUBSCRIPTION)


def test_what_is_above_from_the_beginning_is_told_and_new_instances_are_watched(client: Client, zones: Zones) -> None:
    zones.tick(90.0)
    path = subscribe(client, ("heat/degrees", 80.0, 70.0), max_wakeups_per_min=("u", 600))
    assert client.signal(path)[1][::2] == ("heat/degrees@zone0", ABOVE)
    zones.tick(90.0, 95.0)
    assert client.signal(path)[1][::2] == ("heat/degrees@zone1", ABOVE)
    client.call("Close", path=path, interface=SUBSCRIPTION)


def test_what_goes_while_it_is_above_is_told(client: Client, zones: Zones) -> None:
    zones.tick(20.0, 90.0)
    path = subscribe(client, ("heat/degrees", 80.0, 70.0), max_wakeups_per_min=("u", 600))
    assert client.signal(path)[1][::2] == ("heat/degrees@zone1", ABOVE)
    zones.tick(20.0)
    assert client.signal(path)[1][::2] == ("heat/degrees@zone1", UNKNOWN)
    client.call("Close", path=path, interface=SUBSCRIPTION)


def test_values_come_in_batches_where_they_are_asked_for(client: Client, zones: Zones) -> None:
    zones.tick(30.0)
    zones.tick(31.5)
    [(ident, *_)] = client.call("ListMetrics", "asa{sv}", ["heat/degrees@zone0"], {})
    [(beats, *_)] = client.call("ListMetrics", "asa{sv}", ["heat/beats@zone0"], {})
    batch = {"batch": ("b", True)}
    totals = {**batch, "rate": ("b", False)}
    path = subscribe(client, ("heat/degrees@zone0", NAN, NAN, batch), ("heat/beats@zone0", NAN, NAN, totals))
    assert client.signal(path) == ("Batch", (zones.second * SECOND_NS, [ident, beats], [31.5, zones.second]))
    tick_ns = zones.tick(32.5)
    assert client.signal(path) == ("Batch", (tick_ns, [ident, beats], [32.5, zones.second]))
    client.call("Close", path=path, interface=SUBSCRIPTION)


def test_nobody_else_sees_a_subscription(bus: Bus, client: Client, zones: Zones) -> None:
    zones.tick(20.0)
    path = subscribe(client, ("heat", 80.0, 70.0))
    with a_client(bus) as other, pytest.raises(RefusedError, match="UnknownObject"):
        other.call("Close", path=path, interface=SUBSCRIPTION)
    series = client.call("Get", "ss", SUBSCRIPTION, "Series", path=path, interface="org.freedesktop.DBus.Properties")
    assert series == ("u", 2)
    client.call("Close", path=path, interface=SUBSCRIPTION)
    with pytest.raises(RefusedError, match="UnknownObject"):
        client.call("Close", path=path, interface=SUBSCRIPTION)


def test_a_user_has_a_bounded_number_and_they_end_with_the_caller(bus: Bus, zones: Zones, client: Client) -> None:
    zones.tick(20.0)
    rule = ("heat", 80.0, 70.0)
    with a_client(bus) as leaving:
        for _ in range(SUBSCRIPTIONS_PER_USER_MAX):
            subscribe(leaving, rule)
        with pytest.raises(RefusedError, match="TooMuch"):
            subscribe(client, rule)
    made = []

    def is_free() -> bool:
        try:
            made.append(subscribe(client, rule))
        except RefusedError:
            return False
        return True

    wait_until(is_free)
    client.call("Close", path=made[0], interface=SUBSCRIPTION)


@pytest.mark.parametrize(
    ("rules", "options", "name", "text"),
    [
        ([], {}, "TooMuch", "0 rules; expected 1 to 64"),
        ([("heat", 2.0, 1.0, {})] * (RULES_MAX + 1), {}, "TooMuch", "65 rules"),
        ([("heat", 1.0, 2.0, {})], {}, "InvalidArgument", "rule 'heat': high 1.0, low 2.0"),
        ([("heat", NAN, 2.0, {})], {}, "InvalidArgument", "rule 'heat': high nan"),
        ([("heat", NAN, NAN, {})], {}, "InvalidArgument", "rule 'heat': expected a threshold"),
        ([("heat", 2.0, 1.0, {"rite": ("b", True)})], {}, "InvalidArgument", "option 'rite'"),
        ([("cold", 2.0, 1.0, {})], {}, "NotFound", "rule 'cold': means nothing that is recorded now"),
        ([("", 2.0, 1.0, {})], {}, "InvalidArgument", "path ''"),
        ([("heat", 2.0, 1.0, {})], {"coalesce_ms": ("u", 60_001)}, "InvalidArgument", "option coalesce_ms"),
        ([("heat", 2.0, 1.0, {})], {"max_wakeups_per_min": ("u", 0)}, "InvalidArgument", "option max_wakeups"),
    ],
)
def test_a_wrong_subscription_is_refused(
    client: Client, zones: Zones, rules: list[Any], options: dict[str, Any], name: str, text: str
) -> None:
    zones.tick(20.0)
    with pytest.raises(RefusedError) as refusal:
        subscribe(client, *rules, **options)
    assert refusal.value.name == name
    assert refusal.value.text.startswith(text)


@as_stranger
def test_a_stranger_cannot_subscribe_to_what_is_restricted(bus: Bus, machine: Machine, client: Client) -> None:
    now_s = clock.boottime_ns() // SECOND_NS
    hidden = machine.start(now_s, boot=clock.boot_id(), table=KEYS, sensitivity=Sensitivity.RESTRICTED)
    hidden.ring.rows(0, now_s * SECOND_NS, ("",), [5])
    assert client.call("ListMetrics", "asa{sv}", ["keys"], {})
    asked = ("Subscribe", "a(sdda{sv})a{sv}", "1", "keys", "2", "1", "0", "0")
    assert "'keys': restricted" in call(bus, *asked, user=STRANGER).stderr


class SentSignals:
    """Notes what is sent; ``is_full``: takes nothing."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[object, ...]]] = []
        self.is_full = False

    def emit(self, path: str, signal: Signal, *values: object, to: Caller | None = None) -> bool:
        if not self.is_full:
            self.sent.append((signal.name, values))
        return not self.is_full


class PacedSubscription:
    """One subscription, at times that a test chooses."""

    def __init__(self, folder: Path, pace: Pace) -> None:
        self.zones = Zones(Machine(folder))
        self.latest = Latest(Follower(Folders("/nowhere", f"{folder}/run"), ticks=2))
        owner = Caller(":1.1", os.geteuid(), 1, (), is_restricted=True)
        rules = [Rule("heat/degrees", 80.0, 70.0, is_rate=True, is_batch=False)]
        self.subscription = Subscription("/s/1", owner, rules, pace, lambda: None)
        for _ in self.subscription.resolve(self.latest):
            pass
        self.wire = SentSignals()

    def at(self, at_s: float, degrees: float) -> int:
        """Look at this moment; gives how many signals were sent so far."""
        self.zones.tick(degrees)
        now = self.latest.look()
        self.subscription.consider(now, round(at_s * SECOND_NS))
        self.subscription.tell(self.wire, now, self.latest.serial, round(at_s * SECOND_NS))  # type: ignore[arg-type]
        return len(self.wire.sent)


def test_crossings_are_gathered_and_one_taken_back_is_none(tmp_path: Path) -> None:
    paced = PacedSubscription(tmp_path, Pace(60, 10 * SECOND_NS))
    assert paced.at(100, 90.0) == 0
    assert paced.at(105, 60.0) == 0
    assert paced.at(120, 60.0) == 0
    assert paced.at(200, 90.0) == 0
    assert paced.subscription.due_ns() == 210 * SECOND_NS
    assert paced.at(210, 95.0) == 1
    [(name, (path, value, state, _))] = paced.wire.sent
    assert (name, path, value, state) == ("Crossed", "heat/degrees@zone0", 90.0, ABOVE)


def test_nobody_is_woken_oftener_than_they_said(tmp_path: Path) -> None:
    paced = PacedSubscription(tmp_path, Pace(2, 0))
    assert [paced.at(second, 90.0 if second % 2 else 10.0) for second in (101, 102, 103, 104, 105)] == [1, 2, 2, 2, 2]
    assert paced.subscription.due_ns() == 161 * SECOND_NS
    assert paced.at(160, 90.0) == 2
    assert paced.at(161, 90.0) == 3
    assert paced.wire.sent[-1][1][2] == ABOVE


def test_what_a_client_did_not_read_is_counted_and_told_later(tmp_path: Path) -> None:
    paced = PacedSubscription(tmp_path, Pace(600, 0))
    paced.wire.is_full = True
    assert paced.at(101, 90.0) == 0
    assert paced.at(102, 90.0) == 0
    assert paced.subscription.dropped() == 2
    paced.wire.is_full = False
    assert paced.at(103, 90.0) == 1


# --- events ---------------------------------------------------------------------------------------


def happen(folders: Folders, kind: str, subject: str, text: str = "", **more: str) -> None:
    order: control.Order = {"do": "event", "boottime_ns": clock.boottime_ns(), "kind": kind, "subject": subject}
    assert control.tell(f"{folders.runtime}/bus", {**order, "text": text, **more})


def test_events_are_told_to_whoever_listens_but_for_restricted_ones(client: Client, part: Folders) -> None:
    rule = "type='signal',interface='org.sysmond.SystemMonitor1.Manager',member='Event'"
    client.call_bus("AddMatch", "s", rule)
    before = client.property("EventsWithheld")
    happen(part, "quarantine", "keys", "it hangs")
    happen(part, "device added", "keys/event5")
    happen(part, "moved", "gone", "late", sensitivity=Sensitivity.RESTRICTED)
    happen(part, "mark", "", "here", sensitivity=Sensitivity.PUBLIC)
    name, (time_ns, *said) = client.signal(OBJECT_PATH)
    assert (name, said) == ("Event", ["mark", "", "here"])
    assert abs(time_ns - clock.relation().realtime_ns) < HANG_S * SECOND_NS
    assert client.property("EventsWithheld") == before + 3


def test_a_storm_of_events_is_counted() -> None:
    sent: list[tuple[int, str, str, str]] = []
    events = Events(lambda *said: sent.append(said), lambda _: False)
    now_ns = clock.boottime_ns()
    for number in range(1000):
        events.receive(now_ns, "device added", f"block/sd{number}", "", False)
    assert BURST <= len(sent) < 1000
    assert len(sent) - sum(event[1] == "dropped" for event in sent) + events.events_dropped() == 1000
    events._last_ns -= SECOND_NS
    events.receive(now_ns, "mark", "", "after it", False)
    [(_, kind, _, text), (_, _, _, last)] = sent[-2:]
    assert (kind, last) == ("dropped", "after it")
    assert text.endswith("events were not told")


# --- holds ----------------------------------------------------------------------------------------


def hold(client: Client, *tables: str, period_ns: int = TENTH_NS) -> int:
    descriptor: int = client.call("HoldRate", "astss", list(tables), period_ns, "a test", "to see").to_raw_fd()
    return descriptor


def test_tables_are_read_oftener_while_the_descriptor_is_open(client: Client, lanes: Lanes) -> None:
    lock = hold(client, "heat")
    order = {"do": "hold", "tables": ["heat"], "interval_ns": TENTH_NS, "seconds": 150}
    assert lanes.orders == {"sampler": [order], "background": [], "archiver": []}
    [(kind, tables, period_ns, who, why, uid, until_ns)] = client.property("Holds")
    assert (kind, tables, period_ns, who, why, uid) == (
        "rate",
        ["heat"],
        TENTH_NS,
        "a test",
        "to see",
        os.geteuid(),
    )
    assert until_ns > clock.relation().realtime_ns
    slower = hold(client, "heat", period_ns=5 * TENTH_NS)
    assert lanes.last("sampler")["interval_ns"] == TENTH_NS
    copy = os.dup(lock)
    os.close(lock)
    os.close(copy)
    wait_until(lambda: lanes.last("sampler")["interval_ns"] == 5 * TENTH_NS)
    os.write(slower, b"x")  # Whoever writes does not know what it is for.
    wait_until(lambda: lanes.last("sampler")["interval_ns"] == 0)
    wait_until(lambda: client.property("Holds") == [])
    os.close(slower)


def hold_back(client: Client, *tables: str, period_ns: int = 30 * SECOND_NS, why: str = "on battery") -> int:
    lock: int = client.call("HoldBack", "astss", list(tables), period_ns, "an applet", why).to_raw_fd()
    return lock


def test_tables_are_read_less_often_while_the_descriptor_is_open(client: Client, lanes: Lanes) -> None:
    lock = hold_back(client, "heat")
    planned = {"do": "hold", "tables": ["heat"], "interval_ns": 0, "seconds": 150}
    order = {**planned, "back_ns": 30 * SECOND_NS, "why": "an applet: on battery"}
    assert lanes.orders == {"sampler": [order], "background": [], "archiver": []}
    assert client.property("Holds")[0][:5] == ("back", ["heat"], 30 * SECOND_NS, "an applet", "on battery")
    other = hold_back(client, "heat", period_ns=10 * SECOND_NS, why="hot")
    assert lanes.last("sampler") == {**order, "back_ns": 10 * SECOND_NS, "why": "an applet: hot"}, "the shortest"
    quick = hold(client, "heat", period_ns=2 * SECOND_NS)
    assert lanes.last("sampler")["interval_ns"] == 2 * SECOND_NS
    os.close(quick)
    os.close(other)
    wait_until(lambda: lanes.last("sampler") == order)
    os.close(lock)
    wait_until(lambda: lanes.last("sampler") == planned)
    wait_until(lambda: client.property("Holds") == [])


def test_who_names_no_table_holds_back_all_that_he_may_see(client: Client, lanes: Lanes) -> None:
    lanes.missing = {"slow": "background"}  # This machine has none: no reason to refuse it.
    lock = hold_back(client)
    assert lanes.last("sampler")["tables"] == ["heat", "keys"]
    assert lanes.last("background")["tables"] == ["slow"]
    os.close(lock)
    wait_until(lambda: client.property("Holds") == [])


def test_what_somebody_watches_is_not_held_back(client: Client, lanes: Lanes, zones: Zones) -> None:
    zones.tick(20.0)
    lock = hold_back(client, "heat", "slow")
    path = subscribe(client, ("heat/degrees@zone0", 90.0, 80.0))
    wait_until(lambda: "back_ns" not in lanes.last("sampler"))
    assert lanes.last("background")["back_ns"] == 30 * SECOND_NS
    client.call("Close", path=path, interface=SUBSCRIPTION)
    wait_until(lambda: lanes.last("sampler").get("back_ns") == 30 * SECOND_NS)
    os.close(lock)
    wait_until(lambda: client.property("Holds") == [])


def test_both_lanes_are_told_of_what_they_read(client: Client, lanes: Lanes) -> None:
    lanes.missing = {"heat": "sampler"}  # It was too slow, and moved.
    lock = hold(client, "heat", "slow", period_ns=SECOND_NS)
    assert [order["tables"] for order in lanes.orders["sampler"]] == [["heat"]]
    assert [order["tables"] for order in lanes.orders["background"]] == [["heat"], ["slow"]]
    os.close(lock)
    wait_until(lambda: [order["interval_ns"] for order in lanes.orders["background"][2:]] == [0, 0])
    short = hold(client, "heat")
    assert lanes.last("background")["interval_ns"] == SECOND_NS, "as often as that lane can"
    os.close(short)
    wait_until(lambda: lanes.last("background")["interval_ns"] == 0)
    lanes.missing["slow"] = "background"
    with pytest.raises(RefusedError, match="table 'slow': is not being read"):
        hold(client, "slow", period_ns=SECOND_NS)
    wait_until(lambda: client.property("Holds") == [])


def test_the_disk_is_left_alone_for_a_bounded_time(client: Client, lanes: Lanes) -> None:
    lock = client.call("InhibitFlush", "ssu", "a test", "to see", 1000).to_raw_fd()
    assert lanes.orders["archiver"] == [{"do": "hold_flush", "seconds": 150}]
    os.close(lock)
    wait_until(lambda: lanes.last("archiver")["seconds"] == 0)
    short = client.call("InhibitFlush", "ssu", "a test", "to see", 1).to_raw_fd()
    assert lanes.orders["archiver"][2] in [{"do": "hold_flush", "seconds": seconds} for seconds in (1, 0)]
    poll = select.poll()
    poll.register(short, 0)
    assert poll.poll(HANG_S * 1000), "when its time is up, whoever holds the descriptor sees it"
    wait_until(lambda: lanes.last("archiver")["seconds"] == 0)
    os.close(short)


@pytest.mark.parametrize(
    ("member", "signature", "asked", "name", "text"),
    [
        ("HoldRate", "astss", ([], 10**8, "w", "y"), "InvalidArgument", "0 tables"),
        (
            "HoldRate",
            "astss",
            (["heat"], 10**8 - 1, "w", "y"),
            "InvalidArgument",
            "period 99999999 ns; 100000000 ns is",
        ),
        (
            "HoldRate",
            "astss",
            (["heat", "slow"], 10**8, "w", "y"),
            "InvalidArgument",
            "period 100000000 ns; 1000000000 ns",
        ),
        ("HoldRate", "astss", (["heat"], 2**63, "w", "y"), "InvalidArgument", "period"),
        ("HoldRate", "astss", (["heap"], 10**8, "w", "y"), "NotFound", "there is no table 'heap'; did you mean heat"),
        ("HoldRate", "astss", (["heat"], 10**8, "", "y"), "InvalidArgument", "who of 0 characters"),
        ("HoldRate", "astss", (["heat"], 10**8, "w", "y" * 201), "InvalidArgument", "why of 201 characters"),
        ("HoldBack", "astss", (["heat"], 10**9 - 1, "w", "y"), "InvalidArgument", "period 999999999 ns; expected 1000"),
        ("HoldBack", "astss", (["heat"], 60 * 10**9 + 1, "w", "y"), "InvalidArgument", "period 60000000001 ns"),
        ("HoldBack", "astss", (["heap"], 10**9, "w", "y"), "NotFound", "there is no table 'heap'"),
        ("HoldBack", "astss", (["heat"] * 65, 10**9, "w", "y"), "InvalidArgument", "65 tables"),
        ("HoldBack", "astss", (["heat"], 10**9, "w", ""), "InvalidArgument", "why of 0 characters"),
        ("InhibitFlush", "ssu", ("w", "y", 0), "InvalidArgument", "max_seconds 0; expected 1 to 3600"),
        ("InhibitFlush", "ssu", ("w", "y", 3601), "InvalidArgument", "max_seconds 3601"),
    ],
)
def test_a_wrong_hold_is_refused(
    client: Client, lanes: Lanes, member: str, signature: str, asked: tuple[Any, ...], name: str, text: str
) -> None:
    with pytest.raises(RefusedError) as refusal:
        client.call(member, signature, *asked)
    assert refusal.value.name == name
    assert refusal.value.text.startswith(text)
    assert client.property("Holds") == []


def test_restricted_tables_are_held_and_not_told_of(client: Client, lanes: Lanes) -> None:
    lock = hold(client, "keys", "heat")
    assert lanes.last("sampler")["tables"] == ["keys", "heat"]
    assert [hold[1] for hold in client.property("Holds")] == [["heat"]]
    os.close(lock)
    wait_until(lambda: client.property("Holds") == [])


def test_whoever_listens_is_told_of_holds(client: Client, lanes: Lanes) -> None:
    client.call_bus(
        "AddMatch", "s", "type='signal',member='PropertiesChanged',arg0='org.sysmond.SystemMonitor1.Manager'"
    )
    os.close(hold(client, "heat"))
    for kinds in (["rate"], []):
        name, (_, changed, _) = client.signal(OBJECT_PATH)
        assert name == "PropertiesChanged"
        assert [hold[0] for hold in changed["Holds"][1]] == kinds


def test_a_part_that_died_is_told_of_holds_again(client: Client, lanes: Lanes, part: Folders) -> None:
    lock = hold(client, "heat")
    lanes.orders["sampler"].clear()
    happen(part, "died", "sampler")
    wait_until(lambda: lanes.orders["sampler"])
    assert lanes.last("sampler")["tables"] == ["heat"]
    os.close(lock)


def test_a_user_has_a_bounded_number_of_holds(client: Client, lanes: Lanes) -> None:
    locks = [hold(client, "heat") for _ in range(HOLDS_PER_USER_MAX)]
    with pytest.raises(RefusedError, match="TooMuch"):
        hold(client, "heat")
    for lock in locks:
        os.close(lock)
    wait_until(lambda: client.property("Holds") == [])


def test_a_hold_that_the_other_part_refuses_is_none(client: Client, lanes: Lanes) -> None:
    lanes.refusal = "no"
    with pytest.raises(RefusedError, match="Failed: sampler: no"):
        hold(client, "heat")
    assert client.property("Holds") == []


def test_without_the_other_part_there_is_no_hold(client: Client, part: Folders) -> None:
    with pytest.raises(RefusedError, match="Unavailable"):
        hold(client, "heat")
    assert client.property("Holds") == []


@as_stranger
def test_a_stranger_may_hold_nothing(bus: Bus, part: Folders) -> None:
    for asked in (
        ("HoldRate", "astss", "1", "heat", "100000000", "w", "y"),
        ("HoldBack", "astss", "0", "60000000000", "w", "y"),
        ("InhibitFlush", "ssu", "w", "y", "5"),
    ):
        assert "may not steer" in call(bus, *asked, user=STRANGER).stderr
