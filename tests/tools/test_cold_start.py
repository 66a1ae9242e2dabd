# SPDX-License-Identifier: Apache-2.0
"""What a program imports for an answer: numpy and h5py take most of the time of many, so only where they are needed."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sysmon_tools import ctl
from tests.support.order import first
from tests.support.waiting import HANG_S, wait_until
from tests.support.whole import Recorder, a_recorder

NUMBERS = {"numpy", "h5py"}
# What else takes long, and is for who makes a plan, speaks to a bus or draws.
HEAVY = {*NUMBERS, "yaml", "pluggy", "importlib.metadata", "asyncio", "dbus_fast", "rich", "subprocess"}
# What a few series of the last minutes need none of: what declares tables of processes, what reads a calendar, and what
# of the libraries is for those alone who write types.
NOT_FOR_SERIES = {
    "calendar",
    "numpy.typing",
    "shlex",
    "sysmon_tools.presets",
    "sysmond.base.calendar_times",
    "sysmond.probe",
    "sysmond.tasks.tables",
}
_SAYS = "import time:"


def imported(program: str, *words: str) -> set[str]:
    """The modules that a program imports, as it is installed, until it has answered."""
    command = [sys.executable, "-X", "importtime", os.path.join(sys.prefix, "bin", program), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith(_SAYS)}


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with a_recorder() as recorder:
        recorder.start()
        asking = [os.path.join(sys.prefix, "bin", "sysmon-extract"), "load/tasks", "--from=-3s", *recorder.where()]

        def is_answered() -> bool:
            answer = subprocess.run(asking, capture_output=True, text=True, check=False, timeout=HANG_S)
            return answer.returncode == 0 and "before recording" not in answer.stdout

        wait_until(is_answered, recorder.said)
        yield recorder


@pytest.mark.parametrize("program", ["sysmond", "sysmon", "sysmon-extract", "sysmonctl"])
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_needs_nothing_heavy(program: str, option: str) -> None:
    assert imported(program, option) & HEAVY == set()


def test_completion_needs_nothing_heavy(recorder: Recorder) -> None:
    assert imported("sysmonctl", "complete", "paths", "cpu/", *recorder.where()) & HEAVY == set()
    assert imported("sysmond", "pins", *recorder.where()) & HEAVY == set()


@pytest.mark.parametrize(
    "words", first(3, [("status",), ("events",), *(("list", what) for what in ctl.LISTS), ("config",), ("overhead",)])
)
def test_what_a_recorder_says_itself_needs_no_numbers(recorder: Recorder, words: tuple[str, ...]) -> None:
    # Where no terminal is, nothing is drawn.
    assert imported("sysmonctl", *words, *recorder.where()) & {*NUMBERS, "yaml", "pluggy", "rich"} == set()


@pytest.mark.parametrize(
    "words",
    first(1, [("status",), ("config",), ("overhead",), ("list", "probes"), ("list", "tables"), ("show", "load")]),
)
def test_what_files_of_a_recorder_say_needs_no_loop_and_no_bus_library(
    recorder: Recorder, words: tuple[str, ...]
) -> None:
    assert imported("sysmonctl", *words, *recorder.where()) & {*HEAVY, "inspect"} == set()


@pytest.mark.parametrize("words", first(1, [("load/tasks",), ("cpu", "--top=1"), ("memory/used", "--sample=2s")]))
def test_the_last_seconds_need_no_hdf5_though_there_are_files(recorder: Recorder, words: tuple[str, ...]) -> None:
    imported("sysmonctl", "flush", *recorder.where())
    assert imported("sysmon-extract", *words, "--from=-2s", *recorder.where()) & NUMBERS == {"numpy"}
    assert imported("sysmon-extract", *words, "--from=-1d", *recorder.where()) & NUMBERS == NUMBERS


def test_series_of_the_last_seconds_need_nothing_of_other_questions(recorder: Recorder) -> None:
    words = ("load/tasks", "cpu/user", "--from=-2s", "--sample=1s", *recorder.where())
    assert imported("sysmon-extract", *words) & {*HEAVY, *NOT_FOR_SERIES} == {"numpy"}


def test_what_has_a_calendar_is_imported_for_times_that_need_it(recorder: Recorder) -> None:
    asked = imported("sysmon-extract", "load/tasks", "--from=today", *recorder.where())
    assert asked & NOT_FOR_SERIES == {"calendar", "sysmond.base.calendar_times"}
