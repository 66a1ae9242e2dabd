# SPDX-License-Identifier: Apache-2.0
"""A report: one page that says who it was, loads nothing, runs nothing, and tells no more than it may."""

import re
import shutil
import stat
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from sysmon_tools import sysmon
from sysmond.base.clock import SECOND_NS
from sysmond.errors import UsageError
from sysmond.machine.folders import Folders
from tests.support.stall import STALL_NS, stuck
from tests.support.usage import one_line

HOSTILE = "\x1b]0;owned\x07</td></svg><script>document.title='owned'</script>"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
AT = f"--at=@{STALL_NS // SECOND_NS}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return stuck(tmp_path_factory.mktemp("stall"), HOSTILE)


def run(folders: Folders, *words: str) -> int:
    return sysmon.main(["report", "--state-dir", folders.state, "--runtime-dir", folders.runtime, *words])


class Page:
    """The tags of a page, its attributes, and its text; it is well-formed as XML, too."""

    def __init__(self, content: str) -> None:
        root = ET.fromstring(content)  # noqa: S314  it is ours
        self.tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        self.attributes = [pair for element in root.iter() for pair in element.attrib.items()]
        self.text = "".join(root.itertext())


def test_it_says_who_it_was_and_shows_it(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "incident.html"
    assert run(folders, AT, "-o", str(file)) == 0
    page = Page(file.read_text())
    by_disk = page.text.partition("Who used the disks most")[2]
    assert by_disk.index("updatedb") < by_disk.index("disk/utilization@sda")
    assert {"svg", "table", "polyline"} <= page.tags
    said = capsys.readouterr().out
    assert said.startswith(f"{file}: ")
    assert "CPU, Memory, Disks" in said
    assert said.endswith("It names programs, users and devices.\n")


def test_it_loads_nothing_and_runs_nothing(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "incident.html"
    assert run(folders, AT, "--restricted", "-o", str(file)) == 0
    content = file.read_text()
    page = Page(content)
    assert "owned" in page.text
    assert not page.tags & {"script", "link", "img", "iframe", "object", "a", "image", "use"}
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in {"src", "href", "xlink:href"}]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", content)
    assert "\x1b" not in content
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_what_not_everybody_may_read_is_there_only_where_it_is_asked_for(folders: Folders, tmp_path: Path) -> None:
    public, restricted = tmp_path / "public.html", tmp_path / "restricted.html"
    assert run(folders, AT, "-o", str(public)) == 0
    assert run(folders, AT, "--restricted", "-o", str(restricted)) == 0
    assert "jbd2_log_wait" not in public.read_text()
    assert "jbd2_log_wait" in restricted.read_text()
    assert not stat.S_IMODE(restricted.stat().st_mode) & 0o077


def test_where_nothing_is_recorded_the_nearest_moment_is_shown_and_said(
    folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "incident.html"
    assert run(folders, "--at=2001-01-01", "-o", str(file)) == 0
    assert "this is the nearest moment" in capsys.readouterr().out
    assert "Nothing is recorded at 2001-01-01" in Page(file.read_text()).text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((AT, "-o", "a.pdf"), "a.pdf: a report is a page for a browser"),
        ((AT,), "--output-file"),
        (("-o", "a.html"), "--at"),
        (("--at=soon", "-o", "a.html"), "soon"),
        ((AT, "--around=long", "-o", "a.html"), "long"),
    ],
)
def test_wrong_usage_is_one_line(
    folders: Folders, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert run(folders, *words) == UsageError.exit_code
    assert said in one_line(capsys)


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_a_browser_shows_it_and_obeys_no_name_in_it(folders: Folders, tmp_path: Path) -> None:
    file = tmp_path / "incident.html"
    assert run(folders, AT, "--restricted", "-o", str(file)) == 0
    where = [f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=2000"]
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", *where, file.as_uri()]
    shown = subprocess.run(command, check=True, capture_output=True, timeout=120).stdout.decode()
    assert "<title>owned</title>" not in shown
    assert "updatedb" in shown
