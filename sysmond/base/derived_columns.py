# SPDX-License-Identifier: Apache-2.0
"""The derived columns of tables: those that a table declares, and of the tables that come with sysmond these.

They are what sar, iostat -x, free, df, vmstat and pidstat show beside what the kernel counts. Every reader knows them,
whatever a file says: rings do not say it, and files of before did not. Standard library only.
"""

from collections.abc import Mapping

from sysmond.base import formula
from sysmond.base.formula import Formula
from sysmond.base.model import END, START, Derived, Metric, Semantics, Table

_TIMES = "user + nice + system + idle + iowait + irq + softirq + steal"


def _share(name: str, times: str, doc: str) -> Derived:
    return Derived(f"{name}_percent", "%", f"({times}) / ({_TIMES}) * 100", doc)


def _stalled(kind: str, doc: str, of: str = "") -> Derived:
    return Derived(f"{of}{kind}_percent", "%", f"{of}{kind}_total * 100", doc)


_CPU_PERCENT = Derived("cpu_percent", "%", "cpu * 100", "CPU time, as a percentage of one CPU.")
_OF_TASKS = (
    _CPU_PERCENT,
    Derived("user_percent", "%", "user * 100", "CPU time in user mode, as a percentage of one CPU."),
    Derived("system_percent", "%", "system * 100", "CPU time in the kernel, as a percentage of one CPU."),
    Derived("wait_percent", "%", "run_delay * 100", "Share of time for which it waited for a CPU."),
)

KNOWN: Mapping[str, tuple[Derived, ...]] = {
    "cpu": (
        Derived(
            "busy",
            "%",
            f"(user + nice + system + irq + softirq + steal) / ({_TIMES}) * 100",
            "Share of the time in which it was busy; for total, of all CPUs together.",
        ),
        _share("user", "user", "Share of time in user mode."),
        _share("nice", "nice", "Share of time in user mode at lowered priority."),
        _share("system", "system", "Share of time in the kernel, without interrupts."),
        _share("iowait", "iowait", "Share of time idle, while tasks waited for disk I/O."),
        _share("irq", "irq + softirq", "Share of time serving interrupts, hard and soft."),
        _share("hardirq", "irq", "Share of time serving hardware interrupts (mpstat %irq)."),
        _share("softirq", "softirq", "Share of time serving soft interrupts (mpstat %soft)."),
        _share("guest", "guest", "Share of time running virtual CPUs; included in user."),
        _share("guest_nice", "guest_nice", "Share of time running virtual CPUs at lowered priority; included in nice."),
        _share("user_without_guest", "user - guest", "Share of time in user mode, without guests (mpstat %usr)."),
        _share("nice_without_guest", "nice - guest_nice", "The same at lowered priority (mpstat %nice)."),
        _share("steal", "steal", "Share of time in which the hypervisor ran something else."),
        _share("idle", "idle", "Share of time with nothing to do."),
    ),
    "memory": (
        Derived("used", "B", "total - available", "Memory that is not available without swapping, as shown by free."),
        Derived("used_percent", "%", "(total - available) / total * 100", "Share of memory that is used."),
        Derived("buffers_and_cache", "B", "buffers + cached + slab_reclaimable", "What free shows as buff/cache."),
        Derived(
            "committed_percent",
            "%",
            "committed / (total + swap_total) * 100",
            "Memory promised to programs, as a share of memory and swap.",
        ),
        Derived("swap_used", "B", "swap_total - swap_free", "Swap space in use."),
        Derived("swap_used_percent", "%", "(swap_total - swap_free) / swap_total * 100", "Share of swap in use."),
        Derived(
            "swap_cached_percent",
            "%",
            "swap_cached / (swap_total - swap_free) * 100",
            "Share of the swap in use that is also in memory (sar %swpcad).",
        ),
        Derived("cache", "B", "cached + slab_reclaimable", "Page cache and slab that can be reclaimed (vmstat cache)."),
        Derived(
            "huge_pages_used", "1", "huge_pages_total - huge_pages_free", "Huge pages of the pool that are allocated."
        ),
        Derived(
            "huge_pages_used_percent",
            "%",
            "(huge_pages_total - huge_pages_free) / huge_pages_total * 100",
            "Share of the pool of huge pages that is allocated (sar %hugused).",
        ),
    ),
    "disk": (
        Derived("utilization", "%", "io_time * 100", "Share of time with a request in flight (iostat %util)."),
        Derived("queue_length", "1", "weighted_io_time", "Requests in flight on average (iostat aqu-sz)."),
        Derived("await", "s", "(read_time + write_time) / (reads + writes)", "How long a read or a write took."),
        Derived("read_await", "s", "read_time / reads", "How long a read took (iostat r_await)."),
        Derived("write_await", "s", "write_time / writes", "How long a write took (iostat w_await)."),
        Derived("discard_await", "s", "discard_time / discards", "How long a discard took (iostat d_await)."),
        Derived("flush_await", "s", "flush_time / flushes", "How long a flush took (iostat f_await)."),
        Derived("request_size", "B", "(read_bytes + written_bytes) / (reads + writes)", "Size of a read or a write."),
        Derived("read_size", "B", "read_bytes / reads", "Size of a read (iostat rareq-sz)."),
        Derived("write_size", "B", "written_bytes / writes", "Size of a write (iostat wareq-sz)."),
        Derived("discard_size", "B", "discarded_bytes / discards", "Size of a discard (iostat dareq-sz)."),
        Derived("transfers", "1/s", "reads + writes", "Reads and writes (iostat tps)."),
        Derived("throughput", "B/s", "read_bytes + written_bytes", "Bytes read and written (iostat kB/s)."),
        Derived(
            "merged", "1/s", "reads_merged + writes_merged", "Reads and writes joined to a neighbour (iostat rqm/s)."
        ),
        Derived(
            "reads_merged_percent",
            "%",
            "reads_merged / (reads_merged + reads) * 100",
            "Share of reads that were joined to a neighbour (iostat %rrqm).",
        ),
        Derived(
            "writes_merged_percent",
            "%",
            "writes_merged / (writes_merged + writes) * 100",
            "Share of writes that were joined to a neighbour (iostat %wrqm).",
        ),
        Derived(
            "discards_merged_percent",
            "%",
            "discards_merged / (discards_merged + discards) * 100",
            "Share of discards that were joined to a neighbour (iostat %drqm).",
        ),
    ),
    "filesystem": (
        Derived(
            "used_percent",
            "%",
            "used / (used + available) * 100",
            "Share in use of what users may fill, as shown by df.",
        ),
        Derived("used_of_size_percent", "%", "used / size * 100", "Share in use of the whole size (sar %fsused)."),
        Derived(
            "unavailable_percent",
            "%",
            "(size - available) / size * 100",
            "Share not available to users: in use, or reserved (sar %ufsused).",
        ),
        Derived("inodes_used_percent", "%", "inodes_used / inodes * 100", "Share of inodes in use."),
    ),
    "network": (
        Derived("received_packet_size", "B", "received_bytes / received_packets", "Size of a received packet."),
        Derived("sent_packet_size", "B", "sent_bytes / sent_packets", "Size of a sent packet."),
        Derived(
            "receive_utilization",
            "%",
            "received_bytes * 8 / link.speed@@ * 100",
            "Share of the link's speed used for receiving; absent if the speed is unknown.",
        ),
        Derived(
            "send_utilization",
            "%",
            "sent_bytes * 8 / link.speed@@ * 100",
            "Share of the link's speed used for sending; absent if the speed is unknown.",
        ),
        Derived(
            "utilization",
            "%",
            "max(received_bytes, sent_bytes) * 8 / link.speed@@ * 100",
            "Share of the link's speed used in the busier direction (sar %ifutil).",
        ),
        Derived("errors", "1/s", "receive_errors + send_errors", "Packets with errors, in and out."),
        Derived("drops", "1/s", "receive_drops + send_drops", "Packets dropped, in and out."),
    ),
    "pressure": (
        _stalled("some", "Share of time in which at least one task waited for the resource."),
        _stalled("full", "Share of time in which all tasks that were not idle waited."),
    ),
    "tcp": (
        Derived(
            "retransmitted_percent", "%", "retrans_segs / out_segs * 100", "Share of segments that were sent again."
        ),
    ),
    "vm": (
        Derived(
            "pages_reclaimed", "page/s", "pgsteal_kswapd + pgsteal_direct", "Pages that were reclaimed (sar pgsteal/s)."
        ),
        Derived(
            "reclaim_percent",
            "%",
            "(pgsteal_kswapd + pgsteal_direct) / (pgscan_kswapd + pgscan_direct) * 100",
            "Share of the pages looked at that were reclaimed (sar %vmeff).",
        ),
    ),
    "swap": (Derived("used_percent", "%", "used / size * 100", "Share of it in use."),),
    "zram": (Derived("compression", "1", "stored / compressed", "Compression ratio."),),
    "numa": (
        Derived("used_percent", "%", "used / total * 100", "Share of the node's memory in use."),
        Derived(
            "miss_percent", "%", "miss / (hit + miss) * 100", "Share of its pages that were intended for another node."
        ),
    ),
    "slab": (Derived("used_percent", "%", "used / size * 100", "Share of it that holds objects."),),
    "btrfs": (Derived("used_percent", "%", "used / size * 100", "Share in use of its reserved space."),),
    "conntrack": (
        Derived("used_percent", "%", "connections / connections_max * 100", "How full the connection table is."),
    ),
    "limits": (
        Derived("files_percent", "%", "files / files_max * 100", "Open files, as a share of the limit."),
        Derived("threads_percent", "%", "load.tasks / threads_max * 100", "Threads, as a share of the limit."),
        Derived(
            "pids_percent", "%", "load.tasks / pids_max * 100", "Threads, as a share of the available numbers (PIDs)."
        ),
    ),
    "cgroup": (
        Derived("cpu_percent", "%", "cpu_usage * 100", "CPU time, as a percentage of one CPU."),
        Derived(
            "memory_percent", "%", "memory_used / memory.total * 100", "Memory charged to it, as a share of all memory."
        ),
        Derived(
            "throttled_percent",
            "%",
            "cpu_throttled_periods / cpu_periods * 100",
            "Share of periods in which its CPU time limit was reached.",
        ),
        *(
            _stalled(kind, f"Share of time in which {whom} waited for {of}.", f"{of}_")
            for of in ("cpu", "memory", "io")
            for kind, whom in (("some", "at least one task"), ("full", "all tasks"))
        ),
    ),
    "process": (
        *_OF_TASKS,
        Derived(
            "memory_percent",
            "%",
            "(rss_anon + rss_file + rss_shmem) / memory.total * 100",
            "Resident memory, as a share of all memory.",
        ),
        Derived(
            "gpu_percent",
            "%",
            "gpu_process.gpu_time@@ * 100",
            "Time of graphics engines, as a percentage of one engine.",
        ),
        Derived("gpu_memory", "B", "gpu_process.gpu_memory@@", "Memory of its graphics buffers."),
    ),
    "process_private": (
        Derived("received", "B/s", "tcp_received + udp_received", "Bytes received by TCP and UDP."),
        Derived("sent", "B/s", "tcp_sent + udp_sent", "Bytes sent by TCP and UDP."),
    ),
    "thread": _OF_TASKS,
    "self": (_CPU_PERCENT,),
}


def of(table: str, metrics: Mapping[str, Metric], declared: tuple[Derived, ...] = ()) -> dict[str, Derived]:
    """The derived columns of a table by name: as ``declared``, else as known; those for which it has the metrics."""
    return {
        column.name: column
        for column in declared or KNOWN.get(table, ())
        if column.name not in metrics and all(_is_number(metrics, name) for name in own(formula.parse(column.formula)))
    }


def of_table(table: Table) -> dict[str, Derived]:
    """The derived columns of a table, by name."""
    metrics = {metric.name: metric for metric in table.metrics}
    return of(table.name, metrics, table.answers.derived if table.answers else ())


def own(read: Formula) -> list[str]:
    """The metrics of its own table that a formula needs."""
    return [operand.metric for operand in read.operands if not operand.table]


def _is_number(metrics: Mapping[str, Metric], name: str) -> bool:
    return name in metrics and is_number(metrics[name])


def is_number(metric: Metric) -> bool:
    """Whether a formula may name a metric: no text, and no moment."""
    return not metric.is_text and metric.name not in {START, END}


def as_metric(column: Derived) -> Metric:
    """A derived column as a metric: a gauge, whose origin is its formula."""
    return Metric(column.name, column.unit, Semantics.GAUGE, column.doc, origin=column.formula)


def factor(metric: Metric) -> float:
    """What a metric as shown is multiplied with in a formula: a rate of seconds is a share there, not percent."""
    return 0.01 if metric.semantics is Semantics.COUNTER and metric.unit == "s" else 1.0


DECIMALS = {"B": 0, "%": 3, "s": 6}
"""How many decimal places a derived column carries, by unit; others have 3."""
