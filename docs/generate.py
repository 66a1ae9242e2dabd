# SPDX-License-Identifier: Apache-2.0
"""Writes the documents that follow from the code: metrics, command lines, interfaces, packages, the schema.

``make docs`` runs it; a test compares what it would write with what stands there. Only what the
code declares is used, never ``--help`` as printed: argparse words that differently from one
Python to the next.
"""

import argparse
import ast
import importlib
import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from types import ModuleType

from sysmond.answers import event_rows
from sysmond.archiver.disk_writes import FLUSH, INTERVAL_NS
from sysmond.base import elsewhere
from sysmond.base.clock import SECOND_NS
from sysmond.base.derived_columns import of_table
from sysmond.base.event_kinds import BACKGROUND, KINDS, OWNERS, PEOPLE, REALTIME, EventKind
from sysmond.base.model import Answers, Lane, Metric, Semantics, Table, rate_unit
from sysmond.bus import loop
from sysmond.bus.wire import interface
from sysmond.machine.commandline import subparsers
from sysmond.plan import config_keys
from sysmond.plan.plan import as_declared
from sysmond.probe import Probe
from sysmond.sampler.self_cost import SELF

HERE = Path(__file__).resolve().parent
PACKAGES_BEGIN = "first words of each package. -->"
PACKAGES_END = "<!-- The end of the table. -->"

# Program, and the module whose parser it uses.
PROGRAMS = (
    ("sysmond", "sysmond.__main__"),
    ("sysmon", "sysmon_tools.sysmon"),
    ("sysmon-extract", "sysmon_tools.extract"),
    ("sysmonctl", "sysmon_tools.ctl"),
)

METRICS_HEAD = """\
# Metrics

Every table and metric that sysmond's own probes record, written from the probes by `make docs`.

A series is named `table/metric@instance`; a table about the whole system has no instance. A counter
only grows, and answers show its rate, in the unit in parentheses. Values are stored as integers;
*digits* is how many decimal places they have. If the kernel, the device or your permissions do not offer a
metric, it is absent, never zero. A *derived* column is not recorded; a formula computes it from metrics
([the guide](asking.md#derived-columns)), and you ask for it by name like any other. *Elsewhere* is the name in
other programs: ≈ if they compute it in another way, … + if theirs is a sum that includes more.
[Names by program](names.md) also lists the units that differ.

*Takes* is how long a reading and its row in the ring took when last [measured](performance.md): on a virtual
machine with little on it, but with 1,000 processes for the tables of tasks and 1,000 control groups for their slow
tables. A `+` means that the files of a recorded machine were read: the time that the hardware takes to answer comes on
top. `–` stands if neither machine has what the table is about. Tables of tasks share one pass, which counts for the
first that asks for it. To record a table that is off, enable it in the configuration or with `sysmonctl enable probe
NAME`.
"""

NAMES_HEAD = """\
# Names elsewhere

You know a metric from another program: what is its name here? `make docs` writes this page from
`sysmond/base/elsewhere/`. If you query one of these names, sysmond suggests its own:
`sysmon-extract node_disk_read_bytes_total` asks whether you mean `disk/read_bytes`.

Answers show counters as rates, except with `--raw`: `disk/read_bytes` is shown in bytes a second. If a
program uses another unit, the table names it. ≈ means that the program computes the metric in another way. A star
stands for a number or a name; a name for several metrics joined by `+` is their sum.
"""

EVENTS_HEAD = """\
# Events

What happened, and when? sysmond records a suspend, a full disk, an upgrade or a killed process as an event. `make docs`
writes this page from `sysmond/base/event_kinds.py` and the probes.

```
sysmon-extract event --from=yesterday                         # all events
sysmon-extract event --from=-1h --where='kind = "oom kill"'   # events of one kind
sysmon-extract cpu --from=-1h                                 # an answer, with events that may explain it
sysmon-extract cpu --from=-1h --all-events                    # an answer, with all events
sysmonctl events --follow                                     # new events as they happen
```

An event has a time, a kind, a subject and a line of text; some have more in `detail`. If sysmond learned of an event
only later, the event also has the time at which it happened, and `known_from` names the log it comes from.

An event is as private as the table of its probe: only people who may read the table see the event. An answer about a
public table has only public events, so you can give it to anybody; `sysmon-extract event` and `sysmon` show all events
that you may read. If a probe is off, or may not read its source, its kinds are not recorded.

**Many events at once.** If more than eight things of one kind change in one reading, one event names them all. If a
probe reports more than 32 events at once, the last one says how many more there were.

**While sysmond was not running.** When the recorder starts, it reads this boot's kernel messages, dpkg runs and logins
(in wtmpdb or wtmp), each once, with the time that the source gives. It compares unit files with how they were when it
last recorded in this boot, and also states (a lid, a link) if only the background lane was restarted; otherwise it
compares states from its first reading on. Once the machine has run for three minutes, it compares settings with those
at the end of the boot before. At the start it also says how the boot before ended, with the time of a panic if pstore
has it.

Answers about tables show *minor* kinds only with `--all-events`.

*Incidents* are kept and examined more closely: the five minutes before and after each are pinned, and for half a minute
threads are read ten times a second; then an event `burst` says why there are more rows.
[You choose how much, and for which kinds](configuration.md#incidents).
"""

LEFT_OUT = (
    (
        "free memory by size and kind (`/proc/pagetypeinfo`)",
        "The kernel walks the free lists of each zone under its lock: milliseconds in which nobody can allocate there.",
    ),
    ("entropy (`entropy_avail`)", "Since Linux 5.18 it is always 256."),
    (
        "how much of inotify is used",
        "No file has it: the descriptors of all processes would have to be read, and there are limits for each user.",
    ),
    ("counts of routes", "The whole table would be asked for, and that of a router has a million."),
    (
        "sizes of btrfs subvolumes by random samples",
        "Each sample reads the disk, which may sleep; `btrfs` has what the kernel counts itself.",
    ),
    (
        "network bytes of a process by interface",
        "They are counted at its sockets, which know no interface; a program at each would run for every packet.",
    ),
    (
        "size of zswap, pages into and out of it; the balloon of a virtual machine",
        "They are in `memory` and `vm`, and nothing is recorded twice.",
    ),
    ("`cpuinfo_cur_freq`; registers of processors, as `turbostat` reads them", "A reading interrupts an idle CPU."),
    (
        "power of a battery that reports only current and voltage",
        "Their product is not what it measured; it is derived, not recorded.",
    ),
    ("serial numbers of batteries, addresses of wireless devices", "They reveal whose it is."),
    (
        "network bytes of a process by interface",
        "Where a process sends, the route is not chosen yet; where it is, mostly another process runs.",
    ),
)

CLI_HEAD = """\
# Command lines

Every program and every option, written from the programs by `make docs`.

All programs have the same exit codes: 0 success; 1 failure; 2 wrong usage; 3 partial result (standard error
names what is missing); 77 no permission; 130 interrupted by Ctrl-C.
"""


BUS_HEAD = """\
# Interfaces on D-Bus

Every method, signal and property of sysmond's own, written from the code by `make docs`; [sysmond on D-Bus](dbus.md)
says what they have in common. Types are D-Bus signatures: `x` and `t` are nanoseconds unless
stated otherwise. A method with an action asks polkit for `org.sysmond.SystemMonitor1.ACTION`.
"""
WHEN_TOLD = {
    interface.Changes.NEVER: "never",
    interface.Changes.EMITTED: "PropertiesChanged gives the new value",
    interface.Changes.INVALIDATED: "PropertiesChanged says that it changed",
    interface.Changes.SILENT: "without a signal",
}


def main() -> int:
    """Write every generated document and name those that changed."""
    for name, generate in DOCUMENTS.items():
        path = HERE / name
        content = generate()
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            print(f"docs/{name}: written anew")
    return 0


def own_plugins() -> dict[str, ModuleType]:
    """Load the plugins that come with sysmond, by module name; others' document themselves."""
    own = (entry for entry in entry_points(group="sysmond.probes") if entry.dist and entry.dist.name == "sysmond")
    return {entry.module: entry.load() for entry in own}


def own_probes() -> list[Probe]:
    """Collect what these plugins offer."""
    return [probe for plugin in own_plugins().values() for probe in offered(plugin)]


def catalogue() -> list[Probe]:
    """Give the probes that come with sysmond, and the tables that it writes about itself."""
    ledger = Probe(FLUSH, lambda _host: (), interval_s=INTERVAL_NS / SECOND_NS, lane=Lane.BACKGROUND)
    by_name = {SELF.name: Probe(SELF, lambda _host: ()), FLUSH.name: ledger}
    by_name.update((probe.table.name, probe) for probe in own_probes())
    return [by_name[name] for name in sorted(by_name)]


def offered(plugin: ModuleType) -> list[Probe]:
    """Ask a plugin for its probes, as the resolver does."""
    hook = getattr(plugin, "sysmond_probes", None)
    if hook is None or not hasattr(hook, "sysmond_impl"):
        return []
    probes: list[Probe] = hook()
    return probes


def metrics() -> str:
    """Spell the metric catalogue."""
    probes, reading_times = catalogue(), measured()
    on = on_by_default(probes)
    rows: dict[str, tuple[str, ...]] = {
        probe.table.name: (
            probe.table.per or "the whole system",
            str(len(probe.table.metrics)),
            f"{probe.interval_s:g} s",
            probe.lane,
            as_declared("", probe).sensitivity,
            "on" if probe.table.name in on else "off",
            reading_times.get(probe.table.name, "–"),
        )
        for probe in probes
    }
    own = event_rows.TABLE
    rows[own.name] = ("event", str(len(own.metrics)), "as it happens", "all parts", "by its kind", "on", "–")
    summary = table(
        ("table", "a row is about", "metrics", "every", "lane", "sensitivity", "by default", "takes"),
        ((f"[{name}](#{name})", *cells) for name, cells in sorted(rows.items())),
    )
    sections = [line for probe in probes for line in table_section(probe, on)] + list(event_section())
    left_out = ("", "## Left out, and why", "", *table(("what", "why"), LEFT_OUT))
    return "\n".join([METRICS_HEAD, *summary, *sections, *left_out]) + "\n"


def on_by_default(probes: Iterable[Probe]) -> set[str]:
    """Which tables are recorded by default: by themselves, or by an option of a table that is."""
    on = {probe.table.name: probe for probe in probes if probe.enabled}
    return {*on, *(option.enables for probe in on.values() for option in probe.options if option.default)}


def measured() -> dict[str, str]:
    """How long a reading of a table takes, as the benchmarks found it last, by table."""
    kept = json.loads((HERE / "performance.json").read_text(encoding="utf-8"))
    figures = {name: kept.get(name, {}).get("figures", {}) for name in ("probes", "tick", "tasks", "cgroups")}
    times_ms = {
        **figures["probes"].get("here_ms", {}),
        **figures["tick"].get("by_probe", {}),
        **figures["tasks"].get("procs_1000", {}).get("daemon", {}).get("duration_ms", {}),
        **figures["cgroups"].get("slow_tables_ms_per_reading", {}),
    }
    of_files = figures["probes"].get("files_ms", {})
    return {
        **{table: f"{spelled_ms(ms)} +" for table, ms in of_files.items()},
        **{table: spelled_ms(ms) for table, ms in times_ms.items()},
    }


def spelled_ms(ms: float) -> str:
    """Spell how long something takes, with the two digits that mean something."""
    return f"{float(f'{ms:.2g}'):g} ms"


def table_section(probe: Probe, on: Container[str]) -> Iterator[str]:
    """Spell one table of the catalogue. ``on``: the tables that are recorded by default."""
    declared = probe.table
    yield ""
    yield f"## {declared.name}"
    yield ""
    if declared.doc:
        yield declared.doc
        yield ""
    enabling = f"`sysmonctl enable probe {declared.name}`"
    off = "" if declared.name in on else f" Off, until {enabling} or the configuration says so."
    about = f"One row a {declared.per}" if declared.per else "One row for the whole system"
    every = f"every {probe.interval_s:g} s"
    if declared.packing is not None:
        whenever = "when it changed, and all of them now and then" if declared.packing.lasting else "at its moment"
        about, every = f"Long: {about.lower()} {whenever}", f"looked for {every}; key {', '.join(declared.packing.key)}"
    by_choice = ", public where the configuration says so" if probe.public_by_choice else ""
    needed = f"; reading it takes {probe.privilege}" if probe.privilege else ""
    yield f"{about}, {every}; {probe.lane} lane; {as_declared('', probe).sensitivity}{by_choice}{needed}.{off}"
    yield ""
    names = names_of(declared)
    if columns := of_table(declared):
        yield from table(
            ("derived", "unit", "formula", "meaning", "elsewhere"),
            (
                (f"`{name}`", column.unit, f"`{column.formula}`", column.doc, names[name])
                for name, column in columns.items()
            ),
        )
        yield ""
    rows = ((*metric_row(metric), names[metric.name]) for metric in declared.metrics)
    yield from table(("metric", "unit", "semantics", "digits", "meaning", "origin", "elsewhere"), rows)


def names_of(declared: Table) -> defaultdict[str, str]:
    """Spell what other programs call the columns of a table."""
    spelled: defaultdict[str, dict[str, None]] = defaultdict(dict)
    columns = [metric.name for metric in declared.metrics]
    taken = {(name.program, name.name) for name in elsewhere.every()}
    for name in elsewhere.every():
        for path in name.paths:
            of, _, column = path.partition("/")
            if of != declared.name:
                continue
            for each in columns if column == "*" else [column.partition("@")[0]]:
                called = name.name.replace("*", each) if column == "*" else name.name
                if column != "*" or (name.program, called) not in taken:
                    more = " + …" if name.is_sum else ""
                    spelled[each][f"{'≈ ' if name.is_about else ''}`{called}`{more} ({name.program})"] = None
    return defaultdict(str, {column: ", ".join(names) for column, names in spelled.items()})


def names() -> str:
    """Spell what metrics are called elsewhere, by program."""
    units = {f"{table}/{name}": unit for table, columns in units_here().items() for name, unit in columns.items()}
    by_program: defaultdict[str, list[elsewhere.ForeignName]] = defaultdict(list)
    for name in elsewhere.every():
        by_program[name.program].append(name)
    lines = [NAMES_HEAD]
    for program in sorted(by_program, key=str.lower):
        lines += [f"## {program}", ""]
        lines += table(
            ("name there", "here", "unit here", "unit there"),
            (
                (
                    f"`{name.name}`",
                    f"{'≈ ' if name.is_about else ''}{' or '.join(f'`{meaning}`' for meaning in name.meanings)}",
                    " or ".join(dict.fromkeys(units.get(path.partition("@")[0], "") for path in name.paths)),
                    name.unit,
                )
                for name in by_program[program]
            ),
        )
        lines.append("")
    return "\n".join(lines)


def units_here() -> dict[str, dict[str, str]]:
    """The unit of each column that answers may have, by table."""
    units = {}
    for declared in (probe.table for probe in catalogue()):
        of_metrics = {metric.name: spelled_unit(metric) for metric in declared.metrics}
        answers = declared.answers or Answers()
        of_metrics |= {total.name: of_metrics[total.parts[0]] for total in answers.totals}
        of_metrics |= {name: "text" for join in answers.joins for name, _ in join.columns}
        units[declared.name] = of_metrics | {name: column.unit for name, column in of_table(declared).items()}
    return units


def event_section() -> Iterator[str]:
    """Spell the one table that no probe reads, and who may write which kind of row into it."""
    declared = event_rows.TABLE
    yield from ("", f"## {declared.name}", "", declared.doc, "")
    yield "No probe reads it: parts write a row when something happens. Its class is that of where it happened."
    yield ""
    yield from table(("kind", "written by"), ((f"`{kind}`", ", ".join(by)) for kind, by in OWNERS.items()))
    yield ""
    yield from table(("column", "unit", "semantics", "digits", "meaning", "origin"), map(metric_row, declared.metrics))


def events() -> str:
    """Spell the kinds of events, and what tells of each."""
    sources: dict[str, set[str]] = defaultdict(set)
    for probe in catalogue():
        for kind in {*probe.told_kinds, *(kind for tells in probe.tells for kind in (tells.kind, tells.gone) if kind)}:
            sources[kind].add(f"`{probe.table.name}`" + (" (restricted)" if probe.sensitivity == "restricted" else ""))
    rows = (
        (
            f"`{name}`" + " *minor*" * kind.is_minor + " *incident*" * kind.is_incident,
            kind.doc,
            ", ".join(_tellers(kind, sources[name])),
            kind.seen or "–",
        )
        for name, kind in KINDS.items()
    )
    return "\n".join([EVENTS_HEAD, *table(("kind", "what happened", "reported by", "seen"), rows)]) + "\n"


def _tellers(kind: EventKind, probes: set[str]) -> Iterator[str]:
    """Probes, and parts by themselves: of a lane's kinds that lane only where none of its probes tells of them."""
    yield from sorted(probes)
    parts = [owner for owner in kind.owners if not probes or owner not in {REALTIME, BACKGROUND}]
    if parts:
        yield "people" if PEOPLE in parts else f"sysmond ({' or '.join(parts)})"


def metric_row(metric: Metric) -> tuple[str, ...]:
    """Spell one metric of the catalogue."""
    origin = f"`{metric.origin}`" if metric.origin else ""
    return f"`{metric.name}`", spelled_unit(metric), metric.semantics, str(metric.scale), metric.doc, origin


def spelled_unit(metric: Metric) -> str:
    """Spell the unit of a metric, and that of its rate."""
    is_counter = metric.semantics is Semantics.COUNTER
    return f"{metric.unit} ({rate_unit(metric.unit)})" if is_counter else metric.unit


def cli() -> str:
    """Spell the command lines."""
    sections = [line for program, module in PROGRAMS for line in program_section(program, parser_of(module))]
    return "\n".join([CLI_HEAD.rstrip("\n"), *sections]) + "\n"


def parser_of(module: str) -> argparse.ArgumentParser:
    """Build the parser of a program, as its main function does."""
    parser: argparse.ArgumentParser = importlib.import_module(module).parser()
    return parser


def program_section(program: str, parser: argparse.ArgumentParser, level: str = "##") -> Iterator[str]:
    """Spell one program: what it is for, its arguments, its options, its commands."""
    yield ""
    yield f"{level} {program}"
    yield ""
    yield from prose(parser.description or "")
    yield ""
    actions = parser._actions  # noqa: SLF001  argparse offers no other list of what it was told.
    shown = [action for action in actions if action.help is not argparse.SUPPRESS]
    yield from table(("argument", "meaning"), (argument_row(action) for action in shown))
    if parser.epilog:
        yield ""
        yield from prose(parser.epilog)
    for name, command in subparsers(parser):
        yield from program_section(f"{program} {name}", command, f"{level}#")


def prose(text: str) -> list[str]:
    """Keep one paragraph as it is, and what was laid out in lines as laid out."""
    lines = text.strip().splitlines()
    return lines if len(lines) == 1 else ["```text", *lines, "```"]


def argument_row(action: argparse.Action) -> tuple[str, str]:
    """Spell one argument: its names with what follows them, and its help."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    takes_none = action.nargs == 0
    if not action.option_strings:
        names = f"`{value}`"
    else:
        names = ", ".join(f"`{option}`" if takes_none else f"`{option} {value}`" for option in action.option_strings)
    meaning = " ".join((action.help or "").split()).replace("%%", "%").replace("%(default)s", str(action.default))
    return names, meaning


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Spell a Markdown table."""
    yield row(head)
    yield row("---" for _ in head)
    for cells in rows:
        yield row(cell.replace("|", "\\|") for cell in cells)


def row(cells: Iterable[str]) -> str:
    """Spell one row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def bus() -> str:
    """Spell what the service offers on D-Bus."""
    sections = [line for name, kinds in interfaces().items() for line in interface_section(name, kinds)]
    return "\n".join([BUS_HEAD.rstrip("\n"), *sections]) + "\n"


def interfaces() -> dict[str, list[type[interface.Interface]]]:
    """Give our own interfaces, by name; those of the bus itself are in its specification."""
    return loop.declared()


def interface_section(name: str, kinds: list[type[interface.Interface]]) -> Iterator[str]:
    """Spell one interface: methods, signals, properties."""
    yield from ("", f"## {name.rpartition('.')[2]}", "")
    methods = sorted((each for kind in kinds for each in kind.METHODS.values()), key=attrgetter("name"))
    if methods:
        yield from table(
            ("method", "takes", "gives", "action", "meaning"),
            ((f"`{each.name}`", spelled(each.takes), spelled(each.gives), each.action, each.doc) for each in methods),
        )
    signals = sorted((each for kind in kinds for each in kind.SIGNALS.values()), key=attrgetter("name"))
    if signals:
        yield ""
        told = ((f"`{each.name}`", spelled(each.arguments), each.doc) for each in signals)
        yield from table(("signal", "carries", "meaning"), told)
    values = sorted((each for kind in kinds for each in kind.PROPERTIES.values()), key=attrgetter("name"))
    if values:
        yield ""
        rows = ((f"`{each.name}`", f"`{each.signature}`", WHEN_TOLD[each.changes], each.doc) for each in values)
        yield from table(("property", "type", "changes", "meaning"), rows)


def spelled(arguments: Iterable[interface.Argument]) -> str:
    """Spell arguments: each with its type."""
    return ", ".join(f"{each.name} `{each.signature}`" for each in arguments)


def schema() -> str:
    """Spell the schema of the configuration."""
    return json.dumps(config_keys.schema(), indent=2) + "\n"


def architecture() -> str:
    """Give the architecture, with a table of the packages as the contracts order them now."""
    written = (HERE / "architecture.md").read_text(encoding="utf-8")
    before, begin, rest = written.partition(PACKAGES_BEGIN)
    _, end, after = rest.partition(PACKAGES_END)
    return "".join((before, begin, "\n\n", *packages(), "\n", end, after))


def packages() -> Iterator[str]:
    """Give the rows: a package or module, and what its first sentence says, the highest floor first."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (floors,) = (each["layers"] for each in contracts if each.get("containers") == ["sysmond"])
    yield "| floor | package | what it is |\n|---|---|---|\n"
    for floor, names in zip(range(len(floors), 0, -1), floors, strict=True):
        for name in names.replace(":", "|").split("|"):
            path = HERE.parent / "sysmond" / name.strip()
            is_package = path.is_dir()
            source = path / "__init__.py" if is_package else path.with_suffix(".py")
            about = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
            yield f"| {floor} | `{path.name}{'/' if is_package else ''}` | {' '.join(about.split())} |\n"


DOCUMENTS: dict[str, Callable[[], str]] = {
    "metrics.md": metrics,
    "names.md": names,
    "events.md": events,
    "cli.md": cli,
    "interfaces.md": bus,
    "architecture.md": architecture,
    "../etc/sysmond.schema.json": schema,
    **{f"../dbus/{name}.xml": partial(interface.document, kinds) for name, kinds in interfaces().items()},
}

if __name__ == "__main__":
    sys.exit(main())
