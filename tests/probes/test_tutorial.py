# SPDX-License-Identifier: Apache-2.0
"""The tutorial for probe authors does what it says: its files are written, accepted, read and tested."""

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sysmond.base.model import Lane
from sysmond.plan import plan, plugins
from sysmond.probe import Host, Probe
from sysmond.sampler.source import Pieces, Source, load

TUTORIAL = Path(__file__).resolve().parent.parent.parent / "docs/probes.md"
BLOCK = re.compile(r"^```(python|sh) (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

ARCSTATS = b"""\
13 1 0x01 147 39984 5126742377 98562217390013
name                            type data
hits                            4    1000
iohits                          4    7
misses                          4    20
size                            4    4294967296
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tutorial's files: blocks of the same name follow one another; the fixture's commands are run."""
    files: dict[str, str] = {}
    for _, name, content in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")):
        files[name] = files[name] + "\n\n" + content if name in files else content
    commands = files.pop("fixture")
    assert sorted(files) == ["arc.py", "locks.py", "test_thermometer.py", "thermometer.py"]
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        (tmp_path / name).chmod(0o644)
    subprocess.run(["sh", "-eu", "-c", commands], cwd=tmp_path, check=True, timeout=10)
    return tmp_path


def accepted(path: Path) -> Probe:
    """Load a file as the resolver does with one in the administrator's probe folder."""
    [probe] = plugins.load(str(path))
    return probe


def test_no_python_of_the_tutorial_is_left_out() -> None:
    content = TUTORIAL.read_text(encoding="utf-8")
    assert content.count("```python") == sum(kind == "python" for kind, _, _ in BLOCK.findall(content))


def test_the_resolver_accepts_the_probe(folder: Path) -> None:
    probe = accepted(folder / "thermometer.py")
    planned = plan.as_declared(str(folder / "thermometer.py"), probe)
    assert (planned.table, planned.lane, planned.interval_ns) == ("thermometer", Lane.BACKGROUND, 10 * 10**9)


def test_the_probe_reads_the_fixture(folder: Path) -> None:
    probe = accepted(folder / "thermometer.py")
    [(instance, values)] = probe.read(Host(str(folder / "shed")))
    row = dict(zip((metric.name for metric in probe.table.metrics), values, strict=True))
    assert instance == "28-000000000001"
    assert row == {"temperature": 23125, "resolution": 12, "model": "DS18B20"}


def test_the_tests_of_the_tutorial_pass(folder: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_thermometer.py"],
        capture_output=True,
        check=False,
        cwd=folder,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 passed" in run.stdout


def test_the_tests_of_the_tutorial_can_fail(folder: Path) -> None:
    measured = folder / "shed/sys/bus/w1/devices/28-000000000001/w1_slave"
    measured.write_bytes(measured.read_bytes().replace(b"23125", b"23126"))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_thermometer.py"],
        capture_output=True,
        check=False,
        cwd=folder,
        text=True,
        timeout=60,
    )
    assert "1 failed, 3 passed" in run.stdout, run.stdout + run.stderr


def test_the_probe_of_the_cache_picks_by_name(folder: Path) -> None:
    probe = accepted(folder / "arc.py")
    arcstats = folder / "machine/proc/spl/kstat/zfs/arcstats"
    arcstats.parent.mkdir(parents=True)
    arcstats.write_bytes(ARCSTATS)
    [(instance, values)] = probe.read(Host(str(folder / "machine")))
    assert (instance, list(values)) == ("", [1000, 20, 4294967296])


def test_the_long_table_has_a_record_a_lock(folder: Path) -> None:
    probe = accepted(folder / "locks.py")
    locks = folder / "machine/proc/locks"
    locks.parent.mkdir(parents=True)
    locks.write_text(
        "1: POSIX  ADVISORY  WRITE 1234 08:01:77 0 EOF\n1: -> POSIX  ADVISORY  WRITE 99 08:01:77 0 EOF\n"
        "2: FLOCK  ADVISORY  READ 5 08:01:78 0 EOF\n"
    )
    planned = plan.as_declared(str(folder / "locks.py"), probe)
    source = Source(planned, load(planned), Host(str(folder / "machine")), 1.0)
    reading = source.read()
    assert isinstance(reading, Pieces)
    rows = [struct.unpack("<i4xq8s", row) for row in batched(bytes(reading.records[0].rows), source.stride)]
    assert rows == [(1234, 77, b"POSIX\0\0\0"), (5, 78, b"FLOCK\0\0\0")]


def batched(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def test_the_code_of_the_tutorial_is_clean(folder: Path) -> None:
    settings = TUTORIAL.parent.parent / "pyproject.toml"
    for command in (
        ["ruff", "check", "--no-cache", "--config", str(settings), "--ignore", "CPY001"],
        ["ruff", "format", "--no-cache", "--check", "--config", str(settings)],
    ):
        run = subprocess.run(
            [sys.executable, "-m", *command, "arc.py", "thermometer.py"],
            capture_output=True,
            check=False,
            cwd=folder,
            text=True,
            timeout=60,
        )
        assert run.returncode == 0, run.stdout + run.stderr
