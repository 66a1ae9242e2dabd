# SPDX-License-Identifier: Apache-2.0
"""Names of system calls: against the headers of this machine, where it has them."""

import re
from pathlib import Path

import pytest

from sysmond.tasks import syscalls

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
DEFINED = re.compile(r"#define __NR(?:3264)?_(\w+) (\d+)\b")


@pytest.mark.parametrize("machine", HEADERS)
def test_the_names_are_those_of_the_kernel(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip(f"no {HEADERS[machine]}: package linux-libc-dev")
    # Calls of 32 bits with the times of 64 have numbers that no machine of 64 bits uses.
    found = [
        (name, int(number)) for name, number in DEFINED.findall(HEADERS[machine].read_text()) if "time64" not in name
    ]
    others = {"syscalls", "arch_specific_syscall", "sync_file_range2"}  # The last is of other machines.
    found = [each for each in found if each[0] not in others]
    assert len(found) > 250
    wrong = {number: (name, syscalls.name(number, machine)) for name, number in found if number < 470}
    assert {number: pair for number, pair in wrong.items() if pair[0] != pair[1] and "64" not in pair[0]} == {}


def test_what_has_no_name() -> None:
    assert [syscalls.name(number, "x86_64") for number in (-1, 0, 231, 450, 462, 9999)] == [
        "",
        "read",
        "exit_group",
        "set_mempolicy_home_node",
        "mseal",
        "#9999",
    ]
    assert syscalls.name(63, "aarch64") == "read"
    assert syscalls.name(3, "m68k") == "#3"
