# SPDX-License-Identifier: Apache-2.0
"""From which boot on boots are slower, which phase grew, and what had changed: ``sysmon boots --explain``."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sysmon_tools.change_point import SURE_MIN, VALUES_MIN, Floats, step_at, sureness
from sysmon_tools.changes import MachineChange, between
from sysmon_tools.startups import PHASES, MeasuredBoot, measured
from sysmond.base import timespec
from sysmond.base.clock import SECOND_NS

if TYPE_CHECKING:
    from sysmond.history import Archive

NAMES = ("rank", "time", "what", "before", "after", "because")
LISTED_MAX = 20
SHORTEST_S = 1e-3
CERTAIN_MIN = 4.5
# What of a change's name makes it likelier, by the phase that grew.
NAMED = {
    "firmware": ("firmware", "fwupd", "bios", "microcode"),
    "loader": ("grub", "shim", "systemd-boot", "refind"),
    "kernel": ("linux-", "kernel", "command_line", "microcode", "firmware", "dkms", "nvidia", "zfs"),
    "initrd": ("initramfs", "dracut", "cryptsetup", "lvm2", "mdadm", "plymouth", "linux-", "command_line", "zfs"),
    "userspace": (
        "systemd",
        "udev",
        "dbus",
        "network-manager",
        "networkd",
        "snapd",
        "docker",
        "apparmor",
        "cloud-init",
    ),
}
# A unit that makes less of what grew is left out; so many are shown; shorter words say nothing.
UNIT_PART, UNITS_SHOWN_MAX, WORD_MIN = 0.15, 3, 3


class Slowdown(NamedTuple):
    """From which boot on, by its place in the list, boots are slower, by how much of which phase and which units."""

    at: int
    sure: float
    before_s: float
    after_s: float
    phase: str
    grown_s: float
    units_s: Mapping[str, float]


def slowdown(boots: Sequence[MeasuredBoot]) -> Slowdown | None:
    """Find the boot; None where there is none, or too few to tell.

    Whether there is one, the whole tells; where, the phase that grew most, or the unit in it that did: in these the
    step is higher above the noise.
    """
    table: Floats = np.array([boot.phases_s for boot in boots], dtype=np.float64).reshape(-1, len(PHASES))
    totals = table.sum(axis=1)
    sure = sureness(totals)
    if sure < SURE_MIN:
        return None
    grown = _grown(table, step_at(totals))
    phase = int(np.argmax(grown))
    at = step_at(np.maximum(table[:, phase], SHORTEST_S))
    units = _grown_units(boots, at, float(grown[phase]))
    if units:
        unit = next(iter(units))
        at = step_at(np.array([max(boot.units_s.get(unit, 0.0), SHORTEST_S) for boot in boots]))
    before_s, after_s = float(np.median(totals[:at])), float(np.median(totals[at:]))
    grown_s = float(_grown(table, at)[phase])
    return Slowdown(at, sure, before_s, after_s, PHASES[phase], grown_s, _grown_units(boots, at, grown_s))


def _grown_units(boots: Sequence[MeasuredBoot], at: int, grown_s: float) -> dict[str, float]:
    """Which units took longer from there on, by how many seconds, the most first; those that make a part of it."""
    grown = {}
    for unit in sorted({unit for boot in boots for unit in boot.units_s}):
        before, after = (np.median([boot.units_s.get(unit, 0.0) for boot in side]) for side in (boots[:at], boots[at:]))
        if after - before >= UNIT_PART * grown_s:
            grown[unit] = float(after - before)
    return dict(sorted(grown.items(), key=lambda item: -item[1]))


def _grown(table: Floats, at: int) -> Floats:
    """By how much each phase grew there: float64[boot, phase] to float64[phase]."""
    grown: Floats = np.median(table[at:], axis=0) - np.median(table[:at], axis=0)
    return grown


def ranked(
    changes: Sequence[MachineChange], phase: str, units_s: Mapping[str, float] = MappingProxyType({})
) -> list[tuple[MachineChange, str]]:
    """What changed just before, the likeliest first, and why it is thought to be.

    First what shares a name with a unit that grew, by how much; then what belongs to the phase; then what came last.
    """

    def judged(change: MachineChange) -> tuple[float, bool, int, str]:
        unit, shared = _of_unit(change, units_s)
        is_named = any(word in change.what.lower() for word in NAMED[phase])
        because = f"{unit} took {units_s[unit]:.1f} s longer" if unit else ""
        return shared, is_named, change.time_ns, because or (f"belongs to the {phase}" if is_named else "just before")

    weighed = sorted(((judged(change), change) for change in changes), reverse=True)
    return [(change, because) for (*_, because), change in weighed]


def _of_unit(change: MachineChange, units_s: Mapping[str, float]) -> tuple[str, float]:
    """Which of the units that grew shares a word of its name with a change, and how much that counts; or none."""
    words = _words(change.what.partition(" ")[2].partition(":")[0] or change.what)
    best = "", 0.0
    for unit, grown_s in units_s.items():
        own = _words(unit.rpartition(".")[0])
        part = len(words & own) / len(words | own) if words & own else 0.0
        if part * grown_s > best[1]:
            best = unit, part * grown_s
    return best


def _words(name: str) -> set[str]:
    """The words of a name, without numbers and what says nothing."""
    return {word for word in re.split(r"[^a-z]+", name.lower()) if len(word) >= WORD_MIN} - {"service", "server", "lib"}


def explained(archive: "Archive", now_ns: int, unmeasured: Sequence[str] = ()) -> tuple[list[tuple[object, ...]], str]:
    """What is to be told, as ``NAMES`` has it, and why there is nothing where there is nothing.

    ``unmeasured``: of the boots whose length is not known, why not; empty where nobody knows that.
    """
    boots = measured(archive.events(0, now_ns))
    without = _without(unmeasured)
    if len(boots) < VALUES_MIN:
        return [], f"{VALUES_MIN} boots are needed whose length is recorded; there are {len(boots)}{without}"
    slower = slowdown(boots)
    if slower is None:
        return [], f"no boot of {len(boots)} from which boots are slower{without}"
    return list(_rows(archive, boots, slower, without)), ""


def _without(unmeasured: Sequence[str]) -> str:
    """How many boots are left out, as their length is not known, and why."""
    if not unmeasured:
        return ""
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(Counter(unmeasured).items()) if why)
    return f"; left out as their length is not known: {len(unmeasured)}{f' ({reasons})' if reasons else ''}"


def _rows(
    archive: "Archive", boots: Sequence[MeasuredBoot], slower: Slowdown, without: str
) -> Iterator[tuple[object, ...]]:
    first = boots[slower.at]
    how = "almost certainly" if slower.sure >= CERTAIN_MIN else "likely"
    units = ", ".join(f"{unit} {grown_s:.1f} s" for unit, grown_s in list(slower.units_s.items())[:UNITS_SHOWN_MAX])
    of_units = f", of which {units}" if units else ""
    numbers = f"{slower.at} boots before, {len(boots) - slower.at} since{without}"
    why = f"{slower.phase} took {slower.grown_s:.1f} s longer{of_units}; {numbers}"
    spelled = f"{slower.before_s:.1f} s", f"{slower.after_s:.1f} s"
    yield 0, _time(first.time_ns), f"boots are slower, {how}", *spelled, why
    changes = list(between(archive, boots[slower.at - 1].time_ns, first.time_ns))
    for rank, (change, because) in enumerate(ranked(changes, slower.phase, slower.units_s)[:LISTED_MAX], 1):
        yield rank, _time(change.time_ns), change.what, change.before, change.after, because


def _time(time_ns: int) -> str:
    return timespec.format_time(time_ns // SECOND_NS * SECOND_NS)
