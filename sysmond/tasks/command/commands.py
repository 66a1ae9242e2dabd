# SPDX-License-Identifier: Apache-2.0
"""What each process runs: the table ``command``, once a process, and again where that may have changed.

Reading ``cmdline`` of /proc waits for the lock of the process's memory, which its user can have held for any time:
threads read it, few at a time for one user. A user who makes them all hang loses records of their own processes only,
and those are counted. A process is read

- when it is seen first, again at the next look, since it may just be about to execute something, and once more when it
  is a minute old, since services give themselves titles;
- when its name changed, as it does for most that execute another program;
- when the kernel reports that it executed one (``Execs``): its record comes from that report at once, so that a process
  that lived for a moment has one, too. Its program is then the path given to execve(2).

The key of a process is its start in ticks of the kernel (10 ms), as in /proc, whichever way noticed it.
"""

import fcntl
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import islice
from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.probe import Host
from sysmond.records import Records
from sysmond.tasks.command.asking import Asking
from sysmond.tasks.command.execs import Execs, open_execs
from sysmond.tasks.command.masking import CUT, command_line
from sysmond.tasks.command.reading import read_raw
from sysmond.tasks.pieces import pieces
from sysmond.tasks.proc.content import content
from sysmond.tasks.proc.text import TICK_NS, stat, status
from sysmond.tasks.tables import COMMAND

# More processes than this are counted, not recorded.
PROCESSES_MAX = 65_536
PROGRAM_BYTES_MAX = 1024
SPELLED_MAX = 256
# How many are read in one reading, and how long it waits for them; the others follow.
READS_MAX = 2048
WAIT_S = 0.25
# Where the kernel reports executed programs, /proc is listed less often.
LOOK_S, LOOK_RARELY_S = 1.0, 5.0
# A reading may be this much earlier than the one before was late.
EARLY_S = 0.3
# How long a round over all known processes takes, which looks for new names and reused numbers; the same, with reports.
ROUND_S, ROUND_RARELY_S = 10.0, 60.0
ROUND_MAX = 1024
# Where the kernel reports nothing, its reports are tried again after so long.
RETRY_S = 30.0
# At what age a process that was read early is read again.
SETTLED_S = 60.0
YOUNG_NS, SETTLED_NS = 2 * SECOND_NS, round(SETTLED_S * SECOND_NS)

_NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB702, 0xB704


class Read(NamedTuple):
    """What /proc has of a process. ``program``: None where it has none, or hides it."""

    start_ns: int
    comm: bytes
    uid: int
    program: bytes | None
    command: bytes


class Commands:
    """Reads the table ``command``."""

    def __init__(self, opens: Callable[[str], Execs] = open_execs) -> None:
        """Know no process yet. ``opens``: opens the kernel's reports, by the runtime folder.

        ``way``: how executed programs are noticed, and why not by a better way, in one line.
        """
        self.way = ""
        self._opens = opens
        self._execs: Execs | None = None
        self._opened_s = float("-inf")
        self._begin("", mask=True)

    def _begin(self, root: str, *, mask: bool) -> None:
        self._root, self._mask = root, mask
        self._proc = f"{root}/proc"
        self._asking = Asking(self._question, partial(account, self._proc))
        # Programs that execute others often execute the same ones.
        self._spelled = lru_cache(SPELLED_MAX)(partial(command_line, mask=mask))
        self._known: dict[int, Read] = {}
        self._round: deque[int] = deque()
        self._new: deque[int] = deque()
        # When to read which process again. Of too many, the first are not read again.
        self._again: deque[tuple[float, int]] = deque(maxlen=PROCESSES_MAX)
        self._settling: deque[tuple[float, int]] = deque(maxlen=PROCESSES_MAX)
        self._looked_s = float("-inf")
        self._there = self._beyond = self._unread = 0

    def records(self, host: Host, full: bool, *, mask: bool = True) -> Sequence[Records]:  # noqa: FBT001
        """Give what processes run: where that is new, or with ``full`` of all.

        ``walked``: how many processes there were at the last look. ``lost``: reports for which the kernel had no room,
        processes that ended while their user blocked reading them, and with ``full`` those not read yet.

        :raises OSError: where there is no /proc.
        """
        if (host.root, mask) != (self._root, self._mask):
            self._begin(host.root, mask=mask)
            full = True
        rows: dict[tuple[int, int], Read] = {}
        now_s = monotonic()
        lost = self._take_execs(rows)
        if now_s - self._opened_s >= RETRY_S and not host.root:
            host.wakes = None
            lost += self._follow_loader(host.runtime, now_s, rows)
            host.tell_way(COMMAND.name, self.way)
            host.wakes = self._execs.wakes if self._execs else None
        if now_s - self._looked_s >= (LOOK_RARELY_S if self._execs else LOOK_S) - EARLY_S or full:
            self._look(now_s)
        self._ask(now_s)
        for pid, answer in self._asking.answers(WAIT_S):
            self._learn(pid, answer, rows, now_s)
        if self._execs is None or self._new or self._asking.in_line:
            host.read_soon()
        if full:
            rows.update({(pid, read.start_ns): read for pid, read in self._known.items()})
            lost += len(self._asking.waiting - self._known.keys()) + len(self._new) + self._beyond
        lost, self._unread = lost + self._unread, 0
        packed = [(start_ns, pid, read.uid, read.program, read.command) for (pid, start_ns), read in rows.items()]
        return pieces(COMMAND, packed, full=full, lost=lost, walked=self._there)

    def _follow_loader(self, runtime: str, now_s: float, rows: dict[tuple[int, int], Read]) -> int:
        """Open the kernel's reports where the loader pinned them last; return how many were lost."""
        self._opened_s = now_s
        if self._execs is not None:
            if self._execs.is_current():
                return 0
            self._execs.close()
            self._execs = None
        try:
            self._execs = self._opens(runtime)
            self.way = self._execs.way
        except Error as problem:
            self.way = f"by looking at /proc every {LOOK_S:g} s; not by {problem}"
        return self._take_execs(rows)

    def _take_execs(self, rows: dict[tuple[int, int], Read]) -> int:
        """Record what was executed since the reading before; return how many reports were lost."""
        if self._execs is None:
            return 0
        execs, lost = self._execs.take()
        again_s = self._looked_s + LOOK_RARELY_S  # Processes gone by then are not read.
        for execution in execs:
            start_ns = execution.start_ns // TICK_NS * TICK_NS
            command = self._spelled(execution.arguments, is_cut=execution.is_cut)
            before = self._known.get(execution.pid)
            if before is not None and before.comm and (before.start_ns, before.command) == (start_ns, command):
                continue  # It was read from /proc since, which knows the program better.
            program = self._absolute(execution.pid, execution.program)
            read = Read(start_ns, b"", execution.uid, program and _bounded(program), command)
            rows[execution.pid, start_ns] = read
            if len(self._known) < PROCESSES_MAX or before is not None:
                self._known[execution.pid] = read
                self._again.append((again_s, execution.pid))
        return lost

    def _absolute(self, pid: int, program: bytes) -> bytes | None:
        """Put the folder of the process before a relative path, while the process exists."""
        if not program or program.startswith(b"/"):
            return program or None
        try:
            return os.path.normpath(os.path.join(os.readlink(f"{self._proc}/{pid}/cwd".encode()), program))
        except OSError:
            return program

    def _look(self, now_s: float) -> None:
        """List processes: queue new ones and those to be read again, forget those that are gone."""
        before_s, self._looked_s = self._looked_s, now_s
        there = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        self._there = len(there)
        self._unread += self._asking.give_up(there)
        for pid in self._known.keys() - there:
            del self._known[pid]
        new = sorted(there - self._known.keys() - self._asking.waiting)
        room = PROCESSES_MAX - len(self._known)
        self._beyond = max(0, len(new) - room)
        self._new = deque(new[:room])
        if not self._round:
            self._round.extend(self._known)
        share = min(1.0, (now_s - before_s) / (ROUND_RARELY_S if self._execs else ROUND_S))
        for _ in range(min(ROUND_MAX, len(self._round), 1 + int(share * len(self._known)))):
            pid = self._round.popleft()
            read = self._known.get(pid)
            if read is not None and self._is_another(pid, read):
                self._again.append((now_s, pid))

    def _is_another(self, pid: int, read: Read) -> bool:
        """Whether a process has changed its name since it was read, or another has its number."""
        try:
            current = stat(content(f"{self._proc}/{pid}/stat"))
        except (OSError, ValueError):
            return False  # Gone: the next look notices it.
        return (current.start_ns, current.comm) != (read.start_ns, read.comm)

    def _ask(self, now_s: float) -> None:
        room = READS_MAX - self._asking.in_line
        for queue in (self._again, self._settling):
            while queue and queue[0][0] <= now_s and room > 0:
                _, pid = queue.popleft()
                if pid in self._known:
                    self._asking.ask(pid)
                    room -= 1
        for pid in list(islice(self._new, max(0, room))):
            self._asking.ask(pid)
            self._new.popleft()

    def _question(self, pid: int) -> Read | None:
        """Read a process, in a thread; None where it is gone."""
        try:
            return read_process(self._proc, pid, mask=self._mask)
        except (OSError, ValueError):
            return None

    def _learn(self, pid: int, read: Read | None, rows: dict[tuple[int, int], Read], now_s: float) -> None:
        before = self._known.get(pid)
        if read is None:
            return  # Gone: the next look notices it.
        is_same = before is not None and before.start_ns == read.start_ns
        if before is not None and is_same and read.program is None and not read.command:
            read = read._replace(program=before.program, command=before.command)  # It is ending: that is what it ran.
        self._known[pid] = read
        if before is None or read._replace(comm=before.comm) != before:
            rows[pid, read.start_ns] = read
        if not is_same:
            age_ns = clock_gettime_ns(CLOCK_BOOTTIME) - read.start_ns
            if age_ns < YOUNG_NS:
                self._again.append((now_s + LOOK_S / 2, pid))
            if age_ns < SETTLED_NS:
                self._settling.append((now_s + SETTLED_S, pid))


def read_process(proc: str, pid: int, *, mask: bool = True) -> Read:
    """Read what a process runs; this waits while another task holds the lock of its memory.

    :raises OSError: where it is gone.
    :raises ValueError: where a file of /proc cannot be parsed.
    """
    start_ns, comm, uid, program, raw = read_raw(proc, pid)
    return Read(start_ns, comm, uid, program and _bounded(program), command_line(raw, mask=mask))


def account(proc: str, pid: int) -> int:
    """Give the user to whom a process is charged: its real one, or the maker of the outermost user namespace it is in.

    In a namespace of their own, a user has thousands of numbers. Waits for nothing; -1 where the process is gone.
    """
    uid = -1
    try:
        uid = status(content(f"{proc}/{pid}/status")).uid
        ours = os.stat(f"{proc}/self/ns/user").st_ino
        space = os.open(f"{proc}/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while os.fstat(space).st_ino != ours:
                uid = int.from_bytes(fcntl.ioctl(space, _NS_GET_OWNER_UID, bytes(4)), sys.byteorder)
                inner, space = space, fcntl.ioctl(space, _NS_GET_PARENT)
                os.close(inner)
        finally:
            os.close(space)
    except (OSError, ValueError):
        pass  # Gone, or hidden from us: return what is known so far.
    return uid


def _bounded(program: bytes) -> bytes:
    """Cut a path that is too long, at a character where it is UTF-8."""
    if len(program) <= PROGRAM_BYTES_MAX:
        return program
    mark = CUT.encode()
    beginning = program[: PROGRAM_BYTES_MAX - len(mark)].decode("utf-8", "surrogateescape")
    return beginning.rstrip("".join(map(chr, range(0xDC80, 0xDD00)))).encode("utf-8", "surrogateescape") + mark
