# SPDX-License-Identifier: Apache-2.0
"""The ways in which a real daemon reads processes, as one after the other is taken away from it."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest

from sysmon_tools.doctor import examine
from sysmond.cgroups.tree import numbering_now
from sysmond.probe import Host
from sysmond.tasks.bpf import loader
from tests.support.order import first
from tests.support.pinned import loaded, why_not
from tests.support.whole import CAPABILITIES, Recorder, a_recorder, within

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF")
OBJECTS = loader.objects_of(os.uname().machine)
# Reads a register that nothing was put into: no verifier lets that pass.
REFUSED = struct.pack("<BBhi", 0x79, 0x90, 0, 0)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        yield made


def broken(name: str, to: Path, sections: Sequence[str]) -> Path:
    """A copy of an object whose programs of some sections begin with what the verifier refuses."""
    image = bytearray(Path(OBJECTS, f"{name}.bpf.o").read_bytes())
    table = struct.unpack_from("<Q", image, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", image, table + size * number) for number in range(count)]
    texts = heads[names][4]
    done = set()
    for head in heads:
        section = bytes(image[texts + head[0] : image.index(0, texts + head[0])]).decode()
        if section in sections:
            image[head[4] : head[4] + 8] = REFUSED
            done.add(section)
    assert done == set(sections)
    path = to / f"{name}.broken"
    path.write_bytes(image)
    return path


class Seen:
    """What a daemon recorded of a child that ended, and what the doctor says of the ways."""

    def __init__(self, recorder: Recorder) -> None:
        status = {"runtime_dir": recorder.folders.runtime, "pids": {}}
        rows = [{"name": name, "state": "active", "reason": ""} for name in ("process", "exits")]
        self.found = {each["source"]: each for each in examine(rows, status)}

    def way(self, table: str) -> str:
        return self.found[table]["reason"]

    def refused(self, program: str) -> str:
        found = self.found.get(f"BPF program {program}", {"state": "", "reason": "not named"})
        assert found["help"] or found["state"] == "there" or "verifier" in found["reason"], found
        return found["reason"]


def recorded(recorder: Recorder) -> Seen:
    """Start a daemon, have it see us and a child that ends, and ask the doctor."""
    recorder.start()
    recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
    assert ended(recorder, 7)["exit_code"] == 7
    return Seen(recorder)


def ended(recorder: Recorder, code: int) -> dict[str, object]:
    """What is recorded of a child that ends."""
    with subprocess.Popen(["sh", "-c", f"exit {code}"]) as child:
        child.wait()
    (row,) = recorder.wait_for("exits", f"pid = {child.pid}", "pid,ppid,exit_code,comm,cgroup,start,end")
    return row


def test_where_the_verifier_refuses_the_best_way_the_next_is_gone(recorder: Recorder) -> None:
    path = broken("tasks", recorder.base, ["syscall"])
    recorder.prefix = within(f"mount --bind {path} {OBJECTS}/tasks.bpf.o")
    seen = recorded(recorder)
    assert seen.way("process").startswith("by BPF, iterate; not by snapshot: snapshot: the verifier refuses it: ")
    assert "R9" in seen.refused("snapshot")
    assert seen.refused("iterate") == ""
    assert seen.way("exits") == "by BPF"


def test_where_it_refuses_both_it_is_proc(recorder: Recorder) -> None:
    path = broken("tasks", recorder.base, ["syscall", "iter/task"])
    recorder.prefix = within(f"mount --bind {path} {OBJECTS}/tasks.bpf.o")
    seen = recorded(recorder)
    assert seen.way("process").startswith("by /proc; not by BPF: snapshot: the verifier refuses it: ")
    assert seen.way("exits") == "by BPF"
    assert recorder.records("process_private", "pid", where=f"pid = {os.getpid()}")


def test_an_object_that_is_none_costs_only_its_own_programs(recorder: Recorder) -> None:
    path = recorder.base / "none"
    path.write_bytes(b"not ELF at all")
    recorder.prefix = within(f"mount --bind {path} {OBJECTS}/events.bpf.o")
    seen = recorded(recorder)
    assert seen.way("exits").startswith("by proc connector and taskstats; not by BPF")
    assert "no object of BPF programs" in seen.refused("ended")


def test_it_costs_no_more_when_it_is_met_again(tmp_path: Path) -> None:
    """What is pinned is kept by looking into the objects that it was made of: one of them is none."""
    for path in Path(OBJECTS).glob("*.bpf.o"):
        shutil.copy(path, tmp_path)
    (tmp_path / "tasks.bpf.o").write_bytes(b"not ELF at all")
    asked = loader.LoadRequest(str(tmp_path), objects=str(tmp_path))
    first, second = loader.load(asked), loader.load(asked)
    loader.unload(str(tmp_path))
    assert second == first
    programs = cast("dict[str, dict[str, object]]", second["programs"])
    assert programs["ended"] == {"ok": True}
    assert str(programs["snapshot"]["refused"]).endswith("no object of BPF programs")


WITHOUT_BTF = "mount -t tmpfs none /sys/kernel/btf"
WITHOUT_BPFFS = "umount -l -q /sys/fs/bpf || true"


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        (within(drop=CAPABILITIES), "no permission: it takes CAP_BPF and CAP_PERFMON"),
        pytest.param(within(WITHOUT_BTF), "the kernel has no BTF", marks=pytest.mark.long),
        pytest.param(within(drop="-perfmon,-sys_admin"), "no permission: it takes CAP_PERFMON", marks=pytest.mark.long),
        pytest.param(
            within(WITHOUT_BPFFS, drop="-sys_admin"),
            "/sys/fs/bpf: no BPF file system is mounted there, expected one",
            marks=pytest.mark.long,
        ),
    ],
    ids=["no capabilities", "no BTF", "one capability", "no bpffs"],
)
def test_without_bpf_the_next_ways_are_gone(recorder: Recorder, prefix: list[str], why: str) -> None:
    recorder.prefix = prefix
    seen = recorded(recorder)
    assert seen.way("process").startswith("by /proc; not by BPF: ")
    assert why in seen.way("process")
    assert seen.way("exits").startswith("by proc connector and taskstats; not by BPF: ")
    for program in ("ended", "started", "snapshot", "states"):
        assert why in seen.refused(program)
    assert not [path for path in recorder.pins().glob("*") if not path.is_dir()]


def test_without_the_network_capability_too_the_connector_alone_tells(recorder: Recorder) -> None:
    recorder.prefix = within(drop=f"{CAPABILITIES},-net_admin")
    seen = recorded(recorder)
    assert seen.way("exits").startswith("by proc connector; not by BPF: ")
    assert "taskstats" in seen.way("exits")


def test_without_any_way_it_is_said_once_why(recorder: Recorder) -> None:
    """Nobody may tell of ends in a network namespace that is not the initial one, without any capability."""
    recorder.prefix = within(drop=f"{CAPABILITIES},-net_admin", network=True)
    recorder.start()
    recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
    for is_running in (True, False):
        if not is_running:
            recorder.end()
        told = recorder.extract("exits", "--from=-1h", "--format=csv")
        assert (told.code, told.out) == (1, b"")
        assert told.err.count("\n") == 1
        assert "no way to learn of processes that end: BPF: " in told.err, told.err
        assert "; proc connector: " in told.err
    assert recorder.said().count("no way to learn") <= 1


@pytest.mark.parametrize("kind", first(1, ["none,name=sysmondtest", "net_cls", "net_cls,net_prio"]))
def test_other_hierarchies_of_version_1_do_not_disturb(recorder: Recorder, kind: str) -> None:
    where = recorder.base / "hierarchy"
    where.mkdir()
    asked = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "cgroup", "-o", kind, "none", str(where)],
        capture_output=True,
        check=False,
    )
    if asked.returncode:
        pytest.skip(f"this kernel has no {kind} to mount")
    recorder.prefix = within(f"mount -t cgroup -o {kind} none {where}")
    seen = recorded(recorder)
    assert seen.way("process") == "by BPF, snapshot"
    controllers = numbering_now(Host()).controllers
    told = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    wanted = {path for _, names, path in told if set(names.split(",")) & set(controllers or [""])}
    recorder.wait_for("cgroup_name", "path ~ ^/", "path")
    (row,) = recorder.records("process", "cgroup_path", where=f"pid = {os.getpid()}")
    assert row["cgroup_path"] in wanted


def test_what_has_no_room_in_the_arrays_is_counted_and_said(recorder: Recorder) -> None:
    """As 100,000 tasks are to sixteen passes of 1,024 rows, these are to sixteen passes of one."""
    small = recorder.base / "loader.py"
    source = Path(loader.__file__).resolve()
    program, changed = re.subn(r"^PROCESSES_MAX = .*$", "PROCESSES_MAX = 1", source.read_text(), flags=re.MULTILINE)
    assert changed == 1
    small.write_text(program)
    recorder.prefix = within(f"mount --bind {small} {source}")
    recorder.start()
    recorder.wait_for("process", "pid > 0", "pid")
    recorder.end()
    told = recorder.extract("process", "--from=-10min", "--columns=pid", "--format=csv")
    assert told.code == 3
    assert re.search(r"warning: process: \d\d+ records were lost", told.err), told.err


LOADED = """
import json, sys
before = set(sys.modules)
from sysmond.sampler import lane
from sysmond.plan.plan import import_plugin, offered_probes
from sysmond.probe import Host
host = Host()
host.runtime = sys.argv[1]
host.new_tick()
read = []
for plugin in sys.argv[2:]:
    for probe in offered_probes(import_plugin(plugin)):
        records = probe.records(host, True) if probe.records else probe.read(host)
        if probe.records and hasattr(records, "release"):
            records.release()
        elif records is not None:
            list(records)
        read.append(probe.table.name)
print(json.dumps([read, sorted(set(sys.modules) - before)]))
"""


@pytest.mark.parametrize("has_bpf", [True, False], ids=["BPF", "proc"])
def test_what_reads_processes_loads_the_standard_library_only(runtime: Path, tmp_path: Path, *, has_bpf: bool) -> None:
    """Also what is imported when it is first needed: each probe is read once, by either way."""
    with loaded(runtime) if has_bpf else nullcontext():
        plugins = [f"sysmond_probes.{name}" for name in ("process", "exits", "command", "cgroup_name")]
        done = subprocess.run(
            [sys.executable, "-P", "-c", LOADED, str(runtime), *plugins],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    read, modules = json.loads(done.stdout)
    assert {"process", "thread", "process_private", "exits", "command", "cgroup_name"} <= set(read)
    assert ("sysmond.tasks.bpf.walk" in modules) == has_bpf
    assert ("sysmond.tasks.proc.walk" in modules) != has_bpf
    packages = {module.partition(".")[0] for module in modules}
    assert packages - set(sys.stdlib_module_names) <= {"sysmond", "sysmond_probes"}


def test_the_libraries_of_the_real_parts_are_those_of_python(recorder: Recorder) -> None:
    """What other programs of sysmond need is not in the memory of what is locked there: numpy, libhdf5, libbpf."""
    recorder.start()
    recorder.wait_for("process", f"pid = {os.getpid()}", "pid")
    recorder.flush()
    for part in ("sampler", "background", "archiver"):
        maps = Path(f"/proc/{recorder.pid(part)}/maps").read_text()
        assert "libc.so" in maps
        assert not re.search(r"numpy|hdf5|h5py|libbpf|yaml", maps), part
