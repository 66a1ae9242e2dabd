# SPDX-License-Identifier: Apache-2.0
"""The Manager interface, as far as it steers: probes, plan, flushes, pins and marks.

Whatever changes something is asked of the part whose business it is, and answered when that has answered.
"""

from typing import TYPE_CHECKING, Any

from sysmond.archiver.flushing import JOB_S
from sysmond.base.event_kinds import INCIDENT, MARK
from sysmond.base.model import INTERVAL_MIN_NS
from sysmond.base.timespec import Notation, format_time, reversed_range
from sysmond.bus.part import BusPart
from sysmond.bus.parts import ask
from sysmond.bus.wire import names
from sysmond.bus.wire.errors import (
    InvalidArgumentError,
    NotAuthorizedError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from sysmond.bus.wire.interface import CallContext, Interface, Options, method, read_options
from sysmond.bus.wire.values import Variant, clean
from sysmond.errors import nearest
from sysmond.plan.plan import INTERVAL_MAX_NS
from sysmond.ring.frame import EVENT_BYTES_MAX
from sysmond.ring.progress import ARCHIVER, LANES, WRITERS

if TYPE_CHECKING:
    from sysmond.machine.control import Order

DAEMON = "daemon"
# The plan is made anew by a child, plugins and all, and the lanes follow.
PLAN_S = 60.0
FLUSH_S = 2 * JOB_S
WHY_LENGTH_MAX = 200
_UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000}


class Steering(Interface):
    """What an administrator does."""

    NAME = names.MANAGER

    def __init__(self, part: BusPart) -> None:
        """``part``: whose probes and folders these are."""
        self._part = part
        self._folders = part.settings.folders

    @method("name:s options:a{sv}", action="configure")
    async def enable_probe(self, _: CallContext, name: str, options: Options) -> None:
        """Let a probe record, now and after the next start."""
        read_options(options, {})
        await self.set(name, "enabled", value=True)

    @method("name:s options:a{sv}", action="configure")
    async def disable_probe(self, _: CallContext, name: str, options: Options) -> None:
        """Let a probe record no more, now and after the next start."""
        read_options(options, {})
        await self.set(name, "enabled", value=False)

    @method("name:s interval_ns:t options:a{sv}", action="configure")
    async def set_interval(self, _: CallContext, name: str, interval_ns: int, options: Options) -> None:
        """Read a probe so often, now and after the next start; 0: as the files or else the probe itself say."""
        read_options(options, {})
        await self.interval(name, interval_ns)

    @method("key:s value:s options:a{sv}", "outcome:a{sv}", action="configure")
    async def set_setting(self, _: CallContext, key: str, value: str, options: Options) -> dict[str, Variant]:
        """Change a setting as the configuration spells it, now and after the next start; empty: as the files say."""
        read_options(options, {})
        return _outcome(await self._order({"do": "set", "key": key, "value": value or None}))

    @method("name:s options:a{sv}", action="configure")
    async def reset_probe(self, _: CallContext, name: str, options: Options) -> None:
        """Forget what is held against a probe: out of quarantine, back to its lane."""
        read_options(options, {})
        await self.forgive(name)

    @method("options:a{sv}", "outcome:a{sv}", action="configure")
    async def reload(self, _: CallContext, options: Options) -> dict[str, Variant]:
        """Read the configuration again; ``behind`` (a{ss}): parts that do not follow; ``remarks`` (as): costs."""
        read_options(options, {})
        return _outcome(await self._order({"do": "reload"}))

    @method("options:a{sv}", action="flush")
    async def flush(self, request: CallContext, options: Options) -> None:
        """Have all that is in RAM written to the disk; answered when it is."""
        read_options(options, {})
        answer = await ask(self._folders, ARCHIVER, {"do": "flush", "uid": request.caller.uid}, FLUSH_S)
        if answer.get("ok") is not True:
            raise RefusedError(f"{self._folders.state}: not flushed: {answer.get('problem', 'no reason given')}")

    @method("start_ns:x end_ns:x why:s options:a{sv}", action="pin")
    async def pin(self, request: CallContext, start_ns: int, end_ns: int, why: str, options: Options) -> None:
        """Keep a span of time, UTC ns, end excluded, as it was recorded, whatever else has to go."""
        read_options(options, {})
        if not 0 <= start_ns < end_ns:
            raise InvalidArgumentError(reversed_range(start_ns, end_ns))
        if len(why) > WHY_LENGTH_MAX:
            raise InvalidArgumentError(f"why of {len(why)} characters; expected at most {WHY_LENGTH_MAX}")
        await self._part.commands.run(
            request.caller.uid, "pin", f"--why={why}", "--", _moment(start_ns), _moment(end_ns)
        )

    @method("at_ns:x options:a{sv}", action="pin")
    async def unpin(self, request: CallContext, at_ns: int, options: Options) -> None:
        """Release what is pinned around a moment, UTC ns; option ``all`` (b): everything, whatever the moment."""
        everything = read_options(options, {"all": "b"}).get("all", False)
        if at_ns < 0 and not everything:
            raise InvalidArgumentError(f"moment {at_ns}; expected UTC nanoseconds since 1970")
        words = ["--all"] if everything else ["--", _moment(at_ns)]
        try:
            await self._part.commands.run(request.caller.uid, "unpin", *words)
        except RefusedError as failure:
            if "nothing is pinned" in str(failure):
                raise NotFoundError(f"{_moment(at_ns)}: nothing is pinned at that time") from failure
            raise

    @method("options:a{sv}", "pins:a(xxss)")
    async def list_pins(self, request: CallContext, options: Options) -> list[tuple[int, int, str, str]]:
        """What is pinned: start and end in UTC ns, why, by whom."""
        read_options(options, {})
        pins = await self._part.commands.json(request.caller.uid, "pins")
        return [(pinned["start_ns"], pinned["end_ns"], clean(pinned["why"]), clean(pinned["by"])) for pinned in pins]

    @method("text:s options:a{sv}", action="mark")
    async def mark(self, request: CallContext, text: str, options: Options) -> None:
        """Put a marker into the recording, at this moment.

        Option ``pin`` (b): an incident, around which rows are pinned, and threads are looked at more often for a while.
        """
        is_incident = read_options(options, {"pin": "b"}).get("pin", False)
        line = " ".join(text.split())
        size = len(line.encode())
        if not 0 < size <= EVENT_BYTES_MAX:
            raise InvalidArgumentError(f"a text of {size} bytes; expected 1 to {EVENT_BYTES_MAX}")
        kind = INCIDENT if is_incident else MARK
        order: Order = {"do": "event", "kind": kind, "subject": "", "text": line, "uid": request.caller.uid}
        answer = await ask(self._folders, ARCHIVER, order)
        if answer.get("ok") is not True:
            raise RefusedError("not recorded: no room for it")

    async def interval(self, name: str, interval_ns: int) -> None:
        """Change how often a probe is read; 0: as it declares itself."""
        if interval_ns and not INTERVAL_MIN_NS <= interval_ns <= INTERVAL_MAX_NS:
            right = f"expected {INTERVAL_MIN_NS} (10 ms) to {INTERVAL_MAX_NS} (24 h), or 0 to say nothing about it"
            raise InvalidArgumentError(f"interval of {interval_ns} ns; {right}")
        await self.set(name, "interval", value=_spelled(interval_ns) if interval_ns else None)

    async def set(self, name: str, key: str, *, value: object) -> None:
        """Have one key of a probe changed."""
        self._known(name)
        await self._order({"do": "set", "key": f"probes.{name}.{key}", "value": value})

    async def _order(self, order: "Order") -> "Order":
        """Have the plan made anew; what is wrong with the configuration is wrong with what was asked."""
        try:
            return await ask(self._folders, DAEMON, order, PLAN_S)
        except (NotAuthorizedError, UnavailableError):
            raise
        except RefusedError as refusal:
            raise InvalidArgumentError(str(refusal)) from refusal

    async def forgive(self, name: str) -> None:
        """Have both lanes forget what they hold against a table."""
        self._known(name)
        for writer in (WRITERS[lane] for lane in LANES):
            await ask(self._folders, writer, {"do": "forgive", "table": name})
        for callback in self._part.when_forgiven:
            callback()

    def _known(self, name: str) -> None:
        known = [probe.table for probe in self._part.plan.probes]
        if name not in known:
            raise NotFoundError(f"there is no probe {name[:80]!r}{nearest(name[:80], known)}")


def _spelled(interval_ns: int) -> str:
    """An interval as somebody would write it into a configuration."""
    for unit, unit_ns in _UNITS_NS.items():
        if interval_ns % unit_ns == 0:
            return f"{interval_ns // unit_ns}{unit}"
    return f"{interval_ns // 1000}.{interval_ns % 1000:03d}us"


def _moment(time_ns: int) -> str:
    return format_time(time_ns, Notation.UTC)


def _outcome(answer: dict[str, Any]) -> dict[str, Variant]:
    behind, remarks = answer.get("behind"), answer.get("remarks")
    reasons = {str(part): clean(str(why)) for part, why in behind.items()} if isinstance(behind, dict) else {}
    lines = [clean(str(remark)) for remark in remarks] if isinstance(remarks, list) else []
    outcome = {"behind": Variant("a{ss}", reasons), "remarks": Variant("as", lines)}
    return {name: said for name, said in outcome.items() if said.value}
