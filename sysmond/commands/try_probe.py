# SPDX-License-Identifier: Apache-2.0
"""Reads a probe once, without any recorder, and shows what came: for who writes one."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from sysmond.base.model import ABSENT, EVENTS, Absence, Metric, Sensitivity
from sysmond.base.terminal import put
from sysmond.errors import Error, NotPermittedError, UsageError, nearest
from sysmond.machine.folders import Folders
from sysmond.plan import plugins
from sysmond.plan.plan import as_declared, builtin
from sysmond.probe import Host, Probe, absence_of
from sysmond.records import Records
from sysmond.sampler.own_place import own_place
from sysmond.sampler.source import with_options

INT64_MAX = 2**63 - 1
ROWS_MAX = 1000


def try_probe(_place: Folders, options: argparse.Namespace) -> int:
    """Read what ``options.probe`` names, a file or a table, below ``options.root``; give the exit code.

    :raises UsageError: where there is no such probe. :raises Error: where it cannot be loaded, or raises.
    """
    root = os.path.abspath(options.root)
    for number, offered in enumerate(_named(options.probe)):
        probe = with_options(offered, as_declared(options.probe, offered))
        if number:
            put("")
        with closing(Host(root)) as host:
            _show(probe, host)
    return 0


def _named(word: str) -> tuple[Probe, ...]:
    """The probes of a file, or the one of a table.

    :raises UsageError: where there is none. :raises Error: as the resolver would refuse it.
    """
    if word.endswith(".py") or "/" in word:
        path = os.path.abspath(word)
        if not os.path.isfile(path):
            raise UsageError(f"{word}: no such file; expected a file that contains a probe, or the name of a table")
        try:
            probes = plugins.load(path)
            _check_names(probes, path)
        except Error as refusal:
            raise type(refusal)(f"{word}: {refusal}") from refusal
        return probes
    planned = _builtin_tables()
    if word not in planned:
        raise UsageError(f"there is no probe {word!r}{nearest(word, planned, 'to name a file, include its .py')}")
    return tuple(probe for probe in plugins.load(planned[word]) if probe.table.name == word)


def _builtin_tables() -> dict[str, str]:
    """The plugin of each table that comes with sysmond."""
    return {probe.table: probe.plugin for sensitivity in Sensitivity for probe in builtin(sensitivity).probes}


def _check_names(probes: Sequence[Probe], path: str) -> None:
    """Refuse a table whose name one has that comes with sysmond, unless this is its very file.

    :raises UsageError: as the resolver would.
    """
    owners = {EVENTS: plugins.EVENTS_OWNER, **_builtin_tables()}
    for probe in probes:
        owner = owners.get(probe.table.name)
        module = sys.modules.get(owner or "")
        if owner and not (module and module.__file__ and os.path.samefile(module.__file__, path)):
            raise plugins.already_offered(probe, owner)


def _show(probe: Probe, host: Host) -> None:
    """Read it twice, since the first reading opens files, and show the second.

    :raises Error: where it raises, or gives what does not fit its table.
    """
    lane, every = str(probe.lane), f"{probe.interval_s:g} s"
    put(f"{probe.table.name}: every {every} in the {lane} lane, {probe.sensitivity}: {probe.table.doc}".rstrip(": "))
    (_, first_s), (rows, again_s) = (_timed(probe, host) for _ in range(2))
    if probe.table.packing is not None:
        pieces: Sequence[Records] = [rows] if isinstance(rows, Records) else rows
        size_bytes = sum(memoryview(piece.rows).nbytes + len(piece.blob) for piece in pieces)
        put(f"a long table: {size_bytes} bytes of records; sysmon-extract shows its rows once it is recorded")
    else:
        put(*(line for name, row in rows for line in _lines(probe, name, row)))
        put(f"{len(rows)} row{'s' * (len(rows) != 1)}")
    put(f"read twice: in {first_s * 1000:.2f} ms, and again in {again_s * 1000:.2f} ms")


def _timed(probe: Probe, host: Host) -> tuple[Any, float]:
    """What a reading gives, and how long it took."""
    host.new_tick()
    began_s = time.perf_counter()
    try:
        if probe.records is not None:
            gave: Any = probe.records(host, full=True)
        else:
            gave = list(probe.read(host))
    except Exception as problem:
        raise _refusal(probe, problem) from problem
    lasted_s = time.perf_counter() - began_s
    if probe.records is None:
        _check(probe, gave)
    return gave, lasted_s


def _refusal(probe: Probe, problem: Exception) -> Error:
    """What it means that a reading raised: where, what, and which gap readers would see."""
    absence = absence_of(problem)
    kind = NotPermittedError if isinstance(problem, PermissionError) else Error
    return kind(f"{_place_of(probe, problem)}: {absence.detail}; readers would see a gap: {absence.cause}")


def _check(probe: Probe, rows: Sequence[Any]) -> None:
    """Refuse the first row that does not fit the table.

    :raises Error: naming file, line, row and metric, what came, and what was expected.
    """
    where, metrics = _place_of(probe), probe.table.metrics
    names: set[object] = set()
    for row in rows:
        if not isinstance(row, tuple) or len(row) != 2 or not isinstance(row[0], str):  # noqa: PLR2004  name and values
            raise Error(f"{where}: a row is {row!r:.80}; expected the name of an instance and its values")
        name, values = row
        said = f"{where}: row {name!r}"
        if name in names:
            raise Error(f"{said}: given twice; expected each instance once")
        names.add(name)
        if isinstance(values, Absence):
            continue
        expected = ", ".join(metric.name for metric in metrics)
        if not isinstance(values, (tuple, list)):
            is_one = len(metrics) == 1
            form = f"a tuple of 1, ({expected},) with its comma" if is_one else f"a tuple of {len(metrics)}: {expected}"
            raise Error(f"{said}: {values!r:.80} came for its values; expected {form}")
        if len(values) != len(metrics):
            raise Error(f"{said}: {len(values)} values; expected {len(metrics)}: {expected}")
        for metric, value in zip(metrics, values, strict=True):
            if right := _right(metric, value):
                raise Error(f"{said}, metric {metric.name!r}: {value!r:.80}; expected {right}")


def _right(metric: Metric, value: object) -> str:
    """What would be right for a metric; empty where the value is."""
    if metric.is_text:
        return "" if isinstance(value, str) or value == ABSENT else "a text, or ABSENT"
    is_fit = isinstance(value, int) and not isinstance(value, bool) and -INT64_MAX - 1 <= value <= INT64_MAX
    digits = f", in units of 10**-{metric.scale} {metric.unit}" if metric.scale else ""
    return "" if is_fit else f"an integer of 64 bits{digits}, or ABSENT"


def _lines(probe: Probe, name: str, row: Any) -> Iterator[str]:  # noqa: ANN401  what a probe gives
    """A row for people: its instance, and a line a metric."""
    if isinstance(row, Absence):
        yield f"{name or probe.table.name}: {row.cause}{f' ({row.detail})' if row.detail else ''}"
        return
    if name:
        yield name
    width = max(len(metric.name) for metric in probe.table.metrics)
    for metric, value in zip(probe.table.metrics, row, strict=True):
        unit = "" if metric.unit in {"1", "text"} else f" {metric.unit}"
        known = value if isinstance(value, str) else f"{_scaled(value, metric.scale)}{unit}"
        spelled = "–" if value == ABSENT else known
        yield f"  {metric.name:<{width}}  {spelled}"


def _scaled(value: int, scale: int) -> str:
    whole, rest = divmod(abs(value), 10**scale)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{rest:0{scale}d}" if scale else f"{sign}{whole}"


def _place_of(probe: Probe, problem: Exception | None = None) -> str:
    return "{}:{}".format(*own_place(probe, problem))
