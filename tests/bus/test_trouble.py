# SPDX-License-Identifier: Apache-2.0
"""The bus part in trouble: a bus that is absent, dies or stops, strangers that send nonsense or read nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from sysmond.bus.wire.backlog import ANSWERS_BYTES_MAX, ASK_AFTER_BYTES, REFUSALS_BYTES_MAX, USER_BYTES_MAX
from sysmond.bus.wire.names import BUS_NAME, OBJECT_PATH
from sysmond.ring.frame import SUFFIX as RING_SUFFIX
from sysmond.ring.newest import Follower
from tests.support import bus_scenarios, onbus
from tests.support.bus_scenarios import ASKED, MUCH
from tests.support.onbus import JEEPNEY, OLDER, Bus, Recorder, a_bus, a_recorder, answer, call, python
from tests.support.order import first, rounds
from tests.support.waiting import HANG_S, wait_until

pytestmark = onbus.pytestmark

CALLS = 10_000
# Allocators keep some of what a load took; a leak of one message a call would be ten times that.
GROWTH_BYTES_MAX = 5 * 1024 * 1024


@pytest.fixture(scope="module", params=first(1, ["newest", "oldest"]))
def recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """One recorder for all tests that leave its bus alone."""
    is_older = request.param == "oldest"
    if is_older and not (OLDER / "dbus_fast").is_dir():
        pytest.skip(f"{OLDER.name} is not there; tools/setup.sh could not install it")
    with a_bus() as bus, a_recorder(bus, older=is_older) as there:
        yield there


def owner(bus: Bus) -> str:
    """The unique name of the service's connection: another one after every loss."""
    script = f"""
from jeepney import message_bus
from jeepney.io.blocking import Proxy
print(json.dumps(Proxy(message_bus, connect()).GetNameOwner({BUS_NAME!r})))
"""
    return str(python(bus, script)[0])


def descriptors(pid: int) -> list[str]:
    """What a process has open, but rings: a part that has something to say for the first time brings one of these."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # Closed since.
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return sorted(link for link in links if not link.removesuffix(" (deleted)").endswith(RING_SUFFIX))


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def newest_tick_ns(recorder: Recorder) -> int:
    follower = Follower(recorder.folders)
    try:
        return follower.read().tick_ns or 0
    finally:
        follower.close()


def ticked_since(recorder: Recorder, tick_ns: int) -> bool:
    return newest_tick_ns(recorder) > tick_ns


FUZZ = '''
import random
from jeepney import new_method_call

BASIC = "ybnqiuxtdsog"
SIZES = dict(y=8, n=15, q=16, i=31, u=32, x=63, t=64)
SIGNED = "nix"
MARKS = "aA0_/@* \\n\\t\\u20ac\\U0001f600\\ud7ff\\x7f"
TEXTS = ["".join(random.Random(length).choice(MARKS) for _ in range(length)) for length in (0, 1, 2, 3, 20, 300, 5000)]

def text(chance):
    return chance.choice(TEXTS)

def signature(chance, depth=0):
    kind = chance.choice(BASIC + "vvaaa(")
    if depth < 3 and kind == "a":
        if chance.random() < 0.3:
            return "a{" + chance.choice("sut") + signature(chance, depth + 1) + "}"
        return "a" + signature(chance, depth + 1)
    if depth < 3 and kind == "(":
        return "(" + "".join(signature(chance, depth + 1) for _ in range(chance.randint(1, 3))) + ")"
    return kind if kind in BASIC + "v" else "s"

def split(kinds):
    """The complete types of a signature."""
    types, at = [], 0
    while at < len(kinds):
        start, depth = at, 0
        while kinds[at] == "a":
            at += 1
        while True:
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(kinds[at], 0)
            at += 1
            if not depth:
                break
        types.append(kinds[start:at])
    return types

def value(chance, kind, depth=0):
    if kind in SIZES:
        top = 2 ** SIZES[kind] - 1
        return chance.choice((0, 1, top, -top - 1 if kind in SIGNED else top, chance.randint(0, top)))
    if kind == "b":
        return chance.random() < 0.5
    if kind == "d":
        return chance.choice((0.0, -1.5, float("inf"), float("nan"), 1e308))
    if kind == "s":
        return chance.choice(("disk", "cpu", text(chance)))
    if kind == "o":
        return chance.choice(("/", MANAGER.object_path))
    if kind == "g":
        return chance.choice(("", "a{sv}", "(ii)"))
    if kind == "v":
        inner = signature(chance, depth + 1)
        return (inner, value(chance, inner, depth + 1))
    if kind.startswith("a{"):
        key, inner = kind[2], kind[3:-1]
        # One key at least: no right call with no option slips in, which would flush the disk.
        return {value(chance, key, depth): value(chance, inner, depth + 1) for _ in range(chance.randint(1, 3))}
    if kind.startswith("a"):
        many = chance.choice((0, 1, 5, 1500 if depth == 0 else 2))
        return [value(chance, kind[1:], depth + 1) for _ in range(many)]
    return tuple(value(chance, inner, depth + 1) for inner in split(kind[1:-1]))

chance = random.Random(20)
connection = connect(enable_fds=True)
methods, count = json.loads(sys.argv[2]), int(sys.argv[3])
outcomes, waiting = {}, 0

def take():
    reply = connection.receive(timeout=60)
    while reply.header.message_type is MessageType.signal:
        reply = connection.receive(timeout=60)
    for member in reply.body:
        if hasattr(member, "close"):
            member.close()  # A descriptor, and with it what it holds.
    name = next((v for k, v in reply.header.fields.items() if k.name == "error_name"), "answered")
    outcomes[name] = outcomes.get(name, 0) + 1

for number in range(count):
    path, interface, member, right = methods[number % len(methods)]
    kinds = split(right) if chance.random() < 0.4 else [signature(chance) for _ in range(chance.randint(0, 4))]
    body = tuple(value(chance, kind) for kind in kinds)
    where = DBusAddress(path, MANAGER.bus_name, interface)
    connection.send(new_method_call(where, member, "".join(kinds) or None, body))
    waiting += 1
    while waiting >= 32:
        take()
        waiting -= 1
for _ in range(waiting):
    take()
print(json.dumps(outcomes))
'''


def declared_methods(bus: Bus) -> list[tuple[str, str, str, str]]:
    """Every method at the objects there are, with what it takes."""
    methods = []
    for path in (OBJECT_PATH, f"{OBJECT_PATH}/probe/disk"):
        (text,) = answer(bus, "Introspect", path=path, interface="org.freedesktop.DBus.Introspectable")
        for interface in ET.fromstring(text).iterfind("interface"):  # noqa: S314  our own
            for method in interface.iterfind("method"):
                takes = "".join(argument.get("type", "") for argument in method.iterfind("arg[@direction='in']"))
                methods.append((path, interface.get("name", ""), method.get("name", ""), takes))
    return methods


@rounds(CALLS // 25, CALLS)
def test_nonsense_of_every_type_to_every_method_is_refused_and_costs_nothing(recorder: Recorder, rounds: int) -> None:
    # Set is called with wrong types by others; a right call of it would have the part say nothing more.
    methods = [declared for declared in declared_methods(recorder.bus) if declared[2] != "Set"]
    assert len(methods) > 25
    pid = recorder.pid()
    # The rings that it reads stay open, once they are there and somebody asked for what they have.
    wait_until(lambda: call(recorder.bus, "ListMetrics", "asa{sv}", "1", "cpu", "0").returncode == 0, recorder.said)
    python(recorder.bus, FUZZ, json.dumps(methods), str(rounds // 2))
    before, there = resident_bytes(pid), len(descriptors(pid))
    outcomes = python(recorder.bus, FUZZ, json.dumps(methods), str(rounds))
    assert sum(outcomes.values()) == rounds
    assert outcomes["org.freedesktop.DBus.Error.InvalidArgs"] > rounds // 3
    assert f"{BUS_NAME}.Error.Failed" not in outcomes, recorder.said()
    assert recorder.pid() == pid, recorder.said()
    assert answer(recorder.bus, "GetStatus", "a{sv}", "0")
    wait_until(lambda: len(descriptors(pid)) <= there, lambda: descriptors(pid))
    assert resident_bytes(pid) - before < GROWTH_BYTES_MAX


DESCRIPTORS = """
import os
from jeepney import new_method_call
connection = connect(enable_fds=True)
for number in range(200):
    for member, signature in (("NoSuch", "h"), ("GetStatus", "h"), ("Mark", "sh")):
        body = (os.open("/dev/null", os.O_RDONLY),)
        call(connection, member, signature, *(("x",) if signature == "sh" else ()), *body)
        os.close(body[0])
print(json.dumps("done"))
"""


def test_descriptors_that_strangers_send_are_closed(recorder: Recorder) -> None:
    before = len(descriptors(recorder.pid()))
    assert python(recorder.bus, DESCRIPTORS) == "done"
    wait_until(lambda: len(descriptors(recorder.pid())) <= before, lambda: descriptors(recorder.pid()))


LOAD = """
from jeepney import new_method_call
connection = connect()
everything = DBusAddress(MANAGER.object_path, MANAGER.bus_name, "org.freedesktop.DBus.ObjectManager")
count, window = int(sys.argv[2]), 40
call(connection, "GetStatus", "a{sv}", {})  # From now on there are answers alone.
answered = 0
for number in range(count + window):
    if number < count:
        connection.send(new_method_call(everything, "GetManagedObjects"))
    if number >= window:
        answered += connection.receive(timeout=60).header.message_type is MessageType.method_return
    if number == window:
        print("loaded", flush=True)
print(answered)
"""


def test_a_bus_that_stops_for_a_second_under_load_costs_no_answer(recorder: Recorder) -> None:
    calls, bus = 120, recorder.bus.process
    assert bus is not None
    before = owner(recorder.bus), recorder.pid()
    command = [sys.executable, "-I", "-c", JEEPNEY + LOAD, recorder.bus.address, str(calls)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "loaded\n"
        bus.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        bus.send_signal(signal.SIGCONT)
        assert client.communicate()[0] == f"{calls}\n"
    assert (owner(recorder.bus), recorder.pid()) == before


SCENARIOS = Path(bus_scenarios.__file__)


def scenario(name: str, bus: Bus, version: str) -> dict[str, int]:
    """Run a program with a service and its clients in one process, with this dbus-fast."""
    if version == "oldest" and not (OLDER / "dbus_fast").is_dir():
        pytest.skip(f"{OLDER.name} is not there; tools/setup.sh could not install it")
    assert bus.process is not None
    environ = {**os.environ, "PYTHONPATH": str(OLDER) if version == "oldest" else ""}
    command = [sys.executable, "-P", str(SCENARIOS), name, bus.address, str(bus.process.pid)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("version", ["newest", "oldest"])
def test_what_waits_for_a_stopped_bus_is_bounded_and_arrives(version: str) -> None:
    with a_bus() as bus:
        counts = scenario("stopped", bus, version)
    assert 0 < counts["queued_bytes"] <= 1024 * 1024
    assert counts["dropped"] > 0
    assert counts["arrived"] == counts["sent"]
    assert counts["sent"] + counts["dropped"] == counts["emitted"]
    assert counts["is_connected"]


@pytest.mark.parametrize("version", ["newest", "oldest"])
def test_a_client_that_reads_nothing_loses_its_signals_and_nobody_else_does(version: str) -> None:
    with a_bus() as bus:
        counts = scenario("unread", bus, version)
    assert counts["dropped"] > 0
    assert counts["sent_bytes"] <= 1024 * 1024 + 4096
    assert counts["others"] == counts["emitted"], "a client that reads gets everything"


NO_STATS = '<policy context="mandatory"><deny send_interface="org.freedesktop.DBus.Debug.Stats"/></policy>'


@pytest.mark.parametrize("policy", ["", NO_STATS], ids=["the bus says who reads", "the caller says whether it reads"])
def test_a_client_that_reads_no_answer_is_refused_before_the_bus_is_full_of_them(policy: str) -> None:
    with a_bus(owner=policy) as bus:
        counts = scenario("unanswered", bus, "newest")
    assert counts["most_bytes"] <= ANSWERS_BYTES_MAX + ASK_AFTER_BYTES
    assert counts["refused"] > 0
    assert counts["answered"] * len(MUCH) >= ANSWERS_BYTES_MAX, "up to the bound it is answered"
    assert counts["others"] == ASKED, "a client that reads gets everything"


def test_many_connections_of_a_user_have_no_more_unread_answers_than_allowed() -> None:
    with a_bus() as bus:
        counts = scenario("crowd", bus, "newest")
    assert counts["unread_bytes"] <= USER_BYTES_MAX + REFUSALS_BYTES_MAX


@contextmanager
def a_place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sysmond-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_recording_goes_on_whatever_becomes_of_the_bus() -> None:
    with a_place() as folder:
        bus = Bus(folder)
        recorder = Recorder(bus, folder)
        try:
            recorder.start(wait=False)
            wait_until(lambda: "no bus" in recorder.said())
            pid = recorder.pid()
            first_ns = newest_tick_ns(recorder)
            wait_until(lambda: newest_tick_ns(recorder) > first_ns)
            for _ in range(2):
                bus.start()
                wait_until(recorder.is_there, recorder.said)
                assert call(bus, "GetStatus", "a{sv}", "0").returncode == 0
                bus.kill()
                lost_ns = newest_tick_ns(recorder)
                wait_until(partial(ticked_since, recorder, lost_ns))
            assert recorder.pid() == pid, recorder.said()
            assert recorder.said().count("the bus is gone") == 2
        finally:
            recorder.end()
            bus.kill()


def test_a_name_that_is_refused_is_said_once_and_recording_goes_on() -> None:
    denied = f'<policy context="mandatory"><deny own="{BUS_NAME}"/></policy>'
    with a_bus(owner=denied) as bus, a_place() as folder:
        recorder = Recorder(bus, folder)
        try:
            recorder.start(wait=False)
            wait_until(lambda: "is not ours to take" in recorder.said())
            first_ns = newest_tick_ns(recorder)
            wait_until(lambda: newest_tick_ns(recorder) > first_ns + 4 * 10**9)  # Tried again meanwhile, twice.
            assert recorder.said().count("is not ours to take") == 1
            assert not recorder.is_there()
        finally:
            recorder.end()


def test_a_second_service_waits_for_the_name_and_gets_it(recorder: Recorder) -> None:
    with a_place() as folder:
        other = Recorder(recorder.bus, folder)
        first = owner(recorder.bus)
        try:
            other.start(wait=False)
            wait_until(lambda: "belongs to somebody else" in other.said())
            assert owner(recorder.bus) == first
        finally:
            other.end()


HUGE = """
connection = connect()
answers = [call(connection, "Mark", "sa{sv}", "x" * size, {}) for size in (10**5, 3 * 10**7)]
version = call(connection, "GetStatus", "a{sv}", {})[0]["version"][0]
print(json.dumps([answer["error"] for answer in answers] + [version]))
"""


def test_a_huge_message_is_refused_unread(recorder: Recorder) -> None:
    pid = recorder.pid()
    before = resident_bytes(pid)
    much = f"{BUS_NAME}.Error.TooMuch"
    assert python(recorder.bus, HUGE) == [much, much, "s"]
    assert recorder.pid() == pid
    assert resident_bytes(pid) - before < GROWTH_BYTES_MAX


def test_a_bus_part_that_dies_is_there_again(recorder: Recorder) -> None:
    pid = recorder.pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: recorder.is_there() and recorder.pid() != pid, recorder.said)
    assert answer(recorder.bus, "GetStatus", "a{sv}", "0")


def test_a_bus_part_whose_folder_is_removed_is_there_again(recorder: Recorder) -> None:
    pid, folder = recorder.pid(), f"{recorder.folders.runtime}/bus"
    shutil.rmtree(folder)
    wait_until(lambda: os.path.exists(f"{folder}/control") and recorder.pid() != pid, recorder.said)
    assert f"{folder}: removed" in recorder.said()
    wait_until(recorder.is_there, recorder.said)
    assert answer(recorder.bus, "GetStatus", "a{sv}", "0")


INVALID = """
from jeepney import HeaderFields, new_method_call
connection = connect()
message = new_method_call(MANAGER, "Mark", "sa{sv}", ("MARKMARK", {}))
content = message.serialise(99).replace(b"MARKMARK", b"\\xff\\xfe\\xc0\\x80MARK")
connection.sock.sendall(content)
try:
    ended = connection.receive(timeout=30).header.message_type is MessageType.signal and connection.receive(timeout=30)
except (ConnectionResetError, BrokenPipeError):
    ended = None
print(json.dumps([ended is None, call(connect(), "GetStatus", "a{sv}", {})[0]["version"][0]]))
"""


def test_a_text_that_is_no_unicode_costs_its_sender_the_connection_and_nobody_else(recorder: Recorder) -> None:
    pid = recorder.pid()
    assert python(recorder.bus, INVALID) == [True, "s"]
    assert recorder.pid() == pid


def test_objects_of_others_are_not_seen(recorder: Recorder) -> None:
    script = """
owner, other = connect(), connect()
import time
while isinstance(answer := call(owner, "Subscribe", "a(sdda{sv})a{sv}", [("cpu", 1.0, 0.5, {})], {}), dict):
    time.sleep(0.1)  # The part has not seen the first tick yet.
path = answer[0]
def children(connection):
    where = DBusAddress(path.rpartition("/")[0], MANAGER.bus_name, "org.freedesktop.DBus.Introspectable")
    answer = call(connection, "Introspect", where=where)
    return "<node name" in answer[0] if isinstance(answer, tuple) else answer
def properties(connection):
    where = DBusAddress(path, MANAGER.bus_name, "org.freedesktop.DBus.Properties")
    answer = call(connection, "GetAll", "s", "", where=where)
    return answer["error"] if isinstance(answer, dict) else "answered"
print(json.dumps([children(owner), children(other), properties(owner), properties(other)]))
"""
    answers = python(recorder.bus, script)
    assert answers == [True, False, "answered", "org.freedesktop.DBus.Error.UnknownObject"]
