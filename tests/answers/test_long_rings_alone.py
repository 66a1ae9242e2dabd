# SPDX-License-Identifier: Apache-2.0
"""Of long tables, too, rings answer alone as all files do, and not where files may matter."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sysmond.archiver import seal_job
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.ring.frame import Layout
from sysmond.store import archive, holdings, ring_reach
from sysmond.store.files import opening
from tests.answers.test_near import spelled
from tests.answers.test_rings_alone import PIECE_S, Recorder
from tests.support.longs import MOMENT, SECOND, TASK, Stream, Tasks
from tests.support.order import first
from tests.support.untilnow import LONG_S

SIZES = {TASK.name: 128 * 1024, MOMENT.name: 64 * 1024}
RANGES = 15
BACK_S = (5, 30, 120, 300, 600, 1200)
LENGTHS_S = (10, 60, 300, 2000)
QUESTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"top": 3, "by": "cpu"},
    {"step": "10s", "columns": "pid,comm,line,cpu,rss:max"},
    {"step": "1min", "group_by": "comm"},
    {"raw": True},
    {"where": "comm = task-3"},
)


class Begun(Tasks):
    """Tasks that began just before they were seen."""

    def _begin(self, tick: int) -> None:
        super()._begin(tick)
        pid, (_, *row) = self.rows.popitem()
        self.rows[pid] = (max(0, tick * SECOND_NS - 1), *row)  # type: ignore[assignment]


class LongRecorder(Recorder):
    """A recorder of tasks as well."""

    def __init__(self, folder: Path, *, now_ns: int, seed: int = 1) -> None:
        super().__init__(folder, now_ns=now_ns)
        self.tasks = {table.name: Begun(12, seed) for table in (TASK, MOMENT)}
        self.streams = {table.name: self.stream(table.name, 1) for table in (TASK, MOMENT)}

    def stream(self, name: str, at_s: int) -> Stream:
        table = TASK if name == TASK.name else MOMENT
        return Stream(
            self.machine.folders,
            at_s * SECOND_NS - 1,
            boot=clock.boot_id(),
            layouts=[Layout(table, SECOND)],
            size=SIZES[name],
            utc_ns=self.wall_ns,
        )

    def stream_anew(self, name: str, at_s: int) -> None:
        self.streams[name].ring.close()
        self.streams[name] = self.stream(name, at_s)

    def piece(self, begin_s: int, devices: tuple[str, ...] = ("sda",), *, has_slow: bool = True) -> None:
        for name, stream in self.streams.items():
            stream.run(self.tasks[name], range(begin_s, begin_s + PIECE_S), full_every=25)
        super().piece(begin_s, devices, has_slow=has_slow)

    def records(self, table: str, **said: Any) -> Any:
        try:
            asked = self.machine.archive
            return spelled(asked.records(table, **said)), asked.warnings
        except Error as refusal:
            return str(refusal)


pytestmark = pytest.mark.usefixtures("rings_first")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened, for rows or for events."""
    paths: list[str] = []
    for name in ("stretch", "segment", "events"):
        really = getattr(opening, name)

        def noting(path: str, *more: Any, really: Any = really) -> Any:
            paths.append(path)
            return really(path, *more)

        monkeypatch.setattr(opening, name, noting)
    return paths


def recorded(folder: Path, now_ns: int) -> LongRecorder:
    """Recorded up to now by writers that never began anew, all of it sealed."""
    recorder = LongRecorder(folder, now_ns=now_ns)
    for begin in range(1, LONG_S, PIECE_S):
        recorder.piece(begin)
    return recorder


def pieces(recorder: LongRecorder, chance: random.Random) -> Iterator[int]:
    """Writers begin anew, things happen, and files are flushed; gives up to which second it is recorded."""
    for begin in range(1, LONG_S, PIECE_S):
        for name in recorder.streams:
            if chance.random() < 0.1:
                recorder.stream_anew(name, begin)
        if chance.random() < 0.2:
            recorder.writers["archiver"].ring.event(begin * SECOND_NS, "mark", "", f"at {begin}")
        recorder.piece(begin)
        if chance.random() < 0.3:
            archive.flush(recorder.machine.folders)
        yield begin + PIECE_S


def is_answered_by_rings(
    recorder: LongRecorder, chance: random.Random, now_ns: int, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Ask anything of the time before a moment, as usual and of all there is; whether the former opened no file."""
    begin_ns = now_ns - chance.choice(BACK_S) * SECOND_NS
    said = {"start": begin_ns, "end": begin_ns + chance.choice(LENGTHS_S) * SECOND_NS, **chance.choice(QUESTIONS)}
    table = chance.choice([TASK.name, MOMENT.name])
    opened.clear()
    mine = recorder.records(table, **said)
    is_of_rings = not opened
    with monkeypatch.context() as patch:
        patch.setattr(ring_reach, "SLACK", 0)
        assert mine == recorder.records(table, **said), (table, said)
    return is_of_rings


@pytest.mark.parametrize("seed", first(1, range(13)))
def test_answers_of_rings_are_those_of_everything(
    seed: int, tmp_path: Path, now_ns: int, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    recorder = LongRecorder(tmp_path, now_ns=now_ns, seed=seed)
    for _ in pieces(recorder, chance):
        pass
    of_rings = 0
    for _ in range(RANGES):
        of_rings += is_answered_by_rings(recorder, chance, now_ns, opened, monkeypatch)
        assert opened
    assert of_rings > RANGES // 5


@pytest.mark.parametrize("seed", first(1, range(13)))
def test_who_asks_again_and_again_is_answered_the_same(
    seed: int, tmp_path: Path, now_ns: int, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of rings go on from one question to the next, while the machine records."""
    monkeypatch.setattr("sysmond.store.ring_copies.SMALL_BYTES", 0)
    monkeypatch.setattr("sysmond.store.of_ring.PASSING_NS", 60 * SECOND_NS)
    chance = random.Random(seed)
    recorder = LongRecorder(tmp_path, now_ns=now_ns, seed=seed)
    of_rings = 0
    with holdings.staying_open():
        for until_s in pieces(recorder, chance):
            for _ in range(2):
                until_ns = recorder.wall_ns + until_s * SECOND_NS
                of_rings += is_answered_by_rings(recorder, chance, until_ns, opened, monkeypatch)
    assert of_rings > RANGES // 5


def test_the_last_minutes_open_no_file(tmp_path: Path, now_ns: int, opened: list[str]) -> None:
    recorder = recorded(tmp_path, now_ns)
    answer, _ = recorder.records(TASK.name, start=recorder.begin_ns(120), step="10s")
    assert answer["times_ns"]
    assert not opened
    recorder.records(TASK.name, start=recorder.begin_ns(1200))  # Its ring was written over since then.
    assert opened


def test_a_ring_whose_first_readings_are_of_changes_only_has_nothing_of_their_time(
    tmp_path: Path, now_ns: int, opened: list[str]
) -> None:
    """What changed last before the range is in a file: a ring has all from its first reading of all rows on."""
    recorder = LongRecorder(tmp_path, now_ns=now_ns)
    for begin in range(1, LONG_S, PIECE_S):
        recorder.piece(begin)
        if begin == LONG_S - 3 * PIECE_S + 1:
            recorder.stream_anew(TASK.name, begin + PIECE_S)
            recorder.streams[TASK.name].write(begin + PIECE_S, [min(recorder.tasks[TASK.name].rows.values())])
            seal_job.seal(recorder.machine.folders)
            os.unlink(recorder.machine.folders.runtime + f"/sampler/public/task/{SECOND_NS - 1}.ring")
    recorder.records(TASK.name, start=recorder.begin_ns(2 * PIECE_S - 1))
    assert opened


def test_a_mark_may_be_in_a_file(tmp_path: Path, now_ns: int, opened: list[str]) -> None:
    """Who wrote it began anew, and its ring is gone."""
    recorder = LongRecorder(tmp_path, now_ns=now_ns)
    for begin in range(1, LONG_S, PIECE_S):
        recorder.writers["archiver"].ring.event(begin * SECOND_NS, "mark", "", f"at {begin}")
        recorder.piece(begin)
        recorder.anew("archiver", begin + 1)
        recorder.writers["archiver"].relation((begin + 2) * SECOND_NS)
        recorder.machine.seal()
    for ring in sorted((tmp_path / "run/archiver/public").glob("*.ring"), key=lambda ring: int(ring.stem))[:-1]:
        ring.unlink()
    answer, _ = recorder.records(TASK.name, start=recorder.begin_ns(250))
    assert [event.text for event in answer["events"]] == ["at 1301", "at 1401"]
    assert opened


def test_files_of_another_boot_that_were_written_since_may_matter(
    tmp_path: Path, now_ns: int, opened: list[str]
) -> None:
    recorder = recorded(tmp_path, now_ns)
    ahead = Stream(recorder.machine.folders, 7, boot="f" * 32, size=SIZES[TASK.name], utc_ns=recorder.begin_ns(200))
    ahead.run(Tasks(3), range(1, 50))
    ahead.ring.close()
    recorder.machine.seal()
    recorder.machine.flush()
    os.unlink(ahead.path)
    (path,) = (tmp_path / "state/public/task/1s").glob("f*.h5")
    for is_late in (True, False):
        opened.clear()
        written_s = recorder.begin_ns(50 if is_late else 86_400) // SECOND_NS
        os.utime(path, (written_s, written_s))
        recorder.records(TASK.name, start=recorder.begin_ns(250))
        assert bool(opened) == is_late
