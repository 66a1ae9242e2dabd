# SPDX-License-Identifier: Apache-2.0
"""sysmond on a real bus: every method, right and wrong, from three clients that share no code with it."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.bus.loop import declared
from sysmond.bus.probes import ProbeObject
from sysmond.bus.status import LogControl, Status
from sysmond.bus.steering import Steering
from sysmond.bus.wire.names import BUS_NAME, ERROR, MANAGER, OBJECT_PATH, PROBE, probe_path
from sysmond.ring.newest import Follower
from tests.support import onbus
from tests.support.onbus import OLDER, Recorder, a_bus, a_recorder, answer, busctl, call, gdbus, gdbus_error, python
from tests.support.order import first
from tests.support.waiting import wait_until

pytestmark = onbus.pytestmark

INVALID, NOT_FOUND = f"{ERROR}.InvalidArgument", f"{ERROR}.NotFound"
PROPERTIES = "org.freedesktop.DBus.Properties"
DISK = probe_path("disk")
NONE, UNKNOWN = ("0",), "{'nonsense': <1>}"
SECOND = 1_000_000_000

# Member: what is right, as busctl spells it; what is wrong, as gdbus does; the error.
MANAGER_CALLS = {
    "ListProbes": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "DisableProbe": (("sa{sv}", "disk", *NONE), ("'disc'", "@a{sv} {}"), NOT_FOUND),
    "EnableProbe": (("sa{sv}", "disk", *NONE), ("'disc'", "@a{sv} {}"), NOT_FOUND),
    "SetInterval": (("sta{sv}", "disk", "2000000000", *NONE), ("'disk'", "uint64 2", "@a{sv} {}"), INVALID),
    "SetSetting": (("ssa{sv}", "tiers.1s.size", "1GB", *NONE), ("'tiers.1s.size'", "'much'", "@a{sv} {}"), INVALID),
    "ResetProbe": (("sa{sv}", "disk", *NONE), ("''", "@a{sv} {}"), NOT_FOUND),
    "Reload": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "Flush": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "Pin": (("xxsa{sv}", "1000", "2000", "why", *NONE), ("int64 2", "int64 1", "'why'", "@a{sv} {}"), INVALID),
    "ListPins": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "Unpin": (("xa{sv}", "1500", *NONE), ("int64 5", "@a{sv} {}"), NOT_FOUND),
    "Mark": (("sa{sv}", "a mark", *NONE), ("''", "@a{sv} {}"), INVALID),
    "GetStatus": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "GetBudget": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "GetConfig": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "GetCost": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "ListClients": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
}
PROBE_CALLS = {
    "Disable": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "Enable": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
    "SetInterval": (("ta{sv}", "0", *NONE), ("uint64 18446744073709551615", "@a{sv} {}"), INVALID),
    "Reset": (("a{sv}", *NONE), (UNKNOWN,), INVALID),
}


@pytest.fixture(scope="module", params=first(1, ["newest", "oldest"]))
def recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """One recorder for all tests here; each leaves it as it was."""
    is_older = request.param == "oldest"
    if is_older and not (OLDER / "dbus_fast").is_dir():
        pytest.skip(f"{OLDER.name} is not there; tools/setup.sh could not install it")
    with a_bus() as bus, a_recorder(bus, older=is_older) as there:
        yield there


def test_the_library_is_the_one_that_was_asked_for(recorder: Recorder, request: pytest.FixtureRequest) -> None:
    loaded = Path(f"/proc/{recorder.pid()}/maps").read_text()
    assert ("dbus-fast-2.44" in loaded) == ("oldest" in request.node.name)


def test_the_part_carries_neither_numbers_nor_encryption(recorder: Recorder) -> None:
    loaded = Path(f"/proc/{recorder.pid()}/maps").read_text()
    assert [name for name in ("libssl", "libcrypto", "numpy", "h5py", "yaml") if name in loaded] == []
    assert "dbus_fast" in loaded


def test_every_method_of_these_interfaces_is_called_here() -> None:
    assert MANAGER_CALLS.keys() >= Steering.METHODS.keys() | Status.METHODS.keys()
    assert PROBE_CALLS.keys() == ProbeObject.METHODS.keys()


@pytest.mark.parametrize("member", MANAGER_CALLS)
def test_a_method_of_the_manager_answers_right_and_wrong(recorder: Recorder, member: str) -> None:
    right, wrong, error = MANAGER_CALLS[member]
    called = call(recorder.bus, member, *right)
    assert called.returncode == 0, called.stderr
    assert gdbus_error(gdbus(recorder.bus, f"{MANAGER}.{member}", *wrong)) == error


@pytest.mark.parametrize("member", PROBE_CALLS)
def test_a_method_of_a_probe_answers_right_and_wrong(recorder: Recorder, member: str) -> None:
    right, wrong, error = PROBE_CALLS[member]
    called = call(recorder.bus, member, *right, path=DISK, interface=PROBE)
    assert called.returncode == 0, called.stderr
    assert gdbus_error(gdbus(recorder.bus, f"{PROBE}.{member}", *wrong, path=DISK)) == error


STRANGE = """
from jeepney import MessageType, new_method_call
outcomes = {}
connection = connect()
cases = [
    ("NoSuch", None, ()),
    ("GetStatus", None, ()),
    ("GetStatus", "s", ("x",)),
    ("SetInterval", "ssa{sv}", ("disk", "1s", {})),
    ("Mark", "sa{sv}", ("x" * 5000, {})),
    ("Mark", "sa{sv}", ("mark by jeepney", {})),
    ("Mark", "sa{sv}", ("x", {"n" * 5000: ("i", 1)})),
    ("GetStatus", "a{sv}", ({f"o{i}": ("i", 1) for i in range(1001)},)),
    ("GetStatus", "a{sv}", ({"a": ("v", ("v", ("as", ["y" * 4097])))},)),
]
for number, (member, signature, body) in enumerate(cases):
    answer = call(connection, member, signature, *body)
    outcomes[number] = answer["error"] if isinstance(answer, dict) else "ok"
nowhere = DBusAddress(MANAGER.object_path + "/nowhere", MANAGER.bus_name, MANAGER.interface)
outcomes["nowhere"] = call(connection, "GetStatus", "a{sv}", {}, where=nowhere)["error"]
other = DBusAddress(MANAGER.object_path, MANAGER.bus_name, "org.example.Other")
outcomes["interface"] = call(connection, "GetStatus", "a{sv}", {}, where=other)["error"]
bare = DBusAddress(MANAGER.object_path, MANAGER.bus_name, None)
answer = call(connection, "GetStatus", "a{sv}", {}, where=bare)
outcomes["bare"] = "ok" if not isinstance(answer, dict) else answer["error"]
print(json.dumps(outcomes))
"""


def test_what_is_no_right_call_is_a_typed_error(recorder: Recorder) -> None:
    dbus = "org.freedesktop.DBus.Error"
    much = f"{ERROR}.TooMuch"
    assert python(recorder.bus, STRANGE) == {
        "0": f"{dbus}.UnknownMethod",
        "1": f"{dbus}.InvalidArgs",
        "2": f"{dbus}.InvalidArgs",
        "3": f"{dbus}.InvalidArgs",
        "4": much,
        "5": "ok",
        "6": much,
        "7": much,
        "8": much,
        "nowhere": f"{dbus}.UnknownObject",
        "interface": f"{dbus}.UnknownInterface",
        "bare": "ok",
    }


def test_status_says_who_is_there(recorder: Recorder) -> None:
    (status,) = answer(recorder.bus, "GetStatus", "a{sv}", "0")
    status = {key: value["data"] for key, value in status.items()}
    assert status["pids"].keys() == {"daemon", "sampler", "background", "archiver", "bus"}
    assert status["pids"]["daemon"] == recorder.process.pid if recorder.process else False
    assert (status["bus_name"], status["object_path"], status["state"]) == (BUS_NAME, OBJECT_PATH, "running")
    assert (status["runtime_dir"], status["state_dir"]) == (recorder.folders.runtime, recorder.folders.state)
    assert 0 < status["uptime_ns"] < 3600 * SECOND
    assert status["probes"]["active"] > 10


def test_a_setting_says_where_it_was_said(recorder: Recorder) -> None:
    recorder.configuration.write_text("# First.\nprobes: {load: {interval: 3s}}\n")
    try:
        assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0
        (settings,) = answer(recorder.bus, "GetConfig", "a{sv}", "0")
        assert ["probes.load.interval", "3s", str(recorder.configuration), 2] in settings
        assert ["", 0] in [row[2:] for row in settings]
        (interval,) = answer(
            recorder.bus, "Get", "ss", PROBE, "Interval", path=probe_path("load"), interface=PROPERTIES
        )
        assert interval["data"] == 3 * SECOND
    finally:
        recorder.configuration.write_text("{}\n")
        assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0


def test_the_cost_names_parts_and_probes(recorder: Recorder) -> None:
    wait_until(lambda: {"sampler", "bus", "probe:disk"} <= answer(recorder.bus, "GetCost", "a{sv}", "0")[0].keys())
    (costs,) = answer(recorder.bus, "GetCost", "a{sv}", "0")
    assert costs["bus"]["rss"] > 1e6
    assert costs["probe:disk"].keys() == {"duration", "failures", "dropped"}


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314  the service is our own


def members(text: str, interface: str) -> set[tuple[str, ...]]:
    """What an interface offers, as introspection XML has it."""
    offered = set()
    for there in parsed(text).iterfind("interface"):
        for member in there if there.get("name") == interface else ():
            arguments = tuple(
                f"{argument.get('name')}:{argument.get('type')}:{argument.get('direction')}"
                for argument in member.iter("arg")
            )
            annotations = tuple(
                f"{annotation.get('name')}={annotation.get('value')}" for annotation in member.iter("annotation")
            )
            offered.add(
                (
                    member.tag,
                    member.get("name", ""),
                    member.get("type", ""),
                    member.get("access", ""),
                    *arguments,
                    *annotations,
                )
            )
    return offered


@pytest.mark.parametrize(("path", "interface"), [(OBJECT_PATH, MANAGER), (DISK, PROBE)])
def test_the_service_is_what_its_xml_says(recorder: Recorder, repository: Path, path: str, interface: str) -> None:
    installed = (repository / "dbus" / f"{interface}.xml").read_text()
    (running,) = answer(recorder.bus, "Introspect", path=path, interface="org.freedesktop.DBus.Introspectable")
    assert members(installed, interface) == members(running, interface)
    assert len(members(running, interface)) > 10


def test_every_interface_has_its_file_and_every_file_its_interface(repository: Path) -> None:
    assert {path.stem for path in (repository / "dbus").glob("*.xml")} == declared().keys()


def test_nothing_is_at_the_root_and_the_tree_can_be_walked(recorder: Recorder) -> None:
    shown = busctl(recorder.bus, "tree", "--list", BUS_NAME).stdout.split()
    assert {OBJECT_PATH, DISK} <= set(shown)
    (root,) = answer(recorder.bus, "Introspect", path="/", interface="org.freedesktop.DBus.Introspectable")
    assert {interface.get("name", "") for interface in parsed(root).iterfind("interface")} <= {
        "org.freedesktop.DBus.Peer",
        "org.freedesktop.DBus.Introspectable",
        "org.freedesktop.DBus.Properties",
    }
    assert call(recorder.bus, "Ping", path="/any/where", interface="org.freedesktop.DBus.Peer").returncode == 0


def test_every_probe_is_an_object_with_its_state(recorder: Recorder) -> None:
    (objects,) = answer(recorder.bus, "GetManagedObjects", interface="org.freedesktop.DBus.ObjectManager")
    (rows,) = answer(recorder.bus, "ListProbes", "a{sv}", "0")
    assert {row[6] for row in rows} == objects.keys()
    disk = {name: value["data"] for name, value in objects[DISK][PROBE].items()}
    assert disk.keys() == ProbeObject.PROPERTIES.keys()
    assert (disk["Name"], disk["Plugin"], disk["State"], disk["Lane"]) == (
        "disk",
        "sysmond_probes.disk",
        "active",
        "realtime",
    )
    assert ["read_bytes", "B", "counter", "Bytes read.", 1.0] in disk["Metrics"]


def test_properties_are_read_and_those_of_the_log_alone_are_written(recorder: Recorder) -> None:
    def error(method: str, *words: str) -> str:
        return gdbus_error(gdbus(recorder.bus, f"{PROPERTIES}.{method}", *words))

    log = f"'{LogControl.NAME}'"
    assert error("Set", f"'{MANAGER}'", "'Version'", "<'9'>").endswith("PropertyReadOnly")
    assert error("Set", log, "'LogLevel'", "<5>").endswith("InvalidArgs")
    assert error("Set", log, "'LogLevel'", "<'loud'>").endswith("InvalidArgs")
    assert error("Set", log, "'LogTarget'", "<'moon'>").endswith("InvalidArgs")
    assert error("Get", f"'{MANAGER}'", "'NoSuch'").endswith("UnknownProperty")
    assert error("GetAll", "'org.example.Other'").endswith("UnknownInterface")
    for level in ("err", "info"):
        assert gdbus(recorder.bus, f"{PROPERTIES}.Set", log, "'LogLevel'", f"<'{level}'>").returncode == 0
        assert level in gdbus(recorder.bus, f"{PROPERTIES}.Get", log, "'LogLevel'").stdout
    assert gdbus(recorder.bus, f"{PROPERTIES}.Set", log, "'LogTarget'", "<'console'>").returncode == 0


LISTEN = """
from jeepney import MatchRule, message_bus
from jeepney.io.blocking import Proxy
from collections import deque
connection = connect()
signals = connection.filter(MatchRule(type="signal"), queue=deque()).queue
for interface in ("org.freedesktop.DBus.Properties", "org.freedesktop.DBus.ObjectManager"):
    Proxy(message_bus, connection).AddMatch(MatchRule(type="signal", sender=MANAGER.bus_name, interface=interface))
def await_signal(member, path):
    while True:
        message = connection.recv_until_filtered(signals, timeout=30)
        fields = {key.name: value for key, value in message.header.fields.items()}
        if fields.get("member") == member and path in (fields["path"], message.body[0]):
            return message.body
"""
DISABLE = """
path = MANAGER.object_path + "/probe/load"
failed = []
for member in ("DisableProbe", "EnableProbe"):
    answer = call(connection, member, "sa{sv}", "load", {})
    failed.append(answer)
first, second = await_signal("PropertiesChanged", path), await_signal("PropertiesChanged", path)
print(json.dumps([failed, first, second]))
"""


def test_a_state_that_changes_is_told(recorder: Recorder) -> None:
    failed, first, second = python(recorder.bus, LISTEN + DISABLE)
    assert failed == [[], []]
    assert first[:2] == [
        PROBE,
        {"State": ["s", "disabled"], "Reason": ["s", "not enabled"], "Lane": ["s", "realtime"]},
    ]
    assert second[1]["State"] == ["s", "active"]


PLUGIN = """
from sysmond.probe import Probe, Table, counter, hookimpl

@hookimpl
def sysmond_probes():
    return [Probe(Table("added", (counter("count", "1", "A number."),)), lambda host: [("", (1,))])]
"""
ADDED = """
import os
path = MANAGER.object_path + "/probe/added"
folder, source = sys.argv[2:]
os.makedirs(folder, exist_ok=True)
with open(folder + "/added.py", "w") as file:
    file.write(source)
first = call(connection, "Reload", "a{sv}", {})
added = await_signal("InterfacesAdded", path)
os.unlink(folder + "/added.py")
second = call(connection, "Reload", "a{sv}", {})
print(json.dumps([first, added, second, await_signal("InterfacesRemoved", path)]))
"""


def test_a_plugin_that_comes_and_goes_is_an_object_that_does(recorder: Recorder) -> None:
    folder = f"{recorder.folder}/config/sysmond/probes"
    _, added, _, removed = python(recorder.bus, LISTEN + ADDED, folder, PLUGIN)
    assert added[1][PROBE]["Name"] == ["s", "added"]
    assert removed == [probe_path("added"), [PROBE]]


def test_a_wrong_configuration_is_named_and_changes_nothing(recorder: Recorder) -> None:
    recorder.configuration.write_text("probes: {disk: {interval: never}}\n")
    try:
        refused = gdbus(recorder.bus, f"{MANAGER}.Reload", "@a{sv} {}")
        assert gdbus_error(refused) == f"{ERROR}.InvalidArgument"
        assert "probes.disk.interval" in refused.stderr
    finally:
        recorder.configuration.write_text("{}\n")
    assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0


def test_a_refused_plugin_is_listed_with_its_reason(recorder: Recorder) -> None:
    folder = Path(f"{recorder.folder}/config/sysmond/probes")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken.py").write_text("nonsense(")
    try:
        assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0
        (rows,) = answer(recorder.bus, "ListProbes", "a{sv}", "0")
        (broken,) = [row for row in rows if row[1] == "refused"]
        assert broken[0].endswith("broken.py")
        assert "SyntaxError" in broken[2]
        assert broken[6] == "/"
    finally:
        (folder / "broken.py").unlink()
    assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0


def test_clients_are_listed_while_they_are_there(recorder: Recorder) -> None:
    script = """
connection, other = connect(), connect()
call(other, "GetStatus", "a{sv}", {})
before = call(connection, "ListClients", "a{sv}", {})[0]
other.close()
import time
while True:
    after = call(connection, "ListClients", "a{sv}", {})[0]
    if len(after) < len(before):
        break
import os
print(json.dumps([before, after, os.getuid(), os.getpid()]))
"""
    before, after, uid, pid = python(recorder.bus, script)
    assert [client[1:3] for client in before if client[2] == pid] == [[uid, pid]] * 2
    assert [client[1:3] for client in after if client[2] == pid] == [[uid, pid]]


def test_a_pin_is_kept_listed_and_released(recorder: Recorder) -> None:
    def pins() -> list[list[object]]:
        pinned: list[list[object]] = answer(recorder.bus, "ListPins", "a{sv}", "0")[0]
        return [pin for pin in pinned if pin[3] == "user"]  # Others may be of what the machine goes through just now.

    for start in (10 * SECOND, 30 * SECOND):
        assert call(recorder.bus, "Pin", "xxsa{sv}", str(start), str(start + SECOND), "-- why?", "0").returncode == 0
    assert [pin[:3] for pin in pins()] == [[at, at + SECOND, "-- why?"] for at in (10 * SECOND, 30 * SECOND)]
    assert call(recorder.bus, "Unpin", "xa{sv}", str(10 * SECOND), "0").returncode == 0
    assert len(pins()) == 1
    assert call(recorder.bus, "Unpin", "xa{sv}", "0", "1", "all", "b", "true").returncode == 0
    assert pins() == []


def test_json_of_busctl_is_what_gdbus_says(recorder: Recorder) -> None:
    version = json.loads(
        busctl(recorder.bus, "--json=short", "get-property", BUS_NAME, OBJECT_PATH, MANAGER, "Version").stdout
    )
    assert version["data"] in gdbus(recorder.bus, f"{PROPERTIES}.Get", f"'{MANAGER}'", "'Version'").stdout


TROUBLED = """
import os
from sysmond.probe import Probe, Table, gauge, hookimpl

def nowhere(host):
    return [("", (len(host.read("/proc/no/such/file")),))]

def telling(host):
    raise ValueError("not a number:\\nsecret\\x1b[31m")

def deadly(host):
    os._exit(1)

@hookimpl
def sysmond_probes():
    metrics = (gauge("size", "B", "A number."),)
    read = {"nowhere": nowhere, "telling": telling, "deadly": deadly}
    return [Probe(Table(name, metrics), reader) for name, reader in read.items()]
"""


def test_a_probe_tells_why_it_is_absent_or_quarantined(recorder: Recorder) -> None:
    def state(table: str) -> tuple[str, str]:
        (properties,) = answer(recorder.bus, "GetAll", "s", PROBE, path=probe_path(table), interface=PROPERTIES)
        return properties["State"]["data"], properties["Reason"]["data"]

    def listed(table: str) -> str:
        (rows,) = answer(recorder.bus, "ListProbes", "a{sv}", "0")
        return next(str(row[2]) for row in rows if row[0] == table)

    folder = Path(f"{recorder.folder}/config/sysmond/probes")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "troubled.py").write_text(TROUBLED)
    try:
        assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0
        wait_until(lambda: state("nowhere")[0] == "absent", lambda: f"{state('nowhere')} {recorder.said()}")
        assert listed("nowhere").startswith("no source: ")
        # An exception may cite what it stumbled on, which is restricted here; and it says so in one line.
        wait_until(lambda: state("telling") == ("failing", "probe failed"), lambda: f"{state('telling')}")
        assert listed("telling") == "probe failed: ValueError: not a number: secret [31m"
        wait_until(lambda: state("deadly")[0] == "quarantined", lambda: f"{state('deadly')} {recorder.said()}")
        assert state("deadly")[1].startswith("quarantined: ")
        (status,) = answer(recorder.bus, "GetStatus", "a{sv}", "0")
        assert status["probes"]["data"]["absent"] >= 1
        assert call(recorder.bus, "Reset", "a{sv}", "0", path=probe_path("deadly"), interface=PROBE).returncode == 0
    finally:
        (folder / "troubled.py").unlink()
        assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0


MANY = """
from sysmond.probe import Probe, Table, counter, hookimpl

@hookimpl
def sysmond_probes():
    metrics = tuple(counter(f"metric{number}", "1", "What this number is about. " * 8) for number in range(30))
    return [Probe(Table(f"many{number}", metrics), lambda host: []) for number in range(60)]
"""


def test_as_many_probes_as_somebody_installs_are_all_told(recorder: Recorder) -> None:
    folder = Path(f"{recorder.folder}/config/sysmond/probes")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "many.py").write_text(MANY)
    try:
        assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0
        output = call(recorder.bus, "GetManagedObjects", interface="org.freedesktop.DBus.ObjectManager").stdout
        assert output.count("/probe/many") == 60
        assert len(output) > 256 * 1024
        (rows,) = answer(recorder.bus, "ListProbes", "a{sv}", "0")
        assert sum(row[0].startswith("many") for row in rows) == 60
    finally:
        (folder / "many.py").unlink()
        assert call(recorder.bus, "Reload", "a{sv}", "0").returncode == 0


QUARANTINED = """
import os
path = MANAGER.object_path + "/probe/deadly"
folder, source = sys.argv[2:]
os.makedirs(folder, exist_ok=True)
with open(folder + "/troubled.py", "w") as file:
    file.write(source)
call(connection, "Reload", "a{sv}", {})
changed = await_signal("PropertiesChanged", path)
while tuple(changed[1].get("State", ())) != ("s", "quarantined"):
    changed = await_signal("PropertiesChanged", path)  # Absent comes first, where somebody looks in between.
os.unlink(folder + "/troubled.py")
call(connection, "Reload", "a{sv}", {})
print(json.dumps(changed))
"""


def test_a_quarantine_is_told_to_those_who_do_not_ask(recorder: Recorder) -> None:
    folder = f"{recorder.folder}/config/sysmond/probes"
    interface, changed, _ = python(recorder.bus, LISTEN + QUARANTINED, folder, TROUBLED)
    assert interface == PROBE
    assert changed["State"] == ["s", "quarantined"]


def test_an_enabled_probe_has_a_sample_soon(recorder: Recorder) -> None:
    # It answers when the lanes follow: then the next tick has rows, whatever the machine does meanwhile.
    for member in ("DisableProbe", "EnableProbe"):
        assert call(recorder.bus, member, "sa{sv}", "memory", "0").returncode == 0
    follower = Follower(recorder.folders)
    try:
        wait_until(lambda: not any(table == "memory" for table, *_ in follower.read().absences))
        assert follower.read().value("memory", "total")
    finally:
        follower.close()
