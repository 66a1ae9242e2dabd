# SPDX-License-Identifier: Apache-2.0
"""Says how each column of rows came about: of wide tables by their series, of long ones by what answered."""

from collections.abc import Iterable, Sequence

from sysmond.answers.rows.batch import Question
from sysmond.answers.rows.columns import LAST, MAX, MEAN, MIN, SUM, Of, Spec
from sysmond.answers.series.explain import RULE, causes, joined
from sysmond.base.model import END, Cause, Semantics, Table
from sysmond.base.result import TIME_UNIT, Answered, Explanation, Gap
from sysmond.base.statistic import percent_of
from sysmond.base.timespec import format_step
from sysmond.rollup.portion import parts_of
from sysmond.store.stretches.stretch import lasts
from sysmond.store.stretches.undeclared import answers_of

OLD_RULE = "in them a counter that fell has not grown"
_ABOUT = "what the row is about"
_WHOLE = "one row for all of the range"
_OF = {
    Of.COUNT: "number of rows that were put together",
    Of.JOIN: "the text that belongs to the numbers of the row",
    Of.LIFE: "as recorded at its end",
    Of.KEY: _ABOUT,
}
_OF_COUNTER = {
    MEAN: "increase ÷ time between the readings",
    SUM: "increase",
    MIN: "smallest increase from reading to reading ÷ time between them",
    MAX: "largest increase from reading to reading ÷ time between them",
    LAST: "last value, as stored",
}
_OF_GAUGE = {
    MEAN: "average over the time for which it is known",
    MIN: "smallest value",
    MAX: "largest value",
    LAST: "last value",
}


def of_series(
    question: Question, series: Sequence[Explanation], gaps: Sequence[Gap], percent: float | None, *, is_whole: bool
) -> tuple[Explanation, ...]:
    """Explain every column of rows that were made of series, which are explained; ``is_whole``: one for the range."""
    every = joined(part for each in series for part in each.answered)
    made = []
    for spec in question.columns:
        path = f"{question.table.name}/{spec.name}"
        mine = [each for each in series if each.path.partition("@")[0] == path and each.stat == spec.stat]
        first = next(iter(mine), None)
        derived = question.derived.get(spec.label)
        made.append(
            Explanation(
                path,
                spec.stat,
                spec.unit,
                first.origin if first else _origin(question.table, spec),
                (first.formula if first else derived.formula.text if derived else _OF.get(spec.of, "nothing"))
                + _together(question, spec, percent),
                joined(part for each in mine for part in each.answered) if mine else every,
                series[0].step_ns if series else 0,
                _whole(spec)
                if is_whole
                else "; ".join(dict.fromkeys(each.resampling for each in mine)) or "nothing to resample",
                causes(gap for gap in gaps if _concerns(gap, path)),
            )
        )
    return tuple(made)


def of_long(
    question: Question,
    answered: Iterable[Answered],
    step_ns: int,
    gaps: Sequence[Gap],
    percent: float | None,
    *,
    is_raw: bool = False,
    old: Sequence[str] = (),
) -> tuple[Explanation, ...]:
    """Explain every column of rows of a long table; ``old``: the tiers that have buckets of before the rule."""
    table, parts = question.table, joined(answered)
    made = []
    for spec in question.columns:
        path = f"{table.name}/{spec.name}"
        derived = question.derived.get(spec.label)
        formula = "as stored" if is_raw and spec.of not in {Of.JOIN, Of.COUNT} else _formula(table, spec)
        origin = _origin(table, spec)
        if derived is not None:
            formula = f"{derived.formula.text}, of their {spec.stat}"
            origins = [f"{part.name}: {_origin(table, part)}" for part in derived.own.values()]
            others = [name for name in derived.formula.operands if name.table]
            origins += [f"{name}: {name.metric} of table {name.table}" for name in others]
            origin = "; ".join(origins)
        made.append(
            Explanation(
                path,
                spec.stat,
                spec.unit,
                origin,
                formula + _together(question, spec, percent),
                parts,
                step_ns,
                "none: a row a row" if is_raw else _resampling(spec, step_ns, parts, old, lasting=lasts(table)),
                causes(gap for gap in gaps if _concerns(gap, path)),
            )
        )
    return tuple(made)


def _whole(spec: Spec) -> str:
    return f"{_WHOLE}; {RULE}" if spec.semantics is Semantics.COUNTER else _WHOLE


def _concerns(gap: Gap, path: str) -> bool:
    """Whether a gap of a table is one of a column: a reset is of one counter."""
    return gap.cause is not Cause.COUNTER_RESET or gap.detail.startswith((f"{path}@", f"{path}:")) or gap.detail == path


def _together(question: Question, spec: Spec, percent: float | None) -> str:
    """What became of the rows after that."""
    words = ""
    if question.groups and spec not in question.groups and spec.of is not Of.COUNT:
        by = ", ".join(group.label for group in question.groups)
        is_mean = spec.stat == MEAN and spec.semantics is Semantics.GAUGE
        what = "largest" if spec.stat == MAX else "sum, by the share of the time," if is_mean else "sum"
        what = "formula of sums" if spec.label in question.derived and is_mean else what
        words = f"; the {what} of all rows with the same {by}"
    if percent is not None and spec.semantics is not Semantics.STATE:
        words += f"; {percent:g} % of the steps have at most this"
    return words


def _origin(table: Table, spec: Spec) -> str:
    """Where a column comes from: a field of the kernel's, as it is declared, or of another table."""
    answers = answers_of(table)
    if spec.of is Of.COUNT:
        return f"rows of table {table.name}"
    if spec.of is Of.KEY and spec.name not in {metric.name for metric in table.metrics}:
        return f"name of the {table.per}" if table.per else "none: the machine has one"
    if spec.of is Of.JOIN:
        join = next(join for join in answers.joins if spec.name in dict(join.columns))
        by = " and ".join(f"{mine} = {theirs}" for mine, theirs in join.by)
        known = (
            f"the {join.table[1:]}, as known to every reader" if join.table.startswith(":") else f"table {join.table}"
        )
        return f"{dict(join.columns)[spec.name]} of {known}, where {by}"
    if spec.of is Of.LIFE and answers.ended_by is not None and spec.name in {END, *answers.ended_by.columns}:
        return f"{spec.name} of table {answers.ended_by.table}"
    parts = parts_of(table, spec.name)
    metrics = {metric.name: metric for metric in table.metrics}
    origins = [metrics[part].origin or metrics[part].doc for part in parts if part in metrics]
    return "; ".join(dict.fromkeys(origins))


def _formula(table: Table, spec: Spec) -> str:
    of = " + ".join(parts_of(table, spec.name))
    summed = f" of {of}" if of != spec.name else ""
    if spec.of in _OF:
        formula = _OF[spec.of]
    elif spec.unit == TIME_UNIT:
        formula = "as stored, boot time as the wall clock had it"
    elif not lasts(table):
        formula = f"as stored{summed}"
    elif spec.semantics is Semantics.STATE or spec.of is Of.DERIVED:
        formula = "last value"
    else:
        formula = _of_values(spec) + summed
    return formula


def _of_values(spec: Spec) -> str:
    is_rate = spec.semantics is Semantics.COUNTER and spec.stat not in {SUM, LAST}
    factor = " × 100" if is_rate and spec.unit == "%" else ""
    if (percent := percent_of(spec.stat)) is not None:
        values = "increases from reading to reading ÷ time between them" if is_rate else "values"
        return f"{percent:g} % of the time {values} are at most this{factor}"
    return (_OF_COUNTER if spec.semantics is Semantics.COUNTER else _OF_GAUGE)[spec.stat] + factor


def _resampling(spec: Spec, step_ns: int, parts: Sequence[Answered], old: Sequence[str], *, lasting: bool) -> str:
    if not lasting:
        return "none: a row a row"
    words = [f"a row each, and {f'step of {format_step(step_ns)}' if step_ns else 'one for all of the range'}"]
    tiers = [part for part in parts if part.tier != "rows"]
    if tiers:
        length = ", ".join(dict.fromkeys(format_step(part.step_ns) for part in tiers))
        words.append(f"buckets of {length}: each at its own start, what used least together")
    if spec.semantics is Semantics.COUNTER and spec.of is Of.METRIC:
        words += ["an increase belongs to the later of its two readings", RULE]
        if old:
            words.append(f"buckets of {', '.join(old)} are of before that rule: {OLD_RULE}")
    return "; ".join(words)
