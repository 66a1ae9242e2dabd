# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: clocks of processes, a daemon in a temporary place, and how results are printed.

Whatever is started here ends with the program that started it, also on Ctrl-C, and by itself after a
bounded time where that program is killed.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, TypeVar

from sysmond.errors import Error
from sysmond.machine.folders import Folders, create, create_classes
from sysmond.ring.progress import ARCHIVER, WRITERS

Figures = dict[str, Any]
"""What a benchmark found, as its JSON object."""

SECOND_NS = 1_000_000_000
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEPT = os.path.join(ROOT, "docs", "performance.json")
USER_HZ = os.sysconf("SC_CLK_TCK")
END_S = 20.0

# Installed programs have their byte code beside them: compiling would cost time and leave memory behind.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_T = TypeVar("_T")


def cpu_ns(pid: int) -> int:
    """Processor time of a process and all its threads, ended ones included (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def children_cpu_ns(pid: int) -> int:
    """Processor time of the ended children of a process; in steps of 10 ms (/proc/PID/stat, cutime and cstime)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[13]) + int(fields[14])) * SECOND_NS // USER_HZ


def known(path: str = KEPT) -> dict[str, Figures]:
    """What earlier runs found, by program; nothing where there was none."""
    try:
        with open(path, encoding="utf-8") as file:
            figures: dict[str, Figures] = json.load(file)
    except FileNotFoundError:
        return {}
    return figures


def wakeups(pid: int) -> int:
    """How often the threads of a process that are there now were woken: they went to wait as often (/proc/PID/task)."""
    count = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status", encoding="utf-8", errors="replace") as file:
            count += next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
    return count


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def sleep_until_phase(phase: float) -> int:
    """Wait for the next moment at which boot time is so many parts of a second past a whole one; give it."""
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    wanted_ns = now_ns - now_ns % SECOND_NS + int(phase * SECOND_NS)
    if wanted_ns <= now_ns:
        wanted_ns += SECOND_NS
    time.sleep((wanted_ns - now_ns) / SECOND_NS)
    return wanted_ns


class Spent(NamedTuple):
    """What a program cost from its start to its end."""

    wall_ns: int
    cpu_ns: int
    rss_max_bytes: int


def spend(command: Sequence[str], output: str = os.devnull) -> Spent:
    """Run a program to its end, its output going to a file, and say what it cost.

    :raises RuntimeError: where it fails.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    begin_ns = time.perf_counter_ns()
    child = os.posix_spawn(
        command[0], list(command), os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, output, flags, 0o600)]
    )
    try:
        _, status, usage = os.wait4(child, 0)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    wall_ns = time.perf_counter_ns() - begin_ns
    if status:
        raise RuntimeError(f"{' '.join(command)}: {os.waitstatus_to_exitcode(status)}")
    return Spent(wall_ns, round((usage.ru_utime + usage.ru_stime) * SECOND_NS), usage.ru_maxrss * 1024)


def program(name: str) -> str:
    """The path of one of the project's own programs, of the environment that runs this one."""
    return os.path.join(sys.prefix, "bin", name)


START = [sys.executable, "-P", "-c", "import numpy, h5py"]
"""Only starting Python with numpy and h5py: what every reader and every job has to pay."""

START_ONE_THREAD = [
    sys.executable,
    "-P",
    "-c",
    "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import numpy, h5py",
]
"""The same without the threads of OpenBLAS, which wait busily: how much of the start is theirs."""


@contextmanager
def workplace() -> Iterator[Folders]:
    """Give a state folder on disk and a runtime folder in RAM, for as long as they are needed."""
    in_ram = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  made by mkdtemp
    runtime = tempfile.mkdtemp(prefix="sysmond-benchmark-", dir=in_ram)
    state = tempfile.mkdtemp(prefix="sysmond-benchmark-")
    try:
        folders = Folders(state, runtime)
        create(folders, os.geteuid())
        create_classes(state, "1s")
        for part in (*WRITERS.values(), ARCHIVER):
            create_classes(f"{runtime}/{part}")
        yield folders
    finally:
        shutil.rmtree(runtime, ignore_errors=True)
        shutil.rmtree(state, ignore_errors=True)


@contextmanager
def started(command: Sequence[str], log: str = os.devnull) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program beside this one, its output going to a file; it is ended, if need be killed, with the block."""
    with (
        open(log, "wb") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process,
    ):
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a program to end, and kill it where it does not."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def forked(work: Callable[[], object], limit_s: int) -> Iterator[int]:
    """Do some work in a child of this process, for at most so long; it is killed with the block."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _be_the_child(work, limit_s)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _be_the_child(work: Callable[[], object], limit_s: int) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.alarm(limit_s)
        work()
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException as failure:  # noqa: BLE001  reported here, since no caller will
        os.write(2, f"{type(failure).__name__}: {failure}\n".encode())
    finally:
        os._exit(code)


def in_child(work: Callable[[], _T], limit_s: int) -> _T:
    """Give what some work in a child of this process gave, as JSON carries it: its imports and memory are its own.

    :raises RuntimeError: where it failed or took too long.
    """
    with tempfile.TemporaryFile(buffering=0) as answer:
        with forked(lambda: answer.write(json.dumps(work()).encode()), limit_s) as child:
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        answer.seek(0)
        content = answer.read()
    if not content:
        raise RuntimeError(f"{getattr(work, '__name__', 'work')}: gave nothing within {limit_s} s")
    result: _T = json.loads(content)
    return result


class Daemon(NamedTuple):
    """A running daemon and where it records."""

    folders: Folders
    process: subprocess.Popen[bytes]
    log: str

    def pids(self) -> dict[str, int]:
        """The process of each part; ``daemon`` is their parent."""
        pids = {}
        for part in ("daemon", "sampler", "background", "archiver"):
            with open(f"{self.folders.runtime}/{part}/pid", encoding="ascii") as file:
                pids[part] = int(file.read())
        return pids

    def wait_for_ring(self, limit_s: float = 20.0) -> str:
        """Wait until the sampler ticks; give the path of its ring.

        :raises RuntimeError: where it does not.
        """
        folder = f"{self.folders.runtime}/sampler/public"
        limit = time.monotonic() + limit_s
        while time.monotonic() < limit and self.process.poll() is None:
            rings = [name for name in _listing(folder) if name.endswith(".ring")]
            if rings:
                return f"{folder}/{max(rings)}"
            time.sleep(0.05)
        with open(self.log, encoding="utf-8", errors="replace") as file:
            said = file.read().strip().rpartition("\n")[2]
        raise RuntimeError(f"the daemon does not record: {said or 'it says nothing'}")


def _listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


@contextmanager
def daemon(
    ticks: int, config: str = "", state: str = "", arguments: Sequence[str] = (), prefix: Sequence[str] = ()
) -> Iterator[Daemon]:
    """Run the whole daemon in a temporary place, as on a fresh machine; it ends by itself after ``ticks``.

    ``state``: its state folder, where that lies elsewhere and is not removed. ``arguments``: more of them. ``prefix``:
    what starts it, in place of this program.
    """
    with workplace() as folders:
        file = f"{folders.state}/benchmark.yaml"
        with open(file, "w", encoding="utf-8") as written:
            written.write(config or "# All as it is by default.\n")
        at = folders._replace(state=state or folders.state)
        places = ["--state-dir", at.state, "--runtime-dir", at.runtime]
        command = [*prefix, program("sysmond"), *places, "--config", file, "--ticks", str(ticks), *arguments]
        log = f"{folders.state}/daemon.log"
        with started(command, log) as process:
            yield Daemon(at, process, log)


_JOB = """
import os, sys, traceback
from sysmond.archiver import main as archiver
from sysmond.store import archive
from sysmond.machine.folders import Folders
from sysmond.machine.memory import QUIET_LIBRARIES
child = os.fork()
if child == 0:
    code = 1
    os.environ.update(QUIET_LIBRARIES)
    try:
        work = {"seal": archiver.seal, "flush": archive.flush, "merge": archiver.merge, "nothing": lambda _: None}
        work[sys.argv[1]](Folders(*sys.argv[2:]))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
_, status, usage = os.wait4(child, 0)
print(round((usage.ru_utime + usage.ru_stime) * 1e9))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def job_cpu_ns(job: str, folders: Folders) -> int:
    """Processor time of a job of the archiver, forked from a process that imported what the archiver imports.

    :raises CalledProcessError: where it fails.
    """
    done = subprocess.run([sys.executable, "-P", "-c", _JOB, job, *folders], stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def arguments(description: str) -> argparse.ArgumentParser:
    """Begin the command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description.partition("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser


def at_least_one(text: str) -> int:
    """Read a number of ticks or seconds."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 or more")
    return number


def run(work: Callable[[], Figures], rows: Callable[[Figures], list[tuple[str, str]]], *, as_json: bool) -> NoReturn:
    """Do the measuring, print what came of it, and end the program."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Everything that was started ends on the way out.
    try:
        figures = work()
    except KeyboardInterrupt:
        sys.exit(130)
    except (Error, OSError, RuntimeError, ValueError, KeyError, subprocess.SubprocessError) as failure:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {type(failure).__name__}: {failure}")
    if as_json:
        print(json.dumps(figures))
    else:
        lines = rows(figures)
        width = max(len(name) for name, _ in lines)
        for name, value in lines:
            print(f"{name:<{width}}  {value}")
    sys.exit(0)


def ms(value_ns: float, digits: int = 4) -> float:
    """Nanoseconds as milliseconds, rounded for the eye."""
    return round(value_ns / 1e6, digits)
