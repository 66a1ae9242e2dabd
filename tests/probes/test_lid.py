# SPDX-License-Identifier: Apache-2.0
"""The table ``lid``: open, closed, firmware that does not tell, garbage, machines without."""

import os
from errno import EIO, ENODEV
from pathlib import Path

import pytest
from sysmond_probes import lid

from sysmond.plan.plan import as_declared
from sysmond.probe import Absence, Cause, Host
from tests.support import sysfs
from tests.support.refused import refused

STATE = "proc/acpi/button/lid/LID/state"


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "laptop", "battery")


def rows(root: Path) -> dict[str, object]:
    return dict(lid.read(Host(str(root))))


def test_a_lid_is_open_or_closed(laptop: Path) -> None:
    assert rows(laptop) == {"LID": (0,)}
    (laptop / STATE).write_text("state:      closed\n")
    assert rows(laptop) == {"LID": (1,)}


def test_firmware_that_does_not_tell_is_a_gap(laptop: Path) -> None:
    (laptop / STATE).write_text("state:      unsupported\n")
    assert rows(laptop) == {"LID": Absence(Cause.NO_SOURCE, "the firmware does not report it")}


@pytest.mark.parametrize("content", [b"", b"state:\n", b"open\n", b"state: ajar\n", b"\xff\xfe:\x00\n"])
def test_garbage_costs_one_instance(laptop: Path, content: bytes) -> None:
    (laptop / STATE).write_bytes(content)
    other = laptop / "proc/acpi/button/lid/LID0"
    other.mkdir()
    (other / "state").write_text("state:      open\n")
    found = rows(laptop)
    assert found["LID0"] == (0,)
    gap = found["LID"]
    assert isinstance(gap, Absence)
    assert gap.cause is Cause.PROBE_FAILED


def test_a_driver_that_fails_is_a_gap_and_one_that_is_gone_has_no_row(laptop: Path) -> None:
    host = Host(str(laptop))
    with refused(EIO, lambda path: path.endswith("/state")):
        assert dict(lid.read(host)) == {"LID": Absence(Cause.PROBE_FAILED, os.strerror(EIO))}
    with refused(ENODEV, lambda path: path.endswith("/state")):
        assert dict(lid.read(host)) == {}


def test_it_is_read_where_there_is_a_lid(laptop: Path, tmp_path: Path) -> None:
    (probe,) = lid.sysmond_probes()
    assert as_declared("", probe).is_possible(str(laptop))
    assert not as_declared("", probe).is_possible(str(tmp_path / "nowhere"))
    assert rows(tmp_path / "nowhere") == {}
