# SPDX-License-Identifier: Apache-2.0
"""What the bus part costs, and whether calls disturb a sampler.

A whole daemon records, all as it is by default, on a bus of its own. First nobody calls: processor time, wake-ups
(voluntary context switches) and memory of the bus part at rest, and of all parts together. Then one client asks for
the latest values of 100 series, one call after the other. Last, another daemon with a tick of 10 ms: half of the
time a client makes 500 such calls a second, half of it nobody does, in turns; what its sampler recorded about its
own lateness is read back from the archive and separated by the time.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Daemon, Figures
from sysmond.base.model import ABSENT
from sysmond.bus.wire.adapter import Connection
from sysmond.bus.wire.errors import UnavailableError
from sysmond.bus.wire.names import BUS_NAME, MANAGER, OBJECT_PATH
from sysmond.machine.folders import Folders

SECONDS, CALLS, SERIES, CALLS_PER_S = 60, 3000, 100, 500
# Every machine has these, with more than a hundred series together; all tables may be too much for one answer.
TABLES = ("cpu", "memory", "vm")
SLICE_S = 5.0
# What belongs to the start, and to the first look at the rings, does not count.
SETTLE_S = 8.0
START_LIMIT_S = 30.0
FINISH_S = 150
LIMIT_S = 900
_FAST = "sampler: {ring_size: 64MiB}\nprobes: {self: {interval: 10ms}}\n"
_BUS = (
    '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" '
    '"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">'
    "<busconfig><type>session</type><listen>{}</listen><auth>EXTERNAL</auth>"
    '<limit name="max_connections_per_user">1000</limit><limit name="max_completed_connections">4000</limit>'
    '<policy context="default"><allow user="*"/>'
    '<allow send_destination="*"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>'
)
WHERE = (BUS_NAME, OBJECT_PATH, MANAGER)
Span = tuple[float, float]


@contextmanager
def a_bus() -> Iterator[str]:
    """Run a dbus-daemon, and give its address."""
    with tempfile.TemporaryDirectory(prefix="sysmond-bus-") as folder:
        address = f"unix:path={folder}/bus"
        with open(f"{folder}/bus.conf", "w", encoding="utf-8") as file:
            file.write(_BUS.format(address))
        command = ["dbus-daemon", "--nofork", "--nopidfile", f"--config-file={folder}/bus.conf", "--print-address"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                if process.stdout is None or not process.stdout.readline():
                    raise RuntimeError("the dbus-daemon did not start")
                yield address
            finally:
                process.kill()


async def connected(address: str, where: tuple[str, str, str] = WHERE) -> Connection:
    """Connect, and wait until a service is there.

    :raises TimeoutError: where it does not come.
    """
    connection = await Connection.connect(address, lambda call: call.refuse(f"{BUS_NAME}.No", "none"), lambda _: None)
    async with asyncio.timeout(START_LIMIT_S):
        while True:
            try:
                await connection.ask(where, "GetStatus", "a{sv}", [{}])
            except UnavailableError:
                await asyncio.sleep(0.1)
            else:
                return connection


async def some_series(connection: Connection) -> list[int]:
    """The numbers of a hundred series, or of as many as there are."""
    (series,) = await connection.ask(WHERE, "ListMetrics", "asa{sv}", [list(TABLES), {}])
    return [fields[0] for fields in series][:SERIES]


async def latencies(connection: Connection, calls: int) -> Figures:
    """Call one after the other; how long each took."""
    numbers = await some_series(connection)
    took_ms = []
    for _ in range(calls):
        begin_ns = time.perf_counter_ns()
        await connection.ask(WHERE, "GetLatest", "aua{sv}", [numbers, {}])
        took_ms.append((time.perf_counter_ns() - begin_ns) / 1e6)
    took_ms.sort()
    return {
        "series": len(numbers),
        "latest_median_ms": round(took_ms[len(took_ms) // 2], 3),
        "latest_p99_ms": round(took_ms[len(took_ms) * 99 // 100], 3),
    }


async def load(connection: Connection, seconds: float, slice_s: float) -> tuple[int, list[Span]]:
    """Call and leave alone in turns: how many calls in all, and when calls were made, in UTC."""
    numbers = await some_series(connection)
    spans: list[Span] = []
    calls = 0
    end_s = time.monotonic() + 2 * seconds
    while time.monotonic() < end_s:
        begin_s, begun_s = time.time(), time.monotonic()
        due_s = begun_s
        while (due_s := due_s + 1 / CALLS_PER_S) < begun_s + slice_s:
            await connection.ask(WHERE, "GetLatest", "aua{sv}", [numbers, {}])
            calls += 1
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        spans.append((begin_s, time.time()))
        await asyncio.sleep(slice_s)
    return calls, spans


def bus_pid(daemon: Daemon) -> int:
    """The process of the bus part."""
    with open(f"{daemon.folders.runtime}/bus/pid", encoding="ascii") as file:
        return int(file.read())


def kilobytes(pid: int, field: str) -> int:
    """A line of /proc/PID/smaps_rollup."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{field}:"))


def at_rest(daemon: Daemon, seconds: int) -> Figures:
    """What the bus part costs while nobody calls."""
    pid = bus_pid(daemon)
    before_ns, woken = measure.cpu_ns(pid), measure.wakeups(pid)
    time.sleep(seconds)
    pids = [pid, *daemon.pids().values()]
    return {
        "idle_ms_per_s": round((measure.cpu_ns(pid) - before_ns) / 1e6 / seconds, 4),
        "idle_wakeups": measure.wakeups(pid) - woken,
        "rss_mb": round(kilobytes(pid, "Rss") * 1024 / 1e6, 2),
        "pss_mb": round(sum(kilobytes(part, "Pss") for part in pids) * 1024 / 1e6, 2),
        "pss_bus_mb": round(kilobytes(pid, "Pss") * 1024 / 1e6, 2),
    }


def lateness(folders: Folders, spans: list[Span], slice_s: float) -> Figures:
    """What the sampler recorded about its lateness, with calls and without."""
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not in the process that starts the daemons

    archive = history.open(state_dir=folders.state, runtime_dir=folders.runtime)
    result = archive.select("self/lateness@sampler", raw=True)
    late = result.column("self/lateness@sampler").integers
    if late is None:
        raise RuntimeError("no lateness was recorded")
    first_s, last_s = spans[0][0], spans[-1][1] + slice_s
    loaded: list[int] = []
    alone: list[int] = []
    for at_ns, value in zip(result.times_ns.tolist(), late.tolist(), strict=True):
        at_s = at_ns / measure.SECOND_NS
        if value != ABSENT and first_s <= at_s < last_s:
            (loaded if any(begin <= at_s < end for begin, end in spans) else alone).append(value)
    p99 = [sorted(values)[len(values) * 99 // 100] for values in (alone, loaded)]
    return {
        "lateness_p99_us": p99[0],
        "lateness_loaded_p99_us": p99[1],
        "lateness_ratio": round(p99[1] / max(1, p99[0]), 3),
        "ticks": len(alone) + len(loaded),
    }


def as_client(address: str, work: Callable[[Connection], Awaitable[Any]]) -> Any:  # noqa: ANN401  what the work returns
    """Do what a client does, in a process of its own."""

    async def run() -> Any:  # noqa: ANN401  as above
        return await work(await connected(address))

    return asyncio.run(run())


def measured(seconds: int, calls: int) -> Figures:
    """Measure one after the other, so that nothing disturbs the rest."""
    settle_s, slice_s = min(seconds, SETTLE_S), min(seconds, SLICE_S)
    with a_bus() as address:
        arguments = ("--user", "--bus", address)
        with measure.daemon(LIMIT_S, arguments=arguments) as daemon:
            daemon.wait_for_ring()
            measure.in_child(partial(as_client, address, some_series), LIMIT_S)
            time.sleep(settle_s)
            figures = {"seconds": seconds, **at_rest(daemon, seconds)}
            figures |= measure.in_child(
                partial(as_client, address, lambda connection: latencies(connection, calls)), LIMIT_S
            )
        with measure.daemon(LIMIT_S * 100, _FAST, arguments=arguments) as daemon:
            daemon.wait_for_ring()
            time.sleep(settle_s)
            before_ns = measure.cpu_ns(bus_pid(daemon))
            made, spans = measure.in_child(
                partial(as_client, address, lambda connection: load(connection, seconds, slice_s)),
                4 * seconds + LIMIT_S,
            )
            figures["cpu_us_per_call"] = round((measure.cpu_ns(bus_pid(daemon)) - before_ns) / 1e3 / made, 1)
            measure.end(daemon.process)
            figures |= measure.in_child(partial(lateness, daemon.folders, spans, slice_s), FINISH_S)
    return {**figures, "calls_per_s": round(made / sum(end - begin for begin, end in spans), 1)}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        ("latest values of a call", f"{figures['series']} series"),
        ("… at the client", f"median {figures['latest_median_ms']} ms, p99 {figures['latest_p99_ms']} ms"),
        ("… in the bus part", f"{figures['cpu_us_per_call']} µs of processor time a call"),
        ("at rest", f"{figures['idle_ms_per_s']} ms a second, {figures['idle_wakeups']} wake-ups"),
        ("resident", f"{figures['rss_mb']} MB, of which {figures['pss_bus_mb']} MB are its own share"),
        ("all parts", f"{figures['pss_mb']} MB PSS"),
        ("lateness at 10 ms, p99", f"{figures['lateness_p99_us']} µs alone"),
        (
            f"… beside {figures['calls_per_s']} calls/s",
            f"{figures['lateness_loaded_p99_us']} µs: {figures['lateness_ratio']} ×",
        ),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument(
        "--seconds", type=measure.at_least_one, default=SECONDS, help=f"at rest, and of calls; default {SECONDS}"
    )
    parser.add_argument("--calls", type=measure.at_least_one, default=CALLS, help=f"timed calls; default {CALLS}")
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds, options.calls), rows, as_json=options.json)
