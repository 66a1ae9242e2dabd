# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of sources that are not here: something that would help, for every path that a probe needs."""

import pkgutil

import pytest
import sysmond_probes

from sysmon_tools.doctor import examine
from sysmond.plan import plan as plans
from sysmond.probe import NOT_HERE

PLUGINS = sorted(module.name for module in pkgutil.iter_modules(sysmond_probes.__path__))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_whatever_a_probe_needs_there_is_help_where_it_is_missing(plugin: str) -> None:
    for probe in plans.offered_probes(plans.import_plugin(f"{plans.BUILTIN_PACKAGE}.{plugin}")):
        for path in probe.needs[:1]:  # The reason names the first.
            rows = [
                {"name": probe.table.name, "state": "absent", "reason": f"no source: {NOT_HERE} {path}"},
                {
                    "name": probe.table.name,
                    "state": "absent",
                    "reason": f"no source: '{path}': No such file",
                },
            ]
            for finding in examine(rows, {"pids": {}, "runtime_dir": "/nowhere"})[:2]:
                assert finding["help"], (probe.table.name, path)


def test_the_closest_path_counts() -> None:
    paths = ("/sys/class/net/*/phy80211", "/sys/class/net/*/device", "/sys/class/net/*")
    rows = [{"name": path, "state": "absent", "reason": f"no source: {NOT_HERE} {path}"} for path in paths]
    helps = [finding["help"] for finding in examine(rows, {"pids": {}, "runtime_dir": "/nowhere"})[:3]]
    assert len(set(helps)) == 3
