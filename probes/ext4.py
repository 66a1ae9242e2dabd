# SPDX-License-Identifier: Apache-2.0
"""What ext4 found wrong with its file systems, and how much was written to them, from ``/sys/fs/ext4``.

Source: the kernel's ``Documentation/ABI/testing/sysfs-fs-ext4``. These numbers are in memory: no disk is touched.
"""

from collections.abc import Iterator

from sysmond.probe import ABSENT, Host, Lane, Probe, Row, Table, Tells, counter, gauge, hookimpl, rows_of, text

FOLDER = "/sys/fs/ext4"
INTERVAL_S = 60.0
FILE_SYSTEMS_MAX = 256
KIB = 1024

EXT4 = Table(
    "ext4",
    per="device",
    doc="ext4 file systems by device. Errors count since the last e2fsck, across boots; warnings"
    " since the file system was mounted.",
    metrics=(
        counter("errors", "1", "Errors found in the file system.", origin=f"{FOLDER}/*/errors_count"),
        counter("warnings", "1", "Warnings about it.", origin=f"{FOLDER}/*/warning_count"),
        gauge(
            "first_error",
            "s",
            "Time of the first error, since 1970; absent if there was none.",
            0,
            f"{FOLDER}/*/first_error_time",
        ),
        gauge(
            "last_error",
            "s",
            "Time of the last error, since 1970; absent if there was none.",
            0,
            f"{FOLDER}/*/last_error_time",
        ),
        counter("written_bytes", "B", "Bytes ever written to it.", 0, f"{FOLDER}/*/lifetime_write_kbytes"),
        text("last_error_in", "Kernel function that met the last error.", f"{FOLDER}/*/last_error_func"),
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each file system; ``features`` beside them is none."""

    def values(name: str) -> tuple[int | str, ...] | None:
        folder = f"{FOLDER}/{name}"
        written = int(host.read(f"{folder}/lifetime_write_kbytes")) * KIB
        errors, warnings, first, last = (
            host.integer(f"{folder}/{file}")
            for file in ("errors_count", "warning_count", "first_error_time", "last_error_time")
        )
        return errors, warnings, first or ABSENT, last or ABSENT, written, host.word(f"{folder}/last_error_func")

    return rows_of(host.names_anew(FOLDER)[:FILE_SYSTEMS_MAX], values)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``ext4``."""
    tells = (Tells("file system error", "errors", grows=True),)
    return [Probe(EXT4, read, INTERVAL_S, Lane.BACKGROUND, needs=(f"{FOLDER}/*/errors_count",), tells=tells)]
