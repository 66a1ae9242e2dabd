# SPDX-License-Identifier: Apache-2.0
"""How btrfs allots its space, and what errors its devices had, from ``/sys/fs/btrfs``.

Source: the kernel's ``fs/btrfs/sysfs.c`` and btrfs-device(8). These numbers are in memory: no disk is touched. A file
system is called by its first device, not by its UUID, which is a serial number.
"""

from collections.abc import Iterator

from sysmond.probe import Host, Lane, Metric, Probe, Row, Table, counter, gauge, hookimpl, rows_of, state

FOLDER = "/sys/fs/btrfs"
INTERVAL_S = 60.0
FILE_SYSTEMS_MAX = 64
DEVICES_MAX = 512
KINDS = ("data", "metadata", "mixed", "system")


def _size(name: str, file: str, doc: str) -> Metric:
    return gauge(name, "B", doc, origin=f"{FOLDER}/*/allocation/*/{file}")


def _errors(name: str, field: str, doc: str) -> Metric:
    return counter(name, "1", doc, origin=f"{FOLDER}/*/devinfo/*/error_stats {field}")


BTRFS = Table(
    "btrfs",
    per="device:kind",
    doc="Space of each btrfs, named by its first device, by what it is for: data, metadata or system."
    " When the whole disk is allocated and metadata is full, nothing can be written, even if"
    " df(1) shows free space.",
    metrics=(
        _size("size", "total_bytes", "Space allocated to this kind of data."),
        _size("used", "bytes_used", "How much of it is in use."),
        _size("reserved", "bytes_reserved", "How much of it is reserved for data being written."),
        _size("wanted", "bytes_may_use", "How much of it running operations may need."),
        _size("pinned", "bytes_pinned", "Freed, and available after the next commit."),
        _size("disk_size", "disk_total", "Space allocated on disks, copies included."),
        _size("disk_used", "disk_used", "How much of it is in use."),
    ),
)
BTRFS_DEVICE = Table(
    "btrfs_device",
    per="device:number",
    doc="Devices of each btrfs, named by the first device of the file system and their number in it; since Linux 5.14.",
    metrics=(
        _errors("write_errors", "write_errs", "Writes that failed."),
        _errors("read_errors", "read_errs", "Reads that failed."),
        _errors("flush_errors", "flush_errs", "Flushes that failed."),
        _errors("corruption_errors", "corruption_errs", "Blocks whose checksum was wrong."),
        _errors("generation_errors", "generation_errs", "Blocks that were older than they should be: lost writes."),
        state("missing", "1 if the device is missing.", f"{FOLDER}/*/devinfo/*/missing"),
    ),
)
_ERRORS = [metric.origin.split()[1].encode() for metric in BTRFS_DEVICE.metrics[:5]]


def read(host: Host) -> Iterator[Row]:
    """Give a row for each kind of space of each file system."""
    folders = {
        f"{name}:{kind}": f"{folder}/allocation/{kind}"
        for name, folder in _file_systems(host)
        for kind in host.names_anew(f"{folder}/allocation")
        if kind in KINDS
    }
    files = [metric.origin.rpartition("/")[2] for metric in BTRFS.metrics]
    return rows_of(folders, lambda name: [int(host.read(f"{folders[name]}/{file}")) for file in files])


def read_devices(host: Host) -> Iterator[Row]:
    """Give a row for each device of each file system."""
    folders = {
        f"{name}:{number}": f"{folder}/devinfo/{number}"
        for name, folder in _file_systems(host)
        for number in host.names_anew(f"{folder}/devinfo")
    }

    def values(name: str) -> list[int]:
        told = host.read(f"{folders[name]}/error_stats").split()
        counted = dict(zip(told[::2], map(int, told[1::2]), strict=True))
        if missing := [field.decode() for field in _ERRORS if field not in counted]:
            raise ValueError(f"{folders[name]}/error_stats: no {', '.join(missing)}")
        return [*(counted[field] for field in _ERRORS), host.integer(f"{folders[name]}/missing")]

    return rows_of(list(folders)[:DEVICES_MAX], values)


def _file_systems(host: Host) -> list[tuple[str, str]]:
    """Give the first device of each file system, and its folder; ``features`` beside them has no devices."""
    folders = [f"{FOLDER}/{name}" for name in host.names_anew(FOLDER)]
    found = [(devices[0], folder) for folder in folders if (devices := host.names_anew(f"{folder}/devices"))]
    return sorted(found)[:FILE_SYSTEMS_MAX]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``btrfs`` and ``btrfs_device``."""
    offered = ((BTRFS, read, f"{FOLDER}/*/allocation"), (BTRFS_DEVICE, read_devices, f"{FOLDER}/*/devinfo"))
    return [Probe(table, each, INTERVAL_S, Lane.BACKGROUND, needs=(needed,)) for table, each, needed in offered]
