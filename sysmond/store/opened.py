# SPDX-License-Identifier: Apache-2.0
"""Files that are read, a bounded number of them open: an archive may have more of them than a process may open.

What describes a file is kept; for its values it is opened again, if it was closed meanwhile.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from sysmond.base.result import Int64Array
from sysmond.store.hdf5 import OpenFile
from sysmond.store.sparse_file import FileStretch
from sysmond.store.stretch import ALL, Readings, Stretch

# So many files are kept open: each takes half a megabyte of the library's, and a process may often have 1,024.
OPEN_MAX = 256

_F = TypeVar("_F", bound=OpenFile)


class Files(Generic[_F]):
    """The files that are open, the one used last at the end: never more than ``OPEN_MAX``."""

    def __init__(self, open_file: Callable[[str], _F]) -> None:
        self._open_file = open_file
        self._open: OrderedDict[str, _F] = OrderedDict()

    def open(self, path: str) -> _F:
        """Open a file, or find it open.

        :raises Error: as ``hdf5.OpenFile`` does. :raises FileNotFoundError: where it is gone: what has its rows now, a
            new listing shows.
        """
        if path in self._open:
            self._open.move_to_end(path)
        else:
            self._open[path] = self._open_file(path)
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)[1].close()
        return self._open[path]

    def close(self) -> None:
        """Close them all."""
        for opened in self._open.values():
            opened.close()


class FiledStretch(Stretch):
    """A file of a long table that may have been closed meanwhile."""

    def __init__(self, files: Files[FileStretch], path: str) -> None:
        """Open it.

        :raises Error: as ``FileStretch`` does. :raises FileNotFoundError: where it is gone; so does whatever reads it.
        """
        there = files.open(path)
        readings = Readings(there.ticks, there.full, there.lost, there.walked)
        super().__init__(there.about, readings, there.keys, there.counts)
        self._files = files

    @property
    def _file(self) -> FileStretch:
        return self._files.open(self.path)

    @property
    def texts(self) -> Sequence[str]:
        """The texts, by code."""
        return self._file.texts

    def tick_index(self, keys: slice = ALL) -> Int64Array:
        """Of each row of these keys the reading that it is of."""
        return self._file.tick_index(keys)

    def column(self, name: str, keys: slice = ALL) -> Int64Array:
        """The values of a metric, of these keys."""
        return self._file.column(name, keys)

    def first(self, name: str) -> Int64Array:
        """With what each key begins."""
        return self._file.first(name)

    def last(self, name: str) -> Int64Array:
        """With what each key ends."""
        return self._file.last(name)

    def peak(self, name: str) -> Int64Array:
        """The largest value of a gauge at each key."""
        return self._file.peak(name)

    def first_tick(self) -> Int64Array:
        """The reading of each key's first row."""
        return self._file.first_tick()

    def last_tick(self) -> Int64Array:
        """The reading of each key's last row."""
        return self._file.last_tick()

    def seen(self) -> Int64Array:
        """The last reading at which each key is known to be there."""
        return self._file.seen()
