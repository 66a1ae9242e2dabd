# SPDX-License-Identifier: Apache-2.0
"""The kinds of events, and to which parts each belongs: nobody else may record one of it.

Asked where an event enters a ring. ``docs/events.md`` is written from it. Standard library only: the real-time sampler
asks, too.
"""

from typing import NamedTuple

from sysmond.errors import UsageError

PEOPLE = "people"
DAEMON, ARCHIVER, REALTIME, BACKGROUND = "daemon", "archiver", "sampler", "background"

MARK, INCIDENT, PIN, UNPIN = "mark", "incident", "pin", "unpin"
BURST = "burst"
SUSPENDED = "suspended"
BOOT_ENDED = "boot ended"


class EventKind(NamedTuple):
    """Which parts record it, and what it means.

    ``seen``: how it is noticed, and how soon; empty for what a part does itself, which names nobody's things.
    ``is_minor``: answers about tables leave it out unless it is asked for. ``is_incident``: unless the configuration
    says otherwise, what was recorded around it is pinned, and threads are looked at more often for a while.
    """

    owners: tuple[str, ...]
    doc: str
    seen: str = ""
    is_minor: bool = False
    is_incident: bool = False


_ANNOUNCED = "announced by the kernel; within a second"
_DEVICES = "announced by the kernel, with the time of the first part; told 2 to 10 s later, when all have come"
_UNITS = "announced by systemd; within a second, earlier failures when the recorder starts"
_LINES = "kernel messages, as they come; earlier ones of this boot when the recorder starts"


def _read(how: str, doc: str, *, is_minor: bool = False, is_incident: bool = False) -> EventKind:
    return EventKind((BACKGROUND,), doc, how, is_minor, is_incident)


KINDS = {
    MARK: EventKind((PEOPLE,), "Somebody marked a moment."),
    INCIDENT: EventKind((PEOPLE,), "Somebody marked a moment to be pinned (`sysmonctl mark --pin`).", is_incident=True),
    PIN: EventKind((PEOPLE,), "A span is kept for longer."),
    UNPIN: EventKind((PEOPLE,), "A span is no longer kept."),
    "start": EventKind((ARCHIVER,), "The recorder started."),
    "stop": EventKind((ARCHIVER,), "The recorder was told to stop, or ended in another way."),
    "flush": EventKind((ARCHIVER,), "The last flush of the previous run, as it noted itself."),
    "aside": EventKind((ARCHIVER,), "A ring that could not be sealed was set aside."),
    "damaged ring": EventKind((ARCHIVER,), "A ring could be read only in part."),
    "dropped": EventKind((ARCHIVER,), "Rows were dropped: there was no room for them."),
    "not pinned": EventKind((ARCHIVER,), "Incidents were not pinned: the day's share for them was used up."),
    BOOT_ENDED: EventKind(
        (ARCHIVER, BACKGROUND),
        "How the previous boot ended: panic, watchdog, in order, or unknown (power loss, hang or reset).",
        "when the recorder starts, from pstore, watchdogs and the state folder",
    ),
    "shutdown": _read(
        "announced by logind; within a second", "The machine is about to power off or reboot.", is_minor=True
    ),
    "died": EventKind((DAEMON,), "A part of the recorder died, or all of it: then its next start says so."),
    "removed": EventKind((DAEMON,), "The runtime folder, or one in it, was removed."),
    "stuck": EventKind((DAEMON, REALTIME, BACKGROUND), "A probe, or a part of the recorder, did not answer."),
    "moved": EventKind((REALTIME, BACKGROUND), "A probe that was late moved to the background lane."),
    "quarantine": EventKind((REALTIME, BACKGROUND), "A probe that does harm is not read for a while."),
    "released": EventKind((REALTIME, BACKGROUND), "A probe in quarantine is read again."),
    BURST: EventKind(
        (REALTIME,), "Threads are read ten times a second for a while, because of an incident.", is_minor=True
    ),
    "eased": EventKind((BACKGROUND,), "Firmware that answers slowly is read less often."),
    "device added": _read(_DEVICES, "A device appeared, with its parts, of a kind that a probe reads.", is_minor=True),
    "device removed": _read(_DEVICES, "A device disappeared, with its parts.", is_minor=True),
    "devices changed": _read(_ANNOUNCED, "Many devices appeared and disappeared at once.", is_minor=True),
    SUSPENDED: _read("at the first tick after it", "The machine was suspended: for how long, and what woke it."),
    "lid": _read("read every 10 s", "The lid was opened or closed.", is_minor=True),
    "mains": _read("announced by the kernel, otherwise read every 60 s", "Mains power was connected or disconnected."),
    "battery": _read("like mains", "A battery began to charge or to discharge, or is full.", is_minor=True),
    "screen": _read(_ANNOUNCED, "A screen was connected or disconnected, turned on or off.", is_minor=True),
    "link": _read(_ANNOUNCED, "A network interface appeared, disappeared, or changed its state.", is_minor=True),
    "address": _read(_ANNOUNCED, "An interface gained or lost an address.", is_minor=True),
    "default route": _read(_ANNOUNCED, "The default route changed, appeared or disappeared.", is_minor=True),
    "wifi": _read(_ANNOUNCED, "A wireless interface was connected, disconnected, refused, or roamed: how, and why."),
    "wifi network": _read(_ANNOUNCED, "An interface joined a network with this name.", is_minor=True),
    "wifi access point": _read(_ANNOUNCED, "An interface went to an access point with this address.", is_minor=True),
    "mounted": _read("read every 30 s", "A file system was mounted.", is_minor=True),
    "unmounted": _read("read every 30 s", "A file system was unmounted.", is_minor=True),
    "read-only": _read("read every 30 s", "A file system became read-only, or writable again."),
    "disk space": _read("read every 30 s", "A file system became 90, 95 or 100 % full, or is no longer that full."),
    "array": _read(_ANNOUNCED, "A disk array changed its state: degraded, rebuilding."),
    "file system error": _read(_LINES, "A file system found damage, or the kernel made it read-only."),
    "memory error": _read("read every 30 s", "The memory controller corrected errors, or failed to."),
    "governor": _read("read every 10 s", "The frequency governor of processors changed.", is_minor=True),
    "swap": _read("read every 10 s", "A swap area was turned on or off."),
    "pressure": _read(
        "announced by the kernel; within a second",
        "Tasks spent much of two seconds waiting for memory or disks.",
        is_incident=True,
    ),
    "throttled": _read("read every 10 s", "Processors were slowed down because they were hot.", is_incident=True),
    "logins": _read("read every 60 s", "Somebody logged in or out: how many people are logged in now.", is_minor=True),
    "setting": _read(
        "read every 60 s",
        "A setting of the machine changed: host name, time zone, sysctl, I/O scheduler, microcode, what is recorded.",
    ),
    "unit failed": _read(_UNITS, "A systemd unit failed: how its process ended.", is_incident=True),
    "unit restarted": _read(_UNITS, "A service ended and was restarted: how it ended."),
    "unit started": _read(_UNITS, "A service was started.", is_minor=True),
    "unit stopped": _read(_UNITS, "A service was stopped, or ended.", is_minor=True),
    "startup": _read(
        "announced by systemd; within a second, otherwise when the recorder starts",
        "The machine has started: how long firmware, loader, kernel, initrd and services took, which"
        " were slowest, and what it waited for. Or it has not started after ten minutes: what is"
        " still starting.",
        is_minor=True,
    ),
    "session": _read(
        "announced by logind; within a second; earlier ones of this boot when the recorder starts, if"
        " wtmpdb or wtmp has them",
        "Who logged in or out, locked or unlocked.",
        is_minor=True,
    ),
    "machine": _read(
        "announced by systemd-machined; within a second",
        "A container or a virtual machine was started or ended.",
        is_minor=True,
    ),
    "oom kill": _read(
        f"{_LINES}; for systemd-oomd, as it announces it; if those messages may not be read, from the counters of"
        " control groups, read every 2 min",
        "The kernel or systemd-oomd killed a process because memory ran out: which process and its"
        " memory, or in which control group.",
        is_incident=True,
    ),
    "killed": _read(
        "announced by BPF; within a second; not without BPF",
        "A process was killed by a signal from another process that is not one of its ancestors:"
        " which signal, and who sent it.",
    ),
    "stuck thread": EventKind(
        (REALTIME, BACKGROUND),
        "A thread waited uninterruptibly for a whole minute without running once.",
        "read every second and compared every 10 s, if thread_state is recorded; within 80 s after the wait began",
    ),
    "fork storm": EventKind(
        (REALTIME, BACKGROUND),
        "For 10 s, at least 1,000 processes and threads were created per second (or 250 per CPU, if that is more).",
        "read every second; within 20 s",
    ),
    "hung task": _read(_LINES, "A task has waited uninterruptibly for more than two minutes."),
    "lockup": _read(_LINES, "A processor was stuck in the kernel for too long."),
    "machine check": _read(_LINES, "The processor reported a hardware error."),
    "disk error": _read(_LINES, "A disk failed to read or write, or its link was reset."),
    "overheated": _read(_LINES, "A processor is too hot and was slowed down."),
    "crash": _read(_LINES, "A program crashed, or the kernel found a fault in itself."),
    "kernel message": _read(_LINES, "A kernel warning, or worse, of no kind above.", is_minor=True),
    "packages": _read("dpkg's log, read every 10 s; after each run", "Packages were installed, upgraded or removed."),
    "unit files": _read(
        "changes of their folders that the kernel noted, read every 10 s; 20 s after the last change, with its time",
        "systemd unit files were added, edited or removed.",
    ),
}
"""Every kind there is, by name."""

_MINOR = frozenset(name for name, kind in KINDS.items() if kind.is_minor)


def is_minor(kind: str) -> bool:
    """Whether answers about tables leave events of a kind out, unless they are asked for."""
    return kind in _MINOR


INCIDENTS = tuple(sorted(name for name, kind in KINDS.items() if kind.is_incident))
"""The kinds of which each event is an incident, where the configuration names no others."""

OWNERS = {name: kind.owners for name, kind in KINDS.items()}
"""By kind the parts that record it; what people have recorded, a part does on their behalf."""


def check(kind: str, by: str) -> None:
    """Refuse a kind that does not belong to a part.

    :raises UsageError: naming the kind, the part, and what it may record.
    """
    if by not in OWNERS.get(kind, ()):
        own = ", ".join(name for name, owners in OWNERS.items() if by in owners)
        raise UsageError(f"event {kind!r} by {by!r}: not its kind; expected {own or 'a part that records events'}")
