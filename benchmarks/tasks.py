# SPDX-License-Identifier: Apache-2.0
"""What recording every process costs, beside what atop, htop, PCP and psutil cost under the same load in the same run.

Loads of ``loadgen.c``: processes and threads that stand there, programs that end at once. A peer sees nothing but the
load, in namespaces of its own. The pass of the kernel sees the whole machine: ours is measured on the
bare machine, carries the machine's other tasks as well, and says how many it walked. As root.
"""

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import loads, measure, passes, peers, streams, tick, trees
from benchmarks.loads import Load
from benchmarks.measure import Figures
from benchmarks.peers import Peer
from sysmond.tasks.tables import EXITS

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 30
WARM_UP_S = 5
CALLS_S = 5
# The archiver orders something now and then.
CALLS_GROWTH_MAX = 1.05
# One in ten of a busy load works.
BUSY_SHARE = 10
LOADS = {
    "procs_100": Load("100 processes", ("procs", "100"), 100),
    "procs_1000": Load("1,000 processes", ("procs", "1000"), 1000),
    "threads_10000": Load("10,000 threads", ("threads", "10", "1000"), 10_000, threads=True),
    "procs_10000": Load("10,000 processes", ("procs", "10000"), 10_000),
}
QUICK_LOADS = {
    "procs_100": Load("20 processes", ("procs", "20"), 20),
    "threads_10000": Load("40 threads", ("threads", "2", "20"), 40, threads=True),
}
FALLBACK = "procs_1000"
FORKS, FORKS_S = 1000, 60
STORM_RATE, STORM_S = 3000, 20
PARTS = (*LOADS, "forks", "storm")


class Run:
    """One run of everything. ``program``: the load generator; ``folder``: where peers are installed."""

    def __init__(self, program: str, folder: str, seconds: int, *, quick: bool) -> None:
        """``seconds``: how long each is measured; ``quick``: tiny loads, whose figures mean nothing."""
        self.program = program
        self.folder = folder
        self.seconds = seconds
        self.loads = QUICK_LOADS if quick else LOADS
        self.forks = (50, 3) if quick else (FORKS, FORKS_S)
        self.storm = (200, 3) if quick else (STORM_RATE, STORM_S)
        self.peers = peers.all_of_them(folder)
        self.reason = loads.no_box()
        self.warm_up_s = 1 if quick else WARM_UP_S
        # A program that ends well, under a name that nothing else on this machine has.
        self.ending = f"{folder}/true-{os.getpid()}"
        os.symlink("/bin/true", self.ending)

    # --- Tasks that stand there

    def load(self, name: str) -> Figures:
        """A load, with us and with every peer."""
        load = self.loads[name]
        figures: Figures = {"what": load.what, "tasks": load.tasks}
        with loads.standing(load.command(self.program)):
            figures["pass"] = passes.either(partial(passes.by_itself, "kernel", self.seconds, threads=load.threads))
            if name in {FALLBACK, next(iter(QUICK_LOADS))}:
                figures["proc"] = passes.either(partial(passes.by_itself, "proc", self.seconds, threads=False))
            figures["daemon"] = passes.either(partial(passes.whole, self.seconds, threads=load.threads))
        busy = load.tasks // BUSY_SHARE
        with loads.standing(load.command(self.program, busy)):
            figures["pass_busy"] = passes.either(
                partial(passes.by_itself, "kernel", self.seconds, threads=load.threads)
            )
        figures["peers"] = {peer.name: self._peer(peer, load) for peer in self.peers}
        return figures

    def _peer(self, peer: Peer, load: Load) -> Figures:
        if reason := peer.missing() or self.reason:
            return {"missing": reason}
        return passes.either(lambda: self._watched(peer, load))

    def _watched(self, peer: Peer, load: Load) -> Figures:
        with tempfile.TemporaryDirectory(prefix="sysmond-peer-") as folder:
            with loads.boxed(load.command(self.program)) as box, peers.started(peer, box, folder) as roots:
                time.sleep(self.warm_up_s)
                before = peers.recorded_bytes(folder)
                cost = trees.cost(roots, self.seconds, roots_too=False)
                recorded = (peers.recorded_bytes(folder) - before) / self.seconds
                calls = trees.system_calls(trees.below(roots, roots_too=False), min(self.seconds, CALLS_S))
            captured = peer.captured(folder, os.path.basename(self.program)) if peer.captured else None
        return {
            **cost._asdict(),
            "system_calls": calls,
            "bytes_per_tick": round(recorded),
            "recorded_tasks": captured.last if captured else None,
        }

    # --- Programs that end

    def ended(self, name: str) -> Figures:
        """Programs that end at once: how many of them are on record. Of a storm the peers see next to nothing."""
        figures: Figures = {"daemon": passes.either(partial(self._recorded, name))}
        if name == "forks":
            figures["peers"] = {peer.name: self._peer_forks(peer) for peer in self.peers if peer.captured}
        return figures

    def _recorded(self, name: str) -> Figures:
        if "exits" not in passes.offered():
            raise RuntimeError("no probe offers the table exits")
        number, seconds = self.forks if name == "forks" else self.storm
        command = [self.program, name, str(number), str(seconds), *([self.ending] if name == "forks" else [])]
        known = os.path.basename(command[-1] if name == "forks" else self.program).encode()
        with passes.daemon(3 * seconds + 120, passes.configured(())) as running:
            time.sleep(self.warm_up_s)
            with loads.standing(command) as load:
                off = passes.cpu_by_tick(running, seconds - 1)["sampler"]
                loads.made(load, 10 * seconds + 60)
            passes.configure(running, passes.configured(("exits",)))
            watch = streams.Watch(running.folders, EXITS, "comm")
            watch.look()
            watch.counted.clear()
            watch.readings.clear()  # What was lost while nobody took it is not this load's.
            with loads.standing(command) as load, watch.watching():
                begin_s = time.monotonic()
                on = passes.cpu_by_tick(running, seconds - 1)["sampler"]
                made = loads.made(load, 10 * seconds + 60)
                took_s = time.monotonic() - begin_s
            durations = measure.in_child(partial(tick.last_seconds, running.wait_for_ring()), 60)["by_probe"]
            watch.watch(2 + self.warm_up_s)
        spent = [measure.ms(sum(ticks) / len(ticks), 3) for ticks in (on, off)]
        return {
            "made": made,
            "recorded": watch.counted[known],
            "lost": sum(reading.lost for reading in watch.readings),
            "overwritten_bytes": watch.overwritten,
            "per_s": round(made / took_s),
            "on_ms": spent[0],
            "off_ms": spent[1],
            "exits_ms": round(spent[0] - spent[1], 3),
            "duration_ms": measure.ms(durations.get("exits", 0), 3),
        }

    def _peer_forks(self, peer: Peer) -> Figures:
        if reason := peer.missing() or self.reason:
            return {"missing": reason}
        return passes.either(lambda: self._watched_forks(peer))

    def _watched_forks(self, peer: Peer) -> Figures:
        number, seconds = self.forks
        command = [self.program, "forks", str(number), str(seconds), self.ending]
        with tempfile.TemporaryDirectory(prefix="sysmond-peer-") as folder:
            with loads.boxed([self.program, "procs", "1", "0"]) as box, peers.started(peer, box, folder) as roots:
                time.sleep(self.warm_up_s)
                with loads.standing(box.command(command)) as load:
                    cost = trees.cost(roots, seconds, roots_too=False)
                    made = loads.made(load, 10 * seconds)
                time.sleep(2)  # The next sample has the last of them.
            captured = peer.captured(folder, os.path.basename(self.ending)) if peer.captured else None
        return {"made": made, "recorded": captured.known if captured else None, "cpu_ms": cost.cpu_ms}


def measured(parts: list[str], seconds: int, *, quick: bool) -> Figures:
    """Measure the chosen parts, one after the other.

    :raises RuntimeError: where there is no compiler.
    """
    with ExitStack() as stack:
        program = stack.enter_context(loads.compiled())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sysmond-peers-"))
        os.chmod(folder, 0o755)  # noqa: S103  others than root start programs of it
        run = Run(program, folder, seconds, quick=quick)
        work: dict[str, Callable[[], Figures]] = {name: partial(run.load, name) for name in run.loads}
        work |= {name: partial(run.ended, name) for name in ("forks", "storm")}
        figures: Figures = {"seconds": seconds, "counter": trees.counter()}
        for name in parts:
            if name in work:
                print(f"-- {name}", file=sys.stderr, flush=True)
                figures[name] = passes.either(work[name])
    return figures


# --- Rows of the document


def of(figures: Figures, *path: str) -> float | None:
    """A figure by its path; None where it was not measured."""
    value: Any = figures
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int | float) else None


def spell(number: float | None, unit: str = " ms", digits: int = 2) -> str:
    """A figure for people."""
    return "not measured" if number is None else f"{number:.{digits}f}{unit}"


def snapshot_ms(figures: Figures, load: str) -> float | None:
    """What a snapshot costs under a load: by the daemon where it has the table, else the pass by itself."""
    whole = of(figures, load, "daemon", "snapshot_ms")
    return of(figures, load, "pass", "cpu_ms") if whole is None else whole


def walked(figures: Figures, load: str) -> float | None:
    """How many tasks the costliest pass of that had to look at: those of the load, and all others."""
    table = "thread" if LOADS[load].threads else "process"
    most = of(figures, load, "daemon", "snapshot", "walked_max")
    return of(figures, load, "daemon", "tables", table, "walked") if most is None else most


def beside(figures: Figures, load: str) -> str:
    """What the peers cost under a load, in one line."""
    costs = {name: of(one, "cpu_ms") for name, one in figures.get(load, {}).get("peers", {}).items()}
    return ", ".join(f"{name} {spell(cost, '', 1)}" for name, cost in costs.items())


def lost(figures: Figures, load: str) -> float | None:
    """How many records a load cost us, over all ticks."""
    table = "thread" if LOADS[load].threads else "process"
    whole = of(figures, load, "daemon", "tables", table, "lost")
    return of(figures, load, "pass", "lost") if whole is None else whole


def calls(figures: Figures) -> list[float | None]:
    """System calls of the sampler a tick, by the number of processes."""
    return [of(figures, name, "daemon", "on", "system_calls") for name, load in LOADS.items() if not load.threads]


def calls_stay(figures: Figures) -> bool:
    """Whether they are as many under every load, but for what a few seconds more or less of the rest make."""
    counts = [count for count in calls(figures) if count is not None]
    return len(counts) == len(calls(figures)) and max(counts) <= CALLS_GROWTH_MAX * min(counts)


def known_to_peers(figures: Figures, name: str) -> str:
    """How many of the programs that ended are on record with the peers, in one line."""
    peers = figures.get(name, {}).get("peers", {})
    return ", ".join(f"{peer} {spell(of(one, 'recorded'), '', 0)}" for peer, one in peers.items())


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines: list[tuple[str, str]] = []
    for name, load in LOADS.items():
        if one := figures.get(name):
            lines += _load_rows(one, one.get("what", load.what))
    for name in ("forks", "storm"):
        if one := figures.get(name):
            lines += _ended_rows(one, name)
    return lines or [("nothing", "no part of this run was chosen")]


def _load_rows(one: Figures, what: str) -> list[tuple[str, str]]:
    if "missing" in one:
        return [(what, one["missing"])]
    lines = []
    for kind, label in (("pass", "a pass"), ("pass_busy", "… a tenth at work"), ("proc", "… by /proc")):
        if kind in one:
            lines.append((f"{what}: {label}", _pass_line(one[kind])))
    whole = one["daemon"]
    said = whole.get("missing")
    if said is None:
        calls = [spell(of(whole, phase, "system_calls"), "", 0) for phase in ("on", "off")]
        snapshot, off = whole["snapshot"], whole["off"]
        said = f"{whole['snapshot_ms']:.2f} ms ({snapshot['sampler_ms']:.2f} less {off['sampler_ms']:.2f}), "
        said += f"{snapshot['way']}, {snapshot['walked_min']} to {snapshot['walked_max']} walked, "
        said += f"{calls[0]} system calls a tick (without {calls[1]}), {whole['on']['pss_mb']:.1f} MB"
    lines.append(("  sysmond", said))
    for name, peer in one["peers"].items():
        if "missing" in peer:
            lines.append((f"  {name}", f"not measured: {peer['missing']}"))
            continue
        tasks = "screen only" if peer["recorded_tasks"] is None else f"{peer['recorded_tasks']} tasks on record"
        calls_s = spell(peer["system_calls"], "", 0)
        lines.append(
            (f"  {name}", f"{peer['cpu_ms']:.1f} ms, {calls_s} system calls, {peer['pss_mb']:.1f} MB, {tasks}")
        )
    return lines


def _pass_line(one: Figures) -> str:
    if "missing" in one:
        return f"not measured: {one['missing']}"
    records = ", ".join(f"{count:.0f} {name}" for name, count in one["records_per_tick"].items())
    return f"{one['cpu_ms']:.2f} ms by {one['way']}, {one['walked']} walked, {one['lost']} lost; records: {records}"


def _ended_rows(one: Figures, name: str) -> list[tuple[str, str]]:
    daemon = one.get("daemon", one)
    what = "/bin/true" if name == "forks" else "exec and exit"
    if "missing" in daemon:
        lines = [(what, f"not measured: {daemon['missing']}")]
    else:
        cost = f"{daemon['exits_ms']:.2f} ms a tick ({daemon['duration_ms']:.2f} of them the probe's)"
        lines = [(what, f"{daemon['recorded']} of {daemon['made']} on record, {daemon['per_s']} a second, {cost}")]
    for peer, figures in one.get("peers", {}).items():
        said = (
            f"{figures['recorded']} of {figures['made']}"
            if "made" in figures
            else f"not measured: {figures['missing']}"
        )
        lines.append((f"  {peer}", said))
    return lines


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--seconds", type=measure.at_least_one, help=f"how long each is measured; default {SECONDS}")
    parser.add_argument("--quick", action="store_true", help="tiny loads for a moment, whose figures mean nothing")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args()
    length_s = options.seconds or (3 if options.quick else SECONDS)
    measure.run(
        lambda: measured(options.only or list(PARTS), length_s, quick=options.quick), rows, as_json=options.json
    )
