# SPDX-License-Identifier: Apache-2.0
"""What surrounds a moment, in memory, answers as the files do that it is from, and files are read no more meanwhile."""

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.base.result import Int64Array, Result
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.store.files.sparse_file import FileStretch
from sysmond.store.holdings import staying_open
from sysmond.store.stretches import cut
from sysmond.store.stretches.cut import CutRows
from sysmond.store.stretches.stretch import ALL, MemoryStretch, Stretch, is_of_buckets
from tests.golden import asking
from tests.golden.asking import Asked
from tests.support.order import first

MINUTE_NS = 60 * SECOND_NS
LASTING = {"process", "process_private", "thread"}
# Before now, in minutes: in files, beside their edges, over restarts.
MOMENTS = {"busy": (140.2, 130.5), "troubled": (898, 180)}
# All of a file, and little of it.
ROWS = (cut.AROUND_ROWS, 1000)
# (from the moment on, how long, step): as a screen asks, and as people do.
WINDOWS = ((0.0, 60.0, None), (10.0, 60.0, "10s"), (-20.0, 180.0, "1min"))


@pytest.fixture(params=first(1, reversed(MOMENTS)))
def asked(request: pytest.FixtureRequest, frozen_archive: Callable[[str], Asked]) -> tuple[str, Asked]:
    return request.param, frozen_archive(request.param)


def answers(archive: Archive, start_ns: int, table: str, columns: str = "") -> Iterator[Result | str]:
    """What it says about windows after a moment, one after the other."""
    for later_s, length_s, step in WINDOWS:
        begin_ns = start_ns + int(later_s * SECOND_NS)
        end_ns = begin_ns + int(length_s * SECOND_NS)
        try:
            yield archive.records(table, start=begin_ns, end=end_ns, step=step, columns=columns or ())
        except Error as refusal:
            yield str(refusal)


def said(answer: Result | str) -> object:
    """All of it, to be compared."""
    if isinstance(answer, str):
        return answer
    columns = [
        (column.path, column.values.round(9).tobytes() if column.texts is None else list(column.texts))
        for column in answer.columns
    ]
    return answer.times_ns.tobytes(), columns, answer.gaps, answer.warnings, answer.events


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[CutRows]:
    """What is cut out from now on."""
    cuts: list[CutRows] = []

    class NotedRows(CutRows):
        def __init__(self, stretch: Stretch, begin: int, end: int) -> None:
            super().__init__(stretch, begin, end)
            cuts.append(self)

    monkeypatch.setattr(cut, "CutRows", NotedRows)
    return cuts


def test_it_answers_as_the_files_do(
    asked: tuple[str, Asked], cuts: list[CutRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, made = asked
    with asking.at(made.now):
        archive = Archive(made.folders)
        tables = {entry.path for entry in archive.long_tables()}
        for table, minutes in product(sorted(tables & LASTING), MOMENTS[name]):
            start_ns = made.now.relation.realtime_ns - int(minutes * MINUTE_NS)
            alone = [said(answer) for answer in answers(archive, start_ns, table)]
            for rows in ROWS:
                monkeypatch.setattr(cut, "AROUND_ROWS", rows)
                with staying_open():
                    assert [said(answer) for answer in answers(archive, start_ns, table)] == alone, (minutes, table)
    assert cuts


def test_rows_of_files_are_read_once(asked: tuple[str, Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    name, made = asked
    reads: list[FileStretch] = []
    column = FileStretch.column

    def noted(self: FileStretch, name: str, keys: slice = ALL) -> Int64Array:
        reads.append(self)
        return column(self, name, keys)

    monkeypatch.setattr(FileStretch, "column", noted)
    with asking.at(made.now), staying_open():
        archive = Archive(made.folders)
        start_ns = made.now.relation.realtime_ns - int(MOMENTS[name][0] * MINUTE_NS)
        windows = answers(archive, start_ns, "process", "pid,comm,cpu,rss:last,written_bytes,state")
        assert not isinstance(next(windows), str)
        assert reads
        reads.clear()
        assert not isinstance(next(windows), str)
        assert not [
            stretch for stretch in reads if stretch.table.name == "process" and not is_of_buckets(stretch.table)
        ]


def test_little_stays_in_memory(asked: tuple[str, Asked], cuts: list[CutRows], monkeypatch: pytest.MonkeyPatch) -> None:
    name, made = asked
    monkeypatch.setattr(cut, "RECENT_MAX", 1)
    monkeypatch.setattr(cut, "_recent", [])
    with asking.at(made.now), staying_open():
        archive = Archive(made.folders)
        for minutes in MOMENTS[name]:
            start_ns = made.now.relation.realtime_ns - int(minutes * MINUTE_NS)
            archive.records("process", start=start_ns, end=start_ns + MINUTE_NS)
    of_files = [rows for rows in cuts if not isinstance(rows.stretch, MemoryStretch)]
    assert len(of_files) > 1
    assert [rows for rows in of_files if rows.columns] == of_files[-1:]
