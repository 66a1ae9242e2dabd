# SPDX-License-Identifier: Apache-2.0
"""Says how each column of an answer came about: source, formula, what answered, resampling and gaps."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sysmond.answers.series import rates
from sysmond.answers.series.query import Query
from sysmond.answers.series.reading import TrackView
from sysmond.base.model import TIERS_NS, Cause, Metric, Semantics, series_path
from sysmond.base.result import Answered, Explanation, Gap, Lacking, Result
from sysmond.base.timespec import format_step
from sysmond.store.tracks import Run

if TYPE_CHECKING:
    from sysmond.store.of_ring import SeriesKey

ROWS = "rows"
RULE = "a counter that falls by more than half began anew: that increase counts nowhere"
_TIER_OF = {step_ns: tier for tier, step_ns in TIERS_NS.items() if step_ns}


def explain(query: Query, result: Result) -> tuple[Explanation, ...]:
    """Explain every column of a query's answer, whose gaps are known by now."""
    answered: dict[SeriesKey, list[Answered]] = {}
    for view, keys in query.answered:
        if len(keys) and view.inside.any():
            part = _part(view)
            for key in keys:
                answered.setdefault(key, []).append(part)
    lacking: dict[str, list[Gap]] = {}
    for gap in result.gaps:
        lacking.setdefault(gap.table, []).append(gap)
    keys_of = {series_path(*key): key for key in query.asked}
    explanations = []
    for column in result.columns:
        key = keys_of[column.path]
        first, origin, formula = _made_of(query, key, column.stat)
        parts = joined(answered.get(first, []))
        metric = query.metric(first)
        explanations.append(
            Explanation(
                column.path,
                column.stat,
                column.unit,
                origin,
                formula,
                parts,
                result.step_ns,
                _resampling(metric, result.step_ns, parts),
                causes(gap for gap in lacking.get(key.table, ()) if concerns(gap, column.path)),
            )
        )
    return tuple(explanations)


def _made_of(query: Query, key: "SeriesKey", stat: str) -> tuple["SeriesKey", str, str]:
    """The series whose rows or buckets answer, where its numbers come from, and what is made of them."""
    if (series := query.derived.get(key)) is None:
        metric = query.metric(key)
        return key, metric.origin, rates.formula(metric, stat)
    from sysmond.answers.series import derived  # noqa: PLC0415  few ask for them

    return next(iter(series.own.values())), derived.origin(series, query.line), derived.explained(series, stat)


def _part(view: TrackView) -> Answered:
    """What one view of a track answered."""
    times_ns = view.times_ns[view.inside]
    interval_ns = view.track.lineage.interval_ns
    last_ns = view.axis.last[view.inside] - view.axis.first[view.inside] + times_ns
    tier = _TIER_OF.get(view.step_ns, ROWS)
    members = [member for run, _, _ in view.pieces if isinstance(run, Run) for member in run.members]
    bits = min((bits for member in members if (bits := member.block.significant_bits)), default=0)
    return Answered(tier, view.step_ns or interval_ns, int(times_ns.min()), int(last_ns.max()) + interval_ns, bits)


def joined(parts: Iterable[Answered]) -> tuple[Answered, ...]:
    """Make one of neighbours in time that are alike: boots and restarts do not matter here."""
    neighbours: list[Answered] = []
    for part in sorted(parts, key=lambda part: (part.start_ns, part.end_ns)):
        if neighbours and neighbours[-1]._replace(start_ns=part.start_ns, end_ns=part.end_ns) == part:
            neighbours[-1] = neighbours[-1]._replace(end_ns=max(neighbours[-1].end_ns, part.end_ns))
        else:
            neighbours.append(part)
    return tuple(neighbours)


def _resampling(metric: Metric, step_ns: int, parts: Sequence[Answered]) -> str:
    words = [
        f"merged rows have {bits} significant bits"
        for bits in sorted({part.significant_bits for part in parts})
        if bits and metric.semantics is not Semantics.STATE
    ]
    if not step_ns:
        return "; ".join(["none: a row a tick", *words])
    step = format_step(step_ns)
    for tier, length_ns in dict.fromkeys((part.tier, part.step_ns) for part in parts):
        what = f"{'rows every' if tier == ROWS else 'buckets of'} {format_step(length_ns)}"
        if length_ns == step_ns:
            words.append(f"{what}, as they are")
        elif (step_ns % length_ns and tier != ROWS) or length_ns > step_ns:
            words.append(f"{what}, coarser than requested: each at its own start")
        else:
            words.append(f"{what}, those that begin within {step} joined")
    if metric.semantics is Semantics.COUNTER and words:
        words += ["an increase belongs to the later of its two rows", RULE]
    return "; ".join(words) or "nothing to resample"


def concerns(gap: Gap, path: str) -> bool:
    """Whether a gap of a table is one of this series: a reset is of one counter, and an instance may sleep alone."""
    if gap.cause is Cause.COUNTER_RESET:
        return gap.detail == path
    name = f"{gap.table}@{path.partition('@')[2]}"
    return not gap.detail.startswith(f"{gap.table}@") or gap.detail == name or gap.detail.startswith(f"{name}: ")


def causes(gaps: Iterable[Gap]) -> tuple[Lacking, ...]:
    """How many gaps, and how long in all, by cause."""
    by_cause: dict[str, Lacking] = {}
    for gap in gaps:
        seen = by_cause.get(str(gap.cause), Lacking(gap.cause, 0, 0))
        by_cause[str(gap.cause)] = Lacking(gap.cause, seen.number + 1, seen.total_ns + gap.end_ns - gap.start_ns)
    return tuple(by_cause[cause] for cause in sorted(by_cause))
