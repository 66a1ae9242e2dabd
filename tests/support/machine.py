# SPDX-License-Identifier: Apache-2.0
"""A machine for tests: real rings, sealed, flushed and merged by the real jobs, with values that one can foretell."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from sysmond.archiver import merge_job, seal_job
from sysmond.archiver.coding import DENSE
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import Metric, Semantics, Sensitivity, Table
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store import archive

BOOT = "b" * 32
OLDER = "a" * 32
NOON_NS = 1_700_006_400 * SECOND_NS  # A multiple of an hour, and of a day's length.
TABLE = Table(
    "disk",
    (
        Metric("read_bytes", "B", Semantics.COUNTER, "Read."),
        Metric("queue", "1", Semantics.GAUGE, "Waiting.", 2),
        Metric("model", "text", Semantics.STATE, "Who made it."),
    ),
    "device",
)


def counter(second: int) -> int:
    """What ``read_bytes`` says at a second of boot time."""
    return 1000 + 7 * second + second // 10


def gauge(second: int) -> int:
    """What ``queue`` says, in hundredths."""
    return (second * 37) % 1000


class Writer:
    """One incarnation of a part with one table in one class."""

    def __init__(self, ring: RingWriter, wall_ns: int) -> None:
        self.ring = ring
        self.wall_ns = wall_ns
        self.asleep_ns = 0
        self.offset = 0

    def relation(self, tick_ns: int) -> None:
        """Read the clocks a little after a tick, as the sampler does."""
        now_ns = tick_ns + 300_000
        self.ring.clock(Relation(now_ns, now_ns + self.wall_ns, now_ns - self.asleep_ns))

    def tick(self, seconds: Iterable[float], devices: tuple[str, ...] = ("sda",)) -> None:
        """Write rows at these seconds of boot time."""
        for second in seconds:
            tick_ns = round(second * SECOND_NS)
            self.relation(tick_ns)
            values: list[int] = []
            for device in devices:
                values += [counter(int(second)) + self.offset, gauge(int(second)), self.ring.text(f"made by {device}")]
            self.ring.rows(0, tick_ns, devices, values)


class Machine:
    """A pair of folders with what was recorded in them."""

    def __init__(self, root: Path) -> None:
        self.folders = Folders(f"{root}/state", f"{root}/run")
        self.ring_bytes = 1 << 20
        for sensitivity in Sensitivity:
            for folder in (
                archive.ram_folder(self.folders, sensitivity),
                archive.disk_folder(self.folders, sensitivity),
                f"{self.folders.runtime}/sampler/{sensitivity}",
                f"{self.folders.runtime}/background/{sensitivity}",
            ):
                os.makedirs(folder)

    @property
    def archive(self) -> Archive:
        """Its history."""
        return Archive(self.folders)

    def start(
        self,
        at_s: float,
        *,
        boot: str = BOOT,
        writer: str = "sampler",
        sensitivity: Sensitivity = Sensitivity.PUBLIC,
        interval_ns: int = SECOND_NS,
        wall_ns: int = NOON_NS,
        table: Table = TABLE,
    ) -> Writer:
        """Start an incarnation of a part; boot time 0 is noon unless told otherwise."""
        started_ns = round(at_s * SECOND_NS)
        folder = f"{self.folders.runtime}/{writer}/{sensitivity}"
        identity = Identity(boot, writer, sensitivity, 1, started_ns)
        ring = RingWriter(f"{folder}/{started_ns}.ring", self.ring_bytes, identity, [Layout(table, interval_ns)])
        return Writer(ring, wall_ns)

    def seal(self, *, forget_progress: bool = False) -> None:
        """Seal the rings; the archiver may die before it notes how far."""
        seal_job.seal(self.folders)
        if forget_progress:
            os.unlink(f"{self.folders.runtime}/archiver/progress.json")

    def flush(self, *, keep_ram: bool = False) -> None:
        """Flush; the archiver may die before it lets go of the copies in RAM."""
        copies = self._files("ram") if keep_ram else {}
        archive.flush(self.folders)
        self._put(copies)

    def merge(self, *, keep_sources: bool = False) -> None:
        """Merge all that lies on disk into one file; the archiver may die before it removes what that holds."""
        copies = self._files("disk") if keep_sources else {}
        folder = archive.disk_folder(self.folders, Sensitivity.PUBLIC)
        by_boot: dict[str, list[archive.Name]] = {}
        for name in archive.names(folder):
            by_boot.setdefault(name.boot, []).append(name)
        for names in by_boot.values():
            if len(names) > 1:
                merge_job.merge_files(DENSE, folder, names, 0o644)
        self._put(copies)

    def reboot(self) -> None:
        """Lose what is in RAM."""
        shutil.rmtree(self.folders.runtime)
        for sensitivity in Sensitivity:
            for part in ("archiver", "sampler", "background"):
                os.makedirs(f"{self.folders.runtime}/{part}/{sensitivity}")

    def files(self, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> list[Path]:
        """The segments on disk, in order."""
        return sorted(Path(archive.disk_folder(self.folders, sensitivity)).glob("*.h5"))

    def _files(self, where: str) -> dict[Path, bytes]:
        place = archive.ram_folder if where == "ram" else archive.disk_folder
        return {path: path.read_bytes() for path in Path(place(self.folders, Sensitivity.PUBLIC)).glob("*.h5")}

    @staticmethod
    def _put(files: dict[Path, bytes]) -> None:
        for path, content in files.items():
            if not path.exists():
                path.write_bytes(content)
