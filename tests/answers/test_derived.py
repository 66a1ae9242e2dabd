# SPDX-License-Identifier: Apache-2.0
"""Derived columns: what formulas make of what was recorded, against the same made by hand of every single reading."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from sysmond_probes import disk

from sysmon_tools import extract
from sysmond.archiver import retention_job, rollup_job
from sysmond.archiver.coding import DENSE
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Answers, Cause, Derived, Lane, Sensitivity, Table
from sysmond.errors import CorruptError, Error, UsageError
from sysmond.history import Archive
from sysmond.history import open as opened
from sysmond.machine.folders import Folders
from sysmond.plan import catalogue
from sysmond.plan.catalogue import Catalogue, Defaults, ProbeEntry
from sysmond.plan.plan import PlannedProbe
from sysmond.probe import counter, gauge
from sysmond.ring.newest import Follower
from sysmond.store.files import saved
from tests.support.machine import NOON_NS, Machine

LENGTH_S = 600
GAP_S = range(200, 217)
RESET_S = 431
IDLE_S = range(300, 330)
DISK = Table(
    "disk",
    (
        counter("reads", "1", "Reads."),
        counter("read_time", "s", "Time.", 3),
        counter("writes", "1", "Writes."),
        counter("write_time", "s", "Time.", 3),
        counter("io_time", "s", "Busy.", 3),
        counter("weighted_io_time", "s", "Queue.", 3),
    ),
    "device",
)
MEMORY = Table("memory", (gauge("total", "B", "All."), gauge("available", "B", "Left.")))
PAGES = Table(
    "pages",
    (counter("printed", "1", "Pages."), counter("jobs", "1", "Jobs."), gauge("ink", "1", "Ink.", 2)),
    "printer",
    answers=Answers(
        derived=(
            Derived("pages_per_job", "1", "printed / jobs", "How long a job is."),
            Derived("ink_left", "%", "100 - ink * 4", "How much ink there is."),
            Derived("ink_of_memory", "1", "ink / memory.total", "Both together."),
        ),
        aliases=(("Sheets", "printed"),),
    ),
)
Values = Mapping[int, Sequence[int]]


def disk_values() -> dict[int, list[int]]:
    """What the disk says at each second: uneven, with a time in which it does nothing, and one that nobody saw."""
    values: dict[int, list[int]] = {}
    now = [0] * 6
    for second in range(1, LENGTH_S + 1):
        if second == RESET_S:
            now = [0] * 6
        elif second not in IDLE_S:
            reads, writes = second % 5, (second * 7) % 3
            for index, more in enumerate(
                (reads, reads * (3 + second % 11), writes, writes * 29, second % 1000, second)
            ):
                now[index] += more
        if second not in GAP_S:
            values[second] = list(now)
    return values


def write(machine: Machine, table: Table, rows: Mapping[int, Mapping[str, Sequence[int]]], **more: Any) -> None:
    writer = machine.start(0.5, table=table, **more)
    for second, instances in rows.items():
        writer.relation(second * SECOND_NS)
        values = [value for row in instances.values() for value in row]
        writer.ring.rows(0, second * SECOND_NS, tuple(instances), values)


def stored(machine: Machine) -> None:
    machine.seal()
    machine.flush()
    rollup_job.roll_up(machine.folders, DENSE, retention_job.keeper(machine.folders).make_room, set())
    shutil.rmtree(machine.folders.runtime)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    made = Machine(tmp_path_factory.mktemp("machine"))
    write(made, DISK, {second: {"sda": row} for second, row in disk_values().items()})
    stored(made)
    return made


@pytest.fixture(scope="module")
def tiers(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The same, of which rows are forgotten."""
    state = tmp_path_factory.mktemp("tiers") / "state"
    shutil.copytree(machine.folders.state, state)
    rows = state / os.path.relpath(machine.files()[0].parent, machine.folders.state)
    shutil.rmtree(rows)
    rows.mkdir()
    return Archive(Folders(str(state), str(state.parent / "run")))


def grown(values: Values, column: int, before: int, after: int) -> int | None:
    """By how much a counter grew; None where it was not read, or began anew."""
    if before not in values or after not in values:
        return None
    increase = values[after][column] - values[before][column]
    return increase if values[after][column] >= values[before][column] // 2 else None


def shares(values: Values, start: int, end: int, top: Sequence[int], bottom: Sequence[int]) -> float:
    """Growth of some counters by that of others over the readings of [start, end), each since the one before it."""
    sums = [0, 0]
    for number, columns in enumerate((top, bottom)):
        for column in columns:
            seen = sorted(second for second in values if second < end)
            for before, after in pairwise(seen):
                if start <= after < end and (increase := grown(values, column, before, after)) is not None:
                    sums[number] += increase
    return sums[0] / sums[1] if sums[1] else math.nan


def by_bucket(archive: Archive, path: str, step_s: int, stat: str = "mean") -> dict[int, float]:
    result = archive.select(path, step=step_s * SECOND_NS, stat=stat)
    (column,) = result.columns
    seconds = (result.times_ns - NOON_NS) // SECOND_NS
    return dict(zip(seconds.tolist(), column.values.tolist(), strict=True))


@pytest.mark.parametrize("step_s", [10, 60, 300])
@pytest.mark.parametrize(
    ("name", "top", "bottom"), [("await", (1, 3), (0, 2)), ("read_await", (1,), (0,)), ("write_await", (3,), (2,))]
)
@pytest.mark.parametrize("source", ["machine", "tiers"])
def test_a_mean_is_the_formula_of_what_counters_grew_by(
    request: pytest.FixtureRequest, source: str, name: str, top: Sequence[int], bottom: Sequence[int], step_s: int
) -> None:
    """Over rows and over tiers alike: all of the time by all of the requests, not the mean of quotients."""
    asked = request.getfixturevalue(source)
    archive = asked.archive if isinstance(asked, Machine) else asked
    values, found = disk_values(), by_bucket(archive, f"disk/{name}@sda", step_s)
    assert len(found) >= LENGTH_S // step_s
    for second, value in found.items():
        inside = range(second, second + step_s)
        if any(each in GAP_S for each in inside) and len(GAP_S) > step_s:
            continue  # What was counted over a gap that does not fit is of no bucket.
        expected = shares(values, second, second + step_s, top, bottom) / 1000
        assert value == pytest.approx(expected, abs=1e-6, nan_ok=True), second


def test_what_did_nothing_has_no_wait(machine: Machine) -> None:
    found = by_bucket(machine.archive, "disk/await@sda", 10)
    assert math.isnan(found[310])
    assert not math.isnan(found[340])
    assert by_bucket(machine.archive, "disk/utilization@sda", 10)[310] == 0


def readings(name: Callable[[int, Values], float]) -> dict[int, float]:
    values = disk_values()
    return {second: name(second, values) for second in values}


def waited(second: int, values: Values) -> float:
    parts = [grown(values, column, second - 1, second) for column in (0, 1, 2, 3)]
    if any(part is None for part in parts):
        return math.nan
    reads, read_ms, writes, write_ms = (part or 0 for part in parts)
    return (read_ms + write_ms) / 1000 / (reads + writes) if reads + writes else math.nan


def test_rows_as_stored_have_it_as_series_have(machine: Machine) -> None:
    series = machine.archive.select("disk/await@sda", "disk/utilization@sda", raw=True)
    rows = machine.archive.records("disk", columns="await,utilization,reads", raw=True)
    assert list(rows.times_ns) == list(series.times_ns)
    assert [(column.path, column.stat, column.unit) for column in rows.columns[:2]] == [
        ("await", "raw", "s"),
        ("utilization", "raw", "%"),
    ]
    for column, expected in zip(rows.columns, series.columns, strict=False):
        assert np.isfinite(expected.values).any()
        np.testing.assert_array_equal(column.values, expected.values)
    slow = machine.archive.records("disk", columns="await", raw=True, where="await > 1ms")
    assert 0 < len(slow.times_ns) == np.count_nonzero(series.columns[0].values > 0.001)


@pytest.mark.parametrize("step_s", [7, 60])
@pytest.mark.parametrize("stat", ["min", "max", "p50", "p95", "tmax"])
def test_others_are_over_readings(machine: Machine, stat: str, step_s: int) -> None:
    every = readings(waited)
    if stat == "tmax":
        result = machine.archive.select("disk/await@sda", step=step_s * SECOND_NS, stat=stat)
        found = dict(zip(result.times_ns.tolist(), result.columns[0].integers.tolist(), strict=True))  # type: ignore[union-attr]
    else:
        found = {NOON_NS + at * SECOND_NS: value for at, value in
                 by_bucket(machine.archive, "disk/await@sda", step_s, stat).items()}  # fmt: skip
    for start_ns, value in found.items():
        start = (start_ns - NOON_NS) // SECOND_NS
        mine = {at: every[at] for at in every if start <= at < start + step_s and not math.isnan(every[at])}
        if not mine:
            assert value == ABSENT or math.isnan(value)
        elif stat == "tmax":
            assert value == NOON_NS + max(mine, key=lambda at: (mine[at], -at)) * SECOND_NS
        else:
            percent = {"min": 0, "max": 100, "p50": 50, "p95": 95}[stat]
            assert value == pytest.approx(float(np.percentile([*mine.values()], percent)), abs=1e-6)


def test_raw_is_the_value_for_each_reading(machine: Machine) -> None:
    result = machine.archive.select("disk/await@sda", raw=True)
    (column,) = result.columns
    found = dict(zip(((result.times_ns - NOON_NS) // SECOND_NS).tolist(), column.values.tolist(), strict=True))
    assert found == pytest.approx(readings(waited), abs=1e-6, nan_ok=True)
    assert (column.unit, column.stat) == ("s", "raw")


def test_where_only_buckets_are_left_it_is_said(tiers: Archive) -> None:
    """A mean they have, and what is in proportion to one metric whatever that has; of readings nothing is pretended."""
    result = tiers.select("disk/await", step="1min", stat="max")
    assert np.isnan(result.columns[0].values).all()
    assert result.warnings == (
        "table 'disk': of a part of the range only buckets are left, which keep no max of await",
    )
    highest = tiers.select("disk/utilization", "disk/io_time", step="1min", stat="max")
    assert highest.warnings == ()
    one, other = highest.columns
    assert one.values.tolist() == other.values.tolist()
    assert one.unit == "%"


def test_a_reset_is_told_and_counts_nowhere(machine: Machine) -> None:
    result = machine.archive.select("disk/await@sda", step="10s")
    causes = {gap.cause for gap in result.gaps}
    assert Cause.COUNTER_RESET in causes
    assert Cause.DAEMON_DOWN in causes or Cause.LATE_TICK in causes
    assert np.nanmax(result.columns[0].values) < 0.03


def test_a_derived_column_has_no_sum(machine: Machine) -> None:
    with pytest.raises(UsageError, match=r"column 'await': is derived, so it has no sum; expected mean, min"):
        machine.archive.select("disk/await", step="10s", stat="mean,sum")


def test_wildcards_mean_what_is_recorded(machine: Machine) -> None:
    recorded = {f"disk/{metric.name}@sda" for metric in DISK.metrics}
    for pattern in ("*", "disk", "disk/*", "disk@sda"):
        assert {column.path for column in machine.archive.select(pattern).columns} == recorded
        assert {entry.path for entry in machine.archive.catalogue(pattern)} == recorded
    (entry,) = machine.archive.catalogue("disk/await")
    assert (entry.path, entry.formula) == ("disk/await@sda", "(read_time + write_time) / (reads + writes)")
    listed = machine.archive.catalogue("disk/*await*", derived=True)
    assert [each.path for each in listed] == ["disk/await@sda", "disk/read_await@sda", "disk/write_await@sda"]


def test_a_bare_word_lists_what_is_called_so_in_every_table(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}", "--format=csv"]
    for word, listed in (("await", ["disk/await@sda"]), ("read*_time", ["disk/read_time@sda"])):
        assert extract.main(["--list", word, *folders]) == 0
        assert [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()[1:]] == listed
    assert extract.main(["--list", "awayt", *folders]) == UsageError.exit_code
    assert "there is no table 'awayt'" in capsys.readouterr().err


def test_a_group_has_its_mean_and_its_largest(machine: Machine) -> None:
    asked: dict[str, Any] = {"group_by": "instance"}
    (highest,) = machine.archive.records("disk", columns="await:max", **asked).column("await:max").values
    assert highest == pytest.approx(np.nanmax([*readings(waited).values()]), abs=1e-6)
    with pytest.raises(UsageError, match="'await:last': is derived, and groups have no last of it; expected mean"):
        machine.archive.records("disk", columns="await:last", **asked)


def test_what_a_table_lacks_metrics_for_is_not_there(machine: Machine) -> None:
    """Discards and bytes were not recorded."""
    with pytest.raises(UsageError, match=r"there is no metric .*; did you mean disk/.*await"):
        machine.archive.select("disk/discard_await")
    with pytest.raises(UsageError, match="there is no metric .*; did you mean disk/utilization"):
        machine.archive.select("disk/utilisation")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("r/s", r"there is no table or metric 'r/s'; did you mean disk/reads \(r/s in iostat\)\?"),
        ("r_await@sda", r"there is no table .*; did you mean disk/read_await \(r_await in iostat\)\?"),
        ("node_disk_io_time_seconds_total", r"did you mean disk/io_time \(\S+ in node_exporter\)\?"),
        ("disk/aqu-sz", r"there is no metric 'disk/aqu-sz'; did you mean queue_length \(aqu-sz in sar, iostat\)\?"),
        ("disk/%memused", r"there is no metric 'disk/%memused'; 'sysmon-extract --list disk' lists all \d+$"),
    ],
)
def test_a_name_of_another_program_is_answered_with_ours(machine: Machine, asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        machine.archive.select(asked)


def test_how_it_came_about_is_told(machine: Machine) -> None:
    (told,) = machine.archive.select("disk/read_await", step="1min", explain=True).explanations
    assert told.formula == "read_time / reads, of their mean"
    assert told.answered
    (told,) = machine.archive.select("disk/read_await", step="1min", stat="max", explain=True).explanations
    assert told.formula == "max of read_time / reads, of each reading"


def test_rows_conditions_and_orders_have_them(machine: Machine) -> None:
    series = machine.archive.select("disk/await@sda", step="10s")
    rows = machine.archive.records("disk", columns="await,await:count", by="await", where="await > 0", step="10s")
    found = dict(zip(rows.times_ns.tolist(), rows.column("await").values.tolist(), strict=True))
    known = dict(zip(series.times_ns.tolist(), series.columns[0].values.tolist(), strict=True))
    assert found == {time: value for time, value in known.items() if value > 0}
    slow = machine.archive.records("disk", columns="await", where="await > 15ms", step="10s")
    assert len(slow.times_ns) == sum(value > 0.015 for value in known.values())
    with pytest.raises(UsageError, match="has no column 'await:sum'; did you mean await"):
        machine.archive.records("disk", columns="await:sum")
    whole = machine.archive.records("disk", columns="instance,await")
    assert whole.column("await").values[0] == pytest.approx(
        shares(disk_values(), 1, 601, (1, 3), (0, 2)) / 1000, abs=2e-4
    )


def test_a_group_has_the_formula_of_its_sums(tmp_path: Path) -> None:
    made = Machine(tmp_path)
    rows = {at: {"sda": [at, at * 5, 0, 0, at, at], "sdb": [at * 3, at * 90, 0, 0, at, at]} for at in range(1, 60)}
    write(made, DISK, rows)
    (wait,) = made.archive.records("disk", columns="read_await", group_by="instance", where="instance = sda").records
    assert wait["read_await"] == pytest.approx(0.005)


def test_another_tables_value_holds_until_its_next_one(tmp_path: Path) -> None:
    """Memory is read every 5 s here, and what is divided by it every second."""
    made = Machine(tmp_path)
    table = Table("cgroup", (gauge("memory_used", "B", "Used."),), "cgroup")
    write(made, table, {at: {"/a": [at]} for at in range(1, 100)})
    write(
        made,
        MEMORY,
        {at: {"": [1000 + at, 0]} for at in range(5, 60, 5)},
        interval_ns=5 * SECOND_NS,
        writer="background",
    )
    start = NOON_NS + 12 * SECOND_NS
    for asked in ({"step": "1s"}, {"raw": True}):
        result = made.archive.select("cgroup/memory_percent@/a", start=start, **asked)
        values = result.columns[0].values
        for time_ns, value in zip(result.times_ns.tolist(), values.tolist(), strict=True):
            at = (time_ns - NOON_NS) // SECOND_NS
            held = at // 5 * 5 if at < 60 else 55
            expected = at / (1000 + held) * 100 if at - held <= 15 else math.nan
            assert value == pytest.approx(expected, abs=1e-3, nan_ok=True), at
    highest = made.archive.select("cgroup/memory_percent@/a", step="10s", stat="max", start=start)
    assert highest.columns[0].values[0] == pytest.approx(19 / 1015 * 100, abs=1e-3)
    whole = made.archive.records("cgroup", columns="memory_percent", start=start, end=NOON_NS + 50 * SECOND_NS)
    assert whole.column("memory_percent").values[0] == pytest.approx(30.5 / 1030 * 100, abs=1e-3)


def test_another_tables_value_may_be_of_the_same_instance(tmp_path: Path) -> None:
    """How busy a network is, by the speed of its own link."""
    made = Machine(tmp_path)
    network = Table(
        "network", (counter("received_bytes", "B", "Received."), counter("sent_bytes", "B", "Sent.")), "interface"
    )
    speeds = Table("link", (gauge("speed", "bit/s", "Speed."),), "interface")
    rows = {at: {"eth0": [at * 1_000_000, 0], "eth1": [at * 1_000_000, 0], "lo": [at, at]} for at in range(1, 40)}
    write(made, network, rows)
    links = {at: {"eth0": [10**8], "eth1": [10**9]} for at in range(15, 40, 15)}
    write(made, speeds, links, interval_ns=15 * SECOND_NS, writer="background")
    result = made.archive.select(
        "network/receive_utilization", step="10s", stat="mean,max", start=NOON_NS + 20 * SECOND_NS
    )
    found = {(column.path.partition("@")[2], column.stat): column.values[0] for column in result.columns}
    for stat in ("mean", "max"):
        assert found["eth0", stat] == pytest.approx(8)
        assert found["eth1", stat] == pytest.approx(0.8)
        assert math.isnan(found["lo", stat])
    now = Follower(made.folders).read()
    assert now.derived("network", "receive_utilization", "eth0") == pytest.approx(8)
    assert now.derived("network", "receive_utilization", "lo") is None
    with pytest.raises(UsageError, match="'receive_utilization': only single instances have it"):
        made.archive.records("network", columns="receive_utilization", group_by="instance")


def test_without_the_other_table_nothing_is_known(tmp_path: Path) -> None:
    made = Machine(tmp_path)
    table = Table("cgroup", (gauge("memory_used", "B", "Used."),), "cgroup")
    write(made, table, {at: {"/a": [at]} for at in range(1, 30)})
    for stat in ("mean", "max"):
        assert np.isnan(made.archive.select("cgroup/memory_percent", stat=stat, step="5s").columns[0].values).all()


@pytest.fixture
def printers(tmp_path: Path) -> Machine:
    """A stranger's plugin, as its recorder has it."""
    made = Machine(tmp_path / "there")
    planned = PlannedProbe("pages", "shop", Lane.REALTIME, SECOND_NS, Sensitivity.PUBLIC, True, {})
    entry = ProbeEntry(PAGES, False, planned, Defaults(Lane.REALTIME, SECOND_NS, Sensitivity.PUBLIC))
    Path(made.folders.runtime, catalogue.FILE).write_bytes(catalogue.encode(Catalogue({"pages": entry})))
    write(made, PAGES, {at: {"lp": [at * 6, at * 2, 1000 + at]} for at in range(1, 100)})
    return made


def test_what_everybody_may_read_is_enough_for_rings(printers: Machine) -> None:
    """The catalogue has settings, so it is not for all; what tables declare is."""
    path = Path(printers.folders.runtime, catalogue.FILE)
    said = catalogue.encode_answers(catalogue.read(printers.folders.runtime))
    path.unlink()
    with pytest.raises(UsageError, match="there is no metric"):
        printers.archive.select("pages/pages_per_job")
    Path(printers.folders.runtime, catalogue.ANSWERS_FILE).write_bytes(said)
    assert np.nanmax(printers.archive.select("pages/pages_per_job").columns[0].values) == 3
    assert catalogue.answers_in(printers.folders.runtime) == {"pages": PAGES.answers}


@pytest.mark.parametrize(
    "said", ["[]", '{"pages":3}', '{"pages":{"derived":[["a","1","1 +","Wrong."]]}}', "[" * 99_999, "\xff"]
)
def test_what_declares_nonsense_is_as_if_it_were_not_there(printers: Machine, said: str) -> None:
    Path(printers.folders.runtime, catalogue.ANSWERS_FILE).write_bytes(said.encode("latin-1"))
    with pytest.raises(CorruptError, match="^answers: "):
        catalogue.answers_in(printers.folders.runtime)
    with pytest.raises(UsageError, match="there is no metric"):
        printers.archive.select("pages/pages_per_job")
    printers.seal()
    assert len(printers.archive.select("pages/printed").times_ns)


def test_a_plugins_columns_are_there_before_any_file_is(printers: Machine) -> None:
    with pytest.raises(UsageError, match=r"there is no table or metric 'sheets'; did you mean pages/printed\?"):
        printers.archive.select("sheets")
    assert np.nanmax(printers.archive.select("pages/pages_per_job").columns[0].values) == 3


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_copy_elsewhere_has_a_plugins_columns(printers: Machine, tmp_path: Path, is_merged: bool) -> None:
    """The files say it, merged and rolled up, too."""
    for second in (100, 200):
        printers.seal()
        printers.flush()
        writer = printers.start(second + 0.5, table=PAGES)
        for at in range(second + 1, second + 100):
            writer.relation(at * SECOND_NS)
            writer.ring.rows(0, at * SECOND_NS, ("lp",), [at * 6, at * 2, 1000 + at])
    printers.seal()
    printers.flush()
    if is_merged:
        printers.merge()
        assert len(printers.files()) == 1
    rollup_job.roll_up(printers.folders, DENSE, retention_job.keeper(printers.folders).make_room, set())
    shutil.copytree(printers.folders.state, tmp_path / "elsewhere")
    shutil.rmtree(printers.folders.runtime)
    archive = opened(state_dir=str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match=r"there is no metric 'pages/sheets'; did you mean printed\?"):
        archive.select("pages/sheets")
    assert np.nanmax(archive.select("pages/pages_per_job", step="1min").columns[0].values) == 3
    assert [entry.path for entry in archive.catalogue("pages/ink*", derived=True)] == [
        "pages/ink@lp", "pages/ink_left@lp", "pages/ink_of_memory@lp",
    ]  # fmt: skip
    # Where a formula falls while its metric grows, the least of one is the most of the other.
    lows = archive.select("pages/ink_left", "pages/ink", step="1min", stat="min,max")
    left, ink = ({column.stat: column.values for column in lows.columns if name in column.path.split("@")[0].split("/")}
                 for name in ("ink_left", "ink"))  # fmt: skip
    assert left["min"] == pytest.approx(100 - 4 * ink["max"])
    assert left["max"] == pytest.approx(100 - 4 * ink["min"])
    columns = archive.columns("pages")
    assert ("pages_per_job", "1", "How long a job is. Derived: printed / jobs") in columns


def test_an_answer_that_is_saved_has_them(machine: Machine, tmp_path: Path) -> None:
    result = machine.archive.select("disk/await", "disk/utilization", step="1min")
    saved.write(result, str(tmp_path / "answer.h5"))
    again = opened(state_dir=str(tmp_path / "answer.h5")).select("disk/await")
    assert again.columns[0].unit == "s"
    np.testing.assert_array_equal(again.columns[0].values, result.columns[0].values)


def test_a_name_that_is_recorded_stays_what_is_recorded(tmp_path: Path) -> None:
    made = Machine(tmp_path)
    table = Table("disk", (*DISK.metrics, gauge("await", "s", "Told by itself.", 3)), "device")
    write(made, table, {at: {"sda": [0, 0, 0, 0, 0, 0, 77]} for at in range(1, 20)})
    assert set(made.archive.select("disk/await").columns[0].values.tolist()) == {0.077}


STATS = """\
259 0 nvme0n1 183920 41021 17523840 61230 902311 550120 44120832 1250981 0 402380 1391212 5012 40 88120 702 9120 78299
259 0 nvme0n1 184021 41030 17531904 61291 902999 550301 44141312 1252004 2 402931 1392377 5013 43 88184 703 9125 78311
""".splitlines()


def test_a_disk_has_what_iostat_computes(tmp_path: Path) -> None:
    """By the formulas of sysstat's iostat.c, of two readings of /proc/diskstats a second apart."""
    first, second = ([int(word) for word in line.split()[3:]] for line in STATS)
    (reads, reads_merged, sectors, read_ms, writes, writes_merged, sectors_written, write_ms, _, busy_ms, queue_ms) = (
        after - before for before, after in zip(first[:11], second[:11], strict=True)
    )
    expected = {
        "read_await": read_ms / reads / 1000,
        "write_await": write_ms / writes / 1000,
        "await": (read_ms + write_ms) / (reads + writes) / 1000,
        "read_size": sectors / 2 / reads * 1024,
        "write_size": sectors_written / 2 / writes * 1024,
        "request_size": (sectors + sectors_written) / 2 / (reads + writes) * 1024,
        "queue_length": queue_ms / 1000,
        "utilization": busy_ms / 1000 * 100,
        "transfers": reads + writes,
        "throughput": (sectors + sectors_written) * 512,
        "merged": reads_merged + writes_merged,
        "discard_size": (second[13] - first[13]) * 512 / (second[11] - first[11]),
        "discards_merged_percent": (second[12] - first[12]) / (second[12] - first[12] + second[11] - first[11]) * 100,
        "reads_merged_percent": reads_merged / (reads_merged + reads) * 100,
        "writes_merged_percent": writes_merged / (writes_merged + writes) * 100,
        "discard_await": (second[14] - first[14]) / (second[11] - first[11]) / 1000,
        "flush_await": (second[16] - first[16]) / (second[15] - first[15]) / 1000,
    }
    machine = Machine(tmp_path)
    writer = machine.start(0.5, table=disk.DISK)
    for at, line in enumerate(STATS, 1):
        parsed = disk.parse(line.encode())
        assert parsed is not None
        writer.relation(at * SECOND_NS)
        writer.ring.rows(0, at * SECOND_NS, ("nvme0n1",), [int(value) for value in parsed[1]])
    result = machine.archive.select(*(f"disk/{name}" for name in expected), step="1s")
    found = {column.path.partition("@")[0].partition("/")[2]: column for column in result.columns}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        tolerance = 0.5 * 10.0 ** -found[name].decimals
        assert found[name].values[-1] == pytest.approx(value, abs=tolerance * 1.01), name


PLAIN = """
import sys
from sysmond import history
archive = history.open(state_dir=sys.argv[1])
archive.select("disk/read_time", "disk", step="10s", stat="mean,max")
archive.records("disk", columns="instance,reads", by="reads", where="reads > 0")
archive.catalogue()
formulas = {"derived", "formula", "formulas", "derived_columns"}
print([name for name in sys.modules if name.rpartition(".")[2] in formulas])
"""


def test_who_asks_for_none_loads_nothing_of_it(machine: Machine) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, machine.folders.state], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_file_has_room_for_so_much(tmp_path: Path) -> None:
    """What finds none is not there elsewhere; the file is whole."""
    long = Answers(derived=tuple(Derived(f"a{number}", "1", "jobs", "x" * 390) for number in range(15)))
    tables = [
        PAGES._replace(name="pages_long", answers=long),
        PAGES._replace(name="pages_longer", answers=long),
        PAGES,
    ]
    made = Machine(tmp_path)
    planned = PlannedProbe("pages", "shop", Lane.REALTIME, SECOND_NS, Sensitivity.PUBLIC, True, {})
    fields = (False, planned, Defaults(Lane.REALTIME, SECOND_NS, Sensitivity.PUBLIC))
    entries = {table.name: ProbeEntry(table, *fields) for table in tables}
    Path(made.folders.runtime, catalogue.FILE).write_bytes(catalogue.encode(Catalogue(entries)))
    for number, table in enumerate(tables):
        writer = made.start(0.5 + number / 10, table=table, writer=("sampler", "background")[number % 2])
        writer.relation(SECOND_NS)
        writer.ring.rows(0, SECOND_NS, ("lp",), [1, 2, 3])
    stored(made)
    assert len(made.files()) == 1
    listed = {entry.path.partition("/")[0] for entry in made.archive.catalogue("*", derived=True) if entry.formula}
    assert listed == {"pages", "pages_long"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("nonsense", "Expecting value"),
        ("[]", "answers that are not an object"),
        ('{"pages":3}', "answers that are not an object"),
        ('{"pages":{"derived":[["a","1","__import__(\'os\')","Evil."]]}}', "where a number or a name should be"),
        ('{"pages":{"derived":[["a","1","printed / cyan","Unknown."]]}}', "no column 'cyan'"),
        ('{"pages":{"derived":[["a","1","' + "(" * 300 + '","Deep."]]}}', "nested too deeply"),
        ('{"pages":{"derived":[["a","1","' + "1+" * 1000 + 'jobs","Long."]]}}', "formula of 2004 characters"),
        ('{"pages":{"derived":[["a","1",7,"No text."]]}}', "expected a text"),
        ('{"pages":{"show":["jobs"]}}', "expected derived and aliases alone"),
        ("[" * 8000, "recursion"),
    ],
)
def test_a_file_that_declares_nonsense_is_damaged(tmp_path: Path, said: str, reason: str) -> None:
    made = Machine(tmp_path)
    write(made, PAGES, {at: {"lp": [at, at, at]} for at in range(1, 20)})
    made.seal()
    made.flush()
    (path,) = made.files()
    with h5py.File(path, "r+") as file:
        file.attrs["answers"] = np.bytes_(said)
    shutil.rmtree(made.folders.runtime)
    with pytest.raises(Error) as refused:
        made.archive.select("pages/printed")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 2000
