# SPDX-License-Identifier: Apache-2.0
"""Joins: the texts that belong to the numbers of rows, beside an answer that looks at every text by itself."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sysmond.answers.rows.joins import Texts
from sysmond.base.model import ABSENT, Join
from sysmond.machine.folders import Folders
from sysmond.store.stretches.ends import GRAIN_NS
from sysmond.tasks.tables import CGROUP_NAME, COMMAND, PROCESS
from tests.support.longarchive import Row, memory_stretch, put, stretch

BY = (("pid", "pid"), ("start", "start"))
COLUMNS = (("exe", "exe"), ("command", "command"))
JOINS = (
    Join("command", BY, COLUMNS),
    Join("command", BY[::-1], COLUMNS),
    Join("command", BY, COLUMNS, is_within=True),
    Join("command", BY, COLUMNS, is_numbered=True),
    Join("command", BY[:1], COLUMNS),
    Join("command", BY[1:], COLUMNS),
)
Key = tuple[int, int]
PIDS = st.integers(1, 4)
# A tick of the kernel's clock apart, a little less or more, and far.
STARTS = st.sampled_from([0, 1, GRAIN_NS - 1, GRAIN_NS, GRAIN_NS + 1, 3 * GRAIN_NS, 3 * GRAIN_NS + 1])
KEYS = st.tuples(PIDS, STARTS)


def expected(join: Join, recorded: Sequence[dict[Key, str | None]], asked: Key) -> str | None:
    """The text of a row, by looking at all there are."""
    names = [there for _, there in join.by]
    key = tuple({"pid": asked[0], "start": asked[1]}[name] for name in names)
    if ABSENT in key:
        return None
    texts: dict[tuple[int, ...], str | None] = {}
    for of_stretch in recorded:
        for pid, start in sorted(of_stretch):
            text = of_stretch[pid, start]
            without = None if join.is_numbered else ""
            texts[tuple({"pid": pid, "start": start}[name] for name in names)] = without if text is None else text
    if "start" not in names:
        text = texts.get(key)
    else:
        at = names.index("start")
        meant = [
            other
            for other in texts
            if (*other[:at], *other[at + 1 :]) == (*key[:at], *key[at + 1 :])
            and other[at] < key[at] + GRAIN_NS
            and (join.is_within or other[at] > key[at] - GRAIN_NS)
        ]
        text = texts[max(meant, key=lambda other: other[at])] if meant else None
    return f"#{key[0]}" if text is None and join.is_numbered else text


@given(
    st.sampled_from(JOINS),
    st.lists(st.dictionaries(KEYS, st.none() | st.sampled_from(["a", "b", "c"]), max_size=6), max_size=3),
    st.lists(st.tuples(PIDS | st.just(ABSENT), STARTS | st.just(ABSENT)), min_size=1),
)
def test_rows_have_the_texts_that_a_look_at_all_of_them_gives(
    join: Join, recorded: list[dict[Key, str | None]], asked: list[Key]
) -> None:
    stretches = [
        stretch(
            COMMAND,
            [float(number)],
            [(0, {"pid": pid, "start": start, "command": text}) for (pid, start), text in of_stretch.items()],
        )
        for number, of_stretch in enumerate(recorded)
    ]
    columns = [np.array([{"pid": pid, "start": start}[name] for pid, start in asked], np.int64) for name, _ in join.by]
    words = Texts(join, stretches).words(columns, "command")
    texts = [*words.texts, None]
    assert [texts[code] for code in words.codes] == [expected(join, recorded, row) for row in asked]


class Looked(Sequence[str]):
    """Texts that say which of them were looked at."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.seen: set[str] = set()

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[str]:
        return (self[code] for code in range(len(self.texts)))

    def __getitem__(self, code: int) -> str:  # type: ignore[override]
        self.seen.add(self.texts[code])
        return self.texts[code]


def test_only_the_texts_of_rows_that_are_asked_for_are_looked_at() -> None:
    """A screen asks for ten seconds, and a ring has the command lines of all that ran for ten minutes."""
    made = stretch(CGROUP_NAME, [0.0], [(0, {"id": number, "path": f"/{number}"}) for number in range(100)])
    texts = Looked(made.texts)
    numbers = {name: made.column(name) for name in ("id", "path")}
    again = memory_stretch(made.about, made._readings, np.zeros(100, np.int64), numbers, texts)
    joined = Texts(Join("cgroup_name", (("cgroup", "id"),), (("cgroup_path", "path"),)), [again])
    words = joined.words([np.array([7, 7, 9, ABSENT])], "path")
    assert [[*words.texts, None][code] for code in words.codes] == ["/7", "/7", "/9", None]
    assert texts.seen == {"/7", "/9"}


DERIVED = """
import sys
from sysmond import history
archive = history.open(state_dir=sys.argv[1])
(row,) = archive.records("process", columns="pid,cpu_percent", where="cpu_percent >= 0", boot=0).records
print(row["pid"], "sysmond.base.elsewhere" in sys.modules)
"""


def test_what_comes_near_a_column_is_composed_only_where_somebody_reads_it(tmp_path: Path) -> None:
    """A question is tried without derived columns first, and refused; nobody sees that."""
    folders = Folders(str(tmp_path / "state"), str(tmp_path / "runtime"))
    rows: list[tuple[int, Row]] = [(at, {"pid": 7, "start": 1, "cpu": at}) for at in range(3)]
    put(folders, stretch(PROCESS, range(100, 103), rows), 1)
    done = subprocess.run([sys.executable, "-c", DERIVED, folders.state], capture_output=True, text=True, check=True)
    assert done.stdout == "7 False\n"
