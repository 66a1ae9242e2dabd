# SPDX-License-Identifier: Apache-2.0
"""What rings answer alone, they answer as all files do: without opening any, and where files may matter not alone."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Metric, Semantics, Table
from sysmond.errors import Error
from sysmond.ring.frame import HEADER_BYTES, RING_BYTES_MIN
from sysmond.store import holdings, ring_reach
from sysmond.store.files import opening
from sysmond.store.files.dense_file import Segment
from sysmond.store.timeline import Timeline
from tests.answers.test_near import spelled
from tests.support.machine import Machine, Writer
from tests.support.order import first
from tests.support.untilnow import LONG_S

SLOW = Table("slow", (Metric("count", "1", Semantics.COUNTER, "A number."),))
PIECE_S = 100
RANGES = 15
BACK_S = (5, 30, 120, 300, 600, 1200)
LENGTHS_S = (10, 60, 300, 2000)
STEPS: tuple[dict[str, Any], ...] = ({}, {"step": "10s"}, {"step": "1min", "stat": "max,sum"}, {"raw": True})
PATHS = ("disk/read_bytes@sda", "disk/read_bytes@sdb", "disk/queue@sda", "disk/model@sda", "slow/count", "disk/*", "*")


class Recorder:
    """A machine that records until now: its writers, and the files that were opened of what they left."""

    def __init__(self, folder: Path, *, now_ns: int) -> None:
        self.machine = Machine(folder)
        self.machine.ring_bytes = RING_BYTES_MIN
        self.now_ns = now_ns
        self.wall_ns = now_ns - LONG_S * SECOND_NS
        self.writers = {part: self.begun(part, 0.5) for part in ("sampler", "background", "archiver")}
        self.writers["archiver"].relation(SECOND_NS)

    def begun(self, part: str, at_s: float) -> Writer:
        table, interval_s = (SLOW, 10) if part == "background" else (None, 1)
        more: dict[str, Any] = {"table": table} if table else {}
        return self.machine.start(
            at_s,
            boot=clock.boot_id(),
            writer=part,
            interval_ns=interval_s * SECOND_NS,
            wall_ns=self.wall_ns,
            **more,
        )

    def anew(self, part: str, at_s: float, *, is_over: bool = True) -> None:
        self.writers[part].ring.close(is_over=is_over)
        self.writers[part] = self.begun(part, at_s)

    def piece(self, begin_s: int, devices: tuple[str, ...] = ("sda",), *, has_slow: bool = True) -> None:
        self.writers["sampler"].tick(range(begin_s, begin_s + PIECE_S), devices)
        background = self.writers["background"]
        for second in range(begin_s, begin_s + PIECE_S, 10):
            background.relation(second * SECOND_NS)
            if has_slow:
                background.ring.rows(0, second * SECOND_NS, ("",), [second])
            else:
                background.ring.absence(0, second * SECOND_NS, Cause.NO_SOURCE, "")
        self.machine.seal()

    def ask(self, path: str, **said: Any) -> Any:
        try:
            asked = self.machine.archive
            return spelled(asked.select(path, **said)), asked.warnings
        except Error as refusal:
            return str(refusal)

    def begin_ns(self, back_s: float) -> int:
        return self.now_ns - round(back_s * SECOND_NS)


SLACK = ring_reach.SLACK
pytestmark = pytest.mark.usefixtures("rings_first")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened."""
    paths: list[str] = []

    def noting(path: str) -> Segment:
        paths.append(path)
        return Segment(path)

    monkeypatch.setattr(opening, "segment", noting)
    return paths


@contextmanager
def from_everything(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(ring_reach, "SLACK", 0)
        patch.setattr(Timeline, "_suffices", lambda *_: False)
        yield


def pieces(recorder: Recorder, chance: random.Random) -> Iterator[int]:
    """Devices, a table and writers come and go; things happen; rings are sealed, and files flushed now and then.

    Gives the second up to which it is recorded, again and again.
    """
    is_there = {"sdb": True, "slow": True}
    for begin in range(1, LONG_S, PIECE_S):
        for name in is_there:
            is_there[name] ^= chance.random() < 0.15
        if chance.random() < 0.08:
            recorder.anew("sampler", begin - 0.5, is_over=chance.random() < 0.5)
        if chance.random() < 0.2:
            recorder.writers["archiver"].ring.event(begin * SECOND_NS, "mark", "", f"at {begin}")
        recorder.piece(begin, ("sda", "sdb")[: 1 + is_there["sdb"]], has_slow=is_there["slow"])
        if chance.random() < 0.3:
            recorder.machine.flush()
        yield begin + PIECE_S


def is_answered_by_rings(
    recorder: Recorder, chance: random.Random, now_ns: int, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Ask anything of the time before a moment, as usual and of all there is; whether the former opened no file."""
    begin_ns = now_ns - chance.choice(BACK_S) * SECOND_NS
    said = {"start": begin_ns, "end": begin_ns + chance.choice(LENGTHS_S) * SECOND_NS, **chance.choice(STEPS)}
    path = chance.choice(PATHS)

    def answers() -> tuple[Any, Any]:
        return recorder.ask(path, **said), recorder.machine.archive.events(said["start"], said["end"])

    opened.clear()
    mine = answers()
    is_of_rings = not opened
    with from_everything(monkeypatch):
        assert mine == answers(), (path, said)
    return is_of_rings


@pytest.mark.parametrize("seed", first(1, range(13)))
def test_answers_of_rings_are_those_of_everything(
    seed: int, tmp_path: Path, now_ns: int, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    recorder = Recorder(tmp_path, now_ns=now_ns)
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
    chance = random.Random(seed)
    recorder = Recorder(tmp_path, now_ns=now_ns)
    of_rings = 0
    with holdings.staying_open():
        for until_s in pieces(recorder, chance):
            for _ in range(2):
                until_ns = recorder.wall_ns + until_s * SECOND_NS
                of_rings += is_answered_by_rings(recorder, chance, until_ns, opened, monkeypatch)
    assert of_rings > RANGES // 5


def recorded(folder: Path, now_ns: int) -> Recorder:
    """Recorded up to now by writers that never began anew, all of it sealed."""
    recorder = Recorder(folder, now_ns=now_ns)
    for begin in range(1, LONG_S, PIECE_S):
        recorder.piece(begin)
    return recorder


def test_a_question_to_the_last_minutes_opens_no_file(tmp_path: Path, now_ns: int, opened: list[str]) -> None:
    recorder = recorded(tmp_path, now_ns)
    result, _ = recorder.ask("disk/read_bytes@sda", start=recorder.begin_ns(120), end=now_ns)
    assert len(result["times_ns"]) == 120
    assert not opened
    recorder.ask("disk/read_bytes@sda", start=recorder.begin_ns(1200))  # The ring was written over since then.
    assert opened


def test_which_tables_have_rows_is_answered_without_a_file(tmp_path: Path, now_ns: int, opened: list[str]) -> None:
    recorder = recorded(tmp_path, now_ns)
    assert recorder.machine.archive.recent_tables(recorder.begin_ns(120)) == frozenset({"disk", "slow"})
    assert recorder.machine.archive.recent_tables(recorder.begin_ns(1200)) is None
    assert not opened


def test_a_writer_that_began_anew_left_files(tmp_path: Path, now_ns: int, opened: list[str]) -> None:
    """The ring that it had before was let go of, once it was sealed."""
    recorder = recorded(tmp_path, now_ns)
    recorder.anew("sampler", LONG_S - PIECE_S + 0.5)
    recorder.piece(LONG_S - PIECE_S + 1)
    for path in (tmp_path / "run/sampler/public").glob("500000000.ring"):
        path.unlink()
    result, _ = recorder.ask("disk/read_bytes@sda", start=recorder.begin_ns(120), end=now_ns)
    assert len(result["times_ns"]) == 120
    assert opened


def test_a_mark_may_be_in_a_file_where_who_wrote_it_began_anew(tmp_path: Path, now_ns: int, opened: list[str]) -> None:
    recorder = Recorder(tmp_path, now_ns=now_ns)
    for begin in range(1, LONG_S, PIECE_S):
        recorder.writers["archiver"].ring.event(begin * SECOND_NS, "mark", "", f"at {begin}")
        recorder.piece(begin)
        recorder.anew("archiver", begin + 1)
        recorder.writers["archiver"].relation((begin + 2) * SECOND_NS)
        recorder.machine.seal()
    for ring in sorted((tmp_path / "run/archiver/public").glob("*.ring"), key=lambda ring: int(ring.stem))[:-1]:
        ring.unlink()
    result, _ = recorder.ask("disk/read_bytes@sda", start=recorder.begin_ns(250))
    assert [event.text for event in result["events"]] == ["at 1301", "at 1401"]
    assert opened


def test_what_was_recorded_before_a_clock_was_set_back_may_lie_in_the_range(
    tmp_path: Path, now_ns: int, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring of the sampler has none of it any more; that of the slower lane tells of the step."""
    recorder = Recorder(tmp_path, now_ns=now_ns)
    for begin in range(1, LONG_S, PIECE_S):
        if begin == 501:
            for writer in recorder.writers.values():
                writer.wall_ns -= 600 * SECOND_NS
        recorder.piece(begin)
    said = {"start": recorder.begin_ns(1050), "end": now_ns, "raw": True}
    answer = recorder.ask("disk/read_bytes@sda", **said)
    assert opened
    with from_everything(monkeypatch):
        assert answer == recorder.ask("disk/read_bytes@sda", **said)
    assert len(answer[0]["times_ns"]) > 450


def test_who_runs_for_a_moment_only_has_left_files(tmp_path: Path, now_ns: int, opened: list[str]) -> None:
    recorder = recorded(tmp_path, now_ns)
    os.makedirs(tmp_path / "run/smart/public")
    health = Table("health", (Metric("hours", "s", Semantics.COUNTER, "How long it ran."),))
    for at_s in (LONG_S - 160, LONG_S - 40):
        said: dict[str, Any] = {"boot": clock.boot_id(), "wall_ns": recorder.wall_ns, "table": health}
        writer = recorder.machine.start(at_s - 0.5, writer="smart", interval_ns=300 * SECOND_NS, **said)
        writer.relation(at_s * SECOND_NS)
        writer.ring.rows(0, at_s * SECOND_NS, ("",), [at_s])
        writer.ring.close()
        recorder.machine.seal()
    (tmp_path / f"run/smart/public/{LONG_S - 161}500000000.ring").unlink()
    result, _ = recorder.ask("health/hours", start=recorder.begin_ns(200), end=now_ns, raw=True)
    assert result["times_ns"] == [recorder.begin_ns(160), recorder.begin_ns(40)]
    assert opened


def test_files_of_another_boot_that_were_written_since_may_matter(
    tmp_path: Path, now_ns: int, opened: list[str]
) -> None:
    """Its clock was ahead: what it recorded lies in the range."""
    recorder = recorded(tmp_path, now_ns)
    ahead = recorder.machine.start(0.25, boot="f" * 32, wall_ns=recorder.begin_ns(200))
    ahead.tick(range(1, 100), ("sdz",))
    ahead.ring.close()
    recorder.machine.seal()
    recorder.machine.flush()
    (path,) = (each for each in recorder.machine.files() if each.name.startswith("f" * 32))
    (tmp_path / "run/sampler/public/250000000.ring").unlink()
    for is_late in (True, False):
        opened.clear()
        written_s = recorder.begin_ns(50 if is_late else 86_400) // SECOND_NS
        os.utime(path, (written_s, written_s))
        recorder.ask("disk/read_bytes", start=recorder.begin_ns(250))
        assert bool(opened) == is_late


def test_a_ring_that_is_damaged_does_not_answer_alone(tmp_path: Path, now_ns: int, opened: list[str]) -> None:
    recorder = recorded(tmp_path, now_ns)
    (ring,) = (tmp_path / "run/sampler/public").glob("*.ring")
    content = bytearray(ring.read_bytes())
    content[HEADER_BYTES + RING_BYTES_MIN // 2] ^= 1
    ring.write_bytes(content)
    recorder.ask("disk/read_bytes@sda", start=recorder.begin_ns(120))
    assert opened


def test_rings_are_not_read_for_what_they_can_hardly_have(
    tmp_path: Path, now_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorded(tmp_path, now_ns)
    monkeypatch.setattr(ring_reach, "SLACK", SLACK)
    reach, read = Timeline._reach_of_rings, []

    def noting(line: Timeline) -> Any:
        read.append(line)
        return reach(line)

    monkeypatch.setattr(Timeline, "_reach_of_rings", noting)
    recorder.ask("disk/read_bytes@sda", start=recorder.begin_ns(1490))
    assert not read
    recorder.ask("disk/read_bytes@sda", start=recorder.begin_ns(120))
    assert read
