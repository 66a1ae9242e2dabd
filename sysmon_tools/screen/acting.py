# SPDX-License-Identifier: Apache-2.0
"""What is done to a process from the screen: a signal, another priority. The kernel decides who may.

A number is not a process: it may have been used again since the row was read. A descriptor is taken first, and who it
is of is compared with the row by the moment of its start.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.errors import Error, NotPermittedError, UsageError

# Rows have the start in UTC as it was read then; the clock may have been set a little since.
_SAME_START_NS = 2 * SECOND_NS
# The field of a process's start in /proc/PID/stat, counted behind its name: proc_pid_stat(5).
_START_FIELD = 19
_PRIORITIES = range(-20, 20)

# What is done to a process, by its number and start in UTC nanoseconds; gives a line that says so.
Deed = Callable[[int, int], str]


def signal_of(text: str) -> signal.Signals:
    """Read the name or number of a signal: TERM, SIGKILL, 9.

    :raises UsageError: for what is none.
    """
    name = text.strip().upper()
    try:
        if name.isdecimal():
            return signal.Signals(int(name))
        return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]
    except (KeyError, ValueError):
        raise UsageError(f"signal {text!r}: no such signal; expected a name or a number, as TERM or 9") from None


def send(pid: int, started_ns: int, number: signal.Signals) -> str:
    """Send a signal to the process of a row; gives what was done.

    :raises Error: where it has ended. :raises NotPermittedError: where it is not ours.
    """
    with _meant(pid, started_ns) as process:
        signal.pidfd_send_signal(process, number)
    return f"sent {number.name} to process {pid}"


def renice(pid: int, started_ns: int, by: int) -> str:
    """Change the nice value of the process of a row; gives what it is now.

    :raises Error: where it has ended. :raises NotPermittedError: where it is not ours, or may not be less nice.
    """
    with _meant(pid, started_ns):
        nice = os.getpriority(os.PRIO_PROCESS, pid) + by
        nice = min(_PRIORITIES[-1], max(_PRIORITIES[0], nice))
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    return f"process {pid} has the nice value {nice}"


@contextmanager
def _meant(pid: int, started_ns: int) -> Iterator[int]:
    """Hold the process that started then; its number stays its own as long as nobody waits for it."""
    try:
        process = os.pidfd_open(pid)
        try:
            if abs(_started_ns(pid) - started_ns) > _SAME_START_NS:
                raise ProcessLookupError
            yield process
        finally:
            os.close(process)
    except (ProcessLookupError, FileNotFoundError):
        raise Error(f"process {pid}: has ended") from None
    except PermissionError:
        raise NotPermittedError(f"process {pid}: no permission") from None
    except OSError as problem:
        raise Error(f"process {pid}: {problem.strerror}") from None


def _started_ns(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    now = clock.relation()
    since_boot_ns = int(fields[_START_FIELD]) * SECOND_NS // os.sysconf("SC_CLK_TCK")
    return now.realtime_ns - now.boottime_ns + since_boot_ns
