# SPDX-License-Identifier: Apache-2.0
"""Objects with interfaces at paths, calls that find their method: what is offered, on a bus or to this very process.

By itself it is on no bus: nobody listens, nobody is asked whether a caller may, and nothing is done later. ``service``
puts it on one.
"""

from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any, NamedTuple

from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import ForeignCallError, LimitError, UnavailableError
from sysmond.bus.wire.interface import DOCTYPE, CallContext, Interface, Method, Signal, xml
from sysmond.bus.wire.standard import Introspectable, Peer, Properties
from sysmond.bus.wire.values import Variant
from sysmond.errors import nearest

# An argument with a longer text, or more items, is a mistake whatever it is for.
TEXT_LENGTH_MAX = 4096
ITEMS_MAX = 1000


class Exported(NamedTuple):
    """What lies at a path. ``owner``: the only one for whom it is there; ``is_managed``: the ObjectManager tells."""

    interfaces: dict[str, list[Interface]]
    owner: Caller | None
    is_managed: bool


class Wanted(NamedTuple):
    """Which method of which object."""

    path: str
    interface: str
    member: str


class Exports:
    """The objects."""

    def __init__(self) -> None:
        """There are none."""
        self._objects: dict[str, Exported] = {}
        self._everywhere: dict[str, list[Interface]] = {
            interface.NAME: [interface] for interface in (Peer(), Introspectable(self), Properties(self))
        }

    def export(self, path: str, *interfaces: Interface, owner: Caller | None = None, is_managed: bool = False) -> None:
        """Put interfaces at a path. ``owner``: for all others nothing is there."""
        by_name: dict[str, list[Interface]] = {}
        for interface in interfaces:
            by_name.setdefault(interface.NAME, []).append(interface)
        self._objects[path] = Exported(by_name, owner, is_managed)

    def add(self, path: str, *interfaces: Interface) -> None:
        """Put further interfaces beside those at a path."""
        for interface in interfaces:
            self._objects[path].interfaces.setdefault(interface.NAME, []).append(interface)

    def withdraw(self, path: str) -> Exported | None:
        """Take away what lies at a path, and give what that was."""
        return self._objects.pop(path, None)

    def interfaces(self, path: str) -> dict[str, list[Interface]]:
        """The interfaces at a path; nothing where there is no object."""
        return self._objects[path].interfaces if path in self._objects else {}

    def has(self, wanted: Wanted) -> bool:
        """Whether there is such a method."""
        implementations = self.interfaces(wanted.path).get(wanted.interface, ())
        return any(wanted.member in implementation.METHODS for implementation in implementations)

    def managed(self) -> Iterator[tuple[str, dict[str, list[Interface]]]]:
        """The objects that the ObjectManager tells of."""
        return ((path, exported.interfaces) for path, exported in self._objects.items() if exported.is_managed)

    def describe(self, path: str, caller: Caller) -> str:
        """Introspection XML of a path; what belongs to others is not there."""
        below = f"{path.rstrip('/')}/"
        visible = [other for other, exported in self._objects.items() if exported.owner in {None, caller}]
        children = {other[len(below) :].partition("/")[0] for other in visible if other.startswith(below)}
        there = {**self._everywhere, **self.interfaces(path)} if path in self._objects else self._everywhere
        lines = [DOCTYPE, "<node>"]
        for implementations in there.values():
            lines += xml(type(implementation) for implementation in implementations)
        lines += [f'  <node name="{name}"/>' for name in sorted(children)]
        return "\n".join([*lines, "</node>", ""])

    async def answer(self, wanted: Wanted, caller: Caller, body: list[Any]) -> list[Any]:
        """What a method answers to who is in this very process, and has no other rights than the kernel gives it.

        :raises RefusedError: and whatever else the method raises.
        """
        method, implementation = self.find(wanted, caller)
        for value in body:
            check(value)
        outcome: Any = method.function(implementation, CallContext(caller, wanted.path), *body)
        if isinstance(outcome, Generator):
            outcome = _whole(outcome)
        if isinstance(outcome, Awaitable):
            outcome = await outcome
        return [] if not method.gives else [outcome] if len(method.gives) == 1 else list(outcome)

    def find(self, wanted: Wanted, caller: Caller) -> tuple[Method, Interface]:
        """The method that is meant, and whose it is.

        :raises ForeignCallError: where there is none.
        """
        there = self._objects.get(wanted.path)
        if there is not None and there.owner is not None and there.owner is not caller:
            there = None
        for interfaces in (there.interfaces if there is not None else {}, self._everywhere):
            groups = [interfaces.get(wanted.interface, [])] if wanted.interface else interfaces.values()
            for implementation in (member for group in groups for member in group):
                if wanted.member in implementation.METHODS:
                    if there is None and not self._is_known_nowhere(wanted.path, implementation):
                        raise ForeignCallError("UnknownObject", f"no object at {wanted.path[:255]}")
                    return implementation.METHODS[wanted.member], implementation
        if there is None:
            raise ForeignCallError("UnknownObject", f"no object at {wanted.path[:255]}")
        if wanted.interface and wanted.interface not in {**there.interfaces, **self._everywhere}:
            raise ForeignCallError("UnknownInterface", f"{wanted.path} has no interface {wanted.interface}")
        known = [name for group in there.interfaces.values() for member in group for name in member.METHODS]
        raise ForeignCallError("UnknownMethod", f"no method {wanted.member}{nearest(wanted.member, known)}")

    def _is_known_nowhere(self, path: str, implementation: Interface) -> bool:
        """Whether this interface answers where no object is: Peer anywhere, and above objects, to find the way."""
        if isinstance(implementation, Peer):
            return True
        below = f"{path.rstrip('/')}/"
        return isinstance(implementation, Introspectable) and any(other.startswith(below) for other in self._objects)

    # What methods need

    def emit(self, path: str, signal: Signal, *values: object, to: Caller | None = None) -> bool:
        """Send a signal to one caller, or to whoever listens; whether it is on its way: nobody is there."""
        del path, signal, values, to
        return False

    def changed(self, path: str, implementation: Interface, *names: str) -> None:
        """Tell whoever listens that properties changed."""

    async def authorize(self, request: CallContext, action: str) -> None:
        """Return where the caller may do that.

        :raises UnavailableError: always: who may, a bus would know.
        """
        del request, action
        raise UnavailableError("there is no bus")

    def work(self, caller: Caller, work: Iterator[object]) -> None:
        """Have something done in the turn of a caller's user: there is no other."""
        del caller
        for _ in work:
            pass

    def later(self, wait_s: float, do: Callable[[], object]) -> None:
        """Have something done later: whoever asks in this very process asks anew, or ends."""

    def clients(self) -> list[Caller]:
        """Everybody who called and is still there."""
        return []

    def counts(self) -> dict[str, int]:
        """What the status says about the bus: callers, what waits and what was dropped."""
        return {"clients": 0, "calls_under_way": 0, "calls_dropped": 0, "messages_dropped": 0}

    @property
    def is_idle(self) -> bool:
        """Whether nobody who has called is there any more, and nothing is under way."""
        return True


def _whole(work: Generator[Any, Any, Any]) -> Any:  # noqa: ANN401  as is declared
    """Do all pieces at once, and give what they give in the end."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def check(value: object) -> None:
    """Refuse what is too long, wherever in an argument it is."""
    match value:
        case Variant():
            check(value.value)
        case str():
            if len(value) > TEXT_LENGTH_MAX:
                raise LimitError(f"a text of {len(value)} characters; expected up to {TEXT_LENGTH_MAX}")
        case list() | tuple() | dict():
            if len(value) > ITEMS_MAX:
                raise LimitError(f"{len(value)} items; expected up to {ITEMS_MAX}")
            for item in value.items() if isinstance(value, dict) else value:
                if not isinstance(item, int | float):
                    check(item)
        case _:
            pass
