# SPDX-License-Identifier: Apache-2.0
"""RAID arrays of the kernel (md) and their members, from ``/sys/class/block/md*/md``.

Source: the kernel's ``Documentation/admin-guide/md.rst``. Everything read here is kept in memory: no disk is touched.
"""

from collections.abc import Iterator

from sysmond.probe import (
    ABSENT,
    Answers,
    Derived,
    Host,
    Lane,
    Probe,
    Row,
    Table,
    Tells,
    counter,
    gauge,
    hookimpl,
    rows_of,
    state,
    text,
)

FOLDER = "/sys/class/block"
INTERVAL_S = 15.0
ARRAYS_MAX = 64
MEMBERS_MAX = 512
SECTOR_BYTES, KIB = 512, 1024
_FILES = f"{FOLDER}/md*/md"

MD = Table(
    "md",
    per="array",
    doc="Linux software RAID arrays (md). What a level does not have, such as redundancy in raid0, is absent.",
    metrics=(
        gauge("devices", "1", "Number of devices of the complete array.", origin=f"{_FILES}/raid_disks"),
        gauge("missing", "1", "How many of these are missing or failed.", origin=f"{_FILES}/degraded"),
        gauge(
            "synced", "B", "How much of a device was resynced, checked or rebuilt.", origin=f"{_FILES}/sync_completed 1"
        ),
        gauge("sync_size", "B", "How much of it there is in all.", origin=f"{_FILES}/sync_completed 3"),
        gauge("sync_speed", "B/s", "Speed of that.", origin=f"{_FILES}/sync_speed"),
        gauge("mismatch", "B", "Differences found by the last check or repair.", origin=f"{_FILES}/mismatch_cnt × 512"),
        text("level", "raid1, raid5 …", f"{_FILES}/level"),
        text("state", "clean, active, readonly, inactive, broken …", f"{_FILES}/array_state"),
        text("sync_action", "idle, resync, recover, check, repair, reshape or frozen.", f"{_FILES}/sync_action"),
    ),
    answers=Answers(
        derived=(
            Derived(
                "synced_percent", "%", "synced / sync_size * 100", "How much of a resync, check or rebuild is done."
            ),
        ),
    ),
)
MD_MEMBER = Table(
    "md_member",
    per="array:device",
    doc="Devices in Linux software RAID arrays (md).",
    metrics=(
        counter("errors", "1", "Read errors that were corrected.", origin=f"{_FILES}/dev-*/errors"),
        state("slot", "Its place in the array; absent for a spare and one that failed.", f"{_FILES}/dev-*/slot"),
        text("state", "in_sync, spare, faulty … separated by commas.", f"{_FILES}/dev-*/state"),
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each array."""

    def values(name: str) -> tuple[int | str, ...]:
        folder = f"{FOLDER}/{name}/md"
        devices, *_ = host.read(f"{folder}/raid_disks").split() or [b""]  # "4 (3)" while it changes.
        done, size = _progress(host.word(f"{folder}/sync_completed"))
        numbers = host.integer(f"{folder}/degraded"), done, size
        speed, mismatch = _times(host.integer(f"{folder}/sync_speed"), KIB), host.integer(f"{folder}/mismatch_cnt")
        words = (host.word(f"{folder}/{file}") for file in ("level", "array_state", "sync_action"))
        return int(devices), *numbers, speed, _times(mismatch, SECTOR_BYTES), *words

    return rows_of(_arrays(host), values)


def read_members(host: Host) -> Iterator[Row]:
    """Give a row for each device of each array."""
    folders = {
        f"{array}:{name.removeprefix('dev-')}": f"{FOLDER}/{array}/md/{name}"
        for array in _arrays(host)
        for name in host.names_anew(f"{FOLDER}/{array}/md")
        if name.startswith("dev-")
    }

    def values(name: str) -> tuple[int | str, ...]:
        folder = folders[name]
        told = host.read(f"{folder}/state").decode("ascii", "replace").strip()
        return host.integer(f"{folder}/errors"), host.integer(f"{folder}/slot"), told or ABSENT

    return rows_of(list(folders)[:MEMBERS_MAX], values)


def _arrays(host: Host) -> list[str]:
    return [name for name in host.names(FOLDER) if name.startswith("md")][:ARRAYS_MAX]


def _progress(word: str | int) -> tuple[int, int]:
    """Read ``120 / 4000`` sectors; ``none`` and ``delayed`` have no numbers."""
    done, slash, size = str(word).partition(" / ")
    return (int(done) * SECTOR_BYTES, int(size) * SECTOR_BYTES) if slash else (ABSENT, ABSENT)


def _times(number: int, factor: int) -> int:
    return number if number == ABSENT else number * factor


_TELLS = {
    "md": (Tells("array", "state"), Tells("array", "sync_action")),
    "md_member": (Tells("array", "state"), Tells("array", gone="array", words={1: "added", 0: "removed"})),
}


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``md`` and ``md_member``."""
    offered = ((MD, read), (MD_MEMBER, read_members))
    needs = (f"{_FILES}/level",)
    return [
        Probe(table, each, INTERVAL_S, Lane.BACKGROUND, subsystems=("block",), needs=needs, tells=_TELLS[table.name])
        for table, each in offered
    ]
