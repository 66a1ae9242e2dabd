# SPDX-License-Identifier: Apache-2.0
"""Machines as probes see them: trees below a folder, made of descriptions in the format of umockdev.

``tests/fixtures/machines/NAME/`` describes a machine, a file a kind of thing (``battery.umockdev``), so that umockdev
itself can show the same devices to real udev. Beside them ``proc/`` and ``sys/`` have files of what
is no device, and ``folders`` names folders in which there is nothing.
"""

import os
import shutil
from pathlib import Path

MACHINES = Path(__file__).parent.parent / "fixtures/machines"


def build(root: Path, name: str, *kinds: str) -> Path:
    """Make the tree of a machine below ``root``; of these kinds of things only where any are named."""
    for described in sorted((MACHINES / name).glob("*.umockdev")):
        if not kinds or described.stem in kinds:
            devices(root, described.read_text())
    for folder in ("proc", "sys"):
        if (MACHINES / name / folder).is_dir():
            shutil.copytree(MACHINES / name / folder, root / folder, dirs_exist_ok=True)
    if (named := MACHINES / name / "folders").is_file():
        for folder in named.read_text().split():
            (root / folder).mkdir(parents=True, exist_ok=True)
    return root


def devices(root: Path, description: str) -> None:
    """Make the devices of a description: ``P:`` path, ``E:`` property, ``A:`` attribute, ``L:`` link to a path.

    As the kernel does it, each device has ``uevent`` and ``subsystem``, and a link in the folder of its class or bus.
    """
    for paragraph in description.strip().split("\n\n"):
        lines = [line.partition(": ") for line in paragraph.splitlines() if not line.startswith("#")]
        (path,) = [value for kind, _, value in lines if kind == "P"]
        folder = root / "sys" / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        properties = [value for kind, _, value in lines if kind == "E"]
        for kind, _, value in lines:
            name, _, content = value.partition("=")
            if kind == "A":
                _put(folder / name, content.replace("\\n", "\n").replace("\\\\", "\\"))
            elif kind == "L":
                (folder / name).symlink_to(content)
        known = dict(value.split("=", 1) for value in properties)
        own = [value for value in properties if not value.startswith("SUBSYSTEM=")]
        if not (folder / "uevent").exists():
            _put(folder / "uevent", "\n".join(own))
        if subsystem := known.get("SUBSYSTEM"):
            _list(root, folder, subsystem)


def as_recorded(description: str) -> str:
    """A description with the line end that umockdev records at the end of each attribute, as the kernel has it."""
    return "".join(f"{line}\\n\n" if line.startswith("A: ") else f"{line}\n" for line in description.splitlines())


def _put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content + "\n")


def _list(root: Path, folder: Path, subsystem: str) -> None:
    """Link a device into ``/sys/class/…``, or ``/sys/bus/…/devices`` where it belongs to a bus."""
    is_bus = subsystem in {"acpi", "cpu", "hid", "i2c", "iio", "pci", "platform", "scsi", "usb"}
    listed = root / "sys" / (f"bus/{subsystem}/devices" if is_bus else f"class/{subsystem}")
    listed.mkdir(parents=True, exist_ok=True)
    link = listed / folder.name
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(folder, listed))
    if not (folder / "subsystem").is_symlink():
        (folder / "subsystem").symlink_to(os.path.relpath(listed.parent if is_bus else listed, folder))
