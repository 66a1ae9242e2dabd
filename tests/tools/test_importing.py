# SPDX-License-Identifier: Apache-2.0
"""Imports: what sysmon-extract gave out comes back to the last digit; what is wrong is one line."""

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmon_tools import extract, importing
from sysmon_tools.formats import delimited_field
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.errors import Error, UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from sysmond.probe import Table, gauge
from tests.support.machine import Machine

HOSTILE = ("sda", 'a,"b" #=\n', "\udcff\x1b[31m\u202e", "back\\slash\\x41")
MEMORY = Table("memory", (gauge("available", "B", "Left."), gauge("share", "%", "Used.", 3)))
SERIES = "time,disk/queue@sda,memory/available\n"
NOON = "2025-03-01T12:00:00Z"

NOISE = (b"", b"\0", b'"', b",", b"\n", b"\xff", b"9", b"\\", b"[")

Asked = tuple[str, ...]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Disks with all kinds of names, one of them gone for a while; memory, every two seconds."""
    made = Machine(tmp_path / "machine")
    writer = made.start(0)
    writer.tick(range(1, 31), HOSTILE)
    writer.tick(range(31, 41), HOSTILE[:1])
    writer.tick(range(50, 61), HOSTILE)
    memory = made.start(0.5, table=MEMORY)
    for second in range(2, 61, 2):
        memory.relation(second * SECOND_NS)
        memory.ring.rows(0, second * SECOND_NS, ("",), [2**61 + second, -second])
    return made


def asked(capsys: pytest.CaptureFixture[str], place: Folders | str, *words: str) -> str:
    """What sysmon-extract says of an archive, without what it remarks."""
    folders = [f"--state-dir={place}"]
    if isinstance(place, Folders):
        folders = [f"--state-dir={place.state}", f"--runtime-dir={place.runtime}"]
    assert extract.main([*words, *folders, "--utc"]) == 0
    lines = capsys.readouterr().out.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("# gap", "# event")))


def imported(tmp_path: Path, content: str, *table: str) -> str:
    file, folder = tmp_path / "answer", tmp_path / "imported"
    file.write_text(content, encoding="utf-8")
    assert extract.main(["--import", str(file), "--output-dir", str(folder), *table]) == 0
    return str(folder)


@pytest.mark.parametrize("form", ["csv", "tsv", "json"])
@pytest.mark.parametrize(
    ("words", "table"),
    [
        (("--raw",), ()),
        (("--raw", "--epoch"), ()),
        (("disk", "--records", "--raw"), ("disk",)),
        (("memory", "--records", "--raw"), ("memory",)),
        (("--sample=2s",), ()),
        (("disk", "--records", "--sample=5s"), ("disk",)),
    ],
)
def test_what_was_given_out_comes_back_to_the_last_digit(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, words: Asked, table: Asked
) -> None:
    notation = [word for word in words if word == "--epoch"]
    words = tuple(word for word in words if word != "--epoch")
    folders = machine.folders
    where = [f"--state-dir={folders.state}", f"--runtime-dir={folders.runtime}"]
    assert extract.main([*words, f"--format={form}", *where, *(notation or ["--utc"])]) == 0
    given_out = capsys.readouterr().out
    folder = imported(tmp_path, given_out, *table)
    capsys.readouterr()
    again = [word for word in words if not word.startswith("--sample")]
    raw = [] if "--raw" in again else ["--raw"]
    before = asked(capsys, folders, *words, "--format=csv")
    after = asked(capsys, folder, *again, *raw, "--format=csv")
    assert sorted_by_columns(after) == sorted_by_columns(before)


def sorted_by_columns(said: str) -> list[str]:
    """The lines, whatever the order of rows of one time."""
    return sorted(said.splitlines()[1:]) if said.startswith("# unit") else sorted(said.splitlines())


def test_counters_of_json_as_stored_are_counters_again(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = asked(capsys, machine.folders, "disk/read_bytes@sda", "--raw", "--format=json")
    folder = imported(tmp_path, said)
    capsys.readouterr()
    question = ("disk/read_bytes@sda", "--sample=10s", "--stat=sum", "--format=csv")
    assert asked(capsys, folder, *question) == asked(capsys, machine.folders, *question)
    (entry,) = Archive(Folders(folder, "")).catalogue("disk/read_bytes@sda")
    assert (str(entry.semantics), entry.unit) == ("counter", "B")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: text.replace("\0", "")), max_size=4))
def test_a_field_is_what_it_was(texts: list[str]) -> None:
    texts = [*texts, "\udc80"]
    line = b",".join(delimited_field(text, ",") for text in texts).decode()
    assert importing.fields_of("", line, ",") == texts


def test_many_rows_become_several_files(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "CELLS_PER_FILE", 100)
    said = asked(capsys, machine.folders, "--raw", "--format=csv")
    folder = imported(tmp_path, said)
    capsys.readouterr()
    assert len(list(Path(folder, "public/1s").glob("*.h5"))) > 3
    assert asked(capsys, folder, "--raw", "--format=csv") == said


@pytest.mark.parametrize(("mode", "sensitivity"), [(0o644, Sensitivity.PUBLIC), (0o600, Sensitivity.RESTRICTED)])
def test_what_others_may_not_read_stays_restricted(tmp_path: Path, mode: int, sensitivity: Sensitivity) -> None:
    file = tmp_path / "answer.csv"
    file.write_text(f"{SERIES}{NOON},1,2\n")
    file.chmod(mode)
    importing.run(str(file), "", str(tmp_path / "new"))
    (entry, _) = Archive(Folders(str(tmp_path / "new"), "")).catalogue()
    assert entry.sensitivity is sensitivity


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", ": has no rows"),
        ("\n\n", ": has no rows"),
        ("hello\n", ":1: not a header"),
        ("time\n", ":1: not a header"),
        (f"{SERIES}{NOON},1\n", ":2: 2 fields; expected 3, as in the header"),
        (f"# gap x\n{SERIES}\n{NOON},1,2\nnow,1,2\n", ":5: time 'now'; expected 2025-01-31T14:30:00+01:00"),
        (f"{SERIES}2025-02-30T12:00:00Z,1,2\n", ":2: time '2025-02-30T12:00:00Z'"),
        (f"{SERIES}{NOON},1,2\n{NOON},1,2\n", ":3: not later than the row before; expected one boot, as --boot gives"),
        (f'{SERIES}{NOON},"1"2,2\n', ":2: '2' at character 25; expected ','"),
        (f'{SERIES}{NOON},"1,2\n', """:2: '"' at character 22; expected ','"""),
        (f"{SERIES}{NOON},a\\q,2\n", r":2: '\\q' is not an escape sequence"),
        (f"{SERIES}{NOON},{10**18 * 5},2\n", ":2: queue 5000000000000000000: too many digits"),
        (f"{SERIES}{NOON},0.0123456789,2\n", ":2: queue 0.0123456789: too many digits"),
        (f"{SERIES}{NOON},{'x' * 5000},2\n", ":2: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx': expected at most 4096"),
        (f"time,cpu\n{NOON},1\n", ": column 'cpu' is not a series; expected table/metric@instance, or of rows"),
        (f"time,a/b,a/b\n{NOON},1,2\n", ": column 'a/b' appears twice"),
        (f"time,a/B\n{NOON},1\n", ": table 'a', metric 'B': not a name"),
        (f"time,../b\n{NOON},1\n", ": table '..': not a name"),
        (f"# unit,B\n{SERIES}{NOON},1,2\n", ": 2 units for 3 columns"),
        (f"time,a/b\n{NOON},1\n2199-01-01T00:00:00Z,2\n", ": times at"),
        ("{", ":1: not JSON"),
        ('{"series": []}', ": not an answer; expected series, time and as many values"),
        ('{"series": [1], "time": [], "values": [[]]}', ": series 1: expected path, unit, semantics and stat"),
        (json.dumps({"series": [{"path": "a/b", "unit": "", "semantics": "counter", "stat": "raw"}], "time": [NOON],
                     "values": [[True]]}), ": series 1, value 1: expected a number, a text or null"),
        ('{"series": [{"path": "a/b", "unit": "", "semantics": "x", "stat": "raw"}], "time": ["now"], "values": [[1]]}',
         ": row 1: time 'now'"),
        ('{"series": [{"path": "a/b", "unit": "", "semantics": "x", "stat": "raw"}], "time": [1], "values": [[1e5]]}',
         ": series 1: a number with an exponent"),
        ('{"series": [{"path": "a/b", "unit": "", "semantics": "x", "stat": "raw"}], "time": [1], "values": [[NaN]]}',
         ": NaN is not a value"),
        ("{" * 100_000, ":1: not JSON"),
        ('{"a":' + "[" * 200_000, ": not JSON of sysmon-extract: RecursionError"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_that_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    file, folder = tmp_path / "answer", tmp_path / "new"
    file.write_text(content)
    assert extract.main(["--import", str(file), "--output-dir", str(folder)]) == Error.exit_code
    said = capsys.readouterr()
    assert said.err.startswith(f"sysmon-extract: {file}{says}"), said.err
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert not folder.exists()


def test_rows_of_one_thing_stand_once_at_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "answer"
    file.write_text(f"time,instance,queue\n{NOON},sda,1\n{NOON},sdb,1\n{NOON},sda,2\n")
    assert extract.main(["disk", "--import", str(file), f"--output-dir={tmp_path}/new"]) == 1
    assert f"{file}:4: 'sda' appears twice at one moment" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--import=a.csv"], "--import=FILE and --output-dir=D: expected both, or neither"),
        (["--output-dir=x"], "--import=FILE and --output-dir=D: expected both, or neither"),
        (["cpu/user", "--import=a.csv", "--output-dir=x"], "--import and cpu/user: expected one table as PATH"),
        (["process", "--import=a.csv", "--output-dir=x"], "--import of process: expected series, or rows of instances"),
        (["cpu", "disk", "--import=a.csv", "--output-dir=x"], "--import and cpu disk: expected one table as PATH"),
    ],
)
def test_half_of_an_import_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert extract.main(words) == UsageError.exit_code
    assert says in capsys.readouterr().err


def test_a_folder_is_named_from_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer.csv").write_text("time,load/one\n2025-03-01T12:00:00Z,0.5\n")
    monkeypatch.chdir(tmp_path)
    assert extract.main(["--import=answer.csv", "--output-dir=new"]) == 0
    assert [entry.path for entry in Archive(Folders(str(tmp_path / "new"), "")).catalogue()] == ["load/one"]


def test_nothing_is_written_into_what_is_there(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "answer.csv"
    file.write_text(f"{SERIES}{NOON},1,2\n")
    for place in (machine.folders.state, str(file)):
        before = sorted(os.listdir(tmp_path / "machine"))
        assert extract.main(["--import", str(file), f"--output-dir={place}"]) == UsageError.exit_code
        assert "not empty; expected a new or empty folder" in capsys.readouterr().err
        assert sorted(os.listdir(tmp_path / "machine")) == before
    assert extract.main(["--import", f"{tmp_path}/none", f"--output-dir={tmp_path}/new"]) == 1
    assert capsys.readouterr().err == f"sysmon-extract: {tmp_path}/none: No such file or directory\n"


@pytest.mark.parametrize("form", ["csv", "json"])
def test_whatever_becomes_of_a_file_it_is_refused_or_read(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    whole = asked(capsys, machine.folders, "--raw", f"--format={form}").encode()
    chance = random.Random(16)
    file = tmp_path / "answer"
    for number in range(150):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(content))
            content[at : at + chance.randrange(3)] = chance.choice(NOISE)
        file.write_bytes(content)
        code = extract.main(["--import", str(file), f"--output-dir={tmp_path}/new{number}"])
        said = capsys.readouterr()
        assert code in {0, Error.exit_code}
        assert said.err.count("\n") == (code != 0), said.err
