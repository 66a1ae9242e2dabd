# SPDX-License-Identifier: Apache-2.0
"""Pressure stall: how long tasks waited for CPU, memory, I/O or interrupts, from /proc/pressure.

Source: ``Documentation/accounting/psi.rst``.
"""

import errno

from sysmond.probe import ABSENT, Host, Metric, Probe, Row, Table, counter, gauge, hookimpl

FOLDER = "/proc/pressure"
RESOURCES = ("cpu", "memory", "io", "irq")
# Errors of a resource without pressure files until the next boot; others may pass.
NOT_THERE = (errno.ENOENT, errno.EOPNOTSUPP)


def _kind(kind: str, whom: str) -> tuple[Metric, ...]:
    origin = f"{FOLDER}/* {kind}"
    return (
        counter(f"{kind}_total", "s", f"Time in which {whom} waited for the resource.", 6, f"{origin} total"),
        *(
            gauge(f"{kind}_avg{s}", "%", f"Share of the last {s} s in which {whom} waited.", 2, f"{origin} avg{s}")
            for s in (10, 60, 300)
        ),
    )


PRESSURE = Table(
    "pressure",
    per="resource",
    doc="How long tasks were stalled for lack of cpu, memory or io, or by interrupts (irq).",
    metrics=(*_kind("some", "at least one task"), *_kind("full", "all tasks that were not idle")),
)
_ABSENT_KIND = (ABSENT,) * 4


def parse(content: bytes) -> tuple[int, ...]:
    """Give some and full of a pressure file; either line may be absent (irq has no some, old kernels no full of cpu).

    :raises ValueError: when a line is not of the form ``some avg10=2.25 avg60=0.85 avg300=0.24 total=3653689``.
    """
    some = full = _ABSENT_KIND
    for line in content.splitlines():
        kind, avg10, avg60, avg300, total = line.split()
        # Two decimals always: checked, because the point is simply left out.
        if avg10[-3:-2] + avg60[-3:-2] + avg300[-3:-2] != b"..." or total[:6] != b"total=" or avg10[:6] != b"avg10=":
            raise ValueError(
                f"{FOLDER} has a line {line[:80]!r}; avg10=0.00 avg60=0.00 avg300=0.00 total=0 is the expected form"
            )
        values = (
            int(total[6:]),
            int(avg10[6:].replace(b".", b"")),
            int(avg60[6:].replace(b".", b"")),
            int(avg300[7:].replace(b".", b"")),
        )
        if kind == b"some":
            some = values
        elif kind == b"full":
            full = values
    return some + full


class Resources:
    """The resources that a host has files for: missing ones are tried once, not every tick."""

    def __init__(self) -> None:
        """Know no host yet."""
        self._host: Host | None = None
        self._there: dict[str, str] = {}
        self._refusal = (0, "", "")

    def read(self, host: Host) -> list[Row]:
        """Read a row for each resource.

        :raises OSError: when this kernel has none of them.
        """
        if host is not self._host:
            self._host = host
            self._refusal = (0, "", "")
            self._there = {resource: f"{FOLDER}/{resource}" for resource in RESOURCES}
        rows: list[Row] = []
        for resource, path in [*self._there.items()]:
            try:
                rows.append((resource, parse(host.read(path))))
            except OSError as refusal:
                if refusal.errno not in NOT_THERE:
                    raise
                del self._there[resource]
                if resource == RESOURCES[0] or not self._refusal[0]:
                    self._refusal = (refusal.errno, _reason(refusal.errno), path)
        if not rows:
            raise OSError(*self._refusal)
        return rows


def _reason(number: int) -> str:
    if number == errno.EOPNOTSUPP:
        return "pressure stall accounting is switched off; psi=1 on the kernel's command line switches it on"
    return "this kernel was built without pressure stall accounting (CONFIG_PSI)"


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``pressure``."""
    return [Probe(PRESSURE, Resources().read, pure=True)]
