# SPDX-License-Identifier: Apache-2.0
"""The table rapl: domains by name, meters that wrap, begin anew, and are bad."""

from pathlib import Path

import pytest
from sysmond_probes import rapl

from sysmond.base.model import check_table, rate_unit
from sysmond.probe import Absence, Cause, Host, Sensitivity
from tests.support import sysfs

CLASS = "sys/class/powercap"
RANGE_UJ = 262_143_328_850
SECOND_NS = 10**9


class Machine:
    """A machine whose time passes as told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(str(root))
        self.now_ns = 0
        self.meters = rapl.Meters(lambda: self.now_ns)

    def read(self, after_s: float = 10.0) -> dict[str, int | Absence]:
        self.now_ns += round(after_s * SECOND_NS)
        self.host.new_tick()
        rows = self.meters.read(self.host)
        return {name: row if isinstance(row, Absence) else int(row[0]) for name, row in rows}

    def meter(self, zone: str, content: object) -> None:
        (self.root / CLASS / zone / "energy_uj").write_text(f"{content}\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(sysfs.build(tmp_path, "laptop", "rapl"))


def test_the_table_is_sound_and_not_for_everybody() -> None:
    (probe,) = rapl.sysmond_probes()
    check_table(probe.table)
    assert probe.sensitivity is Sensitivity.RESTRICTED
    assert rate_unit(probe.table.metrics[0].unit) == "W"


def test_each_domain_has_its_name_and_its_energy(machine: Machine) -> None:
    assert machine.read() == {
        "mmio-package-0": 91_000_000_100,
        "package-0": 91_000_000_000,
        "package-0:core": 40_000_000_000,
        "package-0:uncore": 7_000_000_001,
        "psys": 200_000_000_000,
    }


def test_domains_of_one_name_belong_to_their_processors(tmp_path: Path) -> None:
    told = Machine(sysfs.build(tmp_path, "server", "rapl")).read()
    assert told == {
        "package-0": 1_000_000,
        "package-0:dram": 2_000_000,
        "package-1": 3_000_000,
        "package-1:dram": 4_000_000,
    }


def test_a_meter_that_wraps_goes_on(machine: Machine) -> None:
    machine.meter("intel-rapl:0", RANGE_UJ - 100)
    machine.read()
    machine.meter("intel-rapl:0", 150_000_000)
    assert machine.read()["package-0"] == RANGE_UJ - 100 + 150_000_100
    machine.meter("intel-rapl:0", RANGE_UJ - 200)
    assert machine.read()["package-0"] == RANGE_UJ + RANGE_UJ - 200
    machine.meter("intel-rapl:0", 100)
    assert machine.read()["package-0"] == 2 * RANGE_UJ + 100


@pytest.mark.parametrize("after_s", [10.0, 0.0])
def test_a_meter_that_begins_anew_is_no_wrap(machine: Machine, after_s: float) -> None:
    # 91 kJ before, 1 J now: to wrap would have taken 171 kJ in ten seconds.
    machine.read()
    machine.meter("intel-rapl:0", 1_000_000)
    assert machine.read(after_s)["package-0"] == 1_000_000
    machine.meter("intel-rapl:0", 2_000_000)
    assert machine.read()["package-0"] == 2_000_000


def test_without_a_range_nothing_can_wrap(machine: Machine) -> None:
    (machine.root / CLASS / "intel-rapl:0/max_energy_range_uj").unlink()
    machine.read()
    machine.meter("intel-rapl:0", 5)
    assert machine.read(after_s=1e6)["package-0"] == 5


@pytest.mark.parametrize("content", ["", "N/A", "-1"])
def test_a_bad_meter_costs_no_other_and_goes_on_afterwards(machine: Machine, content: str) -> None:
    machine.meter("intel-rapl:0", RANGE_UJ - 100)
    machine.read()
    machine.meter("intel-rapl:0", content)
    told = machine.read()
    bad = told["package-0"]
    assert isinstance(bad, Absence)
    assert bad.cause is Cause.PROBE_FAILED
    assert told["psys"] == 200_000_000_000
    machine.meter("intel-rapl:0", 100)
    assert machine.read()["package-0"] == RANGE_UJ + 100


def test_a_domain_that_is_gone_has_no_row_and_one_without_a_name_has_its_number(machine: Machine) -> None:
    machine.read()
    (machine.root / CLASS / "intel-rapl:1/energy_uj").unlink()
    (machine.root / CLASS / "intel-rapl:0:1/name").write_text("\n")
    machine.host.look_again()
    told = machine.read()
    assert "psys" not in told
    assert told["package-0:intel-rapl:0:1"] == 7_000_000_001


def test_other_ways_to_cap_power_are_none(tmp_path: Path) -> None:
    (tmp_path / CLASS / "dtpm:0").mkdir(parents=True)
    assert Machine(tmp_path).read() == {}
    assert Machine(tmp_path / "nothing").read() == {}


def test_domains_are_bounded(tmp_path: Path) -> None:
    for number in range(rapl.DOMAINS_MAX + 3):
        folder = tmp_path / CLASS / f"intel-rapl:{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text("package\n")
        (folder / "energy_uj").write_text("1\n")
    assert len(Machine(tmp_path).read()) == rapl.DOMAINS_MAX
