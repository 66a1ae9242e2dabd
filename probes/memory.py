# SPDX-License-Identifier: Apache-2.0
"""How the machine's memory is used, from /proc/meminfo.

Source: ``Documentation/filesystems/proc.rst`` (meminfo) and ``fs/proc/meminfo.c``.
"""

from sysmond.probe import Fields, Host, Probe, Row, Table, gauge, hookimpl

MEMINFO = "/proc/meminfo"
KIB = 1024  # What meminfo calls kB.

# Field of meminfo, metric, meaning. All in bytes.
SIZES = (
    ("MemTotal", "total", "Usable memory: all RAM without what firmware and the kernel's image keep for themselves."),
    ("MemFree", "free", "Memory that is not used at all."),
    ("MemAvailable", "available", "Estimate of what new programs can get without swapping: free and easily reclaimed."),
    ("Buffers", "buffers", "Page cache of block devices read and written directly, and file-system metadata."),
    ("Cached", "cached", "Page cache of files, tmpfs and shared memory included, swap cache excluded."),
    ("SwapCached", "swap_cached", "Memory that was swapped out, is back, and still has a valid copy in swap."),
    ("Active", "active", "Memory used recently: reclaimed only when there is no other way."),
    ("Inactive", "inactive", "Memory not used recently: the first to be reclaimed."),
    ("Active(anon)", "active_anon", "Anonymous and tmpfs memory used recently."),
    ("Inactive(anon)", "inactive_anon", "Anonymous and tmpfs memory not used recently."),
    ("Active(file)", "active_file", "Page cache used recently."),
    ("Inactive(file)", "inactive_file", "Page cache not used recently."),
    ("Unevictable", "unevictable", "Memory that cannot be reclaimed, such as locked memory and ramfs."),
    ("Mlocked", "mlocked", "Memory locked with mlock()."),
    ("HighTotal", "high_total", "Memory beyond the kernel's direct reach (32-bit machines)."),
    ("HighFree", "high_free", "Free memory beyond the kernel's direct reach (32-bit machines)."),
    ("LowTotal", "low_total", "Memory that the kernel reaches directly (32-bit machines)."),
    ("LowFree", "low_free", "Free memory that the kernel reaches directly (32-bit machines)."),
    ("MmapCopy", "mmap_copy", "Memory of mappings that are copies, on machines without a memory management unit."),
    ("SwapTotal", "swap_total", "Size of all swap space."),
    ("SwapFree", "swap_free", "Swap space not in use."),
    ("Zswap", "zswap", "Memory taken by compressed swap pages (zswap)."),
    ("Zswapped", "zswapped", "Memory that zswap holds compressed, at its original size."),
    ("Dirty", "dirty", "Memory waiting to be written to disk."),
    ("Writeback", "writeback", "Memory being written to disk now."),
    ("AnonPages", "anon", "Anonymous memory mapped by processes: heaps, stacks, private data."),
    ("Mapped", "mapped", "Files and shared memory mapped by processes, such as libraries."),
    ("Shmem", "shmem", "Shared memory and tmpfs."),
    ("KReclaimable", "kernel_reclaimable", "Memory of the kernel that it tries to give back under pressure."),
    ("Slab", "slab", "Memory of the kernel's object caches."),
    ("SReclaimable", "slab_reclaimable", "Part of slab that can be reclaimed, such as caches of inodes and names."),
    ("SUnreclaim", "slab_unreclaimable", "Part of slab that cannot be reclaimed."),
    ("KernelStack", "kernel_stack", "Kernel stacks of all tasks."),
    ("ShadowCallStack", "shadow_call_stack", "Shadow call stacks of all tasks."),
    ("PageTables", "page_tables", "Page tables of processes."),
    ("SecPageTables", "secondary_page_tables", "Page tables of virtual machines and of the IOMMU."),
    ("NFS_Unstable", "nfs_unstable", "Pages sent to an NFS server but not yet on its disk; 0 since Linux 5.9."),
    ("Bounce", "bounce", "Bounce buffers of block devices; 0 on recent kernels."),
    ("WritebackTmp", "writeback_temporary", "Temporary buffers with which FUSE writes back; 0 on recent kernels."),
    (
        "CommitLimit",
        "commit_limit",
        "What may be promised to processes where overcommit is off (vm.overcommit_memory=2).",
    ),
    ("Committed_AS", "committed", "What was promised to processes, whether they use it or not."),
    ("VmallocTotal", "vmalloc_total", "Size of the kernel's vmalloc address space."),
    ("VmallocUsed", "vmalloc_used", "Memory in use in the vmalloc address space."),
    ("VmallocChunk", "vmalloc_chunk", "Largest free block of the vmalloc address space; 0 since Linux 4.4."),
    ("Percpu", "percpu", "Memory of the kernel's per-CPU allocator."),
    ("EarlyMemtestBad", "early_memtest_bad", "Memory that the test at boot found bad."),
    ("HardwareCorrupted", "hardware_corrupted", "Memory that the kernel took out of use because of hardware errors."),
    ("AnonHugePages", "anon_huge_pages", "Anonymous memory in transparent huge pages."),
    ("ShmemHugePages", "shmem_huge_pages", "Shared memory and tmpfs in huge pages."),
    ("ShmemPmdMapped", "shmem_pmd_mapped", "Shared memory mapped by processes with huge pages."),
    ("FileHugePages", "file_huge_pages", "Page cache of files in huge pages."),
    ("FilePmdMapped", "file_pmd_mapped", "Page cache mapped by processes with huge pages."),
    ("CmaTotal", "cma_total", "Memory reserved for contiguous allocations by devices (CMA)."),
    ("CmaFree", "cma_free", "Free memory in the CMA reserve."),
    ("Unaccepted", "unaccepted", "Memory of a confidential virtual machine that it has not accepted yet."),
    ("Balloon", "balloon", "Memory given back to the hypervisor by a balloon driver."),
    ("GPUActive", "gpu_active", "System memory in use by graphics processors."),
    ("GPUReclaim", "gpu_reclaimable", "System memory in the pools of graphics drivers, ready for reuse."),
    ("Hugepagesize", "huge_page_size", "Size of a huge page of the default size."),
    ("Hugetlb", "hugetlb", "Memory in huge pages of hugetlbfs, of all sizes."),
    ("DirectMap4k", "direct_map_4k", "Memory that the kernel maps for itself with 4 KiB pages."),
    ("DirectMap64k", "direct_map_64k", "Memory that the kernel maps for itself with 64 KiB pages."),
    ("DirectMap1M", "direct_map_1m", "Memory that the kernel maps for itself with 1 MiB pages."),
    ("DirectMap2M", "direct_map_2m", "Memory that the kernel maps for itself with 2 MiB pages."),
    ("DirectMap4M", "direct_map_4m", "Memory that the kernel maps for itself with 4 MiB pages."),
    ("DirectMap1G", "direct_map_1g", "Memory that the kernel maps for itself with 1 GiB pages."),
    ("DirectMap2G", "direct_map_2g", "Memory that the kernel maps for itself with 2 GiB pages."),
)
# Numbers of huge pages, not bytes.
COUNTS = (
    ("HugePages_Total", "huge_pages_total", "Huge pages of the default size in the pool of hugetlbfs."),
    ("HugePages_Free", "huge_pages_free", "Huge pages of that pool not allocated yet."),
    ("HugePages_Rsvd", "huge_pages_reserved", "Huge pages of that pool promised but not allocated yet."),
    ("HugePages_Surp", "huge_pages_surplus", "Huge pages of that pool beyond its configured size."),
)
MEMORY = Table(
    "memory",
    doc="How memory and swap are used.",
    metrics=tuple(
        gauge(name, unit, doc, origin=f"{MEMINFO} {field}")
        for unit, fields in (("B", SIZES), ("1", COUNTS))
        for field, name, doc in fields
    ),
)
_FIELDS = Fields((f"{field}:".encode() for field, _, _ in SIZES + COUNTS), [KIB] * len(SIZES))


def parse(content: bytes) -> list[int]:
    """Give the values of a meminfo.

    :raises ValueError: when it does not consist of names and numbers.
    """
    words = content.replace(b" kB\n", b"\n").split()
    if len(words) % 2:
        raise ValueError(f"{MEMINFO} has {len(words)} words without the units; expected pairs of name and number")
    return _FIELDS.pick(words[::2], words[1::2])


def read(host: Host) -> list[Row]:
    """Read the one row of the whole system."""
    return [("", parse(host.read(MEMINFO)))]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``memory``."""
    return [Probe(MEMORY, read, pure=True)]
