# SPDX-License-Identifier: Apache-2.0
"""Which tests run side by side, and which alone, where there are several workers (``make pytest``).

The tests of a file run one after the other in one worker, files side by side. What is in a group of
``ALONE`` runs one after the other, too, beside all others: it looks at the whole machine, or changes it; and what is
``TOGETHER`` does.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

ALONE = {
    "tasks": {"tests/tasks/": "looks at all processes; loads BPF programs, which see every one"},
    "daemons": {
        "tests/daemon/test_tasks.py": "loads BPF programs, which see every process",
        "tests/tasks/test_access.py": "looks at all processes; loads BPF programs; makes a group of users",
        "tests/tasks/test_independent.py": "compares all processes with the machine; loads BPF programs",
        "tests/tasks/test_ways.py": "looks at all processes; loads BPF programs, and has them refused",
    },
    "control groups": {
        "tests/cgroups/": "makes control groups, and looks at all of them",
        "tests/project/test_benchmarks.py": "measures; makes control groups",
        "tests/tasks/test_cgroup_names.py": "makes control groups, and looks at all of them",
        "tests/tasks/test_odd_tasks.py": "makes control groups, and takes them away",
        "tests/tools/test_unit_deeds.py": "makes control groups, and freezes them",
    },
    "file systems": {
        "tests/archiver/test_state_gone.py": "mounts file systems, and takes them away",
        "tests/archiver/test_watch.py": "mounts file systems, and counts what is written to them",
        "tests/machine/test_memory_bound.py": "takes memory until there is none",
        "tests/tasks/test_own_bytes.py": "mounts a file system, and counts what is written to it",
    },
}
"""What must not run beside others of its group, and why; of several names of one the longest counts."""

TOGETHER = (
    "tests/golden/",
    "tests/store/test_cut.py",
    "tests/store/test_excerpt.py",
    "tests/answers/test_earlier_bytes.py",
)
"""Who asks the frozen archives: to make them takes long, so one worker does, once."""

EARLY = (
    *("tests/archiver/", "tests/bus/", "tests/daemon/", "tests/faults/", "tests/golden/", "tests/tools/"),
    *("tests/commands/", "tests/store/test_invariants.py"),
)
"""Whose files take long: none of them is to be the last that runs."""


def rounds(few: int, many: int) -> pytest.MarkDecorator:
    """Try a test with few ``rounds`` in ``make test``, and with many in ``make check-all``."""
    return pytest.mark.parametrize("rounds", [few, pytest.param(many, marks=pytest.mark.long)], ids=["few", "many"])


def first(number: int, values: Iterable[object]) -> list[object]:
    """Try a test with so many of these parameters in ``make test``, and with the others in ``make check-all``."""
    every = list(values)
    return [*every[:number], *(pytest.param(value, marks=pytest.mark.long) for value in every[number:])]


def examples(number: int) -> int:
    """How many Hypothesis tries of a test whose examples take long: so many where others have a hundred."""
    return -(-number * settings().max_examples // 100)


def group(nodeid: str) -> str:
    """Name what runs one after the other in one worker."""
    alone = {path: name for name, files in ALONE.items() for path in files if nodeid.startswith(path)}
    if alone:
        return alone[max(alone, key=len)]
    return "together" if nodeid.startswith(TOGETHER) else nodeid.partition("::")[0]


def _turn(item: pytest.Item) -> int:
    return 0 if group(item.nodeid) in ALONE else 1 if item.nodeid.startswith(EARLY) else 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: nothing else can take it over."""
    items.sort(key=_turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Give workers one group after the other."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  machines of the lab do not have it

    config.option.loadscopereorder = False
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group  # Its --dist=loadgroup groups nothing with the pytest that is locked.
    return scheduler
