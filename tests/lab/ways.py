# SPDX-License-Identifier: Apache-2.0
"""In a machine booted for it: load every BPF program, read a process, a thread and an end by each way, say what worked.

It is process 1 of a machine that ``tests/lab/kernels.py`` boots, with nothing but Python; it tells one JSON object.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sysmond.errors import Error
from sysmond.probe import Host
from sysmond.tasks.bpf import loader
from sysmond.tasks.bpf.buffers import Buffer
from sysmond.tasks.bpf.states import BpfStates
from sysmond.tasks.bpf.walk import Walk
from sysmond.tasks.command import execs
from sysmond.tasks.ends import exits, exits_netlink
from sysmond.tasks.ends.kills import Kills
from sysmond.tasks.pass_result import Tasks
from sysmond.tasks.proc.states import Looks
from sysmond.tasks.proc.walk import Proc
from sysmond.tasks.tables import EXITS, PROCESS, PROCESS_PRIVATE, THREAD, THREAD_STATE
from tests.support.pinned import child, rows, stat


class Way(NamedTuple):
    """A way: what it is called, what it gives, and since which Linux, where no program of BPF says that."""

    label: str
    gives: str
    since: str = ""


WAYS = {  # In this order they are shown.
    "ended": Way("BPF `ended`", "ends"),
    "started": Way("BPF `started`", "commands"),
    "made": Way("BPF `made`", "names of short-lived cgroups"),
    "signalled": Way("BPF `signalled`", "who sent the signal that ended a process"),
    "sent": Way("BPF `sent`", "bytes sent by process"),
    "received": Way("BPF `received`", "bytes received by process"),
    "snapshot": Way("BPF `snapshot`", "processes, threads"),
    "iterate": Way("BPF `iterate`", "the same where that is not"),
    "states": Way("BPF `states`", "what threads are at, stacks"),
    "proc": Way("/proc", "processes, threads"),
    "proc_states": Way("/proc", "what threads are at, stacks"),
    "both": Way("proc connector and taskstats", "ends"),
    "connector": Way("proc connector", "ends"),
    "taskstats": Way("taskstats", "ends", "5.19"),
}
TOLD = "/dev/ttyS1"
MOUNTS = (
    ("proc", "/proc", "proc"), ("sysfs", "/sys", "sysfs"), ("devtmpfs", "/dev", "devtmpfs"), ("tmpfs", "/run", "tmpfs"),
    ("cgroup2", "/sys/fs/cgroup", "cgroup2"),
)  # fmt: skip
WAIT_S = 20.0
OLD_S = 1.5
SENT_BYTES = 5000
CODE = 7
# A process with a thread, both of which sleep.
SLEEPING = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
RB_AUTOBOOT = 0x01234567

Row = dict[str, Any]
_libc = ctypes.CDLL(None, use_errno=True)


def until(finds: Callable[[], Row | None]) -> Row:
    """Try again and again, as some ways tell late."""
    give_up_s = time.monotonic() + WAIT_S
    while (found := finds()) is None:
        assert time.monotonic() < give_up_s, f"nothing within {WAIT_S:.0f} s"
        time.sleep(0.1)
    return found


def reads_an_end(way: exits.Exits) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(CODE)
    os.waitpid(pid, 0)
    row = until(lambda: next((row for row in rows(EXITS, way.take()) if row["pid"] == pid), None))
    way.close()
    assert row["exit_code"] == CODE, row


def reads_a_sender(runtime: str) -> None:
    """Of a process that another child of ours ends by a signal."""
    ends, host = exits.PinnedExits(runtime), Host()
    host.runtime = runtime
    kills = Kills()
    list(kills.read(host))
    sending = "import os, sys; os.kill(int(sys.argv[1]), 15)"
    with child("") as victim, subprocess.Popen([sys.executable, "-IS", "-c", sending, str(victim.pid)]) as sender:
        sender.wait()
        victim.wait()
    row = until(lambda: next((row for row in rows(EXITS, ends.take()) if row["pid"] == victim.pid), None))
    list(kills.read(host))
    texts = [event.text for event in host.take_events()]
    ends.close()
    host.close()
    assert (row["signal"], row["sender_pid"]) == (15, sender.pid), row
    assert row["sender_comm"].startswith(b"python"), row
    by = f"SIGTERM by {row['sender_comm'].decode()}, process {sender.pid} of user 0"
    assert texts == [f"process {victim.pid} of user 0: {by}"], texts


def wait_until_old(pid: int) -> None:
    """Wait until all threads sleep for longer than /proc leaves out what just began."""
    threads = [f"{pid}/task/{each}" for each in os.listdir(f"/proc/{pid}/task")]
    until(lambda: {} if all(stat(each)[3] == b"S" for each in threads) else None)
    time.sleep(OLD_S)


def tells_wchan(pid: int) -> bool:
    """Whether /proc has it: it did not from 4.14 to 5.15, on x86."""
    return Path(f"/proc/{pid}/wchan").read_bytes() not in {b"", b"0"}


def reads_tasks(tasks: Tasks) -> None:
    with child(SLEEPING) as running:
        wait_until_old(running.pid)
        taken = tasks.take(full=True, threads=True)
        (process,) = (row for row in rows(PROCESS, taken.process) if row["pid"] == running.pid)
        assert process["threads"] == 2, process
        assert process["comm"].startswith(b"python"), process
        assert process["cpu"] > 0, process
        assert process["rss_anon"] > 0, process
        (private,) = (row for row in rows(PROCESS_PRIVATE, taken.private) if row["pid"] == running.pid)
        assert private["wchan"] or not tells_wchan(running.pid), private
        assert taken.thread is not None
        threads = {row["tid"] for row in rows(THREAD, taken.thread) if row["pid"] == running.pid}
        assert threads == {int(name) for name in os.listdir(f"/proc/{running.pid}/task")}, threads
    del taken
    tasks.close()


def reads_states(states: BpfStates | Looks) -> None:
    with child(SLEEPING) as running:
        wait_until_old(running.pid)
        found, stacks = states.take(full=True, every=True)
        told = {row["tid"]: row for row in rows(THREAD_STATE, found) if row["pid"] == running.pid}
        assert set(told) == {int(name) for name in os.listdir(f"/proc/{running.pid}/task")}, told
        for row in told.values():
            assert row["state"] == b"S", row
            assert row["wchan"] or (not tells_wchan(running.pid) and isinstance(states, Looks)), row
            if isinstance(states, BpfStates):
                assert row["wchan"].decode() in stacks[row["stack"]].split("\n"), stacks[row["stack"]]
    del found
    states.close()


def reads_a_start(runtime: str) -> None:
    way = execs.PinnedExecs(runtime)
    subprocess.run([sys.executable, "-I", "-S", "-c", "pass", "mark"], check=True)
    assert any(b"mark" in each.arguments for each in way.take()[0])
    way.close()


def reads_a_cgroup(runtime: str) -> None:
    way = Buffer(runtime, "made", "cgroups")
    os.mkdir("/sys/fs/cgroup/made-here")
    assert any(b"/made-here" in each for each in way.records())
    way.close()


def counts_bytes(folder: str, column: str) -> None:
    walk = Walk(folder)

    def counted() -> int:
        found = rows(PROCESS_PRIVATE, walk.take(full=True, threads=False).private)
        (count,) = (row[column] for row in found if row["pid"] == os.getpid())
        return int(count)

    before = counted()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sending:
        sending.sendall(bytes(SENT_BYTES))
        with server.accept()[0] as receiving:
            assert len(receiving.recv(SENT_BYTES, socket.MSG_WAITALL)) == SENT_BYTES
    assert counted() - before == SENT_BYTES
    walk.close()


def tried(does: Callable[[], None]) -> str:
    """Why something does not work; empty where it does."""
    try:
        does()
    except (AssertionError, Error, OSError, LookupError, ValueError) as problem:
        return f"{type(problem).__name__}: {problem}" if isinstance(problem, LookupError | ValueError) else str(problem)
    return ""


def by_bpf() -> Iterator[tuple[str, str]]:
    """Load all programs and read by each: its name, and why it does not work."""
    for runtime, left_out in (("/run/first", ""), ("/run/second", "snapshot")):
        os.mkdir(runtime)
        every = [program for program in loader.PROGRAMS if program.name != left_out]
        loader.PROGRAMS = tuple(  # type: ignore[assignment]
            program._replace(unless="") if left_out else program for program in every
        )
        report: Any = loader.load(loader.LoadRequest(runtime, threads=True, sleepers=True))
        folder, programs = report["folder"], report["programs"]
        reads: dict[str, Callable[[], None]] = {
            "ended": lambda runtime=runtime: reads_an_end(exits.PinnedExits(runtime)),  # type: ignore[misc]
            "started": lambda runtime=runtime: reads_a_start(runtime),  # type: ignore[misc]
            "made": lambda runtime=runtime: reads_a_cgroup(runtime),  # type: ignore[misc]
            "signalled": lambda runtime=runtime: reads_a_sender(runtime),  # type: ignore[misc]
            "sent": lambda folder=folder: counts_bytes(folder, "tcp_sent"),  # type: ignore[misc]
            "received": lambda folder=folder: counts_bytes(folder, "tcp_received"),  # type: ignore[misc]
            "snapshot": lambda folder=folder: reads_tasks(Walk(folder)),  # type: ignore[misc]
            "states": lambda folder=folder: reads_states(BpfStates(folder)),  # type: ignore[misc]
        }
        if left_out:
            reads = {"iterate": reads["snapshot"]}
        for name, does in reads.items():
            yield name, programs[name].get("refused") or tried(does)
        loader.unload(runtime)


def by_others() -> Iterator[tuple[str, str]]:
    """Read by the ways that need no program."""
    yield "proc", tried(lambda: reads_tasks(Proc()))
    yield "proc_states", tried(lambda: reads_states(Looks(look_ns=10**10)))
    yield "both", tried(lambda: reads_an_end(exits_netlink.Paired()))
    yield "connector", tried(lambda: reads_an_end(exits_netlink.Heard()))
    yield "taskstats", tried(lambda: reads_an_end(exits_netlink.TaskstatsExits()))


@contextmanager
def machine() -> Iterator[None]:
    """Be process 1: mount what there is to be, and restart the machine at the end, which ends it."""
    for source, point, kind in MOUNTS:
        os.makedirs(point, exist_ok=True)
        if _libc.mount(source.encode(), point.encode(), kind.encode(), 0, None) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), point)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            name, flags = struct.unpack("16sh14x", fcntl.ioctl(asking, SIOCGIFFLAGS, struct.pack("16s16x", b"lo")))
            fcntl.ioctl(asking, SIOCSIFFLAGS, struct.pack("16sh14x", name, flags | IFF_UP))
        yield
    finally:
        _libc.reboot(RB_AUTOBOOT)


def main() -> None:
    """Try everything, and tell."""
    with machine():
        found = {"release": os.uname().release, "ways": dict([*by_bpf(), *by_others()])}
        told = os.open(TOLD, os.O_WRONLY | os.O_NOCTTY)
        os.write(told, json.dumps(found).encode() + b"\n")
        termios.tcdrain(told)


if __name__ == "__main__":
    main()
