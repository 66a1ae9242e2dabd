# SPDX-License-Identifier: Apache-2.0
"""The table ``softnet``: exact values, a CPU that is offline, an old kernel, garbage, this machine."""

import os
from pathlib import Path

import pytest
from sysmond_probes import softnet

from sysmond.probe import Host
from tests.support import sysfs


def test_a_row_is_about_the_cpu_that_the_line_names(tmp_path: Path) -> None:
    assert list(softnet.read(Host(str(sysfs.build(tmp_path, "server"))))) == [
        ("cpu0", [0x0A3F11C2, 5, 18, 7, 3, 2]),
        ("cpu2", [0xFFFFFFFF, 0, 1, 0, 0, 0]),
    ]


def test_a_kernel_that_does_not_say_whose_line_it_is_is_refused() -> None:
    with pytest.raises(ValueError, match="11 columns; at least 13"):
        softnet.parse(b" ".join([b"00000000"] * 11))


def test_garbage_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        softnet.parse(b"packets drops")


def test_no_file_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(softnet.read(Host(str(tmp_path))))


def test_this_machine_has_a_row_for_each_cpu_online() -> None:
    names = [name for name, _ in softnet.read(Host())]
    assert names == [f"cpu{number}" for number in sorted(os.sched_getaffinity(0))][: len(names)]
    assert len(names) == os.sysconf("SC_NPROCESSORS_ONLN")
