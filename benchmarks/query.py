# SPDX-License-Identifier: Apache-2.0
"""What an answer costs: cold command lines on a day of recorded data, and the archiver's job for an hour.

Measured against only starting Python with numpy and h5py, which every one of these programs has to pay:
in one run, by turns, and the median of each counts. Processor time is user and system together, as the
kernel accounts it to the process when it ends.
"""

import os
import sys
import time
from functools import partial

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import START, START_ONE_THREAD, Figures, Spent
from sysmond.base import clock
from sysmond.base.model import Sensitivity
from sysmond.machine.folders import FILE_MODES, Folders
from sysmond.store import archive

SERIES = 600
HOURS = 24
REPEATS = 11
# As the archiver leaves a day: merged files of some hours each, the last hours in smaller ones.
FILE_HOURS = 8
ONE = "table_0/metric_1"
HUNDRED = [f"table_{number}/*" for number in range(4)]
HOUR_SERIES = 300
HOUR_TICKS = 3600


def build(folders: Folders, series: int, hours: int) -> tuple[int, int]:
    """Write a day of data that ended an hour ago; give its range in seconds since 1970."""
    now = clock.relation()
    # In boot time, which a young machine has not enough of: the relation to wall-clock time makes up for it.
    end_s = now.realtime_ns // clock.SECOND_NS - 3600
    start_s = end_s - hours * 3600
    relation = clock.Relation(clock.SECOND_NS, start_s * clock.SECOND_NS, clock.SECOND_NS)
    lengths = [FILE_HOURS] * (hours // FILE_HOURS) + [1] * (hours % FILE_HOURS)
    done = 0
    for sequence, length in enumerate(lengths, 1):
        measure.in_child(partial(_publish, folders, sequence, series, length * 3600, 1 + done, relation), 300)
        done += length * 3600
    return start_s, end_s


def _publish(
    folders: Folders, sequence: int, series: int, ticks: int, first_tick_s: int, relation: clock.Relation
) -> int:
    from benchmarks import synthetic  # noqa: PLC0415  numpy is for the children
    from sysmond.store.files import dense_file  # noqa: PLC0415  as above

    made = synthetic.recording(series, ticks, first_tick_s=first_tick_s, now=relation)
    name = archive.Name(clock.boot_id(), sequence, sequence)
    image = dense_file.encode(made, "sysmond benchmark")
    folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
    archive.publish(folder, name.file, image, FILE_MODES[Sensitivity.PUBLIC])
    return len(image)


def questions(folders: Folders, start_s: int, end_s: int) -> dict[str, list[str]]:
    """The command lines that are measured."""
    begin = [measure.program("sysmon-extract"), "--state-dir", folders.state, "--runtime-dir", folders.runtime]
    span = [f"--from={start_s}", f"--to={end_s}", "--format=csv"]
    return {
        "start": START,
        "start_one_thread": START_ONE_THREAD,
        "one_series": [*begin, ONE, *span, "--sample=1min"],
        "catalogue": [*begin, "--list", "--format=csv"],
        "hundred_series": [*begin, *HUNDRED, *span],
    }


def by_turns(commands: dict[str, list[str]], repeats: int) -> dict[str, list[Spent]]:
    """Run each command so many times, always the one after the other; the first round does not count."""
    spent_by_name: dict[str, list[Spent]] = {name: [] for name in commands}
    for turn in range(repeats + 1):
        for name, command in commands.items():
            spent = measure.spend(command)
            if turn:
                spent_by_name[name].append(spent)
    return spent_by_name


def hour(series: int, ticks: int) -> dict[str, int]:
    """Seal and flush an hour that lies in a ring; give the processor time of each job in ns."""
    with measure.workplace() as folders:
        measure.in_child(partial(_write_ring, folders, series, ticks), 300)
        spent = {job: measure.job_cpu_ns(job, folders) for job in ("seal", "flush")}
        if not archive.names(archive.disk_folder(folders, Sensitivity.PUBLIC)):
            raise RuntimeError("the job left nothing on disk")
    return spent


def _write_ring(folders: Folders, series: int, ticks: int) -> str:
    from benchmarks import synthetic  # noqa: PLC0415  as above

    return synthetic.write_ring(f"{folders.runtime}/sampler/public", series, ticks, first_tick_s=100)


def measured(series: int, hours: int, repeats: int) -> Figures:
    """Measure everything."""
    with measure.workplace() as folders:
        begin_s = time.monotonic()
        start_s, end_s = build(folders, series, hours)
        build_s = time.monotonic() - begin_s
        commands = questions(folders, start_s, end_s)
        slow = {"hundred_series": commands.pop("hundred_series")}
        spent = by_turns(commands, repeats)
        spent |= by_turns(slow, max(1, repeats // 4))
        answers = _answers(folders, {**commands, **slow})
        folder = archive.disk_folder(folders, Sensitivity.PUBLIC)
        stored = sum(os.path.getsize(f"{folder}/{name.file}") for name in archive.names(folder))
    jobs, starts = [], []
    for _ in range(max(1, repeats // 2)):
        jobs.append(hour(HOUR_SERIES, min(HOUR_TICKS, hours * 3600)))
        starts.append(measure.spend(START))
    start_ns = measure.median([run.cpu_ns for run in (*spent["start"], *starts)])
    seal_ns = measure.median([job["seal"] for job in jobs])
    flush_ns = measure.median([job["flush"] for job in jobs])
    figures: Figures = {"series": series, "hours": hours, "bytes": stored, "build_s": round(build_s, 1)}
    for name, runs in spent.items():
        figures[f"{name}_cpu_ms"] = measure.ms(measure.median([run.cpu_ns for run in runs]), 1)
        figures[f"{name}_wall_ms"] = measure.ms(measure.median([run.wall_ns for run in runs]), 1)
        figures[f"{name}_rss_mb"] = round(max(run.rss_max_bytes for run in runs) / 1e6, 1)
    return figures | {
        "start_cpu_ms": measure.ms(start_ns, 1),
        "one_series_to_start": round(figures["one_series_cpu_ms"] * 1e6 / start_ns, 3),
        "one_series_wall_to_start": round(figures["one_series_wall_ms"] / figures["start_wall_ms"], 3),
        "seal_cpu_ms": measure.ms(seal_ns, 1),
        "flush_cpu_ms": measure.ms(flush_ns, 1),
        "seal_flush_to_start": round((seal_ns + flush_ns) / start_ns, 3),
        **answers,
    }


def _answers(folders: Folders, commands: dict[str, list[str]]) -> Figures:
    """Run each question once more and look whether the answer is whole.

    :raises RuntimeError: where it is not.
    """
    figures: Figures = {}
    output = f"{folders.runtime}/answer"
    for name, command in commands.items():
        if name.startswith("start"):
            continue
        measure.spend(command, output)
        with open(output, "rb") as file:
            lines = [line for line in file if not line.startswith(b"#")]
        figures[f"{name}_rows"] = len(lines) - 1
        if len(lines) < 2:
            raise RuntimeError(f"{name}: the answer is empty")
    return figures


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""

    def cost(name: str) -> str:
        return f"{figures[f'{name}_cpu_ms']:7.0f} ms of CPU, {figures[f'{name}_wall_ms']:7.0f} ms of wall-clock time"

    return [
        ("archive", f"{figures['series']} series, {figures['hours']} h, {figures['bytes'] / 1e6:.1f} MB"),
        ("starting Python, numpy, h5py", cost("start")),
        ("  without the threads of OpenBLAS", cost("start_one_thread")),
        ("one series, all of it → 1 min", cost("one_series")),
        ("  : start", f"{figures['one_series_to_start']:.2f}, wall {figures['one_series_wall_to_start']:.2f}"),
        ("100 series at 1 s → CSV", cost("hundred_series")),
        ("  rows, memory", f"{figures['hundred_series_rows']}, {figures['hundred_series_rss_mb']:.0f} MB"),
        ("catalogue", cost("catalogue")),
        (f"an hour of {HOUR_SERIES} series: seal", f"{figures['seal_cpu_ms']:7.0f} ms of CPU"),
        ("  flush", f"{figures['flush_cpu_ms']:7.0f} ms of CPU"),
        ("  both : start", f"{figures['seal_flush_to_start']:.2f}"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument("--series", type=measure.at_least_one, default=SERIES, help=f"default {SERIES}")
    parser.add_argument("--hours", type=measure.at_least_one, default=HOURS, help=f"default {HOURS}")
    parser.add_argument("--repeats", type=measure.at_least_one, default=REPEATS, help=f"default {REPEATS}")
    options = parser.parse_args()
    measure.run(lambda: measured(max(100, options.series), options.hours, options.repeats), rows, as_json=options.json)
