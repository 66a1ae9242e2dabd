# SPDX-License-Identifier: Apache-2.0
"""What all tests share: Hypothesis without chance or deadlines, folders in RAM, the repository."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from sysmond.base.model import FINEST_TIER
from sysmond.machine.folders import Folders, create, create_classes
from tests.support.leftovers import all_are_closed, leaves_nothing
from tests.support.order import pytest_collection_modifyitems, pytest_xdist_make_scheduler
from tests.support.warm import a_warm_process

if TYPE_CHECKING:
    from tests.golden.asking import Asked

# Around every test, and before all.
__all__ = ["all_are_closed", "leaves_nothing", "pytest_collection_modifyitems", "pytest_xdist_make_scheduler"]

# The same examples are tried each time: a red build must mean that the change is at fault. "make check-all" tries all,
# "make test" some of them; HYPOTHESIS_PROFILE=search looks for new ones.
for profile, examples in (("all", 100), ("some", 25)):
    settings.register_profile(
        profile,
        derandomize=True,
        deadline=None,
        max_examples=examples,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.register_profile("search", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "some"))


# nohup has the first ignored, a shell the others for what it starts in the background: whatever is started here would
# inherit that; tests send them.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Have the collector leave alone what stays to the end: it would go through thousands of tests each time."""
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """Where the sources lie."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def warm() -> Iterator[None]:
    """Have a process from which programs are forked, before any test looks whether it leaves one."""
    with a_warm_process():
        yield


@pytest.fixture(scope="session")
def frozen_archive() -> "Iterator[Callable[[str], Asked]]":
    """Give the archives of ``tests/golden`` by their name; nobody changes them."""
    from tests.golden import archives, asking  # noqa: PLC0415  few tests need what it takes to make them

    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(asking.made(archives.ARCHIVES[name])))


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A runtime folder as the daemon has one: in RAM, of mode 0700, with a path short enough for sockets."""
    in_ram = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="sysmond-", dir=in_ram))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folders(runtime: Path) -> Folders:
    """A pair of folders as the parts prepare them; nothing is recorded yet."""
    made = Folders(str(runtime / "state"), str(runtime / "run"))
    create(made, os.geteuid())
    for part in ("archiver", "sampler", "background"):
        create_classes(f"{made.runtime}/{part}")
    create_classes(made.state, FINEST_TIER)
    return made
