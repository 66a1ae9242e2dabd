# SPDX-License-Identifier: Apache-2.0
"""A bus of one's own with sysmond on it: a real dbus-daemon, a real daemon, and clients that share no code with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sysmond.bus.wire.names import BUS_NAME, MANAGER, OBJECT_PATH
from sysmond.machine.folders import Folders
from tests.support.waiting import HANG_S, wait_until

REPOSITORY = Path(__file__).resolve().parent.parent.parent
POLICY = REPOSITORY / "dbus" / f"{BUS_NAME}.conf"
CGROUP_TABLES = tuple(f"cgroup{of}" for of in ("", "_io", "_memory", "_limits", "_tree", "_owner"))
OLDER = REPOSITORY / ".venv" / "dbus-fast-2.44"
"""The oldest dbus-fast that we support, which `tools/setup.sh` puts there."""

_DOCTYPE = (
    '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" '
    '"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">'
)
_OPEN = """
<limit name="max_connections_per_user">1000</limit>
<policy context="default">
  <allow send_destination="*"/>
  <allow eavesdrop="true"/>
  <allow own="*"/>
</policy>
"""
# What the system bus of a distribution allows: no method call but where a service's own policy says so.
_STRICT = f"""
<policy context="default">
  <allow user="*"/>
  <deny own="*"/>
  <deny send_type="method_call"/>
  <allow send_type="signal"/>
  <allow send_requested_reply="true" send_type="method_return"/>
  <allow send_requested_reply="true" send_type="error"/>
  <allow receive_type="method_call"/>
  <allow receive_type="method_return"/>
  <allow receive_type="error"/>
  <allow receive_type="signal"/>
  <allow send_destination="org.freedesktop.DBus"/>
</policy>
<include ignore_missing="yes">/usr/share/dbus-1/system.d/org.freedesktop.PolicyKit1.conf</include>
<include>{POLICY}</include>
"""

pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")


class Bus:
    """A dbus-daemon at an address of its own, which it keeps over restarts."""

    def __init__(self, folder: Path, *, is_strict: bool = False, owner: str = "") -> None:
        """``is_strict``: allow what a system bus allows. ``owner``: more of the policy."""
        self.address = f"unix:path={folder}/bus"
        self.folder = folder
        self._configuration = folder / "bus.conf"
        self._configuration.write_text(
            f"{_DOCTYPE}<busconfig><type>{'system' if is_strict else 'session'}</type><listen>{self.address}</listen>"
            f"<auth>EXTERNAL</auth>{_STRICT if is_strict else _OPEN}{owner}</busconfig>"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it listens when this returns."""
        with suppress(FileNotFoundError):
            os.unlink(self.folder / "bus")
        command = ["dbus-daemon", "--nofork", "--nopidfile", f"--config-file={self._configuration}", "--print-address"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the dbus-daemon did not start"
        os.chmod(self.folder / "bus", 0o777)  # noqa: S103  it is in a folder of its own, and others are to be refused by the bus

    def kill(self) -> None:
        """Let it die."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.kill()
            self.process.communicate()
            self.process = None


@contextmanager
def a_bus(*, is_strict: bool = False, owner: str = "") -> Iterator[Bus]:
    """Give a running bus whose socket everybody can reach."""
    folder = Path(tempfile.mkdtemp(prefix="sysmond-bus-", dir="/dev/shm"))
    folder.chmod(0o755)
    bus = Bus(folder, is_strict=is_strict, owner=owner)
    try:
        bus.start()
        yield bus
    finally:
        bus.kill()
        shutil.rmtree(folder, ignore_errors=True)


class Recorder:
    """A whole sysmond that records into folders of its own, with its bus part on a bus."""

    def __init__(
        self,
        bus: Bus,
        folder: Path,
        *,
        older: bool = False,
        user: bool = True,
        is_small: bool = False,
        root: str = "/",
    ) -> None:
        """``older``: with the oldest dbus-fast. ``user``: as that of a user, which needs no authorization.

        ``is_small``: without control groups, for all series to find room in one answer. ``root``: of the machine that
        it records.
        """
        self.bus = bus
        self.folder = folder
        self.folders = Folders(f"{folder}/state", f"{folder}/run")
        self.configuration = folder / "sysmond.yaml"
        off = "".join(f"  {table}: {{enabled: false}}\n" for table in CGROUP_TABLES) if is_small else ""
        self.configuration.write_text(f"probes:\n{off}" if off else "{}\n")
        self.log = folder / "log"
        self.environ: dict[str, str] = {}
        self._older = older
        self._user = user
        self._root = root
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until its name is on the bus."""
        command = [sys.executable, "-P", "-m", "sysmond", "--bus", self.bus.address, "--root", self._root]
        command += ["--user"] if self._user else []
        command += ["--config", str(self.configuration)]
        command += ["--state-dir", self.folders.state, "--runtime-dir", self.folders.runtime]
        environ = {**os.environ, "XDG_CONFIG_HOME": f"{self.folder}/config", **self.environ}
        environ |= {"PYTHONPATH": str(OLDER)} if self._older else {}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environ, start_new_session=True
            )
        if wait:
            wait_until(lambda: self.is_there() or self.has_ended(), self.said)
            assert not self.has_ended(), self.said()

    def has_ended(self) -> bool:
        """Whether it has died."""
        return self.process is not None and self.process.poll() is not None

    def is_there(self) -> bool:
        """Whether its name is on the bus."""
        return busctl(self.bus, "status", BUS_NAME).returncode == 0

    def said(self) -> str:
        """What it has said."""
        return self.log.read_text(errors="replace")

    def pid(self, part: str = "bus") -> int:
        """The process of a part."""
        return int(Path(f"{self.folders.runtime}/{part}/pid").read_text())

    def end(self) -> int:
        """End it in order, and give its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(HANG_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def a_recorder(
    bus: Bus,
    *,
    older: bool = False,
    user: bool = True,
    starts: bool = True,
    place: str = "/dev/shm",
    is_small: bool = False,
    root: str = "/",
) -> Iterator[Recorder]:
    """Give a recorder that runs, unless it is to be started later, and end it."""
    folder = Path(tempfile.mkdtemp(prefix="sysmond-", dir=place))
    folder.chmod(0o755)
    recorder = Recorder(bus, folder, older=older, user=user, is_small=is_small, root=root)
    try:
        if starts:
            recorder.start()
        yield recorder
    finally:
        recorder.end()
        shutil.rmtree(folder, ignore_errors=True)


Answer = subprocess.CompletedProcess[str]


def run(*command: str, user: str = "") -> Answer:
    """Run a client, as another user where one is named."""
    prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
    return subprocess.run([*prefix, *command], capture_output=True, text=True, timeout=HANG_S, check=False)


def busctl(bus: Bus, *words: str, user: str = "") -> Answer:
    """Run systemd's client."""
    return run("busctl", f"--address={bus.address}", *words, user=user)


def call(
    bus: Bus, member: str, *words: str, user: str = "", path: str = OBJECT_PATH, interface: str = MANAGER
) -> Answer:
    """Call a method of the Manager, or of another, through busctl; the answer is JSON."""
    where = (BUS_NAME, path, interface, member)
    # What begins with a hyphen is a value here.
    return busctl(bus, "--json=short", "--timeout=60", "call", "--", *where, *words, user=user)


def answer(bus: Bus, member: str, *words: str, path: str = OBJECT_PATH, interface: str = MANAGER) -> list[Any]:
    """Call a method that succeeds, and give what it answers."""
    called = call(bus, member, *words, path=path, interface=interface)
    assert called.returncode == 0, called.stderr
    values: list[Any] = json.loads(called.stdout)["data"] if called.stdout.strip() else []
    return values


def gdbus(bus: Bus, method: str, *words: str, path: str = OBJECT_PATH, user: str = "") -> Answer:
    """Run GLib's client; ``method`` has its interface before it."""
    where = ["--address", bus.address, "--dest", BUS_NAME, "--object-path", path]
    return run("gdbus", "call", *where, "--method", method, *words, user=user)


def gdbus_error(called: Answer) -> str:
    """The name of the error that GLib's client was answered with."""
    assert called.returncode != 0, called.stdout
    return called.stderr.partition("GDBus.Error:")[2].partition(": ")[0]


def python(bus: Bus, script: str, *words: str, user: str = "") -> Any:
    """Run a script that speaks through jeepney, and give the JSON that it writes: the third foreign client."""
    done = run(sys.executable, "-I", "-c", JEEPNEY + script, bus.address, *words, user=user)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


JEEPNEY = f"""
import json, sys
from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

MANAGER = DBusAddress({OBJECT_PATH!r}, {BUS_NAME!r}, {MANAGER!r})

def connect(**options):
    return open_dbus_connection(bus=sys.argv[1], **options)

def call(connection, member, signature=None, *body, where=MANAGER, timeout=30):
    reply = connection.send_and_get_reply(new_method_call(where, member, signature, body), timeout=timeout)
    if reply.header.message_type is MessageType.error:
        return dict(error=next(v for k, v in reply.header.fields.items() if k.name == "error_name"), text=reply.body[0])
    return reply.body
"""


def every(items: Sequence[str]) -> str:
    """Spell an array of texts for busctl."""
    return " ".join([str(len(items)), *items])


@contextmanager
def a_user(name: str = "") -> Iterator[str]:
    """Make a user without privileges, and remove it; the test is skipped where no user can be made.

    By default the name has this process's id: others may run the same tests.
    """
    name = name or f"sysmond-test-{os.getpid()}"
    if os.geteuid() != 0:
        pytest.skip("only root can make a user to be")
    if shutil.which("useradd") is None or shutil.which("setpriv") is None:
        pytest.skip("no useradd or no setpriv here")
    made = run("useradd", "--system", "--no-create-home", "--user-group", "--shell", "/usr/sbin/nologin", name)
    assert made.returncode == 0, made.stderr
    try:
        yield name
    finally:
        run("userdel", name)
