# SPDX-License-Identifier: Apache-2.0
"""The service on the bus: what is offered, calls of anybody in their turn, signals that find their way.

It outlives its connections: where the bus is absent, ends or starts anew, it connects again and takes its name
again; objects stay, callers and what they held are gone.
"""

import asyncio
import inspect
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

from sysmond.bus.wire import polkit
from sysmond.bus.wire.adapter import Call, Connection
from sysmond.bus.wire.backlog import Backlog
from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.callers import BUS, Callers
from sysmond.bus.wire.errors import ForeignCallError, LimitError, UnavailableError, bus_error
from sysmond.bus.wire.exports import ITEMS_MAX, Exported, Exports, Wanted, check
from sysmond.bus.wire.interface import CallContext, Changes, Interface, Method, Signal
from sysmond.bus.wire.names import BUS_NAME
from sysmond.bus.wire.standard import DBUS, Objects, Properties, values_by_interface, values_of
from sysmond.bus.wire.turns import Turns
from sysmond.bus.wire.values import clean

RETRY_FIRST_S = 1.0
RETRY_MAX_S = 30.0
# Those who called just before it ends may stay for five seconds.
LAST_CALLS_LOOK_S = 0.05
LAST_CALLS_LOOKS = 100
# What is under way, in all and for one user, however many connections it has; more is refused. Where half of it is
# taken, a user has less: several of them cannot shut out the others.
CALLS_MAX = 256
CALLS_PER_USER_MAX = 64
CALLS_PER_USER_BUSY_MAX = 8
# What may wait for its turn of one user; what comes beyond is refused unread, or dropped where no answer is wanted.
WAITING_MAX = 256
WAITING_BYTES_MAX = 4 * 1024 * 1024
UNANSWERED_WAITING_MAX = 64
REFUSED_WAITING_MAX = 8192
# Of callers who are not known yet: how many are asked about at once, how many may wait, and what of each.
LOOKUPS_MAX = 16
UNKNOWN_MAX = 1024
UNKNOWN_CALLS_MAX = 128
UNKNOWN_BYTES_MAX = 8 * 1024 * 1024
NOBODY = -1
ERROR_LENGTH_MAX = 500

_NOT_QUEUED = 4  # DBUS_NAME_FLAG_DO_NOT_QUEUE
_OWNER = {1, 4}  # Primary owner, or owner already.


class Service(Exports):
    """The objects, and the connection on which they are offered."""

    def __init__(self, address: str, say: Callable[[str], None], *, user: bool) -> None:
        """``address``: ``system``, ``session`` or that of a bus. ``user``: whether it serves its own user alone."""
        super().__init__()
        self.callers: Callers | None = None
        self.backlog: Backlog | None = None
        self._address = address
        self._say = say
        self._user = user
        self._connection: Connection | None = None
        self._turns: Turns | None = None
        self._unknown: dict[str, list[Call]] = {}
        self._unidentified: deque[str] = deque()
        self._lookups = 0
        self._unknown_bytes = 0
        self._calls_dropped = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: Counter[int] = Counter()
        self._said = ""
        self._complained: set[str] = set()

    # Objects

    def export(self, path: str, *interfaces: Interface, owner: Caller | None = None, is_managed: bool = False) -> None:
        """Put interfaces at a path, and tell whoever listens."""
        super().export(path, *interfaces, owner=owner, is_managed=is_managed)
        if is_managed and self._connection is not None:
            self._tell_all(Objects.interfaces_added, [path, values_by_interface(self.interfaces(path))])

    def withdraw(self, path: str) -> Exported | None:
        """Take away what lies at a path, and tell whoever listens."""
        gone = super().withdraw(path)
        if gone is not None and gone.is_managed and self._connection is not None:
            self._tell_all(Objects.interfaces_removed, [path, list(gone.interfaces)])
        return gone

    # Signals

    def emit(self, path: str, signal: Signal, *values: object, to: Caller | None = None) -> bool:
        """Send a signal to one caller, or to whoever listens; whether it is on its way.

        A caller that reads nothing is not sent more than a bound: then its signals are dropped and counted.
        """
        if self._connection is None or self.backlog is None or (to is not None and to.is_gone):
            return False
        if to is not None and not self.backlog.takes_signals(to.name, to.uid):
            to.dropped += 1
            return False
        size = self._connection.signal(
            path, signal.interface, signal.name, signal.signature, values, "" if to is None else to.name
        )
        if to is not None:
            to.dropped += not size
            self.backlog.sent(to.name, to.uid, size)
        return size > 0

    def changed(self, path: str, implementation: Interface, *names: str) -> None:
        """Tell whoever listens that properties changed: those that are declared to be told."""
        if self._connection is None:
            return
        declared = [implementation.PROPERTIES[name] for name in names]
        values = {name: value for name, value in values_of([implementation]).items() if name in names}
        now = {member.name: values[member.name] for member in declared if member.changes is Changes.EMITTED}
        asked_for = [member.name for member in declared if member.changes is Changes.INVALIDATED]
        if now or asked_for:
            self.emit(path, Properties.properties_changed, implementation.NAME, now, asked_for)

    # What methods need

    async def authorize(self, request: CallContext, action: str) -> None:
        """Return where the caller may do that.

        :raises NotAuthorizedError: where it may not. :raises UnavailableError: where the bus is gone meanwhile.
        """
        if self._connection is None:
            raise UnavailableError("the bus is gone")
        await polkit.authorize(self._connection, request.caller, action, user=self._user, may_ask=request.may_ask)

    def work(self, caller: Caller, work: Iterator[object]) -> None:
        """Have something done in the turn of a caller's user."""
        self._lines().put(caller.uid, self._worked(work))
        self._lines().soon()

    def _worked(self, work: Iterator[object]) -> Iterator[object]:
        try:
            yield from work
        except Exception as failure:  # noqa: BLE001  whatever it is, others have their turns
            self._say(f"{type(failure).__name__}: {failure}")

    def later(self, wait_s: float, do: Callable[[], object]) -> None:
        """Have something done later."""
        asyncio.get_running_loop().call_later(wait_s, do)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that nobody waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def clients(self) -> list[Caller]:
        """Everybody who called and is still there."""
        return [] if self.callers is None else self.callers.all()

    def counts(self) -> dict[str, int]:
        """What the status says about the bus: callers, what waits and what was dropped."""
        callers = self.clients()
        dropped = sum(caller.dropped for caller in callers)
        if self._connection is not None:
            dropped += self._connection.dropped
        return {
            "clients": len(callers),
            "calls_under_way": len(self._tasks),
            "calls_dropped": self._calls_dropped,
            "messages_dropped": dropped,
        }

    # The connection

    async def run(self, ended: asyncio.Event) -> None:
        """Offer the objects on the bus until asked to end, whatever becomes of the bus meanwhile."""
        pause_s = RETRY_FIRST_S
        while not ended.is_set():
            try:
                connection = await Connection.connect(self._address, self._called, self._signalled)
            except UnavailableError as failure:
                self._once("absent", f"no bus: {failure}; tried again, recording goes on")
            else:
                if await self._offer(connection, ended):
                    pause_s = RETRY_FIRST_S
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), pause_s)
            pause_s = min(RETRY_MAX_S, pause_s * 2)

    @property
    def is_idle(self) -> bool:
        """Whether nobody who has called is on the bus any more, and nothing is under way."""
        return not (self.callers or self._tasks or self._unknown)

    async def give_up(self) -> None:
        """Let go of the name, so that whoever calls next has this part started, and serve those who called before."""
        with suppress(UnavailableError):
            if self._connection is not None:
                await self._connection.ask(BUS, "ReleaseName", "s", [BUS_NAME])
        for _ in range(LAST_CALLS_LOOKS):
            if self.is_idle:
                return
            await asyncio.sleep(LAST_CALLS_LOOK_S)

    async def _offer(self, connection: Connection, ended: asyncio.Event) -> bool:
        """Take the name and serve until the connection or the part ends; whether the name was ours."""
        self._connection, self.callers = connection, Callers(connection)
        self.backlog = Backlog(connection, self.start)
        connection.when_moved = self._lines().take
        lost = asyncio.create_task(connection.lost())
        is_ours = False
        try:
            (answer,) = await connection.ask(BUS, "RequestName", "su", [BUS_NAME, _NOT_QUEUED])
            is_ours = answer in _OWNER
            if is_ours:
                self._once("there", f"{BUS_NAME} is there" if self._said else "")
                ending = asyncio.create_task(ended.wait())
                await asyncio.wait({lost, ending}, return_when=asyncio.FIRST_COMPLETED)
                ending.cancel()
                if lost.done():
                    self._once("gone", f"the bus is gone: {lost.result()}; tried again, recording goes on")
            else:
                self._once("taken", f"{BUS_NAME} belongs to somebody else on this bus; tried again")
        except UnavailableError as refusal:
            self._once("refused", f"{BUS_NAME} is not ours to take: {refusal}; tried again")
        finally:
            self.callers.leave()
            connection.close()
            self._connection = self.callers = self.backlog = None
            self._forget_calls()
            for task in list(self._tasks):
                task.cancel()
            await lost
        return is_ours

    def _once(self, state: str, line: str) -> None:
        """Say a line where things have come to another state; what comes of further tries is no news."""
        if line and state != self._said:
            self._say(line)
        self._said = state

    def _signalled(self, signal: Call) -> None:
        # Anybody may send us signals: those of others stay unread.
        if signal.sender == DBUS and signal.member == "NameOwnerChanged" and self.callers is not None:
            name, _, new = signal.body
            if not new:
                self.callers.vanished(name)
                if self.backlog is not None:
                    self.backlog.gone(name)

    # Calls

    def _called(self, call: Call) -> None:
        if self.callers is None:
            return
        caller = self.callers.get(call.sender)
        if caller is None:
            self._queue_unidentified(call, self.callers)
        else:
            self._admit(call, caller)

    def _queue_unidentified(self, call: Call, callers: Callers) -> None:
        """Have a call wait until it is known who calls."""
        calls = self._unknown.get(call.sender, [])
        if len(calls) >= UNKNOWN_CALLS_MAX or len(self._unknown) >= UNKNOWN_MAX:
            self._turn_away(call, None, LimitError("too many callers are not known yet; try again later"))
            return
        if not calls:
            self._unknown[call.sender] = calls
            self._unidentified.append(call.sender)
        if self._unknown_bytes + call.size_bytes > UNKNOWN_BYTES_MAX:
            call.forget()
        self._unknown_bytes += call.size_bytes
        calls.append(call)
        self._start_lookups(callers)

    def _start_lookups(self, callers: Callers) -> None:
        while self._unidentified and self._lookups < LOOKUPS_MAX:
            self._lookups += 1
            self.start(self._look_up(self._unidentified.popleft(), callers))

    async def _look_up(self, name: str, callers: Callers) -> None:
        caller, failure = None, None
        try:
            caller = await callers.identify(name)
        except Exception as refusal:  # noqa: BLE001  whatever it is, others are asked about
            failure = refusal
        if callers is not self.callers:
            return
        self._lookups -= 1
        for call in self._unknown.pop(name, ()):
            self._unknown_bytes -= call.size_bytes
            if caller is not None:
                self._admit(call, caller)
            elif failure is not None:
                self._turn_away(call, None, failure)
        self._lines().soon()
        self._start_lookups(callers)

    def _lines(self) -> Turns:
        if self._turns is None:
            self._turns = Turns(asyncio.get_running_loop().call_soon, self._is_bus_behind)
        return self._turns

    def _is_bus_behind(self) -> bool:
        return self._connection is not None and self._connection.queued_bytes > 0

    def _admit(self, call: Call, caller: Caller) -> None:
        """Have a call wait for the turn of its user, unless that user has enough waiting."""
        turns, uid = self._lines(), caller.uid
        waiting = turns.waiting(uid)
        most = WAITING_MAX if call.wants_answer else UNANSWERED_WAITING_MAX
        if waiting < most and call.size_bytes and turns.waiting_bytes(uid) + call.size_bytes <= WAITING_BYTES_MAX:
            caller.in_flight += 1
            turns.put(uid, self._served(call, caller), call.size_bytes)
        else:
            much = f"{waiting} calls of this user wait for their turn; wait for the answers"
            self._turn_away(call, caller, LimitError(much))

    def _turn_away(self, call: Call, caller: Caller | None, failure: Exception) -> None:
        """Refuse a call unread, in its turn; where no answer is wanted, or too many wait for theirs, drop it."""
        uid = NOBODY if caller is None else caller.uid
        if call.wants_answer and self._lines().waiting(uid) < REFUSED_WAITING_MAX:
            call.forget()
            self._lines().put(uid, self._refused(call, caller, failure))
        else:
            self._calls_dropped += 1

    def _forget_calls(self) -> None:
        """The connection is gone: nobody waits for an answer any more."""
        self._unknown.clear()
        self._unidentified.clear()
        self._lookups = self._unknown_bytes = 0
        if self._turns is not None:
            self._turns.clear()

    def _refused(self, call: Call, caller: Caller | None, failure: Exception) -> Iterator[None]:
        self._refuse(call, caller, failure)
        yield from ()

    def _served(self, call: Call, caller: Caller) -> Iterator[None]:
        """Serve a call, in pieces where its method gives them."""
        caller.calls += 1
        try:
            if (
                call.wants_answer
                and self.backlog is not None
                and not self.backlog.takes_answers(caller.name, caller.uid)
            ):
                raise LimitError("what was answered before waits to be read; expected it to be read first")
            method, implementation = self.find(Wanted(call.path, call.interface, call.member), caller)
            if call.signature != method.signature:
                raise ForeignCallError(
                    "InvalidArgs", f"{method.name} takes ({method.signature}), not ({call.signature})"
                )
            for value in call.body:
                check(value)
            request = CallContext(caller, call.path, call.may_ask)
            outcome: Any
            if method.action:
                outcome = self._authorized(method, implementation, request, call.body)
            else:
                outcome = method.function(implementation, request, *call.body)
            if inspect.isgenerator(outcome):
                outcome = yield from outcome
            if inspect.isawaitable(outcome):
                self._wait_for(call, caller, method, outcome)
            else:
                self._reply(call, caller, method, outcome)
        except Exception as failure:  # noqa: BLE001  whatever a call does, it does not end the part
            self._refuse(call, caller, failure)
        finally:
            caller.in_flight -= 1

    async def _authorized(
        self, method: Method, implementation: Interface, request: CallContext, body: list[Any]
    ) -> object:
        await self.authorize(request, method.action)
        outcome = method.function(implementation, request, *body)
        return await outcome if inspect.isawaitable(outcome) else outcome

    def _wait_for(self, call: Call, caller: Caller, method: Method, outcome: Awaitable[object]) -> None:
        total = len(self._tasks)
        most = CALLS_PER_USER_MAX if total < CALLS_MAX // 2 else CALLS_PER_USER_BUSY_MAX
        if self._under_way[caller.uid] >= most or total >= CALLS_MAX:
            if inspect.iscoroutine(outcome):
                outcome.close()
            raise LimitError(f"{self._under_way[caller.uid]} calls of this user are under way; wait for their answers")
        caller.in_flight += 1
        self._under_way[caller.uid] += 1
        self.start(self._answer_later(call, caller, method, outcome))

    async def _answer_later(self, call: Call, caller: Caller, method: Method, outcome: Awaitable[object]) -> None:
        try:
            value = await outcome
            began_s = time.thread_time()
            self._reply(call, caller, method, value)
            self._lines().charge(caller.uid, time.thread_time() - began_s)
        except Exception as failure:  # noqa: BLE001  whatever a call does, it does not end the part
            self._refuse(call, caller, failure)
        finally:
            caller.in_flight -= 1
            self._under_way[caller.uid] -= 1
            if not self._under_way[caller.uid]:
                del self._under_way[caller.uid]

    def _refuse(self, call: Call, caller: Caller | None, failure: Exception) -> None:
        name, text = bus_error(failure)
        if not hasattr(failure, "exit_code") and len(self._complained) < ITEMS_MAX:
            line = f"{call.member} failed: {text}"
            if line not in self._complained:
                self._complained.add(line)
                self._say(line)
        if caller is not None and self.backlog is not None and not self.backlog.takes_refusals(caller.name, caller.uid):
            self._calls_dropped += 1
            return
        with suppress(Exception):
            self._count(caller, call.refuse(name, clean(text)[:ERROR_LENGTH_MAX]))

    def _reply(self, call: Call, caller: Caller, method: Method, outcome: Any) -> None:  # noqa: ANN401  as is declared
        """Answer with what a method gave; its descriptors belong to the connection from now on."""
        body = [] if not method.gives else [outcome] if len(method.gives) == 1 else list(outcome)
        descriptors = []
        for index, argument in enumerate(method.gives):
            if argument.signature == "h":
                descriptors.append(body[index])
                body[index] = len(descriptors) - 1
        self._count(caller, call.reply(method.answer, body, descriptors, bytes_max=method.bytes_max))

    def _count(self, caller: Caller | None, size_bytes: int) -> None:
        if caller is not None and self.backlog is not None:
            self.backlog.sent(caller.name, caller.uid, size_bytes)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._say(f"{type(failure).__name__}: {failure}")

    def _tell_all(self, signal: Signal, values: list[object]) -> None:
        for path, exported in self._objects.items():
            if Objects.NAME in exported.interfaces:
                self.emit(path, signal, *values)
