# SPDX-License-Identifier: Apache-2.0
"""What is in RAM goes to the disk before the machine is suspended: a flush, for which the suspend is put off.

logind tells of it and waits for whoever holds a lock of the kind *delay*. systemd-inhibit holds ours, for as long as
its standard input is open: so it ends with us, however we end. Source: org.freedesktop.login1(5), systemd-inhibit(1).
"""

import asyncio
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from sysmond.bus.adapter import Call, Connection
from sysmond.bus.callers import BUS
from sysmond.bus.errors import RefusedError, UnavailableError
from sysmond.bus.parts import ask
from sysmond.flushing import Reason
from sysmond.progress import ARCHIVER

if TYPE_CHECKING:
    from sysmond.bus.loop import Part
    from sysmond.control import Order

LOGIND = "org.freedesktop.login1"
RULE = f"type='signal',sender='{LOGIND}',interface='{LOGIND}.Manager',member='PrepareForSleep'"
# logind waits for 5 s, unless told otherwise; a flush that takes longer goes on after the night.
FLUSH_S = 60.0
LOCK = ("systemd-inhibit", "--what=sleep", "--mode=delay", "--who=sysmond", "--why=writes to the disk", "cat")
_ADDRESSES = {"system", "session"}


class Sleep:
    """Holds the lock while logind is on the bus, and flushes when it tells of a suspend."""

    def __init__(self, part: "Part") -> None:
        """Nothing is held before there is a connection."""
        self._part = part
        self._logind = ""
        self._lock: asyncio.subprocess.Process | None = None
        self._is_told = False
        part.service.when_connected.append(self._connected)
        part.service.when_signalled.append(self._signalled)

    def end(self) -> None:
        """Hold nothing any more."""
        if self._lock is not None:
            with suppress(ProcessLookupError):
                self._lock.kill()
            self._lock = None

    async def _connected(self, connection: Connection) -> None:
        """Find logind, where this bus has one."""
        self.end()
        self._logind = ""
        try:
            (self._logind,) = await connection.ask(BUS, "GetNameOwner", "s", [LOGIND])
        except UnavailableError:
            return
        connection.tell(BUS, "AddMatch", "s", [RULE])
        await self._hold()

    def _signalled(self, signal: Call) -> None:
        # A signal may be sent to us by anybody; only logind's own is meant.
        if (signal.sender, signal.member, signal.signature) == (self._logind, "PrepareForSleep", "b"):
            self._part.service.start(self._prepare() if signal.body[0] else self._hold())

    async def _prepare(self) -> None:
        """Flush, and then let the machine sleep."""
        try:
            order: Order = {"do": "flush", "reason": str(Reason.SUSPEND)}
            await ask(self._part.settings.folders, ARCHIVER, order, FLUSH_S)
        except RefusedError as failure:
            self._part.say(f"not flushed before the suspend: {failure}; what is in RAM stays there")
        finally:
            self.end()

    async def _hold(self) -> None:
        self.end()
        if shutil.which(LOCK[0]) is None:
            if not self._is_told:
                self._part.say(f"no {LOCK[0]} here: a suspend does not wait for the flush before it")
            self._is_told = True
            return
        address = self._part.settings.bus
        environ = dict(os.environ) if address in _ADDRESSES else {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": address}
        nowhere = asyncio.subprocess.DEVNULL
        self._lock = await asyncio.create_subprocess_exec(
            *LOCK, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere, env=environ
        )
