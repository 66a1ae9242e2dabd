# SPDX-License-Identifier: Apache-2.0
"""What ``sysmonctl report-bug`` gathers: what helps to find a bug, without what belongs to the people of the machine.

Every file in it is text, and made by one function here. Of restricted tables only names and states go in; of what was
recorded nothing but the recorder's own cost, gaps and events. All texts go through ``redaction``.
"""

import argparse
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import metadata
from typing import Any, NamedTuple

from sysmon_tools.client import Client
from sysmon_tools.command_output import CommandOutput, table
from sysmon_tools.commands import NO_OPTIONS, probes_of
from sysmon_tools.connecting import connect
from sysmon_tools.doctor import examine
from sysmon_tools.redaction import Known, Redaction, of_machine
from sysmond import __version__
from sysmond.base.clock import SECOND_NS
from sysmond.base.event_kinds import KINDS, PEOPLE
from sysmond.base.model import Sensitivity
from sysmond.base.terminal import put
from sysmond.base.timespec import format_time
from sysmond.errors import Error, NotPermittedError, refusal
from sysmond.machine import folders
from sysmond.plan import plan as plans

ROOT_NAME = "sysmond-bug-report"
UNITS = "sysmond*"
UNIT_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,NRestarts,ExecMainCode,ExecMainStatus,MemoryCurrent,CPUUsageNSec"
)
JOURNAL_LINES_MAX = 500
DAY_NS = 24 * 3600 * SECOND_NS
PROGRAM_S = 20.0
PROGRAM_BYTES_MAX = 4 << 20
MODE = 0o600  # Its owner looks at it before anybody else does.
PACKAGES = ("dbus-fast", "h5py", "numpy", "pluggy", "pyudev", "pyyaml", "rich", "duckdb")
LANES = ("realtime", "background")
MASKED = "<masked>"
_OPTION = re.compile(r"probes\.([^.]+)\.options\.")
_PLAIN = re.compile(r"[-+.\d]+\w{0,3}|true|false", re.IGNORECASE)


class Part(NamedTuple):
    """A file of the bundle: its name, what it holds, and who makes it, as text or as JSON has it."""

    name: str
    holds: str
    make: Callable[["Collector"], Awaitable[Any]]


class Collector:
    """What the parts are made from: a client, where the recorder answers, and what is to be masked."""

    def __init__(self, client: Client | None, why_not: str, *, user: bool, known: Known | None = None) -> None:
        """``client``: None where nobody answers, for the reason ``why_not``. ``user``: a user's own recorder."""
        self._client = client
        self._why_not = why_not
        self.user = user
        self.redaction = Redaction(known if known is not None else of_machine())
        self._probes: list[dict[str, Any]] | None = None

    @property
    def client(self) -> Client:
        """Who asks the recorder.

        :raises Error: where it does not answer.
        """
        if self._client is None:
            raise Error(self._why_not)
        return self._client

    async def probes(self) -> list[dict[str, Any]]:
        """What everybody may know of each probe.

        :raises Error: where nobody answers.
        """
        if self._probes is None:
            self._probes = await probes_of(self.client)
        return self._probes

    async def runtime(self) -> str:
        """Where the recorder has its plan."""
        if self._client is None:
            return folders.ours(user=self.user, state_dir=None, runtime_dir=None).runtime
        return str((await self._client.call("GetStatus", "a{sv}", NO_OPTIONS))["runtime_dir"])

    async def restricted(self) -> frozenset[str]:
        """The names of restricted tables; of those that come with sysmond, where there is no plan to say it."""
        try:
            plan = await _plan(self)
        except (OSError, Error):
            plan = plans.builtin(Sensitivity.RESTRICTED)
        return frozenset(probe.table for probe in plan.probes if probe.sensitivity is Sensitivity.RESTRICTED)


async def report_bug(options: argparse.Namespace) -> CommandOutput:
    """Make a bundle, say what it holds, and write it where that is asked for.

    :raises Error: where the file is there already, or cannot be written.
    """
    async with AsyncExitStack() as stack:
        client, why_not = None, ""
        try:
            client = await stack.enter_async_context(connect(options))
            await client.call("GetStatus", "a{sv}", NO_OPTIONS)
        except Error as nobody:
            client, why_not = None, str(nobody)
        made = await files(Collector(client, why_not, user=options.user))
    if options.output_file is not None:
        write(options.output_file, made)
    rows = [(part.name, str(len(made[part.name])), part.holds) for part in PARTS]
    listed = [{"name": name, "bytes": int(size), "holds": holds} for name, size, holds in rows]

    def show() -> None:
        table(("file", "bytes", "what it holds"), rows)
        put("", "Names of this machine and its users, home folders, addresses and serial numbers are masked.")
        put("Read it before you send it, all the same: nobody else knows what is private here.", "")
        if options.output_file is None:
            put("Nothing has been written yet; --output-file report.tar.gz writes it.")
        else:
            put(f"Written to {options.output_file}; tar -xzf unpacks it.")

    return CommandOutput({"files": listed, "output_file": options.output_file}, show)


async def files(collector: Collector) -> dict[str, bytes]:
    """Make every file of a bundle, by name. What cannot be told says why, in its place."""
    made = {}
    for part in PARTS:
        try:
            content = await part.make(collector)
        except (OSError, Error) as missing:
            content = {"missing": refusal(missing) if isinstance(missing, OSError) else str(missing)}
        if isinstance(content, str):
            made[part.name] = collector.redaction.free(content).encode(errors="replace")
        else:
            spelled = json.dumps(collector.redaction.all_of(content), indent=1, ensure_ascii=False)
            made[part.name] = f"{spelled}\n".encode(errors="replace")
    return made


def write(path: str, made: Mapping[str, bytes]) -> None:
    """Write a bundle, readable by its owner alone.

    :raises Error: where something is there already, or it cannot be written.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in made.items():
            member = tarfile.TarInfo(f"{ROOT_NAME}/{name}")  # Of its owner nothing is in it.
            member.size, member.mode, member.mtime = len(content), MODE, int(time.time())
            archive.addfile(member, io.BytesIO(content))
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, MODE), "wb") as file:
            file.write(packed.getvalue())
    except FileExistsError as there:
        raise Error(f"{path}: already exists; expected the name of a new file") from there
    except OSError as failure:
        kind = NotPermittedError if isinstance(failure, PermissionError) else Error
        raise kind(f"{path}: not written: {failure.strerror}") from failure


async def _versions(collector: Collector) -> Any:  # noqa: ANN401  as JSON has it
    kernel = os.uname()
    return {
        "sysmond": __version__,
        "python": sys.version,
        "packages": {name: _version(name) for name in PACKAGES},
        "system": _os_release(),
        "kernel": {"release": kernel.release, "version": kernel.version, "machine": kernel.machine},
        "container": _read("/run/systemd/container") or _read("/run/host/container-manager"),
        "security modules": _read("/sys/kernel/security/lsm"),
        "lockdown": _read("/sys/kernel/security/lockdown"),
        "systemd": _said(["systemctl", "--version"]).partition("\n")[0],
        "libc": " ".join(platform.libc_ver()),
        "processors": os.cpu_count(),
        "memory pages": os.sysconf("SC_PHYS_PAGES"),
        "asked for a user": collector.user,
    }


async def _status(collector: Collector) -> Any:  # noqa: ANN401  as above
    return await collector.client.call("GetStatus", "a{sv}", NO_OPTIONS)


async def _units(collector: Collector) -> str:
    words = ["systemctl", *(["--user"] if collector.user else []), "--no-pager", "show", UNITS]
    return _said([*words, f"--property={UNIT_PROPERTIES}"])


async def _doctor(collector: Collector) -> Any:  # noqa: ANN401  as above
    status = await _status(collector)
    probes = await collector.probes()
    rows = [{"name": row["Name"], "state": row["State"], "reason": row["Reason"]} for row in probes]
    polkit = None if collector.user else await collector.client.has("org.freedesktop.PolicyKit1")
    findings = examine(rows, status, {str(row["Name"]): str(row["Privilege"]) for row in probes}, polkit=polkit)
    free = collector.redaction.free
    return [{**finding, "reason": free(finding["reason"])} for finding in findings]


async def _configuration(collector: Collector) -> Any:  # noqa: ANN401  as above
    rows = await collector.client.call("GetConfig", "a{sv}", NO_OPTIONS)
    hidden = await collector.restricted()
    return [
        {
            "key": key,
            "value": MASKED if _is_private(key, value, hidden) else value,
            "origin": f"{file}:{line}" if file else "default",
        }
        for key, value, file, line in rows
    ]


def _is_private(key: str, value: str, restricted: frozenset[str]) -> bool:
    """Whether a setting is an option of a restricted table, or a text that its option allows to say anything."""
    option = _OPTION.match(key)
    return option is not None and (option[1] in restricted or _PLAIN.fullmatch(value) is None)


async def _plan(collector: Collector) -> plans.Plan:
    return plans.read(f"{await collector.runtime()}/plan.json")


async def _plan_summary(collector: Collector) -> Any:  # noqa: ANN401  as above
    plan = await _plan(collector)
    free = collector.redaction.free
    return {
        "probes": [
            {
                "table": probe.table,
                "plugin": probe.plugin,
                "lane": probe.lane,
                "interval_ns": probe.interval_ns,
                "sensitivity": probe.sensitivity,
                "enabled": probe.enabled,
            }
            for probe in plan.probes
        ],
        "refused": [{"plugin": refused.plugin, "reason": free(refused.reason)} for refused in plan.refused],
        "sampler": plan.sampler._asdict(),
        "archiver": plan.archiver._asdict(),
    }


async def _overhead(collector: Collector) -> Any:  # noqa: ANN401  as above
    return await collector.client.call("GetCost", "a{sv}", NO_OPTIONS)


async def _gaps(collector: Collector) -> Any:  # noqa: ANN401  as above
    """Of a public table in each lane, that of one row for the whole system: what concerns a lane shows there.

    Of these the one that is read most often, since it has the shortest gaps.
    """
    chosen: dict[str, str] = {}
    for probe in sorted(await collector.probes(), key=lambda probe: probe["Interval"]):
        is_plain = probe["Sensitivity"] == Sensitivity.PUBLIC and not probe["Per"] and probe["Metrics"]
        if is_plain and probe["State"] == "active":
            chosen.setdefault(str(probe["Lane"]), str(probe["Name"]))
    end_ns = time.time_ns()
    told = {}
    for lane in LANES:
        if lane in chosen:
            told[chosen[lane]] = await _gaps_of(collector, chosen[lane], end_ns - DAY_NS, end_ns)
    return told


async def _gaps_of(collector: Collector, name: str, start_ns: int, end_ns: int) -> Any:  # noqa: ANN401  as above
    asked: tuple[Any, ...] = ([name], start_ns, end_ns, DAY_NS, [], NO_OPTIONS)
    *_, gaps, _ = await collector.client.call("History", "asxxtasa{sv}", *asked)
    return [
        {
            "from": format_time(from_ns),
            "to": format_time(to_ns),
            "cause": cause,
            "detail": collector.redaction.free(detail),
        }
        for from_ns, to_ns, _, cause, detail in gaps
    ]


async def _events(collector: Collector) -> Any:  # noqa: ANN401  as above
    """Of our own parts, and of public tables; what people wrote, and what devices they plugged in, stays here."""
    hidden = await collector.restricted()
    end_ns = time.time_ns()
    rows = await collector.client.call("GetEvents", "xxa{sv}", end_ns - DAY_NS, end_ns, NO_OPTIONS)
    return [
        {"time": format_time(row[0]), "kind": row[1], "subject": row[2], "text": collector.redaction.free(row[3])}
        for row in rows
        if row[1] in OWN_EVENTS and not _names(f"{row[2]} {row[3]}", hidden)
    ]


async def _journal(collector: Collector) -> str:
    unit = "--user-unit" if collector.user else "--unit"
    words = ["journalctl", "--no-pager", "--quiet", "--boot", "--no-hostname", "--output=short-iso"]
    said = _said([*words, f"{unit}={UNITS}", f"--lines={JOURNAL_LINES_MAX}"])
    hidden = await collector.restricted()
    lines = ["<a line about a restricted table>" if _names(line, hidden) else line for line in said.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _names(line: str, tables: frozenset[str]) -> bool:
    """Whether a line names one of these tables."""
    return any(word in tables for word in re.findall(r"\w+", line))


def _said(words: Sequence[str]) -> str:
    """What a program says, as far as it may.

    :raises Error: where it is not there, or fails.
    """
    program = shutil.which(words[0])
    if program is None:
        raise Error(f"{words[0]} is not installed")
    try:
        done = subprocess.run(  # noqa: S603  a program of systemd, and words of our own
            [program, *words[1:]], capture_output=True, timeout=PROGRAM_S, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except subprocess.TimeoutExpired as hung:
        raise Error(f"{words[0]} did not answer within {PROGRAM_S:.0f} s") from hung
    if done.returncode and not done.stdout:
        raise Error(f"{words[0]}: {' '.join(done.stderr.decode(errors='replace').split()) or done.returncode}")
    return done.stdout[-PROGRAM_BYTES_MAX:].decode(errors="replace")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _os_release() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


# What is seen of the machine may name its users' things.
OWN_EVENTS = frozenset(name for name, kind in KINDS.items() if not kind.seen and PEOPLE not in kind.owners)
PARTS = (
    Part("versions.json", "versions of sysmond, Python, its packages, the system and the kernel", _versions),
    Part("units.txt", "how the units of systemd are", _units),
    Part("status.json", "what sysmonctl status says", _status),
    Part("doctor.json", "what sysmonctl doctor says, as everybody may know it", _doctor),
    Part("configuration.json", "every setting; options of restricted tables are masked", _configuration),
    Part("plan.json", "what is to be recorded, by which lane, how often; refused plugins", _plan_summary),
    Part("overhead.json", "what sysmond itself costs, by part and by probe", _overhead),
    Part("gaps.json", "gaps of the last day with their causes, of one public table a lane", _gaps),
    Part("events.json", "what happened to sysmond itself within the last day", _events),
    Part("journal.txt", "the last lines of sysmond's own units; none about restricted tables", _journal),
)
