# SPDX-License-Identifier: Apache-2.0
"""sysmonctl hold, with a bus and without: probes read at another interval while a command runs, and no longer."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

from sysmon_tools import ctl, extract
from tests.support import onbus, whole
from tests.support.order import first
from tests.support.waiting import HANG_S, wait_until

PROGRAM = [sys.executable, "-P", "-m", "sysmon_tools.ctl"]
BACK_S = 30.0


class Place(NamedTuple):
    """A recorder that runs: the options that name it, and those that name its archive."""

    where: tuple[str, ...]
    archive: tuple[str, str]
    said: Callable[[], str]

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*PROGRAM, *self.where, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)

    def interval_s(self) -> float:
        """How often ``load`` is read now."""
        done = self.ask("--json", "list", "metrics")
        listed = json.loads(done.stdout) if done.stdout else []
        return next((metric["interval_s"] for metric in listed if metric["path"] == "load/tasks"), 0.0)

    @contextmanager
    def holding(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Hold meanwhile; it has said so when this begins."""
        command = [*PROGRAM, *self.where, "hold", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="module", params=first(1, ["bus", "direct"]))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        if request.param == "bus":
            if shutil.which("dbus-daemon") is None:
                pytest.skip("no dbus-daemon here")
            bus = stack.enter_context(onbus.a_bus())
            on_bus = stack.enter_context(onbus.a_recorder(bus))
            archive = f"--state-dir={on_bus.folders.state}", f"--runtime-dir={on_bus.folders.runtime}"
            made = Place(("--bus", bus.address, "--user"), archive, on_bus.said)
        else:
            alone = stack.enter_context(whole.a_recorder())
            alone.start()
            made = Place(alone.where(), alone.where(), alone.said)
        wait_until(lambda: made.interval_s() == 1.0, made.said)
        yield made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_probe_is_read_less_often_until_it_is_interrupted(place: Place, number: signal.Signals) -> None:
    with place.holding("load", "cpu", "--interval=30s", "--why=on battery") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "load, cpu: read every 30s; until Ctrl-C\n"
        wait_until(lambda: place.interval_s() == BACK_S, place.said)
        process.send_signal(number)
        assert process.wait(HANG_S) == 0
    wait_until(lambda: place.interval_s() == 1.0, place.said)

    def gaps() -> str:
        words = ["load/tasks", "--from=-5min", "--format=csv", *place.archive]
        return whole.run_as(None, lambda: extract.main(words)).out.decode()

    wait_until(lambda: "held back" in gaps(), gaps)
    assert "read every 30 s for sysmonctl: on battery" in gaps()


def test_a_probe_is_read_more_often_while_a_command_runs(place: Place) -> None:
    command = [
        *PROGRAM,
        *place.where,
        "hold",
        "load",
        "--interval=100ms",
        "--",
        "sh",
        "-c",
        "echo runs; read x; exit 3",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "runs\n"
        wait_until(lambda: place.interval_s() == 0.1, place.said)
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(HANG_S) == 3
    wait_until(lambda: place.interval_s() == 1.0, place.said)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["true"], 0, ""),
        (["sh", "-c", "exit 7"], 7, ""),
        (["sh", "-c", "kill -9 $$"], 137, ""),
        (["/nowhere/is-this"], 127, "sysmonctl: /nowhere/is-this: no such command\n"),
        (["/dev/null"], 126, "sysmonctl: /dev/null: not started: Permission denied\n"),
    ],
)
def test_the_exit_code_is_that_of_the_command(place: Place, command: list[str], code: int, says: str) -> None:
    done = place.ask("hold", "--no-flush", "load", "--interval=10s", "--", *command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", says)


def test_a_hold_ends_with_its_command_and_leaves_the_disk_alone_meanwhile(place: Place) -> None:
    with place.holding("--no-flush", "--json") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said == {"probes": [], "interval_ns": 0, "no_flush": True}
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_S) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "missing: --interval (how often they are read meanwhile), or --no-flush"),
        (["load", "--no-flush"], "missing: --interval (how often they are read meanwhile)"),
        (["lode", "--interval=10s"], "there is no probe 'lode'; did you mean load"),
        (["load", "--interval=2min"], "--interval '2min': expected 1s to 60s for load"),
        (["--interval=100ms"], "--interval '100ms': expected 1s to 60s"),
        (["load", "--interval=soon"], "--interval 'soon': expected a length of time such as 10s, from 1s to 60s"),
        (["load", "--interval=0"], "--interval '0': expected a length of time such as 10s, from 1s to 60s"),
    ],
)
def test_what_cannot_be_done_is_one_line(place: Place, words: list[str], says: str) -> None:
    done = place.ask("hold", *words, "--", "echo", "never")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"sysmonctl: {says}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "own", "command"),
    [
        (["hold", "load", "--", "sleep", "--", "1"], ["hold", "load"], ["sleep", "--", "1"]),
        (["--bus", "session", "hold", "--", "hold"], ["--bus", "session", "hold"], ["hold"]),
        (["mark", "hold", "--", "-x"], ["mark", "hold", "--", "-x"], []),
        (["hold", "load"], ["hold", "load"], []),
    ],
)
def test_what_follows_two_dashes_is_the_command(words: list[str], own: list[str], command: list[str]) -> None:
    assert ctl.with_command(words) == (own, command)
