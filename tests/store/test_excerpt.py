# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a span answers about it as the archive does that it is from, and knows of nothing else."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sysmond import history
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Sensitivity
from sysmond.base.result import Result
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import snapshot_file
from sysmond.machine.folders import Folders
from tests.golden import archives, asking
from tests.golden.asking import Asked
from tests.support.machine import Machine
from tests.support.order import rounds

MINUTE_NS = 60 * SECOND_NS
# Before now, in minutes: in files and rings, in rings alone, over steps of the clock and restarts.
SPANS = {"busy": ((150, 130), (122, 119), (140, 121)), "troubled": ((190, 170), (898, 860))}
DAMAGED = (330, 321)


@pytest.fixture(params=list(SPANS))
def asked(request: pytest.FixtureRequest, frozen_archive: Callable[[str], Asked]) -> tuple[str, Asked]:
    return request.param, frozen_archive(request.param)


def span(made: Asked, before: int, until: int) -> tuple[int, int]:
    now_ns = made.now.relation.realtime_ns
    return now_ns - before * MINUTE_NS, now_ns - until * MINUTE_NS


def snapshot(archive: Archive, path: Path, start_ns: int, end_ns: int) -> Archive:
    files = archive.excerpt(start_ns, end_ns)
    with path.open("wb") as file:
        snapshot_file.write(file, {}, [(each.path, each.image) for each in files])
    return history.open(state_dir=str(path))


def told(result: Result) -> dict[str, list[object]]:
    """What an answer says, by column; what never has a value is not told."""
    values = {
        column.path: column.texts if column.texts is not None else np.nan_to_num(column.values, nan=-1.0).round(9)
        for column in result.columns
    }
    columns = {path: list(column) for path, column in values.items()}
    there = {path: column for path, column in columns.items() if any(value not in {None, "", -1.0} for value in column)}
    return {"time": result.times_ns.tolist(), **there}


@rounds(1, 3)
def test_series_rows_and_events_are_those_of_the_archive(asked: tuple[str, Asked], tmp_path: Path, rounds: int) -> None:
    name, made = asked
    compared = set()
    with asking.at(made.now):
        whole = Archive(made.folders)
        for number, minutes in enumerate(SPANS[name][:rounds]):
            start_ns, end_ns = span(made, *minutes)
            part = snapshot(whole, tmp_path / f"{number}.sysmon", start_ns, end_ns)
            start_ns += 1  # Of a tick at the very beginning the file that ends there knows, too.
            series = (one.select(start=start_ns, end=end_ns, raw=True) for one in (part, whole))
            assert told(next(series)) == told(next(series))
            for table in (entry.path for entry in part.long_tables() if entry.path != "event"):
                for step in (None, "1min"):
                    rows = (one.records(table, start=start_ns, end=end_ns, step=step) for one in (part, whole))
                    mine, its = map(told, rows)
                    assert mine == its, (table, step)
                    compared |= {table} if its["time"] else set()
            events = (one.events(start_ns, end_ns) for one in (part, whole))
            assert next(events) == next(events)
    assert compared >= {"process", "exits"}


def test_nothing_of_another_time_is_in_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    boot = archives.Boot(machine, "e" * 32, 1_749_632_400 * SECOND_NS)
    wide = boot.wide(90, archives.every(archives.FILESYSTEM))
    for begin_s, mount in ((100, "/before"), (200, "/within"), (300, "/after")):
        wide.event(begin_s + 50, "mark", "", f"mark {mount}")
        wide.run(range(begin_s, begin_s + 100), {"filesystem": [mount]})
    machine.seal()
    [file] = Archive(machine.folders).excerpt(boot.utc_ns(205), boot.utc_ns(295))
    image = tmp_path / "one.h5"
    image.write_bytes(file.image)
    part = Archive(Folders(str(image), str(image)))
    assert {entry.path for entry in part.catalogue()} == {"filesystem/used@/within", "filesystem/kind@/within"}
    assert [event.text for event in part.events()] == ["mark /within"]
    assert part.select(raw=True).times_ns[[0, -1]].tolist() == [boot.utc_ns(204), boot.utc_ns(294)]


def test_only_the_classes_that_are_asked_for_are_in_it(asked: tuple[str, Asked]) -> None:
    name, made = asked
    restricted = {"busy": {"command", "process_private"}, "troubled": set()}[name]
    with asking.at(made.now):
        start_ns, end_ns = span(made, *SPANS[name][0])
        public = Archive(made.folders, classes=(Sensitivity.PUBLIC,)).excerpt(start_ns, end_ns)
        both = Archive(made.folders).excerpt(start_ns, end_ns)
    assert {file.table for file in both} - {file.table for file in public} == restricted
    assert all(file.path.startswith("public/") for file in public)


def test_what_is_damaged_is_a_gap_and_said(frozen_archive: Callable[[str], Asked], tmp_path: Path) -> None:
    made = frozen_archive("troubled")
    with asking.at(made.now):
        start_ns, end_ns = span(made, *DAMAGED)
        whole = Archive(made.folders)
        part = snapshot(whole, tmp_path / "damaged.sysmon", start_ns, end_ns)
        assert any("checksum is wrong" in warning for warning in whole.warnings)
        result = part.select("disk", start=start_ns, end=end_ns, raw=True)
    assert {Cause.DAMAGED_FILE} <= {gap.cause for gap in result.gaps}


def test_a_span_without_anything_is_one_line(asked: tuple[str, Asked]) -> None:
    _, made = asked
    with pytest.raises(Error, match="no rows or events in that range"), asking.at(made.now):
        Archive(made.folders).excerpt(1_600_000_000 * SECOND_NS, 1_600_000_001 * SECOND_NS)
