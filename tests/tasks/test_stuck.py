# SPDX-License-Identifier: Apache-2.0
"""Threads that wait uninterruptibly for a minute: only who does not run in between is told, once."""

import os
import struct
from pathlib import Path

import pytest

from sysmond.probe import Host, HostEvent, Records
from sysmond.tasks.proc.states import Looks
from sysmond.tasks.stuck import ASKED_MAX, KIND, LOOKED_AT_MAX, STUCK_S, StuckThreads
from sysmond.tasks.tables import THREAD_STATE
from tests.tasks.proc.test_proc_states import waiting

PACKED = struct.Struct(THREAD_STATE.packing.format if THREAD_STATE.packing else "")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return tmp_path


def has_run(root: Path, tid: int, times: int) -> None:
    folder = root / f"proc/5/task/{tid}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text(f"Name:\tx\nvoluntary_ctxt_switches:\t{times}\nnonvoluntary_ctxt_switches:\t7\n")


def rows(*threads: tuple[int, str, int], start: int = 3) -> Records:
    """Threads by number, state and stack."""
    packed = [
        PACKED.pack(start, 5, tid, 0, -1, 0, b"nfsd", state.encode(), b"rpc_wait_bit_killable", stack)
        for tid, state, stack in threads
    ]
    return Records(b"".join(packed))


def looked(root: Path, *readings: Records, pace_s: float = 10.0) -> list[HostEvent]:
    host, stuck = Host(str(root)), StuckThreads()
    for number, records in enumerate(readings):
        stuck.look(host, records, 1000.0 + number * pace_s)
    return host.take_events()


def test_who_does_not_run_for_a_minute_is_told_once(machine: Path) -> None:
    has_run(machine, 6, 100)
    [event] = looked(machine, *[rows((6, "D", 1), (7, "R", 2))] * 20)
    assert event[:3] == (KIND, "nfsd", "thread 6 of process 5 waits in rpc_wait_bit_killable for 60 s")


@pytest.mark.parametrize(
    "between",
    [rows((6, "R", 1)), rows(), rows((6, "D", 9)), rows((6, "D", 1), start=4)],
    ids=["ran", "was gone", "waits elsewhere", "is another"],
)
def test_who_does_something_else_in_between_begins_anew(machine: Path, between: Records) -> None:
    has_run(machine, 6, 100)
    waits = rows((6, "D", 1))
    assert looked(machine, *[waits] * 5, between, *[waits] * 6) == []


def test_who_runs_between_looks_is_not_stuck_until_it_stays(machine: Path) -> None:
    host, stuck = Host(str(machine)), StuckThreads()
    for number in range(30):
        has_run(machine, 6, min(number, 14))
        stuck.look(host, rows((6, "D", 1)), 1000.0 + number * 10)
    [event] = host.take_events()
    assert event.text.endswith("for 60 s")


def test_between_two_looks_nothing_is_looked_at(machine: Path) -> None:
    has_run(machine, 6, 100)
    assert looked(machine, *[rows((6, "D", 1))] * 59, pace_s=1.0) == []
    assert len(looked(machine, *[rows((6, "D", 1))] * 90, pace_s=1.0)) == 1


def test_who_cannot_be_asked_is_no_news(machine: Path) -> None:
    assert looked(machine, *[rows((6, "D", 1))] * 20) == []


def test_how_many_are_asked_is_bounded(machine: Path) -> None:
    crowd = [(tid, "D", 1) for tid in range(6, 6 + 2 * ASKED_MAX)]
    for tid, _, _ in crowd:
        has_run(machine, tid, 100)
    readings = [rows(*crowd)] * (1 + int(STUCK_S) // 10)
    assert len(looked(machine, *readings)) == ASKED_MAX
    assert looked(machine, *[rows(*[(1, "R", 1)] * LOOKED_AT_MAX, (6, "D", 1))] * 20) == []


def test_a_real_thread_that_waits_is_found(tmp_path: Path) -> None:
    host, stuck, looks = Host(), StuckThreads(), Looks("")
    with waiting(tmp_path) as pid:
        for number in range(8):
            stuck.look(host, looks.take(full=True)[0], 1000.0 + number * 10)
        events = [event for event in host.take_events() if f" of process {pid} " in event.text]
        os.close(os.open(f"{tmp_path}/pipe", os.O_WRONLY))
    assert [event.kind for event in events] == [KIND]
