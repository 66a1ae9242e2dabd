# SPDX-License-Identifier: Apache-2.0
"""Puts rows below their parents: processes by the number of who started them, control groups by their path. Pure."""

from collections.abc import Hashable, Sequence

_THROUGH, _BRANCH, _LAST = "│ ", "├─", "└─"
_PLAIN = {_THROUGH: "| ", _BRANCH: "|-", _LAST: "`-"}


def parent_path(path: str) -> str | None:
    """The nearest path above one; None above the root."""
    if path in {"", "/"}:
        return None
    return path.rpartition("/")[0] or "/"


def below(
    order: Sequence[int], names: Sequence[Hashable], parents: Sequence[Hashable | None], *, is_ascii: bool = False
) -> tuple[list[int], list[str]]:
    """Rows in the order of a tree, and what is drawn before each.

    ``order``: rows as they would come without a tree, which brothers keep. Who has no parent among the rows stands at
    the left; so does, once, whoever is his own ancestor.
    """
    rows = {names[row]: row for row in reversed(order)}
    children: dict[int, list[int]] = {}
    roots = []
    for row in order:
        parent = rows.get(parents[row]) if parents[row] is not None else None
        if parent is None or parent == row:
            roots.append(row)
        else:
            children.setdefault(parent, []).append(row)
    made: list[int] = []
    drawn: list[str] = []
    seen: set[int] = set()
    # A stack, because a chain of processes may be longer than Python's own.
    for root in [*roots, *order]:
        stack = [] if root in seen else [(root, "", "")]
        while stack:
            row, before, own = stack.pop()
            if row in seen:
                continue
            seen.add(row)
            made.append(row)
            drawn.append(before + own)
            inner = before + {"": "", _BRANCH: _THROUGH, _LAST: "  "}[own]
            under = children.get(row, [])
            stack += [(child, inner, _LAST if child == under[-1] else _BRANCH) for child in reversed(under)]
    return made, [_spelled(line) for line in drawn] if is_ascii else drawn


def _spelled(line: str) -> str:
    for sign, plain in _PLAIN.items():
        line = line.replace(sign, plain)
    return line
