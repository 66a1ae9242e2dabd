# SPDX-License-Identifier: Apache-2.0
"""Stalls: which resource woke us, what is told of it, and that a real kernel wakes."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sysmond.probe import Host
from sysmond.sources import stalls
from sysmond.sources.stalls import Stalls, parse, stalled

CONTENT = b"some avg10=1.25 avg60=0.50 avg300=0.10 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=99\n"
REAL = pytest.mark.skipif(
    not os.access("/proc/pressure/memory", os.W_OK), reason="this kernel has no pressure to watch"
)


def test_how_long_was_waited_is_read() -> None:
    assert parse(CONTENT) == 123456
    with pytest.raises(ValueError, match="expected 'some avg10"):
        parse(b"full total=1")


@pytest.mark.parametrize(
    ("memory_us", "io_us", "lately", "expected"),
    [
        (500_000, 0, True, ["memory"]),
        (500_000, 1_200_000, True, ["memory", "io"]),
        (500_000, 1_200_000, False, ["memory"]),  # Who waited a little each second stalled nothing.
        (100_000, 900_000, True, ["io"]),  # The rest of it was before the last look.
        (30_000, 38_000, True, []),  # The kernel wakes who has just begun to watch.
        (30_000, 38_000, False, ["memory"]),
    ],
)
def test_what_was_waited_for_woke_us(memory_us: int, io_us: int, *, lately: bool, expected: list[str]) -> None:
    assert list(stalled({"memory": memory_us, "io": io_us}, is_lately=lately)) == expected


def test_the_files_of_another_machine_are_not_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "proc/pressure"
    folder.mkdir(parents=True)
    for resource in ("memory", "io"):
        (folder / resource).write_bytes(CONTENT)
    with closing(Host(str(tmp_path))) as host, pytest.raises(FileNotFoundError, match="only the running machine"):
        list(Stalls().read(host))
    assert (folder / "memory").read_bytes() == CONTENT


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


@REAL
def test_a_kernel_that_wakes_us_is_counted_and_told_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(os.listdir("/proc/self/fd"))
    totals = iter([(0, 0), (500_000, 0), (1_000_000, 0), (1_000_000, 2_000_000)])
    now = [0, 0]

    def read(path: str) -> bytes:
        nonlocal now
        if path.endswith("memory"):
            now = list(next(totals))
        return b"some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n" % now[path.endswith("io")]

    monkeypatch.setattr(host, "read", read)
    watched = Stalls()
    assert dict(watched.read(host)) == {"memory": (0,), "io": (0,)}
    assert host.wakes is watched
    for expected in ((1, 0), (2, 0), (2, 1)):
        watched.poll(0)
        host.new_tick()
        assert dict(watched.read(host)) == {"memory": (expected[0],), "io": (expected[1],)}
    told = [(event.kind, event.subject) for event in host.take_events()]
    assert told == [("pressure", "memory"), ("pressure", "io")]
    host.close()
    assert set(os.listdir("/proc/self/fd")) <= before


@REAL
def test_nothing_is_counted_that_nobody_announced(host: Host) -> None:
    watched = Stalls()
    for _ in range(3):
        host.new_tick()
        assert dict(watched.read(host)) == {"memory": (0,), "io": (0,)}
    assert host.take_events() == []


@REAL
def test_who_waits_for_what_is_watched_is_heard(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that four programs want is the one pressure that a test can make."""
    monkeypatch.setattr(stalls, "STALLED_US", {"cpu": 200_000})
    monkeypatch.setattr(stalls, "CALLED", {"cpu": "processors"})
    watched = Stalls()
    list(watched.read(host))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        until_s = time.monotonic() + 60
        while not select.select([watched], [], [], 1.0)[0]:
            assert time.monotonic() < until_s
    finally:
        for process in busy:
            process.kill()
            process.wait()
    watched.poll(0)
    host.new_tick()
    assert dict(watched.read(host)) == {"cpu": (1,)}
    (event,) = host.take_events()
    assert event.text == "tasks waited for processors for at least 10 % of 2 s"
