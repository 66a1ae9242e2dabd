# SPDX-License-Identifier: Apache-2.0
"""The table ``swap``: exact values, a machine without swap, garbage, a real device."""

import subprocess
from pathlib import Path

import pytest
from sysmond_probes import swap

from sysmond.probe import Host
from tests.support import sysfs

HEADING = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


def with_swaps(root: Path, content: str) -> Host:
    (root / "proc").mkdir()
    (root / "proc/swaps").write_text(content)
    return Host(str(root))


def test_a_server_has_a_partition_and_a_file_that_was_deleted(tmp_path: Path) -> None:
    assert list(swap.read(Host(str(sysfs.build(tmp_path, "server"))))) == [
        ("/dev/md1", (33521660 * 1024, 1048576 * 1024, -2, "partition")),
        ("/var/swap two (deleted)", (1048572 * 1024, 0, 5, "file")),
    ]


def test_without_swap_there_are_no_rows(tmp_path: Path) -> None:
    assert list(swap.read(with_swaps(tmp_path, HEADING))) == []


@pytest.mark.parametrize("line", ["/dev/sda2 partition 100 0", "/dev/sda2 partition many 0 -2", ""])
def test_garbage_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|invalid literal"):
        list(swap.read(with_swaps(tmp_path, HEADING + line + "\n")))


def test_a_file_without_its_heading_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="heading is missing"):
        list(swap.read(with_swaps(tmp_path, "/dev/sda2 partition 100 0 -2\n")))


def test_a_kernel_without_swap_has_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(swap.read(Host(str(tmp_path))))


def test_it_agrees_with_swapon_on_this_machine() -> None:
    command = ["swapon", "--show=NAME,TYPE,SIZE,PRIO", "--noheadings", "--bytes", "--raw"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
    rows = [f"{name} {kind} {size} {priority}" for name, (size, _, priority, kind) in swap.read(Host())]
    assert rows == told.splitlines()
