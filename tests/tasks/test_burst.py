# SPDX-License-Identifier: Apache-2.0
"""Thousands of processes that come at once and go at once: what everybody asks about afterwards."""

import os
import shutil
from pathlib import Path

import pytest

from benchmarks import loads
from sysmond.history import Archive
from tests.support.pinned import why_not
from tests.support.waiting import wait_until
from tests.support.whole import a_recorder

COUNT = 8000

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF"),
    pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("cc")), reason="compiles a program in C"),
]


def test_a_burst_of_processes_leaves_no_gap_and_misses_nobody() -> None:
    with a_recorder() as recorder, loads.compiled() as program:
        recorder.config.write_text("incidents: {bursts: none}\n")  # So many at once are pressure.
        recorder.start()
        recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
        burst = f"comm = {Path(program).name[:15]}"
        with loads.standing([program, "procs", str(COUNT), "0"]):
            wait_until(lambda: len(recorder.records("process", "pid", where=burst)) > COUNT)
        wait_until(lambda: len(recorder.records("exits", "pid", where=burst)) > COUNT)
        assert len(recorder.records("process", "pid", where=burst)) == COUNT + 1
        assert len(recorder.records("exits", "pid", where=burst)) == COUNT + 1
        for table in ("process", "process_private", "exits", "thread_state"):
            assert Archive(recorder.folders).records(table).gaps == (), table
        assert "moved" not in recorder.said()
