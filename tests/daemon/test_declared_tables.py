# SPDX-License-Identifier: Apache-2.0
"""A stranger's long tables: what they declare holds live, in files and tiers, and in a copy where the plugin is not."""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sysmond.archiver.coding import SPARSE
from sysmond.archiver.rollup_job import roll_up
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, Sensitivity
from sysmond.base.result import Result
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.machine.note import put
from sysmond.rollup.top import FIRST
from sysmond.store import archive
from sysmond.store.files import sparse_file
from tests.daemon.test_daemon import Place
from tests.support.waiting import HANG_S, wait_until

JOBS, READINGS = 30, 4
# The job that ends: what readings see of it, and what it has come to.
DONE, SEEN, PAGES = 4, 1, 10
TITLES = {job: "Report" if job % 2 else "Letter" for job in range(1, JOBS + 1)}
QUEUES = {0: "cellar", 1: "roof", 2: "yard"}

PLUGIN = '''
"""A print server, made up: each job prints as many pages a second as its number says, and one of them ends."""
from struct import pack
from time import CLOCK_BOOTTIME, clock_gettime_ns

from sysmond.probe import Answers, Ending, Join, Packing, Probe, Records, Table, Total, counter, gauge, hookimpl, state
from sysmond.probe import text

SINCE_NS, DONE, SEEN, PAGES, TRIGGER, TITLES, QUEUES = {constants}
KEY = state("job", "Its number."), state("start", "When it came.")
QUEUE = Join("print_queue", (("queue", "number"),), (("queue_name", "name"),))

JOB = Table(
    "print_job",
    (*KEY, state("queue", "Number of its queue."), text("title", "What is printed."),
     counter("pages", "1", "Pages printed."), gauge("black", "B", "Memory, black."), gauge("colour", "B", "The same.")),
    "job", "Jobs of a print server.", Packing("<q q q 16s q q q", ("job", "start")),
    Answers(
        top=(("pages",),), others_by=("queue",),
        show=("title", "job", "pages:sum", "memory:last", "queue_name", "status"),
        show_groups=("pages:sum",), totals=(Total("memory", ("black", "colour"), "All memory."),), joins=(QUEUE,),
        ended_by=Ending("print_done", (("job", "number"), ("start", "start")), ("status",)),
        meant=(("queue", "queue_name"),), aliases=(("Sheets", "pages"),),
    ),
)
FINISHED = Table(
    "print_done",
    (state("number", "Of the job."), KEY[1], state("end", "When it was done."), state("status", "0 if well."),
     JOB.metrics[2], state("pages", "Pages that were printed.")),
    "job", "Jobs that are done.", Packing("<q q q q q q", ("number", "start"), lasting=False),
    Answers(top=(("pages",),), others_by=("status",), sums=("pages",), show=("number", "pages")),
)
NAMES = Table(
    "print_queue", (state("number", "Its number."), text("name", "Its name.")), "queue", "Queues of a print server.",
    Packing("<q 16s", ("number",)), Answers(),
)
CAME_NS = SINCE_NS - 60 * 10**9
told = []

def pages(job):
    return SEEN if job == DONE else (clock_gettime_ns(CLOCK_BOOTTIME) - SINCE_NS) // 10**9 * job

def done_ns():
    """When the one job ended: as the file says, once it is there."""
    try:
        with open(TRIGGER) as file:
            return int(file.read())
    except FileNotFoundError:
        return None

def jobs(host, *, full):
    is_done = done_ns() is not None
    rows = [pack("<qqq16sqqq", job, CAME_NS, job % 3, TITLES[job].encode(), pages(job), 1000 * job, job)
            for job in TITLES if job != DONE or not is_done]
    return Records(b"".join(rows), True, 0, len(rows))

def finished(host, *, full):
    if told or (end_ns := done_ns()) is None:
        return Records(b"", True, 0, 0)
    told.append(DONE)
    return Records(pack("<6q", DONE, CAME_NS, end_ns, 7, DONE % 3, PAGES), True, 0, 1)

def names(host, *, full):
    return Records(b"".join(pack("<q16s", number, name.encode()) for number, name in QUEUES.items()), True, 0, 3)

@hookimpl
def sysmond_api_version():
    return 2

@hookimpl
def sysmond_probes():
    return [Probe(JOB, records=jobs), Probe(FINISHED, records=finished), Probe(NAMES, records=names)]
'''


@pytest.fixture
def place(runtime: Path, tmp_path: Path) -> Iterator[Place]:
    made = Place(runtime, tmp_path)
    probes = tmp_path / "config/sysmond/probes"
    probes.mkdir(parents=True)
    constants = (clock.boottime_ns(), DONE, SEEN, PAGES, str(tmp_path / "done"), TITLES, QUEUES)
    (probes / "printing.py").write_text(PLUGIN.format(constants=constants))
    try:
        yield made
    finally:
        made.end()


def ask(folders: Folders, table: str = "print_job", **asked: Any) -> Result:
    return Archive(folders).records(table, **{"start": "-1h", **asked})


def readings(folders: Folders) -> int:
    try:
        return len(ask(folders, step="1s", columns="pages:sum", group_by="queue").times_ns) // len(QUEUES)
    except Error:
        return 0


def is_recorded(folders: Folders, table: str) -> bool:
    try:
        return len(ask(folders, table).times_ns) > 0
    except Error:
        return False


def said(found: Result) -> list[dict[str, Any]]:
    names = found.records.dtype.names or ()
    return [dict(zip(names, row, strict=True)) for row in found.records.tolist()]


def everything(folders: Folders, span: Mapping[str, str]) -> list[Any]:
    """What there is to ask that no reader knows by the names of tables and columns."""
    questions = [
        ask(folders, **span, top=5),
        ask(folders, **span, group_by="queue"),
        ask(folders, **span, group_by="title", by="memory"),
        ask(folders, **span, where="queue = roof and memory:last > 20kB", columns="job,memory:max,end"),
        ask(folders, "print_done", **span),
        ask(folders, "print_done", **span, group_by="status", columns="pages"),
    ]
    return [(repr(said(found)), [str(event) for event in found.events]) for found in questions]


def check_rows(folders: Folders) -> None:
    """Simple answers follow from what the table declares, and from what the jobs did."""
    first = said(ask(folders, top=5))
    assert list(first[0]) == ["time", "title", "job", "pages:sum", "memory:last", "queue_name", "status"]
    assert [row["job"] for row in first] == [30, 29, 28, 27, 26]
    assert [row["memory:last"] for row in first[:2]] == [30_030, 29_029]
    assert {row["queue_name"] for row in first[:3]} == {"cellar", "roof", "yard"}
    (done,) = said(ask(folders, where=f"job = {DONE}", columns="end,status,pages:last"))
    assert (done["status"], done["pages:last"]) == (7, PAGES)
    assert done["end"] is not None
    groups = said(ask(folders, group_by="queue"))
    assert [list(row) for row in groups] == [["time", "queue", "count", "pages:sum"]] * len(QUEUES)
    assert {row["queue"]: row["count"] for row in groups} == dict.fromkeys(QUEUES.values(), JOBS // len(QUEUES))
    (status,) = said(ask(folders, "print_done", group_by="status", columns="pages"))
    assert (status["status"], status["pages"]) == (7, PAGES)
    with pytest.raises(Error, match=r"has no column 'sheets'; did you mean pages\?"):
        ask(folders, columns="sheets")


def test_a_stranger_s_tables_are_answered_as_they_declare(place: Place, tmp_path: Path) -> None:
    place.start()
    wait_until(lambda: readings(place.folders) >= READINGS, place.said)
    put(str(tmp_path / "done"), str(clock.boottime_ns()).encode())
    wait_until(lambda: readings(place.folders) >= 2 * READINGS and is_recorded(place.folders, "print_done"), place.said)
    check_rows(place.folders)  # Of rings, and the catalogue beside them.
    place.processes[-1].terminate()
    assert place.processes[-1].wait(HANG_S) == 0
    assert place.rings() == []
    check_rows(place.folders)

    elsewhere = Folders(str(tmp_path / "copy"), str(tmp_path / "nothing"))
    shutil.copytree(place.folders.state, elsewhere.state)
    # What came before the range has printed before, too; what comes after it would be in buckets of tiers all the same.
    since_s = int((tmp_path / "config/sysmond/probes/printing.py").stat().st_mtime)
    span = {"start": str(since_s), "end": str(clock.relation().realtime_ns // SECOND_NS + 1)}
    assert everything(elsewhere, span) == everything(place.folders, span)

    # Older than rows are kept: the first of each bucket, and all others a queue.
    totals = Counter({row["queue"]: row["pages:sum"] for row in said(ask(elsewhere, **span, group_by="queue"))})
    roll_up(elsewhere, SPARSE, lambda *_: None, set())
    for table in ("print_job", "print_done"):
        folder = archive.disk_folder(elsewhere, Sensitivity.RESTRICTED, FINEST_TIER, table)
        with sparse_file.open_file(f"{folder}/{archive.files(folder)[0]}") as opened:
            assert opened.table.answers is not None
        shutil.rmtree(folder)
    alone = said(ask(elsewhere, **span, where="job > 0"))
    assert {row["job"] for row in alone} >= set(range(JOBS, JOBS - FIRST, -1))
    assert {row["job"] for row in alone}.isdisjoint(range(1, 4))
    assert Counter({row["queue"]: row["pages:sum"] for row in said(ask(elsewhere, **span, group_by="queue"))}) == totals
    events = ask(elsewhere, **span).events
    assert [event.text for event in events if event.kind == "tier"] == [
        "up to here, only the largest users have rows of their own, the others by queue are added up"
    ]
    assert said(ask(elsewhere, "print_done", **span, columns="number,pages")) == [
        row | {"number": DONE, "pages": PAGES} for row in said(ask(elsewhere, "print_done", **span))
    ]
