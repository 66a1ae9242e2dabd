# SPDX-License-Identifier: Apache-2.0
"""Who calls, what it may see, and what it holds."""

from collections.abc import Callable
from contextlib import suppress

from sysmond.base.model import Sensitivity
from sysmond.bus.wire.errors import LimitError

# dbus-daemon allows 512 match rules a connection; each caller takes one, so that nobody else's coming wakes us.
CALLERS_MAX = 256


class Caller:
    """One connection to the bus that called us. It holds what lives as long as it does."""

    def __init__(self, name: str, uid: int, pid: int, gids: tuple[int, ...], *, is_restricted: bool) -> None:
        """``name``: its unique name. ``is_restricted``: whether it may see what is restricted, else public alone."""
        self.name = name
        self.uid = uid
        self.pid = pid
        self.gids = gids
        self.is_restricted = is_restricted
        self.calls = 0
        self.in_flight = 0
        self.dropped = 0
        self.is_gone = False
        self.is_passing = False
        self._gone: list[Callable[[], None]] = []

    @property
    def sensitivities(self) -> tuple[Sensitivity, ...]:
        """The classes that it may see."""
        return tuple(Sensitivity) if self.is_restricted else (Sensitivity.PUBLIC,)

    @property
    def is_holding(self) -> bool:
        """Whether something would end with it."""
        return bool(self._gone)

    def when_gone(self, end: Callable[[], None]) -> None:
        """Have something ended when the caller's connection ends, or ours.

        :raises LimitError: where so many others are there that nobody tells of its end.
        """
        if self.is_passing:
            raise LimitError(f"{CALLERS_MAX} callers hold something already; no more may")
        self._gone.append(end)

    def forget(self, end: Callable[[], None]) -> None:
        """What ended before is not ended again."""
        with suppress(ValueError):
            self._gone.remove(end)

    def leave(self) -> None:
        """End what was held."""
        self.is_gone = True
        ends, self._gone = self._gone, []
        for end in ends:
            end()
