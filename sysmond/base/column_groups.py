# SPDX-License-Identifier: Apache-2.0
"""Groups of columns: one word for what people look at together, of the tables that come with sysmond.

``answers.rows.columns`` has each stand for its columns where columns are named. A column of the same name is meant
before a group; of what was recorded before a column came, the group has the others. Standard library only.
"""

from collections.abc import Mapping

_OF_TASKS: Mapping[str, tuple[str, ...]] = {
    "times": ("cpu", "user", "system", "run_delay", "block_delay"),
    "memory": ("rss:last", "rss_anon:last", "rss_file:last", "rss_shmem:last", "swap:last", "virtual:last"),
    "io": ("read_bytes", "written_bytes", "read_chars", "written_chars"),
    "faults": ("minor_faults", "major_faults"),
    "switches": ("voluntary_switches", "involuntary_switches"),
    "scheduling": ("policy", "priority", "nice", "last_cpu", "threads:last", "state"),
}
COLUMN_GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "process": {"who": ("pid", "comm", "username", "unit"), **_OF_TASKS},
    "thread": {"who": ("tid", "pid", "comm", "username"), **_OF_TASKS},
    "exits": {
        "who": ("pid", "comm", "exe", "username"),
        "ending": ("start", "end", "exit_code", "signal", "core_dumped"),
        "times": ("cpu", "user", "system"),
        "io": ("read_bytes", "written_bytes"),
        "faults": ("minor_faults", "major_faults"),
    },
    "cgroup": {
        "cpu": ("cpu_usage", "cpu_user", "cpu_system", "cpu_throttled"),
        "pressure": ("cpu_some_avg10", "memory_some_avg10", "memory_full_avg10", "io_some_avg10", "io_full_avg10"),
    },
    "disk": {
        "reading": ("reads", "reads_merged", "read_bytes", "read_time"),
        "writing": ("writes", "writes_merged", "written_bytes", "write_time"),
        "io": ("reads", "writes", "read_bytes", "written_bytes"),
        "discarding": ("discards", "discards_merged", "discarded_bytes", "discard_time"),
    },
    "network": {
        "received": ("received_bytes", "received_packets", "receive_errors", "receive_drops"),
        "sent": ("sent_bytes", "sent_packets", "send_errors", "send_drops"),
        "io": ("received_bytes", "sent_bytes", "received_packets", "sent_packets"),
    },
    "memory": {
        "swap": ("swap_total", "swap_free", "swap_cached", "zswap", "zswapped"),
        "pages": ("active", "inactive", "anon", "mapped", "shmem", "dirty", "writeback"),
        "kernel": ("slab", "slab_reclaimable", "slab_unreclaimable", "kernel_stack", "page_tables", "percpu"),
    },
}


def groups_of(table: str) -> Mapping[str, tuple[str, ...]]:
    """The groups of a table by name, each with its columns, METRIC or METRIC:STATISTIC."""
    return COLUMN_GROUPS.get(table, {})
