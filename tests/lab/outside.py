# SPDX-License-Identifier: Apache-2.0
"""What happens to the lab's machine from outside: devices are plugged in and out, its firmware says other things.

A check inside the machine asks for it by a port of its own, a line of JSON each way; on the host a thread obeys:
``{"monitor": "device_add …"}`` is an order for qemu, ``{"say": {"capacity": 17}}`` is written to where the tables of
``devices.asl`` read, ``{"wake_s": 30}`` wakes the machine once it has been suspended for so long,
``{"nmea": "$GPGGA,…"}`` is what a receiver behind a serial line says each second from then on, ``{"reset": true}``
resets it, and has no answer.
"""

import json
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PORT = "/dev/virtio-ports/outside"
# Where the firmware's readings begin in the memory of the machine, and where each is from there: as in devices.asl.
SAID_AT = 0x40000000
SAID_BYTES = 0x10000
PLACES = {
    "plugged": 0x00, "present": 0x04, "status": 0x08, "rate_mw": 0x0C, "energy_mwh": 0x10, "voltage_mv": 0x14,
    "temperature": 0x18, "light_lux": 0x1C, "lid": 0x20, "fan_rpm": 0x24, "power_mw": 0x28,
}  # fmt: skip
DISCHARGES, CHARGES = 1, 2
AT_FIRST = {
    "plugged": 1, "present": 1, "status": CHARGES, "rate_mw": 15000, "energy_mwh": 24000, "voltage_mv": 11800,
    "temperature": 40.0, "light_lux": 150, "lid": 1, "fan_rpm": 2000, "power_mw": 12000,
}  # fmt: skip
WAIT_S = 60.0
SUSPEND_S = 300.0  # No machine takes as long to fall asleep, or to wake, emulated or not.


def say(memory: Path, readings: Mapping[str, float]) -> None:
    """Have the firmware say something: into the file of the memory that begins at ``SAID_AT``."""
    with memory.open("r+b") as file, mmap.mmap(file.fileno(), SAID_BYTES) as said:
        for name, value in readings.items():
            # ACPI has tenths of a kelvin, and Linux takes 273.2 K for 0 °C.
            number = round((value + 273.2) * 10) if name == "temperature" else round(value)
            struct.pack_into("<I", said, PLACES[name], number)


class Monitor:
    """qemu's monitor (docs/interop/qmp-spec); several threads may ask."""

    def __init__(self, path: Path) -> None:
        """Connect.

        :raises OSError: where nobody answers.
        """
        self._asks = threading.Lock()
        self._socket = connected(path)
        self._file = self._socket.makefile("rwb")
        self._file.readline()
        self.do("qmp_capabilities")

    def do(self, command: str, **arguments: Any) -> Any:
        """Have something done; gives what comes back, with the key ``error`` where it was refused."""
        with self._asks:
            self._file.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
            self._file.flush()
            while line := self._file.readline():
                answer: dict[str, Any] = json.loads(line)
                if "event" not in answer:
                    return answer.get("return", answer)
        raise EOFError("qemu has ended")

    def wait_for(self, event: str) -> None:
        """Wait until something happens that comes after the last answer."""
        while line := self._file.readline():
            if json.loads(line).get("event") == event:
                return
        raise EOFError("qemu has ended")

    def close(self) -> None:
        """Leave."""
        self._file.close()
        self._socket.close()


def connected(path: Path) -> socket.socket:
    """Connect to a socket that qemu is about to make."""
    give_up_s = time.monotonic() + WAIT_S
    while True:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(str(path))
        except OSError:
            made.close()
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.1)
        else:
            return made


class Receiver(threading.Thread):
    """On the host: a receiver of GPS behind a serial line, which says the same each second until the machine ends."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self.sentences = ""

    def run(self) -> None:
        """Say it."""
        with suppress(OSError), connected(self._path) as line:
            while True:
                line.sendall(self.sentences.encode())
                time.sleep(1.0)


class Obeying(threading.Thread):
    """On the host: does what the machine asks for, until that ends."""

    def __init__(self, port: Path, monitor: Path, memory: Path, receiver: Receiver) -> None:
        super().__init__(daemon=True)
        self._paths = port, monitor
        self._memory = memory
        self._receiver = receiver

    def run(self) -> None:
        """Answer one line after the other."""
        port, monitor = self._paths
        with suppress(OSError, EOFError):
            asking = Monitor(monitor)
            with connected(port) as made, made.makefile("rwb") as lines:
                for line in lines:
                    order = json.loads(line)
                    answer = self._obey(asking, order)
                    if "reset" in order:
                        continue  # Who asked is no more: the machine begun anew would take it for its own first answer.
                    lines.write(json.dumps(answer).encode() + b"\n")
                    lines.flush()
            asking.close()

    def _obey(self, monitor: Monitor, order: dict[str, Any]) -> Any:
        match order:
            case {"monitor": line}:
                return monitor.do("human-monitor-command", **{"command-line": line})
            case {"say": readings}:
                return say(self._memory, readings)
            case {"wake_s": after_s}:
                return threading.Thread(target=wake, args=(monitor, after_s), daemon=True).start()
            case {"nmea": sentences}:
                self._receiver.sentences = sentences
                return None
            case {"reset": True}:
                # The machine was started such that it ends where it would be reset, and ends so the next time.
                monitor.do("set-action", reboot="reset")
                monitor.do("system_reset")
                monitor.wait_for("RESET")
                return monitor.do("set-action", reboot="shutdown")
            case _:
                return {"error": f"{order!r}: expected monitor, say, wake_s, nmea or reset"}


def wake(monitor: Monitor, after_s: float) -> None:
    """Wake the machine once it has been suspended for so long; say where it never was, or stays asleep.

    How long it takes to fall asleep is not certain, and qemu refuses to wake a machine that is awake.
    """
    began_s = time.monotonic()
    with suppress(OSError, EOFError, ValueError):  # The machine may end meanwhile.
        if not comes_to(monitor, "suspended"):
            print(f"lab: not suspended after {SUSPEND_S:.0f} s", flush=True)
            return
        print(f"lab: suspended after {time.monotonic() - began_s:.1f} s", flush=True)
        time.sleep(after_s)
        answer = monitor.do("system_wakeup")
        if answer or not comes_to(monitor, "running"):
            print(f"lab: not woken: {answer}", flush=True)


def comes_to(monitor: Monitor, status: str) -> bool:
    """Wait until qemu says this of the machine; whether it does in time."""
    give_up_s = time.monotonic() + SUSPEND_S
    while monitor.do("query-status")["status"] != status:
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.2)
    return True


class Outside:
    """In the machine: the world around it."""

    def __init__(self) -> None:
        """Open the port; nobody else may at the same time."""
        self._descriptor = os.open(PORT, os.O_RDWR)

    def _ask(self, **order: Any) -> Any:
        os.write(self._descriptor, json.dumps(order).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += os.read(self._descriptor, 65536)
        return json.loads(answer)

    def say(self, **readings: float) -> None:
        """Have the firmware say something."""
        assert self._ask(say=readings) is None

    def monitor(self, line: str) -> None:
        """Have qemu do something that says nothing."""
        assert self._ask(monitor=line) == "", line

    def wake_after(self, seconds: float) -> None:
        """Have the machine be woken once it has been suspended for so long."""
        assert self._ask(wake_s=seconds) is None

    def receive(self, *sentences: str) -> None:
        """Have the receiver of GPS say these sentences, each with its checksum, from now on; none, and it is silent."""
        assert self._ask(nmea="".join(f"{each}\r\n" for each in sentences)) is None

    def reset(self) -> None:
        """Have the machine be reset, as by its button; it does not come to know that."""
        os.write(self._descriptor, json.dumps({"reset": True}).encode() + b"\n")

    def close(self) -> None:
        """Leave."""
        os.close(self._descriptor)
