# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel that decide how fast a machine is, by name, and which of them became another.

Source: the kernel's ``Documentation/admin-guide/sysctl/``, ``mm/transhuge.rst``, ``block/switching-sched.rst``,
``timers/timekeeping.rst``, ``ABI/testing/sysfs-platform_profile``. The host's name, kernel and command line are in the
table host, governors in cpu_frequency. Standard library only.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from zlib import crc32

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.probe import Host, Row

DISKS_MAX = 256
LENGTH_MAX = 64
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
PLAN = "sysmond.plan"
KIND, NOTE = "setting", "setting.seen"
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
        self._before: dict[str, str] | None = None

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each setting that this machine has, and tell of those that are others than before."""
        values = dict(settings(host))
        before = _noted(host) if self._before is None else self._before
        for name, value in values.items():
            if before.get(name, value) != value:
                host.tell_event(KIND, name, f"{before[name]} → {value}")
        if values != self._before and host.folder:
            with suppress(OSError):
                note.write(f"{host.folder}/{NOTE}", values)
        self._before = values
        return ((name, (value,)) for name, value in values.items())


def settings(host: Host) -> Iterator[tuple[str, str]]:
    """Each setting by name. None of the files stays open."""
    disks = host.names(BLOCK)[:DISKS_MAX]
    schedulers = {f"io_scheduler.{disk}": f"{BLOCK}/{disk}/queue/scheduler" for disk in disks}
    for name, path in {**FILES, **schedulers}.items():
        if value := parse(_content(host, path)):
            yield name, value
    if match := _MICROCODE.search(_content(host, CPUINFO)):
        yield "microcode", match[1].decode("ascii", "replace")
    if host.runtime:
        yield PLAN, f"{crc32(_content(Host(), f'{host.runtime}/plan.json')):08x}"


def _noted(host: Host) -> dict[str, str]:
    """What a reader before it in this boot saw; nothing where there was none."""
    try:
        return {str(name): str(value) for name, value in note.read(f"{host.folder}/{NOTE}", note.fields).items()}
    except (OSError, CorruptError):
        return {}


def _content(host: Host, path: str) -> bytes:
    try:
        return host.read_anew(path)
    except OSError:
        return b""
