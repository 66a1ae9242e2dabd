# SPDX-License-Identifier: Apache-2.0
"""Values over the bus of a whole sysmond: what its own probes record, with the oldest library and the newest."""

import os
import time
from collections.abc import Iterator
from functools import partial
from math import isnan
from typing import Any

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.bus.wire.names import MANAGER, OBJECT_PATH
from tests.support.clients import Client, a_client
from tests.support.clients import RefusedError as RefusedOverBus
from tests.support.onbus import OLDER, Recorder, a_bus, a_recorder, answer, gdbus, pytestmark
from tests.support.waiting import wait_until

__all__ = ["pytestmark"]

NO_OPTIONS: dict[str, Any] = {}
LISTEN = f"type='signal',interface='{MANAGER}',member='Event'"


@pytest.fixture(scope="module", params=["newest", "oldest"])
def recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    is_older = request.param == "oldest"
    if is_older and not (OLDER / "dbus_fast").is_dir():
        pytest.skip("the oldest dbus-fast is not here")
    with a_bus() as bus, a_recorder(bus, older=is_older) as there:
        yield there


@pytest.fixture
def client(recorder: Recorder) -> Iterator[Client]:
    with a_client(recorder.bus) as made:
        yield made


def ids_of(client: Client, *patterns: str) -> dict[str, int]:
    found: dict[str, int] = {}
    after = ""
    while page := client.call("ListMetrics", "asa{sv}", list(patterns), {"after": ("s", after)}):
        found.update({row[1]: row[0] for row in page})
        after = page[-1][1]
    return found


def test_three_clients_are_told_the_same(recorder: Recorder, client: Client) -> None:
    wait_until(lambda: ids_of(client).keys() >= {"memory/total", "cpu/user@total"})
    ident = ids_of(client, "memory/total")["memory/total"]
    with open("/proc/meminfo", encoding="ascii") as file:
        total = int(file.readline().split()[1]) * 1024
    assert client.call("GetLatest", "aua{sv}", [ident], {})[2:] == ([float(total)], b"\0")
    _, _, values, qualities = answer(recorder.bus, "GetLatest", "aua{sv}", "1", str(ident), "0")
    assert (values, qualities) == ([total], [0])
    output = gdbus(recorder.bus, f"{MANAGER}.GetLatest", f"[{ident}]", "{}")
    assert f" [{total}.0], " in output.stdout


def test_what_is_recorded_comes_back(client: Client) -> None:
    wait_until(lambda: "memory/total" in ids_of(client))

    def history() -> list[float]:
        _, columns, _, _ = client.call("History", "asxxtasa{sv}", ["memory/total"], 0, 0, 0, [], {})
        return [value for value in columns[0][3] if not isnan(value)]  # A tick may be late.

    values = history()
    assert values
    numbers, layout = client.call("Query", "asxxtasa{sv}", ["memory"], 0, 0, SECOND_NS, ["max"], {})
    with numbers.to_file("rb") as file:
        assert len(file.read()) == layout["rows"][1] * 8 * (1 + len(layout["columns"][1]))
    assert all(value == values[0] for value in history())
    points = client.call("GetHistory", "suu", "memory/total", 60, 60)
    assert {value for _, value, is_there in points if is_there} == {values[0]}
    assert client.call("ListBoots", "a{sv}", {})


def test_what_is_derived_is_a_series_like_any_other(client: Client) -> None:
    wait_until(lambda: "memory/used_percent" in ids_of(client, "memory/used_percent"))
    ident = ids_of(client, "memory/used_percent")["memory/used_percent"]
    _, _, [value], quality = client.call("GetLatest", "aua{sv}", [ident], {})
    assert 0 < value < 100
    assert quality == b"\0"
    _, columns, _, _ = client.call("History", "asxxtasa{sv}", ["memory/used_percent"], 0, 0, 0, [], {})
    assert columns[0][:3] == ("memory/used_percent", "mean", "%")
    assert columns[0][3][-1] == pytest.approx(value, abs=30)
    assert any(is_there for _, _, is_there in client.call("GetHistory", "suu", "memory/used_percent", 60, 60))


def test_the_newest_of_a_long_table_are_rows_and_who_asks_for_series_is_told_so(client: Client) -> None:
    rule = ("process/cpu@5", 1.0, 0.5, NO_OPTIONS)
    for member, words in (
        ("ListMetrics", ("asa{sv}", ["process/cpu@5"], NO_OPTIONS)),
        ("Subscribe", ("a(sdda{sv})a{sv}", [rule], NO_OPTIONS)),
    ):
        with pytest.raises(RefusedOverBus, match="is a long table.* on D-Bus GetRows") as refusal:
            client.call(member, *words)
        assert refusal.value.name == "NotFound"
    last = {"last_ns": ("t", 60 * SECOND_NS), "columns": ("as", ["pid"])}
    mine = {**last, "where": ("s", f"pid = {os.getpid()}")}

    def rows(table: str, asked: dict[str, Any]) -> list[float]:
        try:
            pids: list[float] = client.call("GetRows", "sxxta{sv}", table, 0, 0, 0, asked)[1][0][3][1]
        except RefusedOverBus:  # Nothing is recorded yet.
            return []
        return pids

    for table in ("process", "process_private"):  # The other one is restricted, and we may.
        wait_until(partial(rows, table, mine))
        assert rows(table, mine) == [os.getpid()]
        assert len(rows(table, {**last, "top": ("u", 1)})) == 1


def test_a_subscriber_is_told_of_every_tick(client: Client) -> None:
    wait_until(lambda: "load/tasks" in ids_of(client))
    rule = ("load/tasks", float("nan"), float("nan"), {"batch": ("b", True)})
    path = client.call("Subscribe", "a(sdda{sv})a{sv}", [rule], {})
    name, first = client.signal(path)
    assert name == "Batch"
    while (later := client.signal(path)[1][0]) == first[0]:
        pass  # On a busy machine it is told of the newest tick again, before the next one is recorded.
    assert later > first[0]
    assert first[2][0] > 0


def test_a_mark_is_an_event(client: Client) -> None:
    client.call_bus("AddMatch", "s", LISTEN)
    before_ns = time.time_ns()
    events = []

    def is_event() -> bool:
        client.call("Mark", "sa{sv}", "here", {})
        name, said = client.signal(OBJECT_PATH)
        events.append((name, said))
        return (name, said[1:]) == ("Event", ("mark", "", "here"))

    wait_until(is_event)
    assert events[-1][1][0] >= before_ns
    assert ("mark", "", "here") in [tuple(event[1:]) for event in client.call("GetEvents", "xxa{sv}", before_ns, 0, {})]


def test_a_table_is_read_oftener_while_somebody_holds_that(client: Client) -> None:
    def interval_s() -> float:
        interval: float = client.call("ListMetrics", "asa{sv}", ["load/tasks"], {})[0][5]
        return interval

    wait_until(lambda: "load/tasks" in ids_of(client))
    assert interval_s() == 1.0
    lock = client.call("HoldRate", "astss", ["load"], SECOND_NS // 10, "a test", "to see").to_raw_fd()
    wait_until(lambda: interval_s() == 0.1)
    os.close(lock)
    wait_until(lambda: interval_s() == 1.0)


def test_a_table_is_read_less_often_while_somebody_holds_it_back(client: Client) -> None:
    def interval_s() -> float:
        interval: float = client.call("ListMetrics", "asa{sv}", ["load/tasks"], {})[0][5]
        return interval

    wait_until(lambda: "load/tasks" in ids_of(client))
    lock = client.call("HoldBack", "astss", [], 60 * SECOND_NS, "a test", "on battery").to_raw_fd()
    wait_until(lambda: interval_s() == 60.0)
    os.close(lock)
    wait_until(lambda: interval_s() == 1.0)

    def gaps() -> list[tuple[int, str]]:
        _, _, there, _ = client.call("History", "asxxtasa{sv}", ["load/tasks"], 0, 0, 0, [], {})
        return [(gap[1] - gap[0], gap[4]) for gap in there if gap[3] == "held back"]

    wait_until(lambda: 0 < sum(length_ns for length_ns, _ in gaps()) < 60 * SECOND_NS)  # It is read as planned again.
    assert {why for _, why in gaps()} == {"read every 60 s for a test: on battery"}


def test_the_disk_is_left_alone_while_somebody_holds_that(client: Client) -> None:
    lock = client.call("InhibitFlush", "ssu", "a test", "to see", 60).to_raw_fd()
    assert [hold[0] for hold in client.property("Holds")] == ["flush"]
    os.close(lock)
    wait_until(lambda: client.property("Holds") == [])
