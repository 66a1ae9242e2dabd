# SPDX-License-Identifier: Apache-2.0
"""What changed between two moments: packages, boots and settings, each with when, and nothing that did not."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from sysmond_probes.host import HOST
from sysmond_probes.setting import SETTING

from sysmon_tools import sysmon
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.errors import UsageError
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from tests.support.longarchive import BOOT, BOOTED_NS, relation
from tests.support.usage import one_line

FIRST_S, SECONDS = 100, 1200
CHANGED_S = 700
START_S = BOOTED_NS // SECOND_NS + FIRST_S
DETAIL = "installed: new:amd64 1.0; upgraded: libc6:amd64 2.36 → 2.37, a:all 1 → 2; removed: old:amd64 3"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Twenty minutes in which the host was called something else, after packages had changed."""
    base = tmp_path_factory.mktemp("changes")
    made = Folders(str(base / "state"), str(base / "run"))
    (base / "state").mkdir()
    folder = Path(made.runtime, "sampler/public")
    folder.mkdir(parents=True)
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, FIRST_S * SECOND_NS)
    writer = RingWriter(str(folder / f"{FIRST_S * SECOND_NS}.ring"), 1 << 20, identity, [Layout(HOST, SECOND_NS)])
    writer.clock(relation(FIRST_S * SECOND_NS))
    for second in range(0, SECONDS, 10):
        texts = {"hostname": "old" if second < CHANGED_S else "new\x1b[2J", "kernel": "6.12.9"}
        values = [writer.text(texts.get(metric.name, "")) if metric.is_text else 0 for metric in HOST.metrics]
        writer.rows(0, (FIRST_S + second) * SECOND_NS, ("",), values)
    at_ns = (FIRST_S + 300) * SECOND_NS
    writer.event(at_ns, "packages", "", "installed new:amd64 1.0 and 3 more", detail=DETAIL)
    writer.event(at_ns + SECOND_NS, "device added", "block/sdb", "")
    for second, text in ((1250, "60 → 10"), (1260, "10 → 60")):
        writer.event((FIRST_S + second) * SECOND_NS, "setting", "vm.swappiness", text)
    writer.event((FIRST_S + 1270) * SECOND_NS, "setting", "", "hostname: new\x1b[2J → old")
    writer.event((FIRST_S + 1280) * SECOND_NS, "setting", "kernel", "6.12.8 → 6.12.9", detail="since the boot before")
    writer.event((FIRST_S + 1290) * SECOND_NS, "setting", "", "of no form")
    writer.event((FIRST_S + 1320) * SECOND_NS, "unit files", "ssh.service", "edited in /etc/systemd/system")
    detail = "added: /usr/lib/systemd/system/a.service; removed: /run/systemd/system/b.timer"
    writer.event((FIRST_S + 1330) * SECOND_NS, "unit files", "", "added a.service; removed b.timer", detail=detail)
    writer.close(is_over=False)
    return made


def run(folders: Folders, *words: str, start_s: int = 0, end_s: int = SECONDS) -> int:
    where = ["--state-dir", folders.state, "--runtime-dir", folders.runtime]
    return sysmon.main(["changes", *where, f"--from=@{START_S + start_s}", f"--to=@{START_S + end_s}", *words])


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_unit_files_are_told_as_a_run_or_one_by_one(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "--format=csv", start_s=1310, end_s=1340) == 0
    shown = [(row["what"], row["before"], row["after"]) for row in told(capsys)]
    assert shown == [
        ("unit files", "ssh.service", "edited in /etc/systemd/system"),
        ("unit files", "", "added a.service; removed b.timer"),
    ]
    assert run(folders, "--format=csv", "--packages", start_s=1310, end_s=1340) == 0
    assert [(row["what"], row["after"]) for row in told(capsys)] == [
        ("edited ssh.service", "/etc/systemd/system"),
        ("added a.service", "/usr/lib/systemd/system"),
        ("removed b.timer", "/run/systemd/system"),
    ]


def test_packages_and_settings_are_told_in_order_with_when(
    folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folders, "--format=json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["what"] for row in rows] == ["packages", "host/hostname"]
    assert (rows[1]["before"], rows[1]["after"]) == ("old", "new\x1b[2J")
    assert rows[0]["after"] == "installed new:amd64 1.0 and 3 more"
    assert rows[1]["time"] > rows[0]["time"]


def test_when_a_setting_changed_is_found_to_a_step(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "--format=json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert run(folders, "--format=json", start_s=CHANGED_S - 20, end_s=CHANGED_S + 20) == 0
    (closer,) = json.loads(capsys.readouterr().out)
    assert rows[1]["time"][:16] == closer["time"][:16]


def test_each_package_has_a_line_where_that_is_wanted(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "--packages") == 0
    rows = [(row["what"], row["before"], row["after"]) for row in told(capsys) if "host" not in row["what"]]
    assert rows == [
        ("installed new:amd64", "", "1.0"),
        ("removed old:amd64", "3", ""),
        ("upgraded a:all", "1", "2"),
        ("upgraded libc6:amd64", "2.36", "2.37"),
    ]


def test_devices_are_told_where_all_is_wanted(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, "--all") == 0
    assert "device added" in [row["what"] for row in told(capsys)]


def test_no_terminal_is_told_what_it_would_obey(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_what_changed_and_was_changed_back_is_told_by_its_events(
    folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folders, start_s=SECONDS + 10, end_s=SECONDS + 100) == 0
    assert [(row["what"], row["before"], row["after"]) for row in told(capsys)] == [
        ("setting/value@vm.swappiness", "60", "10"),
        ("setting/value@vm.swappiness", "10", "60"),
        ("host/hostname", "new\\x1b[2J", "old"),
        ("host/kernel", "6.12.8", "6.12.9"),
    ]


def test_what_events_tell_is_not_told_again_by_both_ends(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    """The name changed by its rows within the range, and by an event after them."""
    assert run(folders, start_s=CHANGED_S - 20, end_s=SECONDS + 100) == 0
    assert [row["what"] for row in told(capsys)].count("host/hostname") == 1


@pytest.mark.parametrize(
    ("names", "paths"),
    [(("vm.swappiness",), ["setting/value@vm.swappiness"]), (tuple("abcdefgh"), ["setting/value@*"])],
)
def test_a_setting_that_is_another_after_a_boot_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], paths: list[str]
) -> None:
    made = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    Path(made.state).mkdir()
    folder = Path(made.runtime, "background/public")
    folder.mkdir(parents=True)
    for boot, value, booted_ns in (("a", "60", BOOTED_NS), ("b", "10", BOOTED_NS + 7200 * SECOND_NS)):
        identity = Identity(boot * 32, "background", Sensitivity.PUBLIC, 1, FIRST_S * SECOND_NS)
        writer = RingWriter(str(folder / f"{boot}.ring"), 1 << 20, identity, [Layout(SETTING, 60 * SECOND_NS)])
        writer.clock(relation(FIRST_S * SECOND_NS, booted_ns))
        for second in range(0, SECONDS, 60):
            writer.rows(0, (FIRST_S + second) * SECOND_NS, names, [writer.text(value)] * len(names))
        writer.close(is_over=False)
    assert run(made, end_s=3 * 7200) == 0
    rows = [(row["what"], row["before"], row["after"]) for row in told(capsys)]
    assert [row for row in rows if row[0] != "boot"] == [(path, "60", "10") for path in paths]
    assert [what for what, _, _ in rows].count("boot") == 1


def test_where_nothing_changed_nothing_is_told(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folders, start_s=0, end_s=200) == 0
    assert told(capsys) == []
    assert run(folders, start_s=CHANGED_S + 100) == 0
    assert told(capsys) == []


def test_what_was_before_the_first_moment_counts(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    """The first value within the range is the new one already."""
    assert run(folders, start_s=CHANGED_S) == 0
    assert [row["what"] for row in told(capsys)] == ["host/hostname"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--format=xml"], "--format 'xml'"), (["--to=-99y"], "before it begins"), (["--since=soon"], "soon")],
)
def test_wrong_usage_is_one_line(
    folders: Folders, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert run(folders, *words) == UsageError.exit_code
    assert said in one_line(capsys)
