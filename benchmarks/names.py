# SPDX-License-Identifier: Apache-2.0
"""How many programs that ended have their name on record where there is no BPF, by how long they lived.

A whole daemon runs without the capabilities that BPF and taskstats take, as that of an ordinary user: it has the proc
connector, which tells of every end and of no name. Names are read while a program lives. Programs that only sleep, each
under a name that nothing else has, are started one after the other, directly and below a shell; how long each lived is
what its record says.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Daemon, Figures
from sysmond.probe import WAY_SUFFIX

# What is aimed at counts those that lived at least so long.
LIVED_S = 0.05
SLEEPS_S = (0.02, 0.05, 0.1, 0.2)
PROGRAMS = 100
# So many of them are started in a second.
RATE = 25
SETTLE_S, FINISH_S = 6, 5
NAME = "named-sleep"
# What BPF and taskstats take; what no ordinary user has.
BPF, ALL = "-bpf,-perfmon,-sys_admin,-net_admin", "-all"
_WAY = "by proc connector;"


def without(capabilities: str) -> list[str]:
    """What starts a program without some capabilities, as an ordinary user has it; ``BPF`` or ``ALL``.

    :raises RuntimeError: where root cannot give that up.
    """
    if os.geteuid():
        return []
    if (setpriv := shutil.which("setpriv")) is None:
        raise RuntimeError("setpriv: not installed; root would have BPF")
    return [setpriv, f"--bounding-set={capabilities}", f"--inh-caps={capabilities}", "--"]


@contextmanager
def sleeper() -> Iterator[str]:
    """Give the path of a program that sleeps, whose name nothing else has."""
    sleep = shutil.which("sleep")
    if sleep is None:
        raise RuntimeError("sleep: not installed")
    with tempfile.TemporaryDirectory(prefix="sysmond-names-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103  whoever records must be able to read what it executes
        path = f"{folder}/{NAME}"
        os.symlink(sleep, path)
        yield path


def start(command: Sequence[str], programs: int) -> int:
    """Start programs one after the other, every other one below a shell, and wait for them; gives how many."""
    children = []
    for number in range(programs):
        below = ["sh", "-c", f"{' '.join(command)}; :"] if number % 2 else list(command)
        children.append(subprocess.Popen(below))
        time.sleep(1 / RATE)
    for child in children:
        child.wait()
    return programs


def ended(daemon: Daemon) -> list[tuple[str, float]]:
    """What is on record of children of ours and of their shells: the name, and how many seconds each lived."""
    from sysmond.history import Archive  # noqa: PLC0415  numpy: not in what is forked before

    columns = ["comm", "start", "end", "ppid", "pid"]
    rows = Archive(daemon.folders).records("exits", start="-10min", columns=columns, raw=True).records
    ours = {os.getpid()}
    ours |= {int(row["pid"]) for row in rows if int(row["ppid"]) in ours}
    return [
        (str(row["comm"] or ""), float(row["end"] - row["start"]) / measure.SECOND_NS)
        for row in rows
        if int(row["ppid"]) in ours
    ]


def work(programs: int) -> Figures:
    """Run programs of each length beside a daemon, and look what they are called on record.

    :raises RuntimeError: where ends are told in another way here.
    """
    limit_s = SETTLE_S + FINISH_S + len(SLEEPS_S) * programs // RATE + 120
    with sleeper() as path, measure.daemon(limit_s, prefix=without(BPF)) as daemon:
        daemon.wait_for_ring()
        time.sleep(SETTLE_S)
        with open(f"{daemon.folders.runtime}/sampler/exits{WAY_SUFFIX}", encoding="utf-8") as file:
            way = file.readline().strip()
        if not way.startswith(_WAY):
            raise RuntimeError(f"exits: {way}; expected {_WAY.removesuffix(';')} alone: Linux 6.6 or later")
        made = sum(start([path, str(seconds)], programs) for seconds in SLEEPS_S)
        time.sleep(FINISH_S)
        told = ended(daemon)
    lived = [name for name, seconds in told if seconds >= LIVED_S]
    named = sum(bool(name) for name in lived)
    return {
        "way": way,
        "made": made,
        "lived": len(lived),
        "named": named,
        "share": round(named / max(1, len(lived)), 4),
        "wrong": sum(name not in {"", NAME, "sh"} for name, _ in told),
        "briefer": sum(seconds < LIVED_S for _, seconds in told),
        "briefer_named": sum(bool(name) for name, seconds in told if seconds < LIVED_S),
    }


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        ("ends are told", figures["way"]),
        ("programs that lived at least 50 ms", f"{figures['named']} of {figures['lived']} have a name"),
        ("… that ended sooner", f"{figures['briefer_named']} of {figures['briefer']}"),
        ("wrong names", str(figures["wrong"])),
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument(
        "--programs", type=measure.at_least_one, default=PROGRAMS, help=f"of each length; default {PROGRAMS}"
    )
    options = parser.parse_args()
    measure.run(lambda: work(options.programs), rows, as_json=options.json)
