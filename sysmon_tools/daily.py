# SPDX-License-Identifier: Apache-2.0
"""What people look at daily: of each table the columns that they want, the most wanted first.

Presets and the sheets of the screen begin with these, and where a terminal has no room for all columns, it keeps these.
"""

from collections.abc import Mapping

from sysmond.base.column_groups import groups_of

_PROGRAM = "pid comm username"
DAILY: Mapping[str, tuple[str, ...]] = {
    table: tuple(columns.split())
    for table, columns in {
        "cpu": "busy user_percent system_percent iowait_percent steal_percent nice_percent idle_percent",
        "memory": "used_percent available used free cached buffers committed_percent dirty",
        "vm": "pswpin pswpout",
        "pressure": "some_percent full_percent",
        "disk": "utilization await read_bytes written_bytes queue_length transfers",
        "filesystem": "used_percent available used",
        "smart": "temperature percent_used power_on",
        "network": "received_bytes sent_bytes errors drops received_packets sent_packets",
        "wifi": "signal receive_rate send_rate retries",
        "battery": "status capacity power",
        "temperature": "value",
        "fan": "value",
        "process": f"{_PROGRAM} cpu rss read_bytes written_bytes state unit",
        "thread": f"tid {_PROGRAM} cpu run_delay state last_cpu",
        "thread_state": f"tid {_PROGRAM} state wchan syscall_name functions",
        "exits": f"{_PROGRAM} signal_name exit_code signal cpu peak_rss read_bytes written_bytes end start",
    }.items()
}


def rank(table: str, column: str) -> int:
    """How little a column is wanted: 0 is that of which people want most; all that is not wanted daily is alike.

    What the table moves, its group ``io``, comes next to that. ``column``: with a statistic or without.
    """
    daily = (*DAILY.get(table, ()), *groups_of(table).get("io", ()))
    wanted = [name.removesuffix("_percent") for name in daily]
    name = column.partition(":")[0].removesuffix("_percent")
    return wanted.index(name) if name in wanted else len(wanted)
