# SPDX-License-Identifier: Apache-2.0
"""For tests of the whole: a daemon of the machine in folders that everybody may read, and its clients."""

import csv
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from sysmon_tools import extract
from sysmond import __main__
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import control
from sysmond.machine.folders import Folders
from sysmond.tasks.bpf import bpffs
from sysmond.tasks.bpf.loader import unload
from tests.support.waiting import HANG_S, wait_until

NOBODY = 65534
# What BPF needs, and what has it in it: for setpriv.
CAPABILITIES = "-bpf,-perfmon,-sys_admin"


class Asker(NamedTuple):
    """Who asks: a user without capabilities, and the groups they are in."""

    uid: int = NOBODY
    gid: int = NOBODY
    groups: Sequence[int] = ()

    def become(self) -> None:
        """Be them, for good."""
        os.setgroups(list(self.groups))
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


def cannot_ask() -> str:
    """Say why no program can be started here by somebody else, or nothing: Python may lie where only root may enter."""
    if os.geteuid() != 0:
        return "only root can become somebody else"
    program = [sys.executable, "-P", "-c", "import sysmond"]
    try:
        done = subprocess.run(program, preexec_fn=Asker().become, capture_output=True, check=False)
    except PermissionError:
        return "only root may run this Python"
    return "" if done.returncode == 0 else "only root may read this Python"


class ProgramRun(NamedTuple):
    """What a run of a program said, and how it ended."""

    code: int
    out: bytes
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows of CSV."""
        lines = [line for line in self.out.decode().splitlines(keepends=True) if not line.startswith("#")]
        return list(csv.DictReader(io.StringIO("".join(lines), newline="")))


class Recorder:
    """A daemon as an installed machine has it, but in folders of the test's own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.folders = Folders(str(base / "state"), str(base / "run"))
        self.config = base / "sysmond.yaml"
        self.config.write_text("{}\n")
        self.prefix: Sequence[str] = ()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start it."""
        command = [*self.prefix, sys.executable, "-P", "-m", "sysmond", "--config", str(self.config), "--bus=none"]
        command += ["--state-dir", self.folders.state, "--runtime-dir", self.folders.runtime, *arguments]
        with (self.base / "log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.processes.append(process)
        return process

    def end(self) -> None:
        """End it in order: everything is in files then."""
        process = self.processes.pop()
        process.terminate()
        assert process.wait(HANG_S) == 0, self.said()

    def kill(self) -> None:
        """End all that is left, whatever the state."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        unload(self.folders.runtime)

    def said(self) -> str:
        """What it has said."""
        return (self.base / "log").read_text(errors="replace")

    def pid(self, part: str) -> int:
        """The number of a part."""
        return int(Path(self.folders.runtime, part, "pid").read_text())

    def pins(self) -> Path:
        """Where its BPF programs are pinned."""
        return Path(bpffs.own(self.folders.runtime))

    def flush(self) -> None:
        """Have all that is recorded be in files."""
        answer = control.ask(f"{self.folders.runtime}/archiver", {"do": "flush"}, HANG_S)
        assert answer["ok"], answer

    def records(self, table: str, columns: str = "", **asked: Any) -> list[dict[str, Any]]:
        """Rows as the library gives them; none while nothing is recorded."""
        asked = {"start": "-1h", **asked}
        try:
            records = Archive(self.folders).records(table, columns=columns, **asked).records
        except Error:
            return []
        names = records.dtype.names or ()
        return [dict(zip(names, row, strict=True)) for row in records.tolist()]

    def wait_for(self, table: str, where: str, columns: str = "", **asked: Any) -> list[dict[str, Any]]:
        """Wait until rows are there."""
        wait_until(
            lambda: self.records(table, columns, where=where, **asked), lambda: f"{table}: {where}: {self.said()}"
        )
        return self.records(table, columns, where=where, **asked)

    def extract(self, *words: str, by: Asker | None = None) -> ProgramRun:
        """Ask with sysmon-extract, as ourselves or as somebody else."""
        return run_as(by, lambda: extract.main([*words, *self.where()]))

    def extract_from(self, *words: str) -> ProgramRun:
        """Ask with sysmon-extract what these words name, not what this recorder writes."""
        return run_as(None, lambda: extract.main(words))

    def command(self, *words: str, by: Asker | None = None) -> ProgramRun:
        """Have sysmond work on its files, as ourselves or as somebody else."""
        return run_as(by, lambda: __main__.main([*words, *self.where()]))

    def where(self) -> tuple[str, str]:
        """The options that name its folders."""
        return f"--state-dir={self.folders.state}", f"--runtime-dir={self.folders.runtime}"


def run_as(by: Asker | None, does: Callable[[], int]) -> ProgramRun:
    """Run a program in a child, as somebody; what it needs is imported before, where only root may read it."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            code = 255
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout = os.fdopen(1, "w", encoding="utf-8")
                sys.stderr = os.fdopen(2, "w", encoding="utf-8")
                if by is not None:
                    by.become()
                code = does()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        for file in (out, err):
            file.seek(0)
        return ProgramRun(os.waitstatus_to_exitcode(status), out.read(), err.read().decode())


def within(*mounts: str, drop: str = "", network: bool = False) -> list[str]:
    """The words that run a daemon among other mounts, and without some capabilities."""
    script = "; ".join(["set -e", *mounts, 'exec "$@"'])
    words = ["unshare", "--mount", *(["--net"] if network else []), "sh", "-c", script, "sh"]
    return [*words, *(["setpriv", f"--bounding-set={drop}"] if drop else [])]


@contextmanager
def a_recorder() -> Iterator[Recorder]:
    """Give a recorder that is still to be started, and leave nothing of it behind."""
    base = Path(tempfile.mkdtemp(prefix="sysmond-", dir="/dev/shm"))
    base.chmod(0o755)
    recorder = Recorder(base)
    try:
        yield recorder
    finally:
        recorder.kill()
        shutil.rmtree(base, ignore_errors=True)
