# SPDX-License-Identifier: Apache-2.0
"""The largest object caches of the kernel, from ``/proc/slabinfo``.

Source: slabinfo(5) and the kernel's ``mm/slab_common.c``. Only root may read it, and the kernel walks lists for it: it
is read once a minute.
"""

import os
from collections.abc import Iterator

from sysmond.probe import Host, Lane, Option, Probe, Row, Sensitivity, Table, gauge, hookimpl

PATH = "/proc/slabinfo"
INTERVAL_S = 60.0
LARGEST = 20
# One that was among the largest keeps its row until it is out of so many times as many.
STAYS = 2
OTHERS = "others"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_HEADINGS = 2

SLAB = Table(
    "slab",
    per="cache",
    doc="The kernel's largest object caches, and all others together. Their sum is memory/slab.",
    metrics=(
        gauge("size", "B", "Memory of the cache.", origin=f"{PATH} num_slabs × pagesperslab"),
        gauge("used", "B", "Part of that taken by objects in use.", origin=f"{PATH} active_objs × objsize"),
        gauge("objects", "1", "Objects in use.", origin=f"{PATH} active_objs"),
    ),
)


def parse(line: str) -> tuple[str, tuple[int, int, int]]:
    """Read the line of one cache: its name, size, bytes in use, objects.

    :raises ValueError: where it is none.
    """
    counts, _, rest = line.partition(" : tunables ")
    slabs = rest.partition(" : slabdata ")[2].split()
    name, used, _, object_size, _, pages = counts.rsplit(None, 5)  # Some drivers have blanks in their names.
    if len(slabs) < _HEADINGS:
        raise ValueError(f"{PATH}: {line[:80]!r}; expected 'slabdata' and how many slabs there are")
    return name, (int(slabs[1]) * int(pages) * PAGE_BYTES, int(used) * int(object_size), int(used))


class Slabs:
    """Reads the file, and keeps to the caches that it chose: series that come and go say little."""

    def __init__(self) -> None:
        """Choose none yet."""
        self._chosen: set[str] = set()

    def read(self, host: Host, *, caches: int = LARGEST) -> Iterator[Row]:
        """Give a row for each of the largest caches, by name, and one for the others."""
        version, *lines = host.lines(PATH)
        if not version.startswith("slabinfo - version: 2."):
            raise ValueError(f"{PATH}: {version[:80]!r}; expected version 2")
        sizes = dict(parse(line) for line in lines[1:])
        ranked = sorted(sizes, key=lambda name: (-sizes[name][0], name))
        staying = [name for name in ranked[: caches * STAYS] if name in self._chosen][:caches]
        coming = [name for name in ranked if name not in staying]
        self._chosen = {*staying, *coming[: caches - len(staying)]}
        for name in sorted(self._chosen):
            yield name, sizes[name]
        rest = [values for name, values in sizes.items() if name not in self._chosen]
        yield OTHERS, [sum(column) for column in zip((0, 0, 0), *rest, strict=True)]


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``slab``."""
    options = (Option("caches", LARGEST, "How many of the largest get a row of their own.", low=1, high=200),)
    probe = Probe(SLAB, Slabs().read, INTERVAL_S, Lane.BACKGROUND, Sensitivity.RESTRICTED)
    return [probe._replace(options=options, needs=(PATH,), privilege="CAP_DAC_READ_SEARCH")]
