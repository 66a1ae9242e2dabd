# SPDX-License-Identifier: Apache-2.0
"""An archive of half an hour of a calm machine, with a minute in which its disk was stuck."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sysmond_probes.cpu import CPU
from sysmond_probes.disk import DISK
from sysmond_probes.host import HOST
from sysmond_probes.memory import MEMORY
from sysmond_probes.pressure import PRESSURE

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity, Table
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.tasks.tables import PROCESS, THREAD_STATE
from tests.support.longarchive import BOOT, BOOTED_NS, relation, ring

FIRST_S, SECONDS = 100, 1800
# For a minute nothing but one process is written to the disk, and others wait for it.
STALL = range(1000, 1060)
STALL_NS = BOOTED_NS + (FIRST_S + STALL.start + 30) * SECOND_NS


def stuck(base: Path, said: str) -> Folders:
    """Make it; ``said``: what stands in texts."""
    made = Folders(str(base / "state"), str(base / "run"))
    (base / "state").mkdir()
    wide(made, said)
    readings = [(float(FIRST_S + second), True, list(processes(second))) for second in range(0, SECONDS, 2)]
    ring(made, PROCESS, readings, capacity=1 << 22)
    waits = [(float(FIRST_S + second), True, list(waiting(second, said))) for second in range(SECONDS)]
    ring(made, THREAD_STATE, waits, sensitivity=Sensitivity.RESTRICTED, capacity=1 << 22)
    return made


def wide(made: Folders, said: str) -> None:
    tables: Sequence[Table] = (CPU, MEMORY, PRESSURE, DISK, HOST)
    folder = Path(made.runtime, "sampler/public")
    folder.mkdir(parents=True, exist_ok=True)
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, FIRST_S * SECOND_NS)
    writer = RingWriter(
        str(folder / f"{FIRST_S * SECOND_NS}.ring"), 1 << 23, identity, [Layout(table, SECOND_NS) for table in tables]
    )
    writer.clock(relation(FIRST_S * SECOND_NS))
    stuck = 0
    for second in range(SECONDS):
        at_ns = (FIRST_S + second) * SECOND_NS
        stuck += second in STALL
        rows: Sequence[tuple[int, Mapping[str, Mapping[str, int | str]]]] = (
            (0, {"total": {"idle": second * 180, "user": second * 20}}),
            (1, {"": {"total": 8 << 30, "available": 6 << 30}}),
            (2, {"io": {"some_total": stuck * 900_000}, "cpu": {"some_total": second * 1000}}),
            (3, {"sda": {"written_bytes": second * 1000 + stuck * 50_000_000, "io_time": stuck * 990}}),
            (4, {"": {"hostname": "laptop"}}),
        )
        for number, instances in rows:
            metrics = tables[number].metrics
            values = [
                row.get(metric.name, "" if metric.is_text else 0) for row in instances.values() for metric in metrics
            ]
            spelled = [writer.text(value) if isinstance(value, str) else value for value in values]
            writer.rows(number, at_ns, tuple(instances), spelled)
    writer.event((FIRST_S + STALL.start) * SECOND_NS, "disk error", "sda", f"I/O error, dev sda {said}".rstrip())
    writer.event((FIRST_S + 5) * SECOND_NS, "lid", "LID", "closed")
    writer.close(is_over=False)


def processes(second: int) -> Iterator[Mapping[str, int | str | None]]:
    stuck = sum(each <= second for each in STALL)
    common = {"start": SECOND_NS, "uid": 0}
    yield {**common, "pid": 7, "comm": "calm", "cpu": second * 100, "rss_anon": 5 << 20, "state": "S"}
    yield {
        **common, "pid": 77, "comm": "updatedb", "cpu": stuck * 10, "written_bytes": stuck * 50_000_000, "state": "D",
    }  # fmt: skip


def waiting(second: int, said: str) -> Iterator[Mapping[str, int | str | None]]:
    if second in STALL:
        for pid, comm in ((77, "updatedb"), (78, said[:15] or "firefox")):
            yield {
                "pid": pid,
                "tid": pid,
                "start": 1,
                "comm": comm,
                "state": "D",
                "wchan": "jbd2_log_wait",
                "syscall": 1,
            }
