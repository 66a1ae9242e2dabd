# SPDX-License-Identifier: Apache-2.0
"""What each process runs: the table ``command``, once a process, and again where that may have changed.

``cmdline`` of /proc waits for the lock of the process's memory, which its user may have something hold for as long as
he likes: threads read it, and few at a time of one user. Who has them all hang loses what he runs himself, counted, and
nobody else anything. A process is read

- when it is seen first, again at the next look, since it may just be about to execute something, and once more when it
  is a minute old, since services give themselves titles;
- when its name changed: so does that of most who execute another program;
- when the kernel says that it executed one (``Execs``): its record is at once what it executed, so that a process that
  lived for a moment has one, too. Of its program only the path that was asked for is known then.

A process is named by when it started in ticks of the kernel (10 ms), as /proc has it, however it was found.
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
from sysmond.tasks.command.execs import Execs, PinnedExecs
from sysmond.tasks.command.masking import CUT, RAW_BYTES_MAX, command_line
from sysmond.tasks.pieces import pieces
from sysmond.tasks.proc.text import TICK_NS, stat, status
from sysmond.tasks.tables import COMMAND

# More processes than this are counted, not kept.
PROCESSES_MAX = 65_536
PROGRAM_BYTES_MAX = 1024
SPELLED_MAX = 256
# So many are asked about in one reading, and waited for so long; the others follow.
READS_MAX = 2048
WAIT_S = 0.25
# Where the kernel tells of programs being executed, it is enough to look for who is there now and then.
LOOK_S, LOOK_RARELY_S = 1.0, 5.0
# In which time everybody known is looked at, for a new name or a new owner of its number; the same, with that.
ROUND_S, ROUND_RARELY_S = 10.0, 60.0
ROUND_MAX = 1024
# How often a process is read that becomes another while it is read.
TRIES_MAX = 3
# Where the kernel does not tell, it is asked again after so long.
RETRY_S = 30.0
# At what age a process that was read early is read again.
SETTLED_S = 60.0
YOUNG_NS, SETTLED_NS = 2 * SECOND_NS, round(SETTLED_S * SECOND_NS)

_NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB702, 0xB704
_ZOMBIES = frozenset((b"Z", b"X"))


class Read(NamedTuple):
    """What /proc says of a process. ``program``: none where there is none, or where it is not to be seen."""

    start_ns: int
    comm: bytes
    uid: int
    program: bytes | None
    command: bytes


class Commands:
    """Reads the table ``command``."""

    def __init__(self, open_execs: Callable[[str], Execs] = PinnedExecs) -> None:
        """Know no process yet. ``open_execs``: opens what the kernel tells, by the runtime folder.

        ``way``: how programs being executed are learnt of, and why not by a better way, in one line.
        """
        self.way = ""
        self._open_execs = open_execs
        self._execs: Execs | None = None
        self._opened_s = float("-inf")
        self._begin("", mask=True)

    def _begin(self, root: str, *, mask: bool) -> None:
        self._root, self._mask = root, mask
        self._proc = f"{root}/proc"
        self._asking = Asking(self._question, partial(account, self._proc))
        # Who executes often executes the same.
        self._spelled = lru_cache(SPELLED_MAX)(partial(command_line, mask=mask))
        self._known: dict[int, Read] = {}
        self._round: deque[int] = deque()
        self._new: deque[int] = deque()
        # When to read whom again. Of too many, the first ones are left as they were read.
        self._again: deque[tuple[float, int]] = deque(maxlen=PROCESSES_MAX)
        self._settling: deque[tuple[float, int]] = deque(maxlen=PROCESSES_MAX)
        self._looked_s = float("-inf")
        self._there = self._beyond = self._unread = 0

    def records(self, host: Host, full: bool, *, mask: bool = True) -> Sequence[Records]:  # noqa: FBT001
        """Give what processes run: of those where it is new, or of all that are there.

        ``walked``: how many processes there were at the last look. ``lost``: what the kernel could not tell, who came
        and went while their user kept them from being read, and of all that are there those that are not read yet.

        :raises OSError: where there is no /proc.
        """
        if (host.root, mask) != (self._root, self._mask):
            self._begin(host.root, mask=mask)
            full = True
        rows: dict[tuple[int, int], Read] = {}
        now_s = monotonic()
        lost = self._take_execs(rows)
        if now_s - self._opened_s >= RETRY_S and not host.root:
            lost += self._follow_loader(host.runtime, now_s, rows)
            host.tell_way(COMMAND.name, self.way)
        if now_s - self._looked_s >= (LOOK_RARELY_S if self._execs else LOOK_S) or full:
            self._look(now_s)
        self._ask(now_s)
        for pid, found in self._asking.answers(WAIT_S):
            self._learn(pid, found, rows, now_s)
        if full:
            rows.update({(pid, read.start_ns): read for pid, read in self._known.items()})
            lost += len(self._asking.waiting - self._known.keys()) + len(self._new) + self._beyond
        lost, self._unread = lost + self._unread, 0
        packed = [(start_ns, pid, read.uid, read.program, read.command) for (pid, start_ns), read in rows.items()]
        return pieces(COMMAND, packed, full=full, lost=lost, walked=self._there)

    def _follow_loader(self, runtime: str, now_s: float, rows: dict[tuple[int, int], Read]) -> int:
        """Try to have the kernel tell, by what the loader pinned last; gives how much of what it told got lost."""
        self._opened_s = now_s
        if self._execs is not None:
            if self._execs.is_current():
                return 0
            self._execs.close()
            self._execs = None
        try:
            self._execs = self._open_execs(runtime)
            self.way = "by BPF"
        except Error as problem:
            self.way = f"by looking at /proc every {LOOK_S:g} s; not by {problem}"
        return self._take_execs(rows)

    def _take_execs(self, rows: dict[tuple[int, int], Read]) -> int:
        """Record what was executed since the reading before; gives how much of it got lost."""
        if self._execs is None:
            return 0
        execs, lost = self._execs.take()
        again_s = self._looked_s + LOOK_RARELY_S  # Who is gone by then is not asked about.
        for each in execs:
            start_ns = each.start_ns // TICK_NS * TICK_NS
            command = self._spelled(each.arguments, is_cut=each.is_cut)
            before = self._known.get(each.pid)
            if before is not None and before.comm and (before.start_ns, before.command) == (start_ns, command):
                continue  # It was read from /proc since, which knows better what its program is.
            program = self._absolute(each.pid, each.program)
            read = Read(start_ns, b"", each.uid, program and _bounded(program), command)
            rows[each.pid, start_ns] = read
            if len(self._known) < PROCESSES_MAX or before is not None:
                self._known[each.pid] = read
                self._again.append((again_s, each.pid))
        return lost

    def _absolute(self, pid: int, program: bytes) -> bytes | None:
        """Put the folder of the process before a relative path, as long as it is there to be asked."""
        if not program or program.startswith(b"/"):
            return program or None
        try:
            return os.path.normpath(os.path.join(os.readlink(f"{self._proc}/{pid}/cwd".encode()), program))
        except OSError:
            return program

    def _look(self, now_s: float) -> None:
        """Find out who is there: the new ones and those to be read again come to be asked about, the others go."""
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
        """Whether a process has another name than when it was read, or is another."""
        try:
            found = stat(_content(f"{self._proc}/{pid}/stat"))
        except (OSError, ValueError):
            return False  # Gone: the next look says so.
        return (found.start_ns, found.comm) != (read.start_ns, read.comm)

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
        """Read a process, in a thread; nothing where it is gone."""
        try:
            return read_process(self._proc, pid, mask=self._mask)
        except (OSError, ValueError):
            return None

    def _learn(self, pid: int, found: Read | None, rows: dict[tuple[int, int], Read], now_s: float) -> None:
        before = self._known.get(pid)
        if found is None:
            return  # Gone; the next look says so.
        is_same = before is not None and before.start_ns == found.start_ns
        if before is not None and is_same and found.program is None and not found.command:
            found = found._replace(program=before.program, command=before.command)  # It ends: this was what it ran.
        self._known[pid] = found
        if before is None or found._replace(comm=before.comm) != before:
            rows[pid, found.start_ns] = found
        if not is_same:
            age_ns = clock_gettime_ns(CLOCK_BOOTTIME) - found.start_ns
            if age_ns < YOUNG_NS:
                self._again.append((now_s + LOOK_S / 2, pid))
            if age_ns < SETTLED_NS:
                self._settling.append((now_s + SETTLED_S, pid))


def read_process(proc: str, pid: int, *, mask: bool = True) -> Read:
    """Read what a process runs, waiting for the lock of its memory where somebody has it.

    :raises OSError: where it is gone.
    :raises ValueError: where /proc says what it never says.
    """
    folder = f"{proc}/{pid}"
    before = stat(_content(f"{folder}/stat"))
    tries = 0
    while True:
        tries += 1
        program, raw = None, b""
        if before.state not in _ZOMBIES:
            try:
                program = _bounded(os.readlink(f"{folder}/exe".encode()))
            except OSError:
                program = None  # None of the kernel's own has one, and not everybody may see it.
            raw = _content(f"{folder}/cmdline", RAW_BYTES_MAX + 1)
        uid = status(_content(f"{folder}/status")).uid
        after = stat(_content(f"{folder}/stat"))
        if tries == TRIES_MAX or (after.start_ns, after.comm) == (before.start_ns, before.comm):
            return Read(after.start_ns, after.comm, uid, program, command_line(raw, mask=mask))
        before = after  # It executed something meanwhile, or its number is another's, or it renames itself for ever.


def account(proc: str, pid: int) -> int:
    """Give the user at whose cost a process is: its real one, or who made the outermost user namespace it is in.

    In one of his own a user has thousands of numbers. Waits for nothing; -1 where the process is gone.
    """
    uid = -1
    try:
        uid = status(_content(f"{proc}/{pid}/status")).uid
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
        pass  # Gone, or beyond what we may look into: as far as is known.
    return uid


def _bounded(program: bytes) -> bytes:
    """Cut a path that is too long, at a character where it is UTF-8."""
    if len(program) <= PROGRAM_BYTES_MAX:
        return program
    mark = CUT.encode()
    kept = program[: PROGRAM_BYTES_MAX - len(mark)].decode("utf-8", "surrogateescape")
    return kept.rstrip("".join(map(chr, range(0xDC80, 0xDD00)))).encode("utf-8", "surrogateescape") + mark


def _content(path: str, size: int = 65536) -> bytes:
    """Read a file of /proc, at most so much of it.

    :raises OSError: as the kernel says.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, size)
        while content and len(content) < size and (more := os.read(descriptor, size - len(content))):
            content += more
        return content
    finally:
        os.close(descriptor)
