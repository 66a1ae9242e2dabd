# SPDX-License-Identifier: Apache-2.0
"""What the virtual-memory system does: paging, reclaim, compaction, huge pages, NUMA, from /proc/vmstat.

The metrics bear the kernel's own names, those of Linux 5.10 to 6.18; what a kernel lacks is absent.
What the kernel counts in pages is in pages, as everywhere else that speaks of these names; what it
counts in KiB is in bytes.

Source: ``mm/vmstat.c``, ``include/linux/vm_event_item.h``, ``Documentation/admin-guide/mm/``.
"""

from sysmond.probe import Fields, Host, Metric, Probe, Row, Table, counter, gauge, hookimpl

VMSTAT = "/proc/vmstat"
KIB = 1024


def _now(name: str, doc: str, unit: str = "page") -> Metric:
    return gauge(name, unit, doc, origin=f"{VMSTAT} {name}")


def _pages(name: str, doc: str) -> Metric:
    return counter(name, "page", doc, origin=f"{VMSTAT} {name}")


def _times(name: str, doc: str) -> Metric:
    return counter(name, "1", doc, origin=f"{VMSTAT} {name}")


ZONES = (
    ("dma", "the zone below 16 MiB (DMA)"),
    ("dma32", "the zone below 4 GiB (DMA32)"),
    ("normal", "the ordinary zone"),
    ("high", "the zone beyond the kernel's direct reach (32-bit machines)"),
    ("movable", "the zone of movable pages"),
    ("device", "the zone of device memory"),
)
STACK_SIZES = (("1k", 1), ("2k", 2), ("4k", 4), ("8k", 8), ("16k", 16), ("32k", 32), ("64k", 64))

METRICS = (
    # State of the zones.
    _now("nr_free_pages", "Free pages."),
    _now("nr_free_pages_blocks", "Free pages in whole free page blocks."),
    _now("nr_zone_inactive_anon", "Inactive anonymous pages, as counted by zone."),
    _now("nr_zone_active_anon", "Active anonymous pages, as counted by zone."),
    _now("nr_zone_inactive_file", "Inactive page-cache pages, as counted by zone."),
    _now("nr_zone_active_file", "Active page-cache pages, as counted by zone."),
    _now("nr_zone_unevictable", "Unevictable pages, as counted by zone."),
    _now("nr_zone_write_pending", "Pages that are dirty or being written back, as counted by zone."),
    _now("nr_mlock", "Pages locked with mlock()."),
    _now("nr_bounce", "Pages of bounce buffers of block devices (kernels before 6.17)."),
    _now("nr_zspages", "Pages of the allocator of compressed memory (zsmalloc)."),
    _now("nr_free_cma", "Free pages in the reserve for contiguous allocations (CMA)."),
    _now("nr_unaccepted", "Pages that a confidential virtual machine has not accepted yet."),
    # Where pages were allocated.
    _pages("numa_hit", "Pages allocated on the intended node."),
    _pages("numa_miss", "Pages allocated on this node though another was wanted."),
    _pages("numa_foreign", "Pages wanted on this node but allocated on another."),
    _pages("numa_interleave", "Pages allocated by interleaving on the node that was wanted."),
    _pages("numa_local", "Pages allocated on the node of the CPU that asked."),
    _pages("numa_other", "Pages allocated on a node other than that of the CPU that asked."),
    # State of the nodes.
    _now("nr_inactive_anon", "Anonymous and tmpfs pages not used recently."),
    _now("nr_active_anon", "Anonymous and tmpfs pages used recently."),
    _now("nr_inactive_file", "Page-cache pages not used recently."),
    _now("nr_active_file", "Page-cache pages used recently."),
    _now("nr_unevictable", "Pages that cannot be reclaimed."),
    _now("nr_slab_reclaimable", "Pages of slab caches that can be reclaimed."),
    _now("nr_slab_unreclaimable", "Pages of slab caches that cannot be reclaimed."),
    _now("nr_isolated_anon", "Anonymous pages taken off their list for reclaim or migration."),
    _now("nr_isolated_file", "Page-cache pages taken off their list for reclaim or migration."),
    _now("workingset_nodes", "Nodes of the page-cache trees that remember evicted pages.", "1"),
    _pages("workingset_refault_anon", "Evicted anonymous pages that were needed again."),
    _pages("workingset_refault_file", "Evicted page-cache pages that were needed again."),
    _pages("workingset_activate_anon", "Refaulted anonymous pages made active at once: the working set does not fit."),
    _pages("workingset_activate_file", "Refaulted page-cache pages made active at once: the working set does not fit."),
    _pages("workingset_restore_anon", "Refaulted anonymous pages that had been active when they were evicted."),
    _pages("workingset_restore_file", "Refaulted page-cache pages that had been active when they were evicted."),
    _times("workingset_nodereclaim", "Nodes that remembered evicted pages and were reclaimed."),
    _now("nr_anon_pages", "Anonymous pages mapped by processes."),
    _now("nr_mapped", "Page-cache pages mapped by processes."),
    _now("nr_file_pages", "Pages of the page cache, swap cache and tmpfs included."),
    _now("nr_dirty", "Pages waiting to be written to disk."),
    _now("nr_writeback", "Pages being written to disk."),
    _now("nr_writeback_temp", "Temporary pages with which FUSE writes back (kernels before 6.17)."),
    _now("nr_shmem", "Pages of shared memory and tmpfs."),
    _now("nr_shmem_hugepages", "Huge pages of shared memory and tmpfs.", "1"),
    _now("nr_shmem_pmdmapped", "Huge pages of shared memory mapped as such.", "1"),
    _now("nr_file_hugepages", "Huge pages of the page cache of files.", "1"),
    _now("nr_file_pmdmapped", "Huge pages of the page cache of files mapped as such.", "1"),
    _now("nr_anon_transparent_hugepages", "Transparent huge pages of anonymous memory.", "1"),
    _pages("nr_vmscan_write", "Pages that reclaim itself wrote out."),
    _pages("nr_vmscan_immediate_reclaim", "Pages marked for reclaim as soon as their writing is done."),
    _pages("nr_dirtied", "Pages that became dirty."),
    _pages("nr_written", "Pages written to disk."),
    _pages("nr_throttled_written", "Pages written while reclaim was throttled."),
    _now("nr_kernel_misc_reclaimable", "Reclaimable pages of the kernel outside of slab caches."),
    _pages("nr_foll_pin_acquired", "Pages pinned for direct access, such as by RDMA."),
    _pages("nr_foll_pin_released", "Pages pinned for direct access that were released."),
    _now("nr_kernel_stack", "Memory of the kernel stacks of all tasks.", "B"),
    _now("nr_shadow_call_stack", "Memory of the shadow call stacks of all tasks.", "B"),
    _now("nr_page_table_pages", "Pages of page tables."),
    _now("nr_sec_page_table_pages", "Pages of the page tables of virtual machines and of the IOMMU."),
    _now("nr_iommu_pages", "Pages allocated by IOMMU drivers."),
    _now("nr_swapcached", "Pages of the swap cache."),
    _pages("pgpromote_success", "Pages moved to a faster memory tier."),
    _pages("pgpromote_candidate", "Pages considered for a faster memory tier."),
    _pages("pgpromote_candidate_nrl", "Pages considered for a faster memory tier without a rate limit."),
    _pages("pgdemote_kswapd", "Pages moved to a slower memory tier by kswapd."),
    _pages("pgdemote_direct", "Pages moved to a slower memory tier by the task that needed memory."),
    _pages("pgdemote_khugepaged", "Pages moved to a slower memory tier by khugepaged."),
    _pages("pgdemote_proactive", "Pages moved to a slower memory tier on request of user space."),
    _now("nr_hugetlb", "Pages in huge pages of hugetlbfs."),
    _now("nr_balloon_pages", "Pages given back to the hypervisor by a balloon driver."),
    _now(
        "nr_kernel_file_pages", "Page-cache pages that the kernel itself holds, for instance for file-system metadata."
    ),
    _now("nr_gpu_active", "Pages in use by graphics processors."),
    _now("nr_gpu_reclaim", "Pages in the pools of graphics drivers, ready for reuse."),
    # State of the system.
    _now("nr_dirty_threshold", "Number of dirty pages from which writers must write back themselves."),
    _now("nr_dirty_background_threshold", "Number of dirty pages from which the kernel writes back in the background."),
    _now("nr_memmap", "Pages of page descriptors allocated while running (Linux 6.10)."),
    _now("nr_memmap_boot", "Pages of page descriptors allocated at boot (Linux 6.10)."),
    _now("nr_memmap_pages", "Pages of page descriptors allocated while running."),
    _now("nr_memmap_boot_pages", "Pages of page descriptors allocated at boot."),
    # Paging.
    counter("pgpgin", "B", "Bytes read from block devices.", origin=f"{VMSTAT} pgpgin"),
    counter("pgpgout", "B", "Bytes written to block devices.", origin=f"{VMSTAT} pgpgout"),
    _pages("pswpin", "Pages swapped in."),
    _pages("pswpout", "Pages swapped out."),
    *(_pages(f"pgalloc_{zone}", f"Pages allocated from {which}.") for zone, which in ZONES),
    *(_times(f"allocstall_{zone}", f"Allocations from {which} that had to reclaim first.") for zone, which in ZONES),
    *(_pages(f"pgskip_{zone}", f"Pages of {which} that reclaim skipped as of no use.") for zone, which in ZONES),
    _pages("pgfree", "Pages freed."),
    _pages("pgactivate", "Pages that became active."),
    _pages("pgdeactivate", "Pages that became inactive."),
    _pages("pglazyfree", "Pages that their owner declared unneeded (MADV_FREE)."),
    _times("pgfault", "Page faults, major ones included."),
    _times("pgmajfault", "Page faults that had to wait for a disk."),
    _pages("pglazyfreed", "Pages declared unneeded that were freed."),
    # Reclaim.
    _pages("pgrefill", "Pages of active lists that reclaim looked at."),
    _pages("pgreuse", "Anonymous pages reused at a write instead of copied."),
    _pages("pgsteal_kswapd", "Pages reclaimed by kswapd."),
    _pages("pgsteal_direct", "Pages reclaimed by the task that needed memory."),
    _pages("pgsteal_khugepaged", "Pages reclaimed by khugepaged."),
    _pages("pgsteal_proactive", "Pages reclaimed on request of user space."),
    _pages("pgscan_kswapd", "Pages that kswapd looked at."),
    _pages("pgscan_direct", "Pages that tasks needing memory looked at."),
    _pages("pgscan_khugepaged", "Pages that khugepaged looked at for reclaim."),
    _pages("pgscan_proactive", "Pages looked at for reclaim on request of user space."),
    _times("pgscan_direct_throttle", "Tasks made to wait because reserves were nearly used up."),
    _pages("pgscan_anon", "Anonymous pages that reclaim looked at."),
    _pages("pgscan_file", "Page-cache pages that reclaim looked at."),
    _pages("pgsteal_anon", "Anonymous pages reclaimed."),
    _pages("pgsteal_file", "Page-cache pages reclaimed."),
    _times("zone_reclaim_success", "Reclaims on a node that made room there."),
    _times("zone_reclaim_failed", "Reclaims on a node that did not make room there."),
    _pages("pginodesteal", "Page-cache pages freed with their inode by tasks needing memory."),
    _times("slabs_scanned", "Objects of slab caches that reclaim looked at."),
    _pages("kswapd_inodesteal", "Page-cache pages freed with their inode by kswapd."),
    _times("kswapd_low_wmark_hit_quickly", "Times that free memory fell below the low mark soon after kswapd slept."),
    _times("kswapd_high_wmark_hit_quickly", "Times that free memory fell below the high mark soon after kswapd slept."),
    _times("pageoutrun", "Times that kswapd began to balance a node."),
    _pages("pgrotated", "Pages moved to the end of the inactive list, to be reclaimed first."),
    _times("drop_pagecache", "Times that an administrator dropped the page cache."),
    _times("drop_slab", "Times that an administrator dropped slab caches."),
    _times("oom_kill", "Processes killed because memory ran out."),
    # NUMA balancing and migration.
    _pages("numa_pte_updates", "Pages made to fault to learn which node uses them."),
    _times("numa_huge_pte_updates", "Huge pages made to fault to learn which node uses them."),
    _times("numa_hint_faults", "Faults that showed which node uses a page."),
    _times("numa_hint_faults_local", "Faults that showed that a page is used by its own node."),
    _pages("numa_pages_migrated", "Pages moved to the node that uses them."),
    _times("numa_task_migrated", "Tasks moved to another node by NUMA balancing (some kernels)."),
    _times("numa_task_swapped", "Tasks that changed nodes with each other by NUMA balancing (some kernels)."),
    _pages("pgmigrate_success", "Pages migrated."),
    _pages("pgmigrate_fail", "Pages that could not be migrated."),
    _times("thp_migration_success", "Transparent huge pages migrated whole."),
    _times("thp_migration_fail", "Transparent huge pages that could not be migrated."),
    _times("thp_migration_split", "Transparent huge pages split to be migrated."),
    # Compaction.
    _pages("compact_migrate_scanned", "Pages that compaction looked at to move them."),
    _pages("compact_free_scanned", "Pages that compaction looked at as targets."),
    _pages("compact_isolated", "Pages that compaction took off their lists."),
    _times("compact_stall", "Allocations that had to compact memory first."),
    _times("compact_fail", "Compactions that made no room."),
    _times("compact_success", "Compactions that made room."),
    _times("compact_daemon_wake", "Times that kcompactd was woken."),
    _pages("compact_daemon_migrate_scanned", "Pages that kcompactd looked at to move them."),
    _pages("compact_daemon_free_scanned", "Pages that kcompactd looked at as targets."),
    _times("htlb_buddy_alloc_success", "Huge pages allocated for the pool of hugetlbfs."),
    _times("htlb_buddy_alloc_fail", "Huge pages that could not be allocated for the pool of hugetlbfs."),
    _pages("cma_alloc_success", "Pages allocated from the reserve for contiguous allocations (CMA)."),
    _pages("cma_alloc_fail", "Pages that could not be allocated from the reserve for contiguous allocations (CMA)."),
    # Unevictable pages.
    _pages("unevictable_pgs_culled", "Pages that became unevictable."),
    _pages("unevictable_pgs_scanned", "Unevictable pages checked for whether they still are."),
    _pages("unevictable_pgs_rescued", "Pages that became evictable again."),
    _pages("unevictable_pgs_mlocked", "Pages that were locked."),
    _pages("unevictable_pgs_munlocked", "Pages that were unlocked."),
    _pages("unevictable_pgs_cleared", "Locked pages that were unmapped or truncated."),
    _pages("unevictable_pgs_stranded", "Unlocked pages that stayed on the unevictable list."),
    # Transparent huge pages.
    _times("thp_fault_alloc", "Huge pages allocated at a page fault."),
    _times("thp_fault_fallback", "Page faults that got small pages for lack of a huge one."),
    _times(
        "thp_fault_fallback_charge", "Page faults that got small pages because a cgroup's limit forbade a huge one."
    ),
    _times("thp_collapse_alloc", "Huge pages allocated by khugepaged to join small ones."),
    _times("thp_collapse_alloc_failed", "Huge pages that khugepaged could not allocate."),
    _times("thp_file_alloc", "Huge pages allocated for shared memory and tmpfs."),
    _times("thp_file_fallback", "Huge pages for shared memory and tmpfs replaced by small ones."),
    _times("thp_file_fallback_charge", "Huge pages for shared memory and tmpfs forbidden by a cgroup's limit."),
    _times("thp_file_mapped", "Huge pages of files and shared memory mapped into a process."),
    _times("thp_split_page", "Huge pages split into small ones."),
    _times("thp_split_page_failed", "Huge pages that could not be split."),
    _times("thp_deferred_split_page", "Huge pages put on the list of those to split under pressure."),
    _times("thp_underused_split_page", "Huge pages split because most of each was unused."),
    _times("thp_split_pmd", "Mappings of huge pages split into mappings of small ones."),
    _times("thp_scan_exceed_none_pte", "Ranges not joined by khugepaged because too much of them was unused."),
    _times("thp_scan_exceed_swap_pte", "Ranges not joined by khugepaged because too much of them was swapped out."),
    _times("thp_scan_exceed_share_pte", "Ranges not joined by khugepaged because too much of them was shared."),
    _times("thp_split_pud", "Mappings of 1 GiB pages split."),
    _times("thp_zero_page_alloc", "Allocations of the huge page of zeros."),
    _times("thp_zero_page_alloc_failed", "Failed allocations of the huge page of zeros."),
    _times("thp_swpout", "Huge pages swapped out whole."),
    _times("thp_swpout_fallback", "Huge pages split to be swapped out."),
    # Balloon, translation buffers, lookup caches.
    _pages("balloon_inflate", "Pages given to the hypervisor by the balloon."),
    _pages("balloon_deflate", "Pages taken back from the hypervisor by the balloon."),
    _pages("balloon_migrate", "Pages of the balloon that were migrated."),
    _times("nr_tlb_remote_flush", "Flushes of address translations asked of other CPUs."),
    _times("nr_tlb_remote_flush_received", "Flushes of address translations that other CPUs asked for."),
    _times("nr_tlb_local_flush_all", "Flushes of all address translations of a CPU."),
    _times("nr_tlb_local_flush_one", "Flushes of one address translation of a CPU."),
    _times("vmacache_find_calls", "Lookups in the cache of memory areas (kernels before 6.1)."),
    _times("vmacache_find_hits", "Successful lookups in the cache of memory areas (kernels before 6.1)."),
    # Swap and same-page merging.
    _pages("swap_ra", "Pages read ahead from swap."),
    _pages("swap_ra_hit", "Pages read ahead from swap that were used."),
    _pages("swpin_zero", "Pages of zeros restored without reading swap."),
    _pages("swpout_zero", "Pages of zeros remembered without writing swap."),
    _pages("ksm_swpin_copy", "Merged pages (KSM) copied when they were swapped in."),
    _pages("cow_ksm", "Merged pages (KSM) copied because they were written to."),
    _pages("zswpin", "Pages taken from compressed memory (zswap)."),
    _pages("zswpout", "Pages put into compressed memory (zswap)."),
    _pages("zswpwb", "Pages written from compressed memory (zswap) to swap."),
    # x86: the kernel's own mapping of memory.
    _times("direct_map_level2_splits", "2 MiB mappings of the kernel split into 4 KiB ones."),
    _times("direct_map_level3_splits", "1 GiB mappings of the kernel split into 2 MiB ones."),
    _times("direct_map_level2_collapses", "4 KiB mappings of the kernel joined to 2 MiB ones."),
    _times("direct_map_level3_collapses", "2 MiB mappings of the kernel joined to 1 GiB ones."),
    # Kernels built with CONFIG_PER_VMA_LOCK_STATS.
    _times("vma_lock_success", "Page faults served under the lock of one memory area."),
    _times("vma_lock_abort", "Page faults that gave up the lock of one memory area."),
    _times("vma_lock_retry", "Page faults restarted with the lock of the whole address space."),
    _times("vma_lock_miss", "Page faults that did not get the lock of one memory area."),
    # Kernels built with CONFIG_DEBUG_STACK_USAGE.
    *(_times(f"kstack_{name}", f"Tasks ended that used at most {kib} KiB of stack.") for name, kib in STACK_SIZES),
    _times("kstack_rest", "Tasks ended that used more than 64 KiB of stack."),
    _now("nr_unstable", "Pages sent to an NFS server but not yet on its disk; 0 since Linux 5.9."),
)
VM = Table("vm", METRICS, doc="Counts of the virtual-memory system, under the kernel's own names.")
# Only what the kernel tells in KiB is in bytes here.
_FIELDS = Fields((metric.name.encode() for metric in METRICS), (KIB if metric.unit == "B" else 1 for metric in METRICS))


def parse(content: bytes) -> list[int]:
    """Give the values of a vmstat.

    :raises ValueError: when it does not consist of names and numbers.
    """
    words = content.split()
    if len(words) % 2:
        raise ValueError(f"{VMSTAT} has {len(words)} words; expected pairs of name and number")
    return _FIELDS.pick(words[::2], words[1::2])


def read(host: Host) -> list[Row]:
    """Read the one row of the whole system."""
    return [("", parse(host.read(VMSTAT)))]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``vm``."""
    return [Probe(VM, read, pure=True)]
