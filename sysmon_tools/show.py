# SPDX-License-Identifier: Apache-2.0
"""What is drawn on a terminal: columns, fields, screens.

Nothing else speaks to rich, which lets escapes through: all that is drawn is ``Text``, which does not.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text as RichText

from sysmond.base.terminal import printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.status import Status

__all__ = ["Console", "Group", "Text", "cell_len"]

_STYLES = {
    "active": "green",
    "running": "green",
    "there": "green",
    "disabled": "dim",
    "absent": "yellow",
    "missing": "yellow",
    "degraded": "yellow",
    "failing": "red",
    "quarantined": "red",
    "refused": "red",
    "no permission": "red",
}


class Text(RichText):
    """A line in its styles, printable whatever it is made of."""

    def __init__(self, text: str = "", *styles: Any, **options: Any) -> None:  # noqa: ANN401  as rich has them
        super().__init__(printable(text), *styles, **options)

    def append(self, text: RichText | str, style: Any = None) -> Self:  # noqa: ANN401  as above
        """Add to the end of it."""
        super().append(printable(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: RichText | str | tuple[str, str]) -> Self:  # type: ignore[override]
        """Make one of parts, each in its style; there is none for all of them."""
        made = cls()
        for part in parts:
            made.append(*part) if isinstance(part, tuple) else made.append(part)
        return made


def segment(text: str, style: str) -> Segment:
    """A line of one style, for who lays it out himself."""
    return Segment(printable(text), Style.parse(style))


def console() -> Console:
    """Standard output; lines are never folded where nobody looks at them."""
    there = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=not there, width=None if there else 10_000, emoji=False, markup=False)


def stacked(lines: Sequence[Text]) -> Group:
    """Lines below each other, to be drawn."""
    return Group(*lines)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> Table:
    """Rows in columns, to be drawn, those named in ``right`` flush right; conditions have their colour."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in head:
        made.add_column(
            Text(name),
            overflow="fold",
            no_wrap=not sys.stdout.isatty(),
            justify="right" if name in right else "left",
        )
    for row in rows:
        made.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    return made


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns."""
    out = console()
    with out.capture() as captured:
        out.print(columns(head, rows))
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        console().print(Text.assemble((f"{name:<{width}}  ", "bold"), (value, _STYLES.get(value, ""))))


def screen(out: Console, drawn: RenderableType | None = None, *, whole: bool = False) -> "Live":
    """What is drawn anew again and again: in place, or on the ``whole`` screen."""
    from rich.live import Live  # noqa: PLC0415  hundreds of spinners, for the few who draw so

    return Live(drawn, console=out, screen=whole, auto_refresh=False, transient=whole)


def waiting(what: str) -> "Status":
    """Show on standard error that something takes its time, and what."""
    return Console(stderr=True).status(Text(what))
