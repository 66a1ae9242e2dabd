# SPDX-License-Identifier: Apache-2.0
"""The tables cpu and system against trees of three kernels and against this machine."""

import os
import shutil
from pathlib import Path

import pytest
from sysmond_probes import cpu

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Host, Row

TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")


@pytest.fixture
def server(repository: Path, tmp_path: Path) -> Path:
    """A copy of a machine with four CPUs, the second of them offline, that may be changed."""
    return Path(shutil.copytree(repository / "tests/fixtures/linux510", tmp_path / "server"))


def named(row: Row) -> dict[str, int | str]:
    table = cpu.CPU if row[0] else cpu.SYSTEM
    return dict(zip((metric.name for metric in table.metrics), row[1], strict=True))


def test_the_tables_are_sound() -> None:
    cpu_probe, system_probe = cpu.sysmond_probes()
    for probe in (cpu_probe, system_probe):
        check_table(probe.table)
        assert probe.table.doc
        assert all(metric.origin for metric in probe.table.metrics)
    assert cpu.CPU.per == "cpu"
    assert [(metric.name, metric.unit, metric.scale) for metric in cpu.TIMES] == [(name, "s", 2) for name in TIMES]


def test_every_cpu_of_this_sample_has_its_times(repository: Path) -> None:
    rows = cpu.Cpus().read(Host(str(repository / "tests/fixtures/linux618")))
    assert [(instance, list(values)) for instance, values in rows] == [
        ("total", [19458, 0, 3995, 309044, 981, 0, 79, 11, 0, 0, ABSENT]),
        ("cpu0", [4097, 0, 1059, 161571, 58, 0, 10, 1, 0, 0, ABSENT]),
        ("cpu1", [15361, 0, 2935, 147473, 923, 0, 69, 9, 0, 0, ABSENT]),
    ]


def test_offline_cpus_have_no_row_and_frequencies_are_in_hertz(server: Path) -> None:
    rows = cpu.Cpus().read(Host(str(server)))
    assert [row[0] for row in rows] == ["total", "cpu0", "cpu2", "cpu3"]
    assert [named(row)["frequency"] for row in rows] == [ABSENT, 2_900_123_000, 1_200_000_000, ABSENT]
    assert [named(rows[2])[name] for name in TIMES] == [350, 70, 100, 13500, 15, 2, 2, 2, 30, 3]


def test_old_kernels_have_fewer_times(repository: Path) -> None:
    rows = cpu.Cpus().read(Host(str(repository / "tests/fixtures/linux26")))
    assert [list(values) for _, values in rows] == [[100, 20, 30, 4000, 5, 6, 7, *[ABSENT] * 4]] * 2


def test_future_kernels_may_have_more_times() -> None:
    assert cpu.parse_cpus(b"cpu  1 2 3 4 5 6 7 8 9 10 11 12\nintr 5\n") == ([b"cpu"], [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])


def test_another_tick_rate_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "USER_HZ", 1024)
    _, rows = cpu.parse_cpus(b"cpu 1024 2048 5\nintr 5\n")
    assert rows == [[100, 200, 0, *[ABSENT] * 7]]


def test_a_cpu_goes_offline_and_another_comes_back(server: Path) -> None:
    host = Host(str(server))
    probe = cpu.Cpus()
    probe.read(host)
    stat = server / "proc/stat"
    stat.write_text(stat.read_text().replace("cpu2 ", "cpu1 "))
    folder = server / "sys/devices/system/cpu"
    (folder / "cpu2/cpufreq").rename(folder / "cpu1-cpufreq")
    (folder / "cpu1").mkdir()
    (folder / "cpu1-cpufreq").rename(folder / "cpu1/cpufreq")
    host.new_tick()
    rows = probe.read(host)
    assert [row[0] for row in rows] == ["total", "cpu0", "cpu1", "cpu3"]
    assert [named(row)["frequency"] for row in rows] == [ABSENT, 2_900_123_000, 1_200_000_000, ABSENT]


def test_a_frequency_driver_that_comes_late_is_found(server: Path) -> None:
    folder = server / "sys/devices/system/cpu"
    shutil.move(folder / "cpufreq", server / "cpufreq")
    shutil.move(folder / "cpu0/cpufreq", server / "cpu0")
    host = Host(str(server))
    probe = cpu.Cpus()
    assert named(probe.read(host)[1])["frequency"] == ABSENT
    shutil.move(server / "cpufreq", folder / "cpufreq")
    shutil.move(server / "cpu0", folder / "cpu0/cpufreq")
    host.new_tick()
    assert named(probe.read(host)[1])["frequency"] == ABSENT
    host.look_again()  # As when a device is added, and every half minute.
    host.new_tick()
    assert named(probe.read(host)[1])["frequency"] == 2_900_123_000


def test_absent_frequencies_are_not_asked_for_again(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(str(repository / "tests/fixtures/linux618"))
    probe = cpu.Cpus()
    probe.read(host)
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda *arguments: opened.append(arguments))
    monkeypatch.setattr(os, "listdir", opened.append)
    for _ in range(10):
        host.new_tick()
        probe.read(host)
    assert opened == []


def test_one_probe_may_look_at_several_hosts(repository: Path, server: Path) -> None:
    probe = cpu.Cpus()
    assert named(probe.read(Host(str(repository / "tests/fixtures/linux26")))[1])["frequency"] == ABSENT
    other = server / "proc/stat"
    other.write_text("cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\nintr 5\n")
    assert named(probe.read(Host(str(server)))[1])["frequency"] == 2_900_123_000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"intr 12\n",
        b"cpu  1 2 3 x\nintr 12\n",
        b"cpu  1 2 3 4\ncpux 1 2 3 4\nintr 12\n",
        b"cpu  1 2 3 4\n\nintr 12\n",
        b"cpu  1 2 3 4\ncpu0 1 2 3 4\nctxt 7\n",
    ],
)
def test_garbage_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        cpu.Cpus().read(Host(str(tmp_path)))
    with pytest.raises(ValueError, match=r"."):
        cpu.parse_system(content)


def test_no_file_is_no_source(tmp_path: Path) -> None:
    for probe in cpu.sysmond_probes():
        with pytest.raises(FileNotFoundError):
            probe.read(Host(str(tmp_path)))


def test_the_system_of_a_server(server: Path) -> None:
    assert named(cpu.Whole().read(Host(str(server)))[0]) == {
        "processes_running": 3,
        "processes_blocked": 2,
        "context_switches": 9876543210,
        "forks": 4567,
        "interrupts": 5123456789,
        "soft_interrupts": 8001,
        "soft_interrupts_hi": 1,
        "soft_interrupts_timer": 2,
        "soft_interrupts_net_tx": 3,
        "soft_interrupts_net_rx": 4,
        "soft_interrupts_block": 5,
        "soft_interrupts_irq_poll": 6,
        "soft_interrupts_tasklet": 7,
        "soft_interrupts_sched": 8,
        "soft_interrupts_hrtimer": 9,
        "soft_interrupts_rcu": 10,
    }


def test_an_old_kernel_does_not_count_soft_interrupts(repository: Path) -> None:
    ((_, values),) = cpu.Whole().read(Host(str(repository / "tests/fixtures/linux26")))
    assert list(values) == [1, 0, 777, 88, 12345, *[ABSENT] * 11]


def test_an_absent_line_is_an_absent_value() -> None:
    values = cpu.parse_system(b"cpu 1\nintr 5 1\nctxt 7\nprocesses 8\nsoftirq 9 1 2 3\nnew 4\n")
    assert values == [ABSENT, ABSENT, 7, 8, 5, 9, 1, 2, 3, *[ABSENT] * 7]


def test_this_machine_agrees() -> None:
    host = Host()
    rows = {instance: list(map(int, values)) for instance, values in cpu.Cpus().read(host)}
    ((_, values),) = cpu.Whole().read(host)
    system = list(map(int, values))
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    later = {words[0]: [int(word) for word in words[1:]] for words in lines}
    assert set(rows) - {"total"} == {name for name in later if name.startswith("cpu") and name != "cpu"}
    assert len(rows) == 1 + os.sysconf("SC_NPROCESSORS_ONLN")
    for instance, times in rows.items():
        for mine, theirs in zip(times[:10], later["cpu" if instance == "total" else instance], strict=True):
            assert mine >= 0
            assert abs(theirs - mine) <= 100 * len(rows)  # One second at most lies between the two readings.
    for index, name in ((2, "ctxt"), (3, "processes"), (4, "intr"), (5, "softirq")):
        assert 0 < system[index] <= later[name][0]
        assert later[name][0] - system[index] < 100_000
