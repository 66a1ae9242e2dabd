# SPDX-License-Identifier: Apache-2.0
"""Processes that no machine ran: their records, second by second, with what real ones have in common.

A process that runs moves its CPU time, the time it waited, its switches and, at times, its faults, memory and bytes
together; most wake up at a pace of their own, some seldom, a few all the time. User and system time are those of a
kernel that samples them every 4 ms.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity, Table
from sysmond.store.stretches.sparse_of_ring import record_type
from sysmond.store.stretches.stretch import About, MemoryStretch, Readings
from sysmond.tasks.tables import PROCESS

Array = npt.NDArray[Any]

BOOT = "0123456789abcdef" * 2
FULL_S = 300
PAGE_BYTES = 4096
_SAMPLED_US = 4000
_KIND = record_type(PROCESS)


class Load(NamedTuple):
    """``changing``: the part of all processes that run within a second; ``busy_us``: CPU time of one that does."""

    changing: float
    busy_us: float


QUIET = Load(0.08, 90.0)
BUSY = Load(0.26, 900.0)


def seconds(processes: int, load: Load, length_s: int, seed: int = 1) -> Iterator[tuple[int, bool, Array]]:
    """Each second's number, whether it has all, and its records."""
    random = np.random.default_rng(seed)
    rows = _beginning(processes, random)
    # How often each wakes: a few every second, most every few seconds, many hardly ever.
    weight = random.lognormal(0.0, 1.6, processes)
    chance = np.minimum(1.0, weight)
    for _ in range(20):
        chance = np.minimum(1.0, chance * load.changing / chance.mean())
    period = 1.0 / chance
    is_steady = random.random(processes) < 0.6
    due = random.random(processes) * period
    habits = _Habits(
        load.busy_us * random.lognormal(0.0, 1.0, processes),
        np.round(random.lognormal(5.0, 1.5, processes)).astype(np.int64),
        random.integers(1, 400, processes),
    )
    for second in range(length_s):
        runs = np.where(is_steady, due < second, random.random(processes) < chance)
        due = np.where(runs, due + np.maximum(1.0, np.round(period)), due)
        _run(rows, np.flatnonzero(runs), habits, random)
        is_full = second % FULL_S == 0
        yield second, is_full, (rows if is_full else rows[runs]).copy()


class _Habits(NamedTuple):
    """Of each process the CPU time it usually takes, and what it usually reads and writes: most do so again."""

    used_us: Array
    read: Array
    written: Array


def _beginning(processes: int, random: np.random.Generator) -> Array:
    rows = np.zeros(processes, _KIND)
    number = np.arange(processes)
    rows["pid"] = np.sort(random.choice(40_000, processes, replace=False)) + 1
    rows["start"] = np.sort(random.integers(0, 10**15, processes))
    rows["ppid"] = random.choice([1, 2, *rows["pid"][:20]], processes)
    rows["uid"] = random.choice([0, 0, 0, 1000, 33, 101], processes)
    rows["cgroup"] = 4000 + 41 * (number // 8)
    rows["comm"] = [f"program-{task % 120}".encode() for task in number]
    rows["cpu"] = np.round(random.lognormal(13.0, 3.0, processes))
    rows["user"] = rows["cpu"] * 6 // 10 // _SAMPLED_US * _SAMPLED_US
    rows["system"] = rows["cpu"] * 4 // 10 // _SAMPLED_US * _SAMPLED_US
    rows["run_delay"] = np.round(random.lognormal(11.0, 3.0, processes))
    for name in ("voluntary_switches", "involuntary_switches", "minor_faults", "read_chars", "written_chars"):
        rows[name] = np.round(random.lognormal(8.0, 3.0, processes))
    has_memory = random.random(processes) < 0.6  # The others are threads of the kernel.
    for name in ("rss_anon", "rss_file", "virtual"):
        rows[name] = has_memory * PAGE_BYTES * np.round(random.lognormal(7.0, 1.5, processes))
    rows["read_bytes"] = has_memory * PAGE_BYTES * np.round(random.lognormal(4.0, 3.0, processes))
    rows["read_bytes_with_children"] = rows["read_bytes"]
    rows["threads"] = np.where(has_memory, random.geometric(0.5, processes), 1)
    rows["last_cpu"] = random.integers(0, 8, processes)
    rows["priority"] = 20
    rows["state"] = b"S"
    return rows


def _run(rows: Array, who: Array, habits: _Habits, random: np.random.Generator) -> None:
    count = len(who)
    used_us = np.round(habits.used_us[who] * random.lognormal(0.0, 0.5, count)).astype(np.int64) + 3
    wakes = 1 + random.poisson(np.minimum(20.0, used_us / 400.0))
    rows["cpu"][who] += used_us
    rows["run_delay"][who] += np.round(wakes * random.lognormal(2.3, 0.8, count)).astype(np.int64)
    rows["voluntary_switches"][who] += wakes
    rows["involuntary_switches"][who] += random.poisson(used_us / 20_000.0)
    sampled = random.poisson(used_us / _SAMPLED_US) * _SAMPLED_US
    in_user = random.random(count) < 0.6
    rows["user"][who] += sampled * in_user
    rows["system"][who] += sampled * ~in_user
    has_memory = rows["virtual"][who] > 0
    faults = random.poisson(used_us / 3000.0) * has_memory
    rows["minor_faults"][who] += faults
    grows = random.random(count) < 0.3
    rows["rss_anon"][who] += faults * grows * PAGE_BYTES
    shrinks = who[(random.random(count) < 0.01) & has_memory]
    rows["rss_anon"][shrinks] = rows["rss_anon"][shrinks] * 7 // 8 // PAGE_BYTES * PAGE_BYTES
    speaks = (random.random(count) < 0.4) & has_memory
    otherwise = np.where(random.random(count) < 0.25, random.lognormal(0.0, 1.0, count), 1.0)
    rows["read_chars"][who] += speaks * np.round(habits.read[who] * otherwise).astype(np.int64)
    answers = speaks & (random.random(count) < 0.5)
    rows["written_chars"][who] += answers * np.round(habits.written[who] * otherwise).astype(np.int64)
    stores = (random.random(count) < 0.02) & has_memory
    stored = stores * PAGE_BYTES * random.geometric(0.3, count)
    for name in ("written_bytes", "written_bytes_with_children"):  # Hardly any wait for children that store.
        rows[name][who] += stored
    moves = random.random(count) < 0.15
    rows["last_cpu"][who] = np.where(moves, random.integers(0, 8, count), rows["last_cpu"][who])
    rows["state"][who] = np.where(random.random(count) < 0.03, b"R", b"S")


def stretch(processes: int, load: Load, length_s: int, seed: int = 1, first_s: int = 0) -> MemoryStretch:
    """All of that as a stretch in memory."""
    return of_parts(list(seconds(processes, load, length_s, seed)), processes, first_s)


def of_parts(
    parts: list[tuple[int, bool, Array]],
    things: int,
    first_s: int,
    table: Table = PROCESS,
    sensitivity: Sensitivity = Sensitivity.PUBLIC,
) -> MemoryStretch:
    """Some seconds that follow each other, as a stretch; ``first_s``: boot time of the first."""
    length_s = len(parts)
    kind = record_type(table)
    rows = np.concatenate([part.view(np.dtype((np.void, kind.itemsize))) for _, _, part in parts]).view(kind)
    at = np.repeat(np.arange(length_s), [len(part) for _, _, part in parts])
    readings = Readings(
        (first_s + np.arange(length_s)) * SECOND_NS,
        np.array([is_full for _, is_full, _ in parts]),
        np.zeros(length_s, np.int64),
        np.full(length_s, things),
    )
    texts: dict[bytes, int] = {}

    def column(name: str) -> npt.NDArray[np.int64]:
        if rows[name].dtype.kind != "S":
            return rows[name].astype(np.int64)
        distinct, where = np.unique(rows[name], return_inverse=True)
        return np.array([texts.setdefault(text, len(texts)) for text in distinct.tolist()])[where]

    for metric in table.metrics:
        if metric.is_text:
            column(metric.name)
    about = About(table, BOOT, "sampler", sensitivity, SECOND_NS)
    return MemoryStretch(about, readings, at, column, [text.decode() for text in texts])
