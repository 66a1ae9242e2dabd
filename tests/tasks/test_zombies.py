# SPDX-License-Identifier: Apache-2.0
"""Zombies: listed from the reading after their end until their parent has waited for them."""

import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path

import pytest

from sysmond.records import Records, record_bytes
from sysmond.tasks import zombies
from sysmond.tasks.choose import BY_PROC
from sysmond.tasks.passes import Passes
from sysmond.tasks.tables import GONE, PROCESS, PROCESS_HEAD
from sysmond.tasks.zombies import Zombies
from tests.support import pinned

SIZE = record_bytes(PROCESS)
# Of nobody: the kernel gives no number so high.
NOBODY = 1 << 30


def row(pid: int, start_ns: int, state: str) -> bytes:
    head = PROCESS_HEAD.pack(start_ns, pid, 1, 0, 1, b"x", state.encode())
    return head.ljust(SIZE, b"\0")


def states(rows: bytes | bytearray | memoryview) -> list[tuple[int, str]]:
    return [(head[1], head[-1].decode()) for head in PROCESS_HEAD.iter_unpack(rows)]


@pytest.fixture
def zombie() -> Iterator[int]:
    """A child that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield pid
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def test_it_is_gone_once_its_parent_has_waited(zombie: int) -> None:
    followed = Zombies()
    told = row(zombie, 5, "Z")
    assert followed.gone(Records(row(NOBODY, 7, "S") + told)) == b""
    assert followed.gone(Records(b"")) == b""
    os.waitpid(zombie, 0)
    gone = followed.gone(Records(memoryview(b"")))
    assert states(gone) == [(zombie, GONE)]
    assert [at for at in range(SIZE) if gone[at] != told[at]] == [PROCESS_HEAD.size - 20]
    assert followed.gone(Records(b"")) == b""


def test_one_whose_number_another_has_is_gone(zombie: int) -> None:
    followed = Zombies()
    assert followed.gone(Records(row(zombie, 5, "Z"))) == b""
    assert states(followed.gone(Records(row(zombie, 6, "S")))) == [(zombie, GONE)]


def test_a_reading_of_all_says_itself_who_is_gone(zombie: int) -> None:
    followed = Zombies()
    followed.gone(Records(row(zombie, 5, "Z")))
    os.waitpid(zombie, 0)
    assert followed.gone(Records(row(NOBODY, 7, "S"), full=True)) == b""
    assert followed.gone(Records(b"")) == b""


def test_who_was_gone_already_is_told_by_the_next_pass_since_a_reading_has_one_row_of_each() -> None:
    followed = Zombies()
    assert followed.gone(Records(row(NOBODY, 5, "Z"), full=True)) == b""
    assert followed.gone(Records(row(NOBODY, 5, "Z"))) == b""
    assert states(followed.gone(Records(b""))) == [(NOBODY, GONE)]


def test_of_too_many_the_rest_waits_for_a_reading_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zombies, "FOLLOWED_MAX", 2)
    rows = b"".join(row(NOBODY + number, 5, "Z") for number in range(3))
    followed = Zombies()
    followed.gone(Records(rows))
    assert len(states(followed.gone(Records(b"")))) == 2


@pytest.mark.parametrize("by_bpf", [False, True])
def test_real_passes_tell_of_it(zombie: int, tmp_path: Path, *, by_bpf: bool) -> None:
    if by_bpf and (why := pinned.why_not()):
        pytest.skip(why)
    seen: list[tuple[int, str]] = []
    with pinned.loaded(tmp_path) if by_bpf else nullcontext():
        passes = Passes(str(tmp_path), "")
        try:
            assert passes.way.startswith(BY_PROC) is not by_bpf
            for tick in count():
                rows = passes.records("process", tick, full=not tick).rows
                seen += [state for state in states(rows) if state[0] == zombie]
                del rows
                if tick == 3:
                    assert seen == [(zombie, "Z")]
                    os.waitpid(zombie, 0)
                elif tick == 5:
                    break
        finally:
            passes.close()
    assert seen == [(zombie, "Z"), (zombie, GONE)]
