# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel that decide how fast a machine is, by name, and which of them became another.

Source: the kernel's ``Documentation/admin-guide/sysctl/``, ``mm/transhuge.rst``, ``block/switching-sched.rst``,
``timers/timekeeping.rst``, ``ABI/testing/sysfs-platform_profile``. The host's name, kernel and command line are in the
table host, governors in cpu_frequency. Standard library only.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Any
from zlib import crc32

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.probe import Host, Row

DISKS_MAX = 256
LENGTH_MAX = 64
# The kernel makes what it says of one processor after the other, as far as it is read.
CPUINFO_BYTES = 1024
CPUINFO, BLOCK = "/proc/cpuinfo", "/sys/block"
SYSCTL = (
    "vm.swappiness", "vm.dirty_ratio", "vm.dirty_background_ratio", "vm.dirty_bytes", "vm.dirty_background_bytes",
    "vm.overcommit_memory", "vm.overcommit_ratio", "vm.min_free_kbytes", "vm.vfs_cache_pressure", "vm.max_map_count",
    "vm.zone_reclaim_mode", "vm.page-cluster", "vm.watermark_scale_factor", "kernel.numa_balancing",
    "kernel.sched_autogroup_enabled", "kernel.perf_event_paranoid", "kernel.panic", "net.core.default_qdisc",
    "net.core.somaxconn", "net.ipv4.tcp_congestion_control",
)  # fmt: skip
FILES = {
    **{name: f"/proc/sys/{name.replace('.', '/')}" for name in SYSCTL},
    "transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
    "transparent_hugepage.defrag": "/sys/kernel/mm/transparent_hugepage/defrag",
    "clocksource": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "platform_profile": "/sys/firmware/acpi/platform_profile",
    "smt": "/sys/devices/system/cpu/smt/control",
    "boost": "/sys/devices/system/cpu/cpufreq/boost",
    "no_turbo": "/sys/devices/system/cpu/intel_pstate/no_turbo",
}
# What a machine was booted with is in the table host, and another after a boot only.
BOOTED_WITH = {
    "kernel": "/proc/sys/kernel/osrelease",
    "command_line": "/proc/cmdline",
    "firmware": "/sys/class/dmi/id/bios_version",
}
BOOTED_LENGTH_MAX = 400
PLAN = "sysmond.plan"
KIND, NOTE = "setting", "setting.seen"
# In the archiver's folder: what they were at the end of the boot before; and that this was compared.
ARCHIVER, NOTE_BEFORE, NOTE_COMPARED = "archiver", "setting.before", "setting.compared"
SINCE_BEFORE = "since the boot before"
# Until a boot is that old its services may still set them.
SETTLED_S = 180.0
_CHOSEN = re.compile(r"\[([^]]*)\]")
_MICROCODE = re.compile(rb"^microcode\s*:\s*(\S+)", re.MULTILINE)


def parse(content: bytes) -> str:
    """Give the value: of a list of choices that in brackets."""
    line = " ".join(content.decode("utf-8", "replace").split())
    chosen = _CHOSEN.search(line)
    return "".join(sign for sign in (chosen[1] if chosen else line) if sign.isprintable())[:LENGTH_MAX]


class KernelSettings:
    """Reads them all, and remembers in the folder of the lane, which lasts as long as the boot, what they were."""

    def __init__(self) -> None:
        """Know of nothing."""
        self._before: dict[str, str] = {}
        self._is_compared = False
        self._values: dict[str, tuple[bytes, str]] = {}
        self._plan: tuple[tuple[int, ...], str] = (), ""
        self._booted: dict[str, str] = {}

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each setting that this machine has, and tell of those that are others than before.

        While a machine starts nothing is told: what it is when that is over is compared with the boot before.
        """
        values = dict(self._settings(host))
        if clock_gettime(CLOCK_BOOTTIME) >= SETTLED_S:
            self._booted = self._booted or dict(_booted_with(host))
            self._compare(host, values | self._booted)
        return ((name, (value,)) for name, value in values.items())

    def _settings(self, host: Host) -> Iterator[tuple[str, str]]:
        """Each setting by name. What has one place stays open: nearly always it is what it was, and not parsed anew."""
        for name, path in FILES.items():
            if value := self._value(name, _content(host.read, path)):
                yield name, value
        for disk in host.names(BLOCK)[:DISKS_MAX]:
            name = f"io_scheduler.{disk}"
            if value := self._value(name, _content(host.read_anew, f"{BLOCK}/{disk}/queue/scheduler")):
                yield name, value
        if microcode := _microcode(host):
            yield "microcode", microcode
        if host.runtime:
            yield PLAN, self._number_of_plan(f"{host.runtime}/plan.json")

    def _value(self, name: str, content: bytes) -> str:
        known, value = self._values.get(name, (b"", ""))
        if known != content:
            value = parse(content)
            self._values[name] = content, value
        return value

    def _number_of_plan(self, path: str) -> str:
        """By what number it is known what is recorded: the plan is replaced as a whole, or stays."""
        try:
            there = os.stat(path)
            identity: tuple[int, ...] = (there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns)
        except OSError:
            identity = ()
        if identity != self._plan[0] or not self._plan[1]:
            self._plan = identity, f"{crc32(_content(Host().read_anew, path)):08x}"
        return self._plan[1]

    def _compare(self, host: Host, values: dict[str, str]) -> None:
        before = self._before or (noted(f"{host.folder}/{NOTE}") if host.folder else {}) or values
        for then, now, detail in ((self._boot_before(host), before, SINCE_BEFORE), (before, values, "")):
            for name, value in now.items():
                if then.get(name, value) != value:
                    host.tell_event(KIND, name, f"{then[name]} → {value}", detail=detail)
        if values != self._before and host.folder:
            with suppress(OSError):
                note.write(f"{host.folder}/{NOTE}", values)
        self._before = values

    def _boot_before(self, host: Host) -> dict[str, str]:
        """What they were at the end of the boot before, once in this boot: when the archiver has laid that out."""
        if self._is_compared or not host.folder:
            return {}
        earlier = noted(f"{host.runtime}/{ARCHIVER}/{NOTE_BEFORE}")
        if earlier:
            self._is_compared = True
            with suppress(OSError), open(f"{host.folder}/{NOTE_COMPARED}", "x", encoding="ascii"):
                return earlier
        return {}


def _microcode(host: Host) -> str:
    with suppress(OSError), open(host.root + CPUINFO, "rb", buffering=0) as file:
        if match := _MICROCODE.search(file.read(CPUINFO_BYTES)):
            return match[1].decode("ascii", "replace")
    return ""


def _booted_with(host: Host) -> Iterator[tuple[str, str]]:
    for name, path in BOOTED_WITH.items():
        if line := " ".join(_content(host.read_anew, path).decode("utf-8", "replace").split()):
            yield name, "".join(filter(str.isprintable, line))[:BOOTED_LENGTH_MAX]


def noted(path: str) -> dict[str, str]:
    """What a reader before noted there; nothing where there is no such note, or it is damaged."""
    try:
        return note.read(path, shaped)
    except (OSError, CorruptError):
        return {}


def shaped(values: Any) -> dict[str, str]:  # noqa: ANN401  as JSON has it
    """Take settings by name as a note has them, in the form and length that one has.

    :raises TypeError: where it has another form.
    """
    texts = {note.text(name): note.text(value) for name, value in note.fields(values).items()}
    return {name: value[:BOOTED_LENGTH_MAX] for name, value in texts.items()}


def _content(read: Callable[[str], bytes], path: str) -> bytes:
    try:
        return read(path)
    except OSError:
        return b""
