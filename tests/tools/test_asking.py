# SPDX-License-Identifier: Apache-2.0
"""The guides to asking, and to what processes did: each command line in them is answered by a real recorder."""

import os
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from sysmon_tools import ctl
from sysmond.errors import EXIT_PARTIAL
from sysmond.history import Archive
from tests.support.whole import Recorder, a_recorder

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def lines_of(guide: str) -> list[str]:
    """The command lines of a guide."""
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / guide).read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


LINES = lines_of("asking.md")
OF_TASKS = lines_of("tasks.md")
# What the guide names, and there is only where it was written: a process, and when it lived.
LIVES = {"--pid=4711": f"--pid={os.getpid()}", "--at=14:32": "--at=-1s"}
LIVES |= {f"process/{column}@4711": f"process/{column}@{os.getpid()}" for column in ("cpu", "rss", "username")}
LIVED = {"--start=09:15:02", "--from=09:00", "--to=10:00"}


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        # Also where no BPF programs can run: the guide asks for waits.
        made.config.write_text("probes:\n  thread_state:\n    options:\n      by_proc: true\n")
        made.start()
        for table in ("process", "thread_state", "cpu", "filesystem"):
            made.wait_for(table, "count > 0", "count", step="1s")
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("answers")


def test_the_guide_has_examples_of_each_kind() -> None:
    assert len(LINES) > 15
    for word in ("--records", "--where", "--top", "--sql", "--explain", "--state-dir"):
        assert any(word in line for line in LINES), word


@pytest.mark.parametrize("line", LINES)
def test_every_command_line_of_the_guide_is_answered(
    recorder: Recorder, folder: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    program, *words = [LIVES.get(word, word) for word in shlex.split(line)]
    assert program == "sysmon-extract"
    if "--sql" in line and find_spec("duckdb") is None:
        pytest.skip("DuckDB is optional")
    if any(word.startswith("--state-dir") for word in words):
        # What the example before it has written.
        done = recorder.extract("cpu", "--sample=1min", "--output-file=hour.h5")
        assert done.code == 0
        done = recorder.extract_from(*words)
    else:
        done = recorder.extract(*words)
    assert done.code in {0, EXIT_PARTIAL}, done.err
    assert done.out or any(word.startswith("--output-file") for word in words)


@pytest.mark.parametrize("is_raw", [False, True])
def test_every_column_of_every_table_says_how_it_came_about(recorder: Recorder, *, is_raw: bool) -> None:
    archive = Archive(recorder.folders)
    tables = {entry.path.partition("/")[0] for entry in archive.catalogue()}
    tables |= {entry.path for entry in archive.long_tables()}
    assert {"cpu", "process", "event"} < tables
    for table in sorted(tables):
        labels = [label for label, _, _ in archive.columns(table) if ":" not in label]
        if is_raw:
            # What is stored of a process has neither what follows from it nor how it ended.
            labels = [column.path for column in archive.records(table, raw=True).columns]
        rows = archive.records(table, columns=labels, raw=is_raw, explain=True)
        assert [column.path for column in rows.explanations] == [f"{table}/{label}" for label in labels]
        for column in rows.explanations:
            assert column.origin, column
            assert column.formula not in {"", "nothing"}, column
            assert column.resampling, column
            assert column.answered, column


@pytest.mark.parametrize("is_raw", [False, True])
def test_every_series_says_how_it_came_about(recorder: Recorder, *, is_raw: bool) -> None:
    archive = Archive(recorder.folders)
    paths = [entry.path for entry in archive.catalogue(derived=True)]
    found = archive.select(*paths, raw=is_raw, explain=True)
    assert [column.path for column in found.explanations] == [column.path for column in found.columns]
    for column in found.explanations:
        assert column.origin, column
        assert column.formula not in {"", "nothing"}, column
        assert column.answered, column


def test_the_guide_to_processes_says_only_what_is_their_own() -> None:
    assert len(OF_TASKS) > 15
    assert not set(OF_TASKS) & set(LINES)
    for word in ("--tree", "--pid", "thread_state", "exits"):
        assert any(word in line for line in OF_TASKS), word


@pytest.mark.parametrize("line", OF_TASKS)
def test_every_command_line_about_processes_is_answered(recorder: Recorder, line: str) -> None:
    program, *words = shlex.split(line)
    if program == "sysmonctl":
        ctl.parser().parse_args(words)
        return
    assert program == "sysmon-extract"
    if "--sql" in line and find_spec("duckdb") is None:
        pytest.skip("DuckDB is optional")
    done = recorder.extract(*(LIVES.get(word, word) for word in words if word not in LIVED))
    assert done.code in {0, EXIT_PARTIAL}, done.err
    assert done.out
