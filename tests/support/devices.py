# SPDX-License-Identifier: Apache-2.0
"""Devices that a test plugs in and pulls out: a /sys of umockdev's, and uevents that every libudev under it hears.

This file is also a program, which runs under ``umockdev-wrapper`` and takes orders on standard input.
"""

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LIBRARY = "libumockdev.so.0"
PRELOAD = "libumockdev-preload.so.0"
HANG_S = 60.0
PACE_S, PAUSE_S = 0.001, 0.05
_Texts = ctypes.POINTER(ctypes.c_char_p)


class Devices:
    """The devices of a mocked machine. ``environ``: with which a program sees them."""

    def __init__(self, process: "subprocess.Popen[str]", root: str) -> None:
        self._process = process
        self.environ = {"LD_PRELOAD": PRELOAD, "UMOCKDEV_DIR": root}

    def add(self, subsystem: str, name: str, attributes: dict[str, str], whole: str = "/sys/devices") -> str:
        """Plug a device in; gives its path. ``whole``: the path of what it is a part of."""
        return self._do("add", subsystem, name, attributes, whole)

    def remove(self, path: str) -> None:
        """Pull a device out."""
        self._do("remove", path)

    def change(self, path: str, times: int = 1) -> None:
        """Have a device say that it changed, so often."""
        self._do("change", path, times)

    def _do(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline()))


@contextmanager
def a_machine() -> Iterator[Devices]:
    """Give a machine without any device."""
    command = ["umockdev-wrapper", sys.executable, str(Path(__file__).resolve())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Devices(process, str(json.loads(process.stdout.readline())))
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(HANG_S)


def _texts(words: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(words) + 1))(*(word.encode() for word in words), None)


def _obey() -> None:
    library = ctypes.CDLL(LIBRARY)
    library.umockdev_testbed_new.restype = ctypes.c_void_p
    library.umockdev_testbed_get_root_dir.argtypes = [ctypes.c_void_p]
    library.umockdev_testbed_get_root_dir.restype = ctypes.c_char_p
    library.umockdev_testbed_add_devicev.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 3, _Texts, _Texts]
    library.umockdev_testbed_add_devicev.restype = ctypes.c_char_p
    library.umockdev_testbed_uevent.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    library.umockdev_testbed_remove_device.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    testbed = ctypes.c_void_p(library.umockdev_testbed_new())
    _say(library.umockdev_testbed_get_root_dir(testbed).decode())

    def tell(path: str, what: str, times: int = 1) -> None:
        _surely(lambda: library.umockdev_testbed_uevent(testbed, path.encode(), what.encode()), times)

    for line in sys.stdin:
        match json.loads(line):
            case ["add", subsystem, name, attributes, whole]:
                pairs = [word for pair in attributes.items() for word in pair]
                parent = None if whole == "/sys/devices" else whole.encode()
                words = subsystem.encode(), name.encode(), parent, _texts(pairs), _texts([])
                path = f"{whole}/{name}"
                if not _done(lambda words=words: library.umockdev_testbed_add_devicev(testbed, *words), 1):  # type: ignore[misc]
                    tell(path, "add")  # It exists, but not all listeners got the event.
                _say(path)
            case ["remove", path]:
                tell(path, "remove")
                library.umockdev_testbed_remove_device(testbed, path.encode())
                _say("")
            case ["change", path, times]:
                tell(path, "change", times)
                _say("")
            case order:
                raise ValueError(order)


def _surely(does: Callable[[], object], times: int) -> None:
    """Do it so often. umockdev dies where a listener's queue is full: then another child goes on."""
    while times := times - _done(does, times):
        time.sleep(PAUSE_S)


def _done(does: Callable[[], object], times: int) -> int:
    """Have a child do it so often, little by little; how often it did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for _ in range(times):
            does()
            os.write(writing, b".")
            time.sleep(PACE_S)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as count:
        done = len(count.read())
    os.waitpid(child, 0)
    return done


def _say(answer: str) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ.pop("PYTHONSTARTUP", None)
    _obey()
