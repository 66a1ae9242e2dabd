# SPDX-License-Identifier: Apache-2.0
"""Pins: spans of time whose rows stay as they were recorded, until released or until their own budget is full.

``<state>/pins.json`` holds them. What is pinned by sysmond itself, where memory ran out or everything stood still,
waits in the runtime folder until the disk is written anyway. Standard library only.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from sysmond.base.timespec import TIME_MAX_NS
from sysmond.errors import CorruptError, Error, NotPermittedError
from sysmond.machine import note
from sysmond.machine.folders import Folders, check_trusted
from sysmond.machine.lock import only_one

FILE = "pins.json"
# Who pinned it, where nobody did.
BY_ITSELF = "sysmond"
LOCK_FILE = "pins.lock"
# Whoever changes pins is done within milliseconds, but for a disk that hangs.
WAIT_S = 5.0
# One bit turned over would pin another span.
# Some 80,000 pins.
PINS_BYTES_MAX = 16 * 1024 * 1024


class Pin(NamedTuple):
    """A pinned span, half-open, UTC nanoseconds; why, and who pinned it."""

    start_ns: int
    end_ns: int
    why: str
    by: str


Choose = Callable[[Sequence[Pin], Sequence[Pin]], Iterable[Pin]]
"""Gives, of pins that are there and of new ones, those of the new ones that are to be there, too."""


def read(folder: str) -> list[Pin]:
    """The pins of a folder, in order of time; none where there is no such file.

    :raises CorruptError: where it is damaged: nobody knows then what is pinned.
    :raises NotPermittedError: where we may not read it.
    """
    path = f"{folder}/{FILE}"
    try:
        return sorted(note.read(path, _pins, PINS_BYTES_MAX))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as refusal:
        raise NotPermittedError(f"{path}: {refusal.strerror}; its owner may read it") from refusal
    except (OSError, CorruptError) as damage:
        raise CorruptError(f"{path}: damaged; 'sysmond fsck --repair' puts it aside") from damage


def are_some(state: str) -> bool:
    """Whether files may be kept while others between them are forgotten."""
    with suppress(Error):
        return bool(read(state))
    return True


def _pins(noted: dict[str, Any]) -> list[Pin]:
    note.check(noted["pins"], noted[note.CHECKSUM])
    return [
        Pin(_moment(pin["start_ns"]), _moment(pin["end_ns"]), note.text(pin["why"]), note.text(pin["by"]))
        for pin in note.array(noted["pins"])
    ]


def _moment(value: object) -> int:
    moment = note.integer(value)
    if not 0 <= moment <= TIME_MAX_NS:
        raise ValueError(f"a pin at {moment} ns")
    return moment


def add(folder: str, pins: Iterable[Pin]) -> list[Pin]:
    """Add pins, whole or not at all; those of one reason and author that touch become one. Gives all there are then.

    :raises OSError: where the folder cannot be written. :raises Error: where what is there cannot be read.
    """
    added = list(pins)
    return _change(folder, lambda there: joined([*there, *added])) if added else read(folder)


def remove(folder: str, chosen: Callable[[Pin], bool]) -> list[Pin]:
    """Release the chosen pins; gives those that stay.

    :raises OSError: where the folder cannot be written. :raises Error: where what is there cannot be read.
    """
    return _change(folder, lambda there: [pin for pin in there if not chosen(pin)])


def joined(pins: Iterable[Pin]) -> list[Pin]:
    """Make one of pins that touch and say the same."""
    last: dict[tuple[str, str], int] = {}
    merged: list[Pin] = []
    for pin in sorted(pins):
        at = last.get((pin.why, pin.by), -1)
        if at >= 0 and pin.start_ns <= merged[at].end_ns:
            merged[at] = merged[at]._replace(end_ns=max(merged[at].end_ns, pin.end_ns))
        else:
            last[pin.why, pin.by] = len(merged)
            merged.append(pin)
    return merged


def waiting(folders: Folders) -> str:
    """The folder where pins wait for the disk to be written anyway, or for there to be one."""
    return f"{folders.runtime}/archiver"


def collect(folders: Folders, choose: Choose = lambda _, new: new) -> tuple[int, int]:
    """Put on disk what waits in RAM: for when the disk is written anyway. Gives how many were, and how many were not.

    ``choose``: gives, of pins that are there and others, those of the others that may be, whole or in part.

    :raises OSError: where it cannot be written; then they wait on. :raises Error: where what is there cannot be read.
    """
    new = read(waiting(folders))
    chosen = list(choose(read(folders.state), new)) if new else []
    add(folders.state, chosen)
    if new:
        remove(waiting(folders), lambda pin: pin in new)
    return len(chosen), len(new) - len(chosen)


def _change(folder: str, change: Callable[[list[Pin]], list[Pin]]) -> list[Pin]:
    path = f"{folder}/{FILE}"
    check_trusted(folder)
    with _alone(folder):
        before = read(folder)
        after = change(before)
        if after != before:
            fields = [pin._asdict() for pin in after]
            note.write(path, {"pins": fields, note.CHECKSUM: note.checksum(fields)}, lasting=True, indent=1)
    return after


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    with only_one(folder, name=LOCK_FILE, wait_s=WAIT_S):
        yield
