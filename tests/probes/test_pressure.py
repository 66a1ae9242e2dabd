# SPDX-License-Identifier: Apache-2.0
"""The table pressure against samples, against kernels without it, and against this machine."""

import errno
import os
import time
from pathlib import Path

import pytest
from sysmond_probes import pressure

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Host

NONE = [ABSENT] * 4


def read(root: Path) -> dict[str, list[int | str]]:
    return {instance: list(values) for instance, values in pressure.Resources().read(Host(str(root)))}


class SilentHost(Host):
    """A kernel that has the files but does not tell what is in them."""

    def __init__(self, root: str, silent: tuple[str, ...], number: int = errno.EOPNOTSUPP) -> None:
        super().__init__(root)
        self.silent = silent
        self.number = number
        self.asked: list[str] = []

    def read(self, path: str) -> bytes:
        self.asked.append(path.rpartition("/")[2])
        if path.endswith(self.silent):
            raise OSError(self.number, os.strerror(self.number), path)
        return super().read(path)


def test_the_table_is_sound() -> None:
    (probe,) = pressure.sysmond_probes()
    check_table(probe.table)
    assert probe.table.doc
    assert probe.table.per == "resource"
    assert [(metric.name, metric.unit, metric.scale) for metric in probe.table.metrics] == [
        ("some_total", "s", 6),
        ("some_avg10", "%", 2),
        ("some_avg60", "%", 2),
        ("some_avg300", "%", 2),
        ("full_total", "s", 6),
        ("full_avg10", "%", 2),
        ("full_avg60", "%", 2),
        ("full_avg300", "%", 2),
    ]


def test_this_sample(repository: Path) -> None:
    assert read(repository / "tests/fixtures/linux618") == {
        "cpu": [6051890, 20, 38, 25, 0, 0, 0, 0],
        "memory": [0] * 8,
        "io": [8768424, 8, 53, 38, 8377845, 8, 48, 33],
    }


def test_old_kernels_have_no_full_for_cpu_and_a_missing_resource_has_no_row(repository: Path) -> None:
    assert read(repository / "tests/fixtures/linux510") == {
        "cpu": [123456789, 1234, 506, 10000, *NONE],
        "io": [5000, 0, 10, 2, 4000, 0, 9, 1],
    }


def test_interrupts_have_only_full(repository: Path) -> None:
    rows = read(repository / "tests/fixtures/linux612")
    assert list(rows) == ["cpu", "memory", "io", "irq"]
    assert rows["irq"] == [*NONE, 424242, 7, 3, 1]


def test_a_missing_resource_is_asked_for_once(repository: Path) -> None:
    host = SilentHost(str(repository / "tests/fixtures/linux612"), ("irq",))
    probe = pressure.Resources()
    for _ in range(3):
        host.new_tick()
        assert [instance for instance, _ in probe.read(host)] == ["cpu", "memory", "io"]
    assert host.asked.count("irq") == 1
    assert host.asked.count("cpu") == 3


def test_a_kernel_without_it_is_no_source(repository: Path) -> None:
    host = Host(str(repository / "tests/fixtures/linux26"))
    probe = pressure.Resources()
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="CONFIG_PSI") as raised:
            probe.read(host)
        assert raised.value.filename == "/proc/pressure/cpu"


def test_a_kernel_where_it_is_off_says_how_to_switch_it_on(repository: Path) -> None:
    host = SilentHost(str(repository / "tests/fixtures/linux618"), ("cpu", "memory", "io"))
    probe = pressure.Resources()
    for _ in range(2):
        with pytest.raises(OSError, match="psi=1") as raised:
            probe.read(host)
        assert raised.value.errno == errno.EOPNOTSUPP
    assert host.asked.count("cpu") == 1
    # Another host is asked anew.
    assert probe.read(Host(str(repository / "tests/fixtures/linux618")))


def test_a_passing_failure_does_not_silence_a_resource(repository: Path) -> None:
    host = SilentHost(str(repository / "tests/fixtures/linux618"), ("memory",), errno.EMFILE)
    probe = pressure.Resources()
    with pytest.raises(OSError, match="open files"):
        probe.read(host)
    host.silent = ("nothing",)
    assert [instance for instance, _ in probe.read(host)] == ["cpu", "memory", "io"]


@pytest.mark.parametrize(
    "content",
    [
        b"garbage\n",
        b"some avg10=0.0 avg60=0.00 avg300=0.00 total=1\n",
        b"some avg10=0.00 avg60=0.000 avg300=0.00 total=1\n",
        b"some avg10=0.00 avg60=0.00 avg300=0.00 sum=123456\n",
        b"some avg60=0.00 avg10=0.00 avg300=0.00 total=1\n",
        b"some avg10=0.00 avg60=0.00 avg300=0.00 total=x\n",
        b"some avg10=0.00 avg60=0.00 avg300=0.00\n",
    ],
)
def test_garbage_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        pressure.parse(content)


@pytest.mark.skipif(not os.access("/proc/pressure/cpu", os.R_OK), reason="this kernel has no PSI")
def test_this_machine_agrees() -> None:
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:
        pytest.skip("PSI is switched off")
    started = time.monotonic()
    value = read(Path("/"))["cpu"][0]
    later = int(Path("/proc/pressure/cpu").read_text().splitlines()[0].rpartition("=")[2])
    earlier = int(text.splitlines()[0].rpartition("=")[2])
    assert earlier <= int(value) <= later
    assert later - earlier <= (time.monotonic() - started + 3) * 1e6  # The kernel adds up every 2 s.
