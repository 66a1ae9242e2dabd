# SPDX-License-Identifier: Apache-2.0
"""Programs executed, as BPF tells of them: every one, however shortly it ran, from the kernel to the table."""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.errors import Error
from sysmond.probe import Host
from sysmond.tasks.bpf.loader import EXECS_BYTES, LoadRequest, load, unload
from sysmond.tasks.command.commands import Commands
from sysmond.tasks.command.execs import Exec, HeardExecs, PinnedExecs, open_execs, records
from tests.support.commandrows import Row, rows_in
from tests.support.waiting import wait_until

SHELL_LOOP = 'for number in $(seq 300); do "$0" --password hunter2 "run $number"; done'


@pytest.fixture
def loaded(runtime: Path) -> Iterator[Path]:
    """A runtime folder for which the programs are loaded and pinned."""
    loader = pytest.importorskip("sysmond.tasks.bpf.loader")
    try:
        report = loader.load(loader.LoadRequest(str(runtime)))
        if "refused" in (program := report["programs"].get("started", report["programs"])):
            pytest.skip(f"no BPF here: {program}")
        if program != {"ok": True}:
            pytest.skip(f"no BPF here: {report['programs']}")
        yield runtime
    finally:
        loader.unload(str(runtime))


def read_until(source: Commands, host: Host, count: int, mark: bytes) -> list[Row]:
    """Read again and again until so many rows have a mark."""
    found: list[Row] = []

    def are_all_there() -> bool:
        reading = source.records(host, full=False)
        assert sum(piece.lost for piece in reading) == 0
        found.extend(row for row in rows_in(reading).values() if mark in row.command)
        return len(found) >= count

    wait_until(are_all_there)
    return found


def test_every_program_that_ran_for_a_moment_has_its_command_line(loaded: Path) -> None:
    host, source = Host(), Commands()
    host.runtime = str(loaded)
    source.records(host, full=True)
    assert source.way == "by BPF"
    true = shutil.which("true") or ""
    subprocess.run(["sh", "-c", SHELL_LOOP, true], check=True)
    found = read_until(source, host, 300, b"'run ")
    assert {row.command for row in found} == {
        f"{true} --password *** 'run {number}'".encode() for number in range(1, 301)
    }
    assert {(row.program, row.uid) for row in found} == {(true.encode(), os.getuid())}


def test_a_relative_path_is_made_absolute_while_its_process_is_there(loaded: Path, tmp_path: Path) -> None:
    shutil.copy(shutil.which("sleep") or "", tmp_path / "slumber")
    host, source = Host(), Commands()
    host.runtime = str(loaded)
    source.records(host, full=True)
    with subprocess.Popen(["./slumber", "1000"], cwd=tmp_path) as process:
        (row,) = read_until(source, host, 1, b"slumber 1000")
        process.kill()
    assert row.program == f"{tmp_path}/slumber".encode()


def test_its_reader_is_woken_when_a_quarter_of_the_buffer_waits(loaded: Path) -> None:
    source = PinnedExecs(str(loaded))
    wakes = source.wakes
    assert wakes is not None
    source.take()
    wakes.poll(0)
    subprocess.run(["/bin/true", "one of few"], check=True)
    assert wakes.poll(0) == []
    texts = ["x" * 500] * 20
    while not wakes.poll(0):  # The buffer takes some two thousand of these before it is full.
        for _ in range(20):
            subprocess.run(["/bin/true", *texts], check=True)
    execs, lost = source.take()
    assert len(execs) >= EXECS_BYTES // 4 // 800
    assert lost == 0
    source.close()


def test_arguments_that_are_too_many_are_marked_as_cut(loaded: Path) -> None:
    source = PinnedExecs(str(loaded))
    with subprocess.Popen([sys.executable, "-Ic", "", "x" * 5000]) as process:
        process.wait()
    taken: list[Exec] = []

    def is_there() -> bool:
        taken.extend(each for each in source.take()[0] if each.pid == process.pid)
        return bool(taken)

    wait_until(is_there)
    (each,) = taken
    assert each.is_cut
    assert each.arguments == f"{sys.executable}\0-Ic\0\0{'x' * 5000}".encode()[:512]
    source.close()


def test_what_the_kernel_had_no_room_for_is_counted_once(loaded: Path) -> None:
    from sysmond.tasks.bpf.pins import Array  # noqa: PLC0415  only where there is something pinned

    source = PinnedExecs(str(loaded))
    folder = json.loads((loaded / "bpf.json").read_text(encoding="utf-8"))["folder"]
    lost = Array(f"{folder}/lost", 64)  # Counted as the program in the kernel does.
    lost.memory[:16] = struct.pack("<QQ", 5, 7)
    assert source.take()[1] == 7
    assert source.take()[1] == 0
    lost.close()
    source.close()


def test_what_is_loaded_anew_is_gone_over_to(loaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.command.commands.RETRY_S", 0.0)
    host = Host()
    host.runtime = str(loaded)
    source = Commands()
    source.records(host, full=False)
    subprocess.run(["/bin/true", "mark-before"], check=True)
    unload(str(loaded))
    load(LoadRequest(str(loaded)))
    subprocess.run(["/bin/true", "mark-after"], check=True)
    rows = read_until(source, host, 2, b"mark-")
    assert sorted(row.command for row in rows) == [b"/bin/true mark-after", b"/bin/true mark-before"]
    assert source.way == "by BPF"


def test_why_the_kernel_does_not_tell_is_said(tmp_path: Path) -> None:
    with pytest.raises(Error, match="BPF: the BPF loader has not run"):
        PinnedExecs(str(tmp_path))
    for report, said in [
        ("{", "bpf.json: "),
        ('{"folder": "/nowhere", "programs": {}}', "/nowhere/lost: "),
        ('{"folder": "/nowhere", "programs": {"started": {"refused": "no BTF"}}}', "BPF: started: no BTF"),
        ('{"folder": "/nowhere", "programs": {"started": {"ok": true}}}', "/nowhere/lost: "),
    ]:
        (tmp_path / "bpf.json").write_text(report, encoding="utf-8")
        with pytest.raises(Error, match=said):
            PinnedExecs(str(tmp_path))


def test_records_of_the_ring_buffer() -> None:
    short = struct.pack("<QIIHHI", 7_000, 9, 1000, 9, 5, 0) + b"/bin/true" + b"true\0junk"
    full = struct.pack("<QIIHHI", 8_000, 10, 0, 3, 512, 0) + b"/sh" + b"s" * 512
    long = struct.pack("<QIIHHI", 9_000, 11, 0, 255, 0, 0) + b"/" * 255
    assert records([short, full, long]) == [
        Exec(9, 7_000, 1000, b"/bin/true", b"true\0", is_cut=False),
        Exec(10, 8_000, 0, b"/sh", b"s" * 512, is_cut=True),
        Exec(11, 9_000, 0, b"/" * 255 + "…".encode(), b"", is_cut=False),
    ]


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[HeardExecs]:
    """The proc connector, where BPF is not."""
    try:
        execs = open_execs(str(tmp_path))
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")
    assert isinstance(execs, HeardExecs)
    yield execs
    execs.close()


def test_without_bpf_programs_that_ran_for_a_moment_have_their_command_lines(heard: HeardExecs) -> None:
    host, source = Host(), Commands(lambda _: heard)
    source.records(host, full=True)
    assert source.way == "by proc connector; not by BPF: the BPF loader has not run"
    program = shutil.which("sleep") or ""
    # Between two readings; a machine that is emulated needs most of that to begin as many.
    lines = [[program, "0.8", f"0.00{number:03}"] for number in range(60)]
    running = [subprocess.Popen(line) for line in lines]
    for process in running:
        process.wait()
    rows = {pid: row for _ in range(2) for pid, row in rows_in(source.records(host, full=False)).items()}
    there = [(line, rows[process.pid]) for line, process in zip(lines, running, strict=True) if process.pid in rows]
    assert len(there) >= 54
    for line, row in there:
        assert row.command == " ".join(line).encode()
        assert (row.program, row.uid) == (os.path.realpath(program).encode(), os.getuid())


def test_without_bpf_secrets_are_masked_and_long_lines_cut(heard: HeardExecs) -> None:
    host, source = Host(), Commands(lambda _: heard)
    source.records(host, full=True)
    program = [sys.executable, "-Ic", "input()", "--password", "hunter2"]
    with (
        subprocess.Popen(program, stdin=subprocess.PIPE) as secret,
        subprocess.Popen([*program, "x" * 5000], stdin=subprocess.PIPE) as long,
    ):
        rows: dict[int, Row] = {}

        def are_there() -> bool:
            rows.update(rows_in(source.records(host, full=False)))
            return {secret.pid, long.pid} <= rows.keys()

        wait_until(are_there)
        secret.communicate(b"\n")
        long.communicate(b"\n")
    assert rows[secret.pid].command == f"{sys.executable} -Ic 'input()' --password ***".encode()
    assert rows[long.pid].command.endswith("x…".encode())


def test_without_bpf_starts_that_are_too_many_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.ends.starts.READS_PER_S", 0)
    try:
        source = HeardExecs(str(tmp_path), "")
    except Error as problem:
        pytest.skip(f"unavailable here: {problem}")
    lost: list[int] = []

    def are_counted() -> bool:
        subprocess.run(["/bin/true"], check=True)
        execs, more = source.take()
        assert execs == []
        lost.append(more)
        return sum(lost) >= 5

    wait_until(are_counted)
    source.close()


def test_without_bpf_the_loader_is_waited_for(tmp_path: Path, heard: HeardExecs) -> None:
    assert heard.is_current()
    (tmp_path / "bpf.json").write_text("{}", encoding="utf-8")
    assert not heard.is_current()
