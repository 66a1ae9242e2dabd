# SPDX-License-Identifier: Apache-2.0
"""Probes of power and of CPUs run where what they need is there, and nowhere else."""

from importlib import import_module
from pathlib import Path

import pytest

from sysmond.plan import plan
from tests.support import sysfs

KINDS = {
    "battery": ("battery", "mains"),
    "cpu_frequency": ("cpu",),
    "cpu_idle": ("cpu",),
    "cpu_throttle": ("cpu",),
    "rapl": ("rapl",),
    "runtime_pm": ("devices",),
    "usb_power": ("devices",),
    "wakeup": ("devices",),
}


def possible(plugin: str, root: Path) -> set[str]:
    """Which tables of a plugin are read on a machine."""
    probes = import_module(f"sysmond_probes.{plugin}").sysmond_probes()
    return {probe.table.name for probe in probes if plan.as_declared(plugin, probe).is_possible(str(root))}


@pytest.mark.parametrize(("plugin", "kinds"), KINDS.items())
def test_a_table_is_read_where_it_has_rows(plugin: str, kinds: tuple[str, ...], tmp_path: Path) -> None:
    assert possible(plugin, tmp_path) == set()
    assert possible(plugin, sysfs.build(tmp_path, "laptop", *kinds)) == (
        {"battery", "mains"} & {plugin, *kinds} or {plugin}
    )


def test_a_virtual_machine_has_idle_cpus_but_no_clocks(tmp_path: Path) -> None:
    root = sysfs.build(tmp_path, "virtual", "cpu")
    assert [plugin for plugin in KINDS if possible(plugin, root)] == ["cpu_idle"]


def test_a_desktop_has_mains_at_most_and_perhaps_a_mouse(tmp_path: Path) -> None:
    assert possible("battery", sysfs.build(tmp_path, "laptop", "usb_pd")) == {"mains"}
