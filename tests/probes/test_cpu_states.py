# SPDX-License-Identifier: Apache-2.0
"""The tables cpu_frequency, cpu_throttle and cpu_idle: described machines, what is missing, and garbage."""

import shutil
from pathlib import Path

import pytest
from sysmond_probes import cpu_frequency, cpu_idle, cpu_throttle

from sysmond.base.derived_columns import of_table
from sysmond.base.model import check_table
from sysmond.plan.plan import as_declared
from sysmond.probe import ABSENT, Host, Row
from tests.support import sysfs

SYSFS = "sys/devices/system/cpu"


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "laptop", "cpu")


def rows(read: list[Row]) -> dict[str, list[int | str]]:
    return {instance: list(values) for instance, values in read}


def frequencies(root: Path) -> dict[str, list[int | str]]:
    return rows(list(cpu_frequency.read(Host(str(root)))))


def throttled(root: Path) -> dict[str, list[int | str]]:
    return rows(list(cpu_throttle.read(Host(str(root)))))


def idle(root: Path) -> dict[str, list[int | str]]:
    return rows(list(cpu_idle.read(Host(str(root)))))


def test_the_tables_are_sound() -> None:
    for plugin in (cpu_frequency, cpu_throttle, cpu_idle):
        (probe,) = plugin.sysmond_probes()
        check_table(probe.table)
        assert all(metric.origin for metric in probe.table.metrics)


def test_each_cpu_has_its_limits(laptop: Path) -> None:
    mhz = 1_000_000
    told = frequencies(laptop)
    assert len(told) == 12
    texts = ["powersave", "intel_pstate", "balance_power"]
    assert told["cpu0"] == [400 * mhz, 3700 * mhz, ABSENT, 400 * mhz, 4700 * mhz, 2100 * mhz, *texts]
    assert told["cpu11"] == [400 * mhz, 3500 * mhz, ABSENT, 400 * mhz, 3500 * mhz, 1500 * mhz, *texts]


def test_cpus_that_share_a_clock_share_its_limits_in_one_reading(tmp_path: Path) -> None:
    told = frequencies(sysfs.build(tmp_path, "arm", "cpu"))
    mhz = 1_000_000
    shared = [600 * mhz, 1800 * mhz, ABSENT, 600 * mhz, 1800 * mhz, ABSENT, "ondemand", "cpufreq-dt", ABSENT]
    assert told == {f"cpu{number}": shared for number in range(4)}


def test_a_clock_without_cpus_online_has_no_row_and_the_hardware_is_never_asked(laptop: Path) -> None:
    policy = laptop / SYSFS / "cpufreq/policy3"
    (policy / "affected_cpus").write_text("\n")
    (laptop / SYSFS / "cpufreq/policy0/cpuinfo_cur_freq").mkdir()
    (laptop / SYSFS / "cpufreq/boost").write_text("1\n")
    assert sorted(frequencies(laptop)) == sorted(f"cpu{number}" for number in range(12) if number != 3)
    assert not any("cur_freq" in file for file, _ in cpu_frequency.FILES)


def test_a_cpu_that_several_clocks_claim_has_one_row(laptop: Path) -> None:
    for number in (1, 2):
        (laptop / SYSFS / f"cpufreq/policy{number}/affected_cpus").write_text("0 0\n")
    assert sorted(frequencies(laptop)) == sorted(f"cpu{number}" for number in range(12) if number not in {1, 2})


def test_what_is_no_frequency_is_absent(laptop: Path) -> None:
    policy = laptop / SYSFS / "cpufreq/policy1"
    (policy / "scaling_max_freq").write_text("<unknown>\n")
    (policy / "scaling_min_freq").write_text("-22\n")
    (policy / "scaling_governor").write_text("\n")
    told = frequencies(laptop)
    assert [told["cpu1"][at] for at in (0, 1, 6)] == [ABSENT] * 3
    assert ABSENT not in told["cpu0"][:2]


def test_heat_is_counted_by_cpu_and_once_a_package(laptop: Path) -> None:
    told = throttled(laptop)
    assert list(told) == ["cpu0", "package0", *(f"cpu{number}" for number in range(1, 12))]
    assert told["cpu0"] == told["cpu1"] == [14, 5210, 820]
    assert told["cpu11"] == [0, 0, 0]
    assert told["package0"] == [20, 7000, 1200]


def test_cpus_that_do_not_tell_of_heat_have_no_row_rather_than_zero(laptop: Path) -> None:
    """Those of AMD and ARM, and virtual ones: the doctor says what is missing."""
    for folder in (laptop / SYSFS).glob("cpu*/thermal_throttle"):
        shutil.rmtree(folder)
    (probe,) = cpu_throttle.sysmond_probes()
    assert throttled(laptop) == {}
    assert not as_declared("", probe).is_possible(str(laptop))
    assert of_table(probe.table)["throttled_percent"]


def test_a_cpu_that_goes_offline_has_no_row(laptop: Path) -> None:
    shutil.rmtree(laptop / SYSFS / "cpu2/thermal_throttle")
    shutil.rmtree(laptop / SYSFS / "cpu2/topology")
    shutil.rmtree(laptop / SYSFS / "cpu2/cpuidle")
    assert "cpu2" not in throttled(laptop)
    assert len(throttled(laptop)) == 12
    assert not [instance for instance in idle(laptop) if instance.startswith("cpu2:")]


def test_kernels_without_times_count_only(laptop: Path) -> None:
    for file in (laptop / SYSFS).glob("cpu*/thermal_throttle/*_ms"):
        file.unlink()
    assert throttled(laptop)["cpu0"] == [14, ABSENT, ABSENT]


def test_each_state_of_each_cpu_has_a_row(laptop: Path) -> None:
    told = idle(laptop)
    assert len(told) == 48
    assert told["cpu3:C3_ACPI"] == [4003, 4_000_003, 1048]
    assert told["cpu0:POLL"] == [1000, 1_000_000, 0]


def test_states_of_one_name_are_told_apart(laptop: Path) -> None:
    (laptop / SYSFS / "cpu0/cpuidle/state2/name").write_text("C1_ACPI\n")
    (laptop / SYSFS / "cpu0/cpuidle/state3/name").write_text("\n")
    names = [instance for instance in idle(laptop) if instance.startswith("cpu0:")]
    assert names == ["cpu0:POLL", "cpu0:C1_ACPI", "cpu0:C1_ACPI-state2", "cpu0:state3"]


def test_garbage_of_one_state_costs_no_other(laptop: Path) -> None:
    (laptop / SYSFS / "cpu0/cpuidle/state1/usage").write_text("N/A\n")
    (laptop / SYSFS / "cpu0/cpuidle/state2/time").write_text("")
    told = idle(laptop)
    assert "cpu0:C1_ACPI" not in told
    assert told["cpu0:C2_ACPI"] == [1002, ABSENT, 127]
    assert len(told) == 47


def test_rows_are_bounded(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_idle, "ROWS_MAX", 5)
    monkeypatch.setattr(cpu_frequency, "CPUS_MAX", 3)
    monkeypatch.setattr(cpu_throttle, "CPUS_MAX", 2)
    assert len(idle(laptop)) == 5
    assert len(frequencies(laptop)) == 3
    assert list(throttled(laptop)) == ["cpu0", "package0", "cpu1"]


@pytest.mark.parametrize("machine", ["virtual", "nothing"])
def test_machines_without_clocks_and_heat_have_no_rows(tmp_path: Path, machine: str) -> None:
    root = sysfs.build(tmp_path, machine, "cpu")
    assert frequencies(root) == throttled(root) == {}
    states = ["cpu0:POLL", "cpu0:haltpoll", "cpu1:POLL", "cpu1:haltpoll"]
    assert list(idle(root)) == (states if machine == "virtual" else [])


def test_on_this_machine_idle_time_only_grows() -> None:
    if not Path("/sys/devices/system/cpu/cpu0/cpuidle/state0").exists():
        pytest.skip("this machine tells no idle states")
    host = Host()
    before = rows(list(cpu_idle.read(host)))
    host.new_tick()
    after = rows(list(cpu_idle.read(host)))
    assert before.keys() == after.keys()
    assert all(later[at] >= before[instance][at] for instance, later in after.items() for at in (0, 1))  # type: ignore[operator]
