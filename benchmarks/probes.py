# SPDX-License-Identifier: Apache-2.0
"""What a reading of each table takes: on this machine, and on machines that are described by files.

The daemon runs as anywhere, at the intervals that tables have by default, with all of them on; beside it one for each
machine of ``tests/fixtures/machines`` that has hardware, with ``--root`` on its tree. What a table takes is the middle
of the increases of its ``duration`` in the table ``self``: a reading, and its row in the ring. A table counts where it
had a row. Of machines of files the kernel's own work to ask the hardware is not in it, so what takes long there (a
sensor on a slow bus) takes longer in truth; such figures stand apart.
"""

import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure, passes, sensing
from benchmarks.measure import SECOND_NS, Daemon, Figures

SECONDS = 640  # Tables that are read every five minutes are read twice after the first time.
HERE = "here"
# The machines of the fixtures, by how much they have.
MACHINES = ("laptop", "desktop", "server", "arm")
END_S = 60


def configured(*, files: bool) -> str:
    """A configuration with all tables on; of machines of files without those of tasks, which are this machine's."""
    made = json.loads(passes.configured(() if files else passes.offered(), threads=not files))
    for probe in sensing.probes_of(sensing.all_plugins()):
        if not probe.enabled and probe.table.packing is None:
            made["probes"][probe.table.name] = {"enabled": True}
    return json.dumps(made)


def reading_ms(daemon: Daemon) -> dict[str, float]:
    """By table that had a row, the milliseconds that a reading took in the middle."""
    import numpy as np  # noqa: PLC0415  not in what is forked before

    from sysmond.history import Archive  # noqa: PLC0415  as above

    archive = Archive(daemon.folders)
    answer = archive.select("self/duration@probe:*", raw=True, start=time.time_ns() - 3600 * SECOND_NS)
    recorded = {entry.path.partition("/")[0] for entry in archive.catalogue()}
    recorded |= {entry.path for entry in archive.long_tables()}
    middle_ms = {}
    for column in answer.columns:
        table = column.path.partition("@probe:")[2]
        if table in recorded and column.integers is not None:
            grown_ns = np.diff(column.integers[column.integers >= 0])
            if len(grown_ns := grown_ns[grown_ns > 0]):
                middle_ms[table] = round(float(np.median(grown_ns)) / 1e6, 4)
    return middle_ms


def measured(seconds: int) -> Figures:
    """Measure on all machines, over the same seconds."""
    limit_s = seconds + END_S
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sysmond-benchmark-", dir="/dev/shm")))
        roots = {name: folder / name for name in MACHINES}
        for name, root in roots.items():
            sensing.build(sensing.LAPTOP._replace(name=name), root)
        stack.enter_context(measure.forked(lambda: sensing.move([*roots.values()]), limit_s))
        daemons = {HERE: stack.enter_context(passes.daemon(limit_s, configured(files=False), threads=True))}
        for name, root in roots.items():
            described = measure.daemon(limit_s, configured(files=True), arguments=("--root", str(root)))
            daemons[name] = stack.enter_context(described)
        for daemon in daemons.values():
            daemon.wait_for_ring()
        time.sleep(seconds)
        by_machine = {name: reading_ms(daemon) for name, daemon in daemons.items()}
    here = by_machine.pop(HERE)
    of_files: dict[str, float] = {}
    for by_table in by_machine.values():
        of_files = {**by_table, **of_files}
    return {
        "seconds": seconds,
        "here_ms": here,
        "files_ms": {table: ms for table, ms in sorted(of_files.items()) if table not in here},
    }


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = [(name, f"{ms:.3f} ms") for name, ms in sorted(figures["here_ms"].items(), key=lambda item: -item[1])]
    of_files = sorted(figures["files_ms"].items(), key=lambda item: -item[1])
    return [*lines, *((f"{name} (of files)", f"{ms:.3f} ms") for name, ms in of_files)]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS}")
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds), rows, as_json=options.json)
