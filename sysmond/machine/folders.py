# SPDX-License-Identifier: Apache-2.0
"""Folders: where everything lies, and the owners and modes that keep it so.

``docs/design/0001-shape.md`` has the layout below them. Root records for the whole machine; anybody
else, and ``--user``, for themselves in the XDG folders. Standard library only: every part imports this.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from sysmond.base.model import Sensitivity
from sysmond.errors import Error, NotPermittedError, UsageError

SYSTEM_STATE = "/var/lib/sysmond"
SYSTEM_RUNTIME = "/run/sysmond"
SHARED_MEMORY = "/dev/shm"  # noqa: S108  what is made below it is private, and checked

# Who may read what is restricted, where the machine has this group.
GROUP = "sysmond"

FOLDER_MODES = {Sensitivity.PUBLIC: 0o755, Sensitivity.RESTRICTED: 0o2750}
FILE_MODES = {Sensitivity.PUBLIC: 0o644, Sensitivity.RESTRICTED: 0o640}

# sun_path has 108 bytes, one of them for the closing zero (unix(7)).
SOCKET_PATH_BYTES_MAX = 107

# In the state folder, where somebody else has the name that the runtime folder should have in shared memory.
RUNTIME_LINK = "runtime"

# In the runtime folder: leads to the state folder that the recorder there writes to.
STATE_LINK = "archiver/state"

# What others may do to what we make, whatever whoever starts us allows them.
UMASK = 0o022

_PRIVATE_MODE = 0o700
_OTHERS = 0o077
LINKS_MAX = 40  # As many as the kernel follows (path_resolution(7)).
_VOLATILE = frozenset({"tmpfs", "ramfs"})


class Folders(NamedTuple):
    """``state``: what outlives a boot. ``runtime``: rings, fresh segments, sockets, the plan."""

    state: str
    runtime: str


def ours(*, user: bool, state_dir: str | None, runtime_dir: str | None) -> Folders:
    """Say where things lie for whoever runs this process; see ``choose``."""
    return choose(user=user, state_dir=state_dir, runtime_dir=runtime_dir, environ=os.environ, uid=os.geteuid())


def asked(*, user: bool, state_dir: str | None, runtime_dir: str | None, or_file: bool = False) -> Folders:
    """Say where that lies which somebody asks about: as ``ours``, but a state folder named alone is read alone.

    It is its own runtime folder then, unless it is the one that a recorder of this machine writes to; so is one file,
    where that may be named (``or_file``). A runtime folder named alone has the state folder of its recorder.

    :raises UsageError: as ``choose``. :raises Error: where what is named is no folder. :raises NotPermittedError: where
        we may not look.
    """
    chosen = ours(user=user, state_dir=state_dir, runtime_dir=runtime_dir)
    if state_dir is None:
        return chosen if runtime_dir is None else chosen._replace(state=_state_of(chosen.runtime) or chosen.state)
    if os.path.isfile(chosen.state):
        from sysmond.machine import snapshot_file  # noqa: PLC0415  most archives are folders

        is_snapshot = snapshot_file.is_one(chosen.state)
        if or_file:
            file = snapshot_file.unpacked(chosen.state) if is_snapshot else chosen.state
            return Folders(file, file)
        if is_snapshot:
            raise Error(f"{chosen.state}: a snapshot, which can only be read; expected the state folder of a recorder")
    if runtime_dir is None:
        for runtime in (chosen.runtime, SYSTEM_RUNTIME):
            if _is_same(f"{runtime}/{STATE_LINK}", chosen.state):
                return Folders(chosen.state, runtime)
        chosen = Folders(chosen.state, chosen.state)
    try:
        # A recorder may have begun before there is a state folder, and its runtime folder goes with the boot.
        if not os.path.isdir(chosen.runtime) and not stat.S_ISDIR(os.stat(chosen.state).st_mode):
            raise Error(f"{chosen.state}: not a folder; expected a sysmond state folder")
    except OSError as failure:
        raise _refusal(chosen.state, failure, "expected a sysmond state folder") from failure
    return chosen


def _state_of(runtime: str) -> str:
    """The state folder that the recorder of a runtime folder writes to, or wrote to last; empty where none is shown.

    A link of a stranger's leads nobody to what is not the stranger's own.
    """
    link = f"{runtime}/{STATE_LINK}"
    try:
        state, owner = os.readlink(link), os.lstat(link).st_uid
        is_trusted = owner in trusted_uids() or owner == os.stat(link).st_uid
    except OSError:
        return ""
    return state if is_trusted and os.path.isabs(state) else ""


def _is_same(link: str, folder: str) -> bool:
    """Whether a link leads to a folder, also to one that is not there yet."""
    try:
        return os.readlink(link) == folder or os.path.samefile(link, folder)
    except OSError:
        return False


def choose(
    *, user: bool, state_dir: str | None, runtime_dir: str | None, environ: Mapping[str, str], uid: int
) -> Folders:
    """Say where things lie; nothing is created.

    ``user``: the XDG folders even for root. ``state_dir``, ``runtime_dir``: these, whatever else holds.

    :raises UsageError: for an empty path, or where there is no home to put things in.
    :raises NotPermittedError: where somebody else prepared the folder that would be ours.
    """
    personal = user or uid != 0
    if state_dir is None:
        state = f"{_xdg(environ, uid, 'XDG_STATE_HOME', '.local/state')}/sysmond" if personal else SYSTEM_STATE
    else:
        state = _given(state_dir, "--state-dir")
    if runtime_dir is None:
        runtime = _personal_runtime(environ, uid, state) if personal else SYSTEM_RUNTIME
    else:
        runtime = _given(runtime_dir, "--runtime-dir")
    return Folders(state, runtime)


def configuration_home(environ: Mapping[str, str], uid: int) -> str:
    """Where a user's own configuration lies: ``$XDG_CONFIG_HOME/sysmond``."""
    return f"{_xdg(environ, uid, 'XDG_CONFIG_HOME', '.config')}/sysmond"


def trusted_uids() -> frozenset[int]:
    """Whom the recorder trusts with its folders and its code: root, and the user that it runs as.

    Parts with users of their own need no more than that: none writes below a folder of another's, and the plan, which
    names code, is root's.
    """
    return frozenset({0, os.geteuid()})


def become_owner(folder: str) -> None:
    """Where root works on what belongs to another, become that user for good: what is made there is theirs then, too.

    And whatever is wrong in that folder is no trap for root.
    """
    try:
        status = os.stat(folder)
    except OSError:
        return
    if os.geteuid() or not status.st_uid:
        return
    import pwd  # noqa: PLC0415  few need it

    try:
        groups = os.getgrouplist(pwd.getpwuid(status.st_uid).pw_name, status.st_gid)
    except KeyError:
        groups = [status.st_gid]
    os.setgroups(groups)
    os.setresgid(status.st_gid, status.st_gid, status.st_gid)
    os.setresuid(status.st_uid, status.st_uid, status.st_uid)


def check_trusted(path: str) -> None:
    """Refuse a path that somebody else could lead elsewhere, or change what it means.

    Every folder on the way, links and their ways included, must belong to root or us, and be writable by nobody else;
    above the last one it may be so where only owners remove (the sticky bit). A group of the owner's own number is the
    owner's own, as distributions set it up. What is not there yet is nobody's.

    :raises NotPermittedError: naming the component, whose it is, and what was expected. :raises OSError: as the
        system says.
    """
    waiting = [name for name in reversed(os.path.abspath(path).split("/")) if name]
    at, links = "/", 0
    _check_component(at, is_last=not waiting)
    while waiting:
        at = os.path.join(at, waiting.pop())
        try:
            status = os.lstat(at)
        except FileNotFoundError:
            return
        if not stat.S_ISLNK(status.st_mode):
            _check_component(at, is_last=not waiting)
            continue
        links += 1
        if status.st_uid not in trusted_uids():
            raise NotPermittedError(f"{at}: a link of uid {status.st_uid}; expected one of {_trusted()}")
        if links > LINKS_MAX:
            raise NotPermittedError(f"{path}: more than {LINKS_MAX} links; expected a folder")
        target = os.readlink(at)
        waiting += [name for name in reversed(target.split("/")) if name]
        at = "/" if target.startswith("/") else os.path.dirname(at)


def _check_component(path: str, *, is_last: bool) -> None:
    status = os.stat(path, follow_symlinks=False)
    if status.st_uid not in trusted_uids():
        raise NotPermittedError(f"{path}: belongs to uid {status.st_uid}; expected {_trusted()}")
    # A file below such a folder is its owner's; a folder that we are to write to is not.
    if status.st_mode & stat.S_ISVTX and not is_last:
        return
    foreign = stat.S_IWOTH if status.st_gid == status.st_uid else stat.S_IWOTH | stat.S_IWGRP
    if status.st_mode & foreign:
        mode = stat.S_IMODE(status.st_mode)
        raise NotPermittedError(f"{path}: mode {mode:04o} lets others write; expected that only {_trusted()} may")


def _trusted() -> str:
    return " or ".join(["root", *(f"uid {uid}" for uid in sorted(trusted_uids() - {0}))])


def create(folders: Folders, uid: int) -> None:
    """Create the two folders themselves, where they are missing: the runtime folder first.

    Where only the state folder fails, recording can go on in RAM.

    :raises Error: naming the folder and why it cannot be. :raises NotPermittedError: as ``check_trusted``.
    """
    private = _shared_memory_folder(uid)
    if folders.runtime == private or folders.runtime.startswith(f"{private}-"):
        _make(folders.runtime, _PRIVATE_MODE)
        _check_private(folders.runtime, uid)
    else:
        _make(folders.runtime, 0o755)
    _make(folders.state, 0o755)
    if folders.runtime.startswith(f"{private}-") and folders.state != folders.runtime:
        _link(folders)


def link_state(folders: Folders) -> None:
    """Say in the runtime folder where the state folder is; where there is no room, do without."""
    with suppress(OSError):
        _put_link(f"{folders.runtime}/{STATE_LINK}", folders.state)


def create_classes(folder: str, *below: str) -> None:
    """Create ``folder``, and in it one folder a sensitivity class, each with its owner's group and mode.

    ``below``: further folders in each class, of the same mode: ``create_classes(folders.state, "1s")``.

    :raises Error: naming the folder and why it cannot be.
    """
    _make(folder, 0o755)
    for sensitivity, mode in FOLDER_MODES.items():
        path = f"{folder}/{sensitivity}"
        _make(path, mode)
        _admit(path, mode)
        for name in below:
            _make(f"{path}/{name}", mode)
            _admit(f"{path}/{name}", mode)


def create_stream(folder: str, stream: str) -> None:
    """Create the folder of a long table in that of its class: ``public/process``.

    :raises Error: as ``create_classes``.
    """
    mode = FOLDER_MODES[Sensitivity(stream.partition("/")[0])]
    _make(f"{folder}/{stream}", mode)
    _admit(f"{folder}/{stream}", mode)


def admit_file(descriptor: int, sensitivity: Sensitivity) -> None:
    """Give a file that we made the mode of its class, and its group, whatever the umask was.

    :raises OSError: where it is not ours.
    """
    if sensitivity is Sensitivity.RESTRICTED:
        _give(descriptor, _group())
    os.fchmod(descriptor, FILE_MODES[sensitivity])


def is_shared(folder: str) -> bool:
    """Whether what is made in a folder gets the folder's group: that of our parts, where each has a user of its own.

    :raises OSError: where it cannot be looked at.
    """
    return bool(os.stat(folder).st_mode & stat.S_ISGID)


def admit_for_parts(descriptor: int, folder: str) -> None:
    """Let all parts read a file that we made, and no stranger; where they are one user, as what is restricted.

    :raises OSError: where it is not ours.
    """
    if is_shared(folder):
        os.fchmod(descriptor, FILE_MODES[Sensitivity.RESTRICTED])
    else:
        admit_file(descriptor, Sensitivity.RESTRICTED)


def is_volatile(path: str) -> bool:
    """Whether ``path``, or the folder where it will be made, lies in memory: on tmpfs or ramfs.

    A file system is known by its device number: mount points may hide each other, and Python has no
    statfs(2) that would name the type.
    """
    device = _device(os.path.abspath(path))
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            mount, _, source = line.partition(" - ")
            if mount.split()[2] == wanted:
                return source.split()[0] in _VOLATILE
    return False


@contextmanager
def socket_address(folder: str, name: str) -> Iterator[str]:
    """Give the address to bind or connect a Unix socket with, however long the folder's path is.

    Valid inside the ``with`` block only: a long path is reached through a descriptor of its folder.

    :raises UsageError: where the name alone is too long. :raises OSError: where there is no such folder.
    """
    path = f"{folder}/{name}"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        yield path
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{descriptor}/{name}"
        if len(os.fsencode(short)) > SOCKET_PATH_BYTES_MAX:
            raise UsageError(f"socket name {name!r}: too long; expected at most 80 bytes")
        yield short
    finally:
        os.close(descriptor)


def _device(path: str) -> int:
    try:
        return os.stat(path).st_dev
    except OSError:
        if path == "/":
            raise
        return _device(os.path.dirname(path))


def _given(path: str, option: str) -> str:
    if not path or "\0" in path:
        raise UsageError(f"{option}: {path!r} is not a path; expected the path of a folder")
    return os.path.abspath(path)


def _xdg(environ: Mapping[str, str], uid: int, name: str, default: str) -> str:
    # The specification has relative paths ignored.
    path = environ.get(name, "")
    return path.rstrip("/") if path.startswith("/") else f"{_home(environ, uid)}/{default}"


def _home(environ: Mapping[str, str], uid: int) -> str:
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        import pwd  # noqa: PLC0415  seldom needed, and every part would carry it

        try:
            home = pwd.getpwuid(uid).pw_dir
        except KeyError as unknown:
            raise UsageError(
                f"uid {uid} has no home folder; expected $HOME, or --state-dir and --runtime-dir"
            ) from unknown
    return home.rstrip("/")


def _personal_runtime(environ: Mapping[str, str], uid: int, state: str) -> str:
    parent = environ.get("XDG_RUNTIME_DIR", "")
    if parent.startswith("/"):
        # It is made at login, by somebody else, and is gone after the last logout. After `su` the variable may still
        # name another user's folder, who could lay traps in it.
        with suppress(OSError):
            if os.stat(parent).st_uid == uid:
                return f"{parent.rstrip('/')}/sysmond"
    folder = _shared_memory_folder(uid)
    if elsewhere := _linked(state, uid):
        return elsewhere
    try:
        squatted = os.lstat(folder).st_uid != uid
    except FileNotFoundError:
        squatted = False
    if squatted:  # Everybody may make that name theirs, but nobody knows the next one.
        return f"{folder}-{os.urandom(8).hex()}"
    _check_private(folder, uid)
    return folder


def _shared_memory_folder(uid: int) -> str:
    return f"{SHARED_MEMORY}/sysmond-{uid}"


def _linked(state: str, uid: int) -> str:
    """The folder in shared memory that a recorder of ours took in the place of a squatted one; empty without one."""
    try:
        folder = os.readlink(f"{state}/{RUNTIME_LINK}")
        if not folder.startswith(f"{_shared_memory_folder(uid)}-") or not os.path.isdir(folder):
            return ""
        _check_private(folder, uid)
    except (OSError, NotPermittedError):
        return ""
    return folder


def _link(folders: Folders) -> None:
    """Let the tools find a runtime folder of a name that nobody could guess."""
    path = f"{folders.state}/{RUNTIME_LINK}"
    try:
        _put_link(path, folders.runtime)
    except OSError as failure:
        raise _refusal(path, failure) from failure


def _put_link(path: str, target: str) -> None:
    """Make a link; one that leads elsewhere is replaced.

    :raises OSError: as the system says.
    """
    with suppress(FileNotFoundError):
        if os.path.islink(path) and os.readlink(path) == target:
            return
        os.unlink(path)
    os.symlink(target, path)


def _check_private(folder: str, uid: int) -> None:
    """Refuse a folder that somebody else made first: everybody may write to its parent."""
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        problem = "is not a folder"
    elif status.st_uid != uid:
        problem = f"belongs to uid {status.st_uid}"
    elif mode & _OTHERS:
        problem = f"has mode {mode:04o}"
    else:
        return
    raise NotPermittedError(f"{folder}: {problem}; expected a folder of uid {uid} with mode 0700")


def _make(folder: str, mode: int) -> None:
    parent = os.path.dirname(folder)
    try:
        os.makedirs(parent, exist_ok=True)
        # Narrow until _admit has set the group: nobody slips in between. In a folder that gives its own group and the
        # set-gid bit, as that of a class does, both are right at once, for who may set neither as well.
        is_given = mode & stat.S_ISGID and is_shared(parent) and os.stat(parent).st_gid == _group()
        os.mkdir(folder, mode & _PRIVATE_MODE if mode & stat.S_ISGID and not is_given else mode & ~stat.S_ISGID)
        if not mode & stat.S_ISGID:
            os.chmod(folder, mode)  # Whatever the umask was.
    except FileExistsError as failure:
        if not os.path.isdir(folder):
            raise Error(f"{failure.filename}: not a folder; expected a folder, or no such file") from failure
    except OSError as failure:
        raise _refusal(folder, failure) from failure
    # Class folders have a group of their own, and are looked at by themselves.
    try:
        check_trusted(parent if mode & stat.S_ISGID else folder)
    except OSError as failure:
        raise _refusal(folder, failure) from failure


def _admit(folder: str, mode: int) -> None:
    """Set group and mode of a class folder, unless they are right or somebody else's business."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as failure:
        raise _refusal(folder, failure) from failure
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid():
            if mode & stat.S_ISGID and (group := _group()) != status.st_gid:
                _give(descriptor, group)
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                os.fchmod(descriptor, mode)
        elif status.st_uid not in trusted_uids():
            raise NotPermittedError(f"{folder}: belongs to uid {status.st_uid}; expected {_trusted()}")
        elif stat.S_IMODE(status.st_mode) & ~mode:
            mode_there = stat.S_IMODE(status.st_mode)
            raise NotPermittedError(f"{folder}: mode {mode_there:04o} of uid {status.st_uid}; expected {mode:04o}")
    except OSError as failure:
        raise _refusal(folder, failure) from failure
    finally:
        os.close(descriptor)


def _give(descriptor: int, group: int) -> None:
    if os.fstat(descriptor).st_gid == group:  # A unit may forbid chown(2) altogether.
        return
    try:
        os.fchown(descriptor, -1, group)
    except PermissionError:
        # Not a member of that group: what we record stays our own.
        os.fchown(descriptor, -1, os.getegid())


def _group() -> int:
    import grp  # noqa: PLC0415  once at the start, not in every part

    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return os.getegid()


def _refusal(folder: str, failure: OSError, right: str = "expected a folder that can be written") -> Error:
    kind = NotPermittedError if isinstance(failure, PermissionError) else Error
    return kind(f"{failure.filename or folder}: {failure.strerror}; {right}")
