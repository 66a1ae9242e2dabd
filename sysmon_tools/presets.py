# SPDX-License-Identifier: Apache-2.0
"""Presets: what people ask for daily, by one word; sar's letters stand beside them.

A preset is a list of paths, and may be asked for beside other paths. ``docs/asking.md`` lists them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sysmond.errors import UsageError, expected, nearest


class Preset(NamedTuple):
    """``like``: the command whose place it takes. ``paths``: as ``sysmon-extract`` reads them."""

    says: str
    like: str
    paths: tuple[str, ...]


def _columns(table: str, names: str, instance: str = "") -> tuple[str, ...]:
    return tuple(f"{table}/{name}{instance}" for name in names.split())


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
        _columns("memory", "available free used used_percent buffers cached committed_percent dirty"),
    ),
    "swap": Preset(
        "swap in use, and pages that went in and out",
        "sar -S -W",
        (*_columns("memory", "swap_used swap_used_percent"), *_columns("vm", "pswpin pswpout")),
    ),
    "load": Preset("tasks that run or wait", "sar -q, uptime", ("load",)),
    "pressure": Preset(
        "how long tasks waited for CPU, memory and disks",
        "sar -q ALL",
        _columns("pressure", "some_percent full_percent"),
    ),
    "disk": Preset(
        "what disks read and wrote, and how long that took",
        "sar -d, iostat -x",
        _columns("disk", "transfers read_bytes written_bytes await queue_length utilization"),
    ),
    "filesystem": Preset(
        "how full file systems were", "sar -F, df", _columns("filesystem", "used available used_percent")
    ),
    "network": Preset(
        "what interfaces received and sent, lost and dropped",
        "sar -n DEV,EDEV",
        _columns("network", "received_bytes sent_bytes received_packets sent_packets errors drops"),
    ),
    "wifi": Preset(
        "how good the wireless link was",
        "iw dev station dump",
        _columns("wifi", "signal receive_rate send_rate retries"),
    ),
    "power": Preset(
        "batteries, and mains",
        "upower -d",
        (*_columns("battery", "status capacity power"), "mains/online"),
    ),
    "sensors": Preset("temperatures and fans", "sensors", ("temperature/value", "fan/value")),
    "smart": Preset(
        "the health of disks as they see it",
        "smartctl -a",
        _columns("smart", "healthy temperature power_on percent_used"),
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
