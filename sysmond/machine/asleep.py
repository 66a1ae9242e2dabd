# SPDX-License-Identifier: Apache-2.0
"""Whether devices sleep (runtime power management), asked of each once a tick, however many tables want to know.

And what woke the machine.

Source: the kernel's ``Documentation/ABI/testing/sysfs-devices-power`` and ``sysfs-bus-pci``. Standard library only.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic

# How a device says that it sleeps, by file in its folder, and how many devices above it are asked, too.
_ASLEEP = {"power/runtime_status": (b"suspended", b"suspending"), "power_state": (b"D3hot", b"D3cold")}
DEVICES_ABOVE_MAX = 16
WORD_BYTES_MAX = 64
INTERRUPTS_BYTES_MAX = 4 * 1024 * 1024
# How long it is kept what hangs on what, where nobody tells that something came or went, and of how many devices.
KEPT_S = 60.0
DEVICES_MAX = 1024
# An answer is that old at most, also in a tick that lasts.
ANSWER_S = 1.0
# A file that tells whether a device sleeps, and by what words.
_File = tuple[str, tuple[bytes, ...]]


def woken_by(root: str = "/") -> str:
    """Say which interrupt woke the machine the last time, as the end of a sentence; empty where nobody knows.

    Source: ``/sys/power/pm_wakeup_irq`` (Documentation/ABI/testing/sysfs-power) and the last words of /proc/interrupts.
    """
    try:
        with open(f"{root.rstrip('/')}/sys/power/pm_wakeup_irq", "rb") as file:
            number = file.read(WORD_BYTES_MAX).strip()
        with open(f"{root.rstrip('/')}/proc/interrupts", "rb") as file:
            lines = file.read(INTERRUPTS_BYTES_MAX).splitlines()
    except OSError:
        return ""
    for line in lines:
        name, _, counts = line.partition(b":")
        if name.strip() == number:
            return f"; woken by interrupt {number.decode()}: {counts.split()[-1].decode('utf-8', 'replace')}"
    return f"; woken by interrupt {number.decode('ascii', 'replace')}" if number.isdigit() else ""


class SleepStates:
    """Of the devices of one machine; several hosts may share it."""

    def __init__(self, root: str) -> None:
        """Know of none yet. ``root``: what stands before ``/sys``."""
        self._root = root
        self._devices = os.path.realpath(f"{root}/sys/devices")
        self._files: dict[str, tuple[_File, ...]] = {}
        self._of_folder: dict[str, tuple[_File, ...]] = {}
        self._kept_until_s = 0.0
        self._words: dict[str, bytes] = {}
        self._words_until_s = 0.0

    def new_tick(self) -> None:
        """Ask anew from now on."""
        self._words.clear()

    def look_again(self) -> None:
        """Forget what hangs on what: devices may have come, gone, or changed places."""
        self._kept_until_s = self._words_until_s = 0.0

    def is_asleep(self, device: str) -> bool:
        """Whether a device, a folder in /sys, or one above it is suspended. Asking wakes nothing."""
        now_s = monotonic()
        if now_s >= self._kept_until_s or len(self._files) >= DEVICES_MAX:
            self._files, self._of_folder, self._kept_until_s = {}, {}, now_s + KEPT_S
        if now_s >= self._words_until_s:
            self._words, self._words_until_s = {}, now_s + ANSWER_S
        files = self._files.get(device)
        if files is None:
            files = self._files[device] = tuple(self._files_above(device))
        return any(self._word(path) in words for path, words in files)

    def _files_above(self, device: str) -> Iterator[_File]:
        """Find the files that tell of a device and of what is above it."""
        folder = os.path.realpath(self._root + device)
        for _ in range(DEVICES_ABOVE_MAX):
            if not folder.startswith(f"{self._devices}/"):
                return
            if folder not in self._of_folder:
                paths = ((f"{folder}/{name}", words) for name, words in _ASLEEP.items())
                there = tuple((path, words) for path, words in paths if os.path.exists(path))
                self._of_folder[folder] = () if _has_no_power(folder) else there
            yield from self._of_folder[folder]
            folder = os.path.dirname(folder)

    def _word(self, path: str) -> bytes:
        word = self._words.get(path)
        if word is None:
            word = b""
            with suppress(OSError):  # It is gone.
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    word = os.read(descriptor, WORD_BYTES_MAX).strip()
                finally:
                    os.close(descriptor)
            self._words[path] = word
        return word


def _has_no_power(folder: str) -> bool:
    """Whether a device has nothing to suspend (pm_runtime_no_callbacks), and calls itself suspended all the same.

    So do adapters of I²C (``i2c-0``) and interfaces of a USB device that is awake (``1-4.2:1.0``). Source: the kernel's
    ``drivers/i2c/i2c-core-base.c`` and ``drivers/usb/core/message.c``.
    """
    begin, _, number = os.path.basename(folder).partition("-")
    return (begin == "i2c" and number.isdecimal()) or (begin.isdecimal() and ":" in number)
