# SPDX-License-Identifier: Apache-2.0
"""What Prometheus makes of an archive: its own tool reads what is written for it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sysmon_tools import extract
from sysmond.machine.folders import Folders
from tests.support.stall import stuck

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: apt-get install prometheus")
HOSTILE = 'a\\b"c\n\x1b[2J'


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return stuck(tmp_path_factory.mktemp("stall"), HOSTILE)


def promtool(*words: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(PROMTOOL), *words], input=content, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("options", [[], ["--sample=1min"], ["--sample=1min", "--stat=min,max"]])
def test_what_was_recorded_becomes_blocks(folders: Folders, tmp_path: Path, options: list[str]) -> None:
    file = tmp_path / "a.prom"
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    assert extract.main([*where, *options, f"--output-file={file}"]) == 0
    done = promtool("tsdb", "create-blocks-from", "openmetrics", str(file), str(tmp_path / "blocks"))
    assert done.returncode == 0, done.stderr.decode()
    assert list((tmp_path / "blocks").iterdir())


def test_the_newest_values_are_what_the_textfile_collector_reads(
    folders: Folders, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime, "--from=2000-01-01"]
    assert extract.main([*where, "--format=openmetrics", "--no-timestamps"]) == 0
    written = capsysbinary.readouterr().out
    assert b'sysmond_disk_written_bytes_total{device="sda"} ' in written
    done = promtool("check", "metrics", content=written)
    # 3: it has another taste in names; 1: it cannot read that.
    assert done.returncode in {0, 3}, done.stderr.decode()
    assert b"error while linting" not in done.stderr
