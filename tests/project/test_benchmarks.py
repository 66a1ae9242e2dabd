# SPDX-License-Identifier: Apache-2.0
"""Each benchmark runs, and with ``--json`` prints one object with the keys that others rely on."""

import json
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import confined, loads, passes, sensing, service, storm, tasks, trees
from benchmarks import run as benchmarks_run
from sysmond.cgroups.tree import hierarchies
from sysmond.probe import Host
from tests.faults import trial
from tests.support.pinned import why_not

PROMISED = {
    "tick": {"cpu_ms_per_tick", "floor_ms_per_tick", "sadc_ms_per_tick", "values", "parts_ms_per_s", "by_probe"},
    "query": {"one_series_to_start", "seal_flush_to_start", "hundred_series_wall_ms", "catalogue_cpu_ms"},
    "jitter": {"p99_us", "max_us", "missed", "ticks"},
    "memory": {"sampler_rss_mb", "pss_mb"},
    "starvation": {"ok", "lost", "unsealed_max", "seals"},
    "bus": {"latest_median_ms", "idle_ms_per_s", "rss_mb", "pss_mb", "lateness_ratio", "calls_per_s"},
    "floods": {
        "worst_p99_ms",
        "worst_echo_p99_ms",
        "new_max_ms",
        "none_p99_ms",
        "connections",
        "unanswered_max_ms",
        "missed",
    },
    "changes": {"first_sample_max_s", "answer_max_ms", "cpu_ms", "lost", "changes"},
    "sensing": {
        *("realtime_ms_per_tick", "by_probe", "background_ms_per_s", "background_wakeups_per_s", "background_values"),
        *("virtual_more_ms_per_tick", "virtual_more_mb", "hot_plug", "came_max_s", "went_max_s", "seconds"),
    },
    "days": {"100", "1000"},
    "probes": {"here_ms", "files_ms", "seconds"},
    "input": {"by", "reports", "way", "way_recorded", "percent", "wakeups_at_rest", "seconds"},
    "top": {"wall_ms", "cpu_ms", "peak_mb", "processes", "hours", "bytes_per_process_sample"},
    "asking": {"processes_cpu_ms", "disks_to_series", "groups_cpu_ms", "answers", "hours", "days"},
    "newest": {"answer_cpu_ms", "answer_to_start", "top_cpu_ms", "start_cpu_ms", "numpy_cpu_ms", "rows"},
    "screen": {
        *(f"{what}_{of}" for what in ("live", "moment") for of in ("frame_s", "s", "cpu_s", "pss_mb")),
        *("live_percent", "step_s", "step_max_s", "page_s", "processes", "threads", "hours"),
    },
    "capacity": {"bytes_per_sample", "bytes_per_point_5min", "days_5min", "roll_up_cpu_s", "two_years_ms", "month_ms"},
    "way": {"wide", "long"},
    "signals": {"ns", "percent"},
    "names": {"way", "made", "lived", "named", "share", "wrong"},
    "events": {"events", "all_ms", "newest_ms", "mb", "files"},
    "event_storms": {
        "storms",
        "missed",
        "lateness_max_ms",
        "more_ms_per_s",
        "more_wakeups_per_s",
        "more_mb",
        "more_mb_without_dbus",
    },
    "thrashing": {"max_us", "lost", "kills", "victims", "faults", "dropped", "real_time", "seconds"},
    "files": {"files", "most_files", "files_per_boot", "files_of_it_later", "hours"},
}
TINY = {
    "tick": ("--ticks", "2", "--tight-ticks", "5"),
    "query": ("--series", "100", "--hours", "1", "--repeats", "1"),
    "jitter": ("--ticks", "50"),
    "memory": ("--seconds", "1"),
    "starvation": ("--seconds", "3", "--hogs", "1"),
    "screen": ("--processes", "5", "--threads", "200", "--hours", "1", "--repeats", "1", "--live", "1"),
    "bus": ("--seconds", "1", "--calls", "20"),
    "floods": ("--seconds", "1", "--connections", "5"),
    "changes": ("--changes", "1"),
    "days": ("--seconds", "1"),
    "probes": ("--seconds", "3"),
    "sensing": ("--seconds", "2", "--plugs", "1"),
    "input": ("--seconds", "2", "--period", "1"),
    "top": ("--processes", "20", "--hours", "1", "--repeats", "1"),
    "asking": ("--processes", "20", "--hours", "1", "--days", "1", "--repeats", "1"),
    "newest": ("--repeats", "1"),
    "capacity": ("--quick",),
    "way": (),
    "signals": ("--signals", "100"),
    "names": ("--programs", "4"),
    "events": ("--boots", "10"),
    "event_storms": ("--seconds", "1", "--rest", "1"),
    "thrashing": ("--group", "--seconds", "2"),
    "files": ("--hours", "0.2", "--boots", "1", "--boot-hours", "0.2"),
}


def run(repository: Path, program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(repository / "benchmarks" / f"{program}.py"), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# The others take longer, or many processes.
SHORT = ("memory",)


@pytest.mark.parametrize(
    "program", [each if each in SHORT else pytest.param(each, marks=pytest.mark.long) for each in PROMISED]
)
def test_a_benchmark_prints_one_object_with_its_keys(repository: Path, program: str) -> None:
    if program == "floods" and os.geteuid():
        pytest.skip("only root can be several users")
    if program == "event_storms" and (os.geteuid() or not os.access("/dev/kmsg", os.W_OK)):
        pytest.skip("only root can have the kernel announce devices, and write messages for it")
    if program == "way" and os.geteuid():
        pytest.skip("only root can run a process of another user")
    if program == "signals" and (reason := why_not()):
        pytest.skip(reason)
    if program == "thrashing" and (reason := confined.why_not()):
        pytest.skip(reason)
    if program == "days" and shutil.which("gcc") is None:
        pytest.skip("no compiler here")
    if program in {"bus", "event_storms", "floods"} and shutil.which("dbus-daemon") is None:
        pytest.skip("no dbus-daemon here")
    assert PROMISED[program] <= run(repository, program, *TINY[program]).keys()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the service is root's")
@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")
def test_what_the_service_costs_is_said_beside_what_it_cost(repository: Path) -> None:
    found = run(repository, "service", "--seconds", "2")["none"]
    assert found["ms_per_s"] > 0
    assert found["ms_per_s"] == pytest.approx(sum(found["ms_by_part"].values()), abs=0.01)
    assert found["job_cpu_ms"] > 0
    assert found["bpf_by_program"].keys() >= {"ended", "started", "made"} or not found["kernel_mb"]
    lines = dict(service.rows({"none": found}))
    assert lines["all parts and what they start, CPU a second"].count("ms") == 2


@pytest.mark.long
@pytest.mark.skipif(bool(trial.cannot_mount("mkfs.ext4", "losetup")), reason="mounts a file system of its own")
def test_a_disk_that_nobody_uses_is_let_alone(repository: Path) -> None:
    found = run(repository, "idle", "--seconds", "2")
    assert (found["written_bytes"], found["part_written_bytes"], found["exit_code"]) == (0, 0, 0)
    assert found["ticks"] >= 2
    assert found["written_bytes_at_end"] > 0  # The counters do count.
    assert found["ram_segments"] == 6


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="makes control groups")
def test_the_cost_of_control_groups_is_measured_and_none_is_left_behind(repository: Path) -> None:
    found = run(repository, "cgroups", "--seconds", "1", "--groups", "20")
    assert found["cpu_ms_per_tick"] > 0
    assert found.keys() >= {"quiet_ms_per_tick", "quiet_to_floor", "five_files_floor_ms", "opened_ms_per_tick"}
    assert found["default_ms_per_s_per_100"] > 0
    assert found["kept_share"] > 0
    with open("/proc/self/mountinfo", "rb") as file:
        tops = [each.point for each in hierarchies(file.read())]
    assert not any(Path(f"{top}/{found['folder']}").exists() for top in tops)


@pytest.mark.skipif(
    bool(loads.no_box()) or not (shutil.which("gcc") or shutil.which("cc")),
    reason="makes namespaces of its own, as root, and compiles a program in C",
)
class TestLoadsOfTasks:
    def test_all_tasks_are_there_when_it_is_ready_and_gone_with_the_block(self) -> None:
        with loads.compiled() as program:
            for arguments, processes, threads in ((("procs", "12", "3"), 12, 12), (("threads", "2", "20", "5"), 2, 40)):
                with loads.standing([program, *arguments]) as load:
                    pids = trees.below([load.pid], roots_too=False)
                    assert len(pids) == processes
                    assert sum(len(os.listdir(f"/proc/{pid}/task")) for pid in pids) == threads
                while any(alive(pid) for pid in pids):
                    time.sleep(0.02)

    def test_busy_tasks_use_a_cpu_and_the_others_none(self) -> None:
        with loads.compiled() as program:
            with loads.standing([program, "procs", "4", "2"]) as load:
                pids = trees.below([load.pid], roots_too=False)
                before = [switches(pid) for pid in pids]
                while sum(switches(pid) for pid in pids) < sum(before) + 6:
                    time.sleep(0.05)
                moved = [switches(pid) > count for pid, count in zip(pids, before, strict=True)]
            assert sum(moved) == 2

    def test_every_program_that_it_says_it_started_has_run(self, tmp_path: Path) -> None:
        counting = tmp_path / "count"
        counting.write_text(f"#!/bin/sh\necho >>{tmp_path}/runs\n")
        counting.chmod(0o755)
        with loads.compiled() as program:
            with loads.standing([program, "forks", "7", "1", str(counting)]) as load:
                assert loads.made(load, 30) == 7
            with loads.standing([program, "storm", "50", "1"]) as load:
                assert loads.made(load, 30) == 50
        assert len((tmp_path / "runs").read_text()) == 7

    def test_in_a_box_nothing_but_the_load_is_seen_and_nothing_is_left(self, tmp_path: Path) -> None:
        seen = tmp_path / "seen"
        with loads.compiled() as program, loads.boxed([program, "procs", "5", "0"]) as box:
            with trees.running(box.command(["sh", "-c", "ls -d /proc/[0-9]*; exec sleep 60"]), str(seen)) as inside:
                while not seen.read_text():
                    time.sleep(0.02)
                found = trees.cost([inside.pid], 1, roots_too=False)
                assert found.processes == 1
                assert found.pss_mb > 0
            processes = set(seen.read_text().split())
        # The load, its five, and the shell, which spells the names itself: there is nobody else.
        assert processes == {f"/proc/{number}" for number in range(1, 8)}
        assert not alive(box.pid)

    @pytest.mark.long
    def test_the_costs_of_all_are_found_in_one_run(self, repository: Path) -> None:
        found = run(repository, "tasks", "--quick", "--seconds", "1", "--only", "procs_100")
        one = found["procs_100"]
        assert one["pass"].keys() & {"cpu_ms", "missing"}
        assert one["proc"]["walked"] >= 20
        assert set(one["peers"]) == {"atop", "htop", "pcp", "psutil"}
        for peer in one["peers"].values():
            assert "missing" in peer or (peer["cpu_ms"] >= 0 and peer["processes"] >= 1)
            assert "missing" in peer or peer["recorded_tasks"] is None or peer["recorded_tasks"] >= 20

    @pytest.mark.long
    def test_every_program_of_a_storm_is_on_record(self, repository: Path) -> None:
        if "exits" not in passes.offered():
            pytest.skip("no probe offers the table exits")
        found = run(repository, "storm", "--seconds", "2", "--rate", "90")
        assert found["recorded"] == found["made"] == 180
        assert found.keys() >= {"grew", "minutes", "lost", "cpu_ms_per_s"}


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def switches(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))


def test_machines_of_the_benchmark_have_what_they_are_said_to_have(tmp_path: Path) -> None:
    sensing.build(sensing.LAPTOP, tmp_path)
    names = set(sensing.sensing_tables())
    assert {"battery", "temperature", "link", "swap", "rapl"} <= names
    assert names.isdisjoint({"cpu", "disk", "self", "process", "cgroup"})
    host = Host(str(tmp_path))
    assert sum(1 for line in host.lines("/proc/stat") if line.startswith("cpu")) == 13
    assert [line.split()[2] for line in host.lines("/proc/diskstats")] == list(sensing.LAPTOP.disks)
    assert len(list(tmp_path.glob("sys/class/hwmon/*/*_input"))) >= 20
    assert {"BAT0", "BAT1"} <= set(host.names("/sys/class/power_supply"))
    host.close()


def test_numbers_that_move_keep_their_digits() -> None:
    moved = sensing._NUMBER.sub(partial(sensing._moved, 2), b"cpu0 4097 7 avg10=0.00 total=999 a123 1.2345\n")
    assert moved == b"cpu0 4111 7 avg10=0.00 total=013 a123 1.2345\n"


def test_growth_is_told_beyond_its_bound_and_not_before_the_warm_up() -> None:
    def held(pss_mb: float) -> dict[str, dict[str, float]]:
        return {"pss_mb": {"sampler": pss_mb}, "descriptors": {"sampler": 5}, "rings_mb": {}, "segments_mb": {}}

    assert storm.grown([held(1.0)] * 10 + [held(20.0)] * 50) == []
    assert storm.grown([held(20.0 + number / 30) for number in range(60)]) == []
    assert storm.grown([held(20.0 + number / 3) for number in range(60)]) == ["pss_mb of sampler: 34.3 → 39.7"]


def test_a_document_has_rows_of_what_was_measured_and_of_nothing_else() -> None:
    figures = {"changes": {"machine": "machine", "figures": {"first_sample_max_s": 1.5, "lost": 0, "changes": 2}}}
    lines = benchmarks_run.table(figures).splitlines()
    assert len([line for line in lines if line.startswith("|")]) == 3
    assert "not yet" not in "".join(lines)


def test_costs_that_were_not_measured_are_said_and_reach_nothing() -> None:
    found = {"procs_100": {"missing": "gone"}}
    for target in benchmarks_run.OF_TASKS:
        if target.program == "tasks":
            assert "not measured" in target.spell(found)
            assert not target.met(found)


def test_system_calls_must_not_grow_with_the_tasks() -> None:
    def with_calls(*counts: float) -> dict[str, Any]:
        names = [name for name, load in tasks.LOADS.items() if not load.threads]
        return {name: {"daemon": {"on": {"system_calls": count}}} for name, count in zip(names, counts, strict=True)}

    assert tasks.calls_stay(with_calls(60.2, 60.0, 61.0))
    assert not tasks.calls_stay(with_calls(60.2, 60.0, 70.0))
    assert not tasks.calls_stay({})


def recorded(path: Path, names: np.ndarray[Any, Any], kind: np.ndarray[Any, Any]) -> Path:
    values = np.cumsum(np.random.default_rng(1).integers(0, 5, (3, 400)), axis=1)
    values[2, 100:] = values[2, 0]
    np.savez(path, names=names, kind=kind, scale=np.array([0, 2, 0]), values=values, more=np.arange(3))
    return path


@pytest.mark.parametrize("kind", ["U", "S"])
def test_storage_reads_texts_of_both_kinds_and_keeps_the_file(repository: Path, tmp_path: Path, kind: str) -> None:
    names = np.array(["disk.dev.read.sda", "disk.dev.read.sdb", "load"]).astype(kind)
    kinds = np.array(["counter", "gauge", "gauge"]).astype(kind)
    data = recorded(tmp_path / "data.npz", names, kinds)
    kept = tmp_path / "kept.h5"
    found = run(repository, "storage", str(data), "--keep", str(kept))
    assert found.keys() >= {"bytes_per_sample", "encode_ns", "decode_ns"}
    assert found["bytes_per_sample"] == pytest.approx(kept.stat().st_size / 1200, abs=1e-4)


def test_storage_refuses_other_kinds_in_one_line(repository: Path, tmp_path: Path) -> None:
    data = recorded(tmp_path / "data.npz", np.array(["a", "b", "c"]), np.array(["counter", "gauge", "rate"]))
    command = [sys.executable, str(repository / "benchmarks" / "storage.py"), str(data), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "rate" in done.stderr
