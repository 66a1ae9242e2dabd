# SPDX-License-Identifier: Apache-2.0
"""Commands about pins: keep a span of time at full precision, release it, list what is kept."""

import argparse
import json
import os
from contextlib import suppress

from sysmond.base import clock
from sysmond.base.terminal import put
from sysmond.base.timespec import format_time, parse_moment, parse_span
from sysmond.commands import orders
from sysmond.errors import Error, NotPermittedError, UsageError, refusal
from sysmond.machine import control
from sysmond.machine.folders import Folders, create
from sysmond.ring.progress import ARCHIVER
from sysmond.store import pins
from sysmond.store.pins import Pin

BY = "user"
WHY_LENGTH_MAX = 200
# An order has 16 KiB.
PINS_PER_ORDER = 10
PIN_S = 30.0


def pin(folders: Folders, options: argparse.Namespace) -> int:
    """Pin a span."""
    start_ns, end_ns = parse_span(options.start, options.end, clock.relation())
    why = " ".join(options.why.split())
    if len(why) > WHY_LENGTH_MAX:
        raise UsageError(f"--why of {len(why)} characters; expected at most {WHY_LENGTH_MAX}")
    added = Pin(start_ns, end_ns, why, BY)
    try:
        if not _asked(folders, [added], []):
            pins.add(_folder(folders), [added])
    except OSError as failure:
        raise _refused(folders, failure) from failure
    _tell(folders, "pin", added)
    put(f"pinned {format_time(start_ns)} to {format_time(end_ns)}")
    return 0


def _folder(folders: Folders) -> str:
    """Where a pin is put: early in a boot there may be no state folder yet, and it waits for it, as segments do.

    Before anything was recorded there is neither: then the folders are made, as the recorder makes them.
    """
    waiting = pins.waiting(folders)
    if not os.path.isdir(folders.state):
        if os.path.isdir(waiting):
            return waiting
        create(folders, os.geteuid())
    return folders.state


def _asked(folders: Folders, added: list[Pin], released: list[Pin]) -> bool:
    """Have the archiver do it, where the state folder is another user's who runs it, and it obeys us; whether it did.

    :raises Error: with its line, where it could not.
    """
    try:
        if os.geteuid() in {0, os.stat(folders.state).st_uid}:
            return False
    except OSError:
        return False
    for begin in range(0, max(len(added), len(released)), PINS_PER_ORDER):
        some = slice(begin, begin + PINS_PER_ORDER)
        order: control.Order = {"do": "pin", "added": added[some], "released": released[some]}
        answer = control.ask(f"{folders.runtime}/{ARCHIVER}", order, PIN_S)
        if answer.get("ok") is not True:
            raise Error(str(answer.get("error", "not done, no reason given")))
    return True


def unpin(folders: Folders, options: argparse.Namespace) -> int:
    """Release pins."""
    if (options.at is None) == (not options.all):
        raise UsageError("expected either a time T or --all")
    moment_ns = None if options.all else parse_moment(options.at, clock.relation())

    def chosen(pinned: Pin) -> bool:
        return moment_ns is None or pinned.start_ns <= moment_ns < pinned.end_ns

    there = [folder for folder in (folders.state, pins.waiting(folders)) if os.path.isdir(folder)]
    released = [pinned for folder in there for pinned in pins.read(folder) if chosen(pinned)]
    if not released and moment_ns is not None:
        raise Error(f"{options.at!r}: nothing is pinned at that time; 'sysmond pins' lists what is")
    try:
        if not _asked(folders, [], released):
            for folder in there:
                pins.remove(folder, chosen)
    except OSError as failure:
        raise _refused(folders, failure) from failure
    for pinned in released:
        _tell(folders, "unpin", pinned)
    said = f"released {len(released)} {'span' if len(released) == 1 else 'spans'}"
    put(said if released else "nothing was pinned")
    return 0


def list_pins(folders: Folders, options: argparse.Namespace) -> int:
    """List what is pinned, on disk and waiting for it."""
    listed = pins.joined([*pins.read(folders.state), *pins.read(pins.waiting(folders))])
    if options.json:
        put(json.dumps([listed_pin._asdict() for listed_pin in listed]))
    elif not listed:
        put("nothing is pinned")
    for listed_pin in () if options.json else listed:
        put(f"{_spelled(listed_pin)}  {listed_pin.by}  {listed_pin.why}".rstrip())
    return 0


def _spelled(span: Pin) -> str:
    return f"{format_time(span.start_ns)}  {format_time(span.end_ns)}"


def _tell(folders: Folders, kind: str, span: Pin) -> None:
    """Put it into the recording, where a daemon runs that takes orders from us."""
    with suppress(Error):
        orders.note(folders, kind, _spelled(span), span.why)


def _refused(folders: Folders, failure: OSError) -> Error:
    kind = NotPermittedError if isinstance(failure, PermissionError) else Error
    said = refusal(failure) if failure.filename else f"{folders.state}/{pins.FILE}: {refusal(failure)}"
    return kind(f"{said}; expected a sysmond state folder that can be written")
