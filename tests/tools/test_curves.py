# SPDX-License-Identifier: Apache-2.0
"""Curves stay right wherever their window is moved, and who moves it a little asks nothing."""

import random

import numpy as np
import pytest

from sysmon_tools.curves import BUCKETS, Curve, CurveWindow, spike
from sysmond.base.clock import SECOND_NS
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from tests.support.stall import STALL_NS, stuck

NOW_NS = STALL_NS + 600 * SECOND_NS
STEPS_NS = (SECOND_NS, 10 * SECOND_NS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return stuck(tmp_path_factory.mktemp("stall"), "a disk error")


def said(curves: list[Curve]) -> dict[str, list[str]]:
    """What they say; NaN is NaN."""
    return {curve.label: [str(value) for value in curve.values.round(6).tolist()] for curve in curves}


def test_a_window_that_was_moved_has_what_a_new_one_has(folders: Folders) -> None:
    chance = random.Random(5)
    archive = Archive(folders)
    window = CurveWindow(archive)
    now_ns = NOW_NS
    for number in range(8):
        step_ns = STEPS_NS[number // 4]
        start_ns = STALL_NS // step_ns * step_ns + chance.randrange(-90, 30) * step_ns
        now_ns += chance.randrange(3) * SECOND_NS
        assert said(window.at(start_ns, step_ns, now_ns)) == said(CurveWindow(archive).at(start_ns, step_ns, now_ns))


def test_who_goes_a_little_further_asks_nothing(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    select = Archive.select

    def noted(self: Archive, *patterns: str, **others: object) -> object:
        asked.append(patterns)
        return select(self, *patterns, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(Archive, "select", noted)
    window, step_ns = CurveWindow(Archive(folders)), 10 * SECOND_NS
    start_ns = STALL_NS // step_ns * step_ns - BUCKETS // 2 * step_ns
    window.at(start_ns, step_ns, NOW_NS)
    assert asked
    for first, way in ((0, -1), (-16, -1), (0, 1)):
        window.at(start_ns + first * step_ns, step_ns, NOW_NS)
        asked.clear()
        for number in range(1, 6):
            window.at(start_ns + (first + way * number) * step_ns, step_ns, NOW_NS)
        assert not asked


@pytest.mark.long
def test_curves_that_are_not_shown_may_be_ten_seconds_late(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live view shows two curves of nine; who looks for a spike in the others finds one of ten seconds ago."""
    select = Archive.select
    asked: list[tuple[str, ...]] = []

    def noted(self: Archive, *patterns: str, **others: object) -> object:
        asked.append(patterns)
        return select(self, *patterns, **others)  # type: ignore[arg-type]

    archive = Archive(folders)
    window, shown = CurveWindow(archive), ("CPU", "Disk wait")
    begin_ns = STALL_NS // SECOND_NS * SECOND_NS - BUCKETS * SECOND_NS
    for second in range(12):
        start_ns, now_ns = (at_ns + second * SECOND_NS for at_ns in (begin_ns, STALL_NS))
        whole = said(CurveWindow(archive).at(start_ns, SECOND_NS, now_ns))
        monkeypatch.setattr(Archive, "select", noted)
        asked.clear()
        seen = said(window.at(start_ns, SECOND_NS, now_ns, shown))
        monkeypatch.undo()
        assert {label: seen[label] for label in shown} == {label: whole[label] for label in shown}
        assert (asked == [("cpu/busy@total", "pressure/some_percent@io")]) is bool(second % 10)
        assert {label: values[:-17] for label, values in seen.items()} == {
            label: values[:-17] for label, values in whole.items()
        }
        assert seen == whole or second % 10


def test_what_nobody_would_notice_is_no_spike() -> None:
    values = np.zeros(BUCKETS)
    values[20], values[40] = 9.0, 1e6
    found = spike([Curve("Network", "B/s", values)], lambda _: True, 20)
    assert found is not None
    assert found.number == 40


def test_only_tables_that_rings_have_are_asked_for(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    select = Archive.select
    asked: list[str] = []

    def noted(self: Archive, *patterns: str, **others: object) -> object:
        asked.extend(patterns)
        return select(self, *patterns, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(Archive, "select", noted)
    monkeypatch.setattr(Archive, "recent_tables", lambda *_: frozenset({"cpu", "disk"}))
    assert CurveWindow(Archive(folders)).at(STALL_NS - 300 * SECOND_NS, 10 * SECOND_NS, NOW_NS)
    assert {pattern.partition("/")[0] for pattern in asked} == {"cpu", "disk"}


def test_that_a_machine_has_no_sensors_is_no_warning(folders: Folders) -> None:
    window = CurveWindow(Archive(folders))
    assert window.at(STALL_NS - 300 * SECOND_NS, 10 * SECOND_NS, NOW_NS)
    assert window.warnings == []
