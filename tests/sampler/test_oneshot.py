# SPDX-License-Identifier: Apache-2.0
"""A part that reads once and ends: what it leaves is sealed and answered like any other's, also when it is killed."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sysmond.archiver.seal_job import seal
from sysmond.base import clock
from sysmond.base.model import ABSENT, Absence, Cause, Lane, Sensitivity
from sysmond.base.timespec import TIME_MAX_NS
from sysmond.daemon import oneshot as parent
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create_classes
from sysmond.plan.plan import Plan, PlannedProbe, SamplerSettings
from sysmond.plan.settings import Settings
from sysmond.probe import Host, Probe
from sysmond.ring.frame import SUFFIX
from sysmond.ring.snapshot import snapshot
from sysmond.sampler import oneshot
from sysmond.sampler.oneshot import OLD_RINGS_MAX
from sysmond.sampler.rings import Rings
from sysmond.store.of_ring import of_snapshot
from tests.support.bench import Read, table
from tests.support.waiting import let_ticks_pass, wait_until

EVERY_NS = 300_000_000_000


class Part:
    """The part, run in this process with a table of the test's own."""

    def __init__(self, folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders = folders
        self.said: list[str] = []
        self.read: Read = steady
        self.plan = plan()
        create_classes(f"{folders.runtime}/smart")
        monkeypatch.setattr(oneshot, "load", self._load)

    def _load(self, _: PlannedProbe) -> Probe:
        return Probe(table("thing"), self.read)

    def run(self, *, again: bool = False) -> None:
        assert oneshot.run(Settings(self.folders, again=again), self.plan, self.said.append) == 0

    def run_later(self) -> None:
        """Run it at another tick than it ran before."""
        let_ticks_pass(1)
        self.run()

    def rings(self) -> list[Path]:
        return sorted(Path(self.folders.runtime, "smart/public").glob(f"*{SUFFIX}"))

    def values(self) -> list[int]:
        result = Archive(self.folders).select("thing/m0@a", start=0, end=TIME_MAX_NS - 1, raw=True)
        integers = result.columns[0].integers
        assert integers is not None
        return [value for value in integers.tolist() if value != ABSENT]


def plan(
    *, lane: Lane = Lane.ONESHOT, interval_ns: int = EVERY_NS, enabled: bool = True, needs: tuple[str, ...] = ()
) -> Plan:
    probe = PlannedProbe("thing", "sysmond_probes.test", lane, interval_ns, Sensitivity.PUBLIC, enabled, {}, needs)
    return Plan((probe,), (), SamplerSettings(1 << 20, 0))


def raising(problem: Exception) -> Read:
    def read(_: Host) -> list[tuple[str, tuple[int, int]]]:
        raise problem

    return read


def steady(host: Host) -> Iterator[tuple[str, tuple[int, int]]]:
    yield "a", (1, 2)


@pytest.fixture
def part(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> Part:
    return Part(folders, monkeypatch)


def test_what_it_read_is_answered_from_its_ring_and_when_that_is_sealed(part: Part) -> None:
    part.run()
    assert part.values() == [1]
    seal(part.folders)
    assert part.values() == [1]
    [before] = part.rings()
    part.read = lambda host: [("a", (7, 8))]
    part.run_later()
    assert before not in part.rings()  # It is sealed, and over.
    assert part.values() == [1, 7]


def test_each_start_leaves_a_closed_ring_of_its_own(part: Part) -> None:
    part.run()
    [ring] = part.rings()
    copied = snapshot(str(ring))
    assert copied.closed
    assert copied.identity.writer == "smart"
    assert copied.identity.pid == os.getpid()


def test_rings_that_nobody_seals_are_bounded(part: Part) -> None:
    for _ in range(OLD_RINGS_MAX + 3):
        part.run()
    assert len(part.rings()) == OLD_RINGS_MAX


@pytest.mark.parametrize(
    ("read", "cause"),
    [
        (lambda host: iter([("a", Absence(Cause.ASLEEP))]), Cause.ASLEEP),
        (lambda host: iter([("a", (1,))]), Cause.PROBE_FAILED),
        (raising(FileNotFoundError(2, "no smartctl")), Cause.NO_SOURCE),
        (raising(RuntimeError("broken")), Cause.PROBE_FAILED),
    ],
)
def test_what_cannot_be_read_is_a_gap(part: Part, read: Read, cause: Cause) -> None:
    part.read = read
    part.run()
    [ring] = part.rings()
    assert [hole.cause for hole in of_snapshot(snapshot(str(ring))).holes] == [cause]


def test_a_probe_that_is_not_due_is_not_read(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    part.plan = plan(interval_ns=2 * EVERY_NS)
    monkeypatch.setattr(clock, "boottime_ns", lambda: 3 * EVERY_NS + 5)
    part.run(again=True)
    assert part.rings() == []
    monkeypatch.setattr(clock, "boottime_ns", lambda: 4 * EVERY_NS + 5)
    part.run(again=True)
    assert part.values() == [1]


def test_without_a_probe_nothing_is_left(part: Part) -> None:
    for part.plan in (plan(enabled=False), plan(lane=Lane.BACKGROUND), plan(needs=("/nowhere/smartctl",))):
        part.run()
    assert part.rings() == []


def in_a_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return child


@pytest.mark.parametrize("place", ["reading", "writing"])
def test_killed_at_any_moment_it_costs_its_tick_and_nothing_before(
    part: Part, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    part.run()
    there = tmp_path / "there"

    def hangs(*_: object, **__: object) -> None:
        there.touch()
        time.sleep(600)

    with monkeypatch.context() as patched:
        if place == "writing":  # The values are in the ring, and not yet to be seen.
            patched.setattr(Rings, "close", hangs)
            part.read = lambda host: [("a", (5, 5))]
        else:
            part.read = lambda host: [hangs()]  # type: ignore[list-item, func-returns-value]
        child = in_a_child(part.run_later)
        wait_until(there.exists)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert part.values() == [1]
    seal(part.folders)
    assert part.values() == [1]
    part.read = lambda host: [("a", (9, 9))]
    part.run_later()
    assert part.values() == [1, 9]
    assert len(part.rings()) == 1  # What was killed is gone with what was sealed.


# --- Its parent


class Parent:
    """Starts children of the test instead of the part."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.started: list[bool] = []
        self.work: Callable[[], object] = lambda: None
        self.refusal: OSError | None = None
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(parent, "boottime_ns", lambda: round(self.now_s * 1e9))
        self.oneshot = parent.Oneshot("/", self._fork)
        self.child = 0

    def _fork(self, again: bool) -> int:
        if self.refusal:
            raise self.refusal
        self.started.append(again)
        self.child = in_a_child(self.work)
        return self.child

    def turn(self) -> str:
        return self.oneshot.turn(plan())

    def ended(self) -> str:
        os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOWAIT)
        return self.turn()


@pytest.fixture
def above(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    made = Parent(monkeypatch)
    yield made
    monkeypatch.undo()
    made.oneshot.end()


def test_it_is_started_a_while_after_its_parent_and_then_every_five_minutes(above: Parent) -> None:
    above.turn()
    assert above.started == []
    above.now_s += parent.FIRST_S
    assert (above.turn(), above.started) == ("", [False])
    assert above.ended() == ""
    assert above.oneshot.due_s == pytest.approx(1200.0, abs=0.1)
    above.now_s = 1199.0
    above.turn()
    above.now_s = above.oneshot.due_s
    assert (above.turn(), above.started) == ("", [False, True])
    above.ended()
    assert above.oneshot.due_s == pytest.approx(1500.0, abs=0.1)


@pytest.mark.parametrize("broken", [plan(enabled=False), plan(needs=("/nowhere/smartctl",)), plan(lane=Lane.REALTIME)])
def test_it_is_not_started_without_work(above: Parent, broken: Plan) -> None:
    above.now_s += parent.FIRST_S
    assert (above.oneshot.turn(broken), above.started) == ("", [])
    assert above.oneshot.due_s == pytest.approx(1200.0, abs=0.1)


@pytest.mark.parametrize(("number", "said"), [(signal.SIGXCPU, "SIGXCPU"), (signal.SIGKILL, "SIGKILL")])
def test_one_that_dies_is_told_and_not_started_sooner(above: Parent, number: signal.Signals, said: str) -> None:
    def die() -> None:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)  # The sampler's time limit, tested in this process, catches it.
        os.kill(os.getpid(), number)

    above.work = die
    above.now_s += parent.FIRST_S
    above.turn()
    assert above.ended() == said
    for _ in range(100):
        above.now_s += 1.0
        above.turn()
    assert above.started == [False]


def test_one_that_hangs_is_killed_and_only_then_another_started(above: Parent) -> None:
    above.work = lambda: time.sleep(600)
    above.now_s += parent.FIRST_S
    above.turn()
    above.now_s += parent.TAKES_MAX_S - 1
    assert above.turn() == ""
    above.now_s += 1
    above.turn()
    assert above.ended() == "SIGKILL"
    assert above.started == [False]


def test_one_that_cannot_be_started_is_tried_at_its_next_time(above: Parent) -> None:
    above.refusal = OSError(12, "Cannot allocate memory")
    above.now_s += parent.FIRST_S
    assert above.turn() == "not started: Cannot allocate memory"
    assert above.turn() == ""
    assert above.oneshot.due_s == pytest.approx(1200.0, abs=0.1)


def test_it_ends_with_its_parent(above: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    above.work = lambda: time.sleep(600)
    above.now_s += parent.FIRST_S
    above.turn()
    monkeypatch.undo()
    above.oneshot.end()
    with pytest.raises(ChildProcessError):
        os.waitpid(above.child, os.WNOHANG)
