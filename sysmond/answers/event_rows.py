# SPDX-License-Identifier: Apache-2.0
"""Answers about the table ``event``: a row each thing that happened, filtered, grouped and cut like rows of any table.

They are in the order of events: of boots and boot time, unless a question says otherwise.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from sysmond.answers import dropping
from sysmond.answers.rows import grouping
from sysmond.answers.rows.batch import Cells, NumberColumn, RowBatch, meeting
from sysmond.answers.rows.columns import COUNT, LAST, Of, Offer, Spec, Specs
from sysmond.answers.rows.from_records import axis
from sysmond.answers.rows.question import Request, asked, column, finished, times_of
from sysmond.answers.series.explain import ROWS
from sysmond.base.model import EVENTS, Answers, Metric, Packing, Semantics, Sensitivity, Table
from sysmond.base.result import TIME_SCALE, TIME_UNIT, Answered, Event, Float64Array, Int64Array, LongEntry, Result
from sysmond.base.timespec import FOREVER_NS
from sysmond.errors import UsageError
from sysmond.machine import snapshot_note
from sysmond.machine.folders import Folders
from sysmond.rollup.condition import TEXT, Words
from sysmond.store import events
from sysmond.store.events import Happened

HAPPENED = "happened"
# The columns behind the time, and what each is of an event.
_TEXTS: dict[str, Callable[[Event], str]] = {
    "kind": lambda event: event.kind,
    "subject": lambda event: event.subject,
    "text": lambda event: event.text,
    "detail": lambda event: event.detail,
    "known_from": lambda event: event.known_from,
}
TABLE = Table(
    EVENTS,
    (
        Metric("kind", TEXT, Semantics.STATE, "What happened: mark, pin, flush, died, clock step ..."),
        Metric("subject", TEXT, Semantics.STATE, "What it happened to: a table, a part, a device."),
        Metric("text", TEXT, Semantics.STATE, "A line about it."),
        Metric("detail", TEXT, Semantics.STATE, "More about it."),
        Metric(HAPPENED, TIME_UNIT, Semantics.STATE, "When, where it was known only later; then time is the same."),
        Metric("known_from", TEXT, Semantics.STATE, "Which log it comes from, if it became known only later."),
    ),
    "event",
    "What happened: marks, starts, steps of the clock, devices that come and go, and what became of probes and parts.",
    Packing("", (), lasting=False),
)


def offer() -> Offer:
    """The columns that rows of the table may have."""
    specs = Specs()
    for metric in TABLE.metrics:
        scale = TIME_SCALE if metric.unit == TIME_UNIT else 0
        specs[metric.name] = Spec(metric.name, metric.name, LAST, metric.unit, scale, Semantics.STATE, Of.METRIC)
    specs[COUNT] = Spec(COUNT, COUNT, LAST, "1", 0, Semantics.GAUGE, Of.COUNT)
    return Offer(TABLE, specs, Answers(by=COUNT, show=tuple(metric.name for metric in TABLE.metrics)), {})


def described() -> Iterator[tuple[str, str, str]]:
    """The columns that rows may have: name, unit, what it is."""
    docs = {metric.name: metric.doc for metric in TABLE.metrics}
    for label, spec in offer().specs.items():
        yield label, spec.unit, docs.get(spec.name, "")


def entries(happened: Happened) -> Iterator[LongEntry]:
    """The table as a catalogue lists it, where anything happened."""
    if moments := [event.time_ns for event in happened.events]:
        yield LongEntry(EVENTS, TABLE.per, TABLE.doc, min(moments), max(moments), 0, happened.sensitivity)


def answer(place: Folders, classes: Collection[Sensitivity], request: Request) -> Result:
    """Answer a question to the table.

    :raises UsageError: for a wrong column, condition, time or step.
    """
    when = times_of(request, snapshot_note.now(place.state))
    if request.percentile is not None or request.summary:
        raise UsageError(f"table {EVENTS!r}: has no averages; expected --group-by, no percentile or summary")
    question, notes = dropping.left_of_columns(asked(request, offer()), dropping.parse(request.drop, place.state))
    happened = events.read(place, classes, when.start_ns, when.end_ns, request.boot)
    moments = [event.time_ns for event in happened.events] or [when.now_ns]
    start_ns = min(moments) if when.start_ns == -FOREVER_NS else when.start_ns
    end_ns = max(start_ns, min(when.end_ns - 1, max(moments))) + 1  # Behind the last there is nothing.
    buckets = axis(start_ns, end_ns, when.step_ns)
    batch = EventBatch(happened.events, buckets.edges_ns)
    specs = dict.fromkeys([*question.columns, *([question.by] if question.is_ranked else [])])
    pieces = [
        grouping.grouped(rows, question) if question.groups else grouping.rows_of(rows, specs, 0)
        for rows in meeting(question, [batch])
    ]
    for piece in pieces:
        grouping.check_size(grouping.size(piece))
    made = finished(question, pieces, [], None, buckets.stamps_ns) if pieces and question.is_ranked else None
    made = made or (pieces[0] if pieces else None)
    result = Result(
        np.zeros(0, np.int64) if made is None else made.times_ns,
        tuple(column(spec, None if made is None else made.columns[spec.label]) for spec in question.columns),
        (),
        when.step_ns,
        tuple(dict.fromkeys(happened.warnings)),
        sensitivity=happened.sensitivity,
        table=EVENTS,
        notes=tuple(notes),
    )
    if not request.explain:
        return result
    from sysmond.answers import explain_rows  # noqa: PLC0415  few ask for it

    answered = [Answered(ROWS, 0, start_ns, end_ns)] if happened.events else []
    explained = explain_rows.of_long(question, answered, when.step_ns, (), None, is_raw=request.raw)
    return result._replace(explanations=explained)


class EventBatch(RowBatch):
    """Events of all boots together, in their order."""

    def __init__(self, happened: Sequence[Event], edges_ns: Int64Array) -> None:
        """``edges_ns``: where buckets begin, and the last one ends, int64[bucket + 1], UTC."""
        times_ns = np.array([event.time_ns for event in happened], np.int64)
        super().__init__("", np.searchsorted(edges_ns, times_ns, "right") - 1, times_ns)
        self._happened = happened
        self._rows: Int64Array = np.arange(len(happened))

    def cells(self, spec: Spec) -> Cells:
        """A column."""
        mine = [self._happened[row] for row in self._rows.tolist()]
        if spec.of is Of.COUNT:
            return NumberColumn(np.ones(len(mine), np.int64))
        if spec.name == HAPPENED:
            return NumberColumn(np.array([event.happened_ns for event in mine], np.int64), TIME_SCALE)
        codes: dict[str, int] = {}
        told = [_TEXTS[spec.name](event) for event in mine]
        return Words(
            np.array([codes.setdefault(text, len(codes)) if text else -1 for text in told], np.int64), [*codes]
        )

    def keep(self, rows: Int64Array) -> None:
        """Let go of all but these rows, int64[row]."""
        super().keep(rows)
        self._rows = self._rows[rows]

    def mass(self, _spec: Spec, /) -> Float64Array:
        """Nothing has an average here: float64[row] of NaN."""
        return np.full(len(self._rows), np.nan)
