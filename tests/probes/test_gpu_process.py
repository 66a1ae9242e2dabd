# SPDX-License-Identifier: Apache-2.0
"""The table ``gpu_process``: what is given when, and what is asked of it."""

import os
from pathlib import Path
from struct import Struct

import pytest
from sysmond_probes import gpu, gpu_process

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity, Table
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.plan import catalogue
from sysmond.plan.catalogue import Catalogue, Defaults, ProbeEntry
from sysmond.plan.plan import as_declared
from sysmond.plan.plugins import check_probe
from sysmond.probe import Host, Lane, Records
from sysmond.records import record_bytes
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.sources import drm, nvml
from sysmond.tasks.proc.text import stat
from tests.support import sysfs
from tests.support.graphics import AMDGPU, Machine
from tests.support.longarchive import BOOT, BOOTED_NS, relation
from tests.support.nvidia import StandIn

TABLE = gpu_process.GPU_PROCESS
RECORD = Struct(TABLE.packing.format if TABLE.packing else "")
NAMES = [metric.name for metric in TABLE.metrics]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    for pid, comm in ((70, "game"), (71, "shell")):
        made.runs(pid, comm=comm)
        made.opens(pid, 5, AMDGPU % (pid, 1000))
    return made


def unpacked(records: Records) -> dict[int, dict[str, int | bytes]]:
    rows = [dict(zip(NAMES, row, strict=True)) for row in RECORD.iter_unpack(bytes(records.rows))]
    return {row["pid"]: row for row in rows}


def test_the_table_is_sound() -> None:
    (probe,) = gpu_process.sysmond_probes()
    check_probe(probe)
    assert record_bytes(probe.table) == 112
    assert all(metric.origin for metric in probe.table.metrics)
    assert probe.needs
    assert probe.lane is Lane.BACKGROUND


def test_all_are_given_once_and_then_what_changed(machine: Machine) -> None:
    used = gpu_process.Used()
    rows = unpacked(used.records(machine.host, full=True))
    assert rows.keys() == {70, 71}
    assert rows[70] == {
        "start": 5 * SECOND_NS,
        "pid": 70,
        "uid": os.getuid(),
        "comm": b"game".ljust(16, b"\0"),
        "card": b"0000:c4:00.0".ljust(16, b"\0"),
        "gpu_time": 1357,
        "render_time": 1000,
        "compute_time": 300,
        "copy_time": 7,
        "video_time": 50,
        "gpu_memory": 13_107_200,
        "card_memory": 10 << 20,
        "clients": 1,
    }
    assert unpacked(used.records(machine.host, full=False)) == {}
    machine.opens(71, 5, AMDGPU % (71, 2000))
    assert unpacked(used.records(machine.host, full=False)).keys() == {71}
    assert unpacked(used.records(machine.host, full=True)).keys() == {70, 71}
    machine.ends(70)
    assert unpacked(used.records(machine.host, full=True)).keys() == {71}


def test_what_is_larger_than_a_record_is_cut(machine: Machine) -> None:
    most = 2**62 - 1
    engines = b"".join(b"drm-engine-%d: %d ns\n" % (number, most) for number in range(100))
    memory = b"".join(b"drm-total-%d: %d\n" % (number, most) for number in range(100))
    machine.opens(70, 5, b"drm-client-id: 1\ndrm-pdev: " + b"x" * 999 + b"\n" + engines + memory)
    row = unpacked(gpu_process.Used().records(machine.host, full=True))[70]
    assert (row["gpu_time"], row["gpu_memory"], row["card"]) == (2**63 - 1, 2**63 - 1, b"x" * 16)


def test_a_process_is_the_one_that_the_table_of_processes_has(tmp_path: Path) -> None:
    """The key of both is the same, so that they may be joined."""
    machine = Machine(tmp_path)
    content = Path("/proc/self/stat").read_bytes()
    pid = os.getpid()
    machine.runs(pid)
    machine.opens(pid, 5, AMDGPU % (1, 1))
    (machine.root / f"proc/{pid}/stat").write_bytes(content)
    row = unpacked(gpu_process.Used().records(machine.host, full=True))[pid]
    assert row["start"] == stat(content).start_ns


def test_who_may_not_be_looked_into_is_told_the_doctor(machine: Machine, tmp_path: Path) -> None:
    machine.host.folder = str(tmp_path)
    used = gpu_process.Used()
    used.records(machine.host, full=True)
    way = tmp_path / "gpu_process.way"
    assert way.read_text() == "by fdinfo\n"


def recorded(folders: Folders, table: Table, readings: list[Records]) -> None:
    folder = f"{folders.runtime}/background/{Sensitivity.PUBLIC}/{table.name}"
    os.makedirs(folder)
    identity = Identity(BOOT, "background", Sensitivity.PUBLIC, 1, 5 * SECOND_NS)
    writer = RingWriter(f"{folder}/{5 * SECOND_NS}.ring", 1 << 20, identity, [Layout(table, 5 * SECOND_NS)])
    writer.clock(relation(5 * SECOND_NS))
    for number, reading in enumerate(readings):
        writer.records(0, (10 + 5 * number) * SECOND_NS, [reading], record_bytes(table))
    writer.close()


def test_who_uses_the_card_most(machine: Machine, tmp_path: Path) -> None:
    """From fdinfo over a ring to an answer: the share of time of engines, and memory."""
    used = gpu_process.Used()
    readings = [used.records(machine.host, full=True)]
    for busy_ns in (1_000_000_000, 2_000_000_000):
        machine.opens(71, 5, AMDGPU % (71, 1000 + busy_ns))
        machine.opens(70, 5, AMDGPU % (70, 1000 + 2 * busy_ns))
        readings.append(used.records(machine.host, full=False))
    folders = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    recorded(folders, TABLE, readings)
    (probe,) = gpu_process.sysmond_probes()
    planned = as_declared("", probe)
    entry = ProbeEntry(TABLE, True, planned, Defaults(probe.lane, planned.interval_ns, probe.sensitivity))
    Path(folders.runtime, catalogue.FILE).write_bytes(catalogue.encode(Catalogue({TABLE.name: entry})))
    columns = ["pid", "comm", "card", "gpu_percent", "render_time:sum", "gpu_memory:last"]
    start_ns = BOOTED_NS + 10 * SECOND_NS + 1
    found = Archive(folders).records(
        "gpu_process", start=start_ns, end=start_ns + 10 * SECOND_NS, columns=columns, top=1, by="gpu_time"
    )
    pid, comm, card, time, rendered, memory = (column.texts or list(column.values) for column in found.columns)
    assert (pid, [*comm], [*card]) == ([70], ["game"], ["0000:c4:00.0"])
    assert time == [pytest.approx(40.0)]
    assert rendered == [pytest.approx(4.0)]
    assert memory == [12.5 * (1 << 20)]


def test_processes_of_nvidia(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the stand-in, which says 40 % of the first card and 40 % of the second for number 70."""
    sysfs.build(machine.root, "desktop")
    (tmp_path / "nvidia").mkdir()
    library = StandIn(tmp_path / "nvidia")
    monkeypatch.setattr(nvml, "SHARED_S", 0.0)
    monkeypatch.setattr(nvml, "SHARE_MAX", 1e9)
    used = gpu_process.Used(drm.Cards(library=nvml.Nvml(library.path)))
    times = []
    for now_s in (600, 610):
        monkeypatch.setattr(clock, "boottime_ns", lambda now_s=now_s: now_s * SECOND_NS)
        machine.host.new_tick()
        row = unpacked(used.records(machine.host, full=True))[70]
        times.append(row["gpu_time"])
        assert (row["gpu_memory"], row["clients"]) == ((2 << 30) + 13_107_200, 3)
    assert times == [1357, 1357 + 2 * 7 * SECOND_NS]
    assert library.calls() == ["init", "shutdown"] * 2


def test_a_machine_without_proc_is_a_gap(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        gpu_process.Used().records(Host(str(tmp_path)), full=True)


def test_a_card_that_comes_is_looked_for_by_both_tables_at_its_event() -> None:
    probes = [*gpu.sysmond_probes(), *gpu_process.sysmond_probes()]
    assert [probe.subsystems for probe in probes] == [("drm",), ("drm",)]
