# SPDX-License-Identifier: Apache-2.0
"""sysmon-extract: its command line, its output files and its exit codes, over a stand-in for the archive."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

import sysmond
from sysmon_tools import extract, output
from sysmond.base.clock import SECOND_NS, Relation, relation
from sysmond.base.model import Cause, Semantics, Sensitivity
from sysmond.base.paths import naming
from sysmond.base.result import Answered, Column, Entry, Explanation, Gap, Lacking, LongEntry, Result
from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.machine.lock import only_one

START_NS = 1_700_000_000 * SECOND_NS
ENTRIES = [
    Entry(path, "B", Semantics.GAUGE, f"About {path}.", START_NS, START_NS + 3 * SECOND_NS, SECOND_NS)
    for path in ("memory/available", "disk/read_bytes@sda")
]


class FakeArchive:
    """Answers with fixed numbers, and remembers what it was asked."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.state_dir = "/nowhere"
        self.entries = list(ENTRIES)
        self.asked: dict[str, Any] = {}
        self.opened: dict[str, Any] = {}
        self.failure: BaseException | None = None
        self.explanations: tuple[Explanation, ...] = ()
        self.gaps: tuple[Gap, ...] = ()

    def now(self) -> Relation:
        return relation()

    def catalogue(self, *patterns: str, boot: str | int | None = None, derived: bool = False) -> list[Entry]:
        return self.entries

    def long_tables(self, *patterns: str, boot: str | int | None = None) -> list[LongEntry]:
        if patterns and not any(naming(pattern)("process") for pattern in patterns):
            return []
        end_ns = START_NS + 3 * SECOND_NS
        return [LongEntry("process", "process", "All.", START_NS, end_ns, SECOND_NS, Sensitivity.PUBLIC)]

    def select(self, *patterns: str, stat: Sequence[str] | None = None, **asked: Any) -> Result:
        self.asked = {"patterns": patterns, "stat": stat, **asked}
        if self.failure is not None:
            raise self.failure
        columns = tuple(
            Column(entry.path, entry.unit, entry.semantics, one, integers=np.array([1, 2, 3]))
            for entry in self.entries
            for one in stat or ("mean",)
        )
        result = Result(
            START_NS + np.arange(3) * SECOND_NS, columns, self.gaps, SECOND_NS, explanations=self.explanations
        )
        return result._replace(sensitivity=self.entries[0].sensitivity)


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> FakeArchive:
    fake = FakeArchive()

    def opened(**options: Any) -> FakeArchive:
        fake.opened = options
        return fake

    history: Any = ModuleType("sysmond.history")
    history.open = opened
    monkeypatch.setitem(sys.modules, "sysmond.history", history)
    monkeypatch.setattr(sysmond, "history", history, raising=False)
    return fake


CSV = (
    "# unit,B,B\n"
    "time,memory/available,disk/read_bytes@sda\n"
    "2023-11-14T22:13:20Z,1,1\n2023-11-14T22:13:21Z,2,2\n2023-11-14T22:13:22Z,3,3\n"
)


def test_values_go_to_standard_output_as_csv(archive: FakeArchive, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["memory", "--utc"]) == 0
    assert capsys.readouterr() == (CSV, "")


def test_options_and_paths_mix_and_all_reach_history(archive: FakeArchive, tmp_path: Path) -> None:
    words = "memory --from -1h disk/*@sda --to -5m --sample 10s cpu/user --stat mean,max,mean --boot -1 --utc"
    assert extract.main([*words.split(), "--user", "--state-dir", str(tmp_path), "--runtime-dir=/r"]) == 0
    assert archive.asked == {
        "patterns": ("memory", "disk/*@sda", "cpu/user"),
        "stat": ("mean", "max"),
        "start": "-1h",
        "end": "-5m",
        "step": "10s",
        "boot": "-1",
        "raw": False,
        "explain": False,
        "drop": (),
        "summary": False,
    }
    assert archive.opened == {"state_dir": str(tmp_path), "runtime_dir": "/r", "user": True, "system": False}


class FakeDesktop(FakeArchive):
    """Records memory and disks, and refuses what it does not know."""

    def select(self, *patterns: str, stat: Sequence[str] | None = None, **asked: Any) -> Result:
        for pattern in patterns:
            if pattern.partition("/")[0] not in {"memory", "disk"}:
                raise UsageError(f"there is no table {pattern!r}")
        return super().select(*patterns, stat=stat, **asked)


def test_a_preset_is_answered_as_far_as_it_is_recorded(
    archive: FakeArchive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desktop = FakeDesktop()
    monkeypatch.setattr(sys.modules["sysmond.history"], "open", lambda **_: desktop)
    assert extract.main(["--preset=swap", "disk", "--utc"]) == 0
    assert desktop.asked["patterns"] == ("disk", "memory/swap_used", "memory/swap_used_percent")
    written = capsys.readouterr()
    assert written.out == CSV
    assert written.err == "sysmon-extract: not recorded: vm/pswpin, vm/pswpout\n"
    assert extract.main(["--preset=wifi"]) == Error.exit_code
    assert capsys.readouterr() == (
        "",
        "sysmon-extract: preset wifi: nothing is recorded here; --list shows what is\n",
    )
    assert extract.main(["--preset=memory", "wifi"]) == UsageError.exit_code
    assert capsys.readouterr() == ("", "sysmon-extract: there is no table 'wifi'\n")


def test_without_a_path_everything_is_meant(archive: FakeArchive) -> None:
    assert extract.main([]) == 0
    assert archive.asked["patterns"] == ("*",)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--frm=1h"], "unknown option '--frm'; did you mean --from"),
        (["--fro", "1h"], "unknown option '--fro'; did you mean --from"),
        (["-f", "csv"], "unknown option '-f'"),
        (["--format=cvs"], "unknown format 'cvs'; did you mean csv"),
        (
            ["--format=xyz"],
            "unknown format 'xyz'; there are csv, tsv, json, jsonl, kv, table, hdf5, parquet, arrow, openmetrics",
        ),
        (["--stat=mean,maxx"], "statistic 'maxx': not known; did you mean max or tmax? (expected mean, min"),
        (["--stat="], "statistic '': not known; expected mean, min, max, tmax, first, last, sum, count, p0 to p100"),
        (["--stat=p101"], "statistic 'p101': not known; expected mean, min"),
        (
            ["cpu", "--from", "10", "minutes", "ago"],
            "'ago': a time of several words needs quotes, such as --from='10 m",
        ),
        (["--from"], "--from/--since: has no value; expected --from=T"),
        (["--from", "--to", "now"], "--from/--since: has no value; expected --from=T"),
        (["--from=tody"], "time 'tody': not understood; did you mean today"),
        (["--from="], "time '': not understood"),
        (["--to=2025-02-30"], "time '2025-02-30': day is out of range for month"),
        (["--sample=0s"], "step '0s': expected 1 ns to 100 years"),
        (["--sample=fast"], "step 'fast': not understood"),
        (["--utc", "--epoch"], "--utc and --epoch: expected only one of them"),
        (["--raw", "--sample=1s"], "--raw gives every tick"),
        (["--list", "--format=hdf5"], "--list cannot be written as 'hdf5'"),
        (["--format=hdf5"], "format 'hdf5' needs a file"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    words: list[str], message: str, archive: FakeArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    assert extract.main(["memory", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"sysmon-extract: {message}")
    assert err.count("\n") == 1
    assert archive.opened == {}


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (Error("broken\nthing"), 1, "broken\\nthing"),
        (NotPermittedError("not yours"), 77, "not yours"),
        (UsageError("there is no table 'x'"), 2, "there is no table 'x'"),
        (PermissionError(13, "Permission denied", "/x"), 77, "/x: Permission denied"),
        (FileNotFoundError(2, "No such file or directory", "/x"), 1, "/x: No such file or directory"),
        (MemoryError(), 1, "not enough memory"),
    ],
)
def test_a_failure_is_one_line_and_its_exit_code(
    failure: BaseException, code: int, message: str, archive: FakeArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.failure = failure
    assert extract.main(["memory/available"]) == code
    err = capsys.readouterr().err
    assert err.startswith(f"sysmon-extract: {message}")
    assert err.count("\n") == 1


def test_what_could_not_be_read_is_named_and_the_rest_is_there(
    archive: FakeArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.warnings = ["a.h5: truncated", "b.h5: not ours"]
    assert extract.main(["memory", "--utc"]) == 3
    warned = "sysmon-extract: warning: a.h5: truncated\nsysmon-extract: warning: b.h5: not ours\n"
    assert capsys.readouterr() == (CSV, warned)
    assert extract.main(["--list"]) == 3


def test_a_range_before_the_first_row_says_when_recording_begins(
    archive: FakeArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    since = {"disk": 2, "memory": 1}
    archive.gaps = tuple(
        Gap(START_NS, START_NS + after * SECOND_NS, table, Cause.BEFORE_RECORDING) for table, after in since.items()
    )
    assert extract.main(["memory", "disk", "--utc", "--from=2023-11-14"]) == 0
    assert capsys.readouterr().err == "sysmon-extract: recording begins at 2023-11-14T22:13:21Z\n"
    assert extract.main(["memory", "disk", "--utc"]) == 0
    assert capsys.readouterr().err == ""
    # Asked from the first reading on, only what counters grew by before it is not known.
    archive.gaps = (Gap(START_NS - 1, START_NS, "memory", Cause.BEFORE_RECORDING),)
    assert extract.main(["memory", "disk", "--utc", "--from=2023-11-14"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("asked", "file", "expected"),
    [
        (None, None, "csv"),
        (None, "-", "csv"),
        (None, "a.tsv", "tsv"),
        (None, "a.JSON", "json"),
        (None, "a.jsonl", "jsonl"),
        (None, "a.kv", "kv"),
        (None, "a.h5", "hdf5"),
        (None, "a.hdf5", "hdf5"),
        (None, "a.txt", "table"),
        (None, "A.CSV", "csv"),
        (None, "a.prom", "openmetrics"),
        (None, "2026.11/a", "csv"),
        ("csv", "a.xlsx", "csv"),
        (None, "a.parquet", "parquet"),
        (None, "a.feather", "arrow"),
        (None, "a.log", "csv"),
        (None, "json", "csv"),
        ("tsv", "a.json", "tsv"),
        ("openmetrics", None, "openmetrics"),
    ],
)
def test_the_format_is_the_one_asked_for_or_the_suffix_has(asked: str | None, file: str | None, expected: str) -> None:
    words = [*([f"--format={asked}"] if asked else []), *([f"--output-file={file}"] if file else [])]
    assert extract.choose_format(extract.read_arguments(words)) == expected


@pytest.mark.parametrize("name", ["a.xlsx", "a.csv.gz"])
def test_a_file_that_says_it_is_something_else_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as refusal:
        extract.choose_format(extract.read_arguments([f"--output-file={name}"]))
    suffix = name.rpartition(".")[2]
    assert str(refusal.value).startswith(f"{name}: no format has the suffix '.{suffix}'; expected .csv, ")


def test_on_a_terminal_it_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert extract.choose_format(extract.read_arguments([])) == "table"


EXPLANATION = Explanation(
    "cpu/user@total",
    "mean",
    "%",
    "/proc/stat cpu 1",
    "increase ÷ time it took × 100",
    (
        Answered("10s", 10 * SECOND_NS, START_NS, START_NS + 600 * SECOND_NS),
        Answered("rows", SECOND_NS, START_NS + 600 * SECOND_NS, START_NS + 900 * SECOND_NS),
    ),
    60 * SECOND_NS,
    "joined",
    (Lacking(Cause.DAEMON_DOWN, 2, 90_500_000_000),),
)


def test_an_explanation_is_a_paragraph_a_column(archive: FakeArchive, capsys: pytest.CaptureFixture[str]) -> None:
    archive.explanations = (EXPLANATION, EXPLANATION._replace(stat="max", gaps=(), answered=(), origin=""))
    assert extract.main(["cpu", "--explain", "--utc"]) == 0
    assert archive.asked["explain"] is True
    assert capsys.readouterr().out.splitlines() == [
        "cpu/user@total mean [%] every 1min",
        "  source      /proc/stat cpu 1",
        "  formula     increase ÷ time it took × 100",
        "  answered    10s every 10s, 2023-11-14T22:13:20Z to 2023-11-14T22:23:20Z",
        "  answered    rows every 1s, 2023-11-14T22:23:20Z to 2023-11-14T22:28:20Z",
        "  resampling  joined",
        "  gaps        2 × daemon down, 90.5 s in all",
        "",
        "cpu/user@total max [%] every 1min",
        "  source      not declared",
        "  formula     increase ÷ time it took × 100",
        "  answered    nothing in this range",
        "  resampling  joined",
        "  gaps        none",
    ]


def test_an_explanation_as_json(archive: FakeArchive, capsys: pytest.CaptureFixture[str]) -> None:
    archive.explanations = (EXPLANATION, EXPLANATION)
    assert extract.main(["cpu", "--explain", "--epoch", "--format=json"]) == 0
    first, _ = json.loads(capsys.readouterr().out)
    assert first["source"] == "/proc/stat cpu 1"
    assert first["answered"][1] == {"tier": "rows", "step": "1s", "from": 1_700_000_600, "to": 1_700_000_900}
    assert first["gaps"] == [{"cause": "daemon down", "count": 2, "seconds": 90.5}]
    assert extract.main(["cpu", "--explain", "--utc", "--format=jsonl"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--explain", "--format=csv"], "--explain cannot be written as 'csv'; expected table, json, jsonl"),
        (["--explain", "--list"], "--list and --explain: expected only one of them"),
    ],
)
def test_what_cannot_be_explained_is_refused(
    words: list[str], message: str, archive: FakeArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    assert extract.main(words) == UsageError.exit_code
    assert capsys.readouterr().err == f"sysmon-extract: {message}\n"
    assert not archive.asked


def test_the_list_is_machine_readable(archive: FakeArchive, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["--list", "--utc"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "path,unit,semantics,from,to,resolution,sensitivity",
        "disk/read_bytes@sda,B,gauge,2023-11-14T22:13:20Z,2023-11-14T22:13:23Z,1s,public",
        "memory/available,B,gauge,2023-11-14T22:13:20Z,2023-11-14T22:13:23Z,1s,public",
        'process,"",per process,2023-11-14T22:13:20Z,2023-11-14T22:13:23Z,1s,public',
    ]
    assert extract.main(["--list", "memory", "--utc"]) == 0
    assert "process" not in capsys.readouterr().out
    assert extract.main(["--list", "--format=json", "--from=1700000003"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_list_for_people_is_a_line_a_table(archive: FakeArchive, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["--list", "--format=table"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["table", "per", "series", "sensitivity", "about"]
    assert [row.split() for row in rows[:3]] == [
        ["disk", "instance", "1", "public", "read_bytes"],
        ["memory", "-", "1", "public", "available"],
        ["process", "process", "-", "public", "All."],
    ]
    assert rows[3:] == [
        "# --list TABLE lists its metrics, --list TABLE --instances its instances, --list TABLE/METRIC its series"
    ]


def test_a_recorder_that_keeps_its_rest_elsewhere_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, runtime = tmp_path / "state", tmp_path / "runtime"
    state.mkdir()
    (runtime / "archiver").mkdir(parents=True)
    (runtime / "archiver/state").symlink_to(state)
    asked = ["cpu", f"--state-dir={state}"]
    with only_one(str(state)), only_one(str(runtime)):
        assert extract.main(asked) == 1
        assert capsys.readouterr().err == (
            f"sysmon-extract: {state}: nothing recorded yet; process {os.getpid()} records there and holds the rest in"
            f" RAM: expected --runtime-dir={runtime}, too\n"
        )
        for words in (["process"], ["cpu", "--records"]):
            assert extract.main([*words, f"--state-dir={state}"]) == 1
            assert f"expected --runtime-dir={runtime}, too" in capsys.readouterr().err
        assert extract.main([*asked, f"--runtime-dir={runtime}"]) == 1
        assert capsys.readouterr().err.endswith("nothing recorded yet\n")
    assert extract.main(asked) == 1
    assert capsys.readouterr().err.endswith("nothing recorded yet\n")


def test_openmetrics_takes_its_help_from_the_catalogue(
    archive: FakeArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    assert extract.main(["memory", "--format=openmetrics"]) == 0
    assert "# HELP sysmond_memory_available_bytes About memory/available.\n" in capsys.readouterr().out


def test_prometheus_gets_counters_unless_buckets_are_asked_for(archive: FakeArchive) -> None:
    assert extract.main(["memory", "--format=openmetrics"]) == 0
    raw = [archive.asked["raw"]]
    assert extract.main(["memory", "--format=openmetrics", "--sample=1min"]) == 0
    raw.append(archive.asked["raw"])
    assert extract.main(["memory", "--format=csv"]) == 0
    assert [*raw, archive.asked["raw"]] == [True, False, False]


def test_the_newest_are_asked_of_the_last_minutes(archive: FakeArchive, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["memory", "--format=openmetrics", "--no-timestamps"]) == 0
    assert archive.asked["start"] == "-10min"
    assert "sysmond_memory_available_bytes 3\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-timestamps"], "--no-timestamps with format 'csv': expected openmetrics"),
        (["--every=15s"], "expected --output-file=F"),
        (["--every=15s", "--output-file=-"], "expected --output-file=F"),
        (["--every=soon", "--output-file=a.prom"], "soon"),
        (["--every=15s", "--output-file=a.csv", "--list"], "neither --list nor --explain"),
    ],
)
def test_what_is_written_again_and_again_goes_to_a_file(
    archive: FakeArchive, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert extract.main(["memory", *words]) == 2
    assert archive.asked == {}
    assert said in capsys.readouterr().err


def test_a_file_is_written_anew_until_somebody_interrupts_it(
    archive: FakeArchive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What goes wrong again and again is said once, and the file is written when it can be."""
    file, waits = tmp_path / "a.prom", list[float]()

    def wait(length_s: float) -> None:
        waits.append(length_s)
        match len(waits):
            case 1 | 2:
                assert "sysmond_memory_available_bytes 3\n" in file.read_text()
                archive.failure = Error("nothing recorded yet")
            case 3:
                archive.failure = None
                file.unlink()
            case _:
                assert file.exists()
                raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", wait)
    words = ["memory", "--no-timestamps", "--every=15s", f"--output-file={file}"]
    assert extract.main(words) == 130
    assert all(0 < length_s <= 15 for length_s in waits)
    assert capsys.readouterr().err == "sysmon-extract: nothing recorded yet\n"


def test_a_file_is_written_whole(archive: FakeArchive, tmp_path: Path) -> None:
    target = tmp_path / "lastday.log"
    assert extract.main(["memory", "--utc", f"--output-file={target}"]) == 0
    assert target.read_text() == CSV
    assert os.listdir(tmp_path) == ["lastday.log"]


def test_a_file_keeps_its_mode_and_a_link_its_target(archive: FakeArchive, tmp_path: Path) -> None:
    target, link = tmp_path / "private.csv", tmp_path / "link.csv"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    assert extract.main(["memory", "--utc", f"--output-file={link}"]) == 0
    assert link.is_symlink()
    assert target.read_text() == CSV
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_hdf5_has_a_dataset_a_column(archive: FakeArchive, tmp_path: Path) -> None:
    target = tmp_path / "day.h5"
    assert extract.main(["memory", f"--output-file={target}"]) == 0
    with h5py.File(target) as file:
        assert file.attrs["format"] == b"sysmond result"
        assert file["time"].shape == file["column/0"].shape
        assert file["column/0"].attrs["path"] == "memory/available"
    assert os.listdir(tmp_path) == ["day.h5"]


@pytest.mark.parametrize("name", ["day.csv", "day.h5"])
@pytest.mark.parametrize(("there", "mode"), [(None, 0o600), (0o644, 0o640), (0o600, 0o600)])
@pytest.mark.parametrize("arguments", [[], ["--list", "--format=csv"]])
def test_what_is_restricted_stays_its_owners(
    archive: FakeArchive, tmp_path: Path, name: str, there: int | None, mode: int, arguments: list[str]
) -> None:
    if arguments and name == "day.h5":
        name = "day.txt"
    archive.entries = [entry._replace(sensitivity=Sensitivity.RESTRICTED) for entry in ENTRIES]
    target = tmp_path / name
    if there is not None:
        target.write_text("old")
        target.chmod(there)
    umask = os.umask(0o022)
    try:
        assert extract.main(["memory/available", f"--output-file={target}", *arguments]) == 0
    finally:
        os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == mode


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), ValueError("bug"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(failure: BaseException, tmp_path: Path) -> None:
    target = tmp_path / "day.csv"
    target.write_text("old")

    def fail(path: str) -> None:
        Path(path).write_text("half")
        raise failure

    with pytest.raises(type(failure)):
        output.put_in_place(str(target), fail, is_restricted=False)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["day.csv"]


def test_being_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        output.put_in_place(
            str(tmp_path / "day.csv"), lambda _: os.kill(os.getpid(), signal.SIGTERM), is_restricted=False
        )
    assert caught.value.code == 143
    assert os.listdir(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("place", ["missing/day.csv", "."])
def test_a_place_that_cannot_be_written_is_one_line(
    place: str, archive: FakeArchive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"{tmp_path}/{place}"
    assert extract.main(["memory", f"--output-file={target}"]) == 1
    assert capsys.readouterr().err.startswith(f"sysmon-extract: {target}: ")
    assert os.listdir(tmp_path) == []


def test_a_place_that_is_forbidden_is_77(
    archive: FakeArchive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied", "/x/.part")

    monkeypatch.setattr(os, "open", refuse)
    assert extract.main(["memory", "--output-file=/tmp/sysmond-test.csv"]) == 77
    assert capsys.readouterr().err == "sysmon-extract: /tmp/sysmond-test.csv: Permission denied\n"


def test_a_pipe_is_written_where_it_is(archive: FakeArchive, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_text()))
    reader.start()
    assert extract.main(["memory", "--utc", f"--output-file={fifo}"]) == 0
    reader.join(10)
    assert received == [CSV]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def run_python(code: str, *, closed_output: bool = False) -> subprocess.CompletedProcess[str]:
    code = "from sysmon_tools import extract\n" + code
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [sys.executable, "-c", code],
            stdout=write if closed_output else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(write)


def test_a_reader_that_has_enough_ends_it_quietly() -> None:
    code = (
        "import sys, types, sysmond\n"
        "def select(*a, **k): pass\n"
        "pieces = (b'x' * 100000 for _ in range(100))\n"
        "extract._run = lambda options: extract.send(pieces, None, is_restricted=False) or 0\n"
        "sys.exit(extract.main(['memory/available']))\n"
    )
    done = run_python(code, closed_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_named(archive: FakeArchive, capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["memory", "--output-file=/dev/full"]) == 1
    assert capsys.readouterr().err == "sysmon-extract: /dev/full: No space left on device\n"


def test_help_and_wrong_usage_cost_no_numpy() -> None:
    code = (
        "import sys\n"
        "try: extract.main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert extract.main(['--frm']) == 2\n"
        "print(sorted({'numpy', 'h5py', 'pathlib', 'dataclasses', 'inspect', 'rich'} & set(sys.modules)))"
    )
    done = run_python(code)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(f"--{name}" in done.stdout for name in ("from", "to", "boot", "sample", "stat", "format", "list", "raw"))
    assert "examples:" in done.stdout


def test_a_question_starts_no_program_and_loads_no_plan(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.addaudithook(lambda name, _: print(name) if name in {'subprocess.Popen', 'os.exec'} else None)\n"
        f"assert extract.main(['cpu', '--state-dir={tmp_path}']) == 1\n"
        "print(sorted({'h5py', 'sysmond.plan.plan'} & set(sys.modules)))"
    )
    assert run_python(code).stdout == "[]\n"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        extract.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"sysmon-extract {sysmond.__version__}\n"


@pytest.mark.parametrize("words", [[], ["memory/available"], ["--list"]])
def test_an_empty_archive_says_so(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state, runtime = tmp_path / "state", tmp_path / "runtime"
    state.mkdir()
    assert extract.main([*words, f"--state-dir={state}", f"--runtime-dir={runtime}"]) == 1
    assert capsys.readouterr() == ("", f"sysmon-extract: {state}: nothing recorded yet\n")
