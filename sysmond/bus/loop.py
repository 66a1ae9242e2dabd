# SPDX-License-Identifier: Apache-2.0
"""The loop of the bus part: its control socket, and what it offers on the bus.

It owns nothing but its connection. Whatever becomes of the bus, it goes on and tries again; it ends when asked to, or,
where the bus has it started when somebody calls, when nobody has needed it for a while.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from sysmond.base.model import Sensitivity
from sysmond.bus.offer import offer
from sysmond.bus.part import BusPart
from sysmond.bus.status import LogControl
from sysmond.bus.wire.interface import Interface, ours
from sysmond.bus.wire.names import BUS_NAME
from sysmond.bus.wire.service import Service
from sysmond.errors import Error
from sysmond.machine import control
from sysmond.machine.control import Listener, Order
from sysmond.machine.notify import STOPPING, notify
from sysmond.plan.plan import Plan, read
from sysmond.plan.settings import Settings, plan_file

# For so long nobody needs it before it ends; and so often that is asked.
IDLE_S = 60.0
IDLE_LOOK_S = 10.0


class Loop:
    """The part as it runs: what is offered on the bus, and the orders that it obeys."""

    def __init__(self, settings: Settings, plan: Plan, say: Callable[[str], None]) -> None:
        """Everything is put in place; nothing is on the bus yet."""
        log = LogControl()
        self._service = Service(settings.bus, lambda line: None if log.is_silent else say(line), user=settings.user)
        self._part = BusPart(settings, plan, self._service)
        offer(self._part, log)

    async def run(self, stop: int) -> int:
        """Serve until a descriptor says that it is time to end, and give the exit code."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        ends = {stop} if self._part.settings.lifeline is None else {stop, self._part.settings.lifeline}
        for descriptor in ends:
            loop.add_reader(descriptor, ended.set)
        with control.listen(f"{self._part.settings.folders.runtime}/bus") as orders:
            order_socket = _OrderSocket(orders, self._obey)
            order_socket.begin()
            watching = asyncio.create_task(self._end_when_idle(ended)) if self._part.settings.on_demand else None
            await self._service.run(ended)
            order_socket.end()
            if watching is not None:
                watching.cancel()
        for descriptor in ends:
            loop.remove_reader(descriptor)
        return 0

    async def _end_when_idle(self, ended: asyncio.Event) -> None:
        """Say that it is time to end when nobody has needed this part for a while."""
        loop = asyncio.get_running_loop()
        needed_s = loop.time()
        while True:
            await asyncio.sleep(IDLE_LOOK_S)
            if any(is_needed() for is_needed in self._part.needed_by):
                needed_s = loop.time()
            elif loop.time() - needed_s >= IDLE_S:
                notify(STOPPING)  # Who calls from now on is served by the next one.
                await self._service.give_up()
                ended.set()
                return

    def _obey(self, order: Order) -> Order:
        """Carry out an order from the control socket."""
        match order:
            case {"do": "plan"}:
                try:
                    self._part.plan = read(plan_file(self._part.settings))
                except OSError as failure:
                    raise Error(f"{plan_file(self._part.settings)}: {failure.strerror}") from failure
                for follow in self._part.when_planned:
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
                for receive in self._part.when_recorded:
                    receive(at_ns, kind, subject, text, is_restricted)
                return {"ok": True}
            case _:
                return {"error": f"{order.get('do')!r} is not an order; 'plan' and 'event' are"}


class _OrderSocket:
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
        return await Loop(settings, plan, say).run(stop)

    return asyncio.run(run())
