# SPDX-License-Identifier: Apache-2.0
"""Who has a display, whatever it is called: as logind and the bus tell it, and as the kernel does of a socket."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sysmon_tools import displays
from tests.support import onbus

LISTENS = """
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("there", flush=True)
sys.stdin.read()
"""
HAS_A_NAME = """
import asyncio, sys
from sysmon_tools.asking_bus import asking
async def main():
    async with asking("system") as bus:
        print(bus.name, flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


def started(script: str, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", script, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def holders(folder: Path) -> set[int]:
    return asyncio.run(displays.holders(f"{folder}/sessions", f"{folder}/user"))


def test_who_answers_at_a_socket_of_wayland_has_a_display(tmp_path: Path) -> None:
    (tmp_path / "user/1000").mkdir(parents=True)
    place = tmp_path / "user/1000/wayland-1"
    with started(LISTENS, str(place)) as compositor:
        assert said(compositor) == "there"
        assert holders(tmp_path) == {compositor.pid}
        compositor.kill()
    assert holders(tmp_path) == set()  # The socket is there, and nobody answers.
    (tmp_path / "user/1000/wayland-2.lock").touch()
    (tmp_path / "user/1000/wayland-3").touch()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "user/1000/bus"))
        other.listen()
        assert holders(tmp_path) == set()


def test_who_leads_a_session_with_a_display_counts_and_others_do_not(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    (sessions / "2").write_text("# private\nUID=1000\nTYPE=wayland\nCLASS=user\nLEADER=4711\n")
    (sessions / "3").write_text("UID=1000\nTYPE=tty\nREMOTE=1\nLEADER=4712\n")
    (sessions / "c1").write_bytes(b"TYPE=x11\nLEADER=many\nDISPLAY=\xff\nCONTROLLER=\n")
    (sessions / "2.ref").write_text("TYPE=x11\nLEADER=1\n")
    os.mkfifo(sessions / "4.ref")
    assert holders(tmp_path) == {4711}
    assert holders(tmp_path / "nowhere") == set()


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="no dbus-daemon here")
def test_to_whom_logind_gave_the_devices_of_a_session_has_a_display(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    (sessions / "2").write_text("TYPE=tty\nLEADER=4711\nCONTROLLER=:1.4711\n")
    with onbus.a_bus() as bus:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
        with started(HAS_A_NAME) as server:
            (sessions / "3").write_text(f"TYPE=tty\nLEADER=4712\nCONTROLLER={said(server)}\n")
            assert holders(tmp_path) == {server.pid}
            server.kill()
    assert holders(tmp_path) == set()
