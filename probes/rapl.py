# SPDX-License-Identifier: Apache-2.0
"""Energy that processors used, by the part of them that is metered (RAPL), from powercap.

Source: ``Documentation/power/powercap/powercap.rst``. Meters are registers of the processor: a reading interrupts one
CPU of each package for a moment, so they are read every 10 s, when this lane runs anyway. From quicker readings one
could tell what a program computes (PLATYPUS, CVE-2020-8694): only root may read them, and the table is restricted.
"""

from collections.abc import Callable, Iterable
from time import CLOCK_BOOTTIME, clock_gettime_ns

from sysmond.probe import Host, Lane, Probe, Row, Sensitivity, Table, counter, hookimpl, rows_of

FOLDER = "/sys/class/powercap"
# Control types that are RAPL: by registers of the CPU (Intel, AMD), or by memory of the chipset, of the same domains.
PREFIX, BY_MEMORY = "intel-rapl", "intel-rapl-mmio"
DOMAINS_MAX = 128
# A meter that fell has wrapped only if not more power than this explains it; else it began anew, as after a suspend.
POWER_MAX_W = 2000
NS_PER_US = 1000

RAPL = Table(
    "rapl",
    per="domain",
    doc="Energy used by processors: package-0 is a whole package, package-0:core its cores,"
    " package-0:uncore its graphics, package-0:dram its memory, psys the whole board; mmio-… is"
    " the same, read in another way. A whole includes its parts.",
    metrics=(
        counter(
            "energy",
            "J",
            "Energy used. The meter wraps after minutes or hours; this goes on.",
            6,
            f"{FOLDER}/intel-rapl*/energy_uj",
        ),
    ),
)


class Meters:
    """The meters of a machine, and how far each has come: its wraps are undone here."""

    def __init__(self, now_ns: Callable[[], int] = lambda: clock_gettime_ns(CLOCK_BOOTTIME)) -> None:
        """Know no meter yet. ``now_ns``: time since boot, which goes on while the machine is suspended."""
        self._now_ns = now_ns
        self._before: dict[str, tuple[int, int, int]] = {}

    def read(self, host: Host) -> Iterable[Row]:
        """Give a row for each domain."""
        domains = named(host)
        self._before = {name: before for name, before in self._before.items() if name in domains}

        def values(name: str) -> tuple[int]:
            metered = int(host.read(f"{domains[name]}/energy_uj"))
            if metered < 0:
                raise ValueError(f"energy_uj {metered}; expected 0 or more")
            return (self._sum(name, metered, host.integer(f"{domains[name]}/max_energy_range_uj")),)

        return rows_of(domains, values)

    def _sum(self, name: str, metered: int, range_uj: int) -> int:
        """Give what a domain used since its meter began, in microjoules."""
        now_ns = self._now_ns()
        metered_before, sum_before, before_ns = self._before.get(name, (metered, metered, now_ns))
        growth = metered - metered_before
        if growth < 0:
            growth += range_uj
            is_wrap = 0 <= growth <= POWER_MAX_W * (now_ns - before_ns) // NS_PER_US
            growth = growth if is_wrap else metered - sum_before
        self._before[name] = metered, sum_before + growth, now_ns
        return sum_before + growth


def named(host: Host) -> dict[str, str]:
    """Find the domains: by name, those in others after these, their folders."""
    domains: dict[str, str] = {}
    whole: dict[str, str] = {}
    for zone in host.names(FOLDER):
        control, *numbers = zone.split(":")
        if control not in {PREFIX, BY_MEMORY} or not numbers or len(domains) == DOMAINS_MAX:
            continue
        word = host.word(f"{FOLDER}/{zone}/name")
        name = word if isinstance(word, str) else zone
        name = f"mmio-{name}" if control == BY_MEMORY else name
        parent = zone.rpartition(":")[0]
        name = whole[zone] = f"{whole[parent]}:{name}" if parent in whole else name
        domains[name if name not in domains else f"{name}-{zone}"] = f"{FOLDER}/{zone}"
    return domains


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``rapl``."""
    needs = (f"{FOLDER}/{PREFIX}*/energy_uj",)
    probe = Probe(RAPL, Meters().read, 10.0, Lane.BACKGROUND, Sensitivity.RESTRICTED, subsystems=("powercap",))
    return [probe._replace(needs=needs, privilege="CAP_DAC_READ_SEARCH")]
