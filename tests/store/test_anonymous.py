# SPDX-License-Identifier: Apache-2.0
"""An archive that names nobody: what was planted in names and texts is nowhere in it, however it is spelled."""

import base64
import io
import os
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pytest

from sysmond import history
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause, Metric, Packing, Semantics, Sensitivity, Table
from sysmond.history import Archive
from sysmond.machine import snapshot_file
from sysmond.machine.folders import Folders
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store.anonymous import Anonymity
from sysmond.store.excerpt import ExcerptFile
from sysmond.store.of_ring import BootEvent
from sysmond.tasks.tables import CGROUP_NAME, EXITS, PROCESS
from tests.support.longarchive import BOOT, BOOTED_NS, Row, relation, ring

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

    def table(name: str, per: str, *texts: str) -> Table:
        return Table(name, (*(Metric(text, "text", S, "It.") for text in texts), Metric("n", "1", S, "It.")), per)

    tables = {
        table(
            "host", "", "hostname", "command_line", "timezone", "kernel_version", "vendor", "product", "firmware"
        ): "",
        table("filesystem", "mount", "device"): f"/home/{planted[7]}",
        table("disk", "device"): planted[9],
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
        ring(folders, table, [(float(second), True, [row]) for second in SECONDS], capacity=1 << 18)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    made = Folders(str(tmp_path / "state"), str(tmp_path / "run"))
    os.mkdir(made.state)
    wide(made, PLANTED)
    long(made, PLANTED)
    return made


def content(files: Sequence[ExcerptFile]) -> bytes:
    """All bytes of files, unpacked, with their names."""
    told: list[bytes] = []

    def tell(name: str, thing: h5py.Dataset | h5py.Group) -> None:
        told.extend([name.encode(), *(np.asarray(value).tobytes() for value in thing.attrs.values())])
        if isinstance(thing, h5py.Dataset):
            told.append(np.asarray(thing[()]).tobytes())

    for path, image, table in files:
        told += [path.encode(), table.encode(), image]
        with h5py.File(io.BytesIO(image)) as file:
            tell("", file)
            file.visititems(tell)
    return b"\0".join(told)


def spelled(word: str) -> list[bytes]:
    """A word as it may stand somewhere: raw, in base64 at each of three places, in UTF-16."""
    shifted = [base64.b64encode(b"\0" * at + word.encode())[2 * at : -4] for at in range(3)]
    return [word.encode(), word.encode("utf-16-le"), word.encode("utf-16-be"), *(code.strip(b"=") for code in shifted)]


def test_nothing_that_was_planted_is_in_it(folders: Folders) -> None:
    named, nameless = (content(Archive(folders).excerpt(anonymous=each)) for each in (False, True))
    # The last stands nowhere; all others would be seen.
    assert [word for word in PLANTED if not any(code in named for code in spelled(word))] == PLANTED[-1:]
    assert [word for word in PLANTED if any(code in nameless for code in spelled(word))] == []
    assert BOOT.encode() in named
    assert BOOT.encode() not in nameless


@pytest.mark.parametrize(
    ("kind", "subject", "expected"),
    [
        ("pressure", "io", "io"),
        ("boot ended", "panic", "panic"),
        ("boot ended", "my secret", "thing-1"),
        ("disk error", "io", "thing-1"),
    ],
)
def test_what_is_called_alike_on_all_machines_stays(kind: str, subject: str, expected: str) -> None:
    event = BootEvent(BOOT, 1, kind, subject, "of disk", "sda")
    nameless = Anonymity().event(event)
    assert (nameless.kind, nameless.subject, nameless.text, nameless.detail) == (kind, expected, "", "")


@pytest.mark.parametrize(
    ("table", "instance", "expected"),
    [
        (Table("disk", (), "device"), "sda", "device-1"),
        (Table("smart", (), "disk"), "sda", "device-1"),
        (Table("smart_attribute", (), "disk:attribute"), "sda:194 temperature", "device-1:attribute-1"),
        (Table("disk", (), "device"), "sda3", "device-1p3"),
        (Table("swap", (), "device"), "/dev/sda3", "device-1p3"),
        (Table("cgroup_io", (), "cgroup:device"), "/a:sda", "cgroup-1:device-1"),
        (Table("smart", (), "disk"), "nvme0", "device-2"),
        (Table("disk", (), "device"), "nvme0n1p2", "device-2n1p2"),
        (Table("md", (), "array"), "md0", "device-3"),
        (Table("md_member", (), "array:device"), "md0:nvme0n1", "device-3:device-2n1"),
        (Table("disk", (), "device"), "md0", "device-3"),
    ],
)
def test_a_disk_has_one_name_in_all_tables(table: Table, instance: str, expected: str) -> None:
    names = Anonymity()
    for disk in ("sda", "nvme0", "md0"):
        names.instance(Table("disk", (), "device"), disk)
    assert names.instance(table, instance) == expected
    assert names.text("filesystem", "device", "/dev/sda1") == "device-1p1"


def test_what_is_left_can_still_be_put_together(folders: Folders, tmp_path: Path) -> None:
    path = tmp_path / "nameless.sysmon"
    with path.open("wb") as file:
        files = Archive(folders).excerpt(anonymous=True)
        snapshot_file.write(file, {}, [(each.path, each.image) for each in files])
    part = history.open(state_dir=str(path))
    start_ns, end_ns = (BOOTED_NS + second * SECOND_NS for second in (SECONDS[0], SECONDS[-1]))
    columns = ["comm", "state", "cgroup_path"]
    rows = part.records("process", start=start_ns, end=end_ns, columns=columns, where="pid = 7")
    assert {column.path: column.texts for column in rows.columns if column.path in columns} == {
        "comm": ("program-2",),
        "state": ("S",),
        "cgroup_path": ("cgroup-3",),
    }
    paths = {re.sub(r"-\d", "-N", entry.path) for entry in part.catalogue()}
    assert {"disk/n@device-N", "cgroup_io/n@cgroup-N:device-N", "filesystem/n@mount-N", "plugin/n@shelf-N"} <= paths
    assert {"host/n", "setting/n@setting-N"} <= paths
    [event] = part.events()
    assert (event.kind, event.subject, event.text, event.detail) == ("disk error", "thing-1", "", "")
    assert {"process", "exits", "cgroup_name"} == {entry.path for entry in part.long_tables()} - {"event"}
