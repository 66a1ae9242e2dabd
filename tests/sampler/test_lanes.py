# SPDX-License-Identifier: Apache-2.0
"""Lanes as real processes: they follow a plan without losing a tick, and tell a service manager how they are."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.base.model import Cause
from sysmond.machine import control
from sysmond.machine.notify import watchdog_s
from sysmond.plan import plan
from tests.daemon.test_daemon import Place
from tests.support.waiting import HANG_S

SECOND = 1_000_000_000


@pytest.fixture
def place(runtime: Path, tmp_path: Path) -> Iterator[Place]:
    made = Place(runtime, tmp_path)
    try:
        yield made
    finally:
        made.end()


def parts(place: Place) -> None:
    """Start the lanes by themselves, as a service manager does."""
    assert place.start("--part", "resolver").wait(HANG_S) == 0
    for part in ("sampler", "background"):
        place.start("--part", part)
    place.wait_for_ticks("memory/total")
    place.wait_for_ticks("filesystem/size", 0)


def change(place: Place, table: str, *, enabled: bool = True, interval_ns: int = SECOND) -> None:
    """Change the plan, as the resolver does, and have the lanes follow it."""
    path = f"{place.folders.runtime}/plan.json"
    now = plan.read(path)
    changed = {"enabled": enabled, "interval_ns": interval_ns}
    probes = tuple(
        plan.PlannedProbe(**{**each._asdict(), **changed}) if each.table == table else each for each in now.probes
    )
    plan.write(now._replace(probes=probes), path)
    for part in ("sampler", "background"):
        assert control.ask(f"{place.folders.runtime}/{part}", {"do": "plan"}, HANG_S) == {"ok": True}


def end(place: Place) -> None:
    for process in place.processes[1:]:
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0


def test_running_lanes_follow_a_plan_without_losing_a_tick(place: Place) -> None:
    parts(place)
    change(place, "load", enabled=False)
    place.wait_for_ticks("memory/total", 2)
    before = place.ticks("load/average_1min")
    change(place, "load", enabled=True)
    place.wait_for_ticks("load/average_1min", 2)
    assert place.ticks("load/average_1min") > before
    change(place, "cpu", interval_ns=SECOND // 10)
    place.wait_for_ticks("cpu/user@total", 20)
    change(place, "cpu", interval_ns=SECOND)
    place.wait_for_ticks("memory/total", 2)
    result = place.select("memory/total", "load/average_1min", "self/missed@sampler", "cpu/user@total")
    assert result is not None
    missed = result.column("self/missed@sampler").integers
    assert missed is not None
    whole = {time_ns // SECOND for time_ns in result.times_ns.tolist()}
    assert len(whole) >= max(whole) - min(whole) - max(missed.tolist())
    assert {gap.cause for gap in result.gaps if gap.table == "load"} == {Cause.DISABLED}
    assert [gap for gap in result.gaps if gap.table == "cpu" and gap.cause is not Cause.LATE_TICK] == []
    end(place)


def test_a_lane_tells_a_service_manager_how_it_is(place: Place, runtime: Path) -> None:
    assert place.start("--part", "resolver").wait(HANG_S) == 0
    address = str(runtime / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(HANG_S)
        place.environ.update(NOTIFY_SOCKET=address, WATCHDOG_USEC="1000000")
        for part in ("sampler", "background"):
            process = place.start("--part", part)
            said = [manager.recv(100)]
            while said[-1] != b"READY=1":
                assert said[-1] == b"WATCHDOG=1"
                said.append(manager.recv(100))
            assert place.ticks("memory/total" if part == "sampler" else "filesystem/size") > 0
            for _ in range(8):
                assert manager.recv(100) == b"WATCHDOG=1"
            process.send_signal(signal.SIGTERM)
            while said[-1] != b"STOPPING=1":
                said.append(manager.recv(100))
            assert process.wait(HANG_S) == 0
            assert said.count(b"READY=1") == 1


def test_the_watchdog_of_another_process_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(variable, raising=False)
    assert watchdog_s() == 0
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    assert watchdog_s() == 0
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    assert watchdog_s() == 30.0
    monkeypatch.setenv("WATCHDOG_PID", str(os.getppid()))
    assert watchdog_s() == 0
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    monkeypatch.setenv("WATCHDOG_USEC", "soon")
    assert watchdog_s() == 0


def test_what_is_disabled_just_before_a_lane_ends_stays_disabled_for_its_successor(place: Place) -> None:
    place.configuration.write_text(
        "probes: {memory: {interval: 100ms}, filesystem: {interval: 1s}, load: {interval: 2s}, cpu: {interval: 2s}}\n"
    )
    parts(place)
    place.wait_for_ticks("load/average_1min")
    change(place, "load", enabled=False, interval_ns=2 * SECOND)
    end(place)
    before = place.ticks("memory/total")
    del place.processes[1:]
    for part in ("sampler", "background"):
        place.start("--part", part)
    place.wait_for_ticks("memory/total", before + 60)
    place.wait_for_ticks("cpu/user@total")
    result = place.select("memory/total", "load/average_1min", "cpu/user@total")
    assert result is not None
    assert {gap.cause for gap in result.gaps if gap.table == "load"} == {Cause.DISABLED}
    assert Cause.NO_SOURCE not in {gap.cause for gap in result.gaps}, "what else is read every 2 s has its own ticks"
    end(place)
