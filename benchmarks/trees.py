# SPDX-License-Identifier: Apache-2.0
"""What a program costs with all the processes below it: processor time, memory, system calls."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure, memory
from benchmarks.measure import SECOND_NS

ATTACH_S = 1.0
LASTING_S, ATTEMPTS = 0.3, 3
END_S = 30.0
_ENTRIES = "raw_syscalls:sys_enter"
_GONE = (ProcessLookupError, FileNotFoundError, OSError)


class Cost(NamedTuple):
    """What a tree of processes cost: processor time in ms a second, user and system together.

    ``pss_mb``: proportional set size, in 1,000,000 bytes, at the end. ``processes``: how many there were then.
    """

    cpu_ms: float
    pss_mb: float
    processes: int


def parents() -> dict[int, int]:
    """The parent of each process, by their numbers (/proc/PID/stat, the fourth field)."""
    by_pid = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(*_GONE), open(f"/proc/{name}/stat", "rb") as file:
                # The name may hold anything but ends at the last parenthesis.
                by_pid[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return by_pid


def below(roots: Iterable[int], *, roots_too: bool = True) -> list[int]:
    """The processes that descend from some others, and these."""
    children = defaultdict(list)
    for pid, parent in parents().items():
        children[parent].append(pid)
    first = list(roots)
    pids = list(first)
    for pid in pids:
        pids += children.get(pid, [])
    return pids if roots_too else pids[len(first) :]


def spent_ns(pids: Iterable[int]) -> int:
    """Processor time of processes, their ended threads and children included; what has gone counts nothing."""
    total = 0
    for pid in pids:
        with suppress(*_GONE):
            total += measure.cpu_ns(pid) + measure.children_cpu_ns(pid)
    return total


def pss_mb(pids: Iterable[int]) -> float:
    """Proportional set size of processes together."""
    total = 0
    for pid in pids:
        with suppress(*_GONE):
            total += memory.pss_bytes(pid)
    return round(total / 1e6, 2)


@contextmanager
def running(command: Sequence[str], output: int | str = os.devnull) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program beside this one; at the end of the block it and its descendants get SIGTERM, then SIGKILL."""
    with ExitStack() as stack:
        said = output if isinstance(output, int) else stack.enter_context(open(output, "wb"))
        at_terminal = isinstance(output, int)
        process = subprocess.Popen(
            command,
            stdin=said if at_terminal else subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for ending in (signal.SIGTERM, signal.SIGKILL):
        for pid in below([process.pid], roots_too=False):
            with suppress(*_GONE):
                os.kill(pid, ending)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S if ending is signal.SIGTERM else 1.0)
            return
    process.kill()
    process.wait()


def cost(roots: Sequence[int], seconds: int, *, roots_too: bool = True) -> Cost:
    """Watch a tree for so many seconds.

    :raises RuntimeError: where nothing of it is left at the end.
    """
    before = spent_ns(below(roots, roots_too=roots_too))
    begin_ns = time.monotonic_ns()
    time.sleep(seconds)
    pids = below(roots, roots_too=roots_too)
    took_s = (time.monotonic_ns() - begin_ns) / SECOND_NS
    after = spent_ns(pids)
    share = pss_mb(pids)
    if not share:
        raise RuntimeError("it ended before its time")
    return Cost(measure.ms((after - before) / took_s, 3), share, len(pids))


@cache
def counter() -> str:
    """The program that counts system calls here: perf, which costs what is counted next to nothing, else strace."""
    perf = ["perf", "stat", "-x,", "-e", _ENTRIES, "--", "true"]
    if shutil.which("perf") and not subprocess.run(perf, capture_output=True, check=False).returncode:
        return "perf"
    return "strace" if shutil.which("strace") else ""


def system_calls(pids: Sequence[int], seconds: int) -> float | None:
    """How many system calls processes and what they start make a second; None where nothing can count them.

    :raises RuntimeError: where what should count them does not.
    """
    program = counter()
    if not program or not pids:
        return None
    for attempt in range(ATTEMPTS):
        # What starts and ends all the time is counted with what starts it: only what stays is attached to.
        time.sleep(LASTING_S)
        lasting = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        try:
            count, took_s = (_by_perf if program == "perf" else _by_strace)(lasting, seconds)
        except RuntimeError:
            if attempt + 1 == ATTEMPTS:
                raise
        else:
            return round(count / took_s, 1)
    return None


def _by_perf(pids: Sequence[int], seconds: int) -> tuple[int, float]:
    wanted = ",".join(map(str, pids))
    command = ["perf", "stat", "-x,", "-e", _ENTRIES, "-p", wanted, "--", "sleep", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + END_S)
    match = re.search(rf"^(\d+),.*{_ENTRIES}", done.stderr, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"perf stat: {done.stderr.strip().rpartition(os.linesep)[2] or 'it says nothing'}")
    return int(match[1]), seconds


def _by_strace(pids: Sequence[int], seconds: int) -> tuple[int, float]:
    with tempfile.NamedTemporaryFile("r", prefix="sysmond-strace-") as output:
        attached = [word for pid in pids for word in ("-p", str(pid))]
        command = ["strace", "-c", "-f", "-U", "name,calls", "-o", output.name, *attached]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracing:
            time.sleep(ATTACH_S + seconds)
            tracing.send_signal(signal.SIGINT)
            tracing.wait(END_S)
        counts = dict(re.findall(r"^\s*([a-z_0-9]+)\s+(\d+)\s*$", output.read(), re.MULTILINE))
    if "total" not in counts:
        raise RuntimeError("strace: it may not attach here")
    return int(counts["total"]), ATTACH_S + seconds
