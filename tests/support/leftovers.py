# SPDX-License-Identifier: Apache-2.0
"""What a test leaves behind in its own process, where the tests after it would run into that."""

import gc
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sysmond.archiver.watch import DiskWatch
from sysmond.probe import Host
from sysmond.ring.newest import Follower

# What is about to go is given so long: a thread that was told to end, a descriptor that waits for the collector.
GOING_S = 5.0
# The files of tests that leave nothing; what others leave is still to be gone through.
TIDY = frozenset(
    (
        "archive",
        "auto_pins",
        "batch",
        "blocking_readers",
        "bpf",
        "build",
        "census",
        "cgroup",
        "cgroup_names",
        "commands",
        "commands_of_processes",
        "condition",
        "config",
        "control",
        "cpu",
        "declarations",
        "dependencies",
        "disk",
        "entry",
        "execs",
        "exits",
        "exits_messages",
        "extract",
        "filesystem",
        "flushing",
        "folders",
        "format",
        "formats",
        "from_tiers",
        "fsck",
        "golden",
        "grid",
        "history",
        "host",
        "hotplug",
        "invariants",
        "lanes",
        "library",
        "live_view",
        "load",
        "manuals",
        "masking",
        "memory_bound",
        "misbehaviour",
        "mounts",
        "network",
        "newest",
        "owner",
        "paths",
        "pins",
        "plan",
        "pressure",
        "probe",
        "quarantine",
        "rates",
        "replay",
        "retention_job",
        "rollup_job",
        "rows",
        "seal_job",
        "snmp",
        "sockets",
        "sparse_file",
        "sparse_format",
        "sparse_merge",
        "sparse_seal",
        "statistics",
        "tasks",
        "timespec",
        "top",
        "tree",
        "vm",
        "wall_clock",
        "which_tier",
    )
)


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves descriptors, children, threads or handlers of signals; what its module shares stays."""
    before, failed = present(), request.session.testsfailed
    yield
    if request.path.stem.removeprefix("test_") not in TIDY:
        return
    if request.session.testsfailed > failed:
        return  # It did not come as far as to tidy up, and says why.
    request.node.funcargs.clear()  # What nothing but the arguments of the test refer to goes with it.
    left = present() - before
    if left:
        gc.collect()
    limit_s = time.monotonic() + GOING_S
    while (left := present() - before) and time.monotonic() < limit_s:
        time.sleep(0.01)
    assert not left, f"left behind: {', '.join(sorted(left))}"


@pytest.fixture(autouse=True)
def all_are_closed(leaves_nothing: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close whatever a test looked at a machine, rings or mounts with: it keeps its files open for the next look."""
    made: list[Host | Follower | DiskWatch] = []
    for kind in (Host, Follower, DiskWatch):

        def note(self: Any, *arguments: Any, begin: Any = kind.__init__, **named: Any) -> None:
            begin(self, *arguments, **named)
            made.append(self)

        monkeypatch.setattr(kind, "__init__", note)
    yield
    for opened in made:
        opened.close()


def present() -> Counter[str]:
    """What there is in this process now, each in words, and how often."""
    return Counter((*_descriptors(), *_children(), *_threads(), *_handlers()))


def _descriptors() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            # Not by number: what a module shares may open anew what it had.
            yield f"descriptor of {os.readlink(f'/proc/self/fd/{number}')}"
        except FileNotFoundError:
            continue  # That of the listing itself.


def _children() -> Iterator[str]:
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                yield from (f"child {pid}" for pid in file.read().split())
        except FileNotFoundError:
            continue  # It has just ended.


def _threads() -> Iterator[str]:
    return (f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate())


def _handlers() -> Iterator[str]:
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if handler not in {signal.SIG_DFL, signal.SIG_IGN}:
            yield f"handler {handler!r} of {signal.strsignal(number)}"
        elif handler is signal.SIG_IGN:
            yield f"no heed of {signal.strsignal(number)}"
