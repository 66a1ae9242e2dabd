# SPDX-License-Identifier: Apache-2.0
"""Configuration: YAML files become typed settings, or one line that says what would be right.

``sysmond.plan.config_keys`` declares what they may say. Later files overrule earlier ones, key by key. Only the
resolver imports this.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import yaml

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import EVENTS, Lane, Sensitivity
from sysmond.errors import SUGGESTED_MAX, ConfigError, nearest
from sysmond.machine.folders import configuration_home
from sysmond.plan.config_keys import ANY, KEYS, TIERS, ConfigKey, Path
from sysmond.plan.plan import ArchiverSettings, SamplerSettings

VENDOR_FILE = "/usr/lib/sysmond/sysmond.yaml"
SYSTEM_FOLDER = "/etc/sysmond"

FILE_BYTES_MAX = 256 * 1024
FILES_MAX = 256
# A probe's section is probes.NAME; its keys lie deeper.
PROBE_DEPTH = 2
NESTING_MAX = 16
# Keys, values and sections of a file. A hundred thousand, for which there is room, take a quarter of a minute.
NODES_MAX = 10_000
VALUE_LENGTH_MAX = 4096
# Longer values are cut short in messages.
_SPELLED_LENGTH_MAX = 60
# How like a key that stands elsewhere a name has to be, from 0 to 1, to be taken for it.
_LIKE = 0.85
# How messages spell what stands for any table.
_ANY_SPELLED = "TABLE"
# As PyYAML words what newcomers do wrong most often.
_A_TAB = r"found character '\t' that cannot start any token"


class Origin(NamedTuple):
    """Where something is said."""

    file: str
    line: int

    def __str__(self) -> str:
        """As compilers and editors spell it."""
        return f"{self.file}:{self.line}"


class Setting(NamedTuple):
    """A value, where it is said, and in which words. The value of a section is None."""

    value: Any
    origin: Origin
    text: str = ""


class ProbeSettings(NamedTuple):
    """What is said about a probe; None where its own declaration holds. ``options``: as they are spelled."""

    origin: Origin
    enabled: bool | None = None
    interval_ns: int | None = None
    lane: Lane | None = None
    sensitivity: Sensitivity | None = None
    options: Mapping[str, str] = {}


class Config(NamedTuple):
    """The configuration, whole. ``settings``: each key that some file gives, and where."""

    sampler: SamplerSettings = SamplerSettings()
    archiver: ArchiverSettings = ArchiverSettings()
    probes: Mapping[str, ProbeSettings] = {}
    settings: Mapping[Path, Setting] = {}


class ConfigFiles(NamedTuple):
    """Which files there are to read: ``first``, where they exist, then the ``*.yaml`` of the folder ``drop_ins``."""

    first: tuple[str, ...]
    drop_ins: str


def place(*, file: str | None, user: bool, environ: Mapping[str, str], uid: int) -> ConfigFiles:
    """Say where the configuration of this machine or user lies, or that which begins with ``file``."""
    if file is not None:
        return ConfigFiles((file,), f"{file}.d")
    folder = configuration_home(environ, uid) if user else SYSTEM_FOLDER
    return ConfigFiles(tuple(filter(os.path.lexists, (VENDOR_FILE, f"{folder}/sysmond.yaml"))), f"{folder}/conf.d")


def files(where: ConfigFiles) -> list[str]:
    """Name the files that are there; later ones overrule earlier ones.

    :raises ConfigError: where a folder cannot be read.
    """
    drop_ins = where.drop_ins
    try:
        names = sorted(name for name in os.listdir(drop_ins) if name.endswith(".yaml") and not name.startswith("."))
    except FileNotFoundError:
        names = []
    except OSError as failure:
        raise ConfigError(f"{drop_ins}: {failure.strerror}; expected a folder that can be read") from failure
    if len(names) > FILES_MAX:
        raise ConfigError(f"{drop_ins}: {len(names)} files; expected at most {FILES_MAX}")
    return [*where.first, *(f"{drop_ins}/{name}" for name in names)]


def read(paths: Iterable[str], instead: Mapping[str, bytes] | None = None) -> Config:
    """Read these files; later ones overrule earlier ones, key by key. ``instead``: what some of them are to be.

    :raises ConfigError: with file, line, key, value and what would be right.
    """
    settings: dict[Path, Setting] = {}
    for path in paths:
        content = None if instead is None else instead.get(path)
        settings |= parse(_content(path) if content is None else content, path)
    return _typed(settings)


def read_one(path: str) -> dict[Path, Setting]:
    """Read what one file says; nothing, where it is not there.

    :raises ConfigError: with file, line, key, value and what would be right.
    """
    return parse(_content(path), path) if os.path.lexists(path) else {}


def parse(content: bytes, file: str) -> dict[Path, Setting]:
    """Turn the text of one file into settings.

    :raises ConfigError: with file, line, key, value and what would be right.
    """
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{file}: larger than {FILE_BYTES_MAX} bytes; expected a smaller file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(f"{file}:{line}: byte 0x{content[wrong.start]:02x} is not UTF-8; expected UTF-8") from wrong
    settings: dict[Path, Setting] = {}
    root = _compose(text, file)
    if root is not None:
        _walk(root, (), _tree(), file, settings)
    return settings


class _Loader(yaml.SafeLoader):
    """Composes nodes, of bounded number and depth and without aliases: a bomb of them needs only a few lines."""

    _depth = 0
    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401
        if self.check_event(yaml.AliasEvent):
            raise self._refusal("an alias; expected the value itself")
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._refusal(f"nested too deeply; expected at most {NESTING_MAX} levels")
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise self._refusal(f"more than {NODES_MAX} keys and values; expected fewer")
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
        problem = wrong.problem or wrong.context
        if problem == _A_TAB:
            problem = "a line begins with a tab; expected spaces"
        raise ConfigError(_one_line(f"{file}:{line}: not valid YAML: {problem}")) from wrong
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
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as stream:
            os.set_blocking(stream.fileno(), True)
            return stream.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "not a path"
        raise ConfigError(_one_line(f"{file}: {reason}; expected a file that can be read")) from failure


_Tree = dict[str, Any]


def _tree() -> _Tree:
    """Arrange KEYS as they are nested in a file: names to ConfigKey or to a further tree."""
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
            raise ConfigError(f"{origin}: {spell_path(inner)}: no such key{_meant(name, tree)}")
        branch = tree.get(name) or tree[ANY]
        if isinstance(branch, ConfigKey):
            settings[inner] = Setting(_value(value, branch, inner, origin), origin, value.value)
        else:
            settings[inner] = Setting(None, origin)
            _walk(value, inner, branch, file, settings)


def _meant(name: str, tree: _Tree) -> str:
    """Say where a name is a key, else what comes near it here or elsewhere, else what is a key here."""
    places: dict[str, list[str]] = {}
    for key in KEYS:
        for depth, part in enumerate(key.path, 1):
            spelled = ".".join(_ANY_SPELLED if one == ANY else one for one in key.path[:depth])
            if part != ANY and spelled not in places.setdefault(part, []):
                places[part].append(spelled)
    near = "" if name in places else nearest(name, tree)
    there = [place for part in get_close_matches(name, places, 1, _LIKE) for place in places[part]]
    if near or not there:
        return near or f"; expected {', '.join(tree)}"
    if len(there) <= SUGGESTED_MAX:
        return f"; did you mean {' or '.join(there)}?"
    return f"; did you mean {', '.join(there[:SUGGESTED_MAX])} or {len(there) - SUGGESTED_MAX} more?"


def _pairs(node: yaml.Node, path: Path, file: str) -> Iterator[tuple[str, yaml.Node, Origin]]:
    """Give the keys and values of a section; one whose lines are all commented out has none."""
    place = f"{Origin(file, node.start_mark.line + 1)}: {spell_path(path) or 'the file'}"
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return
    if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
        raise ConfigError(f"{place}: {_spell_node(node)} is not a section; expected lines of 'key: value'")
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        origin = Origin(file, key.start_mark.line + 1)
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{origin}: {spell_path(path) or 'the file'}: {_spell_node(key)} is not a name")
        name = key.value
        if name in first_lines:
            once = f"given twice, first in line {first_lines[name]}; expected once"
            raise ConfigError(f"{origin}: {spell_path((*path, name))}: {once}")
        first_lines[name] = origin.line
        yield name, value, origin


def _value(node: yaml.Node, key: ConfigKey, path: Path, origin: Origin) -> Any:  # noqa: ANN401
    right = f"expected {key.kind.right}"
    tag = node.tag.removeprefix("tag:yaml.org,2002:")
    if tag == "null":
        raise ConfigError(f"{origin}: {spell_path(path)}: no value; {right}")
    problem = f"{origin}: {spell_path(path)}: {_spell_node(node)}"
    if not isinstance(node, yaml.ScalarNode) or tag not in key.kind.tags:
        raise ConfigError(f"{problem} is wrong; {right}")
    if len(node.value) > VALUE_LENGTH_MAX:
        raise ConfigError(f"{problem} has {len(node.value)} characters; expected at most {VALUE_LENGTH_MAX}")
    try:
        value = key.kind.parse(node.value)
    except (ValueError, KeyError):
        raise ConfigError(f"{problem} is wrong; {right}") from None
    if key.low and not key.kind.parse(key.low) <= value <= key.kind.parse(key.high):
        raise ConfigError(f"{problem} is out of bounds; expected {key.low} to {key.high}")
    return value


def _typed(settings: dict[Path, Setting]) -> Config:
    def given(*path: str) -> Any:  # noqa: ANN401
        return settings[path].value if path in settings else None

    def seconds(*path: str) -> float | None:
        return None if (ns := given(*path)) is None else ns / SECOND_NS

    return Config(
        SamplerSettings(
            **_but_none(
                ring_bytes=given("sampler", "ring_size"),
                priority=given("sampler", "priority"),
                battery_factor=given("sampler", "battery_factor"),
                burst_kinds=given("incidents", "bursts"),
            )
        ),
        ArchiverSettings(
            **_but_none(
                seal_interval_s=seconds("archive", "seal_interval"),
                flush_interval_s=seconds("archive", "flush_interval"),
                ram_bytes=given("archive", "ram_size"),
                pins_bytes=given("tiers", "pins", "size"),
                pin_pressure_percent=given("archive", "pin_pressure_percent"),
                pin_kinds=given("incidents", "pins"),
                significant_bits=given("archive", "significant_bits"),
                share_percent=given("archive", "share_percent"),
                free_percent=given("archive", "free_percent"),
                **{f"size_{tier}_bytes": given("tiers", tier, "size") for tier in TIERS},
                **{f"age_{tier}_ns": given("tiers", tier, "age") for tier in TIERS},
                size_event_bytes=given("tiers", EVENTS, "size"),
                age_event_ns=given("tiers", EVENTS, "age"),
                **{f"records_size_{tier}_bytes": given("records", tier, "size") for tier in TIERS},
                **{f"records_age_{tier}_ns": given("records", tier, "age") for tier in TIERS},
            )
        ),
        {
            path[1]: ProbeSettings(
                section.origin,
                given(*path, "enabled"),
                given(*path, "interval"),
                given(*path, "lane"),
                given(*path, "sensitivity"),
                {
                    inner[3]: said.value
                    for inner, said in settings.items()
                    if inner[:3] == (*path, "options") and inner[3:]
                },
            )
            for path, section in settings.items()
            if path[0] == "probes" and len(path) == PROBE_DEPTH
        },
        settings,
    )


def _but_none(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {name: value for name, value in fields.items() if value is not None}


def spell_path(path: Path) -> str:
    """Spell a key as its place in a file: ``probes.disk.interval``."""
    return ".".join(_cut(name if re.fullmatch(r"\w+", name) else repr(name)) for name in path)


def _spell_node(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return spell_text(node.value)
    kind = "a list" if isinstance(node, yaml.SequenceNode) else "a section"
    return kind if node.tag.endswith((":map", ":seq")) else f"{kind} tagged {_cut(repr(node.tag))}"


def spell_text(text: str) -> str:
    """Spell a value in quotes, cut short where it is long."""
    return _cut(repr(text))


def _cut(text: str) -> str:
    return text if len(text) <= _SPELLED_LENGTH_MAX else f"{text[: _SPELLED_LENGTH_MAX - 1]}…"


def _one_line(text: str) -> str:
    return " ".join(text.split())
