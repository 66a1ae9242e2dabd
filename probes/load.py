# SPDX-License-Identifier: Apache-2.0
"""Load averages and the number of tasks, from /proc/loadavg.

Source: ``Documentation/filesystems/proc.rst`` and ``kernel/sched/loadavg.c``.
"""

from sysmond.probe import Host, Metric, Probe, Row, Table, gauge, hookimpl

LOADAVG = "/proc/loadavg"


def _average(field: int, minutes: int) -> Metric:
    doc = f"Tasks running, ready to run or in uninterruptible sleep, as a damped average of {minutes} min."
    return gauge(f"average_{minutes}min", "1", doc, scale=2, origin=f"{LOADAVG} {field}")


LOAD = Table(
    "load",
    doc="The system's load averages, and how many tasks there are.",
    metrics=(
        _average(1, 1),
        _average(2, 5),
        _average(3, 15),
        gauge("tasks_runnable", "1", "Threads running or ready to run now.", origin=f"{LOADAVG} 4, before '/'"),
        gauge("tasks", "1", "Threads that exist now, including kernel threads.", origin=f"{LOADAVG} 4, after '/'"),
    ),
)


def parse(content: bytes) -> tuple[int, ...]:
    """Give the values of ``0.00 0.05 0.01 1/88 6020``.

    :raises ValueError: when it does not look like that.
    """
    try:
        *averages, tasks, _last_pid = content.split()
        one, five, fifteen = map(_hundredths, averages)
        runnable, existing = map(int, tasks.split(b"/"))
    except ValueError:
        raise ValueError(f"{LOADAVG} holds {content[:64]!r}; expected the form '0.00 0.05 0.01 1/88 6020'") from None
    return one, five, fifteen, runnable, existing


def _hundredths(number: bytes) -> int:
    whole, decimals = number.split(b".")
    if len(decimals) != 2:  # noqa: PLR2004 - the kernel always prints two
        raise ValueError(number)
    return int(whole + decimals)


def read(host: Host) -> list[Row]:
    """Read the one row of the whole system."""
    return [("", parse(host.read(LOADAVG)))]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``load``."""
    return [Probe(LOAD, read, pure=True)]
