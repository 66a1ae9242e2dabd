# SPDX-License-Identifier: Apache-2.0
"""An archive in which names and texts are planted, each in another place, and where they may stand however spelled."""

import base64
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Metric, Packing, Semantics, Sensitivity, Table
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.tasks.tables import CGROUP_NAME, EXITS, PROCESS
from tests.support.longarchive import BOOT, Row, relation, ring

S = Semantics.STATE
# Each stands in another place. Control characters and what is no ASCII, too.
PLANTED = [f"planted{number:02}" for number in range(40)]
# Of a plugin: its keys are texts.
FOREIGN = Table(
    "foreign",
    (Metric("name", "text", S, "Its name."), Metric("size", "B", Semantics.GAUGE, "Its size.")),
    "row",
    "",
    Packing("<16s q", ("name",)),
)
SECONDS = range(100, 160)


def wide(folders: Folders, planted: Sequence[str]) -> None:
    """Tables that come with sysmond, and one that does not, with names and texts of this machine."""

    def table(name: str, per: str, *texts: str, more: Sequence[Metric] = ()) -> Table:
        return Table(
            name, (*(Metric(text, "text", S, "It.") for text in texts), Metric("n", "1", S, "It."), *more), per
        )

    tables = {
        table(
            "host", "", "hostname", "command_line", "timezone", "kernel_version", "vendor", "product", "firmware"
        ): "",
        table("filesystem", "mount", "device"): f"/home/{planted[7]}",
        table("disk", "device", more=[Metric("read_bytes", "B", Semantics.COUNTER, "It.")]): planted[9],
        table("smart", "disk", "model", "firmware"): planted[10],
        table("cgroup_owner", "cgroup", "unit", "user_unit", "slice", "session", "container", "pod"): f"/{planted[13]}",
        table("cgroup_io", "cgroup:device"): f"/{planted[20]}:{planted[21]}",
        table("setting", "setting", "value"): f"io_scheduler.{planted[22]}",
        table("gpu", "card", "address"): planted[24],
        table("plugin", "shelf", "owner"): planted[26],
        table("device_mapper", "device", "name"): planted[28],
    }  # fmt: skip
    texts = iter([*planted[:7], planted[8], *planted[11:13], *planted[14:20], planted[23], planted[25], planted[27],
                  planted[29]])  # fmt: skip
    folder = Path(folders.runtime, "sampler/public")
    folder.mkdir(parents=True)
    identity = Identity(BOOT, "sampler", Sensitivity.PUBLIC, 1, SECONDS[0] * SECOND_NS)
    layouts = [Layout(each, SECOND_NS) for each in tables]
    with closing(RingWriter(str(folder / "1.ring"), 1 << 20, identity, layouts)) as writer:
        said = [[next(texts) if metric.is_text else 1 for metric in each.metrics] for each in tables]
        for second in SECONDS:
            writer.clock(relation(second * SECOND_NS))
            for number, (row, instance) in enumerate(zip(said, tables.values(), strict=True)):
                values = [writer.text(value) if isinstance(value, str) else value for value in row]
                writer.rows(number, second * SECOND_NS, (instance,), values)
            writer.absence(2, second * SECOND_NS, Cause.PROBE_FAILED, f"OSError: /dev/{planted[30]}")
            writer.absence(3, second * SECOND_NS, Cause.PROBE_FAILED, f"smart@{planted[31]}: asleep")
        writer.event(SECONDS[9] * SECOND_NS, "disk error", planted[32], planted[33], detail=planted[34])


def long(folders: Folders, planted: Sequence[str]) -> None:
    """Processes, those that ended, their groups, and a table of which nobody knows anything."""
    common = {"start": SECOND_NS, "uid": 0}
    process: Row = {**common, "pid": 7, "comm": planted[35], "state": "S", "cgroup": 5}
    ended: Row = {**common, "pid": 8, "comm": planted[36], "end": SECONDS[9] * SECOND_NS}
    group: Row = {"id": 5, "path": f"/{planted[37]}"}
    foreign: Row = {"name": planted[38], "size": 1}
    for table, row in ((PROCESS, process), (EXITS, ended), (CGROUP_NAME, group), (FOREIGN, foreign)):
        readings = [(float(second), True, [{**row, "cpu": second * 1000}]) for second in SECONDS]
        ring(folders, table, readings, capacity=1 << 18)


def archive(base: Path) -> Folders:
    """Make it."""
    made = Folders(str(base / "state"), str(base / "run"))
    os.mkdir(made.state)
    wide(made, PLANTED)
    long(made, PLANTED)
    return made


def spelled(word: str) -> list[bytes]:
    """A word as it may stand somewhere: raw, in base64 at each of three places, in UTF-16."""
    shifted = [base64.b64encode(b"\0" * at + word.encode())[2 * at : -4] for at in range(3)]
    return [word.encode(), word.encode("utf-16-le"), word.encode("utf-16-be"), *(code.strip(b"=") for code in shifted)]


def seen_in(content: bytes) -> list[str]:
    """Which of those that were planted stand in something."""
    return [word for word in PLANTED if any(code in content for code in spelled(word))]
