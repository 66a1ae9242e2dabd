# SPDX-License-Identifier: Apache-2.0
"""What is done to a process from the screen: a signal, another priority, also at the disk. The kernel decides who may.

A number is not a process: it may have been used again since the row was read. A descriptor is taken first, and who it
is of is compared with the row by the moment of its start.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.tasks import syscalls

# Rows have the start in UTC as it was read then; the clock may have been set a little since.
_SAME_START_NS = 2 * SECOND_NS
# The field of a process's start in /proc/PID/stat, counted behind its name: proc_pid_stat(5).
_START_FIELD = 19
_PRIORITIES = range(-20, 20)
# linux/ioprio.h: whom a number means, how a class is put above its level, the classes, and how many levels there are.
_IOPRIO_WHO_PROCESS, _IOPRIO_CLASS_SHIFT, _IOPRIO_LEVELS = 1, 13, 8
_IO_CLASSES = {"realtime": 1, "best-effort": 2, "idle": 3}
_IO_FORMS = "expected idle, 0 (first) to 7 (last), or realtime 0 to 7"


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
        raise UsageError(f"signal {text!r}: no such signal; expected a name or a number, such as TERM or 9") from None


def io_priority_of(text: str) -> int:
    """Read when it is a process's turn at the disk, as the kernel numbers it: idle, 0 to 7, realtime 4.

    :raises UsageError: for what is none.
    """
    *kind, level = text.split() or [""]
    if [level] == ["idle"] and not kind:
        return _IO_CLASSES["idle"] << _IOPRIO_CLASS_SHIFT
    name = kind[0] if kind else "best-effort"
    if len(kind) > 1 or name not in {"realtime", "best-effort"} or level not in map(str, range(_IOPRIO_LEVELS)):
        raise UsageError(f"I/O priority {text!r}: {_IO_FORMS}")
    return (_IO_CLASSES[name] << _IOPRIO_CLASS_SHIFT) + int(level)


def send(pid: int, started_ns: int, number: signal.Signals) -> str:
    """Send a signal to the process of a row; gives what was done.

    :raises Error: where it has ended. :raises NotPermittedError: where it is not ours.
    """
    with _meant(pid, started_ns) as process:
        signal.pidfd_send_signal(process, number)
    return f"sent {number.name} to process {pid}"


def renice(pid: int, started_ns: int, by: int) -> str:
    """Change the nice value of the process of a row, of all its threads; gives what it is now.

    :raises Error: where it has ended. :raises NotPermittedError: where it is not ours, or may not be less nice.
    """
    with _meant(pid, started_ns):
        nice = os.getpriority(os.PRIO_PROCESS, pid) + by
        nice = min(_PRIORITIES[-1], max(_PRIORITIES[0], nice))
        os.setpriority(os.PRIO_PROCESS, pid, nice)
        for thread in _others(pid):  # To the kernel the number of a process is that of its first thread.
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, thread, nice)
    return f"process {pid} has the nice value {nice}"


def ionice(pid: int, started_ns: int, text: str) -> str:
    """Change the I/O priority of the process of a row, of all its threads; gives what was done.

    :raises Error: as ``renice``. :raises UsageError: as ``io_priority_of``.
    """
    priority = io_priority_of(text)
    number = syscalls.number("ioprio_set") if sys.maxsize > 2**32 else None  # They are numbered otherwise for 32 bits.
    if number is None:
        raise Error(f"process {pid}: setting I/O priorities is not supported on {os.uname().machine}")
    call = ctypes.CDLL(None, use_errno=True).syscall
    with _meant(pid, started_ns):
        if call(number, _IOPRIO_WHO_PROCESS, pid, priority):
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed))
        for thread in _others(pid):
            call(number, _IOPRIO_WHO_PROCESS, thread, priority)
    return f"process {pid} has the I/O priority {' '.join(text.split())}"


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


def _others(pid: int) -> list[int]:
    """The threads of a process but its first."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid]


def _started_ns(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    now = clock.relation()
    since_boot_ns = int(fields[_START_FIELD]) * SECOND_NS // os.sysconf("SC_CLK_TCK")
    return now.realtime_ns - now.boottime_ns + since_boot_ns
