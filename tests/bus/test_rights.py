# SPDX-License-Identifier: Apache-2.0
"""Who may steer over the bus: a system bus with our policy, a real polkitd with our actions, a user without rights."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sysmond.base.allowance import PER_USER_MAX
from sysmond.bus.loop import declared
from sysmond.bus.status import LogControl
from sysmond.bus.wire.interface import ours
from sysmond.bus.wire.names import BUS_NAME, ERROR, MANAGER, OBJECT_PATH, POLKIT_ACTIONS, PROBE, probe_path
from tests.support import onbus
from tests.support.clients import ANYBODY
from tests.support.onbus import (
    REPOSITORY,
    Bus,
    Recorder,
    a_bus,
    a_recorder,
    a_user,
    busctl,
    gdbus,
    gdbus_error,
    python,
    run,
)
from tests.support.waiting import wait_until

pytestmark = [
    onbus.pytestmark,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can call as another user and own a name on a system bus"),
]

ACTIONS = REPOSITORY / "dbus" / f"{BUS_NAME}.policy"
POLKITD = "/usr/lib/polkit-1/polkitd"
POLKIT = "org.freedesktop.PolicyKit1"
NOT_AUTHORIZED = f"{ERROR}.NotAuthorized"
NO_OPTIONS = "@a{sv} {}"
MARK = (f"{MANAGER}.Mark", "'a mark'", NO_OPTIONS)
INCIDENT = (f"{MANAGER}.Mark", "'it hangs'", "{'pin': <true>}")
PIN = (f"{MANAGER}.Pin", "int64 1", "int64 2", "'why'", NO_OPTIONS)
STEERING = (
    MARK,
    PIN,
    (f"{MANAGER}.DisableProbe", "'disk'", NO_OPTIONS),
    (f"{MANAGER}.Flush", NO_OPTIONS),
    (f"{MANAGER}.Reload", NO_OPTIONS),
    ("org.freedesktop.DBus.Properties.Set", f"'{LogControl.NAME}'", "'LogLevel'", "<'debug'>"),
)
SEEING = (f"{MANAGER}.GetStatus", NO_OPTIONS)
RULES = """
polkit.addRule(function(action, subject) {
    if (subject.user == "%s" && action.id == "%s.mark") { return polkit.Result.YES; }
    if (subject.user == "%s" && action.id == "%s.flush") { return polkit.Result.NO; }
});
"""


@pytest.fixture(scope="module")
def user() -> Iterator[str]:
    """A user without rights."""
    with a_user() as name:
        yield name


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """A recorder of the machine, on a bus with the policy of a system bus."""
    with a_bus(is_strict=True) as bus, a_recorder(bus, user=False) as there:
        yield there


@contextmanager
def a_polkitd(bus: Bus, user: str) -> Iterator[None]:
    """Run polkitd with our actions and a rule about this user, in a view of the file system of its own."""
    if not os.access(POLKITD, os.X_OK):
        pytest.skip(f"no {POLKITD} here")
    folder = bus.folder / "polkit"
    for part in ("actions", "rules"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part).chmod(0o755)
    folder.chmod(0o755)
    shutil.copy(ACTIONS, folder / "actions")
    (folder / "rules" / "10-test.rules").write_text(RULES % (user, BUS_NAME, user, BUS_NAME))
    script = (
        f"mount --bind {folder}/actions /usr/share/polkit-1/actions && "
        f"mount --bind {folder}/rules /etc/polkit-1/rules.d && exec {POLKITD} --no-debug"
    )
    if run("unshare", "--mount", "true").returncode:
        pytest.skip("no mount namespaces here: the actions cannot be put where polkitd looks for them")
    environ = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": bus.address}
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(lambda: busctl(bus, "status", POLKIT).returncode == 0 or process.poll() is not None)
            assert process.poll() is None, "polkitd did not start"
            yield
        finally:
            process.kill()


def test_everybody_may_see(recorder: Recorder, user: str) -> None:
    assert gdbus(recorder.bus, *SEEING, user=user).returncode == 0
    assert busctl(recorder.bus, "introspect", BUS_NAME, OBJECT_PATH, user=user).returncode == 0


@pytest.mark.parametrize("call", STEERING, ids=lambda call: call[0].rpartition(".")[2])
def test_without_polkit_nobody_may_steer(recorder: Recorder, user: str, call: tuple[str, ...]) -> None:
    for who in ("", user):
        refused = gdbus(recorder.bus, *call, user=who)
        assert gdbus_error(refused) == NOT_AUTHORIZED, refused.stderr
        assert "polkit cannot be asked" in refused.stderr


def test_polkit_decides_by_who_calls_and_what(recorder: Recorder, user: str) -> None:
    with a_polkitd(recorder.bus, user):
        assert gdbus(recorder.bus, *MARK, user=user).returncode == 0
        assert gdbus(recorder.bus, *INCIDENT, user=user).returncode == 0
        for call in STEERING[1:]:
            refused = gdbus(recorder.bus, *call, user=user)
            assert gdbus_error(refused) == NOT_AUTHORIZED, refused.stderr
            assert "is not authorized" in refused.stderr
        for call in STEERING:
            assert gdbus(recorder.bus, *call).returncode == 0, call
    assert gdbus_error(gdbus(recorder.bus, *MARK)) == NOT_AUTHORIZED


def test_who_makes_too_many_marks_is_told_so(recorder: Recorder, user: str) -> None:
    with a_polkitd(recorder.bus, user):
        marks = [gdbus(recorder.bus, *MARK, user=user) for _ in range(PER_USER_MAX + 1)]
    refused = [marked for marked in marks if marked.returncode]
    assert refused
    assert {gdbus_error(marked) for marked in refused} == {f"{ERROR}.TooMuch"}
    assert len(marks) - len(refused) <= PER_USER_MAX


def test_the_service_of_a_user_obeys_that_user_alone(user: str) -> None:
    with a_bus(is_strict=True) as bus, a_recorder(bus) as there:
        assert gdbus(bus, *MARK).returncode == 0
        refused = gdbus(bus, *MARK, user=user)
        assert gdbus_error(refused) == NOT_AUTHORIZED
        assert "may not steer the service of uid 0" in refused.stderr
        assert gdbus(bus, *SEEING, user=user).returncode == 0
        assert there.is_there()


TELLING = """
from sysmond.probe import Probe, Table, gauge, hookimpl

def read(host):
    raise ValueError("secret")

@hookimpl
def sysmond_probes():
    return [Probe(Table("telling", (gauge("size", "B", "A number."),)), read)]
"""


def test_what_an_exception_about_restricted_tables_cites_is_restricted(user: str) -> None:
    with a_bus(is_strict=True) as bus, a_recorder(bus, starts=False) as there:
        folder = there.folder / "config" / "sysmond" / "probes"
        folder.mkdir(parents=True)
        (folder / "telling.py").write_text(TELLING)
        there.start()

        def output_of(who: str, member: str, *words: str, path: str = OBJECT_PATH) -> str:
            return gdbus(bus, member, *words, path=path, user=who).stdout

        listing = f"{MANAGER}.ListProbes", NO_OPTIONS
        wait_until(lambda: "'probe failed: ValueError: secret'" in output_of("", *listing), there.said)
        assert "'probe failed'" in output_of(user, *listing)
        assert "secret" not in output_of(user, *listing)
        reason = "org.freedesktop.DBus.Properties.Get", f"'{PROBE}'", "'Reason'"
        for who in ("", user):
            assert output_of(who, *reason, path=probe_path("telling")) == "(<'probe failed'>,)\n"


KNOWING = """
from sysmond.probe import Option, Probe, Table, gauge, hookimpl

def read(host, token):
    return [("", (len(token),))]

@hookimpl
def sysmond_probes():
    token = Option("token", "none", "Of its source.")
    return [Probe(Table("knowing", (gauge("size", "B", "A number."),)), read, options=(token,))]
"""
SECRET = "a-token-of-ours"  # noqa: S105  of a test's own


def test_options_of_restricted_probes_are_for_restricted_callers_alone(user: str) -> None:
    with a_bus(is_strict=True) as bus, a_recorder(bus, starts=False) as there:
        folder = there.folder / "config" / "sysmond" / "probes"
        folder.mkdir(parents=True)
        (folder / "knowing.py").write_text(KNOWING)
        there.configuration.write_text(f"probes:\n  knowing:\n    options:\n      token: {SECRET}\n")
        there.start()
        path = probe_path("knowing")
        properties = "org.freedesktop.DBus.Properties"
        questions = [
            ((f"{MANAGER}.GetConfig", NO_OPTIONS), OBJECT_PATH),
            (("org.freedesktop.DBus.ObjectManager.GetManagedObjects",), OBJECT_PATH),
            ((f"{properties}.Get", f"'{PROBE}'", "'Options'"), path),
            ((f"{properties}.GetAll", f"'{PROBE}'"), path),
        ]
        for question, where in questions:
            answers = {who: gdbus(bus, *question, path=where, user=who) for who in ("", user)}
            assert all(answer.returncode == 0 for answer in answers.values())
            assert SECRET in answers[""].stdout
            assert SECRET not in answers[user].stdout
        for root in (there.folders.runtime, there.folders.state):
            listed = run("grep", "-rls", SECRET, root)
            assert root != there.folders.runtime or "plan-options.json" in listed.stdout
            assert run("grep", "-rls", SECRET, root, user=user).stdout == ""


UNKNOWN = """
import asyncio, json, sys
from dbus_fast.aio import MessageBus
from dbus_fast.auth import AuthAnonymous
from dbus_fast import Message

async def main():
    bus = await MessageBus(bus_address=sys.argv[1], auth=AuthAnonymous()).connect()
    where = dict(destination=sys.argv[2], path=sys.argv[3], interface=sys.argv[4])
    calls = [Message(**where, member=member, signature="a{sv}", body=[{}]) for member in ("GetStatus", "ListBoots")]
    answers = [await bus.call(call) for call in calls]
    print(json.dumps([[answer.error_name, str(answer.body)] for answer in answers]))

asyncio.run(main())
"""


def test_who_is_nobody_to_the_bus_is_refused() -> None:
    anonymous = "<auth>ANONYMOUS</auth><allow_anonymous/>"
    with a_bus(owner=f"{anonymous}{ANYBODY}") as bus, a_recorder(bus):
        done = run(sys.executable, "-P", "-c", UNKNOWN, bus.address, BUS_NAME, OBJECT_PATH, MANAGER)
        assert done.returncode == 0, done.stderr
        for name, text in json.loads(done.stdout):
            assert (name, "does not say who calls" in text) == (NOT_AUTHORIZED, True), text


def test_the_policy_gives_the_name_to_nobody_else(recorder: Recorder, user: str) -> None:
    assert recorder.is_there()
    with a_bus(is_strict=True) as bus:
        where = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "RequestName", "su")
        refused = busctl(bus, "call", *where, BUS_NAME, "0", user=user)
        assert "Access denied" in refused.stderr
        assert busctl(bus, "call", *where, BUS_NAME, "0").returncode == 0


def test_the_policy_lets_no_descriptor_through(recorder: Recorder) -> None:
    script = """
import os
connection = connect(enable_fds=True)
answer = call(connection, "Mark", "h", os.open("/dev/null", os.O_RDONLY))
print(json.dumps([answer["error"], call(connection, "GetStatus", "a{sv}", {})[0]["version"][0]]))
"""
    assert python(recorder.bus, script) == ["org.freedesktop.DBus.Error.AccessDenied", "s"]


def test_the_policy_file_has_the_actions_that_methods_need() -> None:
    actions = ET.parse(ACTIONS).getroot()  # noqa: S314  our own
    there = {action.get("id", "") for action in actions.iterfind("action")}
    needed = {method.action for kinds in declared().values() for kind in kinds for method in kind.METHODS.values()} - {
        ""
    }
    assert there == {f"{BUS_NAME}.{action}" for action in POLKIT_ACTIONS}
    assert needed <= set(POLKIT_ACTIONS)
    owners = [
        annotation.text for annotation in actions.iterfind("action/annotate[@key='org.freedesktop.policykit.owner']")
    ]
    assert owners == ["unix-user:sysmond-bus"] * len(there)
    assert ours(MANAGER)


def test_the_policy_files_are_well_formed() -> None:
    for path in sorted(path for path in Path(REPOSITORY / "dbus").iterdir() if path.suffix != ".service"):
        ET.parse(path)  # noqa: S314  our own
