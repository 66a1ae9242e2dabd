# SPDX-License-Identifier: Apache-2.0
"""For tests of BPF programs: whether they can run here, a BPF file system of the test's own, rows by name."""

import ctypes
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sysmond.base.model import Table
from sysmond.records import Records
from sysmond.tasks.bpf import loader
from sysmond.tasks.bpf.loader import BTF, LoadRequest, load, unload
from sysmond.tasks.bpf.refusals import missing_capabilities

if TYPE_CHECKING:
    import pytest

OBJECTS = Path(__file__).resolve().parent.parent.parent / "sysmond/tasks/bpf" / loader.ARCHITECTURES[os.uname().machine]
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Why BPF programs cannot be loaded by this test; empty where they can."""
    if os.geteuid() != 0 or missing_capabilities(Path("/proc/self/status").read_text()):
        return "loading BPF programs needs root"
    if not os.path.exists(BTF):
        return "this kernel has no BTF"
    if not list(OBJECTS.glob("*.bpf.o")):
        return "the BPF programs are not built: clang is not there"
    try:
        ctypes.CDLL("libbpf.so.1")
    except OSError:
        return "libbpf.so.1 is not there"
    return ""


@contextmanager
def file_system(folder: Path, options: str = "") -> Iterator[str]:
    """Mount a BPF file system, and take it away: everything in it is gone then."""
    folder.mkdir(exist_ok=True)
    if _libc.mount(b"bpf", bytes(folder), b"bpf", 0, options.encode() or None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    try:
        yield str(folder)
    finally:
        _libc.umount2(bytes(folder), MNT_DETACH)


@contextmanager
def loaded(folder: Path, **asked: Any) -> Iterator[dict[str, Any]]:
    """Load all programs for a runtime folder of the test's own: the report."""
    try:
        yield load(LoadRequest(str(folder), **asked))
    finally:
        unload(str(folder))


def without(patch: "pytest.MonkeyPatch", program: str) -> None:
    """As if the kernel had not what a program needs."""
    kept = tuple(
        each._replace(needs="no_kernel_has_this") if each.name == program else each for each in loader.PROGRAMS
    )
    patch.setattr(loader, "PROGRAMS", kept)


@contextmanager
def loaded_by(program: str, folder: Path) -> Iterator[str]:
    """The folder of pins with one of the programs that read processes; ``iterate`` is for kernels without the first."""
    import pytest  # noqa: PLC0415  the kernels of the lab have nothing but Python

    with pytest.MonkeyPatch.context() as patch:
        if program == "iterate":
            without(patch, "snapshot")
        with loaded(folder, threads=True) as report:
            assert report["programs"][program] == {"ok": True}
            yield report["folder"]


def rows(table: Table, records: Records | bytes) -> list[dict[str, Any]]:
    """Records as dictionaries, texts without what pads them."""
    assert table.packing is not None
    names = [metric.name for metric in table.metrics]
    packed = records if isinstance(records, bytes) else records.rows
    dictionaries = []
    for values in struct.iter_unpack(table.packing.format, packed):
        cut = (value.rstrip(b"\0") if isinstance(value, bytes) else value for value in values)
        dictionaries.append(dict(zip(names, cut, strict=True)))
    return dictionaries


@contextmanager
def child(program: str, *arguments: str, python: Sequence[str] = (sys.executable, "-I", "-S", "-c")) -> Iterator[Any]:
    """Run a Python program that says a line when it is ready, and then does nothing until its input ends."""
    ending = "\nprint(flush=True)\nimport sys\nsys.stdin.read()"
    command = [*python, program + ending, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline()
        yield process
        if not process.stdin.closed:
            process.stdin.close()
        process.wait()


def read_proc(path: str) -> bytes:
    return Path(f"/proc/{path}").read_bytes()


def stat(path: str) -> list[bytes]:
    """The fields of a stat file, by their numbers in proc(5): the first is nothing."""
    before, _, after = read_proc(f"{path}/stat").rpartition(b") ")
    pid, _, comm = before.partition(b" (")
    return [b"", pid, comm, *after.split()]


def settled(pid: int) -> None:
    """Wait until a process waits, all its threads: then nothing about it changes any more.

    One that began to wait is left among those that run for a while, and /proc does not say what it waits in until then.
    """
    for _ in range(2000):
        threads = [f"{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
        if all(stat(thread)[3] == b"S" and read_proc(f"{thread}/wchan") != b"0" for thread in threads):
            return
        time.sleep(0.005)
    raise AssertionError("it does not come to rest")
