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
EVERY = Option(
    "every_min", 30, "How often a disk is asked, in minutes; between two answers the last one stands.", 5, 1440
)
DEVICES = Option(
    "devices",
    "",
    "Disks behind RAID controllers, as '/dev/sda -d megaraid,0; /dev/sda -d megaraid,1': device and type as smartctl(8)"
    " has them. The device that leads to them is not asked about itself.",
    pattern=NAMED,
)

_gauge = partial(gauge, scale=0)

SMART = Table(
    "smart",
    per="disk",
    doc="What each disk tells of its own health, ATA, SCSI or NVMe, counted over its life. It is asked every half hour;"
    " in between the row says what it told then. One that sleeps is left asleep, a rotating one is asked only while"
    " somebody else uses it; both are looked at again every five minutes. Serial numbers are not recorded.",
    metrics=(
        state("healthy", "The disk's own verdict: 1 healthy, 0 failing or about to fail.", "smart_status.passed"),
        state(
            "verdict",
            "What smartctl found, added up: 8 the disk is failing; 16 an attribute is not above its threshold;"
            " 32 one was not, in the past; 64 its error log has entries; 128 its log of self-tests has errors.",
            "exit code of smartctl, bits 3 to 7",
        ),
        state(
            "warning",
            "NVMe: critical warnings, added up: 1 little spare; 2 temperature; 4 unreliable; 8 it can only be"
            " read; 16 the backup of its volatile memory failed.",
            "NVMe critical_warning",
        ),
        gauge("temperature", "°C", "Its temperature.", 0, "temperature.current"),
        gauge("power_on", "s", "How long it has been powered on in its life; most count in hours.", 0, "power_on_time"),
        gauge("power_cycles", "1", "How often it was switched on.", 0, "power_cycle_count"),
        gauge(
            "unsafe_shutdowns",
            "1",
            "How often it lost power without being told before.",
            0,
            "NVMe unsafe_shutdowns, ATA by name of the attribute",
        ),
        gauge(
            "percent_used",
            "%",
            "How much of the life that its maker promises is used up; may be more than 100.",
            0,
            "NVMe percentage_used, ATA device statistics or attribute of wear, SCSI endurance indicator",
        ),
        gauge("spare", "%", "Share of its spare blocks that is left.", 0, "available_spare, ATA attribute 232"),
        gauge("spare_min", "%", "Below this share it warns.", 0, "NVMe available_spare_threshold"),
        gauge("reallocated", "1", "Sectors replaced by spare ones.", 0, "ATA attribute 5, SCSI grown defects"),
        gauge("pending", "1", "Sectors that could not be read, and wait to be written.", 0, "ATA attribute 197"),
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
            "Transfers that were garbled between it and the machine: the cable.",
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
            "How its last self-test ended: 0 passed; 1 it runs; 2 aborted or interrupted; 3 failed.",
            "log of self-tests",
        ),
        gauge("self_test_age", "s", "How long it had been powered in its life by then.", 0, "log of self-tests"),
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
    doc="The attributes of ATA disks, as sda:197 Current_Pending_Sector: what their vendors count, by number and by the"
    " name that smartmontools' database has for the model. When they are read: as the table smart.",
    metrics=(
        gauge("raw", "1", "As the vendor counts it; some pack several numbers into one.", 0, "raw.value"),
        gauge("value", "1", "How good that is, as the vendor rates it: the larger the better.", 0, "value"),
        gauge("worst", "1", "The worst value so far.", 0, "worst"),
        gauge("threshold", "1", "Not above this the disk, or its age, has come to an end.", 0, "thresh"),
        state(
            "failed",
            "Whether the value was not above its threshold: 0 never; 1 it is not now; 2 in the past.",
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
