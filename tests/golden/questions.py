# SPDX-License-Identifier: Apache-2.0
"""What the three archives are asked. A name says what is of interest; it is the name of the file of the answer, too."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.golden.asking import Question

BOTH = ("json", "csv")
ALL_STATS = "mean,min,max,tmax,first,last,sum,count"
LATE = {"start": "2025-03-30T21:00Z", "end": "2025-03-30T21:30Z"}
# Of the busy one: from tiers alone, over the seam to rows, of rows on disk, over RAM to the ring.
OLD = {"start": "2025-06-11T09:05Z", "end": "2025-06-11T09:15Z"}
SEAM = {"start": "2025-06-11T09:20Z", "end": "2025-06-11T09:40Z"}
ROWS = {"start": "2025-06-11T09:41Z", "end": "2025-06-11T09:45Z"}
NEW = {"start": "2025-06-11T09:50Z", "end": "2025-06-11T10:01:30Z"}
WHOLE = {"start": "2025-06-11T09:00Z", "end": "2025-06-11T10:05Z"}
# Of the troubled one: each of its boots.
FIRST = {"start": "2025-09-01T22:30Z", "end": "2025-09-01T23:20Z"}
SECOND = {"start": "2025-09-02T08:00Z", "end": "2025-09-02T08:12Z"}
THIRD = {"start": "2025-09-02T10:00Z", "end": "2025-09-02T10:35Z"}


def series(name: str, *paths: str, formats: Sequence[str] = BOTH, **said: Any) -> Question:
    """Ask for series."""
    return Question(name, "series", paths, said, formats)


def records(name: str, table: str, formats: Sequence[str] = BOTH, **said: Any) -> Question:
    """Ask for the rows of a table."""
    return Question(name, "records", (table,), said, formats)


def program(name: str, *words: str, formats: Sequence[str] = BOTH) -> Question:
    """Ask for what the program alone has."""
    return Question(name, "program", words, {}, formats)


QUIET = (
    series("everything-by-3h", step="3h"),
    series("all-statistics", "cpu/user", "memory", "load", step="6h", stat=ALL_STATS),
    series(
        "local-night-of-summer-time", "memory/available", start="2025-03-30 00:00", end="2025-03-30 06:00", step="1h"
    ),
    series("raw-of-the-ring", "cpu", "memory", start="2025-03-30T21:39Z", raw=True),
    series(
        "over-ram-and-ring",
        "memory/available",
        "load",
        start="2025-03-30T19:50Z",
        end="2025-03-30T21:10Z",
        step="10min",
    ),
    series("relative", "load", start="-10min", step="1min"),
    series("yesterday", "load", start="yesterday", end="today", step="2h"),
    series("this-boot", "host", boot="0", step="12h"),
    series("another-boot", "host", boot="-1", step="12h"),
    series("text-raw", "host/kernel", start="-5min", raw=True),
    series("instances", "filesystem", start="-3h", step="1h"),
    series("wildcard", "filesystem/u*@/h*", "l?ad", start="-2h", step="30min"),
    series("explained", "cpu/user", "memory/available", step="6h", explain=True, formats=("json", "table")),
    series("tier-10s-alone", "memory/available", "cpu", start="2025-03-30T03:00Z", end="2025-03-30T03:02Z", step="10s"),
    series(
        "tier-1min-alone", "cpu", start="2025-03-29T20:00Z", end="2025-03-29T20:10Z", step="1min", stat="mean,max,tmax"
    ),
    series("finer-than-what-is-left", "cpu/user", start="2025-03-29T20:00Z", end="2025-03-29T20:05Z", step="10s"),
    series("over-the-seam-to-rows", "cpu/user", start="2025-03-30T09:55Z", end="2025-03-30T10:05Z", step="1min"),
    series("odd-step", "load", start="2025-03-30T12:00Z", end="2025-03-30T12:02Z", step="7s"),
    series("in-the-future", "load", start="2025-04-01T00:00Z", end="2025-04-02T00:00Z", step="1h"),
    series("before-the-first", "load", start="2025-03-29T12:00Z", end="2025-03-29T18:10Z", step="1h"),
    series(
        "rows-only-statistics",
        "cpu/user",
        start="2025-03-30T08:00Z",
        end="2025-03-30T12:00Z",
        step="1h",
        stat="min,first,last",
    ),
    series("no-such-metric", "cpu/usr", step="1h"),
    series("as-recorded", "cpu/system", start="2025-03-30T21:39:30Z"),
    series(
        "other-formats",
        "filesystem",
        "load",
        start="-20min",
        step="10min",
        formats=("tsv", "jsonl", "table", "openmetrics", "hdf5"),
    ),
    program("epoch", "load", "--from=-20min", "--sample=10min", "--epoch"),
    program("utc", "load", "host", "--from=-20min", "--sample=10min", "--utc"),
    program("listed", "--list", formats=("csv", "json", "table")),
    records("rows-of-the-whole", "filesystem"),
    records("rows-over-tiers", "cpu", step="6h", columns="instance,user,user:max,user:sum,system:count"),
    series("percentiles", "cpu/user", "load", start="2025-03-30T12:00Z", step="30min", stat="p50,p99.9"),
    records("processes-of-an-hour", "process", start="-1h"),
    records("processes-by-steps", "process", step="6h", columns="pid,comm,cpu,cpu:sum,rss", top=3),
    records("owners-over-tiers", "process", step="12h", group_by="unit", columns="unit,cpu:sum,rss,count"),
    records(
        "where",
        "process",
        **LATE,
        where="comm ~ ^task-[12] and (cpu > 0.01% or rss > 300kB)",
        columns="pid,comm,cpu,rss:max",
    ),
    records("programs", "command", **LATE),
    records("paths", "cgroup_name", **LATE),
    records("a-percentile", "process", start="-2h", step="30min", percentile=50, columns="pid,cpu,rss"),
    program("tree", "process", "--tree", "--at=2025-03-30T21:00Z", formats=("csv", "table")),
)

BUSY = (
    series("everything-by-10min", step="10min", **WHOLE),
    series("rates", "cpu", "disk/read_bytes", step="1min", **SEAM),
    series("all-statistics", "disk/*@sda", step="10min", stat=ALL_STATS, **WHOLE),
    series("peaks-of-tiers", "cpu/user", "disk/in_flight", step="2min", stat="max,tmax,count", **OLD),
    series("raw", "disk@nvme0", "cpu/user@total", start="2025-06-11T09:59:55Z", end="2025-06-11T10:00:05Z", raw=True),
    series(
        "a-disk-comes",
        "disk/busy",
        "disk/temperature",
        start="2025-06-11T09:19:50Z",
        end="2025-06-11T09:20:10Z",
        step="2s",
    ),
    series(
        "a-disk-goes", "disk/busy", "disk/model", start="2025-06-11T09:39:50Z", end="2025-06-11T09:40:10Z", step="2s"
    ),
    series(
        "two-intervals",
        "cpu/user@total",
        "filesystem/used",
        "load",
        start="2025-06-11T09:45Z",
        end="2025-06-11T09:47Z",
        step="15s",
    ),
    series("restricted", "input", step="5min", **WHOLE),
    series("after-it-was-killed", "cpu/user@total", start="2025-06-11T10:00Z", step="10min"),
    series("explained", "cpu/user@total", "disk/read_bytes@sda", step="5min", explain=True, formats=("json",), **WHOLE),
    series(
        "other-formats",
        "disk/read_bytes",
        "disk/model",
        step="5min",
        formats=("tsv", "jsonl", "table", "openmetrics", "hdf5"),
        **NEW,
    ),
    records("top", "process", top=5, **ROWS),
    records("top-of-tiers", "process", top=5, **OLD),
    records(
        "top-over-the-seam",
        "process",
        top=5,
        by="cpu:sum",
        columns="pid,comm,start,end,cpu:sum,rss,rss:max,exit_code",
        **SEAM,
    ),
    records("by-steps-new", "process", step="2min", top=2, columns="pid,comm,cpu,rss:last,read_bytes:sum,state", **NEW),
    records("by-users", "process", group_by="user", **ROWS),
    records("by-owners", "process", group_by="unit,container", columns="unit,container,cpu,rss,rss:max,count", **SEAM),
    records("by-paths-of-tiers", "process", step="5min", group_by="cgroup", columns="cgroup,cpu:sum,rss", **OLD),
    records(
        "joined",
        "process",
        columns="pid,exe,command,unit,session,slice,container,pod,username",
        where="pid < 112",
        **ROWS,
    ),
    records("odd-names", "process", columns="pid,comm,cpu", where="comm ~ caf", **ROWS),
    records(
        "absent", "process", columns="pid,read_bytes:sum,block_delay,rss_anon", where="not read_bytes:sum >= 0", **ROWS
    ),
    records("started-since", "process", columns="pid,comm,start", where="start > 2025-06-11T09:03Z", **ROWS),
    records("a-percentile", "process", step="20s", percentile=95, top=5, columns="pid,comm,cpu,rss", **ROWS),
    records("threads", "thread", top=6, **ROWS),
    records("threads-of-tiers", "thread", step="5min", group_by="comm", top=3, **OLD),
    records("ends", "exits", where="exit_code = 2", **ROWS),
    records(
        "ends-first-by-memory", "exits", top=4, by="peak_rss", columns="pid,comm,start,end,exit_code,peak_rss", **NEW
    ),
    records("ends-by-names", "exits", group_by="comm", columns="comm,count,cpu", **ROWS),
    records("ends-of-tiers", "exits", step="5min", group_by="comm", columns="comm,count,cpu", top=3, **OLD),
    records("states", "thread_state", where="state = D", start="2025-06-11T09:44Z", end="2025-06-11T09:45Z"),
    records("states-grouped", "thread_state", group_by="state,syscall,wchan", **ROWS),
    records("states-of-tiers", "thread_state", group_by="unit,state", **OLD),
    records("stacks", "kernel_stack", **ROWS),
    records("private", "process_private", top=4, **ROWS),
    records(
        "private-by-steps",
        "process_private",
        step="5min",
        columns="pid,tcp_received:sum,descriptors:last,wchan",
        top=2,
        **NEW,
    ),
    records("strange-sessions", "session", **ROWS),
    records("strange-sessions-of-tiers", "session", step="5min", top=3, **OLD),
    records("strange-sessions-grouped", "session", group_by="name", columns="name,bytes:sum,users,count", **SEAM),
    records("strange-requests", "request", start="2025-06-11T09:44:30Z", end="2025-06-11T09:44:50Z"),
    records("strange-requests-grouped", "request", group_by="name,status", columns="name,status,count,bytes", **ROWS),
    records("strange-requests-of-tiers", "request", step="5min", top=3, by="bytes", **OLD),
    records("nothing-meets", "process", where="pid = 1", **ROWS),
    records("no-such-column", "process", columns="pid,rss_anom", **ROWS),
    records("no-such-table", "processes", **ROWS),
    records(
        "as-other-formats",
        "process",
        top=3,
        columns="pid,comm,start,cpu,state",
        formats=("tsv", "jsonl", "table", "hdf5"),
        **ROWS,
    ),
    program("tree", "process", "--tree", "--at=2025-06-11T09:43:20Z", formats=("json", "table")),
    program("a-life", "process", "--pid=107", "--from=2025-06-11T09:30Z", "--to=2025-06-11T10:00Z", "--sample=5min"),
    program("listed", "--list", formats=("csv", "json")),
    program("columns-of-a-stranger", "session", "--list", formats=("csv",)),
)

TROUBLED = (
    records("rows-of-the-first", "disk", columns="instance,read_bytes,read_bytes:sum,read_bytes:max", **FIRST),
    records("rows-by-steps", "cpu", step="10min", top=1, by="user:max", columns="instance,user:max,user:tmax", **FIRST),
    series("everything-by-hours", step="6h", start="2025-09-01T18:00Z", end="2025-09-02T18:00Z"),
    series("first-boot", "cpu", "disk/read_bytes@sda", "memory", step="5min", **FIRST),
    series("first-boot-fine", "disk/busy@sda", step="30s", **FIRST),
    series("all-statistics", "disk/*@sda", step="10min", stat=ALL_STATS, **FIRST),
    series("late-ticks", "cpu/user", start="2025-09-01T22:34:55Z", end="2025-09-01T22:35:10Z", raw=True),
    series(
        "set-forth",
        "memory/available",
        "cpu/user",
        start="2025-09-01T22:38:10Z",
        end="2025-09-01T22:39:10Z",
        step="10s",
    ),
    series(
        "set-back", "memory/available", "cpu/user", start="2025-09-01T22:44:20Z", end="2025-09-01T22:46:20Z", step="10s"
    ),
    series("set-back-raw", "memory/available", start="2025-09-01T22:45:30Z", end="2025-09-01T22:45:40Z", raw=True),
    series("asleep", "cpu/user", "disk/in_flight@sda", start="2025-09-01T22:45Z", end="2025-09-01T23:05Z", step="1min"),
    series("killed-and-ended", "cpu/user", start="2025-09-01T23:02Z", end="2025-09-01T23:08Z", step="20s"),
    series(
        "quarantined",
        "disk/read_bytes",
        "memory/available",
        start="2025-09-01T23:07:30Z",
        end="2025-09-01T23:10:30Z",
        step="10s",
    ),
    series("failed", "disk/busy@sdb", start="2025-09-01T22:41:20Z", end="2025-09-01T22:42:40Z", step="5s"),
    series(
        "a-reset",
        "cpu/user",
        "disk/read_bytes@sda",
        start="2025-09-01T23:09Z",
        end="2025-09-01T23:11Z",
        step="10s",
        stat="mean,max,sum",
    ),
    series(
        "fewer-digits",
        "disk/read_bytes@sda",
        start="2025-09-01T22:41Z",
        end="2025-09-01T22:46Z",
        step="15s",
        explain=True,
        formats=("json",),
    ),
    series(
        "pinned-and-not",
        "disk/read_bytes@sda",
        "memory/available",
        start="2025-09-01T22:41:10Z",
        end="2025-09-01T22:41:22Z",
        raw=True,
    ),
    series(
        "since-1970", "cpu/user", "disk/in_flight@sda", step="2min", start="1970-01-01T00:00Z", end="1970-01-01T00:20Z"
    ),
    series("late-correction", "cpu/user", "disk/in_flight@sda", step="1min", **SECOND),
    series("late-correction-by-boot", "cpu/user", boot="-1", step="5min"),
    series(
        "late-correction-raw",
        "memory/available",
        boot="b1b1b1b1",
        raw=True,
        start="2025-09-02T08:00Z",
        end="2025-09-02T08:00:06Z",
    ),
    series("third-boot", "cpu", "disk/read_bytes@sda", step="5min", **THIRD),
    series("third-boot-fine", "cpu/user", "disk/busy@sda", step="30s", **THIRD),
    series("over-boots", "cpu/user", step="30min", start="2025-09-01T22:00Z", end="2025-09-02T14:00Z"),
    series("newest-boot", "disk/asleep", boot="0", step="5min", stat="last,count"),
    series("explained", "cpu/user", "disk/busy@sda", step="10min", explain=True, formats=("json",), **FIRST),
    series("other-formats", "cpu/user", step="5min", formats=("tsv", "jsonl", "table", "openmetrics", "hdf5"), **FIRST),
    records("processes", "process", columns="pid,comm,cpu,cpu:sum,rss,start,end,exit_code", **FIRST),
    records("processes-by-steps", "process", step="5min", top=2, columns="pid,cpu,rss", **FIRST),
    records(
        "processes-asleep",
        "process",
        step="5min",
        group_by="comm",
        top=2,
        columns="comm,cpu:sum,rss",
        start="2025-09-01T22:45Z",
        end="2025-09-01T23:05Z",
    ),
    records(
        "processes-since-1970",
        "process",
        step="5min",
        top=2,
        columns="pid,cpu:sum",
        start="1970-01-01T00:00Z",
        end="1970-01-01T00:20Z",
    ),
    records("processes-corrected", "process", step="2min", top=2, columns="pid,cpu:sum,start", **SECOND),
    records("processes-third", "process", step="5min", top=3, columns="pid,cpu:sum,rss", **THIRD),
    records(
        "processes-over-boots",
        "process",
        group_by="comm",
        columns="comm,cpu:sum,count",
        start="2025-09-01T22:00Z",
        end="2025-09-02T14:00Z",
    ),
    records("processes-of-a-boot", "process", boot="-1", columns="pid,cpu:sum", top=3),
    records("ends", "exits", columns="pid,start,end,signal", where="end < 2025-09-01T22:40Z", **FIRST),
    records("ends-by-steps", "exits", step="10min", group_by="signal", columns="signal,count", **FIRST),
    records("ends-third", "exits", step="5min", group_by="signal", columns="signal,count", **THIRD),
    records("paths", "cgroup_name", **THIRD),
    series("damaged-and-not", "memory/available", step="20s", start="2025-09-02T10:09Z", end="2025-09-02T10:21Z"),
    series("a-damaged-chunk", "cpu/user", "disk/busy", step="1min", start="2025-09-02T08:03Z", end="2025-09-02T08:10Z"),
    series("damaged-raw", "memory/available", start="2025-09-02T10:09:56Z", end="2025-09-02T10:10:04Z", raw=True),
    series("a-damaged-chunk-raw", "cpu", "disk", start="2025-09-02T08:04:57Z", end="2025-09-02T08:05:03Z", raw=True),
    series("damaged-gaps", "cpu/user", step="1s", start="2025-09-02T10:19:57Z", end="2025-09-02T10:20:03Z"),
    records(
        "damaged-by-steps",
        "process",
        step="10s",
        group_by="user",
        columns="user,cpu:sum",
        top=1,
        start="2025-09-02T10:09:30Z",
        end="2025-09-02T10:10:30Z",
    ),
    program("listed", "--list", formats=("csv",)),
)

QUESTIONS: Mapping[str, Sequence[Question]] = {"quiet": QUIET, "busy": BUSY, "troubled": TROUBLED}
