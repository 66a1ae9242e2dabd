# SPDX-License-Identifier: Apache-2.0
"""What sysmonctl prints: columns, fields, and how intervals, lengths of time and sizes are spelled."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sysmond.clock import SECOND_NS

DAY_S = 86400
_STYLES = {
    "active": "green",
    "running": "green",
    "there": "green",
    "disabled": "dim",
    "absent": "yellow",
    "missing": "yellow",
    "degraded": "yellow",
    "quarantined": "red",
    "refused": "red",
    "no permission": "red",
}


class Answer(NamedTuple):
    """What a command found, as JSON has it; how it is shown to people; the exit code."""

    found: Any
    show: Callable[[], None]
    code: int = 0


def console() -> Console:
    """Standard output; lines are never folded where nobody looks at them."""
    there = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=not there, width=None if there else 10_000, emoji=False, markup=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; conditions in their colour."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in head:
        made.add_column(name, overflow="fold", no_wrap=not sys.stdout.isatty())
    for row in rows:
        made.add_row(*(Text(printable(cell), _STYLES.get(cell, "")) for cell in row))
    out = console()
    with out.capture() as taken:
        out.print(made)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in taken.get().splitlines()))


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        console().print(Text.assemble((f"{name:<{width}}  ", "bold"), (printable(value), _STYLES.get(value, ""))))


def printable(text: str) -> str:
    """Escape what would move the cursor: names of mounts, marks and the like are other people's."""
    return text if text.isprintable() else repr(text)[1:-1]


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
