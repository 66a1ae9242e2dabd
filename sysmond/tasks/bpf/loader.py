# SPDX-License-Identifier: Apache-2.0
"""Load the BPF programs, pin them with their maps, report which are refused and why; and end.

``python -m sysmond.tasks.bpf.loader --runtime-dir FOLDER``. It needs CAP_BPF and CAP_PERFMON, and CAP_SYS_ADMIN to
mount a BPF file system, or one in which it may make a folder; no other part of sysmond needs any of them. Programs of
one object are loaded together, for which the kernel's types are read once; where that is refused, each is tried by
itself, so a refusal costs that one only. Pins made from the same bytes for the same purpose stay, with what
they recorded meanwhile.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

from sysmond.base.terminal import confess, say
from sysmond.cgroups.tree import numbering_now
from sysmond.errors import Error, refusal
from sysmond.machine import note
from sysmond.machine.commandline import Parser
from sysmond.machine.folders import UMASK, check_trusted
from sysmond.probe import Host
from sysmond.tasks.bpf import bpffs
from sysmond.tasks.bpf.launch import REPORT
from sysmond.tasks.bpf.libbpf import BTF_KIND_FUNC, BTF_KIND_TYPEDEF, BpfRefusedError, Libbpf, Object
from sysmond.tasks.bpf.refusals import explained, no_permission

BTF = "/sys/kernel/btf/vmlinux"
KALLSYMS = "/proc/kallsyms"
TASKS_MAX = ("/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max")

# Rows of one pass: for so many times the tasks that there are now, at least so many, and at most the others; less where
# the machine cannot have as many. Where more come at once, a reading takes several passes (``walk.PASSES_MAX``).
ROOM = 4
TASKS_MIN = 1_024
PROCESSES_MAX = 16_384
THREADS_MAX = 32_768
# Rows and new stacks of one pass over what threads are doing: of all threads, and of those only that run or wait.
STATES_MAX, STATES_AWAKE_MAX = 16_384, 4_096
STACKS_MAX, STACKS_AWAKE_MAX = 1_024, 128
# How many stacks are remembered as given, for each of a pass: with 1,024, as many as the reader keeps.
KNOWN_PER_STACK = 8
# Ring buffers, powers of two: records of 176, of 40 to 800, of 24 to 528 and of 80 bytes that wait for their readers.
EXITS_BYTES = 2 * 1024 * 1024
EXECS_BYTES = 1024 * 1024
CGROUPS_BYTES = 128 * 1024
KILLS_BYTES = 256 * 1024
# ``hierarchy`` of bpf/measure.h, by the controller of version 1; version 2 has none.
_HIERARCHIES = {"": 0, "memory": 1, "pids": 2, "cpu": 3, "cpuacct": 4}
_NO_HIERARCHY = 5
# What the sources call a processor by whose registers a system call is found, by the machine as uname(2) names it.
ARCHITECTURES = {"x86_64": "x86", "i686": "x86", "aarch64": "arm64"}
_PLACES = {
    "scheduler_start": b"__sched_text_start",
    "scheduler_end": b"__sched_text_end",
    "kernel_start": b"_stext",
    "kernel_end": b"_etext",
}


class ProgramSpec(NamedTuple):
    """A program, and what it needs of the kernel: a name in its BTF, of a kind, since a version."""

    name: str
    object: str
    needs: str
    kind: int
    since: str
    # Not tried where this program was loaded, which does the same better.
    unless: str = ""


PROGRAMS = (
    ProgramSpec("ended", "events", "bpf_loop", BTF_KIND_FUNC, "5.17"),
    ProgramSpec("started", "events", "bpf_task_storage_get", BTF_KIND_FUNC, "5.11"),
    ProgramSpec("made", "events", "bpf_task_storage_get", BTF_KIND_FUNC, "5.11"),
    # Of what it sees, "ended" tells.
    ProgramSpec("signalled", "events", "bpf_loop", BTF_KIND_FUNC, "5.17"),
    ProgramSpec("sent", "events", "btf_trace_sock_send_length", BTF_KIND_TYPEDEF, "6.3"),
    ProgramSpec("received", "events", "btf_trace_sock_recv_length", BTF_KIND_TYPEDEF, "6.3"),
    ProgramSpec("snapshot", "tasks", "bpf_iter_task_new", BTF_KIND_FUNC, "6.7"),
    ProgramSpec("iterate", "tasks", "bpf_loop", BTF_KIND_FUNC, "5.17", unless="snapshot"),
    ProgramSpec("states", "states", "bpf_iter_task_new", BTF_KIND_FUNC, "6.7"),
)


class LoadRequest(NamedTuple):
    """What to load for whom. ``threads``: with rows of threads; ``sleepers``: with what all threads are doing.

    ``gid``: the group that may use the pins; -1: only the user who loads them. ``machine``: where the machine has a
    BPF file system, used where we may not mount our own. ``objects``: where the programs lie; empty: those that are
    installed for this machine.
    """

    runtime: str
    threads: bool = False
    sleepers: bool = False
    gid: int = -1
    machine: str = bpffs.MACHINE
    objects: str = ""


def objects_of(machine: str) -> str:
    """Name the folder of the objects for a machine, as uname(2) names it.

    :raises Error: for one that there are none for.
    """
    if machine not in ARCHITECTURES:
        raise Error(f"no BPF programs for {machine}; expected one of {', '.join(ARCHITECTURES)}")
    return f"{os.path.dirname(__file__)}/{ARCHITECTURES[machine]}"


def load(asked: LoadRequest) -> dict[str, object]:
    """Load and pin what this machine allows; write ``RUNTIME/bpf.json`` and return its content.

    ``programs``: for each ``{"ok": true}`` or ``{"refused": why}``; ``folder``: of the pins.

    :raises Error: where the report cannot be written, or others could lead it elsewhere.
    """
    check_trusted(asked.runtime)
    folder = bpffs.own(asked.runtime)
    try:
        if not os.path.exists(BTF):
            raise Error("the kernel has no BTF (/sys/kernel/btf/vmlinux); expected CONFIG_DEBUG_INFO_BTF")
        with bpffs.opened(asked.runtime, asked.machine) as pins:
            folder = pins.path
            programs = _loaded(asked, pins)
    except (Error, OSError) as problem:
        # Who may load nothing may most often not mount anything either: what he lacks is the first reason.
        lacking = no_permission() if os.path.exists(BTF) else ""
        why = lacking or (refusal(problem) if isinstance(problem, OSError) else str(problem))
        programs = {program.name: why for program in PROGRAMS if not program.unless}
    report: dict[str, object] = {
        "folder": folder,
        "programs": {name: {"refused": why} if why else {"ok": True} for name, why in programs.items()},
    }
    _write(f"{asked.runtime}/{REPORT}", report)
    return report


def unload(runtime: str, machine: str = bpffs.MACHINE) -> None:
    """Remove the pins of a runtime folder, and with them programs that nobody runs, and what they recorded.

    :raises Error: where they cannot be removed, or others could lead us elsewhere.
    """
    try:
        check_trusted(runtime)
        bpffs.remove(runtime, machine)
    except OSError as failure:
        raise Error(refusal(failure)) from None


def _loaded(asked: LoadRequest, pins: bpffs.Pins) -> dict[str, str]:
    """Load all; return why each program was refused, or nothing. On an error, remove an earlier loader's pins, too.

    :raises Error: without libbpf, without objects.
    """
    try:
        refused = _Loading(asked, pins).run()
    except (Error, OSError):
        pins.clear()
        raise
    pins.give(asked.gid)
    return refused


class _Loading:
    """The loading of all programs into one folder."""

    def __init__(self, asked: LoadRequest, pins: bpffs.Pins) -> None:
        """Read the objects, and the limits and addresses of this machine.

        :raises Error: without libbpf, without objects.
        """
        self._pins = pins
        objects = asked.objects or objects_of(os.uname().machine)
        self._contents = {name: _content(objects, name) for name in dict.fromkeys(spec.object for spec in PROGRAMS)}
        self._library = Libbpf()
        tasks, processes, threads = _tasks_max(), _room(_processes_now()), _room(_threads_now())
        stacks = STACKS_MAX if asked.sleepers else STACKS_AWAKE_MAX
        self._lengths = {
            "exits": EXITS_BYTES,
            "execs": EXECS_BYTES,
            "cgroups": CGROUPS_BYTES,
            "kills": KILLS_BYTES,
            "process_rows": min(PROCESSES_MAX, tasks, processes),
            "private_rows": min(PROCESSES_MAX, tasks, processes),
            "thread_rows": min(THREADS_MAX, tasks, threads) if asked.threads else 1,
            "state_rows": min(STATES_MAX if asked.sleepers else STATES_AWAKE_MAX, tasks),
            "stack_rows": stacks,
            "told_stacks": KNOWN_PER_STACK * stacks,
        }
        self._constants = {
            "processors": os.sysconf("SC_NPROCESSORS_CONF"),
            "page_bytes": os.sysconf("SC_PAGESIZE"),
            "hierarchy": _hierarchy(),
            **_places(),
        }
        self._refused: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Load all; return why each program was refused, or nothing."""
        known = self._library.knows({spec.needs: spec.kind for spec in PROGRAMS})
        markers = self._markers()
        self._remove_outdated(markers)
        pinned = self._pins.names()
        for name, programs in groupby(PROGRAMS, lambda program: program.object):
            if name == "tasks":
                self._constants["has_network"] = not (self._refused["sent"] or self._refused["received"])
            group = list(programs)
            self._refused |= {
                program.name: f"the kernel has no {program.needs}; expected Linux {program.since}"
                for program in group
                if not known[program.needs]
            }
            self._refused |= {program.name: "" for program in group if program.name in pinned}
            asked = [program.name for program in group if program.name not in self._refused and not program.unless]
            self._refused |= self._load(name, asked)
            for program in group:
                if program.name not in self._refused and self._refused[program.unless]:
                    self._refused |= self._load(name, [program.name])
        for marker in markers.values():
            os.makedirs(f"{self._pins.here}/{marker}", 0o700, exist_ok=True)
        return self._refused

    def _load(self, name: str, programs: list[str]) -> dict[str, str]:
        """Load programs of an object, together or else each by itself; gives why each was refused, or nothing."""
        refused: dict[str, str] = {}
        if not programs:
            return refused
        try:
            with self._library.object(self._contents[name]) as opened:
                opened.load(programs, self._pins.here, self._lengths, self._constants)
                for program in programs:
                    refused[program] = self._pin(opened, program)
        except BpfRefusedError as refusal_of_one:
            if len(programs) == 1:
                return {programs[0]: explained(refusal_of_one)}
            return {program: why for each in programs for program, why in self._load(name, [each]).items()}
        return refused

    def _pin(self, opened: Object, program: str) -> str:
        try:
            opened.pin(program, f"{self._pins.here}/{program}")
        except BpfRefusedError as refused:
            return explained(refused)
        return ""

    def _markers(self) -> dict[str, str]:
        """The name of an empty folder for each object: it names what its pins were made of, and marks them as complete.

        An object has maps of those before it, so its pins are no older than theirs.
        """
        lengths = self._lengths
        made = _sum(self._constants | {name: lengths[name] for name in ("exits", "execs", "cgroups", "kills")})
        markers = {}
        for name, content in self._contents.items():
            # Turning on threads later leaves the pins for ends alone, so that no end is missed.
            made = crc32(content, made if name == "events" else _sum(lengths, made))
            markers[name] = f"{name}-{made:08x}"
        return markers

    def _remove_outdated(self, markers: dict[str, str]) -> None:
        """Remove all pins but those that would be made the same again."""
        current: set[str] = set()
        there = self._pins.names()
        for name, marker in markers.items():
            if marker in there:
                # Of an object that cannot be opened nothing was pinned; each of its programs says why.
                with suppress(BpfRefusedError), self._library.object(self._contents[name]) as opened:
                    current |= {marker, *opened.maps, *opened.programs}
        self._pins.clear(current)


def _sum(numbers: Mapping[str, int], begin: int = 0) -> int:
    return crc32(json.dumps(numbers, sort_keys=True).encode(), begin)


def _content(folder: str, name: str) -> bytes:
    path = f"{folder}/{name}.bpf.o"
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise Error(f"{path}: missing; this sysmond was built without clang") from None


def _tasks_max() -> int:
    """How many threads this machine can have at once; by default that follows from its memory."""
    limits = [THREADS_MAX]
    for path in TASKS_MAX:
        with suppress(OSError, ValueError), open(path, "rb") as file:
            limits.append(int(file.read()))
    return max(1, min(limits))


def _room(now: int) -> int:
    """For how many tasks there is to be room: a power of two, so that a few more or less make no map anew."""
    return max(TASKS_MIN, 1 << (ROOM * now - 1).bit_length())


def _processes_now() -> int:
    with os.scandir("/proc") as there:
        return sum(entry.name.isdecimal() for entry in there)


def _threads_now() -> int:
    """How many threads there are: the second number of ``1/234`` in /proc/loadavg."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].partition("/")[2])


def _hierarchy() -> int:
    try:
        controllers = numbering_now(Host()).controllers
    except (OSError, ValueError):
        return _NO_HIERARCHY
    return next(
        (_HIERARCHIES[controller] for controller in controllers or ("",) if controller in _HIERARCHIES), _NO_HIERARCHY
    )


def _places() -> dict[str, int]:
    """Find where functions of the scheduler and of the kernel lie; zeros where it does not show its addresses."""
    content = b""
    with suppress(OSError), open(KALLSYMS, "rb") as file:
        content = file.read()
    return {place: address_of(content, name) for place, name in _PLACES.items()}


def address_of(symbols: bytes, name: bytes) -> int:
    """The address in the line of a symbol: ``ffffffff81000000 T _stext``. Zero where there is none."""
    line_start = symbols.rfind(b"\n", 0, symbols.find(b" %s\n" % name)) + 1
    address, _, rest = symbols[line_start : symbols.find(b"\n", line_start)].partition(b" ")
    return int(address, 16) if rest.endswith(b" %s" % name) else 0


def _write(path: str, report: dict[str, object]) -> None:
    try:
        note.write(path, report, indent=1)
    except OSError as failure:
        raise Error(refusal(failure)) from None


def main() -> int:
    """Run the program; the exit code is 0 also where programs are refused: sysmond uses the others."""
    os.umask(UMASK)
    parser = Parser(prog="sysmond.tasks.bpf.loader", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runtime-dir", required=True, metavar="FOLDER", help="where bpf.json is written")
    parser.add_argument("--threads", action="store_true", help="make room for rows of threads")
    parser.add_argument("--sleepers", action="store_true", help="make room for the states of sleeping threads")
    parser.add_argument("--gid", type=int, default=-1, help="the group that may use what is pinned")
    parser.add_argument("--unload", action="store_true", help="remove what is pinned instead")
    try:
        words = parser.parse_args()
        if words.unload:
            unload(words.runtime_dir)
        else:
            load(LoadRequest(words.runtime_dir, words.threads, words.sleepers, words.gid))
    except Error as problem:
        say(str(problem))
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.excepthook = confess
    sys.exit(main())
