# SPDX-License-Identifier: Apache-2.0
"""Rows of fewer digits: only when merged, once, with exact totals; tiers, pins, states and texts stay as they were."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysmond.archiver import merge_job
from sysmond.archiver.coding import DENSE
from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.base.significant import BITS_MAX, BITS_MIN
from sysmond.base.timespec import DAY_NS
from sysmond.commands import fsck
from sysmond.errors import ConfigError
from sysmond.machine.folders import Folders
from sysmond.plan import config, plan
from sysmond.rollup import series
from sysmond.store import archive, dense, pins, tiers
from sysmond.store.archive import Name
from sysmond.store.files.dense_file import Segment, encode
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand, plan_of
from sysmond.store.pins import Pin
from tests.support.machine import NOON_NS, Machine
from tests.support.order import examples

SECOND = 10**9
BOOT = "b" * 32
UTC_NS = 20_000 * DAY_NS
BITS = 8
TABLE = Table(
    "disk",
    (
        Metric("read", "B", Semantics.COUNTER, "Read."),
        Metric("free", "B", Semantics.GAUGE, "Free."),
        Metric("mode", "1", Semantics.STATE, "Of many."),
        Metric("model", "text", Semantics.STATE, "Made by."),
    ),
    "device",
)
KEYS = [SeriesKey("disk", metric.name, name) for name in ("sda", "sdb") for metric in TABLE.metrics]
COUNTERS, GAUGES, OTHERS = [0, 4], [1, 5], [2, 3, 6, 7]
STRAND = Strand(BOOT, "sampler", 5, SECOND)


def matrix_of(ticks: int, seed: int) -> Int64Array:
    """Two devices: what was read of each, in bursts, with a reset and absences."""
    chance = np.random.default_rng(seed)
    values = chance.integers(0, 2**40, (len(KEYS), ticks))
    values[COUNTERS] = np.cumsum(chance.integers(0, 2 ** chance.integers(1, 30, (2, ticks))), axis=1)
    values[4, ticks // 2 :] -= values[4, ticks // 2]
    values[chance.random(values.shape) < 0.05] = ABSENT
    return values


def pieces_of(values: Int64Array, cuts: list[int], overlap: int = 0) -> list[Recording]:
    """The rows in segments; some overlap."""
    ticks = (np.arange(values.shape[1], dtype=np.int64) + 10) * SECOND
    clocks = {BOOT: [Relation(0, UTC_NS, 0)]}
    made = []
    for first, last in pairwise(sorted({0, *(cut for cut in cuts if cut < len(ticks)), len(ticks)})):
        part = slice(max(0, first - overlap), last)
        block = MemoryBlock(STRAND, ticks[part], KEYS, values[:, part])
        made.append(Recording(Sensitivity.PUBLIC, {"disk": TABLE}, [block], {}, clocks, []))
    return made


def put(folder: str, pieces: list[Recording], first: int = 1) -> list[Name]:
    names = [Name(BOOT, number, number) for number in range(first, first + len(pieces))]
    for name, piece in zip(names, pieces, strict=True):
        Path(folder, name.file).write_bytes(encode(piece, ""))
    return names


def read(path: str) -> tuple[Int64Array, int]:
    """The values of a file by the order of KEYS, and to how many bits they are shortened."""
    with Segment(path) as opened:
        [block] = opened.recording.blocks
        return block.read([block.keys.index(key) for key in KEYS]), block.significant_bits


def check(found: Int64Array, values: Int64Array, exact: list[int]) -> None:
    """That values are as near as they should be, and counters exact at some ticks and around resets."""
    assert np.array_equal(found == ABSENT, values == ABSENT)
    assert np.array_equal(found[OTHERS], values[OTHERS])
    there = values[GAUGES] != ABSENT
    assert (np.abs(found - values)[GAUGES][there] << BITS <= np.abs(values)[GAUGES][there]).all()
    for row in COUNTERS:
        there = np.flatnonzero(values[row] != ABSENT)
        was, now = np.diff(values[row, there]), np.diff(found[row, there])
        assert ((was < 0) == (now < 0)).all()
        assert np.array_equal(was[was < 0], now[was < 0])
        assert [int(found[row, at]) for at in exact] == [int(values[row, at]) for at in exact]


@settings(max_examples=examples(30))
@given(st.integers(20, 90), st.integers(0, 99), st.lists(st.integers(1, 89), min_size=1, max_size=5), st.integers(0, 4))
def test_merging_keeps_the_digits_that_are_wanted_and_does_so_once(
    tmp_path_factory: pytest.TempPathFactory, ticks: int, seed: int, cuts: list[int], overlap: int
) -> None:
    folder = str(tmp_path_factory.mktemp("merge"))
    values = matrix_of(ticks, seed)
    values[:, [0, -1]] = np.where(values[:, [0, -1]] == ABSENT, 7, values[:, [0, -1]])
    names = put(folder, pieces_of(values, cuts, overlap))
    half = max(1, len(names) // 2)
    some = merge_job.merge_files(DENSE, folder, names[:half], 0o644, BITS) if half > 1 else names[0]
    before, bits = read(f"{folder}/{some.file}")
    assert bits == (BITS if half > 1 else 0)
    whole = merge_job.merge_files(DENSE, folder, [some, *names[half:]], 0o644, BITS) if len(names) > 1 else some
    found, bits = read(f"{folder}/{whole.file}")
    assert bits == (BITS if len(names) > 1 else 0)
    assert half == 1 or np.array_equal(found[:, : before.shape[1]], before)
    check(found, values, [0, ticks - 1])
    if bits:
        Path(folder, "again.h5").write_bytes(dense.merged([f"{folder}/{whole.file}"], BITS))
        assert np.array_equal(read(f"{folder}/again.h5")[0], found)


def test_the_job_leaves_tiers_pins_and_what_is_not_rolled_up_alone(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_job, "boot_id", lambda: "f" * 32)  # The day is over: all of it is merged.
    settings = plan.ArchiverSettings(significant_bits=BITS)
    plan.write(plan.Plan((), archiver=settings), f"{folders.runtime}/plan.json")
    values = matrix_of(900, 5)
    values[:, [0, 299, 400, -1]] = np.where(values[:, [0, 299, 400, -1]] == ABSENT, 7, values[:, [0, 299, 400, -1]])
    pieces = pieces_of(values, [100, 200, 500])
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
    put(folder, pieces)
    at_ns = UTC_NS + 10 * SECOND
    pins.add(folders.state, [Pin(at_ns + 300 * SECOND, at_ns + 400 * SECOND, "oom", "sysmond")])
    expected = series.roll_up(
        pieces[0]._replace(blocks=[]), [plan_of([block for piece in pieces for block in piece.blocks])], tiers.COARSE
    )
    merge_job.merge(folders)
    [file] = archive.files(folder)
    found, bits = read(f"{folder}/{file}")
    assert bits == BITS
    check(found, values, [0, 299, 400, 899])
    assert np.array_equal(found[:, 300:400], values[:, 300:400])
    assert (found[:, :300] != values[:, :300]).any()
    for tier, image in expected.items():
        [made] = archive.files(place := archive.disk_folder(folders, Sensitivity.PUBLIC, tier))
        assert tier_of(f"{place}/{made}") == tier_of_image(image, folders.state)
    assert fsck.check(folders) == []
    with h5py.File(f"{folder}/{file}") as opened:
        assert opened.attrs["compatible"] == 1
        assert opened["block/0"].attrs["significant_bits"] == BITS


def test_where_nobody_knows_what_is_pinned_all_digits_are_kept(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_job, "boot_id", lambda: "f" * 32)
    settings = plan.ArchiverSettings(significant_bits=BITS)
    plan.write(plan.Plan((), archiver=settings), f"{folders.runtime}/plan.json")
    Path(folders.state, pins.FILE).write_text("[")
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
    values = matrix_of(90, 5)
    put(folder, pieces_of(values, [30]))
    merge_job.merge(folders)
    [file] = archive.files(folder)
    found, bits = read(f"{folder}/{file}")
    assert bits == 0
    assert np.array_equal(found, values)


def tier_of(path: str) -> list[object]:
    """All statistics of a file of a tier."""
    with Segment(path) as opened:
        return [
            (key, [(stat, array.tolist()) for stat, array in sorted(block.buckets([row]).stats.items())])
            for block in opened.recording.tiers
            for row, key in sorted(enumerate(block.keys), key=lambda each: each[1])
        ]


def tier_of_image(image: bytes, folder: str) -> list[object]:
    Path(folder, "expected.h5").write_bytes(image)
    found = tier_of(f"{folder}/expected.h5")
    Path(folder, "expected.h5").unlink()
    return found


def test_an_explanation_tells_of_fewer_digits(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(runtime)
    writer = machine.start(99)
    for first in (100, 200):
        writer.tick(range(first, first + 100))
        machine.seal()
        machine.flush()
    settings = plan.ArchiverSettings(significant_bits=BITS)
    plan.write(plan.Plan((), archiver=settings), f"{machine.folders.runtime}/plan.json")
    monkeypatch.setattr(merge_job, "boot_id", lambda: "f" * 32)
    merge_job.merge(machine.folders)
    writer.tick(range(300, 400))

    def told(path: str, **how: Any) -> str:
        return machine.archive.select(path, explain=True, **how).explanations[0].resampling

    assert told("disk/queue@sda", raw=True) == "none: a row a tick; merged rows have 8 significant bits"
    assert "merged rows have 8 significant bits" in told("disk/read_bytes@sda", step="2s")
    assert "significant" not in told("disk/model@sda", step="2s")
    assert "significant" not in told("disk/queue@sda", step="10s", start=NOON_NS, end=NOON_NS + 290 * SECOND)


def test_all_digits_are_kept_where_nobody_wants_fewer(folders: Folders) -> None:
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
    values = matrix_of(50, 1)
    name = merge_job.merge_files(DENSE, folder, put(folder, pieces_of(values, [20])), 0o644)
    found, bits = read(f"{folder}/{name.file}")
    assert bits == 0
    assert np.array_equal(found, values)
    with h5py.File(f"{folder}/{name.file}") as opened:
        assert opened.attrs["compatible"] == 0
        assert "significant_bits" not in opened["block/0"].attrs


@pytest.mark.parametrize("bits", [BITS_MIN - 1, BITS_MAX + 1, -1, 4.5, "many"])
def test_bits_that_make_no_sense_are_refused_with_those_that_do(tmp_path: Path, bits: object) -> None:
    file = tmp_path / "sysmond.yaml"
    file.write_text(f"archive:\n  significant_bits: {bits}\n")
    with pytest.raises(ConfigError) as caught:
        config.read([str(file)])
    assert str(caught.value) == (
        f"{file}:2: archive.significant_bits: '{bits}' is wrong; "
        f"expected 0 for every digit, or a whole number from {BITS_MIN} to {BITS_MAX}"
    )
    for right in (0, BITS_MIN, BITS_MAX):
        file.write_text(f"archive:\n  significant_bits: {right}\n")
        assert config.read([str(file)]).archiver.significant_bits == right
