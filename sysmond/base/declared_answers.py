# SPDX-License-Identifier: Apache-2.0
"""What tables declare about answers, on its way: checked, spelled as JSON, and cut to the columns of a table.

Standard library only: plugins are checked by it, and files and the catalogue are read by it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sysmond.base.model import (
    DOC_LENGTH_MAX,
    END,
    NAME_LENGTH_MAX,
    READERS,
    START,
    Answers,
    Derived,
    Ending,
    Join,
    Semantics,
    Table,
    Total,
    check_name,
)
from sysmond.errors import UsageError, nearest

# Of each list in it; the longest of our own has 21.
ELEMENTS_MAX = 64
# As JSON; that of the processes has 1.3 kB. Readers of files take no longer string.
ANSWERS_BYTES_MAX = 8192
STATISTICS = ("mean", "sum", "max", "last")
# What ``Ending.remains`` has.
REMAINS = 3
# Columns that every answer may have.
_ALWAYS = frozenset({END, "count"})


def spell(answers: Answers | None) -> str:
    """Spell as JSON the fields that are not as they would be by themselves; nothing where nothing is declared."""
    if answers is None:
        return ""
    said = {name: value for name, value in answers._asdict().items() if value != Answers._field_defaults[name]}
    return json.dumps(said, separators=(",", ":"))


def read(text: str) -> Answers | None:
    """Read what ``spell`` gives.

    :raises ValueError: where it is something else.
    """
    if len(text) > ANSWERS_BYTES_MAX:
        raise ValueError(f"answers of {len(text)} characters; expected at most {ANSWERS_BYTES_MAX}")
    try:
        return parse(json.loads(text)) if text else None
    except (ValueError, TypeError, RecursionError) as damage:
        raise ValueError(f"answers that make no sense: {damage}") from damage


def parse(fields: Any) -> Answers:  # noqa: ANN401  decoded JSON
    """Make answers of what JSON says; fields that a later version adds are passed over.

    :raises ValueError: where one is of another form.
    """
    if type(fields) is not dict:
        raise ValueError("answers that are not an object")
    return Answers(**{name: _SHAPES[name](value) for name, value in fields.items() if name in _SHAPES})


def _kind(value: object) -> str:
    """What stands where something else should; a stranger's value may not even be spelled."""
    return f"a list of {len(value)}" if isinstance(value, list | tuple) else f"a value of type {type(value).__name__}"


def _text(value: Any) -> str:  # noqa: ANN401  as above
    if type(value) is not str:
        raise ValueError(f"{_kind(value)}; expected a text")
    return value


def _flag(value: Any) -> bool:  # noqa: ANN401  as above
    if type(value) is not bool:
        raise ValueError(f"{_kind(value)}; expected true or false")
    return value


def _list(value: Any) -> list[Any]:  # noqa: ANN401  as above
    if not isinstance(value, list | tuple) or len(value) > ELEMENTS_MAX:
        raise ValueError(f"{_kind(value)}; expected a list of at most {ELEMENTS_MAX} elements")
    return [*value]


def _names(value: Any) -> tuple[str, ...]:  # noqa: ANN401  as above
    return tuple(map(_text, _list(value)))


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401  as above
    return tuple((_text(one), _text(other)) for one, other in map(_list, _list(value)))


def _total(value: Any) -> Total:  # noqa: ANN401  as above
    name, parts, doc = _list(value)
    return Total(_text(name), _names(parts), _text(doc))


def _derived(value: Any) -> Derived:  # noqa: ANN401  as above
    name, unit, formula, doc = map(_text, _list(value))
    return Derived(name, unit, formula, doc)


def _join(value: Any) -> Join:  # noqa: ANN401  as above
    table, by, columns, is_within, is_numbered = _list(value)
    return Join(_text(table), _pairs(by), _pairs(columns), _flag(is_within), _flag(is_numbered))


def _ending(value: Any) -> Ending:  # noqa: ANN401  as above
    table, by, columns, *later = _list(value)
    remains = _names(later[0]) if later else ()
    if len(remains) not in {0, REMAINS}:
        raise ValueError(f"{_kind(remains)}; expected one of {REMAINS}, or none")
    return Ending(_text(table), _pairs(by), _names(columns), remains)


_SHAPES: Mapping[str, Callable[[Any], Any]] = {
    "top": lambda value: None if value is None else tuple(map(_names, _list(value))),
    "others_by": _names,
    "sums": lambda value: None if value is None else _names(value),
    "peaks": _names,
    "by": _text,
    "show": _names,
    "show_groups": _names,
    "totals": lambda value: tuple(map(_total, _list(value))),
    "joins": lambda value: tuple(map(_join, _list(value))),
    "ended_by": lambda value: None if value is None else _ending(value),
    "meant": _pairs,
    "aliases": _pairs,
    "rows_only": _names,
    "derived": lambda value: tuple(map(_derived, _list(value))),
}


def check(table: Table) -> None:
    """Refuse a table whose answers are of wrong types, name what is not there, or break a bound.

    :raises UsageError: naming the table, the field and what is expected.
    """
    where, answers = f"table {table.name!r}, answers", table.answers
    if answers is None:
        return
    if not isinstance(answers, Answers):
        raise UsageError(f"{where}: a value of type {type(answers).__name__}; expected Answers")
    if table.packing is None and answers != Answers(aliases=answers.aliases, derived=answers.derived):
        raise UsageError(f"{where}: on a table without a packing; expected derived and aliases alone, or a long table")
    try:
        is_whole = parse(answers._asdict()) == answers
    except (ValueError, TypeError, RecursionError) as wrong:
        raise UsageError(f"{where}: {wrong}") from wrong
    if not is_whole:
        raise UsageError(f"{where}: with lists; expected tuples")
    if (size := len(spell(answers))) > ANSWERS_BYTES_MAX:
        raise UsageError(f"{where}: {size} bytes as JSON; expected at most {ANSWERS_BYTES_MAX}")
    _check_totals(table, answers, where)
    _check_joins(table, answers, where)
    _check_ending(table, answers, where)
    _check_buckets(table, answers, where)
    _check_derived(table, answers, where)
    _check_labels(table, answers, where)


def _check_derived(table: Table, answers: Answers, where: str) -> None:
    if not answers.derived:
        return
    from sysmond.base import derived_columns, formula  # noqa: PLC0415  few tables of a file have any

    metrics = {metric.name: metric for metric in table.metrics}
    seen = _columns(table, answers._replace(derived=()))
    for column in answers.derived:
        inside = f"{where}, derived"
        _check_new(column.name, seen, inside)
        seen.add(column.name)
        inside = f"{inside} {column.name!r}"
        try:
            read = formula.parse(column.formula)
        except UsageError as wrong:
            raise UsageError(f"{inside}: {wrong}") from wrong
        names = derived_columns.own(read)
        if table.packing is not None and any(name.instance == formula.SAME for name in read.operands):
            raise UsageError(f"{inside}: {column.formula!r} means an instance; a long table has none")
        for name in names:
            _check_there(name, metrics, inside)
            if not derived_columns.is_number(metrics[name]):
                raise UsageError(f"{inside}: {name!r} is not a number; expected counters and gauges")
        if not names:
            raise UsageError(f"{inside}: {column.formula!r} names no metric; expected one of the table at least")
        if not 0 < len(column.unit) <= NAME_LENGTH_MAX or column.unit == "text" or not column.unit.isprintable():
            raise UsageError(f"{inside}: the unit {column.unit!r:.60}; expected one such as %, s, B, 1 or 1/s")
        if not 0 < len(column.doc) <= DOC_LENGTH_MAX or "\n" in column.doc:
            raise UsageError(f"{inside}: its documentation must be one line of 1 to {DOC_LENGTH_MAX} characters")


def _check_labels(table: Table, answers: Answers, where: str) -> None:
    columns = _columns(table, answers)
    labels = {
        "by": [answers.by] if answers.by else [],
        "show": answers.show,
        "show_groups": answers.show_groups,
        "meant": [column for _, column in answers.meant],
        "aliases": [column for _, column in answers.aliases],
    }
    for field, label in ((field, label) for field, used in labels.items() for label in used):
        name, is_said, statistic = label.partition(":")
        _check_there(name, columns, f"{where}, {field}")
        if is_said and statistic not in STATISTICS:
            raise UsageError(f"{where}, {field}: {label!r}; expected a statistic of {', '.join(STATISTICS)}")
    for name, _ in (*answers.meant, *answers.aliases):
        if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
            raise UsageError(f"{where}: the name {name!r:.60}; expected 1 to {NAME_LENGTH_MAX} characters")


def _check_there(name: str, names: Iterable[str], where: str) -> None:
    if name not in names:
        raise UsageError(f"{where}: no column {name!r}{nearest(name, names) or '; expected one of the table'}")


def _check_new(name: str, names: Iterable[str], where: str) -> None:
    check_name(name, where)
    if name in names:
        raise UsageError(f"{where}: {name!r} is a column already; expected another name")


def _check_totals(table: Table, answers: Answers, where: str) -> None:
    metrics = {metric.name: metric for metric in table.metrics}
    seen = set(metrics)
    for total in answers.totals:
        inside = f"{where}, totals"
        _check_new(total.name, seen, inside)
        seen.add(total.name)
        for name in total.parts:
            _check_there(name, metrics, inside)
        kinds = {(metrics[name].unit, metrics[name].semantics, metrics[name].scale) for name in total.parts}
        if len(set(total.parts)) < 2 or len(set(total.parts)) < len(total.parts) or len(kinds) != 1:  # noqa: PLR2004  a sum
            raise UsageError(f"{inside}: {total.name!r} of {total.parts}; expected metrics of one unit, kind and scale")
        if metrics[total.parts[0]].is_text or not 0 < len(total.doc) <= DOC_LENGTH_MAX or "\n" in total.doc:
            raise UsageError(f"{inside}: {total.name!r}; expected numbers, and one line of documentation")


def _check_joins(table: Table, answers: Answers, where: str) -> None:
    columns = {metric.name for metric in table.metrics} | {total.name for total in answers.totals}
    own = {metric.name for metric in table.metrics}
    for join in answers.joins:
        inside = f"{where}, joins"
        if join.table.startswith(":"):
            if join.table not in READERS:
                raise UsageError(f"{inside}: {join.table!r}; expected a table or {', '.join(READERS)}")
            keys, texts = READERS[join.table]
            if tuple(there for _, there in join.by) != keys or {there for _, there in join.columns} - {*texts}:
                raise UsageError(f"{inside}: {join.table} has {', '.join(texts)} by {', '.join(keys)}; expected these")
        else:
            check_name(join.table, inside)
        if not join.by or not join.columns:
            raise UsageError(f"{inside}: {join.table}; expected pairs of names in by and in columns")
        for name, there in join.by:
            _check_there(name, own, inside)
            check_name(there, inside)
        for name, there in join.columns:
            _check_new(name, columns, inside)
            check_name(there, inside)
            columns.add(name)
            own.add(name)


def _check_ending(table: Table, answers: Answers, where: str) -> None:
    ending, key = answers.ended_by, table.packing.key if table.packing else ()
    if ending is None:
        return
    inside = f"{where}, ended_by"
    check_name(ending.table, inside)
    for name in (*ending.columns, *(there for _, there in ending.by)):
        check_name(name, inside)
    if not _is_ended(table, ending):
        raise UsageError(
            f"{inside}: by {[own for own, _ in ending.by]}; expected each of the key {[*key]}, with {START!r}"
        )
    texts = {metric.name for metric in table.metrics if metric.is_text}
    if ending.remains and (len(ending.remains) != REMAINS or ending.remains[0] not in texts):
        raise UsageError(f"{inside}: remains {[*ending.remains]}; expected one of its text metrics, and two values")
    if both := {metric.name for metric in table.metrics}.intersection(ending.columns):
        raise UsageError(f"{inside}: {min(both)!r} is a column already; expected others of {ending.table}")


def _is_ended(table: Table, ending: Ending) -> bool:
    """Whether what ends is one key, and began; the buckets of a table may have more in their key than its rows."""
    key, own = table.packing.key if table.packing else (), {name for name, _ in ending.by}
    is_rows = table.packing is not None and table.packing.lasting
    return START in own and (own == {*key} if is_rows else own <= {*key}) and len(own) == len(ending.by)


def _check_buckets(table: Table, answers: Answers, where: str) -> None:
    metrics = {metric.name: metric for metric in table.metrics}
    fields = [*(answers.top or ()), answers.others_by, answers.sums or (), answers.peaks]
    for field, names in zip(["top"] * len(answers.top or ()) + ["others_by", "sums", "peaks"], fields, strict=True):
        for name in names:
            _check_there(name, metrics, f"{where}, {field}")
            is_number = not metrics[name].is_text
            if field != "others_by" and not is_number:
                raise UsageError(f"{where}, {field}: {name!r} is a text; expected numbers")
            if field == "top" and table.packing and table.packing.lasting and not _counts(table, name):
                raise UsageError(f"{where}, {field}: {name!r} is a state; expected counters and gauges")
    kept = {name for names in fields for name in names} | {name for total in answers.totals for name in total.parts}
    for name in answers.rows_only:
        check_name(name, f"{where}, rows_only")
        if not table.packing or not table.packing.lasting:
            continue  # It says so of rows: buckets tell by it what was left out.
        _check_there(name, metrics, f"{where}, rows_only")
        if metrics[name].semantics is Semantics.STATE or name in kept:
            raise UsageError(f"{where}, rows_only: {name!r}; expected a number of which buckets need nothing")
    for name in answers.others_by:
        if not _is_group(table, name):
            raise UsageError(f"{where}, others_by: {name!r}; expected a state that is not of the key, and no text in a"
                " lasting table")  # fmt: skip


def _counts(table: Table, name: str) -> bool:
    return any(metric.name == name and metric.semantics is not Semantics.STATE for metric in table.metrics)


def _is_group(table: Table, name: str) -> bool:
    """Whether others may be put together by a metric: of a lasting table it becomes one of their key."""
    packing = table.packing
    metric = next((metric_there for metric_there in table.metrics if metric_there.name == name), None)
    if packing is None or metric is None or (name in packing.key and packing.lasting):
        return False
    return metric.semantics is Semantics.STATE and not (metric.is_text and packing.lasting)


def _columns(table: Table, answers: Answers) -> set[str]:
    """The columns that answers may have."""
    columns = {metric.name for metric in table.metrics} | {total.name for total in answers.totals} | _ALWAYS
    columns |= {name for join in answers.joins for name, _ in join.columns}
    columns |= {column.name for column in answers.derived}
    return columns | {*(answers.ended_by.columns if answers.ended_by else ())}


def _there(answers: Answers, table: Table) -> tuple[Derived, ...]:
    """The derived columns for which a table has the metrics."""
    if not answers.derived:
        return ()
    from sysmond.base import derived_columns  # noqa: PLC0415  as above

    return tuple(derived_columns.of_table(table._replace(answers=answers)).values())


def within(answers: Answers, table: Table) -> Answers:
    """What of answers holds for a table that may have fewer columns than that which declares them."""
    own = {metric.name for metric in table.metrics}
    known, joins = set(own), []
    for join in answers.joins:
        pairs = tuple(pair for pair in join.columns if pair[0] not in own)
        if pairs and all(name in known for name, _ in join.by):
            joins.append(join._replace(columns=pairs))
            known.update(name for name, _ in pairs)
    ending = answers.ended_by
    if ending is not None:
        ending = ending._replace(columns=tuple(name for name in ending.columns if name not in own))
        if not {metric.name for metric in table.metrics if metric.is_text}.issuperset(ending.remains[:1]):
            ending = ending._replace(remains=())
        ending = ending if _is_ended(table, ending) else None
    cut = answers._replace(
        totals=tuple(total for total in answers.totals if own.issuperset(total.parts) and total.name not in own),
        joins=tuple(joins),
        ended_by=ending,
        derived=_there(answers, table),
    )
    columns = _columns(table, cut)

    def there(labels: Iterable[str]) -> tuple[str, ...]:
        return tuple(label for label in labels if label.partition(":")[0] in columns)

    def named(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name in own)

    ranks = None if answers.top is None else tuple(rank for total in answers.top if (rank := named(total)))
    return cut._replace(
        top=ranks,
        others_by=tuple(name for name in answers.others_by if _is_group(table, name)),
        sums=None if answers.sums is None else named(answers.sums),
        peaks=named(answers.peaks),
        by="".join(there([answers.by])),
        show=there(answers.show),
        show_groups=there(answers.show_groups),
        meant=tuple(pair for pair in answers.meant if pair[1] in columns),
        aliases=tuple(pair for pair in answers.aliases if pair[1] in columns),
        rows_only=answers.rows_only if not table.packing or not table.packing.lasting else named(answers.rows_only),
    )
