# SPDX-License-Identifier: Apache-2.0
"""Commands that look after an archive and the program itself: budget, fsck, selftest."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sysmond.archiver import retention_job
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import EVENTS, FINEST_TIER, Sensitivity
from sysmond.base.terminal import put, say
from sysmond.errors import EXIT_PARTIAL, CorruptError, Error, ForeignError, NotPermittedError, refusal
from sysmond.machine import memory, mounts
from sysmond.machine.folders import Folders, check_trusted
from sysmond.machine.lock import only_one
from sysmond.plan import plan as plans
from sysmond.plan import retention
from sysmond.plan.plan import ArchiverSettings
from sysmond.plan.retention import TIERS_NS, Limit, StoredFile
from sysmond.store import archive, tiers
from sysmond.store.files.dense_file import Segment

if TYPE_CHECKING:
    from sysmond.commands.fsck import Finding

DAY_S = 86400.0
DAYS_EXACT = 10  # Fewer are told with a decimal.
# Of what a check finds, that of which something cannot be read.
HARMFUL = {"damaged", "refused"}
# Small files cost more a day than what becomes of them: who has this part of the largest tells by itself.
LARGE_FRACTION_MIN = 0.5
# Fewer buckets, or seconds of rows, do not tell how well more of them compress.
BUCKETS_MIN = 48
ROWS_S_MIN = 300.0


class Measured(NamedTuple):
    """A file of a tier: where it lies, how large it is, how many seconds of recording it covers, with which digits.

    ``significant_bits``: to how many rows in it were shortened; 0 where none were.
    """

    path: str
    size_bytes: int
    seconds: float
    significant_bits: int = 0


def budget(folders: Folders, options: argparse.Namespace) -> int:
    """Forecast the days that each tier keeps: by the limits that hold, or those of a file that is to hold.

    A tier's restricted files are part of it: whoever may not see them gets no figures, rather than too small ones.

    :raises NotPermittedError: naming the folder.
    """
    answer = forecasts(folders, options.config)
    if options.json:
        put(json.dumps(answer))
        return 0
    put(f"{'tier':<14}{'budget':>12}{'used':>12}{'a day':>12}{'keeps':>12}")
    for tier, forecast in answer.items():
        keeps = (
            "unknown yet"
            if forecast["days"] is None
            else f"{forecast['days']:.{int(forecast['days'] < DAYS_EXACT)}f} days"
        )
        a_day = "–" if forecast["bytes_per_day"] is None else _megabytes(forecast["bytes_per_day"])
        used, whole = _megabytes(forecast["used_bytes"]), _megabytes(forecast["budget_bytes"])
        put(f"{tier:<14}{whole:>12}{used:>12}{a_day:>12}{keeps:>12}")
    if any(forecast["days"] is None for forecast in answer.values()):
        put("What is still unknown will be known after some hours of recording; for events, after a day.")
    return 0


def forecasts(folders: Folders, file: str | None = None) -> dict[str, dict[str, Any]]:
    """Forecast by tier, as JSON has it. ``file``: the configuration whose limits are to hold, instead of the plan's.

    :raises NotPermittedError: naming the folder.
    """
    settings = _settings(folders, file)
    limits, _ = retention.of_settings(settings)
    bits = {FINEST_TIER: settings.significant_bits}  # Buckets keep every digit.
    try:
        answer = {tier: _forecast(folders, tier, limits[tier], bits.get(tier, 0)) for tier in TIERS_NS}
        answer[EVENTS] = _forecast_of(EVENTS, limits[EVENTS], *_use_of_events(folders))
        for tier, limit in retention.of_records(settings).items():
            answer[f"records.{tier}"] = _forecast_of(tier, limit, *_use_of_long(folders, tier))
    except PermissionError as failure:
        right = "root, the recorder's user and members of the group sysmond may"
        raise NotPermittedError(f"{refusal(failure)}; {right}") from failure
    return answer


def _settings(folders: Folders, file: str | None) -> ArchiverSettings:
    if file is None:
        plan, _ = plans.first_valid([f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"])
        return retention.fitted(plan.archiver, mounts.capacity_bytes(folders.state))
    from sysmond.plan import config, resolver  # noqa: PLC0415  seldom asked for

    read = config.read([file])
    resolver.check_pins(read)
    return retention.fitted(read.archiver, mounts.capacity_bytes(folders.state))


def _forecast(folders: Folders, tier: str, limit: Limit, bits: int) -> dict[str, Any]:
    """What a tier takes and keeps, as JSON has it; what cannot be measured yet is null."""
    bytes_per_day, used_bytes = 0.0, 0
    for sensitivity in Sensitivity:
        files = _measured(archive.disk_folder(folders, sensitivity, tier))
        used_bytes += sum(file.size_bytes for file in files)
        if sum(file.seconds for file in files) >= max(ROWS_S_MIN, BUCKETS_MIN * TIERS_NS[tier] / SECOND_NS):
            bytes_per_day += _bytes_per_day(files, tier, retention.file_bytes_max(limit), bits)
    return _forecast_of(tier, limit, used_bytes, bytes_per_day)


def _forecast_of(tier: str, limit: Limit, used_bytes: int, bytes_per_day: float) -> dict[str, Any]:
    days = retention.forecast(tier, limit, bytes_per_day, 1.0).days if bytes_per_day else None
    return {
        "budget_bytes": limit.budget_bytes,
        "used_bytes": used_bytes,
        "bytes_per_day": bytes_per_day or None,
        "days": days,
    }


def _use_of_events(folders: Folders) -> tuple[int, float]:
    """How many bytes events take, and how many a day adds: 0 before there is a day of them."""
    files = list(retention_job.stored(folders, EVENTS, is_long=False))
    used_bytes = sum(file.size_bytes for file in files)
    last_ns, first_ns = (
        max((file.last_ns for file in files), default=0),
        min((file.first_ns for file in files), default=0),
    )
    seconds = (last_ns - first_ns) / SECOND_NS
    return used_bytes, used_bytes / seconds * DAY_S if seconds >= DAY_S else 0.0


def _use_of_long(folders: Folders, tier: str) -> tuple[int, float]:
    """How many bytes all long tables take in a tier, and how many a day adds: 0 for those there are too few seconds of.

    By the files that are there: those that are not merged yet tell a little more than a day will add.
    """
    used_bytes, per_day = 0, 0.0
    tables: dict[str, list[StoredFile]] = {}
    for file in retention_job.stored(folders, tier, is_long=True):
        used_bytes += file.size_bytes
        tables.setdefault(os.path.dirname(file.path), []).append(file)
    for files in tables.values():
        seconds = sum(file.last_ns - file.first_ns for file in files) / SECOND_NS
        if seconds >= ROWS_S_MIN:
            per_day += sum(file.size_bytes for file in files) / seconds * DAY_S
    return used_bytes, per_day


def _measured(folder: str) -> list[Measured]:
    """The files of a folder, in order of time, without those that a merge left over."""
    listed, _ = tiers.listing(folder)
    sizes = []
    for file in tiers.counting(listed):
        path = f"{folder}/{file.file}"
        with suppress(FileNotFoundError, CorruptError, ForeignError), Segment(path) as opened:
            if seconds := _seconds(opened):
                shortened = [block.significant_bits for block in opened.recording.blocks if block.significant_bits]
                sizes.append(Measured(path, file.size_bytes, seconds, min(shortened, default=0)))
    return sizes


def _bytes_per_day(files: Sequence[Measured], tier: str, largest_bytes: int, bits: int) -> float:
    """What a day takes in files as large as they become, rows of so many ``bits``; 0 where that cannot be told yet.

    A file costs its declarations, once, and its rows. What is there is merged on trial, the newest first: then the
    difference to the sum of its parts is what the declarations take.
    """
    is_finest = tier == FINEST_TIER
    from sysmond.archiver.coding import DENSE  # noqa: PLC0415  what merging takes

    large = [file for file in files if file.size_bytes >= largest_bytes * LARGE_FRACTION_MIN]
    if not large and is_finest:
        large = [file for file in files if file.seconds >= DAY_S * LARGE_FRACTION_MIN]
    if alike := [file for file in large if file.significant_bits == bits]:
        return sum(file.size_bytes for file in alike) / sum(file.seconds for file in alike) * DAY_S
    if large and bits:  # Of other digits: shortened on trial.
        return len(DENSE.merged([large[-1].path], bits, [])) / large[-1].seconds * DAY_S
    members: list[Measured] = []
    for file in reversed(files):
        if sum(member.size_bytes for member in members) + file.size_bytes <= largest_bytes:
            members.insert(0, file)
    seconds, size_bytes = sum(file.seconds for file in members), sum(file.size_bytes for file in members)
    if len(members) < 2:  # noqa: PLR2004  one says nothing of the difference
        return 0.0
    paths = [file.path for file in members]
    merged_bytes = len(DENSE.merged(paths, 0, []) if is_finest else DENSE.merged_tier(paths))
    fixed_bytes = max(0.0, (size_bytes - merged_bytes) / (len(members) - 1))
    if bits:
        merged_bytes = len(DENSE.merged(paths, bits, []))
    bytes_per_s = (merged_bytes - fixed_bytes) / seconds
    full_s = (largest_bytes - fixed_bytes) / bytes_per_s
    if is_finest:  # Files of rows end with the day.
        full_s = min(full_s, DAY_S)
    return (fixed_bytes / full_s + bytes_per_s) * DAY_S


def _seconds(opened: Segment) -> float:
    """The longest that any writer recorded in a file, without what lies between its ticks."""
    covered: dict[object, int] = {}
    for block in opened.recording.blocks:
        strand = block.strand
        covered[strand] = covered.get(strand, 0) + len(block.ticks) * strand.interval_ns
    for tier in opened.recording.tiers:
        strand = tier.strand
        covered[strand] = covered.get(strand, 0) + int(tier.axis.rows.sum()) * strand.interval_ns
    return max(covered.values(), default=0) / 1e9


def fsck(folders: Folders, options: argparse.Namespace) -> int:
    """Check, and repair where that is asked for and no daemon writes there.

    :raises Error: where there is no such archive, or it cannot be written. :raises NotPermittedError: where we may not.
    """
    try:
        with memory.bounded():
            return _fsck(folders, options)
    except MemoryError as short:
        most = f"{memory.DATA_BYTES_MAX >> 20} MiB"
        raise Error(f"{folders.state}: checking it takes more than the {most} of memory allowed") from short


def _fsck(folders: Folders, options: argparse.Namespace) -> int:
    from sysmond.commands import fsck as engine  # noqa: PLC0415  seldom asked for

    if not os.path.isdir(folders.state):
        raise Error(f"{folders.state}: no such folder; nothing was recorded there")
    steps: list[str] = []
    read: list[str] = []
    if options.repair:
        try:
            check_trusted(folders.state)
            with only_one(folders.state):
                findings = engine.check(folders, read.append)
                steps += engine.repair(folders, findings)
        except OSError as failure:
            for step in steps:
                say(step, "")
            kind = NotPermittedError if isinstance(failure, PermissionError) else Error
            raise kind(f"{refusal(failure)}; nothing is lost, what is left stays") from failure
    else:
        findings = engine.check(folders, read.append)
    if options.json:
        answer = {"files": len(read), "findings": [finding._asdict() for finding in findings], "steps": steps}
        put(json.dumps(answer))
    else:
        put(*map(_spelled, findings), *steps, _summary(len(read), findings))
    return EXIT_PARTIAL if any(finding.kind in HARMFUL for finding in findings) else 0


def _summary(files: int, findings: "Sequence[Finding]") -> str:
    """How many files were read, and how many of what was looked at are not as they should be."""
    harmful = sum(finding.kind in HARMFUL for finding in findings)
    said = f"{harmful} damaged or unreadable" if harmful else "none damaged"
    return f"{files} {'file' if files == 1 else 'files'} read, {said}"


def _spelled(finding: "Finding") -> str:
    """A finding as a line for people: what is wrong, and what of it can be had all the same."""
    line = f"{finding.path}: {finding.kind}: {finding.reason.removeprefix(f'{finding.path}: ')}"
    if finding.kind != "damaged" or not finding.path.endswith(archive.SUFFIX):
        return line
    if finding.salvageable:
        return f"{line}; {finding.salvageable} of {finding.series} series can be read"
    return f"{line}; none of it can be read"


def selftest(folders: Folders, options: argparse.Namespace) -> int:  # noqa: ARG001  it has folders of its own
    """Kill, damage, count."""
    from sysmond.commands import selftest as engine  # noqa: PLC0415  it starts daemons, and is seldom asked for

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _leave)  # Whatever was started and written goes on the way out.
    result = engine.run(options.kill)
    put(json.dumps(result) if options.json else engine.line(result))
    return 0 if result["ok"] else 1


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _megabytes(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
