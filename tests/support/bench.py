# SPDX-License-Identifier: Apache-2.0
"""A sampler in the test's own process, with probes of the test's own making."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from sysmond.base.model import Lane, Sensitivity
from sysmond.machine.folders import Folders, create_classes
from sysmond.plan.plan import Plan, PlannedProbe, SamplerSettings
from sysmond.plan.settings import Settings
from sysmond.probe import Host, Probe, Table, counter
from sysmond.ring.frame import SUFFIX
from sysmond.sampler import sources
from sysmond.sampler.lane import Sampler
from tests.support.waiting import HANG_S

SECOND = 1_000_000_000
Read = Callable[[Host], Iterable[tuple[str, Sequence[int | str]]]]


def table(name: str, metrics: int = 2) -> Table:
    return Table(name, tuple(counter(f"m{number}", "1", "A number.") for number in range(metrics)), per="thing")


def steady(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
    yield "a", (1, 2)
    yield "b", (3, 4)


class Many:
    """A table of as many instances as a test has at the moment."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def __call__(self, host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        return ((f"thing {number}", (number, host.tick)) for number in range(self.count))


class Bench:
    """A sampler with probes of the test's own making."""

    def __init__(self, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runtime = runtime
        self.said: list[str] = []
        self.probes: dict[str, Probe] = {}
        self.planned: list[PlannedProbe] = []
        self.root = "/"
        monkeypatch.setattr(sources, "load", lambda planned: self.probes[planned.table])

    def offer(
        self,
        name: str,
        read: Read,
        *,
        declared: Table | None = None,
        lane: Lane = Lane.REALTIME,
        interval_ns: int = SECOND,
        sensitivity: Sensitivity = Sensitivity.PUBLIC,
    ) -> None:
        self.take(Probe(declared or table(name), read, interval_ns / SECOND, lane, sensitivity))

    def take(self, probe: Probe) -> None:
        name = probe.table.name
        self.probes[name] = probe._replace(deadline_s=probe.deadline_s or HANG_S)  # Late only where a test has it so.
        interval_ns = round(probe.interval_s * SECOND)
        self.planned.append(PlannedProbe(name, "sysmond_probes.test", probe.lane, interval_ns, probe.sensitivity))

    def sampler(self, lane: Lane = Lane.REALTIME, *, ring_bytes: int = 1 << 20, ticks: int | None = None) -> Sampler:
        create_classes(str(self.runtime / ("sampler" if lane is Lane.REALTIME else "background")))
        plan = Plan(tuple(self.planned), (), SamplerSettings(ring_bytes, 0))
        folders = Folders(str(self.runtime / "state"), str(self.runtime))
        return Sampler(Settings(folders, root=self.root, ticks=ticks), plan, lane, self.said.append)

    def rings(self, writer: str = "sampler", sensitivity: str = "public") -> list[str]:
        folder = self.runtime / writer / sensitivity
        return sorted(str(path) for path in folder.glob(f"*{SUFFIX}"))
