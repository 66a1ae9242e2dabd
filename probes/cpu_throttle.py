# SPDX-License-Identifier: Apache-2.0
"""How often and how long CPUs were slowed down because they were too hot, from thermal_throttle.

Source: ``drivers/thermal/intel/therm_throt.c``: numbers that the kernel keeps in memory, so
that reading them interrupts no CPU. Only Intel's CPUs tell it; times since Linux 5.5.
"""

from collections.abc import Iterator

from sysmond.probe import ABSENT, Answers, Derived, Host, Lane, Probe, Row, Table, Tells, counter, gauge, hookimpl

FOLDER = "/sys/devices/system/cpu"
CPUS_MAX = 1024


def _origin(field: str) -> str:
    return f"{FOLDER}/cpu*/thermal_throttle/*_{field}"


CPU_THROTTLE = Table(
    "cpu_throttle",
    per="cpu",
    doc="Slowdowns because of heat, for each online CPU and each package (package0), as counted by"
    " its first CPU. CPUs of one core have the same counts. Only Intel CPUs report them; others"
    " have no row.",
    metrics=(
        counter("throttled", "1", "How often it was slowed down.", origin=_origin("throttle_count")),
        counter("throttled_time", "s", "How long it was slowed down.", 3, _origin("throttle_total_time_ms")),
        gauge("longest", "s", "The longest single slowdown since boot.", 3, _origin("throttle_max_time_ms")),
    ),
    answers=Answers(
        derived=(
            Derived("throttled_percent", "%", "throttled_time * 100", "Share of time in which it was slowed down."),
        )
    ),
)
FIELDS = [metric.origin.rpartition("_throttle_")[2] for metric in CPU_THROTTLE.metrics]


def places(host: Host) -> dict[str, str]:
    """Find what is counted: by instance, how the paths of its files begin. A CPU that is offline has no topology."""
    places: dict[str, str] = {}
    names = (name for name in host.names(FOLDER) if name.startswith("cpu") and name[3:].isdecimal())
    for name in sorted(names, key=lambda name: int(name[3:]))[:CPUS_MAX]:
        package = host.integer(f"{FOLDER}/{name}/topology/physical_package_id")
        if package != ABSENT:
            places[name] = f"{FOLDER}/{name}/thermal_throttle/core"
            places.setdefault(f"package{package}", f"{FOLDER}/{name}/thermal_throttle/package")
    return places


def read(host: Host) -> Iterator[Row]:
    """Give a row for each CPU, and for each package by its first."""
    for instance, path in places(host).items():
        values = [host.integer(f"{path}_throttle_{field}") for field in FIELDS]
        if values[0] != ABSENT:
            yield instance, values


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``cpu_throttle``: counters, which miss nothing between two readings."""
    needs = (f"{FOLDER}/cpu*/thermal_throttle/core_throttle_count",)
    tells = (Tells("throttled", "throttled", grows=True),)
    return [Probe(CPU_THROTTLE, read, 5.0, Lane.BACKGROUND, subsystems=("cpu",), needs=needs, tells=tells)]
