# SPDX-License-Identifier: Apache-2.0
"""What a boot waited for: the units of its critical chain, as systemd-analyze(1) calls that. Standard library only.

The target that was reached last had to wait for what it is ordered after, and of that most for what was active last;
and so on, back to the beginning. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

# So many units a chain has at most; targets are reached one after the other, so that real ones have ten to twenty.
CHAIN_MAX = 24
# More has no room in an event; the chain has so much of it at most.
DETAIL_BYTES_MAX, CHAIN_BYTES_MAX = 2048, 1200
DEVICE, TARGET = ".device", ".target"
_SECOND_US = 1_000_000


class BegunUnit(NamedTuple):
    """When a unit began to start, when it was active (µs since the kernel began), and what it is ordered after."""

    begin_us: int
    active_us: int
    after: Collection[str] = ()

    @property
    def length_us(self) -> int:
        """How long it took to start."""
        return self.active_us - self.begin_us


def critical_chain(units: Mapping[str, BegunUnit]) -> Iterator[str]:
    """The names of the units of the chain, the last target first; none where no target was reached."""
    targets = [name for name in units if name.endswith(TARGET)]
    at = max(targets, key=lambda name: (units[name].active_us, len(units[name].after)), default="")
    seen: set[str] = set()
    while at and len(seen) < CHAIN_MAX:
        yield at
        seen.add(at)
        # What was active again only later is not what it waited for.
        before = [
            name
            for name in units[at].after
            if name in units and name not in seen and units[name].active_us <= units[at].active_us
        ]
        at = max(before, key=lambda name: (units[name].active_us, name), default="")


def unseen_devices(units: Mapping[str, BegunUnit]) -> set[str]:
    """Of which devices it is to be asked as well: what file systems and others wait for."""
    return {name for unit in units.values() for name in unit.after if name.endswith(DEVICE) and name not in units}


def detail_of(units: Mapping[str, BegunUnit], slowest: Collection[str]) -> str:
    """The text of an event: as many of the slowest as have room beside the chain, which stands behind them."""

    def begin(name: str) -> str:
        return f"@{units[name].begin_us / _SECOND_US:.3f} s"

    def length(name: str) -> str:
        return f"{units[name].length_us / _SECOND_US:.3f} s"

    chain = _joined(
        (
            f"{name} {begin(name)}" + (f" +{length(name)}" if units[name].length_us else "")
            for name in critical_chain(units)
        ),
        CHAIN_BYTES_MAX,
    )
    chain = f"; chain: {chain}" if chain else ""
    room = DETAIL_BYTES_MAX - len(chain.encode())
    return _joined((f"{name} {length(name)} {begin(name)}" for name in slowest), room) + chain


def _joined(pieces: Iterable[str], bytes_max: int) -> str:
    """As many of the pieces as have room."""
    joined = ""
    for piece in pieces:
        longer = f"{joined}, {piece}" if joined else piece
        if len(longer.encode()) > bytes_max:
            break
        joined = longer
    return joined
