# SPDX-License-Identifier: Apache-2.0
"""Signs in which bars and curves are drawn within a line of text, also for terminals that know only ASCII. Pure."""

from collections.abc import Iterable
from typing import NamedTuple


class Signs(NamedTuple):
    """What bars and curves are drawn with. ``curve``: from nothing to full."""

    full: str
    empty: str
    curve: str
    dot: str
    dash: str
    record: str


SIGNS = Signs("█", "░", "▁▂▃▄▅▆▇█", "·", "–", "●")
ASCII_SIGNS = Signs("#", ".", "_.-~=+*#", "|", "-", "*")


def sparkline(shares: Iterable[float | None], signs: Signs) -> str:
    """A curve of a sign a value, each a share of one; blank where there is none."""
    return "".join(_level(share, signs.curve) for share in shares)


def _level(share: float | None, curve: str) -> str:
    if share is None:
        return " "
    # Temperatures go below zero, and what somebody else recorded may be anything.
    return curve[min(len(curve) - 1, int(min(1.0, max(0.0, share)) * len(curve)))]
