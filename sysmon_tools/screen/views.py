# SPDX-License-Identifier: Apache-2.0
"""What the screen can show: views, and the sheets of columns of which each is made.

A view is opened by its key. A sheet is a question that anybody could ask of ``sysmon-extract``: a table, columns, an
order. Columns that a table lacks, because its plugin or the archive is older, are left out.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sysmon_tools.daily import DAILY

OVERVIEW = "overview"
WAITS = "waits"
EVENTS_VIEW = "events"
PROCESSES = "processes"
CGROUPS = "cgroups"
UNITS = "units"


class Sheet(NamedTuple):
    """Columns of one table. ``by``: the column by which rows come, the largest first.

    ``group_by``: columns whose rows are put together. ``reach_s``: how far back the newest rows may lie.
    """

    name: str
    table: str
    columns: tuple[str, ...]
    by: str
    group_by: tuple[str, ...] = ()
    reach_s: float = 3.0


class SheetColumns(NamedTuple):
    """Columns that somebody chose for a sheet, in order; ``widths``: of how many characters the texts of some may be.

    What tells its rows apart, and what they are put together by, a sheet shows in any case.
    """

    names: tuple[str, ...]
    widths: Mapping[str, int] = {}


class Way(NamedTuple):
    """Where Enter leads from a row: to a view, of which only rows are shown that agree with these columns of it.

    ``columns``: pairs of a column here, and the column there. ``sheet``: which of that view.
    """

    view: str
    columns: tuple[tuple[str, str], ...]
    sheet: int = 0


class ScreenView(NamedTuple):
    """``curves``: labels of the curves above its rows. ``tree``: the columns of a row's name, and of its parent's."""

    name: str
    key: str
    sheets: tuple[Sheet, ...] = ()
    curves: tuple[str, ...] = ("CPU", "Disk wait")
    way: Way | None = None
    tree: tuple[str, str] | None = None


def _sheet(name: str, table: str, columns: str, by: str, *, group_by: str = "", reach_s: float = 3.0) -> Sheet:
    return Sheet(name, table, tuple(columns.split()), by, tuple(group_by.split()), reach_s)


def _daily(name: str, table: str, more: str, by: str, *, reach_s: float = 3.0) -> Sheet:
    """The instance, what people look at daily, and ``more``."""
    return _sheet(name, table, " ".join(("instance", *DAILY[table], more)), by, reach_s=reach_s)


# What cgroups, sensors and disks' own counters are read at, with a little to spare.
_CGROUP_S, _BACKGROUND_S, _SMART_S = 12.0, 130.0, 3700.0
_PROCESS = "pid ppid start end"

VIEWS = (
    ScreenView(OVERVIEW, "s"),
    ScreenView(
        PROCESSES,
        "p",
        (
            _sheet("general", "process", f"{_PROCESS} username comm state cpu_percent memory_percent rss"
                   " read_bytes written_bytes threads command", "cpu_percent"),
            _sheet("CPU", "process", f"{_PROCESS} comm cpu_percent user_percent system_percent wait_percent block_delay"
                   " nice policy last_cpu voluntary_switches involuntary_switches command", "cpu_percent"),
            _sheet("memory", "process", f"{_PROCESS} comm memory_percent rss rss_anon rss_file rss_shmem swap virtual"
                   " minor_faults major_faults command", "rss"),
            _sheet("I/O", "process", f"{_PROCESS} comm read_bytes written_bytes read_chars written_chars"
                   " block_delay gpu_percent command", "written_bytes"),
            _sheet("where", "process", f"{_PROCESS} username comm unit container cgroup_path exe", "comm"),
        ),
        way=Way(WAITS, (("pid", "pid"),), 1),
        tree=("pid", "ppid"),
    ),
    ScreenView(
        CGROUPS,
        "c",
        (
            _sheet("general", "cgroup", "instance cpu_percent memory_used pids throttled_percent", "cpu_percent",
                   reach_s=_CGROUP_S),
            _sheet("pressure", "cgroup", "instance cpu_some_percent memory_some_percent memory_full_percent"
                   " io_some_percent io_full_percent", "io_some_percent", reach_s=_CGROUP_S),
            _sheet("I/O", "cgroup_io", "instance read_bytes written_bytes reads writes", "written_bytes",
                   reach_s=_CGROUP_S),
            _sheet("limits", "cgroup_limits", "instance memory_max memory_high swap_max cpu_quota cpu_period pids_max",
                   "memory_max", reach_s=_BACKGROUND_S),
        ),
        way=Way(PROCESSES, (("instance", "cgroup_path"),)),
        tree=("instance", ""),
    ),
    ScreenView(
        UNITS,
        "u",
        (
            _sheet("units", "process", "unit count cpu_percent memory_percent rss read_bytes written_bytes",
                   "cpu_percent", group_by="unit"),
            _sheet("containers", "process", "container count cpu_percent memory_percent rss read_bytes written_bytes",
                   "cpu_percent", group_by="container"),
            _sheet("users", "process", "username count cpu_percent memory_percent rss read_bytes written_bytes",
                   "cpu_percent", group_by="username"),
            _sheet("user units", "process", "user_unit username count cpu_percent memory_percent rss read_bytes"
                   " written_bytes", "cpu_percent", group_by="user_unit username"),
        ),
        way=Way(PROCESSES, (("unit", "unit"), ("container", "container"), ("user_unit", "user_unit"),
                            ("username", "username"))),
    ),
    ScreenView(
        WAITS,
        "w",
        (
            _sheet("together", "thread_state", "count state syscall_name wchan comm", "count",
                   group_by="state syscall_name wchan comm"),
            _sheet("threads", "thread_state", "pid tid username comm state syscall_name wchan functions count", "count",
                   group_by="pid tid username comm state syscall_name wchan functions"),
        ),
        curves=("CPU wait", "Memory wait", "Disk wait"),
        way=Way(WAITS, tuple((name, name) for name in ("state", "syscall_name", "wchan", "comm", "username", "exe",
                                                       "unit", "cgroup_path")), 1),
    ),
    ScreenView(
        "disks",
        "d",
        (
            _daily("devices", "disk", "reads writes", "utilization"),
            _daily("file systems", "filesystem", "size", "used_percent", reach_s=_BACKGROUND_S),
            _daily("health", "smart", "verdict reallocated pending", "temperature", reach_s=_SMART_S),
        ),
        curves=("Disk wait", "Disk busy", "Disk"),
    ),
    ScreenView(
        "networks",
        "n",
        (
            _daily("interfaces", "network", "utilization", "received_bytes"),
            _daily("Wi-Fi", "wifi", "snr noise failures channel", "signal", reach_s=_BACKGROUND_S),
        ),
        curves=("Network",),
    ),
    ScreenView(
        "sensors",
        "h",
        (
            _daily("temperatures", "temperature", "headroom max crit alarm", "value", reach_s=_BACKGROUND_S),
            _daily("fans", "fan", "min alarm", "value", reach_s=_BACKGROUND_S),
            _daily("batteries", "battery", "time_left voltage cycles health", "capacity", reach_s=_BACKGROUND_S),
            _sheet("throttling", "cpu_throttle", "instance throttled throttled_percent longest", "throttled_percent",
                   reach_s=_BACKGROUND_S),
            _sheet("energy", "rapl", "instance energy", "energy", reach_s=_BACKGROUND_S),
        ),
        curves=("CPU", "Hottest"),
    ),
    ScreenView(
        "ended",
        "x",
        (_sheet("processes", "exits", "end pid username comm signal_name exit_name cpu peak_rss read_bytes"
                " written_bytes command", "end", reach_s=60),),
    ),
    ScreenView(EVENTS_VIEW, "e", (_sheet("events", "event", "kind subject text", "time"),)),
    ScreenView(
        "sysmond",
        "o",
        (_sheet("own cost", "self", "instance cpu_percent rss lateness missed dropped failures", "cpu_percent",
                reach_s=_BACKGROUND_S),),
    ),
)  # fmt: skip
BY_NAME = {view.name: view for view in VIEWS}
BY_KEY = {view.key: view for view in VIEWS}
