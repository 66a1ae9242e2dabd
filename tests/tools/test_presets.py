# SPDX-License-Identifier: Apache-2.0
"""Presets: each of their paths is recorded or derived, and the guide lists them."""

import re
from pathlib import Path

import pytest

from sysmon_tools import extract, presets
from sysmond.errors import UsageError

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def documented() -> set[str]:
    """Every column of every table, recorded or derived: ``cpu/busy``."""
    columns, table = set(), ""
    for line in (DOCS / "metrics.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            table = line.removeprefix("## ").split()[0]
            columns.add(table)
        elif match := re.match(r"\| `([a-z0-9_]+)`", line):
            columns.add(f"{table}/{match[1]}")
    return columns


@pytest.mark.parametrize("name", presets.PRESETS)
def test_all_that_a_preset_names_is_there(name: str) -> None:
    columns = documented()
    assert "cpu/busy" in columns
    for path in presets.PRESETS[name].paths:
        assert path.partition("@")[0] in columns


def test_presets_go_together_and_with_paths() -> None:
    options = extract.read_arguments(["cpu/user@cpu0", "--preset=load, swap", "--preset=load,swap", "--from=-1h"])
    assert options.paths == ["cpu/user@cpu0", *presets.PRESETS["load"].paths, *presets.PRESETS["swap"].paths]


def test_one_that_is_not_there_is_refused_with_all_that_are() -> None:
    with pytest.raises(
        UsageError, match="there is no preset 'memry'; did you mean memory\\? \\(expected cpu, cpus, memory"
    ):
        presets.paths(["cpu", "memry"])


def test_the_list_is_that_of_the_guide(capsys: pytest.CaptureFixture[str]) -> None:
    assert extract.main(["--preset=list"]) == 0
    listed = capsys.readouterr().out
    assert listed.splitlines() == presets.lines()
    assert f"```\n{listed}```\n" in (DOCS / "asking.md").read_text(encoding="utf-8")
