# SPDX-License-Identifier: Apache-2.0
"""Bytes of a process by BPF: threads that ended count once, waited-for children never; what nobody saw is said."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sysmond.probe import ABSENT
from sysmond.records import record_bytes
from sysmond.tasks.bpf.pins import Drain
from sysmond.tasks.bpf.walk import Walk
from sysmond.tasks.tables import EXITS, PROCESS, THREAD
from tests.support.pinned import child, loaded, loaded_by, rows, settled, why_not
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF programs run here")

# Each thread writes 1,000 bytes ten times; children, that are waited for, write 100,000.
THREADS = """
import os, sys, threading
into = os.open("/dev/null", os.O_WRONLY)
def write():
    for _ in range(10): os.write(into, bytes(1000))
def together(count):
    threads = [threading.Thread(target=write) for _ in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
def child():
    pid = os.fork()
    if not pid:
        os.write(into, bytes(100_000))
        os._exit(0)
    os.waitpid(pid, 0)
"""
MIXED = THREADS + "for _ in range(20):\n together(1)\n together(5)\n child()\n"
OF_MIXED = 20 * 6 * 10_000


@pytest.fixture(scope="module", params=["snapshot", "iterate"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with loaded_by(request.param, tmp_path_factory.mktemp("bytes")) as pins:
        yield pins


@pytest.fixture
def walk(folder: str) -> Iterator[Walk]:
    opened = Walk(folder)
    yield opened
    opened.close()


def at_rest(pid: int, threads: int = 1) -> None:
    """Wait until a process has so many threads, and all wait: Python has joined a thread before it is gone."""
    wait_until(lambda: len(os.listdir(f"/proc/{pid}/task")) == threads)
    settled(pid)


def row_of(walk: Walk, pid: int) -> dict[str, Any]:
    (row,) = (row for row in rows(PROCESS, walk.take(full=True, threads=True).process) if row["pid"] == pid)
    return row


def test_threads_that_ended_count_once_and_children_not(walk: Walk) -> None:
    with child(MIXED) as running:
        at_rest(running.pid)
        row = row_of(walk, running.pid)
        # And the line that says it is done.
        assert (row["written_chars"], row["bytes_unseen"]) == (OF_MIXED + 1, 0)


def test_a_sum_never_falls_while_threads_come_and_go(walk: Walk) -> None:
    program = MIXED.replace("range(20)", "range(200)")
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", program]) as running:
        told = [0]
        while running.poll() is None:
            found = rows(PROCESS, walk.take(full=True, threads=False).process)
            told += [row["written_chars"] for row in found if row["pid"] == running.pid]
        assert told == sorted(told)
        assert told[-1] <= 200 * 6 * 10_000


def test_a_thread_by_itself_has_its_own(walk: Walk) -> None:
    program = THREADS + "child()\nkept = threading.Thread(target=lambda: (write(), threading.Event().wait()))\n"
    program += "kept.daemon = True\nkept.start()\nwhile os.stat('/proc/self/task').st_nlink < 4: pass\n"
    with child(program) as running:
        at_rest(running.pid, 2)
        taken = walk.take(full=True, threads=True)
        assert taken.thread is not None
        threads = {row["tid"]: row for row in rows(THREAD, taken.thread) if row["pid"] == running.pid}
        del taken
        assert len(threads) == 2
        assert threads[running.pid]["written_chars"] == 1
        assert sum(row["written_chars"] for row in threads.values()) == 10_001


def test_an_end_has_its_own_bytes_and_those_with_children(folder: str, tmp_path: Path) -> None:
    program = (
        "import os, sys, threading\n"
        "def write(name):\n"
        " f = os.open(sys.argv[1] + name, os.O_CREAT | os.O_WRONLY)\n os.write(f, bytes(1 << 20))\n os.fsync(f)\n"
        "for name in 'abc':\n t = threading.Thread(target=write, args=(name,))\n t.start()\n t.join()\n"
        "pid = os.fork()\n"
        "if not pid:\n write('d')\n write('e')\n os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    exits = Drain(f"{folder}/exits", record_bytes(EXITS) - 8)
    while exits.take():
        pass
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", program, str(tmp_path / "file")]) as running:
        running.wait()
    ended = rows(EXITS, exits.take())
    exits.close()
    (end,) = (row for row in ended if row["pid"] == running.pid)
    (below,) = (row for row in ended if row["ppid"] == running.pid)
    if not below["written_bytes"]:
        pytest.skip(f"nothing that is written to {tmp_path} is counted")
    assert 3 << 20 <= end["written_bytes"] < (3 << 20) + (1 << 18)
    assert end["written_bytes_with_children"] == end["written_bytes"] + below["written_bytes"]


def test_what_ended_before_anybody_looked_is_said(tmp_path: Path) -> None:
    before = THREADS + "together(1)"
    after = "\nsys.stdin.readline()\ntogether(1)\nprint(flush=True)\n"
    with child(before + "\nprint(flush=True)" + after) as known, child("") as single, ExitStack() as stack:
        at_rest(known.pid)
        report = stack.enter_context(loaded(tmp_path))
        walk, exits = Walk(report["folder"]), Drain(f"{report['folder']}/exits", record_bytes(EXITS) - 8)
        row = row_of(walk, known.pid)
        assert (row["bytes_unseen"], row["written_chars"]) == (1, 1)
        assert row_of(walk, single.pid)["bytes_unseen"] == 0
        known.stdin.write(b"\n")
        known.stdin.flush()
        known.stdout.readline()
        at_rest(known.pid)
        row = row_of(walk, known.pid)
        assert (row["bytes_unseen"], row["written_chars"]) == (1, 10_003)  # It counts from here on; and lines say so.
        known.kill()
        known.wait()
        (end,) = (row for row in rows(EXITS, exits.take()) if row["pid"] == known.pid)
        assert end["written_bytes"] == ABSENT
        assert end["written_bytes_with_children"] >= 0
        exits.close()
        walk.close()
