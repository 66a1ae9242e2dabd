# SPDX-License-Identifier: Apache-2.0
"""Every probe on every machine there is a fixture of: rows as declared, or a cause; on an empty one nothing at all.

What sleeps there is left asleep, whichever probe reads.
"""

import glob
import json
import os
import pkgutil
from pathlib import Path

import pytest
import sysmond_probes

from sysmond.base.model import ABSENT, Sensitivity, Table
from sysmond.plan import plan as plans
from sysmond.plan import plugins
from sysmond.probe import Absence, Cause, Host
from sysmond.sampler.source import Pieces, Reading, Source, with_options
from tests.support import sysfs
from tests.support.opened import asleep, opened, wakes

MACHINES = sorted(folder.name for folder in sysfs.MACHINES.iterdir())
PLUGINS = sorted(module.name for module in pkgutil.iter_modules(sysmond_probes.__path__))
NOBODY = 65534
INT64 = range(-(2**63), 2**63)
# Restricted tables that anybody may read by himself, and why they are restricted all the same.
FOR_EVERYBODY = {
    "address": "rtnetlink tells everybody; where the machine is",
    "route": "rtnetlink tells everybody; where the machine is",
    "session": "logind tells everybody; who uses the machine when",
    "motion": "files of sysfs; how somebody moves",
    "proximity": "files of sysfs; whether somebody is there",
    "screen": "files of sysfs; when people are away",
    "orientation": "files of sysfs; how somebody holds it",
    "wifi_bssid": "nl80211 tells everybody; where the machine is",
    "wifi_ssid": "nl80211 tells everybody; where the machine is",
}
# Files below are root's, whatever their modes say on a machine that is without them now.
OF_ROOT = ("/sys/kernel/debug/", "/sys/kernel/tracing/")
# What one instance may lack: that something sleeps, or that a chip reports a fault, is no failure of the probe.
LACKS = {Cause.ASLEEP, Cause.IN_USE, Cause.NO_SOURCE}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tree of each machine."""
    return {name: sysfs.build(tmp_path_factory.mktemp(name), name) for name in MACHINES}


@pytest.fixture(params=MACHINES)
def root(request: pytest.FixtureRequest, roots: dict[str, Path]) -> Path:
    return roots[request.param]


@pytest.fixture(params=["arm", "desktop", "laptop"], scope="module")
def awake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of a machine that has devices under runtime power management, all awake."""
    root = sysfs.build(tmp_path_factory.mktemp("awake"), request.param)
    for state in root.glob("sys/devices/**/power_state"):
        state.write_text("D0\n")
    return root


def sources(plugin: str, host: Host) -> list[Source]:
    """The tables of a plugin with their options as they are by default."""
    name = f"{plans.BUILTIN_PACKAGE}.{plugin}"
    made = []
    for probe in plans.offered_probes(plans.import_plugin(name)):
        planned = plans.as_declared(name, probe)
        made.append(Source(planned, with_options(probe, planned), host, 1.0))
    return made


def count(reading: Reading | Pieces | Absence) -> int:
    """How many rows a reading has."""
    if isinstance(reading, Absence):
        return 0
    if isinstance(reading, Pieces):
        return sum(memoryview(piece.rows).nbytes for piece in reading.records)
    return len(reading.names)


def wrong(source: Source, reading: Reading) -> list[str]:
    """What of a reading is not as its table declares it."""
    metrics = source.probe.table.metrics * len(reading.names)
    found = [
        f"{metric.name}: {value!r}"
        for metric, value in zip(metrics, reading.values, strict=True)
        if value != ABSENT and (not isinstance(value, str) if metric.is_text else value not in INT64)
    ]
    return found + [str(absence) for absence in reading.lacking if absence.cause not in LACKS]


def test_no_machine_is_forgotten() -> None:
    assert MACHINES == ["arm", "desktop", "empty", "laptop", "server", "virtual"]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_is_declared_is_well_formed(plugin: str) -> None:
    for probe in plans.offered_probes(plans.import_plugin(f"{plans.BUILTIN_PACKAGE}.{plugin}")):
        plugins.check_probe(probe)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_machine_has_rows_as_declared_or_a_cause(plugin: str, root: Path) -> None:
    host = Host(str(root))
    sleeping = asleep(root)
    try:
        for source in sources(plugin, host):
            for _ in range(2):  # Some know nothing before the second.
                host.new_tick()
                with opened() as heard:
                    reading = source.read()
                assert [path for path in heard if wakes(path, sleeping)] == [], source.table
                if isinstance(reading, Absence):
                    assert reading.cause is Cause.NO_SOURCE, source.table
                elif isinstance(reading, Reading):
                    assert wrong(source, reading) == [], source.table
                # What is not read at all for lack of what it needs would have had nothing to tell.
                assert source.planned.is_possible(str(root)) or count(reading) == 0, source.table
    finally:
        host.close()


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_falls_asleep_between_two_readings_is_left_alone(plugin: str, awake: Path) -> None:
    """Every device sleeps once it was read awake: neither a path nor a kept descriptor is read then."""
    managed = list(awake.glob("sys/devices/**/power/runtime_status"))
    host = Host(str(awake))
    try:
        for source in sources(plugin, host):
            say(managed, "active")
            source.read()
            say(managed, "suspended")
            sleeping = asleep(awake)
            assert len(sleeping) == len(managed) > 0
            host.new_tick()
            with opened() as heard:
                source.read()
            assert [path for path in heard if wakes(path, sleeping)] == [], source.table
    finally:
        host.close()


def say(managed: list[Path], status: str) -> None:
    """Have devices say a status of runtime power management."""
    for file in managed:
        file.write_text(f"{status}\n")


@pytest.mark.parametrize("plugin", PLUGINS)
def test_an_empty_machine_has_nothing(plugin: str, roots: dict[str, Path]) -> None:
    host = Host(str(roots["empty"]))
    try:
        for source in sources(plugin, host):
            reading = source.read()
            assert count(reading) == 0, source.table
            assert source.planned.is_possible(str(roots["empty"])) <= (not source.planned.needs), source.table
    finally:
        host.close()


def test_what_is_restricted_says_what_reading_it_takes() -> None:
    offered = [
        probe
        for plugin in PLUGINS
        for probe in plans.offered_probes(plans.import_plugin(f"{plans.BUILTIN_PACKAGE}.{plugin}"))
    ]
    taking_nothing = {
        probe.table.name
        for probe in offered
        if plans.as_declared("", probe).sensitivity is Sensitivity.RESTRICTED and not probe.privilege
    }
    assert taking_nothing == FOR_EVERYBODY.keys()
    of_root = {
        probe.table.name
        for probe in offered
        for path in (*probe.needs, *(metric.origin for metric in probe.table.metrics))
        if path.startswith(OF_ROOT) and not probe.privilege
    }
    assert of_root == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_what_nobody_may_read_says_what_that_takes() -> None:
    """Every probe, and every file that its metrics name, is read as the user nobody, on the machine that runs this."""
    reading, writing = os.pipe()
    plugins_of = {plugin: sources(plugin, Host()) for plugin in PLUGINS}  # Imported before: nobody may not read them.
    files_of = {source.table: files(source.probe.table) for each in plugins_of.values() for source in each}
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        refused = [source.table for each in plugins_of.values() for source in each if is_refused(source)]
        refused += [table for table, paths in files_of.items() if not all(os.access(path, os.R_OK) for path in paths)]
        os.write(writing, json.dumps(refused).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        tables = set(json.load(pipe))
    assert os.waitpid(child, 0)[1] == 0
    declared = {source.table: source.probe.privilege for each in plugins_of.values() for source in each}
    assert {table for table in tables if not declared[table]} == set()
    assert "slab" in tables or not os.path.exists("/proc/slabinfo")


def files(table: Table) -> list[str]:
    """The files that its metrics name and that are here, one of each name with stars, none of the process itself."""
    named = {metric.origin.split(" ")[0].rstrip(",") for metric in table.metrics if metric.origin.startswith("/")}
    named = {name for name in named if not name.startswith("/proc/self/")}
    return [found[0] for name in sorted(named) if (found := sorted(glob.glob(name)))]


def is_refused(source: Source) -> bool:
    """Whether a probe may not be read, or some of its instances may not."""
    if not source.planned.is_possible("/"):
        return False
    reading = source.read()
    lacking = reading.lacking if isinstance(reading, Reading) else [reading] if isinstance(reading, Absence) else ()
    return any(absence.cause is Cause.NO_PERMISSION for absence in lacking)
