# SPDX-License-Identifier: Apache-2.0
"""Answers on a terminal: they fit, say what was left out, and lose nothing in silence."""

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from sysmon_tools import daily, quantities
from sysmon_tools.grid import Display, Field, clipped, cut, lay_out, length
from sysmon_tools.style import Style
from sysmon_tools.summary import written as summary
from sysmon_tools.terminal_answer import Arrangement, write, write_remarks, write_rows
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Cause, Semantics
from sysmond.base.result import Column, Event, Gap, Result
from sysmond.base.timespec import Notation
from sysmond.store.files import saved

NOON_NS = 1_700_049_600 * SECOND_NS
UTC = Style(Notation.UTC)


def gauge(path: str, values: Sequence[float], unit: str = "1", stat: str = "mean") -> Column:
    return Column(path, unit, Semantics.GAUGE, stat, floats=np.array(values, float), decimals=6)


def result(*columns: Column, table: str = "", rows: int = 2, step_ns: int = SECOND_NS) -> Result:
    return Result(NOON_NS + np.arange(rows) * step_ns, columns, (), step_ns, table=table)


def lines(answer: Result, columns: int | None = 80, style: Style = UTC, **asked: object) -> list[str]:
    told = Arrangement(**asked)  # type: ignore[arg-type]
    return b"".join(write(answer, style, Display(columns), told)).decode().splitlines()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "B", "0 B"),
        (1_580_000_000, "B", "1.47 GiB"),
        (4096, "B/s", "4.00 KiB"),
        (0.000733, "s", "733 µs"),
        (0.0123, "s", "12.3 ms"),
        (1.5, "s", "1.50 s"),
        (0, "s", "0 s"),
        (0.9999, "s", "1.00 s"),
        (200, "s", "3 min 20 s"),
        (2.4e9, "Hz", "2.40 GHz"),
        (15.25, "W", "15.2 W"),
        (0, "W", "0 W"),
        (97.86, "%", "97.9"),
        (0.001, "%", "<0.01"),
        (12345, "1", "12345"),
        (1234567, "1", "1.23 M"),
        (1234.5, "1/s", "1.23 k"),
        (-41.5, "°C", "-41.5"),
    ],
)
def test_a_number_is_short_and_says_its_unit(value: float, unit: str, text: str) -> None:
    assert quantities.spelled(value, unit) == text


def test_a_series_is_a_row_an_instance_and_the_day_is_said_once() -> None:
    answer = result(gauge("cpu/user@cpu0", [1, 2], "%"), gauge("cpu/user@total", [3, np.nan], "%"))
    assert lines(answer) == [
        "cpu  2023-11-15  UTC",
        "time      instance  user",
        "                       %",
        "12:00:00  cpu0         1",
        "12:00:00  total        3",
        "12:00:01  cpu0         2",
        "12:00:01  total        -",
    ]


def test_each_table_is_a_table_of_its_own_and_without_instances_has_no_such_column() -> None:
    answer = result(gauge("memory/free", [1024, 2048], "B"), gauge("disk/await@sda", [0.001, 0.002], "s"))
    assert lines(answer) == [
        "memory  2023-11-15  UTC",
        "time          free",
        "12:00:00  1.00 KiB",
        "12:00:01  2.00 KiB",
        "",
        "disk  2023-11-15  UTC",
        "time      instance    await",
        "12:00:00  sda       1.00 ms",
        "12:00:01  sda       2.00 ms",
    ]


def test_over_several_days_each_time_has_its_day() -> None:
    answer = result(gauge("load/tasks", [1, 2]), step_ns=86400 * SECOND_NS)
    assert [line.split("  ")[0] for line in lines(answer)[2:]] == ["2023-11-15 12:00:00", "2023-11-16 12:00:00"]


def test_seconds_since_the_epoch_stay_what_they_are() -> None:
    answer = result(gauge("load/tasks", [1, 2]))
    assert lines(answer, style=Style(Notation.EPOCH))[2:] == ["1700049600      1", "1700049601      2"]


def test_what_people_ask_for_daily_stands_to_the_left_of_the_alphabet() -> None:
    answer = result(*(gauge(f"cpu/{name}", [1, 1], "%") for name in ("guest", "idle", "system", "user")))
    assert lines(answer)[1].split() == ["time", "user", "system", "idle", "guest"]
    assert lines(answer, is_chosen=True)[1].split() == ["time", "guest", "idle", "system", "user"]


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal_and_what_was_left_out_is_said(columns: int) -> None:
    names = [f"metric_of_kind_{number}" for number in range(12)]
    answer = result(*(gauge(f"vm/{name}", [1, 2]) for name in names))
    shown = lines(answer, columns)
    assert max(map(length, shown)) <= columns
    assert shown[-1].startswith("(no room for:")
    assert len(lines(answer, 300)[1].split()) == 13


def test_where_there_is_no_room_the_least_wanted_columns_are_left_out() -> None:
    assert daily.rank("exits", "signal_name") < daily.rank("exits", "exit_code")
    assert daily.rank("disk", "utilization") < daily.rank("disk", "reads") < daily.rank("disk", "discards:sum")
    names = ("transfers", "queue_length", "read_bytes", "utilization")
    shown = lines(result(*(gauge(f"disk/{name}@sda", [1, 2]) for name in names)), 45, is_chosen=True)
    assert shown[1].split() == ["time", "instance", "read_bytes", "utilization"]
    assert shown[-1].startswith("(no room for: transfers,")


def test_of_rows_those_by_which_they_come_stay() -> None:
    texts = [Column(name, "text", Semantics.STATE, "last", texts=("x" * 40,) * 2) for name in ("comm", "exe")]
    numbers = [gauge(name, [1, 2]) for name in ("start", "minor_faults", "major_faults", "cpu", "peak_rss")]
    shown = lines(result(*texts, *numbers, table="exits"), 80, first="minor_faults", has_time=False)
    assert shown[1].split() == ["comm", "minor_faults", "start", "cpu", "peak_rss"]
    assert shown[-1] == "(no room for: exe, major_faults; see --all-columns)"


def test_all_columns_leaves_nothing_out() -> None:
    answer = result(*(gauge(f"vm/metric_of_kind_{number}", [1, 2]) for number in range(40)))
    assert len(lines(answer, None)[1].split()) == 41


def test_a_heading_is_folded_before_a_column_is_left_out() -> None:
    answer = result(*(gauge(f"network/received_compressed_{number}", [1, 2]) for number in range(5)))
    assert lines(answer, 73)[1:5] == [
        "            received_    received_    received_    received_    received_",
        "          compressed_  compressed_  compressed_  compressed_  compressed_",
        "time                0            1            2            3            4",
        "12:00:00            1            1            1            1            1",
    ]


def test_a_column_without_any_value_is_named_below_unless_somebody_asked_for_it() -> None:
    answer = result(gauge("cpu/frequency", [np.nan, np.nan], "Hz"), gauge("cpu/user", [1, 2], "%"))
    assert lines(answer)[-1] == "(empty columns not shown: frequency)"
    assert lines(answer, is_chosen=True)[2:] == [
        "                        %",
        "12:00:00          -     1",
        "12:00:01          -     2",
    ]


def test_rows_have_the_column_of_their_order_behind_their_names() -> None:
    pid = Column("pid", "1", Semantics.STATE, "last", integers=np.array([7, ABSENT]))
    comm = Column("comm", "text", Semantics.STATE, "last", texts=("a\x1b[2J", None))
    answer = result(pid, comm, gauge("cpu", [1, 2], "%"), gauge("rss:last", [10, 20], "B"), table="process")
    assert lines(answer, first="rss", has_time=False) == [
        "process",
        "pid  comm      rss:last  cpu",
        "                           %",
        "  7  a\\x1b[2J      10 B    1",
        "  -  -             20 B    2",
    ]
    assert "\x1b" not in "".join(lines(answer))


def test_what_a_thing_had_come_to_at_its_end_is_an_amount() -> None:
    peak = Column("peak_rss", "B", Semantics.STATE, "last", integers=np.array([1_875_968, ABSENT]))
    assert lines(result(peak, table="exits"), has_time=False)[1:] == ["peak_rss", "1.79 MiB", "       -"]


def test_exact_numbers_have_all_their_digits_and_their_unit_above() -> None:
    answer = result(gauge("memory/free", [1024.5, 2048], "B"))
    shown = b"".join(write(answer, UTC, Display(80, is_exact=True), Arrangement())).decode().splitlines()
    assert shown[2:] == ["               B", "12:00:00  1024.5", "12:00:01    2048"]


def test_a_range_without_rows_says_so() -> None:
    assert lines(result(gauge("cpu/user", []), rows=0))[-1] == "(no rows in that range)"


def test_what_happened_stands_below_and_is_no_wider() -> None:
    event = Event(NOON_NS + 1, "packages", "", "installed " + "something, " * 40)
    gap = Gap(NOON_NS, NOON_NS + SECOND_NS, "cpu", Cause.SUSPENDED, "the lid")
    before = gap._replace(cause=Cause.BEFORE_RECORDING)
    answer = result(gauge("cpu/user", [1, 2], "%"))._replace(events=(event,), gaps=(gap, before))
    shown = lines(answer, 60)[-3:]
    assert shown[:2] == ["", "12:00:00 to 12:00:01  no cpu: suspended (the lid)"]
    assert shown[2].startswith("12:00:00  packages  installed something,")
    assert length(shown[2]) == 60
    assert shown[2].endswith("…")
    alone = b"".join(write_remarks(answer, UTC, Display(60))).decode().splitlines()
    assert alone[1] == "2023-11-15 12:00:00Z to 2023-11-15 12:00:01Z  no cpu: suspe…"


def test_an_event_is_a_line_and_its_details_are_for_who_wants_all_columns() -> None:
    texts = {"kind": "mark", "subject": "me", "text": "here", "detail": "more"}
    columns = (Column(name, "text", Semantics.STATE, "last", texts=(text,) * 2) for name, text in texts.items())
    answer = result(*columns, table="event")
    assert lines(answer)[1].split() == ["time", "kind", "subject", "text"]
    assert lines(answer, None)[1].split() == ["time", *texts]


def test_a_summary_says_the_unit_with_each_number() -> None:
    stats = ("mean", "min", "max", "p95")
    answer = result(*(gauge("disk/read_bytes@sda", [4096], "B/s", stat) for stat in stats), rows=1)
    shown = b"".join(summary(answer, "table", UTC._replace(screen=Display(80)))).decode().splitlines()
    assert shown[-1].split("  ")[-4:] == ["4.00 KiB/s"] * 4


def test_rows_of_no_time_are_laid_out_as_well() -> None:
    rows = [("cpu", 1.5, "what it is " * 20), ("disk", float("nan"), None)]
    shown = b"".join(write_rows(("name", "number", "meaning"), rows, Display(60))).decode().splitlines()
    assert shown[0].split() == ["name", "number", "meaning"]
    assert shown[2].split() == ["disk", "-", "-"]
    assert length(shown[1]) == 60


def test_wide_signs_are_as_wide_as_terminals_draw_them() -> None:
    assert length("日本") == 4
    assert clipped("日本語", 5, is_ascii=False) == "日本…"
    assert clipped("abcdef", 5, is_ascii=True) == "ab..."
    assert [cut("a日\u0301b", width) for width in range(5)] == ["", "a", "a", "a日\u0301", "a日\u0301b"]


def test_the_first_lines_of_a_long_answer_come_before_its_last_rows_are_made() -> None:
    made: list[int] = []

    def cell(row: int) -> str:
        made.append(row)
        return str(row)

    lay = lay_out([Field("row", cell)], 10**9, Display(80))
    assert [next(lay).strip() for _ in range(3)] == ["row", "0", "1"]
    assert max(made) < 10_000


def on_a_terminal(words: Sequence[str], tmp_path: Path, rows: int, **environment: str) -> str:
    """What sysmon-extract writes to a terminal of 80 columns, asked for what the environment of a pager tells."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (rows, 80))
    program = "import sys; from sysmon_tools.extract import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *words, "--state-dir", str(tmp_path)]
    # These say of another terminal how large it is.
    around = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    running = subprocess.Popen(command, stdout=slave, stderr=subprocess.PIPE, env={**around, **environment})
    os.close(slave)
    shown = b""
    with suppress(OSError):  # EIO: the other end was closed.
        while piece := os.read(master, 65536):
            shown += piece
    os.close(master)
    assert running.communicate()[1] == b""
    assert running.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def test_what_is_longer_than_the_terminal_goes_to_the_pager(tmp_path: Path) -> None:
    answer = Result(NOON_NS + np.arange(100) * SECOND_NS, (gauge("load/tasks", range(100)),), (), SECOND_NS)
    saved.write(answer, str(tmp_path / "a.h5"))
    pager = {"PAGER": "sed s/^/paged:/", "TERM": "xterm"}
    place = tmp_path / "a.h5"
    shown = on_a_terminal(["load", "--utc"], place, 24, **pager).splitlines()
    assert len(shown) == 102
    assert all(line.startswith("paged:") for line in shown)
    assert not on_a_terminal(["load", "--utc"], place, 200, **pager).startswith("paged:")
    assert not on_a_terminal(["load", "--utc", "--no-pager"], place, 24, **pager).startswith("paged:")
    assert not on_a_terminal(["load", "--utc"], place, 24, PAGER=pager["PAGER"], TERM="dumb").startswith("paged:")
    assert len(on_a_terminal(["load", "--utc"], place, 24, PAGER="head -n 3", TERM="xterm").splitlines()) == 3
    for none in ("", "no-such-pager", "less 'unended"):
        assert len(on_a_terminal(["load", "--utc"], place, 24, PAGER=none, TERM="xterm").splitlines()) == 102
