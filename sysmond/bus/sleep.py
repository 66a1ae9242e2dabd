# SPDX-License-Identifier: Apache-2.0
"""What is in RAM goes to the disk before the machine is suspended: a flush, for which the suspend is put off.

logind tells of it and waits for whoever holds a lock of the kind *delay*. systemd-inhibit holds ours, for as long as
its standard input is open: so it ends with us, however we end. The signals come on a connection of their own, which
answers no calls: what others send to the service does not stand before them.
Source: org.freedesktop.login1(5), systemd-inhibit(1).
"""

import asyncio
import os
import shutil
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sysmond.archiver.flushing import Reason
from sysmond.bus.part import BusPart
from sysmond.bus.parts import ask
from sysmond.bus.wire.adapter import DBUS, Call, Connection
from sysmond.bus.wire.callers import BUS
from sysmond.bus.wire.errors import RefusedError, UnavailableError
from sysmond.ring.progress import ARCHIVER

if TYPE_CHECKING:
    from sysmond.machine.control import Order

LOGIND = "org.freedesktop.login1"
OWNER_RULE = f"type='signal',sender='{DBUS}',member='NameOwnerChanged',arg0='{LOGIND}'"
RULE = f"type='signal',sender='{LOGIND}',interface='{LOGIND}.Manager',member='PrepareForSleep'"
# logind waits for 5 s, unless told otherwise; a flush that takes longer goes on after the night.
FLUSH_S = 60.0
# The archiver may be about to start again, or have as many clients as it takes.
FLUSH_AGAIN_S = 0.2
CONNECT_AGAIN_S = 1.0
LOCK = ("systemd-inhibit", "--what=sleep", "--mode=delay", "--who=sysmond", "--why=writes to the disk", "cat")
_ADDRESSES = {"system", "session"}


class Sleep:
    """Holds the lock while logind is on the bus, and flushes when it tells of a suspend."""

    def __init__(self, part: BusPart) -> None:
        """Nothing is held before there is a connection."""
        self._part = part
        self._logind = ""
        self._lock: asyncio.subprocess.Process | None = None
        self._is_reported = False
        self._tasks: set[asyncio.Task[None]] = set()
        part.service.when_connected.append(self._listen)

    def end(self) -> None:
        """Hold nothing any more."""
        if self._lock is not None:
            with suppress(ProcessLookupError):
                self._lock.kill()
            self._lock = None

    async def _listen(self, _: Connection) -> None:
        """Listen to logind for as long as the service is on the bus, whatever becomes of this connection."""
        while True:
            try:
                connection = await Connection.connect(self._part.settings.bus, _ignore, self._signalled)
            except UnavailableError:
                return
            try:
                for rule in (OWNER_RULE, RULE):
                    connection.tell(BUS, "AddMatch", "s", [rule])
                with suppress(UnavailableError):
                    (owner,) = await connection.ask(BUS, "GetNameOwner", "s", [LOGIND])
                    await self._meet(owner)
                await connection.lost()
            finally:
                connection.close()
            await asyncio.sleep(CONNECT_AGAIN_S)

    async def _meet(self, owner: str) -> None:
        """Hold a lock of this logind, none where it is gone: it forgets its locks when it ends."""
        self._logind = owner
        if owner:
            await self._hold()
        else:
            self.end()

    def _signalled(self, signal: Call) -> None:
        # A signal may be sent to us by anybody; only the bus' and logind's own are read.
        if signal.sender == DBUS and signal.member == "NameOwnerChanged":
            self._start(self._meet(signal.body[2]))
        elif signal.sender == self._logind and (signal.member, signal.signature) == ("PrepareForSleep", "b"):
            self._start(self._prepare() if signal.body[0] else self._hold())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prepare(self) -> None:
        """Flush, again where that is refused, and then let the machine sleep."""
        order: Order = {"do": "flush", "reason": str(Reason.SUSPEND)}
        until_s, pause_s = time.monotonic() + FLUSH_S, FLUSH_AGAIN_S
        try:
            while True:
                left_s = until_s - time.monotonic()
                try:
                    answer = await ask(self._part.settings.folders, ARCHIVER, order, left_s)
                except RefusedError as failure:
                    problem = str(failure)
                else:
                    if answer.get("ok") is True:
                        return
                    problem = str(answer.get("problem", "no reason given"))
                if time.monotonic() + pause_s >= until_s:
                    self._part.say(f"not flushed before the suspend: {problem}; what is in RAM stays there")
                    return
                await asyncio.sleep(pause_s)
                pause_s *= 2
        finally:
            self.end()

    async def _hold(self) -> None:
        self.end()
        if shutil.which(LOCK[0]) is None:
            if not self._is_reported:
                self._part.say(f"no {LOCK[0]} here: a suspend does not wait for the flush before it")
            self._is_reported = True
            return
        address = self._part.settings.bus
        environ = dict(os.environ) if address in _ADDRESSES else {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": address}
        nowhere = asyncio.subprocess.DEVNULL
        self._lock = await asyncio.create_subprocess_exec(
            *LOCK, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere, env=environ
        )


def _ignore(_: Call) -> None:
    """Answer no call: they stay unread."""
