# SPDX-License-Identifier: Apache-2.0
"""The loop of the bus part: its control socket, and what it offers on the bus.

It owns nothing but its connection. Whatever becomes of the bus, it goes on and tries again; it ends when it is told to.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from sysmond.base.model import Sensitivity
from sysmond.bus.commands import Commands
from sysmond.bus.offer import offered
from sysmond.bus.probes import Probes
from sysmond.bus.sleep import Sleep
from sysmond.bus.status import LogControl, Status
from sysmond.bus.steering import Steering
from sysmond.bus.uevents import Uevents
from sysmond.bus.wire.interface import Interface, ours
from sysmond.bus.wire.names import BUS_NAME, OBJECT_PATH
from sysmond.bus.wire.service import Service
from sysmond.bus.wire.standard import Objects
from sysmond.errors import Error
from sysmond.machine import control
from sysmond.machine.control import Listener, Order
from sysmond.plan.plan import Plan, read
from sysmond.plan.settings import Settings, plan_file
from sysmond.ring.newest import Follower

# A rate needs two ticks; nobody on the bus asks the rings for more.
ROWS_KEPT = 2


class Part:
    """What the modules of the bus part share: settings, the plan that is in force, the service on the bus."""

    def __init__(self, settings: Settings, plan: Plan, say: Callable[[str], None]) -> None:
        """Everything is put in place; nothing is on the bus yet."""
        self.settings = settings
        self.plan = plan
        self._log = LogControl()
        self._speak = say
        self.service = Service(settings.bus, self.say, user=settings.user)
        self.commands = Commands(settings.folders)
        self.follower = Follower(settings.folders, ticks=ROWS_KEPT)
        self.when_planned: list[Callable[[], None]] = []
        """Called when another plan is in force."""
        self.when_recorded: list[Callable[[int, str, str, str, bool], None]] = []
        """Called with boot time in ns, kind, subject and text of an event, and whether it is restricted."""
        self.probes = Probes(self)
        self.steering = Steering(self)
        self._uevents = Uevents(self)
        self._sleep = Sleep(self)
        self._status = Status(self)
        manager = (self.steering, self._status, *offered(self))
        self.service.export(OBJECT_PATH, *manager, Objects(self.service), self._log)
        self.when_planned.append(lambda: self.service.changed(OBJECT_PATH, self._status, "TickPeriod"))

    def say(self, line: str) -> None:
        """Say a line, unless somebody wants none."""
        if not self._log.is_silent:
            self._speak(line)

    async def run(self, stop: int) -> int:
        """Serve until a descriptor says that it is time to end, and give the exit code."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        ends = {stop} if self.settings.lifeline is None else {stop, self.settings.lifeline}
        for descriptor in ends:
            loop.add_reader(descriptor, ended.set)
        with control.listen(f"{self.settings.folders.runtime}/bus") as orders:
            watch = _Watch(orders, self._obey)
            watch.begin()
            self._uevents.follow()
            await self.service.run(ended)
            self._sleep.end()
            self._uevents.end()
            watch.end()
        for descriptor in ends:
            loop.remove_reader(descriptor)
        return 0

    def _obey(self, order: Order) -> Order:
        """Carry out an order from the control socket."""
        match order:
            case {"do": "plan"}:
                try:
                    self.plan = read(plan_file(self.settings))
                except OSError as failure:
                    raise Error(f"{plan_file(self.settings)}: {failure.strerror}") from failure
                for follow in self.when_planned:
                    follow()
                return {"ok": True}
            case {
                "do": "event",
                "boottime_ns": int(at_ns),
                "kind": str(kind),
                "subject": str(subject),
                "text": str(text),
            }:
                is_restricted = order.get("sensitivity") == Sensitivity.RESTRICTED
                for hear in self.when_recorded:
                    hear(at_ns, kind, subject, text, is_restricted)
                return {"ok": True}
            case _:
                return {"error": f"{order.get('do')!r} is not an order; 'plan' and 'event' are"}


class _Watch:
    """The control socket in the loop: its clients come and go."""

    def __init__(self, orders: Listener, obey: Callable[[Order], Order]) -> None:
        self._orders = orders
        self._obey = obey
        self._watched: set[int] = set()

    def begin(self) -> None:
        """Watch all that is open now, and no more what is not."""
        loop = asyncio.get_running_loop()
        there = set(self._orders.descriptors())
        # A number that was closed may be another client's by now: all are taken out and put in again.
        for descriptor in self._watched:
            with suppress(OSError, ValueError):
                loop.remove_reader(descriptor)
        for descriptor in there:
            loop.add_reader(descriptor, self._serve)
        self._watched = there

    def end(self) -> None:
        """Watch nothing any more."""
        for descriptor in self._watched:
            asyncio.get_running_loop().remove_reader(descriptor)
        self._watched = set()

    def _serve(self) -> None:
        self._orders.serve(self._obey)
        self.begin()


def declared() -> dict[str, list[type[Interface]]]:
    """The interfaces of our own that all modules together declare."""
    return ours(BUS_NAME)


class _Log(logging.Handler):
    """Has what libraries log, which may cite strangers, said like all else: from warnings on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Say it in one line."""
        self._say(self.format(record))


def serve(settings: Settings, plan: Plan, say: Callable[[str], None], stop: int) -> int:
    """Serve until a descriptor says that it is time to end, and give the exit code."""
    logging.getLogger().addHandler(_Log(say))

    async def run() -> int:
        return await Part(settings, plan, say).run(stop)

    return asyncio.run(run())
