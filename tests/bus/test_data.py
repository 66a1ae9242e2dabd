# SPDX-License-Identifier: Apache-2.0
"""Values, new and old, over the bus: right, no more than the caller may see, and bounded."""

import array
import asyncio
import fcntl
import json
import math
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, Answers, Cause, Derived, Metric, Semantics, Sensitivity, Table
from sysmond.bus import reader, readers
from sysmond.bus.latest import Latest, Listed, Quality, Values
from sysmond.bus.question import HistoryQuestion
from sysmond.bus.readers import Readers, Reply
from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import InvalidArgumentError, LimitError, NotFoundError, OccupiedError, RefusedError
from sysmond.bus.wire.interface import CallContext
from sysmond.bus.wire.names import OBJECT_PATH
from sysmond.bus.wire.values import Variant
from sysmond.errors import NotPermittedError
from sysmond.history import Archive
from sysmond.machine import memory
from sysmond.ring.newest import Follower
from sysmond.tasks.tables import PROCESS
from tests.support.clients import ANYBODY, STRANGER, Client, a_client, a_part
from tests.support.clients import RefusedError as RefusedOverBus
from tests.support.longarchive import Row, put, stretch
from tests.support.machine import TABLE, Machine, Writer, counter, gauge
from tests.support.onbus import Answer, Bus, a_bus, call, pytestmark

__all__ = ["pytestmark"]

INPUT = TABLE._replace(name="input")
TIMER = Table("timer", (Metric("busy", "s", Semantics.COUNTER, "Busy.", 2),))
HOUR_NS = 3600 * SECOND_NS
TICKS = 30
US = 1_000_000
PIDS = range(1, 10)
SECRET = PROCESS._replace(name="session_keys")
as_stranger = pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user")


def a_machine(folder: Path) -> tuple[Machine, Writer]:
    """A machine whose ticks are of the last half a minute; they stay good, for their interval is an hour."""
    machine = Machine(folder)
    boot, now_ns = clock.boot_id(), clock.boottime_ns()
    common: dict[str, Any] = {"boot": boot, "wall_ns": time.time_ns() - now_ns, "interval_ns": HOUR_NS}
    first = now_ns // SECOND_NS - TICKS
    writer = machine.start(first - 1, **common)
    writer.tick(range(first, first + TICKS), ("sda", "sdb"))
    hidden = machine.start(first - 1, sensitivity=Sensitivity.RESTRICTED, table=INPUT, **common)
    hidden.tick(range(first, first + TICKS))
    hidden.ring.event(now_ns, "moved", "input", "too late")
    writer.ring.event(now_ns, "mark", "", "here")
    slow = machine.start(first - 1, writer="background", table=TIMER, **{**common, "interval_ns": SECOND_NS})
    for second in (first - 2, first):
        slow.relation(second * SECOND_NS)
        slow.ring.rows(0, second * SECOND_NS, ("",), [second * 50])
    of_machine: dict[str, Any] = {"boot": boot, "relations": [Relation(0, time.time_ns() - now_ns, 0)]}
    ticks = range(first, first + TICKS)
    tasks = [(at, process(pid, at * pid * US // 10)) for at in range(TICKS) for pid in PIDS]
    put(machine.folders, stretch(PROCESS, ticks, tasks, **of_machine), 1)
    put(machine.folders, stretch(SECRET, ticks, tasks, sensitivity=Sensitivity.RESTRICTED, **of_machine), 1)
    return machine, writer


def process(pid: int, cpu: int) -> Row:
    return {"pid": pid, "start": SECOND_NS, "comm": f"task-{pid}", "cpu": cpu, "rss_anon": 4096 * pid, "state": "S"}


@pytest.fixture(scope="module")
def bus() -> Iterator[Bus]:
    with a_bus(owner=ANYBODY) as made:
        yield made


@pytest.fixture(scope="module")
def recorded(bus: Bus) -> Iterator[tuple[Machine, Writer]]:
    folder = Path(tempfile.mkdtemp(prefix="sysmond-", dir="/dev/shm"))
    folder.chmod(0o755)
    machine, writer = a_machine(folder)
    with a_part(bus, machine.folders):
        yield machine, writer
    shutil.rmtree(folder)


@pytest.fixture
def machine(recorded: tuple[Machine, Writer]) -> Machine:
    return recorded[0]


@pytest.fixture
def client(bus: Bus, machine: Machine) -> Iterator[Client]:
    with a_client(bus) as made:
        yield made


def ids_of(client: Client, *patterns: str) -> dict[str, int]:
    return {row[1]: row[0] for row in client.call("ListMetrics", "asa{sv}", list(patterns), {})}


def body(answer: Answer) -> list[Any]:
    assert answer.returncode == 0, answer.stderr
    values: list[Any] = json.loads(answer.stdout)["data"]
    return values


# --- the newest values ----------------------------------------------------------------------------


def find_all(latest: Latest, patterns: list[str], sensitivities: Iterable[Sensitivity]) -> list[Listed]:
    """All pieces of an answer."""
    pieces = latest.find(patterns, sensitivities)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            there: list[Listed] = end.value
            return there


def test_series_are_listed_with_what_they_are(client: Client) -> None:
    listed = client.call("ListMetrics", "asa{sv}", ["disk/*@sda", "input/queue", "timer"], {})
    assert [row[1:] for row in listed] == [
        ("disk/read_bytes@sda", "B", "counter", 1, 3600.0, {"rate_unit": ("s", "B/s")}),
        ("disk/queue@sda", "1", "gauge", 1, 3600.0, {}),
        ("disk/model@sda", "text", "state", 1, 3600.0, {"text": ("s", "made by sda")}),
        ("input/queue@sda", "1", "gauge", 2, 3600.0, {}),
        ("timer/busy", "s", "counter", 1, 1.0, {"rate_unit": ("s", "%")}),
    ]


def test_numbers_of_series_are_stable(bus: Bus, client: Client) -> None:
    whole = ids_of(client)
    assert len(set(whole.values())) == len(whole)
    assert ids_of(client, "disk/queue@sdb") == {"disk/queue@sdb": whole["disk/queue@sdb"]}
    with a_client(bus) as other:
        assert ids_of(other) == whole


@pytest.mark.parametrize(
    ("pattern", "name", "text"),
    [
        ("disk/queue@sdc", "NotFound", "path 'disk/queue@sdc': no such instance; did you mean sd"),
        ("dusk", "NotFound", "there is no table 'dusk'; did you mean disk"),
        ("a/b/c", "InvalidArgument", "path 'a/b/c': not the path of a series"),
    ],
)
def test_a_wrong_pattern_is_refused(client: Client, pattern: str, name: str, text: str) -> None:
    with pytest.raises(RefusedOverBus) as refusal:
        client.call("ListMetrics", "asa{sv}", [pattern], {})
    assert refusal.value.name == name
    assert refusal.value.text.startswith(text)


def test_the_newest_values_and_what_they_are_worth(client: Client, recorded: tuple[Machine, Writer]) -> None:
    ids = ids_of(client)
    asked = ["disk/read_bytes@sda", "disk/queue@sdb", "disk/model@sda", "input/queue@sda", "timer/busy"]
    tick_ns, serial, values, qualities = client.call(
        "GetLatest", "aua{sv}", [*(ids[path] for path in asked), 10**6], {}
    )
    second = tick_ns // SECOND_NS
    assert values[:2] == [counter(second), gauge(second) / 100]
    assert math.isnan(values[2])
    assert values[3:5] == [gauge(second) / 100, (second - TICKS + 1) / 2]
    assert math.isnan(values[5])
    good, stale, text, unknown = Quality.GOOD, Quality.STALE, Quality.TEXT, Quality.UNKNOWN_ID
    assert list(qualities) == [good, good, text, good, stale, unknown]
    assert client.call("GetLatest", "aua{sv}", [], {}) == (tick_ns, serial, [], b"")


def test_counters_are_rates_where_that_is_asked_for(client: Client) -> None:
    ids = ids_of(client)
    asked = [ids["disk/read_bytes@sda"], ids["disk/queue@sda"], ids["timer/busy"]]
    tick_ns, _, values, _ = client.call("GetLatest", "aua{sv}", asked, {"rate": ("b", True)})
    second = tick_ns // SECOND_NS
    assert values == [counter(second) - counter(second - 1), gauge(second) / 100, 50.0]


def test_series_come_in_pages(client: Client) -> None:
    whole = ids_of(client)
    after, paged = "", {}
    while page := client.call("ListMetrics", "asa{sv}", [], {"after": ("s", after), "limit": ("u", 3)}):
        assert len(page) <= 3
        paged.update({row[1]: row[0] for row in page})
        after = page[-1][1]
    assert paged == whole
    assert list(paged) == sorted(whole)
    [first] = client.call("ListMetrics", "asa{sv}", ["disk"], {"limit": ("u", 1)})
    assert first[1] == "disk/model@sda"
    with pytest.raises(RefusedOverBus, match="limit 0: expected 1 or more"):
        client.call("ListMetrics", "asa{sv}", ["disk"], {"limit": ("u", 0)})


def test_a_page_has_as_many_as_an_answer_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, _ = a_machine(tmp_path)
    values = Values(Latest(Follower(machine.folders, ticks=2)))
    mine = CallContext(Caller(":1.1", 0, 1, (), is_restricted=True), OBJECT_PATH)

    def listed(**options: tuple[str, object]) -> list[Any]:
        pieces = values.list_metrics(mine, [], {name: Variant(*value) for name, value in options.items()})
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return list(end.value)

    everything = [row[1] for row in listed(after=("s", ""))]
    monkeypatch.setattr("sysmond.bus.latest.REPLY_BYTES_MAX", 400)
    with pytest.raises(LimitError, match="use narrower patterns, or the option limit"):
        listed()
    found: list[str] = []
    while page := listed(after=("s", found[-1] if found else "")):
        assert len(page) <= 3
        found += [row[1] for row in page]
    assert found == everything


@pytest.mark.parametrize("options", [{"rote": ("b", True)}, {"rate": ("s", "yes")}])
def test_a_wrong_option_is_refused(client: Client, options: dict[str, Any]) -> None:
    with pytest.raises(RefusedOverBus, match="InvalidArgument"):
        client.call("GetLatest", "aua{sv}", [], options)


def test_a_new_tick_an_absence_and_a_new_instance_are_seen(tmp_path: Path) -> None:
    machine, writer = a_machine(tmp_path)
    latest = Latest(Follower(machine.folders, ticks=2))
    [queue] = (match.series.ident for match in find_all(latest, ["disk/queue@sda"], Sensitivity))
    before_ns, _, _ = latest.values([queue], Sensitivity, rate=False)
    serial = latest.serial
    writer.tick([before_ns // SECOND_NS + 1], ("sdb", "sda", "sdc"))
    tick_ns, values, qualities = latest.values([queue], Sensitivity, rate=False)
    assert (tick_ns, values, list(qualities)) == (
        before_ns + SECOND_NS,
        [gauge(tick_ns // SECOND_NS) / 100],
        [Quality.GOOD],
    )
    assert latest.serial == serial + 1
    [read] = (match.series.ident for match in find_all(latest, ["disk/read_bytes@sda"], Sensitivity))
    [grown] = latest.values([read], Sensitivity, rate=True)[1]
    assert grown == counter(tick_ns // SECOND_NS) - counter(before_ns // SECOND_NS), "whatever came beside it"
    assert len(find_all(latest, ["disk@sdc"], Sensitivity)) == 3
    writer.tick([before_ns // SECOND_NS + 2], ("sdb",))
    assert list(latest.values([queue], Sensitivity, rate=False)[2]) == [Quality.ABSENT]
    writer.tick([before_ns // SECOND_NS + 3], ("sda",))
    writer.ring.absence(0, before_ns + 4 * SECOND_NS, Cause.NO_SOURCE, "gone")
    assert list(latest.values([queue], Sensitivity, rate=False)[2]) == [Quality.ABSENT]
    writer.ring.absence(0, before_ns + 5 * SECOND_NS, Cause.DISABLED, "")
    assert {match.series.table for match in find_all(latest, [], Sensitivity)} == {"input", "timer"}


def a_printer(folder: Path) -> tuple[Latest, Writer, int]:
    """A table of a stranger that declares what follows from it, and the pressure, which everybody knows."""
    machine = Machine(folder)
    now_ns = clock.boottime_ns()
    common: dict[str, Any] = {"boot": clock.boot_id(), "wall_ns": time.time_ns() - now_ns, "interval_ns": HOUR_NS}
    table = Table(
        "printer",
        (
            Metric("jobs", "1", Semantics.COUNTER, "Jobs."),
            Metric("busy", "s", Semantics.COUNTER, "Busy.", 2),
            Metric("ink", "B", Semantics.GAUGE, "Ink."),
        ),
        "printer",
        answers=Answers(
            derived=(
                Derived("time_per_job", "s", "busy / jobs", "How long one takes."),
                Derived("ink_percent", "%", "ink / memory.total * 100", "Ink, of all memory."),
                Derived("hidden", "1", "ink / vault.total", "Of what not all may see."),
            ),
            aliases=(("prints", "jobs"),),
        ),
    )
    memory_table = Table("memory", (Metric("total", "B", Semantics.GAUGE, "All."),))
    first = now_ns // SECOND_NS - 10
    writer = machine.start(first - 1, table=table, **common)
    other = machine.start(first - 1, writer="background", table=memory_table, **common)
    other.ring.rows(0, first * SECOND_NS, ("",), [800])
    vault = machine.start(
        first - 1, table=memory_table._replace(name="vault"), sensitivity=Sensitivity.RESTRICTED, **common
    )
    vault.ring.rows(0, first * SECOND_NS, ("",), [8])
    for second in range(4):
        writer.ring.rows(0, (first + second) * SECOND_NS, ("lp",), [second * 4, second * 50, 200])
    planned = {"printer": Sensitivity.PUBLIC}
    return Latest(Follower(machine.folders, ticks=2), lambda: planned, declared=lambda _: table), writer, first


def test_derived_series_are_values_like_others(tmp_path: Path) -> None:
    latest, writer, first = a_printer(tmp_path)
    assert {match.series.metric for match in find_all(latest, [], Sensitivity)} == {"jobs", "busy", "ink", "total"}
    assert {match.series.metric for match in find_all(latest, ["printer/*"], Sensitivity)} == {"jobs", "busy", "ink"}
    names = ["time_per_job", "ink_percent", "hidden"]
    found = [match for name in names for match in find_all(latest, [f"printer/{name}"], Sensitivity)]
    assert (found[0].metric.unit, found[0].formula) == ("s", "busy / jobs")
    assert [match.series.path for match in found] == [f"printer/{name}@lp" for name in names]
    idents = [match.series.ident for match in found]
    for is_rate in (False, True):
        _, values, qualities = latest.values(idents, Sensitivity, rate=is_rate)
        assert values == pytest.approx([0.125, 25.0, 25.0])
        assert list(qualities) == [Quality.GOOD] * 3
    _, values, qualities = latest.values(idents, {Sensitivity.PUBLIC}, rate=False)
    assert list(qualities) == [Quality.GOOD, Quality.GOOD, Quality.NO_PERMISSION]
    writer.ring.rows(0, (first + 4) * SECOND_NS, ("lp",), [12, 150, ABSENT])
    _, values, qualities = latest.values(idents, Sensitivity, rate=False)
    assert list(qualities) == [Quality.ABSENT] * 3, "divided by zero, and absent"
    assert all(map(math.isnan, values))
    with pytest.raises(NotFoundError, match="there is no metric .*; did you mean printer/time_per_job"):
        find_all(latest, ["printer/time_per_jop"], Sensitivity)
    with pytest.raises(NotFoundError, match=r"there is no table or metric 'Prints'; did you mean printer/jobs\?"):
        find_all(latest, ["Prints"], Sensitivity)


@as_stranger
def test_a_stranger_sees_no_restricted_series(bus: Bus, client: Client) -> None:
    ids = ids_of(client)
    [listed] = body(call(bus, "ListMetrics", "asa{sv}", "0", "0", user=STRANGER))
    assert {row[1].partition("/")[0] for row in listed} == {"disk", "timer"}
    for pattern in ("input", "inpu?/queue", "*@sda"):
        answer = call(bus, "ListMetrics", "asa{sv}", "1", pattern, "0", user=STRANGER)
        assert "input/" not in answer.stdout + answer.stderr
    for member, words in (
        ("ListMetrics", ("asa{sv}", "1", "input", "0")),
        ("History", ("asxxtasa{sv}", "1", "input/queue", "0", "0", "0", "0", "0")),
        ("GetHistory", ("suu", "input/queue@sda", "0", "10")),
    ):
        assert "restricted; root, " in call(bus, member, *words, user=STRANGER).stderr
    asked = [str(ids["input/queue@sda"]), str(ids["disk/queue@sda"])]
    _, _, values, qualities = body(call(bus, "GetLatest", "aua{sv}", "2", *asked, "0", user=STRANGER))
    assert qualities == [Quality.NO_PERMISSION, Quality.GOOD]
    assert values[0] is None or math.isnan(values[0])


# --- what was recorded ----------------------------------------------------------------------------


def table_of(answer: Any) -> dict[str, list[Any]]:
    return {name: values[1] for name, _, _, values in answer[1]}


def test_the_first_processes_of_now_and_of_a_range(client: Client, machine: Machine) -> None:
    asked = {"top": ("u", 3), "by": ("s", "cpu"), "columns": ("as", ["pid", "comm", "cpu:sum", "rss_anon:max"])}
    whole = client.call("GetRows", "sxxta{sv}", "process", 0, 0, 0, asked)
    library = Archive(machine.folders).records("process", top=3, by="cpu", columns="pid,comm,cpu:sum,rss_anon:max")
    told = table_of(whole)
    assert told["pid"] == [9, 8, 7]
    assert told["comm"] == ["task-9", "task-8", "task-7"]
    assert told["cpu:sum"] == library.column("cpu:sum").values.tolist()
    assert [row[:3] for row in whole[1]] == [(column.path, column.stat, column.unit) for column in library.columns]
    now = client.call("GetRows", "sxxta{sv}", "process", 0, 0, 0, {**asked, "last_ns": ("t", 60 * SECOND_NS)})
    assert table_of(now)["pid"] == [9, 8, 7]
    steps = client.call("GetRows", "sxxta{sv}", "process", 0, 0, 10 * SECOND_NS, {"where": ("s", "pid = 4")})
    assert set(table_of(steps)["comm"]) == {"task-4"}
    assert steps[3]["step_ns"] == ("t", 10 * SECOND_NS)


def test_rows_of_wide_tables_and_groups(client: Client) -> None:
    disks = client.call("GetRows", "sxxta{sv}", "disk", 0, 0, 0, {"columns": ("as", ["instance", "queue:max"])})
    assert sorted(table_of(disks)["instance"]) == ["sda", "sdb"]
    groups = client.call("GetRows", "sxxta{sv}", "process", 0, 0, 0, {"group_by": ("as", ["state"])})
    assert table_of(groups)["count"] == [9.0]


def test_a_summary_of_rows_is_that_of_the_library(client: Client, machine: Machine) -> None:
    asked = {"summary": ("b", True), "columns": ("as", ["instance", "queue", "read_bytes"])}
    answer = client.call("GetRows", "sxxta{sv}", "disk", 0, 0, 0, asked)
    library = Archive(machine.folders).records("disk", columns="instance,queue,read_bytes", summary=True)
    assert [row[:2] for row in answer[1]] == [(column.path, column.stat) for column in library.columns]
    assert [name for name, *_ in answer[1]][1:5] == [f"queue:{stat}" for stat in ("mean", "min", "max", "p95")]
    for name, values in table_of(answer).items():
        column = library.column(name)
        assert values == (list(column.texts) if column.texts is not None else column.values.tolist())


def test_rows_as_they_are_stored(client: Client, machine: Machine) -> None:
    asked = {"raw": ("b", True), "columns": ("as", ["pid", "cpu"]), "where": ("s", "pid = 5")}
    answer = client.call("GetRows", "sxxta{sv}", "process", 0, 0, 0, asked)
    library = Archive(machine.folders).records("process", columns="pid,cpu", where="pid = 5", raw=True)
    assert answer[0] == library.times_ns.tolist()
    assert len(answer[0]) > 1
    assert table_of(answer)["cpu"] == library.column("cpu").values.tolist()
    with pytest.raises(RefusedOverBus, match="'cpu_percent': is derived, .*; expected what it is computed from: cpu"):
        client.call("GetRows", "sxxta{sv}", "process", 0, 0, 0, {**asked, "columns": ("as", ["cpu_percent"])})
    with pytest.raises(RefusedOverBus, match="rows as they are stored; expected only one"):
        client.call("GetRows", "sxxta{sv}", "process", 0, 0, 0, {**asked, "top": ("u", 1)})


def test_what_is_left_out_of_rows(client: Client) -> None:
    asked = {"drop": ("as", ["*@sda", "queue", "nothing@sdz"]), "columns": ("as", ["instance", "queue", "read_bytes"])}
    answer = client.call("GetRows", "sxxta{sv}", "disk", 0, 0, 0, asked)
    assert table_of(answer)["instance"] == ["sdb"]
    assert [*table_of(answer)] == ["instance", "read_bytes"]
    [note] = answer[3]["notes"][1]
    assert "nothing@sdz" in note


def test_rows_say_how_they_came_about(client: Client, machine: Machine) -> None:
    for table, columns in (("disk", ["queue:max", "read_bytes:p95"]), ("process", ["cpu", "rss_anon:max"])):
        asked = {"explain": ("b", True), "columns": ("as", columns)}
        kind, told = client.call("GetRows", "sxxta{sv}", table, 0, 0, 0, asked)[3]["explanations"]
        library = Archive(machine.folders).records(table, columns=columns, explain=True).explanations
        assert kind == "a(ssssssa(stxx)a(stt))"
        assert len(told) == 2
        for row, column in zip(told, library, strict=True):
            said = (column.path, column.stat, column.unit, column.origin, column.formula, column.resampling)
            assert tuple(row[:6]) == said
            assert [tuple(part) for part in row[6]] == [part[:4] for part in column.answered]
            assert [tuple(gap)[:2] for gap in row[7]] == [(str(gap.cause), gap.number) for gap in column.gaps]
        assert any(row[6] for row in told)
    assert "explanations" not in client.call("GetRows", "sxxta{sv}", "disk", 0, 0, 0, {})[3]


def test_percentiles_are_statistics_over_the_bus_too(client: Client, machine: Machine) -> None:
    answer = client.call("History", "asxxtasa{sv}", ["disk/queue@sda"], 0, 0, 10 * SECOND_NS, ["p50", "p95"], {})
    library = Archive(machine.folders).select("disk/queue@sda", step="10s", stat="p50,p95")
    assert [row[1] for row in answer[1]] == ["p50", "p95"]
    for row, column in zip(answer[1], library.columns, strict=True):
        np.testing.assert_array_equal(np.array(row[3]), column.values)


def test_the_history_of_a_process_by_its_number(client: Client, machine: Machine) -> None:
    asked: tuple[Any, ...] = (["process/cpu@5", "disk/queue@sda"], 0, 0, 10 * SECOND_NS, [], {})
    times, columns, _, _ = client.call("History", "asxxtasa{sv}", *asked)
    result = Archive(machine.folders).select("process/cpu@5", "disk/queue@sda", step="10s")
    assert times == result.times_ns.tolist()
    assert [row[0] for row in columns] == ["disk/queue@sda", "process/cpu@5"]
    for (path, _, _, values), column in zip(columns, result.columns, strict=True):
        assert path == column.path
        np.testing.assert_array_equal(np.array(values), column.values)
    points = client.call("GetHistory", "suu", "process/rss_anon@5", 0, 5)
    assert {round(value) for _, value, is_there in points if is_there} == {5 * 4096}
    with pytest.raises(RefusedOverBus, match="matches 9 series; expected exactly one"):
        client.call("GetHistory", "suu", "process/rss_anon", 0, 5)


@pytest.mark.parametrize(
    ("table", "options", "name", "text"),
    [
        ("process", {"by": ("s", "cpv")}, "InvalidArgument", "table 'process' has no column 'cpv'; did you mean cpu"),
        ("process", {"top": ("s", "3")}, "InvalidArgument", "option 'top': type s; expected u"),
        ("process", {"where": ("s", "cmm = 3")}, "InvalidArgument", "there is no column 'cmm'; did you mean comm"),
        ("process", {"summary": ("s", "yes")}, "InvalidArgument", "option 'summary': type s; expected b"),
        ("disk", {"drop": ("as", ["*"])}, "InvalidArgument", "drop"),
        ("process", {"last_ns": ("t", 2**60)}, "InvalidArgument", "last_ns 1152921504606846976; expected up to"),
        ("nothing", {}, "InvalidArgument", "there is no table 'nothing'"),
    ],
)
def test_wrong_questions_for_rows_are_refused(
    client: Client, table: str, options: dict[str, Any], name: str, text: str
) -> None:
    with pytest.raises(RefusedOverBus) as refusal:
        client.call("GetRows", "sxxta{sv}", table, 0, 0, 0, options)
    assert refusal.value.name == name
    assert text in refusal.value.text


def test_rows_beyond_an_answer_are_too_much(machine: Machine) -> None:
    archive = Archive(machine.folders)
    question = HistoryQuestion("rows", "", "", [], table="process", bytes_max=10**6, described_bytes_max=100)
    bulk = os.memfd_create("numbers")
    try:
        with pytest.raises(reader.TooLargeError, match="9 rows are .* fewer columns, a condition, or top"):
            reader.rows(question, archive, bulk)
    finally:
        os.close(bulk)


def test_a_restricted_long_table_is_refused_by_what_is_planned(machine: Machine) -> None:
    planned = {"exits": Sensitivity.RESTRICTED, "process": Sensitivity.PUBLIC}
    latest = Latest(Follower(machine.folders, ticks=2), lambda: planned, lambda: list(planned))
    assert "restricted; root" in str(latest.refusal("exits/cpu@1", (Sensitivity.PUBLIC,)))
    assert "restricted; root" in str(latest.refusal("exits", (Sensitivity.PUBLIC,)))  # As rows are asked for.
    assert latest.refusal("exits/cpu@1", tuple(Sensitivity)) is None
    assert "on D-Bus GetRows" in str(latest.of_rows("process/cpu@1"))
    assert latest.refusal("process/cpu@1", (Sensitivity.PUBLIC,)) is None


@as_stranger
def test_a_stranger_sees_no_restricted_rows(bus: Bus, client: Client) -> None:
    mine = client.call("GetRows", "sxxta{sv}", "session_keys", 0, 0, 0, {"columns": ("as", ["pid"])})
    assert len(table_of(mine)["pid"]) == len(PIDS)
    for member, words in (
        ("GetRows", ("sxxta{sv}", "session_keys", "0", "0", "0", "0")),
        ("History", ("asxxtasa{sv}", "1", "session_keys/cpu@5", "0", "0", "0", "0", "0")),
    ):
        answer = call(bus, member, *words, user=STRANGER)
        assert answer.returncode != 0
        assert "task-" not in answer.stdout + answer.stderr
    public = body(call(bus, "GetRows", "sxxta{sv}", "process", "0", "0", "0", "0", user=STRANGER))
    assert public[1]


def test_history_is_that_of_the_library(client: Client, machine: Machine) -> None:
    asked: tuple[Any, ...] = (["disk@sda", "timer"], 0, 0, 10 * SECOND_NS, ["mean", "max"], {})
    times, columns, gaps, further = client.call("History", "asxxtasa{sv}", *asked)
    result = Archive(machine.folders).select("disk@sda", "timer", step="10s", stat=["mean", "max"])
    assert times == result.times_ns.tolist()
    numbers = [column for column in result.columns if column.texts is None]
    assert [row[:3] for row in columns] == [(column.path, column.stat, column.unit) for column in numbers]
    for (_, _, _, values), column in zip(columns, numbers, strict=True):
        np.testing.assert_array_equal(np.array(values), column.values)
    assert {gap[2] for gap in gaps} <= {"disk", "timer"}
    assert further["texts"] == ("as", ["disk/model@sda"])
    assert further["step_ns"] == ("t", 10 * SECOND_NS)


def test_a_query_gives_a_sealed_file_of_the_same_numbers(client: Client, machine: Machine) -> None:
    numbers, layout = client.call("Query", "asxxtasa{sv}", ["disk/queue"], 0, 0, 5 * SECOND_NS, ["mean"], {})
    result = Archive(machine.folders).select("disk/queue", step="5s")
    with numbers.to_file("rb") as file:
        seals = fcntl.fcntl(file.fileno(), fcntl.F_GET_SEALS)
        content = file.read()
        with pytest.raises(OSError, match="not permitted|Bad file descriptor"):
            os.write(file.fileno(), b"x")
        with pytest.raises(OSError, match="not permitted|Invalid argument"):
            os.ftruncate(file.fileno(), 0)
    assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    rows, columns = layout["rows"][1], layout["columns"][1]
    assert len(content) == rows * 8 * (1 + len(columns))
    assert array.array("q", content[: rows * 8]).tolist() == result.times_ns.tolist()
    for index, (path, _, _) in enumerate(columns, start=1):
        values = np.frombuffer(content[index * rows * 8 : (index + 1) * rows * 8])
        np.testing.assert_array_equal(values, result.column(path).values)


@pytest.mark.parametrize("member", ["History", "Query"])
@pytest.mark.parametrize(
    ("asked", "name", "text"),
    [
        (([], 0, 0, 0, [], {}), "InvalidArgument", "no path"),
        ((["dusk"], 0, 0, 0, [], {}), "InvalidArgument", "there is no table 'dusk'"),
        ((["disk"], 20, 10, 0, [], {}), "InvalidArgument", "the range ends (10) before it begins (20)"),
        ((["disk"], 0, 0, 2**64 - 1, [], {}), "InvalidArgument", "step 18446744073709551615 ns"),
        ((["disk"], 0, 0, 0, ["mode"], {}), "InvalidArgument", "statistic 'mode': not known"),
        ((["disk"], 0, 0, 0, [], {"boot": ("s", "-7")}), "InvalidArgument", "boot '-7': only one boot"),
        ((["disk"], 0, 0, 0, [], {"boat": ("s", "0")}), "InvalidArgument", "option 'boat'"),
    ],
)
def test_a_wrong_question_is_refused(client: Client, member: str, asked: tuple[Any, ...], name: str, text: str) -> None:
    with pytest.raises(RefusedOverBus) as refusal:
        client.call(member, "asxxtasa{sv}", *asked)
    assert refusal.value.name == name
    assert refusal.value.text.startswith(text)


def test_an_answer_too_large_for_a_message_names_the_other_way(client: Client) -> None:
    with pytest.raises(RefusedOverBus, match="Query gives up to") as refusal:
        client.call("History", "asxxtasa{sv}", ["*"], 0, 0, SECOND_NS // 1000, ["mean"], {})
    assert refusal.value.name == "TooMuch"


def test_one_series_is_told_as_upower_tells_it(client: Client) -> None:
    points = client.call("GetHistory", "suu", "disk/queue@sda", 0, 10_000)
    assert [point[0] for point in points] == sorted(point[0] for point in points)
    there = [point for point in points if point[2]]
    assert there
    assert all(0 <= value <= 10 for _, value, _ in there)
    assert client.call("GetHistory", "suu", "disk/model@sda", 60, 10) == []
    for path, resolution in (("disk", 10), ("disk/queue@sda", 0), ("disk/queue@sda", 10_001)):
        with pytest.raises(RefusedOverBus, match="InvalidArgument"):
            client.call("GetHistory", "suu", path, 60, resolution)


def test_boots_and_events_are_listed(client: Client, machine: Machine) -> None:
    [(boot, start_ns, end_ns)] = client.call("ListBoots", "a{sv}", {})
    assert (boot, start_ns, end_ns) == Archive(machine.folders).boots()[0]
    events = client.call("GetEvents", "xxa{sv}", 0, 0, {})
    assert [event[1:] for event in events if event[1] != "clock step"] == [
        ("mark", "", "here"),
        ("moved", "input", "too late"),
    ]
    assert client.call("GetEvents", "xxa{sv}", 1, 2, {}) == []
    with pytest.raises(RefusedOverBus, match="InvalidArgument"):
        client.call("GetEvents", "xxa{sv}", 0, 0, {"kind": ("s", "mark")})
    with pytest.raises(RefusedOverBus, match="InvalidArgument"):
        client.call("ListBoots", "a{sv}", {"all": ("b", True)})


@as_stranger
def test_a_stranger_is_answered_as_the_kernel_lets_it_read(bus: Bus, machine: Machine) -> None:
    def asked(pattern: str) -> Answer:
        words = ("asxxtasa{sv}", "1", pattern, "0", "0", str(10 * SECOND_NS), "1", "mean", "0")
        return call(bus, "History", *words, user=STRANGER)

    _, columns, _, _ = body(asked("*"))
    assert {row[0].partition("/")[0] for row in columns} == {"disk", "timer"}
    assert "path 'input': restricted" in asked("input").stderr
    [events] = body(call(bus, "GetEvents", "xxa{sv}", "0", "0", "0", user=STRANGER))
    assert "moved" not in {event[1] for event in events}
    folder = f"{machine.folders.runtime}/background/public"
    os.chmod(folder, 0o700)  # The class says that it may; the kernel says that it may not.
    try:
        _, columns, _, _ = body(asked("*"))
        assert {row[0].partition("/")[0] for row in columns} == {"disk"}
    finally:
        os.chmod(folder, 0o755)  # noqa: S103  as it was


# --- bounds ---------------------------------------------------------------------------------------


@pytest.fixture
def several(tmp_path: Path) -> Readers:
    return Readers(a_machine(tmp_path)[0].folders)


ROOT = Caller(":1.1", os.geteuid(), os.getpid(), (), is_restricted=True)


def query(several: Readers, caller: Caller = ROOT) -> Any:
    return several.ask(caller, "query", 1 << 20, paths=["disk/queue"], described_bytes_max=1 << 10)


def test_what_is_handed_out_counts_until_it_is_closed(several: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "ANSWER_BYTES_PER_USER_MAX", (1 << 20) + 1000)

    async def run() -> None:
        answered = await query(several)
        descriptor = several.hand_out(ROOT, answered.bulk, 2000)
        copy = os.dup(descriptor)
        os.close(descriptor)
        with pytest.raises(LimitError, match="holds 1 answers of 2000 bytes"):
            await query(several)
        os.close(copy)
        os.close((await query(several)).bulk)

    asyncio.run(run())


def test_a_user_has_a_bounded_number_of_readers(several: Readers) -> None:
    other = Caller(":1.2", 12345, 1, (), is_restricted=False)

    async def run() -> list[Any]:
        of_one = [query(several) for _ in range(readers.READERS_PER_USER_MAX + 1)]
        return await asyncio.gather(*of_one, query(several, other), return_exceptions=True)

    *of_one, of_another = asyncio.run(run())
    assert [isinstance(outcome, LimitError) for outcome in of_one] == [False] * readers.READERS_PER_USER_MAX + [True]
    assert not isinstance(of_another, LimitError)
    for outcome in (*of_one[:-1], of_another):
        if isinstance(outcome, Reply):
            os.close(outcome.bulk)


def test_readers_are_not_started_faster_than_a_rate(several: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "READERS_PER_SECOND_MAX", 2)
    monkeypatch.setattr(readers, "RATE_SPAN_S", 1e9)
    several = Readers(several._folders)

    async def run() -> list[Any]:
        return await asyncio.gather(*(query(several) for _ in range(3)), return_exceptions=True)

    *answered, refused = asyncio.run(run())
    assert isinstance(refused, OccupiedError)
    for reply in answered:
        os.close(reply.bulk)


def test_readers_of_one_user_are_not_all_that_start(several: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "RATE_SPAN_S", 1e9)
    other = Caller(":1.2", 12345, 1, (), is_restricted=False)

    async def run() -> None:
        for _ in range(readers.READERS_PER_USER_AND_SECOND_MAX):
            os.close((await query(several)).bulk)
        with pytest.raises(LimitError, match="8 readers started within"):
            await query(several)
        of_another = (await asyncio.gather(query(several, other), return_exceptions=True))[0]
        assert not isinstance(of_another, LimitError)  # Whether that user may read is another matter.
        if isinstance(of_another, Reply):
            os.close(of_another.bulk)

    asyncio.run(run())


def test_a_reader_that_takes_too_long_is_ended(several: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "ANSWER_S", 0.01)
    before = descriptors()
    with pytest.raises(LimitError, match="longer than"):
        asyncio.run(query(several))
    assert descriptors() == before


def test_a_reader_that_takes_too_much_memory_says_so(several: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "DATA_BYTES_MAX", 8 << 20)
    with pytest.raises(RefusedError):
        asyncio.run(query(several))


@pytest.mark.parametrize(
    ("said", "failure"),
    [(b"", RefusedError), (b"[]", RefusedError), (b"[" * 10**5, RefusedError), (b'{"error": "TooMuch"}', LimitError)],
)
def test_no_answer_of_a_reader_is_taken_on_trust(said: bytes, failure: type[Exception]) -> None:
    with pytest.raises(failure):
        readers._parse(said, 1)
    with pytest.raises(RefusedError):
        readers._Layout({"rows": 10**12, "columns": [], "gaps": [], "step_ns": 1, "gaps_left_out": 0, "texts": []})


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_question_leaves_no_descriptor_behind(several: Readers) -> None:
    before = descriptors()
    several_asked: list[dict[str, Any]] = [{"paths": ["disk/queue"]}, {"paths": ["dusk"]}]
    for asked in several_asked:
        try:
            os.close(asyncio.run(several.ask(ROOT, "query", 1 << 20, described_bytes_max=1 << 10, **asked)).bulk)
        except InvalidArgumentError:
            continue
    assert descriptors() == before


def test_too_many_names_are_refused_and_old_gaps_left_out(several: Readers) -> None:
    with pytest.raises(LimitError, match=r"2 columns have \d+ bytes of names; expected up to 50"):
        asyncio.run(several.ask(ROOT, "query", 1 << 20, paths=["disk/queue"], described_bytes_max=50))
    gaps: list[list[object]] = [[number, number + 1, "disk", "off", "x" * 100] for number in range(1000)]
    newest = reader._newest(gaps, 10_000)
    assert newest == gaps[-len(newest) :]
    assert 60 < len(newest) < 80
    assert reader._newest(gaps[:2], 10_000) == gaps[:2]
    assert reader._newest([], 10_000) == []


def test_what_may_not_be_read_is_named_as_that() -> None:
    assert reader._named(NotPermittedError("x")) == "NotAuthorized"


@as_stranger
def test_a_reader_that_became_somebody_cannot_be_traced_by_them() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        reader.become(1, (1, 2))
        # The kernel gives what lies below /proc/PID to root where a process is not dumpable (proc(5)).
        os.write(writing, json.dumps([os.getresuid(), os.getresgid(), os.getgroups()]).encode())
        select.select([], [], [])
    try:
        assert json.loads(os.read(reading, 1000)) == [[1, 1, 1], [1, 1, 1], [1, 2]]
        assert os.stat(f"/proc/{pid}/mem").st_uid == 0
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)
