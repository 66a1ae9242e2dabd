# SPDX-License-Identifier: Apache-2.0
"""Retention: which files go, so that every tier stays within its bytes and its age. Pure.

Whole files go, oldest first. A file that a pin protects stays for as long as the pins' own budget holds.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sysmond.base import model
from sysmond.base.clock import SECOND_NS
from sysmond.plan.plan import RAM_PART, ArchiverSettings

TIERS_NS = model.TIERS_NS
# The largest file of a tier is this part of its budget: then what goes at once is never much.
FILES_PER_BUDGET_MIN = 8
FILE_BYTES_MIN = 64 * 1024
PERCENT = 100
BUDGET_BYTES_MIN = FILES_PER_BUDGET_MIN * FILE_BYTES_MIN  # The configuration refuses less.
FILE_BYTES_MAX = model.FILE_BYTES_MAX


class Limit(NamedTuple):
    """How many bytes a tier may take, and how old its rows may grow; 0 for any age.

    ``ram_bytes``: what of it is for segments that wait in RAM.
    """

    budget_bytes: int = 50_000_000
    age_ns: int = 0
    ram_bytes: int = 0


class StoredFile(NamedTuple):
    """A file as retention sees it. ``first_ns``, ``last_ns``: UTC of its outermost rows; ``written_ns``: of writing it.

    What was recorded while the clock was far behind is as old as its writing.
    """

    path: str
    size_bytes: int
    first_ns: int
    last_ns: int
    written_ns: int = 0


# A wall clock that is so near to what is believed is believed.
NEAR_NS = 60 * SECOND_NS
# One that is farther away is believed when it has stood so for this part of the distance, and for a day at most.
DOUBT_PART = 8
DOUBT_NS_MAX = 86_400 * SECOND_NS


class Believed(NamedTuple):
    """What time it is, as far as files may go for it: ``utc_ns`` at ``boottime_ns`` of ``boot``.

    ``away_ns``: how far the wall clock was ahead of that, and ``doubted_ns`` for how long it had been so.
    """

    utc_ns: int
    boot: str
    boottime_ns: int
    away_ns: int = 0
    doubted_ns: int = 0


def believe(before: Believed, boot: str, boottime_ns: int, wall_ns: int) -> Believed:
    """Say what to believe now. Boot time is never set: by it the believed time goes on, whatever the wall clock does.

    A machine that was off for a night is believed after an hour or two; a clock that is ahead by ten years for a
    moment is not.
    """
    passed_ns = boottime_ns - (before.boottime_ns if before.boot == boot else 0)
    utc_ns = before.utc_ns + passed_ns
    away_ns = wall_ns - utc_ns
    is_as_before = away_ns // 2 <= before.away_ns <= away_ns * 2 or away_ns * 2 <= before.away_ns <= away_ns // 2
    doubted_ns = before.doubted_ns + passed_ns if before.away_ns and is_as_before else 0
    if abs(away_ns) <= NEAR_NS or doubted_ns >= min(abs(away_ns) // DOUBT_PART, DOUBT_NS_MAX):
        return Believed(wall_ns, boot, boottime_ns)
    return Believed(utc_ns, boot, boottime_ns, away_ns, doubted_ns)


class PinnedSpan(NamedTuple):
    """A pinned span of time, half-open, UTC nanoseconds. ``by_people``: those come first."""

    start_ns: int
    end_ns: int
    by_people: bool = True


def of_settings(settings: ArchiverSettings) -> tuple[dict[str, Limit], int]:
    """The limits of every tier, that of events among them, and the budget of the pins."""
    sizes = settings.size_1s_bytes, settings.size_10s_bytes, settings.size_1min_bytes, settings.size_5min_bytes
    ages = settings.age_1s_ns, settings.age_10s_ns, settings.age_1min_ns, settings.age_5min_ns
    limits = {tier: Limit(*limit) for tier, *limit in zip(TIERS_NS, sizes, ages, strict=True)}
    rows = next(iter(TIERS_NS))
    limits[rows] = limits[rows]._replace(ram_bytes=settings.ram_share_bytes)
    limits[model.EVENTS] = Limit(settings.size_event_bytes, settings.age_event_ns)
    return limits, settings.pins_bytes


def fitted(settings: ArchiverSettings, capacity_bytes: int) -> ArchiverSettings:
    """The settings with sizes that together take their share of a file system so large at most: each in proportion.

    A tier keeps what it needs to work at all, on a file system that is too small for that, too. ``capacity_bytes``: 0
    where that is not known.
    """
    names = [name for name in settings._fields if name.startswith(("size_", "records_size_"))] + ["pins_bytes"]
    sizes = {name: getattr(settings, name) for name in names}
    share_bytes = capacity_bytes * settings.share_percent // PERCENT
    total_bytes = sum(sizes.values())
    if total_bytes <= share_bytes or not capacity_bytes:
        return settings
    fitting = {name: max(BUDGET_BYTES_MIN, size * share_bytes // total_bytes) for name, size in sizes.items()}
    return settings._replace(**{name: min(size, sizes[name]) for name, size in fitting.items()})


def of_records(settings: ArchiverSettings) -> dict[str, Limit]:
    """The limits of every tier of the long tables, each for all of them together."""
    limits = {
        tier: Limit(getattr(settings, f"records_size_{tier}_bytes"), getattr(settings, f"records_age_{tier}_ns"))
        for tier in TIERS_NS
    }
    rows = next(iter(TIERS_NS))
    ram_bytes = min(settings.ram_bytes, limits[rows].budget_bytes // RAM_PART)
    return {**limits, rows: limits[rows]._replace(ram_bytes=ram_bytes)}


def file_bytes_max(limit: Limit) -> int:
    """The largest file to write in a tier of this limit."""
    return min(FILE_BYTES_MAX, limit.budget_bytes // FILES_PER_BUDGET_MIN)


def expired(
    files: Sequence[StoredFile],
    limit: Limit,
    now_ns: int,
    *,
    coming_bytes: int = 0,
    elsewhere_bytes: int = 0,
    pins: Sequence[PinnedSpan] = (),
    pins_budget_bytes: int = 0,
) -> list[StoredFile]:
    """Choose what goes from a tier before ``coming_bytes`` more are written to it.

    ``now_ns``: what is believed to be the time. ``elsewhere_bytes``: what of the same budget lies in RAM; as much as
    may come to lie there before it is written is kept free. Pinned
    files count against their own budget: first what people pinned, and of each the newest; what does not fit there is
    treated like any other file.
    """
    ordered = sorted(files, key=lambda file: (file.last_ns, file.path))
    protected: set[str] = set()
    room = pins_budget_bytes
    for by_people in (True, False):
        spans = [pin for pin in pins if pin.by_people is by_people]
        for file in reversed([file for file in ordered if file.path not in protected]):
            is_pinned = any(pin.start_ns <= file.last_ns and file.first_ns < pin.end_ns for pin in spans)
            if is_pinned and file.size_bytes <= room:
                room -= file.size_bytes
                protected.add(file.path)
    free = [file for file in ordered if file.path not in protected]
    oldest_ns = now_ns - limit.age_ns
    going = [file for file in free if limit.age_ns and max(file.last_ns, file.written_ns) < oldest_ns]
    free = [file for file in free if file not in going]
    total = sum(file.size_bytes for file in free) + coming_bytes + max(elsewhere_bytes, limit.ram_bytes)
    for file in free:
        if total <= limit.budget_bytes:
            break
        going.append(file)
        total -= file.size_bytes
    return going


class Forecast(NamedTuple):
    """What a tier will take: bytes a day, and how many days it keeps."""

    tier: str
    bytes_per_day: float
    days: float


def forecast(tier: str, limit: Limit, points_per_day: float, bytes_per_point: float) -> Forecast:
    """Say how long a tier reaches back when it grows as measured; the age limit may end it sooner."""
    bytes_per_day = points_per_day * bytes_per_point
    # On average half a file has gone already when the budget is full, and a merge needs room beside its sources.
    usable = limit.budget_bytes - limit.ram_bytes - file_bytes_max(limit) / 2
    days = usable / bytes_per_day if bytes_per_day else float("inf")
    if limit.age_ns:
        days = min(days, limit.age_ns / 86400e9)
    return Forecast(tier, bytes_per_day, days)
