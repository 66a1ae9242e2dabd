# SPDX-License-Identifier: Apache-2.0
"""Parts as processes of their own: what each knows of those before it, and the plan made on demand."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sysmond.daemon import part
from sysmond.daemon.on_demand import RunningParts
from sysmond.errors import UsageError
from sysmond.machine import control
from sysmond.machine.folders import Folders, become_owner
from sysmond.plan import plan
from tests.support.waiting import HANG_S, wait_until

ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="to be several users takes root")
STRANGER = 64004

SERVING = """
import json, os, socket, sys
from sysmond.daemon import on_demand
from sysmond.machine.folders import Folders
from sysmond.plan.settings import Settings
state, runtime, config = sys.argv[1:]
listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
listening.bind(f"{runtime}/daemon/control.new")
listening.listen(8)
os.rename(f"{runtime}/daemon/control.new", f"{runtime}/daemon/control")  # Who finds it can connect.
on_demand.serve(Settings(Folders(state, runtime), config=config), listening)
"""


@contextmanager
def on_demand(folders: Folders, config: Path) -> Iterator["subprocess.Popen[str]"]:
    """The program that makes the plan anew, with a socket as systemd would give it."""
    daemon = Path(folders.runtime, "daemon")
    daemon.mkdir()
    words = [sys.executable, "-P", "-c", SERVING, folders.state, folders.runtime, str(config)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until((daemon / "control").exists)
            yield process
        finally:
            process.kill()


def test_a_plan_is_made_on_demand_and_who_made_it_ends(folders: Folders, tmp_path: Path) -> None:
    config = tmp_path / "sysmond.yaml"
    config.write_text("probes: {memory: {interval: 7s}}\n")
    with on_demand(folders, config) as process:
        assert control.ask(f"{folders.runtime}/daemon", {"do": "reload"}, HANG_S) == {"ok": True}
        made = plan.read(f"{folders.runtime}/plan.json")
        assert {probe.interval_ns for probe in made.probes if probe.table == "memory"} == {7 * 10**9}
        config.write_text("probes: {memory: {interval: never}}\n")
        answer = control.ask(f"{folders.runtime}/daemon", {"do": "reload"}, HANG_S)
        assert "never" in str(answer["error"])
        assert plan.read(f"{folders.runtime}/plan.json") == made
        assert process.wait(HANG_S) == 0


def test_parts_that_run_are_known_by_what_they_left(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    for name, pid in (("sampler", os.getpid()), ("archiver", gone.pid)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pid").write_text(f"{pid}\n")
    assert dict(RunningParts(str(tmp_path))) == {"sampler": os.getpid()}


def test_a_part_that_is_none_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert part.main(["samplr"]) == UsageError.exit_code
    assert capfd.readouterr().err.startswith("sysmond: 'samplr' is not a part; expected one of sampler")


@ROOT_ALONE
def test_the_last_good_plan_is_not_taken_of_another_user(folders: Folders) -> None:
    last = Path(folders.state, "plan.json")
    plan.write(plan.Plan(()), str(last))
    assert part.plan_files(folders) == (f"{folders.runtime}/plan.json", str(last))
    os.chown(last, STRANGER, -1)
    assert part.plan_files(folders) == (f"{folders.runtime}/plan.json",)


BECOMING = """
import os, sys
from sysmond.machine.folders import become_owner
become_owner(sys.argv[1])
print(os.getresuid(), os.getresgid(), os.getgroups())
"""


@ROOT_ALONE
def test_root_becomes_the_user_whose_files_it_changes(tmp_path: Path) -> None:
    os.chown(tmp_path, STRANGER, STRANGER)
    words = [sys.executable, "-P", "-c", BECOMING, str(tmp_path)]
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=HANG_S).stdout
    assert said == f"{(STRANGER,) * 3} {(STRANGER,) * 3} {[STRANGER]}\n"


def test_nobody_becomes_another_for_what_is_not_there(tmp_path: Path) -> None:
    before = os.getresuid()
    become_owner(str(tmp_path / "nothing"))
    become_owner(str(tmp_path))
    assert os.getresuid() == before


@ROOT_ALONE
def test_folders_in_that_of_a_class_have_its_group_without_being_given_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sysmond.machine import folders as module  # noqa: PLC0415  its private function is replaced

    readers = 64005
    restricted = tmp_path / "restricted"
    restricted.mkdir()
    os.chown(restricted, -1, readers)
    restricted.chmod(0o2750)
    monkeypatch.setattr(module, "_group", lambda: readers)

    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    # As RestrictSUIDSGID= and a filter of system calls have it.
    monkeypatch.setattr(os, "fchown", forbidden)
    real = os.fchmod
    monkeypatch.setattr(os, "fchmod", lambda fd, mode: forbidden() if mode & stat.S_ISGID else real(fd, mode))
    module.create_stream(str(tmp_path), "restricted/process")
    status = (restricted / "process").stat()
    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (readers, 0o2750)
