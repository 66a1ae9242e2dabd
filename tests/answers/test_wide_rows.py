# SPDX-License-Identifier: Apache-2.0
"""Rows of wide tables: the values of their series beside each other, filtered, grouped and cut to the first."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.archiver import retention_job, rollup_job
from sysmond.archiver.coding import DENSE
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Cause, Lane, Semantics, Sensitivity
from sysmond.base.result import Column, Result
from sysmond.base.statistic import STATISTICS
from sysmond.errors import Error, UsageError
from sysmond.history import Archive
from sysmond.plan import plan
from sysmond.plan.plan import PlannedProbe
from tests.support.machine import NOON_NS, OLDER, Machine
from tests.support.order import first

DISKS = ("nvme0n1", "sda", "sdb")
SPAN = {"start": NOON_NS, "end": NOON_NS + 1800 * SECOND_NS}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Two boots, of which the older is only in tiers; a disk that comes later, rows in files and in a ring."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    machine.start(0.5, boot=OLDER, wall_ns=NOON_NS - 7200 * SECOND_NS).tick(range(1, 400), DISKS[:2])
    machine.seal()
    machine.flush()
    machine.reboot()
    writer = machine.start(0.5)
    writer.tick(range(1, 300), DISKS[:2])
    writer.tick(range(310, 700), DISKS)
    machine.seal()
    machine.flush()
    rollup_job.roll_up(machine.folders, DENSE, retention_job.keeper(machine.folders).make_room, set())
    writer.tick(range(700, 800), DISKS)
    return machine.archive


def cells(column: Column) -> list[Any]:
    if column.texts is not None:
        return list(column.texts)
    return [None if np.isnan(value) else round(float(value), 9) for value in column.values]


def laid_out(result: Result, labels: list[str]) -> dict[tuple[int, str], list[Any]]:
    """Rows by time and instance."""
    instances = result.column("instance").texts or ()
    values = zip(*(cells(result.column(label)) for label in labels), strict=True)
    made = dict(zip(zip(result.times_ns.tolist(), instances, strict=True), map(list, values), strict=True))
    assert len(made) == len(result.times_ns)
    return made  # type: ignore[return-value]


def test_rows_as_stored_are_those_of_raw_series(archive: Archive) -> None:
    columns = "read_bytes,queue,model"
    rows = archive.records("disk", columns=f"instance,{columns}", raw=True)
    expected: dict[tuple[int, str], list[Any]] = {}
    for number, metric in enumerate(columns.split(",")):
        series = archive.select(f"disk/{metric}", raw=True)
        for column in series.columns:
            for time_ns, value in zip(series.times_ns.tolist(), cells(column), strict=True):
                if value is not None:
                    expected.setdefault((time_ns, column.path.partition("@")[2]), [None] * 3)[number] = value
    assert laid_out(rows, columns.split(",")) == expected
    assert [(column.stat, column.unit) for column in rows.columns[1:3]] == [("raw", "B"), ("raw", "1")]
    where = archive.records("disk", columns="instance,queue", raw=True, where="instance = sda and queue > 3")
    assert set(where.column("instance").texts or ()) <= {"sda"}
    with pytest.raises(UsageError, match="--raw gives rows as they are stored; expected only one of them"):
        archive.records("disk", raw=True, step="1s")


def test_columns_of_rows_are_explained_as_their_series(archive: Archive) -> None:
    columns = "instance,read_bytes,read_bytes:sum,queue:max"
    found = archive.records("disk", columns=columns, step="1min", explain=True)
    series = archive.select("disk/read_bytes@sda", step="1min", explain=True).explanations[0]
    named, mean, total, most = found.explanations
    assert (mean.path, mean.stat, mean.unit) == ("disk/read_bytes", "mean", "B/s")
    assert (mean.origin, mean.formula, mean.resampling) == (series.origin, series.formula, series.resampling)
    assert {part.tier for part in mean.answered} >= {"rows", "1min"}
    assert (total.formula, most.formula) == ("increase", "largest value")
    assert named.formula == "what the row is about"
    groups = archive.records("disk", columns="read_bytes:sum", group_by="instance", explain=True).explanations
    assert groups[-1].formula == "increase; the sum of all rows with the same instance"
    assert groups[-1].resampling.startswith("one row for all of the range; a counter that falls")
    (most,) = archive.records("disk", columns="queue:max", explain=True).explanations
    assert most.resampling == "one row for all of the range"


@pytest.mark.parametrize("step", first(1, ["10s", "7s", "1s", "1min", "5min"]))
@pytest.mark.parametrize("stat", [*STATISTICS, "p50", "p99.9"])
@pytest.mark.parametrize("metric", ["read_bytes", "queue", "model"])
def test_rows_have_the_values_of_series(archive: Archive, metric: str, stat: str, step: str) -> None:
    label = f"{metric}:{stat}"
    rows = archive.records("disk", columns=f"instance,{label}", step=step)
    series = archive.select(f"disk/{metric}", stat=stat, step=step)
    expected = {
        (time_ns, column.path.partition("@")[2]): [value]
        for column in series.columns
        for time_ns, value in zip(series.times_ns.tolist(), cells(column), strict=True)
        if value is not None and (stat, value) != ("count", 0)
    }
    assert laid_out(rows, [label]) == expected
    assert rows.column(label).unit == series.columns[0].unit
    assert (rows.events, rows.step_ns, rows.table) == (series.events, series.step_ns, "disk")
    # The last ones reach up to now.
    assert rows.gaps[:-2] == series.gaps[:-2]
    assert [(gap.table, gap.cause) for gap in rows.gaps] == [(gap.table, gap.cause) for gap in series.gaps]


@pytest.mark.parametrize("stat", [*STATISTICS, "p50", "p99.9"])
@pytest.mark.parametrize("metric", ["read_bytes", "queue", "model"])
def test_the_whole_range_is_one_row_an_instance(archive: Archive, metric: str, stat: str) -> None:
    """As one bucket that has all of it; whatever the range begins and ends at."""
    label = f"{metric}:{stat}"
    whole = archive.records("disk", columns=f"instance,{label}", **SPAN)  # type: ignore[arg-type]
    bucket = archive.select(f"disk/{metric}", stat=stat, step="30min", **SPAN)  # type: ignore[arg-type]
    expected = {column.path.partition("@")[2]: cells(column)[0] for column in bucket.columns}
    there = {name: value for name, value in expected.items() if value is not None and (stat, value) != ("count", 0)}
    assert {name: value for (_, name), (value,) in laid_out(whole, [label]).items()} == there
    assert set(whole.times_ns.tolist()) <= {NOON_NS}


def test_a_range_that_no_tier_fits_counts_every_increase_once(archive: Archive) -> None:
    odd = {"start": NOON_NS + 13 * SECOND_NS, "end": NOON_NS + 777 * SECOND_NS}
    rows = archive.records("disk", columns="instance,read_bytes:sum", **odd)  # type: ignore[arg-type]
    series = archive.select("disk/read_bytes@sda", stat="sum", step="1s", **odd)  # type: ignore[arg-type]
    sums = dict(zip(rows.column("instance").texts or (), rows.column("read_bytes:sum").values, strict=True))
    assert sums["sda"] == np.nansum(series.columns[0].values)


def test_the_first_by_a_column(archive: Archive) -> None:
    rows = archive.records("disk", columns="instance,queue:max,read_bytes", by="queue:max", top=1, step="1min")
    every = archive.records("disk", columns="instance,queue:max", step="1min")
    highest: dict[int, float] = {}
    for (time_ns, _), (value,) in laid_out(every, ["queue:max"]).items():
        highest[time_ns] = max(highest.get(time_ns, -1), value)
    assert {time_ns: value for (time_ns, _), (value,) in laid_out(rows, ["queue:max"]).items()} == highest


def test_conditions_are_about_rows(archive: Archive) -> None:
    rows = archive.records("disk", where="instance ~ ^sd and queue > 4.99 and model = 'made by sdb'", step="1s")
    assert set(rows.column("instance").texts or ()) == {"sdb"}
    assert rows.column("queue").values.min() > 4.99
    grown = archive.records("disk", columns="instance", where="read_bytes > 70B", step="10s", **SPAN)  # type: ignore[arg-type]
    assert len(grown.times_ns)


def test_groups_have_sums_and_percentiles(archive: Archive) -> None:
    span = {"start": NOON_NS + 320 * SECOND_NS, "end": NOON_NS + 400 * SECOND_NS, "step": "10s"}
    groups = archive.records("disk", group_by="model", columns="read_bytes:sum,queue,queue:max", **span)  # type: ignore[arg-type]
    rows = archive.records("disk", columns="instance,model,read_bytes:sum,queue,queue:max", **span)  # type: ignore[arg-type]
    by_model = {(time, model): values for time, model, *values in groups.records.tolist()}
    for time, _, model, *values in rows.records.tolist():
        assert by_model[time, model] == pytest.approx(values)
    every = archive.records("disk", group_by="instance", columns="queue", percentile=50, **span)  # type: ignore[arg-type]
    for _, name, median in every.records.tolist():
        mine = [row[4] for row in rows.records.tolist() if row[1] == name]
        assert median == pytest.approx(np.median(mine))


def test_without_columns_it_is_all_metrics_and_stat_says_of_what(archive: Archive) -> None:
    rows = archive.records("disk", stat="max,min", step="1min")
    expected = ["instance", "read_bytes:max", "read_bytes:min", "queue:max", "queue:min", "model:max", "model:min"]
    assert [column.path for column in rows.columns] == expected
    assert [name for name, _, _ in archive.columns("disk")][:4] == [
        "instance", "read_bytes", "read_bytes:mean", "read_bytes:min",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"columns": "quee"}, "table 'disk' has no column 'quee'; did you mean queue"),
        ({"where": "sector > 5"}, "condition 'sector > 5': there is no column 'sector'"),
        ({"by": "model:mode"}, "has no column 'model:mode'"),
        ({"group_by": "queue"}, "group by 'queue': its values change all the time; expected instance, model"),
        (
            {"group_by": "model", "columns": "queue:min"},
            "groups have no min; expected mean, sum, max, last, count",
        ),
        ({"percentile": 50}, "expected --sample, too"),
        ({"percentile": 101, "step": "1min"}, "percentile 101: expected 0 to 100"),
        ({"stat": "median"}, "column 'read_bytes': no statistic 'median'; expected mean, min"),
        ({"top": -1}, "top -1: expected 1 or more"),
        ({"step": 0}, "expected a length of time"),
        ({"start": NOON_NS, "end": NOON_NS}, "before it begins"),
    ],
)
def test_a_wrong_question_is_one_line(archive: Archive, said: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as refusal:
        archive.records("disk", **said)
    assert why in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_table_that_is_none_names_what_there_is(archive: Archive) -> None:
    with pytest.raises(UsageError, match="there is no table 'disc'; did you mean disk"):
        archive.records("disc")


def test_a_table_that_a_probe_declares_and_nothing_has_is_not_taken_for_a_mistake(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start(0.5).tick(range(1, 20), DISKS)
    probe = PlannedProbe("disc", "shop", Lane.REALTIME, SECOND_NS, Sensitivity.PUBLIC)
    plan.write(plan.Plan((probe,)), f"{machine.folders.state}/plan.json")
    said = "the table 'disc' is not recorded: this machine has nothing of the kind, or it is off; 'sysmonctl doctor'"
    for ask in (
        lambda: machine.archive.records("disc"),
        lambda: machine.archive.select("disc/read_bytes"),
        lambda: machine.archive.columns("disc"),
        lambda: machine.archive.sql("SELECT * FROM disc"),
    ):
        with pytest.raises(Error) as refusal:
            ask()
        assert said in str(refusal.value)
        assert refusal.value.exit_code == 1
    for ask in (
        lambda: machine.archive.records("diss"),
        lambda: machine.archive.select("diss/read_bytes"),
        lambda: machine.archive.sql("SELECT * FROM diss"),
    ):
        with pytest.raises(UsageError, match="there is no table 'diss'; did you mean disc or disk"):
            ask()


def test_numbers_that_tell_apart_are_whole_in_pandas_too() -> None:
    pids, signals = np.array([5, 6]), np.array([9, ABSENT])
    columns = (
        Column("pid", "1", Semantics.STATE, "last", integers=pids),
        Column("signal", "1", Semantics.STATE, "last", integers=signals),
        Column("threads", "1", Semantics.GAUGE, "last", integers=pids),
    )
    made = Result(np.array([NOON_NS, NOON_NS]), columns, (), 0)
    frame = made.to_pandas()
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "Int64", "float64"]
    assert frame["pid"].tolist() == made.records["pid"].tolist() == [5, 6]
    assert frame["signal"].isna().tolist() == [False, True]
    assert frame["signal"].iloc[0] == 9


def test_where_nothing_was_recorded_there_is_a_gap(archive: Archive) -> None:
    rows = archive.records("disk", start=NOON_NS + 10**7 * SECOND_NS, end=NOON_NS + 2 * 10**7 * SECOND_NS)
    assert len(rows.times_ns) == 0
    assert [gap.cause for gap in rows.gaps] == [Cause.OFF]


def test_what_we_may_not_read_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start(0.5, sensitivity=Sensitivity.RESTRICTED).tick(range(1, 20))
    assert machine.archive.records("disk").sensitivity is Sensitivity.RESTRICTED
    public = Archive(machine.folders, classes=[Sensitivity.PUBLIC])
    with pytest.raises(Error, match="table 'disk': nothing is recorded yet"):
        public.records("disk")
