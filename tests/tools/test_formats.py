# SPDX-License-Identifier: Apache-2.0
"""Formats: every number with the digits it carries, every absence where it belongs."""

import csv
import io
import json
import math
import re
import sys
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, parquet

from sysmon_tools import cells, extract, formats, listing
from sysmon_tools.output import put_file
from sysmon_tools.rows import answered as rows_of_sql
from sysmon_tools.style import Style
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Cause, Semantics, Sensitivity
from sysmond.base.result import Column, Entry, Event, Gap, LongEntry, Result
from sysmond.base.timespec import Notation
from sysmond.errors import Error
from sysmond.store.files import saved

START_NS = 1_700_000_000 * SECOND_NS  # 2023-11-14T22:13:20Z
UTC = Style(Notation.UTC)
NAN = math.nan


def times(count: int, step_ns: int = SECOND_NS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return START_NS + np.arange(count, dtype=np.int64) * step_ns


def exact(path: str, values: list[int], scale: int = 0, unit: str = "B") -> Column:
    return Column(path, unit, Semantics.GAUGE, "mean", integers=np.array(values, np.int64), scale=scale)


def rate(path: str, values: list[float], decimals: int = 2, stat: str = "mean", unit: str = "%") -> Column:
    return Column(path, unit, Semantics.COUNTER, stat, floats=np.array(values, np.float64), decimals=decimals)


def text(path: str, values: list[str | None]) -> Column:
    return Column(path, "text", Semantics.STATE, "last", texts=tuple(values))


def result(*columns: Column, gaps: tuple[Gap, ...] = (), rows: int = 3, step_ns: int = SECOND_NS) -> Result:
    return Result(times(rows), columns, gaps, step_ns)


def written(name: str, answer: Result, style: Style = UTC) -> str:
    return b"".join(formats.WRITERS[name](answer, style)).decode()


MIXED = result(
    rate("cpu/user@total", [12.5, NAN, 3.0]),
    exact("memory/available", [1024, ABSENT, 7]),
    exact("load/one", [125, -5, 200], 2, "1"),
    text("host/kernel", ["6.1", None, 'a,"b"\n']),
    gaps=(
        Gap(START_NS, START_NS + SECOND_NS, "memory", Cause.PROBE_FAILED, "no such\nfile"),
        Gap(START_NS, START_NS + SECOND_NS // 2, "cpu", Cause.LATE_TICK),
    ),
)


# Without the lines that begin with ``#``.
PLAIN = UTC._replace(has_comments=False)


def test_csv_is_gaps_units_one_header_and_a_row_a_time() -> None:
    assert written("csv", MIXED) == (
        "# gap 2023-11-14T22:13:20Z 2023-11-14T22:13:21Z memory probe failed (no such\\nfile)\n"
        "# gap 2023-11-14T22:13:20Z 2023-11-14T22:13:20.500Z cpu late tick\n"
        "# unit,%,B,1,text\n"
        "time,cpu/user@total,memory/available,load/one,host/kernel\n"
        "2023-11-14T22:13:20Z,12.5,1024,1.25,6.1\n"
        "2023-11-14T22:13:21Z,,,-0.05,\n"
        '2023-11-14T22:13:22Z,3,7,2,"a,""b""\\n"\n'
    )


def test_csv_quotes_names_and_texts_where_it_must() -> None:
    answer = result(rate('filesystem/used@/a,"b"', [1.0, 2.0, 3.0]), text("a/b@x y", ["", "tab\there", "é"]))
    rows = list(csv.reader(io.StringIO(written("csv", answer, PLAIN))))
    assert rows[0] == ["time", 'filesystem/used@/a,"b"', "a/b@x y"]
    assert [row[2] for row in rows[1:]] == ["", "tab\\there", "é"]
    assert '""' in written("csv", answer, PLAIN).splitlines()[1]  # an empty text is not an absent one


def test_who_takes_gaps_for_comments_loses_nothing_of_a_row() -> None:
    texts = ["#1 SMP PREEMPT", 'we#ird,"x', "a # b\n#c"]
    gap = Gap(START_NS, START_NS + SECOND_NS, "cpu", Cause.PROBE_FAILED, 'no "such" file, nor that')
    answer = result(text("host/version", [*texts]), rate("a/b@#1", [1.5, 2.0, 2.5]), gaps=(gap,))
    frame = pd.read_csv(io.StringIO(written("csv", answer)), comment="#")
    assert frame["host/version"].tolist() == [*texts[:2], "a # b\\n#c"]
    assert frame["a/b@#1"].tolist() == [1.5, 2.0, 2.5]


def test_an_escape_can_be_told_from_what_looks_like_one() -> None:
    texts = ["\\x1b", "\x1b", "C:\\new\nline"]
    answer = result(text("a/b", [*texts]))
    fields = [row[1] for row in csv.reader(io.StringIO(written("csv", answer, PLAIN)))][1:]
    assert fields == ["\\\\x1b", "\\x1b", "C:\\\\new\\nline"]
    assert [field.encode().decode("unicode_escape") for field in fields] == texts


def test_the_line_of_units_is_left_out_where_it_would_say_nothing() -> None:
    assert written("csv", result(text("a/b", ["x", "y", "z"]))).startswith("time,a/b\n")
    assert "# unit" not in written("csv", MIXED, UTC._replace(has_units=True))


def test_units_stand_in_the_header_where_asked_for_and_comments_may_be_left_out() -> None:
    style = UTC._replace(has_units=True, has_comments=False)
    lines = written("csv", MIXED, style).splitlines()
    assert lines[0] == "time,cpu/user@total (%),memory/available (B),load/one,host/kernel"
    assert len(lines) == 4
    assert written("csv", MIXED, UTC._replace(has_comments=False)).startswith("time,")


def test_a_spreadsheet_computes_nothing_of_what_it_is_given() -> None:
    answer = result(text("a/b@=c", ["=1+1", "+x", "-x"]), rate("a/n", [-1.5, 2.0, 3.0]))
    rows = list(csv.reader(io.StringIO(written("csv", answer, PLAIN._replace(is_spreadsheet=True)))))
    assert [row[1] for row in rows[1:]] == ["'=1+1", "'+x", "'-x"]
    assert rows[1][2] == "-1.5"  # A number is one.
    assert rows[0][1] == "a/b@=c"
    answers: list[list[object]] = [["@SUM(A1)"], [-5]]
    listed = b"".join(rows_of_sql("csv", ["x"], answers, MIXED, UTC._replace(is_spreadsheet=True)))
    assert listed.decode().splitlines()[-2:] == ["'@SUM(A1)", "-5"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--units", "--format", "json"], "--units with format 'json': expected csv or tsv"),
        (["--spreadsheet", "--output-file", "x.h5"], "--spreadsheet with format 'hdf5'"),
        (["--no-comments", "--format", "jsonl"], "--no-comments with format 'jsonl'"),
    ],
)
def test_options_of_lines_of_fields_are_refused_elsewhere(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert extract.main(["cpu", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_time_of_a_maximum_is_spelt_like_the_time_axis() -> None:
    when = Column("a/b", "time", Semantics.GAUGE, "tmax", integers=np.array([START_NS, ABSENT, START_NS + 2]), scale=9)
    answer = result(rate("a/b", [1.5, NAN, 2.0], stat="max"), when)
    assert [line.split(",")[2] for line in written("csv", answer, PLAIN).splitlines()[1:]] == [
        "2023-11-14T22:13:20.000000000Z",
        "",
        "2023-11-14T22:13:20.000000002Z",
    ]
    assert json.loads(written("json", answer))["values"][1][:2] == ["2023-11-14T22:13:20.000000000Z", None]
    epoch = written("csv", answer, Style(Notation.EPOCH)).splitlines()
    assert epoch[4] == "1700000002,2,1700000000.000000002"
    assert json.loads(written("jsonl", answer).splitlines()[0])["a/b:tmax"].endswith("20.000000000Z")
    assert "2023-11-14T22:13:20.000000002Z" in written("table", answer)
    assert "sysmond_a_b_timestamp_seconds{" in written("openmetrics", answer)
    assert when.times.tolist()[1] is None
    assert result(when).to_pandas()["a/b"].isna().tolist() == [False, True, False]


def test_gaps_and_events_are_in_every_format() -> None:
    gap = Gap(START_NS, START_NS + SECOND_NS // 2, "cpu", Cause.LATE_TICK)
    mark = Event(START_NS + SECOND_NS, "mark", "user", 'deploy "12"')
    answer = result(rate("a/b", [1.5, NAN, 2.0]), gaps=(gap,))._replace(events=(mark,))
    for name in ("csv", "tsv", "table"):
        assert '# event 2023-11-14T22:13:21Z mark user deploy "12"\n' in written(name, answer)
    spelt = {"time": "2023-11-14T22:13:21Z", "kind": "mark", "subject": "user", "text": 'deploy "12"'}
    assert json.loads(written("json", answer))["events"] == [spelt]
    *_, last_gap, last_event = map(json.loads, written("jsonl", answer).splitlines())
    assert (last_gap["gap"]["cause"], last_event) == ("late tick", {"event": spelt})
    metrics = written("openmetrics", answer)
    assert 'sysmond_gap_seconds{table="cpu",cause="late tick",detail=""} 0.5 1700000000\n' in metrics
    assert 'sysmond_event_info{kind="mark",subject="user",text="deploy \\"12\\""} 1 1700000001\n' in metrics


def test_tsv_separates_by_tabs() -> None:
    answer = result(rate("a/b", [1.5, NAN, 2.0]), text("a/c", ["x,y", "x\ty", None]))
    assert written("tsv", answer).splitlines() == [
        "# unit\t%\ttext",
        "time\ta/b\ta/c",
        "2023-11-14T22:13:20Z\t1.5\tx,y",
        "2023-11-14T22:13:21Z\t\tx\\ty",
        "2023-11-14T22:13:22Z\t2\t",
    ]


def test_several_statistics_are_named_in_the_header() -> None:
    answer = result(rate("cpu/user", [1.0, 2.0, 3.0]), rate("cpu/user", [4.0, 5.0, 6.0], stat="max"))
    assert written("csv", answer).splitlines()[1] == "time,cpu/user:mean,cpu/user:max"
    assert json.loads(written("jsonl", answer).splitlines()[0])["cpu/user:max"] == 4


def test_different_statistics_of_different_series_need_no_name() -> None:
    assert written("csv", MIXED).count(":mean") == 0


def test_times_follow_the_notation() -> None:
    answer = result(rate("a/b", [1.0]), rows=1)._replace(times_ns=np.array([START_NS + 250_000_000]))
    zone = ZoneInfo("Asia/Kathmandu")
    cell = [
        written("csv", answer, style).splitlines()[2].split(",")[0]
        for style in (UTC, Style(Notation.EPOCH), Style(Notation.LOCAL, zone))
    ]
    assert cell == ["2023-11-14T22:13:20.250Z", "1700000000.25", "2023-11-15T03:58:20.250+05:45"]


ZONES = ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Monrovia", "America/New_York"]


def spelt(times_ns: list[int], style: Style) -> list[str]:
    made = cells.blocks([formats.time_cells(np.array(times_ns, np.int64), style), b"\n"], len(times_ns))
    return b"".join(made).decode().splitlines()


@given(
    st.lists(st.integers(-2_208_988_800, 7_258_118_399), min_size=1),
    st.sampled_from(ZONES),
    st.sampled_from(list(Notation)),
)
def test_many_times_are_spelt_like_one(seconds: list[int], zone: str, notation: Notation) -> None:
    style = Style(notation, ZoneInfo(zone))
    times_ns = [second * SECOND_NS for second in seconds]
    assert spelt(times_ns, style) == [style.time(time_ns) for time_ns in times_ns]


@pytest.mark.parametrize("change_s", [1743296400, 1761440400])
@pytest.mark.parametrize("unit_ns", [1, 1000, 1_000_000])
def test_times_over_a_clock_change_have_all_the_same_digits(change_s: int, unit_ns: int) -> None:
    style = Style(Notation.LOCAL, ZoneInfo("Europe/Berlin"))
    times_ns = [(change_s + second) * SECOND_NS + unit_ns * (second % 1000) for second in range(-4000, 4000)]
    assert spelt(times_ns[1:999], style) == [style.time(time_ns) for time_ns in times_ns[1:999]]
    assert len({len(text) for text in spelt(times_ns, style)}) == 1
    assert len(set(spelt(times_ns, style))) == len(times_ns)


def test_json_is_one_object_with_null_for_absent() -> None:
    assert json.loads(written("json", MIXED)) == {
        "series": [
            {"path": "cpu/user@total", "unit": "%", "semantics": "counter", "stat": "mean"},
            {"path": "memory/available", "unit": "B", "semantics": "gauge", "stat": "mean"},
            {"path": "load/one", "unit": "1", "semantics": "gauge", "stat": "mean"},
            {"path": "host/kernel", "unit": "text", "semantics": "state", "stat": "last"},
        ],
        "time": ["2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z", "2023-11-14T22:13:22Z"],
        "values": [[12.5, None, 3], [1024, None, 7], [1.25, -0.05, 2], ["6.1", None, 'a,"b"\n']],
        "gaps": [
            {
                "from": "2023-11-14T22:13:20Z",
                "to": "2023-11-14T22:13:21Z",
                "table": "memory",
                "cause": "probe failed",
                "detail": "no such\nfile",
            },
            {
                "from": "2023-11-14T22:13:20Z",
                "to": "2023-11-14T22:13:20.500Z",
                "table": "cpu",
                "cause": "late tick",
                "detail": "",
            },
        ],
        "events": [],
    }


def test_json_of_nothing_and_of_epochs() -> None:
    empty = json.loads(written("json", result(rate("a/b", []), rows=0)))
    assert (empty["time"], empty["values"]) == ([], [[]])
    assert json.loads(written("json", result(rows=0)))["values"] == []
    epochs = json.loads(written("json", MIXED, Style(Notation.EPOCH)))
    assert epochs["time"] == [1700000000, 1700000001, 1700000002]
    assert epochs["gaps"][1]["to"] == 1700000000.5


def test_jsonl_is_an_object_a_row() -> None:
    rows = [json.loads(line) for line in written("jsonl", MIXED).splitlines()]
    assert rows[0] == {
        "time": "2023-11-14T22:13:20Z",
        "cpu/user@total": 12.5,
        "memory/available": 1024,
        "load/one": 1.25,
        "host/kernel": "6.1",
    }
    assert [row["cpu/user@total"] for row in rows if "time" in row] == [12.5, None, 3]
    assert [row["gap"]["cause"] for row in rows[3:]] == ["probe failed", "late tick"]


def kv(lines: str) -> list[dict[str, str]]:
    """What the reader in the guide makes of lines."""
    guide = (Path(__file__).resolve().parent.parent.parent / "docs/asking.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    [reader] = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(reader, names)  # noqa: S102  so will readers of the guide
    return [names["read"](line) for line in lines.splitlines()]


def test_kv_is_a_line_a_thing_and_moment_that_says_what_it_is() -> None:
    lines = kv(written("kv", MIXED))
    assert [line for line in lines if line.get("table") == "cpu" and "time" in line] == [
        {"time": "2023-11-14T22:13:20Z", "table": "cpu", "instance": "total", "user": "12.5"},
        {"time": "2023-11-14T22:13:22Z", "table": "cpu", "instance": "total", "user": "3"},
    ]
    assert [line["kernel"] for line in lines if "kernel" in line] == ["6.1", 'a,"b"\n']
    assert [line["one"] for line in lines if "one" in line] == ["1.25", "-0.05", "2"]
    assert lines[-2] == {
        "gap": "probe failed",
        "table": "memory",
        "from": "2023-11-14T22:13:20Z",
        "to": "2023-11-14T22:13:21Z",
        "detail": "no such\nfile",
    }
    assert all("gap" not in line for line in kv(written("kv", MIXED, UTC._replace(has_comments=False))))
    assert written("kv", result(rate("a/b", []), rows=0)) == ""
    of_rows = result(text("comm", ["a b", None, "c"]), exact("cpu", [1, ABSENT, 3]))._replace(table="process")
    assert written("kv", of_rows).splitlines() == [
        'time=2023-11-14T22:13:20Z comm="a b" cpu=1',
        "time=2023-11-14T22:13:21Z",
        "time=2023-11-14T22:13:22Z comm=c cpu=3",
    ]
    several = result(rate("cpu/user@0", [1.0]), rate("cpu/user@0", [4.0], stat="max"), rows=1)
    assert written("kv", several) == "time=2023-11-14T22:13:20Z table=cpu instance=0 user:mean=1 user:max=4\n"


@given(st.lists(st.text(), min_size=1, max_size=5), st.text())
def test_kv_is_read_back_whatever_things_are_called(texts: list[str], instance: str) -> None:
    answer = result(text(f"host/kernel@{instance}", [*texts]), rows=len(texts))
    assert [(line["instance"], line["kernel"]) for line in kv(written("kv", answer))] == [
        (instance, said) for said in texts
    ]
    of_sql = b"".join(rows_of_sql("kv", [f"k{instance}"], [[said] for said in texts], answer, UTC)).decode()
    assert kv(of_sql) == [{f"k{instance}": said} for said in texts]


def test_table_puts_decimal_points_below_each_other() -> None:
    answer = result(
        rate("a/b", [12.5, NAN, -3.0]), exact("memory/available", [1, 22, 333]), text("c/d", ["x", None, "\x1b"])
    )
    assert written("table", answer).splitlines() == [
        "time                   a/b  memory/available  c/d",
        "                         %                 B",
        "2023-11-14T22:13:20Z  12.5                 1  x",
        "2023-11-14T22:13:21Z   -                  22  -",
        "2023-11-14T22:13:22Z  -3                 333  \\x1b",
    ]


def test_openmetrics_has_units_labels_and_an_end() -> None:
    style = UTC._replace(docs={"cpu/user@cpu0": 'Time "used".'})
    answer = result(
        rate("cpu/user@cpu0", [12.5, NAN, 3.0]),
        exact("memory/available", [1, ABSENT, 3]),
        rate('cpu/user@a"b\\', [1.0, NAN, NAN]),
        rate("disk/read_bytes@sda", [1.0, NAN, NAN], unit="B/s"),
        exact("load/one", [150, ABSENT, ABSENT], 2, "1"),
        text("host/kernel", ["6.1", "6.2", "6.1"]),
    )
    assert written("openmetrics", answer, style) == (
        "# TYPE sysmond_cpu_user_percent gauge\n"
        "# UNIT sysmond_cpu_user_percent percent\n"
        '# HELP sysmond_cpu_user_percent Time \\"used\\".\n'
        'sysmond_cpu_user_percent{instance="cpu0"} 12.5 1700000000\n'
        'sysmond_cpu_user_percent{instance="cpu0"} 3 1700000002\n'
        'sysmond_cpu_user_percent{instance="a\\"b\\\\"} 1 1700000000\n'
        "# TYPE sysmond_memory_available_bytes gauge\n"
        "# UNIT sysmond_memory_available_bytes bytes\n"
        "sysmond_memory_available_bytes 1 1700000000\n"
        "sysmond_memory_available_bytes 3 1700000002\n"
        "# TYPE sysmond_disk_read_bytes_per_second gauge\n"
        "# UNIT sysmond_disk_read_bytes_per_second bytes_per_second\n"
        'sysmond_disk_read_bytes_per_second{instance="sda"} 1 1700000000\n'
        "# TYPE sysmond_load_one gauge\n"
        "sysmond_load_one 1.5 1700000000\n"
        "# TYPE sysmond_host_kernel info\n"
        'sysmond_host_kernel_info{value="6.1"} 1 1700000000\n'
        'sysmond_host_kernel_info{value="6.1"} 1 1700000002\n'
        'sysmond_host_kernel_info{value="6.2"} 1 1700000001\n'
        "# EOF\n"
    )


def test_openmetrics_counters_as_stored_are_counters() -> None:
    column = Column("cpu/user@cpu0", "s", Semantics.COUNTER, "last", integers=np.array([100, 250]), scale=2)
    lines = written("openmetrics", Result(times(2), (column,), (), 0)).splitlines()
    assert lines[0] == "# TYPE sysmond_cpu_user_seconds counter"
    assert lines[2] == 'sysmond_cpu_user_seconds_total{instance="cpu0"} 1 1700000000'
    assert lines[3] == 'sysmond_cpu_user_seconds_total{instance="cpu0"} 2.5 1700000001'


@pytest.mark.parametrize(
    ("per", "instance", "labels"),
    [
        ("", "x", 'instance="x"'),
        ("cpu", "cpu0", 'cpu="cpu0"'),
        ("CPU", "cpu0", 'cpu="cpu0"'),
        ("mount", "/home", 'mountpoint="/home"'),
        ("cpu:state", "cpu0:C1", 'cpu="cpu0",state="C1"'),
        ("cpu:state", "total", 'cpu="total"'),
        ("sensor", "nvme:Composite", 'sensor="nvme:Composite"'),
        ("interface:MHz", "wlan0:5180", 'interface="wlan0",mhz="5180"'),
        ("array:device", "md0:sda", 'array="md0",device="sda"'),
    ],
)
def test_openmetrics_calls_an_instance_what_it_is(per: str, instance: str, labels: str) -> None:
    style = UTC._replace(per={"a": per})
    line = written("openmetrics", result(exact(f"a/b@{instance}", [1, 2, 3])), style).splitlines()[2]
    assert line.startswith(f"sysmond_a_b_bytes{{{labels}}} 1 ")


def test_the_newest_values_are_in_the_older_text_format_untimed() -> None:
    counter = Column("cpu/user@cpu0", "s", Semantics.COUNTER, "last", integers=np.array([100, 250, ABSENT]), scale=2)
    answer = Result(times(3), (counter, text("host/kernel", ["6.1", "6.2", None]), exact("a/b", [ABSENT] * 3)), (), 0)
    style = UTC._replace(is_newest=True, per={"cpu": "cpu"}, docs={"cpu/user@cpu0": "Time."})
    assert written("openmetrics", answer, style) == (
        "# TYPE sysmond_cpu_user_seconds_total counter\n"
        "# HELP sysmond_cpu_user_seconds_total Time.\n"
        'sysmond_cpu_user_seconds_total{cpu="cpu0"} 2.5\n'
        "# TYPE sysmond_host_kernel_info gauge\n"
        'sysmond_host_kernel_info{value="6.2"} 1\n'
        "# TYPE sysmond_a_b_bytes gauge\n"
    )


def test_openmetrics_families_have_one_type_each() -> None:
    answer = result(
        rate("a/b", [1.0, 2.0, 3.0]), rate("a/b", [1.0, 2.0, 3.0], stat="max"), text("a/b_percent", ["x", "y", "z"])
    )
    names = re.findall(r"# TYPE (\S+)", written("openmetrics", answer))
    assert len(names) == len(set(names)) == 2
    assert 'sysmond_a_b_percent{stat="max"} 3 1700000002' in written("openmetrics", answer)


def cells_of(column: Column) -> list[str]:
    rows = len(column.integers if column.integers is not None else column.values)
    joined = b"".join(cells.blocks([cells.column_cells(column), b"\n"], rows)).decode()
    return joined.split("\n")[:-1]


INTEGERS = (
    st.integers(-(2**63), 2**63 - 1) | st.integers(-20000, 20000) | st.sampled_from([0, 9999, 10000, 2**32 - 1, 2**32])
)


@given(st.lists(INTEGERS, max_size=30), st.integers(0, 9))
def test_exact_numbers_are_the_decimals_they_stand_for(values: list[int], scale: int) -> None:
    expected = ["" if value == ABSENT else plain(value, scale) for value in values]
    assert cells_of(exact("a/b", values, scale)) == expected


def plain(value: int, scale: int) -> str:
    digits = str(abs(value)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :].rstrip("0")
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


@given(
    st.lists(st.floats(-1e9, 1e9) | st.sampled_from([NAN, -0.001, 0.0, -0.0, 0.005, 99.995]), max_size=30),
    st.integers(0, 6),
)
def test_floats_are_rounded_and_trimmed(values: list[float], decimals: int) -> None:
    for value, cell in zip(values, cells_of(rate("a/b", values, decimals)), strict=True):
        if math.isnan(value):
            assert cell == ""
            continue
        assert re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", cell)
        assert cell != "-0"
        assert len(cell.partition(".")[2]) <= decimals
        assert abs(float(cell) - value) <= 0.5000001 * 10.0**-decimals + abs(value) * 1e-15


@pytest.mark.parametrize("value", [1e18, 1e19, 1.5e300, -1e19])
def test_huge_floats_have_no_exponent(value: float) -> None:
    assert cells_of(rate("a/b", [value, NAN, math.inf], 3)) == [f"{value:.0f}", "", ""]


def test_many_rows_are_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "_BLOCK_ROWS_MAX", 7)
    values = list(range(100))
    answer = result(exact("a/b", values), text("a/c", [f"t{value}" for value in values]), rows=100)
    assert len(list(formats.write_csv(answer, UTC))) > 10
    rows = [line.split(",") for line in written("csv", answer, PLAIN).splitlines()[1:]]
    assert [row[1:] for row in rows] == [[str(value), f"t{value}"] for value in values]
    assert json.loads(written("json", answer))["values"][0] == values


def test_a_name_that_is_no_utf8_is_escaped_where_people_read() -> None:
    answer = result(exact("filesystem/used@/\udcff", [1, 2, 3]))
    assert b"filesystem/used@/\\xff\n" in b"".join(formats.write_csv(answer, UTC))
    assert json.loads(written("json", answer))["series"][0]["path"] == "filesystem/used@/\udcff"


ENTRIES: list[Entry | LongEntry] = [
    Entry("cpu/user@total", "s", Semantics.COUNTER, "Time.", START_NS, START_NS + SECOND_NS, SECOND_NS),
    Entry("filesystem/used@/a,b", "B", Semantics.GAUGE, "Used.", START_NS, START_NS + SECOND_NS // 2, 60 * SECOND_NS),
    LongEntry(
        "command", "process", "Programs.", START_NS, START_NS + SECOND_NS, 60 * SECOND_NS, Sensitivity.RESTRICTED
    ),
]


def listed(name: str, style: Style = UTC) -> str:
    return b"".join(listing.write(name, ENTRIES, style)).decode()


def test_the_catalogue_in_every_format() -> None:
    assert listed("csv").splitlines() == [
        "path,unit,semantics,from,to,resolution,sensitivity",
        "cpu/user@total,s,counter,2023-11-14T22:13:20Z,2023-11-14T22:13:21Z,1s,public",
        '"filesystem/used@/a,b",B,gauge,2023-11-14T22:13:20Z,2023-11-14T22:13:20.500Z,1min,public',
        'command,"",per process,2023-11-14T22:13:20Z,2023-11-14T22:13:21Z,1min,restricted',
    ]
    assert listed("tsv").splitlines()[2].split("\t")[0] == "filesystem/used@/a,b"
    assert [entry["path"] for entry in json.loads(listed("json"))] == [entry.path for entry in ENTRIES]
    assert json.loads(listed("jsonl", Style(Notation.EPOCH)).splitlines()[1])["to"] == 1700000000.5
    assert listed("table").splitlines()[1] == (
        "cpu/user@total        s     counter      2023-11-14T22:13:20Z  2023-11-14T22:13:21Z      1s          public"
    )


@pytest.mark.parametrize("chosen", ["parquet", "arrow"])
def test_columns_of_other_programs_have_every_value_and_its_unit(tmp_path: Path, chosen: str) -> None:
    hostile = ['=1,#"\n', None, "\udcff\x1b"]
    when = Column("a/b", "time", Semantics.GAUGE, "tmax", integers=np.array([START_NS, ABSENT, START_NS + 2]), scale=9)
    pid = Column("pid", "1", Semantics.STATE, "last", integers=np.array([1, ABSENT, 2**62 - 1]))
    answer = result(rate("cpu/user@total", [12.5, NAN, 3.0]), text("a/t", hostile), when, pid, gaps=MIXED.gaps)
    path = str(tmp_path / f"x.{chosen}")
    put_file(answer, path, chosen, is_restricted=False)
    table = parquet.read_table(path) if chosen == "parquet" else feather.read_table(path)
    assert table.column("time").cast("int64").to_pylist() == answer.times_ns.tolist()
    assert table.column("cpu/user@total").to_pylist() == [12.5, None, 3.0]
    assert table.column("a/t").to_pylist() == [hostile[0], None, "\\udcff\x1b"]
    assert table.column("a/b").cast("int64").to_pylist() == [START_NS, None, START_NS + 2]
    assert table.column("pid").to_pylist() == [1, None, 2**62 - 1]
    assert table.schema.field("cpu/user@total").metadata == {b"unit": b"%"}
    assert json.loads(table.schema.metadata[b"gaps"])[1][2:4] == ["cpu", "late tick"]


def test_parquet_is_read_by_pandas(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    put_file(MIXED, path, "parquet", is_restricted=False)
    assert pd.read_parquet(path)["load/one"].tolist() == MIXED.columns[2].values.tolist()


@pytest.mark.parametrize("chosen", ["parquet", "arrow"])
def test_where_the_library_of_a_format_is_missing_one_line_says_what_adds_it(
    tmp_path: Path, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Error, match="pip install pyarrow"):
        put_file(MIXED, str(tmp_path / "x"), chosen, is_restricted=False)
    assert list(tmp_path.iterdir()) == []


def test_hdf5_has_events_and_points_in_time(tmp_path: Path) -> None:
    peak_ns = START_NS + 3
    columns = (Column("load/one", "time", Semantics.GAUGE, "tmax", integers=np.array([peak_ns, ABSENT]), scale=9),)
    events = (Event(START_NS + 1, "mark", "", "deploy 12"),)
    answer = Result(START_NS + np.arange(2) * SECOND_NS, columns, (), SECOND_NS, events=events)
    saved.write(answer, f"{tmp_path}/a.h5")
    with h5py.File(f"{tmp_path}/a.h5") as file:
        assert file["column/0"][:].tolist() == [peak_ns, ABSENT]
        assert [tuple(event) for event in file["events"][:]] == [(b"mark", b"", b"deploy 12", START_NS + 1)]
        assert file.attrs["sensitivity"] == b"public"
