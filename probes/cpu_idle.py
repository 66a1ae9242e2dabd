# SPDX-License-Identifier: Apache-2.0
"""How often and how long each CPU was in each of its idle states, from cpuidle.

Source: ``Documentation/admin-guide/pm/cpuidle.rst``. The kernel counts in memory: reading wakes no CPU.
"""

from collections.abc import Iterator
from itertools import islice

from sysmond.probe import ABSENT, Host, Lane, Probe, Row, Table, counter, gauge, hookimpl

FOLDER = "/sys/devices/system/cpu"
# 256 CPUs of four states.
ROWS_MAX = 1024

CPU_IDLE = Table(
    "cpu_idle",
    per="cpu:state",
    doc=f"Idle states of CPUs by name (cpu3:C6): the deeper one is, the more power it saves. {ROWS_MAX} at most.",
    metrics=(
        counter("entered", "1", "How often the CPU entered the state.", origin=f"{FOLDER}/cpu*/cpuidle/state*/usage"),
        counter(
            "residency",
            "s",
            "How long the CPU was in the state, as requested.",
            6,
            f"{FOLDER}/cpu*/cpuidle/state*/time",
        ),
        gauge("latency", "s", "How long it takes to leave it.", 6, f"{FOLDER}/cpu*/cpuidle/state*/latency"),
    ),
)
FILES = [metric.origin.rpartition("/")[2] for metric in CPU_IDLE.metrics]


def states(host: Host) -> Iterator[Row]:
    """Give a row for each state of each CPU; a second one of a name has its number, too."""
    for cpu in host.names(FOLDER):
        if not cpu.startswith("cpu") or not cpu[3:].isdecimal():
            continue
        names: set[int | str] = set()
        for state in host.names(f"{FOLDER}/{cpu}/cpuidle"):
            folder = f"{FOLDER}/{cpu}/cpuidle/{state}"
            name = host.word(f"{folder}/name")
            values = [host.integer(f"{folder}/{file}") for file in FILES]
            if values[0] != ABSENT:
                yield f"{cpu}:{state if name == ABSENT else f'{name}-{state}' if name in names else name}", values
            names.add(name)


def read(host: Host) -> Iterator[Row]:
    """Give these rows, as many as there may be."""
    return islice(states(host), ROWS_MAX)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``cpu_idle``: counters, which miss nothing between two readings."""
    needs = (f"{FOLDER}/cpu*/cpuidle/state*/time",)
    return [Probe(CPU_IDLE, read, 10.0, Lane.BACKGROUND, subsystems=("cpu",), needs=needs)]
