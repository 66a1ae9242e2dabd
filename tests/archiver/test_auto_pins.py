# SPDX-License-Identifier: Apache-2.0
"""Incidents are found where memory ran out or all work stood still, and nowhere else."""

from pathlib import Path
from typing import Any

import numpy as np

from sysmond.archiver import auto_pins
from sysmond.archiver.auto_pins import AROUND_NS, KILLS, STALLS
from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Sensitivity
from sysmond.machine.folders import Folders
from sysmond.plan import plan
from sysmond.plan.plan import ArchiverSettings
from sysmond.store import pins
from sysmond.store.of_ring import BootEvent, MemoryBlock, Recording, Strand
from sysmond.store.pins import BY_ITSELF as BY
from sysmond.store.pins import Pin

BOOT = "a" * 32
SECOND = 10**9
UTC_NS = 1_700_000_000 * SECOND


def recorded(kills: np.ndarray, stalled: np.ndarray) -> Recording:
    memory, io = STALLS
    ticks = np.arange(2000, dtype=np.int64) * SECOND
    block = MemoryBlock(
        Strand(BOOT, "sampler", 1, SECOND), ticks, (KILLS, memory, io), np.array([kills, stalled, kills])
    )
    return Recording(Sensitivity.PUBLIC, {}, [block], {}, {BOOT: [Relation(0, UTC_NS, 0)]}, [])


def test_what_is_pinned_and_what_is_not() -> None:
    kills, stalled = np.full(2000, 7), np.zeros(2000, np.int64)
    assert auto_pins.pins_of(recorded(kills, stalled)) == []
    kills[500:] += 1
    kills[499] = ABSENT
    stalled[100:120] = 3999
    stalled[[1000, 1010, 1800]] = 4000
    assert auto_pins.pins_of(recorded(kills, stalled)) == [
        Pin(UTC_NS + 500 * SECOND - AROUND_NS, UTC_NS + 500 * SECOND + AROUND_NS, "oom kill", "sysmond"),
        Pin(UTC_NS + 1000 * SECOND - AROUND_NS, UTC_NS + 1010 * SECOND + AROUND_NS, "memory pressure", "sysmond"),
        Pin(UTC_NS + 1800 * SECOND - AROUND_NS, UTC_NS + 1800 * SECOND + AROUND_NS, "memory pressure", "sysmond"),
    ]


def part(first: int, last: int, kills: list[int], stalled: int = 0, boot: str = BOOT) -> Recording:
    ticks = np.arange(first, last, dtype=np.int64) * SECOND
    keys = (KILLS, next(iter(STALLS)))
    values = np.array([kills, [stalled] * (last - first)])
    clocks = {boot: [Relation(0, UTC_NS, 0)]}
    return Recording(
        Sensitivity.PUBLIC, {}, [MemoryBlock(Strand(boot, "sampler", 1, SECOND), ticks, keys, values)], {}, clocks, []
    )


def test_what_was_killed_between_two_segments_is_pinned_once(tmp_path: Path) -> None:
    folders = Folders(f"{tmp_path}/state", str(tmp_path))
    (tmp_path / "archiver").mkdir()
    for again in range(2):  # Sealed once more, as after a death: nothing is added.
        for recording in (part(0, 3, [7, 7, ABSENT]), part(3, 6, [ABSENT, 8, 8]), part(6, 9, [8, 8, 8])):
            auto_pins.pin(folders, recording)
        at_ns = UTC_NS + 4 * SECOND
        assert pins.read(f"{tmp_path}/archiver") == [Pin(at_ns - AROUND_NS, at_ns + AROUND_NS, "oom kill", BY)], again
    # Another boot counts anew.
    auto_pins.pin(folders, part(0, 3, [9, 9, 9], boot="b" * 32))
    assert len(pins.read(f"{tmp_path}/archiver")) == 1
    # A damaged note costs what it told, no more.
    (tmp_path / "archiver" / auto_pins.FILE).write_text("[1", encoding="utf-8")
    auto_pins.pin(folders, part(9, 12, [9, 9, 9]))
    assert len(pins.read(f"{tmp_path}/archiver")) == 1


def test_a_recording_of_two_incarnations_has_a_seam_as_well() -> None:
    parts = [part(0, 3, [1, 1, 1]), part(5, 8, [2, 2, 2])]
    both = parts[0]._replace(blocks=[block for each in reversed(parts) for block in each.blocks])
    assert [pin.start_ns for pin in auto_pins.pins_of(both)] == [UTC_NS + 5 * SECOND - AROUND_NS]


def test_from_which_pressure_on_is_the_users_choice(tmp_path: Path) -> None:
    folders = Folders(f"{tmp_path}/state", str(tmp_path))
    (tmp_path / "archiver").mkdir()
    for percent, found in ((0, 0), (51, 0), (50, 1)):
        settings = plan.ArchiverSettings(pin_pressure_percent=percent)
        plan.write(plan.Plan((), archiver=settings), f"{tmp_path}/plan.json")
        auto_pins.pin(folders, part(0, 3, [0, 0, 0], stalled=5000))
        assert len(pins.read(f"{tmp_path}/archiver")) == found, percent


def told(*events: BootEvent, offset_ns: int = UTC_NS) -> Recording:
    return Recording(Sensitivity.RESTRICTED, {}, [], {}, {BOOT: [Relation(0, offset_ns, 0)]}, [], events)


def around(second: int, why: str, *, until: int | None = None) -> Pin:
    last = second if until is None else until
    return Pin(UTC_NS + second * SECOND - AROUND_NS, UTC_NS + last * SECOND + AROUND_NS, why, BY)


def event(second: int, kind: str, text: str = "secret", **more: Any) -> BootEvent:
    return BootEvent(BOOT, second * SECOND, kind, "x", text, **more)


def test_what_happened_around_an_incident_is_pinned_and_its_text_is_nobody_elses() -> None:
    late = event(9000, "oom kill", happened_ns=UTC_NS + 5000 * SECOND, known_from="kernel messages")
    recording = told(event(1000, "unit failed"), event(1500, "unit failed"), event(1000, "lid"), late)
    assert auto_pins.pins_of(recording) == [around(1000, "unit failed", until=1500), around(5000, "oom kill")]
    # What a person wrote is for everybody.
    assert auto_pins.pins_of(told(event(1000, "incident", "it hangs"))) == [around(1000, "it hangs")]
    of_links = ArchiverSettings(pin_kinds=("lid",))
    assert auto_pins.pins_of(recording, of_links) == [around(1000, "lid")]
    assert auto_pins.pins_of(recorded(np.arange(2000), np.zeros(2000, np.int64)), of_links) == []


def test_a_clock_that_is_far_off_makes_no_pin_that_nobody_can_read(tmp_path: Path) -> None:
    (tmp_path / "archiver").mkdir()
    folders = Folders(f"{tmp_path}/state", str(tmp_path))
    future = event(10, "throttled", happened_ns=2**62, known_from="a log")
    past = event(10, "pressure", happened_ns=-5, known_from="a log")
    for recording in (told(event(10, "oom kill"), offset_ns=0), told(future, past), told(past, offset_ns=2**61)):
        auto_pins.pin(folders, recording)
    assert pins.read(f"{tmp_path}/archiver") == [
        Pin(0, AROUND_NS - 5, "pressure", BY),
        Pin(0, 310 * SECOND, "oom kill", BY),
        around(10, "throttled"),
    ]


def test_no_pin_is_made_where_none_are_kept(tmp_path: Path) -> None:
    (tmp_path / "archiver").mkdir()
    plan.write(plan.Plan((), archiver=ArchiverSettings(pins_bytes=0)), f"{tmp_path}/plan.json")
    auto_pins.pin(Folders(f"{tmp_path}/state", str(tmp_path)), told(event(1000, "oom kill")))
    assert pins.read(f"{tmp_path}/archiver") == []
