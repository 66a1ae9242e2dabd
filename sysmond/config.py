# SPDX-License-Identifier: Apache-2.0
"""Configuration: YAML files become typed settings, or one line that says what would be right.

``KEYS`` is the one place where a key is declared: its kind, bounds, default and documentation.
Later files overrule earlier ones, key by key. Only the resolver imports this.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import yaml

from sysmond.clock import SECOND_NS
from sysmond.errors import ConfigError, nearest
from sysmond.folders import configuration_home
from sysmond.model import Lane, Sensitivity
from sysmond.plan import INTERVAL_MAX_NS, INTERVAL_MIN_NS, ArchiverSettings, SamplerSettings

VENDOR_FILE = "/usr/lib/sysmond/sysmond.yaml"
SYSTEM_FOLDER = "/etc/sysmond"

FILE_BYTES_MAX = 256 * 1024
FILES_MAX = 256
NESTING_MAX = 16
# Longer values are cut short in messages.
_SPELLED_LENGTH_MAX = 60

Path = tuple[str, ...]
"""Where a key stands: ``("archive", "ram_size")``; ``ANY`` stands for a name that the user chooses."""

ANY = "*"

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
_DURATION_PART = re.compile(rf"{_NUMBER}\s*({'|'.join(_TIME_UNITS_NS)})(?![a-z])\s*")
_SIZE = re.compile(rf"{_NUMBER}\s*({'|'.join(_SIZE_UNITS_BYTES)})")


class Origin(NamedTuple):
    """Where something is said."""

    file: str
    line: int

    def __str__(self) -> str:
        """As compilers and editors spell it."""
        return f"{self.file}:{self.line}"


class Setting(NamedTuple):
    """A value, and where it is said. The value of a section is None."""

    value: Any
    origin: Origin


class ProbeSettings(NamedTuple):
    """What is said about a probe; None where its own declaration holds."""

    origin: Origin
    enabled: bool | None = None
    interval_ns: int | None = None
    lane: Lane | None = None
    sensitivity: Sensitivity | None = None


class Config(NamedTuple):
    """The configuration, whole. ``settings``: each key that some file gives, and where."""

    sampler: SamplerSettings = SamplerSettings()
    archiver: ArchiverSettings = ArchiverSettings()
    probes: Mapping[str, ProbeSettings] = {}
    settings: Mapping[Path, Setting] = {}


class Kind(NamedTuple):
    """A kind of value: how its text is read (ValueError where it cannot be), and what is right."""

    parse: Callable[[str], Any]
    right: str


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
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,14}", text):
        raise ValueError(text)
    return int(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}[text.lower()]


def _age(step: str) -> Kind:
    """An age for a tier of this step: nothing would live as long as one bucket of it if it were less."""

    def parse(text: str) -> int:
        age_ns = duration_ns(text)
        if 0 < age_ns < duration_ns(step):
            raise ValueError(text)
        return age_ns

    return Kind(parse, f"0 for any age, or a duration of {step} or more,")


DURATION = Kind(duration_ns, "a duration such as 500ms, 5s, 10min or 1h")
SIZE = Kind(size_bytes, "a size such as 512KiB, 16MiB or 1GiB")
INTEGER = Kind(_integer, "a whole number")
BOOLEAN = Kind(_boolean, "true or false")
LANE = Kind(Lane, " or ".join(Lane))
SENSITIVITY = Kind(Sensitivity, " or ".join(Sensitivity))


TIERS = {"1s": "1s", "10s": "10s", "1min": "1min", "5min": "5min"}
"""The tiers, and the least age that each may be given."""


class Key(NamedTuple):
    """A key of the configuration. ``default`` and the bounds are spelled as a user would."""

    path: Path
    kind: Kind
    doc: str
    default: str = ""
    low: str = ""
    high: str = ""


KEYS = (
    Key(("sampler", "ring_size"), SIZE, "The largest that a ring may be, in RAM.", "16MiB", "64KiB", "1GiB"),
    Key(
        ("sampler", "priority"),
        INTEGER,
        "The real-time priority of the sampler (SCHED_FIFO, 1 to 99); 0 for normal scheduling.",
        "10",
        "0",
        "99",
    ),
    Key(
        ("archive", "seal_interval"),
        DURATION,
        "How often what the rings hold becomes a compressed segment in RAM.",
        "600s",
        "1s",
        "1h",
    ),
    Key(
        ("archive", "flush_interval"),
        DURATION,
        "How often segments may go from RAM to a disk that somebody else is using; one at rest is left at rest.",
        "10min",
        "1s",
        "7d",
    ),
    Key(
        ("archive", "ram_size"),
        SIZE,
        "How much may wait in RAM for the disk; when it is more, it is flushed early.",
        "64MiB",
        "1MiB",
        "64GiB",
    ),
    Key(
        ("archive", "pin_pressure_percent"),
        INTEGER,
        "From how much full memory or I/O pressure (PSI, over 10 s) on rows are pinned by themselves; 0 for never.",
        "40",
        "0",
        "100",
    ),
    *(
        key
        for tier, step in TIERS.items()
        for key in (
            Key(
                ("tiers", tier, "size"),
                SIZE,
                f"How much the tier {tier} may take on disk, at every moment; the oldest files go.",
                "50MB",
                "512KiB",
                "1TiB",
            ),
            Key(
                ("tiers", tier, "age"),
                _age(step),
                f"How long the tier {tier} is kept, if it fits; 0 for as long as it does.",
                "0",
            ),
        )
    ),
    Key(("tiers", "pins", "size"), SIZE, "How much of 1s may be kept beyond that by pins.", "50MB", "0B", "1TiB"),
    Key(("probes", ANY, "enabled"), BOOLEAN, "Whether the probe runs at all.", "true"),
    Key(
        ("probes", ANY, "interval"),
        DURATION,
        "How often it is read; its own declaration says what it is without this.",
        "",
        f"{INTERVAL_MIN_NS // 1_000_000}ms",
        f"{INTERVAL_MAX_NS // (3600 * SECOND_NS)}h",
    ),
    Key(
        ("probes", ANY, "lane"),
        LANE,
        "Where it runs: on the real-time tick, or in the background where it may block. A probe that declares "
        "itself for the background stays there; one that did not come with sysmond begins there.",
    ),
    Key(
        ("probes", ANY, "sensitivity"),
        SENSITIVITY,
        "Who may read what it records. A probe that declares itself restricted stays so; one that did not come "
        "with sysmond begins so.",
    ),
)


def load(*, file: str | None, user: bool, environ: Mapping[str, str], uid: int) -> Config:
    """Read the configuration of this machine or user, or just of ``file``.

    :raises ConfigError: with file, line, key, value and what would be right.
    """
    return read(standard_files(user=user, environ=environ, uid=uid) if file is None else [file])


def standard_files(*, user: bool, environ: Mapping[str, str], uid: int) -> list[str]:
    """Name the files that are there; later ones overrule earlier ones.

    :raises ConfigError: where a folder cannot be read.
    """
    folder = configuration_home(environ, uid) if user else SYSTEM_FOLDER
    drop_ins = f"{folder}/conf.d"
    try:
        names = sorted(name for name in os.listdir(drop_ins) if name.endswith(".yaml") and not name.startswith("."))
    except FileNotFoundError:
        names = []
    except OSError as failure:
        raise ConfigError(f"{drop_ins}: {failure.strerror}; a folder that can be read is right") from failure
    if len(names) > FILES_MAX:
        raise ConfigError(f"{drop_ins}: {len(names)} files; at most {FILES_MAX} are right")
    first = [path for path in (VENDOR_FILE, f"{folder}/sysmond.yaml") if os.path.lexists(path)]
    return [*first, *(f"{drop_ins}/{name}" for name in names)]


def read(files: Iterable[str]) -> Config:
    """Read these files; later ones overrule earlier ones, key by key.

    :raises ConfigError: with file, line, key, value and what would be right.
    """
    settings: dict[Path, Setting] = {}
    for file in files:
        settings |= parse(_content(file), file)
    return _typed(settings)


def parse(content: bytes, file: str) -> dict[Path, Setting]:
    """Turn the text of one file into settings.

    :raises ConfigError: with file, line, key, value and what would be right.
    """
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{file}: larger than {FILE_BYTES_MAX} bytes; a smaller file is right")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(f"{file}:{line}: byte 0x{content[wrong.start]:02x} is not UTF-8; UTF-8 is right") from wrong
    settings: dict[Path, Setting] = {}
    root = _compose(text, file)
    if root is not None:
        _walk(root, (), _tree(), file, settings)
    return settings


class _Loader(yaml.SafeLoader):
    """Composes nodes, of bounded depth and without aliases: a bomb of them needs only a few lines."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401
        if self.check_event(yaml.AliasEvent):
            raise self._refusal("an alias; the value itself is right")
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._refusal(f"nested too deeply; at most {NESTING_MAX} levels are right")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _refusal(self, problem: str) -> yaml.MarkedYAMLError:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return yaml.composer.ComposerError(None, None, problem, mark)


def _compose(text: str, file: str) -> yaml.Node | None:
    line = 1
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_node()
        finally:
            line = loader.line + 1
    except yaml.MarkedYAMLError as wrong:
        mark = wrong.problem_mark or wrong.context_mark
        line = mark.line + 1 if mark else line
        raise ConfigError(_one_line(f"{file}:{line}: not valid YAML: {wrong.problem or wrong.context}")) from wrong
    except yaml.reader.ReaderError as wrong:
        line = text.count("\n", 0, wrong.position) + 1
        problem = f"{file}:{line}: not valid YAML: the character U+{ord(text[wrong.position]):04X} is not allowed"
        raise ConfigError(problem) from wrong
    except (ValueError, OverflowError) as wrong:
        # PyYAML lets the errors of chr() and int() through.
        problem = f"{file}:{line}: not valid YAML: an escape or a version is out of range"
        raise ConfigError(problem) from wrong


def _content(file: str) -> bytes:
    try:
        # O_NONBLOCK: opening a named pipe would wait for its writer, for ever.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(descriptor, True)
        with open(descriptor, "rb") as stream:
            return stream.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "not a path"
        raise ConfigError(_one_line(f"{file}: {reason}; a file that can be read is right")) from failure


_Tree = dict[str, Any]


def _tree() -> _Tree:
    """Arrange KEYS as they are nested in a file: names to Key or to a further tree."""
    root: _Tree = {}
    for key in KEYS:
        branch = root
        for name in key.path[:-1]:
            branch = branch.setdefault(name, {})
        branch[key.path[-1]] = key
    return root


def _walk(node: yaml.Node, path: Path, tree: _Tree, file: str, settings: dict[Path, Setting]) -> None:
    for name, value, origin in _pairs(node, path, file):
        inner = (*path, name)
        if name not in tree and ANY not in tree:
            right = nearest(name, tree) or f"; {', '.join(tree)} are right"
            raise ConfigError(f"{origin}: {_spell_path(inner)}: no such key{right}")
        branch = tree.get(name) or tree[ANY]
        if isinstance(branch, Key):
            settings[inner] = Setting(_value(value, branch, inner, origin), origin)
        else:
            settings[inner] = Setting(None, origin)
            _walk(value, inner, branch, file, settings)


def _pairs(node: yaml.Node, path: Path, file: str) -> Iterator[tuple[str, yaml.Node, Origin]]:
    """Give the keys and values of a section; one whose lines are all commented out has none."""
    place = f"{Origin(file, node.start_mark.line + 1)}: {_spell_path(path) or 'the file'}"
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return
    if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
        raise ConfigError(f"{place}: {_spell_node(node)} is not a section; lines of 'key: value' are right")
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        origin = Origin(file, key.start_mark.line + 1)
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{origin}: {_spell_path(path) or 'the file'}: {_spell_node(key)} is not a name")
        name = key.value
        if name in first_lines:
            once = f"given twice, first in line {first_lines[name]}; once is right"
            raise ConfigError(f"{origin}: {_spell_path((*path, name))}: {once}")
        first_lines[name] = origin.line
        yield name, value, origin


def _value(node: yaml.Node, key: Key, path: Path, origin: Origin) -> Any:  # noqa: ANN401
    right = f"{key.kind.right} is right"
    tag = node.tag.removeprefix("tag:yaml.org,2002:")
    if tag == "null":
        raise ConfigError(f"{origin}: {_spell_path(path)}: no value; {right}")
    problem = f"{origin}: {_spell_path(path)}: {_spell_node(node)}"
    # YAML says by its tag that a text was quoted, where true is meant and not "true".
    wanted = {"bool"} if key.kind is BOOLEAN else {"str", "int", "float"}
    if not isinstance(node, yaml.ScalarNode) or tag not in wanted:
        raise ConfigError(f"{problem} is wrong; {right}")
    try:
        value = key.kind.parse(node.value)
    except (ValueError, KeyError):
        raise ConfigError(f"{problem} is wrong; {right}") from None
    if key.low and not key.kind.parse(key.low) <= value <= key.kind.parse(key.high):
        raise ConfigError(f"{problem} is out of bounds; {key.low} to {key.high} is right")
    return value


def _typed(settings: dict[Path, Setting]) -> Config:
    def given(*path: str) -> Any:  # noqa: ANN401
        return settings[path].value if path in settings else None

    def seconds(*path: str) -> float | None:
        return None if (ns := given(*path)) is None else ns / SECOND_NS

    return Config(
        SamplerSettings(**_but_none(ring_bytes=given("sampler", "ring_size"), priority=given("sampler", "priority"))),
        ArchiverSettings(
            **_but_none(
                seal_interval_s=seconds("archive", "seal_interval"),
                flush_interval_s=seconds("archive", "flush_interval"),
                ram_bytes=given("archive", "ram_size"),
                pins_bytes=given("tiers", "pins", "size"),
                pin_pressure_percent=given("archive", "pin_pressure_percent"),
                **{f"size_{tier}_bytes": given("tiers", tier, "size") for tier in TIERS},
                **{f"age_{tier}_ns": given("tiers", tier, "age") for tier in TIERS},
            )
        ),
        {
            path[1]: ProbeSettings(
                section.origin,
                given(*path, "enabled"),
                given(*path, "interval"),
                given(*path, "lane"),
                given(*path, "sensitivity"),
            )
            for path, section in settings.items()
            if path[0] == "probes" and len(path) == len(("probes", ANY))
        },
        settings,
    )


def _but_none(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {name: value for name, value in fields.items() if value is not None}


def _spell_path(path: Path) -> str:
    return ".".join(name if re.fullmatch(r"\w+", name) else _cut(repr(name)) for name in path)


def _spell_node(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return _cut(repr(node.value))
    kind = "a list" if isinstance(node, yaml.SequenceNode) else "a section"
    return kind if node.tag.endswith((":map", ":seq")) else f"{kind} tagged {_cut(repr(node.tag))}"


def _cut(text: str) -> str:
    return text if len(text) <= _SPELLED_LENGTH_MAX else f"{text[: _SPELLED_LENGTH_MAX - 1]}…"


def _one_line(text: str) -> str:
    return " ".join(text.split())
