# SPDX-License-Identifier: Apache-2.0
"""NVML, by a stand-in for NVIDIA's library: what it says, versions, errors, garbage, hangs, and what it leaves open."""

import os
import time
from pathlib import Path

import pytest

from sysmond.sources import nvml
from sysmond.sources.nvml import Answer, GpuProcess, LostError, Nvml, NvmlCard
from tests.support.nvidia import StandIn

FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
GIB, MHZ = 1 << 30, 1_000_000
VALUES = {
    "busy": 73,
    "memory_busy": 12,
    "memory_used": 2 * GIB,
    "memory_total": 8 * GIB,
    "temperature": 61,
    "power": 115_250,
    "throttle": 0x24,
    "frequency": 1830 * MHZ,
    "frequency_max": 2100 * MHZ,
    "memory_frequency": 7000 * MHZ,
}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setattr(nvml, "SHARED_S", 0.0)
    monkeypatch.setattr(nvml, "SHARE_MAX", 1e9)
    return StandIn(tmp_path)


def card(answer: Answer, address: str = FIRST) -> NvmlCard:
    told = answer.cards[address]
    assert isinstance(told, NvmlCard)
    return told


def once_it_answers(asked: Nvml) -> Answer:
    """Ask until the thread that hung has ended."""
    while True:
        try:
            return asked.ask([FIRST])
        except LostError:
            time.sleep(0.01)


def test_what_cards_do_and_for_whom(library: StandIn) -> None:
    answer = Nvml(library.path).ask([FIRST, SECOND])
    assert card(answer).values == card(answer, SECOND).values == VALUES
    assert card(answer).processes == {70: GpuProcess(GIB, 40, 30), 72: GpuProcess(None)}
    assert library.calls() == ["init", "shutdown"]


def test_nothing_stays_open_between_readings(library: StandIn) -> None:
    asked = Nvml(library.path)
    asked.ask([FIRST])
    before = os.listdir("/proc/self/fd")
    for _ in range(5):
        asked.ask([FIRST])
    assert library.calls() == ["init", "shutdown"] * 6
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_a_version_that_lacks_functions(tmp_path: Path) -> None:
    lacking = {"power", "throttle"}
    before = {metric: value for metric, value in VALUES.items() if metric not in lacking} | {"memory_used": 3 * GIB}
    told = card(Nvml(StandIn(tmp_path, "-DOLD").path).ask([FIRST]))
    assert told.values == before
    assert told.processes == {70: GpuProcess(GIB), 72: GpuProcess(None)}


def test_a_card_that_supports_nothing_of_it_and_one_that_hides_processes(library: StandIn) -> None:
    library.behaves("unsupported")
    assert card(Nvml(library.path).ask([FIRST])) == NvmlCard({}, {})
    library.behaves("forbidden")
    told = card(Nvml(library.path).ask([FIRST]))
    assert (told.values, told.processes) == (VALUES, {70: GpuProcess(GIB), 72: GpuProcess(None)})


def test_garbage_is_left_out(library: StandIn) -> None:
    library.behaves("garbage")
    told = card(Nvml(library.path).ask([FIRST]))
    assert told == NvmlCard({}, {70: GpuProcess(None), 72: GpuProcess(None)})


def test_a_card_that_fell_off_the_bus_costs_no_other(library: StandIn) -> None:
    library.behaves("lost")
    answer = Nvml(library.path).ask([FIRST, SECOND, "0000:09:00.0"])
    assert str(answer.cards[FIRST]).endswith("the card is lost; it fell off the bus")
    assert card(answer, SECOND).values == VALUES
    assert str(answer.cards["0000:09:00.0"]) == "nvmlDeviceGetHandleByPciBusId_v2: there is no such card"
    assert library.calls() == ["init", "shutdown"]


def test_a_library_that_is_not_there_is_another_one_or_refuses(library: StandIn, tmp_path: Path) -> None:
    with pytest.raises(LostError, match="expected the library of the driver"):
        Nvml(str(tmp_path / "libnothing.so")).ask([FIRST])
    with pytest.raises(LostError, match="nvmlInit_v2: this version has no such function"):
        Nvml("libc.so.6").ask([FIRST])
    library.behaves("refused")
    asked = Nvml(library.path)
    with pytest.raises(LostError, match="nvmlInit_v2: the driver is not loaded"):
        asked.ask([FIRST])
    library.behaves()
    assert card(asked.ask([FIRST])).values == VALUES


def test_one_that_hangs_keeps_one_thread_and_nobody_else(library: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "ANSWER_S", 0.05)
    library.behaves("hang")
    asked = Nvml(library.path)
    for _ in range(3):
        with pytest.raises(LostError, match="has not answered for"):
            asked.ask([FIRST])
    assert library.calls() == ["init"]
    monkeypatch.setattr(nvml, "ANSWER_S", 60.0)
    library.behaves()
    assert card(once_it_answers(asked)).values == VALUES


def test_both_tables_have_one_answer_and_a_slow_library_is_asked_seldom(
    library: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(nvml, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(nvml, "SHARED_S", 2.5)
    asked = Nvml(library.path)
    first = asked.ask([FIRST])
    assert asked.ask([FIRST]) is first
    now_s[0] += 5
    second = asked.ask([FIRST])
    assert second is not first
    monkeypatch.setattr(nvml, "SHARE_MAX", 1 / 200)
    times = iter([2000.0, 2000.0, 2000.5])  # It takes half a second: asking and how long it took.
    monkeypatch.setattr(nvml, "monotonic", lambda: next(times, now_s[0]))
    slow = asked.ask([FIRST])
    assert slow is not second
    now_s[0] = 2099.0
    assert asked.ask([FIRST]) is slow
    now_s[0] = 2100.0
    assert asked.ask([FIRST]) is not slow
