# SPDX-License-Identifier: Apache-2.0
"""The plan: which probes run, where and how often, and the settings of every part.

The resolver writes it; the parts read it and nothing else. Standard library only.
"""

import json
import os
from typing import Any, NamedTuple

from sysmond.clock import SECOND_NS
from sysmond.errors import CorruptError
from sysmond.model import Lane, Sensitivity

PLAN_VERSION = 1

# Below this a tick would be mostly overhead, and a typing error a busy loop.
INTERVAL_MIN_NS = SECOND_NS // 1000
INTERVAL_MAX_NS = 24 * 3600 * SECOND_NS


class PlannedProbe(NamedTuple):
    """One probe to run. ``plugin``: an import name, or the absolute path of a file."""

    table: str
    plugin: str
    lane: Lane
    interval_ns: int
    sensitivity: Sensitivity


class Refusal(NamedTuple):
    """A plugin, or one of its probes, that is not run, and why."""

    plugin: str
    reason: str


class SamplerSettings(NamedTuple):
    """``ring_bytes``: the largest a ring may be. ``priority``: of SCHED_FIFO; 0 for normal scheduling."""

    ring_bytes: int = 16 * 1024 * 1024
    priority: int = 10


class ArchiverSettings(NamedTuple):
    """How often rings are sealed and segments flushed, and how much may wait in RAM."""

    seal_interval_s: float = 450.0
    flush_interval_s: float = 3600.0
    ram_bytes: int = 64 * 1024 * 1024


class Plan(NamedTuple):
    """Everything the parts need to know."""

    probes: tuple[PlannedProbe, ...]
    refused: tuple[Refusal, ...] = ()
    sampler: SamplerSettings = SamplerSettings()
    archiver: ArchiverSettings = ArchiverSettings()


def encode(plan: Plan) -> bytes:
    """Spell a plan as JSON."""
    return json.dumps(
        {
            "version": PLAN_VERSION,
            "probes": [probe._asdict() for probe in plan.probes],
            "refused": [refusal._asdict() for refusal in plan.refused],
            "sampler": plan.sampler._asdict(),
            "archiver": plan.archiver._asdict(),
        },
        indent=1,
    ).encode()


def decode(content: bytes) -> Plan:
    """Read a plan back.

    :raises CorruptError: where it is not a plan of this version.
    """
    try:
        fields: dict[str, Any] = json.loads(content)
        if fields["version"] != PLAN_VERSION:
            raise CorruptError(f"plan: version {fields['version']}; {PLAN_VERSION} is right")
        return Plan(
            tuple(_probe(probe) for probe in fields["probes"]),
            tuple(Refusal(**refusal) for refusal in fields["refused"]),
            SamplerSettings(**fields["sampler"]),
            ArchiverSettings(**fields["archiver"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as damage:
        raise CorruptError(f"plan: not readable ({damage})") from damage


def _probe(fields: dict[str, Any]) -> PlannedProbe:
    probe = PlannedProbe(**fields)
    if not INTERVAL_MIN_NS <= probe.interval_ns <= INTERVAL_MAX_NS:
        raise CorruptError(f"plan: {probe.table}: interval {probe.interval_ns} ns is out of bounds")
    return probe._replace(lane=Lane(probe.lane), sensitivity=Sensitivity(probe.sensitivity))


def read(path: str) -> Plan:
    """Read a plan from a file.

    :raises OSError: where it cannot be read. :raises CorruptError: where it is no plan.
    """
    with open(path, "rb") as file:
        return decode(file.read())


def write(plan: Plan, path: str) -> None:
    """Put a plan in place, whole or not at all."""
    temporary = f"{path}.new"
    with open(temporary, "wb") as file:
        file.write(encode(plan))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
