# SPDX-License-Identifier: Apache-2.0
"""Taskstats: what the kernel counted for a thread, sent when it ends; a process is the sum of its threads.

The kernel's own message for a group of threads holds only delays and CPU time: faults, bytes and memory are summed
here from the threads. So bytes are those of the process itself, in whole KiB; what waited-for children did, no message
says. From version 12 of the struct (Linux 5.19) on, a message names the process and says whether the
thread was its last; before, the proc connector has to say both.

Messages have no time of the end. By taskstats alone, it is known to half a second: from the wall-clock second of the
beginning plus the elapsed time, and from the times of the readings before and after.

Sources: the kernel's ``Documentation/accounting/taskstats-struct.rst``, ``linux/taskstats.h``, ``kernel/taskstats.c``,
``kernel/tsacct.c``, and genetlink for requests.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from errno import EPROTONOSUPPORT
from struct import Struct, error
from typing import NamedTuple

from sysmond.base.model import ABSENT
from sysmond.errors import Error
from sysmond.sources.netlink import HEADER
from sysmond.tasks.ends.netlink import ACKNOWLEDGE, BUFFER_BYTES, Socket, refused

WHAT = "taskstats"
# The first version with what is read here (Linux 2.6.20), and the first that names the process of a thread.
VERSION_MIN, VERSION_NAMING = 4, 12

_NETLINK_GENERIC = 16
_GENL_CTRL, _GETFAMILY = 0x10, 3
_FAMILY_ID, _FAMILY_NAME = 1, 2
_GET = 1
_REGISTER, _DEREGISTER = 3, 4
_STATS, _AGGR_PID, _AGGR_TGID = 3, 4, 5
_COMMAND = Struct("=BBH")  # struct genlmsghdr: command, version.
_ATTRIBUTE = Struct("=HH")  # struct nlattr: length with this header, type.
_NESTED = 0x3FFF  # The upper bits of a type are flags.
_U16 = Struct("=H")
_LENGTH = Struct("=I")
BEGIN = HEADER.size + _COMMAND.size
# Two structs and what names them; the struct had 752 bytes in version 17.
SLOT_BYTES = 2048

GROUP_DEAD = 0x20  # AGROUP in ac_flag.
# For how many readings a message of a thread waits for the connector to name its process.
READINGS_MAX = 30
# Sums are kept for how many processes of which some threads, but not all, have ended.
PARTIAL_MAX = 65_536

# Where the fields lie, in the order of Task without the last two: offset and code. Version 15 alone (Linux 6.14) had
# two numbers more for each kind of delay in between, those of the first three before ac_comm.
_FIELDS = (
    (4, "I"),  # ac_exitcode
    (8, "B"),  # ac_flag
    (72, "Q"),  # cpu_run_virtual_total, ns: sum_exec_runtime
    (80, "16s"),  # ac_comm
    (120, "I"),  # ac_uid
    (128, "I"),  # ac_pid
    (132, "I"),  # ac_ppid
    (136, "I"),  # ac_btime, s
    (144, "Q"),  # ac_etime, µs
    (152, "Q"),  # ac_utime, µs
    (160, "Q"),  # ac_stime, µs
    (168, "Q"),  # ac_minflt
    (176, "Q"),  # ac_majflt
    (200, "Q"),  # hiwater_rss, KiB
    (248, "Q"),  # read_bytes
    (256, "Q"),  # write_bytes
)
_NAMING = (
    (368, "I"),  # ac_tgid
    (376, "Q"),  # ac_tgetime, µs
)
_SHIFTED_VERSION = 15


def layout(version: int) -> Struct:
    """The layout of the struct of a version: the fields above, and from version 12 on those that name the process.

    :raises Error: where it lacks fields that are read.
    """
    if version < VERSION_MIN:
        raise Error(f"{WHAT}: version {version} of the struct; expected {VERSION_MIN} or a later one")
    shifts = ((72, 48), (80, 48)) if version == _SHIFTED_VERSION else ()
    form, at = "=", 0
    for offset, code in _FIELDS + (_NAMING if version >= VERSION_NAMING else ()):
        place = offset
        if shifts:  # cpu, blkio and swapin lie before; freepages, thrashing and compact before the last two.
            place += 96 if offset >= _NAMING[0][0] else 48 if offset >= shifts[0][0] else 0
        form += f"{place - at}x{code}"
        at = place + Struct("=" + code).size
    return Struct(form)


class ExitStats(NamedTuple):
    """A process that ended, or a thread: its code as in wait(2), times of CPU and clock in µs, memory in bytes.

    ``ended_s``: in which second of the wall clock. ``is_first``: whether the first thread of its process is in it.
    """

    pid: int
    ppid: int
    uid: int
    comm: bytes
    code: int
    ended_s: int
    lasted_us: int
    cpu_us: int
    user_us: int
    system_us: int
    peak_rss: int
    minor_faults: int
    major_faults: int
    read_bytes: int
    written_bytes: int
    read_bytes_with_children: int = ABSENT
    written_bytes_with_children: int = ABSENT
    is_first: bool = True

    def joined(self, other: "ExitStats") -> "ExitStats":
        """Add a thread of the same process that ended later; the name is that of the first thread, as in /proc."""
        return self._replace(
            comm=other.comm if other.is_first else self.comm,
            is_first=self.is_first or other.is_first,
            ppid=other.ppid,
            uid=other.uid,
            ended_s=max(self.ended_s, other.ended_s),
            lasted_us=max(self.lasted_us, other.lasted_us),
            code=other.code or self.code,
            cpu_us=self.cpu_us + other.cpu_us,
            user_us=self.user_us + other.user_us,
            system_us=self.system_us + other.system_us,
            minor_faults=self.minor_faults + other.minor_faults,
            major_faults=self.major_faults + other.major_faults,
            peak_rss=max(self.peak_rss, other.peak_rss),
            read_bytes=self.read_bytes + other.read_bytes,
            written_bytes=self.written_bytes + other.written_bytes,
        )


# One of these is made for each end; the constructor of a named tuple takes three times as long.
_new = tuple.__new__


class Sums:
    """What processes used that ended, by the messages. No I/O."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.over: dict[int, list[ExitStats]] = {}  # By process; several where a number was given anew.
        self.version = 0
        self.unread = 0  # Messages that could not be parsed, or were cut.
        self._layout = Struct("=")
        self._places: dict[int, tuple[int, int]] = {}
        self._partial: dict[int, ExitStats] = {}
        # With the CPU time of its process, -1 where that lives or sent none; and how many readings it has waited.
        self._unnamed: list[tuple[ExitStats, int, int]] = []

    def follow(self, batch: memoryview | bytes, slot_bytes: int = SLOT_BYTES) -> None:
        """Read messages, each in a slot."""
        for begin in range(0, len(batch), slot_bytes):
            length = _LENGTH.unpack_from(batch, begin)[0]
            try:
                places = self._places.get(length)
                if places is None:
                    places = self._places[length] = self._learn(batch[begin : begin + min(length, slot_bytes)])
                place, group = places
                self._add(batch, begin + place, begin + group if group else 0)
            except (error, Error):
                self.unread += 1

    def _learn(self, message: memoryview | bytes) -> tuple[int, int]:
        """The offsets of the thread's struct, and of its group's, or 0; the same in all messages of that length."""
        if HEADER.unpack_from(message)[1] <= _GENL_CTRL:
            raise Error("an answer, not an event")
        place = group = 0
        for outer, begin, end in attributes(message, BEGIN, len(message)):
            for inner, at, _ in attributes(message, begin, end):
                if inner == _STATS and outer == _AGGR_PID:
                    place = at
                elif inner == _STATS and outer == _AGGR_TGID:
                    group = at
        if not place:
            raise Error("no struct")
        version = _U16.unpack_from(message, place)[0]
        if version != self.version:
            self._layout, self.version = layout(version), version
        return place, group

    def _add(self, batch: memoryview | bytes, at: int, group_at: int) -> None:
        fields = self._layout.unpack_from(batch, at)
        code, flags, cpu_ns, comm, uid, pid, ppid, began_s, lasted_us, user_us, system_us, minor, major = fields[:13]
        # Before Linux 5.14 there was no cpu_run_virtual_total where delays were not accounted.
        cpu_us = cpu_ns // 1000 or user_us + system_us
        group_cpu_us = self._layout.unpack_from(batch, group_at)[2] // 1000 if group_at else -1
        ended_s = began_s + lasted_us // 1_000_000
        used = (cpu_us, user_us, system_us, fields[13] << 10, minor, major, fields[14], fields[15], ABSENT, ABSENT)
        if self.version < VERSION_NAMING:
            life = ExitStats(pid, ppid, uid, comm, code, ended_s, lasted_us, *used)
            self._unnamed.append((life, group_cpu_us, 0))
            return
        group = fields[16]
        life = _new(ExitStats, (group, ppid, uid, comm, code, ended_s, fields[17], *used, pid == group))
        if flags & GROUP_DEAD and not group_at:
            if group in self.over:
                self.over[group].append(life)
            else:
                self.over[group] = [life]
        else:
            self._join(life, group_cpu_us, is_dead=bool(flags & GROUP_DEAD))

    def name(self, groups: Mapping[int, int]) -> None:
        """Give threads their processes; a thread without one for long counts as a process."""
        waiting, self._unnamed = self._unnamed, []
        for life, group_cpu_us, waited in waiting:
            pid = groups.get(life.pid, 0 if waited < READINGS_MAX else life.pid)
            if not pid:
                self._unnamed.append((life, group_cpu_us, waited + 1))
            else:
                named = life._replace(pid=pid, is_first=life.pid == pid)
                self._join(named, group_cpu_us, is_dead=group_cpu_us >= 0)

    def _join(self, life: ExitStats, group_cpu_us: int, *, is_dead: bool) -> None:
        before = self._partial.pop(life.pid, None)
        life = life if before is None else before.joined(life)
        if is_dead:
            # The kernel's own sum includes threads that ended before sysmond listened.
            life = life._replace(cpu_us=max(life.cpu_us, group_cpu_us))
            self.over.setdefault(life.pid, []).append(life)
        else:
            self._partial[life.pid] = life
            if len(self._partial) > PARTIAL_MAX:  # Drop the oldest: the message of its last thread may be lost.
                del self._partial[next(iter(self._partial))]

    def pop(self, pid: int) -> ExitStats | None:
        """Give what a process used that is over; None where no message reported it."""
        lives = self.over.get(pid)
        if not lives:
            return self._partial.pop(pid, None)
        if len(lives) == 1:
            del self.over[pid]
        return lives.pop(0)


class Taskstats:
    """A socket of taskstats."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        """Begin to listen, on all possible CPUs.

        :raises Error: where this kernel has no taskstats, or sends nothing to this process.
        """
        try:
            self._socket = Socket(_NETLINK_GENERIC, 0, SLOT_BYTES, buffer_bytes)
        except OSError as failure:
            right = "expected a kernel with CONFIG_TASKSTATS"
            raise refused(WHAT, failure, right if failure.errno == EPROTONOSUPPORT else "a netlink socket") from None
        try:
            self._family = self._find()
            self._listen(_REGISTER)
        except OSError as failure:
            self._socket.close()
            raise refused(WHAT, failure, "expected a kernel with CONFIG_TASKSTATS") from None
        except Error:
            self._socket.close()
            raise

    def receive(self, sums: Sums) -> int:
        """Read the messages that wait; return how many were lost, of ends of threads.

        :raises OSError: as the kernel says.
        """
        unread = sums.unread
        for batch in self._socket.receive():
            sums.follow(batch)
        return self._socket.lost() + sums.unread - unread

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError, Error):  # The kernel forgets a listener that is gone at the next end of a thread.
            self._listen(_DEREGISTER)
        self._socket.close()

    def _find(self) -> int:
        """The number of the family at present."""
        name = b"TASKSTATS\0"
        self._socket.send(_GENL_CTRL, 0, _COMMAND.pack(_GETFAMILY, 1, 0) + attribute(_FAMILY_NAME, name))
        answer = self._socket.answer(WHAT, "expected a kernel with CONFIG_TASKSTATS")
        for kind, begin, _ in attributes(answer, BEGIN, len(answer)):
            if kind == _FAMILY_ID:
                return int(_U16.unpack_from(answer, begin)[0])
        raise Error(f"{WHAT}: the kernel does not have it; expected CONFIG_TASKSTATS")

    def _listen(self, how: int) -> None:
        with open("/sys/devices/system/cpu/possible", "rb") as file:
            cpus = file.read().strip() + b"\0"
        self._socket.send(self._family, ACKNOWLEDGE, _COMMAND.pack(_GET, 1, 0) + attribute(how, cpus))
        self._socket.answer(WHAT, "expected CAP_NET_ADMIN in the initial namespaces")


def attribute(kind: int, value: bytes) -> bytes:
    """Encode an attribute, padded to the next."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) & 3)


def attributes(message: memoryview | bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the attributes in a part of a message: type, and the offsets where the value begins and ends."""
    while begin + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(message, begin)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _NESTED, begin + _ATTRIBUTE.size, min(begin + length, end)
        begin += length + 3 & ~3
