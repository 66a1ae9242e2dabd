# SPDX-License-Identifier: Apache-2.0
"""Fixed inputs, and the files that they are encoded as: every kind and tier of both formats, and rings.

Nothing here comes from a machine, a clock or a generator of random numbers. Long tables are declared by
``declarations.json``, as rings had them at the first freeze: a table that is given a column later changes nothing here.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np

from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, TIERS_NS, Cause, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.records import Records, codes, record_bytes
from sysmond.ring.frame import Identity, Layout, decode_layout
from sysmond.ring.writer import RingWriter
from sysmond.rollup import file_edges
from sysmond.rollup import series as rolling
from sysmond.rollup.top import roll_up
from sysmond.store import dense
from sysmond.store.archive import Name
from sysmond.store.files import dense_file, sparse_file
from sysmond.store.files.sparse_file import FileStretch
from sysmond.store.of_ring import BootEvent, Hole, MemoryBlock, Recording, SeriesKey, Strand
from sysmond.store.pins import Pin
from sysmond.store.stretches.chain import Chain, Ends
from sysmond.store.stretches.joined import Joined
from sysmond.store.stretches.stretch import MemoryStretch, Stretch
from sysmond.store.tiers import COARSE, Due
from tests.support.longarchive import Row, pack, stretch

FOLDER = Path(__file__).parent
BY = "golden"
BOOT, OTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2
UTC_NS = 1_741_996_800 * SECOND_NS  # 2025-03-15T00:00Z
BEGIN_S = 3000


def declared() -> dict[str, Table]:
    """The long tables, by name."""
    told = json.loads((FOLDER / "declarations.json").read_text(encoding="utf-8"))
    return {name: decode_layout(json.dumps(each).encode()).table for name, each in told.items()}


def mixed(numbers: Int64Array | int, salt: int = 0) -> Int64Array:
    """Numbers below 2^31 without a pattern that one sees, from others; the same for ever."""
    found = np.asarray(numbers, np.int64) * 2654435761 + salt * 40503 + 97
    found = (found ^ (found >> 15)) & 0x7FFFFFFF
    found = (found * 1103515245 + 12345) & 0x7FFFFFFF
    return np.asarray(found ^ (found >> 11), np.int64)


# --- wide tables ----------------------------------------------------------------------------------

DISK = Table(
    "disk",
    (
        Metric("read_bytes", "B", Semantics.COUNTER, "Bytes read.", 0, "/proc/diskstats 3"),
        Metric("busy", "s", Semantics.COUNTER, "Time busy.", 3, "/proc/diskstats 10"),
        Metric("in_flight", "1", Semantics.GAUGE, "Requests under way.", 0, "/proc/diskstats 9"),
        Metric("temperature", "°C", Semantics.GAUGE, "Of its drive.", 1),
        Metric("asleep", "1", Semantics.STATE, "1 where it is."),
        Metric("model", "text", Semantics.STATE, "Made by."),
    ),
    "device",
    "Block devices.",
)
HOST = Table("host", (Metric("kernel", "text", Semantics.STATE, "Its release.", 0, "uname"),), "", "The machine.")
TEXTS = {7: "ACME 4 TB", 8: "K\u00f6ln\udcff", 9: "6.12.0", 10: ""}
CLOCKS = [
    Relation(10 * SECOND_NS, UTC_NS + 10 * SECOND_NS, 10 * SECOND_NS),
    Relation((BEGIN_S + 400) * SECOND_NS, UTC_NS + (BEGIN_S + 437) * SECOND_NS, (BEGIN_S + 400) * SECOND_NS),
    Relation((BEGIN_S + 700) * SECOND_NS, UTC_NS + (BEGIN_S + 737) * SECOND_NS, (BEGIN_S + 650) * SECOND_NS),
]
HOLES = [
    Hole(BOOT, "disk", (BEGIN_S + 20 + at) * SECOND_NS, (BEGIN_S + 21 + at) * SECOND_NS, cause, f"hole {at}")
    # The last two are those of a range, which no file has.
    for at, cause in enumerate([*Cause][: [*Cause].index(Cause.BEFORE_RECORDING)])
]
EVENTS = [
    BootEvent(BOOT, (BEGIN_S + 5) * SECOND_NS, "mark", "", "deploy 12"),
    BootEvent(BOOT, (BEGIN_S + 9) * SECOND_NS, "pin", "oom", "k\u00f6ln"),
]


def series(ticks_s: Int64Array) -> dict[SeriesKey, Int64Array]:
    """Series of every width and kind: still, small, wide, huge, absent here and there, reset, for a while, never."""
    at = ticks_s - ticks_s[0]
    steady = np.full_like(at, 40)
    read = {
        "sda": 10**12 + np.cumsum(mixed(at, 1) % 90),
        "sdb": np.cumsum(mixed(at, 2) % 30_000),
        "sdc": np.cumsum(mixed(at, 3) * 7),
        "sdd": np.cumsum(mixed(at, 4) * 2**28),
        "sde": np.where(at < 300, at * 11, at - 300),
        "sdf": np.full_like(at, 5),
        "sdg": np.full_like(at, ABSENT),
    }
    found: dict[SeriesKey, Int64Array] = {}
    for number, (name, values) in enumerate(read.items()):
        gone = mixed(at, 20 + number) % 41 == 0 if number % 2 else np.zeros(len(at), np.bool_)
        if name == "sdc":
            gone = (at < 100) | (at >= 500)
        gauge = mixed(at // 3, 30 + number) % (3 if number < 3 else 10 ** min(9, 2 * number)) - number
        columns = (values, at * 7, gauge, steady if number % 3 else 300 + mixed(at, 6) % 50, at // 200 % 2)
        for metric, column in zip(DISK.metrics, (*columns, np.full_like(at, 7 + number % 2)), strict=True):
            found[SeriesKey("disk", metric.name, name)] = np.where(gone, ABSENT, column)
    return found


def recording(number: int, length_s: int = 900, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> Recording:
    """The recording with this number, of several that follow each other: two intervals, the last tick closed."""
    begin_s = BEGIN_S + number * length_s
    ticks_s = np.arange(begin_s, begin_s + length_s, dtype=np.int64)
    ticks_s = ticks_s[(ticks_s % 397 < 390)]  # Some are late.
    grown = {key: np.where(each == ABSENT, ABSENT, each + number * 10**6 * (key.metric == "read_bytes"))
             for key, each in series(ticks_s).items()}  # fmt: skip
    slow_s = ticks_s[ticks_s % 60 == 0]
    blocks = [
        MemoryBlock(
            Strand(BOOT, "sampler", 99 * SECOND_NS, SECOND_NS),
            ticks_s * SECOND_NS,
            list(grown),
            np.array(list(grown.values())),
            closed=number == 2,
        ),
        MemoryBlock(
            Strand(BOOT, "background", 101 * SECOND_NS, 60 * SECOND_NS),
            slow_s * SECOND_NS,
            [SeriesKey("host", "kernel", "")],
            np.full((1, len(slow_s)), 9, np.int64),
        ),
    ]
    is_first = number == 0
    holes, events = (HOLES, EVENTS) if is_first else ([], [])
    clocks = {BOOT: CLOCKS, **({OTHER: [Relation(1, UTC_NS - 10**15, 1)]} if is_first else {})}
    return Recording(sensitivity, {"disk": DISK, "host": HOST}, blocks, TEXTS, clocks, holes, events)


def segments() -> Iterator[tuple[str, bytes]]:
    """Files of rows and of tiers of wide tables, fresh, merged and shortened."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(rolling, "CREATED_BY", BY),
        patch.object(dense, "CREATED_BY", BY),
    ):
        names = [Name(BOOT, number, number) for number in (1, 2, 3)]
        rows = [f"{folder}/{name.file}" for name in names]
        for number, path in enumerate(rows):
            Path(path).write_bytes(dense_file.encode(recording(number), BY))
        yield "segment/rows.h5", Path(rows[0]).read_bytes()
        yield "segment/restricted.h5", dense_file.encode(recording(1, 90, Sensitivity.RESTRICTED), BY)
        yield "segment/rows-merged.h5", dense.merged(rows)
        pinned_ns = UTC_NS + (BEGIN_S + 1200) * SECOND_NS
        pin = Pin(pinned_ns, pinned_ns + 60 * SECOND_NS, "a test", "golden")
        yield "segment/rows-shortened.h5", dense.merged(rows, 8, [pin])
        before = [[], *([name] for name in names)]
        fresh = [rolling.roll_up_files(folder, Due([name], COARSE, before[at])) for at, name in enumerate(names)]
        for tier in COARSE:
            yield f"segment/{tier}.h5", fresh[1][tier]
            paths = [f"{folder}/{tier}-{number}.h5" for number in range(len(names))]
            for path, tiers in zip(paths, fresh, strict=True):
                Path(path).write_bytes(tiers[tier])
            yield f"segment/{tier}-merged.h5", rolling.merged(paths)


# --- long tables ----------------------------------------------------------------------------------

TASKS, LENGTH_S, FULL_S, FOREVER_S = 40, 420, 60, 10**9
CGROUPS = {1: "/", 40: "/system.slice/pg.service", 41: "/user.slice/user-0.slice/session-3.scope",
           42: "/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice/cri-containerd-"
               + "0a1b2c3d" * 8 + ".scope"}  # fmt: skip
PATHS: Sequence[dict[str, int | str]] = [{"id": number, "path": path} for number, path in CGROUPS.items()]


def task(number: int, second: int, begin_s: int) -> dict[str, int | str | None]:
    """What one of the tasks has at a second: it moves every few seconds, each at a pace of its own."""
    pace = 1 + number % 7
    moved = (second + number) // pace
    chance = int(mixed(moved, number))
    start_s = number if number % 5 else begin_s + number * 3
    used_us = moved * (number % 4) * 2300 + chance % 50
    cgroups = list(CGROUPS)
    return {
        "start": start_s * SECOND_NS + number * 10**7,
        "pid": 100 + number // 2 if number % 10 == 1 else 100 + number,
        "tid": 100 + number,
        "ppid": 1 if number < 4 else 100 + number // 4,
        "uid": 0 if number % 3 else 61_000 + number,
        "cgroup": cgroups[(number + (second > begin_s + 200) * (number == 9)) % len(cgroups)],
        "comm": f"task-{number % 11}" if number != 7 else "caf\udce9\x1b[1m",
        "cpu": used_us,
        "user": used_us * 6 // 10 // 4000 * 4000,
        "system": used_us * 4 // 10 // 4000 * 4000,
        "run_delay": moved * 17,
        "block_delay": None,
        "voluntary_switches": moved,
        "involuntary_switches": moved // 9,
        "minor_faults": 1000 + moved * (number % 3),
        "major_faults": moved // 40,
        "read_bytes": None if number % 6 == 0 else moved * 4096 * (number % 2),
        "written_bytes": None if number % 6 == 0 else moved * 8192 * (number % 5 == 2),
        "read_chars": moved * 99,
        "written_chars": 2**40 + moved * 1_000_003,
        "rss_anon": None if number % 8 == 3 and moved % 2 else 4096 * (number * 30 + chance % 20),
        "rss_file": 4096 * number,
        "rss_shmem": 0,
        "swap": 0,
        "virtual": 2**31 + number,
        "threads": 1 + chance % 3,
        "last_cpu": chance % 4,
        "priority": 20,
        "nice": -5 if number == 2 else 0,
        "policy": number % 3 == 2,
        "state": "RSD"[chance % 3] if number % 4 else "S",
        "namespace_pid": 1 + number,
        "namespace": 4026531836,
        "descriptors": 3 + chance % 90,
        "tcp_received": moved * 1448,
        "tcp_sent": moved * 60,
        "udp_received": moved // 5 * 512,
        "udp_sent": 0,
        "syscall": (-1, 441, 449)[chance % 3],
        "wchan": ("", "ep_poll", "futex_wait_queue")[chance % 3],
        "stack": chance % 4 + 1,
        "exe": f"/usr/bin/task-{number % 11}",
        "command": f"task-{number % 11} --number={number} " + "x" * (number * 3),
        "id": number,
        "path": f"/a/{number}",
        "functions": ";".join(["schedule", "do_wait", f"f{number}"][: 1 + number % 3]),
        "name": f"session {number % 6}",
        "bytes": moved * 77,
        "users": chance % 5,
        "took": chance % 10**6,
        "status": 200 if chance % 9 else 500,
        "end": second * SECOND_NS - chance % SECOND_NS,
        "exit_code": chance % 3,
        "signal": 9 * (number % 13 == 0),
        "core_dumped": 0,
        "peak_rss": 4096 * (number * 31),
    }


def ends_s(number: int, begin_s: int) -> int:
    """When a task ends."""
    return begin_s + 250 + number if number % 6 == 1 else FOREVER_S


def lasting(table: Table, second: int, begin_s: int, count: int, *, is_full: bool) -> list[Row]:
    """The rows of a table that lasts at a second: tasks come, move, and go."""
    is_still = all(metric.semantics is Semantics.STATE for metric in table.metrics)
    rows: list[Row] = []
    for number in range(1, count + 1):
        began = begin_s + number * 3 + 1 if number % 5 == 0 else 0
        moves = second == began or ((second + number) % (1 + number % 7) == 0 and not is_still)
        if began <= second < ends_s(number, begin_s) and (moves or is_full):
            of_cgroup = PATHS[number % len(PATHS)] if table.name == "cgroup_name" else {}
            rows.append(task(number, second, begin_s) | of_cgroup)
    return rows


def moments(table: Table, second: int, begin_s: int, count: int) -> list[Row]:
    """The rows of a table of moments at a second; what is told of once has a number of its own."""
    rows: list[Row] = []
    for number in range(1, count + 1):
        if (second * 7 + number * 13) % 37 == 0:
            once = {"pid": 1000 + second, "start": (second - number) * SECOND_NS, "id": second * 100 + number}
            rows.append(task(number, second, begin_s) | (once if table.name in {"exits", "request"} else {}))
    if table.name == "exits":
        rows += [task(number, second, begin_s) for number in range(1, TASKS + 1) if second == ends_s(number, begin_s)]
    return rows


def of_table(table: Table, begin_s: int, length_s: int, count: int) -> MemoryStretch:
    """Seconds of a long table, a reading each but for some that are late."""
    assert table.packing
    fulls = range(0, length_s, FULL_S) if table.packing.lasting else ()
    rows = [
        (at, row)
        for at in range(length_s)
        for row in (
            lasting(table, begin_s + at, begin_s, count, is_full=at in fulls)
            if table.packing.lasting
            else moments(table, begin_s + at, begin_s, count)
        )
    ]
    sensitivity = Sensitivity.RESTRICTED if table.name in {"command", "process_private"} else Sensitivity.PUBLIC
    ticks = [begin_s + at + (at >= 300) * 7 for at in range(length_s)]
    lost = {5: 3} if table.name == "process" else {}
    made = stretch(table, ticks, rows, full=fulls, boot=BOOT, lost=lost, sensitivity=sensitivity, relations=CLOCKS)
    hole = Hole(BOOT, table.name, (begin_s + 2) * SECOND_NS, (begin_s + 3) * SECOND_NS, Cause.PROBE_FAILED, "once")
    return made.with_about(made.about._replace(holes=[hole]))


def _ends(table: Table, begin_s: int) -> Ends:
    """What is told of the ends of some tasks, one of which no reading saw."""
    assert table.packing
    numbers = [number for number in range(1, TASKS + 1) if number % 6 == 1]
    rows = [task(number, begin_s + 251 + number, begin_s) for number in numbers]
    rows.append(task(77, begin_s + 30, begin_s) | {"start": (begin_s + 30) * SECOND_NS})
    columns = {name: np.array([row[name] for row in rows], np.int64) for name in (*table.packing.key, "cpu", "cgroup")}
    keys = np.stack([columns[name] for name in table.packing.key], axis=1)
    end_ns = np.array([begin_s + 250 + number for number in (*numbers, -210)], np.int64) * SECOND_NS
    return Ends(keys, end_ns, {"cpu": lambda: columns["cpu"]}, {"cgroup": lambda: columns["cgroup"]})


def long_files() -> Iterator[tuple[str, bytes]]:
    """Files of every long table in every tier; of some, what two of them are merged to."""
    steps_ns = [TIERS_NS[tier] for tier in COARSE]
    for name, table in declared().items():
        length_s, count = (LENGTH_S, TASKS) if name in {"process", "exits", "session"} else (130, 14)
        count = len(PATHS) if name == "cgroup_name" else count
        first, second = (of_table(table, BEGIN_S + number * (length_s + 9), length_s, count) for number in (0, 1))
        yield f"long/{name}-1s.h5", sparse_file.encode(first, BY)
        parts: Sequence[Stretch] = [first, second]
        chain = Chain(parts, _ends(table, BEGIN_S)) if name == "process" else None
        whole = roll_up(parts, steps_ns, chain=chain)
        for tier, made in zip(COARSE, whole, strict=True):
            yield f"long/{name}-{tier}.h5", sparse_file.encode(made, BY)
        if name in {"process", "exits", "cgroup_name"}:
            with tempfile.TemporaryDirectory() as folder:
                yield f"long/{name}-1s-merged.h5", _merged(Path(folder), parts, Joined)
                early, late = (roll_up(parts[: 1 + at], steps_ns, at)[0] for at in (0, 1))
                yield f"long/{name}-10s-merged.h5", _merged(Path(folder), [early, late], file_edges.merged)


def _merged(folder: Path, parts: Iterable[Stretch], merge: Callable[[list[FileStretch]], Stretch]) -> bytes:
    """One file of several, as they come back from files."""
    with ExitStack() as stack:
        opened = []
        for number, part in enumerate(parts):
            path = folder / f"{number}.h5"
            path.write_bytes(sparse_file.encode(part, BY))
            opened.append(stack.enter_context(sparse_file.open_file(str(path))))
        return sparse_file.encode(merge(opened), BY)


# --- rings ----------------------------------------------------------------------------------------


def write(ring: RingWriter, table: Table, second: int, rows: Sequence[Row], *, is_full: bool) -> None:
    """Write a reading of a long table into its ring."""
    kind = list(zip(table.metrics, codes(table), strict=True))
    packed, blob = pack(table, kind, rows)
    ring.records(0, second * SECOND_NS, [Records(packed, is_full, 0, len(rows), blob)], record_bytes(table))


def rings() -> Iterator[tuple[str, bytes]]:
    """A ring of wide tables, and one of a long table, that went round."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/wide.ring"
        layouts = [Layout(DISK, SECOND_NS), Layout(HOST, 60 * SECOND_NS)]
        ring = RingWriter(path, 1 << 16, Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, 99 * SECOND_NS), layouts)
        ticks_s = np.arange(BEGIN_S, BEGIN_S + 300, dtype=np.int64)
        told = series(ticks_s)
        for at, second in enumerate(ticks_s.tolist()):
            ring.clock(CLOCKS[0])
            names = ("sda", "sdb", "sdc") if at < 200 else ("sda", "sdc", "sde")
            texts = {7: ring.text(TEXTS[7]), 8: ring.text(TEXTS[8])}
            values = [int(told[SeriesKey("disk", metric.name, name)][at]) for name in names for metric in DISK.metrics]
            if at % 50 == 49:
                ring.absence(0, second * SECOND_NS, Cause.NO_SOURCE, "FileNotFoundError: /proc/diskstats")
            else:
                ring.rows(0, second * SECOND_NS, names, [texts.get(value, value) for value in values])
            if second % 60 == 0:
                ring.rows(1, second * SECOND_NS, ("",), [ring.text(TEXTS[9])])
        ring.event((BEGIN_S + 299) * SECOND_NS, "mark", "", "the end")
        ring.close()
        yield "ring/wide.ring", Path(path).read_bytes()
        path, table = f"{folder}/long.ring", declared()["process"]
        identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, 99 * SECOND_NS)
        ring = RingWriter(path, 1 << 16, identity, [Layout(table, SECOND_NS)])
        for second in range(BEGIN_S, BEGIN_S + 100):
            ring.clock(CLOCKS[0])
            is_full = second % FULL_S == 0
            write(ring, table, second, lasting(table, second, BEGIN_S, 12, is_full=is_full), is_full=is_full)
        ring.close()
        yield "ring/long.ring", Path(path).read_bytes()


def images() -> Mapping[str, bytes]:
    """All files that are frozen, by name."""
    return dict([*segments(), *long_files(), *rings()])
