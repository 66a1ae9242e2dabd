# SPDX-License-Identifier: Apache-2.0
"""Reading what may block: each source of the background lane in its turn in a thread, or in a process of its own.

A reading is asked for, and waited for until its deadline. One that is not done by then goes on by itself: done
before the next tick, it is that tick's reading. Else its thread is left alone for good, and a process
takes over, or its process is killed and replaced; one that cannot be killed is waited for. Standard library only.
"""

import json
import os
import select
import signal
import socket
import sys
import time
from binascii import a2b_base64
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Absence, Cause, check_table
from sysmond.errors import UsageError
from sysmond.plan.plan import PlannedProbe
from sysmond.plan.settings import isolation
from sysmond.probe import Probe
from sysmond.records import Records
from sysmond.ring.frame import decode_layout
from sysmond.sampler.quarantine import Judge
from sysmond.sampler.self_cost import SELF
from sysmond.sampler.source import Pieces, Reading, Source
from sysmond.sampler.turns import InThread, TimedReading

# A reading of the background lane that says nothing about its deadline is waited for so long.
ANSWER_S = 4.0
# A process that has been told to end, or was killed, is given so long to be gone when the lane ends.
GONE_S = 1.0
ENDING_TRIES, ENDING_PAUSE_S = 20, 0.01
ANSWER_BYTES_MAX = 64 * 1024 * 1024
_RECEIVED_BYTES = 256 * 1024


class Process:
    """A worker process; ``hello``: what its probe declares, once it has said so; ``end``: why it is over."""

    def __init__(self, planned: PlannedProbe, root: str) -> None:
        """Start it. One that cannot be started is over at once."""
        self.hello: dict[str, Any] | None = None
        self.end = ""
        self.is_busy = False
        self.pid = 0
        self._answers: list[dict[str, Any]] = []
        self._heard = b""
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(0)
        words = json.dumps({**planned._asdict(), "root": root or "/", "usual_s": ANSWER_S})
        command = [sys.executable, *isolation(), "-m", "sysmond.sampler.blocking_reader", words, str(os.getpid())]
        environ = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        try:
            self.pid = os.posix_spawn(
                command[0],
                command,
                environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
                setsigmask=[],
                setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGPIPE],
            )
        except OSError as refusal:
            self._over(f"not started: {refusal.strerror}")
        finally:
            theirs.close()

    def descriptors(self) -> list[int]:
        """What to wait on for what it says."""
        return [] if self.end else [self._ours.fileno()]

    def ask(self, order: str) -> None:
        """Give it an order."""
        if self.end:
            return
        try:
            self._ours.sendall(json.dumps(order).encode() + b"\n")
        except BlockingIOError:
            self._over("it does not listen")
        except OSError:
            self._over("")
        else:
            self.is_busy = self.is_busy or order != "look"

    def hear(self) -> None:
        """Take in what it has said so far."""
        while not self.end:
            try:
                received = self._ours.recv(_RECEIVED_BYTES)
            except BlockingIOError:
                return
            except OSError:  # It is gone, and did not hear what it was told last.
                received = b""
            *lines, self._heard = (self._heard + received).split(b"\n") if received else (self._heard,)
            for line in lines:
                self._take(line)
            if len(self._heard) > ANSWER_BYTES_MAX:
                self._over(f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
            elif not received:
                self._over("")

    def answer(self) -> dict[str, Any] | None:
        """Give what it has read since it was asked, once."""
        self.hear()
        return self._answers.pop(0) if self._answers else None

    def kill(self, reason: str) -> None:
        """End it."""
        self._over(reason)

    def is_gone(self) -> bool:
        """Whether the kernel has let go of it."""
        if self.pid:
            with suppress(ChildProcessError):
                if not os.waitpid(self.pid, os.WNOHANG)[0]:
                    return False
            self.pid = 0
        return True

    def _take(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            self._over("its answer is not JSON")
            return
        if not isinstance(said, dict):
            self._over("its answer is not an object")
        elif "error" in said:
            self._over(str(said["error"]))
        elif self.hello is None:
            self.hello = said
        else:
            self.is_busy = False
            self._answers = [said]

    def _over(self, reason: str) -> None:
        """Have done with it, and say why; what has died by itself has said so by its exit code."""
        if self.pid and not reason:
            with suppress(ChildProcessError):
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                for _ in range(ENDING_TRIES):  # Its end of the socket is closed before it is gone.
                    if ended:
                        break
                    time.sleep(ENDING_PAUSE_S)
                    ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self.pid = 0
                    code = os.waitstatus_to_exitcode(status)
                    reason = f"its process ended ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"
        if self.pid:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
        self.end = self.end or reason or "its process ended"
        self.is_busy = False
        self._ours.close()


class InProcess:
    """Reads a source in a worker process."""

    def __init__(self, source: Source, process: Process) -> None:
        """Use a process that has been started for it."""
        self.process = process
        self.source = source

    def ask(self) -> None:
        """Begin to read."""
        self.process.ask("full" if self.source.stride and self.source.is_full_due else "read")

    def is_busy(self) -> bool:
        """Whether it is still reading, as far as has been heard."""
        return self.process.is_busy

    def answer(self) -> TimedReading | None:
        """Give what has been read, once."""
        said = self.process.answer()
        if said is None:
            return None
        source = self.source
        try:
            took_s = float(said["took_s"])
            source.cost.duration_ns += round(took_s * SECOND_NS)
            if "cause" in said:
                source.cost.failures += 1
                return TimedReading(Absence(Cause(said["cause"]), str(said["detail"])), took_s)
            if source.stride:
                return TimedReading(_pieces(said["records"], source.stride), took_s)
            names, values, said_lacking = said["names"], said["values"], said["lacking"]
            if not all(isinstance(each, list) for each in (names, values, said_lacking)):
                raise TypeError("names, values and what is lacking are lists")
            lacking = tuple(Absence(Cause(cause), str(detail)) for cause, detail in said_lacking)
            return TimedReading(Reading(source.checked(names), values, lacking), took_s)
        except (KeyError, TypeError, ValueError) as problem:
            return TimedReading(source.failed(problem), 0.0)


def _pieces(spelled: list[list[Any]], stride: int) -> Pieces:
    pieces = [
        Records(a2b_base64(rows), bool(full), int(lost), int(walked), a2b_base64(blob))
        for rows, full, lost, walked, blob in spelled
    ]
    if not pieces or any(len(piece.rows) % stride for piece in pieces):
        raise ValueError(f"its records do not have {stride} bytes each")
    return Pieces(tuple(pieces))


class Reader:
    """Reads one source of the background lane, whatever it does."""

    def __init__(self, source: Source, root: str, judge: Judge, process: Process | None = None) -> None:
        """``process``: one that was started for it; without one it is read in a thread."""
        self.source = source
        self._root = root
        self._judge = judge
        self._way: InThread | InProcess = InThread(source) if process is None else InProcess(source, process)
        self._asked_ns = 0
        self._dying: Process | None = None
        self.took_s = 0.0
        """How long the newest reading that was done took."""

    @property
    def process(self) -> Process | None:
        """The process it is read in, if it is."""
        return self._way.process if isinstance(self._way, InProcess) else None

    @property
    def in_thread(self) -> InThread | None:
        """What is to be read in a thread, if it is."""
        return self._way if isinstance(self._way, InThread) else None

    def goes_on(self, source: Source) -> None:
        """Read for another source of the same probe: one with another interval."""
        self.source = self._way.source = source

    def begin(self, tick_ns: int) -> Reading | Pieces | Absence | None:
        """Ask for a reading; gives what there is without waiting, None where it is to be waited for."""
        source = self.source
        if source.barred is not None:
            return source.barred
        late = self._way.answer()
        if self.process is not None and self.process.end and (absence := self._died(self.process)):
            return absence
        if late is None and self._way.is_busy():
            return self._still(tick_ns)
        self._ask(tick_ns)
        if late is not None and late.took_s * SECOND_NS >= source.deadline_ns:
            self.took_s = late.took_s
            if self.in_thread is not None:
                self.in_thread.reads_alone()
            return late.reading
        return None

    def finish(self) -> Reading | Pieces | Absence:
        """Give the reading that was asked for, if it is there; else it goes on by itself."""
        answer = self._way.answer()
        if answer is not None:
            self.took_s = answer.took_s
            return answer.reading
        if self.process is not None and self.process.end and (absence := self._died(self.process)):
            return absence
        self.source.cost.failures += 1
        return Absence(Cause.PROBE_FAILED, f"no answer within {self.source.deadline_ns / SECOND_NS:g} s")

    def is_awaited(self) -> bool:
        """Whether its process has not answered yet."""
        process = self.process
        if process is not None:
            process.hear()
        return process is not None and process.is_busy

    def close(self) -> None:
        """Have its process end, and let go of its files, unless a thread that hangs holds them."""
        if self.process is not None:
            self.process.kill("the lane ends")
        elif not self._way.is_busy():
            self.source.host.close()

    def _ask(self, tick_ns: int) -> None:
        self._asked_ns = tick_ns
        self._way.ask()

    def _still(self, tick_ns: int) -> Absence:
        """It has not answered since the tick before: it may be slow, until its next tick is due as well."""
        source = self.source
        source.cost.failures += 1
        waited_ns = tick_ns - self._asked_ns
        said = Absence(Cause.PROBE_FAILED, f"no answer within {waited_ns / SECOND_NS:g} s")
        if waited_ns < max(source.deadline_ns, source.interval_ns) or source.table == SELF.name:
            return said
        if self.process is None:
            self._judge.hangs(source, said.detail)
            source.host.let_go()
            absence = self._restart()
            self._ask(tick_ns)
            return absence or said
        self.process.kill(said.detail)
        return self._died(self.process) or said

    def _died(self, process: Process) -> Absence | None:
        """Judge the end of a process, once; and start another, unless the kernel still holds this one."""
        if self._dying is process:
            return self._restart()
        self._dying = process
        self.source.cost.failures += 1
        self._judge.offends(self.source, process.end)
        if self.source.barred is None:
            self._restart()  # At its next tick, where it takes the kernel a moment to end this one.
        return self.source.barred or Absence(Cause.PROBE_FAILED, process.end)

    def _restart(self) -> Absence | None:
        if self._dying is not None and not self._dying.is_gone():
            return Absence(Cause.PROBE_FAILED, f"process {self._dying.pid}, which reads it, cannot be killed")
        self._way = InProcess(self.source, Process(self.source.planned, self._root))
        return None


def wait_for(readers: Iterable[Reader], begun_s: float) -> None:
    """Wait until the processes of these readers have answered, each until its deadline."""
    waiting = list(readers)
    while waiting := [reader for reader in waiting if reader.is_awaited() and _left_s(reader, begun_s) > 0]:
        descriptors = [
            descriptor for reader in waiting if reader.process for descriptor in reader.process.descriptors()
        ]
        select.select(descriptors, [], [], min(_left_s(reader, begun_s) for reader in waiting))


def _left_s(reader: Reader, begun_s: float) -> float:
    return begun_s + reader.source.deadline_ns / SECOND_NS - time.monotonic()


def declared(processes: Iterable[Process], limit_s: float) -> None:
    """Wait until processes have said what their probes declare, or are over."""
    until_s = time.monotonic() + limit_s
    waiting = list(processes)
    for waiter in waiting:
        waiter.hear()
    while waiting := [waiter for waiter in waiting if waiter.hello is None and not waiter.end]:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return
        ready, _, _ = select.select([number for waiter in waiting for number in waiter.descriptors()], [], [], left_s)
        for waiter in waiting:
            if not set(waiter.descriptors()).isdisjoint(ready):
                waiter.hear()


def probe_of(process: Process) -> Probe:
    """The probe as its process has declared it; nobody here calls its ``read``.

    :raises ValueError: where that is no declaration.
    """
    hello = process.hello or {}
    try:
        table = decode_layout(str(hello["layout"]).encode()).table
        check_table(table)
        subsystems = tuple(map(str, hello["subsystems"]))
        records = _no_records if table.packing else None
        deadline_s, costly_s = float(hello["deadline_s"]), float(hello["costly_s"])
        return Probe(table, _nobody, subsystems=subsystems, deadline_s=deadline_s, records=records, costly_s=costly_s)
    except (KeyError, TypeError, UsageError) as wrong:
        raise ValueError(f"what it declares makes no sense: {wrong}") from wrong


def _nobody(_host: object) -> tuple[()]:
    return ()


def _no_records(_host: object, _full: object) -> Records:
    return Records(b"")


def bury(processes: Iterable[Process]) -> None:
    """Wait a moment until killed processes are gone."""
    until_s = time.monotonic() + GONE_S
    waiting = list(processes)
    while (waiting := [process for process in waiting if not process.is_gone()]) and time.monotonic() < until_s:
        time.sleep(0.01)
