# SPDX-License-Identifier: Apache-2.0
"""Tasks to be watched: ``loadgen.c``, compiled for the time of a benchmark, here or where nothing else is to be seen.

A program that looks at all of /proc sees the whole machine. So that what it costs is the cost of the load, it is
measured in a ``Box``: a pid, a mount and a network namespace whose first process is the load itself.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import trees

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loadgen.c")
BOX_PROGRAMS = ("unshare", "nsenter", "setpriv")
# Ten thousand processes are there within two seconds.
READY_S = 60.0


class Load(NamedTuple):
    """Tasks that stand there. ``tasks``: how many. ``arguments``: of ``loadgen``, the number that is busy left out."""

    what: str
    arguments: tuple[str, ...]
    tasks: int
    threads: bool = False

    def command(self, program: str, busy: int = 0) -> list[str]:
        """How to start it with so many of its tasks at work."""
        return [program, *self.arguments, str(busy)]


class Box(NamedTuple):
    """A place where only the load is to be seen. ``pid``: its first process, as the machine has it."""

    pid: int

    def command(self, command: Sequence[str]) -> list[str]:
        """How to start a program in it; what runs there is below the process that this starts."""
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-p", "--", *command]


@contextmanager
def compiled() -> Iterator[str]:
    """Compile ``loadgen.c`` into a temporary folder; give the path of the program, whose name nothing else has.

    :raises RuntimeError: where there is no compiler, or it refuses.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("gcc, cc: not installed; the load is made by a program in C")
    with tempfile.TemporaryDirectory(prefix="sysmond-load-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103  peers that change their user start it, too
        program = f"{folder}/load-{os.getpid()}"
        command = [compiler, "-O2", "-pthread", "-o", program, SOURCE]
        # Without libraries to load a program starts and ends with the least work.
        if subprocess.run([*command, "-static"], stderr=subprocess.DEVNULL, check=False).returncode:
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{SOURCE}: {done.stderr.strip().rpartition(os.linesep)[2]}")
        yield program


def no_box() -> str:
    """Why no box can be had here; empty where it can."""
    missing = [program for program in BOX_PROGRAMS if shutil.which(program) is None]
    if os.geteuid():
        return "namespaces of its own are for root"
    return f"{', '.join(missing)}: not installed" if missing else ""


@contextmanager
def standing(command: Sequence[str], errors: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start a load and wait until all of it is there; it is killed with the block. ``errors``: where its stderr goes.

    :raises RuntimeError: where it does not come to be.
    """
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline() if select.select([process.stdout], [], [], READY_S)[0] else b""
            if not said.startswith(b"ready "):
                raise RuntimeError(f"{' '.join(command)}: not ready within {READY_S:.0f} s")
            yield process
        finally:
            process.kill()


def made(process: subprocess.Popen[bytes], limit_s: float) -> int:
    """Wait for a load that ends by itself; give how many programs it started.

    :raises RuntimeError: where it fails or takes too long.
    """
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"the load did not end within {limit_s:.0f} s") from late
    if process.returncode or not said.startswith(b"made "):
        raise RuntimeError(f"the load ended with {process.returncode}")
    return int(said.split()[1])


@contextmanager
def boxed(command: Sequence[str]) -> Iterator[Box]:
    """Start a load that stands as the first process of a box; everything in it ends with the block.

    :raises RuntimeError: where none can be had, or the load does not come to be.
    """
    if reason := no_box():
        raise RuntimeError(reason)
    own = ["setpriv", "--pdeathsig", "KILL", "unshare", "-m", "-n", "-p", "-f", "--kill-child", "--mount-proc"]
    # At the end unshare complains about the signal that it ends by.
    with standing([*own, *command], subprocess.DEVNULL) as outer:
        first = next(pid for pid, parent in trees.parents().items() if parent == outer.pid)
        try:
            yield Box(first)
        finally:
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                outer.wait(READY_S)  # It ends with its child, and has waited for it then.
