# SPDX-License-Identifier: Apache-2.0
"""Which files of long tables are opened for a range, and how clocks that were set are followed."""

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond.answers.records import Answering, answer
from sysmond.answers.rows import from_records as query
from sysmond.answers.rows import grouping
from sysmond.answers.rows.from_records import LastingBatch
from sysmond.answers.rows.question import Request
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Semantics, Sensitivity
from sysmond.base.result import Result
from sysmond.errors import NotPermittedError, UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.store import archive, holdings
from sysmond.store.census import Census
from sysmond.store.files import sparse_file
from sysmond.store.of_ring import Hole
from sysmond.store.stretches.stretch import Incarnation, MemoryStretch, Readings
from sysmond.tasks.tables import COMMAND, PROCESS
from tests.support.longarchive import BOOT, BOOTED_NS, Row, put, relation, ring, stretch
from tests.support.order import first

FILES = 64


def process(pid: int, **values: int | str | None) -> Row:
    return {"pid": pid, "start": SECOND_NS, "state": "S", **values}


def ask(folders: Folders, start_s: float, end_s: float, booted_ns: int = BOOTED_NS, **said: Any) -> Result:
    start, end = (booted_ns + round(second * SECOND_NS) for second in (start_s, end_s))
    return answer(folders, tuple(Sensitivity), Request("process", start=start, end=end, **said))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened, in order."""
    found: list[str] = []
    open_file = sparse_file.open_file

    def noting(path: str) -> sparse_file.FileStretch:
        found.append(path)
        return open_file(path)

    monkeypatch.setattr(sparse_file, "open_file", noting)
    return found


def test_of_many_files_few_are_opened(folders: Folders, opened: list[str]) -> None:
    put_tens(folders, FILES)
    found = ask(folders, 405, 415, columns="cpu:sum")
    assert found.records["cpu:sum"].tolist() == [10]
    # Those of the range, the one before, both ends, and what halving needs: twice the logarithm.
    assert len(opened) <= 2 + 1 + 2 + 2 * 7


def put_tens(folders: Folders, count: int) -> list[str]:
    """Files of ten seconds each, from second 100 on, in which a process used a second of CPU time every second."""
    return [
        put(
            folders,
            stretch(
                PROCESS,
                range(begin, begin + 10),
                [(second, process(5, cpu=(begin + second) * 1_000_000)) for second in range(10)],
            ),
            number,
        )
        for number, begin in enumerate(range(100, 100 + 10 * count, 10), 1)
    ]


def test_many_files_need_few_descriptors(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    put_tens(folders, 50)
    monkeypatch.setattr(holdings, "OPEN_MAX", 8)
    open_now = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, limits[1]))
    try:
        found = ask(folders, 100, 600, columns="cpu:sum")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found.warnings == ()
    assert found.records["cpu:sum"].tolist() == [499]


def test_where_a_merged_file_is_damaged_its_sources_still_answer(folders: Folders) -> None:
    paths = put_tens(folders, 8)
    merged = Path(paths[0]).with_name(archive.Name(BOOT, 2, 7).file)
    merged.write_bytes(Path(paths[1]).read_bytes()[:3000])
    found = ask(folders, 100, 180, columns="cpu:sum")
    assert found.records["cpu:sum"].tolist() == [79]
    (warning,) = found.warnings
    assert str(merged) in warning


@contextmanager
def as_nobody(folders: Folders) -> Iterator[None]:
    """Be another user, who may enter all of these folders."""
    if os.geteuid():
        pytest.skip("becomes another user, which only root may")
    for folder, _, _ in os.walk(os.path.dirname(folders.state)):
        os.chmod(folder, 0o755)  # noqa: S103  the test is about who may read
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_public_file_that_may_not_be_read_is_named(folders: Folders) -> None:
    paths = put_tens(folders, 3)
    os.chmod(paths[1], 0)
    with as_nobody(folders):
        found = ask(folders, 100, 130, columns="cpu:sum")
    assert len(found.records) == 1
    assert [paths[1] in warning for warning in found.warnings] == [True]


def test_what_may_not_be_read_is_refused_each_time_it_is_asked_for(folders: Folders) -> None:
    (path,) = put_tens(folders, 1)
    os.chmod(path, 0)
    census = Census(folders, tuple(Sensitivity))
    with as_nobody(folders):
        for _ in range(2):
            with pytest.raises(NotPermittedError, match=path):
                Answering(census, Request("process"))


def test_boots_long_before_a_range_are_not_looked_at(folders: Folders, opened: list[str]) -> None:
    for number in range(20):
        booted_ns = BOOTED_NS + number * 7 * 86_400 * SECOND_NS
        made = stretch(
            PROCESS, range(100, 110), [(0, process(5))], boot=f"{number:032x}", relations=[relation(0, booted_ns)]
        )
        path = put(folders, made, 1)
        os.utime(path, ns=(booted_ns + 200 * SECOND_NS,) * 2)
    found = ask(folders, 100, 200, BOOTED_NS + 19 * 7 * 86_400 * SECOND_NS)
    assert len(found.records) == 1
    # Both, a few by which their times of writing are judged, and what halving needs.
    assert len(set(opened)) <= 7
    early = ask(folders, 100, 130)
    assert [gap.cause for gap in early.gaps] == [Cause.OFF]
    assert len(early.records) == 1


@pytest.mark.parametrize("restored_at_ns", first(1, [0, BOOTED_NS - 10**18, BOOTED_NS + 10**18]))
def test_an_archive_that_was_restored_with_other_times_lacks_nothing(folders: Folders, restored_at_ns: int) -> None:
    booted_ns = [BOOTED_NS + number * 7 * 86_400 * SECOND_NS for number in range(12)]
    for number, of_boot_ns in enumerate(booted_ns):
        boot, relations = f"{number:032x}", [relation(0, of_boot_ns)]
        path = put(folders, stretch(PROCESS, range(100, 110), [(0, process(5))], boot=boot, relations=relations), 1)
        # As a copy has it, in the order of their names backwards.
        os.utime(path, ns=(max(0, restored_at_ns - number * SECOND_NS),) * 2)
    for of_boot_ns in booted_ns:
        assert len(ask(folders, 100, 200, of_boot_ns).records) == 1


def test_a_boot_whose_clock_was_corrected_late_is_found_where_its_rows_are(folders: Folders) -> None:
    boots = [f"{number:032x}" for number in range(8)]
    for number, boot in enumerate(boots):
        booted_ns = BOOTED_NS + number * 7 * 86_400 * SECOND_NS
        early, late = relation(0, 0), relation(200 * SECOND_NS, booted_ns)
        for sequence, (begin, known) in enumerate(((100, [early]), (300, [early, late])), 1):
            made = stretch(PROCESS, range(begin, begin + 10), [(0, process(5))], boot=boot, relations=known)
            # Its last file was written, and is as old as the clock said then, which in every second boot was 1970.
            os.utime(put(folders, made, sequence), ns=((booted_ns if number % 2 else 0) + 400 * SECOND_NS,) * 2)
        assert len(ask(folders, 300, 310, booted_ns).records) == 1
    for number in range(len(boots)):
        booted_ns = BOOTED_NS + number * 7 * 86_400 * SECOND_NS
        assert len(ask(folders, 300, 310, booted_ns).records) == 1


@pytest.mark.parametrize("gone", first(1, [30, 10, 53]))
def test_a_missing_file_in_the_middle_hides_no_other(folders: Folders, gone: int) -> None:
    os.unlink(put_tens(folders, FILES)[gone])
    for number in {*range(0, FILES, 6), *range(gone - 1, gone + 2)}:
        found = ask(folders, 100 + 10 * number, 110 + 10 * number, columns="cpu:sum")
        assert len(found.records) == (number != gone)


def test_a_clock_that_was_set_is_followed(folders: Folders) -> None:
    # At 150 s of boot time the clock is set an hour back: files are not in order of the wall clock any more.
    before, after = relation(0), relation(150 * SECOND_NS, BOOTED_NS - 3600 * SECOND_NS)
    for number, begin in enumerate(range(100, 200, 10)):
        rows = [(second, process(5, cpu=(begin + second) * 1_000_000)) for second in range(10)]
        relations = [before] if begin < 150 else [after]
        put(folders, stretch(PROCESS, range(begin, begin + 10), rows, relations=relations), number + 1)
    found = ask(folders, 160, 180, BOOTED_NS - 3600 * SECOND_NS, columns="cpu:sum")
    assert found.records["cpu:sum"].tolist() == [20]
    earlier = ask(folders, 120, 130, columns="cpu:sum")
    assert earlier.records["cpu:sum"].tolist() == [10]


def test_a_machine_that_slept_says_so(folders: Folders) -> None:
    slept = relation(0)._replace(
        boottime_ns=200 * SECOND_NS, realtime_ns=BOOTED_NS + 200 * SECOND_NS, monotonic_ns=110 * SECOND_NS
    )
    put(
        folders,
        stretch(PROCESS, [*range(100, 110), *range(200, 210)], [(0, process(5))], relations=[relation(0), slept]),
        1,
    )
    found = ask(folders, 100, 210)
    assert [(gap.cause, (gap.end_ns - gap.start_ns) // SECOND_NS) for gap in found.gaps] == [(Cause.SUSPENDED, 90)]


def news(folders: Folders, number: int, *, closed: bool, holes: Sequence[Hole]) -> None:
    """A file without a reading: what is told of a writer that ended."""
    about = stretch(PROCESS, [100], []).about._replace(lives=[Incarnation(0, 100 * SECOND_NS, closed)], holes=holes)
    none = np.zeros(0, np.int64)
    readings = Readings(none, none.astype(np.bool_), none, none)
    put(folders, MemoryStretch(about, readings, none, lambda _: none), number)


@pytest.mark.parametrize("closed", [True, False])
def test_how_a_writer_ended_is_told_by_a_file_without_a_reading(folders: Folders, *, closed: bool) -> None:
    for number in range(4):
        begin = 100 + 10 * number
        put(folders, stretch(PROCESS, range(begin, begin + 10), [(0, process(5))]), number + 1)
    failed = Hole(BOOT, "process", 140 * SECOND_NS, 143 * SECOND_NS, Cause.PROBE_FAILED, "no")
    news(folders, 5, closed=closed, holes=[failed])
    ended = Cause.CLEAN_SHUTDOWN if closed else Cause.DAEMON_DOWN
    told = [(gap.cause, gap.start_ns - BOOTED_NS) for gap in ask(folders, 100, 200).gaps]
    assert told == [(Cause.PROBE_FAILED, 140 * SECOND_NS), (ended, 143 * SECOND_NS)]
    assert [gap.cause for gap in ask(folders, 150, 200).gaps] == [ended], "also where that is before the range"
    # Another life, later: the gap between the two.
    later = stretch(PROCESS, range(160, 170), [(0, process(5))])
    put(
        folders,
        later.with_about(later.about._replace(lives=[Incarnation(155 * SECOND_NS, 160 * SECOND_NS, closed=False)])),
        6,
    )
    between = [gap for gap in ask(folders, 145, 168).gaps if gap.end_ns == BOOTED_NS + 160 * SECOND_NS]
    assert [gap.cause for gap in between] == [ended]


@pytest.mark.parametrize("other", [{"scale": 3}, {"unit": "kB"}, {"semantics": Semantics.GAUGE}], ids=str)
def test_what_declares_a_column_as_another_quantity_is_left_out_and_named(
    folders: Folders, other: dict[str, Any]
) -> None:
    metrics = tuple(each._replace(**other) if each.name == "cpu" else each for each in PROCESS.metrics)
    paths = [
        put(folders, stretch(table, range(begin, begin + 10), [(at, process(pid, cpu=at)) for at in range(10)]), pid)
        for pid, table, begin in ((1, PROCESS, 100), (2, PROCESS, 110), (3, PROCESS._replace(metrics=metrics), 300))
    ]
    found = ask(folders, 100, 310, columns=("pid", "cpu"))
    assert found.records["pid"].tolist() == [3]
    for path in paths[:2]:
        (said,) = (warning for warning in found.warnings if warning.startswith(f"{path}: process/cpu: "))
        assert f"as {paths[2]} says; it is left out" in said
    assert Cause.DAMAGED_FILE in {gap.cause for gap in found.gaps}
    assert ask(folders, 100, 115).records["pid"].tolist() == [1, 2], "where nothing says otherwise they answer"


def test_an_answer_that_is_too_large_is_refused_before_all_of_it_is_made(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(0, process(pid, cpu=1)) for pid in range(1, 11)]
    put(folders, stretch(PROCESS, range(100, 200), rows), 1)
    made: list[int] = []

    make = LastingBatch.__init__

    def noting(self: LastingBatch, *of: Any) -> None:
        made.append(1)
        make(self, *of)

    monkeypatch.setattr(LastingBatch, "__init__", noting)
    monkeypatch.setattr(query, "CELLS_MAX", 100)
    assert len(ask(folders, 100, 200, step=SECOND_NS, columns=("pid", "cpu")).times_ns) == 10 * 100
    assert len(made) >= 10
    made.clear()
    monkeypatch.setattr(grouping, "VALUES_MAX", 200)
    with pytest.raises(UsageError, match="more than 200 values"):
        ask(folders, 100, 200, step=SECOND_NS, columns=("pid", "cpu"))
    assert len(made) <= 5


def test_the_list_has_every_long_table_from_its_first_reading_to_its_last(folders: Folders) -> None:
    for number in range(4):
        begin = 100 + 10 * number
        put(folders, stretch(PROCESS, range(begin, begin + 10), [(0, process(5))]), number + 1)
    ring(folders, PROCESS, [(second, second == 140, [process(5)]) for second in range(140, 150)])
    put(folders, stretch(COMMAND, [120, 130], [(0, process(5))], sensitivity=Sensitivity.RESTRICTED), 1, ram=True)
    os.makedirs(f"{folders.runtime}/sampler/public/thread")  # Of which there is nothing.
    found = Archive(folders).long_tables()
    assert [(each.path, each.per, each.sensitivity) for each in found] == [
        ("command", COMMAND.per, Sensitivity.RESTRICTED),
        ("process", "process", Sensitivity.PUBLIC),
    ]
    spans = [((each.start_ns - BOOTED_NS) // SECOND_NS, (each.end_ns - BOOTED_NS) // SECOND_NS) for each in found]
    assert spans == [(120, 130), (100, 149)]
    assert [each.path for each in Archive(folders, classes=[Sensitivity.PUBLIC]).long_tables()] == ["process"]


def test_the_list_opens_no_file_of_a_table_that_is_not_meant(folders: Folders, opened: list[str]) -> None:
    put(folders, stretch(PROCESS, range(100, 110), [(0, process(5))]), 1)
    put(folders, stretch(COMMAND, [120, 130], [(0, process(5))], sensitivity=Sensitivity.RESTRICTED), 1)
    for patterns, expected in ((("proc*",), ["process"]), (("command", "disk"), ["command"]), (("disk/*",), [])):
        opened.clear()
        assert [each.path for each in Archive(folders).long_tables(*patterns)] == expected
        assert {Path(path).parent.parent.name for path in opened} == set(expected)


def test_the_list_opens_few_files(folders: Folders, opened: list[str]) -> None:
    for number in range(FILES):
        begin = 100 + 10 * number
        put(folders, stretch(PROCESS, range(begin, begin + 10), [(0, process(5))]), number + 1)
    [found] = Archive(folders).long_tables()
    assert (found.end_ns - found.start_ns) // SECOND_NS == 10 * FILES - 1
    assert len(opened) == 2
