# SPDX-License-Identifier: Apache-2.0
"""The machines that probes are tested on look as the kernel shows them."""

from pathlib import Path

from sysmond.probe import Host
from tests.support import sysfs


def test_a_device_is_listed_in_its_class_with_its_properties(tmp_path: Path) -> None:
    host = Host(str(sysfs.build(tmp_path, "laptop", "mains")))
    assert host.names("/sys/class/power_supply") == ["AC"]
    assert host.integer("/sys/class/power_supply/AC/online") == 1
    assert host.lines("/sys/class/power_supply/AC/uevent")[1:] == ["POWER_SUPPLY_TYPE=Mains", "POWER_SUPPLY_ONLINE=1"]
    assert (tmp_path / "sys/class/power_supply/AC/subsystem").resolve() == tmp_path / "sys/class/power_supply"


def test_attributes_have_lines_and_folders_and_links_lead_where_they_say(tmp_path: Path) -> None:
    told = ["E: SUBSYSTEM=pci", "A: power/runtime_status=suspended", "A: two=one\\ntwo", "L: driver=../drivers/x"]
    sysfs.devices(tmp_path, "\n".join(["P: /devices/pci0/gpu", *told]))
    gpu = tmp_path / "sys/bus/pci/devices/gpu"
    assert (gpu / "two").read_text() == "one\ntwo\n"
    assert (gpu / "driver").readlink() == Path("../drivers/x")
    assert Host(str(tmp_path)).is_asleep("/sys/bus/pci/devices/gpu")
