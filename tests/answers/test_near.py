# SPDX-License-Identifier: Apache-2.0
"""An answer from the files near a range is that from all files: what was left out could not matter."""

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.archiver import retention_job, rollup_job
from sysmond.archiver.coding import DENSE
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Result
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.store import archive
from sysmond.store.files import opening
from sysmond.store.files.dense_file import Segment
from sysmond.store.timeline import Timeline
from tests.support.machine import NOON_NS, Machine, Writer
from tests.support.order import first, rounds

BOOTS, FILES, FILE_S = 3, 24, 400
DAY_S = 86_400
SLOW = Table("slow", (Metric("count", "1", Semantics.COUNTER, "A number."),))
LENGTHS_S = (20, 300, 3000, 20_000)
STEPS: tuple[dict[str, Any], ...] = ({}, {"step": "30s"}, {"step": "1min", "stat": "max"}, {"raw": True})
PATHS = ("disk/read_bytes@sda", "disk/read_bytes@sdb", "disk/queue@sda", "slow/count", "disk/*", "*")


def begun(machine: Machine, boot: int, at_s: int, part: str) -> Writer:
    table, interval_s = (SLOW, 50) if part == "background" else (None, 10)
    more: dict[str, Any] = {"table": table} if table else {}
    wall_ns = NOON_NS + boot * DAY_S * SECOND_NS
    return machine.start(
        at_s, boot=f"{boot + 1:032x}", writer=part, interval_ns=interval_s * SECOND_NS, wall_ns=wall_ns, **more
    )


def record(machine: Machine, chance: random.Random) -> None:
    """Four boots, a day apart: a part that is started anew now and then, a device and a table that come and go."""
    for boot in range(BOOTS):
        writers = {part: begun(machine, boot, 10, part) for part in ("sampler", "background")}
        is_there = {"sdb": True, "slow": True}
        for file in range(FILES):
            begin = 20 + file * FILE_S
            for name in is_there:
                is_there[name] ^= chance.random() < 0.15
            if chance.random() < 0.1:
                writers["sampler"].ring.close(is_over=chance.random() < 0.5)
                writers["sampler"] = begun(machine, boot, begin, "sampler")
            writers["sampler"].tick(range(begin, begin + FILE_S, 10), ("sda", "sdb")[: 1 + is_there["sdb"]])
            for second in range(begin, begin + FILE_S, 50):
                background = writers["background"]
                background.relation(second * SECOND_NS)
                if is_there["slow"]:
                    background.ring.rows(0, second * SECOND_NS, ("",), [second])
                elif file % 2:
                    background.ring.absence(0, second * SECOND_NS, Cause.DISABLED, "")
            machine.seal()
            machine.flush()
        for writer in writers.values():
            writer.ring.close()
        machine.seal()
        machine.flush()
        machine.reboot()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machine")


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Machine:
    """The rows of the first two boots, in part, are left in tiers only."""
    machine = Machine(folder)
    record(machine, random.Random(7))
    rollup_job.roll_up(machine.folders, DENSE, retention_job.keeper(machine.folders).make_room, set())
    for path in machine.files()[: FILES + FILES // 2]:
        path.unlink()
    return machine


def answer(asked: Archive, path: str, said: dict[str, Any]) -> tuple[Result, list[str]] | str:
    try:
        return asked.select(path, **said), asked.warnings
    except Error as refusal:
        return str(refusal)


def _plain(member: Any) -> Any:
    if not isinstance(member, np.ndarray):
        return member
    return [None if value != value else value for value in member.tolist()]  # noqa: PLR0124  not a number


def spelled(result: Result) -> dict[str, Any]:
    """All of an answer, so that two can be compared: arrays as lists, what is not a number as None."""
    columns = {(each.path, each.stat): [_plain(member) for member in each] for each in result.columns}
    return {**result._asdict(), "times_ns": result.times_ns.tolist(), "columns": columns}


@rounds(6, 40)
def test_answers_from_near_are_those_from_everything(
    recorded: Machine, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    chance = random.Random(1)
    suffices = Timeline._suffices
    told: list[bool] = []

    def noting(line: Timeline, *words: Any) -> bool:
        told.append(suffices(line, *words))
        return told[-1]

    now_ns, boottime_ns = time.time_ns(), clock.boottime_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    monkeypatch.setattr(clock, "boottime_ns", lambda: boottime_ns)
    from_near = 0
    for _ in range(rounds):
        begin_s = chance.randrange(BOOTS) * DAY_S + chance.randrange(-100, FILES * FILE_S + 300)
        begin_ns = NOON_NS + begin_s * SECOND_NS
        said = {"start": begin_ns, "end": begin_ns + chance.choice(LENGTHS_S) * SECOND_NS, **chance.choice(STEPS)}
        path = chance.choice(PATHS)
        monkeypatch.setattr(Timeline, "_suffices", noting)
        near = answer(recorded.archive, path, said)
        from_near += told[-1]
        monkeypatch.setattr(Timeline, "_suffices", lambda *_: False)
        whole = answer(recorded.archive, path, said)
        if isinstance(near, str) or isinstance(whole, str):
            assert near == whole, (path, said)
            continue
        mine, other = spelled(near[0]), spelled(whole[0])
        assert {name: each for name, each in mine.items() if each != other[name]} == {}, (path, said)
        assert near[1] == whole[1], (path, said)
    assert from_near > rounds // 3


def test_a_table_that_changed_its_class_is_asked_of_files_that_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only files far from the range have it in its other class: the gap between is that of the table."""
    machine = Machine(tmp_path)
    classes = [Sensitivity.RESTRICTED, Sensitivity.PUBLIC]
    moved = {each: machine.start(0.5, writer="background", sensitivity=each, table=SLOW) for each in classes}
    others = machine.start(0.5)
    for file in range(12):
        for second in range(file * 1000 + 1, file * 1000 + 1001):
            others.tick([second])
            for number, each in enumerate(classes):
                if (file < 3, file > 9)[number]:
                    moved[each].relation(second * SECOND_NS)
                    moved[each].ring.rows(0, second * SECOND_NS, ("",), [second])
        machine.seal()
        machine.flush()
    for writer in (*moved.values(), others):
        writer.ring.close()
    machine.seal()
    machine.flush()
    machine.reboot()
    # Within the last of the earlier class, or the first of the later one: the gap goes on behind what is opened.
    for begin_s in (2500, 9900):
        begin_ns = NOON_NS + begin_s * SECOND_NS
        said = {"start": begin_ns, "end": begin_ns + 600 * SECOND_NS}
        near = answer(machine.archive, "slow/count", said)
        with monkeypatch.context() as patch:
            patch.setattr(Timeline, "_suffices", lambda *_: False)
            whole = answer(machine.archive, "slow/count", said)
        assert not isinstance(near, str)
        assert not isinstance(whole, str)
        assert [gap for gap in near[0].gaps if gap.end_ns < time.time_ns() - SECOND_NS]
        assert near[0].gaps == whole[0].gaps


def test_few_files_are_opened_for_a_short_range(recorded: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[str] = set()

    def noting(path: str) -> Segment:
        found.add(path)
        return Segment(path)

    monkeypatch.setattr(opening, "segment", noting)
    begin_ns = NOON_NS + ((BOOTS - 1) * DAY_S + 5000) * SECOND_NS
    result = recorded.archive.select("disk/read_bytes@sda", start=begin_ns, end=begin_ns + 300 * SECOND_NS, raw=True)
    assert len(result.times_ns) == 30
    rows = archive.disk_folder(recorded.folders, Sensitivity.PUBLIC)
    # Those within two buckets of the coarsest tier, neighbours, ends, and what halving needs.
    assert len([path for path in found if os.path.dirname(path) == rows]) <= 5 + 2 + 3 + 2 * 5


WEEK_NS = 7 * DAY_S * SECOND_NS
WEEKS = 8


def weeks(machine: Machine, *, is_late: bool = False) -> list[int]:
    """A boot a week, of three files of 20 s; when each began. ``is_late``: its clock says 1970 in the first."""
    booted_ns = [NOON_NS + number * WEEK_NS for number in range(WEEKS)]
    for number, boot_ns in enumerate(booted_ns):
        writer = machine.start(99, boot=f"{(7 * number) % WEEKS:032x}", wall_ns=0 if is_late else boot_ns)
        for begin in (100, 120, 140):
            writer.tick(range(begin, begin + 20))
            machine.seal()
            machine.flush()
            writer.wall_ns = boot_ns
        writer.ring.close()
        machine.reboot()
    return booted_ns


def rows_at(machine: Machine, booted_ns: int, begin: int) -> int:
    """How many rows there are of 20 s of a boot."""
    start_ns = booted_ns + begin * SECOND_NS
    result = machine.archive.select("disk/queue@sda", start=start_ns, end=start_ns + 20 * SECOND_NS, raw=True)
    return len(result.times_ns)


@pytest.mark.parametrize("restored_at_ns", first(1, [0, NOON_NS - 10**18, NOON_NS + 10**18]))
def test_an_archive_that_was_restored_with_other_times_lacks_nothing(tmp_path: Path, restored_at_ns: int) -> None:
    machine = Machine(tmp_path)
    booted_ns = weeks(machine)
    for number, path in enumerate(machine.files()):
        # As a copy has it, in the order of their names backwards.
        os.utime(path, ns=(max(0, restored_at_ns - number * SECOND_NS),) * 2)
    for of_boot_ns in booted_ns:
        assert [rows_at(machine, of_boot_ns, begin) for begin in (100, 120, 140)] == [20, 20, 20]


def test_a_boot_whose_clock_was_corrected_late_is_found_where_its_rows_are(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    booted_ns = weeks(machine, is_late=True)
    for number, path in enumerate(machine.files()):
        # As old as the clock said then, which in every second boot was 1970 to the end.
        of_boot_ns = booted_ns[archive_week(path)] if archive_week(path) % 2 else 0
        os.utime(path, ns=(of_boot_ns + (120 + number) * SECOND_NS,) * 2)
    for of_boot_ns in booted_ns:
        assert [rows_at(machine, of_boot_ns, begin) for begin in (100, 120, 140)] == [0, 20, 20]
    assert rows_at(machine, 0, 100) == 20 * WEEKS


def archive_week(path: Path) -> int:
    """In which week the boot of a file began."""
    return 7 * int(path.name[:32], 16) % WEEKS


@pytest.mark.parametrize("gone", first(1, range(3)))
def test_a_missing_file_hides_no_other(tmp_path: Path, gone: int) -> None:
    machine = Machine(tmp_path)
    booted_ns = weeks(machine)
    for path in machine.files()[gone::3]:
        path.unlink()
    for of_boot_ns in booted_ns:
        expected = [20 * (number != gone) for number in range(3)]
        assert [rows_at(machine, of_boot_ns, begin) for begin in (100, 120, 140)] == expected
