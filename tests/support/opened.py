# SPDX-License-Identifier: Apache-2.0
"""Which files this process opens or reads, and has open: the proof that something was left alone.

An audit hook cannot be taken back; it does nothing while nobody watches.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import h5py

# What the kernel tells of a device without asking it: power management and its wakeups, names, and what it read when it
# found the device.
KNOWN = frozenset(("name", "label", "type", "uevent", "bMaxPower", "bmAttributes", "power_state"))
KNOWN_FOLDERS = frozenset(("power", "wakeup"))
_ASLEEP = {"power/runtime_status": "suspended", "power_state": "D3cold"}
_watching: list[list[str]] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event == "open" and isinstance(arguments[0], str):
        for heard in _watching:
            heard.append(os.path.realpath(arguments[0]))


sys.addaudithook(_hear)


@contextmanager
def opened() -> Iterator[list[str]]:
    """Note the real paths of all files that are opened meanwhile, or read by a descriptor that was kept."""
    heard: list[str] = []
    pread = os.pread

    def noted(descriptor: int, length: int, offset: int) -> bytes:
        heard.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return pread(descriptor, length, offset)

    _watching.append(heard)
    try:
        with patch.object(os, "pread", noted):
            yield heard
    finally:
        _watching.remove(heard)


def asleep(root: Path) -> list[str]:
    """The folders of devices below a root that are suspended, by their real paths."""
    files = [(file, name) for name in _ASLEEP for file in Path(os.path.realpath(root)).glob(f"sys/devices/**/{name}")]
    return [str(file).removesuffix(f"/{name}") for file, name in files if file.read_text().strip() == _ASLEEP[name]]


def wakes(path: str, devices: list[str]) -> bool:
    """Whether to read a file asks one of these devices, or something that hangs on it."""
    below = next((path.removeprefix(f"{device}/") for device in devices if path.startswith(f"{device}/")), "")
    *folders, name = below.split("/")
    return bool(name) and not name.endswith("_label") and name not in KNOWN and KNOWN_FOLDERS.isdisjoint(folders)


def open_objects() -> int:
    """How many objects of HDF5 files this process has open."""
    kinds = (h5py.h5f.OBJ_FILE, h5py.h5f.OBJ_GROUP, h5py.h5f.OBJ_DATASET, h5py.h5f.OBJ_ATTR)
    return sum(h5py.h5f.get_obj_count(types=kind) for kind in kinds)
