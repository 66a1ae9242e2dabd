# SPDX-License-Identifier: Apache-2.0
"""What machine this is: processor, memory, kernel, distribution; what a copied archive needs to explain itself.

Source: ``Documentation/filesystems/proc.rst``, ``Documentation/admin-guide/cputopology.rst``,
``Documentation/ABI/testing/sysfs-firmware-dmi-entries``, os-release(5), localtime(5).
"""

import os

from sysmond.probe import ABSENT, Host, Lane, Probe, Row, Table, Tells, gauge, hookimpl, text

CPUINFO = "/proc/cpuinfo"
KERNEL = "/proc/sys/kernel"
DMI = "/sys/class/dmi/id"
DEVICE_TREE = "/proc/device-tree"
SYSFS_CPU = "/sys/devices/system/cpu"
LOCALTIME = "/etc/localtime"
TIMEZONE = "/etc/timezone"
OS_RELEASES = ("/etc/os-release", "/usr/lib/os-release")
# What architectures call it: x86 and most, MIPS, PowerPC, old ARM, RISC-V.
MODEL_KEYS = ("model name", "cpu model", "cpu", "Processor", "uarch")

HOST = Table(
    "host",
    doc="The machine, its kernel and its settings.",
    metrics=(
        text("cpu_model", "Name of the processor.", f"{CPUINFO} model name"),
        text("kernel", "Release of the kernel.", f"{KERNEL}/osrelease"),
        text("kernel_version", "Build of the kernel: number, options and date.", f"{KERNEL}/version"),
        text("command_line", "The kernel's command line.", "/proc/cmdline"),
        text("architecture", "Instruction set of the kernel, such as x86_64.", f"{KERNEL}/arch"),
        text("hostname", "Name of the machine.", f"{KERNEL}/hostname"),
        text("timezone", "Time zone of the machine, such as Europe/Paris.", f"{LOCALTIME}, else {TIMEZONE}"),
        text("distribution", "Name and version of the distribution.", f"{OS_RELEASES[0]} PRETTY_NAME"),
        text("vendor", "Maker of the machine.", f"{DMI}/sys_vendor"),
        text("product", "Model of the machine.", f"{DMI}/product_name, else {DEVICE_TREE}/model"),
        text("firmware", "Version of the machine's firmware.", f"{DMI}/bios_version"),
        gauge("memory", "B", "Usable memory.", origin="/proc/meminfo MemTotal"),
        gauge("cpus", "1", "CPUs that are online.", origin=f"{SYSFS_CPU}/online"),
        gauge("cpus_present", "1", "CPUs present, online or not.", origin=f"{SYSFS_CPU}/present"),
        gauge("cores", "1", "Processor cores online.", origin=f"{SYSFS_CPU}/*/topology/thread_siblings_list"),
        gauge("sockets", "1", "Processor packages online.", origin=f"{SYSFS_CPU}/*/topology/physical_package_id"),
        gauge("page_size", "B", "Size of a page of memory.", origin="sysconf(_SC_PAGESIZE)"),
        gauge("user_hz", "Hz", "Resolution of the kernel's CPU times.", origin="sysconf(_SC_CLK_TCK)"),
    ),
)


def parse_cpu_model(cpuinfo: str) -> str:
    """Give the first processor's name; where there is none, as on ARM, the numbers that stand for it; or nothing."""
    first: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            first.setdefault(key.strip(), value.strip())
    for key in MODEL_KEYS:
        if first.get(key):
            return first[key]
    if "CPU part" in first:
        return f"ARM implementer {first.get('CPU implementer', '?')} part {first['CPU part']}"
    return ""


def parse_cpu_list(ranges: str) -> list[int]:
    """Give the CPUs of ``0-3,8``."""
    cpus: list[int] = []
    for part in ranges.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus += range(int(first), int(last or first) + 1)
    return cpus


def parse_distribution(os_release: str) -> str:
    """Give PRETTY_NAME, or nothing."""
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return ""


def _content(host: Host, *paths: str) -> str:
    """Read the first of these files that exists, else nothing. None stays open: most can be replaced."""
    for path in paths:
        try:
            content = host.read_anew(path)
        except OSError:
            continue
        return content.decode("utf-8", "replace").strip("\0 \t\r\n")
    return ""


def _timezone(host: Host) -> str:
    try:
        _, zoneinfo, zone = os.readlink(host.root + LOCALTIME).partition("zoneinfo/")
    except OSError:
        return _content(host, TIMEZONE)
    return zone if zoneinfo else _content(host, TIMEZONE)


def _architecture(host: Host) -> str:
    # Kernels before 6.1 have no such file; uname(2) says nothing about a copied tree.
    return _content(host, f"{KERNEL}/arch") or ("" if host.root else os.uname().machine)


def _total_memory(meminfo: str) -> int:
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return ABSENT


def _count_distinct(host: Host, cpus: list[int], path: str) -> int:
    values = {_content(host, f"{SYSFS_CPU}/cpu{cpu}/topology/{path}") for cpu in cpus} - {""}
    return len(values) or ABSENT


def read(host: Host) -> list[Row]:
    """Read the one row of the machine.

    :raises OSError: when there is no /proc.
    """
    memory = _total_memory(host.read_anew("/proc/meminfo").decode())
    online = parse_cpu_list(_content(host, f"{SYSFS_CPU}/online"))
    texts = (
        parse_cpu_model(_content(host, CPUINFO)),
        _content(host, f"{KERNEL}/osrelease"),
        _content(host, f"{KERNEL}/version"),
        _content(host, "/proc/cmdline"),
        _architecture(host),
        _content(host, f"{KERNEL}/hostname"),
        _timezone(host),
        parse_distribution(_content(host, *OS_RELEASES)),
        _content(host, f"{DMI}/sys_vendor"),
        _content(host, f"{DMI}/product_name", f"{DEVICE_TREE}/model"),
        _content(host, f"{DMI}/bios_version"),
    )
    numbers = (
        memory,
        len(online) or ABSENT,
        len(parse_cpu_list(_content(host, f"{SYSFS_CPU}/present"))) or ABSENT,
        _count_distinct(host, online, "thread_siblings_list"),
        _count_distinct(host, online, "physical_package_id"),
        os.sysconf("SC_PAGESIZE"),
        os.sysconf("SC_CLK_TCK"),
    )
    return [("", (*(word or ABSENT for word in texts), *numbers))]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``host``."""
    tells = (Tells("setting", "hostname"), Tells("setting", "timezone"))
    return [Probe(HOST, read, interval_s=60.0, lane=Lane.BACKGROUND, tells=tells)]
