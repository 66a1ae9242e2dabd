# SPDX-License-Identifier: Apache-2.0
"""The plan made anew where the parts are units: what the parent of forked parts does, in a process for moments.

systemd listens on the control socket ``RUNTIME/daemon/control`` (systemd.socket(5), sd_listen_fds(3)) and starts this
program with the first order, ``reload`` or ``set``. It serves what comes, has the parts that run follow the new plan,
and ends when nobody has asked for anything for a while: so no process with these privileges stays.
"""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping

from sysmond.base import terminal
from sysmond.daemon.part import say
from sysmond.daemon.reloading import Reloading
from sysmond.errors import Error
from sysmond.machine import control
from sysmond.machine.folders import SYSTEM_RUNTIME, SYSTEM_STATE, UMASK, Folders
from sysmond.plan.plan import first_valid
from sysmond.plan.settings import PARTS, Settings, plan_file
from sysmond.ring.leftovers import is_alive
from sysmond.sampler.self_cost import read_pid

# The first descriptor that systemd hands over.
_LISTENING = 3
IDLE_S = 2.0
# What select(2) takes for long enough; a change has limits of its own.
FOREVER_S = 3600.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class RunningParts(Mapping[str, int]):
    """The parts that run now, by the process ids that they leave in their folders."""

    def __init__(self, runtime: str) -> None:
        """``runtime``: in whose folders they run."""
        self._runtime = runtime

    def __getitem__(self, part: str) -> int:
        """The process of a part.

        :raises KeyError: where it does not run.
        """
        pid = read_pid(self._runtime, part)
        if pid is None or not is_alive(pid):
            raise KeyError(part)
        return pid

    def __iter__(self) -> Iterator[str]:
        """Their names."""
        return (part for part in PARTS if self.get(part) is not None)

    def __len__(self) -> int:
        """How many run."""
        return sum(1 for _ in self)


def inherited() -> socket.socket:
    """The socket that systemd listens on.

    :raises Error: where this process was not started by it.
    """
    if os.environ.pop("LISTEN_PID", "") != str(os.getpid()) or os.environ.pop("LISTEN_FDS", "") != "1":
        raise Error("started without a socket; expected systemd to start this program when somebody gives an order")
    os.set_inheritable(_LISTENING, False)  # noqa: FBT003  the standard library has it so
    listening = socket.socket(fileno=_LISTENING)
    listening.settimeout(0)
    return listening


def serve(settings: Settings, listening: socket.socket) -> None:
    """Serve orders until none has come for a while, or until told to stop."""
    runtime = settings.folders.runtime
    plan, _ = first_valid([plan_file(settings)])
    listener = control.Listener(listening, f"{runtime}/daemon")
    reloading = Reloading(settings, plan, RunningParts(runtime), say("sysmond"))
    reloading.answer = listener.answer
    stop = control.wake_on({*STOP_SIGNALS, signal.SIGCHLD})
    until_s = time.monotonic() + IDLE_S
    try:
        while reloading.is_busy or time.monotonic() < until_s:
            asking = listener.descriptors()
            due_s = reloading.due_s() if reloading.is_busy else until_s
            wait_s = max(0.0, min(due_s, until_s + FOREVER_S) - time.monotonic())
            ready, _, _ = select.select([stop, *asking, *reloading.descriptors()], [], [], wait_s)
            if stop in ready and not control.received(stop).isdisjoint(STOP_SIGNALS):
                return
            if not set(asking).isdisjoint(ready):
                listener.serve(reloading.obey)
            if reloading.is_busy:
                until_s = time.monotonic() + IDLE_S
            reloading.turn()
    finally:
        reloading.close()
        listener.close()


def main() -> int:
    """Run the program; systemd gives it a socket."""
    os.umask(UMASK)
    try:
        serve(Settings(Folders(SYSTEM_STATE, SYSTEM_RUNTIME), bus="system"), inherited())
    except Error as failure:
        say("sysmond")(str(failure))
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.excepthook = terminal.confess
    sys.exit(main())
