# SPDX-License-Identifier: Apache-2.0
"""The self-test: record with the real programs in a folder of its own, kill them, damage copies, and count.

A daemon with short intervals loses one process after the other at random moments, and what it recorded is then
held against the published bound (``docs/durability.md``). No live archive is ever touched.
"""

import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from sysmond.archiver.children import PR_SET_PDEATHSIG
from sysmond.base.clock import RELATION_TOLERANCE_NS, SECOND_NS, boottime_ns
from sysmond.base.model import ABSENT, TIERS_NS, Cause, Sensitivity
from sysmond.commands.tamper import contents, damages, silently_wrong
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import folders as places
from sysmond.machine.folders import Folders
from sysmond.ring.frame import SUFFIX
from sysmond.store.archive import disk_folder, files, ram_folder

if TYPE_CHECKING:
    from sysmond.store.of_ring import Strand

VICTIMS = ("sampler", "background", "archiver", "job", "parent")
# A series of each lane: it has a value at every tick that there was.
LANES = {"sampler": "memory/total", "background": "load"}
INTERVAL_NS = SECOND_NS // 10
BACKGROUND_INTERVAL_MIN_NS = SECOND_NS
NEVER_NS = 2**63 - 1
COARSE = "10s"
CONFIGURATION = """
archive: {{seal_interval: 1s, flush_interval: 2s}}
probes:
  memory: {{interval: {sampler}ms}}
  load: {{interval: {background}ms, lane: background}}
"""
# No bound decides a result: these end what hangs.
START_S, END_S, VICTIM_S, LOOK_S = 30.0, 120.0, 10.0, 0.1
# Some find nobody: the job is just done.
ATTEMPTS_PER_KILL = 3
# How many files have copies of them damaged, and how often.
FILES_DAMAGED_MAX = 3
FLIPS_A_FILE = 60
TRUNCATIONS_A_FILE = 40


def intervals_ns(shortest_ns: int) -> dict[str, int]:
    """How often each lane ticks."""
    return {"sampler": shortest_ns, "background": max(shortest_ns, BACKGROUND_INTERVAL_MIN_NS)}


def configuration(shortest_ns: int) -> str:
    """What the daemon is told."""
    return CONFIGURATION.format(**{lane: each_ns // 1_000_000 for lane, each_ns in intervals_ns(shortest_ns).items()})


class Kill(NamedTuple):
    """Who was killed, when (boot time), and by when all lanes had begun again where it was the parent."""

    victim: str
    at_ns: int
    again_ns: int


class Daemon:
    """The real program in temporary folders."""

    def __init__(self, root: str, folders: Folders, configuration: str, environ: dict[str, str] | None = None) -> None:
        """Write its configuration and start it."""
        self.folders = folders
        self._configuration = f"{root}/sysmond.yaml"
        self._environ = {**os.environ, "XDG_CONFIG_HOME": f"{root}/config", **(environ or {})}
        with open(self._configuration, "w", encoding="utf-8") as file:
            file.write(configuration)
        self.log = f"{root}/log"
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        isolation = "-I" if sys.flags.isolated else "-P"
        command = [sys.executable, isolation, "-m", "sysmond", "--user", "--config", self._configuration]
        command += ["--state-dir", self.folders.state, "--runtime-dir", self.folders.runtime]
        with open(self.log, "ab") as log:
            return subprocess.Popen(  # noqa: S603  this very program
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environ,
                preexec_fn=_end_with_parent,  # noqa: PLW1509  nothing else runs in this process
            )

    def start_again(self) -> None:
        """Start the successor of a parent that was killed."""
        self.process.wait()
        self.process = self._start()

    def pid(self, victim: str) -> int | None:
        """The process id of a part, or of a job that is running; None where there is none just now."""
        if victim == "parent":
            return self.process.pid
        if victim == "job":
            archiver = self.pid("archiver")
            children = f"/proc/{archiver}/task/{archiver}/children"
            with suppress(OSError, ValueError, IndexError), open(children, encoding="ascii") as file:
                return int(file.read().split()[0])
            return None
        with suppress(OSError, ValueError):
            with open(f"{self.folders.runtime}/{victim}/pid", encoding="ascii") as file:
                pid = int(file.read())
            with open(f"/proc/{pid}/cmdline", "rb") as command, open(f"/proc/{pid}/stat", "rb") as status:
                # All of ours carry their folders in the command line; a dead one is not killed again.
                is_ours = os.fsencode(self.folders.runtime) in command.read()
                alive = status.read().rpartition(b")")[2].split()[0] != b"Z"
                return pid if is_ours and alive else None
        return None

    def wait_for_ticks(self, lanes: Sequence[str] = tuple(LANES)) -> None:
        """Wait until these lanes have written a row since now.

        :raises Error: where the daemon ends, or hangs.
        """
        since_ns = time.time_ns()
        limit_s = time.monotonic() + START_S
        while time.monotonic() < limit_s:
            if self.process.poll() is not None:
                raise Error(f"the daemon ended by itself ({self.process.returncode}): {self.last_said()}")
            if all(ticks(self.folders, LANES[lane], since_ns) for lane in lanes):
                return
            time.sleep(LOOK_S)
        raise Error(f"no tick of {' and '.join(lanes)} within {START_S:.0f} s: {self.last_said()}")

    def said(self) -> list[str]:
        """The lines it has written."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return [line.strip() for line in log]

    def last_said(self) -> str:
        """The last of these lines, for whoever asks why."""
        return self.said()[-1] if self.said() else "it said nothing"

    def end(self) -> int:
        """End it in order, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(END_S)
        finally:
            self.process.kill()


def _end_with_parent() -> None:
    """Have the kernel end this child when its parent dies (prctl(2)): a daemon that nobody watches records for ever."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def place() -> Iterator[tuple[str, Folders]]:
    """Give a folder on disk, and in it and in RAM a pair of folders to record in; all of it goes with the block.

    :raises Error: where none can be made.
    """
    in_ram = places.SHARED_MEMORY if os.access(places.SHARED_MEMORY, os.W_OK) else None
    try:
        root = tempfile.mkdtemp(prefix="sysmond-selftest-")
        runtime = tempfile.mkdtemp(prefix="sysmond-selftest-", dir=in_ram)
    except OSError as refusal:
        raise Error(f"no temporary folder: {refusal.strerror}; expected a TMPDIR that can be written to") from refusal
    try:
        yield root, Folders(f"{root}/state", f"{runtime}/run")
    finally:
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)


def ticks(folders: Folders, path: str, since_ns: int | None = None) -> list[int]:
    """The ticks that a series has, UTC nanoseconds."""
    try:
        ticks_ns: list[int] = Archive(folders).select(path, start=since_ns, raw=True).times_ns.tolist()
    except Error:
        return []
    return ticks_ns


def counted(folders: Folders, path: str) -> int:
    """How many ticks a series has, as the tiers count them."""
    counts = Archive(folders).select(path, step=COARSE, stat="count").columns[0].integers
    return 0 if counts is None else sum(count for count in counts.tolist() if count != ABSENT)


def kill(daemon: Daemon, victim: str, chance: random.Random, pause_s: float) -> Kill | None:
    """Kill a process of the daemon at some moment within ``pause_s``; None where there was none to kill."""
    time.sleep(chance.uniform(0.0, pause_s))
    limit_s = time.monotonic() + VICTIM_S
    while (pid := daemon.pid(victim)) is None:
        if time.monotonic() > limit_s:
            return None
        time.sleep(0.002)
    if victim == "job":
        time.sleep(chance.uniform(0.0, 0.15))
    at_ns = boottime_ns()
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return None  # The job was done.
    if victim != "parent":
        return Kill(victim, at_ns, at_ns)
    daemon.start_again()
    daemon.wait_for_ticks()
    return Kill(victim, at_ns, boottime_ns())


def _order(attempts: int, chance: random.Random) -> Iterator[str]:
    """Whom to kill: every kind in turn, in changing order, so that a few kills have met them all."""
    for _ in range(0, attempts, len(VICTIMS)):
        yield from chance.sample(VICTIMS, len(VICTIMS))


class Seen:
    """What was found in the visible files: which were read, which are broken, when writers had their first ticks."""

    def __init__(self, folders: Folders) -> None:
        """Nothing yet."""
        self._folders = folders
        self.files: set[str] = set()
        self.broken: list[str] = []
        self.first_ticks_ns: dict[Strand, int] = {}

    def look(self) -> None:
        """Read every visible segment that was not read before."""
        for sensitivity in Sensitivity:
            on_disk = (disk_folder(self._folders, sensitivity, tier) for tier in TIERS_NS)
            for folder in (ram_folder(self._folders, sensitivity), *on_disk):
                for path in {f"{folder}/{file}" for file in files(folder)} - self.files:
                    try:
                        for block in contents(path).recording.blocks:
                            first_ns = self.first_ticks_ns.get(block.strand, NEVER_NS)
                            self.first_ticks_ns[block.strand] = min(first_ns, int(block.ticks[0]))
                    except FileNotFoundError:
                        continue  # Flushed or merged meanwhile.
                    except Error as damage:
                        self.broken.append(str(damage))
                    self.files.add(path)


class Loss(NamedTuple):
    """Of one lane: ticks there, lost by kills, those the bound allows, late ones, and what nothing accounts for."""

    ticks: int
    lost: int
    bound: int
    late: int
    problems: list[str]


def loss(folders: Folders, lane: str, kills: Sequence[Kill], seen: Seen, interval_ns: int) -> Loss:
    """Hold what a lane lacks against the kills: each costs the tick in flight, and those until its successor began."""
    result = Archive(folders).select(LANES[lane], raw=True)
    utc_ns = time.time_ns() - boottime_ns()
    first_ns_of = [
        first_ns
        for strand, first_ns in seen.first_ticks_ns.items()
        if (strand.writer, strand.interval_ns) == (lane, interval_ns)
    ]
    spans = []
    for death in kills:
        if death.victim in {lane, "parent"}:
            after_ns = min((first_ns for first_ns in first_ns_of if first_ns > death.at_ns), default=death.again_ns)
            # The tick in flight was due up to an interval before.
            spans.append((death.at_ns - interval_ns, after_ns))
    bound = sum((end_ns - start_ns) // interval_ns for start_ns, end_ns in spans)
    problems = []
    lost = late = 0
    times = result.times_ns.tolist()
    for before_ns, after_ns in pairwise(times):
        for slot_ns in range(before_ns + interval_ns, after_ns - interval_ns // 2, interval_ns):
            causes = {gap.cause for gap in result.gaps if gap.start_ns <= slot_ns < gap.end_ns}
            if causes == {Cause.LATE_TICK}:
                late += 1  # The machine was busy; it is said, and no kill's doing.
                continue
            lost += 1
            if not causes:
                problems.append(f"{lane}: {slot_ns}: no cause")
            if not any(start_ns <= slot_ns - utc_ns <= end_ns for start_ns, end_ns in spans):
                problems.append(f"{lane}: {slot_ns}: no kill accounts for it ({', '.join(sorted(causes))})")
    return Loss(len(times), lost, bound, late, problems)


def _damage_copies(folders: Folders, rings: Sequence[str], folder: str, chance: random.Random) -> Counter[str]:
    there = [f"{where}/{file}" for s in Sensitivity for where in (disk_folder(folders, s),) for file in files(where)]
    there.sort(key=os.path.getsize)
    counts: Counter[str] = Counter()
    for path in [*there[-FILES_DAMAGED_MAX:], *rings]:
        counts.update(
            silently_wrong(path, damages(os.path.getsize(path), FLIPS_A_FILE, TRUNCATIONS_A_FILE, chance), folder)
        )
    return counts


def _copy_rings(folders: Folders, folder: str) -> list[str]:
    copies = []
    for lane in LANES:
        source = f"{folders.runtime}/{lane}/{Sensitivity.PUBLIC}"
        with suppress(OSError):
            rings = [name for name in os.listdir(source) if name.endswith(SUFFIX)]
            copies += [shutil.copyfile(f"{source}/{name}", f"{folder}/{lane}-{name}") for name in rings]
    return copies


def run(
    kills: int,
    *,
    seed: int | None = None,
    interval_ns: int = INTERVAL_NS,
    pause_s: float = 0.8,
    damage: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Record, kill, damage, and count; ``say`` hears how far it is.

    Gives, as JSON has it: ``kills`` done; ``ticks`` recorded; ``lost``, and the ``bound`` they are held against;
    ``broken_files``; ``silently_wrong``: damaged copies that read as something else than an error or the truth;
    ``ok``; ``problems``, in words; and more.
    :raises Error: where the daemon does not start.
    """
    chance = random.Random(seed)  # noqa: S311  moments, not secrets
    began_s = time.monotonic()
    with place() as (root, folders):
        done: list[Kill] = []
        seen = Seen(folders)
        exit_code = None
        daemon = Daemon(root, folders, configuration(interval_ns))
        acknowledged: dict[str, set[int]] = {lane: set() for lane in LANES}
        rings: list[str] = []
        try:
            daemon.wait_for_ticks()
            looked_ns = 0
            for victim in _order(kills * ATTEMPTS_PER_KILL, chance):
                if len(done) == kills:
                    break
                if (death := kill(daemon, victim, chance, pause_s)) is not None:
                    done.append(death)
                    say(f"{len(done)} of {kills}: {victim}")
                seen.look()
                since_ns, looked_ns = looked_ns, time.time_ns()
                for lane, path in LANES.items():
                    acknowledged[lane].update(ticks(folders, path, since_ns))
            daemon.wait_for_ticks()
            rings = _copy_rings(folders, root) if damage else []
            exit_code = daemon.end()
        finally:
            if exit_code is None:
                daemon.end()
        seen.look()
        losses = {lane: loss(folders, lane, done, seen, each_ns) for lane, each_ns in intervals_ns(interval_ns).items()}
        miscounted = [lane for lane, path in LANES.items() if counted(folders, path) != losses[lane].ticks]
        vanished = {lane: _vanished(acknowledged[lane], ticks(folders, path)) for lane, path in LANES.items()}
        copies = _damage_copies(folders, rings, os.path.dirname(folders.runtime), chance) if damage else Counter()
        faults = [f"exit code {exit_code}: {daemon.last_said()}"] if exit_code else []
        faults += [f"{lane}: the tiers count other ticks than there are" for lane in miscounted]
        faults += [f"{kills - len(done)} of {kills} found no process to kill"] if len(done) < kills else []
        return _summary(done, seen, losses, vanished, copies, faults, time.monotonic() - began_s) | {
            "said": dict(Counter(daemon.said()).most_common(20))
        }


def _vanished(acknowledged: Iterable[int], there: Iterable[int]) -> int:
    """How many ticks that were read once, in UTC, are not there any more.

    What is learnt of the clock meanwhile moves them by microseconds.
    """
    in_order = [-NEVER_NS, *sorted(there), NEVER_NS]
    places = ((at_ns, bisect_left(in_order, at_ns)) for at_ns in acknowledged)
    return sum(
        min(at_ns - in_order[place - 1], in_order[place] - at_ns) > RELATION_TOLERANCE_NS for at_ns, place in places
    )


def _summary(
    done: Sequence[Kill],
    seen: Seen,
    losses: dict[str, Loss],
    vanished: dict[str, int],
    copies: Counter[str],
    faults: Sequence[str],
    took_s: float,
) -> dict[str, Any]:
    problems = [*faults, *seen.broken, *(problem for loss in losses.values() for problem in loss.problems)]
    problems += [f"{lane}: {count} ticks were there and are gone" for lane, count in vanished.items() if count]
    wrong = copies["wrong"] + copies["crashed"]
    lost, bound = (sum(getattr(loss, field) for loss in losses.values()) for field in ("lost", "bound"))
    return {
        "ok": not problems and not wrong and lost <= bound,
        "kills": len(done),
        "ticks": sum(loss.ticks for loss in losses.values()),
        "lost": lost,
        "bound": bound,
        "broken_files": len(seen.broken),
        "silently_wrong": wrong,
        "late": sum(loss.late for loss in losses.values()),
        "by_victim": dict(Counter(death.victim for death in done)),
        "files": len(seen.files),
        "damaged_copies": sum(copies.values()),
        "problems": problems,
        "seconds": round(took_s, 1),
    }


def line(result: dict[str, Any]) -> str:
    """Say it in one line."""
    return (
        f"{'passed' if result['ok'] else 'FAILED'}: {result['kills']} kills, {result['ticks']} ticks, "
        f"{result['lost']} lost (at most {result['bound']} may be), {result['broken_files']} broken of "
        f"{result['files']} files, {result['silently_wrong']} silently wrong of {result['damaged_copies']} damaged "
        f"copies, {result['seconds']:.0f} s" + "".join(f"; {problem}" for problem in result["problems"][:1])
    )
