# SPDX-License-Identifier: Apache-2.0
"""Statistics of drivers: structures by the kernel's headers, refusals, and this machine as ethtool prints it."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from sysmond.sources import ethtool


def answer(*names: bytes, numbers: tuple[int, ...]) -> tuple[bytes, bytes]:
    spelled = b"".join(name.ljust(ethtool.NAME_BYTES, b"\0") for name in names)
    head = struct.pack("=III", ethtool.ETHTOOL_GSTRINGS, 1, len(names))
    return head + spelled, struct.pack(f"=II{len(numbers)}Q", ethtool.ETHTOOL_GSTATS, len(numbers), *numbers)


def test_names_lose_their_padding_and_numbers_have_64_bits() -> None:
    names, numbers = answer(b"rx_drops", b" tx0_errors\0rest", numbers=(2**63, 7))
    assert ethtool.parse(names + bytes(9), numbers + bytes(9)) == {"rx_drops": 2**63, "tx0_errors": 7}


def test_a_name_without_end_is_cut() -> None:
    assert list(ethtool.parse(*answer(b"x" * 32, numbers=(1,)))) == ["x" * 32]


def test_a_driver_that_changed_between_two_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="1 names and 2 numbers"):
        ethtool.parse(*answer(b"a", numbers=(1, 2)))


def test_an_interface_that_is_gone_is_an_error_and_one_without_a_driver_has_nothing() -> None:
    with pytest.raises(OSError, match="No such device"):
        ethtool.statistics("sysmond-none")
    assert ethtool.statistics("lo") == {}


def test_it_agrees_with_ethtool_on_this_machine() -> None:
    names = [path.parent.name for path in Path("/sys/class/net").glob("*/device")]
    if not names or not shutil.which("ethtool"):
        pytest.skip("needs ethtool and a network interface with a device")
    told = subprocess.run(["ethtool", "-S", names[0]], capture_output=True, text=True, check=False, timeout=10).stdout
    shown = [line.strip().partition(":")[0] for line in told.splitlines()[1:]]
    assert list(ethtool.statistics(names[0])) == shown
