# SPDX-License-Identifier: Apache-2.0
"""Other programs that watch every process: how each is started, and what it has recorded.

Each records as its users have it do, once a second, all processes, nothing of the system where that can be chosen.
A peer that is not installed is named as not measured. psutil is installed for the time of a run.
"""

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import trees
from benchmarks.loads import Box

PSUTIL_LOOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "psutil_loop.py")
INSTALL_S = 180
DECODE_S = 600
SCREEN_SIZE = 50, 180  # Lines and columns.

PCP_PROGRAMS = "/usr/lib/pcp/bin"
PCP_AGENTS = "/var/lib/pcp/pmdas"
PCP_NAMES = "/var/lib/pcp/pmns"
# The metrics of a process that our own table has, too.
PCP_METRICS = (
    *(f"proc.psinfo.{name}" for name in ("cmd", "ppid", "sname", "start_time", "processor", "priority", "nice")),
    *(f"proc.psinfo.{name}" for name in ("policy", "utime", "stime", "minflt", "maj_flt", "rss", "vsize", "threads")),
    *("proc.psinfo.vctxsw", "proc.psinfo.nvctxsw", "proc.memory.vmswap", "proc.id.uid", "proc.psinfo.cgroups"),
    *("proc.schedstat.cpu_time", "proc.schedstat.run_delay"),
    *(f"proc.io.{name}" for name in ("rchar", "wchar", "read_bytes", "write_bytes")),
)


class Captured(NamedTuple):
    """What was recorded. ``last``: tasks in the last sample. ``known``: different ones of the asked name, in all."""

    last: int
    known: int


class Peer(NamedTuple):
    """A program to be measured.

    ``missing``: why it cannot be here; empty where it can. ``start``: the commands, each run in the box, whose output
    is a file of the folder; the first is given a terminal where ``screen``. ``captured``: what is in the folder of
    tasks of some name; None for what records nothing.
    """

    name: str
    missing: Callable[[], str]
    start: Callable[[str], list[list[str]]]
    captured: Callable[[str, str], Captured] | None
    screen: bool = False


@contextmanager
def started(peer: Peer, box: Box, folder: str) -> Iterator[list[int]]:
    """Start a peer in a box; give the processes below which its own are."""
    with ExitStack() as stack:
        roots = []
        begin = ["env", f"HOME={folder}", f"TMPDIR={folder}", "TERM=xterm-256color", "LANG=C.UTF-8"]
        for number, command in enumerate(peer.start(folder)):
            output: str | int = f"{folder}/output-{number}"
            if peer.screen:
                output = stack.enter_context(_terminal())
            roots.append(stack.enter_context(trees.running(box.command([*begin, *command]), output)).pid)
        yield roots


@contextmanager
def _terminal() -> Iterator[int]:
    """A terminal whose screen nobody looks at: what is drawn is read and forgotten."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("4H", *SCREEN_SIZE, 0, 0))

    def drain() -> None:
        with suppress(OSError):
            while os.read(outer, 65536):
                pass

    reading = threading.Thread(target=drain, daemon=True)
    reading.start()
    try:
        yield inner
    finally:
        os.close(inner)
        reading.join(5.0)
        os.close(outer)


def _not_there(*programs: str) -> str:
    return ", ".join(program for program in programs if shutil.which(program) is None)


def _missing(*programs: str) -> Callable[[], str]:
    def missing() -> str:
        names = _not_there(*programs)
        return f"{names}: not installed" if names else ""

    return missing


def _lines(command: Sequence[str]) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield from process.stdout


def _atop(folder: str) -> list[list[str]]:
    return [["atop", "-a", "-w", f"{folder}/atop.raw", "1"]]


def _of_atop(folder: str, name: str) -> Captured:
    """One line a task and sample: ``PRG host epoch date time interval pid (name) state …``; SEP between samples."""
    last = now = 0
    known = set()
    for line in _lines(["atop", "-r", f"{folder}/atop.raw", "-P", "PRG"]):
        if line.startswith("SEP"):
            last, now = now, 0
        elif match := re.match(r"PRG \S+ \d+ \S+ \S+ \d+ (\d+) \((.*?)\) (\S)", line):
            now += 1
            if match[2] == name:
                known.add(match[1])
    return Captured(now or last, len(known))


def _htop(_folder: str) -> list[list[str]]:
    return [["htop", "-d", "10"]]


def _pcp_missing() -> str:
    if missing := _not_there("pmlogger", "pmdumplog", f"{PCP_PROGRAMS}/pmcd", f"{PCP_PROGRAMS}/pmnsmerge"):
        return f"{missing}: not installed"
    return "" if os.path.exists(f"{PCP_NAMES}/root_proc") else f"{PCP_NAMES}/root_proc: not there"


def _pcp(folder: str) -> list[list[str]]:
    with open(f"{folder}/pmcd.conf", "w", encoding="ascii") as file:
        file.write(f"pmcd 2 dso pmcd_init {PCP_AGENTS}/pmcd/pmda_pmcd.so\n")
        file.write(f"proc 3 pipe binary {PCP_AGENTS}/proc/pmdaproc -A -d 3\n")
    with open(f"{folder}/pmlogger.conf", "w", encoding="ascii") as file:
        file.write(f"log mandatory on every 1 second {{ {' '.join(PCP_METRICS)} }}\n")
    merge = [f"{PCP_PROGRAMS}/pmnsmerge", "-f", "root_root", "root_pmcd", "root_proc", f"{folder}/names"]
    subprocess.run(merge, cwd=PCP_NAMES, check=True, capture_output=True)
    places = [f"{name}={folder}" for name in ("PCP_PMCDLOG_PATH", "PCP_TMP_DIR", "PCP_RUN_DIR", "PCP_LOG_DIR")]
    socket = f"{folder}/pmcd.socket"
    pmcd = [f"{PCP_PROGRAMS}/pmcd", "-f", "-U", "root", "-c", f"{folder}/pmcd.conf", "-n", f"{folder}/names"]
    logger = ["pmlogger", "-h", f"unix:{socket}", "-c", f"{folder}/pmlogger.conf", "-l", f"{folder}/pmlogger.log"]
    waiting = f"cd {folder}; until [ -S {socket} ]; do sleep 0.1; done; sleep 1; exec "
    return [
        ["env", *places, *pmcd, "-l", f"{folder}/pmcd.log", "-s", socket],
        ["env", *places, "sh", "-c", waiting + " ".join([*logger, "-t", "1", f"{folder}/archive"])],
    ]


def _of_pcp(folder: str, name: str) -> Captured:
    """One line an instance and sample: ``inst [PID or "PID command"] value "name"``, after a line with the time."""
    last = now = 0
    known = set()
    for line in _lines(["pmdumplog", f"{folder}/archive", "proc.psinfo.cmd"]):
        if match := re.match(r'\s+inst \[(\d+) or ".*"\] value "(.*)"', line):
            now += 1
            if match[2] == name:
                known.add(match[1])
        elif re.match(r"\d\d:\d\d", line):
            last, now = now, 0
    return Captured(now or last, len(known))


def psutil(folder: str) -> Peer:
    """The peer that psutil makes, which is installed below ``folder``."""
    target = f"{folder}/psutil"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--retries",
        "1",
        "--timeout",
        "10",
        "--target",
        target,
        "psutil",
    ]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, check=False, timeout=INSTALL_S)

    def missing() -> str:
        return "" if os.path.isdir(f"{target}/psutil") else "psutil: cannot be installed"

    def start(place: str) -> list[list[str]]:
        return [["env", f"PYTHONPATH={target}", sys.executable, PSUTIL_LOOP, f"{place}/psutil.json"]]

    return Peer("psutil", missing, start, _of_psutil)


def _of_psutil(folder: str, name: str) -> Captured:
    last, known = 0, set()
    with open(f"{folder}/psutil.json", encoding="utf-8") as file:
        for line in file:
            with suppress(ValueError):  # The last line may not be whole.
                processes = json.loads(line)
                last = len(processes)
                known |= {process["pid"] for process in processes if process["name"] == name}
    return Captured(last, len(known))


def all_of_them(folder: str) -> list[Peer]:
    """Every peer there may be; ``folder``: where to install what can be."""
    return [
        Peer("atop", _missing("atop"), _atop, _of_atop),
        Peer("htop", _missing("htop"), _htop, None, screen=True),
        Peer("pcp", _pcp_missing, _pcp, _of_pcp),
        psutil(folder),
    ]


def recorded_bytes(folder: str) -> int:
    """What a peer has left in its folder."""
    files = [f"{where}/{name}" for where, _, names in os.walk(folder) for name in names]
    return sum(os.path.getsize(path) for path in files)
