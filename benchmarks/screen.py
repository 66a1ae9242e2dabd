# SPDX-License-Identifier: Apache-2.0
"""What the screen costs: until it shows all, live and a moment ago, then each second, and what it holds in memory.

A recorder runs with its default tables, and beside it so many sleeping processes. ``sysmon`` has a pseudo terminal of
120 × 40; it shows all when the overview's list, or the heading of the rows, is on it. Processor time is that of the
program to that moment; live, it looks at processes for half a minute. The moment before another is asked for in this
process, as the screen asks.
"""

import fcntl
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.machine.folders import Folders

PROCESSES, REPEATS, LIVE_S = 1000, 5, 30.0
RECORDED_S, LIMIT_S = 40.0, 60.0
LINES, COLUMNS = 40, 120
# What is on the screen once the overview is answered, and rows of processes are.
LISTED, ROWS = b"Processes by", b"cpu_percent"


class Shown(NamedTuple):
    """How long it took until all was shown, and the processor time of the program until then."""

    wall_s: float
    cpu_s: float


class DrawnProgram:
    """The program on a pseudo terminal."""

    def __init__(self, words: list[str]) -> None:
        self.began_s = time.monotonic()
        self.pid, self._descriptor = pty.fork()
        if not self.pid:
            os.environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
            os.execv(words[0], words)  # noqa: S606  our own program
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    def until(self, sign: bytes) -> Shown:
        """Read until something is shown.

        :raises RuntimeError: where it never is.
        """
        seen = b""
        while sign not in seen:
            ready, _, _ = select.select([self._descriptor], [], [], LIMIT_S)
            if not ready:
                raise RuntimeError(f"{sign!r} is not on the screen: {seen[-500:]!r}")
            seen += os.read(self._descriptor, 1 << 16)
        return Shown(time.monotonic() - self.began_s, measure.cpu_ns(self.pid) / 1e9)

    def press(self, keys: bytes) -> None:
        """Press keys."""
        self.began_s = time.monotonic()
        os.write(self._descriptor, keys)

    def read_for(self, length_s: float) -> None:
        """Read whatever is drawn for so long."""
        end_s = time.monotonic() + length_s
        while (left_s := end_s - time.monotonic()) > 0:
            if select.select([self._descriptor], [], [], left_s)[0]:
                os.read(self._descriptor, 1 << 16)

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._descriptor)


@contextmanager
def terminal(folders: Folders, *words: str) -> Iterator[DrawnProgram]:
    """The program, as long as it is needed."""
    made = DrawnProgram(
        [measure.program("sysmon"), "--state-dir", folders.state, "--runtime-dir", folders.runtime, *words]
    )
    try:
        yield made
    finally:
        made.close()


@contextmanager
def sleepers(count: int) -> Iterator[None]:
    """So many processes that do nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
    made = [subprocess.Popen(["sleep", "3600"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in made:
            one.kill()
        for one in made:
            one.wait()
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def pss_mb(pid: int) -> float:
    """What a process holds, shared pages in parts."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def measured(processes: int, repeats: int, live_s: float) -> Figures:
    """Record, and look."""
    with sleepers(processes), measure.daemon(int(RECORDED_S) * 100, arguments=["--bus", "none"]) as recorder:
        recorder.wait_for_ring()
        time.sleep(RECORDED_S)
        shown: dict[str, list[Shown]] = {"live": [], "moment": []}
        for _ in range(repeats):
            with terminal(recorder.folders) as live:
                shown["live"].append(live.until(LISTED))
            with terminal(recorder.folders, "--at", "20 seconds ago") as moment:
                shown["moment"].append(moment.until(LISTED))
        with terminal(recorder.folders) as live:
            live.until(LISTED)
            live.press(b"p")
            live.until(ROWS)
            before_ns = measure.cpu_ns(live.pid)
            live.read_for(live_s)
            spent_ns = measure.cpu_ns(live.pid) - before_ns
            held_mb = pss_mb(live.pid)
        steps_s = measure.in_child(partial(stepped, recorder.folders, repeats), int(LIMIT_S))
    figures: Figures = {"processes": processes, "live_percent": round(spent_ns / live_s / 1e7, 1)}
    for name, times in shown.items():
        figures[f"{name}_s"] = round(measure.median([one.wall_s for one in times]), 2)
        figures[f"{name}_cpu_s"] = round(measure.median([one.cpu_s for one in times]), 2)
    return {**figures, "step_s": round(measure.median(steps_s), 3), "pss_mb": round(held_mb, 1)}


def stepped(folders: Folders, repeats: int) -> list[float]:
    """How long each step back takes, of processes."""
    from sysmon_tools.moment import View  # noqa: PLC0415  numpy and h5py: in a child of their own
    from sysmon_tools.screen.look import Around, Look, moved  # noqa: PLC0415  as above
    from sysmon_tools.screen.question import Questions  # noqa: PLC0415  as above
    from sysmond.history import Archive  # noqa: PLC0415  as above
    from sysmond.store.holdings import staying_open  # noqa: PLC0415  as above

    lengths_s = []
    with staying_open():
        questions, look = Questions(Archive(folders)), Look(View(time.time_ns() - 10**10, 0), view="processes")
        look = questions.page(look, time.time_ns()).look
        for _ in range(repeats):
            began_s = time.monotonic()
            look = questions.page(moved(look, "earlier", Around((), ()), time.time_ns()), time.time_ns()).look
            lengths_s.append(time.monotonic() - began_s)
    return lengths_s


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        (
            f"until all is shown, live, {figures['processes']} processes",
            f"{figures['live_s']} s, {figures['live_cpu_s']} s of CPU",
        ),
        ("until all is shown, of a moment ago", f"{figures['moment_s']} s, {figures['moment_cpu_s']} s of CPU"),
        ("the moment before it, processes", f"{figures['step_s']} s"),
        ("live, looking at processes", f"{figures['live_percent']} % of a core"),
        ("memory (PSS)", f"{figures['pss_mb']} MB"),
    ]  # fmt: skip


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--processes", type=measure.at_least_one, default=PROCESSES, help=f"default {PROCESSES}")
    parser.add_argument("--repeats", type=measure.at_least_one, default=REPEATS, help=f"default {REPEATS}")
    parser.add_argument("--live", type=float, default=LIVE_S, metavar="S", help=f"how long live; default {LIVE_S:.0f}")
    options = parser.parse_args()
    measure.run(partial(measured, options.processes, options.repeats, options.live), rows, as_json=options.json)
