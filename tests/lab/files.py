# SPDX-License-Identifier: Apache-2.0
"""What the files of a cgroup say, by a reader of the lab's own, and which column of a table is to say the same.

Source: ``Documentation/admin-guide/cgroup-v2.rst``.
"""

from pathlib import Path

from sysmond_probes import cgroup_memory

Numbers = dict[str, int]
Cells = dict[str, int | str | None]

# Where each column comes from: the file, and what stands before its number.
SOURCES: dict[str, dict[str, tuple[str, str]]] = {
    "cgroup": {
        **{f"cpu_{name}": ("cpu.stat", f"{name}_usec") for name in ("usage", "user", "system", "throttled")},
        "cpu_periods": ("cpu.stat", "nr_periods"),
        "cpu_throttled_periods": ("cpu.stat", "nr_throttled"),
        "memory_used": ("memory.current", ""),
        "pids": ("pids.current", ""),
        **{
            f"{of}_{whom}_total": (f"{of}.pressure", f"{whom} total")
            for of in ("cpu", "memory", "io")
            for whom in ("some", "full")
        },
    },
    "cgroup_memory": {
        "peak": ("memory.peak", ""),
        "swap": ("memory.swap.current", ""),
        "swap_peak": ("memory.swap.peak", ""),
        "zswap": ("memory.zswap.current", ""),
        **{
            f"{column}_{name}": (file, name)
            for column, file in (("events", "memory.events"), ("local_events", "memory.events.local"))
            for name in ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
        },
    },
    "cgroup_limits": {
        "cpu_quota": ("cpu.max", "quota"),
        "cpu_period": ("cpu.max", "period"),
        "cpu_weight": ("cpu.weight", ""),
        **{f"memory_{name}": (f"memory.{name}", "") for name in ("max", "high", "low", "min")},
        "swap_max": ("memory.swap.max", ""),
        "zswap_max": ("memory.zswap.max", ""),
        "pids_max": ("pids.max", ""),
        "pids_peak": ("pids.peak", ""),
        "pids_failures": ("pids.events", "max"),
        "io_weight": ("io.weight", "default"),
        "frozen": ("cgroup.freeze", ""),
        "oom_group": ("memory.oom.group", ""),
        "zswap_writeback": ("memory.zswap.writeback", ""),
    },
}
# All that memory.stat has and the table knows; its zswap is a file of its own.
_KINDS = {metric.name for metric in cgroup_memory.MEMORY.metrics} - {"id", *SOURCES["cgroup_memory"]}
SOURCES["cgroup_memory"].update({name: ("memory.stat", name) for name in _KINDS})
IO_COLUMNS = {
    "read_bytes": "rbytes",
    "written_bytes": "wbytes",
    "discarded_bytes": "dbytes",
    "reads": "rios",
    "writes": "wios",
    "discards": "dios",
    **{f"cost_{name}": f"cost.{name}" for name in ("usage", "wait", "indebt", "indelay")},
}


def told(folder: Path, file: str) -> Numbers:
    """What a file says, by what stands before each number; nothing where it is not there, nor of ``max``."""
    found: Numbers = {}
    try:
        lines = (folder / file).read_text().splitlines()
    except OSError:
        return found
    if file == "cpu.max":
        lines = [f"{name} {word}" for name, word in zip(("quota", "period"), lines[0].split(), strict=True)]
    for line in lines:
        *name, last = line.split()
        pairs = [word.split("=") for word in line.split()[1:] if "=" in word]
        if pairs:
            found.update({f"{name[0]} {key}": int(value.replace(".", "")) for key, value in pairs})
        elif last != "max":
            found[" ".join(name)] = int(last)
    return found


def expected(table: str, folder: Path) -> Cells:
    """What a row of a table would be, by the files as they are now."""
    files = {file: told(folder, file) for file, _ in SOURCES[table].values()}
    cells: Cells = {metric: files[file].get(key) for metric, (file, key) in SOURCES[table].items()}
    cells["id"] = folder.stat().st_ino
    if table == "cgroup_limits":
        cells["cpus"] = (folder / "cpuset.cpus.effective").read_text().strip()
        cells["nodes"] = (folder / "cpuset.mems.effective").read_text().strip()
        cells["controllers"] = (folder / "cgroup.controllers").read_text().strip()
    return cells
