# SPDX-License-Identifier: Apache-2.0
"""A source: a planned probe that is read again and again, and what its readings, or their absence, mean.

Standard library only: the real-time lane reads by this.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import ABSENT, Absence, Cause
from sysmond.errors import Error, spelled
from sysmond.plan.plan import BUILTIN_PACKAGE, PlannedProbe, import_plugin, offered_probes
from sysmond.probe import Host, Probe, absence_of
from sysmond.records import Records, record_bytes
from sysmond.ring.frame import Layout
from sysmond.ring.writer import RingWriter
from sysmond.sampler.own_place import own_place
from sysmond.sampler.self_cost import SELF, Cost

if TYPE_CHECKING:
    from sysmond.sampler.changes import RowChanges

# More rows than this are a mistake of the probe, not a machine.
INSTANCES_MAX = 65536
# Why a row has nothing is told of so many of a reading.
LACKING_MAX = 256
# All rows of a long table are read so often at least: where its segments begin.
FULL_S = 300
# A ring of a long table holds so many of these, and what comes at the pace of late for so long: who seals it looks some
# times meanwhile.
FULLS_HELD = 4
PACE_NS = 60 * SECOND_NS
# How long a ring holds what is not sealed yet: twice the usual time from one seal to the next.
RING_HOLDS_S = 1200
# A ring of a long table is made that long where so much is enough; what fills more is sealed earlier.
LONG_RING_BYTES_MAX = 4 * 1024 * 1024
# A probe that raises is tried again after one interval, then after two, four … but no more than this, or one interval.
RETRY_MAX_NS = 300 * SECOND_NS
RETRIES_MAX = 32  # Long after the wait is the longest.
# What a value of a wide table takes in a ring.
VALUE_BYTES = 8


class Reading(NamedTuple):
    """What a probe read: its instances, the metrics of each in turn, and why some of them have none.

    Of those ``lacking`` all metrics are ABSENT. At most ``LACKING_MAX`` of them are named.
    """

    names: tuple[str, ...]
    values: list[int | str]
    lacking: tuple[Absence, ...] = ()

    @property
    def size_bytes(self) -> int:
        """How large it is in a ring."""
        return VALUE_BYTES * len(self.values)


class Pieces(NamedTuple):
    """What a probe read of a long table, in as many pieces as its texts ask for."""

    records: tuple[Records, ...]

    @property
    def is_full(self) -> bool:
        """Whether these are all rows there are."""
        return any(piece.full for piece in self.records)

    @property
    def lost(self) -> int:
        """How many rows should be here and are not."""
        return sum(piece.lost for piece in self.records)

    @property
    def size_bytes(self) -> int:
        """How large it is."""
        return sum(len(piece.blob) + memoryview(piece.rows).nbytes for piece in self.records)


def size_of(reading: Reading | Pieces | Absence | None) -> int | None:
    """How large a reading is in bytes; None where nothing could be read."""
    return None if reading is None or isinstance(reading, Absence) else reading.size_bytes


class Source:
    """A probe of the plan with its place in a ring, its next tick and its running costs.

    ``index``: which layout of the ring, -1 before the ring has it. ``deadline_ns``: how long a reading may take.
    ``lateness``: how many readings in a row took longer. ``barred``: why it is not to be read now.
    ``slowed``: why it is read more seldom than planned, where somebody wants that. ``stream``: the
    folder of its ring, that of its class, or one of its own for a long table; ``stride``: bytes of a record of that.
    ``changes``: what of its rows are events, in the background lane. ``is_well``: its last reading was one.
    ``is_full_due``: all rows are wanted next. ``paced_bytes``: what came in ``PACE_NS``, or comes until the next
    seal, when its ring was too small.
    """

    def __init__(
        self, planned: PlannedProbe, probe: Probe, host: Host, usual_s: float, cost: Cost | None = None
    ) -> None:
        """Start counting at nothing, or go on with the costs of a source before it."""
        self.planned = planned
        self.probe = probe
        self.host = host
        self.table = probe.table.name
        self.interval_ns = planned.interval_ns
        self.layout = Layout(probe.table, planned.interval_ns)
        self.due_ns = 0
        self.deadline_ns = round((probe.deadline_s or usual_s) * SECOND_NS)
        self.lateness = 0
        self.is_well = False
        self.has_texts = any(metric.is_text for metric in probe.table.metrics)
        packing = probe.table.packing
        self.stride = record_bytes(probe.table) if packing else 0
        self.stream = f"{planned.sensitivity}/{self.table}" if packing else str(planned.sensitivity)
        self.is_lasting = packing is not None and packing.lasting
        self.is_full_due = True
        self.opened_bytes = self.paced_bytes = 0
        self._paced_ns = self._paced_at = 0
        self._full_ns = self._full_at = 0
        self.index = -1
        self.cost = cost or Cost()
        self.written: Reading | Absence | None = None
        self.changes: RowChanges | None = None
        self.barred: Absence | None = None
        self.slowed: Absence | None = None
        self._nothing = (ABSENT,) * len(probe.table.metrics)
        self._names: tuple[str, ...] = ()
        self._failures = self._skips = 0  # How many in a row; how many readings are left out before the next try.
        self._failure = Absence(Cause.PROBE_FAILED, "")
        self._reading: Reading | None = None
        self._files: list[tuple[str, bytes]] = []

    def read(self) -> Reading | Pieces | Absence:
        """Read the probe; whatever it does wrong becomes an absence. One that raises again and again rests."""
        self.is_well = False
        if self.barred is not None:
            return self.barred
        if self._skips:
            self._skips -= 1
            return self._failure
        try:
            reading = self._take() if self.stride else self._read()
        except (Exception, SystemExit) as problem:  # noqa: BLE001  a probe may raise anything; the others go on
            self._reading = None
            return self._rested(self.failed(problem))
        self._failures, self.is_well = 0, True
        return reading

    def _rested(self, failure: Absence) -> Absence:
        """Decide how many readings are left out after a failure; what is only not there may come at any time."""
        self._failures = min(self._failures + 1, RETRIES_MAX) if failure.cause is Cause.PROBE_FAILED else 0
        if self._failures > 1:
            failure = failure._replace(detail=f"{failure.detail}; tried again at growing intervals")
            self._skips = min(2 ** (self._failures - 1), max(1, RETRY_MAX_NS // self.interval_ns)) - 1
            self._failure = failure
        return failure

    def _read(self) -> Reading:
        if self._reading is not None and self.host.is_unchanged(self._files):
            return self._reading
        self.host.note()
        try:
            reading = self._read_anew()
        except OSError as problem:
            if absence_of(problem).cause is not Cause.NO_SOURCE or not self.host.is_dated():
                raise
            self.host.look_again()  # What an older listing named is gone; the others are not.
            reading = self._read_anew()
        if self.probe.pure:
            self._reading, self._files = reading, self.host.note()
        return reading

    def _read_anew(self) -> Reading:
        names: list[str] = []
        values: list[int | str] = []
        lacking: list[Absence] = []
        for name, row in islice(self.probe.read(self.host), INSTANCES_MAX + 1):
            names.append(name)
            if type(row) is Absence:  # Its series go on: what sleeps is still there.
                if len(lacking) < LACKING_MAX:
                    lacking.append(row.of_instance(self.table, name))
                values += self._nothing
            else:
                try:
                    values += row
                except TypeError as problem:  # One value that is no tuple, most of all.
                    file, line = own_place(self.probe)
                    where = f"{os.path.basename(file)}:{line}: row {name!r}"
                    raise TypeError(f"{where}: {row!r:.80} came for its values; expected a tuple") from problem
        return Reading(self.checked(names), values, tuple(lacking))

    def _take(self) -> Pieces:
        records = self.probe.records
        if records is None:
            raise ValueError("a long table without records")
        read = records(self.host, full=self.is_full_due)
        pieces = (read,) if isinstance(read, Records) else tuple(read)
        for piece in pieces:
            if memoryview(piece.rows).nbytes % self.stride:
                raise ValueError(f"{memoryview(piece.rows).nbytes} bytes; expected records of {self.stride} bytes")
        if not pieces:
            raise ValueError("no records; expected one piece without rows")
        return Pieces(pieces)

    def write(self, ring: RingWriter, tick_ns: int, reading: Reading | Absence) -> int:
        """Put what was read of a wide table into its ring; gives how many values were lost."""
        if isinstance(reading, Reading):
            for absence in reading.lacking:
                ring.absence(self.index, tick_ns, *absence)
            if reading is self.written:
                ring.repeat(self.index, tick_ns)
                return 0
            try:
                names, values, _ = reading
                if self.has_texts:
                    values = [ring.text(value) if isinstance(value, str) else value for value in values]
                # What is no integer is found where it is packed.
                lost = ring.rows(self.index, tick_ns, names, values)  # type: ignore[arg-type]
            except Exception as problem:  # noqa: BLE001  too few values, or what is no integer
                reading = self.failed(problem)
            else:
                self.written = None if self.has_texts or lost else reading
                return lost
        self.written = None
        ring.absence(self.index, tick_ns, *reading)
        return 0

    def begins(self, size_bytes: int) -> None:
        """A ring begins, for a reading of so many bytes: all rows are wanted."""
        self.opened_bytes = size_bytes
        self._paced_ns = 0
        self.is_full_due = True

    def wrote(self, reading: Pieces, ring: RingWriter, tick_ns: int) -> None:
        """A reading is in the ring: let its source go of it, and decide whether all rows are wanted next.

        Segments are cut where all rows are.
        """
        ring.commit()
        for piece in reading.records:
            piece.release()
        if reading.is_full:
            self._full_at, self._full_ns, self.is_full_due = ring.written, tick_ns, False
        if self.is_lasting and not self.is_full_due:
            is_old = tick_ns + self.interval_ns - self._full_ns >= FULL_S * SECOND_NS
            self.is_full_due = is_old or (ring.written - self._full_at) * 8 >= ring.capacity * 3

    def outgrows(
        self, reading: Pieces, ring: RingWriter, tick_ns: int, bytes_max: int, room_bytes: Callable[[str], int]
    ) -> bool:
        """Whether a ring is too small for a reading, or for the pace of late, and there could be a larger one.

        ``room_bytes``: how large one of a stream may be now, asked only where that matters.
        """
        size_bytes, paced_bytes = reading.size_bytes, 0
        lasted_ns = tick_ns + self.interval_ns - self._paced_ns
        if lasted_ns > PACE_NS:
            paced_bytes = self._lasting_bytes(ring, lasted_ns)
            self._paced_ns, self._paced_at = tick_ns, ring.written
        else:
            came_bytes = ring.written + size_bytes - self._paced_at
            if came_bytes * 4 >= ring.capacity:
                paced_bytes = came_bytes * PACE_NS // lasted_ns
            if paced_bytes <= 2 * self.paced_bytes:
                paced_bytes = 0
        wanted = max(paced_bytes, FULLS_HELD * size_bytes if size_bytes > 2 * self.opened_bytes else 0)
        if ring.capacity >= min(bytes_max, wanted) or ring.capacity >= room_bytes(self.stream):
            return False
        self.paced_bytes = max(self.paced_bytes, paced_bytes)
        return True

    def _lasting_bytes(self, ring: RingWriter, lasted_ns: int) -> int:
        """How large a ring should be that lasts from one seal to the next at its pace of late; 0 where this one does.

        A seal costs half a second of a processor, and a ring that is half full does not wait for its turn.
        """
        if not self._paced_ns:
            return 0
        lasting_bytes = (ring.written - self._paced_at) * RING_HOLDS_S * SECOND_NS // lasted_ns
        wanted = min(LONG_RING_BYTES_MAX, lasting_bytes + lasting_bytes // 4)
        return wanted if wanted > ring.capacity + ring.capacity // 4 else 0

    def checked(self, names: Sequence[str]) -> tuple[str, ...]:
        """Give the names of the instances, the same object for as long as they stay the same.

        :raises ValueError: where rows cannot be told apart by them.
        """
        checked = tuple(names)
        if checked != self._names:
            _check_names(checked)
            self._names = checked
        return self._names

    def failed(self, problem: BaseException) -> Absence:
        """Count a failure and say what it means."""
        self.cost.failures += 1
        problem.__traceback__ = problem.__context__ = None  # One that is raised again and again would grow.
        return absence_of(problem)


def _check_names(names: tuple[str, ...]) -> None:
    if len(names) > INSTANCES_MAX:
        raise ValueError(f"more than {INSTANCES_MAX} rows")
    for name in names:
        if type(name) is not str or "\0" in name:
            raise ValueError(f"instance {name!r}; expected a text")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"instance {twice!r} is given twice")


def load(planned: PlannedProbe) -> Probe:
    """Import the plugin of a planned probe and find the probe in it; its ``read`` has the planned options.

    :raises Error: where it cannot be imported, offers no such table, or no such option.
    """
    try:
        offered = offered_probes(import_plugin(planned.plugin))
    except (Exception, SystemExit) as problem:
        raise Error(f"{planned.plugin}: {spelled(problem)}") from problem
    for probe in offered:
        if probe.table.name == planned.table:
            return with_options(probe, planned)
    raise Error(f"{planned.plugin}: offers no table {planned.table!r}")


def with_options(probe: Probe, planned: PlannedProbe) -> Probe:
    """Give ``read`` the planned values of the options that the probe declares, and the defaults of the others.

    :raises Error: where one does not fit, or is none.
    """
    values = {option.name: planned.options.get(option.name, option.default) for option in probe.options}
    for option in probe.options:
        if not option.accepts(values[option.name]):
            raise Error(f"{planned.table}: option {option.name}: {values[option.name]!r}; expected {option.right()}")
    if unknown := planned.options.keys() - values.keys():
        raise Error(f"{planned.table}: has no option {', '.join(sorted(unknown))}")
    if not values:
        return probe
    records = partial(probe.records, **values) if probe.records else None
    return probe._replace(read=partial(probe.read, **values), records=records)


def is_foreign(planned: PlannedProbe) -> bool:
    """Whether a probe does not come with sysmond."""
    return planned.table != SELF.name and not planned.plugin.startswith(f"{BUILTIN_PACKAGE}.")
