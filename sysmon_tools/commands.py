# SPDX-License-Identifier: Apache-2.0
"""The commands of sysmonctl: each asks the service and gives what it found, for JSON and for people."""

import argparse
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import isnan
from typing import Any

from sysmon_tools.client import Client, variants
from sysmon_tools.show import CommandOutput, duration, fields, interval, megabytes, table, waiting
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.terminal import put
from sysmond.base.timespec import format_time, parse_moment, parse_span, parse_step
from sysmond.bus.wire.names import BUS_NAME, OBJECT_PATH, PROBE, probe_path
from sysmond.errors import NotPermittedError, UsageError, nearest

NO_OPTIONS: dict[str, Any] = {}
Command = Callable[[Client, argparse.Namespace], Awaitable[CommandOutput | None]]


async def status(client: Client, _: argparse.Namespace) -> CommandOutput:
    """How the recorder is."""
    found = {"bus_name": BUS_NAME, "object_path": OBJECT_PATH, **await client.call("GetStatus", "a{sv}", NO_OPTIONS)}

    def show() -> None:
        parts = ", ".join(f"{part} {pid}" for part, pid in found["pids"].items())
        probes = ", ".join(f"{count} {state}" for state, count in sorted(found["probes"].items()))
        fields(
            [
                ("state", found["state"]),
                ("version", found["version"]),
                ("up", duration(found["uptime_ns"] / SECOND_NS)),
                ("parts", parts),
                ("probes", probes),
                ("archive", found["state_dir"]),
                ("in RAM", found["runtime_dir"]),
                ("bus", f"{found['bus_name']} {found['object_path']}"),
            ]
        )

    return CommandOutput(found, show)


async def list_(client: Client, options: argparse.Namespace) -> CommandOutput:
    """What there is."""
    return await LISTS[options.what](client)


async def _list_probes(client: Client) -> CommandOutput:
    rows = await client.call("ListProbes", "a{sv}", NO_OPTIONS)
    names = ("name", "state", "reason", "lane", "interval_ns", "sensitivity", "object_path")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return CommandOutput(
        found,
        lambda: table(
            ("probe", "state", "every", "lane", "sensitivity", "reason"),
            [
                (each["name"], each["state"], interval(each["interval_ns"]), each["lane"], each["sensitivity"],
                 each["reason"])
                for each in found
            ],
        ),
    )  # fmt: skip


async def _probes(client: Client) -> list[dict[str, Any]]:
    """Every probe's properties, in order of their names."""
    objects = await client.objects()
    return sorted((each[PROBE] for each in objects.values() if PROBE in each), key=lambda each: str(each["Name"]))


async def _list_tables(client: Client) -> CommandOutput:
    probes = await _probes(client)
    found = [
        {
            "name": each["Name"],
            "per": each["Per"],
            "doc": each["Doc"],
            "metrics": len(each["Metrics"]),
            "sensitivity": each["Sensitivity"],
        }
        for each in probes
    ]
    return CommandOutput(
        found,
        lambda: table(
            ("table", "a row is about", "metrics", "sensitivity", "it tells"),
            [
                (each["name"], each["per"] or "the whole system", str(each["metrics"]), each["sensitivity"],
                 each["doc"])
                for each in found
            ],
        ),
    )  # fmt: skip


async def _list_metrics(client: Client) -> CommandOutput:
    found: list[dict[str, Any]] = []
    for each in await _probes(client):
        if each["State"] == "active":
            with suppress(UsageError, NotPermittedError):  # It has no rows now, or none that the caller may see.
                found += await _metrics(client, [each["Name"]])
    return CommandOutput(
        found,
        lambda: table(
            ("path", "unit", "semantics", "every", "sensitivity"),
            [
                (each["path"], each["unit"], each["semantics"], f"{each['interval_s']:g}s", each["sensitivity"])
                for each in found
            ],
        ),
    )


async def _metrics(client: Client, patterns: Sequence[str]) -> list[dict[str, Any]]:
    """The series that patterns mean, asked for one pattern at a time: an answer has its bounds."""
    found = []
    for pattern in patterns:
        for ident, path, unit, semantics, of_class, interval_s, further in await client.call(
            "ListMetrics", "asa{sv}", [pattern], NO_OPTIONS
        ):
            sensitivity = {1: "public", 2: "restricted"}.get(of_class, "unknown")
            told = {"id": ident, "path": path, "unit": unit, "semantics": semantics, "sensitivity": sensitivity}
            found.append({**told, "interval_s": interval_s, **further})
    return found


async def _list_clients(client: Client) -> CommandOutput:
    rows = await client.call("ListClients", "a{sv}", NO_OPTIONS)
    found = [dict(zip(("name", "uid", "pid", "calls", "dropped"), row, strict=True)) for row in rows]
    return CommandOutput(found, lambda: _table_of(found))


async def _list_boots(client: Client) -> CommandOutput:
    rows = await client.call("ListBoots", "a{sv}", NO_OPTIONS)
    found = [dict(zip(("boot", "start_ns", "end_ns"), row, strict=False)) for row in rows]
    return CommandOutput(
        found,
        lambda: table(
            ("boot", "from", "to"),
            [(each["boot"], format_time(each["start_ns"]), format_time(each["end_ns"])) for each in found],
        ),
    )


async def _list_pins(client: Client) -> CommandOutput:
    rows = await client.call("ListPins", "a{sv}", NO_OPTIONS)
    found = [dict(zip(("start_ns", "end_ns", "why", "by"), row, strict=True)) for row in rows]
    return CommandOutput(
        found,
        lambda: table(
            ("from", "to", "by", "why"),
            [
                (format_time(each["start_ns"]), format_time(each["end_ns"]), each["by"], each["why"])
                for each in found
            ],
        ),
    )  # fmt: skip


async def enable(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Let a probe record."""
    await client.call("EnableProbe", "sa{sv}", options.name, NO_OPTIONS)
    return await _changed(client, options.name)


async def disable(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Let a probe record no more."""
    await client.call("DisableProbe", "sa{sv}", options.name, NO_OPTIONS)
    return await _changed(client, options.name)


async def set_(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Change how often a probe is read."""
    interval_ns = 0 if options.value == "default" else parse_step(options.value)
    await client.call("SetInterval", "sta{sv}", options.name, interval_ns, NO_OPTIONS)
    return await _changed(client, options.name)


async def reset(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Forget what is held against a probe."""
    await client.call("ResetProbe", "sa{sv}", options.name, NO_OPTIONS)
    said = f"{options.name}: nothing is held against it any more; read again at its next tick"
    return CommandOutput({"name": options.name, "reset": True}, lambda: put(said))


async def _changed(client: Client, name: str) -> CommandOutput:
    found = next(each for each in (await _list_probes(client)).found if each["name"] == name)
    said = f"{name}: {found['state']}, every {interval(found['interval_ns'])}, {found['lane']} lane"
    return CommandOutput(found, lambda: put(said))


async def show(client: Client, options: argparse.Namespace) -> CommandOutput:
    """All about a probe."""
    probes = await _probes(client)
    known = [str(each["Name"]) for each in probes]
    if options.name not in known:
        raise UsageError(f"probe {options.name!r}: there is none{nearest(options.name, known)}")
    listed = next((each for each in (await _list_probes(client)).found if each["name"] == options.name), None)
    # The list tells the reason as far as the caller may know it; the object, as far as everybody may.
    found = probes[known.index(options.name)] | ({} if listed is None else {"Reason": listed["reason"]})

    def told() -> None:
        said = [(name, found[name]) for name in ("Name", "Doc", "State", "Reason", "Plugin", "Lane", "Sensitivity")]
        fields(
            [
                *((name.lower(), str(value)) for name, value in said if value),
                ("every", interval(found["Interval"])),
                *((f"option {name}", str(value)) for name, value in found["Options"].items()),
                *((f"cost {name}", f"{value:.6g}") for name, value in found["Cost"].items()),
                ("object", probe_path(found["Name"])),
            ]
        )
        put("")
        table(
            ("metric", "unit", "semantics", "meaning"),
            [(name, unit, semantics, doc) for name, unit, semantics, doc, _ in found["Metrics"]],
        )

    return CommandOutput(found, told)


async def flush(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Have everything written to the disk; it may have to wait for it."""
    began_s = time.monotonic()
    if sys.stderr.isatty() and not options.json:
        with waiting("writing to the disk"):
            await client.call("Flush", "a{sv}", NO_OPTIONS)
    else:
        await client.call("Flush", "a{sv}", NO_OPTIONS)
    found = {"flushed": True, "seconds": round(time.monotonic() - began_s, 3)}
    return CommandOutput(found, lambda: put(f"flushed in {found['seconds']:.2f} s"))


async def reload(client: Client, _: argparse.Namespace) -> CommandOutput:
    """Have the configuration read again."""
    outcome = await client.call("Reload", "a{sv}", NO_OPTIONS)
    behind: dict[str, str] = outcome.get("behind", {})

    def told() -> None:
        put("configuration: read again")
        for part, why in behind.items():
            put(f"{part}: not yet: {why}")

    return CommandOutput({"reloaded": True, "behind": behind}, told)


async def config(client: Client, _: argparse.Namespace) -> CommandOutput:
    """Every setting, and where it is said."""
    rows = await client.call("GetConfig", "a{sv}", NO_OPTIONS)
    found = [
        {"key": key, "value": value, "origin": f"{file}:{line}" if file else "default"}
        for key, value, file, line in rows
    ]
    return CommandOutput(found, lambda: _table_of(found))


async def budget(client: Client, _: argparse.Namespace) -> CommandOutput:
    """How many days each tier keeps."""
    rows = await client.call("GetBudget", "a{sv}", NO_OPTIONS)
    names = ("budget_bytes", "used_bytes", "bytes_per_day", "days")
    found: dict[str, dict[str, Any]] = {
        tier: {name: None if isnan(value) else value for name, value in zip(names, values, strict=True)}
        for tier, *values in rows
    }

    def told() -> None:
        table(
            ("tier", "budget", "used", "a day", "keeps"),
            [
                (
                    tier,
                    megabytes(each["budget_bytes"]),
                    megabytes(each["used_bytes"]),
                    "–" if each["bytes_per_day"] is None else megabytes(each["bytes_per_day"]),
                    "unknown yet" if each["days"] is None else f"{each['days']:.0f} days",
                )
                for tier, each in found.items()
            ],
        )

    return CommandOutput(found, told)


async def pin(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Keep a span as it was recorded."""
    start_ns, end_ns = parse_span(options.start, options.end, clock.relation())
    await client.call("Pin", "xxsa{sv}", start_ns, end_ns, " ".join(options.why.split()), NO_OPTIONS)
    found = {"start_ns": start_ns, "end_ns": end_ns, "why": options.why}
    return CommandOutput(found, lambda: put(f"pinned {format_time(start_ns)} to {format_time(end_ns)}"))


async def unpin(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Release what is pinned."""
    if (options.at is None) == (not options.all):
        raise UsageError("a T or --all; expected one of the two")
    at_ns = 0 if options.all else parse_moment(options.at, clock.relation())
    await client.call("Unpin", "xa{sv}", at_ns, variants({"all": ("b", options.all)}))
    return CommandOutput({"released": True}, lambda: put("released"))


async def mark(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Put a marker into the recording."""
    text = " ".join(options.text)
    await client.call("Mark", "sa{sv}", text, NO_OPTIONS)
    return CommandOutput({"marked": text}, lambda: put(f"marked {text!r}"))


async def events(client: Client, options: argparse.Namespace) -> CommandOutput | None:
    """What happened; with ``--follow`` from now on, until interrupted."""
    start_ns, end_ns = parse_span(options.start, options.end, clock.relation())
    if not options.follow:
        rows = await client.call("GetEvents", "xxa{sv}", start_ns, end_ns, NO_OPTIONS)
        found = [_event(row) for row in rows]
        return CommandOutput(
            found,
            lambda: table(
                ("time", "kind", "subject", "text"),
                [(format_time(each["time_ns"]), each["kind"], each["subject"], each["text"]) for each in found],
            ),
        )
    async for row in client.signals(OBJECT_PATH, "Event"):
        each = _event(row)
        if options.json:
            put(json.dumps(each))
        else:
            words = (format_time(each["time_ns"]), each["kind"], each["subject"], each["text"])
            put("  ".join(words))
        sys.stdout.flush()
    return None


def _event(row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(("time_ns", "kind", "subject", "text"), row, strict=False))


async def overhead(client: Client, _: argparse.Namespace) -> CommandOutput:
    """What sysmond costs: since each part started, and a second of it."""
    found = await client.call("GetCost", "a{sv}", NO_OPTIONS)
    ticks_s = (await client.call("GetStatus", "a{sv}", NO_OPTIONS))["uptime_ns"] / SECOND_NS

    def told() -> None:
        parts = {name: each for name, each in found.items() if not name.startswith("probe:")}
        table(
            ("part", "CPU", "a second", "RSS", "late", "missed", "dropped"),
            [
                (
                    name,
                    f"{each.get('cpu', 0.0):.2f} s",
                    f"{each.get('cpu', 0.0) / max(1.0, ticks_s) * 1000:.2f} ms",
                    f"{each['rss'] / 2**20:.1f} MiB" if "rss" in each else "–",
                    f"{each['lateness'] * 1000:.2f} ms" if "lateness" in each else "–",
                    f"{each.get('missed', 0):.0f}",
                    f"{each.get('dropped', 0):.0f}",
                )
                for name, each in sorted(parts.items())
            ],
        )
        put("")
        costs = sorted(
            ((name.removeprefix("probe:"), each) for name, each in found.items() if name.startswith("probe:")),
            key=lambda each: -each[1].get("duration", 0.0),
        )
        table(
            ("probe", "time", "a second", "failures"),
            [
                (
                    name,
                    f"{each.get('duration', 0.0):.3f} s",
                    f"{each.get('duration', 0.0) / max(1.0, ticks_s) * 1000:.3f} ms",
                    f"{each.get('failures', 0):.0f}",
                )
                for name, each in costs
            ],
        )

    return CommandOutput(found, told)


async def doctor(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Each source, and what would help where it is not there."""
    from sysmon_tools.doctor import examine  # noqa: PLC0415  seldom asked for

    status_ = await client.call("GetStatus", "a{sv}", NO_OPTIONS)
    polkit = None if options.user else await client.has("org.freedesktop.PolicyKit1")
    found = examine((await _list_probes(client)).found, status_, polkit=polkit)
    return CommandOutput(
        found,
        lambda: table(
            ("source", "", "because", "what helps"),
            [(each["source"], each["state"], each["reason"], each["help"]) for each in found],
        ),
    )


async def watch(client: Client, options: argparse.Namespace) -> None:
    """The newest values, each second; on a terminal in place, elsewhere a line a time."""
    from sysmon_tools.watch import run  # noqa: PLC0415  as above

    await run(client, await _metrics(client, options.paths), options)


def _table_of(found: Sequence[dict[str, Any]]) -> None:
    table(tuple(found[0]) if found else (), [[str(value) for value in each.values()] for each in found])


LISTS: dict[str, Callable[[Client], Awaitable[CommandOutput]]] = {
    "probes": _list_probes,
    "tables": _list_tables,
    "metrics": _list_metrics,
    "clients": _list_clients,
    "boots": _list_boots,
    "pins": _list_pins,
}
COMMANDS: dict[str, Command] = {
    "status": status,
    "list": list_,
    "enable": enable,
    "disable": disable,
    "set": set_,
    "reset": reset,
    "show": show,
    "flush": flush,
    "reload": reload,
    "config": config,
    "budget": budget,
    "pin": pin,
    "unpin": unpin,
    "mark": mark,
    "events": events,
    "overhead": overhead,
    "doctor": doctor,
    "watch": watch,
}
