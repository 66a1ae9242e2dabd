# SPDX-License-Identifier: Apache-2.0
"""How far back an archive reaches: bytes a sample and a point of each tier, days kept, and answers over two years.

Rows with the statistics of recorded data (``--data FILE.npz``, see storage.py; without it of a made-up mixture of
which half never moves) are written as whole day files, rolled up by the project's own code, and merged as tiers are.
Days kept are those of 100 mixed series in the default budget, 50 MB a tier. The archive of two years repeats the
generated days under other boots. A megabyte is 1,000,000 bytes.
"""

import os
import resource
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, cast

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.machine.folders import Folders

if TYPE_CHECKING:
    from benchmarks import storage
    from sysmond.store.of_ring import Recording

SERIES, JOB_SERIES = 100, 300
DAYS, YEARS_DAYS = 14, 730
DAY_TICKS = 86_400
# Bursts and calm stretches stay whole: data is repeated in windows of this many ticks, in random order.
WINDOW_TICKS = 3000
# Recorded data has a tick every ten seconds: what grew in each is spread over its seconds, most of it in few.
RECORDED_S = 10
SPREAD = 0.3
REPEATS = 5
LIMIT_S = 600
BOOTS = "{:032x}"
TIERS = ("10s", "1min", "5min")


def _source(data: str | None, series: int) -> "storage.Series":
    """Series to take statistics from: recorded ones, or made up."""
    import numpy as np  # noqa: PLC0415  numpy is for the children

    from benchmarks import storage  # noqa: PLC0415  as above

    if data is not None:
        return storage.load(data)
    from benchmarks import synthetic  # noqa: PLC0415  as above

    made = synthetic.tables(synthetic.counters(series))
    values = synthetic.values(series, 3 * WINDOW_TICKS)
    # Of a real machine's series half never move: idle devices, limits, sizes.
    values[np.arange(series) % 5 == 4] = 1000
    metrics = [metric for table in made for metric in table.metrics]
    names = [f"{table.name}.{metric.name}" for table in made for metric in table.metrics]
    return storage.Series(names, [metric.semantics == "counter" for metric in metrics], [0] * series, values)


def recording(data: str | None, series: int, day: int, ticks: int) -> "Recording":
    """A day of rows: windows of the source in random order, each counter going on from where it stood."""
    import numpy as np  # noqa: PLC0415  as above

    from benchmarks import storage  # noqa: PLC0415  as above
    from sysmond.base.clock import SECOND_NS, Relation  # noqa: PLC0415  as above
    from sysmond.store.archive import Name  # noqa: PLC0415  as above
    from sysmond.store.of_ring import MemoryBlock, Strand  # noqa: PLC0415  as above

    source = _source(data, series)
    chosen = np.linspace(0, len(source.names) - 1, series).astype(int) % len(source.names)
    random = np.random.default_rng(day)
    seconds = 1 if data is None else RECORDED_S
    wanted = -(-ticks // seconds)
    window = min(WINDOW_TICKS, source.values.shape[1] - 1)
    starts = random.integers(0, source.values.shape[1] - window, -(-wanted // window))
    places = (starts[:, None] + np.arange(window)).ravel()[:wanted]
    growth = np.maximum(np.diff(source.values, axis=1, prepend=source.values[:, :1]), 0)
    matrix = np.empty((series, ticks), np.int64)
    for row, index in enumerate(chosen.tolist()):
        if not source.counters[index]:
            matrix[row] = np.repeat(source.values[index, places], seconds)[:ticks]
            continue
        stands = np.cumsum(growth[index, places]) + day * 10**9  # It goes on over days, as within a boot.
        if seconds > 1:
            parts = np.cumsum(random.gamma(SPREAD, size=(wanted, seconds)), axis=1)
            left = growth[index, places, None] * (1 - parts / parts[:, -1:])
            stands = (stands[:, None] - np.round(left).astype(np.int64)).ravel()[:ticks]
        matrix[row] = stands
    names = [f"{source.names[index]}_{row}" for row, index in enumerate(chosen.tolist())]
    counters, scales = ([getattr(source, name)[index] for index in chosen] for name in ("counters", "scales"))
    made = storage.recording(storage.Series(names, counters, scales, matrix))
    boot = BOOTS.format(1)
    axis = (1 + day * ticks + np.arange(ticks, dtype=np.int64)) * SECOND_NS
    block = MemoryBlock(Strand(boot, "sampler", SECOND_NS, SECOND_NS), axis, made.blocks[0].keys, matrix)
    clocks = {boot: [Relation(0, _begin_ns(YEARS_DAYS), 0)]}
    return made._replace(blocks=[block], clocks=clocks, covers=[Name(boot, day + 1, day + 1)])


def _begin_ns(days_ago: int) -> int:
    """Midnight so many days ago."""
    day_ns = DAY_TICKS * 10**9
    return time.time_ns() // day_ns * day_ns - days_ago * day_ns


def write_days(folder: str, data: str | None, series: int, days: int, ticks: int) -> Figures:
    """Encode and roll up day after day; give what a sample costs."""
    from sysmond.rollup import series as rolling  # noqa: PLC0415  as above
    from sysmond.store.files import dense_file  # noqa: PLC0415  as above
    from sysmond.store.of_ring import plan_of  # noqa: PLC0415  as above

    size = 0
    for day in range(days):
        made = recording(data, series, day, ticks)
        if not day:
            size = len(dense_file.encode(made._replace(covers=[]), "benchmark"))
        for tier, image in rolling.roll_up(made._replace(blocks=[]), [plan_of(made.blocks)], TIERS).items():
            with open(f"{folder}/{tier}-{day:04d}.h5", "wb") as file:
                file.write(image)
    return {"bytes_per_sample": round(size / (series * ticks), 4), "bytes_per_day_1s": size * DAY_TICKS // ticks}


def merge_days(folder: str, days: int) -> Figures:
    """Merge the days of each tier, as many as make a file of a few megabytes; give what a point costs."""
    from sysmond.rollup import series as rolling  # noqa: PLC0415  as above
    from sysmond.store.files.dense_file import Segment  # noqa: PLC0415  as above

    figures: Figures = {}
    for tier, most in zip(TIERS, (2, 7, days), strict=True):
        with ExitStack() as stack:
            members = [f"{folder}/{tier}-{day:04d}.h5" for day in range(min(days, most))]
            opened = [stack.enter_context(Segment(path)).recording for path in members]
            image = rolling.merge_tier(opened)
        with open(f"{folder}/{tier}.h5", "wb") as file:
            file.write(image)
        with Segment(f"{folder}/{tier}.h5") as merged:
            points = sum(len(block.keys) * len(block.axis.first) for block in merged.recording.tiers)
        figures[f"bytes_per_point_{tier}"] = round(len(image) / points, 3)
        figures[f"points_per_day_{tier}"] = points / len(members)
    return figures


def days_in_budget(figures: Figures) -> Figures:
    """How many days each tier keeps in its default budget."""
    from sysmond.plan.plan import ArchiverSettings  # noqa: PLC0415  as above
    from sysmond.plan.retention import forecast, of_settings  # noqa: PLC0415  as above

    limits, _ = of_settings(ArchiverSettings())
    days = {"days_1s": round(forecast("1s", limits["1s"], figures["bytes_per_day_1s"], 1.0).days, 1)}
    for tier in TIERS:
        made = forecast(tier, limits[tier], figures[f"points_per_day_{tier}"], figures[f"bytes_per_point_{tier}"])
        days[f"days_{tier}"] = round(made.days, 1)
    return days


class _OfBoot:
    """Buckets of a file, under another boot."""

    def __init__(self, block: Any, boot: str) -> None:  # noqa: ANN401  a block of a tier
        self._block = block
        self.strand = block.strand._replace(boot=boot)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever it has
        return getattr(self._block, name)


def repeat(folder: str, folders: Folders, days: int, total_days: int) -> Figures:
    """Fill an archive: the merged file of the coarsest tier, again and again under boots that follow each other."""
    from sysmond.archiver import merge_job  # noqa: PLC0415  as above
    from sysmond.base.clock import Relation  # noqa: PLC0415  as above
    from sysmond.base.model import Sensitivity  # noqa: PLC0415  as above
    from sysmond.machine.folders import FILE_MODES, create_classes  # noqa: PLC0415  as above
    from sysmond.rollup import series as rolling  # noqa: PLC0415  as above
    from sysmond.store import archive  # noqa: PLC0415  as above
    from sysmond.store.archive import Name  # noqa: PLC0415  as above
    from sysmond.store.files.dense_file import Segment  # noqa: PLC0415  as above

    create_classes(folders.state, *TIERS)
    target = archive.disk_folder(folders, Sensitivity.PUBLIC, TIERS[-1])
    with Segment(f"{folder}/{TIERS[-1]}.h5") as opened:
        path, number = "/".join(opened.recording.tiers[0].keys[0][:2]), 0
        for number, done_days in enumerate(range(0, total_days, days), 1):
            boot = BOOTS.format(number)
            again = opened.recording._replace(
                tiers=[cast("Any", _OfBoot(block, boot)) for block in opened.recording.tiers],
                clocks={boot: [Relation(0, _begin_ns(total_days - done_days), 0)]},
                covers=[Name(boot, 1, days)],
            )
            image = rolling.merge_tier([again])
            archive.publish(target, Name(boot, 1, days).file, image, FILE_MODES[Sensitivity.PUBLIC])
    os.makedirs(f"{folders.runtime}/archiver", exist_ok=True)
    merge_job.merge(folders)  # As the archiver would have done by and by.
    sizes = [os.path.getsize(f"{target}/{file}") for file in archive.files(target)]
    return {"archive_bytes": sum(sizes), "archive_files": len(sizes), "archive_days": number * days, "path": path}


def roll_up_job(path: str) -> Figures:
    """Roll a day file up into all tiers, as the archiver's job does; give processor time and peak memory."""
    from sysmond.rollup import series as rolling  # noqa: PLC0415  as above
    from sysmond.store.files.dense_file import Segment  # noqa: PLC0415  as above
    from sysmond.store.of_ring import plan_of  # noqa: PLC0415  as above

    begin_ns = time.process_time_ns()
    with Segment(path) as opened:
        rolling.roll_up(opened.recording._replace(blocks=[]), [plan_of(opened.recording.blocks)], TIERS)
    return {
        "roll_up_cpu_s": round((time.process_time_ns() - begin_ns) / 1e9, 3),
        "roll_up_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1),
    }


def write_day(path: str, data: str | None, series: int, ticks: int) -> int:
    """Write one day file of rows."""
    from sysmond.store.files import dense_file  # noqa: PLC0415  as above

    image = dense_file.encode(recording(data, series, 0, ticks)._replace(covers=[]), "benchmark")
    with open(path, "wb") as file:
        file.write(image)
    return len(image)


def ask(folders: Folders, paths: Iterable[str], days: int, repeats: int) -> tuple[float, float, int]:
    """What a cold command line over the last ``days`` at 5 min costs: median wall and CPU time in ms; and its rows."""
    program = [measure.program("sysmon-extract"), "--state-dir", folders.state, "--runtime-dir", folders.runtime]
    command = [*program, *paths, f"--from=-{days}d", "--sample=5min", "--format=csv"]
    output = f"{folders.runtime}/answer"
    spent = [measure.spend(command, output) for _ in range(repeats + 1)][1:]
    with open(output, "rb") as file:
        rows = sum(not line.startswith(b"#") for line in file) - 1
    if rows < 1:
        raise RuntimeError(f"{' '.join(command)}: the answer is empty")
    wall_ns, cpu_ns = (measure.median([getattr(one, name) for one in spent]) for name in ("wall_ns", "cpu_ns"))
    return measure.ms(wall_ns, 1), measure.ms(cpu_ns, 1), rows


def measured(data: str | None, days: int, total_days: int, ticks: int, repeats: int) -> Figures:
    """Measure everything, each part in a child."""
    begin_s = time.monotonic()
    with measure.workplace() as folders:
        work = f"{folders.runtime}/work"
        os.mkdir(work)
        figures: Figures = measure.in_child(partial(write_days, work, data, SERIES, days, ticks), LIMIT_S)
        figures |= measure.in_child(partial(merge_days, work, days), LIMIT_S)
        figures |= measure.in_child(lambda: days_in_budget(figures), LIMIT_S)
        measure.in_child(partial(write_day, f"{work}/day.h5", data, JOB_SERIES, ticks), LIMIT_S)
        figures |= measure.in_child(partial(roll_up_job, f"{work}/day.h5"), LIMIT_S)
        figures |= measure.in_child(partial(repeat, work, folders, days, total_days), LIMIT_S)
        for name, paths, asked_days in (("two_years", [figures.pop("path")], total_days), ("month", [], 30)):
            wall_ms, cpu_ms, rows = ask(folders, paths, min(asked_days, total_days), repeats)
            figures |= {f"{name}_ms": wall_ms, f"{name}_cpu_ms": cpu_ms, f"{name}_rows": rows}
    return {**figures, "recorded": data is not None, "days": days, "took_s": round(time.monotonic() - begin_s, 1)}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""

    def tier(name: str) -> str:
        cost = figures[f"bytes_per_point_{name}"]
        day_mb = cost * figures[f"points_per_day_{name}"] / 1e6
        return f"{cost:.2f} B, {day_mb:.2f} MB, {figures[f'days_{name}']:.0f} days"

    sample, day_mb = figures["bytes_per_sample"], figures["bytes_per_day_1s"] / 1e6

    def answer(name: str) -> str:
        wall_ms, cpu_ms = figures[f"{name}_ms"], figures[f"{name}_cpu_ms"]
        return f"{wall_ms:.0f} ms ({cpu_ms:.0f} of CPU), {figures[f'{name}_rows']} rows"

    job = f"{figures['roll_up_cpu_s']:.2f} s of CPU, {figures['roll_up_peak_mb']:.0f} MB"
    return [
        ("rows from", "recorded data" if figures["recorded"] else "a made-up mixture"),
        ("1s: a sample, a day, kept", f"{sample:.3f} B, {day_mb:.2f} MB, {figures['days_1s']:.1f} days"),
        *((f"{name}: a point, a day, kept", tier(name)) for name in TIERS),
        (f"a day of {JOB_SERIES} series rolled up", job),
        ("archive at 5 min", f"{figures['archive_days']} days, {figures['archive_bytes'] / 1e6:.1f} MB"),
        ("  one series, all of it", answer("two_years")),
        ("  100 series, a month", answer("month")),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--data", metavar="FILE.npz", help="recorded data to take the statistics from")
    parser.add_argument("--quick", action="store_true", help="a tiny run, whose figures mean nothing")
    options = parser.parse_args()
    size = (1, 3, 7200, 1) if options.quick else (DAYS, YEARS_DAYS, DAY_TICKS, REPEATS)
    measure.run(lambda: measured(options.data, *size), rows, as_json=options.json)
