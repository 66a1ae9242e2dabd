# SPDX-License-Identifier: Apache-2.0
"""Archives of long tables for tests: rows as dictionaries become files and rings, as sysmond writes them."""

import json
import os
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.model import ABSENT, Cause, Sensitivity, Table
from sysmond.base.result import Event, Gap, Int64Array
from sysmond.machine.folders import Folders
from sysmond.records import Records, codes, record_bytes, reference
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store.archive import Name, ram_folder
from sysmond.store.files.sparse_file import encode
from sysmond.store.stretches.stretch import About, Incarnation, MemoryStretch, Readings, Stretch
from tests.support import warm

BOOT = "b" * 32
# Boot time 0 is 2025-03-01 11:00 UTC.
BOOTED_NS = 1_740_826_800 * SECOND_NS

Row = Mapping[str, int | str | None]


def relation(boottime_ns: int = 0, booted_ns: int = BOOTED_NS) -> Relation:
    """How the clocks stand: the machine never slept."""
    return Relation(boottime_ns, booted_ns + boottime_ns, boottime_ns)


def stretch(  # noqa: PLR0913  a test names what it is about
    table: Table,
    ticks_s: Sequence[float],
    rows: Iterable[tuple[int, Row]],
    *,
    full: Collection[int] = (0,),
    boot: str = BOOT,
    lost: Mapping[int, int] | None = None,
    sensitivity: Sensitivity = Sensitivity.PUBLIC,
    relations: Sequence[Relation] = (relation(),),
    interval_s: float = 1,
) -> MemoryStretch:
    """Make a stretch of readings at these seconds; ``rows``: the number of its reading, and values, of each."""
    ticks = np.array([round(tick * SECOND_NS) for tick in ticks_s], np.int64)
    numbered = list(rows)
    texts: dict[str, int] = {}

    def stored(value: int | str | None) -> int:
        if isinstance(value, str):
            return texts.setdefault(value, len(texts))
        return ABSENT if value is None else value

    columns = {
        metric.name: np.array(
            [stored(row.get(metric.name, "" if metric.is_text else 0)) for _, row in numbered], np.int64
        )
        for metric in table.metrics
    }
    readings = Readings(
        ticks,
        np.array([number in full for number in range(len(ticks))], np.bool_),
        np.array([(lost or {}).get(number, 0) for number in range(len(ticks))], np.int64),
        np.zeros(len(ticks), np.int64),
    )
    about = About(
        table,
        boot,
        "sampler",
        sensitivity,
        round(interval_s * SECOND_NS),
        [Incarnation(0, int(ticks[0]), closed=False)],
        list(relations),
    )
    return memory_stretch(about, readings, np.array([at for at, _ in numbered], np.int64), columns, list(texts))


def memory_stretch(
    about: About, readings: Readings, at: Int64Array, columns: Mapping[str, Int64Array], texts: Sequence[str] = ()
) -> MemoryStretch:
    """A stretch of columns that are all there, in any order of rows."""
    return MemoryStretch(about, readings, at, columns.__getitem__, texts)


def put(folders: Folders, made: Stretch, first: int, last: int | None = None, *, ram: bool = False) -> str:
    """Write a stretch as a file of this sequence; its path."""
    table, sensitivity = made.table.name, made.sensitivity
    folder = f"{ram_folder(folders, sensitivity)}/{table}" if ram else f"{folders.state}/{sensitivity}/{table}/1s"
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = f"{folder}/{Name(made.boot, first, last or first).file}"
    Path(path).write_bytes(encode(made, "test"))
    return path


def ring(
    folders: Folders,
    table: Table,
    ticks: Sequence[tuple[float, bool, Sequence[Row]]],
    *,
    boot: str = BOOT,
    sensitivity: Sensitivity = Sensitivity.PUBLIC,
    writer: str = "sampler",
    capacity: int = 1 << 20,
) -> str:
    """Write readings (second of boot time, whether full, rows) into a ring, as a sampler does; its path."""
    folder = f"{folders.runtime}/{writer}/{sensitivity}/{table.name}"
    os.makedirs(folder, exist_ok=True)
    started_ns = round(ticks[0][0] * SECOND_NS)
    path = f"{folder}/{started_ns}.ring"
    identity = Identity(boot, writer, sensitivity, 1, started_ns)
    made = RingWriter(path, capacity, identity, [Layout(table, SECOND_NS)])
    made.clock(relation(started_ns))
    kind = [(metric, code) for metric, code in zip(table.metrics, codes(table), strict=True)]
    for second, is_full, rows in ticks:
        packed, blob = pack(table, kind, rows)
        made.records(0, round(second * SECOND_NS), [Records(packed, is_full, 0, len(rows), blob)], record_bytes(table))
    made.close()
    return path


def pack(table: Table, kind: Sequence[tuple[object, str]], rows: Sequence[Row]) -> tuple[bytes, bytes]:
    """Rows as their records, and the texts behind them."""
    assert table.packing
    packed, blob = b"", b""
    for row in rows:
        values: list[int | bytes] = []
        for metric, (_, code) in zip(table.metrics, kind, strict=True):
            value = row.get(metric.name, "" if metric.is_text else 0)
            if isinstance(value, str):
                encoded = value.encode("utf-8", "surrogateescape")
                values.append(encoded if code.endswith("s") else reference(len(blob), len(encoded)))
                blob += b"" if code.endswith("s") else encoded
            else:
                values.append(ABSENT if value is None else value)
        packed += struct.pack(table.packing.format, *values)
    return packed, blob


_ASK = """
import json, sys
from sysmond.machine.folders import Folders
from sysmond.answers.sql import run
from sysmond.answers.records import Request
from sysmond.base.model import Sensitivity
asked = Request("", **json.loads(sys.argv[4]))
answer = run.ask(Folders(*sys.argv[1:3]), tuple(Sensitivity), sys.argv[3], asked)
print(json.dumps([answer.rows, answer.gaps, answer.events, answer.warnings]))
"""


class AnswerOfSql(NamedTuple):
    """What DuckDB finds, and what an answer says beside that."""

    rows: list[list[Any]]
    gaps: list[Gap]
    events: list[Event]
    warnings: list[str]


def answer_by_sql(folders: Folders, query: str, **asked: str | int) -> AnswerOfSql:
    """Ask in a process of its own."""
    said = warm.run(_ASK, folders.state, folders.runtime, query, json.dumps(asked))
    rows, gaps, events, warnings = json.loads(said)
    known = [Gap(start_ns, end_ns, table, Cause(cause), detail) for start_ns, end_ns, table, cause, detail in gaps]
    return AnswerOfSql(rows, known, [Event(*event) for event in events], warnings)


def asked_by_sql(folders: Folders, query: str) -> list[list[Any]]:
    """What DuckDB finds."""
    return answer_by_sql(folders, query).rows
