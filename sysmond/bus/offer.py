# SPDX-License-Identifier: Apache-2.0
"""What the bus part offers: put together from what steers, tells how sysmond is, and reads rings and history."""

from sysmond.base.model import Sensitivity
from sysmond.bus.events import Events
from sysmond.bus.holds import Holds
from sysmond.bus.latest import Latest, Values
from sysmond.bus.offer_state import offer_state
from sysmond.bus.part import BusPart
from sysmond.bus.probes import Probes
from sysmond.bus.readers import History, Readers
from sysmond.bus.subscriptions import Subscriptions
from sysmond.bus.wire.interface import Interface
from sysmond.bus.wire.names import OBJECT_PATH


def offer(part: BusPart, *others: Interface) -> None:
    """Put everything in its place at the service; nothing is on a bus yet. ``others``: beside the manager."""
    probes = offer_state(part)
    offer_values(part, probes)
    part.service.add(OBJECT_PATH, *others)


def offer_values(part: BusPart, probes: Probes) -> None:
    """Put beside the manager what is offered of values, old and new."""
    part.service.add(OBJECT_PATH, *_values(part, probes, Readers(part.settings.folders)))


def _values(part: BusPart, probes: Probes, readers: Readers) -> list[Interface]:
    """Put them together from what reads rings, history and events."""

    def planned() -> dict[str, Sensitivity]:
        return {probe.table: probe.sensitivity for probe in part.plan.probes}

    latest = Latest(part.follower, planned, probes.long_tables, probes.table)
    part.when_planned.append(latest.forget)

    def emit(time_ns: int, kind: str, subject: str, text: str) -> None:
        part.service.emit(OBJECT_PATH, Events.event, time_ns, kind, subject, text)

    def is_restricted(table: str) -> bool:
        sensitivities = [planned.sensitivity for planned in part.plan.probes if planned.table == table]
        return Sensitivity.RESTRICTED in sensitivities or latest.is_restricted(table)

    def changed(holds: Holds, name: str) -> None:
        part.service.changed(OBJECT_PATH, holds, name)

    events = Events(emit, is_restricted)
    subscriptions = Subscriptions(part.service, latest)
    holds = Holds(part.settings.folders, lambda: part.plan, changed, subscriptions.tables)
    subscriptions.when_changed = holds.follow_watched
    part.when_recorded += [events.receive, holds.receive]
    part.needed_by.append(holds.are_there)
    part.when_left.append(holds.end)
    return [
        Values(latest),
        History(readers, latest),
        subscriptions,
        events,
        holds,
    ]
