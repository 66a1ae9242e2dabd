# SPDX-License-Identifier: Apache-2.0
"""Sources read in turn: one thread for all, another one only where one is late, and nothing read twice."""

import threading
from collections.abc import Callable, Iterator

import pytest

from sysmond.base.model import Absence, Cause, Lane, Sensitivity, Table
from sysmond.plan.plan import PlannedProbe
from sysmond.probe import Host, Probe, Row, counter
from sysmond.sampler.source import Reading, Source
from sysmond.sampler.turns import InThread, ReadingTurns
from tests.support.waiting import HANG_S, wait_until

LATE_S = 0.05


class Scene:
    """Sources that note who read them."""

    def __init__(self) -> None:
        self.turns = ReadingTurns()
        self.readers: list[tuple[str, threading.Thread]] = []
        self.marked: list[str] = []
        self.released = threading.Event()

    def offer(self, name: str, does: Callable[[], object] = bool, deadline_s: float = HANG_S) -> InThread:
        def read(host: Host) -> Iterator[Row]:
            self.readers.append((name, threading.current_thread()))
            does()
            yield "a", (1,)

        planned = PlannedProbe(name, "p", Lane.BACKGROUND, 10**9, Sensitivity.PUBLIC)
        return InThread(Source(planned, Probe(Table(name, (counter("n", "1", "N."),)), read), Host(), deadline_s))

    def hang(self) -> None:
        self.released.wait()

    def read(self, *sources: InThread) -> list[object]:
        """Ask all of them, and give what each answers."""
        for source in sources:
            source.ask()
        self.turns.read(sources, lambda source: self.marked.append(source.table))
        answers = [source.answer() for source in sources]
        return [answer and answer.reading for answer in answers]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    others = set(threading.enumerate())
    yield made
    made.released.set()
    made.turns.close()
    wait_until(lambda: set(threading.enumerate()) <= others)


ONE = Reading(("a",), [1])


def test_one_thread_reads_all_and_is_there_for_the_next_tick(scene: Scene) -> None:
    sources = [scene.offer(name) for name in "abc"]
    assert scene.read(*sources) == [ONE] * 3
    assert scene.read(*sources) == [ONE] * 3
    assert [name for name, _ in scene.readers] == scene.marked == [*"abcabc"]
    (reader,) = {thread for _, thread in scene.readers}
    assert reader is not threading.current_thread()
    assert all(source.source.cost.duration_ns > 0 for source in sources)


def test_one_that_is_late_keeps_its_thread_and_the_others_have_another(scene: Scene) -> None:
    late, *others = scene.offer("late", scene.hang, LATE_S), scene.offer("b"), scene.offer("c")
    assert scene.read(late, *others) == [None, ONE, ONE]
    assert late.is_busy()
    readers = dict(scene.readers)
    assert readers["b"] is readers["c"] is not readers["late"]
    assert [name for name, _ in scene.readers] == ["late", "b", "c"]
    assert scene.read(*others) == [ONE, ONE]  # In the thread that is left, which costs no other.
    assert {thread for name, thread in scene.readers if name != "late"} == {readers["b"]}
    scene.released.set()
    wait_until(lambda: not late.is_busy())
    wait_until(lambda: not readers["late"].is_alive())
    answer = late.answer()
    assert answer
    assert answer.reading == ONE
    assert answer.took_s >= LATE_S
    assert not late.is_busy()
    assert late.answer() is None


def test_one_that_is_read_alone_is_waited_for_by_nobody(scene: Scene) -> None:
    late = scene.offer("late", scene.hang)
    late.ask()
    late.reads_alone()
    assert scene.read(scene.offer("b")) == [ONE]
    assert (late.is_busy(), late.answer()) == (True, None)
    scene.released.set()
    wait_until(lambda: not late.is_busy())
    answer = late.answer()
    assert answer
    assert answer.reading == ONE


def test_a_short_deadline_behind_a_long_one_is_kept(scene: Scene) -> None:
    quick, late, last = scene.offer("quick"), scene.offer("late", scene.hang, LATE_S), scene.offer("last")
    assert scene.read(quick, late, last) == [ONE, None, ONE]


def test_several_that_are_late_have_a_thread_each(scene: Scene) -> None:
    hanging = [scene.offer(name, scene.hang, LATE_S) for name in "ab"]
    assert scene.read(*hanging, scene.offer("c")) == [None, None, ONE]
    assert len({thread for _, thread in scene.readers}) == 3


def test_whatever_is_raised_costs_no_other_its_turn(scene: Scene) -> None:
    def raises() -> None:
        raise KeyboardInterrupt("not even this")

    bad, good = scene.offer("bad", raises), scene.offer("good")
    assert scene.read(bad, good) == [Absence(Cause.PROBE_FAILED, "KeyboardInterrupt: not even this"), ONE]
    assert bad.source.cost.failures == 1
    assert len({thread for _, thread in scene.readers}) == 1


def test_without_one_more_thread_each_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sources = scene.offer("a"), scene.offer("b")
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", start)
        refused = Absence(Cause.PROBE_FAILED, "RuntimeError: can't start new thread")
        assert scene.read(*sources) == [refused, refused]
    assert scene.read(*sources) == [ONE, ONE]
