# SPDX-License-Identifier: Apache-2.0
"""How the boot before this one ended, where that is written down: crash records of pstore, and watchdogs.

Source: ``/sys/fs/pstore`` and ``/sys/class/watchdog``, which ``sysmond.sources.crash_records`` reads. What a kernel
wrote when it died may name programs and files, so it is restricted.
"""

from sysmond.probe import Lane, Probe, Sensitivity, Table, gauge, hookimpl, state, text
from sysmond.sources.crash_records import KIND, MOVED, PSTORE, WATCHDOGS, CrashRecords, watchdogs

INTERVAL_S = 300.0

PSTORE_RECORDS = Table(
    "pstore",
    doc="Kernel crash records that firmware or memory kept across a reset. The last panic among them is an event.",
    metrics=(
        gauge(
            "records",
            "1",
            "Crash records: those still in place, and those that systemd-pstore moved during this boot.",
            origin=f"{PSTORE}/dmesg-*, {MOVED}",
        ),
    ),
)
WATCHDOG = Table(
    "watchdog",
    per="watchdog",
    doc="Watchdogs of the machine, and whether one of them reset it before this boot; if so, that is an event.",
    metrics=(
        state(
            "boot_status",
            "Why it reset the machine, as a sum: 0 it did not, 1 overheated, 2 fan, 4 and 8 external"
            " relays, 16 too little power, 32 it was not fed in time, 64 too much power.",
            f"{WATCHDOGS}/*/bootstatus",
        ),
        gauge("timeout", "s", "It resets the machine if it is not fed for this long.", origin=f"{WATCHDOGS}/*/timeout"),
        text("identity", "The name it gives itself.", f"{WATCHDOGS}/*/identity"),
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``pstore`` and ``watchdog``."""
    crashes = Probe(PSTORE_RECORDS, CrashRecords().read, INTERVAL_S, Lane.BACKGROUND, Sensitivity.RESTRICTED)
    dogs = Probe(WATCHDOG, watchdogs, INTERVAL_S, Lane.BACKGROUND)
    return [
        crashes._replace(needs=(PSTORE, MOVED), privilege="CAP_DAC_READ_SEARCH", told_kinds=(KIND,)),
        dogs._replace(needs=(f"{WATCHDOGS}/watchdog*",), told_kinds=(KIND,)),
    ]
