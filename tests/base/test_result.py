# SPDX-License-Identifier: Apache-2.0
"""A result is what a person expects of columns by name, and still the tuple that it is made of."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from sysmond.base.model import Semantics
from sysmond.base.result import Column, Result


@pytest.fixture
def result() -> Result:
    columns = tuple(
        Column(path, "1", Semantics.GAUGE, "mean", floats=np.arange(3.0)) for path in ("load/one", "load/five")
    )
    return Result(np.arange(3), columns, (), 10**9, notes=("a note",))


def test_it_has_its_columns_by_name(result: Result) -> None:
    assert list(result) == ["load/one", "load/five"]
    assert (len(result), len(result.times)) == (2, 3)
    assert [result.column(name).path for name in result] == list(result)
    assert "load/one" in result
    assert "load/one:mean" in result
    assert "load/ten" not in result
    assert 10**9 not in result
    assert "load/one:mean" in list(result._replace(columns=(*result.columns, *result.columns)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda result: pickle.loads(pickle.dumps(result))])  # noqa: S301
def test_copies_have_all_of_it(result: Result, copied: Any) -> None:
    other = copied(result)
    assert isinstance(other, Result)
    assert repr(other) == repr(result)
    assert other.notes == result.notes
    changed = result._replace(step_ns=5)
    assert (changed.step_ns, changed.columns) == (5, result.columns)
    assert list(result._asdict()) == list(Result._fields)
    with pytest.raises(TypeError):
        result._replace(step=5)  # type: ignore[call-arg]
