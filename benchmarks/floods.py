# SPDX-License-Identifier: Apache-2.0
"""How long an innocent caller waits on the bus while strangers flood it.

A whole daemon records, all as it is by default, on a bus of its own. Three users that every machine has, daemon, bin
and sys, flood its bus part, each from a process of its own; root asks for the status fifty times a second, on one
connection, and once a second on a new one. The kinds of flood are in ``FLOODS``. Ticks of the real-time lane that were
missed meanwhile are counted from what it recorded. Needs root, to be several users.
"""

import asyncio
import os
import pwd
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import bus, measure
from benchmarks.measure import Figures
from sysmond.bus.adapter import Connection
from sysmond.bus.errors import UnavailableError
from sysmond.errors import Error
from sysmond.folders import Folders

# A system bus lets a user have 256 connections; so many are those of the three together.
SECONDS, CONNECTIONS, CALLS_PER_S = 20, 86, 50
STRANGERS = ("daemon", "bin", "sys")
SETTLE_S = 8.0
BEGIN_S = 2.0
LIMIT_S = 900
# Of each stranger, together as many as bring the longest wait that one alone was found to cause.
UNANSWERED = 20_000
QUEUED_BYTES = 512 * 1024
# Distinct, and each means everything.
PATTERNS = ["*" * (number + 1) for number in range(100)]

Flood = Callable[[str, int, float], Coroutine[Any, Any, None]]


async def asking(member: str, signature: str, body: list[object], address: str, count: int, until_s: float) -> None:
    """From so many connections call again as soon as there is an answer."""

    async def ask() -> None:
        connection = await Connection.connect(address, lambda _: None, lambda _: None)
        while time.monotonic() < until_s:
            with suppress(UnavailableError):
                await connection.ask(bus.WHERE, member, signature, body)
        connection.close()

    await asyncio.gather(*(ask() for _ in range(count)), return_exceptions=True)


async def telling(address: str, count: int, until_s: float) -> None:  # noqa: ARG001  all are called alike
    """Call so often as fast as the bus takes it, and want no answer; it keeps what we have not read yet."""
    connection = await Connection.connect(address, lambda _: None, lambda _: None)
    left = UNANSWERED
    while left and time.monotonic() < until_s:
        if connection.queued_bytes < QUEUED_BYTES:
            connection.tell(bus.WHERE, "ListProbes", "a{sv}", [{}])
            left -= 1
        else:
            await asyncio.sleep(0.001)
    await asyncio.sleep(max(0.0, until_s - time.monotonic()))
    connection.close()


async def coming(address: str, count: int, until_s: float) -> None:
    """Come with a new connection for each call, so many at a time."""

    async def come() -> None:
        while time.monotonic() < until_s:
            with suppress(UnavailableError):
                connection = await Connection.connect(address, lambda _: None, lambda _: None)
                await connection.ask(bus.WHERE, "ListProbes", "a{sv}", [{}])
                connection.close()

    await asyncio.gather(*(come() for _ in range(min(count, 16))), return_exceptions=True)


FLOODS: dict[str, Flood | None] = {
    "none": None,
    "connections": partial(asking, "ListProbes", "a{sv}", [{}]),
    "patterns": partial(asking, "ListMetrics", "asa{sv}", [PATTERNS, {}]),
    "unknown": partial(asking, "ListMetrics", "asa{sv}", [["no/such@thing"], {}]),
    "comers": coming,
    "unanswered": telling,
}


def be(user: str, flood: Flood, address: str, count: int, until_s: float) -> None:
    """Flood as a user."""
    there = pwd.getpwnam(user)
    os.setgroups([])
    os.setresgid(there.pw_gid, there.pw_gid, there.pw_gid)
    os.setresuid(there.pw_uid, there.pw_uid, there.pw_uid)
    asyncio.run(flood(address, count, until_s))


async def waits(address: str, begin_s: float, seconds: float) -> tuple[list[float], list[float]]:
    """How long a status takes, in ms, on one connection and on new ones."""
    connection = await bus.connected(address)
    same: list[float] = []
    new: list[float] = []
    await asyncio.sleep(max(0.0, begin_s - time.monotonic()))
    end_s = time.monotonic() + seconds
    while (begun_s := time.monotonic()) < end_s:
        await connection.ask(bus.WHERE, "GetStatus", "a{sv}", [{}])
        same.append((time.monotonic() - begun_s) * 1e3)
        if len(same) % CALLS_PER_S == 0:
            begun_s = time.monotonic()
            another = await Connection.connect(address, lambda _: None, lambda _: None)
            await another.ask(bus.WHERE, "GetStatus", "a{sv}", [{}])
            new.append((time.monotonic() - begun_s) * 1e3)
            another.close()
        await asyncio.sleep(1 / CALLS_PER_S)
    connection.close()
    return sorted(same), sorted(new)


def flooded(address: str, pid: int, kind: tuple[str, Flood | None], seconds: int, count: int) -> Figures:
    """What an innocent waits in one kind of flood, and what that costs the bus part, whose process ``pid`` is."""
    name, flood = kind
    begin_s = time.monotonic() + min(seconds, BEGIN_S)
    until_s = begin_s + seconds + min(seconds, BEGIN_S)
    with ExitStack() as stack:
        for user in STRANGERS:
            if flood is not None:
                stack.enter_context(measure.forked(partial(be, user, flood, address, count, until_s), LIMIT_S))
        before_ns = measure.cpu_ns(pid)
        same, new = measure.in_child(lambda: asyncio.run(waits(address, begin_s, seconds)), LIMIT_S)
        spent_s = (measure.cpu_ns(pid) - before_ns) / measure.SECOND_NS
    return {
        f"{name}_median_ms": round(same[len(same) // 2], 2),
        f"{name}_p99_ms": round(same[len(same) * 99 // 100], 2),
        f"{name}_max_ms": round(same[-1], 2),
        f"{name}_new_max_ms": round(new[-1], 2) if new else None,
        f"{name}_calls": len(same),
        f"{name}_bus_cpu_s": round(spent_s, 2),
    }


def missed(folders: Folders) -> int:
    """How many ticks the real-time lane missed between its first and its last."""
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not in the process that starts the daemon

    archive = history.open(state_dir=folders.state, runtime_dir=folders.runtime)
    times_ns = archive.select("self/lateness@sampler", raw=True).times_ns
    return round((int(times_ns[-1]) - int(times_ns[0])) / measure.SECOND_NS) + 1 - len(times_ns)


def measured(seconds: int, count: int) -> Figures:
    """Measure one flood after the other."""
    if os.geteuid():
        raise Error("only root can be several users; being root is right")
    found: Figures = {"seconds": seconds, "connections": count}
    with bus.a_bus() as address:
        os.chmod(os.path.dirname(address.removeprefix("unix:path=")), 0o755)  # noqa: S103  for the strangers
        os.chmod(address.removeprefix("unix:path="), 0o777)  # noqa: S103  as above
        with measure.daemon(LIMIT_S * 100, arguments=("--user", "--bus", address)) as daemon:
            daemon.wait_for_ring()
            measure.in_child(partial(bus.as_client, address, bus.some_series), LIMIT_S)
            time.sleep(min(seconds, SETTLE_S))
            for kind in FLOODS.items():
                found |= flooded(address, bus.bus_pid(daemon), kind, seconds, count)
            measure.end(daemon.process)
            found["missed"] = measure.in_child(partial(missed, daemon.folders), LIMIT_S)
    answered = [name for name in FLOODS if name != "unanswered"]
    return {**found, "worst_p99_ms": max(found[f"{name}_p99_ms"] for name in answered)}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    told = [
        (
            f"flood: {name}",
            ", ".join(f"{what} {figures[f'{name}_{what}_ms']} ms" for what in ("median", "p99", "max", "new_max")),
        )
        for name in FLOODS
    ]
    return [*told, ("ticks missed", str(figures["missed"]))]


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument(
        "--seconds", type=measure.at_least_one, default=SECONDS, help=f"of each flood; default {SECONDS}"
    )
    parser.add_argument(
        "--connections", type=measure.at_least_one, default=CONNECTIONS, help=f"a stranger; default {CONNECTIONS}"
    )
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds, options.connections), rows, as_json=options.json)
