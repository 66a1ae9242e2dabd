# SPDX-License-Identifier: Apache-2.0
"""Control sockets and locks: who is answered, what is refused, and that nothing from outside ends a part."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sysmond.errors import BusyError, Error
from sysmond.machine import control
from sysmond.machine.control import CLIENTS_MAX, MESSAGE_BYTES_MAX, Later, Order, ask, listen, tell, wake_on
from sysmond.machine.folders import socket_address
from sysmond.machine.lock import only_one, say_ending
from tests.support.waiting import HANG_S

ANSWER_S = 20.0


def echo(order: Order) -> Order:
    if order.get("do") == "break":
        raise RuntimeError("broken")
    if order.get("do") == "who":
        return {"uid": order["uid"]}
    return {"heard": {key: value for key, value in order.items() if key != "uid"}}


@contextmanager
def part(folder: Path) -> Iterator[None]:
    """A part that serves until the block ends."""
    done = threading.Event()
    with listen(str(folder)) as listener:

        def serve() -> None:
            while not done.wait(0.001):
                listener.serve(echo)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def client(folder: Path) -> Iterator[socket.socket]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(ANSWER_S)
    try:
        with socket_address(str(folder), "control") as address:
            connection.connect(address)
        yield connection
    finally:
        connection.close()


def test_an_order_is_answered(runtime: Path) -> None:
    with part(runtime):
        assert ask(str(runtime), {"do": "this"}, ANSWER_S) == {"heard": {"do": "this"}}


def test_an_order_is_on_behalf_of_whoever_gives_it_unless_it_says_so(runtime: Path) -> None:
    with part(runtime):
        assert ask(str(runtime), {"do": "who"}, ANSWER_S) == {"uid": os.geteuid()}
        assert ask(str(runtime), {"do": "who", "uid": 5}, ANSWER_S) == {"uid": 5}


def test_a_path_too_long_for_a_socket_address_is_served(runtime: Path) -> None:
    folder = runtime / ("long" * 40)
    folder.mkdir()
    with part(folder):
        assert ask(str(folder), {"do": "this"}, ANSWER_S) == {"heard": {"do": "this"}}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"not json", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * (MESSAGE_BYTES_MAX - 1), "nested too deeply"),
        (b"[1]", "not an object"),
        (b'{"do": "break"}', "broken"),
    ],
)
def test_nonsense_is_answered_and_ends_nothing(runtime: Path, message: bytes, said: str) -> None:
    with part(runtime):
        with client(runtime) as connection:
            connection.send(message)
            assert said in json.loads(connection.recv(MESSAGE_BYTES_MAX))["error"]
        assert ask(str(runtime), {"do": "this"}, ANSWER_S) == {"heard": {"do": "this"}}


def test_a_client_that_leaves_before_its_answer_is_forgotten(runtime: Path) -> None:
    with listen(str(runtime)) as listener:
        with client(runtime) as connection:
            connection.send(b'{"do": "this"}')
        heard: list[Order] = []

        def hear(order: Order) -> Order:
            heard.append(order)
            return {}

        listener.serve(hear)
        listener.serve(hear)
        assert heard == [{"do": "this", "uid": os.geteuid()}]
        assert len(listener.descriptors()) == 1


def test_an_answer_may_come_later_and_meanwhile_others_are_answered(runtime: Path) -> None:
    later = Later()
    with (
        listen(str(runtime)) as listener,
        client(runtime) as patient,
        client(runtime) as gone,
        client(runtime) as next_,
    ):
        patient.send(b'{"do": "long"}')
        listener.serve(lambda _: later)
        left = Later()
        gone.send(b'{"do": "long"}')
        listener.serve(lambda _: left)
        gone.close()
        next_.send(b'{"do": "short"}')
        listener.serve(echo)
        listener.serve(echo)  # Learns that one has left.
        assert json.loads(next_.recv(MESSAGE_BYTES_MAX)) == {"heard": {"do": "short"}}
        listener.answer(left, {"ok": False})
        listener.answer(later, {"ok": True})
        assert json.loads(patient.recv(MESSAGE_BYTES_MAX)) == {"ok": True}


def test_what_is_told_is_heard_though_the_teller_does_not_wait(runtime: Path) -> None:
    assert not tell(str(runtime), {"do": "event"})
    with listen(str(runtime)) as listener:
        assert tell(str(runtime), {"do": "event"})
        heard: list[Order] = []

        def hear(order: Order) -> Order:
            heard.append(order)
            return {}

        listener.serve(hear)
        assert heard == [{"do": "event", "uid": os.geteuid()}]


def test_no_more_clients_than_planned(runtime: Path) -> None:
    with listen(str(runtime)) as listener:
        connections = []
        for _ in range(CLIENTS_MAX + 3):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with socket_address(str(runtime), "control") as address:
                connection.connect(address)
            connections.append(connection)
            listener.serve(echo)
        assert len(listener.descriptors()) == 1 + CLIENTS_MAX
        for connection in connections:
            connection.close()


def test_only_root_and_the_part_itself_may_command(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_may_command", lambda *_: False)
    with part(runtime), pytest.raises(Error, match="no answer"):
        ask(str(runtime), {"do": "this"}, ANSWER_S)
    assert os.stat(runtime / "control").st_mode & 0o777 == 0o600


ASKING = """
import sys
from sysmond.machine.control import ask
try:
    print(ask(sys.argv[1], {"do": "this"}, 20.0))
except Exception as failure:
    print(type(failure).__name__)
"""


def asked_as(uid: int, gid: int, folder: Path) -> str:
    """What a process of this user and group gets for an order, or why it gets nothing."""
    # It imports before it becomes another user, who may not enter our environment perhaps.
    becoming = f"os.setgroups([]); os.setresgid({gid}, {gid}, {gid}); os.setresuid({uid}, {uid}, {uid})"
    code = f"import os, sysmond.machine.control; {becoming}\n{ASKING}"
    words = [sys.executable, "-P", "-c", code, str(folder)]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=HANG_S).stdout.strip()


ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="to be several users takes root")
PARTS_GID, LANE_UID, BUS_UID, STRANGER_UID = 64001, 64002, 64003, 64004


@pytest.fixture
def parts(runtime: Path) -> Path:
    """A runtime folder of root's with the folders of parts that have users of their own, and one group."""
    runtime.chmod(0o755)
    for name, uid in (("archiver", os.geteuid()), ("sampler", LANE_UID), ("bus", BUS_UID)):
        folder = runtime / name
        folder.mkdir()
        os.chown(folder, uid, PARTS_GID)
        folder.chmod(0o2755)
    return runtime


@ROOT_ALONE
def test_a_part_obeys_the_users_of_the_parts_that_may_order_it(parts: Path) -> None:
    with part(parts / "archiver"):
        assert (parts / "archiver/control").stat().st_mode & 0o777 == 0o660
        assert asked_as(BUS_UID, PARTS_GID, parts / "archiver") == "{'heard': {'do': 'this'}}"
        # A lane has nothing to tell the archiver to do.
        assert asked_as(LANE_UID, PARTS_GID, parts / "archiver") == "Error"
        # A stranger does not even reach the queue.
        assert asked_as(STRANGER_UID, STRANGER_UID, parts / "archiver") == "NotPermittedError"
        assert asked_as(STRANGER_UID, PARTS_GID, parts / "archiver") == "Error"


@ROOT_ALONE
def test_folders_of_others_say_nothing_where_others_could_have_made_them(parts: Path) -> None:
    for mode, uid in ((0o777, 0), (0o775, 0), (0o755, STRANGER_UID)):
        os.chown(parts, uid, -1)
        os.chmod(parts, mode)
        with part(parts / "archiver"):
            assert asked_as(BUS_UID, PARTS_GID, parts / "archiver") == "Error"


@ROOT_ALONE
def test_a_link_in_the_place_of_a_part_says_nothing(parts: Path) -> None:
    (parts / "elsewhere").mkdir()
    os.chown(parts / "elsewhere", STRANGER_UID, -1)
    (parts / "bus").rmdir()
    (parts / "bus").symlink_to("elsewhere")
    with part(parts / "archiver"):
        assert asked_as(STRANGER_UID, PARTS_GID, parts / "archiver") == "Error"


def test_a_socket_that_a_predecessor_left_is_replaced(runtime: Path) -> None:
    with listen(str(runtime)):
        pass
    with part(runtime):
        assert ask(str(runtime), {}, ANSWER_S) == {"heard": {}}


def test_nobody_there_is_an_error(runtime: Path) -> None:
    with pytest.raises(Error, match="no answer"):
        ask(str(runtime), {}, ANSWER_S)


def test_a_signal_that_came_while_it_was_blocked_wakes() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        signal.raise_signal(signal.SIGUSR1)  # To this thread, which alone blocks it.
        woken = wake_on([signal.SIGUSR1])
        assert os.read(woken, 16)
    finally:
        os.close(woken)
        os.close(signal.set_wakeup_fd(-1))
        signal.signal(signal.SIGUSR1, before)


def test_a_second_holder_learns_at_once_who_the_first_is(runtime: Path) -> None:
    with (
        only_one(str(runtime)),
        pytest.raises(BusyError, match=f"held by process {os.getpid()};"),
        only_one(str(runtime), ending_wait_s=600.0),
    ):
        pass


def test_a_holder_that_says_it_ends_is_waited_for(runtime: Path) -> None:
    holder = only_one(str(runtime))
    say_ending(holder.__enter__())
    release = threading.Timer(0.2, holder.__exit__, (None, None, None))
    release.start()
    begin_s = time.monotonic()
    with only_one(str(runtime), ending_wait_s=600.0):
        assert time.monotonic() > begin_s
    release.join()


def test_a_child_that_keeps_the_descriptor_holds_the_lock_too(runtime: Path) -> None:
    with only_one(str(runtime)) as lock:
        kept = os.dup(lock)
    with pytest.raises(BusyError), only_one(str(runtime)):
        pass
    os.close(kept)
    with only_one(str(runtime)):
        pass
