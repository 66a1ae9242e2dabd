# SPDX-License-Identifier: Apache-2.0
"""CPU time by kind of work, clock frequencies, and how busy the scheduler is, from /proc/stat and cpufreq.

Source: ``Documentation/filesystems/proc.rst`` (section 1.7) and ``Documentation/admin-guide/pm/cpufreq.rst``.
"""

import os

from sysmond.probe import ABSENT, Fields, Host, Metric, Probe, Row, Table, counter, gauge, hookimpl
from sysmond.sources.forks import KIND, ForkStorms

STAT = "/proc/stat"
SYSFS = "/sys/devices/system/cpu"
# The kernel counts in 1/USER_HZ s, which is 100 except on a few old architectures; the scale 2 of the metrics fits 100.
USER_HZ = os.sysconf("SC_CLK_TCK")
HZ_OF_SCALE = 100


def _time(field: int, name: str, doc: str) -> Metric:
    return counter(name, "s", doc, scale=2, origin=f"{STAT} cpu {field}")


TIMES = (
    _time(1, "user", "Time in user mode at normal priority; includes guest."),
    _time(2, "nice", "Time in user mode at lowered priority (nice > 0); includes guest_nice."),
    _time(3, "system", "Time in kernel mode, without interrupts."),
    _time(4, "idle", "Time with nothing to do and no disk I/O outstanding."),
    _time(5, "iowait", "Idle time while tasks of this CPU waited for disk I/O; the kernel may correct it downwards."),
    _time(6, "irq", "Time serving hardware interrupts."),
    _time(7, "softirq", "Time serving soft interrupts."),
    _time(8, "steal", "Time in which the hypervisor ran something else, though this virtual CPU had work."),
    _time(9, "guest", "Time running virtual CPUs of guests at normal priority; also contained in user."),
    _time(10, "guest_nice", "Time running virtual CPUs of guests at lowered priority; also contained in nice."),
)
CPU = Table(
    "cpu",
    per="cpu",
    doc="What each CPU that is online, and all of them together (total), spent its time on.",
    metrics=(
        *TIMES,
        gauge("frequency", "Hz", "Current clock frequency.", origin=f"{SYSFS}/cpu*/cpufreq/scaling_cur_freq"),
    ),
)

SOFT_INTERRUPTS = (
    ("hi", "high-priority tasklets"),
    ("timer", "kernel timers"),
    ("net_tx", "network transmission"),
    ("net_rx", "network reception"),
    ("block", "completed block I/O"),
    ("irq_poll", "polled block I/O"),
    ("tasklet", "tasklets"),
    ("sched", "balancing tasks between CPUs"),
    ("hrtimer", "high-resolution timers"),
    ("rcu", "read-copy-update callbacks"),
)
SYSTEM = Table(
    "system",
    doc="Scheduling, process creation and interrupts of the whole system.",
    metrics=(
        gauge("processes_running", "1", "Threads running or ready to run.", origin=f"{STAT} procs_running"),
        gauge("processes_blocked", "1", "Threads waiting for disk I/O to complete.", origin=f"{STAT} procs_blocked"),
        counter("context_switches", "1", "Switches of a CPU from one thread to another.", origin=f"{STAT} ctxt"),
        counter("forks", "1", "Processes and threads created.", origin=f"{STAT} processes"),
        counter("interrupts", "1", "Hardware interrupts served, of every source.", origin=f"{STAT} intr 1"),
        counter("soft_interrupts", "1", "Soft interrupts served, of every kind.", origin=f"{STAT} softirq 1"),
        *(
            counter(f"soft_interrupts_{name}", "1", f"Soft interrupts for {what}.", origin=f"{STAT} softirq {field}")
            for field, (name, what) in enumerate(SOFT_INTERRUPTS, 2)
        ),
    ),
)
_SYSTEM_FIELDS = Fields((b"procs_running", b"procs_blocked", b"ctxt", b"processes"))
FORKS = [metric.name for metric in SYSTEM.metrics].index("forks")
_SOFT_INTERRUPT_NUMBERS = 1 + len(SOFT_INTERRUPTS)


def parse_cpus(content: bytes) -> tuple[list[bytes], list[list[int]]]:
    """Give the first words and the times of the ``cpu`` lines, which stand before ``intr``.

    :raises ValueError: when the content is not that of /proc/stat.
    """
    if not content.startswith(b"cpu "):
        raise ValueError(f"{STAT} begins with {content[:16]!r}; expected 'cpu '")
    names = []
    rows = []
    for line in content.partition(b"\nintr ")[0].split(b"\n"):
        name, *numbers = line.split(None, 11)
        times = list(map(int, numbers[:10]))
        if len(times) < len(TIMES):
            times += [ABSENT] * (len(TIMES) - len(times))
        if USER_HZ != HZ_OF_SCALE:
            times = [time if time == ABSENT else time * HZ_OF_SCALE // USER_HZ for time in times]
        names.append(name)
        rows.append(times)
    return names, rows


def parse_system(content: bytes) -> list[int]:
    """Give the numbers of the lines after the ``cpu`` ones; of ``intr``, which is long, only the first."""
    _, _, after = content.partition(b"\nintr ")
    pairs, _, soft = after[after.find(b"\n") + 1 :].partition(b"\nsoftirq ")
    words = pairs.split()
    if not words or len(words) % 2:
        raise ValueError(f"{STAT} has {len(words)} words after 'intr'; expected pairs of name and number")
    values = _SYSTEM_FIELDS.pick(words[::2], words[1::2])
    values.append(int(after[:24].split(None, 1)[0]))
    numbers = soft.partition(b"\n")[0].split()[:_SOFT_INTERRUPT_NUMBERS]
    values += map(int, numbers)
    if len(numbers) < _SOFT_INTERRUPT_NUMBERS:
        values += [ABSENT] * (_SOFT_INTERRUPT_NUMBERS - len(numbers))
    return values


class Cpus:
    """The CPUs of a host and the files with their frequencies: looked up when something changes, not every tick."""

    def __init__(self) -> None:
        """Know no host yet."""
        self._host: Host | None = None
        self._names: list[bytes] = []
        self._policies: list[str] = []
        self._cpus: list[tuple[str, str]] = []

    def read(self, host: Host) -> list[Row]:
        """Read a row for each CPU that is online, and one for all."""
        names, rows = parse_cpus(host.read(STAT))
        policies = host.names(f"{SYSFS}/cpufreq")
        if names != self._names or policies != self._policies or host is not self._host:
            self._cpus = [_cpu(host, name) for name in names]
            self._names, self._policies, self._host = names, policies, host
        for (_, path), times in zip(self._cpus, rows, strict=True):
            frequency = host.integer(path) if path else ABSENT
            times.append(frequency if frequency == ABSENT else frequency * 1000)
        return [(instance, times) for (instance, _), times in zip(self._cpus, rows, strict=True)]


def _cpu(host: Host, name: bytes) -> tuple[str, str]:
    """Give the instance, and the path of its frequency or nothing."""
    if name == b"cpu":
        return "total", ""
    if not name[3:].isdigit() or not name.startswith(b"cpu"):
        raise ValueError(f"{STAT} has a line {name!r} among those of the CPUs; expected 'cpu' and a number")
    path = f"{SYSFS}/{name.decode()}/cpufreq/scaling_cur_freq"
    return name.decode(), path if host.integer(path) != ABSENT else ""


class Whole:
    """Reads the one row of the whole system, and tells of storms of new processes."""

    def __init__(self) -> None:
        """Know of none."""
        self._storms = ForkStorms(os.cpu_count() or 1)

    def read(self, host: Host) -> list[Row]:
        """Give the row."""
        values = parse_system(host.read(STAT))
        if said := self._storms.look(values[FORKS]):
            host.tell_event(KIND, "", said)
        return [("", values)]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``cpu`` and ``system``."""
    return [Probe(CPU, Cpus().read, subsystems=("cpu",)), Probe(SYSTEM, Whole().read, told_kinds=(KIND,))]
