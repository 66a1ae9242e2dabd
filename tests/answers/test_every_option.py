# SPDX-License-Identifier: Apache-2.0
"""Every option on every kind of table: against a naive reading of the raw rows, in plain Python.

A wide table, one whose rows last and one of moments, from rows and from the buckets of a tier: rows of each are made
one by one from what was recorded, then filtered, grouped, ranked and joined over steps as the guide says.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.answers import wide_rows
from sysmond.answers.rows import columns, question
from sysmond.answers.rows.columns import COUNT
from sysmond.answers.rows.question import Request
from sysmond.answers.rows.summary import STATISTICS
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Semantics
from sysmond.errors import UsageError
from sysmond.history import Archive
from sysmond.plan import plugins
from sysmond.rollup.condition import TEXT
from tests.support.known import END_S, ENDED, RAW, START_S, Archives, of_buckets, of_ends, of_rows
from tests.support.machine import NOON_NS
from tests.support.order import first

# By which column rows are told apart, and what is asked of them.
IDENTITY = {"disk": "instance", "process": "pid", "exits": "pid"}
STATS = {"disk": ("mean", "min", "max", "last", "sum", "count", "p50"), "process": ("mean", "max", "last")}
KEPT_BY_BUCKETS = ("mean", "max", "sum", "count")


class Asked(NamedTuple):
    """A question; ``where``: a column, a sign and a number."""

    table: str
    step_s: int | None
    columns: Sequence[str]
    where: tuple[str, str, float] | None
    by: str
    top: int
    group: str
    percentile: int | None
    is_old: bool


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    made = (make(tmp_path_factory.mktemp(make.__name__)) for make in (of_rows, of_buckets, of_ends))
    return Archives(*(machine.archive for machine in made))


def wide(stat: str, values: Sequence[float]) -> float | None:
    """A statistic of what was in a bucket: of a gauge its values, of a counter what it grew by in each second."""
    if stat == "count":
        return len(values)
    if not values:
        return None
    made: Mapping[str, Callable[[Sequence[float]], float]] = {
        "mean": lambda each: sum(each) / len(each), "min": min, "max": max, "last": lambda each: each[-1],
        "sum": sum, "p50": lambda each: float(np.percentile(each, 50)),
    }  # fmt: skip
    return made[stat](values)


def of_disk(label: str, name: str, low: int, high: int, *, is_old: bool) -> float | None:
    """A cell of a disk over the seconds from ``low`` to ``high``."""
    del is_old
    metric, _, stat = label.partition(":")
    readings, at = RAW["disk"][name], 0 if metric == "read_bytes" else 1
    if at:
        return wide(stat or "mean", [readings[second][1] / 100 for second in range(low, high) if second in readings])
    there = [second for second in range(low, high) if second in readings and second - 1 in readings]
    return wide(stat or "mean", [float(readings[second][0] - readings[second - 1][0]) for second in there])


def of_process(label: str, pid: int, low: int, high: int, *, is_old: bool) -> float | None:
    """A cell of a process: what held at an edge is what the last reading before it said."""
    metric, _, stat = label.partition(":")
    readings = RAW["process"][pid]
    there = [second for second in range(low, high) if second in readings]
    last = max(second for second in readings if second < high)
    if metric == "rss_anon":
        before = [readings[low - 1][1]] if low - 1 in readings and not is_old else []
        held = [float(readings[second][1]) for second in there]
        return {"mean": sum(held) / len(held), "max": max([*held, *before]), "last": held[-1]}[stat or "mean"]
    # What started in the range counts from 0.
    grown = float(readings[last][0] - readings.get(low - 1, (0, 0))[0])
    if stat in {"sum", "last"}:
        return grown if stat == "sum" else float(readings[last][0])
    return 100 * grown / (last - (low - 1))


def steps(asked: Asked) -> list[tuple[int, int]]:
    length = asked.step_s or END_S - START_S
    return [(low, min(END_S, low + length)) for low in range(START_S, END_S, length)]


def base(asked: Asked, labels: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a table: a thing and step each, or a record, with these columns."""
    made: list[dict[str, Any]] = []
    for number, (low, high) in enumerate(steps(asked)):
        if asked.table == "exits":
            made += [
                {"bucket": number, "pid": pid, "comm": comm, "cpu": float(cpu), COUNT: 1, "second": second}
                for second, pid, comm, cpu in ENDED
                if low <= second < high
            ]
            continue
        cell = of_disk if asked.table == "disk" else of_process
        for name, readings in RAW[asked.table].items():
            if any(second in readings for second in range(low, high)):
                row = {label: cell(label, name, low, high, is_old=asked.is_old) for label in labels}
                of_group = {"model": f"made by {name}"} if asked.table == "disk" else {"comm": f"p{name % 2}"}
                share = sum(second in readings for second in range(low, high)) / (high - low)
                known = {IDENTITY[asked.table]: name, COUNT: 1, "share": share}
                made.append({"bucket": number, **known, **of_group, **row})
    return made


def expected(asked: Asked) -> list[dict[str, Any]]:
    """What the guide says that the answer is, before it is cut to the first."""
    labels = [*asked.columns, asked.by, *([asked.where[0]] if asked.where else [])]
    rows = base(asked, [label for label in dict.fromkeys(labels) if label != COUNT])
    if asked.where:
        label, sign, number = asked.where
        test = {">": operator.gt, "<=": operator.le}[sign]
        rows = [row for row in rows if row[label] is not None and test(row[label], number)]
    if asked.group:
        rows = [
            together([row for row in rows if (row["bucket"], row[asked.group]) == key], asked)
            for key in dict.fromkeys((row["bucket"], row[asked.group]) for row in rows)
        ]
    if asked.percentile is not None:
        key = asked.group or IDENTITY[asked.table]
        rows = [
            over_steps([row for row in rows if row[key] == name], asked)
            for name in dict.fromkeys(row[key] for row in rows)
        ]
    return rows


def together(rows: Sequence[dict[str, Any]], asked: Asked) -> dict[str, Any]:
    made = dict(rows[0])
    for label in dict.fromkeys([*asked.columns, asked.by, COUNT]):
        metric, _, stat = label.partition(":")
        is_average = metric in {"queue", "rss_anon"} and stat in {"", "mean"}
        values = [row[label] * (row["share"] if is_average else 1) for row in rows if row[label] is not None]
        made[label] = None if not values else max(values) if stat == "max" else sum(values)
    return made


def over_steps(rows: Sequence[dict[str, Any]], asked: Asked) -> dict[str, Any]:
    made = {**rows[-1], "bucket": 0}
    for label in dict.fromkeys([*asked.columns, asked.by]):
        values = [row[label] for row in rows if row[label] is not None]
        made[label] = float(np.percentile(values, asked.percentile or 0)) if values else None
    return made


@st.composite
def questions(draw: st.DrawFn, *, is_old: bool) -> Asked:
    table = draw(st.sampled_from(["disk", "process"] if is_old else ["disk", "process", "exits"]))
    step_s = draw(st.sampled_from([None, 10, 30, 60] if is_old else [None, 10, 12, 60, 90]))
    group = draw(st.sampled_from(["", {"disk": "model"}.get(table, "comm")]))
    if table == "exits":
        columns = ["cpu"]
    else:
        counter, gauge = {"disk": ("read_bytes", "queue"), "process": ("cpu", "rss_anon")}[table]
        allowed = [stat for stat in STATS[table] if not is_old or stat in KEPT_BY_BUCKETS]
        if group:
            allowed = [stat for stat in allowed if stat in {"mean", "max"}]
        of_counter = [stat for stat in allowed if table == "disk" or stat not in {"max", "min"}]
        known = [counter, gauge, f"{counter}:sum", *(f"{counter}:{stat}" for stat in of_counter)]
        known += [f"{gauge}:{stat}" for stat in allowed]
        known += ["cpu_percent"] if table == "process" else []
        columns = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
    some = {"read_bytes": 900.5, "queue": 0.4, "cpu": 820.5, "cpu_percent": 820.5, "rss_anon": 45.5}
    middle = {label: some[label.partition(":")[0]] if table != "exits" else 2.5 for label in columns}
    where = draw(st.sampled_from([None, *((label, sign, middle[label]) for label in columns for sign in (">", "<="))]))
    percentile = draw(st.sampled_from([None, None, 50, 90])) if step_s and table != "exits" else None
    by = draw(st.sampled_from([*columns, COUNT] if group and percentile is None else columns))
    return Asked(table, step_s, columns, where, by, draw(st.integers(0, 3)), group, percentile, is_old)


def answered(archive: Archive, asked: Asked) -> list[dict[str, Any]]:
    """The rows that sysmond gives, as dictionaries."""
    key = asked.group or IDENTITY[asked.table]
    unit = {"read_bytes:sum": "B", "cpu:sum": "s"}
    said = ""
    if asked.where:
        label, sign, number = asked.where
        said = f"{label} {sign} {number}{unit.get(label, '')}"
    result = archive.records(
        asked.table,
        start=NOON_NS + START_S * SECOND_NS,
        end=NOON_NS + END_S * SECOND_NS,
        step=None if asked.step_s is None else asked.step_s * SECOND_NS,
        columns=list(dict.fromkeys([key, *asked.columns, asked.by])),
        where=said,
        by=asked.by,
        top=asked.top,
        group_by=asked.group,
        percentile=asked.percentile,
    )
    length = (asked.step_s or END_S) * SECOND_NS
    begin_ns = NOON_NS + START_S * SECOND_NS
    whole = asked.percentile is not None
    rows = []
    for position, time_ns in enumerate(result.times_ns.tolist()):
        row: dict[str, Any] = {"bucket": 0 if whole else (time_ns - begin_ns) // length}
        for column in result.columns:
            value = column.texts[position] if column.texts is not None else float(column.values[position])
            row[column.path] = None if isinstance(value, float) and math.isnan(value) else value
        rows.append(row)
    return rows


def near(label: str, value: Any) -> Any:
    """What is taken for a value: rates of a wide table carry as many digits as they are known to, over 10 s one."""
    return pytest.approx(value, rel=1e-6, abs=0.2 if label.startswith("read_bytes") else 2e-3)


def check(archive: Archive, asked: Asked) -> None:
    """Compare: which rows there are, what they hold, and in which order."""
    key = asked.group or IDENTITY[asked.table]
    every = {(row["bucket"], row[key]): row for row in expected(asked)}
    got = answered(archive, asked)
    for row in got:
        other = every[row["bucket"], int(row[key]) if isinstance(row[key], float) else row[key]]
        for label in asked.columns:
            assert row[label] == near(label, other[label]), (label, row["bucket"], row[key])
    for bucket in {row["bucket"] for row in every.values()}:
        mine = [row[asked.by] for row in got if row["bucket"] == bucket]
        there = [row[asked.by] for row in every.values() if row["bucket"] == bucket]
        ranked = sorted(there, key=lambda value: -math.inf if value is None else value, reverse=True)
        first = ranked[: asked.top or None]
        assert mine == near(asked.by, first), bucket
    assert {row["bucket"] for row in got} == {row["bucket"] for row in every.values()}


@given(st.data())
def test_answers_are_those_of_a_naive_reading(archives: Archives, data: st.DataObject) -> None:
    asked = data.draw(questions(is_old=False))
    check(archives.of(asked.table), asked)


@given(st.data())
def test_buckets_answer_as_rows_did(archives: Archives, data: st.DataObject) -> None:
    check(archives.buckets, data.draw(questions(is_old=True)))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"columns": "nix"}, "table '{table}' has no column 'nix'"),
    ({"by": "nix"}, "table '{table}' has no column 'nix'"),
    ({"group_by": "nix"}, "table '{table}' has no column 'nix'"),
    ({"by": "time"}, "table '{table}' has no column 'time'"),
    ({"group_by": "time"}, "table '{table}' has no column 'time'"),
    ({"where": "nix > 5"}, "condition 'nix > 5': there is no column 'nix'"),
    ({"where": "{number} >"}, "condition '{number} >'"),
    ({"columns": "{number}:median"}, "table '{table}' has no column '{number}:median'"),
    ({"stat": "p101"}, "no statistic 'p101'; expected"),
    ({"top": -1}, "top -1: expected 1 or more"),
    ({"percentile": 50.0}, "a percentile is taken over steps; expected --sample, too"),
    ({"percentile": 101.0, "step": "1min"}, "percentile 101: expected 0 to 100"),
    ({"step": "soon"}, "'soon'"),
    ({"start": "soon"}, "'soon'"),
    ({"drop": "nix/"}, "path 'nix/': not the path of a series; expected"),
    ({"drop": "*"}, "drop '*': drops the whole answer; expected"),
    ({"summary": True, "step": "1min"}, "summary and step"),
    ({"boot": "nix"}, "boot 'nix': no such boot; recorded:"),
]


@pytest.mark.parametrize("table", ["disk", "process", "exits"])
@pytest.mark.parametrize(("asked", "why"), WRONG)
def test_a_wrong_option_is_one_line_on_every_table(
    archives: Archives, table: str, asked: dict[str, Any], why: str
) -> None:
    names = {"table": table, "number": {"disk": "queue", "process": "rss_anon", "exits": "peak_rss"}[table]}
    said: dict[str, Any] = {
        name: value.format(**names) if isinstance(value, str) else value for name, value in asked.items()
    }
    with pytest.raises(UsageError) as refusal:
        archives.of(table).records(table, **said)
    assert why.format(**names) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_statistics_of_what_has_one_value_are_refused(archives: Archives) -> None:
    """As rows and as series, by whatever name."""
    for table in ("exits", "event"):
        with pytest.raises(UsageError, match=f"table '{table}' has no statistic 'max'; expected none"):
            archives.ends.records(table, stat="max")
    with pytest.raises(UsageError, match="table 'exits' has no statistic 'mean'; expected none"):
        archives.ends.select("exits/cpu", stat="mean")
    with pytest.raises(UsageError, match="path 'event/text': events are not series; expected rows: table 'event', col"):
        archives.ends.select("event/text")


@pytest.mark.parametrize("table", first(2, ["disk", "exits", "process"]))
def test_every_column_of_a_table_can_be_asked_for_by_itself(archives: Archives, table: str) -> None:
    """In columns, conditions and orders alike."""
    for label, unit, _ in archives.of(table).columns(table):
        found = archives.of(table).records(table, columns=label, by=label, top=2)
        assert [column.path for column in found.columns] == [label]
        sign, value = ("~", ".") if unit == TEXT else (">", "0")
        archives.of(table).records(table, columns=label, where=f"{label} {sign} {value}")


TABLES = {
    probe.table.name: probe.table for plugin in plugins.discover("/nonexistent").plugins for probe in plugin.probes
}
REFUSED = [
    ({"columns": "nix"}, "table '{table}' has no column 'nix'"),
    ({"columns": "nix:p95"}, "table '{table}' has no column 'nix:p95'"),
    ({"by": "nix"}, "table '{table}' has no column 'nix'"),
    ({"group_by": "nix"}, "table '{table}' has no column 'nix'"),
    ({"where": "nix = 1"}, "condition 'nix = 1': there is no column 'nix'"),
    ({"where": "count >"}, "condition 'count >': "),
    ({"where": "count > much"}, "condition 'count > much': 'count' cannot be 'much'; expected"),
    ({"group_by": "count"}, "group by 'count': its values change all the time; expected"),
    ({"top": -1}, "top -1: expected 1 or more"),
]


@pytest.mark.parametrize("table", sorted(TABLES))
@pytest.mark.parametrize(("asked", "why"), REFUSED)
def test_every_default_table_refuses_in_the_same_words(table: str, asked: dict[str, Any], why: str) -> None:
    declared = TABLES[table]
    offer = wide_rows.offer(declared) if declared.packing is None else columns.offer(declared)
    with pytest.raises(UsageError) as refusal:
        question.asked(Request(table, **asked), offer)
    said = str(refusal.value)
    assert why.format(table=table) in said
    assert "\n" not in said
    if "nix" in said:  # What there is, or what comes nearest.
        assert "there are " in said or "did you mean " in said or "' lists all " in said


@pytest.mark.parametrize(
    ("table", "where", "why"),
    [
        ("exits", "signal = SIGFOO", "'signal' is never 'SIGFOO'; did you mean SIG"),
        ("exits", "signal_name != SIGCLD", "'signal_name' is never 'SIGCLD'; did you mean SIGCHLD"),
        ("exits", "exit_code = EX_USE", "'exit_code' is never 'EX_USE'; did you mean EX_USAGE"),
        ("thread_state", "syscall = nixcall", "'syscall' is never 'nixcall'"),
        ("thread_state", "state = waiting", "'state' is never 'waiting'"),
        ("process", "signal = SIGFOO", "'signal' is never 'SIGFOO'; did you mean SIG"),
        ("process_private", "exit_code = EX_USE", "'exit_code' is never 'EX_USE'; did you mean EX_USAGE"),
        ("process", "syscall = read", "there is no column 'syscall'; process_private, thread_state have it"),
        (
            "thread",
            "signal_name = SIGKILL",
            "there is no column 'signal_name'; process, process_private, exits have it",
        ),
        ("command", "signal = SIGKILL", "there is no column 'signal'; process, process_private, exits have it"),
        ("process", "state = x", "'state' is never 'x'; expected running, sleeping, 'disk sleep', stopped"),
    ],
)
def test_a_name_that_nothing_has_is_refused(table: str, where: str, why: str) -> None:
    with pytest.raises(UsageError) as refusal:
        question.asked(Request(table, where=where), columns.offer(TABLES[table]))
    assert f"condition {where!r}: {why}" in str(refusal.value)


@pytest.mark.parametrize("where", ["signal = SIGKILL", "signal_name = 99", "exit_code = EX_USAGE", "exit_code = 3"])
def test_names_that_there_are_meet_conditions(archives: Archives, where: str) -> None:
    assert len(archives.ends.records("exits", where=where).times_ns) == 0  # All ended well.
    assert len(archives.ends.records("exits", where=f"not {where}").times_ns) == len(ENDED)
    assert len(archives.ends.records("exits", where="exit_code = EX_OK").times_ns) == len(ENDED)


def test_groups_by_exit_code_are_numbers(archives: Archives) -> None:
    """Few of them have a name: by name, some groups would have one, and others a number."""
    found = archives.ends.records("exits", group_by="exit_code", columns="exit_code,count")
    assert found.column("exit_code").values.tolist() == [0]
    assert found.column("count").values.tolist() == [len(ENDED)]


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_number_of_a_default_table_has_percentiles_and_a_summary(table: str) -> None:
    declared = TABLES[table]
    offer = wide_rows.offer(declared) if declared.packing is None else columns.offer(declared)
    is_of_moments = declared.packing is not None and not declared.packing.lasting
    for metric in declared.metrics:
        has_average = metric.semantics is not Semantics.STATE and not is_of_moments
        is_key = declared.packing is not None and metric.name in declared.packing.key
        if has_average and not is_key:
            found = question.asked(Request(table, columns=metric.name, summary=True), offer).columns
            assert [spec.stat for spec in found] == [*STATISTICS], metric.name
            assert offer.find([f"{metric.name}:p99.9"])[0].unit == offer.find([metric.name])[0].unit
