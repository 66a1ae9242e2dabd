# SPDX-License-Identifier: Apache-2.0
"""Probes that sleep, spin, raise, crash and block, under a real daemon: each costs itself only, and is told about."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.base.model import Cause
from sysmond.base.result import Event
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import control
from tests.daemon.test_daemon import Place
from tests.support.order import first
from tests.support.waiting import HANG_S, wait_until

SECOND = 1_000_000_000
STILL_S = 7.0

PROBE = '''
"""A probe that misbehaves."""
import ctypes, os, sys, time
from sysmond.probe import Option, Probe, Table, counter, hookimpl

def read(host{parameters}):
    if os.path.exists({trigger!r}):
        {body}
    yield "", ({value},)

@hookimpl
def sysmond_probes():
    table = Table("{table}", (counter("count", "1", "A number."),))
    return [Probe(table, read, deadline_s={deadline_s}{more})]
'''


class Trial(Place):
    """A place whose probes are made by the test."""

    def __init__(self, runtime: Path, tmp_path: Path) -> None:
        super().__init__(runtime, tmp_path)
        self.probes = tmp_path / "config/sysmond/probes"
        self.probes.mkdir(parents=True)
        self.trigger = tmp_path / "trigger"

    def offer(
        self, table: str, body: str, *, value: str = "1", deadline_s: float = 0.5, parameters: str = "", more: str = ""
    ) -> None:
        text = PROBE.format(
            trigger=str(self.trigger),
            table=table,
            body=body,
            value=value,
            deadline_s=deadline_s,
            parameters=parameters,
            more=more,
        )
        (self.probes / f"{table}.py").write_text(text)

    def configure(self, **probes: str) -> None:
        lines = [f"  {table}: {{{said}}}\n" for table, said in probes.items()]
        self.configuration.write_text("probes:\n" + "".join(lines))

    def ask(self, part: str, **order: object) -> control.Order:
        return control.ask(f"{self.folders.runtime}/{part}", order, 30.0)

    def events(self, *kinds: str) -> list[Event]:
        try:
            found = Archive(self.folders).events()
        except Error:
            return []
        return [event for event in found if event.kind in kinds]

    def events_of(self, table: str, *kinds: str) -> list[Event]:
        """Those of one table: where the machine is busy, ours may be late and blamed, too."""
        return [event for event in self.events(*kinds) if event.subject == table]

    def causes(self, table: str) -> set[Cause]:
        gaps = Archive(self.folders).select(f"{table}/*", raw=True).gaps
        return {gap.cause for gap in gaps if gap.table == table}

    def finish(self) -> None:
        """The daemon is as well as ever, and ends in order."""
        self.wait_for_ticks("memory/total", 2)
        self.processes[-1].send_signal(signal.SIGTERM)
        assert self.processes[-1].wait(HANG_S) == 0, self.said()
        wait_until(lambda: not self.alive())
        assert [line for line in self.said() if "Traceback" in line] == []


@pytest.fixture
def trial(runtime: Path, tmp_path: Path) -> Iterator[Trial]:
    made = Trial(runtime, tmp_path)
    try:
        yield made
    finally:
        made.end()


HARMS: dict[str, tuple[str, str]] = {
    "sleeping": ("time.sleep(3600)", "no answer within"),
    "spinning": ("while True: pass", "no answer within"),
    "crashing": ("ctypes.string_at(0)", "its process ended (SIGSEGV)"),
    "leaving": ("os._exit(3)", "its process ended (exit code 3)"),
    "blocked": ("open(FIFO).read()", "no answer within"),
    "holding": ("ctypes.PyDLL(None).sleep(3600)", "no answer within"),  # Not even its other threads go on.
}


@pytest.mark.long
def test_each_is_put_into_quarantine_and_the_others_go_on(trial: Trial, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for table, (body, _) in HARMS.items():
        trial.offer(table, body.replace("FIFO", repr(str(tmp_path / "fifo"))))
    trial.offer("raising", 'raise ValueError("no such luck")')
    trial.offer("chatting", 'print("hello", flush=True)', value="7")
    tables = [*HARMS, "raising", "chatting"]
    trial.configure(**dict.fromkeys(tables, "interval: 1s"), filesystem="interval: 1s")
    trial.start()
    for table in tables:
        trial.wait_for_ticks(f"{table}/count")
    trial.trigger.touch()
    wait_until(lambda: {event.subject for event in trial.events("quarantine")} >= set(HARMS))
    trial.wait_for_ticks("chatting/count", 2)
    trial.wait_for_ticks("filesystem/size", 2)
    assert trial.ticks("memory/total") > 3
    # Where the machine is busy a table of ours may be late, too.
    told = {event.subject: event.text for event in trial.events("quarantine")}
    assert all(reason in told[table] for table, (_, reason) in HARMS.items())
    wait_until(lambda: all(Cause.QUARANTINED in trial.causes(table) for table in HARMS))
    assert Cause.PROBE_FAILED in trial.causes("raising")
    assert Cause.QUARANTINED not in trial.causes("raising")
    conduct = json.loads(Path(trial.folders.runtime, "background/conduct.json").read_text())
    assert conduct["tables"].keys() >= HARMS.keys()
    assert not {"raising", "chatting"}.intersection(conduct["tables"])
    assert trial.ask("background", do="forgive", table="crashing") == {"ok": True}
    assert trial.ask("background", do="forgive", table="raising") == {"ok": False}
    assert "crashing" in {event.subject for event in trial.events("released")}
    trial.finish()


def test_a_probe_that_is_slow_is_recorded_at_its_next_tick(trial: Trial) -> None:
    trial.offer("slow", "time.sleep(1.2)", deadline_s=0.2)
    trial.configure(slow="interval: 2s")
    trial.trigger.touch()
    trial.start()
    trial.wait_for_ticks("slow/count", 3)
    assert trial.events_of("slow", "stuck", "quarantine") == []
    trial.finish()


def test_what_ends_its_lane_twice_is_not_read_again_for_a_while(trial: Trial) -> None:
    trial.offer("deadly", "ctypes.string_at(0)")
    trial.configure(deadly="interval: 1s, lane: realtime")
    trial.start()
    trial.wait_for_ticks("deadly/count")
    trial.trigger.touch()
    wait_until(lambda: trial.events_of("deadly", "quarantine"))
    trial.wait_for_ticks("memory/total", 3)
    wait_until(lambda: Cause.QUARANTINED in trial.causes("deadly"))
    assert sum("sampler ended (SIGSEGV)" in line for line in trial.said()) == 2, trial.said()
    trial.finish()


LONG: dict[str, tuple[str, str]] = {
    "spinning": ("while True: pass", "was interrupted"),
    # The kernel holds the parent of a child that has not begun its program yet: vfork(2).
    "held": (
        "os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, FIFO, os.O_RDONLY, 0)])",
        "did not come to an end",
    ),
    "blocked": ("open(FIFO).read()", "was interrupted"),
}  # fmt: skip


@pytest.mark.parametrize("table", first(1, LONG))
def test_what_takes_long_on_the_real_time_lane_is_interrupted_or_killed_once(
    trial: Trial, tmp_path: Path, table: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    body, reason = LONG[table]
    trial.offer(table, body.replace("FIFO", repr(str(tmp_path / "fifo"))))
    trial.configure(**{table: "interval: 1s, lane: realtime"})
    trial.start()
    trial.wait_for_ticks(f"{table}/count", 2)
    sampler = trial.pid("sampler")
    trial.trigger.touch()
    wait_until(lambda: trial.events_of(table, "moved"))
    trial.wait_for_ticks("memory/total", 3)
    [moved] = trial.events_of(table, "moved")
    assert reason in moved.text
    assert (trial.pid("sampler") == sampler) == (reason == "was interrupted"), trial.said()
    wait_until(lambda: trial.events_of(table, "stuck"))  # There, too, and there alone.
    os.close(os.open(tmp_path / "fifo", os.O_RDWR))  # The children that wait for it go on, and end.
    trial.finish()


def test_what_takes_long_at_its_very_first_reading_is_interrupted(trial: Trial) -> None:
    trial.offer("sleeping", "time.sleep(3600)")
    trial.configure(sleeping="interval: 1s, lane: realtime")
    trial.trigger.touch()
    trial.start()
    wait_until(lambda: trial.events_of("sleeping", "moved"))
    trial.wait_for_ticks("memory/total", 3)
    assert not any("sampler ended" in line for line in trial.said())
    trial.finish()


def test_a_machine_that_stood_still_moves_nobody(trial: Trial) -> None:
    trial.offer("slow", "time.sleep(0.6)", deadline_s=5.0)
    trial.configure(slow="interval: 1s, lane: realtime")
    trial.trigger.touch()
    trial.start()
    trial.wait_for_ticks("slow/count")
    for number, still_s in ((signal.SIGSTOP, STILL_S), (signal.SIGCONT, 0.0)):
        for pid in (trial.processes[-1].pid, trial.pid("sampler"), trial.pid("background")):
            os.kill(pid, number)
        time.sleep(still_s)
    trial.wait_for_ticks("slow/count", 5)
    blamed = {event.subject for event in trial.events("moved", "stuck", "quarantine", "died")}
    assert blamed.isdisjoint({"slow", "sampler"})
    trial.finish()


def test_what_overruns_its_deadline_is_moved_to_the_background_until_forgiven(trial: Trial) -> None:
    trial.offer("late", "time.sleep(0.03)", deadline_s=0.01)
    trial.configure(late="interval: 1s, lane: realtime")
    trial.trigger.touch()
    trial.start()
    wait_until(lambda: trial.events_of("late", "moved"))
    trial.wait_for_ticks("late/count", 4)
    conduct = json.loads(Path(trial.folders.runtime, "sampler/conduct.json").read_text())
    assert conduct["tables"]["late"]["moved"]
    trial.kill("sampler")  # The next one knows.
    trial.wait_for_ticks("memory/total", 2)
    assert "late" not in str(trial.ask("sampler", do="hold", tables=["late"], interval_ns=SECOND, seconds=1))
    assert trial.ask("background", do="hold", tables=["late"], interval_ns=SECOND, seconds=1)["tables"] == ["late"]
    assert trial.ask("sampler", do="forgive", table="late") == {"ok": True}
    assert trial.ask("sampler", do="hold", tables=["late"], interval_ns=0, seconds=0)["tables"] == ["late"]
    wait_until(lambda: len(trial.events_of("late", "moved")) == 2)
    assert Cause.DISABLED not in trial.causes("late")
    trial.finish()
