# SPDX-License-Identifier: Apache-2.0
"""Signals of services on the bus of the machine, which wake the background lane; nothing is polled.

Source: the D-Bus specification, by ``sysmond.sources.sd_bus``. Standard library only.
"""

import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from sysmond.probe import Host
from sysmond.sources.sd_bus import BUS, SdBus, SdMessage


class ServiceSignals:
    """Listens for as long as there is a bus; where it dies, or is let go, a later reading begins anew.

    Anybody may send a signal to anybody: only those count whose sender owns the name of the service.
    """

    def __init__(self, rules: Mapping[str, Sequence[str]], when_there: Callable[[SdBus, str], None]) -> None:
        """``rules``: which signals, by service. ``when_there``: called when a service is there, or there anew."""
        self._rules = rules
        self._when_there = when_there
        self._owners: dict[str, str] = {}
        self._bus: SdBus | None = None
        self._wakes: select.epoll | None = None

    def take(self, host: Host, most: int) -> Iterator[tuple[frozenset[str], SdMessage]]:
        """Give what has come, so much of it: from which services, and what; answers are of no service.

        :raises OSError: where there is no bus.
        """
        bus = self._bus or self._connect(host)
        try:
            for message in bus.messages(most):
                sender = message.sender
                if message.answers:
                    yield frozenset(), message
                elif sender == BUS[0]:
                    if message.is_signal(BUS[2], "NameOwnerChanged"):
                        name, _, owner = (message.read("s") for _ in range(3))
                        self._owned(bus, name, owner)
                elif services := frozenset(name for name, owner in self._owners.items() if owner == sender):
                    yield services, message
        except OSError:
            self.let_go(host)

    def let_go(self, host: Host) -> None:
        """Hear nothing until the next reading that is due anyway."""
        host.wakes = None
        self._close()

    def _connect(self, host: Host) -> SdBus:
        bus = SdBus()
        try:
            for name, matches in self._rules.items():
                owner = f"type='signal',sender='{BUS[0]}',member='NameOwnerChanged',arg0='{name}'"
                for rule in (owner, *(f"type='signal',sender='{name}',{match}" for match in matches)):
                    with bus.ask(BUS, "AddMatch", rule):
                        pass
                with suppress(OSError), bus.ask(BUS, "GetNameOwner", name) as answer:
                    self._owned(bus, name, answer.read("s"))
        except OSError:
            bus.close()
            raise
        if self._wakes is None:
            host.at_close(self._close)
        self._bus, host.wakes = bus, select.epoll()
        self._wakes = host.wakes
        self._wakes.register(bus.fileno(), select.EPOLLIN)
        return bus

    def _close(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.close()
        if self._wakes is not None:
            self._wakes.close()

    def _owned(self, bus: SdBus, name: str, owner: str) -> None:
        self._owners[name] = owner
        if owner:
            self._when_there(bus, name)
