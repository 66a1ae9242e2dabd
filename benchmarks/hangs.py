# SPDX-License-Identifier: Apache-2.0
"""What a probe that hangs on the real-time lane costs the other tables: ticks lost, by how it hangs.

The daemon runs as it is by default, with one more probe on its real-time lane, which begins to wait for ever, to spin,
or is held by the kernel: as the parent of a child that has not begun its program (vfork(2)), it hears no signal but
SIGKILL. Lost are the ticks of the table ``load`` from before that until well after it.
"""

import os
import signal
import sys
import tempfile
import time
from functools import partial

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure, starvation
from benchmarks.measure import Figures
from sysmond.base import clock

BEFORE_S, AFTER_S = 3, 15
FINISH_S = 60
BODIES = {
    "waits": "time.sleep(3600)",
    "spins": "while True: pass",
    "is held": "os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, FIFO, 0, 0)])",
}
PROBE = '''
"""A probe that hangs as soon as it is told to."""
import os, time
from sysmond.probe import Probe, Table, counter, hookimpl

FIFO, TRIGGER = {fifo!r}, {trigger!r}

def read(host):
    if os.path.exists(TRIGGER):
        {body}
    yield "", (1,)

@hookimpl
def sysmond_probes():
    return [Probe(Table("hanging", (counter("count", "1", "A number."),)), read)]
'''
CONFIG = "probes: {hanging: {lane: realtime}}\n"


def lost(body: str) -> int:
    """How many ticks the others lose."""
    with tempfile.TemporaryDirectory(prefix="sysmond-hangs-") as home:
        fifo, trigger, folder = f"{home}/fifo", f"{home}/trigger", f"{home}/sysmond/probes"
        os.mkfifo(fifo)
        os.makedirs(folder)
        with open(f"{folder}/hanging.py", "w", encoding="utf-8") as plugin:
            plugin.write(PROBE.format(fifo=fifo, trigger=trigger, body=body))
        os.environ["XDG_CONFIG_HOME"] = home
        with measure.daemon(BEFORE_S + AFTER_S + FINISH_S, CONFIG, arguments=["--user"]) as daemon:
            daemon.wait_for_ring()
            now = clock.relation()
            begin_ns = now.realtime_ns - now.boottime_ns % measure.SECOND_NS + measure.SECOND_NS // 10
            time.sleep(BEFORE_S)
            with open(trigger, "w", encoding="utf-8"):
                time.sleep(AFTER_S)
            daemon.process.send_signal(signal.SIGTERM)
            daemon.process.wait(FINISH_S)
            os.close(os.open(fifo, os.O_RDWR))  # Children that wait for it go on, and end.
            figures: Figures = measure.in_child(partial(starvation.recorded, daemon.folders, begin_ns), 120)
    return int(figures["lost"])


def measured() -> Figures:
    """Let it hang in every way."""
    return {"seconds": BEFORE_S + AFTER_S, "lost": {way: lost(body) for way, body in BODIES.items()}}


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    return [(f"a probe {way}", f"{lost} of {figures['seconds']} ticks lost") for way, lost in figures["lost"].items()]


if __name__ == "__main__":
    options = measure.arguments(__doc__).parse_args()
    measure.run(measured, rows, as_json=options.json)
