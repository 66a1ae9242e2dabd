# SPDX-License-Identifier: Apache-2.0
"""What disks tell of their own health (SMART), through smartctl of smartmontools.

Source: smartctl(8) (``sysmond.sources.smartctl``), which needs CAP_SYS_RAWIO for ATA and CAP_SYS_ADMIN for NVMe: these
two tables have a part of their own, which is started every five minutes, and ends.
"""

from collections.abc import Iterator
from functools import partial

from sysmond.probe import (
    ABSENT,
    Absence,
    Host,
    Lane,
    Option,
    Probe,
    Row,
    Table,
    counter,
    gauge,
    hookimpl,
    state,
    text,
)
from sysmond.sources.smart_disks import NAMED, Disks
from sysmond.sources.smartctl import PROGRAMS

INTERVAL_S = 300.0
EVERY = Option("every_min", 30, "How often a disk is asked, in minutes; in between, its last answer stands.", 5, 1440)
DEVICES = Option(
    "devices",
    "",
    "Disks behind RAID controllers, as '/dev/sda -d megaraid,0; /dev/sda -d megaraid,1': device"
    " and type as smartctl(8) has them. The device that leads to them is not asked itself.",
    pattern=NAMED,
)

_gauge = partial(gauge, scale=0)

SMART = Table(
    "smart",
    per="disk",
    doc="What each ATA, SCSI or NVMe disk reports about its own health, over its whole life. It is"
    " asked every half hour; in between, its last answer stands. A sleeping disk is left asleep,"
    " and a rotating one is asked only while somebody else is using it; both are checked again"
    " every five minutes. Serial numbers are not recorded.",
    metrics=(
        state("healthy", "The disk's own verdict: 1 healthy, 0 failing or about to fail.", "smart_status.passed"),
        state(
            "verdict",
            "What smartctl found, as a sum: 8 the disk is failing; 16 an attribute has reached its"
            " threshold; 32 one did so in the past; 64 its error log has entries; 128 its self-test log"
            " has errors.",
            "exit code of smartctl, bits 3 to 7",
        ),
        state(
            "warning",
            "NVMe: critical warnings, as a sum: 1 few spare blocks; 2 temperature; 4 unreliable; 8"
            " read-only; 16 the backup of its volatile memory failed.",
            "NVMe critical_warning",
        ),
        gauge("temperature", "°C", "Its temperature.", 0, "temperature.current"),
        gauge("power_on", "s", "Total time it has been powered on; most disks count in hours.", 0, "power_on_time"),
        gauge("power_cycles", "1", "How often it was switched on.", 0, "power_cycle_count"),
        gauge(
            "unsafe_shutdowns",
            "1",
            "How often it lost power without warning.",
            0,
            "NVMe unsafe_shutdowns, ATA by name of the attribute",
        ),
        gauge(
            "percent_used",
            "%",
            "How much of the life promised by its maker is used up; may exceed 100.",
            0,
            "NVMe percentage_used, ATA device statistics or attribute of wear, SCSI endurance indicator",
        ),
        gauge("spare", "%", "Share of its spare blocks that are left.", 0, "available_spare, ATA attribute 232"),
        gauge("spare_min", "%", "Below this share it warns.", 0, "NVMe available_spare_threshold"),
        gauge("reallocated", "1", "Sectors replaced by spare ones.", 0, "ATA attribute 5, SCSI grown defects"),
        gauge(
            "pending",
            "1",
            "Sectors that could not be read and are to be remapped when they are written.",
            0,
            "ATA attribute 197",
        ),
        gauge("uncorrectable", "1", "Sectors that it found unreadable when it checked itself.", 0, "ATA attribute 198"),
        gauge(
            "media_errors",
            "1",
            "Errors that it could not correct.",
            0,
            "NVMe media_errors, ATA device statistics or attribute 187, SCSI total_uncorrected_errors",
        ),
        gauge(
            "crc_errors",
            "1",
            "Transfers garbled between disk and machine: usually the cable.",
            0,
            "ATA attribute 199 or device statistics",
        ),
        gauge(
            "errors_logged",
            "1",
            "Commands that failed, as its error log counts them.",
            0,
            "ATA error log, NVMe num_err_log_entries",
        ),
        state(
            "self_test",
            "How its last self-test ended: 0 passed; 1 still running; 2 aborted or interrupted; 3 failed.",
            "log of self-tests",
        ),
        gauge("self_test_age", "s", "Its total time powered on at that test.", 0, "log of self-tests"),
        counter(
            "read_bytes",
            "B",
            "What the machine has read from it.",
            0,
            "NVMe data_units_read, ATA device statistics or attribute by name, SCSI gigabytes_processed",
        ),
        counter("written_bytes", "B", "What the machine has written to it.", 0, "as read_bytes"),
        text("model", "Model name.", "model_name"),
        text("firmware", "The version of its firmware.", "firmware_version"),
        text("protocol", "ATA, SCSI or NVMe.", "device.protocol"),
    ),
)

ATTRIBUTE = Table(
    "smart_attribute",
    per="disk:attribute",
    doc="The SMART attributes of ATA disks, such as sda:197 Current_Pending_Sector: what their"
    " vendors count, by number and by the name that smartmontools' database has for the model."
    " They are read together with the table smart.",
    metrics=(
        gauge("raw", "1", "As the vendor counts it; some pack several numbers into one.", 0, "raw.value"),
        gauge("value", "1", "The vendor's rating of that: the larger the better.", 0, "value"),
        gauge("worst", "1", "The worst value so far.", 0, "worst"),
        gauge("threshold", "1", "At or below this, the disk is failing, or past its planned life.", 0, "thresh"),
        state(
            "failed",
            "Whether the value has reached its threshold: 0 never; 1 now; 2 in the past.",
            "when_failed",
        ),
    ),
)


def read(host: Host, *, every_min: int, devices: str = "") -> Iterator[Row]:
    """Give a row for each disk."""
    for name, told in host.shared(Disks).answers(every_min * 60, devices).items():
        if isinstance(told, Absence):
            yield name, told
        else:
            yield name, [told.values.get(metric.name, ABSENT) for metric in SMART.metrics]


def read_attributes(host: Host, *, every_min: int, devices: str = "") -> Iterator[Row]:
    """Give a row for each attribute of each disk that has any."""
    disks = host.shared(Disks)
    for name, told in disks.answers(every_min * 60, devices).items():
        rows = disks.attributes(name) if isinstance(told, Absence) else told.attributes
        yield from (
            (f"{name}:{attribute}", told if isinstance(told, Absence) else row) for attribute, row in rows.items()
        )


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``smart`` and ``smart_attribute``."""
    probe = Probe(SMART, read, INTERVAL_S, Lane.ONESHOT, options=(EVERY, DEVICES), needs=PROGRAMS)
    probe = probe._replace(privilege="CAP_SYS_RAWIO for ATA and SCSI, CAP_SYS_ADMIN for NVMe")
    return [probe, probe._replace(table=ATTRIBUTE, read=read_attributes)]
