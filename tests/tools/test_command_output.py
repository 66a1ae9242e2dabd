# SPDX-License-Identifier: Apache-2.0
"""What commands print where no terminal is: as it would be drawn there, without colours."""

import sys
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysmon_tools import command_output, show

CELLS = st.text("ab é日本ｗ\n\x1b\u202e–[]:", max_size=8)


@pytest.fixture(autouse=True)
def _no_terminal() -> None:
    assert not sys.stdout.isatty()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=5))
def test_columns_are_those_of_a_terminal(
    capsys: pytest.CaptureFixture[str], lines: Sequence[tuple[str, str, str]]
) -> None:
    command_output.table(lines[0], lines[1:])
    plain = capsys.readouterr().out
    show.table(lines[0], lines[1:])
    assert plain == capsys.readouterr().out


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text("abcé", max_size=8), CELLS), max_size=5))
def test_fields_are_those_of_a_terminal(capsys: pytest.CaptureFixture[str], pairs: Sequence[tuple[str, str]]) -> None:
    command_output.fields(pairs)
    plain = capsys.readouterr().out
    show.fields(pairs)
    assert plain == capsys.readouterr().out


def test_a_table_without_columns_is_an_empty_line(capsys: pytest.CaptureFixture[str]) -> None:
    command_output.table((), ())
    plain = capsys.readouterr().out
    show.table((), ())
    assert plain == capsys.readouterr().out


def test_what_takes_its_time_says_nothing_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with command_output.waiting("writing"):
        pass
    assert capsys.readouterr().err == ""
