# SPDX-License-Identifier: Apache-2.0
"""Limits of the clock frequency of CPUs, who sets them and by what rule, from cpufreq.

Source: ``Documentation/admin-guide/pm/cpufreq.rst``, ``intel_pstate.rst``. The frequency itself is ``cpu/frequency``,
read each second with the times of the CPU. Never ``cpuinfo_cur_freq``: it interrupts an idle CPU to ask its hardware.
"""

from collections.abc import Iterator

from sysmond.probe import ABSENT, Answers, Derived, Host, Lane, Metric, Probe, Row, Table, Tells, gauge, hookimpl, text

FOLDER = "/sys/devices/system/cpu/cpufreq"
CPUS_MAX = 1024
HZ_PER_KHZ = 1000


def _frequency(name: str, field: str, doc: str) -> Metric:
    return gauge(name, "Hz", doc, origin=f"{FOLDER}/policy*/{field}")


def _text(name: str, field: str, doc: str) -> Metric:
    return text(name, doc, f"{FOLDER}/policy*/{field}")


CPU_FREQUENCY = Table(
    "cpu_frequency",
    per="cpu",
    doc="The range of clock frequencies allowed for each online CPU. CPUs that share a clock have the same values.",
    metrics=(
        _frequency("minimum", "scaling_min_freq", "Lowest frequency allowed now."),
        _frequency(
            "maximum", "scaling_max_freq", "Highest frequency allowed now; people, programs or heat may lower it."
        ),
        _frequency("bios_limit", "bios_limit", "Highest frequency that the firmware allows now."),
        _frequency("hardware_minimum", "cpuinfo_min_freq", "Lowest frequency of the hardware."),
        _frequency("hardware_maximum", "cpuinfo_max_freq", "Highest frequency of the hardware, boost included."),
        _frequency("base", "base_frequency", "Highest frequency without boost; intel_pstate only."),
        _text("governor", "scaling_governor", "What decides the frequency, such as schedutil."),
        _text("driver", "scaling_driver", "Driver that sets the frequency, such as intel_pstate."),
        _text(
            "energy_preference",
            "energy_performance_preference",
            "Preference given to the CPU, such as balance_power.",
        ),
    ),
    answers=Answers(
        derived=(
            Derived(
                "allowed",
                "%",
                "maximum / hardware_maximum * 100",
                "Highest frequency allowed, as a share of the hardware's.",
            ),
        )
    ),
)
FILES = [(metric.origin.rpartition("/")[2], metric.is_text) for metric in CPU_FREQUENCY.metrics]


def read(host: Host) -> Iterator[Row]:
    """Give a row for each CPU; what CPUs share is read once."""
    known: set[str] = set()
    for policy in host.names(FOLDER):
        cpus = str(host.word(f"{FOLDER}/{policy}/affected_cpus")).split() if policy.startswith("policy") else []
        values = [_value(host, f"{FOLDER}/{policy}/{file}", is_text=is_text) for file, is_text in FILES if cpus]
        for cpu in cpus[: CPUS_MAX - len(known)]:
            if cpu.isdecimal() and cpu not in known:
                known.add(cpu)
                yield f"cpu{cpu}", values


def _value(host: Host, path: str, *, is_text: bool) -> int | str:
    if is_text:
        return host.word(path)
    frequency = host.integer(path)
    return frequency * HZ_PER_KHZ if frequency >= 0 else ABSENT


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``cpu_frequency``: nine files a clock, so seldom; limits hold for seconds."""
    needs, tells = (f"{FOLDER}/policy*/scaling_max_freq",), (Tells("governor", "governor"),)
    return [Probe(CPU_FREQUENCY, read, 10.0, Lane.BACKGROUND, subsystems=("cpu",), needs=needs, tells=tells)]
