# SPDX-License-Identifier: Apache-2.0
"""A whole machine with systemd as process 1: sysmond as a service of it, and what is recorded of the others.

For the lab (``make lab``): it installs a policy of the system bus and starts units.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sysmond.base.model import ABSENT
from sysmond.tasks.bpf.loader import PROGRAMS
from tests.lab.sensed import SERVICE, as_service, run, shown
from tests.support.waiting import wait_until
from tests.support.whole import Recorder

BURNING = [sys.executable, "-I", "-S", "-c", "while True: pass"]


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    with as_service(tmp_path_factory.mktemp("recorder")) as made:
        made.wait_for("process", f"pid = {os.getpid()}", "pid")
        yield made


@contextmanager
def unit(name: str, *words: str) -> Iterator[int]:
    """Run a unit of systemd, and give its process."""
    run("systemd-run", "--quiet", f"--unit={name}", *words)
    try:
        yield int(shown(name, "MainPID")[0])
    finally:
        run("systemctl", "stop", name)


def processes() -> dict[int, tuple[int, str]]:
    """Parent and name of each process, by their own files."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                before, _, after = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(") ")
                found[int(name)] = int(after.split()[1]), before.partition(" (")[2]
    return found


def test_every_program_runs_on_this_kernel(recorder: Recorder) -> None:
    told = json.loads(Path(recorder.folders.runtime, "bpf.json").read_text())["programs"]
    # ``iterate`` is for those without ``snapshot``.
    assert told == {each.name: {"ok": True} for each in PROGRAMS if not each.unless}


def test_the_doctor_finds_the_best_ways_over_the_system_bus(recorder: Recorder) -> None:
    def doctor() -> str:
        words = [sys.executable, "-P", "-m", "sysmon_tools.ctl", "doctor", "--json"]
        return subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True).stdout

    wait_until(lambda: "by BPF" in doctor(), doctor)
    told = json.loads(doctor())
    found = {each["source"]: (each["state"], each["reason"]) for each in told}
    assert found["process"] == ("there", "by BPF, snapshot")
    assert found["exits"] == ("there", "by BPF")
    assert found["real-time scheduling"][0] == found["locked memory"][0] == "there"
    missing = {name for name, (state, _) in found.items() if name.startswith("BPF program") and state != "there"}
    assert missing == set()


def test_process_1_and_the_threads_of_the_kernel_are_there(recorder: Recorder) -> None:
    before = processes()
    with subprocess.Popen(["true"]) as last:
        last.wait()
    recorder.wait_for("exits", f"pid = {last.pid}", "pid")
    rows = {row["pid"]: (row["ppid"], row["comm"]) for row in recorder.records("process", "pid,ppid,comm")}
    after = processes()
    stayed = {pid: words for pid, words in before.items() if after.get(pid) == words}
    assert rows[1] == (0, "systemd")
    assert rows[2] == (0, "kthreadd")
    # /proc tells more of the name of a thread that works for others.
    wrong = {pid: (words, rows.get(pid)) for pid, words in stayed.items()
             if pid not in rows or rows[pid][0] != words[0] or not words[1].startswith(rows[pid][1])}  # fmt: skip
    assert wrong == {}
    assert sum(1 for parent, _ in stayed.values() if parent == 2) > 20


@pytest.mark.parametrize(
    ("name", "words", "path", "within"),
    [
        ("lab-plain.service", [], "/system.slice/lab-plain.service", "system.slice"),
        (
            "lab-sliced.service",
            ["--slice=lab-inner.slice"],
            "/lab.slice/lab-inner.slice/lab-sliced.service",
            "lab-inner.slice",
        ),
        ("lab@a\\x2db.service", [], "/system.slice/system-lab.slice/lab@a\\x2db.service", "system-lab.slice"),
    ],
)
def test_a_process_belongs_to_its_unit_and_slice(
    recorder: Recorder, name: str, words: list[str], path: str, within: str
) -> None:
    with unit(name, *words, "sleep", "1000") as pid:
        assert shown(name, "ControlGroup", "Slice") == [path, within]
        recorder.wait_for("process", f'pid = {pid} and cgroup_path = "{path}"', "pid")
        (row,) = recorder.records("process", "unit,slice,cgroup_path,comm", where=f"pid = {pid}")
        assert (row["unit"], row["slice"], row["cgroup_path"]) == (name, within, path)
        grouped = recorder.extract("process", "--from=-1min", "--group-by=slice,unit", "--format=csv")
        assert grouped.code == 0, grouped.err
        # In CSV a backslash is doubled, so that escapes can be undone.
        assert (within, name.replace("\\", "\\\\")) in {(row["slice"], row["unit"]) for row in grouped.rows}


def test_a_container_is_known_by_its_scope(recorder: Recorder) -> None:
    ident = "0123456789abcdef" * 4
    words = ["systemd-run", "--quiet", "--scope", "--slice=system.slice", f"--unit=docker-{ident}.scope"]
    with subprocess.Popen([*words, "sleep", "1000"]) as scope:
        recorder.wait_for("process", f"pid = {scope.pid} and container = {ident}", "pid")
        (row,) = recorder.records("process", "container,runtime,comm", where=f"pid = {scope.pid}")
        assert row["runtime"] == "docker"
        scope.terminate()


def test_who_is_logged_in_is_known_by_session(recorder: Recorder) -> None:
    """The console logs root in by itself."""
    wait_until(lambda: run("loginctl", "list-sessions", "--no-legend"))
    session = run("loginctl", "list-sessions", "--no-legend").split()[0]
    leader, scope = (run("loginctl", "show-session", "--value", f"--property={each}", session).strip()
                     for each in ("Leader", "Scope"))  # fmt: skip
    (row,) = recorder.wait_for("process", f"pid = {leader} and session = {session}", "session,unit,slice")
    assert (row["session"], row["unit"], row["slice"]) == (session, scope, "user-0.slice")


def test_units_of_a_users_systemd_are_known(recorder: Recorder) -> None:
    run("systemctl", "start", "user@0.service")
    root = "/user.slice/user-0.slice/user@0.service"
    inner = Path(f"/sys/fs/cgroup{root}/init.scope/cgroup.procs").read_text().split()[0]
    (row,) = recorder.wait_for("process", f"pid = {inner} and user_unit = init.scope", "unit,slice,cgroup_path")
    assert (row["unit"], row["slice"], row["cgroup_path"]) == ("user@0.service", "user-0.slice", f"{root}/init.scope")


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 42", 42, 0), ("kill -KILL $$", ABSENT, signal.SIGKILL), ("kill -TERM $$", ABSENT, signal.SIGTERM)],
)
def test_a_unit_ended_as_systemd_says(recorder: Recorder, script: str, code: int, number: int) -> None:
    name = f"lab-ended-{number or code}.service"
    words = ["--property=RemainAfterExit=yes", "--expand-environment=no", "sh", "-c", script]
    run("systemd-run", "--quiet", f"--unit={name}", *words)
    wait_until(lambda: shown(name, "SubState")[0] in {"failed", "exited"})
    pid, status, *_ = map(int, shown(name, "ExecMainPID", "ExecMainStatus"))
    assert status == (number or code)
    (row,) = recorder.wait_for("exits", f"pid = {pid}", "exit_code,signal,comm,cgroup_path")
    assert (row["exit_code"], row["signal"], row["comm"]) == (code, number, "sh")
    with suppress(subprocess.CalledProcessError):
        run("systemctl", "reset-failed", name)


def test_who_uses_most_is_told_first(recorder: Recorder) -> None:
    with unit("lab-burning.service", *BURNING) as pid:
        where = f"pid = {pid} and cpu > 50% and unit = lab-burning.service"
        recorder.wait_for("process", where, "pid,cpu,unit", start="-10s")
        # Asking costs as much here.
        asked = ["process", "--from=-10s", "--top=3", "--by=cpu", "--where=not unit = lab.service", "--format=csv"]
        told = recorder.extract(*asked, "--columns=pid,unit,cpu")
        assert told.code == 0, told.err
        assert (told.rows[0]["pid"], told.rows[0]["unit"]) == (str(pid), "lab-burning.service"), told.rows
        told = recorder.extract(*asked, "--group-by=unit")
        assert told.rows[0]["unit"] == "lab-burning.service"


def test_what_ends_while_the_service_is_dead_is_recorded(recorder: Recorder) -> None:
    before = int(shown(SERVICE, "MainPID")[0])
    os.kill(before, signal.SIGKILL)
    made = {}
    for code in range(20):
        with subprocess.Popen(["sh", "-c", f"exit {code}"]) as child:
            child.wait()
        made[child.pid] = code
    wait_until(lambda: int(shown(SERVICE, "MainPID")[0]) not in {0, before})
    where = " or ".join(f"pid = {pid}" for pid in made)
    wait_until(lambda: {row["pid"]: row["exit_code"] for row in recorder.records("exits", "pid,exit_code", where=where)}
               == made, lambda: shlex.join(["journalctl", "-u", SERVICE]))  # fmt: skip
    assert shown(SERVICE, "NRestarts") == ["1"]
