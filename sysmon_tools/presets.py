# SPDX-License-Identifier: Apache-2.0
"""Presets: what people ask for daily, by one word; sar's letters stand beside them.

A preset is a list of paths, and may be asked for beside other paths. ``docs/asking.md`` lists them; most have
the columns of ``daily``.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sysmon_tools.daily import DAILY
from sysmond.errors import UsageError, expected, nearest


class Preset(NamedTuple):
    """``like``: the command whose place it takes. ``paths``: as ``sysmon-extract`` reads them."""

    says: str
    like: str
    paths: tuple[str, ...]


def _columns(table: str, names: str, instance: str = "") -> tuple[str, ...]:
    return tuple(f"{table}/{name}{instance}" for name in names.split())


def _daily(table: str) -> tuple[str, ...]:
    return _columns(table, " ".join(DAILY[table]))


PRESETS = {
    "cpu": Preset(
        "what all CPUs together did",
        "sar -u",
        _columns("cpu", "user_percent nice_percent system_percent iowait_percent steal_percent idle_percent", "@total"),
    ),
    "cpus": Preset("how busy each CPU was", "sar -P ALL", ("cpu/busy",)),
    "memory": Preset(
        "memory in use and left",
        "sar -r, free",
        _daily("memory"),
    ),
    "swap": Preset(
        "swap in use, and pages that went in and out",
        "sar -S -W",
        (*_columns("memory", "swap_used swap_used_percent"), *_daily("vm")),
    ),
    "load": Preset("tasks that run or wait", "sar -q, uptime", ("load",)),
    "pressure": Preset(
        "how long tasks waited for CPU, memory and disks",
        "sar -q ALL",
        _daily("pressure"),
    ),
    "disk": Preset(
        "what disks read and wrote, and how long that took",
        "sar -d, iostat -x",
        _daily("disk"),
    ),
    "filesystem": Preset("how full file systems were", "sar -F, df", _daily("filesystem")),
    "network": Preset(
        "what interfaces received and sent, lost and dropped",
        "sar -n DEV,EDEV",
        _daily("network"),
    ),
    "wifi": Preset(
        "how good the wireless link was",
        "iw dev station dump",
        _daily("wifi"),
    ),
    "power": Preset(
        "batteries, and mains",
        "upower -d",
        (*_daily("battery"), "mains/online"),
    ),
    "sensors": Preset("temperatures and fans", "sensors", (*_daily("temperature"), *_daily("fan"))),
    "smart": Preset(
        "the health of disks as they see it",
        "smartctl -a",
        ("smart/healthy", *_daily("smart")),
    ),
}


def paths(words: Sequence[str]) -> list[str]:
    """The paths that presets mean, each once; a word may be several, with commas between.

    :raises UsageError: for one that there is not.
    """
    names = [name.strip() for word in words for name in word.split(",")]
    for name in names:
        if name not in PRESETS:
            raise UsageError(f"there is no preset {name!r}{nearest(name, PRESETS, expected(PRESETS))}")
    return list(dict.fromkeys(path for name in names for path in PRESETS[name].paths))


def lines() -> list[str]:
    """A line for each preset: its name, what it shows, and what people typed before."""
    width = max(map(len, PRESETS))
    return [f"{name:<{width}}  {preset.says} ({preset.like})" for name, preset in PRESETS.items()]
