# SPDX-License-Identifier: Apache-2.0
"""What a question to a table costs, asked by a cold command line: the first by a column, conditions, joins in SQL.

A day of disks, control groups and processes that are made up, and, in an archive of its own, a month of CPUs: as the
archiver leaves them, rolled up, merged, and each file written when it ends.
Cold means a new process; the files are in the page cache. What a table answers is compared with one series of it, by
turns in one run; processor time is that of the program to its end, medians count.
"""

import os
import sys
import time
from functools import partial
from importlib.util import find_spec

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure, query, top
from benchmarks.measure import Figures, Spent
from sysmond.base import clock
from sysmond.base.model import Metric, Semantics, Sensitivity, Table
from sysmond.machine.folders import FILE_MODES, Folders
from sysmond.store import archive

PROCESSES, DISKS, GROUPS, CPUS, HOURS, DAYS, REPEATS = 100, 12, 100, 5, 24, 30, 11
HOUR_S, DAY_S = 3600, 86_400
FIVE_MINUTES_S = 300
# As the archiver leaves a day: merged files of some hours each.
FILE_S = 8 * HOUR_S
LIMIT_S = 1800
COUNTERS = ("first", "second", "third", "fourth", "fifth", "sixth")


def table(name: str) -> Table:
    """A table of six counters and two gauges an instance, as wide as the real ones are on the mean."""
    counters = [Metric(metric, "B", Semantics.COUNTER, f"The {metric} that it counts.") for metric in COUNTERS]
    gauges = [Metric(metric, "1", Semantics.GAUGE, f"The {metric} of it.") for metric in ("level", "depth")]
    return Table(name, (*counters, *gauges), "thing", "What stands for a table of a real machine.")


def write(folders: Folders, name: str, instances: int, interval_s: int, span: tuple[int, int], sequence: int) -> int:
    """Write one file of a table over some seconds of UTC; give its bytes."""
    import numpy as np  # noqa: PLC0415  for the child

    from sysmond.store.files import dense_file  # noqa: PLC0415  as above
    from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand  # noqa: PLC0415  as above

    made = table(name)
    begin_s, end_s = span
    relation = clock.Relation(0, begin_s * clock.SECOND_NS, 0)
    seconds = np.arange(sequence * DAY_S, sequence * DAY_S + end_s - begin_s, interval_s, dtype=np.int64)
    random = np.random.default_rng(sequence)
    keys, values = [], []
    for instance in range(instances):
        # Of ten, seven are nearly idle.
        scale = 1e5 if instance % 10 < 3 else 2.0
        for metric in made.metrics:
            keys.append(SeriesKey(name, metric.name, f"thing{instance}"))
            grown = random.poisson(np.repeat(random.gamma(1.0, scale, len(seconds) // 60 + 1), 60)[: len(seconds)])
            values.append(np.cumsum(grown) if metric.semantics is Semantics.COUNTER else grown)
    # Each file is of a boot of its own: what they say of the clock needs not agree then.
    boot = f"{sequence:032x}"
    block = MemoryBlock(
        Strand(boot, name, clock.SECOND_NS, interval_s * clock.SECOND_NS),
        seconds * clock.SECOND_NS,
        keys,
        np.array(values),
    )
    relation = relation._replace(realtime_ns=(begin_s - sequence * DAY_S) * clock.SECOND_NS)
    recording = Recording(Sensitivity.PUBLIC, {name: made}, [block], {}, {boot: [relation]}, [])
    image = dense_file.encode(recording, "sysmond benchmark")
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
    file = archive.Name(boot, 1, 1).file
    archive.publish(folder, file, image, FILE_MODES[Sensitivity.PUBLIC])
    os.utime(f"{folder}/{file}", (end_s, end_s))
    return len(image)


def build(day: Folders, month: Folders, processes: int, hours: int, days: int) -> tuple[int, int]:
    """Write both archives; give where the month and the day begin, in seconds since 1970."""
    end_s = int(time.time()) // HOUR_S * HOUR_S - HOUR_S
    day_s, month_s = end_s - hours * HOUR_S, end_s - days * DAY_S
    measure.in_child(partial(top.write, day, processes, hours, day_s), LIMIT_S)
    sequence = 0
    for folders, name, instances, interval_s, first_s in (
        (day, "disk", DISKS, 1, day_s), (day, "cgroup", GROUPS, 5, day_s), (day, "cpu", CPUS, 1, day_s),
        (month, "cpu", CPUS, 1, month_s),
    ):  # fmt: skip
        for begin_s in range(first_s, end_s, FILE_S):
            sequence += 1
            span = begin_s, min(end_s, begin_s + FILE_S)
            measure.in_child(partial(write, folders, name, instances, interval_s, span, sequence), LIMIT_S)
    for folders in (day, month):
        measure.in_child(partial(merge, folders), LIMIT_S)
    return month_s, day_s


def merge(folders: Folders) -> int:
    """Make buckets of the rows and merge small files, as the archiver has by then; give when that was done, in s."""
    from sysmond.archiver import merge_job  # noqa: PLC0415  as above

    merge_job.merge(folders)
    return int(time.time())


def questions(
    of_day: Folders, of_month: Folders, month_s: int, day_s: int, hours: int
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The command lines that are measured: those of rows and series, and those of SQL."""
    end_s = day_s + hours * HOUR_S
    begin, begin_month = (
        [measure.program("sysmon-extract"), "--state-dir", folders.state, "--runtime-dir", folders.runtime]
        for folders in (of_day, of_month)
    )
    day = [f"--from={day_s}", f"--to={end_s}", "--format=csv"]
    few = [f"--from={end_s - FIVE_MINUTES_S}", f"--to={end_s}", "--format=csv"]
    rows = {
        "start": measure.START,
        "processes": [*begin, "process", *few, "--top=10", "--by=cpu"],
        "series": [*begin, "disk/first@thing1", *day, "--sample=1d"],
        "disks": [*begin, "disk", *day, "--top=10", "--by=first", "--columns=instance,first"],
        "groups": [*begin, "cgroup", *day, "--where=first > 1kB/s", "--columns=instance,first,level:max"],
    }
    join = (
        "select p.comm, count(*), max(c.first_rate) from process p asof join (from cpu where instance = 'thing0') c"
        " on p.time >= c.time group by 1 order by 2 desc"
    )
    sums = "select instance, sum(first), max(second_rate) from cpu group by 1"
    sql = {
        "join": [*begin, f"--sql={join}", *day],
        "month": [*begin_month, f"--sql={sums}", f"--from={month_s}", f"--to={end_s}", "--format=csv"],
    }
    return rows, sql if find_spec("duckdb") else {}


def measured(processes: int, hours: int, days: int, repeats: int) -> Figures:
    """Write the archive and ask.

    :raises RuntimeError: where an answer has no rows.
    """
    with measure.workplace() as of_day, measure.workplace() as of_month:
        month_s, day_s = build(of_day, of_month, processes, hours, days)
        rows_asked, sql_asked = questions(of_day, of_month, month_s, day_s, hours)
        answers = _answers(of_day, {**rows_asked, **sql_asked})
        spent = query.by_turns(rows_asked, repeats) | query.by_turns(sql_asked, max(1, repeats // 4))
    cpu_ms = {name: measure.ms(measure.median([one.cpu_ns for one in mine]), 1) for name, mine in spent.items()}
    return {
        "processes": processes,
        "hours": hours,
        "days": days,
        "answers": answers,
        **{f"{name}_cpu_ms": value for name, value in cpu_ms.items()},
        "disks_to_series": round(cpu_ms["disks"] / cpu_ms["series"], 2),
        **{f"{name}_wall_s": _wall_s(spent[name]) for name in sql_asked},
        **{f"{name}_peak_mb": _peak_mb(spent[name]) for name in sql_asked},
    }


def _answers(folders: Folders, commands: dict[str, list[str]]) -> dict[str, int]:
    """How many rows each question is answered with."""
    counts = {}
    for name, command in commands.items():
        if name == "start":
            continue
        output = f"{folders.runtime}/answer"
        measure.spend(command, output)
        with open(output, "rb") as answer:
            counts[name] = sum(not line.startswith(b"#") for line in answer) - 1
        if counts[name] < 1:
            raise RuntimeError(f"{' '.join(command)}: no rows")
    return counts


def _wall_s(spent: list[Spent]) -> float:
    return round(measure.median([one.wall_ns for one in spent]) / 1e9, 2)


def _peak_mb(spent: list[Spent]) -> float:
    return round(max(one.rss_max_bytes for one in spent) / 1e6, 1)


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    told = [
        ("top ten of processes over five minutes", f"{figures['processes_cpu_ms']:.0f} ms of CPU"),
        ("one series of a disk, a day", f"{figures['series_cpu_ms']:.0f} ms of CPU"),
        ("top ten of disks, a day", f"{figures['disks_cpu_ms']:.0f} ms, {figures['disks_to_series']:.2f} × of that"),
        (f"a condition on {GROUPS} control groups, a day", f"{figures['groups_cpu_ms']:.0f} ms of CPU"),
        ("starting Python with numpy and h5py", f"{figures['start_cpu_ms']:.0f} ms of CPU"),
    ]
    for name, what in (("join", "a day of processes with CPUs, joined"), ("month", f"{figures['days']} days of CPUs")):
        if f"{name}_cpu_ms" in figures:
            cost = f"{figures[f'{name}_cpu_ms']:.0f} ms of CPU, {figures[f'{name}_peak_mb']:.0f} MB"
            told.append((f"SQL: {what}", f"{figures[f'{name}_wall_s']:.2f} s, {cost}"))
    return told


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--processes", type=measure.at_least_one, default=PROCESSES, help=f"default {PROCESSES}")
    parser.add_argument("--hours", type=measure.at_least_one, default=HOURS, help=f"of the day, default {HOURS}")
    parser.add_argument("--days", type=measure.at_least_one, default=DAYS, help=f"of the month, default {DAYS}")
    parser.add_argument("--repeats", type=measure.at_least_one, default=REPEATS, help=f"default {REPEATS}")
    options = parser.parse_args()
    work = partial(measured, options.processes, options.hours, options.days, options.repeats)
    measure.run(work, rows, as_json=options.json)
