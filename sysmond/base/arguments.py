# SPDX-License-Identifier: Apache-2.0
"""Arguments of the library: what callers give in place of a text, several texts, a number or a place, checked.

Times and lengths of time are ``answers.times``' own. Whatever is wrong is a ``UsageError`` that names the argument.
"""

import functools
import operator
import os
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from sysmond.errors import UsageError, expected, nearest
from sysmond.synonyms import MEANT

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Options of the programs that are called otherwise here.
_OPTIONS = {"sample": "step", "from": "start", "from_": "start", "since": "start", "to": "end", "until": "end"}


def refused(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have a function refuse an argument that it does not have, and name the one that is meant.

    :raises UsageError: then, from the function.
    """
    code = function.__code__
    known = [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name != "self"]

    @functools.wraps(function)
    def checked(*values: _P.args, **named: _P.kwargs) -> _R:
        for name in named.keys() - set(known):
            raise UsageError(f"{function.__name__}(): there is no argument {name!r}{_instead(name, known)}")
        return function(*values, **named)

    return checked


def _instead(name: str, known: list[str]) -> str:
    """What was meant by an argument, by how the programs call it and by how others do."""
    options = [name, *(option.removeprefix("--") for option in MEANT.get(f"--{name.replace('_', '-')}", ()))]
    meant = [_OPTIONS.get(option, option.replace("-", "_")) for option in options]
    found = [each for each in dict.fromkeys(meant) if each in known]
    return f"; did you mean {found[0]}?" if found else nearest(name, known) or f"; {expected(known)}"


def text(what: str, value: object, example: str) -> str:
    """Give a text as it is; None is none.

    :raises UsageError: for anything else, with an example of what is expected.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise UsageError(f"{what} {value!r}: expected a text such as {example!r}")


def texts(what: str, value: object, example: str) -> str | list[str]:
    """Give a text, or several, as they are; None is none.

    :raises UsageError: for anything else.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return value
    items: list[str] = []
    for item in value if isinstance(value, Iterable) else [value]:
        if not isinstance(item, str):
            raise UsageError(f"{what} {item!r}: expected a text such as {example!r}, or several of them")
        items.append(item)
    return items


def whole_number(what: str, value: object) -> int:
    """Give a whole number of any kind; None is 0.

    :raises UsageError: for anything else.
    """
    try:
        return 0 if value is None else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{what} {value!r}: expected a whole number") from None


def number(what: str, value: object) -> float | None:
    """Give a number of any kind; None is none.

    :raises UsageError: for anything else.
    """
    if value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(f"{what} {value!r}: expected a number") from None


def path(what: str, value: object) -> str | None:
    """Give the name of a file or folder, which may be a ``pathlib.Path``; None is none.

    :raises UsageError: for anything else.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        name = os.fspath(value)
        if isinstance(name, str):
            return name
    raise UsageError(f"{what} {value!r}: expected a text or a path")
