# SPDX-License-Identifier: Apache-2.0
"""The daemon with BPF programs: loaded before it begins, kept while it is killed, gone when it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sysmon_tools.moment import of_now, processes
from sysmon_tools.screen.look import Look, opened
from sysmon_tools.screen.question import Questions
from sysmond.base.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import control
from sysmond.plan.plan import import_plugin, offered_probes
from sysmond.rollup.keys_in_buckets import LEFT_OVER_NS
from sysmond.tasks import syscalls
from sysmond.tasks.bpf.launch import TABLES
from tests.support.pinned import why_not
from tests.support.threadticks import ThreadTicks
from tests.support.waiting import HANG_S, wait_until
from tests.support.whole import Recorder, a_recorder
from tests.tasks.proc.test_proc_states import busy, spin, waiting

REPOSITORY = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF")


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        yield made


def exits(recorder: Recorder) -> dict[int, int]:
    """Exit codes by process number, of the processes that ended lately."""
    return {row["pid"]: row["exit_code"] for row in recorder.records("exits", "pid,exit_code", start="-10min")}


def here(recorder: Recorder) -> set[int]:
    return {row["pid"] for row in recorder.records("process", "pid", start="-10min")}


def pinned(recorder: Recorder) -> list[str]:
    with suppress(FileNotFoundError):
        return os.listdir(recorder.pins())
    return []


def ended(code: int) -> int:
    """Have a process end with this code, and give its number."""
    with subprocess.Popen(["sh", "-c", f"exit {code}"]) as process:
        process.wait()
    return process.pid


def test_programs_are_loaded_before_the_parts_begin_and_gone_when_they_end(recorder: Recorder) -> None:
    process = recorder.start()
    wait_until(lambda: os.path.exists(f"{recorder.folders.runtime}/sampler/pid"))
    report = json.loads(Path(recorder.folders.runtime, "bpf.json").read_text())
    assert report["programs"]["ended"] == {"ok": True}
    assert {"ended", "exits", "process_rows"} <= set(pinned(recorder))
    wait_until(lambda: os.getpid() in here(recorder))
    process.terminate()
    assert process.wait(HANG_S) == 0
    assert pinned(recorder) == []
    assert os.getpid() in here(recorder)  # From the disk, too.


def test_no_process_that_ends_is_missed_while_the_sampler_is_killed(recorder: Recorder) -> None:
    recorder.start()
    wait_until(lambda: os.getpid() in here(recorder))
    made: dict[int, int] = {}
    for number in range(3):
        before = recorder.pid("sampler")
        os.kill(before, signal.SIGKILL)
        made.update((ended(code), code) for code in range(number * 20, number * 20 + 20))
        wait_until(lambda before=before: recorder.pid("sampler") != before)  # type: ignore[misc]
    wait_until(lambda: made.items() <= exits(recorder).items())


def test_what_ends_while_no_daemon_runs_is_in_the_next_ones_records(recorder: Recorder) -> None:
    daemon = recorder.start()
    wait_until(lambda: os.getpid() in here(recorder))
    parts = [recorder.pid(part) for part in ("sampler", "background", "archiver")]
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in parts))
    pid = ended(77)
    recorder.start()
    wait_until(lambda: exits(recorder).get(pid) == 77)


def killed(recorder: Recorder) -> None:
    """Kill a daemon and all its parts at once, as a machine short of memory does."""
    (daemon,) = recorder.processes
    parts = [recorder.pid(part) for part in ("sampler", "background", "archiver")]
    for pid in (daemon.pid, *parts):
        os.kill(pid, signal.SIGKILL)
    daemon.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in parts))
    recorder.processes.clear()


def test_what_stays_in_the_kernel_after_everything_was_killed_is_cleared_by_the_next_start(recorder: Recorder) -> None:
    """Even one that wants no programs: nobody else would, and they would run for ever."""
    recorder.start()
    wait_until(lambda: os.getpid() in here(recorder))
    killed(recorder)
    assert {"ended", "exits"} <= set(pinned(recorder))
    without_tables(recorder)
    recorder.start()
    wait_until(lambda: not pinned(recorder))
    assert not os.path.exists(f"{recorder.folders.runtime}/bpf.json")


def test_programs_are_gone_once_a_reload_wants_none(recorder: Recorder) -> None:
    recorder.start()
    wait_until(lambda: os.getpid() in here(recorder))
    without_tables(recorder)
    reload(recorder)
    assert pinned(recorder) == []
    recorder.config.write_text("{}\n")
    reload(recorder)
    assert {"ended", "exits"} <= set(pinned(recorder))


def reload(recorder: Recorder) -> None:
    command = [sys.executable, "-P", "-m", "sysmond", "reload", "--state-dir", recorder.folders.state]
    subprocess.run([*command, "--runtime-dir", recorder.folders.runtime], check=True, timeout=HANG_S)


def test_threads_that_are_turned_on_later_are_loaded_then(recorder: Recorder) -> None:
    recorder.start()
    wait_until(lambda: os.getpid() in here(recorder))
    recorder.config.write_text("probes: {process: {options: {threads: true}}}\n")
    with subprocess.Popen([sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        reload(recorder)
        wait_until(lambda: threads(recorder, process.pid) == 21)
        process.terminate()


THREADS = """
import threading
for _ in range(20):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
input()
"""


def threads(recorder: Recorder, pid: int) -> int:
    return len({row["tid"] for row in recorder.records("thread", "tid", start="-1min", where=f"pid = {pid}")})


def test_an_ordinary_users_folders_ask_for_no_programs(recorder: Recorder) -> None:
    process = recorder.start("--user", "--ticks", "2")
    assert process.wait(HANG_S) == 0
    assert not os.path.exists(f"{recorder.folders.runtime}/bpf.json")
    assert pinned(recorder) == []
    assert os.getpid() in here(recorder)


def without_tables(recorder: Recorder) -> None:
    """Have the configuration turn off all that BPF programs serve."""
    there = [f"sysmond_probes.{path.stem}" for path in (REPOSITORY / "probes").glob("[a-z]*.py")]
    tables = TABLES & {probe.table.name for plugin in there for probe in offered_probes(import_plugin(plugin))}
    recorder.config.write_text("probes:\n" + "".join(f"  {table}: {{enabled: false}}\n" for table in tables))


def test_without_the_tables_nothing_is_loaded(recorder: Recorder) -> None:
    without_tables(recorder)
    process = recorder.start("--ticks", "2")
    assert process.wait(HANG_S) == 0
    assert not os.path.exists(f"{recorder.folders.runtime}/bpf.json")


@pytest.mark.long
def test_threads_are_looked_at_ten_times_a_second_for_as_long_as_that_is_held(recorder: Recorder) -> None:
    recorder.config.write_text("incidents: {bursts: none}\n")  # Whatever the machine goes through just now.
    ticks = ThreadTicks(recorder)
    with busy(spin, "R") as pid:
        recorder.start()
        wait_until(ticks.seen)
        assert not ticks.between_seconds()
        sampler = f"{recorder.folders.runtime}/sampler"
        order: control.Order = {"do": "hold", "tables": ["thread_state"], "interval_ns": SECOND_NS // 10, "seconds": 60}
        assert control.ask(sampler, order, HANG_S)["tables"] == ["thread_state"]
        wait_until(lambda: len(ticks.between_seconds()) >= 20)
        assert not any(tick % (SECOND_NS // 10) for tick in ticks.seen())
        control.ask(sampler, {**order, "interval_ns": 0}, HANG_S)
        last = max(ticks.seen()) + SECOND_NS
        wait_until(lambda: max(ticks.seen()) > last + 3 * SECOND_NS)
        assert not any(tick % SECOND_NS for tick in ticks.seen() if tick > last)
        # What never sleeps was found running at every reading, whatever the rate was.
        at_least = len(ticks.seen())
        archive = Archive(recorder.folders)
        found = archive.records("thread_state", start="-10min", group_by="state", where=f"pid = {pid}").records
    assert [row["state"] for row in found] == ["R"]
    assert at_least <= found[0]["count"] <= len(ticks.seen())


def test_who_waits_uninterruptibly_is_recorded_with_call_and_stack(recorder: Recorder, tmp_path: Path) -> None:
    def found() -> list[tuple[str, str, str]]:
        columns = "syscall_name,wchan,functions"
        try:
            archive = Archive(recorder.folders)
            rows = archive.records("thread_state", start="-10min", columns=columns, where=f"pid = {pid}").records
        except Error:
            return []
        return [(row["syscall_name"], row["wchan"], row["functions"]) for row in rows]

    with waiting(tmp_path) as pid:
        wait = Path(f"/proc/{pid}/wchan").read_text()
        call = syscalls.name(int(Path(f"/proc/{pid}/syscall").read_text().split()[0]))
        recorder.start()
        wait_until(lambda: len(found()) >= 2)
        for row in found():
            assert row[:2] == (call, wait)
            assert wait in row[2].split(";")


KILLING = "import os, sys; os.kill(int(sys.argv[1]), 15)"


def test_who_ends_another_is_in_its_row_and_an_event(recorder: Recorder) -> None:
    recorder.start()
    wait_until(lambda: os.getpid() in here(recorder))
    with subprocess.Popen(["sleep", "600"]) as victim:
        with subprocess.Popen([sys.executable, "-IS", "-c", KILLING, str(victim.pid)]) as sender:
            sender.wait()
        victim.wait()
    of_it = f"pid = {victim.pid} and sender_command ~ {victim.pid}$"
    (row,) = recorder.wait_for("exits", of_it, "signal_name,sender_pid,sender_comm")
    assert (row["signal_name"], row["sender_pid"]) == ("SIGTERM", sender.pid)
    (event,) = recorder.wait_for("event", 'kind = "killed"', "subject,text")
    us = os.getuid()
    said = f"SIGTERM by {row['sender_comm']}, process {sender.pid} of user {us}"
    assert (event["subject"], event["text"]) == ("sleep", f"process {victim.pid} of user {us}: {said}")


def test_a_zombie_is_listed_until_its_parent_has_waited_and_no_longer(recorder: Recorder) -> None:
    """Of what runs now rings tell, which do not say themselves what remains after its end."""
    recorder.start()
    child = subprocess.Popen(["sleep", "2"])

    def states() -> list[str]:
        return [
            row["state"] for row in recorder.records("process", "pid,state", where=f"pid = {child.pid}", start="-1s")
        ]

    wait_until(lambda: states() == ["Z"])
    time.sleep(LEFT_OVER_NS / SECOND_NS + 2)  # What is listed shortly after its end was on its way out.
    assert states() == ["Z"]
    child.wait()
    wait_until(lambda: not states())
    wait_until(lambda: os.getpid() in here(recorder))
    assert not states()


def test_who_was_seen_and_has_ended_is_marked_on_the_screen(recorder: Recorder) -> None:
    """Whatever it was doing when it was seen last."""
    recorder.start()
    wait_until(lambda: os.getpid() in here(recorder))
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy_one:
        wait_until(lambda: recorder.records("process", "pid", where=f"pid = {busy_one.pid} and state = R", start="-1s"))
        busy_one.kill()
    archive = Archive(recorder.folders)

    def states() -> tuple[str | None, str | None, list[str]]:
        """Its state, and that of who runs on, in the view of processes; and its own in the overview."""
        view, now_ns = of_now(time.time_ns())._replace(zoom=1), time.time_ns()
        rows = Questions(archive).page(opened(Look(view), "processes"), now_ns).rows
        shown = {cells["pid"]: cells["state"] for cells in map(rows.cells, range(len(rows.order)))}
        shares = [share.state for share in processes(archive, view) if share.pid == busy_one.pid]
        return shown.get(str(busy_one.pid)), shown.get(str(os.getpid())), shares

    wait_until(lambda: states()[0] == "ended")
    _, of_us, shares = states()
    assert of_us != "ended"
    assert shares == [""]
