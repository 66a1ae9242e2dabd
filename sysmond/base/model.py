# SPDX-License-Identifier: Apache-2.0
"""The words of the project as types: metric, table, gap, and what they may be called.

A **table** is a relation; its columns are **metrics**; a row is about an **instance**
(``cpu3``, ``sda``), or about the whole system, whose instance is the empty string.
Values are integers: a metric of scale 2 stores 1.25 as 125. ``ABSENT`` stands for no value.

Named tuples, not dataclasses: the real-time sampler pays for every import with locked memory.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from sysmond.errors import UsageError

ABSENT = -(2**63)

# The shortest interval: below this a tick would be mostly overhead, and a typing error a busy loop.
INTERVAL_MIN_NS = 10_000_000
TIERS_NS = {"1s": 0, "10s": 10_000_000_000, "1min": 60_000_000_000, "5min": 300_000_000_000}
"""The tiers by name: the length of a bucket in nanoseconds, 0 for rows as they were recorded."""
FINEST_TIER = "1s"
EVENTS = "event"
"""The table of what happened, and the tier of wide tables that keeps of rows only that."""
# The image of a file is built in memory; a day may be several files.
FILE_BYTES_MAX = 16 * 1024 * 1024

# The bounds of what a plugin may declare.
METRICS_PER_TABLE_MAX = 512
NAME_LENGTH_MAX = 48
DOC_LENGTH_MAX = 400
SCALE_MAX = 9

# What metrics of a long table are called that say when a thing started and ended, in nanoseconds since boot.
START, END = "start", "end"

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Semantics(StrEnum):
    """What a number means over time."""

    COUNTER = "counter"  # Only grows; its rate is of interest.
    GAUGE = "gauge"  # Goes up and down.
    STATE = "state"  # One of several conditions, or a text; means nothing on average.


class Sensitivity(StrEnum):
    """Who may read: everybody, or only members of the group of the restricted folders."""

    PUBLIC = "public"
    RESTRICTED = "restricted"


class Lane(StrEnum):
    """Where a probe runs: on the real-time tick, or where it may block."""

    REALTIME = "realtime"
    BACKGROUND = "background"
    ONESHOT = "oneshot"


class Cause(StrEnum):
    """Why there is no value: every hole has one of these."""

    OFF = "off"
    SUSPENDED = "suspended"
    DAEMON_DOWN = "daemon down"
    CLEAN_SHUTDOWN = "clean shutdown"
    PROBE_FAILED = "probe failed"
    QUARANTINED = "quarantined"
    DISABLED = "disabled"
    DROPPED = "dropped"
    LATE_TICK = "late tick"
    NO_PERMISSION = "no permission"
    NO_SOURCE = "no source"
    COUNTER_RESET = "counter reset"
    CLOCK_STEP = "clock step"
    DAMAGED_FILE = "damaged file"
    BEFORE_RECORDING = "before recording"
    IN_THE_FUTURE = "in the future"
    ASLEEP = "asleep"
    IN_USE = "in use"
    HOLD_BACK = "held back"


class Absence(NamedTuple):
    """Why there is no reading, of a table or of one of its instances."""

    cause: Cause
    detail: str = ""

    def of_instance(self, table: str, instance: str) -> "Absence":
        """The same as a table keeps it of one of its instances: the detail begins with ``TABLE@INSTANCE``."""
        return self._replace(detail=f"{table}@{instance}{': ' if self.detail else ''}{self.detail}")


class Metric(NamedTuple):
    """A column.

    ``unit``: ``B``, ``s``, ``Hz``, ``%``, ``1`` (a plain count) …, or ``text``: then the integers
    are ids of strings. ``scale``: decimal places of the stored integers.
    ``origin``: which field of which kernel file, as ``/proc/stat cpu 1``.
    """

    name: str
    unit: str
    semantics: Semantics
    doc: str
    scale: int = 0
    origin: str = ""

    @property
    def is_text(self) -> bool:
        """Whether the integers stand for strings."""
        return self.unit == "text"


class Packing(NamedTuple):
    """How the rows of a long table are packed, and what they are about.

    ``format``: of one record, as ``struct`` reads it, little-endian; one code a metric, in their order, and pad bytes.
    A text is ``Ns``, padded with NUL, or ``Q``, a reference into the blob of its reading (``sysmond.records``).
    ``key``: the metrics that say what a row is about. ``lasting``: a row holds until the next of its key; else it is
    about its own moment only.
    """

    format: str
    key: tuple[str, ...]
    lasting: bool = True


READERS = {
    ":user": (("id",), ("name",)),
    ":syscall": (("number",), ("name",)),
    ":signal": (("number",), ("name",)),
    ":exit": (("number",), ("name",)),
    ":cgroup": (("path",), ("runtime", "container", "pod", "unit", "user_unit", "slice", "session")),
}
"""What every reader knows without a table, by metrics and texts.

Users, system calls, signals, exit codes, and what the path of a cgroup tells.
"""


class Join(NamedTuple):
    """Texts of another relation that belong to rows: columns of answers.

    ``table``: a long table, or one of ``READERS``. ``by``: pairs of a metric, or a text joined before, and the metric
    there that is the same. ``columns``: pairs of a name in answers and the text there. ``start`` is compared to the
    tick of the kernel's clock; ``is_within``: a row belongs to what was there when it started. ``is_numbered``: where
    there is no text, the number itself is shown, as ``#7``.
    """

    table: str
    by: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...]
    is_within: bool = False
    is_numbered: bool = False


class Ending(NamedTuple):
    """A table of moments that tells what ended: its rows have ``end``, and what the thing had come to by then.

    ``by``: pairs of each metric of the key and the metric there that is the same. Other metrics are the same where they
    have the same name. ``columns``: metrics there that answers show with the keys that ended. ``remains``: for what
    readings may list after its end, a text metric, what that is meanwhile, and in the row that says that it is gone.
    """

    table: str
    by: tuple[tuple[str, str], ...]
    columns: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()


class Total(NamedTuple):
    """A column that is the sum of others of one kind, row by row; absent where one of them is."""

    name: str
    parts: tuple[str, ...]
    doc: str


class Derived(NamedTuple):
    """A column that follows from metrics, by a formula (``sysmond.base.formula``).

    ``unit``: of what the formula gives. In it a counter is its rate in a second, one that counts seconds the share of
    time; a gauge is its value.
    """

    name: str
    unit: str
    formula: str
    doc: str

    @property
    def described(self) -> str:
        """What it is, and what it is made of."""
        return f"{self.doc} Derived: {self.formula}"


class Answers(NamedTuple):
    """What answers about a long table, and the buckets of its tiers, must know; docs/design/0008-tables-declare.md.

    Columns are spelled as in questions: METRIC or METRIC:STATISTIC.

    ``top``: by what a bucket keeps the first, each a sum of metrics; None for each number by itself.
    ``others_by``: metrics by which a bucket puts the others together. ``sums``, ``peaks``: of a table of moments, what
    adds up (None for each number), and of what the largest is kept. ``by``: the column by which rows are put in order
    (the first of ``top``). ``show``, ``show_groups``: the columns of rows and of groups where nobody says which.
    ``totals``, ``joins``, ``ended_by``: columns that come from others, and from other tables.
    ``meant``: pairs of a name and the column that is meant by it in groups and conditions. ``aliases``: pairs of a name
    that other programs have and the column that it is here. ``rows_only``: numbers that buckets leave out, since their
    sums over several would count what is in more than one of them. ``derived``: columns that follow from metrics by
    formulas, of a wide table, too.
    """

    top: tuple[tuple[str, ...], ...] | None = None
    others_by: tuple[str, ...] = ()
    sums: tuple[str, ...] | None = None
    peaks: tuple[str, ...] = ()
    by: str = ""
    show: tuple[str, ...] = ()
    show_groups: tuple[str, ...] = ()
    totals: tuple[Total, ...] = ()
    joins: tuple[Join, ...] = ()
    ended_by: Ending | None = None
    meant: tuple[tuple[str, str], ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    rows_only: tuple[str, ...] = ()
    derived: tuple[Derived, ...] = ()


class Table(NamedTuple):
    """A relation: its name, its columns, and the kind of thing a row is about. With a packing it is a long one.

    ``answers``: None where it says nothing of that; a wide table may say ``derived`` alone.
    """

    name: str
    metrics: tuple[Metric, ...]
    per: str = ""
    doc: str = ""
    packing: Packing | None = None
    answers: Answers | None = None


def packing_of(fields: Sequence[Any] | None) -> Packing | None:
    """The packing that JSON tells of as a list, or as null."""
    if fields is None:
        return None
    form, key, lasting = fields
    return Packing(str(form), tuple(map(str, key)), bool(lasting))


def check_table(table: Table) -> None:
    """Refuse a table that breaks the bounds or the naming rules.

    :raises UsageError: naming the table, the metric and what would be right.
    """
    where = f"table {table.name!r}"
    check_name(table.name, where)
    if not 1 <= len(table.metrics) <= METRICS_PER_TABLE_MAX:
        raise UsageError(f"{where}: {len(table.metrics)} metrics; expected 1 to {METRICS_PER_TABLE_MAX}")
    seen: set[str] = set()
    for metric in table.metrics:
        inside = f"{where}, metric {metric.name!r}"
        check_name(metric.name, inside)
        if metric.name in seen:
            raise UsageError(f"{inside}: declared twice; expected each name once")
        seen.add(metric.name)
        if not metric.unit:
            raise UsageError(f"{inside}: no unit; expected '1' for a plain count")
        if metric.is_text and metric.semantics is not Semantics.STATE:
            raise UsageError(f"{inside}: text with semantics {metric.semantics}; expected 'state'")
        if not 0 <= metric.scale <= SCALE_MAX:
            raise UsageError(f"{inside}: scale {metric.scale}; expected 0 to {SCALE_MAX}")
        if not 0 < len(metric.doc) <= DOC_LENGTH_MAX or "\n" in metric.doc:
            raise UsageError(f"{inside}: its documentation must be one line of 1 to {DOC_LENGTH_MAX} characters")


def check_name(name: str, where: str) -> None:
    """Refuse what is no name.

    :raises UsageError: naming where it stands.
    """
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise UsageError(f"{where}: not a name; expected lower-case letters, digits and '_', at most {NAME_LENGTH_MAX}")


def series_path(table: str, metric: str, instance: str) -> str:
    """Spell a series: ``table/metric@instance``, without ``@`` for the whole system."""
    return f"{table}/{metric}@{instance}" if instance else f"{table}/{metric}"


def rate_unit(unit: str) -> str:
    """Name the unit of a counter's rate: seconds per second are percent of one, joules watts, counts are per second."""
    return {"s": "%", "J": "W", "1": "1/s"}.get(unit, f"{unit}/s")
