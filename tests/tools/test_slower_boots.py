# SPDX-License-Identifier: Apache-2.0
"""From which boot on boots are slower: how often that is found right, what it is put down to, what is said."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from sysmon_tools import sysmon
from sysmon_tools.change_point import SIDE_MIN, VALUES_MIN, step_at, sureness
from sysmon_tools.changes import MachineChange
from sysmon_tools.slower_boots import ranked, slowdown
from sysmon_tools.startups import PHASES, MeasuredBoot, measured
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.base.result import Event
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from tests.support.bench import table
from tests.support.longarchive import relation

DAY_NS = 86400 * SECOND_NS
BOOTS, FROM_EITHER_END = 60, 10
USUAL_S = (5.0, 1.0, 2.0, 2.0, 10.0)
SEEDS = 100


def synthetic(seed: int, noise: float, *, has_step: bool, is_common: bool = False) -> tuple[list[MeasuredBoot], int]:
    """Sixty boots, one in ten half as long again; with a step, services take a fifth of the boot longer from there on.

    ``is_common``: all phases of a boot are slower or faster together.
    """
    random = np.random.default_rng(seed)
    at = int(random.integers(FROM_EITHER_END, BOOTS - FROM_EITHER_END + 1))
    phases = np.tile(np.array(USUAL_S), (BOOTS, 1))
    if has_step:
        phases[at:, -1] += sum(USUAL_S) / 5
    phases *= np.exp(random.normal(0, noise, (BOOTS, 1 if is_common else len(PHASES))))
    phases *= np.where(random.random(BOOTS) < 0.1, 1.5, 1.0)[:, None]
    return [MeasuredBoot(number, tuple(row)) for number, row in enumerate(phases.tolist())], at


def misses(noise: float, *, is_common: bool) -> list[float]:
    """By how many boots each seed is missed; infinity where nothing is found."""
    found = []
    for seed in range(SEEDS):
        boots, at = synthetic(seed, noise, has_step=True, is_common=is_common)
        slower = slowdown(boots)
        found.append(math.inf if slower is None else abs(slower.at - at))
    return found


@pytest.mark.parametrize("is_common", [False, True])
def test_the_boot_is_found_within_one_among_much_noise_and_exactly_among_less(*, is_common: bool) -> None:
    assert sum(miss <= 1 for miss in misses(0.1, is_common=is_common)) >= 80
    assert sum(miss == 0 for miss in misses(0.05, is_common=is_common)) >= 85


@pytest.mark.parametrize("is_common", [False, True])
@pytest.mark.parametrize("noise", [0.05, 0.1])
def test_without_a_step_hardly_any_is_found(noise: float, *, is_common: bool) -> None:
    boots = [synthetic(seed, noise, has_step=False, is_common=is_common)[0] for seed in range(SEEDS)]
    assert sum(slowdown(one) is not None for one in boots) <= 5


def test_boots_that_became_faster_are_not_slower() -> None:
    boots, _ = synthetic(3, 0.05, has_step=True)
    assert slowdown(boots) is not None
    assert slowdown(boots[::-1]) is None


PARTS = ("core", "daemon", "tools", "common", "utils", "client", "plugins", "data", "bin", "extra")
WELL_KNOWN = (
    "postgresql",
    "nginx",
    "cups",
    "bluetooth",
    "docker",
    "mysql",
    "redis",
    "avahi",
    "snapd",
    "libvirt",
    "zram",
)


def upgrades(random: np.random.Generator, day: int, count: int) -> list[MachineChange]:
    """What a run of the package manager upgraded that day."""
    names = [
        f"{WELL_KNOWN[random.integers(len(WELL_KNOWN))]}-{PARTS[random.integers(len(PARTS))]}" for _ in range(count)
    ]
    others = [f"lib{''.join(random.choice(list('abcdefghijklmnop'), 6))}{random.integers(9)}" for _ in range(count)]
    chosen = [*others, *[name for name in names if random.random() < 0.1]][:count]
    return [
        MachineChange(day * DAY_NS + number, f"upgraded {name}:amd64", "1", "2") for number, name in enumerate(chosen)
    ]


def test_the_package_is_among_the_first_three_of_all_that_changed_in_ninety_days() -> None:
    """A boot a day, three or four packages on each, thirty on the day on which one unit becomes slower."""
    hits = 0
    for seed in range(SEEDS):
        boots, at = synthetic(seed, 0.1, has_step=True)
        random = np.random.default_rng(seed + 1000)
        slow = WELL_KNOWN[seed % len(WELL_KNOWN)]
        units = {f"{name}.service": float(random.uniform(0.2, 1.5)) for name in WELL_KNOWN}
        measured_boots = []
        for number, boot in enumerate(boots):
            lengths = {unit: length * float(random.lognormal(0, 0.1)) for unit, length in units.items()}
            lengths[f"{slow}.service"] += 4.0 * (number >= at)
            measured_boots.append(boot._replace(time_ns=number * DAY_NS + DAY_NS // 2, units_s=lengths))
        changes = [change for day in range(BOOTS) for change in upgrades(random, day, 30 if day == at else 5)]
        culprit = MachineChange(at * DAY_NS + 99, f"upgraded {slow}:amd64", "1", "2")
        changes = sorted([*changes, culprit])
        assert len(changes) >= 300
        found = slowdown(measured_boots)
        if found is not None:
            start_ns, end_ns = measured_boots[found.at - 1].time_ns, measured_boots[found.at].time_ns
            near = [change for change in changes if start_ns < change.time_ns <= end_ns]
            hits += culprit in [change for change, _ in ranked(near, found.phase, found.units_s)[:3]]
    assert hits >= 90


def test_too_few_are_not_told_of() -> None:
    few = [MeasuredBoot(number, (0.0, 0.0, 1.0, 0.0, 9.0 + 30 * (number > 6))) for number in range(VALUES_MIN)]
    assert slowdown(few) is not None
    assert slowdown(few[1:]) is None
    assert slowdown([]) is None
    assert sureness(np.ones(VALUES_MIN)) == 0.0


def test_values_that_are_all_the_same_but_for_the_step_are_parted_there() -> None:
    assert step_at(np.array([7.0] * 9 + [8.0] * SIDE_MIN)) == 9


def event(time_ns: int, text: str, kind: str = "startup") -> Event:
    return Event(time_ns, kind, "", text)


def test_boots_are_read_of_events_each_once() -> None:
    said = "26.500 s: firmware 5.000 s, kernel 2.000 s, userspace 15.000 s"
    events = [event(10, said), event(11, said), event(12, "x", "pin"), event(13, "nonsense"), event(DAY_NS, said)]
    assert measured(events) == [MeasuredBoot(time_ns, (5.0, 0.0, 2.0, 0.0, 15.0)) for time_ns in (10, DAY_NS)]


def test_what_belongs_to_the_phase_that_grew_comes_first_then_what_was_last() -> None:
    names = ("upgraded bash:amd64", "upgraded linux-image-6.12:amd64", "vm.swappiness", "upgraded grub-pc:amd64")
    changes = [MachineChange(number, name, "1", "2") for number, name in enumerate(names)]
    assert [change.time_ns for change, _ in ranked(changes, "kernel")] == [1, 3, 2, 0]
    assert ranked(changes, "loader")[0] == (changes[3], "belongs to the loader")


def record(folders: Folders, boots: Sequence[MeasuredBoot]) -> None:
    """Boots a day apart, up to now, as a recorder that begins ten seconds later tells of them."""
    folder = Path(folders.runtime, "background/public")
    folder.mkdir(parents=True)
    Path(folders.state).mkdir()
    now_ns = clock.relation().realtime_ns
    for number, boot in enumerate(boots):
        booted_ns = now_ns - (len(boots) - number) * DAY_NS
        identity = Identity(f"{number:032x}", "background", Sensitivity.PUBLIC, 1, SECOND_NS)
        writer = RingWriter(str(folder / f"{number}.ring"), 1 << 15, identity, [Layout(table("t"), SECOND_NS)])
        writer.clock(relation(40 * SECOND_NS, booted_ns))
        writer.rows(0, 40 * SECOND_NS, ("a",), [1, 2])
        listed = ", ".join(f"{phase} {length:.3f} s" for phase, length in zip(PHASES, boot.phases_s, strict=True))
        happened_ns = booted_ns + 30 * SECOND_NS
        writer.event(
            40 * SECOND_NS,
            "startup",
            "",
            f"{boot.total_s:.3f} s: {listed}",
            happened_ns=happened_ns,
            known_from="systemd",
        )
        writer.event(41 * SECOND_NS, "packages", "", "upgraded", detail=f"upgraded: slow-{number}:all 1 → 2")
        writer.rows(0, 3600 * SECOND_NS, ("a",), [1, 2])
        writer.close(is_over=False)


def told(folders: Folders, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[dict[str, str]], str]:
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    assert sysmon.main(["boots", *where, *words]) == 0
    said = capsys.readouterr()
    return list(csv.DictReader(io.StringIO(said.out))), said.err


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(str(tmp_path / "state"), str(tmp_path / "run"))


def test_the_finding_comes_first_and_what_changed_just_before_follows(
    folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    boots = [MeasuredBoot(0, (*USUAL_S[:4], 10.0 + number / 100 + 8 * (number >= 9))) for number in range(16)]
    record(folders, boots)
    rows, _ = told(folders, capsys, "--explain")
    assert (rows[0]["rank"], rows[0]["what"]) == ("0", "boots are slower, likely")
    assert (rows[0]["before"], rows[0]["after"]) == ("20.0 s", "28.1 s")
    assert rows[0]["because"].endswith("s longer; 9 boots before, 7 since")
    assert rows[0]["because"].startswith("userspace took 8.1 s")
    assert [(row["rank"], row["what"], row["before"], row["after"]) for row in rows[1:]] == [
        ("1", "upgraded slow-8:all", "1", "2")
    ]
    listed, _ = told(folders, capsys)
    assert [float(row["startup_s"]) for row in listed] == [round(boot.total_s, 3) for boot in boots]
    assert listed[0]["userspace_s"] == "10"


def test_why_nothing_is_told_is_said(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    record(folders, [MeasuredBoot(0, USUAL_S)] * 3)
    rows, said = told(folders, capsys, "--explain")
    assert rows == []
    assert "14 boots are needed whose length is recorded; there are 3" in said
