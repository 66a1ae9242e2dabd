# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's driver says of its cards, by its library NVML: what they do, and for which processes.

Source: NVIDIA's ``nvml.h``. The library, which comes with the driver, is initialized for one reading, asked, and shut
down. It may wake any card while it looks for one, so callers ask where all of them are awake. Where it hangs, it does
so in a thread of its own, one at most, for which nobody waits longer than ``ANSWER_S``. Functions that a version lacks,
and what a card does not support, are left out.
"""

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from functools import cache
from threading import Lock, Thread
from time import monotonic
from typing import Any, NamedTuple

from sysmond.base import clock
from sysmond.errors import Error

LIBRARY = "libnvidia-ml.so.1"
ANSWER_S = 2.0
PROCESSES_MAX = 1024
# Both tables ask at the same ticks: what was said so long ago at most serves the second of them.
SHARED_S = 2.5
# A card that nobody uses is initialized for each reading, which takes a second: asking has this share of time at most.
SHARE_MAX = 1 / 200
WAIT_S_MAX = 300.0
MHZ = 1_000_000
_PERCENT_MAX, _MHZ_MAX, _CELSIUS_MAX, _MILLIWATTS_MAX, _BITS_MAX = 100, 100_000, 300, 10_000_000, 2**40
_BYTES_MAX = 2**53
# Of nvmlReturn_t, those after which nothing else is to be asked of a card, and what there is to say of some.
_NO_FUNCTION, _LOST = 13, frozenset((15, 16))
_MEANS = {
    3: "not supported",
    4: "no permission",
    6: "there is no such card",
    9: "the driver is not loaded",
    10: "timeout",
    _NO_FUNCTION: "this version has no such function",
    15: "the card is lost; it fell off the bus",
    16: "the card needs a reset",
    17: "the system forbids it",
    18: "driver and library are of different versions",
}
_GRAPHICS, _MEMORY = 0, 2


class GpuProcess(NamedTuple):
    """What a process uses of a card: memory in bytes, None where that is unknown, and percent of the time lately."""

    memory: int | None
    busy: int = 0
    video: int = 0


class NvmlCard(NamedTuple):
    """A card. ``values``: by metric of the table ``gpu``, in its units; ``processes``: by number."""

    values: dict[str, int]
    processes: dict[int, GpuProcess]


class LostError(Error):
    """A card, or the whole library, does not answer as it should."""


class Answer(NamedTuple):
    """What was said at a boot time, by address of the card; of one that is lost, why."""

    taken_ns: int
    cards: dict[str, NvmlCard | LostError]


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _Memory2(ctypes.Structure):
    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class _Process1(ctypes.Structure):
    _fields_ = (("pid", c_uint), ("memory", c_ulonglong))


class _Process2(ctypes.Structure):
    _fields_ = (("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint))


class _Sample(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint),
        ("time_us", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )


class _Library:
    """The library, initialized, and the card that is asked."""

    def __init__(self, name: str) -> None:
        """Open it, and initialize it.

        :raises LostError: where it is not there, or refuses.
        """
        try:
            self._functions = ctypes.CDLL(name)
        except OSError as problem:
            raise LostError(f"{name}: {problem}; expected the library of the driver") from None
        self._device = c_void_p()
        _check(*self._called(("nvmlInit_v2", "nvmlInit")))

    def shut_down(self) -> None:
        """Give everything back."""
        self._called(("nvmlShutdown",))

    def choose(self, address: str) -> None:
        """Choose the card that is asked from now on, by its address on the bus.

        :raises LostError: where there is none.
        """
        self._device = c_void_p()
        names = "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"
        _check(*self._called(names, c_char_p(address.encode()), byref(self._device)))

    def fill(self, names: Sequence[str], *given: Any) -> bool:  # noqa: ANN401  ctypes has no better type
        """Ask the card by the first of these functions that is there and answers; whether one did.

        :raises LostError: where the card is lost.
        """
        for each in names:
            name, code = self._called((each,), self._device, *given)
            if code in _LOST:
                _check(name, code)
            if not code:
                return True
        return False

    def number(self, high: int, names: Sequence[str], *given: Any) -> int | None:  # noqa: ANN401  as above
        """Ask the card for a number; None where it has none, or none of 0 to ``high``.

        :raises LostError: as ``fill``.
        """
        answer = c_ulonglong()  # What fills 32 bits fills the lower ones: machines with such cards are little-endian.
        return answer.value if self.fill(names, *given, byref(answer)) and answer.value <= high else None

    def _called(self, names: Sequence[str], *given: Any) -> tuple[str, int]:  # noqa: ANN401  as above
        """Call the first of these functions that there is; its name, and what it returns."""
        for name in names:
            with suppress(AttributeError):
                return name, int(getattr(self._functions, name)(*given))
        return names[0], _NO_FUNCTION


def _check(name: str, code: int) -> None:
    """Refuse what is no success.

    :raises LostError: with what the code means.
    """
    if code:
        raise LostError(f"{name}: {_MEANS.get(code, f'error {code}')}")


def _values(library: _Library) -> dict[str, int]:
    """What a card does, by metric of ``gpu``.

    :raises LostError: where it is lost.
    """
    of, device = library.number, "nvmlDeviceGet"
    busy, memory, memory_2 = _Utilization(), _Memory(), _Memory2(version=ctypes.sizeof(_Memory2) | 2 << 24)
    values: dict[str, int | None] = {}
    if library.fill((f"{device}UtilizationRates",), byref(busy)):
        values |= {"busy": _bounded(busy.gpu, _PERCENT_MAX), "memory_busy": _bounded(busy.memory, _PERCENT_MAX)}
    # The first counts what the driver reserves as used.
    sizes = memory_2 if library.fill((f"{device}MemoryInfo_v2",), byref(memory_2)) else memory
    if sizes is memory_2 or library.fill((f"{device}MemoryInfo",), byref(memory)):
        values |= {"memory_used": _bounded(sizes.used, _BYTES_MAX), "memory_total": _bounded(sizes.total, _BYTES_MAX)}
    reasons = f"{device}CurrentClocksEventReasons", f"{device}CurrentClocksThrottleReasons"
    values["temperature"] = of(_CELSIUS_MAX, (f"{device}Temperature",), c_uint(0))
    values["power"] = of(_MILLIWATTS_MAX, (f"{device}PowerUsage",))
    values["throttle"] = of(_BITS_MAX, reasons)
    for metric, name, which in (
        ("frequency", "ClockInfo", _GRAPHICS),
        ("frequency_max", "MaxClockInfo", _GRAPHICS),
        ("memory_frequency", "ClockInfo", _MEMORY),
    ):
        value = of(_MHZ_MAX, (device + name,), c_uint(which))
        values[metric] = None if value is None else value * MHZ
    return {metric: value for metric, value in values.items() if value is not None}


def _bounded(value: int, high: int) -> int | None:
    return int(value) if value <= high else None


def _processes(library: _Library, since_us: int) -> tuple[dict[int, GpuProcess], int]:
    """What processes use of a card, and up to when the library has told how busy it was for them, by its clock.

    :raises LostError: where it is lost.
    """
    uses: dict[int, GpuProcess] = {}
    for which in ("Compute", "Graphics"):
        name = f"nvmlDeviceGet{which}RunningProcesses"
        for each in (f"{name}_v3", f"{name}_v2", name):
            kind = _Process1 if each == name else _Process2
            count, answers = c_uint(PROCESSES_MAX), (kind * PROCESSES_MAX)()
            if library.fill((each,), byref(count), answers):
                for process in answers[: min(count.value, PROCESSES_MAX)]:
                    if process.pid:  # One that computes and draws is in both lists, with the same memory.
                        uses[process.pid] = GpuProcess(_bounded(process.memory, _BYTES_MAX))
                break
    count, samples = c_uint(PROCESSES_MAX), (_Sample * PROCESSES_MAX)()
    if library.fill(("nvmlDeviceGetProcessUtilization",), samples, byref(count), c_ulonglong(since_us)):
        last_us = since_us
        for sample in samples[: min(count.value, PROCESSES_MAX)]:
            if (
                since_us < sample.time_us < _BYTES_MAX
                and max(sample.sm, sample.encoder, sample.decoder) <= _PERCENT_MAX
            ):
                memory = uses.get(sample.pid, GpuProcess(None)).memory
                uses[sample.pid] = GpuProcess(memory, sample.sm, sample.encoder + sample.decoder)
                last_us = max(last_us, sample.time_us)
        since_us = last_us
    return uses, since_us


class Nvml:
    """Asks the library for cards, and remembers what it said, for both tables that ask."""

    def __init__(self, name: str = LIBRARY) -> None:
        """``name``: of the library. Nothing is opened yet."""
        self._name = name
        self._lock = Lock()
        self._thread: Thread | None = None
        self._since_us: dict[str, int] = {}
        self._answer: Answer | LostError = LostError(f"{name}: not asked yet")
        self._asked_s, self._again_s, self._took_s = -WAIT_S_MAX, -WAIT_S_MAX, 0.0

    def ask(self, addresses: Sequence[str]) -> Answer:
        """Ask for these cards, by address; what was said last where that is fresh, or asking again costs too much.

        :raises LostError: where the library is not there, refuses, or does not answer.
        """
        with self._lock:
            now_s = monotonic()
            if self._thread is not None and self._thread.is_alive():
                raise LostError(f"{self._name}: it has not answered for {now_s - self._asked_s:.0f} s")
            if now_s >= max(self._asked_s + SHARED_S, self._again_s):
                self._asked_s = now_s
                self._thread = Thread(target=self._ask, args=([*addresses],), name="nvml", daemon=True)
                self._thread.start()
                self._thread.join(ANSWER_S)
                if self._thread.is_alive():
                    raise LostError(f"{self._name}: it has not answered for {ANSWER_S:.0f} s")
                self._again_s = now_s + min(self._took_s / SHARE_MAX, WAIT_S_MAX)
            if isinstance(self._answer, LostError):
                raise LostError(str(self._answer))
            return self._answer

    def _ask(self, addresses: Sequence[str]) -> None:
        began_s, taken_ns = monotonic(), clock.boottime_ns()
        cards: dict[str, NvmlCard | LostError] = {}
        try:
            library = _Library(self._name)
        except LostError as refused:
            self._answer = refused
        else:
            for address in addresses:
                try:
                    library.choose(address)
                    processes, self._since_us[address] = _processes(library, self._since_us.get(address, 0))
                    cards[address] = NvmlCard(_values(library), processes)
                except LostError as lost:
                    cards[address] = lost
            library.shut_down()
            self._answer = Answer(taken_ns, cards)
        self._took_s = monotonic() - began_s


@cache
def shared() -> Nvml:
    """The one of this process."""
    return Nvml()
