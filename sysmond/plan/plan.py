# SPDX-License-Identifier: Apache-2.0
"""The plan: which probes run, where and how often, and the settings of every part.

The resolver writes it; the parts read it and nothing else. Everybody may read it, so the options of restricted probes,
a token among them perhaps, stand in a file of their own beside it. Standard library only.
"""

import importlib
import json
import math
import os
import sys
import types
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from sysmond.base import event_kinds
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import INTERVAL_MIN_NS, Lane, Sensitivity
from sysmond.errors import CorruptError, Error
from sysmond.machine import note
from sysmond.machine.folders import admit_file, admit_for_parts, check_trusted
from sysmond.probe import Probe

PLAN_VERSION = 1
# Whoever writes the plan puts two files in place, one after the other: who reads in between reads again.
READINGS_MAX = 5
# A plan of 1,000 probes has 0.2 MB.
PLAN_BYTES_MAX = 4 * 1024 * 1024

# What may block is read by threads and processes, and tells of nothing that changes faster.
# A part that is started for each reading is not started more often than this.
LANE_INTERVAL_MIN_NS = {Lane.REALTIME: INTERVAL_MIN_NS, Lane.BACKGROUND: SECOND_NS, Lane.ONESHOT: 300 * SECOND_NS}
INTERVAL_MAX_NS = 24 * 3600 * SECOND_NS
# What is read more often than that is worth a word about its cost; bursts and holds read no more often.
INTERVAL_CHEAP_NS = SECOND_NS // 10

# This part of the budget of rows is for segments in RAM; they are flushed when they take this part of that: the seal
# that tells so has already added its own.
RAM_PART = 8
RAM_FULL_PART = 0.75

BUILTIN_PACKAGE = "sysmond_probes"

Scalar = bool | int | float | str
"""The value of an option: a JSON scalar."""

_T = TypeVar("_T")


class PlannedProbe(NamedTuple):
    """One probe. ``plugin``: an import name, or the absolute path of a file.

    ``enabled``: whether it runs; one that does not stays in the plan, so that it can be named.
    ``options``: what its own declaration offers to set, by name: JSON scalars. ``needs``: as ``Probe`` has them.
    ``on_battery_ns``: the interval while a battery feeds the machine; 0 for that of all. ``subsystems``: as ``Probe``
    has them.
    """

    table: str
    plugin: str
    lane: Lane
    interval_ns: int
    sensitivity: Sensitivity
    enabled: bool = True
    options: dict[str, Scalar] = {}  # noqa: RUF012  a field of a named tuple, which nobody changes
    needs: tuple[str, ...] = ()
    on_battery_ns: int = 0
    subsystems: tuple[str, ...] = ()

    def is_possible(self, root: str) -> bool:
        """Whether what it reads is there, on the machine below ``root``."""
        return not self.needs or any(_is_there(root.rstrip("/"), pattern) for pattern in self.needs)


class Refusal(NamedTuple):
    """A plugin, or an entry of the configuration about one, that is not followed, and why."""

    plugin: str
    reason: str


class SamplerSettings(NamedTuple):
    """``ring_bytes``: the largest a ring may be. ``priority``: of SCHED_FIFO; 0 for normal scheduling.

    ``battery_factor``: how many times as long the intervals of the background lane are on battery.
    ``burst_kinds``: events of which kinds have threads looked at more often for a while.
    """

    ring_bytes: int = 16 * 1024 * 1024
    priority: int = 10
    battery_factor: int = 2
    burst_kinds: tuple[str, ...] = event_kinds.INCIDENTS


class ArchiverSettings(NamedTuple):
    """How often rings are sealed, how often segments may be flushed, and how much may wait in RAM.

    ``size_…_bytes``, ``age_…_ns``: how much of each tier is kept, and how long (0: as long as it fits).
    ``pin_pressure_percent``: from which full pressure on rows are pinned (0: never). ``pin_kinds``: around events of
    which kinds they are.
    ``significant_bits``: how many bits of a number are kept once rows are merged; 0 for all.
    ``records_…``: the same of each tier of the long tables, all of them together; ``…_event_…``: of what happened.
    ``share_percent``: how much of its file system all of that may take together; ``free_percent``: how much of it stays
    free.
    """

    seal_interval_s: float = 600.0
    flush_interval_s: float = 600.0
    ram_bytes: int = 64 * 1024 * 1024
    size_1s_bytes: int = 200_000_000
    size_10s_bytes: int = 300_000_000
    size_1min_bytes: int = 300_000_000
    size_5min_bytes: int = 400_000_000
    age_1s_ns: int = 0
    age_10s_ns: int = 0
    age_1min_ns: int = 0
    age_5min_ns: int = 0
    pins_bytes: int = 50_000_000
    pin_pressure_percent: int = 40
    pin_kinds: tuple[str, ...] = event_kinds.INCIDENTS
    significant_bits: int = 0
    records_size_1s_bytes: int = 1_000_000_000
    records_size_10s_bytes: int = 100_000_000
    records_size_1min_bytes: int = 100_000_000
    records_size_5min_bytes: int = 100_000_000
    records_age_1s_ns: int = 0
    records_age_10s_ns: int = 0
    records_age_1min_ns: int = 0
    records_age_5min_ns: int = 0
    size_event_bytes: int = 4_000_000
    age_event_ns: int = 730 * 86_400 * SECOND_NS
    share_percent: int = 10
    free_percent: int = 15

    @property
    def ram_share_bytes(self) -> int:
        """What of the budget of rows is kept free on disk for segments that wait in RAM.

        A disk at rest is not touched when one more is sealed, and yet both together never take more.
        """
        return min(self.ram_bytes, self.size_1s_bytes // RAM_PART)

    @property
    def ram_full_bytes(self) -> int:
        """How much may wait in RAM before it is flushed, be it to a disk at rest."""
        return min(self.ram_bytes, int(self.size_1s_bytes // RAM_PART * RAM_FULL_PART))


class Plan(NamedTuple):
    """Everything the parts need to know."""

    probes: tuple[PlannedProbe, ...]
    refused: tuple[Refusal, ...] = ()
    sampler: SamplerSettings = SamplerSettings()
    archiver: ArchiverSettings = ArchiverSettings()


def encode(plan: Plan, withheld: Collection[str] = ()) -> bytes:
    """Spell a plan as JSON, with a checksum: a bit turned over would make another plan of it, as valid as this.

    ``withheld``: the tables whose options stand elsewhere.
    """
    fields = _fields(plan, withheld)
    return json.dumps({**fields, note.CHECKSUM: note.checksum(fields)}, indent=1).encode()


def _fields(plan: Plan, withheld: Collection[str]) -> dict[str, Any]:
    return {
        "version": PLAN_VERSION,
        "probes": [
            {**probe._asdict(), "options": None if probe.table in withheld else probe.options} for probe in plan.probes
        ],
        "refused": [refusal._asdict() for refusal in plan.refused],
        "sampler": plan.sampler._asdict(),
        "archiver": plan.archiver._asdict(),
    }


def decode(content: bytes) -> Plan:
    """Read a plan back, without the options that stand elsewhere.

    :raises CorruptError: where it is not a plan of this version.
    """
    return _decoded(content)[0]


def _decoded(content: bytes) -> tuple[Plan, set[str]]:
    """A plan, and the tables whose options stand elsewhere."""
    return note.parse(content, _plan, "plan")


def _plan(fields: dict[str, Any]) -> tuple[Plan, set[str]]:
    if fields["version"] != PLAN_VERSION:
        raise CorruptError(f"plan: version {fields['version']!r}; expected {PLAN_VERSION}")
    plan = Plan(
        tuple(_probe(probe) for probe in fields["probes"]),
        tuple(_typed(Refusal, refusal) for refusal in fields["refused"]),
        _typed(SamplerSettings, _with_kinds(fields["sampler"], "burst_kinds")),
        _typed(ArchiverSettings, _with_kinds(fields["archiver"], "pin_kinds")),
    )
    withheld = {probe["table"] for probe in fields["probes"] if probe["options"] is None}
    if note.CHECKSUM in fields:
        note.check(_fields(plan, withheld), fields[note.CHECKSUM])
    return plan, withheld


def _with_kinds(settings: dict[str, Any], name: str) -> dict[str, Any]:
    return {**settings, name: tuple(map(note.text, note.array(settings[name])))}


def read(path: str) -> Plan:
    """Read a plan from a file; who may not read the options of restricted probes is told of none.

    :raises OSError: where it cannot be read. :raises CorruptError: where it is no plan.
    """
    withheld: set[str] = set()
    for _ in range(READINGS_MAX):
        content = _content(path)
        plan, withheld = _decoded(content)
        try:
            options = _options(options_file(path)).get(_name(content), {}) if withheld else {}
        except PermissionError:
            return plan
        if withheld <= options.keys():
            probes = [probe._replace(options=options.get(probe.table, probe.options)) for probe in plan.probes]
            return plan._replace(probes=tuple(probes))
    raise CorruptError(f"plan: {options_file(path)}: lacks the options of {', '.join(sorted(withheld))}")


def _content(path: str) -> bytes:
    return note.read_bytes(path, PLAN_BYTES_MAX)


def write(plan: Plan, path: str) -> None:
    """Put a plan in place, whole or not at all.

    Options that not all may read come first, with those of the plan before: whichever of the two is in place after a
    power cut finds its own.
    """
    beside = options_file(path)
    restricted = [probe for probe in plan.probes if probe.sensitivity is Sensitivity.RESTRICTED]
    withheld = {probe.table: probe.options for probe in restricted if probe.options}
    public = encode(plan, withheld)
    if not withheld:
        put(public, path)
        with suppress(FileNotFoundError):
            os.unlink(beside)
        return
    both: Options = {}
    with suppress(OSError, CorruptError):
        before = _name(_content(path))
        both |= {name: options for name, options in _options(beside).items() if name == before}
    both[_name(public)] = withheld
    put(json.dumps({"plans": both, note.CHECKSUM: note.checksum(both)}).encode(), beside, Sensitivity.RESTRICTED)
    put(public, path)


def keep(path: str, copy: str) -> None:
    """Have the plan of one file in another one too, which is not written where it has that already.

    :raises OSError: where that cannot be. :raises CorruptError: where the first has no plan.
    """
    plan = read(path)
    with suppress(OSError, CorruptError):
        if _content(copy) == _content(path) and read(copy) == plan:
            return
    write(plan, copy)


def options_file(path: str) -> str:
    """Where the options of restricted probes stand that belong to the plan in this file."""
    return f"{path.removesuffix('.json')}-options.json"


Options = dict[str, dict[str, dict[str, Scalar]]]
"""Options by table, by the name of the plan that they belong to."""


def _name(content: bytes) -> str:
    """Which plan a file has."""
    return f"{crc32(content):08x}"


def _options(path: str) -> Options:
    """The options of restricted probes; none where there is no such file.

    :raises OSError: where it cannot be read. :raises CorruptError: where it is damaged.
    """
    try:
        return note.read(path, _noted_options, PLAN_BYTES_MAX)
    except FileNotFoundError:
        return {}


def _noted_options(noted: dict[str, Any]) -> Options:
    noted_options: Options = noted["plans"]
    note.check(noted_options, noted[note.CHECKSUM])
    for options in (options for tables in noted_options.values() for options in tables.values()):
        _check_options(options)
    return noted_options


def put(content: bytes, path: str, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> None:
    """Put a file in place, whole or not at all, even through a power cut; its class says who may read it.

    What is restricted here is what was set, not what was recorded: all parts may read that.
    """
    with note.create(path, 0o600) as descriptor:
        if sensitivity is Sensitivity.RESTRICTED:
            admit_for_parts(descriptor, os.path.dirname(path) or ".")
        else:
            admit_file(descriptor, sensitivity)
        note.write_whole(descriptor, content)
        os.fsync(descriptor)
    note.sync_folder(os.path.dirname(path) or ".")


def first_valid(paths: Iterable[str]) -> tuple[Plan, list[str]]:
    """Take the first of these plans that is valid, else the built-in one; and say why not a better one.

    A part calls it with the current plan and the last good one: recording goes on whatever became of them.
    """
    reasons: list[str] = []
    for path in paths:
        try:
            return read(path), reasons
        except OSError as failure:
            reasons.append(f"plan: {path}: {failure.strerror or failure}")
        except CorruptError as damage:
            reasons.append(f"{damage} in {path}")
    return builtin(), reasons


def remarks(plan: Plan) -> list[str]:
    """What is allowed, and costs more than whoever set it may expect: probes that are read very often."""
    return [
        f"probes.{probe.table}.interval: {probe.interval_ns / 1e6:g}ms is {SECOND_NS / probe.interval_ns:.0f} readings "
        "a second; processor time and bytes grow in proportion: 'sysmonctl overhead' shows the time"
        for probe in plan.probes
        if probe.enabled and probe.interval_ns < INTERVAL_CHEAP_NS
    ]


def builtin(sensitivity: Sensitivity = Sensitivity.PUBLIC) -> Plan:
    """Plan the public probes that come with sysmond, or the restricted ones, as they declare themselves.

    No plugin is searched for. What this interpreter has of them is looked for in their package: nobody needs to keep
    a list.
    """
    probes: list[PlannedProbe] = []
    refused: list[Refusal] = []
    for name in _builtin_names():
        try:
            offered = offered_probes(import_plugin(name))
        except Exception as failure:  # noqa: BLE001  a broken probe must not take the others along
            refused.append(Refusal(name, f"{type(failure).__name__}: {failure}"))
            continue
        declared = [as_declared(name, probe) for probe in offered]
        probes += [planned for planned in declared if planned.sensitivity is sensitivity]
    return Plan(tuple(probes), tuple(refused))


def as_declared(plugin: str, probe: Probe) -> PlannedProbe:
    """Plan a probe just as it asks for."""
    interval_ns = round(probe.interval_s * SECOND_NS)
    options = {option.name: option.default for option in probe.options}
    table = probe.table.name
    on_battery_ns = round(probe.on_battery_s * SECOND_NS)
    sensitivity = Sensitivity.RESTRICTED if probe.public_by_choice else probe.sensitivity
    return PlannedProbe(
        table,
        plugin,
        probe.lane,
        interval_ns,
        sensitivity,
        probe.enabled,
        options,
        probe.needs,
        on_battery_ns,
        probe.subsystems,
    )


def import_plugin(plugin: str) -> types.ModuleType:
    """Import the plugin that a plan names: by its import name, or from the file at its absolute path.

    :raises Exception: whatever the plugin's own code raises.
    """
    if not plugin.startswith("/"):
        return importlib.import_module(plugin)
    check_trusted(plugin)  # It was checked when it was planned; since then a folder may have changed hands.
    with open(plugin, "rb") as file:
        code = compile(file.read(), plugin, "exec")  # Not through a loader: that would leave byte code in /etc.
    module = types.ModuleType(f"sysmond_local_{os.path.basename(plugin).removesuffix('.py')}")
    module.__file__ = plugin
    sys.modules[module.__name__] = module  # Named tuples and enumerations look for their module there.
    try:
        exec(code, module.__dict__)  # noqa: S102  the administrator put it there to be run
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def offered_probes(module: types.ModuleType) -> list[Probe]:
    """Call the plugin's hook.

    :raises Error: where it has none. :raises Exception: whatever the plugin's own code raises.
    """
    hook = getattr(module, "sysmond_probes", None)
    if hook is None:
        raise Error(f"{module.__name__}: has no function sysmond_probes")
    return list(hook())


def _builtin_names() -> list[str]:
    package = importlib.import_module(BUILTIN_PACKAGE)
    files = os.listdir(package.__path__[0])
    return sorted(
        f"{BUILTIN_PACKAGE}.{file.removesuffix('.py')}"
        for file in files
        if file.endswith(".py") and not file.startswith(("_", "."))
    )


def _probe(fields: dict[str, Any]) -> PlannedProbe:
    typed: dict[str, Any] = {"lane": Lane(fields["lane"]), "sensitivity": Sensitivity(fields["sensitivity"])}
    if fields["options"] is None and typed["sensitivity"] is Sensitivity.RESTRICTED:
        typed["options"] = {}
    else:
        _check_options(fields["options"])
    # Plans of releases before have none of them.
    typed |= {name: tuple(map(str, fields.get(name, ()))) for name in ("needs", "subsystems")}
    typed["on_battery_ns"] = fields.get("on_battery_ns", 0)
    probe = _typed(PlannedProbe, {**fields, **typed})
    for interval_ns in (probe.interval_ns, probe.on_battery_ns or probe.interval_ns):
        if not INTERVAL_MIN_NS <= interval_ns <= INTERVAL_MAX_NS:
            raise CorruptError(f"plan: {probe.table}: interval {interval_ns} ns is out of bounds")
    return probe


def _is_there(root: str, pattern: str) -> bool:
    """Whether anything has such a path below a root; ``*`` stands for any part of one name."""
    before, star, after = pattern.partition("*")
    if not star:
        return os.path.exists(root + pattern)
    folder, _, begin = before.rpartition("/")
    end, slash, rest = after.partition("/")
    try:
        names = os.listdir(f"{root}{folder}/")
    except OSError:
        return False
    return any(
        name.startswith(begin) and name.endswith(end) and (not slash or _is_there(root, f"{folder}/{name}/{rest}"))
        for name in names
    )


def _check_options(options: object) -> None:
    if type(options) is not dict or not all(_is_scalar(value) for value in options.values()):
        raise ValueError(f"PlannedProbe.options is {options!r}; expected an object of texts, numbers and truths")


def _is_scalar(value: object) -> bool:
    return type(value) in {bool, int, str} or (type(value) is float and math.isfinite(value))


def _typed(kind: type[_T], fields: dict[str, Any]) -> _T:
    """Make a named tuple of just the declared fields, each of just its declared type."""
    declared = kind.__annotations__
    if fields.keys() != declared.keys():
        raise ValueError(f"{kind.__name__} has the fields {', '.join(declared)}")
    for name, right in declared.items():
        value = fields[name]
        if right is float and type(value) is int:
            value = float(value)
        if type(value) is not getattr(right, "__origin__", right) or (right is float and not math.isfinite(value)):
            raise ValueError(f"{kind.__name__}.{name} is {value!r}; expected {right.__name__}")
    return kind(**fields)
