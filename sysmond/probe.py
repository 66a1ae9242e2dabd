# SPDX-License-Identifier: Apache-2.0
"""What the author of a probe imports: tables, metrics, ``Host``, ``Probe``, ``hookimpl``.

A probe is a value: a table and a function that reads its rows. ``docs/probes.md`` is the tutorial.
Standard library only: this runs inside the real-time sampler.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from errno import EBUSY, ENODATA, ENODEV, ENOENT, ENOTDIR, ENXIO, EOPNOTSUPP
from operator import itemgetter
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar, cast

from sysmond.base.model import (
    ABSENT,
    Absence,
    Answers,
    Cause,
    Derived,
    Ending,
    Join,
    Lane,
    Metric,
    Packing,
    Semantics,
    Sensitivity,
    Table,
    Total,
)
from sysmond.errors import Error, spelled
from sysmond.machine import note
from sysmond.machine.asleep import SleepStates
from sysmond.records import Records

__all__ = [
    "ABSENT",
    "ADDRESSES",
    "API_VERSION",
    "EVENTS_MAX",
    "GONE",
    "LINKS",
    "Absence",
    "Answers",
    "Cause",
    "Derived",
    "Ending",
    "Fields",
    "Host",
    "HostEvent",
    "Join",
    "Lane",
    "Metric",
    "Option",
    "Packing",
    "Probe",
    "Records",
    "Row",
    "Sensitivity",
    "Table",
    "Tells",
    "Total",
    "absence_of",
    "counter",
    "gauge",
    "hookimpl",
    "rows_of",
    "state",
    "text",
]

API_VERSION = 2

# One read(2) usually returns a whole file; a seq_file hands out one page or less at a time.
READ_BYTES = 65536
# No source that belongs on a tick is larger; what is, is an error and not a surprise in memory.
FILE_BYTES_MAX = 16 * 1024 * 1024
# Descriptors kept open by one Host; beyond that files are opened for each reading.
DESCRIPTORS_MAX = 512
# How long a listing is kept where nobody tells that something came or went, and how many are kept.
LISTING_S = 30.0
LISTINGS_MAX = 512
# What the kernel says of a device that went away between two readings, or in the middle of one.
GONE = frozenset((ENODEV, ENOENT, ENOTDIR, ENXIO))
# … of one that has nothing to tell now: a Wi-Fi card that is switched off.
_NOTHING_TO_TELL = GONE | {ENODATA, EOPNOTSUPP}
# A probe tells so many events a reading; more are one.
EVENTS_MAX = 32
EVENT_TEXT_MAX = 1000
# Among the subsystems of a probe: it is read when the kernel tells by rtnetlink that a link changed.
LINKS = "rtnetlink"
# … that an address came or went, or a default route.
ADDRESSES = "addresses"
# Files in the folder of a lane: by which way a table is read.
WAY_SUFFIX = ".way"
# How a reason begins where nothing is there of what a probe needs.
NOT_HERE = "this machine has no"

Row = tuple[str, Sequence[int | str]]
"""An instance (``""`` for the whole system) and one value a metric, in the order of the table.

Instead of values an ``Absence`` says why that instance has none now: ``yield "card1", Absence(Cause.ASLEEP)``.
"""

_F = TypeVar("_F", bound=Callable[..., object])
_T = TypeVar("_T")


class Wakes(Protocol):
    """What wakes the background lane, as an epoll(7) does: it becomes readable, and is polled once then."""

    def fileno(self) -> int: ...

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]: ...


class HostEvent(NamedTuple):
    """An event that a probe tells by itself: see ``Host.tell_event``."""

    kind: str
    subject: str
    text: str
    detail: str = ""
    happened_ns: int = ABSENT
    known_from: str = ""


def _is_none(_table: str) -> bool:
    return False


class Host:
    """The machine as a probe sees it: files below an injectable root, kept open between ticks.

    A path given to a method is absolute, as on the real machine; ``root`` is put before it.
    Within one tick a file is read once, however many probes ask. ``tick``: how many there have been.
    """

    def __init__(self, root: str = "/") -> None:
        """Look at the machine whose ``/proc`` and ``/sys`` lie below ``root``."""
        self.root = root.rstrip("/")
        self.tick = 0
        self.costs: Callable[[], Iterable[Row]] = tuple  # The sampler puts its own accounts here.
        self.is_read: Callable[[str], bool] = _is_none  # … says of a table whether this lane reads it, and can;
        self.runtime = ""  # … and its runtime folder, where bpf.json names what the kernel side pinned.
        self.folder = ""  # … and that of the lane in it.
        self.is_wanted_soon = False  # By ``read_soon``, until it is read.
        self.wakes: Wakes | None = None
        self._events: list[HostEvent] = []  # Told, and not recorded yet.
        self._events_over = 0
        self._last_over: HostEvent | None = None
        self.sleep_states = SleepStates(self.root)  # … and those that all hosts of a lane share.
        self._ways: dict[str, str] = {}
        self._descriptors: dict[str, int] = {}
        self._this_tick: dict[str, bytes] = {}
        self._before: dict[str, bytes] = {}
        self._noted: list[tuple[str, bytes]] = []
        self._listings: dict[str, tuple[list[str], float]] = {}
        self._listed_now: set[str] = set()
        self._is_dated = False
        self._shared: dict[Callable[[Host], object], object] = {}
        self._at_close: list[Callable[[], None]] = []

    def new_tick(self) -> None:
        """Forget what was read: the next reading is a new one."""
        self.tick += 1
        self.sleep_states.new_tick()
        self._this_tick.clear()
        self._noted.clear()
        self._listed_now.clear()
        self._is_dated = False

    def read(self, path: str) -> bytes:
        """Read a whole file. Content that has not changed since the reading before is the same object again.

        :raises OSError: as the kernel says; ``FileNotFoundError`` where this machine has no such file.
        """
        content = self._this_tick.get(path)
        if content is None:
            content = self._read_now(path)
            if content == (before := self._before.get(path)):
                content = before
            self._this_tick[path] = self._before[path] = content
        self._noted.append((path, content))
        return content

    def note(self) -> list[tuple[str, bytes]]:
        """Give what was read since the last call, and forget it."""
        noted, self._noted = self._noted, []
        return noted

    def is_unchanged(self, noted: list[tuple[str, bytes]]) -> bool:
        """Whether files still have the content that was noted.

        :raises OSError: as the kernel says.
        """
        return all(self.read(path) is content for path, content in noted)

    def lines(self, path: str) -> list[str]:
        """Read a text file as its lines, without line ends; bytes that are not UTF-8 are kept escaped."""
        return self.read(path).decode("utf-8", "surrogateescape").splitlines()

    def integer(self, path: str) -> int:
        """Read a file that holds one decimal number of 64 bits; ABSENT where there is none to be had."""
        try:
            number = int(self.read(path))
        except (OSError, ValueError):
            return ABSENT
        return number if ABSENT < number < -ABSENT else ABSENT

    def word(self, path: str) -> str | int:
        """Read a file that holds one short text; ABSENT where there is none to be had."""
        try:
            return self.read(path).decode("utf-8", "surrogateescape").strip() or ABSENT
        except OSError:
            return ABSENT

    def names(self, path: str) -> list[str]:
        """List a folder of devices, sorted; an absent folder is an empty one.

        The listing is kept until sysmond learns that devices came or went, and for ``LISTING_S`` at most.
        """
        listing, until_s = self._listings.get(path, ([], 0.0))
        if (now_s := monotonic()) < until_s:
            self._is_dated = self._is_dated or path not in self._listed_now
            return list(listing)
        if len(self._listings) >= LISTINGS_MAX:
            self._listings.clear()
        listing = self.names_anew(path)
        self._listings[path] = listing, now_s + LISTING_S
        self._listed_now.add(path)
        return list(listing)

    def is_asleep(self, device: str) -> bool:
        """Whether a device, a folder in /sys, or one above it is suspended: to read its registers would wake it.

        That is asked of ``power/runtime_status`` and, of PCI devices, ``power_state``, which wake nothing, once a tick.
        """
        return self.sleep_states.is_asleep(device)

    def names_anew(self, path: str) -> list[str]:
        """List a folder whose entries are no devices and may come and go at any time."""
        try:
            return sorted(os.listdir(self.root + path))
        except FileNotFoundError:
            return []

    def shared(self, make: "Callable[[Host], _T]") -> _T:
        """Give what several probes of this machine share: what ``make`` made of it when this was first called."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return cast("_T", self._shared[make])

    def at_close(self, does: Callable[[], None]) -> None:
        """Have this called when nobody reads here any more: by a probe that goes on between its readings."""
        self._at_close.append(does)

    def read_soon(self) -> None:
        """Have the probe that reads here be read at the next second again: what it looks for does not wait for it.

        In the background lane, where each probe has a host of its own. Where something tells when that is, ``wakes``
        may be an epoll(7), or what is polled like one: each time it becomes readable, the probe is read at the next
        second.
        """
        self.is_wanted_soon = True

    def tell_event(
        self,
        kind: str,
        subject: str,
        text: str,
        *,
        detail: str = "",
        happened_ns: int = ABSENT,
        known_from: str = "",
    ) -> None:
        """Have it recorded that something happened, of one of the kinds that the probe declares (``told_kinds``).

        ``happened_ns``: UTC, of what happened earlier, as ``known_from`` tells. More than
        ``EVENTS_MAX`` in one reading are one event, which says how many, and is for the rest as the last of them.
        """
        event = HostEvent(kind, subject, text, detail, happened_ns, known_from)
        if len(self._events) < EVENTS_MAX:
            self._events.append(event)
        else:
            self._events_over += 1
            self._last_over = event

    @property
    def has_events(self) -> bool:
        """Whether anything was told since it was last recorded."""
        return bool(self._events)

    def take_events(self) -> list[HostEvent]:
        """Give what was told since the last call, for the lane to record."""
        if not self._events:
            return []
        events, self._events = self._events, []
        over, last = self._events_over, self._last_over
        self._events_over, self._last_over = 0, None
        if last is None:
            return events
        return [*events, last._replace(text=f"{over} more at once, the last: {last.text}"[:EVENT_TEXT_MAX])]

    def let_go(self) -> None:
        """End what goes on between readings; from any thread, whatever another one does."""
        while self._at_close:
            self._at_close.pop()()

    def look_again(self) -> None:
        """Forget listings and descriptors: devices may have come, gone, or changed places."""
        self._listings.clear()
        for path in list(self._descriptors):
            self._forget(path)
        self._is_dated = False

    def is_dated(self) -> bool:
        """Whether something in this tick relied on a listing of an earlier one: what it names may be gone."""
        return self._is_dated

    def tell_way(self, table: str, way: str) -> None:
        """Say by which of several ways a table is read, and why by none that is better: one line, for the doctor.

        Empty where there is nothing to say any more.
        """
        if self._ways.get(table) == way or not self.folder:
            return
        path = f"{self.folder}/{table}{WAY_SUFFIX}"
        try:
            if way:
                note.put(path, f"{way}\n".encode("utf-8", "replace"))
            elif os.path.exists(path):
                os.unlink(path)
            self._ways[table] = way
        except OSError:  # It is told, not relied on; the next tick tries again.
            return

    def read_anew(self, path: str) -> bytes:
        """Read a whole file without keeping it open: an ordinary file is replaced by another when it changes.

        :raises OSError: as the kernel says.
        """
        pieces: list[bytes] = []
        with open(self.root + path, "rb", buffering=0) as file:
            while more := file.read(READ_BYTES):
                pieces.append(more)
                if sum(map(len, pieces)) > FILE_BYTES_MAX:
                    raise OSError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        return b"".join(pieces)

    def close(self) -> None:
        """Close every kept descriptor."""
        self.let_go()
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
        self._this_tick.clear()
        self._before.clear()
        self._listings.clear()

    def _read_now(self, path: str) -> bytes:
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            descriptor = os.open(self.root + path, os.O_RDONLY | os.O_CLOEXEC)
            self._descriptors[path] = descriptor
        try:
            content = os.pread(descriptor, READ_BYTES, 0)
            # Only an empty read says that a seq_file is at its end: it may return less than was asked for.
            while more := os.pread(descriptor, READ_BYTES, len(content)):
                content += more
                if len(content) > FILE_BYTES_MAX:
                    raise OSError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
        except OSError:
            # A device that went away leaves a dead descriptor; the next reading opens the path anew.
            self._forget(path)
            raise
        if len(self._descriptors) > DESCRIPTORS_MAX:
            self._forget(path)
        return content

    def _forget(self, path: str) -> None:
        os.close(self._descriptors.pop(path))
        self._before.pop(path, None)


class Option(NamedTuple):
    """Something that the configuration may set for a probe: ``probes.TABLE.options.NAME``.

    The type of ``default`` (bool, int, float or str) is the type of the option. ``low``, ``high``: the bounds of a
    number, where it has any. ``choices``: the texts that are right, where not all are; ``pattern``: a regular
    expression that a text has to match as a whole, where it has one. ``enables``: a table of the same plugin that runs
    where this is true and nobody has said anything of that table itself.
    """

    name: str
    default: bool | int | float | str
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    enables: str = ""
    pattern: str = ""

    def right(self) -> str:
        """What would be right, as the end of a message: ``a number from 1 to 5``."""
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, str):
            return " or ".join(self.choices) or ("a text as its documentation says" if self.pattern else "a text")
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        bounds = [f"{word} {bound:g}" for word, bound in (("from", self.low), ("to", self.high)) if bound is not None]
        return " ".join((kind, *bounds))

    def accepts(self, value: object) -> bool:
        """Whether a value has the right type and lies within the bounds; a whole number is a number, too."""
        if isinstance(self.default, bool) or isinstance(value, bool):
            return isinstance(self.default, bool) and isinstance(value, bool)
        if isinstance(self.default, str) or isinstance(value, str):
            is_text = isinstance(self.default, str) and isinstance(value, str)
            return is_text and (not self.choices or value in self.choices) and self._matches(str(value))
        if isinstance(value, int) or (isinstance(value, float) and isinstance(self.default, float)):
            return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        return False

    def _matches(self, value: str) -> bool:
        if not self.pattern:
            return True
        import re  # noqa: PLC0415  the real-time sampler does without, where no option has a pattern

        return re.fullmatch(self.pattern, value) is not None


class Tells(NamedTuple):
    """What of a table's rows is an event as well, where the background lane reads it.

    An event of ``kind`` about an instance is recorded when the value of ``column`` is another than in the reading
    before; ``words``: what values are called in its text. With ``grows``, when a counter grows that did not in the
    reading before. ``value`` gives, instead of a column, what is compared: from the row by the names of metrics, and
    the value of before (ABSENT where there is none). Without either, when a row comes, and of the kind ``gone`` when
    it goes: ``words`` of 1 and 0, and ``shows``, the column that says what it is.
    """

    kind: str
    column: str = ""
    words: Mapping[int, str] = {}
    grows: bool = False
    value: Callable[[Mapping[str, int | str], int | str], int | str] | None = None
    gone: str = ""
    shows: str = ""

    def spelled(self, before: int | str, value: int | str) -> str:
        """Say what became of a value."""
        if isinstance(value, int) and value in self.words:
            return self.words[value]
        if self.grows and isinstance(value, int) and isinstance(before, int):
            return f"{self.column or self.kind}: {value - before} more"
        name = f"{self.column}: " if self.column and not self.words else ""
        return f"{name}{self._word(before)} → {self._word(value)}"

    def came(self, row: Mapping[str, int | str], *, is_there: bool) -> str:
        """Say of a row that it came, or went, and what it is."""
        shown = row[self.shows] if self.shows else ""
        return " ".join(word for word in (self.words.get(is_there, ""), "" if shown == ABSENT else str(shown)) if word)

    def _word(self, value: int | str) -> str:
        return self.words.get(value, str(value)) if isinstance(value, int) else value


class Probe(NamedTuple):
    """A table and the function that reads its rows.

    ``read(host)`` yields one ``Row`` an instance; what it raises becomes a gap with that reason. A long table has
    ``records(host, full=…)`` instead, which gives one reading, in pieces where it has long texts; ``full`` asks for all
    there are, not only for what changed.
    ``lane``: background for whatever may block. ``sensitivity``: that of the source.
    ``interval_s``: how often by default. ``subsystems``: udev subsystems whose events concern it; beside
    them ``LINKS`` for changes of links, ``ADDRESSES`` for those of addresses and default routes, which the background
    lane hears.
    ``pure``: the rows follow from the files read by ``Host.read`` and from nothing else, texts apart: then
    they are not made again while the files stay the same. ``deadline_s``: how long a reading may take, 0 for
    what is usual in its lane. ``options``: what may be set; ``read`` is given them as keyword arguments.
    ``enabled``: whether it runs where nobody has said anything: not where it would fill the archive of most machines.
    ``needs``: paths of which one has to be there, ``*`` for any name in a place: before that it is not even imported.
    ``on_battery_s``: how often in the background while a battery feeds the machine; 0 for half as often as else.
    ``costly_s``: a reading that takes the machine's firmware longer than this is made half as often; 0 for any length.
    ``public_by_choice``: restricted, though declared public, where the configuration does not say that it is.
    ``privilege``: what its reader needs beyond the rights of any user, as a capability or group; empty for nothing.
    ``tells``: what of its rows is an event, too; ``told_kinds``: of which kinds it tells events by itself.
    """

    table: Table
    read: Callable[..., Iterable[Row]] = tuple
    interval_s: float = 1.0
    lane: Lane = Lane.REALTIME
    sensitivity: Sensitivity = Sensitivity.PUBLIC
    subsystems: tuple[str, ...] = ()
    pure: bool = False
    deadline_s: float = 0.0
    options: tuple[Option, ...] = ()
    enabled: bool = True
    records: Callable[..., Records | Sequence[Records]] | None = None
    needs: tuple[str, ...] = ()
    on_battery_s: float = 0.0
    costly_s: float = 0.0
    public_by_choice: bool = False
    privilege: str = ""
    tells: tuple[Tells, ...] = ()
    told_kinds: tuple[str, ...] = ()


def rows_of(instances: Iterable[str], values: Callable[[str], Sequence[int | str] | None]) -> Iterator[Row]:
    """Give a row for each instance, so that a bad one costs no other: its absence says why it has none.

    ``values`` reads one; it gives None for what is no instance. One that is gone has no row.
    """
    for instance in instances:
        try:
            row = values(instance)
        except (OSError, ValueError) as problem:
            if isinstance(problem, OSError) and problem.errno in GONE:
                continue
            row = absence_of(problem)
        if row is not None:
            yield instance, row


def absence_of(problem: BaseException) -> Absence:
    """Say what it means for readers that reading raised this."""
    detail = _plain(problem)
    if isinstance(problem, PermissionError):
        return Absence(Cause.NO_PERMISSION, detail)
    number = problem.errno if isinstance(problem, OSError) else None
    if number == EBUSY:
        return Absence(Cause.IN_USE, detail)
    # One that a probe raises by itself has no number.
    is_missing = number in _NOTHING_TO_TELL or isinstance(problem, FileNotFoundError)
    return Absence(Cause.NO_SOURCE if is_missing else Cause.PROBE_FAILED, detail)


def _plain(problem: BaseException) -> str:
    """What the system refused, or what we say ourselves, without the name of a class; of a mistake in code, with it."""
    if isinstance(problem, Error):
        line = str(problem)
    elif isinstance(problem, OSError) and problem.strerror:
        line = problem.strerror if problem.filename is None else f"{problem.filename!r}: {problem.strerror}"
    else:
        return spelled(problem)
    return " ".join("".join(sign if sign.isprintable() else " " for sign in line).split())


def counter(name: str, unit: str, doc: str, scale: int = 0, origin: str = "") -> Metric:
    """A number that only grows; readers see its rate."""
    return Metric(name, unit, Semantics.COUNTER, doc, scale, origin)


def gauge(name: str, unit: str, doc: str, scale: int = 0, origin: str = "") -> Metric:
    """A number that goes up and down."""
    return Metric(name, unit, Semantics.GAUGE, doc, scale, origin)


def state(name: str, doc: str, origin: str = "") -> Metric:
    """One of several conditions, as a number whose meanings ``doc`` lists."""
    return Metric(name, "1", Semantics.STATE, doc, 0, origin)


def text(name: str, doc: str, origin: str = "") -> Metric:
    """A short text that seldom changes; ``read`` yields it as ``str``."""
    return Metric(name, "text", Semantics.STATE, doc, 0, origin)


def hookimpl(function: _F) -> _F:
    """Mark a plugin's hook for pluggy, without importing pluggy.

    pluggy finds an implementation by the attribute ``<project>_impl`` and fills in what is missing.
    """
    options = {
        "wrapper": False,
        "hookwrapper": False,
        "optionalhook": False,
        "tryfirst": False,
        "trylast": False,
        "specname": None,
    }
    function.sysmond_impl = options  # type: ignore[attr-defined]
    return function


class Fields:
    """Picks wanted numbers out of a kernel file that names each of its numbers.

    Kernels differ in which names they have and in their order. Positions are looked up once and
    kept for as long as the names stay the same; a name the kernel lacks gives ``ABSENT``.
    """

    def __init__(self, wanted: Iterable[bytes], factors: Iterable[int] = ()) -> None:
        """Choose the names, in the order of the table's metrics, and by what each number is multiplied (by 1)."""
        self._wanted = tuple(wanted)
        self._factors = tuple(factors)
        self._names: list[bytes] | None = None
        self._pick: Callable[[Sequence[bytes | int]], Sequence[bytes | int]] = tuple
        self._scaled: list[tuple[int, int]] = []

    def pick(self, names: list[bytes], numbers: list[bytes]) -> list[int]:
        """Give the wanted numbers; ``names`` and ``numbers`` are of equal length.

        :raises ValueError: when something is not a number, or no wanted name is there at all.
        """
        if names != self._names:
            self._learn(names)
        # Most of what kernels count never happened: not converting zeros saves a quarter (measured on vmstat).
        values = [0 if number == _ZERO else int(number) for number in self._pick([*numbers, ABSENT])]
        for index, factor in self._scaled:
            values[index] *= factor
        return values

    def _learn(self, names: list[bytes]) -> None:
        position = {name: index for index, name in enumerate(names)}
        if names and position.keys().isdisjoint(self._wanted):
            raise ValueError(f"none of the {len(self._wanted)} expected names is there; the first here is {names[0]!r}")
        missing = len(names)  # Where pick() puts ABSENT.
        chosen = [position.get(name, missing) for name in self._wanted]
        # Of a single item itemgetter would give the item itself, not a tuple.
        self._pick = itemgetter(*chosen) if len(chosen) > 1 else lambda numbers: [numbers[at] for at in chosen]
        self._scaled = [
            (index, factor)
            for index, (at, factor) in enumerate(zip(chosen, self._factors, strict=False))
            if at != missing and factor != 1
        ]
        self._names = names


_ZERO = b"0"
