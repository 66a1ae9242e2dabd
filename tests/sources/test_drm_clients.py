# SPDX-License-Identifier: Apache-2.0
"""Clients of graphics cards: what fdinfo says, each once, who holds one, garbage, reused numbers, and sleep."""

import os
from errno import EACCES
from pathlib import Path

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.probe import ABSENT, Host
from sysmond.sources import drm_clients
from sysmond.sources.drm_clients import COMPUTE, COPY, OTHER, RENDER, VIDEO, Clients, DrmClient, Use, kind_of, parse
from sysmond.sources.nvml import Answer, GpuProcess, LostError, NvmlCard
from tests.support.graphics import AMDGPU, XE, Machine
from tests.support.opened import opened

KIB, MIB = 1 << 10, 1 << 20
TICK_NS = drm_clients.TICK_NS
MSM = b"""drm-driver:\tmsm
drm-client-id:\t2
drm-engine-gpu:\t77 ns
drm-cycles-gpu:\t1000
drm-maxfreq-gpu:\t800000000 Hz
drm-total-memory:\t1 MiB
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_amdgpu_says() -> None:
    client = parse(AMDGPU % (4, 12_000))
    engines = {"gfx": 12_000, "compute": 300, "enc_1": 50, "dma": 7}
    assert client == DrmClient("0000:c4:00.0", 4, engines, {}, 10 * MIB + 2 * MIB + 512 * KIB, 10 * MIB)


def test_cycles_count_where_no_time_is_told() -> None:
    client = parse(XE % (500, 1000, 1000))
    assert client == DrmClient("0000:03:00.0", 9, {}, {"rcs": (500, 1000), "ccs": (0, 1000)}, 3 * MIB, 3 * MIB)
    assert parse(MSM) == DrmClient("msm", 2, {"gpu": 77}, {}, MIB, 0)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("gfx", "render", "rcs", "bin", "fragment", "vertex-tiler", "gpu", "3D", "gfx_0"), RENDER),
        (("compute", "ccs", "csd", "compute_3"), COMPUTE),
        (("dma", "copy", "bcs", "tfu"), COPY),
        (("dec", "enc", "enc_1", "jpeg", "video", "video-enhance", "vcs", "vecs", "vcn0"), VIDEO),
        (("cache_clean", "cpu", "", "_", "7"), OTHER),
    ],
)
def test_kinds_of_engines(names: tuple[str, ...], kind: int) -> None:
    assert {kind_of(name) for name in names} == {kind}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\n",
        b"pos:\t0\nflags:\t02\n",
        b"drm-driver:\tvirtio_gpu\n",
        b"drm-client-id:\t-1\n",
        b"drm-client-id:\tN/A\n",
        b"drm-client-id:\t" + b"9" * 5000,
        b"drm-client-id\n:\n::\n",
        "drm-client-id:\t²\n".encode(),
    ],
)
def test_what_is_no_client(content: bytes) -> None:
    assert parse(content) is None


def test_numbers_that_are_none_are_left_out_and_files_without_end_cut_off() -> None:
    lines = [b"drm-client-id: 1", b"drm-engine-gfx: -5 ns", b"drm-engine-dma: 9" + b"9" * 30, b"drm-engine-enc: 4 ns"]
    lines += [b"drm-resident-vram: 9223372036854775807 MiB", b"drm-resident-gtt: 4 bananas", b"drm-pdev: \x1b[31m\x00x"]
    client = parse(b"\n".join(lines) + b"\ndrm-memory-x: 1" * 100_000)
    assert client == DrmClient("[31m x", 1, {"enc": 4}, {}, 5, 0)


def test_a_process_is_found_and_followed(machine: Machine) -> None:
    machine.runs(70, comm="a) b (c")
    machine.opens(70, 5, AMDGPU % (4, 12_000))
    machine.runs(71)
    use = machine.read()[70]
    memory = 12 * MIB + 512 * KIB
    uid = os.getuid()
    by_kind = (12_000, 300, 7, 50, 0)
    assert use == Use(70, 500 * TICK_NS, uid, b"a) b (c", "0000:c4:00.0", by_kind, memory, 10 * MIB, 1)
    machine.opens(70, 5, AMDGPU % (4, 20_000))
    assert machine.read()[70].by_kind_ns[RENDER] == 20_000
    machine.opens(70, 5, AMDGPU % (4, 19_000))  # A driver may fall behind what it said, and catches up.
    assert machine.read()[70].by_kind_ns[RENDER] == 20_000
    machine.opens(70, 5, AMDGPU % (4, 21_000))
    assert machine.read()[70].by_kind_ns[RENDER] == 21_000
    assert list(machine.read()) == [70]


def test_a_client_counts_once_however_many_hold_it(machine: Machine) -> None:
    """Two descriptors of a process, and a process that was given one of them; that goes on where the first ends."""
    machine.runs(70, 500)
    machine.runs(60, 900)
    for pid, descriptor in ((70, 5), (70, 6), (60, 3)):
        machine.opens(pid, descriptor, AMDGPU % (4, 1000))
    told = machine.read()
    assert (told[70].by_kind_ns[RENDER], told[70].clients) == (1000, 1)
    assert (told[60].by_kind_ns, told[60].clients, told[60].memory) == ((0,) * 5, 0, 0)
    machine.closes(70, 5)
    machine.closes(70, 6)
    machine.opens(60, 3, AMDGPU % (4, 1800))
    told = machine.read()
    assert (told[70].by_kind_ns[RENDER], told[70].memory) == (1000, 0)
    assert (told[60].by_kind_ns[RENDER], told[60].clients) == (800, 1)


def test_clients_of_one_process_add_up_and_stay_when_they_are_closed(machine: Machine) -> None:
    machine.runs(70)
    machine.opens(70, 5, AMDGPU % (4, 1000))
    machine.opens(70, 6, AMDGPU % (5, 500))
    assert (machine.read()[70].by_kind_ns[RENDER], machine.read()[70].clients) == (1500, 2)
    machine.closes(70, 6)
    told = machine.read()[70]
    assert (told.by_kind_ns[RENDER], told.clients, told.memory) == (1500, 1, 12 * MIB + 512 * KIB)


def test_cycles_become_time_by_the_clock_of_the_card(machine: Machine) -> None:
    machine.runs(70)
    machine.opens(70, 5, XE % (1000, 5000, 5000))
    assert machine.read()[70].by_kind_ns == (0,) * 5
    machine.opens(70, 5, XE % (1500, 7000, 7000))  # A quarter of 5 s.
    assert machine.read()[70].by_kind_ns == (1_250_000_000, 0, 0, 0, 0)
    for cycles, clock in ((1600, 6000), (2**61, 8000), (0, 0)):  # A clock that goes back, more than there were.
        machine.opens(70, 5, XE % (cycles, clock, clock))
        assert machine.read()[70].by_kind_ns[RENDER] == 1_250_000_000


def test_a_number_that_is_used_again_is_another_process(machine: Machine) -> None:
    machine.runs(70, 500)
    machine.opens(70, 5, AMDGPU % (4, 1000))
    machine.read()
    machine.ends(70)
    machine.runs(70, 800, "other")
    machine.opens(70, 5, AMDGPU % (6, 40))
    for _ in range(drm_clients.ROUND):
        machine.read()
    told = machine.read()
    assert (told[70].start_ns, told[70].comm, told[70].by_kind_ns[RENDER]) == (800 * TICK_NS, b"other", 40)
    machine.ends(70)
    assert machine.read() == {}


def test_who_opens_a_card_is_found_soon_or_within_a_minute(machine: Machine) -> None:
    """A new process opens one within its first seconds; an old one may at any time."""
    for pid in range(100, 200):
        machine.runs(pid)
    machine.read()
    machine.runs(300)
    machine.read()
    machine.opens(300, 4, AMDGPU % (4, 1))
    assert 300 in machine.read()
    machine.opens(150, 4, AMDGPU % (5, 1))
    readings = next(number for number in range(1, 2 * drm_clients.ROUND) if 150 in machine.read())
    assert readings <= drm_clients.ROUND


def test_looking_is_bounded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drm_clients, "LOOKS_MAX", 10)
    monkeypatch.setattr(drm_clients, "DESCRIPTORS_MAX", 2)
    for pid in range(100, 140):
        machine.runs(pid)
        machine.opens(pid, 4, AMDGPU % (pid, 1))
    with opened() as files:
        first = machine.read()
    assert len(first) == 10
    assert len([file for file in files if "/fdinfo/" in file]) == 10
    for _ in range(12):
        machine.read()
    assert len(machine.read()) == 40
    monkeypatch.setattr(drm_clients, "CLIENTS_MAX", 30)
    assert sum(use.clients for use in machine.read().values()) == 30
    assert machine.clients.left_out == 10


def test_a_client_of_a_card_that_sleeps_is_not_read(machine: Machine) -> None:
    machine.runs(70)
    machine.opens(70, 5, AMDGPU % (4, 1000))
    machine.runs(71)
    machine.opens(71, 5, XE % (1, 1, 1), "renderD129")
    with opened() as files:
        told = machine.read()
    assert [Path(file).parent.parent.name for file in files if "/fdinfo/" in file] == ["70"]
    status = machine.root / "sys/class/drm/card1/device/power/runtime_status"
    status.write_text("suspended\n")
    machine.opens(70, 5, AMDGPU % (4, 9000))
    with opened() as files:
        asleep = machine.read()
    assert [file for file in files if "/fdinfo/" in file] == []
    assert asleep == told
    assert (told[71].clients, told[71].memory) == (0, 0)
    status.write_text("active\n")
    assert machine.read()[70].by_kind_ns[RENDER] == 9000


def test_who_may_not_be_looked_into_is_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel refuses it to those without CAP_SYS_PTRACE."""
    for pid in (70, 71):
        machine.runs(pid)
        machine.opens(pid, 5, AMDGPU % (pid, 1))
    scandir = os.scandir

    def refusing(path: str | int) -> object:
        if str(path).endswith("/71/fd"):
            raise PermissionError(EACCES, os.strerror(EACCES))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert (list(machine.read()), machine.clients.unread) == ([70], 1)
    machine.ends(71)
    machine.read()
    assert machine.clients.unread == 0


def test_what_vanishes_in_mid_read_costs_itself(machine: Machine) -> None:
    for pid in (70, 71, 72):
        machine.runs(pid)
        machine.opens(pid, 5, AMDGPU % (pid, 1))
    (machine.root / "proc/70/fdinfo/5").unlink()
    (machine.root / "proc/71/stat").write_bytes(b"\xff garbage")
    told = machine.read()
    assert {pid: use.clients for pid, use in told.items()} == {70: 0, 72: 1}
    machine.ends(72)
    assert list(machine.read()) == [70]


def test_this_machine(tmp_path: Path) -> None:
    """Every process that is told of holds a card, and this one holds none."""
    told = {use.pid for use in Clients().read(Host(), SECOND_NS)}
    assert os.getpid() not in told
    for pid in told:
        links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
        assert any(link.startswith("/dev/dri/") for link in links)


def test_what_nvml_says_of_processes(machine: Machine) -> None:
    """Percent become time by how long ago it was asked before; one that is told of no more keeps its time."""
    machine.runs(70)
    machine.opens(70, 5, AMDGPU % (4, 1000))
    machine.runs(80)
    told = {80: GpuProcess(1 << 30, 40, 20), 99: GpuProcess(None, 1, 0)}
    cards: dict[str, NvmlCard | LostError] = {"0000:01:00.0": NvmlCard({}, told), "0000:02:00.0": LostError("lost")}

    def read(at_s: int) -> dict[int, Use]:
        uses = machine.clients.read(machine.host, at_s * SECOND_NS, Answer(at_s * SECOND_NS, cards))
        return {use.pid: use for use in uses}

    first = read(10)
    assert first.keys() == {70, 80}
    assert first[80][5:] == ((0,) * 5, 1 << 30, 1 << 30, 1)
    later = read(20)[80]
    assert (later.by_kind_ns[OTHER], later.by_kind_ns[VIDEO], later.card) == (
        4 * SECOND_NS,
        2 * SECOND_NS,
        "0000:01:00.0",
    )
    assert read(20)[80] == later  # The same answer once more.
    told[80] = GpuProcess(None)
    assert read(25)[80].memory == ABSENT
    del told[80]
    assert read(30)[80][5:] == (later.by_kind_ns, 0, 0, 0)
    machine.ends(80)
    assert read(40).keys() == {70}
