# SPDX-License-Identifier: Apache-2.0
"""Segments that are read, a bounded number of them open: an archive may have more files than a process may open."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from sysmond.base.result import Int64Array
from sysmond.store.dense_file import Segment
from sysmond.store.of_ring import Block, Recording, SeriesKey, TierBlock
from sysmond.store.statistics import Buckets, Stat

# So many segments are kept open; what describes the others is kept, they are opened again for their values.
OPEN_MAX = 128


class Files:
    """The segments that are open, the one used last at the end: never more than ``OPEN_MAX``."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, Segment] = OrderedDict()

    def recording(self, path: str) -> Recording:
        """What a segment holds; its values can be read whether it stays open or not.

        :raises Error: as ``Segment`` does. :raises FileNotFoundError: where it is gone.
        """
        recording = self.open(path).recording
        return recording._replace(
            blocks=[_FiledBlock(self, path, number, block) for number, block in enumerate(recording.blocks)],
            tiers=[_FiledTier(self, path, number, block) for number, block in enumerate(recording.tiers)],
        )

    def open(self, path: str) -> Segment:
        """Open a segment, or find it open.

        :raises Error: as ``Segment`` does. :raises FileNotFoundError: where it is gone.
        """
        if path in self._open:
            self._open.move_to_end(path)
        else:
            self._open[path] = Segment(path)
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)[1].close()
        return self._open[path]

    def close(self) -> None:
        """Close them all."""
        for opened in self._open.values():
            opened.close()


class _FiledBlock:
    """A block of a segment that may have been closed meanwhile."""

    def __init__(self, files: Files, path: str, number: int, block: Block) -> None:
        self.strand = block.strand
        self.ticks = block.ticks
        self.closed = block.closed
        self.significant_bits = block.significant_bits
        self._files = files
        self._path = path
        self._number = number
        self._block = block

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """The series, one a row."""
        return self._block.keys

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time].

        :raises FileNotFoundError: where the file is gone: what holds its rows now, a new time line finds.
        """
        return self._files.open(self._path).recording.blocks[self._number].read(rows)


class _FiledTier:
    """A block of buckets of a segment that may have been closed meanwhile."""

    def __init__(self, files: Files, path: str, number: int, block: TierBlock) -> None:
        self.strand = block.strand
        self.axis = block.axis
        self.closed = block.closed
        self.stats = block.stats
        self._files = files
        self._path = path
        self._number = number
        self._block = block

    @property
    def keys(self) -> Sequence[SeriesKey]:
        """The series."""
        return self._block.keys

    def buckets(self, rows: Sequence[int], wanted: Iterable[Stat] | None = None) -> Buckets:
        """The wanted statistics of the chosen series, which must be of one kind; as ``_FiledBlock.read``."""
        return self._files.open(self._path).recording.tiers[self._number].buckets(rows, wanted)
