# SPDX-License-Identifier: Apache-2.0
"""The Manager interface, as far as it tells how sysmond itself is: status, budget, cost, clients; and its log.

Source of LogControl1: org.freedesktop.LogControl1(5).
"""

import os
import time
from contextlib import suppress

from sysmond import __version__
from sysmond.base import clock
from sysmond.base.model import Lane, Sensitivity
from sysmond.bus.part import BusPart
from sysmond.bus.probes import Probes, variants
from sysmond.bus.wire import names
from sysmond.bus.wire.errors import ForeignCallError
from sysmond.bus.wire.interface import (
    WHOLE_BYTES_MAX,
    CallContext,
    Changes,
    Interface,
    Options,
    method,
    prop,
    read_options,
)
from sysmond.bus.wire.values import Variant, clean
from sysmond.machine import lacking
from sysmond.plan.settings import PARTS
from sysmond.ring.leftovers import is_alive
from sysmond.sampler.self_cost import PID_FILE, read_pid

NEEDED = ("sampler", "background", "archiver")
LOG_LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
LOG_TARGETS = ("auto", "console")
ProbeRow = tuple[str, str, str, str, int, str, str]


class Status(Interface):
    """How sysmond is."""

    NAME = names.MANAGER

    def __init__(self, part: BusPart, probes: Probes) -> None:
        """``part``: whose folders these are."""
        self._part = part
        self._probes = probes
        self._folders = part.settings.folders
        self._boot_id = clock.boot_id()

    @method("options:a{sv}", "probes:a(sssstso)", bytes_max=WHOLE_BYTES_MAX)
    def list_probes(self, request: CallContext, options: Options) -> list[ProbeRow]:
        """All probes: name, state, reason, lane, interval in ns, sensitivity, object; refused plugins have ``/``."""
        read_options(options, {})
        return self._probes.rows(is_restricted=request.caller.is_restricted)

    @prop("s", changes=Changes.NEVER)
    def version(self) -> str:
        """The version of sysmond."""
        return __version__

    @prop("s", changes=Changes.NEVER)
    def boot_id(self) -> str:
        """The id of this boot, 32 hexadecimal digits."""
        return self._boot_id

    @prop("s")
    def state(self) -> str:
        """``running``, or ``degraded`` where a part that records is not there, or lacks something."""
        return "degraded" if self._lacks(self._pids()) else "running"

    def _lacks(self, pids: dict[str, int]) -> list[str]:
        """What is missing: parts that record, and what those that do go on without."""
        runtime = self._folders.runtime
        lines = [f"plan: {line}" for line in lacking.read(runtime)]
        for part in NEEDED:
            said = lacking.read(f"{runtime}/{part}") if part in pids else ["not there"]
            lines += [f"{part}: {line}" for line in said]
        return list(map(clean, lines))

    @prop("t", changes=Changes.EMITTED)
    def tick_period(self) -> int:
        """The shortest interval of the real-time lane in ns; 0 where nothing is planned there."""
        intervals_ns = [
            probe.interval_ns for probe in self._part.plan.probes if probe.enabled and probe.lane is Lane.REALTIME
        ]
        return min(intervals_ns, default=0)

    @method("options:a{sv}", "status:a{sv}")
    def get_status(self, _: CallContext, options: Options) -> dict[str, Variant]:
        """What there is to know in one answer; docs/dbus.md lists the keys."""
        read_options(options, {})
        pids = self._pids()
        # Parts that are units have no parent, and the bus part comes and goes.
        first = next((part for part in ("daemon", *NEEDED) if part in pids), "bus")
        started_ns = _started_ns(pids.get(first, os.getpid()), f"{self._folders.runtime}/{first}/{PID_FILE}")
        counts = self._part.service.counts()
        return variants(
            {
                "version": ("s", __version__),
                "state": ("s", self.state()),
                "lacks": ("as", self._lacks(pids)),
                "boot_id": ("s", self._boot_id),
                "pids": ("a{su}", pids),
                "runtime_dir": ("s", clean(self._folders.runtime)),
                "state_dir": ("s", clean(self._folders.state)),
                "uptime_ns": ("t", max(0, clock.boottime_ns() - started_ns)),
                "bus_name": ("s", names.BUS_NAME),
                "object_path": ("o", names.OBJECT_PATH),
                "probes": ("a{su}", self._probes.counts()),
                **{name: ("u", count) for name, count in counts.items()},
            }
        )

    @method("options:a{sv}", "settings:a(sssu)", bytes_max=WHOLE_BYTES_MAX)
    def get_config(self, request: CallContext, options: Options) -> list[tuple[str, str, str, int]]:
        """Every setting as it holds now: key, value, and file and line where it is said; no file: a default.

        Options of restricted probes are for restricted callers alone.
        """
        read_options(options, {})
        known = self._probes.catalogue()
        tables = [] if request.caller.is_restricted else list(known.tables.values())
        hidden = tuple(
            f"probes.{entry.planned.table}.options."
            for entry in tables
            if entry.planned.sensitivity is Sensitivity.RESTRICTED
        )
        return [
            (clean(setting.key), clean(setting.value), clean(setting.file or ""), setting.line)
            for setting in known.settings
            if not setting.key.startswith(hidden)
        ]

    @method("options:a{sv}", "costs:a{sa{sd}}", bytes_max=WHOLE_BYTES_MAX)
    def get_cost(self, _: CallContext, options: Options) -> dict[str, dict[str, float]]:
        """What sysmond costs, as the table ``self`` has it: by part, and by probe as ``probe:NAME``."""
        read_options(options, {})
        return dict(self._probes.costs())

    @method("options:a{sv}", "clients:a(suutt)")
    def list_clients(self, _: CallContext, options: Options) -> list[tuple[str, int, int, int, int]]:
        """Who is connected: unique name, uid, pid, calls, signals that were dropped because it does not read."""
        read_options(options, {})
        clients = self._part.service.clients()
        return [(caller.name, caller.uid, caller.pid, caller.calls, caller.dropped) for caller in clients]

    def _pids(self) -> dict[str, int]:
        """The processes of sysmond that are there, by part."""
        written = {part: read_pid(self._folders.runtime, part) for part in ("daemon", *PARTS)}
        # Those of other users may be hidden from us in /proc.
        return {part: pid for part, pid in written.items() if pid is not None and is_alive(pid)}


class LogControl(Interface):
    """What the bus part says on standard error."""

    NAME = "org.freedesktop.LogControl1"

    def __init__(self) -> None:
        """Everything is said."""
        self._level = "info"

    @property
    def is_silent(self) -> bool:
        """Whether what the bus part has to say, all of it warnings, is not wanted."""
        return LOG_LEVELS.index(self._level) < LOG_LEVELS.index("warning")

    @prop("s", setter="set_level")
    def log_level(self) -> str:
        """The least level that is said."""
        return self._level

    @prop("s", setter="set_target")
    def log_target(self) -> str:
        """Where it is said: standard error, which the journal reads."""
        return "console"

    @prop("s")
    def syslog_identifier(self) -> str:
        """Under which name."""
        return "sysmond-bus"

    def set_level(self, level: str) -> None:
        """Say less, or more."""
        if level not in LOG_LEVELS:
            raise ForeignCallError("InvalidArgs", f"level {level[:80]!r}; expected {', '.join(LOG_LEVELS)}")
        self._level = level

    def set_target(self, target: str) -> None:
        """There is but one target."""
        if target not in LOG_TARGETS:
            raise ForeignCallError("InvalidArgs", f"target {target[:80]!r}; expected {', '.join(LOG_TARGETS)}")


def _started_ns(pid: int, note: str) -> int:
    """When a process started, in boot time (/proc/PID/stat, field 22); where it is hidden, when it left its note."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        with suppress(OSError):
            return clock.boottime_ns() - max(0, time.time_ns() - os.stat(note).st_mtime_ns)
        return clock.boottime_ns()
    return ticks * clock.SECOND_NS // os.sysconf("SC_CLK_TCK")
