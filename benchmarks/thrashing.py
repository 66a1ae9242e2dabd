# SPDX-License-Identifier: Apache-2.0
"""How late the sampler is, and what is lost, while memory runs out: swap that thrashes, and processes that are killed.

The whole recorder, as it is by default but sealed and flushed every minute, runs beside many small programs that
write all over their memory. By turns these fit into memory and swap together, so that everything is paged out and in
again all the time; do not fit, so that the kernel kills one after the other; and two large ones do not fit. The small
ones are smaller than any part of the recorder. Every tick must be found afterwards, and nobody of ours may be killed.
Where not even root may spare a process (no CAP_SYS_RESOURCE), the others have scores that are as much higher as ours
would be lower.

It is the memory of the machine that runs out (``benchmarks.scarce``): nothing else should run there. With ``--group``
it is that of a control group in which the recorder is as well (``benchmarks.confined``), as in a container with a
limit of its own; there even a real-time task waits for each new page of the kernel's.
"""

import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import cycle
from typing import NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import confined, jitter, loads, measure, scarce, starvation
from benchmarks.confined import Group
from benchmarks.measure import Daemon, Figures
from benchmarks.scarce import Machine
from sysmond.base import clock
from sysmond.errors import Error
from sysmond.machine import oom_score
from sysmond.machine.folders import Folders

SECONDS = 600
MB = 1_000_000
LIMIT_MB, GROUP_LIMIT_MB, SWAP_MB = 1000, 400, 600
# A part of the recorder has more than a small one.
SMALL_KIB, SMALL_MB = 12 * 1024, 12.6
PHASE_S = 30
SETTLE_S, LAST_S = 15, 5
FINISH_S = 150
LOOK_S = 1.0
CAP_SYS_RESOURCE = 1 << 24
CONFIG = "archive: {seal_interval: 60s, flush_interval: 60s}\n"
HOGS = ("load-memory", "load-maker")
# How the event of many begins (``Host.take_events``).
MORE = re.compile(r"([0-9]+) more at once, ")
# What a recorder says about itself that is not a change of the machine.
OWN_EVENTS = ("died", "stuck", "moved", "quarantine", "released", "damaged ring", "aside", "dropped")


class Phase(NamedTuple):
    """Some programs that want memory: how many, and how much each; ``what`` that does."""

    what: str
    programs: int
    kib: int


def phases(limit_mb: int, swap_mb: int) -> Sequence[Phase]:
    """What happens by turns in a place with so much memory and so much swap."""
    fitting, too_many = limit_mb + swap_mb // 2, round(1.3 * (limit_mb + swap_mb))
    return (
        Phase("thrashes", round(fitting / SMALL_MB), SMALL_KIB),
        Phase("small ones are killed", round(too_many / SMALL_MB), SMALL_KIB),
        Phase("large ones are killed", 2, too_many * 500),
    )


class Watched:
    """What is looked at once a second: who was killed, and how often parts waited for pages."""

    def __init__(self, daemon: Daemon, place: Group | Machine, log: int) -> None:
        """Begin with what there is now."""
        self._daemon, self._place, self._log = daemon, place, log
        self._parts: dict[int, str] = {}
        self._faults: dict[int, tuple[int, int]] = {}
        self._kills = place.kills()
        self.victims: Counter[str] = Counter()

    def look(self) -> None:
        """Look."""
        with suppress(OSError, ValueError):
            self._parts |= {pid: part for part, pid in self._daemon.pids().items()}
        for pid in self._parts:
            with suppress(OSError):
                now = confined.faults(pid)
                self._faults[pid] = self._faults.get(pid, (now, now))[0], now
        for pid, name in confined.victims(self._log, self._place.mark, HOGS):
            self.victims[self._parts.get(pid, f"{name}, of a part")] += 1

    def figures(self) -> Figures:
        """What was seen."""
        faults: Counter[str] = Counter()
        for pid, (first, last) in self._faults.items():
            faults[self._parts[pid]] += last - first
        return {
            "kills": self._place.kills() - self._kills,
            "victims": dict(self.victims),
            "faults": dict(faults),
        }


def others_score() -> int:
    """What score others have for the kernel, when it kills; more than 0 where ours cannot be less."""
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    return 0 if effective & CAP_SYS_RESOURCE else -max(score for score in oom_score.SCORES.values())


def pressed(program: str, place: Group | Machine, swap_mb: int, seconds: int) -> Iterator[None]:
    """Have memory run out in a place in all ways by turns, for so many seconds; yields once in a while."""
    end_s = time.monotonic() + seconds
    for phase in cycle(phases(place.limit_bytes // MB, swap_mb)):
        until_s = min(end_s, time.monotonic() + PHASE_S)
        arguments = ["memory", str(phase.programs), str(phase.kib), str(others_score()), place.members_file]
        with loads.standing([program, *arguments]):
            while time.monotonic() < until_s:
                time.sleep(LOOK_S)
                yield
        if time.monotonic() >= end_s:
            return


def recorded(folders: Folders) -> Figures:
    """What the recorder says of all tables and of itself: holes by cause, and events."""
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not in the process that starts the others

    archive = history.open(state_dir=folders.state, runtime_dir=folders.runtime)
    gaps: Counter[str] = Counter()
    for table in sorted({entry.path.partition("/")[0] for entry in archive.catalogue()}):
        with suppress(Error):
            found = archive.select(f"{table}/*", raw=True).gaps
            gaps.update(f"{gap.table}: {gap.cause}{gap.detail and f' ({gap.detail})'}" for gap in found)
    events = [event for event in archive.events() if event.kind in OWN_EVENTS]
    return {
        "holes": dict(gaps),
        "own_events": [f"{event.kind}: {event.subject}: {event.text}" for event in events],
        "oom_kills_on_record": sum(_kills_in(event.text) for event in archive.events(kind="oom kill")),
    }


def _kills_in(text: str) -> int:
    """How many kills an event is about: what is more than a probe may tell in one reading is one event."""
    more = MORE.match(text)
    return int(more[1]) if more else 1


def measured(seconds: int, swap: str, limit_mb: int, swap_mb: int, *, is_group: bool) -> Figures:
    """Record while memory runs out for so many seconds: that of the machine, or of a group."""
    if reason := confined.why_not() if is_group else scarce.why_not():
        raise RuntimeError(reason)
    with ExitStack() as running:
        program = running.enter_context(loads.compiled())
        running.enter_context(confined.swap(swap_mb * MB, swap))
        group = running.enter_context(confined.group(limit_mb * MB)) if is_group else None
        prefix = running.enter_context(confined.beginning(group)) if group else []
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        running.callback(os.close, log)
        os.lseek(log, 0, os.SEEK_END)
        daemon = running.enter_context(measure.daemon(seconds + 600, CONFIG, prefix=prefix))
        daemon.wait_for_ring(60)
        time.sleep(SETTLE_S)
        with nullcontext(group) if group else scarce.memory(limit_mb * MB) as place:
            now = clock.relation()
            begin_ns = now.realtime_ns - now.boottime_ns % measure.SECOND_NS + measure.SECOND_NS // 10
            figures = _pressed(program, place, daemon, log, swap_mb, seconds)
        for work in (
            partial(jitter.lateness, daemon.folders),
            partial(starvation.recorded, daemon.folders, begin_ns),
            partial(recorded, daemon.folders),
        ):
            figures |= measure.in_child(work, 120)
        with open(daemon.log, encoding="utf-8", errors="replace") as file:
            figures["said"] = [line.rstrip() for line in file]
    lost = figures["lost"] or figures["missed"] or figures["victims"] or figures["exit_code"]
    return {
        "ok": not lost,
        "seconds": seconds,
        "place": "group" if is_group else "machine",
        "swap": swap,
        "limit_mb": place.limit_bytes // MB,
        "swap_mb": swap_mb,
        "others_score": others_score(),
    } | figures


def _pressed(program: str, place: Group | Machine, daemon: Daemon, log: int, swap_mb: int, seconds: int) -> Figures:
    """Have memory run out, then have the recorder end; gives what was seen from outside."""
    figures: Figures = {"real_time": jitter.is_real_time(daemon.pids()["sampler"])}
    watched = Watched(daemon, place, log)
    for _ in pressed(program, place, swap_mb, seconds):
        watched.look()
    time.sleep(LAST_S)
    watched.look()
    begin_s = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    figures["exit_code"] = daemon.process.wait(FINISH_S)
    return figures | {"end_s": round(time.monotonic() - begin_s, 2)} | watched.figures()


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    counted = ((name, figures[name]) for name in ("faults", "victims", "holes"))
    return [
        (
            f"memory of the {figures['place']}",
            f"{figures['limit_mb']} MB, and {figures['swap_mb']} MB of {figures['swap']}",
        ),
        ("latest", " ".join(f"{name} {figures[f'{name}_us'] / 1000:.2f} ms" for name in ("p50", "p99", "max"))),
        ("ticks", f"{figures['ticks']} found, {figures['lost']} lost, {figures['missed']} missed"),
        ("killed", f"{figures['kills']}, of them {figures['oom_kills_on_record']} on record"),
        *((name, ", ".join(f"{what} {count}" for what, count in each.items()) or "none") for name, each in counted),
        ("ended", f"in {figures['end_s']:.1f} s with exit code {figures['exit_code']}"),
        *(("event", event) for event in figures["own_events"]),
        *(("said", line) for line in figures["said"]),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS}")
    parser.add_argument("--swap", choices=("zram", "file"), default="zram", help="what is swapped to; default zram")
    parser.add_argument("--group", action="store_true", help="of a control group; default: of the machine")
    parser.add_argument(
        "--limit", type=measure.at_least_one, help=f"MB; default {LIMIT_MB}, of a group {GROUP_LIMIT_MB}"
    )
    parser.add_argument("--swap-size", type=measure.at_least_one, default=SWAP_MB, help=f"MB; default {SWAP_MB}")
    options = parser.parse_args()
    limit_mb = options.limit or (GROUP_LIMIT_MB if options.group else LIMIT_MB)
    arguments = options.seconds, options.swap, limit_mb, options.swap_size
    measure.run(lambda: measured(*arguments, is_group=options.group), rows, as_json=options.json)
