# SPDX-License-Identifier: Apache-2.0
"""Conditions on rows: what they mean, and what is said of a wrong one."""

from contextlib import suppress
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import ABSENT
from sysmond.errors import UsageError
from sysmond.rollup.condition import ColumnKind, Values, Words, parse

KINDS = {
    "pid": ColumnKind("1"),
    "comm": ColumnKind("text"),
    "cpu": ColumnKind("%", ("cpu:sum", "s")),
    "cpu:sum": ColumnKind("s"),
    "read_bytes": ColumnKind("B/s", ("read_bytes:sum", "B")),
    "read_bytes:sum": ColumnKind("B"),
    "rss": ColumnKind("B"),
    "start": ColumnKind("time"),
    "user": ColumnKind("%", ("user:sum", "s"), "username"),
    "user:sum": ColumnKind("s"),
    "username": ColumnKind("text"),
    "state": ColumnKind("text", words={"sleeping": "S", "disk sleep": "D", "zombie": "Z"}),
    "code": ColumnKind("1", words={"EX_OK": "0", "EX_USAGE": "64"}),
}
NAN = float("nan")
COLUMNS: dict[str, Values] = {
    "pid": np.array([1.0, 2.0, 3.0, NAN]),
    "comm": Words(np.array([0, 1, 2, -1]), ["init", "post gres", "a(b)c"]),
    "cpu": np.array([10.0, 60.0, NAN, 0.0]),
    "cpu:sum": np.array([1.0, 6.0, NAN, 0.0]),
    "read_bytes": np.array([1e6, 5e6, 2e7, 0.0]),
    "read_bytes:sum": np.array([1e7, 5e7, 2e8, 0.0]),
    "rss": np.array([1e8, 2**30, 5.0, NAN]),
    "start": np.array([10**18, 2 * 10**18, 3 * 10**18, ABSENT]),
    "user": np.array([1.0, 2.0, 3.0, 4.0]),
    "user:sum": np.array([1.0, 2.0, 3.0, 4.0]),
    "username": Words(np.array([0, 1, 0, -1]), ["root", "www-data"]),
    "state": Words(np.array([0, 1, 2, -1]), ["S", "D", "R"]),
    "code": np.array([0, 64, 3, NAN]),
}


def met(text: str) -> list[int]:
    found = parse(text, KINDS, lambda moment: int(Decimal(moment) * 10**9))
    assert found.columns <= set(KINDS)
    return [int(row) for row in np.flatnonzero(found.test(COLUMNS.__getitem__))]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("pid = 1", [0]),
        ("pid != 1", [1, 2]),  # What is absent meets no comparison …
        ("not pid = 1", [1, 2, 3]),  # … and so fails the one in a negation.
        ("pid>=2", [1, 2]),
        ("pid == 2", [1]),
        ("state = sleeping", [0]),
        ("state = S or state = 'disk sleep'", [0, 1]),
        ("state != zombie", [0, 1, 2]),
        ("state ~ ^[SD]$", [0, 1]),
        ("code = EX_OK", [0]),
        ("code = 0 or code >= EX_USAGE", [0, 1]),
        ("comm = init", [0]),
        ("comm = 'post gres'", [1]),
        ('comm != "post gres"', [0, 2]),
        ("comm ~ ^post", [1]),
        ("comm !~ ^post", [0, 2]),
        (r"comm ~ (b|\(b)", [2]),
        (r"comm ~ a\(b", [2]),
        ("(comm ~ (init|post))", [0, 1]),
        ("comm = ''", []),
        ("cpu > 50%", [1]),
        ("cpu > 50", [1]),
        ("cpu > 50 %", [1]),
        ("(cpu > 50 %) and pid = 2", [1]),
        ("cpu > 2 s or pid = 3", [1, 2]),
        ("rss >= 1 GiB", [1]),
        ("cpu>2s", [1]),
        ("cpu >= 1000ms", [0, 1]),
        ("read_bytes > 4MB/s", [1, 2]),
        ("read_bytes > 40MB", [1, 2]),
        ("read_bytes > 4MiB/s", [1, 2]),
        ("rss >= 1GiB", [1]),
        ("rss >= 100MB", [0, 1]),
        ("rss >= 1e8", [0, 1]),
        ("start > 1.5e9", [1, 2]),
        ("start = 2000000000", [1]),
        ("start < 2000000000.000000001", [0, 1]),
        ("start != 2000000000", [0, 2]),
        ("user = root", [0, 2]),
        ("user ~ www", [1]),
        ("user > 2.5", [2, 3]),
        ("user > 2.5s", [2, 3]),
        ("pid = 1 or pid = 2 and cpu > 70%", [0]),
        ("(pid = 1 or pid = 2) and cpu > 50%", [1]),
        ("not (pid = 1 or pid = 2)", [2, 3]),
        ("not not pid = 1", [0]),
    ],
)
def test_what_a_condition_means(text: str, rows: list[int]) -> None:
    assert met(text) == rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rss_anom > 1", "there is no column 'rss_anom'; did you mean rss"),
        ("comm > 5", "'>' with 'comm', which is text; expected one of = != ~ !~"),
        ("rss ~ 5", "'~' with 'rss', which is a number"),
        ("rss > 5s", "'rss' cannot be '5s'; expected a value in B, such as 100MB"),
        ("pid > 5 GB", "'pid' cannot be '5 GB'; expected a number, such as 10"),
        ("cpu > 1 GHz and pid = 1", "'cpu' cannot be '1 GHz'; expected a value in % or s, such as 50%, 2.5s"),
        ("rss > 5 %", "'rss' cannot be '5 %'; expected a value in B, such as 100MB"),
        ("cpu > fast", "'cpu' cannot be 'fast'; expected a value in % or s, such as 50%, 2.5s"),
        ("read_bytes > 1MHz", "'read_bytes' cannot be '1MHz'; expected a value in B/s or B, such as 10MB/s, 100MB"),
        ("cpu > 50% pid = 1", "'pid' after a whole condition; expected 'and' or 'or' in between"),
        ("(pid = 1", "a parenthesis is not closed"),
        ("pid = 1)", "')' after a whole condition"),
        ("comm = 'init", "a quotation is not closed"),
        ("comm ~ (", "is not a regular expression"),
        ("comm ~ '['", "is not a regular expression"),
        ("pid =", "there is no value"),
        ("pid", "'' after 'pid'"),
        ("and pid = 1", "'and' where a column should be; expected COLUMN > VALUE"),
        ("", "it ends; expected COLUMN > VALUE"),
        ("pid = 1 or", "it ends"),
        ("not " * 200 + "pid = 1", "nested too deeply"),
        ("pid = 1 and " * 2000, "condition of 24000 characters"),
        ("pid ! 1", "'!' after 'pid'"),
        ("state = disk sleep", "'state' is never 'disk'; did you mean 'disk sleep'? (or S, D, Z)"),
        ("state = 5", "'state' is never '5'; expected sleeping, 'disk sleep', zombie, or S, D, Z"),
        ("state > sleeping", "'>' with 'state', which is text"),
        ("code = EX_USE", "'code' is never 'EX_USE'; did you mean EX_USAGE? (or a number)"),
        ("code ~ EX", "'~' with 'code', which is a number"),
    ],
)
def test_a_wrong_condition_is_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as told:
        met(text)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


@given(st.text(alphabet="pid=()!~<>'\" andornt1%MB\n\\*", max_size=40))
def test_any_text_is_a_condition_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        met(text)
