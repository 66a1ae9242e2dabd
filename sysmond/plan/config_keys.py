# SPDX-License-Identifier: Apache-2.0
"""The keys of the configuration: of each its kind, bounds, default and documentation, in one place.

From ``KEYS`` follow what a file may say, the schema that is shipped (``etc/sysmond.schema.json``) and what is
shown of it. Only the resolver, and what writes documents, import this.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from sysmond.base import event_kinds
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import EVENTS, Lane, Sensitivity
from sysmond.plan.plan import INTERVAL_MAX_NS, LANE_INTERVAL_MIN_NS, Scalar
from sysmond.probe import Option

Path = tuple[str, ...]
"""Where a key stands: ``("archive", "ram_size")``; ``ANY`` stands for a name that the user chooses."""

ANY = "*"
NO_KIND = "none"

_TIME_UNITS_NS = {
    "us": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "min": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
    "d": 86400 * SECOND_NS,
}
_SIZE_UNITS_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
_INTEGER = r"0|-?[1-9][0-9]{0,14}"
_DURATION_PART = re.compile(rf"{_NUMBER}\s*({'|'.join(_TIME_UNITS_NS)})(?![a-z])\s*")
_SIZE = re.compile(rf"{_NUMBER}\s*({'|'.join(_SIZE_UNITS_BYTES)})")


class ValueKind(NamedTuple):
    """A kind of value: how its text is read (ValueError where it cannot be), and what is right.

    ``schema``: the same for values, as JSON Schema has it. ``tags``: what YAML may have taken the text for.
    """

    parse: Callable[[str], Any]
    right: str
    schema: Mapping[str, Any]
    tags: frozenset[str] = frozenset(("str", "int", "float"))


def duration_ns(text: str) -> int:
    """Read a duration: ``500ms``, ``5s``, ``1h30m``; a bare number is seconds.

    :raises ValueError: where it is none.
    """
    if re.fullmatch(_NUMBER, text):
        text += "s"
    total, position = Fraction(0), 0
    while position < len(text):
        part = _DURATION_PART.match(text, position)
        if part is None:
            raise ValueError(text)
        total += Fraction(part[1]) * _TIME_UNITS_NS[part[2]]
        position = part.end()
    if not text:
        raise ValueError(text)
    return round(total)


def size_bytes(text: str) -> int:
    """Read a size: ``16MiB``, ``1.5GB``; it needs its unit.

    :raises ValueError: where it is none.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return round(Fraction(match[1]) * _SIZE_UNITS_BYTES[match[2]])


def _integer(text: str) -> int:
    if not re.fullmatch(_INTEGER, text):
        raise ValueError(text)
    return int(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}[text.lower()]


def _age(step: str) -> ValueKind:
    """An age for a tier of this step: nothing would live as long as one bucket of it if it were less."""

    def parse(text: str) -> int:
        age_ns = duration_ns(text)
        if 0 < age_ns < duration_ns(step):
            raise ValueError(text)
        return age_ns

    return ValueKind(parse, f"0 for any age, or a duration of {step} or more", _DURATION_SCHEMA)


def _event_kinds(text: str) -> tuple[str, ...]:
    """Read kinds of events, of those that happen to the machine or are incidents anyway."""
    kinds = set() if text == NO_KIND else {word.strip() for word in text.split(",")}
    known = {name for name, kind in event_kinds.KINDS.items() if event_kinds.BACKGROUND in kind.owners}
    if not kinds <= known.union(event_kinds.INCIDENTS):
        raise ValueError(text)
    return tuple(sorted(kinds))


def _significant_bits(text: str) -> int:
    bits = _integer(text)
    if bits and not 4 <= bits <= 52:  # noqa: PLR2004  the bounds of ``sysmond.base.significant``
        raise ValueError(text)
    return bits


_DURATION_SCHEMA = {
    "type": ["number", "string"],
    "minimum": 0,
    "pattern": rf"^({_NUMBER}|({_DURATION_PART.pattern})+)$",
}
DURATION = ValueKind(duration_ns, "a duration such as 500ms, 5s, 10min or 1h", _DURATION_SCHEMA)
SIZE = ValueKind(
    size_bytes, "a size such as 512KiB, 16MiB or 1GiB", {"type": "string", "pattern": rf"^{_SIZE.pattern}$"}
)
INTEGER = ValueKind(_integer, "a whole number", {"type": ["integer", "string"], "pattern": f"^({_INTEGER})$"})
# YAML says by its tag that a text was quoted, where true is meant and not "true".
BOOLEAN = ValueKind(_boolean, "true or false", {"type": "boolean"}, frozenset(("bool",)))
SIGNIFICANT_BITS = ValueKind(
    _significant_bits,
    "0 for every digit, or a whole number from 4 to 52",
    {"type": ["integer", "string"], "pattern": f"^({_INTEGER})$"},
)
EVENT_KINDS = ValueKind(
    _event_kinds,
    f"kinds of events of the machine, as docs/events.md lists them, with commas between, or {NO_KIND}",
    {"type": "string"},
    frozenset(("str",)),
)
# Only a probe itself declares that it needs a part of its own.
_LANES = (Lane.REALTIME, Lane.BACKGROUND)
LANE = ValueKind(lambda word: _LANES[_LANES.index(Lane(word))], " or ".join(_LANES), {"enum": list(_LANES)})
SENSITIVITY = ValueKind(Sensitivity, " or ".join(Sensitivity), {"enum": list(Sensitivity)})
# The probe itself declares what is right: its text is read where its plugin is known.
OPTION = ValueKind(
    str,
    "true, false, a number or a text",
    {"type": ["boolean", "number", "string"]},
    frozenset(("bool", "str", "int", "float")),
)


TIERS = {"1s": "1s", "10s": "10s", "1min": "1min", "5min": "5min"}
"""The tiers, and the least age that each may be given."""


class ConfigKey(NamedTuple):
    """A key of the configuration. ``default`` and the bounds are spelled as a user would."""

    path: Path
    kind: ValueKind
    doc: str
    default: str = ""
    low: str = ""
    high: str = ""


def _tier_keys(section: str, whose: str, sizes: Sequence[str]) -> Iterator[ConfigKey]:
    """How much and how long is kept in each tier; ``sizes``: of each, from the finest on."""
    for (tier, step), size in zip(TIERS.items(), sizes, strict=True):
        yield ConfigKey(
            (section, tier, "size"),
            SIZE,
            f"The most that the tier {tier}{whose} may ever take on disk; the oldest files are removed first.",
            size,
            "512KiB",
            "1TiB",
        )
        yield ConfigKey(
            (section, tier, "age"),
            _age(step),
            f"How long the tier {tier}{whose} is kept, if it fits; 0 for as long as it fits.",
            "0",
        )


KEYS = (
    ConfigKey(("sampler", "ring_size"), SIZE, "The largest size of a ring, in RAM.", "16MiB", "64KiB", "1GiB"),
    ConfigKey(
        ("sampler", "priority"),
        INTEGER,
        "The real-time priority of the sampler (SCHED_FIFO, 1 to 99); 0 for normal scheduling.",
        "10",
        "0",
        "99",
    ),
    ConfigKey(
        ("sampler", "battery_factor"),
        INTEGER,
        "On battery, the background lane multiplies its intervals by this factor; 1 changes nothing.",
        "2",
        "1",
        "10",
    ),
    ConfigKey(
        ("archive", "seal_interval"),
        DURATION,
        "How often the contents of the rings become a compressed segment in RAM.",
        "600s",
        "1s",
        "1h",
    ),
    ConfigKey(
        ("archive", "flush_interval"),
        DURATION,
        "How often segments may go from RAM to a disk that other programs are using; an idle disk is left idle.",
        "10min",
        "1s",
        "7d",
    ),
    ConfigKey(
        ("archive", "ram_size"),
        SIZE,
        "How much may wait in RAM for the disk; more than this, or than a tenth of tiers.1s.size, is written early.",
        "64MiB",
        "1MiB",
        "64GiB",
    ),
    ConfigKey(
        ("archive", "pin_pressure_percent"),
        INTEGER,
        "The full memory or I/O pressure (PSI, over 10 s) from which rows are pinned automatically; 0 for never.",
        "40",
        "0",
        "100",
    ),
    ConfigKey(
        ("archive", "significant_bits"),
        SIGNIFICANT_BITS,
        "How many significant bits numbers keep once their rows are rolled up and merged; 0 for every digit.",
        "0",
    ),
    ConfigKey(
        ("archive", "share_percent"),
        INTEGER,
        "How much of its file system the archive may take; if all sizes add up to more, each is reduced in proportion.",
        "10",
        "1",
        "100",
    ),
    ConfigKey(
        ("archive", "free_percent"),
        INTEGER,
        "How much of that file system stays free; if less is free, new recordings only replace the oldest ones.",
        "15",
        "0",
        "90",
    ),
    ConfigKey(
        ("incidents", "pins"),
        EVENT_KINDS,
        "Around events of which kinds rows are pinned by themselves, five minutes before and after; none for of none.",
        ", ".join(event_kinds.INCIDENTS),
    ),
    ConfigKey(
        ("incidents", "bursts"),
        EVENT_KINDS,
        "After events of which kinds threads are looked at ten times a second for 30 s; none for after none.",
        ", ".join(event_kinds.INCIDENTS),
    ),
    *_tier_keys("tiers", "", ("200MB", "300MB", "300MB", "400MB")),
    ConfigKey(
        ("tiers", "pins", "size"),
        SIZE,
        "How much pins may keep of 1s beyond its size, and the same of event and of records.",
        "50MB",
        "0B",
        "1TiB",
    ),
    ConfigKey(
        ("tiers", EVENTS, "size"),
        SIZE,
        "The most that events may ever take on disk; the oldest files are removed first.",
        "4MB",
        "512KiB",
        "1TiB",
    ),
    ConfigKey(
        ("tiers", EVENTS, "age"),
        _age("1s"),
        "How long events are kept, if they fit; 0 for as long as they fit.",
        "730d",
    ),
    *_tier_keys("records", " of all long tables together", ("1GB", "100MB", "100MB", "100MB")),
    ConfigKey(("probes", ANY, "enabled"), BOOLEAN, "Whether the probe runs at all; by default, as it declares."),
    ConfigKey(
        ("probes", ANY, "interval"),
        DURATION,
        "How often the probe is read; by default, as it declares. In the background at most "
        f"every {LANE_INTERVAL_MIN_NS[Lane.BACKGROUND] // SECOND_NS}s.",
        "",
        f"{LANE_INTERVAL_MIN_NS[Lane.REALTIME] // 1_000_000}ms",
        f"{INTERVAL_MAX_NS // (3600 * SECOND_NS)}h",
    ),
    ConfigKey(
        ("probes", ANY, "lane"),
        LANE,
        "Where the probe runs: on the real-time tick, or in the background, where it may block. A probe that declares "
        "itself for the background stays there; one that did not come with sysmond begins there.",
    ),
    ConfigKey(
        ("probes", ANY, "sensitivity"),
        SENSITIVITY,
        "Who may read what the probe records. A probe that declares itself restricted stays restricted; one that did "
        "not come with sysmond begins restricted.",
    ),
    ConfigKey(("probes", ANY, "options", ANY), OPTION, "Settings of the probe's own; its documentation lists them."),
)


def option_value(option: Option, text: str) -> Scalar:
    """Read the text of an option as its declaration has it.

    :raises ValueError: where it cannot be, or is not what the option accepts.
    """
    default = option.default
    value: Scalar
    if isinstance(default, bool):
        value = _boolean(text)
    elif isinstance(default, int):
        value = _integer(text)
    elif isinstance(default, float):
        value = float(text)
    else:
        value = text
    if not option.accepts(value):
        raise ValueError(text)
    return value


def spell_duration(length_ns: int) -> str:
    """Spell a duration in the largest unit that has it as a whole number."""
    if not length_ns:
        return "0"
    units = sorted(((size_ns, unit) for unit, size_ns in _TIME_UNITS_NS.items() if unit != "m"), reverse=True)
    for size_ns, unit in units:
        if length_ns % size_ns == 0:
            return f"{length_ns // size_ns}{unit}"
    return f"{length_ns / units[-1][0]:.15f}".rstrip("0") + units[-1][1]


def spell(value: Scalar) -> str:
    """Spell a value as a file would have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def schema() -> dict[str, Any]:
    """The same keys as JSON Schema, for editors and for whoever writes such files by program."""
    root: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sysmond.yaml",
        "description": "Configuration of the recorder sysmond.",
        **_section(),
    }
    for key in KEYS:
        branch = root
        for name in key.path[:-1]:
            branch = _inner(branch, name, _section())
        bounds = f" {key.low} to {key.high}." if key.low else ""
        leaf = {"description": key.doc + bounds, **key.kind.schema}
        if key.kind is INTEGER:
            leaf |= {"minimum": int(key.low), "maximum": int(key.high)}
        _inner(branch, key.path[-1], leaf | ({"default": key.default} if key.default else {}))
    return root


def _section() -> dict[str, Any]:
    return {"type": ["object", "null"], "properties": {}, "additionalProperties": False}


def _inner(branch: dict[str, Any], name: str, what: dict[str, Any]) -> dict[str, Any]:
    """Give what a section has under a name, put there if it is new."""
    inner: dict[str, Any]
    if name == ANY:
        inner = branch["additionalProperties"] = branch["additionalProperties"] or what
    else:
        inner = branch["properties"].setdefault(name, what)
    return inner
