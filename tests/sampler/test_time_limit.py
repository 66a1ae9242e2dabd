# SPDX-License-Identifier: Apache-2.0
"""The time limit of a reading: what is interrupted, what is not, and what is left behind. The timer is the real one."""

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from sysmond.base.model import Lane, Metric, Semantics, Sensitivity, Table
from sysmond.plan.plan import PlannedProbe
from sysmond.probe import Host, Probe, Row
from sysmond.sampler.source import Reading, Source
from sysmond.sampler.time_limit import INTERRUPTED, LIMIT_S, RING_S, SIGNALS, SPINNING, OverrunError, TimeLimit

TABLE = Table("thing", (Metric("count", "1", Semantics.COUNTER, "A number."),))
PLANNED = PlannedProbe("thing", "probes.thing", Lane.REALTIME, 10**9, Sensitivity.PUBLIC)
READING = Reading(("",), [1])


@pytest.fixture
def limit() -> Iterator[TimeLimit]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    made = TimeLimit()
    with made:
        yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def source(act: Callable[[], object]) -> Source:
    def read(_host: Host) -> Iterator[Row]:
        act()
        yield "", (1,)

    return Source(PLANNED, Probe(TABLE, read), Host(), 0.05)


def outcome(limit: TimeLimit, act: Callable[[], object]) -> object:
    """What a reading gives, or what it means that it was interrupted."""
    try:
        with limit.reading():
            return act()
    except OverrunError as overrun:
        return overrun.absence


def test_a_reading_that_comes_to_an_end_is_given_as_it_is(limit: TimeLimit) -> None:
    assert outcome(limit, lambda: 1) == 1
    assert outcome(limit, lambda: time.sleep(2 * RING_S)) is None


@pytest.mark.parametrize("act", [lambda: time.sleep(3600), lambda: os.read(os.pipe()[0], 1)])
def test_a_reading_that_waits_is_interrupted_and_the_next_is_not(limit: TimeLimit, act: Callable[[], object]) -> None:
    assert outcome(limit, source(act).read) is INTERRUPTED
    time.sleep(LIMIT_S)  # Nothing is being read: nothing is interrupted.
    assert outcome(limit, source(lambda: None).read) == READING


def test_after_a_reading_that_fails_nothing_is_interrupted(limit: TimeLimit) -> None:
    with pytest.raises(KeyboardInterrupt), limit.reading():
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGXCPU)


def test_what_a_probe_catches_is_not_the_interruption(limit: TimeLimit) -> None:
    def act() -> None:
        try:
            time.sleep(3600)
        except Exception:  # noqa: BLE001  as probes do
            time.sleep(3600)

    assert outcome(limit, source(act).read) is INTERRUPTED


def test_one_that_swallows_it_is_interrupted_again(limit: TimeLimit) -> None:
    swallowed: list[int] = []

    def act() -> None:
        while len(swallowed) < 2:
            try:
                time.sleep(3600)
            except BaseException:  # noqa: BLE001  as careless probes do
                swallowed.append(1)
        time.sleep(3600)

    assert outcome(limit, source(act).read) is INTERRUPTED
    assert swallowed


def test_the_limit_of_the_kernel_interrupts_at_once(limit: TimeLimit) -> None:
    assert outcome(limit, source(lambda: signal.raise_signal(signal.SIGXCPU)).read) is SPINNING
    assert outcome(limit, source(lambda: None).read) == READING
    signal.raise_signal(signal.SIGXCPU)  # Between two readings it is nobody's.


def test_time_in_which_the_process_stood_still_is_not_counted(limit: TimeLimit) -> None:
    def act() -> None:
        if (child := os.fork()) == 0:
            time.sleep(2 * LIMIT_S)
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(child, 0)

    begin_s = time.monotonic()
    assert outcome(limit, source(act).read) == READING
    assert time.monotonic() - begin_s > LIMIT_S  # It did stand still.


def test_a_reading_is_made_anew_after_one_that_was_interrupted(limit: TimeLimit) -> None:
    acts = [lambda: None, lambda: time.sleep(3600), lambda: None]
    turned = source(lambda: acts.pop(0)())  # noqa: PLW0108  another each time
    assert [outcome(limit, turned.read) for _ in range(3)] == [READING, INTERRUPTED, READING]
