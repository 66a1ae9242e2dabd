# SPDX-License-Identifier: Apache-2.0
"""What files declare: spelt once where they are alike, and never mistaken for each other where they are not."""

from pathlib import Path

import numpy as np
import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Metric, Semantics, Sensitivity, Table
from sysmond.store.coding.dense_coding import SERIES
from sysmond.store.files import declarations, dense_file
from sysmond.store.files.dense_file import Segment
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand

BOOT = "b" * 32


def write(path: Path, metric: str, *instances: str, scale: int = 0) -> Path:
    """A file with one metric of some instances."""
    table = Table("disk", (Metric(metric, "B", Semantics.GAUGE, "A number.", scale),), "device")
    keys = [SeriesKey("disk", metric, instance) for instance in instances]
    ticks = np.arange(1, 4, dtype=np.int64) * SECOND_NS
    block = MemoryBlock(Strand(BOOT, "sampler", 0, SECOND_NS), ticks, keys, np.ones((len(keys), 3), np.int64))
    path.write_bytes(dense_file.encode(Recording(Sensitivity.PUBLIC, {"disk": table}, [block], {}, {}, ()), "test"))
    return path


def test_files_that_differ_in_a_name_or_a_scale_are_told_apart(tmp_path: Path) -> None:
    found = []
    for number, (metric, instances, scale) in enumerate(
        [("read", ("sda", "sdb"), 0), ("sent", ("sda", "sdb"), 0), ("read", ("sda", "sdc"), 0), ("read", ("sda",), 3)]
    ):
        with Segment(str(write(tmp_path / f"{number}.h5", metric, *instances, scale=scale))) as opened:
            (block,) = opened.recording.blocks
            assert list(block.keys) == [SeriesKey("disk", metric, instance) for instance in instances]
            (declared_metric,) = opened.recording.tables["disk"].metrics
            assert (declared_metric.name, declared_metric.scale) == (metric, scale)
            found.append(block.keys)
    assert len({tuple(keys) for keys in found}) == 4


def test_files_that_are_alike_share_what_was_spelt(tmp_path: Path) -> None:
    with (
        Segment(str(write(tmp_path / "a.h5", "read", "sda"))) as one,
        Segment(str(write(tmp_path / "b.h5", "read", "sda"))) as other,
    ):
        assert one.recording.tables is other.recording.tables
        assert one.recording.blocks[0].keys is other.recording.blocks[0].keys


def test_of_many_sets_of_series_only_a_few_are_kept() -> None:
    metric = Metric("read", "B", Semantics.GAUGE, "A number.")
    keys = declarations.Keys([("disk", metric)], [f"sd{number}" for number in range(100)])
    for number in range(100):
        series = np.zeros(1, SERIES)
        series["instance"] = number
        assert keys(series) == [SeriesKey("disk", "read", f"sd{number}")]
    assert len(keys._known) == declarations.SETS_MAX


@pytest.mark.parametrize(("field", "value"), [("metric", 1), ("instance", 2), ("width", 3)])
def test_records_that_refer_to_nothing_are_refused(field: str, value: int) -> None:
    keys = declarations.Keys([("disk", Metric("read", "B", Semantics.GAUGE, "A number."))], ["sda", "sdb"])
    series = np.zeros(2, SERIES)
    series["instance"] = 0, 1
    keys.check(series)
    series[field][1] = value
    with pytest.raises(ValueError, match="a series"):
        keys.check(series)
