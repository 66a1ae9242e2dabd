# SPDX-License-Identifier: Apache-2.0
"""The foreground daemon: the parent that forks the parts, restarts them, and ends them in order.

Its own imports are all that the parts share, so it stays lean: ``sysmond.__main__`` reads the command line
and resolves the plan, and then replaces itself by this program. On an installed machine systemd does this
work, and starts each part as ``sysmond.daemon.part``.
"""

import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, NoReturn

from sysmond.archiver import main as archiver
from sysmond.base import terminal
from sysmond.base.event_kinds import DAEMON
from sysmond.daemon.heartbeat import Pulse, limit_s
from sysmond.daemon.live_view import LiveView
from sysmond.daemon.oneshot import Oneshot
from sysmond.daemon.part import LOCK_WAIT_S, begin, lock_state, plan_files, run_part, say
from sysmond.daemon.reloading import Reloading
from sysmond.errors import EXIT_AGAIN, Error
from sysmond.machine import control, heap, oom_score
from sysmond.machine.folders import UMASK, Folders, create
from sysmond.machine.lock import is_lost, only_one, say_ending
from sysmond.machine.notify import READY, notify, watchdog_s
from sysmond.plan.plan import Plan, first_valid
from sysmond.plan.settings import NO_BUS, ONESHOTS, PARTS, REMOVED, Settings, daemon_command
from sysmond.ring.leftovers import remove_sealed
from sysmond.ring.progress import ARCHIVER, WRITERS
from sysmond.sampler import lane, self_cost  # noqa: F401  the lanes, which are forked, share its memory
from sysmond.tasks.bpf.launch import unloader_command

STOP_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT))

# A part that dies after having worked for a while is started again at once: that costs at most the tick in
# flight. For one that dies again and again, the pauses grow.
RESTART_FIRST_S = 0.1
RESTART_MAX_S = 10.0
WORKED_S = 3.0

# How long the parts may take to end: a lane may wait for a probe that hangs, the archiver writes to disk.
LANES_END_S = 6.0
ARCHIVER_END_S = 2 * archiver.LAST_JOB_S
# How often an archiver that dies while it ends is started again.
ARCHIVER_TRIES = 3
# How many killed lanes that hang in the kernel are left there and replaced.
UNKILLABLE_MAX = 4
# Events about parts that wait for the archiver to record them, since it may be the part that died.
PENDING_EVENTS_MAX = 64
TELL_AGAIN_S = 0.5
WAS_KILLED = "the last run was killed or crashed; nobody told it to stop"


class Crash(NamedTuple):
    """The next start of a part that died: after which pause, and when."""

    pause_s: float
    due_s: float


class Runner:
    """The parts as children: started, watched, restarted, ended."""

    def __init__(self, settings: Settings, plan: Plan, view: LiveView, locks: Sequence[int], state: ExitStack) -> None:
        """Open the lifeline, by which the parts notice this process's death.

        ``locks``: held here, never by a part; the first is that of the runtime folder. ``state``: owns the other.
        """
        self._view = view
        self._usual_score = oom_score.read()
        reading, self._lifeline = os.pipe()
        self._settings = settings._replace(lifeline=reading)
        self._plan = plan
        self._locks = tuple(locks)
        self._state = state
        self._planned = PARTS if settings.bus != NO_BUS else tuple(part for part in PARTS if part != "bus")
        self._say = say("sysmond")
        self._parts: dict[str, int] = {}
        self._started_s: dict[str, float] = {}
        self._crashes: dict[str, Crash] = {}
        self._ended: dict[str, int] = {}
        self._unkillable: list[int] = []
        self._pending_events: deque[control.Order] = deque(maxlen=PENDING_EVENTS_MAX)
        self._is_stuck = self._is_reloading = self._is_lost = False
        if before := os.environ.pop(REMOVED, ""):
            self._pending_events.append(removal(before))
        if settings.was_killed:
            self._say(WAS_KILLED)
            self._pending_events.append(_event("died", "sysmond", WAS_KILLED))
        self._pulse = Pulse(settings.folders.runtime)
        self._reloading = Reloading(settings, plan, self._parts, self._say)
        (self._momentary,) = ONESHOTS
        self._oneshot = Oneshot(settings.root, lambda again: self._fork(self._momentary, again=again))
        self._listener: control.Listener | None = None
        self._wake = -1
        self._received: set[int] = set()
        self._beat_s = watchdog_s() / 2
        self._stops, self._reloads = set(STOP_SIGNALS), set[int]()
        # A hang-up that is ignored, as under nohup, stays ignored.
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            (self._stops if belongs_to_terminal() else self._reloads).add(signal.SIGHUP)
        self._signals = {*self._stops, *self._reloads, signal.SIGCHLD}

    def run(self) -> int:
        """Start the parts, keep them running until told to stop, end them in order; return the exit code.

        EXIT_AGAIN: the runtime folder was removed, and this process must begin anew.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {*self._signals, signal.SIGHUP})
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # The parts may write to a terminal that is not theirs.
        if signal.sigtimedwait(self._stops, 0):
            return 0  # Told to stop before anything began.
        heap.settle()  # What the parts inherit stays shared with them.
        self._wake = control.wake_on(self._signals)
        oom_score.spare(oom_score.PARENT, self._usual_score)
        with ExitStack() as open_:
            try:
                self._listener = open_.enter_context(control.listen(f"{self._settings.folders.runtime}/daemon"))
                self._reloading.answer = self._listener.answer
            except OSError as refusal:
                self._say(f"no control socket, SIGHUP reloads: {refusal.strerror}")
            for part in self._planned:
                self._start(part)
            notify(READY, "STATUS=recording")
            while not self._is_over(self._turn(self._due_s())):
                for part in self._planned:
                    if part not in self._parts and time.monotonic() >= self._crashes[part].due_s:
                        self._start(part)
            self._listener = None
            self._reloading.close()
        if not self._is_lost:
            notify("STOPPING=1", "STATUS=writing what is in RAM to the disk")
        self._view.end()
        return self._end()

    def _due_s(self) -> float:
        """When to wake up though nothing happens."""
        waiting = [crash.due_s for part, crash in self._crashes.items() if part not in self._parts]
        beat = [time.monotonic() + self._beat_s] if self._beat_s else []
        again = [time.monotonic() + TELL_AGAIN_S] if self._pending_events else []
        return min(*waiting, *beat, *again, self._reloading.due_s(), self._pulse.due_s, self._oneshot.due_s)

    def _turn(self, due_s: float) -> set[int]:
        """Wait for whatever comes first, serve orders, and return the signals that came."""
        if self._beat_s:
            notify("WATCHDOG=1")
        asking = [] if self._listener is None else self._listener.descriptors()
        ready = self._wait([*asking, *self._reloading.descriptors()], due_s)
        if self._listener is not None and not set(asking).isdisjoint(ready):
            self._listener.serve(self._obey)
        received, self._received = self._received, set()
        return received

    def _obey(self, order: control.Order) -> control.Order | control.Later:
        """Carry out an order from the control socket."""
        if order.get("do") != archiver.LET_GO:
            return self._reloading.obey(order)
        self._state.close()
        self._locks = self._locks[:1]
        self._settings = self._settings._replace(state_locked=False)  # The archiver locks it as soon as it exists.
        return {"ok": True}

    def _wait(self, others: list[int], due_s: float) -> list[int]:
        """Wait for a signal or one of the descriptors; return those that are ready."""
        ready, _, _ = select.select([self._wake, *others], [], [], max(0.0, due_s - time.monotonic()))
        if self._wake in ready:
            self._received |= control.received(self._wake)
        return ready

    def _is_over(self, signals: set[int]) -> bool:
        """Handle what has happened; return whether that is the end."""
        if not signals.isdisjoint(self._stops):
            return True
        if not signals.isdisjoint(self._reloads):
            self._reloading.reload()
        if self._has_lost_runtime():
            return True
        self._end_the_lost()
        self._reap()
        if reason := self._oneshot.turn(self._plan):
            self._say(f"{self._momentary} ended ({reason}); started again in some minutes")
            self._pending_events.append(_event("died", self._momentary, reason))
        self._tell()
        if self._reloading.is_busy and not self._is_reloading:
            notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._is_reloading = True
        self._plan = self._reloading.turn() or self._plan
        if self._is_reloading and not self._reloading.is_busy:
            notify(READY)
            self._is_reloading = False
        if time.monotonic() >= self._pulse.due_s:
            self._feel_pulse()
        is_done = self._settings.ticks is not None and self._ended.get("sampler") == 0
        return is_done or self._view.ended_by_key()

    def _has_lost_runtime(self) -> bool:
        """Whether the runtime folder, or that of this part, is no longer the one that this process locked."""
        runtime = self._settings.folders.runtime
        self._is_lost = is_lost(self._locks[0], runtime) or not os.path.isdir(f"{runtime}/daemon")
        if self._is_lost:
            self._say(f"{runtime}: removed while it was written to; beginning anew, with what was not sealed yet")
        return self._is_lost

    def _end_the_lost(self) -> None:
        """End a part whose folder is gone with its control socket: the next one makes them anew."""
        for part, child in self._parts.items():
            has_begun = time.monotonic() - self._started_s[part] > WORKED_S
            if has_begun and not os.path.isdir(f"{self._settings.folders.runtime}/{part}"):
                os.kill(child, signal.SIGTERM)

    def _feel_pulse(self) -> None:
        """Kill the real-time lane where it does not tick any more; the next one knows the reason."""
        silent_s = self._pulse.silent_s(time.monotonic())
        if "sampler" not in self._parts or silent_s < limit_s(self._plan):
            return
        if not self._is_stuck:
            self._is_stuck = True
            reason = f"no tick for {silent_s:.0f} s; killed"
            self._say(f"sampler: {reason}")
            self._pending_events.append(_event("stuck", "sampler", reason))
            os.kill(self._parts["sampler"], signal.SIGKILL)
        elif len(self._unkillable) < UNKILLABLE_MAX:
            self._unkillable.append(self._parts.pop("sampler"))
            self._plan_restart("sampler", "killed, and held by the kernel")

    def _start(self, part: str) -> None:
        again = part in self._started_s
        self._started_s[part] = time.monotonic()
        if part == "sampler":
            self._pulse.begin(time.monotonic())
        try:
            child = self._fork(part, again=again)
        except OSError as refusal:
            self._plan_restart(part, f"not started: {refusal.strerror}")
            return
        self._ended.pop(part, None)
        self._parts[part] = child
        if part == "sampler":
            self._is_stuck = False

    def _fork(self, part: str, *, again: bool) -> int:
        """Start a part, and give its process.

        :raises OSError: where that cannot be.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)  # A part told at once to end must not miss that.
        try:
            child = os.fork()
            if child == 0:
                self._be(part, again=again)
            return child
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)

    def _be(self, name: str, *, again: bool) -> None:
        """Run a part in the child; never returns."""
        code = 1
        try:
            for descriptor in (self._lifeline, *self._locks, self._wake, signal.set_wakeup_fd(-1)):
                os.close(descriptor)
            for number in self._signals:
                signal.signal(number, signal.SIG_DFL)
            if self._listener is not None:
                self._listener.close()
            self._reloading.close()
            os.environ.pop("NOTIFY_SOCKET", None)  # systemd expects one process to notify it: the parent.
            oom_score.spare(name, self._usual_score)
            os.setpgid(0, 0)  # An interrupt from the terminal is for the parent, which ends the parts in order.
            settings = self._settings._replace(again=again, stuck=self._is_stuck and name == "sampler")
            code = run_part(name, settings, self._plan)
        except Error as failure:
            say(name)(str(failure))
            code = failure.exit_code
        except BaseException as failure:  # noqa: BLE001  a part that dies says why, and its parent goes on
            say(name)(f"{type(failure).__name__}: {failure}")
        finally:
            os._exit(code)

    def _reap(self) -> None:
        """Notice parts that ended; start those again that were not told to end."""
        for part, code in self._collect():
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            folder = f"{self._settings.folders.runtime}/{part}"
            if code == EXIT_AGAIN or not os.path.isdir(folder):
                reason = f"{folder}: removed while it was written to"
                self._pending_events.append(removal(folder))
            self._plan_restart(part, "" if code == 0 and self._settings.ticks is not None else reason)

    def _collect(self) -> list[tuple[str, int]]:
        """Wait for the parts that have ended, and return their exit codes."""
        codes = []
        self._unkillable = [child for child in self._unkillable if not os.waitpid(child, os.WNOHANG)[0]]
        for part, child in list(self._parts.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                del self._parts[part]
                code = self._ended[part] = os.waitstatus_to_exitcode(status)
                codes.append((part, code))
        return codes

    def _plan_restart(self, part: str, reason: str) -> None:
        now_s = time.monotonic()
        pause_s = 0.0
        if now_s - self._started_s[part] < WORKED_S:
            before_s = self._crashes[part].pause_s if part in self._crashes else 0.0
            pause_s = min(RESTART_MAX_S, max(RESTART_FIRST_S, before_s * 2))
        self._crashes[part] = Crash(pause_s, now_s + pause_s)
        if reason:
            again = f"started again {f'in {pause_s:.1f} s' if pause_s else 'at once'}"
            self._say(f"{part} ended ({reason}); {again}")
            self._pending_events.append(_event("died", part, f"{reason}; {again}"))

    def _tell(self) -> None:
        """Have the archiver record the pending events, in order."""
        archive = f"{self._settings.folders.runtime}/{ARCHIVER}"
        while self._pending_events and ARCHIVER in self._parts and control.tell(archive, self._pending_events[0]):
            self._pending_events.popleft()

    def _end(self) -> int:
        """End the lanes first: the archiver then seals what is left in their rings."""
        self._tell()
        for lock in self._locks:
            say_ending(lock)
        self._oneshot.end()
        self._stop([part for part in self._parts if part != ARCHIVER], LANES_END_S)
        code = -1
        for _ in range(ARCHIVER_TRIES):
            if ARCHIVER not in self._parts and not self._is_lost:
                self._start(ARCHIVER)
            self._stop([ARCHIVER], ARCHIVER_END_S)
            code = self._ended.get(ARCHIVER, 1)
            if code >= 0 and (self._is_lost or code != EXIT_AGAIN):
                break
        for writer in (*WRITERS.values(), ARCHIVER):
            if writer not in self._parts:
                remove_sealed(self._settings.folders, writer)
        if self._is_lost:
            self._put_off_stops()
            return EXIT_AGAIN
        if unload := unloader_command(self._settings):
            with suppress(OSError):
                os.waitpid(os.posix_spawn(unload[0], unload, os.environ), 0)
        return code if code >= 0 else 1

    def _put_off_stops(self) -> None:
        """Leave a signal to stop that came meanwhile, or comes now, to the daemon that begins anew: that one ends."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        self._received |= control.received(self._wake)
        for number in self._received & self._stops:
            signal.raise_signal(number)

    def _stop(self, parts: list[str], limit_s: float) -> None:
        """Tell parts to end, and wait for them; kill those that do not."""
        for part in parts:
            if part in self._parts:
                os.kill(self._parts[part], signal.SIGTERM)
        due_s = time.monotonic() + limit_s
        while any(part in self._parts for part in parts) and time.monotonic() < due_s:
            self._wait([], min(due_s, time.monotonic() + 1.0))
            self._collect()
        for part in parts:
            if part in self._parts:
                self._say(f"{part} did not end within {limit_s:.0f} s and is killed")
                os.kill(self._parts.pop(part), signal.SIGKILL)
                self._ended[part] = 1


def removal(folder: str) -> control.Order:
    """The order to the archiver to record that a folder was removed, or the rings in it."""
    said = "removed while it was written to; begun anew, with what was not sealed yet"
    return _event("removed", folder, said)


def _event(kind: str, subject: str, text: str) -> control.Order:
    """An order to the archiver: something happened."""
    return {"do": "event", "by": DAEMON, "kind": kind, "subject": subject, "text": text}


def belongs_to_terminal() -> bool:
    """Whether a terminal controls this process, in the foreground or not: then its hang-up is the end."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """Run the daemon: the only argument is a JSON object of the settings, and optionally a part."""
    os.umask(UMASK)
    (content,) = sys.argv[1:] if arguments is None else arguments
    fields = json.loads(content)
    name = fields.pop("part")
    typed = {"folders": Folders(*fields["folders"]), "words": tuple(fields.get("words", ()))}
    settings = Settings(**{**fields, **typed})
    if name is not None:
        return begin(name, settings)
    speak = say("sysmond")
    runtime = settings.folders.runtime
    try:
        # The state folder may appear later; the archiver takes care of it.
        create(settings.folders._replace(state=runtime), os.geteuid())
        plan, reasons = first_valid(plan_files(settings.folders))
        for reason in reasons if not plan.probes else ():
            speak(reason)
        with ExitStack() as resources:
            locks = [resources.enter_context(only_one(runtime, ending_wait_s=LOCK_WAIT_S))]
            state = resources.enter_context(ExitStack())
            locks += lock_state(state, settings.folders)
            settings = settings._replace(state_locked=len(locks) > 1)
            with suppress(OSError):
                os.makedirs(f"{runtime}/daemon", exist_ok=True)
            self_cost.write_pid(f"{runtime}/daemon")
            code = Runner(settings, plan, resources.enter_context(LiveView(settings)), locks, state).run()
            if code != EXIT_AGAIN:  # By its note the next daemon knows of one that was not told to end.
                with suppress(OSError):
                    os.unlink(f"{runtime}/daemon/{self_cost.PID_FILE}")
    except Error as failure:
        speak(str(failure))
        return failure.exit_code
    if code == EXIT_AGAIN:
        begin_anew(settings)
    return code


def begin_anew(settings: Settings) -> NoReturn:
    """Replace this process by a daemon that makes everything anew; a signal to stop waits for that one."""
    command = daemon_command(settings)
    os.execve(command[0], command, {**os.environ, REMOVED: settings.folders.runtime})  # noqa: S606


if __name__ == "__main__":
    sys.excepthook = terminal.confess
    sys.exit(main())
