# SPDX-License-Identifier: Apache-2.0
"""Kill processes of the running daemon at random moments, and look at what is left.

Each round kills -9 the sampler, the background lane, the archiver, a job that it runs, or the parent, which
is then started anew at once. In between and at the end every visible segment must read from end to end. At
the end each second of both lanes must be there, but for the one in flight of a lane that was killed and those
between a parent's death and its successor's first tick; and whatever is missing must have a cause.

    python tests/faults/kill_loop.py [--rounds 100] [--seed 1] [--json]
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from sysmond.archive import disk_folder, files, ram_folder
from sysmond.errors import Error
from sysmond.folders import Folders
from sysmond.history import Archive
from sysmond.model import Cause, Sensitivity
from sysmond.segment import Segment

SECOND_NS = 1_000_000_000
VICTIMS = ("sampler", "background", "archiver", "job", "parent")
CONFIGURATION = """
archive: {seal_interval: 1s, flush_interval: 2s}
probes:
  filesystem: {interval: 1s}
"""
LANES = {"sampler": "memory/total", "background": "filesystem/size@/dev/shm"}
# No bound decides a test: these end what hangs.
START_S, END_S, VICTIM_S = 30.0, 120.0, 20.0


class Kill(NamedTuple):
    """Who was killed, when (UTC), and by when all lanes had begun again where it was the parent."""

    victim: str
    at_ns: int
    again_ns: int


class Daemon:
    """The real program in temporary folders."""

    def __init__(self, root: str, folders: Folders) -> None:
        """Write its configuration and start it."""
        self.folders = folders
        self._configuration = f"{root}/sysmond.yaml"
        with open(self._configuration, "w", encoding="utf-8") as file:
            file.write(CONFIGURATION)
        self.log = open(f"{root}/log", "wb")  # noqa: SIM115  as long as the daemon
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", "sysmond", "--config", self._configuration]
        command += ["--state-dir", self.folders.state, "--runtime-dir", self.folders.runtime]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

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

    def wait_for_ticks(self) -> None:
        """Wait until both lanes have written a row since now."""
        since_ns = time.time_ns()
        limit_s = time.monotonic() + START_S
        while time.monotonic() < limit_s:
            if self.process.poll() is not None:
                raise Error(f"the daemon ended by itself: {self.process.returncode}")
            if all(max(ticks(self.folders, path), default=0) > since_ns for path in LANES.values()):
                return
            time.sleep(0.1)
        raise Error(f"no tick of both lanes within {START_S:.0f} s")

    def end(self) -> int:
        """End it in order, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(END_S)
        finally:
            self.process.kill()
            self.log.close()


def ticks(folders: Folders, path: str) -> list[int]:
    """The ticks that a series has, UTC nanoseconds."""
    try:
        times: list[int] = Archive(folders).select(path, raw=True).times_ns.tolist()
    except Error:
        return []
    return times


def kill(daemon: Daemon, victim: str, chance: random.Random) -> Kill | None:
    """Kill a process of the daemon at some moment of the next second and a half."""
    time.sleep(chance.uniform(0.0, 1.5))
    limit_s = time.monotonic() + VICTIM_S
    while (pid := daemon.pid(victim)) is None:
        if time.monotonic() > limit_s:
            return None
        time.sleep(0.002)
    if victim == "job":
        time.sleep(chance.uniform(0.0, 0.15))
    at_ns = time.time_ns()
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return None  # The job was done.
    if victim != "parent":
        return Kill(victim, at_ns, at_ns)
    daemon.start_again()
    daemon.wait_for_ticks()
    return Kill(victim, at_ns, time.time_ns())


def broken(folders: Folders, seen: set[str]) -> list[str]:
    """Read every visible segment that was not read before; name those that do not read."""
    found = []
    for sensitivity in Sensitivity:
        for folder in (ram_folder(folders, sensitivity), disk_folder(folders, sensitivity)):
            for file in files(folder):
                path = f"{folder}/{file}"
                if path in seen:
                    continue
                try:
                    with Segment(path) as opened:
                        for block in opened.recording.blocks:
                            block.read(range(len(block.keys)))
                except FileNotFoundError:
                    continue  # Flushed or merged meanwhile.
                except Error as damage:
                    found.append(str(damage))
                seen.add(path)
    return found


def unexplained(folders: Folders, lane: str, kills: list[Kill]) -> tuple[int, list[str]]:
    """How many seconds a lane lacks, and those for which no kill accounts, or that have no cause."""
    result = Archive(folders).select(LANES[lane], raw=True)
    times = result.times_ns.tolist()
    deaths = [kill for kill in kills if kill.victim in {lane, "parent"}]
    problems, missing = [], 0
    spent: set[Kill] = set()
    for before_ns, after_ns in pairwise(times):
        for slot_ns in range(before_ns + SECOND_NS, after_ns - SECOND_NS // 2, SECOND_NS):
            missing += 1
            gaps = [gap for gap in result.gaps if gap.start_ns <= slot_ns < gap.end_ns]
            if not gaps:
                problems.append(f"{lane}: {slot_ns}: no cause")
            elif gaps[0].cause is Cause.LATE_TICK:
                continue  # The machine was busy; it is counted, and no kill's doing.
            death = next((kill for kill in deaths if _accounts_for(kill, slot_ns) and kill not in spent), None)
            if death is None:
                problems.append(f"{lane}: {slot_ns}: no kill accounts for it ({gaps[:1]})")
            elif death.victim == lane:
                spent.add(death)  # One tick each.
    return missing, problems


def _accounts_for(kill: Kill, slot_ns: int) -> bool:
    # A tick that was in flight when its sampler died began up to a second before.
    return kill.at_ns - SECOND_NS <= slot_ns <= max(kill.at_ns + SECOND_NS, kill.again_ns)


def run(rounds: int, seed: int) -> dict[str, object]:
    """Go through the rounds and say what was found."""
    chance = random.Random(seed)
    root = tempfile.mkdtemp(prefix="sysmond-kill-", dir="/tmp")
    runtime = tempfile.mkdtemp(prefix="sysmond-kill-", dir="/dev/shm")
    folders = Folders(f"{root}/state", f"{runtime}/run")
    kills: list[Kill] = []
    problems: list[str] = []
    seen: set[str] = set()
    exit_code = None
    daemon = Daemon(root, folders)
    try:
        daemon.wait_for_ticks()
        # Every kind in turn, in changing order: a few rounds have met them all.
        order = [victim for _ in range(0, rounds, len(VICTIMS)) for victim in chance.sample(VICTIMS, len(VICTIMS))]
        for victim in order[:rounds]:
            if (done := kill(daemon, victim, chance)) is not None:
                kills.append(done)
            problems += broken(folders, seen)
        daemon.wait_for_ticks()
        exit_code = daemon.end()
        problems += broken(folders, seen)
        missing = {}
        for lane in LANES:
            missing[lane], found = unexplained(folders, lane, kills)
            problems += found
        with open(f"{root}/log", encoding="utf-8", errors="replace") as log:
            said = Counter(line.strip() for line in log)
        return {
            "kills": len(kills),
            "by_victim": dict(Counter(kill.victim for kill in kills)),
            "files": len(seen),
            "ticks": {lane: len(ticks(folders, path)) for lane, path in LANES.items()},
            "missing": missing,
            "left_in_ram": sum(len(names) for _, _, names in os.walk(runtime) if any(n.endswith(".h5") for n in names)),
            "problems": problems,
            "exit_code": exit_code,
            "said": dict(said.most_common(20)),
        }
    finally:
        if exit_code is None:
            daemon.end()
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)


def main() -> int:
    """Run the program; exit code 0 where nothing is broken and nothing is missing without a cause."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    totals = run(chosen.rounds, chosen.seed)
    if chosen.json:
        print(json.dumps(totals))
    else:
        for key, value in totals.items():
            print(f"{key.replace('_', ' '):12} {value}")
    return 1 if totals["problems"] or totals["exit_code"] or not totals["kills"] else 0


if __name__ == "__main__":
    sys.exit(main())
