# SPDX-License-Identifier: Apache-2.0
"""What the BPF program that sees signals costs of 100,000 a second, as the kernel counts it; as root.

A process sends them, as fast as it can, to one that handles them, that takes them by sigwait(3), or that is sent
SIGCHLD; the kernel counts how long the program ran (``kernel.bpf_stats_enabled``), in which is what counting takes.
"""

import os
import signal
import subprocess
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure, service
from benchmarks.measure import Figures
from sysmond.errors import Error
from sysmond.tasks.bpf import loader

SIGNALS = 300_000
A_SECOND = 100_000
PROGRAM = "signalled"
_READY = "print(flush=True)\n"
_HANDLED = f"import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n{_READY}while True: signal.pause()"
_AWAITED = (
    "import signal\nwaited = [signal.SIGRTMIN]\nsignal.pthread_sigmask(signal.SIG_BLOCK, waited)\n"
    f"{_READY}while True: signal.sigwait(waited)"
)
_IGNORED = f"import signal\n{_READY}while True: signal.pause()"
TARGETS = {
    "handled": (_HANDLED, signal.SIGUSR1),
    "awaited": (_AWAITED, signal.SIGRTMIN),
    "ignored": (_IGNORED, signal.SIGCHLD),
}


def stormed(program: str, number: int, signals: int) -> float:
    """How many ns the BPF program took of each signal that a new process was sent."""
    with subprocess.Popen([sys.executable, "-IS", "-c", program], stdout=subprocess.PIPE) as target:
        try:
            if target.stdout is None or not target.stdout.readline():
                raise Error("the process that is sent signals did not start")
            spent_ns, runs = _runs()
            for _ in range(signals):
                os.kill(target.pid, number)
            after_ns, runs_after = _runs()
        finally:
            target.kill()
    if runs_after - runs < signals:
        raise Error(f"{PROGRAM} ran {runs_after - runs} times; expected {signals}")
    return (after_ns - spent_ns) / (runs_after - runs)


def _runs() -> tuple[int, int]:
    """For how many ns programs of this name ran since each was loaded, and how often."""
    here = [(spent_ns, count) for name, spent_ns, count in service.programs().values() if name == PROGRAM]
    return sum(spent_ns for spent_ns, _ in here), sum(count for _, count in here)


def measured(signals: int) -> Figures:
    """Load the programs, and send each target its signals."""
    with measure.workplace() as folders:
        loader.load(loader.LoadRequest(folders.runtime))
        try:
            with service.counted_programs():
                spent_ns = {name: round(stormed(*target, signals), 1) for name, target in TARGETS.items()}
        finally:
            loader.unload(folders.runtime)
    return {"ns": spent_ns, "percent": {name: round(spent * A_SECOND / 1e7, 2) for name, spent in spent_ns.items()}}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [
        (f"signals that are {name}", f"{spent_ns:.0f} ns each, {figures['percent'][name]:.1f} % of a core")
        for name, spent_ns in figures["ns"].items()
    ]


if __name__ == "__main__":
    parser = measure.arguments(__doc__ or "")
    parser.add_argument("--signals", type=measure.at_least_one, default=SIGNALS, metavar="N")
    options = parser.parse_args()
    measure.run(lambda: measured(options.signals), rows, as_json=options.json)
