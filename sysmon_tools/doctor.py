# SPDX-License-Identifier: Apache-2.0
"""What the doctor says: of each source whether it is there, and what would help where it is not.

What the probes met stands in the service's own answers; what lies around them is looked at here. Sources: sched(7),
proc_pid_status(5), and the kernel's documentation of each file named in ``NEEDS``.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from sysmond.base.model import Cause
from sysmond.errors import CorruptError, refusal
from sysmond.machine import folders, note
from sysmond.probe import NOT_HERE, WAY_SUFFIX
from sysmond.ring.progress import WRITERS
from sysmond.tasks.bpf.report import REPORT

# What makes a file be there; the first prefix that fits counts.
NEEDS = {
    "/proc/pressure": "a kernel with CONFIG_PSI; psi=1 on its command line where that is off",
    "/proc/net/snmp6": "IPv6: ipv6.disable=0 on the kernel's command line",
    "/proc/schedstat": "a kernel with CONFIG_SCHEDSTATS",
    "/proc/diskstats": "a kernel with CONFIG_BLOCK",
    "/usr/sbin/smartctl": "smartctl (package smartmontools), which asks the disks",
    "/proc/1": "a /proc that is mounted without hidepid",
    "/proc/slabinfo": "a kernel with CONFIG_SLUB_DEBUG, or CONFIG_SLAB before Linux 6.8",
    "/dev/kmsg": "a kernel that keeps its messages (CONFIG_PRINTK)",
    "/var/log/dpkg.log": "dpkg and its log, as Debian and Ubuntu have",
    "/proc/acpi/button": "a lid, and ACPI firmware that reports it",
    "/dev/input": "a keyboard, a mouse or a touchpad, and evdev",
    "/run/dbus": "the system bus of D-Bus (package dbus)",
    "/run/systemd/system": "systemd as the first process",
    "/run/systemd/seats": "systemd-logind, or elogind",
    "/proc/driver/nvidia": "NVIDIA's own driver",
    "/sys/class/drm": "a graphics card that the kernel has a driver for: amdgpu, i915, xe, v3d, nvidia …",
    "/sys/class/thermal": "a board whose firmware or device tree has thermal zones",
    "/sys/class/backlight": "a screen of its own, or keys that shine",
    "/sys/class/wakeup": "a kernel with CONFIG_PM_SLEEP, since Linux 5.4",
    "/sys/class/net/*/phy80211": "a wireless card and its driver",
    "/sys/class/net/*/device": "a network interface with a device behind it; those of containers have none",
    "/sys/class/net": "a network interface",
    "/sys/class/block/dm-": "a volume of LVM, dm-crypt or the like",
    "/sys/bus/usb": "a USB controller",
    "/sys/bus/pci": "a bus whose devices can sleep",
    "/sys/devices/system/edac": "memory with ECC, and the EDAC driver of its controller",
    "/sys/devices/system/cpu/cpu*/cpuidle": "a driver for idle states; virtual machines seldom have one",
    "/sys/devices/system/cpu/cpu*/thermal_throttle": "a CPU of Intel, on the machine itself",
    "/sys/devices/system/cpu/cpufreq": "a driver for frequency scaling; virtual machines seldom have one",
    "/sys/class/hwmon": "a sensor's kernel module; 'sensors-detect' (package lm-sensors) finds which",
    "/sys/bus/iio": "a sensor that Industrial I/O has a driver for; a folding or turning screen has some",
    "/sys/class/power_supply": "a battery or a power supply that reports its state",
    "/sys/class/powercap": "a CPU whose energy meters Linux may read, and intel_rapl_common",
    "/sys/devices/system/node": "a machine whose memory has several nodes",
    "/sys/class/block/md": "an array of mdadm",
    "/sys/class/block/zram": "compressed memory as a disk: zramctl --find --size 1G",
    "/sys/module/zswap": "a kernel with CONFIG_ZSWAP",
    "/sys/kernel/mm/hugepages": "a kernel with CONFIG_HUGETLBFS",
    "/sys/fs/pstore": "firmware or memory that keeps crash records, and a kernel with CONFIG_PSTORE",
    "/sys/class/watchdog": "a watchdog, and a kernel with CONFIG_WATCHDOG_SYSFS",
    "/sys/fs/btrfs": "a mounted btrfs",
    "/sys/fs/ext4": "a mounted ext4",
    "/sys/kernel/mm/ksm": "a kernel with CONFIG_KSM",
    "/sys/fs/resctrl": "a CPU that measures caches and memory, and mount -t resctrl resctrl /sys/fs/resctrl",
    "/proc/sys/net/netfilter": "a firewall that tracks connections; modprobe nf_conntrack",
    "/proc/net/rpc/nfs": "a mounted NFS",
    "/run/systemd/sessions": "systemd-logind, or elogind",
    "/sys/fs/cgroup": "cgroup v2: systemd.unified_cgroup_hierarchy=1 on the kernel's command line",
    "/sys/fs/bpf": "bpffs: 'mount -t bpf bpf /sys/fs/bpf'",
}
# What would help, by a word of the reason why a program is refused.
BPF_HELPS = {
    "clang": "a package or a wheel of sysmond, which has them; in a checkout: make bpf",
    "libbpf": "libbpf 1: apt-get install libbpf1",
    "no object of BPF": "reinstall sysmond: one of its files is damaged",
    "BTF": "a kernel with CONFIG_DEBUG_INFO_BTF",
    "it takes CAP_": "root, or CAP_BPF and CAP_PERFMON for the loader",
    "locked down": "integrity instead of confidentiality lockdown, if that is wanted",
    "BPF file system": "CAP_SYS_ADMIN for the loader; or mount -t bpf bpf /sys/fs/bpf",
    "Linux": "a newer kernel; what the older one has is used",
}
_PATH = re.compile(rf"'(/[^']*)'|{NOT_HERE} (/[^ ,]*)")
_BY_BPF = "not by BPF: "
_STATES = {"active": "there", "absent": "missing"}
# What a reason begins with, and what the state says by itself.
_CAUSES = (f"{Cause.NO_PERMISSION}: ", f"{Cause.NO_SOURCE}: ")
# The state of what needs hardware, or a part of the kernel, that this machine has not.
ELSEWHERE = "not here"
_POLICIES = {os.SCHED_FIFO: "real-time", os.SCHED_RR: "real-time"}


def examine(
    rows: Sequence[Mapping[str, Any]],
    status: Mapping[str, Any],
    privileges: Mapping[str, str] = MappingProxyType({}),
    *,
    polkit: bool | None = None,
) -> list[dict[str, str]]:
    """One finding a source: ``source``, ``state`` (there, missing, not here …), ``reason``, ``help``.

    ``rows``: as ``ListProbes`` tells them; ``status``: as ``GetStatus`` does. ``privileges``: by table what its probe
    says that reading takes. ``polkit``: whether it is on the bus; None where nobody asks it.
    """
    ways = _ways(str(status["runtime_dir"]))
    return [*(_of_probe(row, ways, privileges) for row in rows), *_of_machine(status, polkit=polkit)]


def _of_probe(row: Mapping[str, Any], ways: Mapping[str, str], privileges: Mapping[str, str]) -> dict[str, str]:
    name, reason = str(row["name"]), str(row["reason"])
    state = _STATES.get(str(row["state"]), str(row["state"]))
    if reason.startswith(Cause.NO_PERMISSION):
        state = "no permission"
    elif NOT_HERE in reason:
        state = ELSEWHERE
    if state == "there" and not reason:
        reason = ways.get(name, "")
    helps = _help(state, reason, name, privileges.get(name, ""))
    for cause in _CAUSES:
        reason = reason.removeprefix(cause)
    return {"source": name, "state": state, "reason": reason, "help": helps}


def _help(state: str, reason: str, name: str, privilege: str) -> str:
    path = next(filter(None, match.groups())) if (match := _PATH.search(reason)) else ""
    if state == "no permission":
        return privilege or _permission(path)
    if state in {"missing", ELSEWHERE}:
        helps = next((needs for prefix, needs in NEEDS.items() if path.startswith(prefix)), "")
        return helps or next((helps for word, helps in BPF_HELPS.items() if _BY_BPF in reason and word in reason), "")
    if state == "disabled":
        return f"sysmonctl enable probe {name}"
    return f"sysmonctl reset probe {name}, once the cause is gone" if state == "quarantined" else ""


def _permission(path: str) -> str:
    """Who may read a file that a probe did not declare: by its owner and mode."""
    with suppress(OSError):
        status = os.stat(path)
        if status.st_mode & 0o040 and status.st_gid:
            return f"group {status.st_gid}, or CAP_DAC_READ_SEARCH"
        if not status.st_mode & 0o004:
            return "root, or CAP_DAC_READ_SEARCH"
    return "root; the kernel asks for a capability that its documentation names"


def _of_machine(status: Mapping[str, Any], *, polkit: bool | None) -> Iterator[dict[str, str]]:
    sampler = status["pids"].get("sampler")
    yield _finding(
        "real-time scheduling",
        is_there=_is_real_time(sampler),
        reason="the sampler runs at normal priority: ticks may be late under load",
        helps="root, CAP_SYS_NICE, or LimitRTPRIO= in the unit; sampler.priority above 0",
    )
    yield _finding(
        "locked memory",
        is_there=_is_locked(sampler),
        reason="the sampler may be paged out: ticks may be late while memory is short",
        helps="root, CAP_IPC_LOCK, or LimitMEMLOCK=infinity in the unit",
    )
    runtime = str(status["runtime_dir"])
    yield from _of_kernel(runtime)
    with suppress(OSError):
        yield _finding(
            "memory for rings",
            is_there=folders.is_volatile(runtime),
            reason=f"{runtime} is not on tmpfs: every tick is written to a disk",
            helps="a tmpfs there, or --runtime-dir on one",
        )
    yield _finding(
        "udev",
        is_there=os.path.exists("/run/udev/control"),
        reason="the kernel's own events have to do",
        helps="systemd-udevd, or eudev",
    )
    if polkit is not None:
        yield _finding(
            "polkit",
            is_there=polkit,
            reason="nobody may enable, disable, set, pin, mark or flush over this bus",
            helps="polkitd; or a change in /etc/sysmond and 'sysmond reload'",
        )


def _of_kernel(runtime: str) -> Iterator[dict[str, str]]:
    """Which BPF programs the loader could load, and of the others why not."""
    try:
        programs = note.read(f"{runtime}/{REPORT}", lambda report: note.fields(report["programs"]))
    except FileNotFoundError:
        why = "the loader has not run: processes are read from /proc"
        yield _finding("BPF", is_there=False, reason=why, helps="root, without --user; then start sysmond anew")
        return
    except (OSError, CorruptError) as problem:
        reason = refusal(problem) if isinstance(problem, OSError) else str(problem)
        yield _finding("BPF", is_there=False, reason=reason, helps="start sysmond anew")
        return
    for name, program in sorted(programs.items()):
        refused = str(program.get("refused", "")) if isinstance(program, dict) else str(program)
        helps = next((helps for word, helps in BPF_HELPS.items() if word in refused), "")
        yield _finding(f"BPF program {name}", is_there=not refused, reason=refused, helps=helps)


def _ways(runtime: str) -> dict[str, str]:
    """By which way each table is read that has several, as its lane says."""
    ways = {}
    for lane in WRITERS.values():
        with suppress(OSError):
            for name in os.listdir(f"{runtime}/{lane}"):
                if name.endswith(WAY_SUFFIX):
                    with (
                        suppress(OSError),
                        open(f"{runtime}/{lane}/{name}", encoding="utf-8", errors="replace") as file,
                    ):
                        ways[name.removesuffix(WAY_SUFFIX)] = file.readline().strip()
    return ways


def _finding(source: str, *, is_there: bool, reason: str, helps: str) -> dict[str, str]:
    if is_there:
        return {"source": source, "state": "there", "reason": "", "help": ""}
    return {"source": source, "state": "missing", "reason": reason, "help": helps}


def _is_real_time(pid: int | None) -> bool:
    with suppress(OSError, TypeError):
        return _POLICIES.get(os.sched_getscheduler(pid or -1) & ~os.SCHED_RESET_ON_FORK) is not None
    return False


def _is_locked(pid: int | None) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return any(line.startswith("VmLck:") and int(line.split()[1]) > 0 for line in file)
    return False
