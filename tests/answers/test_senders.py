# SPDX-License-Identifier: Apache-2.0
"""Who sent the signal that ended a process, beside files of before that was recorded, and by its program."""

from pathlib import Path
from types import MappingProxyType

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Packing, Sensitivity, Table
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.tasks.tables import COMMAND, EXITS
from tests.support.longarchive import Row, put, stretch

SENDER = ("sender_start", "sender_pid", "sender_comm")


def of_before() -> Table:
    """The table as it was declared without senders."""
    kept = tuple(metric for metric in EXITS.metrics if metric.name not in SENDER)
    assert EXITS.answers is not None
    joins = tuple(join for join in EXITS.answers.joins if ("sender_pid", "pid") not in join.by)
    packing = Packing("<8x q q I I I H B B q 16s 10q", ("pid", "start"), lasting=False)
    return EXITS._replace(metrics=kept, packing=packing, answers=EXITS.answers._replace(joins=joins))


def end(pid: int, second: int, values: Row = MappingProxyType({})) -> tuple[int, Row]:
    return second, {"pid": pid, "start": 1, "end": (100 + second) * SECOND_NS, "comm": "victim", "signal": 15, **values}


def test_what_was_recorded_before_has_no_sender_and_keeps_its_meaning(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "state"), str(tmp_path / "runtime"))
    put(folders, stretch(of_before(), range(100, 110), [end(5, 3)], full=()), 1)
    sender: Row = {"sender_pid": 77, "sender_start": 60 * SECOND_NS, "sender_comm": "pkill"}
    nobody: Row = {"sender_pid": None, "sender_start": None, "sender_comm": None}
    ends = [end(6, 13, sender), end(7, 14, nobody)]
    put(folders, stretch(EXITS, range(110, 120), [(at - 10, row) for at, row in ends], full=()), 2)
    programs: list[tuple[int, Row]] = [
        (0, {"pid": 77, "start": 60 * SECOND_NS, "exe": "/usr/bin/pkill", "command": "pkill -f victim"})
    ]
    put(folders, stretch(COMMAND, range(100, 120), programs, sensitivity=Sensitivity.RESTRICTED), 1)
    columns = ("pid", "signal_name", "sender_pid", "sender_comm", "sender_exe", "sender_command")
    answer = Archive(folders).records("exits", columns=",".join(columns))
    found = dict(enumerate(answer.records["pid"].tolist()))
    rows = {found[at]: tuple(row)[1:] for at, row in enumerate(answer.records[list(columns)].tolist())}
    assert rows == {
        5: ("SIGTERM", ABSENT, None, None, None),
        6: ("SIGTERM", 77, "pkill", "/usr/bin/pkill", "pkill -f victim"),
        7: ("SIGTERM", ABSENT, None, None, None),
    }
    assert not answer.warnings
    (meaning,) = answer.events
    assert meaning.text == "up to here, sender_pid, sender_comm of some rows are not recorded"
    assert Archive(folders).records("exits", columns="pid,signal_name").events == ()
    by_sender = Archive(folders).records("exits", where="sender_comm = pkill", columns="pid")
    assert by_sender.records["pid"].tolist() == [6]
