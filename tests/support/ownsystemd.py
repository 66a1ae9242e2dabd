# SPDX-License-Identifier: Apache-2.0
"""A real systemd for tests: that of a user, in namespaces of its own, with control groups of version 2 alone.

It is deaf to the machine around it, and goes with whoever uses it, whatever was frozen.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sysmond.cgroups.tree import MOUNTINFO, hierarchies
from tests.support.waiting import HANG_S, wait_until

_SYSTEMD = "/lib/systemd/systemd"
_PROGRAMS = ("unshare", "nsenter", "dbus-daemon", "systemctl", "systemd-run", _SYSTEMD)
_RUNTIME = "/run/user/0"
_BUS = f"unix:path={_RUNTIME}/bus"
_JOIN = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
# The first process of its namespace, which collects who is left behind.
_BEGIN = f"""
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount -t tmpfs tmpfs /run || exit 1
mkdir -p {_RUNTIME} /run/systemd/system
export XDG_RUNTIME_DIR={_RUNTIME} DBUS_SESSION_BUS_ADDRESS={_BUS}
dbus-daemon --session --address={_BUS} --nofork --nopidfile &
until [ -S {_RUNTIME}/bus ]; do sleep .02; done
{_SYSTEMD} --user --log-target=console --log-level=err --unit=basic.target &
wait $!
"""


class OwnSystemd:
    """Where it is, and programs beside it."""

    def __init__(self, pid: int, cgroup: str) -> None:
        """``pid``: of the first process in its namespaces; ``cgroup``: the folder of its root."""
        self._pid = pid
        self.cgroup = cgroup
        self._environ = {**os.environ, "DBUS_SESSION_BUS_ADDRESS": _BUS, "XDG_RUNTIME_DIR": _RUNTIME}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program there, outside of its control groups."""
        there = ["nsenter", f"--target={self._pid}", "--mount", "--cgroup", "--pid", "--", *words]
        return subprocess.run(there, capture_output=True, text=True, timeout=HANG_S, check=False, env=self._environ)

    def systemctl(self, *words: str) -> str:
        """Ask it."""
        return self.run("systemctl", "--user", *words).stdout.strip()

    def shows(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", "--property", name, "--value", "--", unit)

    def starts(self, unit: str, *command: str) -> None:
        """Have it start a service."""
        done = self.run("systemd-run", "--user", "--collect", f"--unit={unit}", *command)
        assert done.returncode == 0, done.stderr

    def python(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script there."""
        return self.run(sys.executable, "-c", script)


def _root() -> str:
    with open(MOUNTINFO, "rb") as file:
        return next((one.point for one in hierarchies(file.read()) if not one.controllers), "")


@contextmanager
def a_systemd() -> Iterator[OwnSystemd]:
    """Give one that is up; the test is skipped where none can be."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if os.geteuid() or not _root() or missing:
        pytest.skip(f"a systemd of one's own needs root, cgroup2 and {', '.join(missing) or 'nothing else'}")
    cgroup = f"{_root()}/sysmond-systemd-{os.getpid()}"
    try:
        os.mkdir(cgroup)
    except OSError as refusal:
        pytest.skip(f"no control group can be made: {refusal}")
    words = ["unshare", "--mount", "--cgroup", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", _BEGIN]
    outer = subprocess.Popen(
        ["sh", "-c", _JOIN, cgroup, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        wait_until(lambda: children.read_text().split() or outer.poll() is not None)
        assert outer.poll() is None, outer.stderr.read() if outer.stderr else ""
        systemd = OwnSystemd(int(children.read_text().split()[0]), cgroup)
        wait_until(lambda: systemd.shows("basic.target", "ActiveState") == "active" or outer.poll() is not None)
        yield systemd
    finally:
        outer.kill()
        outer.communicate()
        with suppress(OSError):
            Path(f"{cgroup}/cgroup.kill").write_text("1")
        wait_until(lambda: "populated 0" in Path(f"{cgroup}/cgroup.events").read_text())
        for folder, _, _ in os.walk(cgroup, topdown=False):
            os.rmdir(folder)
