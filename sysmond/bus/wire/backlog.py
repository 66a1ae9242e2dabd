# SPDX-License-Identifier: Apache-2.0
"""What was sent and may not have been read: of each connection, and of each user together.

What somebody does not read stays with dbus-daemon, on our account: once that has 127 MiB for whomever, it takes nothing
more from us, for anybody (``max_incoming_bytes``, dbus-daemon(1)). So whoever reads nothing is sent no more than a
bound, and who reads is found out in time: the bus itself knows (GetConnectionStats, where it may be asked), else the
caller does, who answers a Ping after all that was sent before.
"""

from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from sysmond.bus.wire.adapter import DBUS, DBUS_PATH, Connection, RemoteError
from sysmond.bus.wire.errors import UnavailableError

MIB = 1024 * 1024
# Of one connection: signals end first, which can be done without. Whoever asks 40 things at once waits for 8 MiB.
SIGNALS_BYTES_MAX = MIB
ANSWERS_BYTES_MAX = 16 * MIB
# Of all connections of a user; and so much more of refusals of further calls.
USER_BYTES_MAX = 32 * MIB
REFUSALS_BYTES_MAX = 8 * MIB
# From here on it is found out what was read.
ASK_AFTER_BYTES = SIGNALS_BYTES_MAX // 4
# How many of a user's connections are asked about at once, and how long a Ping may take.
QUERIES_MAX = 16
PING_S = 5.0

STATS = (DBUS, DBUS_PATH, f"{DBUS}.Debug.Stats")
_NO_ANSWER = (".NoReply", ".Timeout", ".LimitsExceeded")


class Backlog:
    """The account of one connection of ours to the bus."""

    def __init__(self, connection: Connection, start: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """``start``: has something done that nobody waits for."""
        self._connection = connection
        self._start = start
        self._bytes: dict[str, int] = {}
        self._uids: dict[str, int] = {}
        self._by_user: Counter[int] = Counter()
        self._queries: dict[str, int] = {}

    def of(self, name: str) -> int:
        """How many bytes a connection may not have read."""
        return self._bytes.get(name, 0)

    def sent(self, name: str, uid: int, size_bytes: int) -> None:
        """Count what was sent to a connection of a user."""
        self._add(name, uid, size_bytes)
        if self._by_user[uid] > USER_BYTES_MAX // 2:
            self._ask_about_all(uid)
        elif self.of(name) > ASK_AFTER_BYTES:
            self._ask(name, uid)

    def gone(self, name: str) -> None:
        """The bus has thrown away what it had for this connection."""
        if (uid := self._uids.get(name)) is not None:
            self._add(name, uid, -self._bytes[name])

    def takes_signals(self, name: str, uid: int) -> bool:
        """Whether a connection may be sent another signal."""
        return self._has_room(name, uid, SIGNALS_BYTES_MAX, USER_BYTES_MAX)

    def takes_answers(self, name: str, uid: int) -> bool:
        """Whether it may be given another answer."""
        return self._has_room(name, uid, ANSWERS_BYTES_MAX, USER_BYTES_MAX)

    def takes_refusals(self, name: str, uid: int) -> bool:
        """Whether it may at least be told that it may not."""
        most_bytes = USER_BYTES_MAX + REFUSALS_BYTES_MAX
        return self._has_room(name, uid, most_bytes, most_bytes)

    def _has_room(self, name: str, uid: int, bytes_max: int, user_bytes_max: int) -> bool:
        if self._by_user[uid] > user_bytes_max:
            self._ask_about_all(uid)
            return False
        if self.of(name) > bytes_max:
            self._ask(name, uid)
            return False
        return True

    def _add(self, name: str, uid: int, size_bytes: int) -> None:
        left = self._bytes.get(name, 0) + size_bytes
        self._by_user[uid] += size_bytes
        if left > 0:
            self._bytes[name], self._uids[name] = left, uid
        else:
            self._bytes.pop(name, None)
            self._uids.pop(name, None)
        if not self._by_user[uid]:
            del self._by_user[uid]

    def _ask_about_all(self, uid: int) -> None:
        """Ask about the connections of a user who has much, those with most first."""
        for name in sorted((name for name in self._bytes if self._uids[name] == uid), key=self.of, reverse=True):
            if not self._ask(name, uid):
                break

    def _ask(self, name: str, uid: int) -> bool:
        """Ask about a connection, unless that is under way; whether there is room for more such questions."""
        if name not in self._queries:
            if sum(user == uid for user in self._queries.values()) >= QUERIES_MAX:
                return False
            self._queries[name] = uid
            self._start(self._find_out(name, uid))
        return True

    async def _find_out(self, name: str, uid: int) -> None:
        """Count no more what a connection has read. Both questions go the way of what was sent before."""
        try:
            sent_bytes = self.of(name)
            unread_bytes = await self._with_the_bus(name)
            if unread_bytes is None:
                unread_bytes = 0 if await self._answers(name) else sent_bytes
            self._add(name, uid, max(-self.of(name), unread_bytes - sent_bytes))  # It may be gone meanwhile.
        finally:
            del self._queries[name]

    async def _with_the_bus(self, name: str) -> int | None:
        """How many bytes the bus keeps for a connection; None where it does not say."""
        with suppress(UnavailableError):
            (stats,) = await self._connection.ask(STATS, "GetConnectionStats", "s", [name])
            unread = stats.get("OutgoingBytes")
            if unread is not None and isinstance(unread.value, int):
                return unread.value
        return None

    async def _answers(self, name: str) -> bool:
        """Whether a caller answers a Ping, if with an error, or is gone."""
        try:
            await self._connection.ask((name, "/", f"{DBUS}.Peer"), "Ping", timeout_s=PING_S)
        except RemoteError as answer:
            return not answer.name.endswith(_NO_ANSWER)
        except UnavailableError:
            return False
        return True
