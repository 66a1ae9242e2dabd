# SPDX-License-Identifier: Apache-2.0
"""Percentiles of series: of the rows of each bucket, by what numpy says of them; buckets of a tier keep none."""

from pathlib import Path

import numpy as np
import pytest

from sysmon_tools import extract
from sysmond.archiver import retention_job, rollup_job
from sysmond.archiver.coding import DENSE
from sysmond.base.clock import SECOND_NS
from sysmond.errors import EXIT_PARTIAL, UsageError
from tests.support.machine import NOON_NS, OLDER, Machine
from tests.support.order import first


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Two boots within one minute, a gap, and rows of which there are buckets, too."""
    made = Machine(tmp_path)
    made.start(0.5, boot=OLDER, wall_ns=NOON_NS - 100 * SECOND_NS).tick(range(1, 80))
    made.seal()
    made.flush()
    made.reboot()
    writer = made.start(0.5)
    writer.tick([*range(5, 300), *range(330, 500)])
    made.seal()
    made.flush()
    rollup_job.roll_up(made.folders, DENSE, retention_job.keeper(made.folders).make_room, set())
    writer.tick(range(500, 530))
    return made


@pytest.mark.parametrize("percent", first(3, ["p0", "p95", "p100", "p50", "p99.9"]))
@pytest.mark.parametrize("step_s", first(2, [10, 7, 60]))
@pytest.mark.parametrize("metric", ["queue", "read_bytes"])
def test_percentiles_are_those_of_the_rows(machine: Machine, metric: str, step_s: int, percent: str) -> None:
    # The rate of one interval is the maximum of a bucket that has one row.
    rows = machine.archive.select(f"disk/{metric}", stat="max", step="1s").columns[0]
    times_ns = machine.archive.select(f"disk/{metric}", stat="max", step="1s").times_ns
    found = machine.archive.select(f"disk/{metric}", stat=percent, step=f"{step_s}s")
    bucket = times_ns // (step_s * SECOND_NS) * step_s * SECOND_NS
    assert len(found.times_ns) > 10
    for start_ns, value in zip(found.times_ns.tolist(), found.columns[0].values.tolist(), strict=True):
        mine = rows.values[(bucket == start_ns) & ~np.isnan(rows.values)]
        if len(mine):
            assert value == pytest.approx(np.percentile(mine, float(percent[1:])), abs=1e-3)
        else:
            assert np.isnan(value)


def test_a_state_is_what_it_was_last_and_several_stand_side_by_side(machine: Machine) -> None:
    found = machine.archive.select("disk", stat="p50,max", step="1min")
    assert [column.stat for column in found.columns] == ["p50", "max"] * 3
    assert set(found.column("disk/model@sda", "p50").texts or ()) == {"made by sda"}


def test_where_only_buckets_are_left_a_line_says_so(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    for path in machine.files():
        path.unlink()
    found = machine.archive.select("disk/queue", stat="p95,mean", step="1min", boot=-1)
    assert np.isnan(found.column("disk/queue@sda", "p95").values).all()
    assert not np.isnan(found.column("disk/queue@sda", "mean").values).all()
    expected = "table 'disk': of a part of the range only buckets are left, which keep no p95"
    assert found.warnings == (expected,)
    words = ["disk/queue", "--stat=p95", "--sample=1min", "--format=csv"]
    folders = [f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}"]
    assert extract.main([*words, *folders]) == EXIT_PARTIAL
    assert expected in capfd.readouterr().err


@pytest.mark.parametrize("stat", ["p", "p101", "p-1", "p5.", "median", "P50"])
def test_what_is_no_percentile_is_one_line(machine: Machine, stat: str) -> None:
    with pytest.raises(UsageError, match="expected mean, min, .*, count, p0 to p100"):
        machine.archive.select("disk/queue", stat=stat)
