# SPDX-License-Identifier: Apache-2.0
"""The table load against samples and against this machine."""

import os
from pathlib import Path

import pytest
from sysmond_probes import load

from sysmond.base.model import check_table
from sysmond.probe import Host


def test_the_table_is_sound() -> None:
    (probe,) = load.sysmond_probes()
    check_table(probe.table)
    assert probe.table.doc
    assert [(metric.name, metric.scale) for metric in probe.table.metrics] == [
        ("average_1min", 2),
        ("average_5min", 2),
        ("average_15min", 2),
        ("tasks_runnable", 0),
        ("tasks", 0),
    ]


@pytest.mark.parametrize(
    ("kernel", "expected"), [("linux618", (28, 28, 14, 1, 88)), ("linux510", (1234, 506, 99, 7, 1042))]
)
def test_samples(repository: Path, kernel: str, expected: tuple[int, ...]) -> None:
    assert load.read(Host(str(repository / "tests/fixtures" / kernel))) == [("", expected)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"0.00 0.05 0.01 1/88\n",
        b"0.00 0.05 0.01 188 6020\n",
        b"0.0 0.05 0.01 1/88 6020\n",
        b"0.000 0.05 0.01 1/88 6020\n",
        b"1 0.05 0.01 1/88 6020\n",
    ],
)
def test_garbage_is_an_error_that_shows_the_form(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"/proc/loadavg holds .* expected the form"):
        load.parse(content)


def test_no_file_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load.read(Host(str(tmp_path)))


def test_this_machine_agrees() -> None:
    ((_, values),) = load.read(Host())
    for mine, theirs in zip(values[:3], os.getloadavg(), strict=True):
        assert abs(int(mine) / 100 - theirs) <= 1.0  # The kernel may average anew between the two.
    threads = sum(len(list(Path(f"/proc/{pid}/task").glob("*"))) for pid in os.listdir("/proc") if pid.isdigit())
    assert 1 <= int(values[3]) <= int(values[4])
    assert int(values[4]) >= threads * 0.5  # A PID namespace hides some from /proc, never from loadavg.
