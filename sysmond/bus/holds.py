# SPDX-License-Identifier: Apache-2.0
"""Holds: to read tables more or less often, or to leave the disk alone, for as long as a client keeps a descriptor.

As in logind the descriptor is the lock: it is the writing end of a pipe, and where its last copy is closed, the
hold ends; it also ends when its time is up, and when something is written. What holds ask for is ordered of the
other parts for a short while, again and again, so that they are free when this part dies.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.eased_pace import BACK_MAX_S
from sysmond.base.model import Lane, Sensitivity
from sysmond.bus.parts import ask
from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import InvalidArgumentError, LimitError, NotFoundError, RefusedError
from sysmond.bus.wire.interface import CallContext, Changes, Interface, method, prop
from sysmond.bus.wire.names import MANAGER
from sysmond.errors import nearest
from sysmond.machine.folders import Folders
from sysmond.plan.plan import LANE_INTERVAL_MIN_NS, Plan
from sysmond.ring.progress import ARCHIVER, LANES, WRITERS

if TYPE_CHECKING:
    from sysmond.machine.control import Order

PERIOD_MIN_NS = {**LANE_INTERVAL_MIN_NS, Lane.REALTIME: SECOND_NS // 10}
HOLD_S_MAX = 3600
HOLDS_PER_USER_MAX = 8
HOLDS_MAX = 64
TABLES_MAX = 64
WORDS_LENGTH_MAX = 200
# An order to the other parts holds for so long, and is repeated before that is over.
ORDER_S = 150
AGAIN_S = 60.0
# A part that died is there again by then.
RISEN_S = 2.0
DIED = "died"
ANSWER_S = 10.0

RATE, BACK, FLUSH = "rate", "back", "flush"
HoldRow = tuple[str, list[str], int, str, str, int, int]


class Hold(NamedTuple):
    """What somebody wants: ``tables`` read every ``period_ns``, or the disk left alone. ``until_ns``: in boot time.

    ``kind``: ``rate`` (at least so often), ``back`` (no more often) or ``flush``.
    """

    number: int
    kind: str
    tables: tuple[str, ...]
    period_ns: int
    who: str
    why: str
    uid: int
    until_ns: int
    lock: int


class Wish(NamedTuple):
    """How all holds together want a table read: at least every ``period_ns``, and otherwise only every ``back_ns``.

    0: nobody says so. ``why`` it is to be read more seldom.
    """

    period_ns: int = 0
    back_ns: int = 0
    why: str = ""


class Holds(Interface):
    """All holds, and what they add up to."""

    NAME = MANAGER

    def __init__(
        self,
        folders: Folders,
        plan: Callable[[], Plan],
        changed: Callable[["Holds", str], None],
        watched: Callable[[], Collection[str]],
    ) -> None:
        """``plan``: gives the one in force. ``changed``: tells that a property has changed.

        ``watched``: gives the tables of all subscriptions; nobody reads those more seldom than planned.
        """
        self._folders = folders
        self._plan = plan
        self._changed = changed
        self._watched = watched
        self._there: dict[int, Hold] = {}
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._telling: set[asyncio.Task[None]] = set()

    def are_there(self) -> bool:
        """Whether there is any."""
        return bool(self._there)

    @prop("a(sastssux)", changes=Changes.EMITTED)
    def holds(self) -> list[HoldRow]:
        """All holds: kind, public tables, period in ns, who, why, uid, and until when in UTC nanoseconds."""
        offset_ns = time.time_ns() - clock.boottime_ns()
        public = {probe.table for probe in self._plan().probes if probe.sensitivity is Sensitivity.PUBLIC}
        return [
            (
                hold.kind,
                [table for table in hold.tables if table in public],
                hold.period_ns,
                hold.who,
                hold.why,
                hold.uid,
                hold.until_ns + offset_ns,
            )
            for hold in self._there.values()
        ]

    @method("tables:as period_ns:t who:s why:s", "lock:h", action="hold")
    async def hold_rate(self, request: CallContext, tables: list[str], period_ns: int, who: str, why: str) -> int:
        """Have tables read every so many ns while the descriptor is open, for an hour at most."""
        wanted = tuple(dict.fromkeys(tables))
        if not 1 <= len(wanted) <= TABLES_MAX:
            raise InvalidArgumentError(f"{len(wanted)} tables; expected 1 to {TABLES_MAX}")
        least_ns = max(PERIOD_MIN_NS[lane] for lane in self._lanes(wanted, request.caller))
        if not least_ns <= period_ns <= HOLD_S_MAX * SECOND_NS:
            raise InvalidArgumentError(
                f"period {period_ns} ns; {least_ns} ns is the smallest that works for "
                f"{'this table' if len(wanted) == 1 else 'these tables'}, {HOLD_S_MAX * SECOND_NS} ns the longest"
            )
        return await self._add(request.caller, RATE, wanted, period_ns, (who, why), HOLD_S_MAX)

    @method("tables:as period_ns:t who:s why:s", "lock:h", action="configure")
    async def hold_back(self, request: CallContext, tables: list[str], period_ns: int, who: str, why: str) -> int:
        """Have tables, or all, read only every so many ns while the descriptor is open, for an hour at most."""
        wanted = tuple(dict.fromkeys(tables)) or self._visible(request.caller)
        if len(tables) > TABLES_MAX:
            raise InvalidArgumentError(f"{len(tables)} tables; expected up to {TABLES_MAX}, or none for all")
        self._lanes(wanted, request.caller)
        if not SECOND_NS <= period_ns <= BACK_MAX_S * SECOND_NS:
            right = f"expected {SECOND_NS} to {BACK_MAX_S * SECOND_NS}"
            raise InvalidArgumentError(f"period {period_ns} ns; {right}")
        return await self._add(request.caller, BACK, wanted, period_ns, (who, why), HOLD_S_MAX)

    @method("who:s why:s max_seconds:u", "lock:h", action="flush")
    async def inhibit_flush(self, request: CallContext, who: str, why: str, max_seconds: int) -> int:
        """Have nothing written to the disk while the descriptor is open, unless memory is full or somebody asks."""
        if not 1 <= max_seconds <= HOLD_S_MAX:
            raise InvalidArgumentError(f"max_seconds {max_seconds}; expected 1 to {HOLD_S_MAX}")
        return await self._add(request.caller, FLUSH, (), 0, (who, why), max_seconds)

    def receive(self, _boottime_ns: int, kind: str, *_: object) -> None:
        """Tell a part that died, and was started again, what it cannot know."""
        if kind == DIED and self._there and self._timer is not None:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(RISEN_S, self._renew)

    async def end(self) -> None:
        """End all of them, and wait until the other parts know: this process is about to end."""
        for hold in list(self._there.values()):
            self._end(hold)
        while self._telling:
            await asyncio.wait(self._telling)

    def follow_watched(self) -> None:
        """Somebody watches other tables than before: those are not held back."""
        tables = tuple(dict.fromkeys(table for hold in self._of(BACK) for table in hold.tables))
        if tables:
            self._tell_soon(tables, is_flush=False)

    def _of(self, kind: str) -> list[Hold]:
        return [hold for hold in self._there.values() if hold.kind == kind]

    def _visible(self, caller: Caller) -> tuple[str, ...]:
        """All tables that are read and that a caller may see."""
        may_see = caller.sensitivities
        return tuple(
            probe.table
            for probe in self._plan().probes
            if probe.enabled and probe.sensitivity in may_see and probe.lane in LANES
        )

    def _lanes(self, tables: tuple[str, ...], caller: Caller) -> list[Lane]:
        known = {probe.table: probe.lane for probe in self._plan().probes if probe.sensitivity in caller.sensitivities}
        for table in tables:
            if table not in known:
                raise NotFoundError(f"there is no table {table[:80]!r}{nearest(table[:80], known)}")
        return [known[table] for table in tables]

    async def _add(
        self, caller: Caller, kind: str, tables: tuple[str, ...], period_ns: int, said: tuple[str, str], seconds: int
    ) -> int:
        for name, word in zip(("who", "why"), said, strict=True):
            if not 0 < len(word) <= WORDS_LENGTH_MAX:
                raise InvalidArgumentError(f"{name} of {len(word)} characters; expected 1 to {WORDS_LENGTH_MAX}")
        if sum(hold.uid == caller.uid for hold in self._there.values()) >= HOLDS_PER_USER_MAX:
            raise LimitError(f"uid {caller.uid} has {HOLDS_PER_USER_MAX} holds; end one first")
        if len(self._there) >= HOLDS_MAX:
            raise LimitError(f"there are {HOLDS_MAX} holds; there may be no more")
        lock, given = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._number += 1
        until_ns = clock.boottime_ns() + seconds * SECOND_NS
        hold = Hold(self._number, kind, tables, period_ns, *said, caller.uid, until_ns, lock)
        self._there[hold.number] = hold
        try:
            await self._tell(tables, is_flush=kind == FLUSH)
        except BaseException:
            os.close(given)
            self._end(hold)
            raise
        asyncio.get_running_loop().add_reader(lock, self._end, hold)
        self._changed(self, "Holds")
        self._wait()
        return given

    def _end(self, hold: Hold) -> None:
        """The descriptor was closed, its time is up, or it never began."""
        if self._there.pop(hold.number, None) is None:
            return
        asyncio.get_running_loop().remove_reader(hold.lock)
        os.close(hold.lock)
        self._changed(self, "Holds")
        self._tell_soon(hold.tables, is_flush=hold.kind == FLUSH)
        if not self._there and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        """Wake when somebody's time is up, or the orders to the others have to be repeated."""
        if self._timer is not None:
            self._timer.cancel()
        first_ns = min((hold.until_ns for hold in self._there.values()), default=0)
        wait_s = min(AGAIN_S, max(0.0, (first_ns - clock.boottime_ns()) / SECOND_NS))
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._renew) if self._there else None

    def _renew(self) -> None:
        now_ns = clock.boottime_ns()
        for hold in [other for other in self._there.values() if other.until_ns <= now_ns]:
            self._end(hold)
        tables = tuple(dict.fromkeys(table for hold in self._there.values() for table in hold.tables))
        self._tell_soon(tables, is_flush=bool(self._of(FLUSH)))
        self._wait()

    def _tell_soon(self, tables: tuple[str, ...], *, is_flush: bool) -> None:
        """Tell the others without anybody waiting for it: what fails is tried again, or runs out by itself."""

        async def tell() -> None:
            with suppress(RefusedError):
                await self._tell(tables, is_flush=is_flush)

        task = asyncio.create_task(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, tables: tuple[str, ...], *, is_flush: bool) -> None:
        """Order of the other parts what the holds ask for now, as far as it concerns these tables, or the disk.

        :raises RefusedError: where one refuses, or does not answer.
        """
        now_ns = clock.boottime_ns()
        if is_flush:
            until_ns = max((hold.until_ns for hold in self._of(FLUSH)), default=now_ns)
            seconds = min(ORDER_S, -(-(until_ns - now_ns) // SECOND_NS))
            await ask(self._folders, ARCHIVER, {"do": "hold_flush", "seconds": max(0, seconds)}, ANSWER_S)
        lanes = {probe.table: probe.lane for probe in self._plan().probes}
        orders: dict[tuple[Lane, Wish], list[str]] = {}
        watched = self._watched()
        for table in tables:
            if table in lanes:
                orders.setdefault((lanes[table], self._wish(table, watched)), []).append(table)
        for (lane, wish), those in orders.items():
            if lane not in LANES:  # As often as it may, it is read anyway.
                continue
            left = await self._order(lane, those, wish)
            if left and lane is Lane.REALTIME:  # Too slow for its lane, a table may have moved to the other one.
                slowest_ns = wish.period_ns and max(wish.period_ns, PERIOD_MIN_NS[Lane.BACKGROUND])
                left = await self._order(Lane.BACKGROUND, left, wish._replace(period_ns=slowest_ns))
            if left and wish.period_ns:
                raise RefusedError(f"table {left[0]!r}: is not being read; expected one that is")

    def _wish(self, table: str, watched: Collection[str]) -> Wish:
        """What all holds together say of a table: of those of a kind the shortest period counts."""
        period_ns = min((hold.period_ns for hold in self._of(RATE) if table in hold.tables), default=0)
        backs = [hold for hold in self._of(BACK) if table in hold.tables and table not in watched]
        if not backs:
            return Wish(period_ns)
        often = min(backs, key=lambda hold: hold.period_ns)
        return Wish(period_ns, often.period_ns, f"{often.who}: {often.why}")

    async def _order(self, lane: Lane, tables: list[str], wish: Wish) -> list[str]:
        """Order a lane to read tables so often, 0: as planned; gives those that it does not read."""
        order: Order = {"do": "hold", "tables": tables, "interval_ns": wish.period_ns, "seconds": ORDER_S}
        if wish.back_ns:
            order |= {"back_ns": wish.back_ns, "why": wish.why}
        answer = await ask(self._folders, WRITERS[lane], order, ANSWER_S)
        read = answer.get("tables")
        return [table for table in tables if table not in (read if isinstance(read, list) else [])]
