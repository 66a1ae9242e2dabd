# SPDX-License-Identifier: Apache-2.0
"""docs/library.md and the README do what they say: their Python is executed on an archive made for it."""

import contextlib
import doctest
import io
import itertools
import re
import shlex
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sysmond import history
from sysmond.answers import following
from sysmond.base.clock import Relation
from sysmond.base.model import FINEST_TIER, Metric, Semantics, Sensitivity, Table
from sysmond.machine.folders import Folders, create_classes
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter
from sysmond.store import archive
from sysmond.store.files import dense_file
from sysmond.store.of_ring import MemoryBlock, Recording, SeriesKey, Strand
from sysmond.tasks.tables import PROCESS
from tests.support.longarchive import Row, put, stretch

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SECOND = 10**9
US = 10**6
NOON_S = 1_740_830_400  # 2025-03-01T12:00Z
BOOT = "c0ffee" * 5 + "00"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

TABLES = {
    "cpu": Table("cpu", (Metric("user", "s", Semantics.COUNTER, "Time in user mode.", 2, "/proc/stat cpu 1"),), "cpu"),
    "memory": Table(
        "memory",
        (
            Metric("available", "B", Semantics.GAUGE, "What programs can still get."),
            Metric("total", "B", Semantics.GAUGE, "Usable memory."),
        ),
    ),
    "disk": Table("disk", (Metric("read_bytes", "B", Semantics.COUNTER, "Bytes read."),), "device"),
    "host": Table("host", (Metric("kernel", "text", Semantics.STATE, "Release of the kernel."),)),
}
KEYS = (
    SeriesKey("cpu", "user", "total"),
    SeriesKey("memory", "available", ""),
    SeriesKey("memory", "total", ""),
    SeriesKey("disk", "read_bytes", "sda"),
    SeriesKey("host", "kernel", ""),
)


def block(first_s: int, last_s: int, started_s: int) -> MemoryBlock:
    """Ticks once a second, in seconds of boot time; noon is 100."""
    ticks = np.arange(first_s, last_s, dtype=np.int64)
    rows = [
        ticks * 30,
        np.full_like(ticks, 3 << 30),
        np.full_like(ticks, 4 << 30),
        ticks * 2**20,
        np.full_like(ticks, 77),
    ]
    strand = Strand(BOOT, "sampler", started_s * SECOND, SECOND)
    return MemoryBlock(strand, ticks * SECOND, KEYS, np.array(rows))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """An archive of ten minutes; in the sixth the daemon was down."""
    place = Folders(str(tmp_path / "state"), str(tmp_path / "runtime"))
    create_classes(place.state, FINEST_TIER)
    relation = Relation(100 * SECOND, NOON_S * SECOND, 100 * SECOND)
    blocks = [block(60, 400, 1), block(460, 701, 450)]
    recording = Recording(Sensitivity.PUBLIC, TABLES, blocks, {77: "6.12.0"}, {BOOT: [relation]}, ())
    path = Path(archive.disk_folder(place, Sensitivity.PUBLIC)) / archive.Name(BOOT, 1, 1).file
    path.write_bytes(dense_file.encode(recording, "test"))
    rows: list[tuple[int, Row]] = [(0, process(1, "init", 0, 4096)), (0, process(4711, "postgres", 0, 8192))]
    for second in range(1, 400):
        rows += [
            (second, process(1, "init", second * 10_000, 4096)),
            (second, process(4711, "postgres", second * US // 2, 8192)),
        ]
    put(place, stretch(PROCESS, range(60, 460), rows, boot=BOOT, relations=[relation]), 1)
    return place


def process(pid: int, comm: str, cpu_us: int, rss: int) -> Row:
    return {"pid": pid, "start": SECOND, "comm": comm, "cpu": cpu_us, "rss_anon": rss}


@pytest.fixture
def opened(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``history.open()`` open that archive, in which a load grows whenever somebody waits for what is new."""
    table = Table("load", (Metric("one", "1", Semantics.GAUGE, "Load.", 2),))
    place = f"{folders.runtime}/background/public"
    Path(place).mkdir(parents=True)
    identity = Identity(BOOT, "background", Sensitivity.PUBLIC, 1, 650 * SECOND)
    ring = RingWriter(f"{place}/{650 * SECOND}.ring", 1 << 16, identity, [Layout(table, SECOND)])
    ring.clock(Relation(650 * SECOND, (NOON_S + 550) * SECOND, 650 * SECOND))
    seconds = itertools.count(650)

    def tick() -> None:
        second = next(seconds)
        ring.rows(0, second * SECOND, ("",), [60 + 30 * (second - 650)])

    tick()
    monkeypatch.setattr(following, "wait", tick)
    opening = partial(history.open, state_dir=folders.state, runtime_dir=folders.runtime)
    monkeypatch.setattr(history, "open", opening)


@pytest.mark.usefixtures("opened")
def test_the_examples_of_the_library_are_true() -> None:
    document = (REPOSITORY / "docs/library.md").read_text(encoding="utf-8")
    examples = "".join(PYTHON.findall(document))
    test = doctest.DocTestParser().get_doctest(examples, {}, "docs/library.md", None, 0)
    assert len(test.examples) > 10
    said = io.StringIO()
    failed, _ = doctest.DocTestRunner().run(test, out=said.write)
    assert not failed, said.getvalue()


def shown() -> list[tuple[str, str]]:
    """The command lines whose output the guide to asking shows, and that output."""
    document = (REPOSITORY / "docs/asking.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```$", document, re.DOTALL | re.MULTILINE)
    parts = [part.partition("\n") for block in blocks for part in block.removeprefix("$ ").split("\n$ ")]
    return [(line, output.removesuffix("\n")) for line, _, output in parts]


@pytest.mark.parametrize(("line", "output"), shown())
def test_the_guide_to_asking_shows_what_is_answered(folders: Folders, line: str, output: str) -> None:
    if "--sql" in line and find_spec("duckdb") is None:
        pytest.skip("DuckDB is optional")
    program, *words = shlex.split(line)
    assert program == "sysmon-extract"
    run = "import sys; from sysmon_tools.extract import main; sys.exit(main(sys.argv[1:]))"
    places = [f"--state-dir={folders.state}", f"--runtime-dir={folders.runtime}"]
    command = [sys.executable, "-c", run, *words, *places, "--utc"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.removesuffix("\n") == output


def test_the_guide_to_asking_shows_some_output() -> None:
    assert len(shown()) > 3


@pytest.mark.usefixtures("opened")
def test_the_python_of_the_readme_runs(folders: Folders) -> None:
    document = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    blocks = PYTHON.findall(document)
    assert len(blocks) == 2
    printed = io.StringIO()
    for code in blocks:
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(printed):
            exec(code.replace("/var/lib/sysmond", folders.state).replace("yesterday", "2025-03-01T00:00Z"), names)  # noqa: S102
    assert "30." in printed.getvalue()
    assert "3221225472" in printed.getvalue()
