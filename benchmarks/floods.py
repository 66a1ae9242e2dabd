# SPDX-License-Identifier: Apache-2.0
"""How long an innocent caller waits on the bus while strangers flood it.

A whole daemon records, all as it is by default, on a bus of its own. Three users that every machine has, daemon, bin
and sys, flood its bus part, each from a process of its own; root asks for the status fifty times a second, on one
connection, and once a second on a new one. In turns with that it asks an echo on the same bus: a service that nobody
floods, with nothing of ours in it, which answers at once. That takes what dbus-daemon takes, and the wait
for processors that all want. The kinds of flood are in ``FLOODS``. Ticks of the real-time lane that were missed
meanwhile are counted from what it recorded. Needs root, to be several users.
"""

import asyncio
import os
import pwd
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

from dbus_fast.aio.message_bus import MessageBus
from dbus_fast.message import Message

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import bus, measure
from benchmarks.measure import Figures
from sysmond.bus.wire.adapter import Connection
from sysmond.bus.wire.errors import UnavailableError
from sysmond.errors import Error
from sysmond.machine.folders import Folders

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

ECHO = ("org.example.Echo", "/", "org.example.Echo")

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
    await asyncio.sleep(BEGIN_S)  # Its whole length is to be seen.
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


def echo(address: str) -> None:
    """Answer every call at once, with nothing."""

    async def answer() -> None:
        service = await MessageBus(bus_address=address).connect()
        service.add_message_handler(lambda call: Message.new_method_return(call, "a{sv}", [{}]))
        await service.request_name(ECHO[0])
        await service.wait_for_disconnect()  # type: ignore[no-untyped-call]

    asyncio.run(answer())


def wait_for_echo(address: str) -> None:
    """Wait until it is there."""
    asyncio.run(bus.connected(address, ECHO))


class Waits(NamedTuple):
    """How long calls took, in ms, in order of length: on one connection, on new ones, and of the echo."""

    same: list[float]
    new: list[float]
    echo: list[float]


async def took_ms(connection: Connection, where: tuple[str, str, str]) -> float:
    """How long a status takes."""
    begun_s = time.monotonic()
    await connection.ask(where, "GetStatus", "a{sv}", [{}])
    return (time.monotonic() - begun_s) * 1e3


async def waits(address: str, begin_s: float, seconds: float) -> Waits:
    """Ask in turns, for a while."""
    connection = await bus.connected(address)
    waits_ms = Waits([], [], [])
    await asyncio.sleep(max(0.0, begin_s - time.monotonic()))
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        waits_ms.same.append(await took_ms(connection, bus.WHERE))
        if len(waits_ms.same) % CALLS_PER_S == 0:
            begun_s = time.monotonic()
            another = await Connection.connect(address, lambda _: None, lambda _: None)
            await took_ms(another, bus.WHERE)
            waits_ms.new.append((time.monotonic() - begun_s) * 1e3)
            another.close()
        await asyncio.sleep(0.5 / CALLS_PER_S)
        waits_ms.echo.append(await took_ms(connection, ECHO))
        await asyncio.sleep(0.5 / CALLS_PER_S)
    connection.close()
    return Waits(*(sorted(times) for times in waits_ms))


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
        same, new, echoes = measure.in_child(lambda: asyncio.run(waits(address, begin_s, seconds)), LIMIT_S)
        spent_s = (measure.cpu_ns(pid) - before_ns) / measure.SECOND_NS
    return {
        f"{name}_median_ms": round(same[len(same) // 2], 2),
        f"{name}_p99_ms": round(same[len(same) * 99 // 100], 2),
        f"{name}_max_ms": round(same[-1], 2),
        f"{name}_echo_median_ms": round(echoes[len(echoes) // 2], 2),
        f"{name}_echo_p99_ms": round(echoes[len(echoes) * 99 // 100], 2),
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
        raise Error("only root can be several users; expected being root")
    figures: Figures = {"seconds": seconds, "connections": count}
    with bus.a_bus() as address:
        os.chmod(os.path.dirname(address.removeprefix("unix:path=")), 0o755)  # noqa: S103  for the strangers
        os.chmod(address.removeprefix("unix:path="), 0o777)  # noqa: S103  as above
        with (
            measure.forked(partial(echo, address), LIMIT_S),
            measure.daemon(LIMIT_S * 100, arguments=("--user", "--bus", address)) as daemon,
        ):
            daemon.wait_for_ring()
            measure.in_child(partial(bus.as_client, address, bus.some_series), LIMIT_S)
            measure.in_child(partial(wait_for_echo, address), LIMIT_S)
            time.sleep(min(seconds, SETTLE_S))
            for kind in FLOODS.items():
                figures |= flooded(address, bus.bus_pid(daemon), kind, seconds, count)
            measure.end(daemon.process)
            figures["missed"] = measure.in_child(partial(missed, daemon.folders), LIMIT_S)
    answered = [name for name in FLOODS if name != "unanswered"]
    worst = max(answered, key=lambda name: figures[f"{name}_p99_ms"])
    return {
        **figures,
        "worst": worst,
        "worst_p99_ms": figures[f"{worst}_p99_ms"],
        "worst_echo_p99_ms": figures[f"{worst}_echo_p99_ms"],
        "new_max_ms": max(figures[f"{name}_new_max_ms"] or 0 for name in FLOODS),
    }


WHAT = ("median", "p99", "max", "new_max", "echo_median", "echo_p99")


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = [
        (
            f"flood: {name}",
            ", ".join(f"{what} {figures[f'{name}_{what}_ms']} ms" for what in WHAT),
        )
        for name in FLOODS
    ]
    return [*lines, ("ticks missed", str(figures["missed"]))]


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
