# SPDX-License-Identifier: Apache-2.0
"""Where BPF programs are pinned: in a file system of our own, or beside folders that anybody may have made.

A loader without CAP_SYS_ADMIN may not mount: it pins in the file system of the machine, where strangers lay traps.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from sysmond.errors import NotPermittedError
from sysmond.machine.mounts import mounts
from sysmond.tasks.bpf import bpffs
from sysmond.tasks.bpf.loader import LoadRequest, load, unload
from tests.support.pinned import file_system, loaded, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF programs run here")
STRANGER = 65533
GROUP = 65534
LOAD = "from sysmond.tasks.bpf.loader import LoadRequest, load\nload(LoadRequest(sys.argv[1], machine=sys.argv[2]))"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[str]:
    """The file system of a machine, in which anybody may make folders: so the kernel mounts it."""
    with file_system(tmp_path / "machine") as mounted:
        assert stat.S_IMODE(os.stat(mounted).st_mode) == 0o1777
        yield mounted


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A runtime folder."""
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def load_without_mounting(home: Path, machine: str, program: str = LOAD) -> dict[str, Any]:
    """Run a loader that may not mount; what it reports."""
    command = ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-P", "-c", f"import sys\n{program}"]
    subprocess.run([*command, str(home), machine], check=True)
    report: dict[str, Any] = json.loads((home / "bpf.json").read_bytes())
    return report


def refusals(report: dict[str, Any]) -> set[str]:
    return {each.get("refused", "") for each in report["programs"].values()}


def mounts_at(path: Path) -> int:
    return sum(each.point == str(path) for each in mounts())


def give_to_stranger(folder: Path) -> None:
    """Make a folder and what is in it a stranger's."""
    for path in (folder, *folder.iterdir()):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def options(path: Path) -> set[str]:
    """With which options a file system is mounted."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    (found,) = (line.split()[5] for line in lines if line.split()[4] == str(path))
    return set(found.split(","))


def test_pins_lie_in_a_file_system_of_our_own_that_nobody_else_enters(home: Path) -> None:
    with loaded(home) as report:
        assert refusals(report) == {""}
        assert report["folder"] == f"{home}/bpf"
        assert {"nosuid", "nodev", "noexec"} <= options(home / "bpf")
        assert stat.S_IMODE(os.stat(home / "bpf").st_mode) == 0o700
        assert all(path.stat().st_mode & 0o077 == 0 for path in (home / "bpf").iterdir() if not path.is_dir())
        load(LoadRequest(str(home), gid=GROUP))
        status = os.stat(home / "bpf")
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, GROUP, 0o750)
        load(LoadRequest(str(home)))
        assert stat.S_IMODE(os.stat(home / "bpf").st_mode) == 0o700
        assert mounts_at(home / "bpf") == 1
    assert mounts_at(home / "bpf") == 0
    assert list(home.iterdir()) == []


def test_what_a_killed_loader_left_is_taken_over(home: Path) -> None:
    with loaded(home):
        (home / "bpf.json").unlink()
        (home / "bpf/tasks-00000000").mkdir()
        (home / "bpf/snapshot").unlink()
        assert refusals(load(LoadRequest(str(home)))) == {""}
        assert {"snapshot", "ended"} <= set(os.listdir(home / "bpf"))
        assert "tasks-00000000" not in os.listdir(home / "bpf")


def test_nothing_stays_of_an_earlier_loader_where_nothing_can_be_loaded(home: Path, tmp_path: Path) -> None:
    with loaded(home):
        report = load(LoadRequest(str(home), objects=str(tmp_path)))
        assert all("built without clang" in why for why in refusals(report))
        assert [name for name in os.listdir(home / "bpf") if not name.endswith(".debug")] == []


def test_a_folder_of_somebody_else_is_not_mounted_on(home: Path) -> None:
    (home / "bpf").mkdir()
    os.chown(home / "bpf", STRANGER, STRANGER)
    (why,) = refusals(load(LoadRequest(str(home))))
    assert why == f"{home}/bpf: mode 0755 of user {STRANGER}; expected mode 0700 of user 0"
    shutil.rmtree(home / "bpf")
    (home / "bpf").symlink_to("/tmp")
    (why,) = refusals(load(LoadRequest(str(home))))
    assert why.startswith(f"{home}/bpf: ")


def test_a_runtime_folder_that_somebody_else_could_swap_is_refused(home: Path) -> None:
    os.chown(home, STRANGER, STRANGER)
    for does in (lambda: load(LoadRequest(str(home))), lambda: unload(str(home))):
        with pytest.raises(NotPermittedError, match=f"belongs to uid {STRANGER}"):
            does()
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("may_mount", [True, False])
def test_a_strangers_folder_of_the_name_that_was_ours_denies_nothing(
    home: Path, machine: str, *, may_mount: bool
) -> None:
    """The name once followed from the path of the runtime folder, which everybody knows."""
    theirs = Path(machine, f"sysmond-{crc32(bytes(home.resolve())):08x}")
    theirs.mkdir()
    give_to_stranger(theirs)
    report = load(LoadRequest(str(home), machine=machine)) if may_mount else load_without_mounting(home, machine)
    assert refusals(report) == {""}
    assert list(theirs.iterdir()) == []
    unload(str(home), machine)


# What a stranger does while root lists his folder: put a link to another one in its place.
SWAPPING = """
import os
real = os.listdir
def swapping(path):
    names = real(path)
    if "shadow" in names and os.path.isdir(trap) and not os.path.islink(trap):
        os.rename(trap, trap + "-aside")
        os.symlink(victim, trap)
    return names
os.listdir = swapping
"""


@pytest.mark.parametrize("may_mount", [True, False])
def test_a_stranger_cannot_lead_the_loader_to_files_of_others(
    home: Path, machine: str, tmp_path: Path, *, may_mount: bool
) -> None:
    """In a folder called as ours are, with a link that says that its runtime folder is gone."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "shadow").write_text("root's")
    trap = Path(machine, "sysmond-00000000")
    trap.mkdir()
    (trap / "runtime").symlink_to("/nowhere")
    (trap / "shadow").symlink_to("/nowhere")
    give_to_stranger(trap)
    program = f"trap, victim = {str(trap)!r}, {str(victim)!r}\n{SWAPPING}\n{LOAD}"
    if may_mount:
        subprocess.run([sys.executable, "-P", "-c", f"import sys\n{program}", home, machine], check=True)
        assert refusals(json.loads((home / "bpf.json").read_bytes())) == {""}
    else:
        assert refusals(load_without_mounting(home, machine, program)) == {""}
    assert (victim / "shadow").exists()
    assert {path.name for path in trap.iterdir()} == {"runtime", "shadow"}
    unload(str(home), machine)


def test_without_mounting_it_is_a_folder_of_a_free_name_that_is_found_again(home: Path, machine: str) -> None:
    first = load_without_mounting(home, machine)
    folder = Path(first["folder"])
    assert refusals(first) == {""}
    assert folder.parent == Path(machine)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    made = (folder / "exits").stat().st_ino
    assert load_without_mounting(home, machine) == first
    assert (folder / "exits").stat().st_ino == made
    (home / "bpf.json").write_text(json.dumps({"folder": f"{machine}/sysmond-none"}))
    second = Path(load_without_mounting(home, machine)["folder"])
    assert second.exists()
    assert not folder.exists()  # No report names it any more.
    unload(str(home), machine)
    assert not [name for name in os.listdir(machine) if name.startswith("sysmond-")]
    assert list(home.iterdir()) == []


def test_folders_of_ours_are_removed_once_no_report_names_them(home: Path, machine: str, tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("gone", "kept")]
    for other in others:
        other.mkdir()
    gone, kept = (Path(load_without_mounting(other, machine)["folder"]) for other in others)
    shutil.rmtree(others[0])
    Path(machine, "sysmond-00000000").mkdir()  # Of one that was killed before it had put its link there.
    Path(machine, "else").mkdir()
    third = Path(load_without_mounting(home, machine)["folder"])
    assert not gone.exists()
    assert {kept.name, third.name, "else"} == {name for name in os.listdir(machine) if not name.endswith(".debug")}
    for each in (home, others[1]):
        unload(str(each), machine)


def test_a_folder_in_which_another_loader_works_is_left_alone(home: Path, machine: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    descriptor = bpffs._made(str(tmp_path / "other"), machine, "here")[1]  # It has no report yet.
    before = set(os.listdir(machine))
    load_without_mounting(home, machine)
    assert before < set(os.listdir(machine))
    os.close(descriptor)
    load_without_mounting(home, machine)
    assert not before & {name for name in os.listdir(machine) if name.startswith("sysmond-")}
    unload(str(home), machine)


def test_where_others_may_move_what_is_ours_nothing_is_pinned(home: Path, machine: str) -> None:
    os.chmod(machine, 0o777)  # noqa: S103  the trap
    (why,) = refusals(load_without_mounting(home, machine))
    assert why == (
        f"no BPF file system may be mounted at {home}/bpf: Operation not permitted; "
        f"{machine}: mode 0777, expected 1777 or 0700"
    )


def test_a_folder_that_is_no_bpf_file_system_is_said(home: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (why,) = refusals(load_without_mounting(home, str(tmp_path / "plain")))
    assert why.endswith(f"{tmp_path}/plain: no BPF file system is mounted there, expected one")
    (why,) = refusals(load_without_mounting(home, str(tmp_path / "none")))
    assert why.endswith(f"there is no {tmp_path}/none either")
    assert [path.name for path in home.iterdir()] == ["bpf.json"]
