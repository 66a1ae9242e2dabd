# SPDX-License-Identifier: Apache-2.0
"""The machine's service for who installed by pip: ``sysmond service install`` and ``uninstall``.

A distribution's package brings units, users and policies along; a wheel cannot, so this writes them, for just this
interpreter. Root will run its code from then on, at every boot: so nobody but root may be able to change any of it.
What was written is noted, and removed by that note.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from sysmond.base.terminal import put, say
from sysmond.errors import EXIT_PARTIAL, BusyError, CorruptError, Error, NotPermittedError, UsageError, refusal
from sysmond.machine import note
from sysmond.machine.folders import LINKS_MAX, Folders

TEMPLATES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "service_files")
NOTE = "/etc/sysmond/service.json"
CONFIGURATION = "/etc/sysmond/sysmond.yaml"
TARGET = "sysmond.target"
# An upgrade restarts one after the other: the target would end all, and then make the plan and load programs.
PARTS_IN_ORDER = ("plan", "bpf", "sampler", "background", "archiver", "bus")
# Where the files below TEMPLATES go. /etc is for who administers the machine; of polkit not every version reads it.
PLACES = {
    "systemd/system": "/etc/systemd/system",
    "systemd/user": "/etc/systemd/user",
    "sysusers.d": "/etc/sysusers.d",
    "tmpfiles.d": "/etc/tmpfiles.d",
    "dbus-1/system.d": "/etc/dbus-1/system.d",
    "dbus-1/system-services": "/usr/local/share/dbus-1/system-services",
    "polkit-1/actions": "/usr/share/polkit-1/actions",
    "sysmond": "/etc/sysmond",
}
PACKAGED = ("/usr/lib/systemd/system", "/lib/systemd/system")
# Units see none of these: ProtectHome=.
HIDDEN = ("/home", "/root", "/run/user")
FILE_BYTES_MAX = 1 << 20
PROGRAM_S = 120.0
# systemd and sed would read anything else as more than itself.
_PLAIN_PATH = re.compile(r"/[\w./+-]+")


class Python(NamedTuple):
    """``interpreter``: as units start it. ``folders``: all that it imports from, and the environment itself."""

    interpreter: str
    folders: tuple[str, ...]


def this_python() -> Python:
    """The interpreter that runs this, and all that it imports from when it is isolated.

    :raises Error: where it does not find sysmond then.
    """
    script = (
        "import json, os, sys, sysmond; own = [sys.prefix] if sys.prefix != sys.base_prefix else []; "
        "print(json.dumps(own + [path for path in sys.path if os.path.isdir(path)]))"
    )
    done = subprocess.run(  # noqa: S603  ourselves
        [sys.executable, "-I", "-c", script], capture_output=True, check=False, cwd="/", timeout=PROGRAM_S
    )
    if done.returncode:
        raise Error(f"{sys.executable} -I: cannot find sysmond; expected one that is installed for all users")
    return Python(sys.executable, tuple(map(str, json.loads(done.stdout))))


def service(_: Folders, options: argparse.Namespace) -> int:
    """Install the machine's service, or remove it.

    :raises NotPermittedError: where we are not root, or others could change what root would run. :raises Error: where
        there is no systemd, a package of a distribution has the service already, or a file is in the way.
    """
    if options.user:
        raise UsageError("service --user: units of one user need no root; expected 'systemctl --user enable sysmond'")
    if os.geteuid():
        raise NotPermittedError("service: only root installs units and users")
    if not os.path.isdir("/run/systemd/system"):
        raise Error("/run/systemd/system: missing; expected a machine that was booted with systemd")
    return _install() if options.do == "install" else _uninstall()


def _install() -> int:
    is_running = _run("systemctl", "is-active", "--quiet", TARGET, may_fail=True)
    written = install(this_python())
    put(*(f"wrote {path}" for path in written))
    _run("systemd-sysusers", "sysmond.conf")
    _run("systemd-tmpfiles", "--create", "sysmond.conf")
    _run("systemctl", "daemon-reload")
    _run("systemctl", "--quiet", "reload", "dbus.service", may_fail=True)
    _run("systemctl", "--quiet", "enable", TARGET)
    _run("systemctl", "start", TARGET)
    for part in PARTS_IN_ORDER if is_running else ():
        _run("systemctl", "try-restart", f"sysmond-{part}.service")
    put(f"{TARGET} is enabled and running; 'sysmond service uninstall' removes it")
    return 0


def _uninstall() -> int:
    _noted_files("")
    _run("systemctl", "--quiet", "disable", "--now", TARGET, may_fail=True)
    _run("systemctl", "--quiet", "stop", "sysmond-*", "run-sysmond-bpf.mount", may_fail=True)
    removed, changed = uninstall()
    _run("systemctl", "daemon-reload")
    put(*(f"removed {path}" for path in removed))
    put("kept: recordings in /var/lib/sysmond, settings in /etc/sysmond, and the users of the service")
    for path in changed:
        say(f"{path}: changed since it was installed; left as it is")
    return EXIT_PARTIAL if changed else 0


def install(python: Python, root: str = "/", templates: str = TEMPLATES) -> list[str]:
    """Write all files of the service below a root; give their names, as they are called there.

    :raises Error: as ``service``; then nothing is changed.
    """
    check(python, root)
    root = root.rstrip("/")
    before = _noted(root)
    files = _rendered(python, templates)
    for folder in PACKAGED:
        if os.path.lexists(f"{root}{folder}/{TARGET}"):
            raise BusyError(f"{folder}/{TARGET}: a package has installed the service; remove the package first")
    for path in files:
        if path not in before and path != CONFIGURATION and os.path.lexists(root + path):
            raise BusyError(f"{path}: exists, and 'sysmond service install' did not write it; expected no such file")
    if os.path.lexists(root + CONFIGURATION):
        files.pop(CONFIGURATION, None)  # What somebody has written there stays, and so does the note of it.
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    try:
        os.makedirs(os.path.dirname(root + NOTE), mode=0o755, exist_ok=True)
        # First the note: what is interrupted can be removed.
        note.write(root + NOTE, {"files": {**before, **digests}}, lasting=True, indent=1)
        for path, content in files.items():
            os.makedirs(os.path.dirname(root + path), mode=0o755, exist_ok=True)
            note.put(root + path, content)
        for path in before.keys() - files.keys() - {CONFIGURATION}:  # Of a version before.
            with suppress(FileNotFoundError):
                os.unlink(root + path)
        stays = {CONFIGURATION: before[CONFIGURATION]} if CONFIGURATION in before else {}
        note.write(root + NOTE, {"files": {**stays, **digests}}, lasting=True, indent=1)
    except OSError as failure:
        raise Error(f"{refusal(failure)}; 'sysmond service uninstall' removes what was written") from failure
    return sorted(files)


def uninstall(root: str = "/") -> tuple[list[str], list[str]]:
    """Remove what ``install`` wrote below a root; give what was removed, and what was changed since and stays.

    :raises Error: where nothing was installed from here, or it cannot be removed.
    """
    root = root.rstrip("/")
    removed, changed = [], []
    try:
        for path, digest in sorted(_noted_files(root).items()):
            with suppress(FileNotFoundError):
                if _digest(root + path) != digest:
                    changed.append(path)
                    continue
                os.unlink(root + path)
                removed.append(path)
        os.unlink(root + NOTE)
        with suppress(OSError):  # Somebody's settings are in it.
            os.rmdir(os.path.dirname(root + NOTE))
    except OSError as failure:
        raise Error(refusal(failure)) from failure
    return removed, [path for path in changed if path != CONFIGURATION]


def _noted_files(root: str) -> dict[str, str]:
    """As ``_noted``.

    :raises Error: where there is no note, too.
    """
    if noted := _noted(root):
        return noted
    raise Error(f"{NOTE}: missing; expected a service that 'sysmond service install' installed")


def _noted(root: str) -> dict[str, str]:
    """What was written, by name, with its SHA-256; nothing, where there is no note.

    :raises Error: where the note is damaged, or names files that are none of the service's.
    """
    try:
        noted = note.read(root + NOTE, lambda said: {str(path): str(digest) for path, digest in said["files"].items()})
    except FileNotFoundError:
        return {}
    except OSError as failure:
        raise Error(refusal(failure)) from failure
    for path in noted:
        if os.path.dirname(path) not in PLACES.values():
            raise CorruptError(f"{NOTE}: names {path!r}; expected files in {', '.join(PLACES.values())}")
    return noted


def _digest(path: str) -> str:
    return hashlib.sha256(note.read_bytes(path, FILE_BYTES_MAX)).hexdigest()


def _rendered(python: Python, templates: str) -> dict[str, bytes]:
    """Every file of the service by its name, for this interpreter.

    :raises Error: where this installation has none.
    """
    files = {}
    for source, target in PLACES.items():
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(f"{templates}/{source}")):
                with open(f"{templates}/{source}/{name}", "rb") as file:
                    text = file.read(FILE_BYTES_MAX)
                programs = os.path.dirname(python.interpreter)
                text = text.replace(b"@PYTHON@", python.interpreter.encode())
                files[f"{target}/{name}"] = text.replace(b"@BINDIR@", programs.encode())
    if not files:
        raise Error(f"{templates}: missing; this sysmond is from a distribution, whose package contains the service")
    return files


def check(python: Python, root: str = "/") -> None:
    """Refuse an interpreter or environment that others than root could change, or that the service's users cannot read.

    Each of its files is looked at, links are followed, and so is every folder above. ``root``: where folders above are
    looked at no more.

    :raises NotPermittedError: naming the first that is wrong, and what was expected. :raises UsageError: for a path
        that no unit can name.
    """
    if not _PLAIN_PATH.fullmatch(python.interpreter):
        raise UsageError(f"{python.interpreter!r}: expected an interpreter in a path of letters, digits and . _ + -")
    for hidden in HIDDEN:
        if f"{python.interpreter}/".startswith(f"{hidden}/"):
            raise NotPermittedError(
                f"{python.interpreter}: units cannot enter {hidden}; expected it below /opt or /usr"
            )
    seen: set[str] = set()
    _check_way(python.interpreter, root, seen)
    waiting, walked = list(python.folders), set[str]()
    while waiting:
        folder = os.path.realpath(waiting.pop())
        if folder in walked:
            continue
        walked.add(folder)
        _check_way(folder, root, seen)
        for path in _within(folder):
            if not os.path.islink(path):
                _check_one(path, seen)
                continue
            _check_way(path, root, seen)
            if os.path.isdir(path):
                waiting.append(path)


def _within(folder: str) -> Iterator[str]:
    """All that lies below a folder."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        for name in (*folders, *files):
            yield os.path.join(place, name)


def _raise(failure: OSError) -> None:
    raise NotPermittedError(refusal(failure)) from failure


def _check_way(path: str, root: str, seen: set[str]) -> None:
    """Look at a file or folder and at all above it, at links and where they lead."""
    top = root.rstrip("/")
    waiting = [name for name in reversed(os.path.abspath(path).removeprefix(top).split("/")) if name]
    at, links = top, 0
    _check_one(top or "/", seen)
    while waiting:
        at = f"{at}/{waiting.pop()}"
        if os.path.islink(at):
            links += 1
            if links > LINKS_MAX:
                raise NotPermittedError(f"{path}: more than {LINKS_MAX} links; expected a file")
            if os.lstat(at).st_uid:
                raise NotPermittedError(f"{at}: a link of uid {os.lstat(at).st_uid}; expected one of root")
            target = os.readlink(at)
            waiting += [name for name in reversed(target.removeprefix(top).split("/")) if name and name != "."]
            at = top if target.startswith("/") else os.path.dirname(at)
        elif at.endswith("/.."):
            at = os.path.dirname(os.path.dirname(at))
        else:
            _check_one(at, seen)


def _check_one(path: str, seen: set[str]) -> None:
    if path in seen:
        return
    seen.add(path)
    try:
        status = os.lstat(path)
    except OSError as failure:
        raise NotPermittedError(refusal(failure)) from failure
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid:
        raise NotPermittedError(f"{path}: belongs to uid {status.st_uid}; expected root, who will run it")
    # The sticky bit keeps nobody from putting something beside it.
    if mode & (stat.S_IWOTH | (stat.S_IWGRP if status.st_gid else 0)):
        raise NotPermittedError(f"{path}: mode {mode:04o} lets others write; expected that only root may")
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
    if stat.S_ISDIR(status.st_mode) and not mode & stat.S_IXOTH:
        raise NotPermittedError(f"{path}: mode {mode:04o}: the users of the service cannot enter; expected o+rx")
    if mode & needed != needed and not path.endswith(".pyc"):
        raise NotPermittedError(f"{path}: mode {mode:04o}: the users of the service cannot read it; expected o+r")


def _run(*words: str, may_fail: bool = False) -> bool:
    """Run a program of systemd; say whether it succeeded.

    :raises Error: where it is not there, or fails.
    """
    program = shutil.which(words[0])
    if program is None:
        raise Error(f"{words[0]} is not installed; it comes with systemd")
    try:
        done = subprocess.run(  # noqa: S603  a program of systemd, and words of our own
            [program, *words[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=PROGRAM_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as hung:
        raise Error(f"{' '.join(words)}: not done within {PROGRAM_S:.0f} s") from hung
    if done.returncode and not may_fail:
        raise Error(f"{' '.join(words)}: {' '.join(done.stderr.split()) or f'exit code {done.returncode}'}")
    return not done.returncode
