# SPDX-License-Identifier: Apache-2.0
"""What a lane that ran before in this boot read last of some tables, as its rings have it.

The first readings of the next are compared with that: what changed in between is an event, too. A ring stays until its
lane starts again, sealed or not. Standard library only.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from struct import error, iter_unpack
from typing import NamedTuple

from sysmond.base.model import ABSENT, Sensitivity, Table
from sysmond.errors import Error
from sysmond.machine import listing
from sysmond.ring.frame import LAYOUT, NAMES, ROWS, SUFFIX, TEXT, decode_instances, decode_layout, decode_text
from sysmond.ring.leftovers import NO_ROWS
from sysmond.ring.snapshot import snapshot


class LastRows(NamedTuple):
    """The rows of a table at its last tick with any, as a reading has them; ``columns``: the metrics by name."""

    tick_ns: int
    columns: tuple[str, ...]
    names: tuple[str, ...]
    values: list[int | str]


def last_rows(folder: str, boot: str, tables: Collection[str]) -> dict[str, LastRows]:
    """Give them by table; ``folder``: of the lane. What cannot be read is left out; who seals it says so."""
    newest: dict[str, LastRows] = {}
    for sensitivity in Sensitivity:
        for name in _rings(f"{folder}/{sensitivity}"):
            with suppress(OSError, Error, ValueError, KeyError, error):
                for table, rows in _of_ring(name, boot, tables):
                    if table not in newest or newest[table].tick_ns < rows.tick_ns:
                        newest[table] = rows
    return newest


def _rings(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in listing.files(folder, SUFFIX)]
    except (OSError, Error):
        return []


def _of_ring(path: str, boot: str, tables: Collection[str]) -> Iterator[tuple[str, LastRows]]:
    """The last rows of each set of instances that a ring has of these tables."""
    copy = snapshot(path, NO_ROWS)
    if copy.identity.boot != boot:
        return
    declared: dict[int, Table] = {}
    instances: dict[int, tuple[int, tuple[str, ...]]] = {}
    texts: dict[int, str] = {}
    ticks: list[tuple[int, int, bytes]] = []
    last = copy.before()
    for kind, ident, tick_ns, payload in map(last.frame, last.frames):
        if kind == LAYOUT:
            declared[ident] = decode_layout(payload).table
        elif kind == NAMES:
            instances[ident] = decode_instances(payload)
        elif kind == TEXT:
            number, text = decode_text(payload)
            texts[number] = text
        elif kind == ROWS:
            ticks.append((tick_ns, ident, payload))
    for tick_ns, ident, payload in ticks:
        layout, names = instances[ident]
        table = declared[layout]
        if table.name in tables:
            columns = tuple(metric.name for metric in table.metrics)
            yield table.name, LastRows(tick_ns, columns, names, _values(table, payload, texts))


def _values(table: Table, payload: bytes, texts: dict[int, str]) -> list[int | str]:
    stored = [value for (value,) in iter_unpack("=q", payload)]
    is_text = [metric.is_text for metric in table.metrics]
    return [
        texts.get(value, ABSENT) if is_text[at % len(is_text)] and value != ABSENT else value
        for at, value in enumerate(stored)
    ]
