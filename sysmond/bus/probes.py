# SPDX-License-Identifier: Apache-2.0
"""An object for every probe, under the ObjectManager: what it reads, how it is, what it costs.

State follows from the plan and from the rings, whose newest frame of a table is rows or the reason why there are none.
Nobody looks at the rings for its own sake: a change is told when an event or a new plan makes it likely, and when
somebody who asks finds it.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from sysmond.base.model import ABSENT, Cause, Sensitivity, Table
from sysmond.bus.part import BusPart
from sysmond.bus.steering import Steering
from sysmond.bus.wire import names
from sysmond.bus.wire.interface import CallContext, Changes, Interface, Options, method, prop, read_options
from sysmond.bus.wire.values import Variant, clean
from sysmond.errors import CorruptError
from sysmond.plan import catalogue
from sysmond.plan.catalogue import Catalogue
from sysmond.plan.plan import PlannedProbe
from sysmond.probe import NOT_HERE
from sysmond.ring.newest import Now
from sysmond.ring.progress import WRITERS
from sysmond.sampler.self_cost import SELF

# Several who ask at once are answered from one look.
LOOK_S = 0.1
# After a new plan or an event: by then a lane has had a tick.
LOOK_AGAIN_S = 2.5
CATALOGUE_S = 1.0
_LANES = {writer: lane for lane, writer in WRITERS.items()}
_SIGNATURES = {bool: "b", int: "x", float: "d", str: "s"}


class State(NamedTuple):
    """How a probe is: ``active``, ``disabled``, ``absent`` or ``quarantined``; why, and in which lane it runs.

    ``public_reason``: as much of it as everybody may know. What the reader of a restricted table stumbled on may be
    what is restricted: an exception cites it.
    """

    name: str
    reason: str
    lane: str
    public_reason: str


class ProbeObject(Interface):
    """One probe, which is one table."""

    NAME = names.PROBE

    def __init__(self, probes: "Probes", planned: PlannedProbe) -> None:
        """``planned``: as the plan has it now."""
        self._probes = probes
        self.planned = planned
        self.reported: State | None = None

    @prop("s", changes=Changes.NEVER)
    def name(self) -> str:
        """The name of the probe and of its table."""
        return self.planned.table

    @prop("s", changes=Changes.EMITTED)
    def plugin(self) -> str:
        """Where it comes from: an import name, or the path of a file."""
        return clean(self.planned.plugin)

    @prop("s")
    def doc(self) -> str:
        """What its table tells."""
        return clean(self._table().doc)

    @prop("s")
    def per(self) -> str:
        """What a row is about; empty for the whole system."""
        return clean(self._table().per)

    @prop("a(ssssd)")
    def metrics(self) -> list[tuple[str, str, str, str, float]]:
        """Its metrics: name, unit, semantics, documentation, resolution in that unit."""
        return [
            (metric.name, clean(metric.unit), str(metric.semantics), clean(metric.doc), 10.0**-metric.scale)
            for metric in self._table().metrics
        ]

    @prop("s", changes=Changes.EMITTED)
    def state(self) -> str:
        """How it is: ``active``, ``disabled``, ``absent`` or ``quarantined``."""
        return self._probes.state(self.planned).name

    @prop("s", changes=Changes.EMITTED)
    def reason(self) -> str:
        """Why it is not active; empty where it is. Of what is restricted only what everybody may know."""
        return clean(self._probes.state(self.planned).public_reason)

    @prop("t", changes=Changes.EMITTED)
    def interval(self) -> int:
        """The distance of two ticks in ns, as planned."""
        return self.planned.interval_ns

    @prop("s", changes=Changes.EMITTED)
    def lane(self) -> str:
        """Where it runs now: ``realtime``, ``background`` or ``oneshot``, a part that reads once and ends."""
        return self._probes.state(self.planned).lane

    @prop("s", changes=Changes.EMITTED)
    def sensitivity(self) -> str:
        """Who may read it: ``public`` or ``restricted``."""
        return str(self.planned.sensitivity)

    @prop("s")
    def privilege(self) -> str:
        """What its reader needs beyond the rights of any user, as a capability or group; empty for nothing."""
        return clean(self._probes.privilege(self.planned.table))

    @prop("a{sv}", changes=Changes.INVALIDATED, is_for_caller=True)
    def options(self, *, is_restricted: bool) -> dict[str, Variant]:
        """Its own settings; of a restricted probe to restricted callers alone."""
        if self.planned.sensitivity is Sensitivity.RESTRICTED and not is_restricted:
            return {}
        return {name: Variant(_SIGNATURES[type(value)], value) for name, value in self.planned.options.items()}

    @prop("a{sd}")
    def cost(self) -> dict[str, float]:
        """What reading it has cost, as the table ``self`` has it: ``duration`` in s, ``dropped``, ``failures``."""
        return self._probes.costs().get(f"probe:{self.planned.table}", {})

    @method("options:a{sv}", action="configure")
    async def enable(self, _: CallContext, options: Options) -> None:
        """Let it record, now and after the next start."""
        read_options(options, {})
        await self._probes.steering.set(self.planned.table, "enabled", value=True)

    @method("options:a{sv}", action="configure")
    async def disable(self, _: CallContext, options: Options) -> None:
        """Let it record no more, now and after the next start."""
        read_options(options, {})
        await self._probes.steering.set(self.planned.table, "enabled", value=False)

    @method("interval_ns:t options:a{sv}", action="configure")
    async def set_interval(self, _: CallContext, interval_ns: int, options: Options) -> None:
        """Read it so often, now and after the next start; 0: as it declares itself."""
        read_options(options, {})
        await self._probes.steering.interval(self.planned.table, interval_ns)

    @method("options:a{sv}", action="configure")
    async def reset(self, _: CallContext, options: Options) -> None:
        """Release it: out of quarantine, back to its lane."""
        read_options(options, {})
        await self._probes.steering.forgive(self.planned.table)

    def _table(self) -> Table:
        return self._probes.table(self.planned.table)


class Probes:
    """The probes of the plan as objects, kept as the plan and the rings have them."""

    def __init__(self, part: BusPart, steering: Steering) -> None:
        """Put an object on the bus for each. ``steering``: what its methods do."""
        self.part = part
        self.steering = steering
        self._rings = part.follower
        self._looked_s = float("-inf")
        self._now = Now({}, {}, 0)
        self._is_to_look = False
        self._catalogue: Catalogue | None = None
        self._objects: dict[str, ProbeObject] = {}
        part.when_planned.append(self.follow)
        part.when_recorded.append(lambda *_: self._look_later())
        part.when_forgiven.append(self.look)
        self.follow()

    def follow(self) -> None:
        """Have as many objects as the plan has probes, and tell what changed."""
        self._forget_catalogue()
        planned = {probe.table: probe for probe in self.part.plan.probes}
        for name in [other for other in self._objects if other not in planned]:
            self.part.service.withdraw(names.probe_path(name))
            del self._objects[name]
        for name, probe in planned.items():
            there = self._objects.get(name)
            if there is None:
                self._objects[name] = ProbeObject(self, probe)
                self.part.service.export(names.probe_path(name), self._objects[name], is_managed=True)
            elif there.planned != probe:
                before, there.planned = there.planned, probe
                fields = {
                    "Plugin": "plugin",
                    "Interval": "interval_ns",
                    "Sensitivity": "sensitivity",
                    "Options": "options",
                }
                changed = [
                    property_name
                    for property_name, field in fields.items()
                    if getattr(before, field) != getattr(probe, field)
                ]
                self.part.service.changed(names.probe_path(name), there, *changed)
        self._rings.attend(self.long_tables())
        self.look()
        self._look_later()

    def look(self) -> None:
        """Look at the rings, and tell whose state is another."""
        self._looked_s = time.monotonic()
        self._now = self._rings.read()
        for name, probe in self._objects.items():
            state = self._state(probe.planned)
            if probe.reported is not None and state != probe.reported:
                self.part.service.changed(names.probe_path(name), probe, "State", "Reason", "Lane")
            probe.reported = state

    def now(self) -> Now:
        """The newest of all tables, from a moment ago at most."""
        if time.monotonic() - self._looked_s > LOOK_S:
            self.look()
        return self._now

    def state(self, planned: PlannedProbe) -> State:
        """How a probe is now."""
        self.now()
        return self._state(planned)

    def table(self, name: str) -> Table:
        """What a probe declares."""
        entry = self.catalogue().tables.get(name)
        return Table(name, ()) if entry is None else entry.table

    def privilege(self, name: str) -> str:
        """What the reader of a table needs beyond the rights of any user, as its probe declares."""
        entry = self.catalogue().tables.get(name)
        return "" if entry is None else entry.privilege

    def long_tables(self) -> list[str]:
        """The tables of the plan whose rows are packed, and that have no series."""
        return [probe.table for probe in self.part.plan.probes if self.table(probe.table).packing is not None]

    def catalogue(self) -> Catalogue:
        """The catalogue beside the plan; an empty one where there is none.

        Seldom asked for and large, it is kept no longer than it takes to tell of all probes.
        """
        if self._catalogue is None:
            try:
                self._catalogue = catalogue.read(self.part.settings.folders.runtime)
            except (OSError, CorruptError):
                self._catalogue = Catalogue({})
            self.part.service.later(CATALOGUE_S, self._forget_catalogue)
        return self._catalogue

    def _forget_catalogue(self) -> None:
        self._catalogue = None

    def rows(self, *, is_restricted: bool) -> list[tuple[str, str, str, str, int, str, str]]:
        """All probes and refused plugins, as ``ListProbes`` gives them to who may see what is restricted, or not."""
        rows = [
            (
                probe.table,
                state.name,
                clean(state.reason if is_restricted else state.public_reason),
                state.lane,
                probe.interval_ns,
                str(probe.sensitivity),
                names.probe_path(probe.table),
            )
            for probe in self.part.plan.probes
            for state in (self.state(probe),)
        ]
        return rows + [
            (clean(plugin.plugin), "refused", clean(plugin.reason), "", 0, "", "/") for plugin in self.part.plan.refused
        ]

    def counts(self) -> dict[str, int]:
        """How many there are in each state."""
        counts: dict[str, int] = {}
        for _, state, *_ in self.rows(is_restricted=False):
            counts[state] = counts.get(state, 0) + 1
        return counts

    def costs(self) -> Mapping[str, dict[str, float]]:
        """What each part and each probe costs: the newest rows of the table ``self``, without what is absent."""
        costs: dict[str, dict[str, float]] = {}
        width = len(SELF.metrics)
        for recent in reversed(self.now().tables.get(SELF.name, [])):  # The newest last, so that it counts.
            if recent.rows and len(recent.layout.table.metrics) == width:
                row = recent.rows[-1]
                for index, name in enumerate(row.names):
                    values = zip(SELF.metrics, row.values[index * width : (index + 1) * width], strict=True)
                    costs[clean(name)] = {
                        metric.name: value * 10.0**-metric.scale for metric, value in values if value != ABSENT
                    }
        return costs

    def _state(self, planned: PlannedProbe) -> State:
        there = self._now.tables.get(planned.table)
        newest = there[0] if there else None
        lane = str(planned.lane if newest is None else _LANES.get(newest.writer, planned.lane))
        if not planned.enabled:
            return State("disabled", "not enabled", str(planned.lane), "not enabled")
        if newest is None and not planned.is_possible(self.part.settings.root):
            first, *others = planned.needs
            more = f", nor {len(others)} other path{'s' * (len(others) > 1)}" if others else ""
            missing = f"{Cause.NO_SOURCE}: {NOT_HERE} {first}{more}"
            return State("absent", missing, lane, missing)
        if newest is None or newest.absence is None or newest.absence[0] is Cause.DISABLED:
            return State("active", "", lane, "")
        cause, detail = newest.absence
        reason = f"{cause}: {detail}" if detail else str(cause)
        if cause is Cause.QUARANTINED:  # Its detail is ours.
            return State("quarantined", reason, lane, reason)
        is_public = planned.sensitivity is Sensitivity.PUBLIC
        name = "failing" if cause is Cause.PROBE_FAILED else "absent"
        return State(name, reason, lane, reason if is_public else str(cause))

    def _look_later(self) -> None:
        """Look once more when the lanes have had a tick."""
        if not self._is_to_look:
            self._is_to_look = True
            self.part.service.later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._is_to_look = False
        self.look()


def variants(values: Mapping[str, tuple[str, Any]]) -> dict[str, Variant]:
    """Make an ``a{sv}`` of names with signatures and values."""
    return {name: Variant(signature, value) for name, (signature, value) in values.items()}
