# SPDX-License-Identifier: Apache-2.0
"""The table ``event`` is asked like any other: rows, conditions, groups, SQL, formats; and its class is respected."""

import json
from pathlib import Path

import pytest

from sysmon_tools import extract
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.errors import UsageError
from sysmond.history import Archive
from tests.support.longarchive import asked_by_sql
from tests.support.machine import NOON_NS, Machine

AT_NS = NOON_NS + 100 * SECOND_NS


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which five things happened, one of which is restricted."""
    machine = Machine(tmp_path)
    writer, secret = machine.start(99), machine.start(98, sensitivity=Sensitivity.RESTRICTED)
    for ring in (writer, secret):
        ring.tick(range(100, 130))
    writer.ring.event(110 * SECOND_NS, "mark", "", "begin \x1b[1m")
    writer.ring.event(112 * SECOND_NS, "died", "bus", "killed")
    writer.ring.event(114 * SECOND_NS, "died", "sampler", "killed")
    happened_ns = AT_NS + 5 * SECOND_NS
    writer.ring.event(
        120 * SECOND_NS, "login", "anna", "tty1", detail="a\nb", happened_ns=happened_ns, known_from="wtmp"
    )
    secret.ring.event(116 * SECOND_NS, "mark", "", "hidden")
    return machine


def public(machine: Machine) -> Archive:
    """What is there for everybody."""
    return Archive(machine.folders, classes=(Sensitivity.PUBLIC,))


def test_a_row_has_all_that_is_known_of_an_event(machine: Machine) -> None:
    rows = public(machine).records("event")
    assert [column.path for column in rows.columns] == ["kind", "subject", "text", "detail", "happened", "known_from"]
    assert rows.column("text").texts == ("tty1", "begin \x1b[1m", "killed", "killed")
    assert (rows.times_ns - AT_NS).tolist() == [5 * SECOND_NS, 10 * SECOND_NS, 12 * SECOND_NS, 14 * SECOND_NS]
    assert rows.column("detail").texts == ("a\nb", None, None, None)
    assert rows.column("known_from").texts == ("wtmp", None, None, None)
    assert rows.column("happened").times.astype("int64").tolist()[0] == AT_NS + 5 * SECOND_NS
    assert str(rows.column("happened").times[1]) == "NaT"
    assert (rows.table, rows.events, rows.sensitivity) == ("event", (), Sensitivity.PUBLIC)


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        ({"where": "kind = mark"}, ["begin \x1b[1m", "hidden"]),
        ({"where": "subject ~ ^s and not kind = login"}, ["killed"]),
        ({"where": "happened > 2001-01-01"}, ["tty1"]),
        ({"by": "text", "top": 2}, ["begin \x1b[1m", "hidden"]),
        ({"start": AT_NS + 12 * SECOND_NS, "end": AT_NS + 16 * SECOND_NS}, ["killed", "killed"]),
        ({"step": "10s", "by": "kind", "top": 1}, ["tty1", "killed"]),
        ({"boot": 0, "where": "kind = died"}, ["killed", "killed"]),
    ],
)
def test_rows_are_chosen_as_of_any_table(machine: Machine, question: dict[str, str], texts: list[str]) -> None:
    assert list(machine.archive.records("event", **question).column("text").texts or ()) == texts  # type: ignore[arg-type]


def test_rows_are_counted_by_kind(machine: Machine) -> None:
    found = machine.archive.records("event", group_by="kind").records
    assert sorted(zip(found["kind"].tolist(), found["count"].tolist(), strict=True)) == [
        ("died", 2),
        ("login", 1),
        ("mark", 2),
    ]


def test_rows_are_explained(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    result = machine.archive.records("event", explain=True, columns="kind,happened")
    kind, happened = result.explanations
    assert (kind.path, kind.formula, kind.resampling) == ("event/kind", "as stored", "none: a row a row")
    assert "known only later" in happened.origin
    assert [(part.tier, part.start_ns, part.end_ns) for part in kind.answered] == [
        ("rows", AT_NS + 5 * SECOND_NS, AT_NS + 16 * SECOND_NS + 1)
    ]
    (grouped,) = machine.archive.records("event", explain=True, group_by="kind", columns="count").explanations[1:]
    assert grouped.formula == "number of rows that were put together"
    said = run(machine, capsys, "event", "--explain")
    assert "rows, 2023-11-15T00:01:45Z" in said
    assert "every 0" not in said


def test_rows_stay_in_order_where_the_clock_is_set_back(machine: Machine) -> None:
    writer = machine.start(200, wall_ns=NOON_NS - 3600 * SECOND_NS)
    writer.tick(range(200, 210))
    writer.ring.event(205 * SECOND_NS, "mark", "", "later")
    rows = machine.archive.records("event", where="not kind = login")
    assert rows.column("kind").texts == ("mark", "died", "died", "mark", "clock step", "mark")
    assert rows.times_ns[-1] < rows.times_ns[0]


def test_what_is_restricted_makes_the_answer_so(machine: Machine) -> None:
    assert machine.archive.records("event").sensitivity is Sensitivity.RESTRICTED
    assert machine.archive.records("event", end=AT_NS + 16 * SECOND_NS).sensitivity is Sensitivity.PUBLIC
    assert "hidden" not in public(machine).records("event").records["text"]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"columns": "colour"}, "table 'event' has no column 'colour'; there are kind, subject"),
        ({"columns": "xyz"}, "there are kind, subject, text, detail, happened, known_from"),
        ({"where": "colour = red"}, "there is no column 'colour'"),
        ({"group_by": "count"}, "group by 'count': its values change all the time"),
        ({"percentile": 5, "step": "1min"}, "table 'event': has no averages"),
        ({"summary": True}, "table 'event': has no averages"),
        ({"boot": "-3"}, "only one boot is recorded; expected 0$"),
    ],
)
def test_a_wrong_question_is_refused_by_name(machine: Machine, question: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        machine.archive.records("event", **question)  # type: ignore[arg-type]


def test_it_is_listed_where_anything_happened(machine: Machine, tmp_path: Path) -> None:
    (entry,) = machine.archive.long_tables()
    assert (entry.path, entry.start_ns, entry.end_ns) == ("event", AT_NS + 5 * SECOND_NS, AT_NS + 16 * SECOND_NS)
    assert entry.sensitivity is Sensitivity.RESTRICTED
    assert public(machine).long_tables()[0].sensitivity is Sensitivity.PUBLIC
    quiet = Machine(tmp_path / "quiet")
    quiet.start(99).tick(range(100, 110))
    assert quiet.archive.long_tables() == []
    assert len(quiet.archive.records("event").times_ns) == 0


def test_sql_has_all_columns_of_it(machine: Machine) -> None:
    rows = asked_by_sql(machine.folders, "select kind, subject, detail, known_from, happened = time from event")
    assert rows == [
        ["login", "anna", "a\nb", "wtmp", True],
        ["mark", None, None, None, None],
        ["died", "bus", None, None, None],
        ["died", "sampler", None, None, None],
        ["mark", None, None, None, None],
    ]
    at = "2023-11-15 00:01:51"
    query = f"select count(*) from event e asof join disk d on e.time >= d.time where e.time > '{at}'::timestamp"
    assert asked_by_sql(machine.folders, query) == [[3]]


def run(machine: Machine, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What sysmon-extract says."""
    folders = machine.folders
    arguments = [f"--state-dir={folders.state}", f"--runtime-dir={folders.runtime}", "--utc"]
    assert extract.main([*words, *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", [("event",), ("--events",)])
def test_the_program_gives_it_by_name_and_by_option(
    machine: Machine, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    csv = run(machine, capsys, *words, "--where=kind = mark", "--format=csv").splitlines()
    assert csv[0] == "time,kind,subject,text,detail,happened,known_from"
    assert csv[1].startswith("2023-11-15T00:01:50Z,mark,,begin \\x1b[1m")
    objects = [json.loads(line) for line in run(machine, capsys, *words, "--format=jsonl").splitlines()]
    assert [each["kind"] for each in objects] == ["login", "mark", "died", "died", "mark"]
    assert objects[0]["happened"] == objects[0]["time"] == "2023-11-15T00:01:45Z"
    for chosen in ("tsv", "json", "table"):
        assert "tty1" in run(machine, capsys, *words, f"--format={chosen}")


def test_the_program_lists_it_and_its_columns(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert "event,,per event," in run(machine, capsys, "--list", "--format=csv").replace('""', "")
    assert "known_from" in run(machine, capsys, "event", "--list")


def test_an_answer_that_is_kept_can_be_asked(
    machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(machine, capsys, "event", f"--output-file={tmp_path}/kept.h5")
    assert extract.main(["event", f"--state-dir={tmp_path}/kept.h5", "--utc", "--columns=kind,known_from"]) == 0
    assert "2023-11-15T00:01:45Z,login,wtmp" in capsys.readouterr().out
    run(machine, capsys, "disk/queue", f"--output-file={tmp_path}/series.h5")
    assert Archive(machine.folders).events() == machine.archive.events()


def test_events_with_a_path_are_refused(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["--events", "cpu", f"--state-dir={machine.folders.state}"]) == 2
    assert "expected no PATH" in capsys.readouterr().err


def test_series_that_are_kept_have_all_that_is_known_of_events(
    machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from sysmond import history  # noqa: PLC0415  as readers do

    run(machine, capsys, "disk/queue", f"--output-file={tmp_path}/series.h5")
    kept = history.open(state_dir=f"{tmp_path}/series.h5").events(kind="login")
    assert kept == machine.archive.events(kind="login")
    assert kept[0].detail == "a\nb"


def test_a_table_of_one_event_says_when(machine: Machine, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    folders = [f"--state-dir={machine.folders.state}", f"--runtime-dir={machine.folders.runtime}"]
    assert extract.main(["event", "--where=subject = bus", "--format=table", "--utc", *folders]) == 0
    head, _, row = capfdbinary.readouterr().out.decode().splitlines()
    assert head.split()[:2] == ["time", "kind"]
    assert row.split()[1] == "died"
