# SPDX-License-Identifier: Apache-2.0
"""Block devices and their partitions, from ``/proc/diskstats``.

Source: the kernel's ``Documentation/admin-guide/iostats.rst``; its 17 fields follow the device's name.
Kernels before 4.18 have only the first 11, those before 5.5 the first 15.
"""

from collections.abc import Collection

from sysmond.probe import ABSENT, Host, Probe, Row, Table, counter, gauge, hookimpl

PATH = "/proc/diskstats"
SECTOR_BYTES = 512  # The kernel counts 512-byte sectors, whatever the device's own size.

DISK = Table(
    "disk",
    per="device",
    doc="Block devices and partitions. Loop, RAM, network, floppy and optical devices without any I/O"
    " so far are left out. The kernel counts times in 32-bit milliseconds: they wrap after 49.7"
    " days of I/O.",
    metrics=(
        counter("reads", "1", "Reads completed.", origin=f"{PATH} 1"),
        counter("reads_merged", "1", "Reads joined to a neighbour before the device saw them.", origin=f"{PATH} 2"),
        counter("read_bytes", "B", "Bytes read.", origin=f"{PATH} 3 × {SECTOR_BYTES}"),
        counter("read_time", "s", "Time that reads took, queueing included, summed over all of them.", 3, f"{PATH} 4"),
        counter("writes", "1", "Writes completed.", origin=f"{PATH} 5"),
        counter("writes_merged", "1", "Writes joined to a neighbour before the device saw them.", origin=f"{PATH} 6"),
        counter("written_bytes", "B", "Bytes written.", origin=f"{PATH} 7 × {SECTOR_BYTES}"),
        counter(
            "write_time", "s", "Time that writes took, queueing included, summed over all of them.", 3, f"{PATH} 8"
        ),
        gauge("in_flight", "1", "Requests given to the device and not yet completed.", origin=f"{PATH} 9"),
        counter("io_time", "s", "Time during which at least one request was in flight: busy.", 3, f"{PATH} 10"),
        counter(
            "weighted_io_time",
            "s",
            "Time multiplied by the requests in flight; its rate is the mean length of the queue, as a percentage.",
            3,
            f"{PATH} 11",
        ),
        counter("discards", "1", "Discards (TRIM) completed; since Linux 4.18.", origin=f"{PATH} 12"),
        counter("discards_merged", "1", "Discards joined to a neighbour; since Linux 4.18.", origin=f"{PATH} 13"),
        counter("discarded_bytes", "B", "Bytes discarded; since Linux 4.18.", origin=f"{PATH} 14 × {SECTOR_BYTES}"),
        counter("discard_time", "s", "Time that discards took, summed; since Linux 4.18.", 3, f"{PATH} 15"),
        counter("flushes", "1", "Cache flushes completed; only whole disks; since Linux 5.5.", origin=f"{PATH} 16"),
        counter("flush_time", "s", "Time that flushes took, summed; since Linux 5.5.", 3, f"{PATH} 17"),
    ),
)

# Devices that exist in case they are needed. A disk without I/O is worth a row; one of these is not.
_SPARE = ("loop", "ram", "zram", "nbd", "fd", "sr")
# Values that kernels lack, by their number of columns; later kernels may have more.
_OLDEST, _NEWEST = 14, 20
_LACKING: dict[int, tuple[int, ...]] = {_OLDEST: (ABSENT,) * 6, 18: (ABSENT,) * 2, _NEWEST: ()}


def parse(line: bytes) -> Row | None:
    """Parse one device's line; ``None`` for a spare device without any I/O.

    :raises ValueError: where the line has not the columns of any known kernel.
    """
    words = line.split()
    columns = min(len(words), _NEWEST)
    if columns not in _LACKING:
        raise ValueError(f"{PATH}: {len(words)} columns; 14, 18 or at least 20 are known")
    device = words[2].decode("utf-8", "surrogateescape")
    values = list(map(int, words[3:_NEWEST]))
    if device.startswith(_SPARE) and not any(values):
        return None
    values[2] *= SECTOR_BYTES
    values[6] *= SECTOR_BYTES
    if columns > _OLDEST:
        values[13] *= SECTOR_BYTES
    values += _LACKING[columns]
    return device, values


class Diskstats:
    """Reads the file; a line that is the same as a tick ago keeps its row."""

    def __init__(self) -> None:
        """Know no line yet."""
        self._rows: dict[bytes, Row | None] = {}

    def read(self, host: Host) -> Collection[Row]:
        """Give a row for every device that is not a spare one."""
        known = self._rows
        self._rows = rows = {
            line: known[line] if line in known else parse(line) for line in host.read(PATH).split(b"\n") if line
        }
        return [row for row in rows.values() if row]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``disk``."""
    return [Probe(DISK, Diskstats().read, subsystems=("block",), pure=True)]
