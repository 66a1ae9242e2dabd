# SPDX-License-Identifier: Apache-2.0
"""Below's words become the line of sysmon-extract that means the same; what is lacking is named."""

import csv
import shlex
from collections.abc import Sequence

import pytest

from sysmon_tools import dump, extract, sysmon
from sysmond.base import elsewhere
from sysmond.base.clock import SECOND_NS
from sysmond.errors import UsageError
from sysmond.machine.folders import Folders
from tests.support.stall import STALL_NS, stuck
from tests.support.usage import one_line

BEGIN, END = f"@{STALL_NS // SECOND_NS - 20}", f"@{STALL_NS // SECOND_NS + 20}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return stuck(tmp_path_factory.mktemp("stall"), "")


def run(folders: Folders, *words: str) -> int:
    return sysmon.main(["dump", *words, "--state-dir", folders.state, "--runtime-dir", folders.runtime])


def test_processes_are_dumped_as_below_would(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["process", "-b", BEGIN, "-e", END, "-f", "comm", "pid", "io.wbytes_per_sec", "-s", "io.wbytes_per_sec"]
    assert run(folders, *asked, "--top", "1", "-O", "csv") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert len(lines) > 5
    assert {row["comm"] for row in csv.DictReader(lines)} == {"updatedb"}


def test_a_filter_is_about_the_selected_field(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "process", "-b", BEGIN, "-e", END, "-f", "comm", "-s", "comm", "-F", "^cal", "-O", "csv") == 0
    out = capsys.readouterr().out
    assert "calm" in out
    assert "updatedb" not in out


def test_what_is_shown_is_a_line_that_runs(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "system", "-b", BEGIN, "-e", END, "-f", "mem.total", "vm.pgpgin_per_sec", "--show") == 0
    printed = capsys.readouterr()
    assert "which below has in KiB/s" in printed.err
    line = shlex.split(printed.out)
    assert line[:3] == ["sysmon-extract", "memory/total", "vm/pgpgin"]
    assert extract.main([word for word in line[1:] if word != "vm/pgpgin"]) == 0


@pytest.mark.parametrize("category", dump.CATEGORIES)
def test_every_field_is_a_path_or_a_column_or_is_refused_by_name(category: str) -> None:
    program, _ = dump.CATEGORIES[category]
    fields = [name.name for name in elsewhere.every() if name.program == program and "*" not in name.name]
    refused = [name for name in fields if said(category, name)]
    assert len(refused) < len(fields) / 2
    assert all("not in the rows of" in said(category, name) and repr(name) in said(category, name) for name in refused)


def said(category: str, field: str) -> str:
    """Why a field is refused; nothing where it is not."""
    try:
        words, _ = dump.words(sysmon.parser().parse_args(["dump", category, "-b", "-1h", "-f", field]))
    except UsageError as refusal:
        return str(refusal)
    return "" if words else "nothing became of it"


def test_what_is_shown_by_default_can_be_shown() -> None:
    made = sysmon.parser()
    for category in dump.CATEGORIES:
        assert dump.words(made.parse_args(["dump", category, "-b", "-1h"]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["process"], "--begin"),
        (["tc", "-b", "-1h"], "tc"),
        (["process", "-b", "-1h", "-f", "cpu.usage"], "field 'cpu.usage': below has no such field"),
        (["process", "-b", "-1h", "--top", "3"], "expected --select FIELD"),
        (["system", "-b", "-1h", "-s", "hostname"], "has no rows"),
        (["process", "-b", "-1h", "-s", "comm", "-F", "'\""], "at most one kind of quotation mark"),
    ],
)
def test_wrong_usage_is_one_line(
    folders: Folders, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert run(folders, *words) == UsageError.exit_code
    assert said in one_line(capsys)
