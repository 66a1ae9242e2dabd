# SPDX-License-Identifier: Apache-2.0
"""What a process really loads: the real-time parts import the standard library and each other, nothing else.

import-linter reads the sources; these tests ask a running interpreter, which also sees what an
imported module imports.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sysmond.base.model import Lane
from sysmond.plan.plan import import_plugin, offered_probes

# What must stay small and quick in memory that is locked, or in processes that live for weeks.
LEAN = (
    "archiver.children",
    "archiver.disk_writes",
    "archiver.flushing",
    "archiver.main",
    "archiver.watch",
    "base.allowance",
    "base.clock",
    "base.counters",
    "base.derived_columns",
    "base.eased_pace",
    "base.event_kinds",
    "base.formula",
    "base.model",
    "base.terminal",
    "cgroups.owner",
    "daemon.heartbeat",
    "daemon.live_view",
    "daemon.oneshot",
    "daemon.part",
    "daemon.reloading",
    "daemon.runner",
    "entry",
    "errors",
    "machine.control",
    "machine.folders",
    "machine.heap",
    "machine.lacking",
    "machine.listing",
    "machine.lock",
    "machine.memory",
    "machine.mounts",
    "machine.asleep",
    "machine.note",
    "machine.notify",
    "machine.oom_score",
    "machine.realtime",
    "machine.supplies",
    "plan.plan",
    "plan.settings",
    "probe",
    "records",
    "ring.frame",
    "ring.newest",
    "ring.progress",
    "ring.leftovers",
    "sampler.rings",
    "sampler.own_place",
    "ring.skipped_rings",
    "ring.snapshot",
    "ring.tail",
    "ring.walk",
    "ring.writer",
    "sampler.bursts",
    "sampler.blocking_reader",
    "sampler.blocking_readers",
    "sampler.time_limit",
    "sampler.grid",
    "sampler.lane",
    "sampler.oneshot",
    "sampler.quarantine",
    "sampler.self_cost",
    "sampler.source",
    "sampler.turns",
    "sampler.sources",
    "store.archive",
    "tasks.bpf.launch",
)

LOADED = """
import importlib, json, sys
before = set(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PLACES = {name: REPOSITORY / f"sysmond/{name.replace('.', '/')}.py" for name in LEAN}
LEAN_THERE = [f"sysmond.{name}" for name, place in PLACES.items() if place.exists()]
PROBES_THERE = [f"sysmond_probes.{path.stem}" for path in sorted((REPOSITORY / "probes").glob("[a-z]*.py"))]


def loaded_by(module: str, folder: Path) -> list[str]:
    """Name the modules that an interpreter loads for this one, started elsewhere and isolated."""
    answer = subprocess.run(
        [sys.executable, "-I", "-c", LOADED, module], cwd=folder, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    names: list[str] = json.loads(answer.stdout)
    return names


def is_foreign(module: str) -> bool:
    package = module.partition(".")[0]
    return package not in sys.stdlib_module_names and package not in {"sysmond", "sysmond_probes"}


@pytest.mark.parametrize("module", LEAN_THERE)
def test_a_lean_module_loads_lean_modules_and_the_standard_library(module: str, tmp_path: Path) -> None:
    loaded = loaded_by(module, tmp_path)
    allowed = {name.rsplit(".", depth)[0] for name in LEAN_THERE for depth in range(4)}
    assert [name for name in loaded if is_foreign(name)] == []
    assert [name for name in loaded if name.startswith("sysmond") and name not in allowed] == []


@pytest.mark.parametrize("module", ["sysmond_probes", *PROBES_THERE])
def test_a_probe_loads_from_anywhere_and_needs_the_standard_library_only(module: str, tmp_path: Path) -> None:
    assert [name for name in loaded_by(module, tmp_path) if is_foreign(name)] == []


def test_the_real_time_lane_does_without_threads(tmp_path: Path) -> None:
    """What only the background lane needs would be locked into its memory, too."""
    assert {"threading", "sysmond.sampler.blocking_readers"}.isdisjoint(loaded_by("sysmond.sampler.lane", tmp_path))


@pytest.mark.parametrize("module", PROBES_THERE)
def test_a_probe_of_the_real_time_lane_does_without_threads_too(module: str, tmp_path: Path) -> None:
    if Lane.REALTIME in {probe.lane for probe in offered_probes(import_plugin(module))}:
        assert {"threading", "weakref", "ctypes"}.isdisjoint(set(loaded_by(module, tmp_path)))
