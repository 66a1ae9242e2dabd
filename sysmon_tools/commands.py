# SPDX-License-Identifier: Apache-2.0
"""The commands of sysmonctl: each asks the service and gives its answer, for JSON and for people."""

import argparse
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from math import isnan
from typing import Any

from sysmon_tools.client import Client, variants
from sysmon_tools.command_output import CommandOutput, duration, fields, interval, megabytes, table, waiting
from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.base.terminal import put, say
from sysmond.base.timespec import format_time, parse_moment, parse_span
from sysmond.bus.wire.names import BUS_NAME, OBJECT_PATH, PROBE, probe_path
from sysmond.errors import UsageError, nearest
from sysmond.machine.commandline import spelled_mark

DEFAULT = "default"
NO_OPTIONS: dict[str, Any] = {}
Command = Callable[[Client, argparse.Namespace], Coroutine[Any, Any, CommandOutput | int | None]]


async def status(client: Client, _: argparse.Namespace) -> CommandOutput:
    """How the recorder is."""
    answer = {"bus_name": BUS_NAME, "object_path": OBJECT_PATH, **await client.call("GetStatus", "a{sv}", NO_OPTIONS)}
    if not client.is_on_bus:
        answer |= {"bus_name": "", "object_path": ""}
    costs = await client.call("GetCost", "a{sv}", NO_OPTIONS)
    answer["dropped"] = {
        name.removeprefix("probe:"): int(cost["dropped"])
        for name, cost in sorted(costs.items())
        if name.startswith("probe:") and cost.get("dropped")
    }
    bus = (
        f"{answer['bus_name']} {answer['object_path']}"
        if client.is_on_bus
        else "none (start sysmond with --bus=system or --bus=session)"
    )

    def show() -> None:
        parts = ", ".join(f"{part} {pid}" for part, pid in answer["pids"].items())
        probes = ", ".join(f"{count} {state}" for state, count in sorted(answer["probes"].items()))
        fields(
            [
                ("state", answer["state"]),
                *(("lacks", line) for line in answer.get("lacks", ())),
                *(
                    (
                        "dropped",
                        f"{table_}: {lost} values or rows; why: the gaps of 'sysmon-extract {table_} --from=boot'",
                    )
                    for table_, lost in answer["dropped"].items()
                ),
                ("version", answer["version"]),
                ("up", duration(answer["uptime_ns"] / SECOND_NS)),
                ("parts", parts),
                ("probes", probes),
                ("archive", answer["state_dir"]),
                ("in RAM", answer["runtime_dir"]),
                ("bus", bus),
            ]
        )

    return CommandOutput(answer, show)


async def list_(client: Client, options: argparse.Namespace) -> CommandOutput:
    """What there is."""
    return await LISTS[options.what](client)


async def _list_probes(client: Client) -> CommandOutput:
    rows = await client.call("ListProbes", "a{sv}", NO_OPTIONS)
    names = ("name", "state", "reason", "lane", "interval_ns", "sensitivity", "object_path")
    probes = [dict(zip(names, row, strict=True)) for row in rows]
    return CommandOutput(
        probes,
        lambda: table(
            ("probe", "state", "every", "lane", "sensitivity", "reason"),
            [
                (probe["name"], probe["state"], interval(probe["interval_ns"]), probe["lane"], probe["sensitivity"],
                 probe["reason"])
                for probe in probes
            ],
        ),
    )  # fmt: skip


async def probes_of(client: Client) -> list[dict[str, Any]]:
    """Every probe's properties, in order of their names."""
    objects = await client.objects()
    return sorted(
        (interfaces[PROBE] for interfaces in objects.values() if PROBE in interfaces),
        key=lambda probe: str(probe["Name"]),
    )


async def _list_tables(client: Client) -> CommandOutput:
    probes = await probes_of(client)
    tables = [
        {
            "name": probe["Name"],
            "per": probe["Per"],
            "doc": probe["Doc"],
            "metrics": len(probe["Metrics"]),
            "sensitivity": probe["Sensitivity"],
        }
        for probe in probes
    ]
    return CommandOutput(
        tables,
        lambda: table(
            ("table", "a row is about", "metrics", "sensitivity", "it tells"),
            [
                (listed["name"], listed["per"] or "the whole system", str(listed["metrics"]), listed["sensitivity"],
                 listed["doc"])
                for listed in tables
            ],
        ),
    )  # fmt: skip


async def _list_metrics(client: Client) -> CommandOutput:
    metrics = await _metrics(client, ())
    return CommandOutput(
        metrics,
        lambda: table(
            ("path", "unit", "semantics", "every", "sensitivity"),
            [
                (
                    metric["path"],
                    metric["unit"],
                    metric["semantics"],
                    f"{metric['interval_s']:g}s",
                    metric["sensitivity"],
                )
                for metric in metrics
            ],
        ),
    )


async def _metrics(client: Client, patterns: Sequence[str]) -> list[dict[str, Any]]:
    """The series that patterns mean, all where there are none, a page at a time: an answer has its bounds."""
    metrics = []
    for chosen in [[pattern] for pattern in patterns] or [[]]:
        after = ""
        while page := await client.call("ListMetrics", "asa{sv}", chosen, variants({"after": ("s", after)})):
            for ident, path, unit, semantics, of_class, interval_s, further in page:
                sensitivity = {1: "public", 2: "restricted"}.get(of_class, "unknown")
                metric = {"id": ident, "path": path, "unit": unit, "semantics": semantics, "sensitivity": sensitivity}
                metrics.append({**metric, "interval_s": interval_s, **further})
            after = page[-1][1]
    return metrics


async def _list_clients(client: Client) -> CommandOutput:
    rows = await client.call("ListClients", "a{sv}", NO_OPTIONS)
    clients = [dict(zip(("name", "uid", "pid", "calls", "dropped"), row, strict=True)) for row in rows]
    return CommandOutput(clients, lambda: _table_of(clients, "no clients"))


async def _list_boots(client: Client) -> CommandOutput:
    rows = await client.call("ListBoots", "a{sv}", NO_OPTIONS)
    boots = [dict(zip(("boot", "start_ns", "end_ns"), row, strict=False)) for row in rows]
    return CommandOutput(
        boots,
        lambda: table(
            ("boot", "from", "to"),
            [(boot["boot"], format_time(boot["start_ns"]), format_time(boot["end_ns"])) for boot in boots],
        ),
    )


async def _list_pins(client: Client) -> CommandOutput:
    rows = await client.call("ListPins", "a{sv}", NO_OPTIONS)
    pins = [dict(zip(("start_ns", "end_ns", "why", "by"), row, strict=True)) for row in rows]
    lines = [
        (format_time(pinned["start_ns"]), format_time(pinned["end_ns"]), pinned["by"], pinned["why"]) for pinned in pins
    ]
    return CommandOutput(pins, lambda: _table_or("nothing is pinned", ("from", "to", "by", "why"), lines))


async def enable(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Let a probe record."""
    await client.call("EnableProbe", "sa{sv}", options.name, NO_OPTIONS)
    return await _switched(client, options.name)


async def disable(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Let a probe record no more."""
    await client.call("DisableProbe", "sa{sv}", options.name, NO_OPTIONS)
    return await _switched(client, options.name)


async def set_(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Change a setting, of a probe or any other.

    :raises UsageError: where the words name none.
    """
    key, value = _setting(options.words)
    spelled = "" if value == DEFAULT else value
    outcome = await client.call("SetSetting", "ssa{sv}", key, spelled, NO_OPTIONS)
    now, origin = await _said(client, key)
    setting = {
        "key": key,
        "value": value if now is None else now,
        "origin": origin or "default",
        **_outcome(outcome),
    }

    understood = await _understood(client, key, str(setting["value"]))

    def show() -> None:
        put(f"{key}: {understood} ({_written(origin) if origin else 'default'})")
        _put_outcome(setting)

    return CommandOutput(setting, show)


async def _understood(client: Client, key: str, value: str) -> str:
    """A value as it was understood: of a number without a unit, an interval has one."""
    match key.split("."):
        case ["probes", name, "interval"] if value.replace(".", "", 1).isdecimal():
            listed = (await _list_probes(client)).document
            return next((interval(probe["interval_ns"]) for probe in listed if probe["name"] == name), value)
        case _:
            return value


def _setting(words: Sequence[str]) -> tuple[str, str]:
    """The key and the value that words mean: ``SECTION.KEY VALUE``, or ``[probe] NAME KEY VALUE``.

    :raises UsageError: where they mean none.
    """
    named = list(words[1:] if words[0] == "probe" and len(words) > 2 else words)  # noqa: PLR2004  a key and its value
    match named:
        case [key, value] if "." in key:
            return key, value
        case [name, key, value]:
            return f"probes.{name}.{key}", value
        case _:
            right = "expected KEY VALUE, such as tiers.1s.size 1GB, or NAME KEY VALUE, such as memory interval 5s"
            raise UsageError(f"set {' '.join(words)}: {right}")


async def reset(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Forget what is held against a probe."""
    await client.call("ResetProbe", "sa{sv}", options.name, NO_OPTIONS)
    said = f"{options.name}: released; it is read again at its next tick"
    return CommandOutput({"name": options.name, "reset": True}, lambda: put(said))


async def _said(client: Client, key: str) -> tuple[str | None, str]:
    """What is said of a key now, and in which file; None and nothing where no file says anything of it."""
    rows = await client.call("GetConfig", "a{sv}", NO_OPTIONS)
    return next(((row[1], row[2]) for row in rows if row[0] == key), (None, ""))


def _written(file: str) -> str:
    """Where a change lies: other recorders that read the same file take it over, too."""
    return f"written to {file}, for every recorder that reads it"


async def _switched(client: Client, name: str) -> CommandOutput:
    """What has become of a probe that was enabled or disabled, and where that is written."""
    _, origin = await _said(client, f"probes.{name}.enabled")
    return await _changed(client, name, f" ({_written(origin)})" if origin else "")


async def _changed(client: Client, name: str, remark: str = "") -> CommandOutput:
    probe = next(listed for listed in (await _list_probes(client)).document if listed["name"] == name)
    said = f"{name}: {probe['state']}, every {interval(probe['interval_ns'])}, {probe['lane']} lane{remark}"
    return CommandOutput(probe, lambda: put(said))


async def show(client: Client, options: argparse.Namespace) -> CommandOutput:
    """All about a probe."""
    probes = await probes_of(client)
    known = [str(probe["Name"]) for probe in probes]
    if options.name not in known:
        raise UsageError(f"there is no probe {options.name!r}{nearest(options.name, known)}")
    listed = next((row for row in (await _list_probes(client)).document if row["name"] == options.name), None)
    # The list tells the reason as far as the caller may know it; the object, as far as everybody may.
    properties = probes[known.index(options.name)] | ({} if listed is None else {"Reason": listed["reason"]})

    def show_probe() -> None:
        said = [
            (name, properties.get(name, ""))
            for name in ("Name", "Doc", "State", "Reason", "Plugin", "Lane", "Sensitivity", "Privilege")
        ]
        fields(
            [
                *((name.lower(), str(value)) for name, value in said if value),
                ("every", interval(properties["Interval"])),
                *((f"option {name}", str(value)) for name, value in properties["Options"].items()),
                *((f"cost {name}", f"{value:.6g}") for name, value in properties["Cost"].items()),
                ("object", probe_path(properties["Name"])),
            ]
        )
        put("")
        table(
            ("metric", "unit", "semantics", "meaning"),
            [(name, unit, semantics, doc) for name, unit, semantics, doc, _ in properties["Metrics"]],
        )

    return CommandOutput(properties, show_probe)


async def flush(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Have everything written to the disk; it may have to wait for it."""
    began_s = time.monotonic()
    if sys.stderr.isatty() and not options.json:
        with waiting("writing to the disk"):
            await client.call("Flush", "a{sv}", NO_OPTIONS)
    else:
        await client.call("Flush", "a{sv}", NO_OPTIONS)
    outcome = {"flushed": True, "seconds": round(time.monotonic() - began_s, 3)}
    return CommandOutput(outcome, lambda: put(f"flushed in {outcome['seconds']:.2f} s"))


async def reload(client: Client, _: argparse.Namespace) -> CommandOutput:
    """Have the configuration read again."""
    outcome = _outcome(await client.call("Reload", "a{sv}", NO_OPTIONS))

    def show() -> None:
        put("configuration: read again")
        _put_outcome(outcome)

    return CommandOutput({"reloaded": True, **outcome}, show)


def _outcome(outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {"behind": outcome.get("behind", {}), "remarks": outcome.get("remarks", [])}


def _put_outcome(outcome: Mapping[str, Any]) -> None:
    for part, why in outcome["behind"].items():
        put(f"{part}: not yet: {why}")
    for remark in outcome["remarks"]:
        say(remark, "sysmonctl")


async def config(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Every setting, and where it is said."""
    rows = await client.call("GetConfig", "a{sv}", NO_OPTIONS)
    settings = [
        {"key": key, "value": value, "origin": f"{file}:{line}" if file else "default"}
        for key, value, file, line in rows
        if file or not options.changed
    ]
    return CommandOutput(settings, lambda: _table_of(settings, "no file changes anything: all settings are defaults"))


async def budget(client: Client, _: argparse.Namespace) -> CommandOutput:
    """How many days each tier keeps."""
    rows = await client.call("GetBudget", "a{sv}", NO_OPTIONS)
    names = ("budget_bytes", "used_bytes", "bytes_per_day", "days")
    forecasts: dict[str, dict[str, Any]] = {
        tier: {name: None if isnan(value) else value for name, value in zip(names, values, strict=True)}
        for tier, *values in rows
    }

    def show() -> None:
        table(
            ("tier", "budget", "used", "a day", "keeps"),
            [
                (
                    tier,
                    megabytes(forecast["budget_bytes"]),
                    megabytes(forecast["used_bytes"]),
                    "–" if forecast["bytes_per_day"] is None else megabytes(forecast["bytes_per_day"]),
                    "unknown yet" if forecast["days"] is None else f"{forecast['days']:.0f} days",
                )
                for tier, forecast in forecasts.items()
            ],
        )

    return CommandOutput(forecasts, show)


async def pin(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Keep a span as it was recorded."""
    start_ns, end_ns = parse_span(options.start, options.end, clock.relation())
    await client.call("Pin", "xxsa{sv}", start_ns, end_ns, " ".join(options.why.split()), NO_OPTIONS)
    pinned = {"start_ns": start_ns, "end_ns": end_ns, "why": options.why}
    return CommandOutput(pinned, lambda: put(f"pinned {format_time(start_ns)} to {format_time(end_ns)}"))


async def unpin(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Release what is pinned."""
    if (options.at is None) == (not options.all):
        raise UsageError("expected either a time T or --all")
    at_ns = 0 if options.all else parse_moment(options.at, clock.relation())
    pins = await client.call("ListPins", "a{sv}", NO_OPTIONS)
    released = sum(options.all or start_ns <= at_ns < end_ns for start_ns, end_ns, *_ in pins)
    await client.call("Unpin", "xa{sv}", at_ns, variants({"all": ("b", options.all)}))
    said = f"released {released} {'span' if released == 1 else 'spans'}" if released else "nothing was pinned"
    return CommandOutput({"released": True, "spans": released}, lambda: put(said))


async def mark(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Put a marker into the recording."""
    text, is_pinned = " ".join(options.text), bool(options.pin)
    await client.call("Mark", "sa{sv}", text, variants({"pin": ("b", True)}) if is_pinned else NO_OPTIONS)
    said = spelled_mark(text, is_pinned=is_pinned)
    return CommandOutput({"marked": text, "pinned": is_pinned}, lambda: put(said))


async def events(client: Client, options: argparse.Namespace) -> CommandOutput | None:
    """What happened; with ``--follow`` what happens from now on, until interrupted, after what ``--from`` names.

    :raises UsageError: for ``--to`` with ``--follow``.
    """
    if options.follow and options.end is not None:
        raise UsageError("--to and --follow: --follow has no end; expected only one of them")
    start_ns, end_ns = parse_span(options.start or "1 hour ago", options.end or "now", client.now())
    happened: list[dict[str, Any]] = []
    if options.start is not None or not options.follow:
        rows = await client.call("GetEvents", "xxa{sv}", start_ns, end_ns, NO_OPTIONS)
        happened = [_event(row) for row in rows]
    if not options.follow:
        lines = [(format_time(event["time_ns"]), event["kind"], event["subject"], event["text"]) for event in happened]
        nothing = f"nothing happened from {format_time(start_ns)} to {format_time(end_ns)}"
        return CommandOutput(happened, lambda: _table_or(nothing, ("time", "kind", "subject", "text"), lines))
    for event in happened:
        _put_event(event, is_json=options.json)
    async for row in client.signals(OBJECT_PATH, "Event"):
        _put_event(_event(row), is_json=options.json)
    return None


def _put_event(event: dict[str, Any], *, is_json: bool) -> None:
    words = (format_time(event["time_ns"]), event["kind"], event["subject"], event["text"])
    put(json.dumps(event) if is_json else "  ".join(words))
    sys.stdout.flush()


def _event(row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(("time_ns", "kind", "subject", "text"), row, strict=False))


async def overhead(client: Client, _: argparse.Namespace) -> CommandOutput:
    """What sysmond costs: since each part started, and a second of it."""
    costs = await client.call("GetCost", "a{sv}", NO_OPTIONS)
    ticks_s = (await client.call("GetStatus", "a{sv}", NO_OPTIONS))["uptime_ns"] / SECOND_NS

    def show() -> None:
        parts = {name: cost for name, cost in costs.items() if not name.startswith("probe:")}
        table(
            ("part", "CPU", "a second", "RSS", "late", "missed", "dropped"),
            [
                (
                    name,
                    f"{cost.get('cpu', 0.0):.2f} s",
                    f"{cost.get('cpu', 0.0) / max(1.0, ticks_s) * 1000:.2f} ms",
                    f"{cost['rss'] / 2**20:.1f} MiB" if "rss" in cost else "–",
                    f"{cost['lateness'] * 1000:.2f} ms" if "lateness" in cost else "–",
                    f"{cost.get('missed', 0):.0f}",
                    f"{cost.get('dropped', 0):.0f}",
                )
                for name, cost in sorted(parts.items())
            ],
        )
        put("")
        of_probes = sorted(
            ((name.removeprefix("probe:"), cost) for name, cost in costs.items() if name.startswith("probe:")),
            key=lambda row: -row[1].get("duration", 0.0),
        )
        table(
            ("probe", "time", "a second", "dropped", "failures"),
            [
                (
                    name,
                    f"{cost.get('duration', 0.0):.3f} s",
                    f"{cost.get('duration', 0.0) / max(1.0, ticks_s) * 1000:.3f} ms",
                    f"{cost.get('dropped', 0):.0f}",
                    f"{cost.get('failures', 0):.0f}",
                )
                for name, cost in of_probes
            ],
        )

    return CommandOutput(costs, show)


async def doctor(client: Client, options: argparse.Namespace) -> CommandOutput:
    """Each source, and what would help where it is not there."""
    from sysmon_tools.doctor import examine  # noqa: PLC0415  seldom asked for

    status_ = await client.call("GetStatus", "a{sv}", NO_OPTIONS)
    is_asked = client.is_on_bus and not options.user
    polkit = await client.has("org.freedesktop.PolicyKit1") if is_asked else None
    privileges = {str(probe["Name"]): str(probe.get("Privilege", "")) for probe in await probes_of(client)}
    findings = examine((await _list_probes(client)).document, status_, privileges, polkit=polkit)
    return CommandOutput(findings, lambda: _findings(findings))


def _findings(findings: Sequence[Mapping[str, str]]) -> None:
    from sysmon_tools.doctor import ELSEWHERE  # noqa: PLC0415  as above

    told = [finding for finding in findings if finding["state"] != ELSEWHERE]
    table(
        ("source", "", "because", "what helps"),
        [(finding["source"], finding["state"], finding["reason"], finding["help"]) for finding in told],
    )
    if len(told) < len(findings):
        others = ", ".join(finding["source"] for finding in findings if finding["state"] == ELSEWHERE)
        put("", f"This machine has no source for these; --json shows what each one needs: {others}")


async def watch(client: Client, options: argparse.Namespace) -> None:
    """The newest values, each second; on a terminal in place, elsewhere a line a time."""
    from sysmon_tools.watch import run  # noqa: PLC0415  as above

    await run(client, await _metrics(client, options.paths), options)


async def hold(client: Client, options: argparse.Namespace) -> int:
    """Probes read at another interval, or the disk left alone, while a command runs."""
    from sysmon_tools.hold import run  # noqa: PLC0415  as above

    return await run(client, options)


def _table_of(rows: Sequence[dict[str, Any]], nothing: str) -> None:
    _table_or(nothing, tuple(rows[0]) if rows else (), [[str(value) for value in row.values()] for row in rows])


def _table_or(nothing: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; a line that says so where there are none."""
    if rows:
        table(head, rows)
    else:
        put(nothing)


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
    "hold": hold,
}
