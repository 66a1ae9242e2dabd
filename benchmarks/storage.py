# SPDX-License-Identifier: Apache-2.0
"""What a sample costs on disk: write recorded data as one segment file, read it back, compare.

The input is a NumPy archive with ``names``, ``kind`` (counter or gauge), ``scale`` (as a power of ten) and
``values[series, time]`` (int64); whatever else it holds is ignored. ``bytes_per_sample`` is that of the
whole file, with everything that explains it; ``bytes_per_sample_short`` that of the same rows with fewer digits
(``significant_bits``), totals of counters exact.
"""

import os
import re
import sys
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.base import clock, significant
from sysmond.base.model import NAME_LENGTH_MAX, Metric, Semantics, Sensitivity, Table
from sysmond.base.result import Int64Array
from sysmond.store.files import dense_file
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand

REPEATS = 5
SIGNIFICANT_BITS = 8
BOOT = "0" * 32


class Series(NamedTuple):
    """What the input holds."""

    names: list[str]
    counters: list[bool]
    scales: list[int]
    values: Int64Array


def load(path: str) -> Series:
    """Read the input.

    :raises ValueError: where it is not of the kind described above. :raises KeyError: where a part is missing.
    """
    with np.load(path, allow_pickle=False) as archive:
        values = archive["values"]
        names, kinds = _strings(archive["names"]), _strings(archive["kind"])
        scales = [abs(int(scale)) for scale in np.broadcast_to(archive["scale"], len(names))]
    if values.ndim != 2 or values.dtype.kind not in "iu" or len(values) != len(names) or len(kinds) != len(names):
        raise ValueError(f"{path}: values of {values.dtype}{list(values.shape)} for {len(names)} names")
    if not values.size:
        raise ValueError(f"{path}: no values")
    if set(kinds) - {"counter", "gauge"}:
        raise ValueError(f"{path}: kinds {sorted(set(kinds))}; expected counter and gauge")
    return Series(names, [kind == "counter" for kind in kinds], scales, values.astype(np.int64))


def _strings(array: np.ndarray[Any, Any]) -> list[str]:
    return [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in array.tolist()]


def _name(text: str) -> str:
    """A name as tables and metrics have them."""
    return re.sub(r"^(?![a-z])", "x", re.sub(r"[^a-z0-9_]", "_", text.lower()))[: NAME_LENGTH_MAX - 8]


def recording(series: Series) -> Recording:
    """Put the series into tables: ``disk.dev.read.sda`` is table disk, metric dev_read, instance sda."""
    seen: set[SeriesKey] = set()
    metrics: dict[str, dict[str, Metric]] = {}
    keys = []
    for name, counter, scale in zip(series.names, series.counters, series.scales, strict=True):
        table, _, rest = name.partition(".")
        metric, _, instance = rest.rpartition(".") if "." in rest else (rest or "value", "", "")
        table, metric = _name(table), _name(metric)
        semantics = Semantics.COUNTER if counter else Semantics.GAUGE
        wanted = Metric(metric, "1", semantics, "As it was recorded.", scale)
        key = SeriesKey(table, metric, instance)
        if key in seen or metrics.setdefault(table, {}).setdefault(metric, wanted) != wanted:
            # A name that stands twice, or for different things: a metric of its own.
            wanted = wanted._replace(name=f"{metric}_{len(seen)}")
            key = key._replace(metric=wanted.name)
            metrics[table][wanted.name] = wanted
        seen.add(key)
        keys.append(key)
    ticks = (1 + np.arange(series.values.shape[1], dtype=np.int64)) * clock.SECOND_NS
    block = MemoryBlock(Strand(BOOT, "sampler", 0, clock.SECOND_NS), ticks, keys, series.values)
    tables = {name: Table(name, tuple(columns.values())) for name, columns in metrics.items()}
    return Recording(Sensitivity.PUBLIC, tables, [block], {}, {BOOT: [clock.Relation(0, 0, 0)]}, [])


def shortened(series: Series) -> Series:
    """The series with fewer digits.

    :raises RuntimeError: where a counter does not end where it ended.
    """
    values = series.values.copy()
    is_counter = np.array(series.counters, bool)
    free = np.ones(values.shape[1], bool)
    significant.shorten(values, SIGNIFICANT_BITS, is_gauge=~is_counter, is_counter=is_counter, free=free)
    if not np.array_equal(values[is_counter][:, [0, -1]], series.values[is_counter][:, [0, -1]]):
        raise RuntimeError("the total of a counter is not what it was")
    return series._replace(values=values)


def measured(path: str, keep: str | None) -> Figures:
    """Encode, decode, compare.

    :raises RuntimeError: where what is read back is not what was written.
    """
    series = load(path)
    made = recording(series)
    encoding, decoding = [], []
    image = b""
    with tempfile.TemporaryDirectory(prefix="sysmond-benchmark-") as folder:
        file = f"{folder}/segment.h5"
        for _ in range(REPEATS):
            begin_ns = time.process_time_ns()
            image = dense_file.encode(made, "sysmond benchmark")
            encoding.append(time.process_time_ns() - begin_ns)
            _write(file, image)
            begin_ns = time.process_time_ns()
            with dense_file.Segment(file) as opened:
                (block,) = opened.recording.blocks
                read = block.read(range(len(block.keys)))
                ticks, keys = block.ticks, list(block.keys)
            decoding.append(time.process_time_ns() - begin_ns)
            if keys != list(made.blocks[0].keys) or not np.array_equal(ticks, made.blocks[0].ticks):
                raise RuntimeError("the series or ticks read back are not those written")
            if not np.array_equal(read, series.values):
                raise RuntimeError("the values read back are not those written")
    if keep is not None:
        _write(keep, image)
    begin_ns = time.process_time_ns()
    short = shortened(series)
    shortening_ns = time.process_time_ns() - begin_ns
    short_bytes = len(dense_file.encode(recording(short), "sysmond benchmark"))
    samples = series.values.size
    moving = int((series.values != series.values[:, :1]).any(axis=1).sum())
    return {
        "bytes_per_sample": round(len(image) / samples, 4),
        "encode_ns": round(measure.median(encoding) / samples, 2),
        "decode_ns": round(measure.median(decoding) / samples, 2),
        "bytes_per_sample_short": round(short_bytes / samples, 4),
        "significant_bits": SIGNIFICANT_BITS,
        "shorten_ns": round(shortening_ns / samples, 2),
        "bytes": len(image),
        "samples": samples,
        "series": len(series.names),
        "series_constant": len(series.names) - moving,
        "bytes_per_moving_sample": round(len(image) / max(1, moving * series.values.shape[1]), 4),
    }


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        ("series", f"{figures['series']}, of which {figures['series_constant']} never move"),
        ("samples", f"{figures['samples']}"),
        ("file", f"{figures['bytes']} B"),
        ("bytes per sample", f"{figures['bytes_per_sample']:.3f}"),
        ("  of series that move", f"{figures['bytes_per_moving_sample']:.3f}"),
        (
            f"  with {figures['significant_bits']} significant bits",
            f"{figures['bytes_per_sample_short']:.3f}, {figures['shorten_ns']:.1f} ns a sample to shorten",
        ),
        ("encoding, CPU", f"{figures['encode_ns']:.1f} ns a sample"),
        ("decoding, CPU", f"{figures['decode_ns']:.1f} ns a sample"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument("file", metavar="FILE.npz", help="recorded data: names, kind, scale, values")
    parser.add_argument("--keep", metavar="OUT.h5", help="leave the segment file there")
    options = parser.parse_args()
    measure.run(lambda: measured(options.file, options.keep), rows, as_json=options.json)
