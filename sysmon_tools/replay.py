# SPDX-License-Identifier: Apache-2.0
"""The page of a moment on a terminal, and the keys that lead from one moment to another.

Everything is asked when a key wants it, in the one thread there is: whoever ends waits for nothing.
"""

import os
import select
import sys
import time

from sysmon_tools.live import ENDING_SIGNALS
from sysmon_tools.moment import BUCKETS, ZOOMS, MomentScene, View, look, of_now, spike
from sysmon_tools.moment_page import KEYS, page
from sysmon_tools.panel import ASCII_SIGNS, SIGNS
from sysmon_tools.show import Console, Group, Text, screen, stacked
from sysmond.history import Archive

# Who started it is looked for so often: a terminal that is gone sends no key.
LOOK_S = 5.0
_ENDING_KEYS = frozenset("qQ\x03\x04")
_ORDERS = {"C": "cpu", "P": "cpu", "M": "memory", "D": "disk"}
_ZOOMS = {"+": -1, "=": -1, "-": 1}
# What terminals send for keys that have no letter.
_ARROWS = {"\x1b[C": "t", "\x1b[D": "T", "\x1bOC": "t", "\x1bOD": "T"}


class Replay:
    """The page of a moment on a terminal, moved by keys."""

    def __init__(self, archive: Archive, out: Console, at_ns: int) -> None:
        """Look at this moment."""
        self._archive = archive
        self._out = out
        self._moment = look(archive, View(at_ns), time.time_ns())
        self._is_help = False

    def show(self, woken: int) -> bool:
        """Draw, and follow keys; whether the live view is wanted next."""
        parent = os.getppid()
        with screen(self._out, self._drawn(), whole=True) as drawn:
            drawn.refresh()
            while os.getppid() == parent:
                ready, _, _ = select.select([sys.stdin, woken], [], [], LOOK_S)
                if woken in ready and self._has_to_end(woken):
                    return False
                if sys.stdin in ready:
                    pressed = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
                    for key in keys_of(pressed) if pressed else "q":
                        if key in _ENDING_KEYS:
                            return False
                        if key == "l":
                            return True
                        self._obey(key)
                drawn.update(self._drawn(), refresh=True)
        return False

    @staticmethod
    def _has_to_end(woken: int) -> bool:
        return not set(os.read(woken, 64)).isdisjoint(ENDING_SIGNALS)

    def _drawn(self) -> Group:
        width, height = self._out.size
        signs = ASCII_SIGNS if self._out.options.ascii_only else SIGNS
        lines = page(self._moment, width, height - 1, signs, is_help=self._is_help)
        keys = Text(KEYS, "dim")
        keys.truncate(width)
        return stacked([*lines, *(Text() for _ in range(height - 1 - len(lines))), keys][:height])

    def _obey(self, key: str) -> None:
        self._is_help = key == "?" and not self._is_help
        view = turned(self._moment, key, time.time_ns())
        if view != self._moment.view:
            self._moment = look(self._archive, view, time.time_ns())


def keys_of(pressed: str) -> list[str]:
    """Split what a terminal sent into keys; an arrow is the letter that does the same, escape alone ends."""
    keys: list[str] = []
    while pressed:
        arrow = next((arrow for arrow in _ARROWS if pressed.startswith(arrow)), "")
        if arrow:
            keys.append(_ARROWS[arrow])
        elif pressed[0] != "\x1b":
            keys.append(pressed[0])
        elif len(pressed) == 1:
            keys.append("q")
        else:  # A key that means nothing here.
            break
        pressed = pressed[len(arrow) or 1 :]
    return keys


def turned(shown: MomentScene, key: str, now_ns: int) -> View:
    """Give what is to be looked at after a key: another moment, more closely, in another order."""
    view = shown.view
    if key in _ORDERS:
        return view._replace(order=_ORDERS[key])
    if key in _ZOOMS:
        return view._replace(zoom=min(len(ZOOMS) - 1, max(0, view.zoom + _ZOOMS[key])))
    return view._replace(at_ns=min(now_ns, _moved(shown, key, now_ns)))


def _moved(shown: MomentScene, key: str, now_ns: int) -> int:
    """The moment to which a key leads."""
    view, middle = shown.view, BUCKETS // 2
    match key:
        case "t" | "T":
            return view.at_ns + (view.span_ns if key == "t" else -view.span_ns)
        case "s" | "S":
            at = spike(shown.curves, lambda number: number > middle if key == "s" else number < middle)
            away = (at if at is not None else (BUCKETS if key == "s" else 0)) - middle
            return view.at_ns + away * view.step_ns
        case "e":
            return min((event.time_ns for event in shown.events if event.time_ns > view.at_ns), default=view.at_ns)
        case "E":
            return max((event.time_ns for event in shown.events if event.time_ns < view.at_ns), default=view.at_ns)
        case "n":
            return of_now(now_ns).at_ns
        case _:
            return view.at_ns
