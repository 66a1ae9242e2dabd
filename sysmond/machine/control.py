# SPDX-License-Identifier: Apache-2.0
"""Control sockets: one a part, SOCK_SEQPACKET, one JSON object a message and one for its answer.

Only root, the uid of the part itself and the users of some other parts are listened to (SO_PEERCRED, unix(7)): see
``OBEYED``. A part serves a bounded number of messages at a time and never waits for a client: an answer that does not
fit is dropped.
"""

import json
import os
import select
import signal
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from struct import Struct

from sysmond.errors import CorruptError, Error, NotPermittedError, TooMuchError
from sysmond.machine import note
from sysmond.machine.folders import is_shared, socket_address

Order = dict[str, object]
"""``do`` says what. ``uid``: on whose behalf; where it says nothing of that, whoever gave it."""

SOCKET_NAME = "control"
MESSAGE_BYTES_MAX = 16 * 1024
# Which other parts each part takes orders from. Where parts have users of their own, these are who owns their folders.
OBEYED = {
    "daemon": ("bus",),
    "sampler": ("archiver", "background", "bus"),
    "background": ("archiver", "bus", "sampler"),
    "archiver": ("bus",),
    "bus": ("archiver", "background", "sampler"),
}
CLIENTS_MAX = 16
ORDERS_PER_TURN_MAX = 8
_CREDENTIALS = Struct("iII")
_OTHERS_WRITE = 0o022
_OVERFLOW_UID = 65534
_SIGNALS_MAX = 65536  # One byte a signal; a pipe holds no more.


class NobodyListensError(Error):
    """The part that is asked does not run in that folder."""


class Later:
    """What a part answers an order with that takes its time; ``Listener.answer`` brings the answer itself."""

    client: socket.socket | None = None


class Listener:
    """The listening end in a part."""

    def __init__(self, listening: socket.socket, folder: str) -> None:
        """Serve on a bound, listening, non-blocking socket in a part's folder."""
        self._listening = listening
        self._folder = folder
        self._clients: list[socket.socket] = []

    def descriptors(self) -> list[int]:
        """What to wait on for new orders."""
        return [self._listening.fileno(), *(client.fileno() for client in self._clients)]

    def serve(self, obey: Callable[[Order], Order | Later]) -> None:
        """Accept who waits and answer what is there, without waiting for anything."""
        self._accept()
        budget = ORDERS_PER_TURN_MAX
        for client in list(self._clients):
            while budget > 0 and (message := self._receive(client)):
                budget -= 1
                answer = _answer(message, obey, _uid(client))
                if isinstance(answer, Later):
                    answer.client = client
                else:
                    _send(client, answer)

    def answer(self, later: Later, answer: Order) -> None:
        """Answer an order that was put off; who has left meanwhile is not looked for."""
        if later.client in self._clients:
            _send(later.client, answer)

    def close(self) -> None:
        """Let everybody go."""
        for client in self._clients:
            client.close()
        self._listening.close()

    def _accept(self) -> None:
        for _ in range(CLIENTS_MAX):
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            client.settimeout(0)
            if len(self._clients) >= CLIENTS_MAX or not _may_command(client, self._folder):
                client.close()
            else:
                self._clients.append(client)

    def _receive(self, client: socket.socket) -> bytes:
        try:
            message = client.recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return b""
        except OSError:
            message = b""
        if not message:
            self._clients.remove(client)
            client.close()
        return message


def _may_command(client: socket.socket, folder: str) -> bool:
    uid = _uid(client)
    return uid in {0, os.geteuid()} or uid in _owners(folder)


def _owners(folder: str) -> set[int]:
    """Who owns the folders of the parts that the part of this folder takes orders from.

    Only where they lie in a folder that belongs to root, and that nobody else may write to: root alone put them there.
    """
    runtime, _, part = folder.rpartition("/")
    owners: set[int] = set()
    with suppress(OSError):
        parent = os.lstat(runtime)
        if parent.st_uid == 0 and stat.S_ISDIR(parent.st_mode) and not parent.st_mode & _OTHERS_WRITE:
            for other in OBEYED.get(part, ()):
                with suppress(FileNotFoundError):
                    status = os.lstat(f"{runtime}/{other}")
                    owners |= {status.st_uid} if stat.S_ISDIR(status.st_mode) else set()
    # In a user namespace of our own all others are this one.
    return owners - {_OVERFLOW_UID}


def _uid(client: socket.socket) -> int:
    _, uid, _ = _CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)


def _send(client: socket.socket, answer: Order) -> None:
    with suppress(OSError):
        client.send(json.dumps(answer).encode())


def _answer(message: bytes, obey: Callable[[Order], Order | Later], uid: int) -> Order | Later:
    try:
        order = note.parse(message, note.fields, "order")
    except CorruptError as damage:
        return {"error": f'{damage}; expected a JSON object like {{"do": …}}'}
    try:
        return obey({"uid": uid, **order})
    except TooMuchError as refusal:
        return {"error": str(refusal), "too_much": True}
    except Exception as failure:  # noqa: BLE001  whatever an order does, it does not end the part
        return {"error": str(failure) or type(failure).__name__}


def wake_on(signals: Iterable[int]) -> int:
    """Make signals readable on a descriptor, those too that came while they were blocked."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    return reading


def received(reading: int) -> set[int]:
    """The signals with handlers that came since this was last asked; ``reading``: what ``wake_on`` gave."""
    try:
        return set(os.read(reading, _SIGNALS_MAX))
    except BlockingIOError:
        return set()


def is_orphaned(stop: int, lifeline: int | None) -> bool:
    """Whether the parent is gone without a word: its lifeline is broken, and no signal told to ``stop``."""
    if lifeline is None:
        return False
    ready, _, _ = select.select([stop, lifeline], [], [], 0)
    return ready == [lifeline]


@contextmanager
def listen(folder: str) -> Iterator[Listener]:
    """Listen in a part's runtime folder; a socket left by a predecessor is replaced.

    A folder that gives its group to what is made in it (set-gid) is that of a part with a user of its own: the group is
    that of all parts, who may connect then, too. Others cannot even take a place in the queue.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    with socket_address(folder, SOCKET_NAME) as address:
        with suppress(FileNotFoundError):
            os.unlink(f"{folder}/{SOCKET_NAME}")
        listening.bind(address)
    os.chmod(f"{folder}/{SOCKET_NAME}", 0o660 if is_shared(folder) else 0o600)
    listening.listen(CLIENTS_MAX)
    listener = Listener(listening, folder)
    try:
        yield listener
    finally:
        listener.close()


def ask(folder: str, order: Order, timeout_s: float) -> Order:
    """Send an order to the part that listens in ``folder`` and give its answer.

    :raises NobodyListensError: where that is so. :raises Error: where no answer comes in time.
    :raises NotPermittedError: where we may not.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as connection:
        connection.settimeout(timeout_s)
        try:
            with socket_address(folder, SOCKET_NAME) as address:
                connection.connect(address)
            connection.send(json.dumps(order).encode())
            answer = connection.recv(MESSAGE_BYTES_MAX)
        except PermissionError as failure:
            raise NotPermittedError(f"{folder}: only root and the user who runs it may give it orders") from failure
        except (FileNotFoundError, ConnectionRefusedError) as failure:
            raise NobodyListensError(f"{folder}: no answer: sysmond is not running there") from failure
        except OSError as failure:
            raise Error(f"{folder}: no answer: {failure.strerror or failure}") from failure
    decoded = _decoded(answer)
    if decoded is None:
        raise Error(f"{folder}: no answer")
    return decoded


def _decoded(answer: bytes) -> Order | None:
    try:
        return note.parse(answer, note.fields)
    except CorruptError:
        return None


def call(folder: str, order: Order) -> socket.socket | None:
    """Send an order without waiting; its answer comes to what is given. None where nobody listens now."""
    caller = None
    try:
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        with socket_address(folder, SOCKET_NAME) as address:
            caller.connect(address)
        caller.send(json.dumps(order).encode())
    except OSError:
        if caller is not None:
            caller.close()
        return None
    return caller


def heard(caller: socket.socket) -> Order | None:
    """Give the answer to a call, or None where none has come yet; the end of the part is an answer, too."""
    try:
        message = caller.recv(MESSAGE_BYTES_MAX)
    except BlockingIOError:
        return None
    except OSError:
        message = b""
    answer = _decoded(message)
    return {"error": "no answer"} if answer is None else answer


def tell(folder: str, order: Order) -> bool:
    """Tell the part that listens in ``folder`` something, without waiting for it; whether it will hear."""
    caller = call(folder, order)
    if caller is None:
        return False
    caller.close()
    return True
