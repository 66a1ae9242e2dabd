# SPDX-License-Identifier: Apache-2.0
"""Subscriptions: who wants to know when a value crosses a threshold is told, and need not ask.

The rings are looked at after each tick while anybody has subscribed, and never otherwise. What a subscriber is told
waits until it may be woken again: of several crossings of one series meanwhile only the last counts, and
one that was taken back is none.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.paths import Matcher, parse
from sysmond.bus.latest import Latest, Listed, Moment, Quality, Series
from sysmond.bus.wire.caller import Caller
from sysmond.bus.wire.errors import InvalidArgumentError, LimitError, NotAuthorizedError, NotFoundError
from sysmond.bus.wire.interface import (
    CallContext,
    Changes,
    Interface,
    Options,
    Pieces,
    Signal,
    method,
    prop,
    read_options,
)
from sysmond.bus.wire.names import MANAGER, SUBSCRIPTION, SUBSCRIPTION_PATH
from sysmond.bus.wire.values import clean
from sysmond.ring.newest import Now

if TYPE_CHECKING:
    from sysmond.base.model import Derived
    from sysmond.bus.wire.exports import Exports

SUBSCRIPTIONS_PER_USER_MAX = 8
RULES_MAX = 64
SERIES_MAX = 1000
WAKEUPS_PER_MIN_MAX = 600
WAKEUPS_PER_MIN = 60
COALESCE_MS_MAX = 60_000
MINUTE_NS = 60 * SECOND_NS
# Reading takes a moment: looking this long after a tick finds it.
AFTER_TICK_NS = 25_000_000
LOOKS_PER_SECOND_MAX = 20
# Instances that come and go at every tick are looked through no more often.
RESOLVE_NS = SECOND_NS
SUBSCRIPTIONS_MAX = 128

UNKNOWN, BELOW, ABOVE = range(3)


class Rule(NamedTuple):
    """Series, and when they are above or below; NaN for both: never. ``is_batch``: their values are wanted, too."""

    pattern: str
    high: float
    low: float
    is_rate: bool
    is_batch: bool

    def judge(self, value: float, before: int) -> int:
        """Whether a value is above or below; in between it stays as it was."""
        if math.isnan(value):
            return UNKNOWN
        if value >= self.high:
            return ABOVE
        return BELOW if value <= self.low or before == UNKNOWN else before


class Pace(NamedTuple):
    """How often a subscriber may be woken."""

    wakeups_per_min: int
    coalesce_ns: int


class Crossing(NamedTuple):
    """What is told of one series."""

    path: str
    value: float
    state: int
    tick_ns: int


class RuleWatch:
    """One rule, and how one series stands to it."""

    __slots__ = ("reported", "rule", "series", "state")

    def __init__(self, rule: Rule, series: Series) -> None:
        """Unless something else was reported, a subscriber takes a series for below."""
        self.rule = rule
        self.series = series
        self.state = UNKNOWN
        self.reported = BELOW


class Subscription(Interface):
    """What one subscriber wants to know, and what it was told."""

    NAME = SUBSCRIPTION
    crossed = Signal("path:s value:d state:u boottime_ns:t")
    batch = Signal("boottime_ns:t ids:au values:ad")

    def __init__(self, path: str, owner: Caller, rules: Sequence[Rule], pace: Pace, end: Callable[[], None]) -> None:
        """``end``: called when it is closed.

        :raises UsageError: where a rule has no path.
        """
        self.path = path
        self.owner = owner
        self.interval_ns = SECOND_NS
        self._rules = [(rule, Matcher(parse(rule.pattern))) for rule in rules]
        self._pace = pace
        self._end = end
        self._watches: list[RuleWatch] = []
        self._batch: list[tuple[Series, bool]] = []
        self._pending: dict[tuple[int, int], tuple[RuleWatch, Crossing]] = {}
        self._since_ns: int | None = None
        self._woken: deque[int] = deque(maxlen=pace.wakeups_per_min)
        self._serial = 0
        self._derived: Callable[[str], Mapping[str, Derived]] = lambda _: {}
        self._left_out = 0
        self._dropped = 0
        self.changed: set[str] = set()
        self.is_waiting = False

    @method()
    def close(self, request: CallContext) -> None:  # noqa: ARG002  nobody but its owner sees the object
        """End it."""
        self._end()

    @prop("u", changes=Changes.SILENT)
    def series(self) -> int:
        """How many series it watches now."""
        return len(self._watches)

    @prop("u", changes=Changes.SILENT)
    def left_out(self) -> int:
        """How many more its rules mean by now than it may watch."""
        return self._left_out

    @prop("t", changes=Changes.SILENT)
    def dropped(self) -> int:
        """How many signals were not sent because those before were not read."""
        return self._dropped

    @property
    def tables(self) -> set[str]:
        """The tables that it watches series of."""
        return {watch.series.table for watch in self._watches}

    def concerns(self, tables: Iterable[str]) -> bool:
        """Whether any rule means one of these tables."""
        return any(matcher.table(table) for table in tables for _, matcher in self._rules)

    def resolve(self, latest: Latest) -> Pieces[None]:
        """Find the series that the rules mean now; what was known of those that stay remains.

        It gives way after each pattern.

        :raises NotFoundError: where a rule means nothing; what the others mean is watched all the same.
        :raises NotAuthorizedError: where it means what the owner may not see.
        """
        self._derived = latest.derived
        # One that is gone while it is above stays until that is reported.
        known = {(watch.rule, watch.series): watch for watch in self._watches}
        watches = {key: watch for key, watch in known.items() if watch.reported != BELOW}
        batch: dict[Series, bool] = {}
        intervals_ns = set()
        nothing = ""
        of_pattern: dict[str, list[Listed]] = {}
        for rule, matcher in self._rules:
            if (meant := of_pattern.get(rule.pattern)) is None:
                meant = list(islice(latest.meant(matcher, self.owner.sensitivities), SERIES_MAX + 1))
                of_pattern[rule.pattern] = meant
                yield
            nothing = nothing or ("" if meant else rule.pattern)
            for listed in meant:
                series = listed.series
                watches[rule, series] = known.get((rule, series)) or RuleWatch(rule, series)
                intervals_ns.add(listed.interval_ns)
                if rule.is_batch and not listed.metric.is_text:
                    batch[series] = rule.is_rate
        self._left_out = max(0, len(watches) - SERIES_MAX)
        self._watches = list(watches.values())[:SERIES_MAX]
        self._batch = list(batch.items())[:SERIES_MAX]
        self.interval_ns = min(intervals_ns, default=SECOND_NS)
        if nothing:
            unknown = NotFoundError(f"rule {nothing[:80]!r}: means nothing that is recorded now")
            raise latest.refusal(nothing, self.owner.sensitivities) or latest.of_rows(nothing) or unknown

    def consider(self, now: Now, now_ns: int) -> None:
        """Compare the newest values with the rules."""
        moment = Moment(now, self.owner.sensitivities, self._derived)
        for watch in self._watches:
            rule = watch.rule
            value, quality = moment.value(watch.series, rate=rule.is_rate)
            state = rule.judge(value if quality is Quality.GOOD else math.nan, watch.state)
            watch.state = state
            key = (id(rule), watch.series.ident)
            if state == watch.reported or (state == UNKNOWN and watch.reported == BELOW):
                self._pending.pop(key, None)
            elif key not in self._pending or self._pending[key][1].state != state:
                tick_ns = max((recent.tick_ns for recent in now.tables.get(watch.series.table, ())), default=0)
                self._pending[key] = watch, Crossing(clean(watch.series.path), value, state, tick_ns)
        if not (self._pending or self._batch):
            self._since_ns = None
        elif self._since_ns is None:
            self._since_ns = now_ns

    def due_ns(self) -> int | None:
        """When it may be told what there is to tell; None where there is nothing."""
        if self._since_ns is None:
            return None
        full = len(self._woken) == self._pace.wakeups_per_min
        allowed_ns = self._woken[0] + MINUTE_NS if full else 0
        return max(self._since_ns + self._pace.coalesce_ns, allowed_ns)

    def tell(self, service: "Exports", now: Now, serial: int, now_ns: int) -> None:
        """Send what there is to tell, where its time has come."""
        due_ns = self.due_ns()
        if due_ns is None or due_ns > now_ns:
            return
        self._since_ns = None
        is_batch_new = bool(self._batch) and serial != self._serial
        if not self._pending and not is_batch_new:
            return
        self._woken.append(now_ns)
        self._serial = serial
        pending, self._pending = self._pending, {}
        for watch, crossing in pending.values():
            # What could not be sent was not told: it is tried again.
            if self._send(service, self.crossed, *crossing):
                watch.reported = crossing.state if crossing.state != UNKNOWN else BELOW
        if is_batch_new:
            moment = Moment(now, self.owner.sensitivities, self._derived)
            values = [moment.value(series, rate=rate)[0] for series, rate in self._batch]
            self._send(service, self.batch, moment.tick_ns, [series.ident for series, _ in self._batch], values)

    def _send(self, service: "Exports", signal: Signal, *values: object) -> bool:
        is_sent = service.emit(self.path, signal, *values, to=self.owner)
        self._dropped += not is_sent
        return is_sent


class Subscriptions(Interface):
    """All subscriptions, and the clock that looks at the rings while there are any."""

    NAME = MANAGER

    def __init__(self, service: "Exports", latest: Latest) -> None:
        """Nobody has subscribed yet."""
        self._service = service
        self._latest = latest
        self._there: dict[str, Subscription] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._changed: set[str] = set()
        self._resolved_ns = 0
        self._look_ns = 0
        self._number = 0
        # Called when the tables that subscribers watch may be others.
        self.when_changed: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None

    def tables(self) -> set[str]:
        """The tables that anybody watches."""
        return {table for subscription in self._there.values() for table in subscription.tables}

    @method("rules:a(sdda{sv}) options:a{sv}", "subscription:o")
    def subscribe(self, request: CallContext, rules: list[Sequence[Any]], options: Options) -> Pieces[str]:
        """Have crossings of thresholds told by an object that only the caller sees."""
        caller = request.caller
        self._check_room(caller)
        if not 1 <= len(rules) <= RULES_MAX:
            raise LimitError(f"{len(rules)} rules; expected 1 to {RULES_MAX}")
        pace = _pace(options)
        self._number += 1
        path = f"{SUBSCRIPTION_PATH}/{self._number}"

        def end() -> None:
            self._end(path)

        made = Subscription(path, caller, [_rule(*rule) for rule in rules], pace, end)
        self._latest.look()
        yield from made.resolve(self._latest)
        if made.left_out():
            raise LimitError(f"{SERIES_MAX + made.left_out()} series; expected up to {SERIES_MAX}")
        self._check_room(caller)  # Others had their turns meanwhile.
        caller.when_gone(end)
        self._there[path] = made
        self._service.export(path, made, owner=caller)
        self.when_changed()
        # Not before the answer is on its way: who is told would not know by whom.
        self._look_in(0.0)
        return path

    def _check_room(self, caller: Caller) -> None:
        if caller.is_gone:
            raise NotFoundError("the caller is gone")
        of_user = sum(subscription.owner.uid == caller.uid for subscription in self._there.values())
        if of_user >= SUBSCRIPTIONS_PER_USER_MAX:
            raise LimitError(f"uid {caller.uid} has {SUBSCRIPTIONS_PER_USER_MAX} subscriptions; close one first")
        if len(self._there) >= SUBSCRIPTIONS_MAX:
            raise LimitError(f"there are {SUBSCRIPTIONS_MAX} subscriptions; there may be no more")

    def _end(self, path: str) -> None:
        gone = self._there.pop(path, None)
        if gone is not None:
            gone.owner.forget(gone._end)  # noqa: SLF001  what it was given by us
            self._service.withdraw(path)
            self.when_changed()
        if not self._there and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        """Look at the rings, have told what there is to tell, and set the clock for the next time."""
        now, now_ns = self._latest.look(), clock.boottime_ns()
        self._changed |= self._changes(now)
        is_to_resolve = bool(self._changed) and now_ns - self._resolved_ns >= RESOLVE_NS
        for subscription in self._there.values():
            if is_to_resolve and subscription.concerns(self._changed):
                subscription.changed |= self._changed
            if not subscription.is_waiting:  # For what was to be told before, behind the calls of its owner.
                subscription.is_waiting = True
                self._service.work(subscription.owner, self._attend(subscription))
        if is_to_resolve:
            self._changed.clear()
            self._resolved_ns = now_ns
        self._wait(now_ns)

    def _attend(self, subscription: Subscription) -> Pieces[None]:
        """Tell a subscriber what there is to tell, in its owner's turn."""
        subscription.is_waiting = False
        if subscription.changed:
            subscription.changed.clear()
            # What was there and is gone may come again.
            with suppress(NotFoundError, NotAuthorizedError):
                yield from subscription.resolve(self._latest)
            self.when_changed()
        if subscription.path not in self._there:
            return
        now, now_ns = self._latest.look(), clock.boottime_ns()
        subscription.consider(now, now_ns)
        subscription.tell(self._service, now, self._latest.serial, now_ns)
        if (due_ns := subscription.due_ns()) is not None and due_ns < self._look_ns:
            self._wait(now_ns)

    def _wait(self, now_ns: int) -> None:
        self._look_ns = self._next_ns(now_ns)
        wait_s = (self._look_ns - clock.boottime_ns()) / SECOND_NS
        self._look_in(max(1 / LOOKS_PER_SECOND_MAX, wait_s))

    def _next_ns(self, now_ns: int) -> int:
        """When to look next: after the next tick of what is watched, or when somebody may be told."""
        interval_ns = min(subscription.interval_ns for subscription in self._there.values())
        after_tick_ns = ((now_ns - AFTER_TICK_NS) // interval_ns + 1) * interval_ns + AFTER_TICK_NS
        due = [
            due_ns
            for subscription in self._there.values()
            if (due_ns := subscription.due_ns()) is not None and due_ns > now_ns
        ]
        return min([after_tick_ns, *due])

    def _changes(self, now: Now) -> set[str]:
        """The tables that have other instances, or another interval, than at the last look."""
        names = {table: several[0].rows[-1].names for table, several in now.tables.items() if several[0].rows}
        changed = {table for table, there in names.items() if there is not self._names.get(table)}
        self._names = names
        return changed


def _rule(pattern: str, high: float, low: float, options: Options) -> Rule:
    said = read_options(options, {"rate": "b", "batch": "b"})
    rule = Rule(pattern, high, low, bool(said.get("rate", True)), bool(said.get("batch", False)))
    if math.isnan(high) and math.isnan(low):
        if not rule.is_batch:
            raise InvalidArgumentError(f"rule {pattern[:80]!r}: expected a threshold, or the option batch")
    elif math.isnan(high) or math.isnan(low) or low > high:
        raise InvalidArgumentError(f"rule {pattern[:80]!r}: high {high}, low {low}; expected high at least low")
    return rule


def _pace(options: Options) -> Pace:
    said = read_options(options, {"max_wakeups_per_min": "u", "coalesce_ms": "u"})
    wakeups, coalesce_ms = said.get("max_wakeups_per_min", WAKEUPS_PER_MIN), said.get("coalesce_ms", 0)
    if not 1 <= wakeups <= WAKEUPS_PER_MIN_MAX:
        raise InvalidArgumentError(f"option max_wakeups_per_min: {wakeups}; expected 1 to {WAKEUPS_PER_MIN_MAX}")
    if coalesce_ms > COALESCE_MS_MAX:
        raise InvalidArgumentError(f"option coalesce_ms: {coalesce_ms}; expected up to {COALESCE_MS_MAX}")
    return Pace(wakeups, coalesce_ms * 1_000_000)
