# SPDX-License-Identifier: Apache-2.0
"""Who may read what of processes: a real daemon of the machine, asked by root, by a member of its group, by anybody."""

import grp
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from sysmond.archiver import merge_job
from sysmond.errors import Error, ForeignError, NotPermittedError
from sysmond.history import Archive
from sysmond.machine.folders import GROUP
from sysmond.store.files import sparse_file as long_file
from tests.support.onbus import run
from tests.support.pinned import why_not
from tests.support.waiting import wait_until
from tests.support.whole import NOBODY, Asker, ProgramRun, Recorder, a_recorder, run_as

MARK = "hunter2-sesame-4711"
PLAIN = "plainly-nobodys-business"
PROGRAM = "import sys; sys.stdin.read()"
PUBLIC_TABLES = ("process", "exits", "cgroup_name")
RESTRICTED_TABLES = ("command", "process_private")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be asked by somebody else")


@contextmanager
def a_group() -> Iterator[int]:
    """The group that may read what is restricted, made where the machine has none."""
    try:
        yield grp.getgrnam(GROUP).gr_gid
    except KeyError:
        made = run("groupadd", "--system", GROUP)
        assert made.returncode == 0, made.stderr
        try:
            yield grp.getgrnam(GROUP).gr_gid
        finally:
            run("groupdel", GROUP)


class Scene:
    """A daemon that has seen a process with a secret, in a pid namespace of its own, and one that ended."""

    def __init__(self, recorder: Recorder, group: int, pid: int, namespace: int) -> None:
        self.recorder, self.group, self.pid, self.namespace = recorder, group, pid, namespace
        self.ended = 0


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, "--password", MARK, PLAIN]
    with (
        a_group() as group,
        a_recorder() as recorder,
        subprocess.Popen(["unshare", "--pid", "--fork", *command], stdin=subprocess.PIPE) as process,
    ):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(children.read_text)
        pid = int(children.read_text())
        made = Scene(recorder, group, pid, os.stat(f"/proc/{pid}/ns/pid").st_ino)
        recorder.start()
        recorder.wait_for("process", f"pid = {pid}", "pid")
        with subprocess.Popen(["sh", "-c", "exit 5", "--password", MARK, PLAIN]) as short:
            short.wait()
        made.ended = short.pid
        recorder.wait_for("exits", f"pid = {made.ended}", "pid")
        recorder.wait_for("command", f"pid = {pid} and command ~ {PLAIN}", "pid")
        recorder.wait_for("process_private", f"pid = {pid} and namespace_pid = 1", "pid")
        recorder.wait_for("cgroup_name", "path ~ .", "path")
        into_files(recorder)
        yield made
        assert process.stdin is not None
        process.stdin.close()


ANYBODY = Asker()


def into_files(recorder: Recorder) -> None:
    """Have all tables be in files: what a ring held is sealed whole when its writer is gone."""
    for part in ("sampler", "background"):
        before = recorder.pid(part)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda part=part, before=before: recorder.pid(part) != before)  # type: ignore[misc]
    short: set[int] = set()

    def is_told() -> bool:  # By BPF of any that ended since; else of those that end once the new ones listen.
        with subprocess.Popen(["true"]) as process:
            process.wait()
        short.add(process.pid)
        return not short.isdisjoint(row["pid"] for row in recorder.records("exits", "pid"))

    wait_until(is_told, recorder.said)
    recorder.flush()


@pytest.mark.parametrize("table", PUBLIC_TABLES)
def test_anybody_reads_what_ps_shows_to_anybody(scene: Scene, table: str) -> None:
    columns = "path" if table == "cgroup_name" else "pid"
    told = scene.recorder.extract(table, f"--columns={columns}", "--format=csv", by=ANYBODY)
    assert (told.code, told.err) == (0, "")
    assert told.rows
    if columns == "pid":
        wanted = scene.pid if table == "process" else scene.ended
        assert str(wanted) in {row["pid"] for row in told.rows}


@pytest.mark.parametrize("table", RESTRICTED_TABLES)
def test_what_is_restricted_is_refused_in_one_line(scene: Scene, table: str) -> None:
    told = scene.recorder.extract(table, "--format=csv", by=ANYBODY)
    assert told.code == NotPermittedError.exit_code == 77
    assert told.out == b""
    assert told.err.startswith(f"sysmon-extract: table '{table}': no permission to read {scene.recorder.base}/")
    assert told.err.count("\n") == 1


def test_programs_of_what_ended_are_left_empty_and_that_is_said(scene: Scene) -> None:
    told = scene.recorder.extract("exits", f"--where=pid={scene.ended}", "--format=csv", by=ANYBODY)
    assert told.code == 3, told.err
    assert [(row["exe"], row["exit_code"]) for row in told.rows] == [("", "5")]
    assert told.err.count("\n") == 1
    assert "no permission to read it; exe is left empty" in told.err


@pytest.mark.parametrize("words", [("--group-by=exe",), ("--columns=pid,command",), ("--where=command ~ plainly",)])
def test_no_question_to_a_public_table_gets_at_what_is_restricted(scene: Scene, words: tuple[str, ...]) -> None:
    told = scene.recorder.extract("process", *words, "--format=csv", by=ANYBODY)
    assert told.code == 3, told.err
    assert "no permission to read it" in told.err
    assert PLAIN.encode() not in told.out
    assert b"/python" not in told.out
    if words[0].startswith("--where"):
        assert told.rows == []


def test_the_library_refuses_as_well(scene: Scene) -> None:
    folders = scene.recorder.folders

    def asks() -> int:
        archive = Archive(folders)
        assert scene.pid in archive.records("process", start="-1h", columns="pid").records["pid"].tolist()
        for table in RESTRICTED_TABLES:
            try:
                archive.records(table, start="-1h")
            except NotPermittedError as refused:
                print(refused)
        try:
            found = archive.sql("select count(*) from process_private", start="-1h")
        except Error as refused:
            print(type(refused).__name__)
        else:
            print(found.rows)
        return 0

    told = run_as(ANYBODY, asks)
    assert told.code == 0, told.err
    lines = told.out.decode().splitlines()
    assert [line.split("'")[1] for line in lines[:2]] == list(RESTRICTED_TABLES)
    assert lines[2] in {"NotPermittedError", "Error", "UsageError"}


def check_told(told: ProgramRun) -> None:
    """Check that it was told; of a busy machine some may be missing, which is said: it is not what is tested here."""
    lost = [line for line in told.err.splitlines() if line.endswith(" records were lost while it was recorded")]
    assert told.err.splitlines() == lost
    assert told.code == (3 if lost else 0)


@pytest.mark.parametrize("table", RESTRICTED_TABLES)
def test_who_is_in_the_group_may(scene: Scene, table: str) -> None:
    member = Asker(NOBODY, NOBODY, (scene.group,))
    columns = "command" if table == "command" else "namespace,namespace_pid"
    words = (f"--where=pid={scene.pid}", f"--columns={columns}", "--format=csv")
    told = scene.recorder.extract(table, *words, by=member)
    check_told(told)
    (row,) = told.rows
    if table == "command":
        assert PLAIN in row["command"]
        assert "--password *** " in row["command"]
    else:
        assert (row["namespace_pid"], int(row["namespace"])) == ("1", scene.namespace)
    exits = scene.recorder.extract("exits", f"--where=pid={scene.ended}", "--format=csv", by=member)
    check_told(exits)
    if not why_not():  # Without BPF nobody saw what it executed.
        assert os.path.basename(exits.rows[0]["exe"]) == os.path.basename(shutil.which("sh") or "")


def test_an_export_of_what_is_restricted_is_its_owners(scene: Scene, tmp_path: Path) -> None:
    for table, mode in (("process", 0o644), ("command", 0o600)):
        target = tmp_path / f"{table}.csv"
        old = os.umask(0o022)
        try:
            check_told(scene.recorder.extract(table, f"--output-file={target}", "--columns=pid"))
        finally:
            os.umask(old)
        assert stat.S_IMODE(target.stat().st_mode) == mode


def everything(recorder: Recorder) -> dict[Path, str]:
    """All that a daemon has made, but for pins, and to which class it belongs: public, restricted, or neither."""
    found = {}
    for folder in recorder.folders:
        for path in Path(folder).rglob("*"):
            if recorder.pins() in path.parents:  # They are looked at below.
                continue
            classes = {"public", "restricted"}.intersection(path.relative_to(folder).parts)
            found[path] = classes.pop() if classes else ""
    return found


def table_of(path: Path, of: str) -> str:
    """The long table that a ring or a file is of: ``CLASS/TABLE/…``."""
    return path.parts[path.parts.index(of) + 1] if of else ""


def test_owners_and_modes_in_ring_ram_and_state(scene: Scene) -> None:
    seen = set()
    for path, of in everything(scene.recorder).items():
        try:
            status = path.lstat()
        except FileNotFoundError:  # Merged, or sealed anew, meanwhile.
            continue
        if stat.S_ISLNK(status.st_mode):  # The mode of a link means nothing.
            continue
        mode = stat.S_IMODE(status.st_mode)
        if of == "restricted":
            wanted = 0o2750 if stat.S_ISDIR(status.st_mode) else 0o640
            assert (oct(mode), status.st_uid, status.st_gid) == (oct(wanted), 0, scene.group), path
        elif of == "public":
            assert oct(mode) == oct(0o755 if stat.S_ISDIR(status.st_mode) else 0o644), path
        elif not stat.S_ISSOCK(status.st_mode):
            assert not mode & 0o022, path
        if of and path.suffix in {".ring", ".h5"}:
            seen.add((table_of(path, of), of, path.suffix))
    for table in PUBLIC_TABLES:
        assert {(table, "public", ".ring"), (table, "public", ".h5")} <= seen
    for table in RESTRICTED_TABLES:
        assert {(table, "restricted", ".ring"), (table, "restricted", ".h5")} <= seen


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF")
def test_pins_are_nobody_elses(scene: Scene) -> None:
    pins = scene.recorder.pins()
    assert (pins / "exits").exists()
    assert not stat.S_IMODE(pins.stat().st_mode) & 0o007

    def looks() -> int:
        for path in (pins, *(pins / name for name in ("exits", "execs", "process_rows", "snapshot"))):
            try:
                os.listdir(path) if path == pins else os.stat(path)
            except PermissionError:
                print("refused")
        return 0

    assert run_as(ANYBODY, looks).out.decode().split() == ["refused"] * 5
    for path in pins.iterdir():
        if not path.is_symlink():  # Which has no mode of its own.
            assert not stat.S_IMODE(path.lstat().st_mode) & 0o007, path


def texts_and_numbers(path: Path) -> tuple[bytes, set[int]]:
    """What an HDF5 file holds, unpacked: all bytes of all data and attributes, and all integers."""
    pieces: list[bytes] = []
    numbers: set[int] = set()

    def visit(_: str, item: h5py.Dataset | h5py.Group) -> None:
        for value in [*item.attrs.values(), *([item[()]] if isinstance(item, h5py.Dataset) else [])]:
            array = np.asarray(value)
            pieces.append(array.tobytes() if array.dtype != object else str(array.tolist()).encode())
            if array.dtype.kind in "iu":
                numbers.update(np.unique(array).tolist())

    with h5py.File(path, "r") as file:
        file.visititems(visit)
        visit("", file)
    try:
        with long_file.open_file(str(path)) as stretch:
            for metric in stretch.table.metrics:
                numbers.update(np.unique(stretch.column(metric.name)).tolist())
    except ForeignError:  # Of wide tables.
        pass
    return b"".join(pieces), numbers


def leaks(scene: Scene, of: str) -> tuple[set[str], set[str]]:
    """In which tables of a class an argument stands, and the number of a namespace."""
    of_text, of_number = set(), set()
    number = struct.pack("<I", scene.namespace)
    for path, its in everything(scene.recorder).items():
        if its != of or not path.is_file():
            continue
        raw = path.read_bytes()
        assert MARK.encode() not in raw, path
        unpacked, numbers = texts_and_numbers(path) if path.suffix == ".h5" else (raw, set[int]())
        assert MARK.encode() not in unpacked, path
        name = f"{table_of(path, of)}{path.suffix}"
        if PLAIN.encode() in raw or PLAIN.encode() in unpacked:
            of_text.add(name)
        # Rows of rings are as the kernel has them; those of files are numbers.
        if (path.suffix == ".ring" and number in raw) or scene.namespace in numbers:
            of_number.add(name)
    return of_text, of_number


def spans_several(path: Path) -> bool:
    """Whether a file was merged: ``BOOT-FIRST-LAST.h5``."""
    words = path.stem.split("-")
    return path.suffix == ".h5" and words[-2] != words[-1]


def test_nothing_restricted_is_in_anything_public(scene: Scene) -> None:
    """Rings, files in RAM and on disk, and what is merged and rolled up of them; the secret is nowhere at all."""
    recorder = scene.recorder
    assert leaks(scene, "public") == (set(), set())
    assert leaks(scene, "") == (set(), set())
    of_text, of_number = leaks(scene, "restricted")
    assert {"command.ring", "command.h5"} <= of_text
    assert {"process_private.ring", "process_private.h5"} <= of_number
    for _ in range(3):
        into_files(recorder)
    merge_job.merge(recorder.folders)
    assert any(spans_several(path) for path in everything(recorder))
    assert leaks(scene, "public") == (set(), set())
    of_text, of_number = leaks(scene, "restricted")
    assert {"command.ring", "command.h5"} <= of_text
    assert {"process_private.ring", "process_private.h5"} <= of_number


HIDING = "mount -t proc -o hidepid=2 proc /proc"


@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "sh", "-c", HIDING], capture_output=True, check=False).returncode != 0,
    reason="no /proc with hidepid can be mounted here",
)
def test_where_proc_hides_processes_nothing_about_them_is_public() -> None:
    with a_group() as group, a_recorder() as recorder:
        recorder.config.write_text("probes:\n  process: {options: {threads: true}}\n")
        recorder.prefix = ("unshare", "--mount", "sh", "-c", f'{HIDING}; exec "$@"', "sh")
        recorder.start()
        tables = {*PUBLIC_TABLES, *RESTRICTED_TABLES, "thread"}

        def are_all_there() -> bool:
            with subprocess.Popen(["true"]) as process:  # One ends all the time.
                process.wait()
            return all(recorder.records(table) for table in tables)

        wait_until(are_all_there, recorder.said)
        recorder.end()
        made = {folder: set(os.listdir(Path(recorder.folders.state, folder))) for folder in ("public", "restricted")}
        assert tables <= made["restricted"]
        assert not tables & made["public"]
        assert recorder.extract("process", "--columns=pid", by=ANYBODY).code == 77
        member = Asker(NOBODY, NOBODY, (group,))
        check_told(recorder.extract("process", "--columns=pid", by=member))
