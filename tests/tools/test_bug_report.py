# SPDX-License-Identifier: Apache-2.0
"""A bundle for a bug report, made of a real recorder in which private strings are planted: none of them is in it."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sysmon_tools.bug_report import OWN_EVENTS, PARTS, ROOT_NAME
from sysmond.base.event_kinds import KINDS, PEOPLE
from tests.support.onbus import Recorder, a_bus, a_recorder, busctl
from tests.support.waiting import HANG_S, wait_until

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")
PROGRAM = [sys.executable, "-P", "-m", "sysmon_tools.ctl"]
# In an option of a restricted probe, a mark, a plugin that is refused, the journal.
OPTION, MARKED, PLUGIN, CITED, LOGGED = "plantedoption", "plantedmark", "plantedplugin", "plantedcite", "plantedlog"
HOST_ADDRESS, NETWORK_ADDRESS, HOME = "198.51.100.23", "52:54:00:ab:cd:ef", "/home/plantedhome"
JOURNAL = f"""#!/bin/sh
cat <<'END'
2026-11-24T10:00:00+00:00 systemd[1]: Started sysmond-sampler.service - sysmond: sampler.
2026-11-24T10:00:01+00:00 python3[7]: sysmond: {HOME}/x.py: refused by {HOST_ADDRESS}, {NETWORK_ADDRESS}
2026-11-24T10:00:02+00:00 python3[7]: sysmond: command: {LOGGED} could not be read
2026-11-24T10:00:03+00:00 python3[7]: ValueError: no number: '{CITED}'
2026-11-24T10:00:04+00:00 python3[7]: sysmond: $(uname -n) is $(id -un)
END
uname -n
"""


class Scene(NamedTuple):
    """``programs``: a folder with a journalctl that says what is planted."""

    recorder: Recorder
    programs: Path


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    programs = tmp_path_factory.mktemp("programs")
    (programs / "journalctl").write_text(JOURNAL)
    (programs / "journalctl").chmod(0o755)
    with a_bus() as bus, a_recorder(bus, starts=False, is_small=True) as recorder:
        with recorder.configuration.open("a") as file:
            file.write(f"  gps: {{options: {{device: /dev/{OPTION}}}}}\n")
        plugins = recorder.folder / "config/sysmond/probes"
        plugins.mkdir(parents=True)
        (plugins / f"{PLUGIN}.py").write_text(f"raise ValueError('{CITED}')\n")
        recorder.start()
        wait_until(lambda: "load/tasks" in ctl(recorder, "list", "metrics").stdout, recorder.said)
        assert ctl(recorder, "mark", MARKED).returncode == 0
        yield Scene(recorder, programs)


def ctl(recorder: Recorder, *words: str, path: str = "") -> "subprocess.CompletedProcess[str]":
    command = [*PROGRAM, "--bus", recorder.bus.address, "--user", *words]
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, env=environment)


def unpacked(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as packed:
        for member in packed.getmembers():
            assert (member.uname, member.gname, member.uid, member.mode) == ("", "", 0, 0o600)
            assert member.isfile()
        # Nothing is put on the disk: the filters for that are younger than Debian 12's Python 3.11.2.
        parts = {member.name: packed.extractfile(member) for member in packed.getmembers() if member.isfile()}
        return {
            name.removeprefix(f"{ROOT_NAME}/"): part.read().decode() for name, part in parts.items() if part is not None
        }


def test_what_would_be_in_it_is_listed_and_nothing_is_written(scene: Scene, tmp_path: Path) -> None:
    done = ctl(scene.recorder, "report-bug", path=str(scene.programs))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()[1 : len(PARTS) + 1]] == [part.name for part in PARTS]
    assert "Nothing has been written yet" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_nothing_private_is_in_it_and_what_helps_is(scene: Scene, tmp_path: Path) -> None:
    bundle = tmp_path / "report.tar.gz"
    done = ctl(scene.recorder, "report-bug", "-o", str(bundle), "--json", path=str(scene.programs))
    assert (done.returncode, done.stderr) == (0, "")
    files = unpacked(bundle)
    said = json.loads(done.stdout)["files"]
    assert {row["name"]: row["bytes"] for row in said} == {name: len(text.encode()) for name, text in files.items()}
    planted = (OPTION, MARKED, CITED, LOGGED, HOST_ADDRESS, NETWORK_ADDRESS, HOME, os.uname().nodename)
    found = [(name, string) for name, text in files.items() for string in planted if string in text]
    assert found == []
    # The strings are where they would have come from.
    assert OPTION in ctl(scene.recorder, "config").stdout
    assert MARKED in ctl(scene.recorder, "events").stdout
    assert all("missing" not in json.loads(text) for name, text in files.items() if name.endswith(".json"))
    assert json.loads(files["versions.json"])["kernel"]["release"] == os.uname().release
    assert json.loads(files["status.json"])["state"] == "running"
    settings = {row["key"]: row["value"] for row in json.loads(files["configuration.json"])}
    assert settings["probes.gps.options.device"] == "<masked>"
    assert settings["probes.cgroup.enabled"] == "false"
    assert "start" in {event["kind"] for event in json.loads(files["events.json"])}
    assert {"sampler", "background"} <= json.loads(files["overhead.json"]).keys()
    plan = json.loads(files["plan.json"])
    assert [refused["reason"] for refused in plan["refused"] if PLUGIN in refused["plugin"]]
    assert {"load", "process"} <= {probe["table"] for probe in plan["probes"]}
    assert "load" in {finding["source"] for finding in json.loads(files["doctor.json"])}
    begins, *_ = files["journal.txt"].splitlines()
    assert begins == "2026-11-24T10:00:00+00:00 systemd[1]: Started sysmond-sampler.service - sysmond: sampler."
    assert files["journal.txt"].count("<a line about a restricted table>") == 1


def test_a_file_that_is_there_stays(scene: Scene, tmp_path: Path) -> None:
    there, target = tmp_path / "report.tar.gz", tmp_path / "target"
    there.write_text("mine")
    (tmp_path / "link").symlink_to(target)
    for path in (there, tmp_path / "link"):
        done = ctl(scene.recorder, "report-bug", "--output-file", str(path))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"sysmonctl: {path}: already exists; expected the name of a new file\n"
    assert there.read_text() == "mine"
    assert not target.exists()


def test_it_is_its_owners(scene: Scene, tmp_path: Path) -> None:
    assert ctl(scene.recorder, "report-bug", "-o", str(tmp_path / "report")).returncode == 0
    assert (tmp_path / "report").stat().st_mode & 0o777 == 0o600


def test_a_gap_is_in_it_with_its_cause(scene: Scene, tmp_path: Path) -> None:
    assert scene.recorder.end() == 0
    time.sleep(2.5)  # Ticks of the table come each second.
    scene.recorder.start()
    causes: set[str] = set()
    attempts = iter(range(1000))

    def is_told() -> bool:
        bundle = tmp_path / f"report{next(attempts)}"
        assert ctl(scene.recorder, "report-bug", "-o", str(bundle)).returncode == 0
        gaps = json.loads(unpacked(bundle)["gaps.json"])
        causes.update(gap["cause"] for of_table in gaps.values() if isinstance(of_table, list) for gap in of_table)
        return "clean shutdown" in causes

    wait_until(is_told, scene.recorder.said)


def test_where_nobody_answers_the_rest_is_in_it(tmp_path: Path) -> None:
    with a_bus() as bus:
        assert busctl(bus, "list").returncode == 0
        command = [*PROGRAM, "--bus", bus.address, "--user", "report-bug", "-o", str(tmp_path / "report")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    files = unpacked(tmp_path / "report")
    assert "no sysmond there" in json.loads(files["status.json"])["missing"]
    assert json.loads(files["versions.json"])["sysmond"]


def test_only_what_happened_to_sysmond_itself_is_in_it() -> None:
    """Kernel messages, mounts, packages and the like name programs, people's files and networks."""
    of_machine = {name for name, kind in KINDS.items() if kind.seen or PEOPLE in kind.owners}
    assert {"kernel message", "crash", "mounted", "packages", "setting", "device added", "mark"} <= of_machine
    assert KINDS.keys() - of_machine == OWN_EVENTS
    assert {"start", "stop", "died", "quarantine"} <= OWN_EVENTS
