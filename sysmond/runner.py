# SPDX-License-Identifier: Apache-2.0
"""The foreground daemon: the parent that forks the parts, restarts them, and ends them in order.

Its own imports are all that the parts share, so it stays lean: ``sysmond.__main__`` reads the command line
and resolves the plan, and then replaces itself by this program. On an installed machine systemd does this
work, and each part is started by ``sysmond --part NAME``.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple

from sysmond import archiver, own, sampler
from sysmond.errors import Error
from sysmond.folders import Folders, create, create_classes
from sysmond.lock import only_one
from sysmond.model import Lane
from sysmond.plan import Plan, first_valid
from sysmond.settings import PARTS, Settings
from sysmond.view import View

SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))
STOP_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT))

# A part that dies is started again at once; one that dies again and again, ever more seldom.
RESTART_FIRST_S = 0.1
RESTART_MAX_S = 10.0
RESTART_FORGIVEN_S = 30.0

# How long the parts may take to end: the lanes leave a ring behind, the archiver writes to disk.
LANES_END_S = 3.0
ARCHIVER_END_S = 120.0
# An earlier daemon whose last part is still writing is waited for.
LOCK_WAIT_S = 5.0


class Crash(NamedTuple):
    """A part's latest deaths: how long to wait before the next start, and when that is due."""

    pause_s: float
    due_s: float


def say(part: str) -> Callable[[str], None]:
    """Give the function with which a part speaks: one line to standard error."""

    def line(text: str) -> None:
        with suppress(OSError):
            os.write(2, f"{part}: {text}\n".encode("utf-8", "replace"))

    return line


def run_part(part: str, settings: Settings, plan: Plan) -> int:
    """Be one part, in this process, until told to stop."""
    folder = f"{settings.folders.runtime}/{part}"
    create_classes(folder)
    own.write_pid(folder)
    match part:
        case "sampler":
            return sampler.run(settings, plan, Lane.REALTIME, say(part))
        case "background":
            return sampler.run(settings, plan, Lane.BACKGROUND, say(part))
        case _:
            return archiver.run(settings, plan, say(part))


class Runner:
    """The parts as children, and what became of them."""

    def __init__(self, settings: Settings, plan: Plan, view: View) -> None:
        """Open the lifeline that tells the parts of this process's death."""
        self._view = view
        reading, self._lifeline = os.pipe()
        self._settings = settings._replace(lifeline=reading)
        self._plan = plan
        self._say = say("sysmond")
        self._parts: dict[str, int] = {}
        self._started_s: dict[str, float] = {}
        self._crashes: dict[str, Crash] = {}
        self._ended: dict[str, int] = {}

    def run(self) -> int:
        """Start the parts, keep them running until told to stop, end them in order; give the exit code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        for part in PARTS:
            self._start(part)
        while True:
            waiting = [crash.due_s for part, crash in self._crashes.items() if part not in self._parts]
            wait_s = max(0.0, min(waiting, default=time.monotonic() + 3600) - time.monotonic())
            received = signal.sigtimedwait(SIGNALS, wait_s)
            if received is not None and received.si_signo in STOP_SIGNALS:
                break
            self._reap()
            if self._settings.ticks is not None and self._ended.get("sampler") == 0:
                break
            if self._view.ended_by_key():
                break
            for part in PARTS:
                if part not in self._parts and time.monotonic() >= self._crashes[part].due_s:
                    self._start(part)
        self._view.end()
        return self._end()

    def _start(self, part: str) -> None:
        self._ended.pop(part, None)
        child = os.fork()
        if child == 0:
            self._be(part)
        self._parts[part] = child
        self._started_s[part] = time.monotonic()

    def _be(self, part: str) -> None:
        """Be a part; never returns."""
        code = 1
        try:
            os.close(self._lifeline)
            os.setpgid(0, 0)  # An interrupt from the terminal is for the parent, who ends the parts in order.
            code = run_part(part, self._settings, self._plan)
        except Error as failure:
            say(part)(str(failure))
            code = failure.exit_code
        except BaseException as failure:  # noqa: BLE001  a part that dies says why, and its parent goes on
            say(part)(f"{type(failure).__name__}: {failure}")
        finally:
            os._exit(code)

    def _reap(self) -> None:
        """Take note of parts that ended; one that was not told to is started again, later each time."""
        for part, child in list(self._parts.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended:
                continue
            del self._parts[part]
            code = self._ended[part] = os.waitstatus_to_exitcode(status)
            before = self._crashes.get(part)
            lasted_s = time.monotonic() - self._started_s[part]
            pause_s = RESTART_FIRST_S
            if before is not None and lasted_s < RESTART_FORGIVEN_S:
                pause_s = min(RESTART_MAX_S, before.pause_s * 2)
            self._crashes[part] = Crash(pause_s, time.monotonic() + pause_s)
            if code != 0 or self._settings.ticks is None:
                reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                self._say(f"{part} ended ({reason}); started again in {pause_s:.1f} s")

    def _end(self) -> int:
        """End the lanes first: what they leave in their rings is the archiver's last work."""
        self._stop([part for part in self._parts if part != "archiver"], LANES_END_S)
        if "archiver" not in self._parts:
            self._start("archiver")
        self._stop(["archiver"], ARCHIVER_END_S)
        return self._ended.get("archiver", 1)

    def _stop(self, parts: list[str], limit_s: float) -> None:
        for part in parts:
            os.kill(self._parts[part], signal.SIGTERM)
        due_s = time.monotonic() + limit_s
        while any(part in self._parts for part in parts) and time.monotonic() < due_s:
            signal.sigtimedwait({signal.SIGCHLD}, min(1.0, max(0.0, due_s - time.monotonic())))
            for part in parts:
                if part in self._parts:
                    ended, status = os.waitpid(self._parts[part], os.WNOHANG)
                    if ended:
                        del self._parts[part]
                        self._ended[part] = os.waitstatus_to_exitcode(status)
        for part in parts:
            if part in self._parts:
                self._say(f"{part} did not end within {limit_s:.0f} s and is killed")
                os.kill(self._parts.pop(part), signal.SIGKILL)


def plan_files(folders: Folders) -> tuple[str, str]:
    """Where the current plan and the last good one lie."""
    return f"{folders.runtime}/plan.json", f"{folders.state}/plan.json"


def main(arguments: list[str] | None = None) -> int:
    """Be the daemon: the only argument is a JSON object of the settings, and optionally a part."""
    (content,) = sys.argv[1:] if arguments is None else arguments
    fields = json.loads(content)
    part = fields.pop("part")
    settings = Settings(**{**fields, "folders": Folders(*fields["folders"])})
    speak = say("sysmond" if part is None else part)
    try:
        create(settings.folders, os.geteuid())
    except Error as failure:
        if not os.path.isdir(settings.folders.runtime):
            speak(str(failure))
            return failure.exit_code
        speak(f"{failure}; recording goes on in RAM, flushed when it can")
    plan, reasons = first_valid(plan_files(settings.folders))
    for reason in reasons if part is not None or not plan.probes else ():
        speak(reason)
    try:
        if part is not None:
            return run_part(part, settings, plan)
        with ExitStack() as held:
            held.enter_context(only_one(f"{settings.folders.runtime}", LOCK_WAIT_S))
            if os.access(settings.folders.state, os.W_OK):
                held.enter_context(only_one(settings.folders.state, LOCK_WAIT_S))
            daemon_folder = f"{settings.folders.runtime}/daemon"
            os.makedirs(daemon_folder, exist_ok=True)
            own.write_pid(daemon_folder)
            return Runner(settings, plan, held.enter_context(View(settings))).run()
    except Error as failure:
        speak(str(failure))
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(main())
