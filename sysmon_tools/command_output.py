# SPDX-License-Identifier: Apache-2.0
"""What a command answers, in fields or columns, and how intervals, lengths of time and sizes are spelled in it.

Drawn on a terminal; elsewhere, where most of the time would go into importing what draws, the same without colours.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from sysmon_tools.grid import length
from sysmond.base.clock import SECOND_NS
from sysmond.base.terminal import printable, put

DAY_S = 86400
_BETWEEN = "  "


class CommandOutput(NamedTuple):
    """What a command answers, as JSON has it; how it is shown to people; the exit code."""

    document: Any
    show: Callable[[], None]
    code: int = 0


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns."""
    if sys.stdout.isatty():
        from sysmon_tools import show  # noqa: PLC0415  see above

        show.table(head, rows)
        return
    lines = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(length, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell + " " * (width - length(cell)) for cell, width in zip(line, widths, strict=True))
        put(_BETWEEN.join(padded).rstrip())


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    if sys.stdout.isatty():
        from sysmon_tools import show  # noqa: PLC0415  see above

        show.fields(pairs)
        return
    width = max((len(name) for name, _ in pairs), default=0)
    put(*(f"{name:<{width}}{_BETWEEN}{value}" for name, value in pairs))


def waiting(what: str) -> AbstractContextManager[object]:
    """Show on standard error that something takes its time, and what."""
    if not sys.stderr.isatty():
        return nullcontext()
    from sysmon_tools import show  # noqa: PLC0415  see above

    return show.waiting(what)


def interval(interval_ns: int) -> str:
    """Spell an interval: ``500ms``, ``1s``, ``5min``."""
    if not interval_ns:
        return "–"
    for name, unit_ns in (("min", 60 * SECOND_NS), ("s", SECOND_NS), ("ms", SECOND_NS // 1000)):
        if interval_ns % unit_ns == 0:
            return f"{interval_ns // unit_ns}{name}"
    return f"{interval_ns / SECOND_NS:g}s"


def duration(seconds: float) -> str:
    """Spell how long something lasts."""
    days, rest = divmod(int(seconds), DAY_S)
    hours, minutes, left = rest // 3600, rest // 60 % 60, rest % 60
    units = ((days, "d"), (hours, "h"), (minutes, "min"), (left, "s"))
    return " ".join(f"{number} {unit}" for number, unit in units if number) or "0 s"


def megabytes(size_bytes: float) -> str:
    """Spell a size."""
    return f"{size_bytes / 1e6:.1f} MB"
