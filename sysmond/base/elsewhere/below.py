# SPDX-License-Identifier: Apache-2.0
"""Names in below: fields, as ``below dump CATEGORY --fields`` takes them.

Source: ``below/model/src`` of below, where each field of a model is one. Each category is a program of its own here,
since they have fields of the same names.
"""

_SHARES = {"user": "user", "nice": "nice", "system": "system", "idle": "idle", "iowait": "iowait", "stolen": "steal"}
_MEMORY = (
    *("total", "free", "available", "buffers", "cached", "swap_cached", "active", "inactive", "unevictable"),
    *("mlocked", "swap_total", "swap_free", "dirty", "writeback", "mapped", "shmem", "slab", "slab_reclaimable"),
    *("slab_unreclaimable", "kernel_stack", "page_tables", "hugetlb", "cma_total", "cma_free", "vmalloc_total"),
    *("vmalloc_used", "vmalloc_chunk", "direct_map_4k", "direct_map_2m", "direct_map_1g"),
)
_SYSTEM = {
    "hostname": "host/hostname",
    "kernel_version": "host/kernel",
    "os_release": "host/distribution",
    "stat.total_interrupt_ct": "system/interrupts",
    "stat.context_switches": "system/context_switches",
    "stat.total_processes": "system/forks",
    "stat.running_processes": "system/processes_running",
    "stat.blocked_processes": "system/processes_blocked",
    "cpu.usage_pct": "cpu/busy",
    **{f"cpu.{name}_pct": f"cpu/{ours}_percent" for name, ours in _SHARES.items()},
    "cpu.softirq_pct": "cpu/softirq",
    "cpu.guest_pct": "cpu/guest",
    "cpu.guest_nice_pct": "cpu/guest_nice",
    **{f"mem.{name}": f"memory/{name}" for name in _MEMORY},
    "mem.anon": "memory/active_anon + memory/inactive_anon",
    "mem.file": "memory/active_file + memory/inactive_file",
    "mem.anon_pages": "memory/anon",
    "mem.kreclaimable": "memory/kernel_reclaimable",
    "mem.anon_huge_pages_bytes": "memory/anon_huge_pages",
    "mem.shmem_huge_pages_bytes": "memory/shmem_huge_pages",
    "mem.file_huge_pages_bytes": "memory/file_huge_pages",
    "vm.pgpgin_per_sec": "vm/pgpgin in KiB/s",
    "vm.pgpgout_per_sec": "vm/pgpgout in KiB/s",
    "vm.pswpin_per_sec": "vm/pswpin",
    "vm.pswpout_per_sec": "vm/pswpout",
    "vm.pgsteal_kswapd": "vm/pgsteal_kswapd",
    "vm.pgsteal_direct": "vm/pgsteal_direct",
    "vm.pgscan_kswapd": "vm/pgscan_kswapd",
    "vm.pgscan_direct": "vm/pgscan_direct",
    "vm.oom_kill": "vm/oom_kill",
}
_DISK = {
    "read_bytes_per_sec": "disk/read_bytes",
    "write_bytes_per_sec": "disk/written_bytes",
    "discard_bytes_per_sec": "disk/discarded_bytes",
    "disk_total_bytes_per_sec": "disk/read_bytes + disk/written_bytes",
    "read_completed": "disk/reads",
    "read_merged": "disk/reads_merged",
    "read_sectors": "disk/read_bytes in sectors of 512 B",
    "time_spend_read_ms": "disk/read_time in ms",
    "write_completed": "disk/writes",
    "write_merged": "disk/writes_merged",
    "write_sectors": "disk/written_bytes in sectors of 512 B",
    "time_spend_write_ms": "disk/write_time in ms",
    "discard_completed": "disk/discards",
    "discard_merged": "disk/discards_merged",
    "discard_sectors": "disk/discarded_bytes in sectors of 512 B",
    "time_spend_discard_ms": "disk/discard_time in ms",
    "disk_usage": "about filesystem/used_percent",
    "partition_size": "filesystem/size",
    "filesystem_type": "filesystem/type",
}
_PROCESS = {
    "pid": "process/pid",
    "ppid": "process/ppid",
    "ns_tgid": "process_private/namespace_pid",
    "comm": "process/comm",
    "state": "process/state",
    "cgroup": "process/cgroup_path",
    "cmdline": "command/command",
    "exe_path": "command/exe",
    "stack": "kernel_stack/functions",
    "cpu.usage_pct": "process/cpu_percent",
    "cpu.user_pct": "process/user_percent",
    "cpu.system_pct": "process/system_percent",
    "cpu.num_threads": "process/threads",
    "cpu.processor": "process/last_cpu",
    "mem.minorfaults_per_sec": "process/minor_faults",
    "mem.majorfaults_per_sec": "process/major_faults",
    "mem.rss_bytes": "process/rss",
    "mem.vm_size": "process/virtual",
    "mem.anon": "process/rss_anon",
    "mem.file": "process/rss_file",
    "mem.shmem": "process/rss_shmem",
    "mem.swap": "process/swap",
    "io.rbytes_per_sec": "process/read_bytes",
    "io.wbytes_per_sec": "process/written_bytes",
    "io.rwbytes_per_sec": "process/read_bytes + process/written_bytes",
}
_CGROUP_MEMORY = (
    *("swap", "zswap", "events_low", "events_high", "events_max", "events_oom", "events_oom_kill", "anon", "file"),
    *("kernel_stack", "sock", "shmem", "zswapped", "file_mapped", "file_dirty", "file_writeback", "anon_thp"),
    *("inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable"),
    *("slab_reclaimable", "slab_unreclaimable"),
)
_CGROUP = {
    "full_path": "cgroup_name/path",
    "inode_number": "cgroup/id",
    "cpu.usage_pct": "cgroup/cpu_percent",
    "cpu.user_pct": "cgroup/cpu_user",
    "cpu.system_pct": "cgroup/cpu_system",
    "cpu.nr_periods_per_sec": "cgroup/cpu_periods",
    "cpu.nr_throttled_per_sec": "cgroup/cpu_throttled_periods",
    "cpu.throttled_pct": "cgroup/throttled_percent",
    "mem.total": "cgroup/memory_used",
    **{f"mem.{name}": f"cgroup_memory/{name}" for name in _CGROUP_MEMORY},
    "mem_numa.*.anon": "cgroup_numa/anon",
    "mem_numa.*.file": "cgroup_numa/file",
    **{
        f"pressure.{resource}_{kind}_pct": f"cgroup/{resource}_{kind}_avg10"
        for resource in ("cpu", "memory", "io")
        for kind in ("some", "full")
    },
    "cgroup_stat.nr_descendants": "about cgroup_tree/cgroups",
    "cgroup_stat.nr_dying_descendants": "about cgroup_tree/dying",
    "io.rbytes_per_sec": "cgroup_io/read_bytes",
    "io.wbytes_per_sec": "cgroup_io/written_bytes",
    "io.dbytes_per_sec": "cgroup_io/discarded_bytes",
    "io.rwbytes_per_sec": "cgroup_io/read_bytes + cgroup_io/written_bytes",
    "io.rios_per_sec": "cgroup_io/reads",
    "io.wios_per_sec": "cgroup_io/writes",
    "io.dios_per_sec": "cgroup_io/discards",
    **{f"io.cost_{part}_pct": f"cgroup_io/cost_{part}" for part in ("usage", "wait", "indebt", "indelay")},
}
_INTERFACE = {
    "rx_bytes_per_sec": "network/received_bytes",
    "tx_bytes_per_sec": "network/sent_bytes",
    "throughput_per_sec": "network/received_bytes + network/sent_bytes",
    "rx_packets_per_sec": "network/received_packets",
    "tx_packets_per_sec": "network/sent_packets",
    "rx_bytes": "network/received_bytes",
    "rx_packets": "network/received_packets",
    "rx_errors": "network/receive_errors",
    "rx_dropped": "about network/receive_drops",
    "rx_fifo_errors": "network/receive_fifo_errors",
    "rx_frame_errors": "about network/receive_frame_errors",
    "rx_compressed": "network/received_compressed",
    "multicast": "network/received_multicast",
    "tx_bytes": "network/sent_bytes",
    "tx_packets": "network/sent_packets",
    "tx_errors": "network/send_errors",
    "tx_dropped": "network/send_drops",
    "tx_fifo_errors": "network/send_fifo_errors",
    "tx_carrier_errors": "about network/send_carrier_errors",
    "tx_compressed": "network/sent_compressed",
    "collisions": "network/collisions",
}
_NETWORK = {
    **{
        f"tcp.{name}_per_sec": f"tcp/{name}"
        for name in (
            *("active_opens", "passive_opens", "attempt_fails", "estab_resets", "in_segs", "out_segs"),
            *("retrans_segs", "out_rsts"),
        )
    },
    "tcp.curr_estab_conn": "tcp/curr_estab",
    "tcp.retrans_segs": "tcp/retrans_segs",
    "tcp.in_errs": "tcp/in_errs",
    "tcp.in_csum_errors": "tcp/in_csum_errors",
    **{
        f"ip.{name}_pkts_per_sec": f"ip/{name}"
        for name in ("in_receives", "in_discards", "in_delivers", "out_discards", "out_no_routes")
    },
    **{
        f"ip.{name}_per_sec": f"ip/{name}"
        for name in (
            *("forw_datagrams", "out_requests", "in_mcast_pkts", "out_mcast_pkts", "in_bcast_pkts"),
            *("out_bcast_pkts", "in_octets", "out_octets", "in_mcast_octets", "out_mcast_octets"),
            *("in_bcast_octets", "out_bcast_octets", "in_no_ect_pkts"),
        )
    },
    "icmp.in_msgs_per_sec": "icmp/in_msgs",
    "icmp.out_msgs_per_sec": "icmp/out_msgs",
    "icmp.in_errors": "icmp/in_errors",
    "icmp.out_errors": "icmp/out_errors",
    "icmp.in_dest_unreachs": "icmp/in_dest_unreachs",
    "icmp.out_dest_unreachs": "icmp/out_dest_unreachs",
    "udp.in_datagrams_pkts_per_sec": "udp/in_datagrams",
    "udp.out_datagrams_pkts_per_sec": "udp/out_datagrams",
    **{
        f"udp.{name}": f"udp/{name}"
        for name in ("no_ports", "in_errors", "rcvbuf_errors", "sndbuf_errors", "ignored_multi")
    },
}

NAMES = {
    "below system": _SYSTEM,
    "below disk": _DISK,
    "below process": _PROCESS,
    "below cgroup": _CGROUP,
    "below iface": _INTERFACE,
    "below network": _NETWORK,
}
