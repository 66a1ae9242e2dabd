# SPDX-License-Identifier: Apache-2.0
"""Whatever callers of the library give in place of a text, a number or a place: it is used, or refused by its name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond import history
from sysmond.base import arguments
from sysmond.errors import UsageError
from sysmond.history import Archive

LIBRARY: Any = history
WRONG: dict[str, tuple[Callable[[Archive, Any], object], tuple[object, ...]]] = {
    "path": (lambda archive, value: archive.select(value), (5, None, ["cpu/user"])),
    "stat": (lambda archive, value: archive.select("cpu", stat=value), (5, ["min", 3])),
    "drop": (lambda archive, value: archive.select("cpu", drop=value), (5, [b"cpu"])),
    "table": (lambda archive, value: archive.records(value), (5, ["process"])),
    "columns": (lambda archive, value: archive.records("process", columns=value), (5, [1])),
    "where": (lambda archive, value: archive.records("process", where=value), (5, ["pid = 1"])),
    "group_by": (lambda archive, value: archive.records("process", group_by=value), (5, [2])),
    "by": (lambda archive, value: archive.records("process", by=value), (5, ["cpu"])),
    "top": (lambda archive, value: archive.records("process", top=value), ("ten", 2.5)),
    "percentile": (lambda archive, value: archive.records("process", percentile=value), ("p95", [95])),
    "query": (lambda archive, value: archive.sql(value), (5, ["select 1"])),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    ask, values = WRONG[name]
    for value in values:
        with pytest.raises(UsageError, match=rf"^{name} .*: expected "):
            ask(history.open(state_dir=str(tmp_path)), value)


def test_places_may_be_paths(tmp_path: Path) -> None:
    assert history.open(state_dir=tmp_path).state_dir == str(tmp_path)
    assert history.open(tmp_path).state_dir == str(tmp_path)
    for name in ("state_dir", "runtime_dir"):
        with pytest.raises(UsageError, match=f"^{name} 5: expected a text or a path$"):
            history.open(**{name: 5})  # type: ignore[arg-type]


def test_numbers_and_texts_of_numpy_are_as_good_as_others() -> None:
    assert arguments.texts("columns", np.array(["pid", "comm"]), "pid") == ["pid", "comm"]
    assert arguments.whole_number("top", np.int32(3)) == 3
    assert arguments.number("percentile", np.float32(95)) == 95.0


def test_none_is_what_is_not_given() -> None:
    assert arguments.text("where", None, "") == ""
    assert arguments.texts("columns", None, "") == []
    assert arguments.whole_number("top", None) == 0
    assert arguments.number("percentile", None) is None
    assert arguments.path("state_dir", None) is None


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda archive: archive.select("cpu", sample="10s"),
            "select(): there is no argument 'sample'; did you mean step?",
        ),
        (lambda archive: archive.select("cpu", to="now"), "select(): there is no argument 'to'; did you mean end?"),
        (
            lambda archive: archive.sql("select 1", since="-1h"),
            "sql(): there is no argument 'since'; did you mean start?",
        ),
        (
            lambda archive: archive.records("cpu", order_by="user"),
            "records(): there is no argument 'order_by'; did you mean by?",
        ),
        (
            lambda archive: archive.records("cpu", grop_by="user"),
            "records(): there is no argument 'grop_by'; did you mean group_by?",
        ),
        (lambda _: LIBRARY.open(state="/x"), "open(): there is no argument 'state'; did you mean state_dir?"),
        (
            lambda archive: archive.catalogue("cpu", qqq=1),
            "catalogue(): there is no argument 'qqq'; expected boot, derived",
        ),
    ],
)
def test_an_argument_that_is_not_there_is_refused_with_the_one_that_is_meant(
    ask: Callable[[Any], object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        ask(history.open(state_dir=tmp_path))
    assert str(refused.value) == said
