# SPDX-License-Identifier: Apache-2.0
"""The drop-in of changes made while sysmond runs: read like any other file, and written by the resolver alone."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from sysmond.errors import ConfigError, UsageError
from sysmond.machine import note
from sysmond.plan import config
from sysmond.plan.config import Config, ConfigFiles
from sysmond.plan.config_keys import Path

NAME = "90-sysmonctl.yaml"
HEAD = """\
# Written by sysmond when a setting is changed while it runs: sysmonctl enable, disable, set. What is changed so
# again is changed here, and comments are not kept. A file read later overrules it; removing it takes all back.
"""
# What YAML takes for a text, a number or a truth as it stands.
_PLAIN = re.compile(r"[0-9.]+[A-Za-z]*|(?!null$)[A-Za-z_][A-Za-z0-9_]*", re.IGNORECASE)
_PROBES = "probes"


class Change(NamedTuple):
    """A key, and the text that it is to have; None takes it out."""

    path: Path
    text: str | None


def parse_change(argument: str, *, is_set: bool) -> Change:
    """Read ``probes.disk.interval=5s`` or ``tiers.1s.size=1GB``, or the key alone where it is to be taken out.

    :raises UsageError: where it is none.
    """
    words, equals, text = argument.partition("=")
    path = tuple(words.split("."))
    is_short = len(path) <= (config.PROBE_DEPTH if path[0] == _PROBES else 1)
    if is_short or "" in path or bool(equals) is not is_set:
        right = "SECTION.KEY=VALUE or probes.NAME.KEY=VALUE" if is_set else "SECTION.KEY or probes.NAME.KEY"
        raise UsageError(f"{argument[:80]!r} is not a change; expected {right}")
    return Change(path, text if is_set else None)


def read_changed(where: ConfigFiles, changes: Iterable[Change]) -> tuple[Config, bytes]:
    """Read the configuration as it will be with these changes, and give the text of the drop-in that makes it so.

    :raises ConfigError: where the files or the changes are wrong, or a later file overrules one.
    """
    path = f"{where.drop_ins}/{NAME}"
    before = config.files(where)  # Wrong files are named before wrong changes are.
    texts = {key: said.text for key, said in config.read_one(path).items() if said.value is not None}
    wanted = list(changes)
    for change in wanted:
        if change.text is None:
            texts.pop(change.path, None)
        else:
            texts[change.path] = change.text
    what = _spell(texts)
    paths = before if path in before else [*where.first, *sorted([*before[len(where.first) :], path])]
    made = config.read(paths, {path: what})
    for change in wanted:
        said = made.settings.get(change.path)
        if change.text is not None and (said is None or said.origin.file != path):
            where_said = path if said is None else said.origin
            key = config.spell_path(change.path)
            raise ConfigError(f"{where_said}: {key} is set there, which overrides {NAME}; change it there")
    return made, what


def as_asked(where: ConfigFiles, changes: Iterable[Change], problem: str) -> str:
    """Say what is wrong with a change to who asked for it: the line of the file is not written, and never will be."""
    said = re.sub(rf"^{re.escape(where.drop_ins)}/{re.escape(NAME)}:\d+: ", "", problem)
    for change in changes:
        for length in range(2, len(change.path) + 1):
            if said.startswith(f"{config.spell_path(change.path[:length])}:"):
                return said
    return problem


def content(where: ConfigFiles) -> bytes:
    """What the drop-in says now; without one, what it says where it says nothing.

    :raises OSError: where it cannot be read.
    """
    try:
        with open(f"{where.drop_ins}/{NAME}", "rb") as file:
            return file.read()
    except FileNotFoundError:
        return HEAD.encode()


def write(where: ConfigFiles, what: bytes) -> None:
    """Put the drop-in in place, or remove it where nothing is left in it.

    :raises OSError: where it cannot be written.
    """
    path = f"{where.drop_ins}/{NAME}"
    if what == HEAD.encode():
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    os.makedirs(where.drop_ins, exist_ok=True)
    note.put(path, what, lasting=True)


def _spell(texts: Mapping[Path, str]) -> bytes:
    """Spell settings as a file, sections within sections."""
    lines: list[str] = []
    open_: Path = ()
    for path in sorted(texts):
        new = [depth for depth in range(len(path) - 1) if path[: depth + 1] != open_[: depth + 1]]
        lines += [f"{'  ' * depth}{_scalar(path[depth])}:" for depth in new]
        lines.append(f"{'  ' * (len(path) - 1)}{_scalar(path[-1])}: {_scalar(texts[path])}")
        open_ = path[:-1]
    return "".join([HEAD, *(f"{line}\n" for line in lines)]).encode("utf-8", "surrogatepass")


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
