# SPDX-License-Identifier: Apache-2.0
"""Where a bus is looked for, and where nobody need look."""

import socket
from pathlib import Path

import pytest

from sysmond.bus.wire.addresses import local, may_be_there
from sysmond.bus.wire.errors import UnavailableError


@pytest.fixture
def bound(tmp_path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "bus"))
    return str(tmp_path / "bus")


@pytest.mark.parametrize("address", ["system", "session"])
def test_a_bus_whose_socket_is_no_file_is_not_asked(
    address: str, bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"DBUS_{address.upper()}_BUS_ADDRESS"
    monkeypatch.setenv(variable, f"unix:path={tmp_path}/none")
    assert not may_be_there(address)
    monkeypatch.setenv(variable, f"unix:path={tmp_path}/none;unix:path={bound},guid=1")
    assert may_be_there(address)


@pytest.mark.parametrize("spelled", ["unix:abstract=/tmp/somewhere", "unix:path=/tmp/a%20place", "unix:runtime=yes"])
def test_what_only_connecting_tells_is_tried(spelled: str) -> None:
    assert may_be_there(spelled)


def test_the_bus_of_a_session_lies_in_its_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert local("session") == f"unix:path={tmp_path}/bus"
    assert not may_be_there("session")
    (tmp_path / "bus").touch()
    assert may_be_there("session")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert not may_be_there("session")
    with pytest.raises(UnavailableError, match="no bus is known"):
        local("session")


def test_no_bus_is_asked_over_a_network() -> None:
    assert not may_be_there("tcp:host=localhost,port=1")
