# SPDX-License-Identifier: Apache-2.0
"""What the screen shows is what anybody gets who asks for it by the same name: of a real recorder, every sheet."""

import math
import os
from collections.abc import Iterator

import pytest

from sysmon_tools import moment
from sysmon_tools.curves import CurveWindow
from sysmon_tools.grid import Display
from sysmon_tools.moment import View
from sysmon_tools.screen import look
from sysmon_tools.screen.look import Look
from sysmon_tools.screen.question import ENDED, Questions, SheetRows, span_of
from sysmon_tools.screen.views import VIEWS, Sheet
from sysmon_tools.style import Style
from sysmon_tools.terminal_answer import as_fields
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.history import Archive
from tests.support.whole import Recorder, a_recorder

LENGTH_NS = 10 * SECOND_NS
# So many rows of a sheet are looked at, from the top.
ROWS = 4
# Of these a row is no thing that lasts, so it is no series; what is put together is asked with its groups.
NO_SERIES = {"thread_state", "exits", "event"}


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        made.start()
        made.wait_for("process", "pid > 0")
        made.wait_for("filesystem", "size > 0")
        yield made


@pytest.fixture(scope="module")
def at_ns(recorder: Recorder) -> int:
    """The middle of ten seconds that are over."""
    begin_ns = (clock.relation().realtime_ns // SECOND_NS + 1) * SECOND_NS
    behind_ns = begin_ns + LENGTH_NS
    for table, where in (("process", "pid > 0"), ("cpu", "idle > 0")):
        recorder.wait_for(table, where, start=behind_ns + SECOND_NS, end=behind_ns + 60 * SECOND_NS)
    return begin_ns + LENGTH_NS // 2


def as_series(archive: Archive, path: str, span: tuple[int, int], stat: str) -> str | None:
    """The text of the one value that a series has in a span: its average, as a summary has it, or its last one."""
    start_ns, end_ns = span
    if stat == "mean":
        found = archive.select(path, start=start_ns, end=end_ns, summary=True)
        number = [column.stat for column in found.columns].index(stat)
    else:
        found = archive.select(path, start=start_ns, end=end_ns, step=SECOND_NS, stat=stat)
        number = 0
    texts = map(as_fields(found, Style(), Display(None))[1 + number].cell, range(len(found.times_ns)))
    return ([None] + [text for text in texts if text is not None])[-1]


def check(archive: Archive, asked: Look, sheet: Sheet, rows: SheetRows) -> None:
    """Ask for each cell of the topmost rows of a sheet as a series."""
    span = span_of(asked, sheet)
    shown = [field.name for field in rows.fields]
    made = archive.records(sheet.table, start=span[0], end=span[1], columns=shown)
    names = [name for name in shown if name not in {"pid", "instance"}]
    for row in range(min(ROWS, len(rows.order))):
        cells = rows.cells(row)
        thing = cells["pid" if sheet.table == "process" else "instance"]
        for name in names:
            path, stat = f"{sheet.table}/{name}@{thing}", made.column(name).stat
            # Who has ended is shown as that, and not by how it was seen last.
            if (name, cells[name]) != ("state", ENDED):
                assert as_series(archive, path, span, stat) == cells[name], (path, stat)


@pytest.mark.long
def test_each_cell_of_a_sheet_is_that_of_the_series_so_called(recorder: Recorder, at_ns: int) -> None:
    """Of every sheet whose table this machine has."""
    archive = Archive(recorder.folders)
    compared = set()
    for view in VIEWS:
        for number, sheet in enumerate(view.sheets):
            asked = look.opened(Look(View(at_ns, 0)), view.name)._replace(sheet=number)
            page = Questions(archive).page(asked, clock.relation().realtime_ns)
            if sheet.table not in NO_SERIES and not sheet.group_by and not page.says:
                check(archive, asked, sheet, page.rows)
                compared.add(sheet.name)
    assert {"general", "CPU", "memory", "I/O", "file systems", "interfaces", "own cost"} <= compared


@pytest.mark.parametrize(
    ("label", "path"),
    [
        ("CPU", "cpu/busy@total"),
        ("Memory", "memory/used_percent"),
        ("CPU wait", "pressure/some_percent@cpu"),
        ("Memory wait", "pressure/some_percent@memory"),
        ("Disk wait", "pressure/some_percent@io"),
    ],
)
def test_a_curve_of_the_overview_is_a_series(recorder: Recorder, at_ns: int, label: str, path: str) -> None:
    archive, view = Archive(recorder.folders), View(at_ns, 0)
    scene = moment.look(archive, view, clock.relation().realtime_ns, CurveWindow(archive))
    (curve,) = [curve for curve in scene.curves if curve.label == label]
    shown = {view.start_ns + number * view.step_ns: value for number, value in enumerate(curve.values)}
    start_ns, end_ns = view.span
    found = archive.select(path, start=start_ns, end=end_ns, step=view.step_ns)
    assert len(found.times_ns) == LENGTH_NS // SECOND_NS
    for time_ns, value in zip(found.times_ns.tolist(), found.columns[0].values, strict=True):
        assert shown[time_ns] == pytest.approx(value, nan_ok=True)


def test_the_processes_of_the_overview_have_the_numbers_of_their_series(recorder: Recorder, at_ns: int) -> None:
    archive, view = Archive(recorder.folders), View(at_ns, 0)
    scene = moment.look(archive, view, clock.relation().realtime_ns, CurveWindow(archive))
    assert scene.processes
    for share in scene.processes[:ROWS]:
        for name, value in (("cpu_percent", share.cpu_percent), ("rss", share.resident_bytes)):
            start_ns, end_ns = view.span
            path = f"process/{name}@{share.pid}"
            found = archive.select(path, start=start_ns, end=end_ns, summary=True)
            shown = [math.nan if value is None else value]
            assert found.column(path, "mean").values.tolist() == pytest.approx(shown, nan_ok=True), path


def test_a_summary_of_what_follows_from_another_table_is_its_average(recorder: Recorder, at_ns: int) -> None:
    found = Archive(recorder.folders).select(
        *(f"process/{name}@{os.getpid()}" for name in ("gpu_percent", "cpu_percent")),
        start=at_ns,
        end=at_ns + SECOND_NS,
        summary=True,
    )
    of_path = {column.path.partition("@")[0]: column.stat for column in reversed(found.columns)}
    assert of_path == {"process/gpu_percent": "mean", "process/cpu_percent": "mean"}
    assert {column.stat for column in found.columns if "cpu" in column.path} == {"mean", "min", "max", "p95"}
