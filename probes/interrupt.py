# SPDX-License-Identifier: Apache-2.0
"""Hardware interrupts by what they come from, from /proc/interrupts.

Source: ``Documentation/filesystems/proc.rst`` (section 1.2), ``kernel/irq/proc.c``. Their sum is
``system/interrupts``, and soft interrupts by kind are columns of ``system``, both from /proc/stat each second. It
has a column a CPU: 1 MB on 256 CPUs, so it is read seldom.
"""

import re
from collections.abc import Iterator

from sysmond.probe import Host, Lane, Probe, Row, Table, counter, hookimpl
from sysmond.sources.wraps import Wraps

PATH = "/proc/interrupts"
# Sources with rows of their own. Who has one keeps it, so that no series ends because another became busier.
APART_MAX = 64
NAME_LENGTH_MAX = 64
OTHER = "other"
# The chip, perhaps in several words, the number of the line there, and how that is triggered.
_BEFORE_HANDLERS = re.compile(r"\S+(?:(?:\s+[^\d\s]\S*)*?\s+\d\S*)?(?:\s+(?:Edge|Level)(?!\S))?")

INTERRUPT = Table(
    "interrupt",
    per="source",
    doc=f"Hardware interrupts by source: the device, as named by its driver, or the kind (LOC: local timers, RES:"
    f" rescheduling). The {APART_MAX} busiest have rows of their own, the rest is {OTHER}.",
    metrics=(counter("interrupts", "1", "Interrupts served, by all CPUs.", origin=PATH),),
)


def parse(content: bytes) -> Iterator[tuple[bytes, tuple[str, int]]]:
    """Give the label of each line, whose interrupts it counts, and how many there were on all CPUs.

    :raises ValueError: where the first line does not name CPUs, or a CPU has no number.
    """
    heading, *lines = content.split(b"\n")
    cpus = len(heading.split())
    if not heading.lstrip().startswith(b"CPU"):
        raise ValueError(f"{PATH} begins with {heading[:40]!r}; expected CPU0")
    for line in lines:
        label, _, after = line.strip().partition(b":")
        words = after.split(None, cpus)
        if words:
            rest = words.pop() if len(words) > cpus else b""
            yield label, (_name(label.decode(), rest.decode("utf-8", "replace")), sum(map(int, words)))


def _name(label: str, rest: str) -> str:
    """Name a source by its handlers; what is not numbered has a label that is a name."""
    if not label.isdecimal():
        return label[:NAME_LENGTH_MAX]
    handlers = " ".join(_BEFORE_HANDLERS.sub("", rest, count=1).split())
    # Nobody handles it: what it counted is from before, and of whom nobody knows.
    return "".join(sign for sign in handlers if sign.isprintable())[:NAME_LENGTH_MAX] or OTHER


class Sources:
    """Which sources have rows of their own, and what all others came to."""

    def __init__(self) -> None:
        """Know none yet."""
        self._apart: set[str] = set()
        self._wraps = Wraps()
        self._before: dict[bytes, int] = {}
        self._others = 0

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each source that ever interrupted and has one of its own, and one for all others."""
        named = dict(parse(content := host.read_anew(PATH)))
        counts = self._wraps.count_on(
            content.partition(b"\n")[0], {label: count for label, (_, count) in named.items()}
        )
        sums: dict[str, int] = {}
        for label, (name, _) in named.items():
            sums[name] = sums.get(name, 0) + counts[label]
        self._apart &= sums.keys()
        before, rest = self._apart.copy(), sums.keys() - self._apart - {OTHER}
        self._apart.update(sorted(filter(sums.get, rest), key=lambda s: (-sums[s], s))[: APART_MAX - len(before)])
        # Others are summed by what each line grew, so that the sum never falls when sources come, go, or are set apart.
        for label, count in counts.items():
            if named[label][0] not in (before if self._before else self._apart):
                count_before = self._before.get(label, 0)
                self._others += count - count_before if count >= count_before else count
        self._before = counts
        yield from ((name, (count,)) for name, count in sums.items() if name in self._apart)
        yield OTHER, (self._others,)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``interrupt``."""
    return [Probe(INTERRUPT, Sources().read, 10.0, Lane.BACKGROUND)]
