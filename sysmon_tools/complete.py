# SPDX-License-Identifier: Apache-2.0
"""What ``sysmonctl complete`` offers to shells: the probes, and the paths of series, that begin with a word.

It reads the plan and the rings of the running recorder, and asks nobody: a key was pressed, so it has to be quick, and
where there is no recorder there is nothing to offer and nothing to say. Names that a shell would have to quote are left
out.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from sysmond.base.model import Sensitivity, Table
from sysmond.errors import Error
from sysmond.machine import folders, note
from sysmond.plan.plan import PLAN_BYTES_MAX
from sysmond.ring.frame import LAYOUT, NAMES, SUFFIX, decode_instances, decode_layout
from sysmond.ring.progress import WRITERS
from sysmond.ring.tail import Tail

PROBES, PATHS = "probes", "paths"
KINDS = (PROBES, PATHS)
OFFERED_MAX = 2000
_PLAIN = re.compile(r"[\w./:@%+,=-]+")


def offer(kind: str, word: str, *, user: bool) -> list[str]:
    """What begins with a word, in order; nothing, where no recorder is to be found. ``user``: only one's own counts."""
    places = [folders.SYSTEM_RUNTIME] if not user else []
    with suppress(Error):
        places.append(folders.ours(user=True, state_dir=None, runtime_dir=None).runtime)
    for runtime in places:
        with suppress(OSError, Error):
            tables = _tables(runtime, planned=kind == PROBES)
            names = tables if kind == PROBES else _paths(runtime, tables, word)
            return sorted({name for name in names if name.startswith(word) and _PLAIN.fullmatch(name)})[:OFFERED_MAX]
    return []


def _tables(runtime: str, *, planned: bool) -> list[str]:
    """The tables of the plan: all of them, or those that are recorded.

    :raises OSError: where there is none. :raises Error: where it is damaged.
    """
    probes = note.read(
        f"{runtime}/plan.json",
        lambda plan: [(str(probe["table"]), bool(probe["enabled"])) for probe in plan["probes"]],
        PLAN_BYTES_MAX,
    )
    return [table for table, is_enabled in probes if planned or is_enabled]


def _paths(runtime: str, tables: list[str], word: str) -> list[str]:
    """The next piece of ``table/metric@instance``: where but one is left, what comes behind it, too."""
    begun, at, _ = word.partition("@")
    name, slash, _ = begun.partition("/")
    matching = [table for table in tables if table.startswith(name)]
    if not slash and not at:
        if len(matching) != 1:
            return matching
        name = matching[0]
    seen = list(_seen(runtime, name))
    metrics = [f"{name}/{metric.name}" for table, _ in seen for metric in table.metrics]
    instances = {instance for _, names in seen for instance in names if instance}
    if at:
        return [f"{begun}@{instance}" for instance in instances]
    offered = [metric for metric in metrics if metric.startswith(word)] if slash else [name, *metrics]
    if slash and len(set(offered)) == 1:
        offered += [f"{offered[0]}@{instance}" for instance in instances]
    return offered


def _seen(runtime: str, name: str) -> Iterator[tuple[Table, set[str]]]:
    """A table as the newest ring of each writer has it, and the instances there, as far as we may read them."""
    lanes = [f"{runtime}/{writer}/{sensitivity}" for writer in WRITERS.values() for sensitivity in Sensitivity]
    for folder in (*lanes, *(f"{lane}/{name}" for lane in lanes)):
        with suppress(OSError, Error, ValueError):
            rings = [file for file in os.listdir(folder) if file.removesuffix(SUFFIX).isdigit()]
            newest = max(rings, key=lambda file: int(file.removesuffix(SUFFIX)), default=None)
            if newest is not None:
                yield from _explained(f"{folder}/{newest}", name)


def _explained(path: str, name: str) -> Iterator[tuple[Table, set[str]]]:
    ring = Tail(path)
    try:
        layouts: dict[int, Table] = {}
        instances: dict[int, set[str]] = {}

        def take(kind: int, ident: int, _: int, payload: bytes) -> None:
            if kind == LAYOUT and ident not in layouts:
                layouts[ident] = decode_layout(payload).table
            elif kind == NAMES:
                layout, names = decode_instances(payload)
                instances.setdefault(layout, set()).update(names)

        ring.explain(take)
    finally:
        ring.close()
    for ident, table in layouts.items():
        if table.name == name:
            yield table, instances.get(ident, set())
