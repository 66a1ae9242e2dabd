# SPDX-License-Identifier: Apache-2.0
"""Each benchmark runs, and with ``--json`` prints one object with the keys that others rely on."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.cgroups import hierarchies
from tests.faults import trial

PROMISED = {
    "tick": {"cpu_ms_per_tick", "floor_ms_per_tick", "sadc_ms_per_tick", "values", "parts_ms_per_s", "by_probe"},
    "query": {"one_series_to_start", "seal_flush_to_start", "hundred_series_wall_ms", "catalogue_cpu_ms"},
    "jitter": {"p99_us", "max_us", "missed", "ticks"},
    "memory": {"sampler_rss_mb", "pss_mb"},
    "starvation": {"ok", "lost", "unsealed_max", "seals"},
    "bus": {"latest_median_ms", "idle_ms_per_s", "rss_mb", "pss_mb", "lateness_ratio", "calls_per_s"},
    "changes": {"first_sample_max_s", "answer_max_ms", "cpu_ms", "lost", "changes"},
    "capacity": {"bytes_per_sample", "bytes_per_point_5min", "days_5min", "roll_up_cpu_s", "two_years_ms", "month_ms"},
}
TINY = {
    "tick": ("--ticks", "2", "--tight-ticks", "5"),
    "query": ("--series", "100", "--hours", "1", "--repeats", "1"),
    "jitter": ("--ticks", "50"),
    "memory": ("--seconds", "1"),
    "starvation": ("--seconds", "3", "--hogs", "1"),
    "bus": ("--seconds", "2", "--calls", "20"),
    "changes": ("--changes", "1"),
    "capacity": ("--quick",),
}


def run(repository: Path, program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(repository / "benchmarks" / f"{program}.py"), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("program", PROMISED)
def test_a_benchmark_prints_one_object_with_its_keys(repository: Path, program: str) -> None:
    assert PROMISED[program] <= run(repository, program, *TINY[program]).keys()


@pytest.mark.skipif(bool(trial.cannot_mount("mkfs.ext4", "losetup")), reason="mounts a file system of its own")
def test_a_disk_that_nobody_uses_is_let_alone(repository: Path) -> None:
    found = run(repository, "idle", "--seconds", "2")
    assert (found["written_bytes"], found["part_written_bytes"], found["exit_code"]) == (0, 0, 0)
    assert found["ticks"] >= 2
    assert found["written_bytes_at_end"] > 0  # The counters do count.
    assert found["ram_segments"] == 6


@pytest.mark.skipif(os.geteuid() != 0, reason="makes control groups")
def test_the_cost_of_control_groups_is_measured_and_none_is_left_behind(repository: Path) -> None:
    found = run(repository, "cgroups", "--seconds", "3", "--groups", "20")
    assert found["cpu_ms_per_tick"] > 0
    assert found.keys() >= {"quiet_ms_per_tick", "quiet_to_floor", "five_files_floor_ms", "opened_ms_per_tick"}
    with open("/proc/self/mountinfo", "rb") as file:
        tops = [each.point for each in hierarchies(file.read())]
    assert not any(Path(f"{top}/{found['folder']}").exists() for top in tops)


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
