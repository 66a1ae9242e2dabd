# SPDX-License-Identifier: Apache-2.0
"""Synonyms: what people type for tables, columns and options that have another name here.

Only for suggestions: nothing is taken to be what was meant. What a word means is tried in this order, as far as it is
known where the word was typed; names of other programs' metrics are in ``sysmond.base.elsewhere``.
"""

from collections.abc import Mapping

_TABLES = {
    "ac": "mains",
    "charger": "mains",
    "container docker podman cgroups": "cgroup",
    "crash crashes died ended exit": "exits",
    "df fs mount mountpoint space": "filesystem mounts",
    "dmesg kmsg kernel log": "kernel_message",
    "drive drives hdd io ssd storage": "disk",
    "eth ethernet interface interfaces internet net nic": "network link",
    "graphics nvidia vga": "gpu",
    "heat sensor sensors temp temps thermal": "temperature",
    "irq irqs": "interrupt",
    "logins sessions users who": "login session",
    "mem ram": "memory",
    "ping": "icmp",
    "proc procs ps task tasks top": "process",
    "psi": "pressure",
    "service services systemd": "unit",
    "wireless wlan": "wifi",
}
_COLUMNS = {
    "charge level": "capacity",
    "cmd cmdline args": "command",
    "download in received recv rx": "received_bytes",
    "io": "read_bytes written_bytes",
    "latency": "await",
    "load pct percent usage util utilisation utilization": "busy utilization used_percent cpu_percent",
    "mem memory ram res resident": "rss memory_percent used",
    "name prog program": "comm",
    "out sent tx upload": "sent_bytes",
    "owner": "username",
    "queue": "queue_length",
    "read reading": "read_bytes",
    "sys": "system",
    "temp": "temperature value",
    "usr": "user",
    "wait waiting": "iowait run_delay",
    "write writes writing written": "written_bytes",
}
_OPTIONS = {
    "--agg --aggregate": "--stat",
    "--archive --data --dir --directory --host --path": "--state-dir",
    "--begin --date --last --range --time": "--from",
    "--bucket --period --resolution": "--sample",
    "--count --head --lines --n -n": "--top --count",
    "--csv": "--format=csv",
    "--directory": "--state-dir",
    "--exclude --ignore": "--drop",
    "--fields --select": "--columns",
    "--file --out": "--output-file",
    "--filter --grep --match": "--where",
    "--group": "--group-by",
    "--html": "--output-file=F.html",
    "--json": "--json --format=json",
    "--machine": "--system",
    "--me --mine": "--user",
    "--order --order-by --orderby": "--by",
    "--query": "--sql",
    "--stop --finish": "--to",
    "--timezone --tz": "--utc",
    "--unit": "--units",
    "--watch": "--every --follow",
    "--xlsx --excel": "--spreadsheet",
}


def _by_word() -> Mapping[str, tuple[str, ...]]:
    meant: dict[str, tuple[str, ...]] = {}
    for said in (_TABLES, _COLUMNS, _OPTIONS):
        for words, names in said.items():
            for word in words.split():
                meant[word] = (*dict.fromkeys((*meant.get(word, ()), *names.split())),)
    return meant


MEANT = _by_word()
"""By word what it may mean, the likeliest first; of an option, with the value that it would take."""
