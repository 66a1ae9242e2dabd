# SPDX-License-Identifier: Apache-2.0
"""Every hole has its own cause: a file that is damaged or missing is no end of the recorder, and no late tick.

And so is what was given up for want of room.
"""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from sysmond.archiver import merge_job
from sysmond.archiver.main import Archiver
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Sensitivity, Table
from sysmond.base.result import Result
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create_classes
from sysmond.plan.plan import ArchiverSettings, Plan
from sysmond.plan.settings import Settings
from sysmond.store import archive, pins
from sysmond.store.pins import Pin
from sysmond.tasks.tables import EXITS, PROCESS, THREAD_STATE
from tests.support.longarchive import BOOTED_NS, Row, put, relation, stretch
from tests.support.machine import BOOT, NOON_NS, TABLE, Machine

FILES, SECONDS = 5, 10


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def row(table: Table) -> Row:
    return {metric.name: "" if metric.is_text else 1 for metric in table.metrics}


def recorded(folders: Folders, table: Table, *, closed: bool = True) -> list[Path]:
    """Five files of one life, which ended in good order."""
    paths = []
    for number in range(FILES):
        begin = 100 + SECONDS * number
        made = stretch(table, range(begin, begin + SECONDS), [(at, row(table)) for at in range(SECONDS)])
        lives = [life._replace(closed=closed and number == FILES - 1) for life in made.lives]
        paths.append(Path(put(folders, made.with_about(made.about._replace(lives=lives)), number + 1)))
    return paths


def asked(folders: Folders, table: Table) -> Result:
    end_ns = BOOTED_NS + (100 + FILES * SECONDS) * SECOND_NS
    return Archive(folders).records(table.name, start=BOOTED_NS + 100 * SECOND_NS, end=end_ns)


def causes(answer: Result) -> list[tuple[Cause, int]]:
    return [(gap.cause, round((gap.end_ns - gap.start_ns) / SECOND_NS)) for gap in answer.gaps]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


@pytest.mark.parametrize("table", [PROCESS, EXITS, THREAD_STATE], ids=lambda table: table.name)
@pytest.mark.parametrize("harm", [cut, os.unlink], ids=["damaged", "missing"])
@pytest.mark.parametrize("number", [1, 3])
def test_a_file_in_the_middle_of_a_life(
    folders: Folders, table: Table, harm: Callable[[Path], None], number: int
) -> None:
    paths = recorded(folders, table)
    harm(paths[number])
    found = asked(folders, table)
    assert causes(found) == [(Cause.DAMAGED_FILE, SECONDS)]
    assert paths[number].name in found.gaps[0].detail


@pytest.mark.parametrize("table", [PROCESS, EXITS, THREAD_STATE], ids=lambda table: table.name)
def test_a_damaged_file_at_an_end(folders: Folders, table: Table) -> None:
    paths = recorded(folders, table)
    cut(paths[0])
    cut(paths[-1])
    assert {cause for cause, _ in causes(asked(folders, table))} == {Cause.DAMAGED_FILE}


@pytest.mark.parametrize("is_last", [False, True])
def test_the_only_file_of_a_boot(folders: Folders, *, is_last: bool) -> None:
    paths = []
    for number, boot in enumerate("abc"[: 2 if is_last else 3]):
        clock = relation(booted_ns=BOOTED_NS + 1000 * number * SECOND_NS)
        made = stretch(PROCESS, range(10, 20), [(0, row(PROCESS))], boot=boot * 32, relations=[clock])
        paths.append(Path(put(folders, made, 1)))
        written_ns = BOOTED_NS + (1000 * number + 20) * SECOND_NS
        os.utime(paths[-1], ns=(written_ns, written_ns))
    cut(paths[1])
    written_ns = BOOTED_NS + 1020 * SECOND_NS
    os.utime(paths[1], ns=(written_ns, written_ns))
    end_ns = BOOTED_NS + (1020 if is_last else 2020) * SECOND_NS
    found = Archive(folders).records("process", start=BOOTED_NS + 10 * SECOND_NS, end=end_ns)
    assert causes(found) == [(Cause.DAMAGED_FILE, 1000 if is_last else 1990)]
    assert paths[1].name in found.gaps[0].detail


def five_files(machine: Machine, *, restricted: bool = False) -> list[Path]:
    """Five segments of one life; between their numbers are those of the restricted class."""
    writer = machine.start(0.5)
    others = machine.start(0.5, sensitivity=Sensitivity.RESTRICTED, table=TABLE._replace(name="raid"))
    for first in range(1, 1 + FILES * SECONDS, SECONDS):
        writer.tick(range(first, first + SECONDS))
        if restricted:
            others.tick(range(first, first + SECONDS))
        machine.seal()
        machine.flush()
    return machine.files()


def no_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [cut, os.unlink, no_file], ids=["damaged", "missing", "no file"])
@pytest.mark.parametrize("restricted", [False, True])
def test_a_segment_in_the_middle_of_a_life(machine: Machine, harm: Callable[[Path], None], *, restricted: bool) -> None:
    path = five_files(machine, restricted=restricted)[2]
    harm(path)
    found = machine.archive.select("disk", raw=True)
    assert causes(found)[0] == (Cause.DAMAGED_FILE, SECONDS)
    assert path.name in found.gaps[0].detail
    assert Cause.LATE_TICK not in dict(causes(found))


def test_segments_that_are_missing_in_both_classes_are_told_of_each(machine: Machine) -> None:
    path = five_files(machine, restricted=True)[2]
    other = machine.files(Sensitivity.RESTRICTED)[2]
    path.unlink()
    other.unlink()
    for table in ("disk", "raid"):
        found = machine.archive.select(table, raw=True)
        assert causes(found)[0] == (Cause.DAMAGED_FILE, SECONDS)
        assert "2 of its files missing" in found.gaps[0].detail


def test_a_number_that_was_passed_over_explains_no_late_tick(machine: Machine) -> None:
    writer = machine.start(0.5)
    writer.tick(range(1, 11))
    machine.seal()
    archive.next_sequence(BOOT, machine.folders)
    writer.tick(range(11, 15))
    writer.tick(range(20, 25))
    machine.seal()
    assert causes(machine.archive.select("disk", raw=True))[0] == (Cause.LATE_TICK, 5)


@pytest.mark.parametrize("why", ["a file was pinned", "the other class cannot be listed"])
def test_of_a_missing_number_nothing_is_said_where_it_may_be_in_order(machine: Machine, why: str) -> None:
    five_files(machine)[2].unlink()
    if why == "a file was pinned":
        pins.add(machine.folders.state, [Pin(NOON_NS, NOON_NS + SECOND_NS, "kept", "tests")])
    else:
        other = Path(archive.disk_folder(machine.folders, Sensitivity.RESTRICTED))
        other.rmdir()
        other.symlink_to(other)
    assert causes(machine.archive.select("disk", raw=True))[0] == (Cause.LATE_TICK, SECONDS)


def test_a_merge_leaves_room_for_a_segment_that_is_missing(machine: Machine) -> None:
    path = five_files(machine, restricted=True)[2]
    away = path.rename(path.with_suffix(".away"))
    merge_job.merge(machine.folders)
    assert len(machine.files()) == 2
    assert len(machine.files(Sensitivity.RESTRICTED)) == 2
    assert causes(machine.archive.select("disk", raw=True))[0] == (Cause.DAMAGED_FILE, SECONDS)
    away.rename(path)
    merge_job.merge(machine.folders)
    assert len(machine.files()) == 1
    assert len(machine.archive.select("disk", raw=True).times_ns) == FILES * SECONDS


def test_a_merge_leaves_room_for_a_file_of_a_long_table_that_is_missing(folders: Folders) -> None:
    paths = recorded(folders, PROCESS)
    archive.flush(folders)
    there = Path(archive.disk_folder(folders, Sensitivity.PUBLIC, table="process"))
    (there / paths[2].name).unlink()
    merge_job.merge(folders)
    assert len(list(there.glob("*.h5"))) == 2
    assert causes(asked(folders, PROCESS)) == [(Cause.DAMAGED_FILE, SECONDS)]


def test_numbers_that_claim_to_be_far_apart_cost_nothing(folders: Folders) -> None:
    paths = recorded(folders, PROCESS)
    paths[2].unlink()
    for path, number in ((paths[3], "99999997"), (paths[4], "99999998")):
        path.rename(path.with_name(f"{BOOT}-{number}-{number}.h5"))
    tracemalloc.start()
    (gap,) = asked(folders, PROCESS).gaps
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 50_000_000
    assert gap.detail == f"99999994 of its files missing, the first {paths[2].name}"


def test_readings_that_are_late_between_two_files_are_no_end(folders: Folders) -> None:
    for number, begin in enumerate((100, 120)):
        made = stretch(PROCESS, range(begin, begin + SECONDS), [(0, row(PROCESS))])
        lives = [life._replace(closed=number == 1) for life in made.lives]
        put(folders, made.with_about(made.about._replace(lives=lives)), number + 1)
    assert causes(asked(folders, PROCESS))[0] == (Cause.LATE_TICK, SECONDS)


def test_what_happened_is_told_with_rows_whether_any_are_lost_or_not(machine: Machine) -> None:
    folders = machine.folders
    writers = [machine.start(0.5, wall_ns=BOOTED_NS, sensitivity=each) for each in Sensitivity]
    for writer in writers:
        writer.tick(range(100, 160))
        writer.ring.event(140 * SECOND_NS, "test", writer.ring.path, "")
    [path, *_] = [recorded(folders, table)[2] for table in (EXITS, PROCESS)]
    for _ in range(2):
        for table in (EXITS, PROCESS):
            found = asked(folders, table)
            assert [(event.kind, event.subject) for event in found.events] == [("test", writers[0].ring.path)]
            assert found.sensitivity is Sensitivity.PUBLIC
        cut(path)


def test_what_was_given_up_for_want_of_room_is_dropped(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folders = machine.folders
    create_classes(f"{folders.runtime}/archiver")
    writer = machine.start(0.5)
    for first in range(1, 121, 30):
        writer.tick(range(first, first + 30))
        machine.seal()
    for number in range(2):
        begin = 100 + SECONDS * number
        made = stretch(EXITS, range(begin, begin + SECONDS), [(at, row(EXITS)) for at in range(SECONDS)])
        put(folders, made, number + 1, ram=True)
    wide = archive.ram_folder(folders, Sensitivity.PUBLIC)
    long = archive.ram_folder(folders, Sensitivity.PUBLIC, "exits")
    oldest = [*sorted(Path(wide).glob("*.h5"))[:2], *sorted(Path(long).glob("*.h5"))[:1]]
    for age, path in enumerate(reversed(oldest), 1):
        os.utime(path, ns=(age, age))
    sizes = {path: path.stat().st_size for path in [*Path(wide).glob("*.h5"), *Path(long).glob("*.h5")]}
    ram_bytes = sum(size for path, size in sizes.items() if path not in oldest)
    said: list[str] = []
    made_of = Plan((), archiver=ArchiverSettings(ram_bytes=ram_bytes))
    Archiver(Settings(folders), made_of, said.append, -1)._flushed("the disk is full", {}, 0.0)
    assert "RAM for segments is full: 3 of the oldest given up" in said
    for _ in ("in RAM", "on disk", "merged"):
        result = machine.archive.select("disk", raw=True)
        assert len(result.times_ns) == 60
        assert (Cause.DROPPED, 60) in causes(result)
        assert Cause.LATE_TICK not in dict(causes(result))
        assert [event.text for event in result.events if event.kind == "dropped"] == said[-1:]
        found = asked(folders, EXITS)
        assert (Cause.DROPPED, SECONDS) in causes(found)
        assert found.events == ()  # It was given up after that range.
        everything = machine.archive.records(EXITS.name)
        assert [event.text for event in everything.events if event.kind == "dropped"] == said[-1:]
        machine.seal()
        machine.flush()
        merge_job.merge(folders)
