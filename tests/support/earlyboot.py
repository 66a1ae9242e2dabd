# SPDX-License-Identifier: Apache-2.0
"""An archive of the first minute of a boot: a service, a job, many short programs, units, and how long it all took."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from sysmond_probes.host import HOST

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.tasks.tables import CGROUP_NAME, EXITS, PROCESS
from tests.support.longarchive import BOOT, relation, ring

# In seconds of boot time: the first row, the last, when services had started, and when the job ran.
FIRST_S, LAST_S, FINISHED_S, JOB_S = 5, 60, 20, range(10, 15)
SHORT = 40
HOSTILE = "</text><script>"
HOSTILE_UNIT = "x\x1b]0;o\x07</script>\udcff.service"
PHASES = "firmware 4.000 s, loader 1.500 s, kernel 2.000 s, initrd 1.000 s, userspace 17.000 s"
CHAIN = "multi-user.target @20.000 s, cups.service @10.000 s +6.000 s, dev-sda1.device @0.500 s +3.000 s"
SLOWEST = "cups.service 6.000 s, dev-sda1.mount 0.250 s"


def booted(
    base: Path, *, has_rows: bool = True, startup: str = f"25.500 s: {PHASES}", detail: str = SLOWEST
) -> Folders:
    """Make it; ``has_rows``: of processes, too."""
    made = Folders(str(base / "state"), str(base / "run"))
    (base / "state").mkdir(parents=True)
    _wide(made, startup, detail)
    if has_rows:
        readings = [(float(second), second == FIRST_S, list(processes(second))) for second in range(FIRST_S, LAST_S)]
        ring(made, PROCESS, readings, capacity=1 << 22)
        job = {
            **_process(40, 20, "fsck\x07", JOB_S.start, 4_500_000, read_bytes=250_000_000),
            "end": JOB_S.stop * SECOND_NS,
        }
        ring(made, EXITS, [(JOB_S.start + 1.0, True, list(ends())), (float(JOB_S.stop), True, [job])])
        ring(made, CGROUP_NAME, [(float(FIRST_S), True, [{"id": 11, "path": "/system.slice/cups.service"}])])
    return made


def _wide(made: Folders, startup: str, detail: str) -> None:
    folder = Path(made.runtime, "sampler/public")
    folder.mkdir(parents=True, exist_ok=True)
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, FIRST_S * SECOND_NS)
    path = str(folder / f"{FIRST_S * SECOND_NS}.ring")
    writer = RingWriter(path, 1 << 20, identity, [Layout(HOST, SECOND_NS)])
    writer.clock(relation(FIRST_S * SECOND_NS))
    for second in range(FIRST_S, LAST_S):
        texts = {"hostname": "laptop<&>", "kernel": "6.12.9"}
        values = [writer.text(texts.get(metric.name, "")) if metric.is_text else 0 for metric in HOST.metrics]
        writer.rows(0, second * SECOND_NS, ("",), values)
    writer.event(16 * SECOND_NS, "unit started", "cups.service", "")
    writer.event(12 * SECOND_NS, "unit started", "", "9 at once", detail="dbus.service, cron.service")
    writer.event(14 * SECOND_NS, "unit failed", "broken.service", "exit-code, status 1")
    writer.event(14 * SECOND_NS, "unit failed", HOSTILE_UNIT, "exit-code")
    writer.event(30 * SECOND_NS, "unit stopped", "cron.service", "")
    if startup:
        writer.event(FINISHED_S * SECOND_NS, "startup", "", startup, detail=detail)
    writer.close(is_over=False)


def processes(second: int) -> Iterator[Mapping[str, int | str | None]]:
    """Who is there in a second: the first process, a service, and a job that reads for a while."""
    yield _process(1, 0, "systemd", 0, second * 20_000)
    yield _process(2, 0, "kthreadd", 0, 0)
    yield _process(20, 1, HOSTILE, 4, second * 30_000)
    if second >= JOB_S.start:
        yield _process(30, 1, "cupsd", JOB_S.start, (second - JOB_S.start) * 500_000, cgroup=11)
    if second in JOB_S:
        ran = second - JOB_S.start
        yield _process(40, 20, "fsck\x07", JOB_S.start, ran * 900_000, read_bytes=ran * 50_000_000)


def ends() -> Iterator[Mapping[str, int | str | None]]:
    """Short ones that no reading saw."""
    for number in range(SHORT):
        start_ns = JOB_S.start * SECOND_NS + number * SECOND_NS // 100
        yield {**_process(100 + number, 20, "sed", 0, 1000), "start": start_ns, "end": start_ns + SECOND_NS // 200}


def _process(
    pid: int, ppid: int, comm: str, start_s: int, cpu_us: int, *, cgroup: int = 0, read_bytes: int = 0
) -> dict[str, int | str | None]:
    return {
        "pid": pid, "ppid": ppid, "comm": comm, "start": start_s * SECOND_NS, "cpu": cpu_us, "uid": 0,
        "cgroup": cgroup, "read_bytes": read_bytes, "state": "S", "rss_anon": 1 << 20,
    }  # fmt: skip
