# SPDX-License-Identifier: Apache-2.0
"""The lab where it cannot be: what is missing is said. The lab itself is `make lab`."""

import json
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sysmond.tasks.bpf.loader import PROGRAMS
from tests.lab import image, kernels, lab, outside
from tests.lab.ways import WAYS


def test_what_is_missing_is_named_in_one_line(repository: Path, tmp_path: Path) -> None:
    for tool in lab.TOOLS:
        if tool != "mmdebstrap":
            (tmp_path / tool).touch(mode=0o755)
    script = "import sys; from tests.lab import lab; lab.SBIN = ''; sys.exit(lab.main())"
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(repository)}
    told = subprocess.run(
        [sys.executable, "-P", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "lab: mmdebstrap not installed (Debian: apt install mmdebstrap)\n"


def test_every_check_that_is_named_is_there(repository: Path) -> None:
    names = [each.removeprefix("--deselect=").partition("::")[0] for each in lab.CHECKS]
    assert [name for name in names if not (repository / name).is_file()] == []


@pytest.fixture
def booted() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kernels.FIGURES.read_bytes())
    return found


def test_the_table_of_kernels_is_that_of_the_last_run(booted: dict[str, Any]) -> None:
    text = kernels.DOCUMENT.read_text()
    assert kernels.document(text, booted) == text


def test_every_way_was_tried_on_every_kernel_and_none_takes_one_away(booted: dict[str, Any]) -> None:
    assert list(booted) == [kernel.name for kernel in kernels.KERNELS]
    assert {program.name for program in PROGRAMS} <= set(WAYS)
    for found in booted.values():
        assert found["ways"].keys() == WAYS.keys()
        assert kernels.complaints(found) == []


def test_a_kernel_that_takes_a_program_away_is_complained_of() -> None:
    ways = dict.fromkeys(WAYS, "")
    refused = {**ways, "snapshot": "the verifier refuses it"}
    assert kernels.complaints({"release": "7.2.13+deb14-amd64", "ways": ways}) == []
    assert kernels.complaints({"release": "6.6.1-amd64", "ways": refused}) == []  # It came with 6.7.
    (line,) = kernels.complaints({"release": "6.12.117+deb13-amd64", "ways": refused})
    assert line == "6.12.117+deb13-amd64: snapshot: the verifier refuses it"
    (line,) = kernels.complaints({"release": "5.10.0-46-amd64", "ways": {**ways, "proc": "nothing within 20 s"}})
    assert line == "5.10.0-46-amd64: proc: nothing within 20 s"


def test_an_initial_file_system_is_what_the_kernel_unpacks(tmp_path: Path) -> None:
    if shutil.which("cpio") is None:
        pytest.skip("cpio is not installed")
    entries = (("folder", 0o040755, b""), ("folder/file", 0o100644, b"12345"), ("link", 0o120777, b"folder/file"))
    whole = b"".join(kernels._entry(*each) for each in (*entries, ("TRAILER!!!", 0, b"")))
    unpacked = subprocess.run(["cpio", "-i", "--quiet"], input=whole, cwd=tmp_path, check=False)
    assert unpacked.returncode == 0
    assert (tmp_path / "folder/file").read_bytes() == (tmp_path / "link").read_bytes() == b"12345"


def test_firmware_reads_where_the_host_writes(tmp_path: Path) -> None:
    source = image.DEVICES.read_text()
    assert f"SystemMemory, {outside.SAID_AT:#010x}" in source
    fields = re.findall(r"^ +[A-Z]{4}, 32, // (.*)$", source.partition("Field (SAID")[2], re.MULTILINE)
    assert [4 * place for place in range(len(fields))] == list(outside.PLACES.values())
    memory = tmp_path / "memory"
    memory.write_bytes(bytes(outside.SAID_BYTES))
    outside.say(memory, {**outside.AT_FIRST, "temperature": 61.5, "fan_rpm": 3300})
    said = dict(zip(outside.PLACES, struct.unpack_from(f"<{len(fields)}I", memory.read_bytes()), strict=True))
    assert (said["temperature"], said["fan_rpm"], said["plugged"]) == (3347, 3300, 1)
    assert said.keys() == outside.AT_FIRST.keys()


@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="no qemu to give orders to")
def test_what_the_machine_asks_for_is_done(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.write_bytes(bytes(outside.SAID_BYTES))
    command = ["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-machine", "none"]
    command += ["-qmp", f"unix:{tmp_path}/monitor,server=on,wait=off"]
    with subprocess.Popen(command) as qemu, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{tmp_path}/port")
        listening.listen()
        receiver = outside.Receiver(tmp_path / "line")
        obeying = outside.Obeying(tmp_path / "port", tmp_path / "monitor", memory, receiver)
        obeying.start()
        port, _ = listening.accept()
        with port, port.makefile("rwb") as lines:

            def asked(**order: object) -> Any:
                lines.write(json.dumps(order).encode() + b"\n")
                lines.flush()
                return json.loads(lines.readline())

            assert "paused" in asked(monitor="info status")
            assert asked(say={"plugged": 7}) is None
            assert memory.read_bytes()[0] == 7
            assert asked(nmea="$GPGGA\r\n") is None
            assert receiver.sentences == "$GPGGA\r\n"
            assert "expected monitor" in asked(dance=1)["error"]
        obeying.join()
        qemu.terminate()


class Sleeper(outside.Monitor):
    """A machine that falls asleep as its third status is asked for, and cannot be woken before."""

    def __init__(self) -> None:
        self.statuses = ["running", "running", "suspended"]
        self.woken = 0

    def do(self, command: str, **arguments: Any) -> Any:
        if command == "query-status":
            return {"status": self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]}
        if self.statuses != ["suspended"]:
            return {"error": {"desc": "Unable to wake up: guest is not in suspended state"}}
        self.woken += 1
        self.statuses = ["running"]
        return {}


def test_a_machine_is_woken_only_once_it_sleeps(capsys: pytest.CaptureFixture[str]) -> None:
    machine = Sleeper()
    outside.wake(machine, 0.0)
    assert machine.woken == 1
    assert re.fullmatch(r"lab: suspended after \d\.\d s\n", capsys.readouterr().out)


def test_a_machine_that_does_not_fall_asleep_is_told_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "SUSPEND_S", 0.0)
    machine = Sleeper()
    outside.wake(machine, 0.0)
    assert machine.woken == 0
    assert capsys.readouterr().out == "lab: not suspended after 0 s\n"
