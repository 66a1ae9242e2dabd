# SPDX-License-Identifier: Apache-2.0
"""All who call: credentials as the bus knows them, kept until the caller's name vanishes.

Source: org.freedesktop.DBus.GetConnectionCredentials, NameOwnerChanged (D-Bus specification).
"""

import asyncio
import grp
import os
import pwd
from collections import Counter
from typing import Any

from sysmond.bus.wire.adapter import DBUS, DBUS_PATH, Connection
from sysmond.bus.wire.caller import CALLERS_MAX, Caller
from sysmond.bus.wire.errors import NotAuthorizedError, UnavailableError
from sysmond.machine.folders import GROUP

BUS = (DBUS, DBUS_PATH, DBUS)

# Of those beyond no more is kept than who they are, which a name on the bus means for ever.
PASSING_MAX = 1024
# What the kernel takes for no user at all: setresuid(2) would leave a process what it is.
NO_UID = 2**32 - 1


class Callers:
    """All that called on one connection to the bus."""

    def __init__(self, connection: Connection) -> None:
        """Nobody has called yet."""
        self._connection = connection
        self._there: dict[str, Caller] = {}
        self._passing: dict[str, Caller] = {}
        self._lookups: dict[str, asyncio.Task[Caller]] = {}
        self._group = _group()

    def __len__(self) -> int:
        """How many are there."""
        return len(self._there)

    def all(self) -> list[Caller]:
        """Everybody who called and is still there, in order of their last first call."""
        return list(self._there.values())

    def get(self, name: str) -> Caller | None:
        """A caller whom we know; one of those beyond is asked about again where there is room for it now."""
        known = self._there.get(name)
        if known is None and len(self._there) >= CALLERS_MAX:
            known = self._passing.get(name)
        return known

    async def identify(self, name: str) -> Caller:
        """Give a caller, whose credentials are asked for where it is new.

        :raises UnavailableError: where it is gone, or the bus does not answer.
        :raises NotAuthorizedError: where nobody knows who it is.
        """
        if (known := self.get(name)) is not None:
            return known
        if name not in self._lookups:
            self._lookups[name] = asyncio.create_task(self._look_up(name))
            self._lookups[name].add_done_callback(lambda _: self._lookups.pop(name, None))
        return await asyncio.shield(self._lookups[name])

    def vanished(self, name: str) -> None:
        """Whoever had this name is gone."""
        caller = self._there.pop(name, None)
        if caller is not None:
            self._connection.tell(BUS, "RemoveMatch", "s", [_rule(name)])
            caller.leave()

    def leave(self) -> None:
        """Our own connection is gone, and everybody with it."""
        for caller in self._there.values():
            caller.leave()
        self._there.clear()
        self._passing.clear()

    async def _look_up(self, name: str) -> Caller:
        # First the rule, then the question: who vanishes after it has answered for it is told of.
        self._connection.tell(BUS, "AddMatch", "s", [_rule(name)])
        try:
            (credentials,) = await self._connection.ask(BUS, "GetConnectionCredentials", "s", [name])
        except UnavailableError:
            self._connection.tell(BUS, "RemoveMatch", "s", [_rule(name)])
            raise
        values = {key: value.value for key, value in credentials.items()}
        uid, pid = int(values.get("UnixUserID", NO_UID)), int(values.get("ProcessID", 0))
        if uid >= NO_UID:
            self._connection.tell(BUS, "RemoveMatch", "s", [_rule(name)])
            raise NotAuthorizedError("the bus does not say who calls; expected one who authenticates as a user")
        gids = _gids(uid, values.get("UnixGroupIDs"))
        caller = Caller(name, uid, pid, gids, is_restricted=uid in {0, os.geteuid()} or self._group in gids)
        if len(self._there) < CALLERS_MAX or self._make_room():
            self._there[name] = caller
            self._passing.pop(name, None)
        else:
            self._pass_by(caller)
        return caller

    def _pass_by(self, caller: Caller) -> None:
        """Know a caller without being told of its end."""
        self._connection.tell(BUS, "RemoveMatch", "s", [_rule(caller.name)])
        caller.is_passing = True
        if len(self._passing) >= PASSING_MAX:
            del self._passing[next(iter(self._passing))]
        self._passing[caller.name] = caller

    def _make_room(self) -> bool:
        """Let go of the first who holds nothing, of the user who has most: it is known still, and may hold nothing.

        Gives whether there was one.
        """
        idle = [caller for caller in self._there.values() if not caller.is_holding and not caller.in_flight]
        if not idle:
            return False
        crowds = Counter(caller.uid for caller in self._there.values())
        crowded = max(idle, key=lambda caller: crowds[caller.uid])
        del self._there[crowded.name]
        self._pass_by(crowded)
        return True


def _rule(name: str) -> str:
    return f"type='signal',sender='{DBUS}',path='{DBUS_PATH}',member='NameOwnerChanged',arg0='{name}'"


def _group() -> int:
    """The group that may see what is restricted; -1 where this machine has none."""
    try:
        return grp.getgrnam(GROUP).gr_gid
    except KeyError:
        return -1


def _gids(uid: int, group_ids: Any) -> tuple[int, ...]:  # noqa: ANN401  as it came over the bus
    """The groups of a caller: as the bus tells, else as the user database has them."""
    if isinstance(group_ids, list):
        return tuple(int(gid) for gid in group_ids)
    try:
        user = pwd.getpwuid(uid)
        return tuple(os.getgrouplist(user.pw_name, user.pw_gid))
    except (KeyError, OverflowError):
        return ()
