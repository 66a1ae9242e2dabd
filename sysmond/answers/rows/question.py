# SPDX-License-Identifier: Apache-2.0
"""A question that is answered with rows: what people say, checked; and the rows that answer it, in order, as columns.

The same for every kind of table: ``Request`` and ``times_of`` as people say it, ``asked`` checks it against the columns
that there are, ``finished`` puts rows in order, ``column`` shows them.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from sysmond.answers import times
from sysmond.answers.rows import columns as offered
from sysmond.answers.rows import grouping, summary
from sysmond.answers.rows.batch import Cells, NumberColumn, Question, Rows, numbers
from sysmond.answers.rows.columns import COUNT, Of, Offer, Spec
from sysmond.answers.times import Length, Moment, Times
from sysmond.base.clock import Relation
from sysmond.base.model import Semantics
from sysmond.base.result import Column, Int64Array
from sysmond.base.statistic import PERCENTILES
from sysmond.errors import UsageError
from sysmond.rollup import condition
from sysmond.rollup.condition import Words

PERCENT_MAX = 100


class Request(NamedTuple):
    """What is asked, as people say it; see ``sysmond.history.Archive.records``."""

    table: str
    start: Moment | None = None
    end: Moment | None = None
    step: Length | None = None
    columns: str | Sequence[str] = ()
    where: str = ""
    group_by: str | Sequence[str] = ()
    by: str = ""
    top: int = 0
    percentile: float | None = None
    boot: str | int | None = None
    stat: str | Sequence[str] | None = None
    drop: str | Sequence[str] = ()
    summary: bool = False
    raw: bool = False
    explain: bool = False


def times_of(request: Request, now: Relation) -> Times:
    """Read the times of a request; ``now``: the clocks, as it means them.

    :raises UsageError: for wrong ones, for a percentile over steps of which there are none, and for a summary of them.
    """
    if request.summary:
        others = ("step", "stat", "group_by", "percentile", "raw", "explain")
        summary.check(**{name: getattr(request, name) for name in others})
    if request.raw:
        _check_raw(request)
    when = times.read(request.start, request.end, request.step, is_open=request.boot is not None, now=now)
    if request.percentile is not None and not when.step_ns:
        raise UsageError("a percentile is taken over steps; expected --sample, too")
    return when


def _check_raw(request: Request) -> None:
    """Refuse what makes other rows of those that are stored.

    :raises UsageError: naming it.
    """
    for name in ("step", "stat", "group_by", "by", "top", "percentile"):
        if getattr(request, name) not in (None, "", 0, (), []):
            said = {"step": "sample", "group_by": "group-by"}.get(name, name)
            raise UsageError(f"--raw and --{said}: --raw gives rows as they are stored; expected only one of them")


def asked(request: Request, offer: Offer) -> Question:
    """Check a request against the columns that there are.

    :raises UsageError: for a wrong column, condition, group or number.
    """
    packing = offer.table.packing
    groups = offer.groups(_words(request.group_by))
    by_label = request.by
    count = offer.specs[COUNT]
    labels = _words(request.columns)
    # Every row begins with its time, unless a table has a column of that name.
    named = [label for label in labels if label != offered.TIME or label in offer.specs]
    chosen = offer.choose(named, grouped=bool(groups)) if labels else offer.defaults(grouped=bool(groups))
    if request.stat is not None:
        chosen = _with_asked(offer, chosen, _words(request.stat))
    if request.summary:
        if not labels:  # What is shown by default may be one statistic, or two of the same: a summary has its own.
            plain = (spec if spec.semantics is Semantics.STATE else offer.specs.get(spec.name, spec) for spec in chosen)
            chosen = list({spec.label: spec for spec in plain}.values())
        chosen = [
            each
            for spec in chosen
            for each in (
                [spec] if spec.semantics is Semantics.STATE else _with_statistics(offer, spec, summary.STATISTICS)
            )
        ]
    if groups:
        # A name of a group means that group: ``user`` is whose it is then, not the time in user mode.
        names, own = {spec.name for spec in groups}, {spec.label for spec in groups}
        chosen = [spec for spec in chosen if spec.name not in names and spec.label not in own]
        chosen = [*groups, *([] if labels else [count]), *chosen]
    by = next((spec for spec in groups if spec.label == by_label), None)
    by = by or (offer.find([by_label])[0] if by_label else offer.by(grouped=bool(groups)))
    chosen = _with_order(chosen, by) if by_label and not labels else chosen
    if groups:
        for spec in dict.fromkeys([*chosen, by]):
            is_amount = offered.is_amount(offer.table, spec)
            grouping.check_summable(spec, groups, lasting=packing is None or packing.lasting, amount=is_amount)
            if spec.name in offer.derived and offer.derived[spec.name].is_of_instances:
                raise UsageError(f"column {spec.label!r}: only single instances have it; expected another")
            if spec.name in offer.derived and spec.stat not in {offered.MEAN, offered.MAX}:
                expected = f"expected {offered.MEAN} or {offered.MAX}"
                raise UsageError(f"column {spec.label!r}: is derived, and groups have no {spec.stat} of it; {expected}")
    if request.top < 0:
        raise UsageError(f"top {request.top}: expected 1 or more")
    where = condition.parse(request.where, offer.kinds(), times.moment, offer.near) if request.where.strip() else None
    is_ranked = bool(request.top or request.by or groups) or (packing is not None and packing.lasting)
    looked_at = [*chosen, by, *(offer.specs[label] for label in (where.columns if where else ()))]
    derived = {
        spec.label: made_of
        for spec in looked_at
        if (groups or spec.of is Of.DERIVED) and (made_of := offer.made_of(spec)) is not None
    }
    return Question(offer.table, chosen, where, offer.specs, groups, by, request.top, is_ranked, derived)


def asked_of(request: Request, plain: Offer, more: Callable[[], Offer]) -> Question:
    """Check a request against columns, and where it is refused, against ``more``: few ask for derived columns.

    :raises UsageError: as ``asked`` does.
    """
    with suppress(UsageError):
        return asked(request, plain._replace(is_part=True))
    return asked(request, more())


def check_has_statistics(table: str, stats: Sequence[str]) -> None:
    """Refuse statistics of a table whose rows are of their own moment.

    :raises UsageError: naming the first.
    """
    if stats:
        expected = "expected none, since each of its rows is one event"
        raise UsageError(f"table {table!r} has no statistic {stats[0]!r}; {expected}")


def _with_order(chosen: Sequence[Spec], by: Spec) -> list[Spec]:
    """Default columns, with the one by which rows are put in order, unless it is there: before all other amounts."""
    if (by.name, by.stat) in {(spec.name, spec.stat) for spec in chosen}:
        return list(chosen)
    begin = next((at for at, spec in enumerate(chosen) if spec.semantics is not Semantics.STATE), len(chosen))
    return [*chosen[:begin], by, *chosen[begin:]]


def _with_asked(offer: Offer, chosen: Sequence[Spec], stats: Sequence[str]) -> list[Spec]:
    packing = offer.table.packing
    if packing is not None and not packing.lasting:
        check_has_statistics(offer.table.name, stats)
    return [each for spec in chosen for each in _with_statistics(offer, spec, stats)]


def _with_statistics(offer: Offer, spec: Spec, stats: Sequence[str]) -> list[Spec]:
    """A column with each of these statistics, where it has any and none was named with it.

    :raises UsageError: for a statistic that it has not.
    """
    there = [label for label, known in offer.specs.items() if known.name == spec.name and ":" in label]
    if ":" in spec.label or not there:
        return [spec]
    for stat in stats:
        if f"{spec.label}:{stat}" not in offer.specs:
            expected = [label.partition(":")[2] for label in there]
            expected += [PERCENTILES] * (f"{spec.label}:p95" in offer.specs)
            raise UsageError(f"column {spec.label!r}: no statistic {stat!r}; expected {', '.join(expected)}")
    return [offer.specs[f"{spec.label}:{stat}"] for stat in stats]


def finished(
    question: Question, pieces: Sequence[Rows], identity: Sequence[str], percent: float | None, stamps_ns: Int64Array
) -> Rows:
    """All rows together, in order, cut to the first where that is asked for.

    ``identity``: the columns that say what a row is about. ``stamps_ns``: of the buckets, int64[bucket].

    :raises UsageError: for a percentile that is none, and for too many rows.
    """
    rows = grouping.joined(pieces)
    labels = [spec.label for spec in question.groups]
    if labels and len(pieces) > 1:
        largest = frozenset(spec.label for spec in question.parts(question.columns) if spec.stat == offered.MAX)
        rows = grouping.regrouped(rows, labels, largest)
    if labels and question.derived:
        made = {
            label: NumberColumn(column.of(lambda part: numbers(rows.columns[part.label]), rows.bucket))
            for label, column in question.derived.items()
            if all(part.label in rows.columns for part in column.own.values())
        }
        rows = rows._replace(columns={**rows.columns, **made})
    if percent is not None:
        if not 0 <= percent <= PERCENT_MAX:
            raise UsageError(f"percentile {percent:g}: expected 0 to 100")
        rows = grouping.percentiles(rows, labels or identity, percent, question.specs)
    if question.is_ranked:
        rows = grouping.only(rows, grouping.first(rows.bucket, rows.columns[question.by.label], question.top))
    else:
        rows = grouping.only(rows, np.argsort(rows.times_ns, kind="stable"))
    if labels:
        rows = rows._replace(times_ns=stamps_ns[rows.bucket])
    return rows


def column(spec: Spec, cells: Cells | None, decimals: int | None = None) -> Column:
    """A column of an answer; ``decimals``: how many its averages carry, where that is not by its unit."""
    if spec.is_text:
        texts: tuple[str | None, ...] = ()
        if isinstance(cells, Words):
            words = [*cells.texts, None]
            texts = tuple(map(words.__getitem__, cells.codes.tolist()))
        return Column(spec.label, spec.unit, spec.semantics, spec.stat, texts=texts)
    if cells is None or isinstance(cells, Words):
        return Column(
            spec.label, spec.unit, spec.semantics, spec.stat, integers=np.zeros(0, np.int64), scale=spec.scale
        )
    if cells.values.dtype == np.float64:
        decimals = spec.decimals if decimals is None else decimals
        return Column(spec.label, spec.unit, spec.semantics, spec.stat, floats=cells.floats(), decimals=decimals)
    integers = np.asarray(cells.values, np.int64)
    return Column(spec.label, spec.unit, spec.semantics, spec.stat, integers=integers, scale=cells.scale)


def _words(labels: str | Sequence[str]) -> list[str]:
    parts = labels.split(",") if isinstance(labels, str) else list(labels)
    return [part.strip() for part in parts if part.strip()]
