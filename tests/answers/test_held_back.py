# SPDX-License-Identifier: Apache-2.0
"""What was read less often because somebody wanted so is a gap with that cause, up to where it is read as planned."""

from pathlib import Path

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause
from sysmond.base.result import Result
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create_classes
from sysmond.store.of_ring import Hole
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import BOOT, BOOTED_NS, put, stretch
from tests.support.machine import NOON_NS, Machine

WHY = "read every 30 s for an applet: on battery"


def gaps(result: Result, zero_ns: int) -> list[tuple[float, float, str, str]]:
    return [
        ((gap.start_ns - zero_ns) / SECOND_NS, (gap.end_ns - zero_ns) / SECOND_NS, str(gap.cause), gap.detail)
        for gap in result.gaps
    ]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("raw", [False, True])
def test_a_table_that_was_held_back_is_one_gap(tmp_path: Path, sealed: bool, raw: bool) -> None:
    machine = Machine(tmp_path)
    machine.start(0.5).tick(range(1, 40))
    slow = machine.start(39.5, interval_ns=30 * SECOND_NS)
    for second in (40, 60, 90):
        slow.ring.absence(0, second * SECOND_NS, Cause.HOLD_BACK, WHY)
        slow.tick([second])
    machine.start(99.5).tick(range(100, 130))
    if sealed:
        machine.seal()
        machine.flush()
    start_ns, end_ns = NOON_NS + SECOND_NS, NOON_NS + 130 * SECOND_NS
    result = machine.archive.select("disk/read_bytes", start=start_ns, end=end_ns, raw=raw)
    assert gaps(result, NOON_NS) == [(40, 100, "held back", WHY)]
    assert len([at_ns for at_ns in result.times_ns.tolist() if 40 <= (at_ns - NOON_NS) / SECOND_NS < 100]) >= 2


def test_processes_that_were_held_back_are_one_gap(tmp_path: Path) -> None:
    folders = Folders(f"{tmp_path}/state", f"{tmp_path}/run")
    create_classes(f"{folders.state}")
    for number, (ticks, interval_s) in enumerate([(range(1, 40), 1), ((40, 60, 90), 30), (range(100, 130), 1)], 1):
        made = stretch(PROCESS, ticks, [], interval_s=interval_s)
        hole = Hole(BOOT, "process", 40 * SECOND_NS, 120 * SECOND_NS, Cause.HOLD_BACK, WHY)
        holes = (hole,) if interval_s == 30 else ()
        put(folders, made.with_about(made.about._replace(holes=holes)), number)
    result = Archive(folders).records("process", start=BOOTED_NS + SECOND_NS, end=BOOTED_NS + 130 * SECOND_NS)
    assert gaps(result, BOOTED_NS) == [(40, 100, "held back", WHY)]
