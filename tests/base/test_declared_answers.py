# SPDX-License-Identifier: Apache-2.0
"""What tables declare about answers: what is refused, how it travels, and what holds of those that say nothing."""

import json
from typing import Any

import pytest

from sysmond.base import declared_answers
from sysmond.base.model import Answers, Derived, Ending, Join, Packing, Table, Total
from sysmond.errors import UsageError
from sysmond.probe import counter, gauge, state, text
from sysmond.rollup.top import derived, selection
from sysmond.store.stretches.undeclared import answers_of
from sysmond.tasks import tables

OURS = [each for each in vars(tables).values() if isinstance(each, Table)]
JOB = Table(
    "job",
    (
        state("start", "When it started."),
        state("id", "Its number."),
        state("queue", "Number of its queue."),
        text("name", "Its name."),
        counter("pages", "1", "Pages printed."),
        gauge("black", "B", "Memory for black."),
        gauge("colour", "B", "Memory for colours."),
    ),
    packing=Packing("<q q q 16s q q q", ("id", "start")),
)
GOOD = Answers(
    top=(("pages",), ("black", "colour")),
    others_by=("queue",),
    by="memory:max",
    show=("id", "name", "queue_name", "memory:last", "end", "count"),
    show_groups=("pages:sum",),
    totals=(Total("memory", ("black", "colour"), "All memory."),),
    joins=(Join("queue", (("queue", "number"),), (("queue_name", "name"),), is_numbered=True),),
    ended_by=Ending("done", (("id", "job"), ("start", "start")), ("status",)),
    meant=(("queue", "queue_name"),),
    aliases=(("Sheets", "pages"),),
)


def refusal(**changed: Any) -> str:
    with pytest.raises(UsageError) as refused:
        declared_answers.check(JOB._replace(answers=GOOD._replace(**changed)))
    said = str(refused.value)
    assert said.startswith("table 'job', answers")
    assert "\n" not in said
    return said.removeprefix("table 'job', answers")


def test_a_good_declaration_is_accepted() -> None:
    declared_answers.check(JOB._replace(answers=GOOD))
    assert declared_answers.within(GOOD, JOB) == GOOD


@pytest.mark.parametrize("table", OURS, ids=lambda table: table.name)
def test_what_old_files_do_not_say_is_what_our_tables_declare(table: Table) -> None:
    declared_answers.check(table)
    declared = answers_of(table)
    if declared.ended_by is not None:  # Their rows do not say what remains.
        declared = declared._replace(ended_by=declared.ended_by._replace(remains=()))
    assert table.answers is not None
    assert answers_of(table._replace(answers=None)) == declared


@pytest.mark.parametrize("answers", [None, Answers(), GOOD, *(each.answers for each in OURS)])
def test_it_is_read_as_it_is_spelled(answers: Answers | None) -> None:
    spelled = declared_answers.spell(answers)
    assert declared_answers.read(spelled) == answers
    if answers is not None:
        assert declared_answers.read(json.dumps({**json.loads(spelled), "of_a_later_version": 1})) == answers


@pytest.mark.parametrize("remains", [["state"], ["state", "Z"], ["state", "Z", "X", "x"], [1, 2, 3], "Z"])
def test_what_a_file_says_of_what_remains_is_checked(remains: object) -> None:
    said = json.dumps({"ended_by": ["exits", [["pid", "pid"], ["start", "start"]], [], remains]})
    with pytest.raises(ValueError, match="expected"):
        declared_answers.read(said)


def test_what_remains_is_told_by_a_text() -> None:
    (processes,) = [table for table in OURS if table.name == "process"]
    assert processes.answers is not None
    assert processes.answers.ended_by is not None
    wrong = processes.answers._replace(ended_by=processes.answers.ended_by._replace(remains=("nice", "1", "2")))
    with pytest.raises(UsageError, match="expected one of its text metrics"):
        declared_answers.check(processes._replace(answers=wrong))
    cut = declared_answers.within(wrong, processes)
    assert cut.ended_by is not None
    assert cut.ended_by.remains == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"top": (("page",),)}, ", top: no column 'page'; did you mean pages"),
        ({"top": (("name",),)}, ", top: 'name' is a text; expected numbers"),
        ({"top": (("queue",),)}, ", top: 'queue' is a state; expected counters and gauges"),
        ({"rows_only": ("page",)}, ", rows_only: no column 'page'; did you mean pages"),
        ({"rows_only": ("queue",)}, ", rows_only: 'queue'; expected a number of which buckets need nothing"),
        ({"rows_only": ("pages",)}, ", rows_only: 'pages'; expected a number of which buckets need nothing"),
        ({"top": "pages"}, ": a value of type str; expected a list of at most 64 elements"),
        ({"top": [("pages",)]}, ": with lists; expected tuples"),
        ({"show": ("id", 7)}, ": a value of type int; expected a text"),
        ({"show": ("id",) * 65}, ": a list of 65; expected a list of at most 64 elements"),
        ({"show": ("pages:median",)}, ", show: 'pages:median'; expected a statistic of mean, sum, max, last"),
        ({"by": "xyz"}, ", by: no column 'xyz'; expected one of the table"),
        ({"others_by": ("name",)}, ", others_by: 'name'; expected a state that is not of the key"),
        ({"others_by": ("id",)}, ", others_by: 'id'; expected a state that is not of the key"),
        ({"sums": ("name",)}, ", sums: 'name' is a text; expected numbers"),
        ({"peaks": ("ink",)}, ", peaks: no column 'ink'"),
        ({"totals": (Total("pages", ("black", "colour"), "All."),)}, ", totals: 'pages' is a column already"),
        (
            {"totals": (Total("all", ("black", "pages"), "All."),)},
            ", totals: 'all' of ('black', 'pages'); expected metr",
        ),
        ({"totals": (Total("all", ("black", "black"), "All."),)}, "; expected metrics of one unit, kind and scale"),
        ({"totals": (Total("all", ("black", "colour"), "a\nb"),)}, "; expected numbers, and one line of documentation"),
        (
            {"joins": (Join(":group", (("id", "id"),), (("g", "name"),)),)},
            ", joins: ':group'; expected a table or :user",
        ),
        (
            {"joins": (Join(":user", (("id", "uid"),), (("g", "name"),)),)},
            ", joins: :user has name by id; expected these",
        ),
        ({"joins": (Join("../../etc", (("id", "id"),), (("g", "name"),)),)}, ", joins: not a name"),
        ({"joins": (Join("queue", (("ids", "id"),), (("g", "name"),)),)}, ", joins: no column 'ids'; did you mean id"),
        ({"joins": (Join("queue", (("id", "id"),), (("name", "name"),)),)}, ", joins: 'name' is a column already"),
        (
            {"joins": (Join("queue", (), (("g", "name"),)),)},
            ", joins: queue; expected pairs of names in by and in colum",
        ),
        ({"ended_by": Ending("../exits", (("id", "id"), ("start", "start")))}, ", ended_by: not a name"),
        (
            {"ended_by": Ending("done", (("id", "id"),))},
            ", ended_by: by ['id']; expected each of the key ['id', 'start']",
        ),
        ({"ended_by": Ending("done", (("id", "id"), ("start", "start")), ("name",))}, ", ended_by: 'name' is a column"),
        ({"meant": (("queue", "nobody"),)}, ", meant: no column 'nobody'"),
        ({"aliases": (("a\nb", "pages"),)}, ": the name 'a\\nb'; expected 1 to 48 characters"),
    ],
)
def test_what_is_wrong_with_it_is_said(changed: dict[str, Any], said: str) -> None:
    assert said in refusal(**changed)


def test_it_has_a_bound() -> None:
    name = "x" * 48
    many = tuple(Join("queue", (("queue", name),) * 30, ((f"{name[:46]}{at:02}", name),) * 1) for at in range(30))
    assert refusal(joins=many).endswith(f" bytes as JSON; expected at most {declared_answers.ANSWERS_BYTES_MAX}")
    with pytest.raises(ValueError, match="answers of 99999 characters; expected at most"):
        declared_answers.read(" " * 99_999)


def test_a_wide_table_has_derived_columns_and_names_elsewhere_alone() -> None:
    with pytest.raises(
        UsageError, match="on a table without a packing; expected derived and aliases alone, or a long table"
    ):
        declared_answers.check(JOB._replace(packing=None, answers=GOOD))
    declared_answers.check(JOB._replace(packing=None, answers=Answers(derived=(INK,), aliases=(("Ink", "ink"),))))


INK = Derived("ink", "B", "black + colour", "Both inks.")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"formula": "black +"}, ", derived 'ink': formula 'black +': it ends; expected"),
        ({"formula": "black + cyan"}, ", derived 'ink': no column 'cyan'; expected one of the table"),
        ({"formula": "black + colours"}, ", derived 'ink': no column 'colours'; did you mean colour"),
        ({"formula": "black + name"}, ", derived 'ink': 'name' is not a number; expected counters and gauges"),
        ({"formula": "black + start"}, ", derived 'ink': 'start' is not a number; expected counters and gauges"),
        (
            {"formula": "black / link.speed@@"},
            ", derived 'ink': 'black / link.speed@@' means an instance; a long table",
        ),
        ({"formula": "2 * 3"}, ", derived 'ink': '2 * 3' names no metric; expected one of the table at least"),
        ({"formula": "memory.total"}, ", derived 'ink': 'memory.total' names no metric; expected one of the table"),
        ({"formula": "__import__('os')"}, ", derived 'ink': formula \"__import__('os')\": \"__import__('os')\" where"),
        ({"formula": "(" * 99 + "black"}, ": nested too deeply; expected at most 16"),
        ({"formula": "black" + "+1" * 1000}, ", derived 'ink': formula of 2005 characters; expected at most 400"),
        ({"formula": None}, ": a value of type NoneType; expected a text"),
        ({"name": "black"}, ", derived: 'black' is a column already; expected another name"),
        ({"name": "memory"}, ", derived: 'memory' is a column already; expected another name"),
        ({"name": "In k"}, ", derived: not a name; expected lower-case letters"),
        ({"unit": ""}, ", derived 'ink': the unit ''; expected one such as %, s, B, 1 or 1/s"),
        ({"unit": "text"}, ", derived 'ink': the unit 'text'; expected one such as"),
        ({"doc": ""}, ", derived 'ink': its documentation must be one line"),
        ({"doc": "two\nlines"}, ", derived 'ink': its documentation must be one line"),
    ],
)
def test_a_wrong_formula_is_refused_in_a_line(changed: dict[str, Any], said: str) -> None:
    assert said in refusal(derived=(INK._replace(**changed),))


def test_derived_columns_travel_and_are_cut_to_the_metrics_there() -> None:
    both = Answers(derived=(INK, INK._replace(name="ink_of_memory", formula="black / memory.total")))
    assert declared_answers.read(declared_answers.spell(both)) == both
    fewer = JOB._replace(metrics=tuple(metric for metric in JOB.metrics if metric.name != "colour"))
    assert [column.name for column in declared_answers.within(both, fewer).derived] == ["ink_of_memory"]
    told = JOB._replace(metrics=(*JOB.metrics, gauge("ink", "B", "Told by itself.")))
    assert [column.name for column in declared_answers.within(both, told).derived] == ["ink_of_memory"]


@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        "[]",
        "7",
        '{"top": 7}',
        '{"top": [7]}',
        '{"others_by": "queue"}',
        '{"joins": [["queue"]]}',
        '{"joins": [["queue", [["a", "b", "c"]], [], false, false]]}',
        '{"joins": [["queue", [], [], 0, 0]]}',
        '{"ended_by": {}}',
        '{"totals": [["a", ["b"], null]]}',
        '{"by": null}',
        '{"top": ' + "[" * 4000 + "]" * 4000 + "}",
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(damaged: str) -> None:
    with pytest.raises(ValueError, match=r"\Aanswers that make no sense: [^\n]+\Z"):
        declared_answers.read(damaged)


def test_a_table_with_fewer_columns_has_what_is_left_of_it() -> None:
    gone = {"queue", "colour"}
    less = JOB._replace(metrics=tuple(metric for metric in JOB.metrics if metric.name not in gone))
    left = declared_answers.within(GOOD, less)
    assert left == Answers(
        top=(("pages",), ("black",)),
        show=("id", "name", "end", "count"),
        show_groups=("pages:sum",),
        ended_by=GOOD.ended_by,
        aliases=(("Sheets", "pages"),),
    )
    declared_answers.check(less._replace(answers=left))


def test_buckets_leave_out_what_is_of_rows_only_and_say_so() -> None:
    answers = GOOD._replace(top=(("black",),), totals=(), by="", show=(), show_groups=(), rows_only=("pages",))
    table = JOB._replace(answers=answers._replace(aliases=()))
    declared_answers.check(table)
    made = derived(table)
    assert "pages" not in {metric.name for metric in made.metrics}
    declared_answers.check(made)
    assert made.answers is not None
    assert made.answers.rows_only == ("pages",)
    assert selection(JOB._replace(answers=Answers(rows_only=("pages",)))).ranks == [("black",), ("colour",)]
