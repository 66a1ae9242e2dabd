# SPDX-License-Identifier: Apache-2.0
"""The tables of what threads are at and of kernel stacks: what is recorded of known children, and what is answered."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sysmond_probes import thread_state as plugin

from sysmond.answers.records import answer
from sysmond.answers.rows.columns import offer
from sysmond.answers.rows.question import Request
from sysmond.base.model import ABSENT, Sensitivity
from sysmond.base.result import Result
from sysmond.machine.folders import Folders
from sysmond.plan.plugins import check_probe
from sysmond.probe import Host, Probe, Records
from sysmond.tasks import states, syscalls
from sysmond.tasks.proc.cgroups import CgroupNumbers
from sysmond.tasks.states import BY_BPF, Stacks
from sysmond.tasks.tables import KERNEL_STACK, THREAD_STATE
from tests.support import pinned
from tests.support.children import child
from tests.support.longarchive import BOOTED_NS, Row, put, stretch
from tests.tasks.proc.test_proc_states import busy, spin, waiting

SECOND = 10**9
ALL = tuple(Sensitivity)
runs_here = pytest.mark.skipif(bool(pinned.why_not()), reason=pinned.why_not() or "BPF programs run here")


def texts(pieces: "list[Records] | tuple[Records, ...]") -> dict[int, str]:
    """The rows of ``kernel_stack``."""
    found = {}
    for piece in pieces:
        for row in pinned.rows(KERNEL_STACK, piece):
            place = row["functions"]
            found[row["id"]] = piece.blob[place & 0xFFFFFFFF :][: place >> 32].decode()
    return found


# --- Stacks


def test_a_stack_is_told_once_and_in_full_with_those_of_the_round_before() -> None:
    stacks = Stacks()
    stacks.meet({1: "a\nb", 2: "c"})
    assert texts(tuple(stacks.records(full=True))) == {1: "a;b", 2: "c"}
    stacks.meet({2: "c", 3: "d"})  # A way that tells anew after a full reading, or always.
    assert texts(tuple(stacks.records(full=False))) == {3: "d"}
    stacks.meet({2: "c", 3: "d"})
    assert texts(tuple(stacks.records(full=False))) == {}
    assert texts(tuple(stacks.records(full=True))) == {1: "a;b", 2: "c", 3: "d"}
    assert texts(tuple(stacks.records(full=True))) == {2: "c", 3: "d"}
    stacks.meet({1: "a\nb"})  # It was away for two rounds.
    assert texts(tuple(stacks.records(full=False))) == {1: "a;b"}


def test_stacks_beyond_the_bound_are_counted() -> None:
    stacks = Stacks(most=2)
    stacks.meet({1: "a", 2: "b", 3: "c"})
    [told] = stacks.records(full=True)
    assert (len(texts((told,))), told.lost, told.walked, told.full) == (2, 1, 3, True)
    [told] = stacks.records(full=False)
    assert (told.lost, told.full) == (0, False)


# --- The probe


@pytest.fixture
def probes() -> dict[str, Probe]:
    return {probe.table.name: probe for probe in plugin.sysmond_probes()}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host()
    made.runtime = str(tmp_path)
    made.folder = str(tmp_path)
    yield made
    states.looking_at(made).close()


def look(probe: Probe, host: Host, **options: bool) -> dict[int, dict[str, Any]]:
    """Read as a lane does: rows by thread."""
    host.new_tick()
    assert probe.records is not None
    records = probe.records(host, full=False, **options)
    assert isinstance(records, Records)
    assert records.full
    assert not records.lost or options.get("by_proc")
    return {row["tid"]: row for row in pinned.rows(THREAD_STATE, bytes(records.rows))}


def told_of_stacks(probe: Probe, host: Host, *, full: bool) -> dict[int, str]:
    assert probe.records is not None
    records = probe.records(host, full=full)
    return texts((records,) if isinstance(records, Records) else tuple(records))


def test_both_tables_are_restricted_and_stacks_come_with_threads(probes: dict[str, Probe]) -> None:
    for probe in probes.values():
        check_probe(probe)
        assert probe.sensitivity is Sensitivity.RESTRICTED
    assert probes["thread_state"].enabled
    assert not probes["kernel_stack"].enabled
    assert {option.enables for option in probes["thread_state"].options} == {"", "kernel_stack"}


@runs_here
def test_what_children_are_at_is_recorded(probes: dict[str, Probe], host: Host, tmp_path: Path) -> None:
    probe, stacks = probes["thread_state"], probes["kernel_stack"]
    with pinned.loaded(tmp_path), busy(spin, "R") as runner, waiting(tmp_path) as waiter, child() as sleeper:
        assert told_of_stacks(stacks, host, full=True) == {}
        found = look(probe, host)
        assert (tmp_path / "thread_state.way").read_text() == f"{BY_BPF}\n"
        assert found[runner]["state"] == b"R"
        assert (found[runner]["syscall"], found[runner]["stack"]) == (-1, ABSENT)
        row = found[waiter]
        assert (row["state"], row["pid"], row["uid"]) == (b"D", waiter, os.getuid())
        assert row["comm"] == Path(f"/proc/{waiter}/comm").read_bytes()[:-1]
        assert row["wchan"] == Path(f"/proc/{waiter}/wchan").read_bytes()
        assert row["syscall"] == int(Path(f"/proc/{waiter}/syscall").read_text().split()[0])
        assert syscalls.name(row["syscall"]) in {"vfork", "clone", "clone3"}
        assert row["cgroup"] == CgroupNumbers("").number(Path(f"/proc/{waiter}/cgroup").read_bytes(), ABSENT)
        assert sleeper not in found
        functions = told_of_stacks(stacks, host, full=False)[row["stack"]].split(";")
        assert row["wchan"].decode() in functions
        assert look(probe, host)[waiter]["stack"] == row["stack"]
        assert row["stack"] not in told_of_stacks(stacks, host, full=False)
        assert row["stack"] in told_of_stacks(stacks, host, full=True)
        everyone = look(probe, host, all=True)
        assert everyone[sleeper]["state"] == b"S"
        assert {int(name) for name in os.listdir("/proc/self/task")} <= set(everyone)
        states.looking_at(host).close()


def test_without_bpf_nothing_is_looked_at_unless_asked_for(
    probes: dict[str, Probe], host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "RETRY_S", 0.0)
    probe = probes["thread_state"]
    assert probe.records is not None
    with pytest.raises(FileNotFoundError, match="not by BPF: the BPF loader has not run; with its option by_proc on"):
        probe.records(host, full=True)
    with busy(spin, "R") as runner:
        while runner not in look(probe, host, by_proc=True):
            pass  # Its turn comes.
        assert (tmp_path / "thread_state.way").read_text().startswith("by /proc; not by BPF: the BPF loader")
        with pytest.raises(FileNotFoundError):
            probe.records(host, full=False)


@runs_here
def test_one_look_a_tick_is_for_both_tables_whichever_is_read_first(
    probes: dict[str, Probe], host: Host, tmp_path: Path
) -> None:
    probe, stacks = probes["thread_state"], probes["kernel_stack"]
    assert probe.records is not None
    with pinned.loaded(tmp_path):
        look(probe, host)
        known = told_of_stacks(stacks, host, full=True)
        with waiting(tmp_path) as waiter:
            look(probe, host)
            host.new_tick()
            told = known | told_of_stacks(stacks, host, full=False)  # Somebody else may have waited there before.
            wait = Path(f"/proc/{waiter}/wchan").read_text()
        records = probe.records(host, full=False)
        assert isinstance(records, Records)
        [row] = (row for row in pinned.rows(THREAD_STATE, records) if row["pid"] == waiter)  # It is gone by now.
        assert wait in told[row["stack"]].split(";")
        assert waiter not in look(probe, host)
        states.looking_at(host).close()


@runs_here
def test_when_the_loader_has_run_the_kernel_looks(
    probes: dict[str, Probe], host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "RETRY_S", 0.0)
    probe = probes["thread_state"]
    look(probe, host, by_proc=True)
    with pinned.loaded(tmp_path):
        assert os.getpid() in look(probe, host, by_proc=True)
        assert (tmp_path / "thread_state.way").read_text() == f"{BY_BPF}\n"
        states.looking_at(host).close()


def test_the_machine_below_another_root_is_not_what_bpf_sees(probes: dict[str, Probe], tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert probes["thread_state"].records is not None
    with pytest.raises(FileNotFoundError, match="BPF sees only the running machine"):
        probes["thread_state"].records(host, full=True)


# --- Answers


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(str(tmp_path / "state"), str(tmp_path / "runtime"))
    at: Row = {"start": SECOND, "state": "D", "wchan": "kernel_clone", "uid": 0}
    seen: list[tuple[int, Row]] = [
        (0, {**at, "pid": 7, "tid": 7, "syscall": 0, "stack": 70}),
        (1, {**at, "pid": 7, "tid": 7, "syscall": 0, "stack": 70}),
        (1, {**at, "pid": 8, "tid": 8, "syscall": 0, "stack": 80}),
        (2, {**at, "pid": 9, "tid": 9, "syscall": -1, "stack": None, "state": "R", "wchan": ""}),
    ]
    restricted = Sensitivity.RESTRICTED
    put(made, stretch(THREAD_STATE, range(100, 105), seen, full=range(5), sensitivity=restricted), 1)
    told: list[tuple[int, Row]] = [
        (0, {"id": 70, "functions": "schedule;kernel_clone"}),
        (0, {"id": 71, "functions": "other"}),
    ]
    put(made, stretch(KERNEL_STACK, range(100, 105), told, sensitivity=restricted), 1)
    return made


def ask(folders: Folders, **asked: str) -> Result:
    return answer(
        folders,
        ALL,
        Request("thread_state", BOOTED_NS + 100 * SECOND, BOOTED_NS + 105 * SECOND, **asked),  # type: ignore[arg-type]
    )


def test_calls_and_stacks_have_names_in_groups(folders: Folders) -> None:
    found = ask(folders, group_by="state,syscall,wchan")
    assert [column.path for column in found.columns] == ["state", "syscall", "wchan", "count"]
    assert set(zip(*(column.texts or column.values for column in found.columns), strict=True)) == {
        ("D", syscalls.name(0), "kernel_clone", 3.0),
        ("R", None, None, 1.0),
    }
    found = ask(folders, group_by="stack")
    assert set(zip(*(column.texts or column.values for column in found.columns), strict=True)) == {
        ("schedule;kernel_clone", 2.0),
        ("#80", 1.0),  # Its text was lost.
        (None, 1.0),
    }


def test_conditions_find_calls_by_name_and_by_number_and_functions_in_stacks(folders: Folders) -> None:
    for where, count in (
        ("stack ~ kernel_clone", 2),
        (f"syscall = {syscalls.name(0)}", 3),
        ("syscall = 0", 3),
        ("syscall = -1", 1),
        ("functions ~ other", 0),
    ):
        assert len(ask(folders, where=where, columns="pid").times_ns) == count, where


def test_by_default_calls_and_stacks_are_shown_by_name(folders: Folders) -> None:
    found = {column.path: column.texts for column in ask(folders).columns}
    assert found["functions"] == ("schedule;kernel_clone", "schedule;kernel_clone", "#80", None)
    assert found["syscall_name"] == (syscalls.name(0), syscalls.name(0), syscalls.name(0), None)
    assert {"syscall", "stack"} <= set(offer(THREAD_STATE).specs)
