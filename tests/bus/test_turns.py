# SPDX-License-Identifier: Apache-2.0
"""Who is answered when: one user's flood of calls stands behind everybody else's, in order and in number."""

import json
import os
import pwd
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sysmond.bus.latest import PATTERNS_MAX
from sysmond.bus.wire.turns import LINES_MAX, Turns
from tests.support import onbus
from tests.support.clients import ANYBODY, Client, RefusedError, a_client
from tests.support.onbus import JEEPNEY, Bus, Recorder, a_bus, a_recorder
from tests.support.waiting import HANG_S, wait_until


class Loop:
    """Turns with a clock of their own: each piece of work says how long it takes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.done: list[str] = []
        self.soon: deque[Callable[[], None]] = deque()
        self.is_blocked = False
        self.turns = Turns(self.soon.append, lambda: self.is_blocked, lambda: self.now_s)

    def work(self, name: str, *pieces_s: float) -> Iterator[None]:
        """Work in pieces of these lengths; its name is noted at its end."""
        for piece_s in pieces_s[:-1]:
            self.now_s += piece_s
            yield
        self.now_s += pieces_s[-1]
        self.done.append(name)

    def run(self, turns: int = -1) -> None:
        """Take so many turns, or all there are."""
        self.turns.soon()
        while self.soon and turns:
            self.soon.popleft()()
            turns -= 1


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_who_comes_late_and_seldom_is_served_before_the_rest_of_a_flood(loop: Loop) -> None:
    for number in range(1000):
        loop.turns.put(1, loop.work(f"flood {number}", 0.001))
    loop.run(turns=20)
    before = len(loop.done)
    assert before == 20
    loop.turns.put(2, loop.work("innocent", 0.001))
    loop.run()
    assert loop.done.index("innocent") == before
    assert [name for name in loop.done if name != "innocent"] == [f"flood {number}" for number in range(1000)]


def test_the_loop_does_all_else_after_each_piece(loop: Loop) -> None:
    loop.turns.put(1, loop.work("flood", *[0.001] * 3))
    loop.turns.put(1, loop.work("after it", 0.001))
    loop.turns.take()
    loop.turns.take()  # Reading, after which it is called, does not hurry the loop.
    assert loop.now_s == 0.001
    loop.run(turns=1)
    assert loop.now_s == 0.002
    loop.turns.put(2, loop.work("innocent", 0.001))
    loop.run()
    assert loop.done == ["innocent", "flood", "after it"]


def test_nothing_is_made_while_something_waits_to_be_sent(loop: Loop) -> None:
    def long_answer() -> Iterator[None]:
        yield from loop.work("long", 0.001)
        loop.is_blocked = True

    loop.turns.put(1, long_answer())
    loop.turns.put(1, loop.work("after it", 0.001))
    loop.run()
    loop.turns.put(2, loop.work("innocent", 0.001))
    loop.run()
    assert loop.done == ["long"]
    loop.is_blocked = False
    loop.run()
    assert loop.done == ["long", "innocent", "after it"]


def test_users_get_the_same_time_however_long_their_calls_are(loop: Loop) -> None:
    for _ in range(100):
        loop.turns.put(1, loop.work("long", 0.008))
    for _ in range(800):
        loop.turns.put(2, loop.work("short", 0.001))
    while len(loop.done) < 400:
        loop.run(turns=1)
    assert loop.done.count("long") * 8 == pytest.approx(loop.done.count("short"), abs=16)


def test_long_work_gives_way_after_each_piece_and_keeps_its_place(loop: Loop) -> None:
    loop.turns.put(1, loop.work("long", *[0.005] * 100))
    loop.turns.put(1, loop.work("after it", 0.001))
    loop.run(turns=1)
    loop.turns.put(2, loop.work("innocent", 0.001))
    loop.run()
    assert loop.done == ["innocent", "long", "after it"]


def test_idleness_is_not_saved_up_and_a_debt_is_not_forgotten(loop: Loop) -> None:
    loop.turns.put(2, loop.work("early", 0.0))
    for number in range(100):
        loop.turns.put(1, loop.work(f"first {number}", 0.01))
    loop.run()
    loop.done.clear()
    loop.turns.charge(1, 0.1)
    for number in range(100):
        loop.turns.put(1, loop.work(f"one {number}", 0.01))
        loop.turns.put(2, loop.work(f"two {number}", 0.01))
    loop.run()
    first = loop.done[:20]
    assert sum(name.startswith("two") for name in first[:10]) >= 9
    assert sum(name.startswith("one") for name in loop.done[20:120]) == pytest.approx(50, abs=2)


def test_what_waits_is_counted_and_users_that_are_idle_are_forgotten(loop: Loop) -> None:
    for uid in range(10 * LINES_MAX):
        loop.turns.put(uid, loop.work("x", 0.001), 100)
        assert (loop.turns.waiting(uid), loop.turns.waiting_bytes(uid)) == (1, 100)
        loop.run()
        assert (loop.turns.waiting(uid), loop.turns.waiting_bytes(uid)) == (0, 0)
    assert len(loop.turns._lines) <= LINES_MAX
    loop.turns.put(5, loop.work("y", 1.0))
    loop.turns.clear()
    loop.run()
    assert "y" not in loop.done


@pytest.mark.parametrize("seed", range(20))
def test_all_is_done_once_and_in_order_of_each_user(loop: Loop, seed: int) -> None:
    chance = random.Random(seed)
    put: dict[int, list[str]] = {}
    for number in range(300):
        uid = chance.randrange(5)
        put.setdefault(uid, []).append(f"{uid}: {number}")
        pieces_s = [chance.random() / 100 for _ in range(chance.randrange(1, 4))]
        loop.turns.put(uid, loop.work(f"{uid}: {number}", *pieces_s))
        loop.run(turns=chance.randrange(2))
    loop.run()
    for uid, works in put.items():
        assert [name for name in loop.done if name.startswith(f"{uid}: ")] == works


FLOOD = """
from jeepney import HeaderFields
connections = [connect() for _ in range(int(sys.argv[2]))]
for connection in connections:
    call(connection, "GetStatus", "a{sv}", {})
print("ready", flush=True)
sys.stdin.readline()
member, count, is_answered = sys.argv[3], int(sys.argv[4]), sys.argv[5] == "answered"
# To look for what comes near to a name that means nothing takes long, and its answer is short.
member, signature, body = {
    "GetStatus": ("GetStatus", "a{sv}", ({},)),
    "ListProbes": ("ListProbes", "a{sv}", ({},)),
    "ListMetrics": ("ListMetrics", "asa{sv}", (["no/such@thing"], {})),
    "Patterns": ("ListMetrics", "asa{sv}", (["*" * n for n in range(1, 61)], {})),
}[member]
where = DBusAddress(MANAGER.object_path, MANAGER.bus_name, MANAGER.interface)
for number in range(count):
    message = new_method_call(where, member, signature, body)
    message.header.flags = type(message.header.flags)(0 if is_answered else 1)
    connections[number % len(connections)].send(message)
the_bus = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
for connection in connections:  # What the bus itself answers says that it has carried all before.
    asked = next(connection.outgoing_serial)
    connection.send(new_method_call(the_bus, "GetId"), serial=asked)
    while connection.receive(timeout=60).header.fields[HeaderFields.reply_serial] != asked:
        count -= 1  # Refused by the bus itself, which lets no more wait of one connection.
print("sent", flush=True)
sys.stdin.readline()
serials = []
for number in range(count if is_answered else 0):
    serials.append(connections[number % len(connections)].receive(timeout=60).header.serial)
print(json.dumps(serials), flush=True)
"""


class Flood:
    """A stranger with many connections, that sends all its calls at once when asked to."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _write_line(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def send(self) -> None:
        """Send everything."""
        self._write_line()
        assert self._read_line() == "sent\n"

    def serials(self) -> list[int]:
        """In which places the answers were sent."""
        self._write_line()
        serials: list[int] = json.loads(self._read_line())
        return serials


@contextmanager
def a_flood(
    bus: Bus, user: str, connections: int, member: str, count: int, *, answered: bool = True
) -> Iterator[Flood]:
    words = [bus.address, str(connections), member, str(count), "answered" if answered else "unanswered"]
    prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    with subprocess.Popen(
        [*prefix, sys.executable, "-I", "-c", JEEPNEY + FLOOD, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Flood(process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with a_bus(owner=ANYBODY) as bus, a_recorder(bus, is_small=True) as there:
        yield there


def answered_before(client: Client, recorder: Recorder, floods: list[Flood]) -> tuple[int, int]:
    """How many calls of floods were answered before one of an innocent that stands behind them, and how many in all.

    The bus part is stopped until all of them are sent, so that they stand before its door in this order. It numbers
    what it sends: that is the order in which it answered.
    """
    bus_part = recorder.pid()
    os.kill(bus_part, signal.SIGSTOP)
    try:
        for flood in floods:
            flood.send()
        serial = client.send("GetStatus", "a{sv}", {})
    finally:
        os.kill(bus_part, signal.SIGCONT)
    mine = client.answer_serial(serial)
    theirs = [other for flood in floods for other in flood.serials()]
    return sum(other < mine for other in theirs), len(theirs)


pytest_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
CALLS = 60
STRANGERS = ("daemon", "bin", "games")


@pytest_root
@onbus.pytestmark
@pytest.mark.parametrize("connections", [1, 60])
def test_an_innocent_is_answered_before_the_rest_of_a_flood(recorder: Recorder, connections: int) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(a_client(recorder.bus))
        assert client.call("GetStatus", "a{sv}", {})["state"][1] == "running"
        floods = [
            stack.enter_context(a_flood(recorder.bus, who, connections, "ListMetrics", CALLS)) for who in STRANGERS
        ]
        before, count = answered_before(client, recorder, floods)
    assert count == CALLS * len(STRANGERS)
    assert before < count / 4


def is_at_rest(pid: int) -> bool:
    """Whether a process takes no processor time for a while."""
    clock = ~pid << 3 | 2  # clock_getcpuclockid(3)
    before_ns = time.clock_gettime_ns(clock)
    time.sleep(0.2)
    return time.clock_gettime_ns(clock) == before_ns


@pytest_root
@onbus.pytestmark
def test_no_answer_is_made_that_the_bus_does_not_take_yet(recorder: Recorder) -> None:
    bus_part, bus = recorder.pid(), recorder.bus.process
    assert bus is not None
    with ExitStack() as stack:
        client = stack.enter_context(a_client(recorder.bus))
        client.call("GetStatus", "a{sv}", {})
        flood = stack.enter_context(a_flood(recorder.bus, STRANGERS[0], 1, "ListProbes", 2 * CALLS))
        try:
            os.kill(bus_part, signal.SIGSTOP)
            flood.send()
            bus.send_signal(signal.SIGSTOP)
            os.kill(bus_part, signal.SIGCONT)
            wait_until(lambda: is_at_rest(bus_part))
            serial = client.send("GetStatus", "a{sv}", {})
        finally:
            bus.send_signal(signal.SIGCONT)
            os.kill(bus_part, signal.SIGCONT)
        mine = client.answer_serial(serial)
        theirs = flood.serials()
    assert sum(other < mine for other in theirs) < len(theirs) / 2


def served(recorder: Recorder) -> tuple[int, int]:
    """How many calls of strangers were served so far, and how many of anybody were dropped."""
    uids = {pwd.getpwnam(name).pw_uid for name in STRANGERS}
    with a_client(recorder.bus) as client:
        clients = client.call("ListClients", "a{sv}", {})
        dropped = client.call("GetStatus", "a{sv}", {})["calls_dropped"][1]
    return sum(calls for _, uid, _, calls, _ in clients if uid in uids), dropped


def asking(recorder: Recorder, part: str) -> int:
    """How many sockets there are of the control socket of a part: its own, and one for each who asks it."""
    path = f"{recorder.folders.runtime}/{part}/control"
    with open("/proc/net/unix", encoding="utf-8") as file:
        return sum(line.rstrip().endswith(path) for line in file)


@pytest_root
@onbus.pytestmark
def test_of_calls_that_want_no_answer_what_is_too_much_is_dropped_unread(recorder: Recorder) -> None:
    count = 5000
    with a_flood(recorder.bus, STRANGERS[0], 1, "ListMetrics", count, answered=False) as flood:
        before, dropped_before = served(recorder)
        os.kill(recorder.pid(), signal.SIGSTOP)
        sending = threading.Thread(target=flood.send)  # The bus takes no more than a part of it before we read.
        sending.start()
        os.kill(recorder.pid(), signal.SIGCONT)
        sending.join(HANG_S)
        wait_until(lambda: sum(served(recorder)) - before - dropped_before >= count)
        done, dropped = served(recorder)
    assert done - before + dropped - dropped_before == count
    assert done - before < count / 4


@pytest_root
@onbus.pytestmark
def test_more_than_may_wait_is_refused_in_its_line_and_nobody_else_is(recorder: Recorder) -> None:
    with a_client(recorder.bus) as client, a_flood(recorder.bus, STRANGERS[0], 30, "GetStatus", 3000) as flood:
        os.kill(recorder.pid(), signal.SIGSTOP)
        flood.send()
        asked = client.send("GetStatus", "a{sv}", {})
        os.kill(recorder.pid(), signal.SIGCONT)
        assert client.answer_serial(asked)
        assert len(flood.serials()) == 3000  # Each was answered, or refused.


@onbus.pytestmark
def test_patterns_are_bounded_and_what_is_said_twice_counts_once(recorder: Recorder) -> None:
    with a_client(recorder.bus) as client:
        with pytest.raises(RefusedError) as refused:
            client.call("ListMetrics", "asa{sv}", ["*"] * (PATTERNS_MAX + 1), {})
        assert refused.value.name == "TooMuch"
        wait_until(lambda: "load/" in str(client.call("ListMetrics", "asa{sv}", ["*"], {})))
        once = client.call("ListMetrics", "asa{sv}", ["load"], {})
        assert client.call("ListMetrics", "asa{sv}", ["load"] * PATTERNS_MAX, {}) == once


@pytest_root
@onbus.pytestmark
def test_long_answers_of_one_user_are_made_in_pieces_between_those_of_others(recorder: Recorder) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(a_client(recorder.bus))
        client.call("GetStatus", "a{sv}", {})
        flood = stack.enter_context(a_flood(recorder.bus, STRANGERS[0], 1, "Patterns", 4))
        before, count = answered_before(client, recorder, [flood])
    assert (before, count) == (0, 4)
