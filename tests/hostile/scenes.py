# SPDX-License-Identifier: Apache-2.0
"""Small archives in which one file is about to be attacked: one for each kind of HDF5 file that sysmond writes.

Each has three files, made by the jobs that make them on a machine: a good one of the same boot, the victim, which
begins a minute later, and a good one of another boot.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sysmond.archiver import rollup_job
from sysmond.archiver.coding import DENSE, SPARSE
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, Sensitivity, Table
from sysmond.machine.folders import Folders
from sysmond.store import archive
from sysmond.store.archive import Name
from sysmond.tasks import tables
from tests.support.longarchive import Row, put, relation, stretch
from tests.support.machine import BOOT, NOON_NS, Machine

OTHER_BOOT = "c" * 32
# Seconds of boot time: those of the first file, of the victim, and of the other boot.
SPANS_S = (range(1, 61), range(121, 181), range(1, 61))
LONG_TABLES = (
    tables.PROCESS,
    tables.THREAD,
    tables.PROCESS_PRIVATE,
    tables.EXITS,
    tables.COMMAND,
    tables.CGROUP_NAME,
    tables.THREAD_STATE,
    tables.KERNEL_STACK,
)
TIER = "10s"
# Of these no answer is made of a tier but together with other tables.
NEVER_ASKED_ALONE = (tables.COMMAND, tables.CGROUP_NAME, tables.KERNEL_STACK)
# The other boot was before: what the victim claims of the time after it is beside nobody.
EARLIER_NS = 600 * SECOND_NS
PER_READING = 3


class Scene(NamedTuple):
    """An archive. ``path``: what to ask for; ``victim``: the file that is attacked; ``neighbour``: of the same boot.

    ``whole``: the bytes of the victim as it was written.
    """

    kind: str
    folders: Folders
    path: str
    victim: str
    neighbour: str
    whole: bytes

    def restore(self) -> None:
        """Have the victim as it was."""
        self.put(self.whole)

    def put(self, content: bytes) -> None:
        """Have other bytes in its place: a new file, whatever stands there now."""
        self.remove()
        Path(self.victim).write_bytes(content)

    def remove(self) -> None:
        """Have no victim."""
        Path(self.victim).unlink(missing_ok=True)


def scenes(base: str) -> Iterator[Scene]:
    """Make one archive for each kind of file, each in a folder of its own below ``base``."""
    yield from _wide(base)
    for table in LONG_TABLES:
        yield from _long(base, table)


def _wide(base: str) -> Iterator[Scene]:
    """Segments of rows, and of a tier."""
    machine = Machine(Path(base, "wide"))
    devices = ("sda", "sdb")
    rows: dict[str, bytes] = {}
    writer = machine.start(0.5)
    for number, span in enumerate(SPANS_S):
        if number == len(SPANS_S) - 1:
            machine.reboot()
            writer = machine.start(0.5, boot=OTHER_BOOT, wall_ns=NOON_NS - EARLIER_NS)
        writer.tick(span, devices)
        machine.seal()
        machine.flush()
        rows |= _files(machine.folders, FINEST_TIER)
        # Each by itself: what comes later has a file of its own in each tier.
        rollup_job.roll_up(machine.folders, DENSE, lambda _tier, _bytes: None, set())
    tier = _files(machine.folders, TIER)
    shutil.rmtree(f"{base}/wide")
    yield _scene(f"{base}/1s", "wide", "disk", f"public/{FINEST_TIER}", rows)
    yield _scene(f"{base}/{TIER}", f"wide {TIER}", "disk", f"public/{TIER}", tier)


def _files(folders: Folders, tier: str, table: str = "") -> dict[str, bytes]:
    """The files of a tier that were not merged, by name."""
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC, tier, table)
    names = archive.names(folder) if os.path.isdir(folder) else ()
    return {name.file: Path(folder, name.file).read_bytes() for name in names if name.first == name.last}


def _long(base: str, table: Table) -> Iterator[Scene]:
    """Files of rows of a long table, and of its first tier where it has one."""
    folders = Folders(f"{base}/long/state", f"{base}/long/run")
    os.makedirs(folders.runtime)
    rows: dict[str, bytes] = {}
    for number, span in enumerate(SPANS_S):
        is_other = number == len(SPANS_S) - 1
        made = stretch(
            table,
            span,
            list(_rows(table, number, span)),
            boot=OTHER_BOOT if is_other else BOOT,
            relations=[relation(booted_ns=NOON_NS - is_other * EARLIER_NS)],
        )
        put(folders, made, 1 if is_other else 1 + number)
        rows |= _files(folders, FINEST_TIER, table.name)
        rollup_job.roll_up(folders, SPARSE, lambda _tier, _bytes: None, set())
    tier = _files(folders, TIER, table.name)
    shutil.rmtree(f"{base}/long")
    yield _scene(f"{base}/{table.name}", table.name, table.name, f"public/{table.name}/{FINEST_TIER}", rows)
    if table not in NEVER_ASKED_ALONE:
        place = f"public/{table.name}/{TIER}"
        yield _scene(f"{base}/{table.name}-{TIER}", f"{table.name} {TIER}", table.name, place, tier)


def _rows(table: Table, number: int, span: Sequence[int]) -> Iterator[tuple[int, Row]]:
    """Rows of a few things that no other file has; at each reading all of them."""
    lasting = table.packing is None or table.packing.lasting
    for at in range(len(span)):
        for each in range(PER_READING):
            row: dict[str, int | str | None] = {}
            for place, metric in enumerate(table.metrics):
                grown = at * (place + 1)
                row[metric.name] = (
                    f"{metric.name} {number} {each} {at // 20}" if metric.is_text else 1000 * place + grown
                )
            key = 1000 * (number + 1) + each + (0 if lasting else 10 * at)
            row |= dict.fromkeys(table.packing.key if table.packing else (), key)
            row |= {name: key * 1_000_000 for name in ("start",) if name in row}
            row |= {name: 7 for name in ("cgroup", "uid", "stack") if name in row}
            yield at, row


def _scene(base: str, kind: str, path: str, folder: str, files: dict[str, bytes]) -> Scene:
    folders = Folders(f"{base}/state", f"{base}/run")
    os.makedirs(f"{folders.state}/{folder}")
    os.makedirs(folders.runtime)
    for name, content in files.items():
        Path(folders.state, folder, name).write_bytes(content)
    first, victim = (f"{folders.state}/{folder}/{Name(BOOT, each, each).file}" for each in (1, 2))
    return Scene(kind, folders, path, victim, first, files[os.path.basename(victim)])
