# SPDX-License-Identifier: Apache-2.0
"""A plan that is kept: used again while all that it was made of is as it was, and never otherwise."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sysmond.base.model import Lane, Sensitivity
from sysmond.errors import NotPermittedError
from sysmond.plan import plan, plan_cache, resolver
from sysmond.plan.plan import Plan, PlannedProbe
from tests.support.waiting import wait_until

PLAN = Plan(
    (
        PlannedProbe("memory", "sysmond_probes.memory", Lane.REALTIME, 10**9, Sensitivity.PUBLIC),
        PlannedProbe("mail", "/etc/mail.py", Lane.BACKGROUND, 10**9, Sensitivity.RESTRICTED, True, {"token": "secret"}),
    )
)


# Than anything was changed here.
LATER_NS = 2**62


class Place:
    """A runtime folder, a folder for what is kept, and what the plan was made of."""

    def __init__(self, base: Path) -> None:
        self.runtime, self.folder, self.made_of = base / "run", base / "kept", base / "made_of"
        for folder in (self.runtime, self.folder, self.made_of):
            folder.mkdir()
        (self.made_of / "sysmond.yaml").write_text("{}\n")
        self.paths = [str(self.made_of), str(self.made_of / "sysmond.yaml")]
        plan.write(PLAN, str(self.runtime / "plan.json"))
        (self.runtime / "catalogue.json").write_text("{}")
        plan_cache.store(str(self.runtime), str(self.folder), self.paths, LATER_NS)
        for file in self.runtime.iterdir():
            file.unlink()

    def reuse(self) -> bool:
        return plan_cache.reuse(str(self.runtime), str(self.folder))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_plan_is_used_again_whole(place: Place) -> None:
    assert place.reuse()
    assert plan.read(str(place.runtime / "plan.json")) == PLAN
    assert (place.runtime / "catalogue.json").read_text() == "{}"
    assert (place.runtime / "plan-options.json").stat().st_mode & 0o777 == 0o640
    assert place.reuse()


@pytest.mark.parametrize(
    "change",
    [
        lambda place: (place.made_of / "sysmond.yaml").write_text("{ }\n"),
        lambda place: (place.made_of / "more.yaml").touch(),
        lambda place: (place.made_of / "sysmond.yaml").unlink(),
        lambda place: (place.folder / plan_cache.MADE_OF).write_text("["),
        lambda place: (place.folder / plan_cache.MADE_OF).unlink(),
        lambda place: (place.folder / "plan.json").write_text("{}"),
        lambda place: (place.folder / "plan-options.json").unlink(),
        lambda place: place.folder.chmod(0o777),
    ],
)
def test_it_is_not_where_anything_is_otherwise(place: Place, change: Callable[[Place], object]) -> None:
    change(place)
    assert not place.reuse()
    assert not (place.runtime / "plan.json").exists()


def test_another_kernel_python_or_sysmond_makes_its_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((plan_cache, "__version__", "0.0"), (sys, "version", "2.7")):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            assert not place.reuse()
    other = os.uname_result(("Linux", "host", "7.0", "#1", "x86_64"))
    with monkeypatch.context() as changed:
        changed.setattr(os, "uname", lambda: other)
        assert not place.reuse()
    assert place.reuse()


def test_it_is_not_kept_where_something_changed_meanwhile(place: Place) -> None:
    assert place.reuse()
    began_ns = time.time_ns()
    (place.made_of / "sysmond.yaml").write_text("{ }\n")
    plan_cache.store(str(place.runtime), str(place.folder), place.paths, began_ns)
    assert not place.reuse()


def test_it_is_not_kept_where_others_may_write(place: Place) -> None:
    assert place.reuse()
    place.folder.chmod(0o777)
    with pytest.raises(NotPermittedError, match="lets others write"):
        plan_cache.store(str(place.runtime), str(place.folder), [], LATER_NS)


def test_the_resolver_keeps_what_it_makes(tmp_path: Path) -> None:
    config = tmp_path / "sysmond.yaml"
    config.write_text("{}\n")
    run, folder = tmp_path / "run", tmp_path / "kept"
    run.mkdir()
    folder.mkdir()
    words = ["--config", str(config), "--output", str(run / "plan.json"), "--cache", str(folder)]

    def is_kept() -> bool:
        assert resolver.main(words) == 0
        return (folder / plan_cache.MADE_OF).exists()

    wait_until(is_kept)  # Not as long as what it read is as new as this test.
    made = plan.read(str(run / "plan.json"))
    (run / "plan.json").unlink()
    assert plan_cache.reuse(str(run), str(folder))
    assert plan.read(str(run / "plan.json")) == made
    config.write_text("probes: {memory: {interval: 7s}}\n")
    assert not plan_cache.reuse(str(run), str(folder))
