# SPDX-License-Identifier: Apache-2.0
"""What it costs to count a mouse of 1 kHz, and whether it is counted exactly.

A whole daemon runs, with the table ``input`` on and all others as they are by default. The mouse rests for so many
seconds, then it moves for as many: a report of three events each millisecond, or fewer where the sender is late. It
is told by how much more processor time the background lane used then, for 1,000 reports; how far the pointer went by
what is recorded; and how often the thread that counts woke up while the mouse was at rest.

The mouse is one of the kernel's own where there is ``/dev/uinput``. Else it is a pipe below ``--root`` that carries
events as the kernel writes them. A pipe takes no mask: the daemon's calls to set one go nowhere (``MASKLESS``).
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure, sensing
from benchmarks.measure import SECOND_NS, Daemon, Figures
from tests.support import inputs, uinput

SECONDS = 60
PERIOD_S = 60
REPORTS_PER_S = 1000
WARM_UP_S = 10
NAME, NODE = "benchmark mouse", "event0"
# Three and four units at once are a way of five.
REPORT: tuple[inputs.Event, ...] = ((inputs.EV_REL, 0, 3), (inputs.EV_REL, 1, -4), inputs.REPORT)
WAY = 5
MASKLESS = """
import fcntl
real = fcntl.ioctl
fcntl.ioctl = lambda descriptor, request, *more: 0 if request & 0xffff == 0x4593 else real(descriptor, request, *more)
"""
"""A ``sitecustomize`` that has EVIOCSMASK succeed."""


class Mouse(NamedTuple):
    """A mouse and the daemon that counts it. ``by``: what it is made of; ``node``: which file is opened to count it."""

    by: str
    node: str
    report: Callable[[], object]
    daemon: Daemon


def configured(period_s: int) -> str:
    """A configuration that counts input and has all else as it is by default."""
    return (
        "probes: {input: {enabled: true, interval: %ds, options: {period_s: %d}}}\n" % (period_s, period_s)  # noqa: UP031  it is full of braces
    )


@contextmanager
def counted(seconds: int, period_s: int) -> Iterator[Mouse]:
    """Run a daemon beside a mouse, a real one where that can be."""
    limit_s = 2 * seconds + 3 * period_s + 120
    with ExitStack() as stack:
        if os.access(uinput.NODE, os.W_OK):
            mouse = uinput.Device(NAME, range(inputs.LEFT, inputs.LEFT + 8), (0, 1, 6, 8))
            stack.callback(mouse.unplug)
            daemon = stack.enter_context(measure.daemon(limit_s, configured(period_s)))
            yield Mouse("uinput", node_of(NAME), lambda: mouse.send(*REPORT), daemon)
        else:
            folder = Path(stack.enter_context(measure.workplace()).runtime)
            sensing.build(sensing.VIRTUAL, folder / "root")
            pipes = inputs.Inputs(folder / "root")
            pipes.plug(NODE, "mouse", NAME)
            stack.callback(pipes.close)
            (folder / "sitecustomize.py").write_text(MASKLESS)
            stack.enter_context(sensing.surroundings({"PYTHONPATH": str(folder)}))
            words = ("--root", str(folder / "root"))
            daemon = stack.enter_context(measure.daemon(limit_s, configured(period_s), arguments=words))
            yield Mouse("a pipe", f"{folder}/root/dev/input/{NODE}", lambda: pipes.send(NODE, *REPORT), daemon)


def node_of(name: str) -> str:
    """The file of an input device of the kernel's."""
    (said,) = [each for each in Path("/sys/class/input").glob("event*/device/name") if each.read_text().strip() == name]
    return f"/dev/input/{said.parent.parent.name}"


def switches(pid: int) -> dict[str, int]:
    """How often each thread of a process went to wait (/proc/PID/task/TID/status)."""
    found = {}
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):  # It has ended.
            line = next(line for line in status.read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))
            found[status.parent.name] = int(line.split()[1])
    return found


def is_held(pid: int, node: str) -> bool:
    """Whether a process has a file open."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(link) == node:
                return True
    return False


def wait_for(met: Callable[[], object], limit_s: float) -> bool:
    """Wait until something is so, or for so long; gives whether it is."""
    give_up_s = time.monotonic() + limit_s
    while not met():
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.1)
    return True


def recorded(daemon: Daemon) -> int | None:
    """How far the pointer went by the newest row; None where that is not known."""
    from sysmond.base.model import ABSENT  # noqa: PLC0415  numpy must not be in the children forked before
    from sysmond.errors import Error  # noqa: PLC0415
    from sysmond.history import Archive  # noqa: PLC0415

    try:
        found = Archive(daemon.folders).select(
            f"input/pointer_distance@{NAME}", raw=True, start=time.time_ns() - 600 * SECOND_NS
        )
    except Error:
        return None
    values = found.columns[0].integers if found.columns else None
    return None if values is None or not len(values) or values[-1] == ABSENT else int(values[-1])


def work(seconds: int, period_s: int) -> Figures:
    """Let the mouse rest, move it, and look."""
    with counted(seconds, period_s) as mouse:
        mouse.daemon.wait_for_ring()
        pid = mouse.daemon.pids()["background"]
        if not wait_for(lambda: is_held(pid, mouse.node), period_s + 60):
            raise RuntimeError(f"{mouse.node}: the daemon does not open it")
        time.sleep(WARM_UP_S)
        begun, begun_ns = switches(pid), measure.cpu_ns(pid)
        time.sleep(seconds)
        rested, rested_ns = switches(pid), measure.cpu_ns(pid)
        reports = inputs.each_millisecond(mouse.report, seconds)
        moved, moved_ns = switches(pid), measure.cpu_ns(pid)
        wait_for(lambda: recorded(mouse.daemon) == WAY * reports, 2 * period_s + 30)
        way = recorded(mouse.daemon)
    # Of all threads, the one that drains waits most often while the mouse moves.
    drains = max(moved, key=lambda thread: moved[thread] - rested.get(thread, moved[thread]))
    return {
        "by": mouse.by,
        "seconds": seconds,
        "reports": reports,
        "reports_per_s": round(reports / seconds, 1),
        "way": WAY * reports,
        "way_recorded": way,
        "percent": round(
            (moved_ns - rested_ns - (rested_ns - begun_ns)) / reports * REPORTS_PER_S / SECOND_NS * 100, 3
        ),
        "rest_percent": round((rested_ns - begun_ns) / seconds / SECOND_NS * 100, 3),
        "drains_per_s": round((moved[drains] - rested[drains]) / seconds, 1),
        "wakeups_at_rest": rested[drains] - begun[drains],
    }


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = [] if figures["by"] == "uinput" else [("no /dev/uinput here", "the mouse is a pipe, which takes no mask")]
    return [
        *lines,
        ("reports", f"{figures['reports']} of three events in {figures['seconds']} s"),
        ("way of the pointer", f"{figures['way_recorded']} recorded of {figures['way']}"),
        ("CPU of a core, more than at rest, for 1,000 reports a second", f"{figures['percent']:.2f} %"),
        ("the background lane at rest", f"{figures['rest_percent']:.2f} %"),
        ("drains", f"{figures['drains_per_s']:.0f} a second"),
        ("wake-ups of the thread that counts, at rest", str(figures["wakeups_at_rest"])),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS}")
    parser.add_argument("--period", type=measure.at_least_one, default=PERIOD_S, help=f"seconds; default {PERIOD_S}")
    options = parser.parse_args()
    measure.run(lambda: work(options.seconds, options.period), rows, as_json=options.json)
