# SPDX-License-Identifier: Apache-2.0
"""Events as records of a file, of a segment or of an answer: what is not said of any event has no field there."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sysmond.base.model import ABSENT
from sysmond.base.result import Array, BoolArray, Event, Int64Array
from sysmond.base.timespec import TIME_MAX_NS, TIME_MIN_NS
from sysmond.store.files import hdf5
from sysmond.store.of_ring import BootEvent

_TEXTS, _MORE_TEXTS = ("kind", "subject", "text"), ("detail", "known_from")
_HAPPENED = "happened_ns"
_FIELDS = {"kind": str, "subject": str, "text": str, "detail": str, _HAPPENED: int, "known_from": str}
_LACKING = {"detail": "", _HAPPENED: ABSENT, "known_from": ""}


def happened_ns(records: Array, recorded_ns: Int64Array) -> Int64Array:
    """When the events of a file happened, int64[record] UTC; ``recorded_ns``: when they were recorded."""
    if _HAPPENED not in (records.dtype.names or ()):
        return recorded_ns
    happened: Int64Array = records[_HAPPENED].astype(np.int64)
    return np.where(happened == ABSENT, recorded_ns, happened)


def write(file: hdf5.File, events: Sequence[BootEvent | Event], **numbers: tuple[str, Sequence[int]]) -> None:
    """Write events; ``numbers``: by name what says when each was recorded, with its type."""
    texts: tuple[str, ...] = _TEXTS
    if any(event.detail or event.known_from or event.happened_ns != ABSENT for event in events):
        texts = (*_TEXTS, *_MORE_TEXTS)
        numbers = {**numbers, _HAPPENED: ("<i8", [event.happened_ns for event in events])}
    hdf5.put_records(file, "events", texts, [[getattr(event, text) for text in texts] for event in events], **numbers)


def read(root: hdf5.Node, *numbers: str, only: Callable[[Array], BoolArray] | None = None) -> Iterator[tuple[Any, ...]]:
    """These numbers of each event, then what ``Event`` has behind its time, in that order.

    ``only``: which of the records, bool[record].

    :raises ValueError: where a file has other fields, or something happened at no time that there is.
    """
    fields = {**dict.fromkeys(numbers, int), **_FIELDS}
    for record in root.columns("events", _LACKING, only, **fields):
        happened_ns = record[-2]
        if happened_ns != ABSENT and not TIME_MIN_NS <= happened_ns < TIME_MAX_NS:
            raise ValueError(f"what happened at {happened_ns} ns since 1970")
        yield record
