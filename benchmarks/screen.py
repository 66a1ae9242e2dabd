# SPDX-License-Identifier: Apache-2.0
"""What the screen costs: until it shows all, live and at a moment of yesterday, for each key after that, in memory.

``sysmon`` has a pseudo terminal of 120 × 40, and is asked by keys; what counts is when something is on that terminal.
Live, a recorder runs with its default tables, and beside it so many sleeping processes; for half a minute processes
are looked at. Yesterday is made up (``screen_day.py``). Processor time is that of the program until all is shown.
"""

import fcntl
import os
import pty
import re
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
from benchmarks import measure, screen_day
from benchmarks.measure import Figures
from benchmarks.screen_day import HOUR_S, Day, thread_name
from sysmond.machine.folders import Folders

PROCESSES, THREADS, HOURS, REPEATS, LIVE_S = 1000, 10_000, 24, 5, 30.0
RECORDED_S, LIMIT_S = 40.0, 60.0
# The middle of what is made up was so long ago.
AGO_S = 24 * HOUR_S
PAGES = 20
LINES, COLUMNS = 40, 120
# What is on the screen before anything is known, once the overview is answered, and once rows of processes are.
EMPTY, LISTED, ROWS = b"reading", b"Processes by", b"cpu_percent"
EARLIER, LATER, PAGE_DOWN = b"\x1b[D", b"\x1b[C", b"\x1b[6~"
# How far a key leads that goes to the next moment.
STEP_S = 60
# The terminal is quiet once nothing came for so long.
_QUIET_S = 0.5
_THREAD = re.compile(rb"crowd-(\d+)")


class Shown(NamedTuple):
    """How long it took until something was shown, and the processor time of the program until then."""

    wall_s: float
    cpu_s: float


class DrawnProgram:
    """The program on a pseudo terminal."""

    def __init__(self, words: list[str]) -> None:
        self.began_s = time.monotonic()
        self._unread = b""
        self.pid, self._descriptor = pty.fork()
        if not self.pid:
            os.environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
            os.execv(words[0], words)  # noqa: S606  our own program
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    def until(self, sign: bytes) -> Shown:
        """Read until something is shown.

        :raises RuntimeError: where it never is.
        """
        while sign not in self._unread:
            try:
                piece = os.read(self._descriptor, 1 << 16) if self._is_waiting(LIMIT_S) else b""
            except OSError:  # So a pseudo terminal says that the program has ended.
                piece = b""
            if not piece:
                raise RuntimeError(f"{sign!r} is not on the screen: {self._unread[-500:]!r}")
            self._unread += piece
        self._unread = self._unread.partition(sign)[2]
        return Shown(time.monotonic() - self.began_s, measure.cpu_ns(self.pid) / 1e9)

    def press(self, keys: bytes) -> None:
        """Press keys; what was drawn before is read already."""
        self._unread = b""
        self.began_s = time.monotonic()
        os.write(self._descriptor, keys)

    def answers(self, keys: bytes, sign: bytes) -> float:
        """How long it takes from a key until something is shown, in seconds."""
        self.press(keys)
        return self.until(sign).wall_s

    def until_quiet(self) -> bytes:
        """Give what is drawn until nothing is drawn any more."""
        seen = b""
        while self._is_waiting(_QUIET_S):
            seen += os.read(self._descriptor, 1 << 16)
        return seen

    def read_for(self, length_s: float) -> None:
        """Read whatever is drawn for so long."""
        end_s = time.monotonic() + length_s
        while (left_s := end_s - time.monotonic()) > 0:
            if self._is_waiting(left_s):
                os.read(self._descriptor, 1 << 16)

    def pss_mb(self) -> float:
        """What it has in memory, shared pages in parts."""
        with open(f"/proc/{self.pid}/smaps_rollup", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024 / 1e6

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._descriptor)

    def _is_waiting(self, limit_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], limit_s)[0])


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


def live(processes: int, repeats: int, live_s: float) -> Figures:
    """Record so many processes, and look."""
    with sleepers(processes), measure.daemon(int(RECORDED_S) * 100, arguments=["--bus", "none"]) as recorder:
        recorder.wait_for_ring()
        time.sleep(RECORDED_S)
        shown = [_begun(recorder.folders) for _ in range(repeats)]
        with terminal(recorder.folders) as screen:
            screen.until(LISTED)
            screen.answers(b"p", ROWS)
            before_ns = measure.cpu_ns(screen.pid)
            screen.read_for(live_s)
            spent_ns = measure.cpu_ns(screen.pid) - before_ns
            mb = screen.pss_mb()
    percent = round(spent_ns / live_s / 1e7, 1)
    return {**_times("live", shown), "live_percent": percent, "live_pss_mb": round(mb, 1)}


def yesterday(processes: int, threads: int, hours: int, repeats: int) -> Figures:
    """Look at a moment of a day that is made up, go to moments beside it, and through a crowd of threads."""
    day = Day(int(time.time()) - AGO_S - hours * HOUR_S // 2, hours)
    at_s = day.middle_s
    with measure.workplace() as folders:
        screen_day.write(folders, day, processes, threads)
        at = f"--at=@{at_s}"
        shown = [_begun(folders, at) for _ in range(repeats)]
        with terminal(folders, at) as screen:
            screen.until(LISTED)
            screen.answers(b"p", ROWS)
            screen.until_quiet()
            steps_s = [screen.answers(EARLIER, _clock(at_s - number * STEP_S)) for number in range(1, repeats + 1)]
            steps_s += [screen.answers(LATER, _clock(at_s - number * STEP_S)) for number in reversed(range(repeats))]
            screen.press(b"w\t")
            page = _page(screen, threads)
            pages_s = [
                screen.answers(PAGE_DOWN, thread_name(min(threads - 1, number * page)).encode())
                for number in range(2, 2 + min(PAGES, threads // page - 1))
            ]
            mb = screen.pss_mb()
    return {
        **_times("moment", shown),
        "step_s": round(measure.median(steps_s), 3),
        "step_max_s": round(max(steps_s), 3),
        "page_s": round(measure.median(pages_s), 3),
        "moment_pss_mb": round(mb, 1),
    }


def _begun(folders: Folders, *words: str) -> tuple[Shown, Shown]:
    """When the first frame was there, and when all was."""
    with terminal(folders, *words) as screen:
        return screen.until(EMPTY), screen.until(LISTED)


def _times(name: str, shown: list[tuple[Shown, Shown]]) -> Figures:
    """Medians of that."""
    return {
        f"{name}_frame_s": round(measure.median([frame.wall_s for frame, _ in shown]), 2),
        f"{name}_s": round(measure.median([whole.wall_s for _, whole in shown]), 2),
        f"{name}_cpu_s": round(measure.median([whole.cpu_s for _, whole in shown]), 2),
    }


def _clock(time_s: int) -> bytes:
    """How the first line spells a moment."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_s)).encode()


def _page(screen: DrawnProgram, threads: int) -> int:
    """Go to the first thread and a page down; give how many rows that is."""
    screen.until(thread_name(0).encode())
    screen.until_quiet()
    screen.press(PAGE_DOWN)
    seen = [int(number) for number in _THREAD.findall(screen.until_quiet())]
    if not seen or max(seen) >= threads:
        raise RuntimeError(f"threads {seen} on the screen; expected some of {threads}")
    return max(seen)


def measured(processes: int, threads: int, hours: int, repeats: int, live_s: float) -> Figures:
    """Look at now, and at yesterday."""
    about: Figures = {"processes": processes, "threads": threads, "hours": hours}
    return {**about, **live(processes, repeats, live_s), **yesterday(processes, threads, hours, repeats)}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""

    def began(name: str) -> str:
        first, whole, cpu = (figures[f"{name}_{what}"] for what in ("frame_s", "s", "cpu_s"))
        return f"{whole} s, {cpu} s of CPU; a frame after {first} s"

    return [
        (f"until all is shown, live, {figures['processes']} processes", began("live")),
        ("until all is shown, at a moment of yesterday", began("moment")),
        ("the moment before or behind it, processes", f"{figures['step_s']} s, at most {figures['step_max_s']} s"),
        (f"a page further, of {figures['threads']} threads", f"{figures['page_s']} s"),
        ("live, looking at processes", f"{figures['live_percent']} % of a core"),
        ("memory (PSS), live, yesterday", f"{figures['live_pss_mb']}, {figures['moment_pss_mb']} MB"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    for name, usual in (("processes", PROCESSES), ("threads", THREADS), ("hours", HOURS), ("repeats", REPEATS)):
        parser.add_argument(f"--{name}", type=measure.at_least_one, default=usual, help=f"default {usual}")
    parser.add_argument("--live", type=float, default=LIVE_S, metavar="S", help=f"how long live; default {LIVE_S:.0f}")
    options = parser.parse_args()
    asked = options.processes, options.threads, options.hours, options.repeats, options.live
    measure.run(partial(measured, *asked), rows, as_json=options.json)
