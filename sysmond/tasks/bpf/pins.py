# SPDX-License-Identifier: Apache-2.0
"""Pinned BPF objects, for their users: programs are started, arrays and ring buffers are memory.

Whoever may open the pins needs no capability, no libbpf and no compiler. Sources: bpf(2), ``linux/bpf.h``,
``kernel/bpf/ringbuf.c``. Standard library only: the real-time sampler reads by this.
"""

import ctypes
import mmap
import os
import select
import struct

from sysmond.errors import Error

BPF_OBJ_GET = 7
BPF_PROG_TEST_RUN = 10
BPF_OBJ_GET_INFO_BY_FD = 15
# bpf(2) has a number of its own on each old architecture; those since 2012 share one.
_NUMBER = {"x86_64": 321, "i386": 357, "i686": 357, "ppc64": 361, "ppc64le": 361, "s390x": 351, "armv7l": 386}.get(
    os.uname().machine, 280
)

_OBJECT = struct.Struct("=QII")
_RUN = struct.Struct("=I76x")
_INFO = struct.Struct("=IIQ")
_MAP_INFO = struct.Struct("=6I16s40x")

# Before each record of a ring buffer: its length, with these bits set while it is written or where it is void.
RECORD_HEAD_BYTES = 8
_BUSY, _BUSY_OR_VOID = 0x80000000, 0x40000000
_HEAD = struct.Struct("=I4x")
# A reading should not take half of a ring.
RECORDS_MAX = 8192
# The least part of a map that is mapped; a mapping that is more than so many times what is read shrinks.
WINDOW_BYTES = 16 * 1024
SHRINK = 4

_libc = ctypes.CDLL(None, use_errno=True)


def call(command: int, attributes: "ctypes.Array[ctypes.c_char]", what: str) -> int:
    """Call bpf(2), which may change the attributes; gives what it returns.

    :raises OSError: as the kernel says, of ``what``.
    """
    result = int(_libc.syscall(_NUMBER, command, attributes, len(attributes)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return result


def opened(path: str) -> int:
    """Open a pinned program or map: a descriptor.

    :raises OSError: as bpf(2) says.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    attributes = _OBJECT.pack(ctypes.addressof(name), 0, 0)
    return call(BPF_OBJ_GET, ctypes.create_string_buffer(attributes, len(attributes)), path)


def _lengths(descriptor: int, path: str) -> tuple[int, int]:
    """How many bytes a value of a map has, and how many values there are."""
    into = ctypes.create_string_buffer(_MAP_INFO.size)
    attributes = _INFO.pack(descriptor, _MAP_INFO.size, ctypes.addressof(into))
    call(BPF_OBJ_GET_INFO_BY_FD, ctypes.create_string_buffer(attributes, len(attributes)), path)
    _, _, _, value_bytes, count, _, _ = _MAP_INFO.unpack(into.raw)
    return value_bytes, count


def _whole(size: int, unit: int = mmap.PAGESIZE) -> int:
    return -(-size // unit) * unit


class _Descriptor:
    """A descriptor, closed by ``close`` or with its last reference: opening several pins may fail half way."""

    _descriptor = -1

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _Window(_Descriptor):
    """The part of a map that is mapped: only what was read lately.

    The kernel maps all pages of a map at once, touched or not, and all of them count as the process's own.
    """

    def __init__(self, descriptor: int, start: int, size: int, access: int) -> None:
        """Map nothing yet. ``start``: where the values begin in the map, a whole page; ``size``: how long they are.

        The descriptor is closed with the window.
        """
        super().__init__(descriptor)
        self._start, self._size = start, size
        self._access = access
        self._begin = self._end = 0
        self._memory = memoryview(b"")

    def look(self, at: int, size: int) -> memoryview:
        """Give a part of the map. It stays mapped for as long as it is used.

        :raises OSError: where there is no memory.
        """
        if not size:
            return memoryview(b"")
        mapped = self._end - self._begin
        if at < self._begin or at + size > self._end or mapped > SHRINK * max(size, WINDOW_BYTES):
            begin = at - at % mmap.PAGESIZE
            end = min(begin + _whole(at + size - begin, WINDOW_BYTES), self._size)
            self._memory = memoryview(
                mmap.mmap(self._descriptor, end - begin, access=self._access, offset=self._start + begin)
            )
            self._begin, self._end = begin, end
        return self._memory[at - self._begin : at - self._begin + size]

    def close(self) -> None:
        """Look no more."""
        super().close()
        self._memory = memoryview(b"")
        self._begin = self._end = 0


class Array:
    """A pinned array that is mapped: what the kernel writes and reads. ``count``: how many values it has."""

    def __init__(self, path: str, value_bytes: int) -> None:
        """Open it.

        :raises OSError: as the kernel says.
        :raises Error: where its values have another length.
        """
        self._value_bytes = value_bytes
        descriptor = opened(path)
        try:
            there, self.count = _lengths(descriptor, path)
            if there != value_bytes:
                raise Error(f"{path}: values of {there} bytes; expected {value_bytes}: load the BPF programs anew")
        except BaseException:
            os.close(descriptor)
            raise
        self._window = _Window(descriptor, 0, _whole(value_bytes * self.count), mmap.ACCESS_WRITE)

    @property
    def memory(self) -> memoryview:
        """All values."""
        return self.first(self.count)

    def first(self, count: int) -> memoryview:
        """Give the first values; ``count`` may be what the kernel says.

        :raises OSError: where there is no memory.
        """
        return self._window.look(0, count * self._value_bytes)

    def close(self) -> None:
        """Let go of it. What was given of it may still be in use."""
        self._window.close()


class PinnedProgram(_Descriptor):
    """A pinned program that is started by bpf(2)."""

    def __init__(self, path: str) -> None:
        """Open it.

        :raises OSError: as the kernel says.
        """
        super().__init__(opened(path))
        self._path = path
        self._attributes = ctypes.create_string_buffer(_RUN.pack(self._descriptor), _RUN.size)

    def run(self) -> None:
        """Run it once, to its end.

        :raises OSError: as the kernel says.
        """
        call(BPF_PROG_TEST_RUN, self._attributes, self._path)


class Iterator:
    """A pinned iterator that writes nothing to its reader: reading it is one pass over all that it iterates over."""

    def __init__(self, path: str) -> None:
        """Try whether it can be opened.

        :raises OSError: as the kernel says.
        """
        self._path = path
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def run(self) -> None:
        """Run it once, to its end.

        :raises OSError: as the kernel says.
        """
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while os.read(descriptor, mmap.PAGESIZE):
                pass
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing stays open between two passes."""


class Drain:
    """The reader of a pinned ring buffer. There must be no other reader."""

    def __init__(self, path: str, record_bytes: int = 0) -> None:
        """Map it. ``record_bytes``: of a record without its 8-byte header, a multiple of 8.

        By default records may have any length, and only ``records`` reads them.

        :raises OSError: as the kernel says.
        """
        self._stride = RECORD_HEAD_BYTES + record_bytes
        descriptor = opened(path)
        try:
            _, self._size = _lengths(descriptor, path)
            self._reader = mmap.mmap(descriptor, mmap.PAGESIZE)
            self._writer = mmap.mmap(descriptor, mmap.PAGESIZE, access=mmap.ACCESS_READ, offset=mmap.PAGESIZE)
        except BaseException:
            os.close(descriptor)
            raise
        # The kernel maps the buffer twice, one after the other, so no record is in two pieces.
        self._window = _Window(descriptor, 2 * mmap.PAGESIZE, 2 * self._size, mmap.ACCESS_READ)
        self._read_to = memoryview(self._reader).cast("Q")
        self._written_to = memoryview(self._writer).cast("Q")
        self._seen = self._read_to[0]

    def look(self, most: int = RECORDS_MAX) -> memoryview:
        """Give the complete records, at most so many, in one piece, with their 8-byte headers.

        They stay there, and are given again, until released.
        """
        begin, end = self._read_to[0], self._written_to[0]
        count = min(most, (end - begin) // self._stride)
        start = begin & (self._size - 1)
        waiting = self._window.look(start, count * self._stride)
        heads = waiting.cast("I")[:: self._stride // 4]
        if count and max(heads) >= _BUSY_OR_VOID:  # One is being written: it and those after it wait for the next call.
            count = next(number for number, head in enumerate(heads) if head >= _BUSY_OR_VOID)
        self._seen = begin + count * self._stride
        return waiting[: count * self._stride]

    def release(self) -> None:
        """Release what ``look`` gave: the kernel may write there."""
        self._read_to[0] = self._seen

    def take(self) -> bytes:
        """Look, copy and release."""
        content = bytes(self.look(self._size))
        self.release()
        return content

    def records(self) -> list[bytes]:
        """Copy the complete records, without their headers, and release them."""
        begin, end = self._read_to[0], self._written_to[0]
        waiting = self._window.look(begin & (self._size - 1), end - begin)
        records, at = [], 0
        while at < len(waiting):
            (head,) = _HEAD.unpack_from(waiting, at)
            if head >= _BUSY:
                break
            behind = at + RECORD_HEAD_BYTES + (head & ~_BUSY_OR_VOID)
            if head < _BUSY_OR_VOID:
                records.append(bytes(waiting[at + RECORD_HEAD_BYTES : behind]))
            at = -(-behind // 8) * 8
        self._read_to[0] = self._seen = begin + at
        return records

    def wakes(self) -> select.epoll:
        """What becomes readable when the kernel wakes the reader, which the program that fills the buffer decides.

        Its owner closes it. Edge-triggered: that records wait makes it readable once, now.

        :raises OSError: as the kernel says.
        """
        wakes = select.epoll()
        wakes.register(self._window.fileno(), select.EPOLLIN | select.EPOLLET)
        return wakes

    def close(self) -> None:
        """Unmap it."""
        for view in (self._read_to, self._written_to):
            view.release()
        self._reader.close()
        self._writer.close()
        self._window.close()
