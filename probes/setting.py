# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel that decide how fast a machine is, by name; each that becomes another is an event.

Source: files that ``sysmond.sources.settings`` names.
"""

from sysmond.probe import Lane, Probe, Table, hookimpl, text
from sysmond.sources.settings import KIND, PLAN, KernelSettings

INTERVAL_S = 60.0

SETTING = Table(
    "setting",
    per="setting",
    doc="Kernel settings, such as vm.swappiness or io_scheduler.sda, the processor's microcode, and"
    f" {PLAN}, a number that changes when sysmond is set to record something else.",
    metrics=(text("value", "What it is set to.", "/proc/sys, /sys"),),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``setting``."""
    return [
        Probe(SETTING, KernelSettings().read, INTERVAL_S, Lane.BACKGROUND, subsystems=("block",), told_kinds=(KIND,))
    ]
