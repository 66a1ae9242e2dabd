# SPDX-License-Identifier: Apache-2.0
"""Reloading: a resolver child makes the plan anew, and the running parts follow it.

One change at a time; the daemon waits for none of it: ``Reloading.turn`` goes on with what is ready.
A configuration that is wrong changes nothing. Standard library only.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from sysmond.errors import Error
from sysmond.machine import control
from sysmond.machine.control import Later, Order
from sysmond.plan import plan as plans
from sysmond.plan.plan import Plan
from sysmond.plan.settings import FOLLOW_S, RESOLVE_S, Settings, plan_file, resolver_command
from sysmond.tasks.bpf.launch import loader_command

# A killed child is gone by then, unless it hangs in the kernel: then it is left alone.
KILLED_S = 5.0
CONNECT_AGAIN_S = 0.1
CHANGES_MAX = 16
WAITING_MAX = 256
REPORT_BYTES_MAX = 64 * 1024
READS_PER_TURN_MAX = 4
_PIPE_BYTES = 65536
_OWN_LINES = "sysmond: "
FOLLOW: Order = {"do": "plan"}

Answer = Callable[[Later, Order], None]


class ChangeRequest:
    """A requested change: arguments for the resolver, and who waits for the outcome."""

    def __init__(self, arguments: tuple[str, ...], waiting: list[Later]) -> None:
        """``arguments``: none where the files themselves have changed."""
        self.arguments = arguments
        self.waiting = waiting


class Child:
    """A child that makes the plan, or loads the BPF programs that it wants."""

    def __init__(self, command: list[str]) -> None:
        """Start it.

        :raises OSError: where it cannot be started. :raises ValueError: where an argument has a NUL.
        """
        self.report, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
        ]
        try:
            os.set_blocking(writing, True)
            self._pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsigmask=[])
        except (OSError, ValueError):
            os.close(self.report)
            raise
        finally:
            os.close(writing)
        self.limit_s = time.monotonic() + RESOLVE_S
        self._heard = b""
        self._is_killed = False

    def ended(self) -> int | None:
        """Read its output; return the exit code once it has ended, and -SIGKILL where it never does."""
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        with suppress(BlockingIOError):  # Only now: its last output is there once it has ended.
            for _ in range(READS_PER_TURN_MAX):
                self._heard = (self._heard + os.read(self.report, _PIPE_BYTES))[-REPORT_BYTES_MAX:]
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() < self.limit_s:
            return None
        if self._is_killed:
            return -signal.SIGKILL
        os.kill(self._pid, signal.SIGKILL)
        self._is_killed, self.limit_s = True, self.limit_s + KILLED_S
        return None

    def problem(self, code: int) -> str:
        """Say in one line why there is no plan."""
        said = [line for line in self._heard.decode("utf-8", "replace").splitlines() if line.startswith(_OWN_LINES)]
        if code > 0 and said:
            return said[-1].removeprefix(_OWN_LINES)
        if self._is_killed:
            return f"the plan was not made within {RESOLVE_S:.0f} s"
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the plan could not be made ({reason})"

    def close(self) -> None:
        """Leave it alone: without its parent it writes nothing."""
        os.close(self.report)


class PlanFollower:
    """A running part that is to follow a new plan."""

    def __init__(self, folder: str, pid: int) -> None:
        """Send it the order, if it listens already."""
        self.pid = pid
        self._folder = folder
        self.connection = control.call(folder, FOLLOW)

    def outcome(self) -> str | None:
        """Return an empty text where it follows, else why not; None while it has not answered."""
        if self.connection is None:
            self.connection = control.call(self._folder, FOLLOW)
        if self.connection is None:
            return None
        answer = control.heard(self.connection)
        if answer is None:
            return None
        self.close()
        return str(answer["error"]) if "error" in answer else ""

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Reloading:
    """Requested changes: the resolver that makes a plan of each, and the parts that follow."""

    def __init__(self, settings: Settings, plan: Plan, parts: Mapping[str, int], say: Callable[[str], None]) -> None:
        """``parts``: the process ids of the running ones, kept up to date by their parent."""
        self._settings = settings
        self._plan = plan
        self._parts = parts
        self._say = say
        self.answer: Answer = lambda _later, _answer: None
        self._changes: list[ChangeRequest] = []
        self._resolver: Child | None = None
        self._loader: Child | None = None
        self._followers: dict[str, PlanFollower] = {}
        self._behind: dict[str, str] = {}
        self._remarks: list[str] = []
        self._limit_s = 0.0

    def obey(self, order: Order) -> Order | Later:
        """Carry out an order from the control socket."""
        match order:
            case {"do": "reload"}:
                return self.reload()
            case {"do": "set", "key": str(key), "value": None | bool() | int() | float() | str()}:
                value = order["value"]
                spelled = value if isinstance(value, str) else json.dumps(value)
                change = f"--unset={key}" if value is None else f"--set={key}={spelled}"
                return self._ask(ChangeRequest((change,), [Later()]))
            case {"do": "set"}:
                return {"error": "set: expected 'key' and 'value': a text, and a text, number, truth or null"}
            case _:
                return {"error": f"{order.get('do')!r} is not an order; 'reload' and 'set' are"}

    def reload(self) -> Order | Later:
        """Have the files read again; waiting requests of this kind are joined."""
        last = self._changes[-1] if len(self._changes) > 1 else None  # The first is being carried out.
        if last is None or last.arguments:
            return self._ask(ChangeRequest((), [Later()]))
        if len(last.waiting) >= WAITING_MAX:
            return {"error": f"{WAITING_MAX} wait for the next reload already; try again later"}
        last.waiting.append(Later())
        return last.waiting[-1]

    def _ask(self, change: ChangeRequest) -> Order | Later:
        if len(self._changes) >= CHANGES_MAX:
            return {"error": f"{CHANGES_MAX} changes wait already; try again later"}
        self._changes.append(change)
        return change.waiting[0]

    @property
    def is_busy(self) -> bool:
        """Whether a change is being carried out, or waits."""
        return bool(self._changes)

    def descriptors(self) -> list[int]:
        """The descriptors to wait on."""
        connections = [
            follower.connection.fileno() for follower in self._followers.values() if follower.connection is not None
        ]
        return [*connections, *(child.report for child in (self._resolver, self._loader) if child is not None)]

    def due_s(self) -> float:
        """Until when to wait at most, by the monotonic clock."""
        for child in (self._resolver, self._loader):
            if child is not None:
                return child.limit_s
        if any(follower.connection is None for follower in self._followers.values()):
            return time.monotonic() + CONNECT_AGAIN_S
        if self._followers:
            return self._limit_s
        return 0.0 if self._changes else float("inf")

    def turn(self) -> Plan | None:
        """Do what is ready; return a new plan once, when there is one, before the parts follow it."""
        if self._resolver is not None and (code := self._resolver.ended()) is not None:
            return self._resolved(self._resolver, code)
        self._hear_loader()
        for part, follower in list(self._followers.items()):
            # A part that died meanwhile starts with the new plan.
            outcome = follower.outcome() if self._parts.get(part) == follower.pid else ""
            if outcome is None and time.monotonic() >= self._limit_s:
                outcome = f"no answer within {FOLLOW_S:.0f} s"
            if outcome is not None:
                follower.close()
                del self._followers[part]
            if outcome:
                self._say(f"{part} does not follow the new plan: {outcome}")
                self._behind[part] = outcome
        if self._limit_s and not self._followers:
            more = {"behind": self._behind, "remarks": self._remarks}
            self._conclude({"ok": True} | {name: said for name, said in more.items() if said})
        if self._changes and self._resolver is None and self._loader is None and not self._limit_s:
            try:
                command = [*resolver_command(self._settings), "--parent", str(os.getpid())]
                self._resolver = Child([*command, *self._changes[0].arguments])
            except OSError as refusal:
                self._refuse(f"the plan could not be made: {refusal.strerror}")
            except ValueError:
                self._refuse("a name or value with a NUL, or with half a character; expected text")
        return None

    def _resolved(self, resolver: Child, code: int) -> Plan | None:
        self._resolver = None
        resolver.close()
        if code:
            self._refuse(resolver.problem(code))
            return None
        try:
            made = plans.read(plan_file(self._settings))
        except (OSError, Error) as failure:
            self._refuse(str(failure))
            return None
        for refusal in made.refused:
            if refusal not in self._plan.refused:
                self._say(f"refused: {refusal.plugin}: {refusal.reason}")
        self._remarks = [remark for remark in plans.remarks(made) if remark not in plans.remarks(self._plan)]
        for remark in self._remarks:
            self._say(remark)
        command = loader_command(self._settings, made)
        is_loaded = command == loader_command(self._settings, self._plan)
        self._plan = made
        if command and not is_loaded:
            with suppress(OSError):  # Without it, tasks are read from /proc.
                self._loader = Child(command)
        if self._loader is None:
            self._tell_parts()
        return made

    def _hear_loader(self) -> None:
        if self._loader is not None and self._loader.ended() is not None:
            self._loader.close()
            self._loader = None
            self._tell_parts()

    def _tell_parts(self) -> None:
        runtime = self._settings.folders.runtime
        self._followers = {part: PlanFollower(f"{runtime}/{part}", pid) for part, pid in self._parts.items()}
        self._behind, self._limit_s = {}, time.monotonic() + FOLLOW_S

    def _refuse(self, problem: str) -> None:
        self._say(f"not reloaded: {problem}")
        self._conclude({"error": problem})

    def _conclude(self, answer: Order) -> None:
        self._limit_s = 0.0
        for later in self._changes.pop(0).waiting:
            self.answer(later, answer)

    def close(self) -> None:
        """Close everything: at the end, and in a part that was forked during a change."""
        for child in (self._resolver, self._loader):
            if child is not None:
                child.close()
        for follower in self._followers.values():
            follower.close()
        self._resolver, self._loader, self._followers = None, None, {}
