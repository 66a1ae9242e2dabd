# SPDX-License-Identifier: Apache-2.0
"""Tells what changed between two moments: ``sysmon changes``.

Packages, unit files, boots, and whatever is a setting of the machine: kernel, its command line, firmware, governor,
mounts. It has no engine of its own: a setting is asked for at both ends, and in between for when it became what it is.
Where events tell of a setting, they say each time that it changed, also where it was changed back.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sysmon_tools.output import add_format
from sysmond.base import timespec
from sysmond.base.clock import SECOND_NS
from sysmond.base.paths import naming
from sysmond.errors import Error

if TYPE_CHECKING:
    from sysmond.base.result import Column, Event
    from sysmond.history import Archive

START = "yesterday"
# How long before the first moment a setting may have been read last.
BEFORE_NS = 3600 * SECOND_NS
# How finely is looked for when a setting changed.
STEPS = 300
# What is a setting of the machine, and no condition that comes and goes.
SETTINGS = (
    "host/*", "cpu_frequency/governor", "cpu_frequency/driver", "cpu_frequency/energy_preference", "ip/forwarding",
    "setting/value", "ksm/run", "zswap/enabled", "zswap/compressor", "swap/type", "swap/priority", "filesystem/type",
    "filesystem/device", "filesystem/read_only", "qdisc/kind", "md/level", "md/state", "smart/model", "smart/firmware",
    "gpu/driver", "tcp/rto_algorithm", "runtime_pm/control", "link/duplex", "cgroup_tree/hierarchies",
)  # fmt: skip
KINDS = frozenset({"packages", "unit files", "mark", "incident"})
MORE_KINDS = KINDS | {"device added", "device removed", "devices changed", "mounted", "unmounted", "link", "screen"}
# Of more that changed alike, as the governors of all CPUs do, there is one line.
ALIKE_MAX = 4
NAMES = ("time", "what", "before", "after")
PACKAGES, UNIT_FILES, SETTING = "packages", "unit files", "setting"
# Settings that the table host has.
OF_HOST = frozenset({"hostname", "timezone", "kernel", "command_line", "firmware"})


class MachineChange(NamedTuple):
    """When (UTC ns), what, what it was, and what it is; empty where there was, or is, none."""

    time_ns: int
    what: str
    before: str
    after: str


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add = made.add_argument
    add("--from", "--since", dest="start", metavar="T", default=START, help="first moment (default: %(default)s)")
    add("--to", "--until", dest="end", metavar="T", default="now", help="up to this moment (default: now)")
    add(
        "--packages",
        action="store_true",
        help="a line for each package and unit file, not for each run of the package manager",
    )
    add("--all", action="store_true", help="include devices, mounts, links and screens that came and went")
    add_format(made)


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """Tell, and give the warnings.

    :raises UsageError: for a time that there is not.
    """
    from sysmon_tools.rows import RowTable, send_rows  # noqa: PLC0415  numpy: --help needs none of it

    start_ns, end_ns = timespec.parse_span(options.start, options.end, archive.now())
    changes = [
        *_boots(archive, start_ns, end_ns),
        *_changed(archive, start_ns, end_ns, by_package=options.packages, is_all=options.all),
    ]
    listed = RowTable(NAMES, [(_time(change.time_ns), *change[1:]) for change in sorted(changes)])
    nothing = "nothing changed in that range, as far as it is recorded"
    send_rows(options.format, listed, listed, nothing=nothing)
    return list(dict.fromkeys(archive.warnings))


def between(archive: "Archive", start_ns: int, end_ns: int) -> Iterator[MachineChange]:
    """Each package and each setting that changed between two moments, as far as it is recorded."""
    yield from _changed(archive, start_ns, end_ns, by_package=True, is_all=False)


def _time(time_ns: int) -> str:
    return timespec.format_time(time_ns // SECOND_NS * SECOND_NS)


def _boots(archive: "Archive", start_ns: int, end_ns: int) -> Iterator[MachineChange]:
    """Each boot that began between the two, but for the first that is recorded."""
    for before, boot in pairwise(archive.boots()):
        if start_ns <= boot.start_ns < end_ns:
            yield MachineChange(boot.start_ns, "boot", f"the one before ended {_time(before.end_ns)}", "")


def _changed(
    archive: "Archive", start_ns: int, end_ns: int, *, by_package: bool, is_all: bool
) -> Iterator[MachineChange]:
    """What events tell, of packages a run each, or each by itself; and the settings of which none tells."""
    events = archive.events(start_ns, end_ns)
    of_settings = [change for event in events if event.kind == SETTING for change in _setting(event)]
    yield from of_settings
    for event in events:
        if event.kind == PACKAGES and by_package:
            yield from _packages(event)
        elif event.kind == UNIT_FILES and by_package:
            yield from _unit_files(event)
        elif event.kind in (MORE_KINDS if is_all else KINDS):
            yield MachineChange(event.time_ns, event.kind, event.subject, event.text)
    announced = {change.what for change in of_settings}
    yield from (change for change in _settings(archive, start_ns, end_ns) if change.what not in announced)


def _setting(event: "Event") -> Iterator[MachineChange]:
    """A setting that became another, by its path; its text is ``OLD → NEW``, of the machine ``NAME: OLD → NEW``."""
    before, arrow, after = event.text.partition(" → ")
    name = event.subject
    if not name:
        name, _, before = before.partition(": ")
    if arrow and name:
        yield MachineChange(
            event.time_ns, f"host/{name}" if name in OF_HOST else f"setting/value@{name}", before, after
        )


def _packages(event: "Event") -> Iterator[MachineChange]:
    """Each package of a run; its detail is ``DONE: NAME VERSION, NAME OLD → NEW; DONE: …``."""
    for part in (event.detail or event.text).split("; "):
        done, _, listed = part.partition(": ")
        for spelled in listed.split(", ") if listed else ():
            name, _, versions = spelled.partition(" ")
            before, arrow, after = versions.partition(" → ")
            was, now = (before, after) if arrow else (before, "") if done == "removed" else ("", before)
            yield MachineChange(event.time_ns, f"{done} {name}", was, now)


def _unit_files(event: "Event") -> Iterator[MachineChange]:
    """Each unit file of a run, and its folder; its detail is ``DONE: PATH, PATH; DONE: …``.

    Of one alone the subject is its name, and the text is ``DONE in FOLDER``.
    """
    if not event.detail:
        done, _, folder = event.text.partition(" in ")
        yield MachineChange(event.time_ns, f"{done} {event.subject}", "", folder)
    for part in event.detail.split("; ") if event.detail else ():
        done, _, listed = part.partition(": ")
        for path in listed.split(", ") if listed else ():
            folder, _, name = path.rpartition("/")
            yield MachineChange(event.time_ns, f"{done} {name}", "", folder)


def _settings(archive: "Archive", start_ns: int, end_ns: int) -> Iterator[MachineChange]:
    """Each setting that is another at the end than at the beginning, and when it became that."""
    paths = [entry.path for entry in archive.catalogue()]
    recorded = [path for path in paths if any(is_meant(path.partition("@")[0]) for is_meant in _MEANT)]
    if not recorded:
        return
    ends = _asked(archive, recorded, start_ns, end_ns, end_ns - start_ns)
    earlier = _asked(archive, recorded, start_ns - BEFORE_NS, start_ns, BEFORE_NS)
    changed = {}
    for path, (_, values) in ends.items():
        before = [value for value in earlier.get(path, ((), ()))[1] if value is not None]
        known = [value for value in (*before[-1:], *values) if value is not None]
        if known and known[0] != known[-1]:
            changed[path] = (known[0], known[-1])
    if not changed:
        return
    finer = _asked(archive, list(changed), start_ns, end_ns, max(SECOND_NS, (end_ns - start_ns) // STEPS))
    same: dict[tuple[str, str, str, int], list[str]] = {}
    for path, (was, now) in changed.items():
        since_ns = _since(*finer[path], now, end_ns)
        same.setdefault((path.partition("@")[0], was, now, since_ns), []).append(path)
    for (metric, was, now, since_ns), alike in same.items():
        for what in alike if len(alike) <= ALIKE_MAX else [f"{metric}@*"]:
            yield MachineChange(since_ns, what, was, now)


_MEANT = tuple(naming(setting) for setting in SETTINGS)
_Course = tuple[Sequence[int], Sequence[str | None]]


def _asked(archive: "Archive", paths: Sequence[str], start_ns: int, end_ns: int, step_ns: int) -> dict[str, _Course]:
    """The first and last value of each step, in order, each with the time at which its step begins."""
    step = f"{max(1, step_ns // SECOND_NS)}s"
    try:
        result = archive.select(*paths, start=start_ns, end=end_ns, step=step, stat=("first", "last"))
    except Error:  # Nothing of that is recorded then.
        return {}
    courses: dict[str, list[Column]] = {}
    for column in result.columns:
        courses.setdefault(column.path, []).append(column)
    times = [time for time in result.times_ns.tolist() for _ in range(2)]
    return {
        path: (times, [value for pair in zip(*map(_spelled, columns), strict=True) for value in pair])
        for path, columns in courses.items()
    }


def _spelled(column: "Column") -> list[str | None]:
    if column.texts is not None:
        return list(column.texts)
    return [None if value != value else f"{value:g}" for value in column.values.tolist()]  # noqa: PLR0124  NaN


def _since(times_ns: Sequence[int], values: Sequence[str | None], now: str, end_ns: int) -> int:
    """When a value became what it is at the end."""
    since_ns = end_ns
    for time_ns, value in zip(reversed(times_ns), reversed(values), strict=True):
        if value is not None and value != now:
            break
        if value == now:
            since_ns = time_ns
    return since_ns
