# SPDX-License-Identifier: Apache-2.0
"""Folders: where they lie, who owns them, and that nobody can prepare a trap in their place."""

import grp
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sysmond.errors import Error, NotPermittedError, UsageError
from sysmond.machine import folders
from sysmond.machine.folders import Folders, choose

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

HOME = {"HOME": "/home/ada"}


def choose_for(uid: int, environ: dict[str, str], *, user: bool = False) -> Folders:
    return choose(user=user, state_dir=None, runtime_dir=None, environ=environ, uid=uid)


def mode_of(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def as_nobody(what: Callable[[], None]) -> bool:
    """Whether ``what`` succeeds in a process of an ordinary user."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            what()
        except BaseException as failure:  # noqa: BLE001  nothing may escape into a second pytest
            sys.stderr.write(f"{failure!r}\n")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(folders, "SHARED_MEMORY", str(folder))
    return folder


def test_root_records_for_the_machine() -> None:
    assert choose_for(0, HOME) == Folders("/var/lib/sysmond", "/run/sysmond")


def test_others_have_the_xdg_folders(tmp_path: Path) -> None:
    environ = {**HOME, "XDG_RUNTIME_DIR": str(tmp_path)}
    assert choose_for(os.getuid() or 1, environ).state == "/home/ada/.local/state/sysmond"
    assert choose_for(os.getuid(), environ, user=True).runtime == f"{tmp_path}/sysmond"
    assert choose_for(1000, {**environ, "XDG_STATE_HOME": "/srv/state/"}).state == "/srv/state/sysmond"


def test_relative_xdg_folders_are_ignored(shared_memory: Path) -> None:
    environ = {**HOME, "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"}
    assert choose_for(1000, environ) == Folders("/home/ada/.local/state/sysmond", f"{shared_memory}/sysmond-1000")


def test_given_folders_hold_whatever_else_does() -> None:
    chosen = choose(user=True, state_dir="/a/../b", runtime_dir="c", environ={}, uid=0)
    assert chosen == Folders("/b", f"{os.getcwd()}/c")


def test_a_state_folder_named_alone_is_read_alone_but_by_its_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, system = tmp_path / "mine", tmp_path / "system"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(mine))
    monkeypatch.setattr(folders, "SYSTEM_RUNTIME", str(system))
    for place in (mine / "sysmond/archiver", system / "archiver", tmp_path / "copy"):
        place.mkdir(parents=True)
    recorders = Folders(f"{tmp_path}/a", f"{mine}/sysmond"), Folders(f"{tmp_path}/b", str(system))
    for recorder in recorders:
        folders.link_state(recorder._replace(state="/elsewhere"))
        folders.link_state(recorder)
        # Also while there is no such folder yet.
        assert folders.asked(user=True, state_dir=recorder.state, runtime_dir=None) == recorder
    copy = str(tmp_path / "copy")
    assert folders.asked(user=True, state_dir=copy, runtime_dir=None) == Folders(copy, copy)
    assert folders.asked(user=True, state_dir=copy, runtime_dir=str(system)) == Folders(copy, str(system))
    assert folders.asked(user=True, state_dir=None, runtime_dir=None).runtime == f"{mine}/sysmond"


def test_a_runtime_folder_named_alone_has_the_state_folder_of_its_recorder(tmp_path: Path) -> None:
    place = Folders(f"{tmp_path}/state", f"{tmp_path}/run")
    Path(place.runtime, "archiver").mkdir(parents=True)

    def meant() -> str:
        return folders.asked(user=True, state_dir=None, runtime_dir=place.runtime).state

    assert meant() != place.state
    folders.link_state(place)
    assert meant() == place.state  # Also while there is no such folder yet.


@needs_root
def test_a_strangers_link_in_a_runtime_folder_leads_only_to_what_is_the_strangers(tmp_path: Path) -> None:
    place = Folders(f"{tmp_path}/state", f"{tmp_path}/run")
    for folder in (place.state, f"{place.runtime}/archiver"):
        Path(folder).mkdir(parents=True)
    folders.link_state(place)
    os.chown(f"{place.runtime}/{folders.STATE_LINK}", 65534, 65534, follow_symlinks=False)
    assert folders.asked(user=False, state_dir=None, runtime_dir=place.runtime).state != place.state
    os.chown(place.state, 65534, 65534)
    assert folders.asked(user=False, state_dir=None, runtime_dir=place.runtime).state == place.state


@needs_root
def test_a_folder_that_nobody_may_enter_is_a_refusal(tmp_path: Path) -> None:
    closed = Path(tempfile.mkdtemp())
    (closed / "state").mkdir()

    def asks() -> None:
        with pytest.raises(
            NotPermittedError, match=f"{closed}/state: Permission denied; expected a sysmond state folder"
        ):
            folders.asked(user=True, state_dir=f"{closed}/state", runtime_dir=None)

    try:
        assert as_nobody(asks)
    finally:
        shutil.rmtree(closed)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_given_folder_must_be_a_path(path: str) -> None:
    with pytest.raises(UsageError, match="--state-dir: .* is not a path"):
        choose(user=False, state_dir=path, runtime_dir=None, environ={}, uid=0)


def test_without_a_home_the_message_says_what_to_give() -> None:
    with pytest.raises(UsageError, match="uid 4000000000 has no home folder; expected .HOME, or --state-dir"):
        choose_for(4_000_000_000, {})


def test_a_runtime_folder_of_another_user_is_not_taken(shared_memory: Path, tmp_path: Path) -> None:
    stranger = os.stat(tmp_path).st_uid + 1
    assert choose_for(stranger, {**HOME, "XDG_RUNTIME_DIR": str(tmp_path)}).runtime == (
        f"{shared_memory}/sysmond-{stranger}"
    )


def test_a_runtime_folder_that_the_last_logout_removed_is_not_made_again(shared_memory: Path, tmp_path: Path) -> None:
    environ = {**HOME, "XDG_RUNTIME_DIR": str(tmp_path / "gone")}
    assert choose_for(os.getuid(), environ, user=True).runtime == f"{shared_memory}/sysmond-{os.getuid()}"


def test_the_folder_in_shared_memory_is_private(shared_memory: Path, tmp_path: Path) -> None:
    uid = os.getuid()
    chosen = choose_for(uid, {"HOME": str(tmp_path)}, user=True)
    folders.create(chosen, uid)
    assert chosen.runtime == f"{shared_memory}/sysmond-{uid}"
    assert mode_of(chosen.runtime) == 0o700
    folders.create(choose_for(uid, {"HOME": str(tmp_path)}, user=True), uid)


def test_a_state_folder_that_cannot_be_leaves_a_runtime_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Error, match="/file"):
        folders.create(Folders(f"{tmp_path}/file/state", f"{tmp_path}/run"), os.getuid())
    assert mode_of(tmp_path / "run") == 0o755


def test_a_prepared_folder_in_shared_memory_is_refused(shared_memory: Path, tmp_path: Path) -> None:
    uid = os.getuid()
    trap = shared_memory / f"sysmond-{uid}"
    trap.symlink_to(tmp_path)  # Of ours: that is no attack, but no folder either.
    with pytest.raises(NotPermittedError, match="is not a folder; expected a folder of uid .* with mode 0700"):
        choose_for(uid, HOME, user=True)
    trap.unlink()
    trap.mkdir()
    trap.chmod(0o750)
    with pytest.raises(NotPermittedError, match="has mode 0750"):
        choose_for(uid, HOME, user=True)
    with pytest.raises(NotPermittedError, match="has mode 0750"):
        folders.create(Folders(str(tmp_path / "state"), str(trap)), uid)


@needs_root
@pytest.mark.parametrize("is_link", [False, True])
def test_a_name_that_another_user_took_first_stops_nobody(shared_memory: Path, tmp_path: Path, is_link: bool) -> None:
    """Another name that nobody can guess is taken, and found again by whoever asks the recorder."""
    trap, environ = shared_memory / "sysmond-0", {"HOME": str(tmp_path / "home")}
    trap.symlink_to(tmp_path) if is_link else trap.mkdir(mode=0o700)
    os.chown(trap, NOBODY, NOBODY, follow_symlinks=False)
    chosen = choose_for(0, environ, user=True)
    assert chosen.runtime.startswith(f"{trap}-")
    assert choose_for(0, environ, user=True).runtime != chosen.runtime, "it was not to be guessed"
    folders.create(chosen, 0)
    assert mode_of(chosen.runtime) == 0o700
    assert choose_for(0, environ, user=True) == chosen
    shutil.rmtree(chosen.runtime)  # As a boot does.
    trap.unlink() if is_link else trap.rmdir()
    assert choose_for(0, environ, user=True).runtime == str(trap)


@needs_root
def test_the_link_to_the_other_name_leads_to_nobody_elses_folder(shared_memory: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    folders.create(choose_for(0, environ, user=True), 0)
    his = shared_memory / "sysmond-0-his"
    his.mkdir(mode=0o700)
    os.chown(his, NOBODY, NOBODY)
    for target in (his, tmp_path):
        link = tmp_path / "home/.local/state/sysmond/runtime"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert choose_for(0, environ, user=True).runtime == f"{shared_memory}/sysmond-0"


def test_classes_have_their_modes_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folders.create_classes(f"{tmp_path}/a/state", "1s")
    finally:
        os.umask(before)
    state = tmp_path / "a/state"
    assert [mode_of(state), mode_of(state / "public"), mode_of(state / "public/1s")] == [0o755] * 3
    assert [mode_of(state / "restricted"), mode_of(state / "restricted/1s")] == [0o2750] * 2
    assert os.stat(state / "restricted").st_gid in {os.getegid(), *(each.gr_gid for each in grp.getgrall())}


def test_classes_that_were_opened_wide_are_closed_again(tmp_path: Path) -> None:
    folders.create_classes(str(tmp_path / "state"))
    (tmp_path / "state/restricted").chmod(0o777)
    folders.create_classes(str(tmp_path / "state"))
    assert mode_of(tmp_path / "state/restricted") == 0o2750


def test_a_class_folder_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "restricted").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Error, match="restricted: .*; expected a folder that can be written"):
        folders.create_classes(str(tmp_path))


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(Error, match="state: not a folder"):
        folders.create_classes(str(tmp_path / "state"))
    with pytest.raises(Error, match="/state: not a folder"):
        folders.create_classes(str(tmp_path / "state/below"))
    with pytest.raises(Error, match="/state/far: Not a directory; expected a folder that can be written"):
        folders.create_classes(str(tmp_path / "state/far/below"))


@needs_root
def test_restricted_files_belong_to_the_group_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = next(each for each in grp.getgrall() if each.gr_gid != os.getegid())
    monkeypatch.setattr(folders, "GROUP", group.gr_name)
    folders.create_classes(str(tmp_path), "1s")
    (tmp_path / "restricted/1s/file").touch()
    assert os.stat(tmp_path / "restricted/1s/file").st_gid == group.gr_gid
    assert os.stat(tmp_path / "public").st_gid == os.getegid()


@needs_root
def test_an_ordinary_user_reads_public_and_not_restricted(shared_memory: Path) -> None:
    # Below /dev/shm itself: pytest's own folders are closed to other users.
    with_all = Path(f"/dev/shm/sysmond-test-{os.getpid()}")
    folders.create_classes(str(with_all))
    try:
        for name in ("public", "restricted"):
            (with_all / name / "file").write_text("x")
        assert as_nobody(lambda: print((with_all / "public/file").read_text()))
        assert not as_nobody(lambda: print((with_all / "restricted/file").read_text()))
    finally:
        for name in ("public", "restricted"):
            (with_all / name / "file").unlink()
            (with_all / name).rmdir()
        with_all.rmdir()


@needs_root
def test_an_ordinary_user_keeps_restricted_data_without_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    group = next(each for each in grp.getgrall() if each.gr_gid not in {0, NOBODY})
    monkeypatch.setattr(folders, "GROUP", group.gr_name)
    top = Path(f"/dev/shm/sysmond-test-{os.getpid()}")

    def create() -> None:
        folders.create_classes(str(top))
        assert mode_of(top / "restricted") == 0o2750
        assert os.stat(top / "restricted").st_gid == NOBODY
        (top / "restricted").rmdir()
        (top / "public").rmdir()
        top.rmdir()

    assert as_nobody(create)


@needs_root
def test_an_ordinary_user_is_told_what_may_not_be() -> None:
    def create() -> None:
        with pytest.raises(NotPermittedError, match="/var/lib/sysmond-test: Permission denied"):
            folders.create_classes("/var/lib/sysmond-test")

    assert as_nobody(create)


def test_shared_memory_is_volatile_and_proc_is_not() -> None:
    if not os.path.ismount("/dev/shm"):
        pytest.skip("this machine has no tmpfs at /dev/shm")
    assert folders.is_volatile("/dev/shm")
    assert folders.is_volatile("/dev/shm/not/yet/made")
    assert not folders.is_volatile("/proc/self")


@pytest.mark.parametrize("length", [10, 107, 108, 300, 3000])
def test_sockets_work_below_folders_of_any_length(tmp_path: Path, length: int) -> None:
    folder = str(tmp_path)
    while len(folder) + len("/control") < length:
        folder += "/" + "d" * min(200, max(length - len(folder) - len("/control") - 1, 1))
    os.makedirs(folder, exist_ok=True)
    open_before = len(os.listdir("/proc/self/fd"))
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client,
    ):
        with folders.socket_address(folder, "control") as address:
            assert len(os.fsencode(address)) <= 107
            server.bind(address)
        assert stat.S_ISSOCK(os.stat(f"{folder}/control").st_mode)
        server.listen()
        with folders.socket_address(folder, "control") as address:
            client.connect(address)
        client.send(b"x")
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_socket_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="too long"), folders.socket_address(str(tmp_path), "n" * 120):
        pass


# --- whom the recorder trusts ---------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder like /tmp: everybody may make things there, and remove only their own."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@needs_root
@pytest.mark.parametrize("kind", ["runtime", "state"])
def test_a_folder_that_somebody_else_prepared_is_refused(shared: Path, kind: str) -> None:
    prepared = shared / "rec"
    prepared.mkdir()
    os.chown(prepared, NOBODY, NOBODY)
    made = Folders(str(shared / "ours"), str(shared / "run"))._replace(**{kind: str(prepared)})
    with pytest.raises(NotPermittedError, match=f"{prepared}: belongs to uid {NOBODY}; expected root"):
        folders.create(made, os.geteuid())


@needs_root
def test_what_lies_below_a_folder_of_somebody_else_is_refused(shared: Path) -> None:
    (shared / "his").mkdir()
    os.chown(shared / "his", NOBODY, NOBODY)
    with pytest.raises(NotPermittedError, match=f"{shared / 'his'}: belongs to uid {NOBODY}"):
        folders.create(Folders(str(shared / "ours"), str(shared / "his/rec")), os.geteuid())


@needs_root
def test_a_link_of_somebody_else_leads_nowhere(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (shared / "link").symlink_to(tmp_path / "target")
    os.chown(shared / "link", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(NotPermittedError, match=f"{shared / 'link'}: a link of uid {NOBODY}; expected one of root"):
        folders.check_trusted(str(shared / "link"))


@needs_root
def test_the_way_of_a_link_is_looked_at_as_well(shared: Path, tmp_path: Path) -> None:
    (shared / "his").mkdir()
    os.chown(shared / "his", NOBODY, NOBODY)
    (shared / "his/real").mkdir()
    (tmp_path / "ours").symlink_to(shared / "his/real")
    with pytest.raises(NotPermittedError, match=f"{shared / 'his'}: belongs to uid {NOBODY}"):
        folders.check_trusted(str(tmp_path / "ours"))


@pytest.mark.parametrize(
    ("mode", "is_last", "is_refused"),
    [(0o1777, False, False), (0o1777, True, True), (0o777, False, True), (0o770, False, False), (0o755, True, False)],
)
def test_others_may_write_above_only_where_owners_alone_remove(
    tmp_path: Path,
    mode: int,
    is_last: bool,
    is_refused: bool,
) -> None:
    place = tmp_path / "place"
    (place / "below").mkdir(parents=True)
    place.chmod(mode)
    path = str(place if is_last else place / "below")
    if is_refused:
        with pytest.raises(NotPermittedError, match=f"{place}: mode {mode:04o} lets others write"):
            folders.check_trusted(path)
    else:
        folders.check_trusted(path)


@needs_root
def test_a_group_may_write_that_is_the_owners_own_and_no_other(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o775)
    folders.check_trusted(str(place))
    os.chown(place, 0, NOBODY)
    with pytest.raises(NotPermittedError, match="mode 0775 lets others write"):
        folders.check_trusted(str(place))


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(NotPermittedError, match="more than 40 links"):
        folders.check_trusted(str(tmp_path / "a"))


@needs_root
@pytest.mark.parametrize("mode", [0o2750, 0o750])
def test_a_class_folder_of_somebody_else_is_refused_however_narrow(tmp_path: Path, mode: int) -> None:
    """Files in it would get its group, which could read what is restricted."""
    prepared = tmp_path / "sampler/restricted"
    prepared.mkdir(parents=True)
    prepared.chmod(mode)
    os.chown(prepared, NOBODY, NOBODY)
    with pytest.raises(NotPermittedError, match=f"{prepared}: belongs to uid {NOBODY}"):
        folders.create_classes(str(tmp_path / "sampler"))
