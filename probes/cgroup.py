# SPDX-License-Identifier: Apache-2.0
"""Control groups: how much CPU, memory, tasks and devices each uses, how long it waits, and who owns it.

Sources: ``Documentation/admin-guide/cgroup-v2.rst``, ``cgroup-v1/`` and ``accounting/psi.rst``. Hierarchies of
version 1 that stand beside version 2 fill the same columns. ``docs/design/0004-cgroups.md`` says how a cgroup made
again under its old name is told from the one before.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from sysmond.cgroups.batch import Group
from sysmond.cgroups.files import CgroupFiles, File, Role, settled
from sysmond.cgroups.owner import owner
from sysmond.cgroups.tree import Forest
from sysmond.probe import ABSENT, Host, Lane, Metric, Option, Probe, Row, Table, counter, gauge, hookimpl, state, text

LIMIT = 4096
DESCRIPTORS = 8192
# A ring has room for about a thousand different texts of all tables together.
OWNERS = 256
# A second would cost some three times as much processor time, and the archive more than twice the bytes.
FAST_S = 5.0
TREE_S = 60.0
OWNER_S = 300.0

USER_HZ = os.sysconf("SC_CLK_TCK")
MICRO = 1_000_000

_ID = state(
    "id",
    "The cgroup's unique number: a different number under the same name is a different cgroup.",
    "inode of its folder",
)


def _pressure(resource: str) -> tuple[Metric, ...]:
    origin = f"{resource}.pressure"
    return tuple(
        metric
        for kind, whom in (("some", "at least one task"), ("full", "all tasks"))
        for metric in (
            counter(
                f"{resource}_{kind}_total", "s", f"Time in which {whom} waited for {resource}.", 6, f"{origin} {kind}"
            ),
            gauge(
                f"{resource}_{kind}_avg10",
                "%",
                f"Share of the last 10 s in which {whom} waited.",
                2,
                f"{origin} {kind}",
            ),
        )
    )


CGROUP = Table(
    "cgroup",
    per="cgroup",
    doc="What each control group uses, including all groups below it; / is everything that is"
    " visible. The counters of a cgroup that is created again under its old name start again from"
    " 0.",
    metrics=(
        _ID,
        counter("cpu_usage", "s", "CPU time used.", 6, "cpu.stat usage_usec; v1 cpuacct.usage"),
        counter("cpu_user", "s", "CPU time used in user mode.", 6, "cpu.stat user_usec; v1 cpuacct.stat user"),
        counter("cpu_system", "s", "CPU time used in the kernel.", 6, "cpu.stat system_usec; v1 cpuacct.stat system"),
        counter("cpu_periods", "1", "Periods in which a CPU time limit was in force.", 0, "cpu.stat nr_periods"),
        counter("cpu_throttled_periods", "1", "Periods in which that limit was reached.", 0, "cpu.stat nr_throttled"),
        counter(
            "cpu_throttled",
            "s",
            "Time for which tasks were held back by that limit, summed over CPUs.",
            6,
            "cpu.stat throttled_usec; v1 throttled_time",
        ),
        gauge("memory_used", "B", "Memory charged to it.", 0, "memory.current; v1 memory.usage_in_bytes"),
        gauge("pids", "1", "Tasks, threads counted.", 0, "pids.current"),
        *_pressure("cpu"),
        *_pressure("memory"),
        *_pressure("io"),
    ),
)
_WIDTH = len(CGROUP.metrics) - 1


def number(content: bytes) -> tuple[int]:
    """Parse a file of one number; ``max`` means no limit, and is absent."""
    return (ABSENT if content[:3] == b"max" else int(content),)


def cpu_stat(content: bytes) -> tuple[int, ...]:
    """Give usage, user, system, periods, throttled periods and throttled time; without a limit only the first three."""
    values = dict(zip(*[iter(content.split())] * 2, strict=True))
    return tuple([int(values.get(name, ABSENT)) for name in _CPU_STAT])


_CPU_STAT = (b"usage_usec", b"user_usec", b"system_usec", b"nr_periods", b"nr_throttled", b"throttled_usec")


def cpuacct_usage(content: bytes) -> tuple[int]:
    """Give CPU time in µs; version 1 has it in ns."""
    return (int(content) // 1000,)


def cpuacct_stat(content: bytes) -> tuple[int, int]:
    """Give user and system time in µs; version 1 has them in ticks."""
    words = content.split()
    values = dict(zip(words[::2], words[1::2], strict=True))
    return int(values[b"user"]) * MICRO // USER_HZ, int(values[b"system"]) * MICRO // USER_HZ


def cpu_stat_v1(content: bytes) -> tuple[int, int, int]:
    """Give periods, throttled periods and throttled time in µs; version 1 has it in ns."""
    words = content.split()
    values = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    return values[b"nr_periods"], values[b"nr_throttled"], values[b"throttled_time"] // 1000


def pressure(content: bytes) -> tuple[int, ...]:
    """Give total and average of some and of full; either line may be missing.

    :raises ValueError: where a line is not of the form ``some avg10=2.25 avg60=0.85 avg300=0.24 total=3653689``.
    """
    values = {b"some": (ABSENT, ABSENT), b"full": (ABSENT, ABSENT)}
    for line in content.splitlines():
        kind, avg10, _, _, total = line.split()
        if avg10[-3:-2] != b"." or avg10[:6] != b"avg10=" or total[:6] != b"total=":
            raise ValueError(f"pressure: {line[:80]!r}; avg10=0.00 avg60=0.00 avg300=0.00 total=0 is the expected form")
        values[kind] = int(total[6:]), int(avg10[6:-3] + avg10[-2:])
    return *values[b"some"], *values[b"full"]


def is_calm(part: tuple[int, ...]) -> bool:
    """Pressure is at rest where its averages have come down."""
    return part[1] <= 0 and part[3] <= 0


# Each with the column at which its numbers begin. Later ones fill columns that earlier ones lack.
_FILES = (
    (0, File("", ("cpu.stat",), cpu_stat, is_sum=True, role=Role.LEADER)),
    (0, File("cpuacct", ("cpuacct.usage",), cpuacct_usage, 0, is_sum=True, role=Role.LEADER)),
    (1, File("cpuacct", ("cpuacct.stat",), cpuacct_stat, 0, is_sum=True)),
    (3, File("cpu", ("cpu.stat",), cpu_stat_v1, role=Role.FOLLOWER)),
    (6, File("", ("memory.current",), number)),
    (6, File("memory", ("memory.usage_in_bytes",), number, 4)),
    (7, File("", ("pids.current",), number, role=Role.FOLLOWER)),
    (7, File("pids", ("pids.current",), number, 6, role=Role.FOLLOWER)),
    (8, File("", ("cpu.pressure",), pressure, is_at_rest=is_calm, is_sum=True, role=Role.FOLLOWER)),
    (12, File("", ("memory.pressure",), pressure, is_at_rest=is_calm, is_sum=True, role=Role.FOLLOWER)),
    (16, File("", ("io.pressure",), pressure, is_at_rest=is_calm, is_sum=True, role=Role.FOLLOWER)),
)
_CONTROLLERS = frozenset(("blkio", *(file.controller for _, file in _FILES)))


def counters(table: Table) -> tuple[int, ...]:
    """Indexes of the columns of a table that are counters."""
    return tuple(index for index, metric in enumerate(table.metrics) if metric.semantics == "counter")


class Cgroups:
    """Reads the table ``cgroup``; a cgroup whose files are as a tick ago keeps its row."""

    def __init__(self) -> None:
        """Know no cgroup yet."""
        self.watch = CgroupFiles([file for _, file in _FILES])
        self._begins = [begin for begin, _ in _FILES]
        self._counters = counters(CGROUP)
        self._groups: list[Group] = []
        self._rows: dict[str, list[int]] = {}

    def read(self, host: Host, *, limit: int = LIMIT, descriptors: int = DESCRIPTORS) -> Iterator[Row]:
        """Give a row for every cgroup."""
        groups = self.watch.read(host, limit, descriptors)
        self.watch.complain(host, CGROUP.name)
        if groups is not self._groups:
            before, self._groups = self._rows, groups
            self._rows = {group.path: before.get(group.path) or self._row(group) for group in groups}
        rows = self._rows
        for group in self.watch.changed:
            rows[group.path] = self._row(group)
        fallen = {
            group.path: settled(rows[group.path], self._counters, group.age, ABSENT)
            for group in self.watch.young
            if group.age is not None and group.age <= 1 and group.path in rows
        }
        return iter({**rows, **fallen}.items() if fallen else rows.items())

    def _row(self, group: Group) -> list[int]:
        row = [group.inode, *[ABSENT] * _WIDTH]
        parts = group.parts
        for index in group.which:
            begin = self._begins[index] + 1
            if (part := parts[index]) is not None:
                row[begin : begin + len(part)] = part
        return row


IO = Table(
    "cgroup_io",
    per="cgroup:device",
    doc="What each control group, including all groups below it, transferred to and from each block"
    " device; an instance is PATH:DEVICE, such as /system.slice/ssh.service:sda. Only where the"
    " io (v1: blkio) controller is enabled. Costs are those of the io.cost controller. If a"
    " cgroup is created again: see the table cgroup.",
    metrics=(
        _ID,
        counter("read_bytes", "B", "Bytes read.", 0, "io.stat rbytes; v1 blkio.throttle.io_service_bytes Read"),
        counter("written_bytes", "B", "Bytes written.", 0, "io.stat wbytes; v1 blkio.throttle.io_service_bytes Write"),
        counter("discarded_bytes", "B", "Bytes discarded.", 0, "io.stat dbytes; v1 … Discard"),
        counter("reads", "1", "Reads.", 0, "io.stat rios; v1 blkio.throttle.io_serviced Read"),
        counter("writes", "1", "Writes.", 0, "io.stat wios; v1 blkio.throttle.io_serviced Write"),
        counter("discards", "1", "Discards.", 0, "io.stat dios; v1 … Discard"),
        counter("cost_usage", "s", "Device time it was charged for.", 6, "io.stat cost.usage"),
        counter("cost_wait", "s", "Time in which its requests waited for budget.", 6, "io.stat cost.wait"),
        counter("cost_indebt", "s", "Time in which it owed device time.", 6, "io.stat cost.indebt"),
        counter(
            "cost_indelay", "s", "Time in which it was slowed down because of that debt.", 6, "io.stat cost.indelay"
        ),
        gauge("cost_vrate", "%", "Pace of the device's budget, for / only.", 2, "io.stat cost.vrate"),
    ),
)
_IO_NAMES = (
    *(b"rbytes", b"wbytes", b"dbytes", b"rios", b"wios", b"dios"),
    *(b"cost.usage", b"cost.wait", b"cost.indebt", b"cost.indelay"),
)
_V1_KINDS = (b"Read", b"Write", b"Discard")

Devices = dict[str, tuple[int, ...]]
"""Numbers by device, as ``8:0``."""


def io_stat(content: bytes) -> Devices:
    """Parse io.stat; a device without numbers, as some kernels list them, is left out."""
    devices: Devices = {}
    for line in content.splitlines():
        device, *fields = line.split()
        values = dict(field.split(b"=", 1) for field in fields)
        if values:
            vrate = values.pop(b"cost.vrate", b"")
            numbers = tuple(int(values[name]) if name in values else ABSENT for name in _IO_NAMES)
            devices[_device(device)] = *numbers, int(vrate.replace(b".", b"")) if vrate else ABSENT
    return devices


def _device(number: bytes) -> str:
    """The number of a device, as ``8:0``.

    :raises ValueError: where it is none.
    """
    major, _, minor = number.partition(b":")
    if not (major.isdigit() and minor.isdigit()):
        raise ValueError(f"device {number[:80]!r}; expected major:minor, such as 8:0")
    return number.decode()


def blkio(content: bytes) -> Devices:
    """Parse one of version 1's files: reads, writes and discards by device."""
    devices: dict[str, dict[bytes, int]] = {}
    for line in content.splitlines():
        words = line.split()
        if len(words) == 3:  # noqa: PLR2004  The last line is a sum of two words.
            devices.setdefault(_device(words[0]), {})[words[1]] = int(words[2])
    return {device: tuple(kinds.get(kind, ABSENT) for kind in _V1_KINDS) for device, kinds in devices.items()}


def _device_names(root: str, devices: set[str]) -> dict[str, str]:
    """Give the names of devices at present; a device without a name keeps its number."""
    names = {}
    for device in devices:
        try:
            names[device] = os.path.basename(os.readlink(f"{root}/sys/dev/block/{device}")).replace("!", "/")
        except OSError:
            names[device] = device
    return names


class CgroupIo:
    """Reads the table ``cgroup_io``."""

    FILES = (
        File("", ("io.stat",), io_stat, is_sum=True),
        File("blkio", ("blkio.throttle.io_service_bytes_recursive",), blkio, is_sum=True),
        File("blkio", ("blkio.throttle.io_serviced_recursive",), blkio, is_sum=True),
        File("blkio", ("blkio.throttle.io_service_bytes",), blkio, 1),
        File("blkio", ("blkio.throttle.io_serviced",), blkio, 2),
    )

    def __init__(self) -> None:
        """Know no cgroup yet."""
        self.watch = CgroupFiles(self.FILES)
        self._counters = counters(IO)
        self._groups: list[Group] = []
        self._devices: dict[Group, Devices] = {}
        # The age at which a cgroup made again first used each device, which may be late.
        self._since: dict[Group, dict[str, int]] = {}

    def read(self, host: Host, *, limit: int = LIMIT, descriptors: int = LIMIT) -> Iterator[Row]:
        """Give a row for every cgroup and device that it used."""
        groups = self.watch.read(host, limit, descriptors)
        self.watch.complain(host, IO.name)
        if groups is not self._groups:
            before, self._groups = self._devices, groups
            self._devices = {group: before.get(group, {}) for group in groups}
        for group in self.watch.changed:
            self._devices[group] = _joined(group.parts)
        used = {group: devices for group, devices in self._devices.items() if devices}
        names = _device_names(host.root, {device for devices in used.values() for device in devices})
        self._since = {group: self._since.get(group, {}) for group in self.watch.young}
        for group, devices in used.items():
            since = None
            if group.age is not None:
                since = {} if group.age == 0 else self._since[group]
                self._since[group] = since
            for device, values in devices.items():
                row = (group.inode, *values)
                age = None if since is None or group.age is None else group.age - since.setdefault(device, group.age)
                name = f"{group.path}:{names[device]}"
                yield name, row if age is None or age > 1 else settled(row, self._counters, age, ABSENT)


def _joined(parts: Sequence[Devices | None]) -> Devices:
    """Join the two files of version 1; old kernels lack those that include all cgroups below."""
    whole, moved, served, own_moved, own_served = parts
    if whole is not None:
        return whole
    none = (ABSENT,) * 3
    moved, served = moved or own_moved or {}, served or own_served or {}
    return {
        device: (*moved.get(device, none), *served.get(device, none), *[ABSENT] * 5)
        for device in dict.fromkeys([*moved, *served])
    }


TREE = Table(
    "cgroup_tree",
    doc="How many control groups there are, and how many the limit leaves out.",
    metrics=(
        gauge("cgroups", "1", "Cgroups that are recorded, including /.", 0, "folders"),
        gauge("left_out", "1", "Cgroups that the limit leaves out, not counting those below them.", 0, "folders"),
        gauge("dying", "1", "Cgroups that were removed and that the kernel cannot free yet.", 0, "cgroup.stat"),
        text("hierarchies", "What is mounted: cgroup2, and the controllers of version 1.", "mountinfo"),
    ),
)


class CgroupTree:
    """Reads the table ``cgroup_tree``."""

    def __init__(self) -> None:
        """Know no cgroup yet."""
        self._forest = Forest(_CONTROLLERS)

    def read(self, host: Host, *, limit: int = LIMIT) -> Iterator[Row]:
        """Give the one row."""
        forest = self._forest
        forest.look(host, limit)
        dying = ABSENT
        for hierarchy in forest.mounted:
            if not hierarchy.controllers:
                words = _words(host, f"{hierarchy.point}/cgroup.stat")
                with suppress(ValueError):
                    dying = int(words.get(b"nr_dying_descendants", ABSENT))
        mounted = " ".join(",".join(mount.controllers) or "cgroup2" for mount in forest.mounted)
        yield "", (len(forest.groups), forest.left_out, dying, mounted)


def _words(host: Host, path: str) -> dict[bytes, bytes]:
    try:
        words = host.read(path).split()
    except OSError:
        return {}
    return dict(zip(words[::2], words[1::2], strict=False))


OWNER = Table(
    "cgroup_owner",
    per="cgroup",
    doc="What each control group belongs to, according to its path: the cgroups of containers, units"
    " and sessions, but not those below them.",
    metrics=(
        _ID,
        text("runtime", "docker, containerd, cri-o, podman, lxc or nspawn; oci if unknown.", "path"),
        text("container", "Id or name of the container.", "path"),
        text("pod", "UID of the Kubernetes pod.", "path"),
        text("unit", "The systemd unit.", "path"),
        text("user_unit", "The unit of the user's systemd.", "path"),
        text("slice", "The systemd slice.", "path"),
        text("session", "The logind session.", "path"),
    ),
)


class Owners:
    """Reads the table ``cgroup_owner``."""

    def __init__(self) -> None:
        """Know no cgroup yet."""
        self._forest = Forest(_CONTROLLERS)

    def read(self, host: Host, *, limit: int = OWNERS) -> Iterator[Row]:
        """Give a row for every cgroup that has another owner than its parent."""
        self._forest.look(host, LIMIT, is_suspect=True)
        left = limit
        for path, inodes in self._forest.groups.items():
            whose = owner(path)
            if left and any(whose) and whose != owner(path.rpartition("/")[0]):
                left -= 1
                yield path, (next(filter(None, inodes)), *(word or ABSENT for word in whose))


_LIMIT = Option("limit", LIMIT, "The most cgroups recorded; those nearest to / come first.", low=1, high=32768)


def _descriptors(default: int) -> Option:
    doc = "How many files are kept open at most. Without, reading costs three times as much; each takes 4.8 kB of RAM."
    return Option("descriptors", default, doc, low=0, high=30000)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``cgroup``, ``cgroup_io``, ``cgroup_tree`` and ``cgroup_owner``."""
    slow = Lane.BACKGROUND
    owners = Option("limit", OWNERS, "The most cgroups recorded: a ring holds about 1000 texts.", low=1, high=1000)
    return [
        Probe(CGROUP, Cgroups().read, FAST_S, slow, options=(_LIMIT, _descriptors(DESCRIPTORS))),
        Probe(IO, CgroupIo().read, FAST_S, slow, options=(_LIMIT, _descriptors(LIMIT))),
        Probe(TREE, CgroupTree().read, TREE_S, slow, options=(_LIMIT,)),
        Probe(OWNER, Owners().read, OWNER_S, slow, options=(owners,)),
    ]
