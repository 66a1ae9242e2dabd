# SPDX-License-Identifier: Apache-2.0
"""Storms of what is announced: whether a tick is missed, and all of it on record; and what listening costs at rest.

The whole daemon runs as root on this machine, all as it is by default. One storm comes after the other:

- **Devices**: 10,000 events of the kernel in 5 s, asked for by writing ``add`` into the file ``uevent`` of the loopback
  interface.
- **Kernel messages**: 10,000 lines a second for 5 s, written to /dev/kmsg, with the limit of what programs may write
  there lifted meanwhile. How many were sent the kernel's own numbers say.
- **Units**: 1,000 changes a second for 5 s, announced by a program that owns systemd's name on a bus of its own. The
  folder by which a systemd is known is made in a mount namespace, where this machine has none.

What is on record is read back: events, counters, and what they say was passed over. Their sum is compared with what was
sent. Ticks that were missed are those that both lanes counted by themselves.

At rest two daemons run over the same seconds, one without the tables that do nothing but tell of events: the difference
is told. Of memory it is told for one without those of them, too, that hear D-Bus, which could live in the bus part.
"""

import asyncio
import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import bus, measure, memory, sensing
from benchmarks.measure import SECOND_NS, Daemon, Figures
from sysmond.base.model import ABSENT, Lane
from sysmond.bus.wire.adapter import Call, Connection
from sysmond.bus.wire.values import Variant
from sysmond.machine.folders import Folders
from sysmond.sampler.device_groups import QUIET_NS

if TYPE_CHECKING:
    from sysmond.history import Archive

SECONDS, REST_S = 5, 60
DEVICES_PER_S, MESSAGES_PER_S, UNITS_PER_S = 2000, 10_000, 1000
# A storm comes in so many pieces a second.
PIECES_PER_S = 100
# Imports, the first reading of all tables, and what the start itself tells.
SETTLE_S = 10
# Until the tables that are read every minute were read for the first time, which is dearer than any time after.
REST_SETTLE_S = 75
# After a storm: until the lane has ticked, twice.
AFTER_S = 3.0
# The background lane says every 30 s how many ticks it missed.
COUNTED_S = 33
# Tables that hear the bus look for it every half minute.
HEARD_S = 90
LIMIT_S = 600
LOOPBACK = "/sys/class/net/lo/uevent"
KMSG, KMSG_LIMIT, MESSAGE_BYTES = "/dev/kmsg", "/proc/sys/kernel/printk_devkmsg", 8192
# Tables of sizes and counts that are read anyway: what they tell of is a difference of two numbers.
MEASURING = {"cgroup_memory"}
# What is heard from services.
BY_DBUS = ("session", "unit")
SYSTEMD, SYSTEMD_FOLDER, UNITS = "org.freedesktop.systemd1", "/run/systemd", 100
THE_BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18


# --- What is sent


class Meter:
    """What a process costs from now on."""

    def __init__(self, pid: int) -> None:
        """Begin."""
        self._pid = pid
        self._since_ns, self._begin_s, self._cpu_ns = time.time_ns(), time.monotonic(), measure.cpu_ns(pid)

    def figures(self, sent: int) -> Figures:
        """Since when, how long, how much was sent, and processor time."""
        cpu_ms = measure.ms(measure.cpu_ns(self._pid) - self._cpu_ns, 1)
        took_s = round(time.monotonic() - self._begin_s, 2)
        return {"since_ns": self._since_ns, "took_s": took_s, "sent": sent, "background_cpu_ms": cpu_ms}


def paced(per_s: int, seconds: int) -> Iterator[int]:
    """How many to send now, in pieces, so that they are so many a second; waits between them."""
    begin_s, sent = time.monotonic(), 0
    for piece in range(1, seconds * PIECES_PER_S + 1):
        wanted = per_s * piece // PIECES_PER_S
        yield wanted - sent
        sent = wanted
        time.sleep(max(0.0, begin_s + piece / PIECES_PER_S - time.monotonic()))


def announce_devices(pid: int, seconds: int) -> Figures:
    """Have the kernel announce a device that is there already, again and again."""
    meter, sent = Meter(pid), 0
    descriptor = os.open(LOOPBACK, os.O_WRONLY)
    try:
        for count in paced(DEVICES_PER_S, seconds):
            for _ in range(count):
                os.write(descriptor, b"add")
            sent += count
        time.sleep(AFTER_S)
        os.write(descriptor, b"add")  # What was lost is known by the next that comes.
    finally:
        os.close(descriptor)
    time.sleep(QUIET_NS / SECOND_NS + AFTER_S)  # The last one might have parts.
    return meter.figures(sent + 1)


def write_messages(pid: int, seconds: int) -> Figures:
    """Write lines that the kernel passes on as its messages; those of others count, too."""
    line = b"<14>sysmond: one of many lines of a benchmark\n"
    descriptor = os.open(KMSG, os.O_WRONLY)
    try:
        os.write(descriptor, line)  # What was passed over before is known by the next that comes.
        time.sleep(AFTER_S)
        before, meter = newest_message(), Meter(pid)
        with unlimited_messages():
            for count in paced(MESSAGES_PER_S, seconds):
                for _ in range(count):
                    os.write(descriptor, line)
        time.sleep(AFTER_S)
        os.write(descriptor, line)  # As above.
    finally:
        os.close(descriptor)
    time.sleep(AFTER_S)
    return meter.figures(newest_message() - before)


@contextmanager
def unlimited_messages() -> Iterator[None]:
    """Have the kernel take all that programs write to /dev/kmsg."""
    with open(KMSG_LIMIT, encoding="ascii") as file:
        before = file.read().strip()
    _put(KMSG_LIMIT, "on")
    try:
        yield
    finally:
        _put(KMSG_LIMIT, before)


def _put(path: str, word: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{word}\n")  # Without a line end the kernel refuses it.


def newest_message() -> int:
    """The number of the newest message of the kernel."""
    number = 0
    descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                number = int(os.read(descriptor, MESSAGE_BYTES).split(b",")[1])
            except BrokenPipeError:  # What was to come was overwritten.
                continue
    except BlockingIOError:
        return number
    finally:
        os.close(descriptor)


async def announce_units(address: str, pid: int, seconds: int) -> Figures:
    """Own the name of systemd on a bus, and say that units start and stop."""
    is_heard = asyncio.Event()

    def refuse(call: Call) -> None:
        is_heard.set()
        call.refuse(f"{SYSTEMD}.No", "none")

    connection = await Connection.connect(address, refuse, lambda _: None)
    await connection.ask(THE_BUS, "RequestName", "su", [SYSTEMD, 0])
    await asyncio.wait_for(is_heard.wait(), HEARD_S)  # The lane asks who is there, once it listens.
    await asyncio.sleep(AFTER_S)
    meter, begin_s, sent = Meter(pid), time.monotonic(), 0
    for piece in range(1, seconds * PIECES_PER_S + 1):
        while sent < UNITS_PER_S * piece // PIECES_PER_S:
            say(connection, sent)
            sent += 1
        await asyncio.sleep(max(0.0, begin_s + piece / PIECES_PER_S - time.monotonic()))
    await asyncio.sleep(AFTER_S)
    connection.close()
    return meter.figures(sent)


def say(connection: Connection, number: int) -> None:
    """Say that one of some units has started, and the next time that it has stopped."""
    state, sub = (("active", "running"), ("inactive", "dead"))[number // UNITS % 2]
    entered = f"{state.capitalize()}EnterTimestamp"
    values = {
        "ActiveState": Variant("s", state),
        "SubState": Variant("s", sub),
        entered: Variant("t", time.time_ns() // 1000),
        f"{entered}Monotonic": Variant("t", time.monotonic_ns() // 1000),
    }
    path = f"/org/freedesktop/systemd1/unit/storm{number % UNITS}_2eservice"
    body = [f"{SYSTEMD}.Unit", values, []]
    connection.signal(path, "org.freedesktop.DBus.Properties", "PropertiesChanged", "sa{sv}as", body)


def have_systemds_folder() -> None:
    """Have the folder by which a systemd is known: where there is none, for this process and what it starts.

    :raises RuntimeError: where no namespace is to be had.
    """
    if os.path.isdir(f"{SYSTEMD_FOLDER}/system"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    refused = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    if refused or libc.mount(b"tmpfs", SYSTEMD_FOLDER.encode(), b"tmpfs", 0, None):
        raise RuntimeError(f"{SYSTEMD_FOLDER}: {os.strerror(ctypes.get_errno())}")
    os.mkdir(f"{SYSTEMD_FOLDER}/system")


# --- What is on record


class Kept(NamedTuple):
    """Where a storm is on record: the kinds of its events, and counters. ``number``: how many one event stands for."""

    kinds: tuple[str, ...]
    number: str
    counters: tuple[str, ...] = ()


STORMS = {
    "devices": Kept(("devices changed", "device added"), r"(\d+) events"),
    "messages": Kept((), "", ("kernel_message/*",)),
    "units": Kept(("unit started", "unit stopped"), r"(\d+) (?:at once|times)", ("unit/started", "unit/stopped")),
}
LOST = re.compile(r"(\d+) more, of whatever devices, were lost")
OVERRUNS = "unit/overruns"


def on_record(folders: Folders, storm: str, since_ns: int, took_s: float) -> Figures:
    """What a recorder has of a storm that began then (UTC): by events, by counters, and what was passed over."""
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not in the process that starts the daemons

    kept = STORMS[storm]
    archive = history.open(state_dir=folders.state, runtime_dir=folders.runtime)
    events = archive.events(since_ns, since_ns + round(took_s * SECOND_NS))
    mine = [event for event in events if event.kind in kept.kinds]
    numbers = [re.search(kept.number, event.text) for event in mine] if kept.number else []
    figures: Figures = {
        "events": len(mine),
        "by_events": sum(int(match[1]) if match else 1 for match in numbers),
        "lost": sum(int(match[1]) for event in mine if (match := LOST.search(event.text))),
    }
    if kept.counters:
        grown = growth(archive, kept.counters, since_ns)
        figures["lost"] += grown.pop("kernel_message/missed", 0)
        figures["by_counters"] = sum(grown.values())
    if storm == "units":
        figures["overruns"] = sum(growth(archive, (OVERRUNS,), since_ns).values())
    return figures


def growth(archive: "Archive", paths: tuple[str, ...], since_ns: int) -> dict[str, int]:
    """By how much counters grew since then, as recorded; what was not there yet, from nothing."""
    result, grown = archive.select(*paths, raw=True), {}
    times_ns = result.times_ns.tolist()
    for column in result.columns:
        values = [] if column.integers is None else column.integers.tolist()
        course = [(at, value) for at, value in zip(times_ns, values, strict=False) if value != ABSENT]
        before = [value for at, value in course if at <= since_ns]
        grown[column.path] = course[-1][1] - (before[-1] if before else 0) if course else 0
    return grown


def missed(folders: Folders, since_ns: int) -> Figures:
    """How many ticks both lanes missed since then, and how late the real-time lane was at most."""
    from sysmond import history  # noqa: PLC0415  as above

    archive = history.open(state_dir=folders.state, runtime_dir=folders.runtime)
    grown = growth(archive, ("self/missed@sampler", "self/missed@background"), since_ns)
    late = archive.select("self/lateness@sampler", raw=True, start=since_ns).column("self/lateness@sampler").integers
    return {
        "missed": {path.partition("@")[2]: count for path, count in grown.items()},
        "lateness_max_ms": 0.0 if late is None else round(max(late.tolist()) / 1000, 1),
    }


# --- Measuring


def storms(seconds: int) -> Figures:
    """Have one storm after the other come over a daemon."""
    with ExitStack() as stack:
        address = stack.enter_context(bus.a_bus())
        stack.enter_context(sensing.surroundings({"DBUS_SYSTEM_BUS_ADDRESS": address}))
        daemon = stack.enter_context(measure.daemon(LIMIT_S, arguments=("--bus", "none")))
        daemon.wait_for_ring()
        time.sleep(min(2 * seconds, SETTLE_S))
        pid, begun_ns = daemon.pids()["background"], time.time_ns()
        found: dict[str, Figures] = {}
        for name, send in (
            ("devices", partial(announce_devices, pid, seconds)),
            ("messages", partial(write_messages, pid, seconds)),
            ("units", lambda: asyncio.run(announce_units(address, pid, seconds))),
        ):
            figures: Figures = measure.in_child(send, LIMIT_S)
            since_ns = figures.pop("since_ns")
            seen = measure.in_child(partial(on_record, daemon.folders, name, since_ns, figures["took_s"]), LIMIT_S)
            found[name] = {**figures, **seen}
        time.sleep(COUNTED_S)
        return {"storms": found, **measure.in_child(partial(missed, daemon.folders, begun_ns), LIMIT_S)}


def telling_tables() -> list[str]:
    """The tables of the background lane whose probes tell of events by themselves, and are there for that."""
    offered = sensing.probes_of(sensing.all_plugins())
    tables = {probe.table.name for probe in offered if probe.told_kinds and probe.lane is Lane.BACKGROUND}
    return sorted(tables - MEASURING)


def at_rest(seconds: int) -> Figures:
    """What two daemons cost over the same seconds, one without the tables that only tell of events.

    Memory of one without those by D-Bus is looked at last: beside a third daemon both would be dearer.
    """
    configs = [
        json.dumps({"probes": {table: {"enabled": False} for table in tables}})
        for tables in ((), telling_tables(), BY_DBUS)
    ]
    with bus.a_bus() as address, sensing.surroundings({"DBUS_SYSTEM_BUS_ADDRESS": address}), ExitStack() as stack:
        daemons: list[Daemon] = []

        def start(config: str) -> None:
            daemons.append(stack.enter_context(measure.daemon(LIMIT_S, config, arguments=("--bus", "none"))))
            daemons[-1].wait_for_ring()

        for config in configs[:2]:
            start(config)
        time.sleep(REST_SETTLE_S)
        begun = [sensing.counted(daemon) for daemon in daemons]
        time.sleep(seconds)
        spent = [sensing.lanes(daemon, seconds, before) for daemon, before in zip(daemons, begun, strict=True)]
        start(configs[2])
        time.sleep(REST_SETTLE_S)
        mb = [memory.pss_bytes(daemon.pids()["background"]) / 1e6 for daemon in daemons]
    return {
        "more_ms_per_s": round(spent[0]["background"] - spent[1]["background"], 4),
        "more_wakeups_per_s": round(spent[0]["wakeups"] - spent[1]["wakeups"], 4),
        "more_mb": round(mb[0] - mb[1], 4),
        "more_mb_without_dbus": round(mb[2] - mb[1], 4),
    }


def measured(seconds: int, rest_s: int) -> Figures:
    """Measure storms and rest.

    :raises RuntimeError: where somebody else than root asks.
    """
    if os.geteuid():
        raise RuntimeError("events of the kernel are announced by root: expected root")
    have_systemds_folder()
    return {"seconds": seconds, "rest_s": rest_s, **storms(seconds), **at_rest(rest_s)}


def agrees(figures: Figures, storm: str) -> bool:
    """Whether all that was sent is on record, counted or passed over and counted."""
    one = figures["storms"][storm]
    kept = one.get("by_counters", one["by_events"])
    return bool(one["sent"] == kept + one["lost"])


def said(figures: Figures, storm: str) -> str:
    """A storm in words."""
    one = figures["storms"][storm]
    kept = one.get("by_counters", one["by_events"])
    lost = f", {one['lost']} passed over" if one["lost"] else ""
    return f"{kept} of {one['sent']} in {one['events']} events{lost}; {one['background_cpu_ms']:.0f} ms"


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = [(f"on record of {storm}; CPU of the background lane", said(figures, storm)) for storm in STORMS]
    ticks = ", ".join(f"{count} by {lane}" for lane, count in figures["missed"].items())
    more = f"{figures['more_ms_per_s']:+.3f} ms and {figures['more_wakeups_per_s']:+.2f} wake-ups a second"
    mb = f"{figures['more_mb']:+.2f} MB, {figures['more_mb_without_dbus']:+.2f} of it without D-Bus,"
    return [
        *lines,
        ("ticks missed", f"{ticks}; the real-time lane was {figures['lateness_max_ms']} ms late at most"),
        ("at rest, with what tells of events", f"{more}, {mb} in {figures['rest_s']} s"),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"of each; default {SECONDS}")
    parser.add_argument("--rest", type=measure.at_least_one, default=REST_S, help=f"seconds; default {REST_S}")
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds, options.rest), rows, as_json=options.json)
