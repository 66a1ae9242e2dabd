# SPDX-License-Identifier: Apache-2.0
"""More tasks than the arrays of a pass have rows: further passes of the same reading tell the rest, each task once."""

import subprocess
from pathlib import Path

import pytest

from sysmond.tasks.bpf import loader
from sysmond.tasks.bpf import walk as walks
from sysmond.tasks.bpf.walk import Walk
from sysmond.tasks.tables import PROCESS, PROCESS_PRIVATE, THREAD
from tests.support.pinned import loaded, rows, why_not, without

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF programs run here")


@pytest.mark.parametrize("program", ["snapshot", "iterate"])
def test_what_finds_no_room_in_a_pass_is_told_by_further_ones(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("PROCESSES_MAX", "THREADS_MAX"):
        monkeypatch.setattr(loader, limit, 8)
    monkeypatch.setattr(walks, "PASSES_MAX", 10_000)
    if program == "iterate":
        without(monkeypatch, "snapshot")
    sleeping = [subprocess.Popen(["sleep", "60"]) for _ in range(20)]
    try:
        with loaded(tmp_path, threads=True) as report:
            short = Walk(report["folder"])
            assert short.way == program
            for full in (True, True, False):
                taken = short.take(full=full, threads=True)
                assert taken.thread is not None
                assert (taken.process.lost, taken.private.lost, taken.thread.lost) == (0, 0, 0)
                of_process = [row["pid"] for row in rows(PROCESS, taken.process)]
                of_thread = [row["tid"] for row in rows(THREAD, taken.thread)]
                assert len(of_process) == len(set(of_process)), "each once"
                assert len(of_thread) == len(set(of_thread)), "each once"
                assert [row["pid"] for row in rows(PROCESS_PRIVATE, taken.private)] == of_process
                if full:
                    assert {one.pid for one in sleeping} <= set(of_process) & set(of_thread)
                del taken
            short.close()
    finally:
        for one in sleeping:
            one.kill()
            one.wait()
