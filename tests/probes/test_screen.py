# SPDX-License-Identifier: Apache-2.0
"""The table ``screen``: on and off, sockets of one name on two cards, a card that sleeps, garbage, machines without."""

import os
import shutil
from errno import EIO
from pathlib import Path

import pytest
from sysmond_probes import screen

from sysmond.base.model import Sensitivity
from sysmond.plan.plan import as_declared
from sysmond.probe import ABSENT, Absence, Cause, Host
from tests.support import sysfs
from tests.support.opened import opened
from tests.support.refused import refused

EDP = "sys/class/drm/card1-eDP-1"


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    return sysfs.build(tmp_path, "laptop", "gpu")


def rows(root: Path) -> dict[str, object]:
    return dict(screen.Screens().read(Host(str(root))))


def test_a_screen_is_connected_and_on_and_that_of_a_card_that_sleeps_is_not_asked(laptop: Path) -> None:
    with opened() as files:
        assert rows(laptop) == {
            "HDMI-A-1-pci-0300": Absence(Cause.ASLEEP),
            "HDMI-A-1-pci-c400": (0, 0),
            "eDP-1": (1, 1),
        }
    assert [file for file in files if file.endswith("card0-HDMI-A-1/dpms")] == []


@pytest.mark.parametrize(("dpms", "on"), [("On", 1), ("Off", 0), ("Standby", 0), ("Suspend", 0)])
def test_a_screen_may_save_power(laptop: Path, dpms: str, on: int) -> None:
    (laptop / EDP / "dpms").write_text(f"{dpms}\n")
    (laptop / EDP / "status").write_text("unknown\n")
    assert rows(laptop)["eDP-1"] == (ABSENT, on)


@pytest.mark.parametrize("content", [b"", b"N/A\n", b"\xff\x1b\n", b"on\n"])
def test_garbage_costs_one_instance(laptop: Path, content: bytes) -> None:
    (laptop / EDP / "dpms").write_bytes(content)
    found = rows(laptop)
    gap = found.pop("eDP-1")
    assert isinstance(gap, Absence)
    assert gap.cause is Cause.PROBE_FAILED
    assert found["HDMI-A-1-pci-c400"] == (0, 0)


def test_a_driver_that_fails_is_a_gap_and_a_socket_that_is_gone_has_no_row(laptop: Path) -> None:
    with refused(EIO, lambda path: path.endswith("eDP-1/status")):
        assert rows(laptop)["eDP-1"] == Absence(Cause.PROBE_FAILED, os.strerror(EIO))
    shutil.rmtree((laptop / EDP).resolve())
    assert "eDP-1" not in rows(laptop)


def test_names_are_made_fit_to_be_printed(laptop: Path) -> None:
    (laptop / EDP).rename(laptop / "sys/class/drm/card1-\x1b[2J\udcff")
    assert all(name.isprintable() for name in rows(laptop))


def test_when_people_are_away_is_their_own_affair(laptop: Path, tmp_path: Path) -> None:
    (probe,) = screen.sysmond_probes()
    assert as_declared("", probe).sensitivity is Sensitivity.RESTRICTED
    assert as_declared("", probe).is_possible(str(laptop))
    assert not as_declared("", probe).is_possible(str(tmp_path / "nowhere"))
    assert rows(tmp_path / "nowhere") == {}
