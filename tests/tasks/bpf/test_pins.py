# SPDX-License-Identifier: Apache-2.0
"""Maps of BPF programs as their readers see them: what is mapped is what is looked at, and nothing is missed for it."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sysmond.base.model import Lane, Sensitivity
from sysmond.errors import Error
from sysmond.machine.folders import Folders
from sysmond.plan.plan import Plan, PlannedProbe
from sysmond.plan.settings import Settings
from sysmond.records import record_bytes
from sysmond.tasks.bpf import loader, pins
from sysmond.tasks.bpf.launch import loader_command
from sysmond.tasks.bpf.pins import Array, Drain, PinnedProgram
from sysmond.tasks.bpf.states import BpfStates
from sysmond.tasks.bpf.walk import Walk
from sysmond.tasks.tables import EXITS, PROCESS, PROCESS_PRIVATE, THREAD, THREAD_STATE
from tests.support.pinned import loaded, rows, why_not

runs_here = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF programs run here")


def mapped_bytes() -> int:
    """How much of BPF maps this process has mapped."""
    sizes = (
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if "bpf-map" in line
    )
    return sum(int(end, 16) - int(begin, 16) for begin, end in sizes)


def lengths(folder: str) -> dict[str, int]:
    """How many values the arrays have."""
    sizes = {
        "process_rows": record_bytes(PROCESS),
        "thread_rows": record_bytes(THREAD),
        "private_rows": record_bytes(PROCESS_PRIVATE),
        "state_rows": record_bytes(THREAD_STATE),
    }
    found = {}
    for name, size in sizes.items():
        array = Array(f"{folder}/{name}", size)
        found[name] = array.count
        array.close()
    return found


@runs_here
def test_arrays_are_as_long_as_the_machine_and_what_is_asked_for_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded(tmp_path) as report:
        usual = lengths(report["folder"])
        asked = loader.LoadRequest(str(tmp_path), True, True)
        more = lengths(str(loader.load(asked)["folder"]))
        assert more["process_rows"] == usual["process_rows"]
        assert more["private_rows"] == usual["private_rows"]
        assert more["thread_rows"] > usual["thread_rows"] == 1
        assert more["state_rows"] > usual["state_rows"]
        (tmp_path / "tasks").write_text("300\n")
        monkeypatch.setattr(loader, "TASKS_MAX", (str(tmp_path / "tasks"), str(tmp_path / "none")))
        assert set(lengths(str(loader.load(asked)["folder"])).values()) == {300}


def test_room_is_made_for_what_the_plan_wants() -> None:
    settings = Settings(Folders("/state", "/run/sysmond"))
    table = PlannedProbe("thread_state", "none", Lane.REALTIME, 10**9, Sensitivity.RESTRICTED)
    threads = table._replace(table="thread")

    def command(*probes: PlannedProbe) -> list[str]:
        return loader_command(settings, Plan(probes))[-2:]

    assert command(table) == ["--runtime-dir", "/run/sysmond"]
    assert command(table._replace(options={"all": False}), threads._replace(enabled=False)) == command(table)
    assert command(table._replace(options={"all": True})) == ["/run/sysmond", "--sleepers"]
    assert command(table, threads) == ["/run/sysmond", "--threads"]
    assert command(table._replace(options={"all": True}), threads) == ["--threads", "--sleepers"]


@runs_here
def test_no_more_of_an_array_is_mapped_than_was_looked_at(tmp_path: Path) -> None:
    with loaded(tmp_path) as report:
        before = mapped_bytes()
        array = Array(f"{report['folder']}/process_rows", record_bytes(PROCESS))
        assert mapped_bytes() == before
        few = array.first(2)
        assert mapped_bytes() == before + pins.WINDOW_BYTES
        walk = Walk(report["folder"])
        taken = walk.take(full=True, threads=False)
        told = bytes(few)
        assert told == bytes(taken.process.rows)[: 2 * record_bytes(PROCESS)]
        del taken
        walk.close()
        beside = mapped_bytes()  # The two windows that the walk had are gone but for what `few` is part of.
        assert beside == before + pins.WINDOW_BYTES
        assert len(array.first(array.count)) == array.count * record_bytes(PROCESS) > 12 * pins.WINDOW_BYTES
        assert mapped_bytes() > beside + 12 * pins.WINDOW_BYTES
        assert bytes(few) == told  # What was given holds.
        del few
        array.first(1)
        assert mapped_bytes() == before + pins.WINDOW_BYTES
        array.close()
        assert mapped_bytes() == before


@runs_here
@pytest.mark.parametrize("window_bytes", [4096, 65536])
def test_records_are_taken_once_however_often_a_buffer_begins_anew(
    window_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "EXITS_BYTES", 64 * 1024)  # 512 records: room for those of whatever else runs here.
    monkeypatch.setattr(pins, "WINDOW_BYTES", window_bytes)
    with loaded(tmp_path) as report:
        before, descriptors = mapped_bytes(), len(os.listdir("/proc/self/fd"))
        drain = Drain(f"{report['folder']}/exits", record_bytes(EXITS) - pins.RECORD_HEAD_BYTES)
        for _ in range(24):
            with subprocess.Popen(["sh", "-c", "for i in $(seq 40); do /bin/true; done; exit 7"]) as shell:
                shell.wait()
            found = rows(EXITS, drain.take())
            assert [row["exit_code"] for row in found if row["ppid"] == shell.pid] == [0] * 41  # And seq.
            assert [row["exit_code"] for row in found if row["pid"] == shell.pid] == [7]
        drain.close()
        assert (mapped_bytes(), len(os.listdir("/proc/self/fd"))) == (before, descriptors)


@runs_here
@pytest.mark.parametrize(
    ("refused", "opens"),
    [("private_rows", Walk), ("stack_rows", BpfStates), ("snapshot", PinnedProgram), ("states", BpfStates)],
)
def test_where_one_of_several_pins_is_not_there_none_stays_open(
    refused: str, opens: Callable[[str], object], tmp_path: Path
) -> None:
    with loaded(tmp_path) as report:
        os.unlink(f"{report['folder']}/{refused}")
        before = len(os.listdir("/proc/self/fd"))
        path = f"{report['folder']}/{refused}" if opens is PinnedProgram else report["folder"]
        with pytest.raises((Error, OSError), match="No such file"):
            opens(path)
        assert len(os.listdir("/proc/self/fd")) == before
