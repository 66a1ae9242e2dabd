# SPDX-License-Identifier: Apache-2.0
"""The proc connector: the kernel's own messages that a process began, executed a program, changed or ended.

There is a message for each thread; a process has ended when its last thread has. So threads are counted from their
beginnings on. The end of a process that ran before anybody listened is unsure until no thread of it is left.

Times are those of CLOCK_MONOTONIC, in nanoseconds, converted to boot time when they are read: an end in the second
before a suspend is late by the length of the suspend. The message of a beginning comes some 0.1 ms after
``start_boottime``, at the end of clone(2); that of an end some 0.1 ms after the last instruction, later where much
memory had to be freed.

Sources: the kernel's ``drivers/connector/cn_proc.c``, ``linux/cn_proc.h`` and ``linux/connector.h``. The filter came
with Linux 6.6, and with it that users without capabilities may listen.
"""

import os
from collections.abc import Callable, Iterator
from errno import EPERM
from struct import Struct
from time import monotonic_ns
from typing import NamedTuple

from sysmond.base.clock import Relation
from sysmond.errors import Error
from sysmond.sources.netlink import HEADER
from sysmond.tasks.ends.names import Names
from sysmond.tasks.ends.netlink import BUFFER_BYTES, Socket, refused

WHAT = "proc connector"

_NETLINK_CONNECTOR = 11
_GROUP = 1  # CN_IDX_PROC, as a bit.
_LISTEN, _IGNORE = 1, 2
FORK, EXEC, UID, COMM, EXIT = 0x1, 0x2, 0x4, 0x200, 0x80000000
# Of ends, and of what a process is called by then.
OF_LIVES = FORK | EXEC | UID | COMM | EXIT
# struct cn_msg: index and value of the id, sequence, acknowledgement, length, flags.
MESSAGE = Struct("=IIIIHH")
# struct proc_event after both headers: what, CPU, time, and six numbers whose meaning depends on what.
EVENT = Struct(f"={HEADER.size + MESSAGE.size}xIIQ6I")
_NAME = Struct("=4I")  # Where a message of a new name has it.
_OPERATION = Struct("=I")
_INPUT = Struct("=II")

# Of how many processes the beginning is remembered; the ends of others are unsure, as of those that ran before.
KNOWN_MAX = 131_072


class ProcessEnd(NamedTuple):
    """A process that ended: boot times, 0 for an unknown beginning; the code as in wait(2)."""

    pid: int
    start_ns: int
    end_ns: int
    code: int
    ppid: int


# Two of these are made for each end; the constructor of a named tuple takes three times as long.
_new = tuple.__new__


class Lives:
    """The processes that ended, by the messages. No I/O."""

    def __init__(self) -> None:
        """Know nothing yet. ``groups``: the process of every thread that ended, where ``is_naming``.

        ``names``: what processes are called.
        """
        self.is_naming = False
        self.names = Names()
        self.ended: list[ProcessEnd] = []
        self.unsure: dict[int, ProcessEnd] = {}
        self.groups: dict[int, int] = {}
        self._born: dict[int, tuple[int, int]] = {}  # When, and by whom.
        self._threads: dict[int, int] = {}  # How many there are besides the first.
        self._leaderless: dict[int, int] = {}  # The code of a first thread that ended before others.

    def follow(self, batch: memoryview | bytes, to_boot_ns: int) -> None:
        """Read messages; ``to_boot_ns``: boot time minus monotonic time."""
        born, threads, is_naming, end = self._born, self._threads, self.is_naming, self.ended.append
        began = self.names.began
        for what, _, time_ns, first, second, third, fourth, fifth, sixth in EVENT.iter_unpack(batch):
            if what == EXIT:
                if is_naming:
                    self.groups[first] = second
                if first == second and second in born and second not in threads:
                    start_ns, parent = born.pop(second)
                    # The message has no parent where that had waited for the process already.
                    end(_new(ProcessEnd, (second, start_ns, time_ns + to_boot_ns, third, sixth or parent)))
                else:
                    self._thread_ended(first, ProcessEnd(second, 0, time_ns + to_boot_ns, third, sixth))
            elif what == FORK:
                if third != fourth:
                    threads[fourth] = threads.get(fourth, 0) + 1
                    continue
                began(third, time_ns)
                if len(born) < KNOWN_MAX:
                    born[third] = time_ns + to_boot_ns, second
                    self._settle_reused(third)
            elif what == EXEC:
                began(second, time_ns)
            elif first == second:
                self._changed(what, second, time_ns, (third, fourth, fifth, sixth))

    def _changed(self, what: int, pid: int, time_ns: int, numbers: tuple[int, int, int, int]) -> None:
        """The first thread of a process has another name, or another user."""
        if what == COMM:
            self.names.changed(pid, time_ns, _NAME.pack(*numbers))
        elif what == UID:
            self.names.changed(pid, time_ns, uid=numbers[0])

    def _thread_ended(self, thread: int, last: ProcessEnd) -> None:
        """A thread of several ended, or one of a process with an unknown beginning."""
        pid = last.pid
        left = self._threads.get(pid, 0)
        if thread == pid:
            # A second end of the first thread: another one had called execve(2) and taken its number.
            left -= pid in self._leaderless
            self._leaderless[pid] = last.code
        else:
            left -= 1
        if left > 0:
            self._threads[pid] = left
        else:
            self._threads.pop(pid, None)
        code = last.code or self._leaderless.get(pid, 0)
        if pid not in self._born:
            self.unsure[pid] = last._replace(code=code)
        elif pid in self._leaderless and left <= 0:
            del self._leaderless[pid]
            start_ns, parent = self._born.pop(pid)
            self.ended.append(last._replace(code=code, start_ns=start_ns, ppid=last.ppid or parent))

    def _settle_reused(self, pid: int) -> None:
        """A number is given anew, so the process that had it is over."""
        if not (self._threads or self._leaderless or self.unsure):
            return
        self._threads.pop(pid, None)
        self._leaderless.pop(pid, None)
        if pid in self.unsure:
            self.ended.append(self.unsure.pop(pid))

    def settle(self, is_over: Callable[[ProcessEnd], bool | None]) -> None:
        """Ask of each unsure process whether it is over: True, False for now, or None to ask again.

        A process that is not over has another thread, and is unsure again when that ends.
        """
        for pid, last in list(self.unsure.items()):
            answer = is_over(last)
            if answer is None:
                continue
            del self.unsure[pid]
            if answer:
                self._leaderless.pop(pid, None)
                self._threads.pop(pid, None)
                self.ended.append(last)

    def doubt(self, now_ns: int) -> None:
        """Messages were lost, so the counts of threads are not valid any more."""
        for pid, code in self._leaderless.items():
            start_ns, parent = self._born.get(pid, (0, 0))
            self.unsure.setdefault(pid, ProcessEnd(pid, start_ns, now_ns, code, parent))
        self._born.clear()
        self._threads.clear()

    def take(self) -> list[ProcessEnd]:
        """Give the processes that ended since the last call."""
        ended, self.ended = self.ended, []
        return ended


class Connector:
    """A socket of the proc connector."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, wanted: int = OF_LIVES) -> None:
        """Begin to listen to messages of the kinds that are wanted; Linux before 6.6 sends all.

        :raises Error: where this kernel has no proc connector, or sends nothing to this process.
        """
        self._mark = os.getpid()
        right = "expected a kernel with CONFIG_PROC_EVENTS"
        try:
            self._socket = Socket(_NETLINK_CONNECTOR, _GROUP, EVENT.size, buffer_bytes)
        except OSError as failure:
            if failure.errno == EPERM:
                right = "expected CAP_NET_ADMIN, or Linux 6.6"
            raise refused(WHAT, failure, right) from None
        try:
            # Without a filter the kernel acknowledges, to processes of the initial namespaces only.
            self._ask(_OPERATION.pack(_LISTEN))
            if not self._is_heard():
                raise Error(f"{WHAT}: no answer; expected to run in the initial PID and user namespaces")
            self._ask(_INPUT.pack(_LISTEN, wanted))  # Linux before 6.6 ignores this.
        except OSError as failure:
            self._socket.close()
            raise refused(WHAT, failure, "expected to run in the initial network namespace") from None
        except Error:
            self._socket.close()
            raise

    def receive(self, lives: Lives, now: Relation) -> int:
        """Read the messages that wait; return how many were lost, of what threads did.

        :raises OSError: as the kernel says.
        """
        for batch in self._socket.receive():
            lives.follow(batch, now.boottime_ns - now.monotonic_ns)
        if lost := self._socket.lost():
            lives.doubt(now.boottime_ns)
            # Not of now: what is read until this line may be older than a message that was lost after that.
            lives.names.doubt(monotonic_ns())
        return lost

    def starts(self) -> Iterator[tuple[int, int]]:
        """Yield the processes that began or executed a program, each with the time of that, as CLOCK_MONOTONIC has it.

        :raises OSError: as the kernel says.
        """
        for batch in self._socket.receive():
            for what, _, time_ns, _, second, third, fourth, _, _ in EVENT.iter_unpack(batch):
                if what == EXEC:
                    yield second, time_ns
                elif what == FORK and third == fourth:
                    yield third, time_ns

    def lost(self) -> int:
        """How many messages were lost since the last call."""
        return self._socket.lost()

    def fileno(self) -> int:
        """What becomes readable with the next message."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stop listening; the kernel stops sending where nobody else listens."""
        try:
            self._ask(_INPUT.pack(_IGNORE, 0))
            self._ask(_OPERATION.pack(_IGNORE))
        except OSError:
            pass
        self._socket.close()

    def _ask(self, payload: bytes) -> None:
        # NLMSG_DONE; CN_IDX_PROC and CN_VAL_PROC.
        self._socket.send(3, 0, MESSAGE.pack(1, 1, 0, self._mark, len(payload), 0) + payload)

    def _is_heard(self) -> bool:
        """Whether the kernel acknowledged: all listeners get that, with the mark of the sender, and one added."""
        is_acknowledged = False
        for batch in self._socket.receive():
            for at in range(HEADER.size, len(batch), EVENT.size):
                is_acknowledged = is_acknowledged or MESSAGE.unpack_from(batch, at)[3] == self._mark + 1
        return is_acknowledged
