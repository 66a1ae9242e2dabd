# SPDX-License-Identifier: Apache-2.0
"""Writes a result as OpenMetrics text, as ``promtool tsdb create-blocks-from openmetrics`` reads it.

Source: https://github.com/prometheus/OpenMetrics (1.0). A family's name ends in its unit, a counter's
samples in ``_total``; a family stands in one piece, and within it each series, its times ascending.
Rates, and sums over buckets, are gauges there: only a counter as stored (``--raw``) is a counter.

An instance has the name of what it is for a label: ``cpu``, ``device``, ``interface``; ``instance`` would be the whole
machine, and Prometheus renames it. The newest values alone are written in the older text format (0.0.4), which knows no
info, for the textfile collector of node_exporter.
"""

import re
from collections.abc import Iterable, Iterator

import numpy as np

from sysmon_tools.cells import blocks, column_cells, integer_cells
from sysmon_tools.style import Style
from sysmond.base.model import ABSENT, Semantics
from sysmond.base.result import Column, Event, Int64Array, Result
from sysmond.base.terminal import printable

# What others call what our tables are about.
_LABELS = {"mount": "mountpoint", "disk": "device"}
_INSTANCE = "instance"
_UNIT_WORDS = {
    "%": "percent",
    "B": "bytes",
    "Hz": "hertz",
    "s": "seconds",
    "V": "volts",
    "A": "amperes",
    "W": "watts",
    "J": "joules",
    "°C": "celsius",
    "1": "",
    "text": "",
    "time": "timestamp_seconds",
}


def write(result: Result, style: Style) -> Iterator[bytes]:
    """Write families of series, of gaps (their lengths, where they begin) and of events, then the end mark."""
    families: dict[tuple[str, str, str], list[Column]] = {}
    for column in result.columns:
        unit = _unit(column.unit)
        kind = _kind(column, raw=result.step_ns == 0)
        families.setdefault((_name(column, unit, kind), unit, kind), []).append(column)
    # One name must have one type; a family of another unit is told apart by it, so only the type can clash.
    used: set[str] = set()
    several = len({column.path for column in result.columns}) < len(result.columns)
    for (wanted, unit, kind), columns in families.items():
        name = wanted if wanted not in used else f"{columns[0].stat}_{wanted}"
        used.add(name)
        doc = (style.docs or {}).get(columns[0].path, "")
        sample = f"{name}_total" if kind == "counter" else f"{name}_info" if kind == "info" else name
        if style.is_newest:
            yield _head(sample, "", "gauge" if kind == "info" else kind, doc).encode()
        else:
            yield _head(name, unit, kind, doc).encode()
        for column in columns:
            labels = _labels(column, (style.per or {}).get(column.path.partition("/")[0], ""), several=several)
            if style.is_newest:
                yield from _newest(sample, labels, column)
            elif column.texts is not None:
                yield from _infos(sample, labels, column.texts, result.times_ns)
            else:
                yield from _samples(sample, labels, column, result.times_ns)
    if style.is_newest:
        return
    yield from _family("sysmond_gap_seconds", "gauge", "A time without values, by its cause.", _gaps(result))
    yield from _family("sysmond_event", "info", "Something that happened.", _events(style.shown(result.events)))
    yield b"# EOF\n"


def _family(name: str, kind: str, doc: str, samples: list[tuple[str, int, int]]) -> Iterator[bytes]:
    """Write a family of labels, times and nanoseconds; each set of labels is a series, its times ascending."""
    if samples:
        yield _head(name, "seconds" if kind == "gauge" else "", kind, doc).encode()
    suffix = "_info" if kind == "info" else ""
    for labels, time_ns, length_ns in sorted(set(samples)):
        value = "1" if kind == "info" else _seconds(length_ns)
        yield f"{name}{suffix}{{{labels}}} {value} {_seconds(time_ns)}\n".encode()


def _gaps(result: Result) -> list[tuple[str, int, int]]:
    return [
        (
            f'table="{_escaped(gap.table)}",cause="{gap.cause}",detail="{_escaped(gap.detail)}"',
            gap.start_ns,
            gap.end_ns - gap.start_ns,
        )
        for gap in result.gaps
    ]


def _events(events: Iterable[Event]) -> list[tuple[str, int, int]]:
    return [
        (
            f'kind="{_escaped(event.kind)}",subject="{_escaped(event.subject)}",text="{_escaped(event.text)}"',
            event.time_ns,
            0,
        )
        for event in events
    ]


def _seconds(time_ns: int) -> str:
    sign, (whole, rest) = "-" if time_ns < 0 else "", divmod(abs(time_ns), 10**9)
    return f"{sign}{whole}.{rest:09d}".rstrip("0").rstrip(".")


def _unit(unit: str) -> str:
    """Spell a unit in words: ``B/s`` is ``bytes_per_second``."""
    amount, slash, _ = unit.partition("/s")
    word = _UNIT_WORDS.get(amount, re.sub(r"[^a-z0-9]+", "_", amount.lower()).strip("_"))
    return f"{word}_per_second".lstrip("_") if slash else word


def _kind(column: Column, *, raw: bool) -> str:
    if column.texts is not None:
        return "info"
    return "counter" if raw and column.semantics is Semantics.COUNTER else "gauge"


def _name(column: Column, unit: str, kind: str) -> str:
    """Name a family: ``disk/read_bytes`` in bytes per second is ``sysmond_disk_read_bytes_per_second``."""
    table, _, metric = column.path.partition("@")[0].partition("/")
    name = re.sub(r"[^a-zA-Z0-9_]", "_", f"sysmond_{table}_{metric}")
    if kind == "counter":
        name = name.removesuffix("_total")
    if not unit or name.endswith(f"_{unit}"):
        return name
    first = unit.partition("_per_")[0]
    return f"{name.removesuffix(f'_{first}')}_{unit}"


def _head(name: str, unit: str, kind: str, doc: str) -> str:
    lines = [f"# TYPE {name} {kind}\n"]
    if unit:
        lines.append(f"# UNIT {name} {unit}\n")
    if doc:
        lines.append(f"# HELP {name} {_escaped(doc)}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    """The format has an escape for the end of a line; other controls come out as their names."""
    return "\\n".join(printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))


def _labels(column: Column, per: str, *, several: bool) -> str:
    """Spell what a series is about; ``per``: what its table has a row for, parts of it separated by colons."""
    _, separator, instance = column.path.partition("@")
    names = [re.sub(r"[^a-z0-9_]", "_", name.lower()) for name in per.split(":")]
    parts = instance.split(":", len(names) - 1)
    if not per or len(parts) != len(names):
        names, parts = [names[0] or _INSTANCE], [instance]
    pairs = [f'{_LABELS.get(name, name)}="{_escaped(part)}"' for name, part in zip(names, parts, strict=True)]
    return ",".join([*(pairs if separator else []), *([f'stat="{column.stat}"'] if several else [])])


def _newest(name: str, labels: str, column: Column) -> Iterator[bytes]:
    """Write the newest point of one series, if it has any."""
    if column.texts is not None:
        text = next((text for text in reversed(column.texts) if text is not None), None)
        if text is not None:
            pairs = ",".join(filter(None, (labels, f'value="{_escaped(text)}"')))
            yield f"{name}{{{pairs}}} 1\n".encode()
        return
    there = np.isfinite(column.values) if column.integers is None else column.integers != ABSENT
    if there.any():
        last = column.at(np.flatnonzero(there)[-1:])
        yield from blocks(
            [f"{name}{{{labels}}} ".encode() if labels else f"{name} ".encode(), column_cells(last), b"\n"], 1
        )


def _samples(name: str, labels: str, column: Column, times_ns: Int64Array) -> Iterator[bytes]:
    """Write the points of one series, absent ones left out; a time is seconds with the digits it needs."""
    if column.integers is not None:
        present = column.integers != ABSENT
        chosen = column._replace(integers=column.integers[present])
    else:
        floats = column.values
        present = np.isfinite(floats)
        chosen = column._replace(floats=floats[present])
    head = f"{name}{{{labels}}} " if labels else f"{name} "
    times = times_ns[present]
    return blocks([head.encode(), column_cells(chosen), b" ", integer_cells(times, 9), b"\n"], len(times))


def _infos(name: str, labels: str, texts: tuple[str | None, ...], times_ns: Int64Array) -> Iterator[bytes]:
    """Write a text as a label of a sample that is always 1; each text is a series of its own."""
    for text in dict.fromkeys(text for text in texts if text is not None):
        times = times_ns[np.fromiter((one == text for one in texts), bool, len(texts))]
        pairs = ",".join(filter(None, (labels, f'value="{_escaped(text)}"')))
        yield from blocks([f"{name}{{{pairs}}} 1 ".encode(), integer_cells(times, 9), b"\n"], len(times))
