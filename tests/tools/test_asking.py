# SPDX-License-Identifier: Apache-2.0
"""The guide to asking: every command line in it is answered by a real recorder of this machine."""

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from sysmond.errors import EXIT_PARTIAL
from tests.support.whole import Recorder, a_recorder

GUIDE = (Path(__file__).resolve().parent.parent.parent / "docs/asking.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
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
    program, *words = shlex.split(line)
    assert program == "sysmon-extract"
    if "--sql" in line and find_spec("duckdb") is None:
        pytest.skip("DuckDB is optional")
    if any(word.startswith("--state-dir") for word in words):
        # What the example before it has written.
        done = recorder.extract("cpu", "--sample=1min", "--output-file=hour.h5")
        assert (done.code, done.err) == (0, "")
        done = recorder.extract_from(*words)
    else:
        done = recorder.extract(*words)
    assert done.code in {0, EXIT_PARTIAL}, done.err
    assert done.out or any(word.startswith("--output-file") for word in words)
