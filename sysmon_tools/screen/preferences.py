# SPDX-License-Identifier: Apache-2.0
"""What somebody prefers on the screen: other keys and other columns, from ``screen.toml`` in the own configuration.

    [keys]
    down = ["j", "down"]                  # an action or a view, as the palette (:) names them
    processes = "P"

    [columns]
    "processes/general" = ["comm", "cpu_percent", "command:60"]  # a view and a sheet of it; NAME:WIDTH

Nothing of it is code, and whatever is wrong in it is one line: the screen comes up with the defaults.
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sysmon_tools.screen import keys
from sysmon_tools.screen.keys import KeyMap
from sysmon_tools.screen.views import VIEWS, SheetColumns
from sysmond.errors import Error, UsageError, expected, nearest
from sysmond.machine.folders import configuration_home

FILE = "screen.toml"
FILE_BYTES_MAX = 64 * 1024
WIDTH_MAX = 1000


class Preferences(NamedTuple):
    """``columns``: those of sheets, by view and sheet, as ``processes/general``."""

    keys: KeyMap
    columns: Mapping[str, SheetColumns] = {}


def default() -> Preferences:
    """What the screen has by itself."""
    return Preferences(keys.mapped({}))


def place(environ: Mapping[str, str]) -> str:
    """Where the file of who asks would lie."""
    return f"{configuration_home(environ, os.getuid())}/{FILE}"


def read(path: str) -> Preferences:
    """Read a file; what the screen has by itself where there is none.

    :raises UsageError: with file and place, for what is wrong. :raises Error: where it cannot be read.
    """
    try:
        # O_NONBLOCK: opening a named pipe would wait for its writer, for ever.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return default()
    except OSError as failure:
        raise Error(f"{path}: {failure.strerror}; expected a file that can be read") from failure
    try:
        return parsed(content)
    except UsageError as problem:
        raise UsageError(f"{path}: {problem}") from None


def parsed(content: bytes) -> Preferences:
    """Read the text of a file.

    :raises UsageError: for what is wrong.
    """
    if len(content) > FILE_BYTES_MAX:
        raise UsageError(f"larger than {FILE_BYTES_MAX} bytes; expected a smaller file")
    import tomllib  # noqa: PLC0415  most have no such file

    try:
        sections = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as wrong:
        raise UsageError(f"not valid TOML: {str(wrong).splitlines()[0]}") from wrong
    for name in sections:
        if name not in ("keys", "columns"):
            raise UsageError(f"[{name}]: no such section; expected keys or columns")
    chosen = {action: _texts(f"keys: {action}", said) for action, said in _section(sections, "keys").items()}
    columns = {name: _columns(name, said) for name, said in _section(sections, "columns").items()}
    return Preferences(keys.mapped(chosen), columns)


def _section(sections: Mapping[str, object], name: str) -> Mapping[str, object]:
    section = sections.get(name, {})
    if not isinstance(section, dict):
        raise UsageError(f"{name}: {section!r} is not a section; expected [{name}] and lines 'name = value' below it")
    return section


def _texts(place_of: str, said: object) -> Sequence[str]:
    """Read a text, or a list of them."""
    texts = said if isinstance(said, list) else [said]
    right = [text for text in texts if isinstance(text, str) and text]
    if not right or len(right) < len(texts):
        raise UsageError(f'{place_of}: {said!r} is wrong; expected a text, or a list such as ["a", "b"]')
    return right


def _columns(name: str, said: object) -> SheetColumns:
    sheets = [f"{view.name}/{sheet.name}" for view in VIEWS for sheet in view.sheets]
    if name not in sheets:
        raise UsageError(f"columns: there is no sheet {name!r}{nearest(name, sheets, expected(sheets))}")
    return chosen_columns(",".join(_texts(f"columns: {name}", said)))


def chosen_columns(text: str, known: Sequence[str] | None = None) -> SheetColumns:
    """Read names of columns with commas between them, each with a width or without; ``known``: those that there are.

    :raises UsageError: for one that there is not, a wrong width, or none at all.
    """
    widths: dict[str, int] = {}
    for word in (word.strip() for word in text.split(",")):
        name, _, width = word.partition(":")
        if known is not None and name not in known:
            raise UsageError(f"there is no column {name!r}{nearest(name, known, expected(known))}")
        if width and not (width.isascii() and width.isdecimal() and 0 < int(width[:9]) <= WIDTH_MAX):
            raise UsageError(f"column {word!r}: expected NAME or NAME:WIDTH, of 1 to {WIDTH_MAX} characters")
        if not name or name in widths:
            raise UsageError(f"column {word!r}: expected a name, and each once")
        widths[name] = int(width or 0)
    return SheetColumns(tuple(widths), {name: width for name, width in widths.items() if width})
