# SPDX-License-Identifier: Apache-2.0
"""Control groups, values that change slowly or are expensive to read: kinds of memory, events, NUMA nodes, and limits.

Sources: ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/memory.rst``. For one reading the kernel sums
memory.stat over all CPUs and all cgroups below.
"""

import os
from collections.abc import Callable, Iterator, Mapping

from sysmond.cgroups.batch import Group
from sysmond.cgroups.files import CgroupFiles, File, settled
from sysmond.cgroups.oom_kills import KillCounts, OomKills
from sysmond.probe import ABSENT, Host, Lane, Option, Probe, Row, Table, counter, gauge, hookimpl, state, text

LIMIT = 4096
MEMORY_S = 120.0
NUMA_S = 60.0
LIMITS_S = 300.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Version 1 says 2**63 less a page where there is no limit; no machine has a quarter of that.
UNLIMITED = 2**61

_ID = state(
    "id",
    "The cgroup's unique number: a different number under the same name is a different cgroup.",
    "inode of its folder",
)

# Name, sentence, and the name in version 1's memory.stat, there with all below as total_….
_STAT_GAUGES = (
    ("anon", "Anonymous memory: heaps, stacks.", "rss"),
    ("file", "Page cache, tmpfs and shared memory included.", "cache"),
    ("kernel", "Kernel memory of all kinds.", ""),
    ("kernel_stack", "Kernel stacks of its tasks.", ""),
    ("pagetables", "Page tables.", ""),
    ("percpu", "Memory that the kernel keeps for each CPU.", ""),
    ("sock", "Buffers of sockets.", ""),
    ("shmem", "tmpfs and shared memory.", "shmem"),
    ("zswapped", "Memory that is swapped into compressed memory, before compression.", ""),
    ("file_mapped", "Page cache that is mapped.", "mapped_file"),
    ("file_dirty", "Page cache that is still to be written.", "dirty"),
    ("file_writeback", "Page cache that is being written.", "writeback"),
    ("swapcached", "Swapped memory that is also in RAM.", "swapcached"),
    ("anon_thp", "Anonymous memory in huge pages.", "rss_huge"),
    ("file_thp", "Page cache in huge pages.", ""),
    ("shmem_thp", "Shared memory in huge pages.", ""),
    ("inactive_anon", "Anonymous memory that was not used lately.", "inactive_anon"),
    ("active_anon", "Anonymous memory that was used lately.", "active_anon"),
    ("inactive_file", "Page cache that was not used lately.", "inactive_file"),
    ("active_file", "Page cache that was used lately.", "active_file"),
    ("unevictable", "Memory that cannot be reclaimed, such as locked memory.", "unevictable"),
    ("slab_reclaimable", "Kernel objects that can be reclaimed, such as inodes.", ""),
    ("slab_unreclaimable", "Kernel objects that cannot be reclaimed.", ""),
)
_STAT_COUNTERS = (
    ("workingset_refault_anon", "Anonymous pages read back soon after they were swapped.", "workingset_refault_anon"),
    ("workingset_refault_file", "Pages of files read back soon after they were reclaimed.", "workingset_refault_file"),
    ("pgscan", "Pages that reclaim looked at.", ""),
    ("pgsteal", "Pages that reclaim took.", ""),
    ("pgscan_direct", "Pages that tasks had to look at themselves, waiting.", ""),
    ("pgsteal_direct", "Pages that tasks had to reclaim themselves, waiting.", ""),
    ("pgfault", "Page faults.", "pgfault"),
    ("pgmajfault", "Page faults that waited for a device.", "pgmajfault"),
    ("pgrefill", "Pages taken from the active list to be looked at.", ""),
    ("pgactivate", "Pages moved to the active list.", ""),
    ("pgdeactivate", "Pages moved to the inactive list.", ""),
    ("pglazyfreed", "Pages freed that their owner had given up.", ""),
    ("zswpin", "Pages taken from compressed memory.", ""),
    ("zswpout", "Pages put into compressed memory.", ""),
    ("zswpwb", "Pages written from compressed memory to swap.", ""),
    ("thp_fault_alloc", "Huge pages made at a page fault.", ""),
    ("thp_collapse_alloc", "Huge pages made of small ones.", ""),
)
_EVENTS = (
    ("low", "Times it was reclaimed from although below memory.low."),
    ("high", "Times its tasks were held back and made to reclaim, above memory.high."),
    ("max", "Times it was about to exceed memory.max."),
    ("oom", "Times an allocation was about to fail at its limit."),
    ("oom_kill", "Tasks killed for lack of memory, by whatever killer."),
    ("oom_group_kill", "Times all of it was killed for lack of memory."),
)


def _stat_origin(name: str, v1: str) -> str:
    return f"memory.stat {name}" + (f"; v1 total_{v1}" if v1 else "")


MEMORY = Table(
    "cgroup_memory",
    per="cgroup",
    doc="What the memory of each control group, including all groups below it, consists of, and how"
    " often it ran short. Only where the memory controller is enabled. If a cgroup is created"
    " again: see the table cgroup.",
    metrics=(
        _ID,
        gauge("peak", "B", "The most memory charged so far.", 0, "memory.peak; v1 memory.max_usage_in_bytes"),
        gauge("swap", "B", "Memory that is swapped.", 0, "memory.swap.current; v1 memory.stat total_swap"),
        gauge("swap_peak", "B", "The most swap used so far.", 0, "memory.swap.peak"),
        gauge("zswap", "B", "Memory taken by its compressed swap (zswap).", 0, "memory.zswap.current"),
        *(
            counter(
                f"events_{name}",
                "1",
                doc,
                0,
                f"memory.events {name}"
                + {"max": "; v1 memory.failcnt", "oom_kill": "; v1 memory.oom_control"}.get(name, ""),
            )
            for name, doc in _EVENTS
        ),
        *(gauge(name, "B", doc, 0, _stat_origin(name, v1)) for name, doc, v1 in _STAT_GAUGES),
        *(counter(name, "1", doc, 0, _stat_origin(name, v1)) for name, doc, v1 in _STAT_COUNTERS),
        *(
            counter(f"local_events_{name}", "1", f"{doc} Without cgroups below it.", 0, f"memory.events.local {name}")
            for name, doc in _EVENTS
        ),
    ),
)
_STAT = _STAT_GAUGES + _STAT_COUNTERS
_STAT_NAMES = tuple(name.encode() for name, _, _ in _STAT)
_STAT_V1 = tuple(f"total_{v1}".encode() if v1 else b"" for _, _, v1 in _STAT)
_EVENT_NAMES = tuple(name.encode() for name, _ in _EVENTS)


def number(content: bytes) -> tuple[int]:
    """Parse a file of one number; ``max``, or version 1's number for it, means no limit, and is absent."""
    value = ABSENT if content[:3] == b"max" else int(content)
    return (ABSENT if value >= UNLIMITED else value,)


def words(content: bytes) -> dict[bytes, int]:
    """Parse a file of names and numbers."""
    fields = content.split()
    return dict(zip(fields[::2], map(int, fields[1::2]), strict=True))


def _named(names: tuple[bytes, ...]) -> Callable[[bytes], tuple[int, ...]]:
    def parse(content: bytes) -> tuple[int, ...]:
        numbers = words(content)
        return tuple(numbers.get(name, ABSENT) for name in names)

    return parse


# Files with the metric at which their numbers begin; later ones fill columns that earlier ones lack.
_MEMORY_FILES = (
    ("peak", File("", ("memory.peak",), number)),
    ("peak", File("memory", ("memory.max_usage_in_bytes",), number, unless=0)),
    ("swap", File("", ("memory.swap.current",), number)),
    ("swap_peak", File("", ("memory.swap.peak",), number)),
    ("zswap", File("", ("memory.zswap.current",), number)),
    ("events_low", File("", ("memory.events",), _named(_EVENT_NAMES))),
    ("events_max", File("memory", ("memory.failcnt",), number)),
    ("events_oom_kill", File("memory", ("memory.oom_control",), _named((b"oom_kill",)))),
    ("anon", File("", ("memory.stat",), _named(_STAT_NAMES))),
    ("anon", File("memory", ("memory.stat",), _named(_STAT_V1), unless=8)),
    ("swap", File("memory", ("memory.stat",), _named((b"total_swap",)), unless=8)),
    ("local_events_low", File("", ("memory.events.local",), _named(_EVENT_NAMES))),
)

# Those of these that count kills, and which of their numbers does.
_KILL_FILES, _KILLS = (5, 7, 11), _EVENT_NAMES.index(b"oom_kill")
KIND, KERNEL_MESSAGE = "oom kill", "kernel_message"


class Columns:
    """Reads a table whose metrics are numbers or words at fixed places of files of the cgroup."""

    def __init__(self, table: Table, files: tuple[tuple[str, File], ...]) -> None:
        """Read nothing yet."""
        names = [metric.name for metric in table.metrics]
        self.watch = CgroupFiles([file for _, file in files])
        self.groups: list[Group] = []
        self._table = table.name
        self._begins = [names.index(name) for name, _ in files]
        self._counters = tuple(index for index, metric in enumerate(table.metrics) if metric.semantics == "counter")
        self._nothing = [ABSENT] * len(names)

    def read(self, host: Host, *, limit: int = LIMIT) -> Iterator[Row]:
        """Give a row for every cgroup that has one of the files."""
        self.groups = self.watch.read(host, limit)
        self.watch.complain(host, self._table)
        for group in self.groups:
            if group.which:
                yield group.path, settled(self._row(group), self._counters, group.age, ABSENT)

    def _row(self, group: Group) -> list[int]:
        row = list(self._nothing)
        row[0] = group.inode
        for index in group.which:
            begin = self._begins[index]
            if (part := group.parts[index]) is not None:
                row[begin : begin + len(part)] = part
        return row


class Memory(Columns):
    """Reads the table ``cgroup_memory``, and tells of kills where the messages of the kernel do not: they say more."""

    def __init__(self) -> None:
        """Read nothing yet."""
        super().__init__(MEMORY, _MEMORY_FILES)
        self._kills = OomKills()

    def read(self, host: Host, *, limit: int = LIMIT) -> Iterator[Row]:
        """Give a row for every cgroup that has one of the files."""
        yield from super().read(host, limit=limit)
        counted = ((group, kill_counts(group)) for group in self.groups)
        kills = list(self._kills.of({group.path: counts for group, counts in counted if counts is not None}))
        if not host.is_read(KERNEL_MESSAGE):
            for path, said in kills:
                host.tell_event(KIND, path, said)


def kill_counts(group: Group) -> KillCounts | None:
    """How many processes of a cgroup were killed; None where the kernel does not say."""
    events, of_1, local = (group.parts[index] for index in _KILL_FILES)
    if events is not None:
        return KillCounts(group.inode, events[_KILLS], ABSENT if local is None else local[_KILLS])
    return None if of_1 is None else KillCounts(group.inode, of_1[0])


_NUMA = (
    ("anon", "Anonymous memory.", "hierarchical_anon"),
    ("file", "Page cache, tmpfs and shared memory included.", "hierarchical_file"),
    ("unevictable", "Memory that cannot be reclaimed.", "hierarchical_unevictable"),
    ("kernel_stack", "Kernel stacks of its tasks.", ""),
    ("pagetables", "Page tables.", ""),
    ("shmem", "tmpfs and shared memory.", ""),
    ("file_mapped", "Page cache that is mapped.", ""),
    ("file_dirty", "Page cache that is still to be written.", ""),
    ("file_writeback", "Page cache that is being written.", ""),
    ("swapcached", "Swapped memory that is also in RAM.", ""),
    ("anon_thp", "Anonymous memory in huge pages.", ""),
    ("slab_reclaimable", "Kernel objects that can be reclaimed.", ""),
    ("slab_unreclaimable", "Kernel objects that cannot be reclaimed.", ""),
)
NUMA = Table(
    "cgroup_numa",
    per="cgroup:node",
    doc="The NUMA nodes that hold the memory of each control group, including all groups below it; an"
    " instance is PATH:N0.",
    metrics=(
        _ID,
        *(
            gauge(name, "B", doc, 0, f"memory.numa_stat {name}" + (f"; v1 {v1} × page size" if v1 else ""))
            for name, doc, v1 in _NUMA
        ),
    ),
)

Nodes = Mapping[str, tuple[int, ...]]
"""Numbers by node, as ``N0``."""


def numa_stat(content: bytes) -> Nodes:
    """Parse version 2's file, in bytes."""
    return _nodes(content, b" ", tuple(name.encode() for name, _, _ in _NUMA), 1)


def numa_stat_v1(content: bytes) -> Nodes:
    """Parse version 1's file, in pages."""
    return _nodes(content, b"=", tuple(v1.encode() for _, _, v1 in _NUMA), PAGE_BYTES)


def _nodes(content: bytes, separator: bytes, names: tuple[bytes, ...], factor: int) -> Nodes:
    nodes: dict[str, dict[bytes, int]] = {}
    for line in content.splitlines():
        name, _, rest = line.partition(separator)
        for field in rest.split():
            node, is_one, value = field.partition(b"=")
            if is_one:
                nodes.setdefault(node.decode(), {})[name] = int(value) * factor
    return {node: tuple(values.get(name, ABSENT) for name in names) for node, values in nodes.items()}


class Numa:
    """Reads the table ``cgroup_numa``."""

    def __init__(self) -> None:
        """Read nothing yet."""
        files = (
            File("", ("memory.numa_stat",), numa_stat),
            File("memory", ("memory.numa_stat",), numa_stat_v1, unless=0),
        )
        self.watch = CgroupFiles(files)

    def read(self, host: Host, *, limit: int = LIMIT) -> Iterator[Row]:
        """Give a row for every cgroup and node."""
        groups = self.watch.read(host, limit)
        self.watch.complain(host, NUMA.name)
        for group in groups:
            for index in group.which:
                for node, values in (group.parts[index] or {}).items():
                    yield f"{group.path}:{node}", (group.inode, *values)


LIMITS = Table(
    "cgroup_limits",
    per="cgroup",
    doc="The limits of each control group, what is protected for it, and its share when there is not"
    " enough for all. A limit that is not set is absent. Only for controllers that are enabled.",
    metrics=(
        _ID,
        gauge("cpu_quota", "s", "CPU time that it may use in each period.", 6, "cpu.max 1; v1 cpu.cfs_quota_us"),
        gauge("cpu_period", "s", "Length of that period.", 6, "cpu.max 2; v1 cpu.cfs_period_us"),
        gauge("cpu_weight", "1", "Its share of CPU time relative to its siblings, 100 by default.", 0, "cpu.weight"),
        gauge("cpu_shares", "1", "The same in version 1, 1024 by default.", 0, "v1 cpu.shares"),
        gauge("memory_max", "B", "Hard limit: more is never charged.", 0, "memory.max; v1 memory.limit_in_bytes"),
        gauge(
            "memory_high", "B", "Above this, its tasks are slowed down and have to reclaim memory.", 0, "memory.high"
        ),
        gauge("memory_low", "B", "Below this, memory is reclaimed from others first.", 0, "memory.low"),
        gauge("memory_min", "B", "Below this, none of its memory is reclaimed.", 0, "memory.min"),
        gauge("memory_soft", "B", "Above this, its memory is reclaimed first.", 0, "v1 memory.soft_limit_in_bytes"),
        gauge("swap_max", "B", "More is never swapped.", 0, "memory.swap.max"),
        gauge("zswap_max", "B", "More is never put into compressed swap (zswap).", 0, "memory.zswap.max"),
        gauge("memory_and_swap_max", "B", "More of both is never charged.", 0, "v1 memory.memsw.limit_in_bytes"),
        gauge("pids_max", "1", "Upper limit of tasks.", 0, "pids.max"),
        gauge("pids_peak", "1", "The most tasks so far.", 0, "pids.peak"),
        counter("pids_failures", "1", "Tasks that could not be created because of that limit.", 0, "pids.events max"),
        gauge("io_weight", "1", "Its share of device time relative to its siblings.", 0, "io.weight; v1 blkio.weight"),
        state("frozen", "0: it runs; 1: it is frozen, or about to be.", "cgroup.freeze"),
        text("cpus", "CPUs it may run on.", "cpuset.cpus.effective; v1 cpuset.effective_cpus"),
        text("nodes", "Memory nodes it may use.", "cpuset.mems.effective; v1 cpuset.effective_mems"),
        text("controllers", "Controllers enabled for it.", "cgroup.controllers"),
        state("oom_group", "When memory runs out: 0 one of its tasks is killed, 1 all of them.", "memory.oom.group"),
        state(
            "zswap_writeback",
            "0 if none of its memory may be written to swap devices from zswap, 1 if it may; a 0 in a"
            " group above it applies, too.",
            "memory.zswap.writeback",
        ),
    ),
)


def cpu_max(content: bytes) -> tuple[int, int]:
    """Give quota and period in µs; the quota is absent where there is none."""
    quota, period = content.split()
    return (ABSENT if quota == b"max" else int(quota)), int(period)


def cfs_quota(content: bytes) -> tuple[int]:
    """Give the quota in µs; -1 is none."""
    return (ABSENT if content[:1] == b"-" else int(content),)


def io_weight(content: bytes) -> tuple[int]:
    """Give the default weight; those of single devices follow it. BFQ and version 1 may write it without 'default'."""
    fields = content.split()
    return (int(fields[fields[0] == b"default"]),)


def word(content: bytes) -> tuple[str | int]:
    """Give a text; an empty one is absent."""
    return (content.decode("ascii", "replace").strip() or ABSENT,)


_LIMIT_FILES = (
    ("cpu_quota", File("", ("cpu.max",), cpu_max)),
    ("cpu_quota", File("cpu", ("cpu.cfs_quota_us",), cfs_quota, unless=0)),
    ("cpu_period", File("cpu", ("cpu.cfs_period_us",), number, unless=0)),
    ("cpu_weight", File("", ("cpu.weight",), number)),
    ("cpu_shares", File("cpu", ("cpu.shares",), number)),
    ("memory_max", File("", ("memory.max",), number)),
    ("memory_max", File("memory", ("memory.limit_in_bytes",), number, unless=5)),
    ("memory_high", File("", ("memory.high",), number)),
    ("memory_low", File("", ("memory.low",), number)),
    ("memory_min", File("", ("memory.min",), number)),
    ("memory_soft", File("memory", ("memory.soft_limit_in_bytes",), number)),
    ("swap_max", File("", ("memory.swap.max",), number)),
    ("zswap_max", File("", ("memory.zswap.max",), number)),
    ("memory_and_swap_max", File("memory", ("memory.memsw.limit_in_bytes",), number)),
    ("pids_max", File("", ("pids.max",), number)),
    ("pids_max", File("pids", ("pids.max",), number, unless=14)),
    ("pids_peak", File("", ("pids.peak",), number)),
    ("pids_peak", File("pids", ("pids.peak",), number, unless=16)),
    ("pids_failures", File("", ("pids.events",), _named((b"max",)))),
    ("pids_failures", File("pids", ("pids.events",), _named((b"max",)), unless=18)),
    ("io_weight", File("", ("io.weight", "io.bfq.weight"), io_weight)),
    ("io_weight", File("blkio", ("blkio.weight", "blkio.bfq.weight"), io_weight, unless=20)),
    ("frozen", File("", ("cgroup.freeze",), number)),
    ("cpus", File("", ("cpuset.cpus.effective",), word)),
    ("cpus", File("cpuset", ("cpuset.effective_cpus",), word, unless=23)),
    ("nodes", File("", ("cpuset.mems.effective",), word)),
    ("nodes", File("cpuset", ("cpuset.effective_mems",), word, unless=25)),
    ("controllers", File("", ("cgroup.controllers",), word)),
    ("oom_group", File("", ("memory.oom.group",), number)),
    ("zswap_writeback", File("", ("memory.zswap.writeback",), number)),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``cgroup_memory``, ``cgroup_limits`` and ``cgroup_numa``.

    The last is off: where there is one node, it says what the first does, and the kernel sums it for every node.
    """
    limit = Option("limit", LIMIT, "The most cgroups recorded; those nearest to / come first.", low=1, high=32768)
    slow = Lane.BACKGROUND
    return [
        Probe(MEMORY, Memory().read, MEMORY_S, slow, options=(limit,), told_kinds=(KIND,)),
        Probe(NUMA, Numa().read, NUMA_S, slow, options=(limit,), enabled=False),
        Probe(LIMITS, Columns(LIMITS, _LIMIT_FILES).read, LIMITS_S, slow, options=(limit,)),
    ]
