# SPDX-License-Identifier: Apache-2.0
"""Segments of version 1 open for ever: these were written by the release that introduced tiers, and stay as they are.

Run as a program with a folder it writes such files there; those in ``tests/compat`` are never written again.
"""

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.errors import ForeignError
from sysmond.rollup import series
from sysmond.store import tiers
from sysmond.store.archive import Name
from sysmond.store.coding.statistics import Stat
from sysmond.store.files import dense_file
from sysmond.store.files.dense_file import Segment
from sysmond.store.of_ring import BootEvent, Hole, MemoryBlock, Recording, SeriesKey, Strand
from sysmond.store.tiers import Due

FOLDER = Path(__file__).parent.parent / "compat"
ROWS, TIER = "segment-1-rows.h5", "segment-1-10s.h5"
SECOND = 10**9
BOOT = "0123456789abcdef" * 2
UTC_NS = 1_700_000_000 * SECOND
TABLE = Table(
    "disk",
    (
        Metric("read", "B", Semantics.COUNTER, "Read."),
        Metric("busy", "s", Semantics.GAUGE, "Busy.", 2),
        Metric("model", "text", Semantics.STATE, "Made by."),
    ),
    "device",
    "Disks.",
)
KEYS = [SeriesKey("disk", metric.name, "sda") for metric in TABLE.metrics]
TICKS = np.arange(100, 160, dtype=np.int64) * SECOND
READ = np.arange(60, dtype=np.int64) ** 2 + 10**12
BUSY = np.arange(60, dtype=np.int64) * 37 % 100
BUSY[7] = ABSENT
EVENTS = [BootEvent(BOOT, 105 * SECOND, "mark", "", "deploy 12")]
HOLES = [Hole(BOOT, "disk", 107 * SECOND, 108 * SECOND, Cause.PROBE_FAILED, "once")]


def write(folder: Path) -> None:
    """Write the files, as this version does."""
    matrix = np.array([READ, BUSY, np.full(60, 7)])
    block = MemoryBlock(Strand(BOOT, "sampler", 99 * SECOND, SECOND), TICKS, KEYS, matrix, True)
    clocks = {BOOT: [Relation(0, UTC_NS, 0)]}
    made = Recording(Sensitivity.PUBLIC, {"disk": TABLE}, [block], {7: "ACME"}, clocks, HOLES, EVENTS)
    name = Name(BOOT, 1, 1)
    (folder / name.file).write_bytes(dense_file.encode(made, "sysmond"))
    (folder / TIER).write_bytes(series.roll_up_files(str(folder), Due([name], tiers.COARSE, []))["10s"])
    (folder / name.file).rename(folder / ROWS)


@pytest.mark.parametrize("name", [ROWS, TIER])
def test_what_is_said_beside_the_rows_is_still_read(name: str) -> None:
    assert (FOLDER / name).stat().st_size < 20_000
    with Segment(str(FOLDER / name)) as opened:
        found = opened.recording
        assert (found.sensitivity, found.tables, found.texts) == (Sensitivity.PUBLIC, {"disk": TABLE}, {7: "ACME"})
        assert (found.clocks, found.events, found.holes) == ({BOOT: [Relation(0, UTC_NS, 0)]}, EVENTS, HOLES)


def test_rows_are_still_read() -> None:
    with Segment(str(FOLDER / ROWS)) as opened:
        [block] = opened.recording.blocks
        assert (block.strand, block.closed) == (Strand(BOOT, "sampler", 99 * SECOND, SECOND), True)
        assert block.ticks.tolist() == TICKS.tolist()
        values = block.read([list(block.keys).index(key) for key in KEYS])
        assert values.tolist() == [READ.tolist(), BUSY.tolist(), [7] * 60]


def test_tiers_are_still_read() -> None:
    with Segment(str(FOLDER / TIER)) as opened:
        assert list(opened.recording.covers) == [Name(BOOT, 1, 1)]
        [tier] = opened.recording.tiers
        assert tier.strand == Strand(BOOT, "sampler", 99 * SECOND, SECOND, 10 * SECOND)
        assert tier.axis.rows.tolist() == [10] * 6
        counter, gauge, text = (tier.buckets([list(tier.keys).index(key)]).stats for key in KEYS)
        assert counter[Stat.SUM].sum() == READ[-1] - READ[0]
        assert counter[Stat.COUNT].tolist() == [[9, 10, 10, 10, 10, 10]]
        assert counter[Stat.TMAX][0].tolist() == TICKS[9::10].tolist()
        assert gauge[Stat.SUM].sum() == BUSY[BUSY != ABSENT].sum()
        assert gauge[Stat.MAX][0, 0] == max(BUSY[:10])
        assert text[Stat.LAST].tolist() == [[7] * 6]


@pytest.mark.parametrize(("attribute", "value"), [("version", 2), ("incompatible", 4)])
@pytest.mark.parametrize("name", [ROWS, TIER])
def test_what_a_later_version_writes_is_refused_by_name(tmp_path: Path, name: str, attribute: str, value: int) -> None:
    path = tmp_path / name
    path.write_bytes((FOLDER / name).read_bytes())
    with h5py.File(path, "r+") as file:
        file.attrs[attribute] = value
    with pytest.raises(ForeignError, match=f"{name}: version"):
        Segment(str(path))
    found, unreadable = tiers.listing(str(tmp_path))
    assert (found, unreadable) == ([], [name])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
