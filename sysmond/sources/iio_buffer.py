# SPDX-License-Identifier: Apache-2.0
"""How an accelerometer shakes: a second of all that it measures, by the buffer of Industrial I/O.

Source: the kernel's ``Documentation/iio/iio_devbuf.rst``, ``ABI/testing/sysfs-bus-iio``. A device has one buffer, and
who reads that is alone with it: a screen that turns with its user is turned that way. So it is taken only where nobody
has it, and for a second; what was set in it is set again, also by who comes after a reader that was killed.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from math import sqrt
from threading import Event, Thread
from time import monotonic
from typing import Any, NamedTuple

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.probe import ABSENT, Absence, Cause, Host, Row
from sysmond.sources import iio
from sysmond.sources.unread import why

AXES = "xyz"
LENGTH_S = 1.0
# Other tables have read the same device by then: to them it would be in use.
PAUSE_S = 2.0
# A device keeps so many samples while nobody reads, and is read so often: more come of none that is sold.
KEPT = 1024
DRAIN_S = 0.05
SAMPLES_MAX = 65_536
SETTINGS_MAX = 64
END_S = 2.0
NOTE = "iio-buffer.json"
INTERVAL_S = 60.0
_IN_USE = Absence(Cause.IN_USE, "another program is reading its buffer")
_TYPE = re.compile(r"(le|be):([su])(\d{1,2})/(8|16|32|64)(?:>>(\d{1,2}))?")
_ENABLE = "buffer/enable"


class Element(NamedTuple):
    """Where a value is in a sample, and how it is packed: see ``parse``."""

    offset: int
    size: int
    order: str
    is_signed: bool
    bits: int
    shift: int

    def value(self, sample: bytes) -> int:
        """Take it out of a sample."""
        stored = int.from_bytes(sample[self.offset : self.offset + self.size], self.order)  # type: ignore[arg-type]
        number = stored >> self.shift & (1 << self.bits) - 1
        return number - (1 << self.bits) if self.is_signed and number >> self.bits - 1 else number


def parse(spelled: bytes, offset: int = 0) -> Element:
    """Read how a value is packed, as ``le:s12/16>>4``: its order, sign, bits, bits with padding, and shift.

    :raises ValueError: where it is something else, repeated, or does not fit.
    """
    found = _TYPE.fullmatch(spelled.decode("ascii", "replace").strip())
    if found is None:
        raise ValueError(f"{spelled[:40]!r}; expected a type such as le:s12/16>>4")
    order, sign, bits, stored, shift = found.groups("0")
    if not 0 < int(bits) <= int(stored) - int(shift):
        raise ValueError(f"{spelled[:40]!r}; expected bits that fit")
    size = int(stored) // 8
    at = offset + -offset % size
    return Element(at, size, {"le": "little", "be": "big"}[order], sign == "s", int(bits), int(shift))


def layout(types: dict[int, bytes]) -> tuple[dict[int, Element], int]:
    """Where values are in a sample, by their place in the order, and how long that is: each is aligned to its size.

    :raises ValueError: where the kernel says what makes no sense.
    """
    elements: dict[int, Element] = {}
    end = 0
    for index, spelled in sorted(types.items()):
        elements[index] = parse(spelled, end)
        end = elements[index].offset + elements[index].size
    largest = max((element.size for element in elements.values()), default=1)
    return elements, end + -end % largest


class BufferSettings:
    """What is written to a device, and what was there before; ``path``: of a note of that, or "" for none."""

    def __init__(self, folder: str, path: str) -> None:
        """``folder``: of the device, below the root."""
        self._folder = os.path.realpath(folder)
        self._path = path
        self._before: list[tuple[str, str]] = []

    def put(self, wanted: dict[str, str]) -> None:
        """Write what is wanted, in its order, where it is not there already.

        :raises OSError: as the kernel says; what is written by then is for ``restore``.
        """
        before = [(name, _word(f"{self._folder}/{name}")) for name in wanted]
        changed = [(name, was) for name, was in before if was != wanted[name]]
        if self._path:
            note.write(self._path, {"folder": self._folder, "before": changed})
        for name, was in changed:
            self._before.append((name, was))
            _write(f"{self._folder}/{name}", wanted[name])

    def restore(self) -> None:
        """Write what was there before, the last first; a device that is gone needs none of it."""
        while self._before:
            name, was = self._before.pop()
            with suppress(OSError):
                _write(f"{self._folder}/{name}", was)
        if self._path:
            with suppress(OSError):
                os.unlink(self._path)

    @classmethod
    def left(cls, root: str, path: str) -> None:
        """Restore what a reader left that was killed, unless somebody has the buffer by now."""
        try:
            said = note.read(path, _shape)
        except (OSError, CorruptError):
            return
        with suppress(OSError):
            device = os.path.basename(said.folder)
            is_same = os.path.realpath(f"{root}{iio.FOLDER}/{device}") == said.folder
            if is_same:
                with _alone(root, device):
                    left = cls(said.folder, "")
                    left._before = said.before
                    left.restore()
        with suppress(OSError):
            os.unlink(path)


class _Left(NamedTuple):
    folder: str
    before: list[tuple[str, str]]


def _shape(value: Any) -> _Left:  # noqa: ANN401  JSON
    fields = note.fields(value)
    before = [(note.text(name), note.text(was)) for name, was in note.array(fields["before"])[:SETTINGS_MAX]]
    if any(name.partition("/")[0] not in {"buffer", "scan_elements", "trigger"} or ".." in name for name, _ in before):
        raise ValueError("it names no settings of a buffer")
    return _Left(note.text(fields["folder"]), before)


@contextmanager
def _alone(root: str, device: str) -> Iterator[int]:
    """Open the buffer of a device, which the kernel lets one do at a time.

    :raises OSError: as the kernel says; ``EBUSY`` where somebody has it.
    """
    descriptor = os.open(f"{root}/dev/{device}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def measure(root: str, device: str, noted: str, over: Event) -> Absence | tuple[int, ...] | None:
    """Read all that an accelerometer measures in a second; gives a row of ``vibration``, None where it is gone.

    ``noted``: where a note may lie meanwhile; ``over``: to stop at once.
    """
    folder = f"{root}{iio.FOLDER}/{device}"
    settings = BufferSettings(folder, noted)
    try:
        with _alone(root, device) as descriptor:
            if _word(f"{folder}/{_ENABLE}") != "0":
                return _IN_USE
            try:
                wanted, elements, size = _plan(root, device)
                scales = [_scale(folder, axis) for axis in AXES]
                settings.put(wanted)
                samples, took_s = _samples(descriptor, size, over)
            finally:
                settings.restore()
    except OSError as problem:
        return why("buffer", problem) if os.path.isdir(folder) else None
    except ValueError as problem:
        return Absence(Cause.PROBE_FAILED, str(problem))
    if len(samples) < 2:  # noqa: PLR2004  one does not shake
        return Absence(Cause.NO_SOURCE, "no samples within a second")
    return _row([[element.value(sample) for sample in samples] for element in elements], scales, took_s)


def _plan(root: str, device: str) -> tuple[dict[str, str], list[Element], int]:
    """What to set in which order, where the three axes are in a sample then, and how long that is.

    :raises OSError, ValueError: where it cannot be used so.
    """
    folder = f"{root}{iio.FOLDER}/{device}"
    axes = [f"in_accel_{axis}" for axis in AXES]
    places = {name: int(_word(f"{folder}/scan_elements/{name}_index")) for name in axes}
    elements, size = layout({places[name]: _word(f"{folder}/scan_elements/{name}_type").encode() for name in axes})
    if len(elements) < len(axes):
        raise ValueError("scan_elements: two axes have one place")
    marks = sorted(name for name in os.listdir(f"{folder}/scan_elements") if name.endswith("_en"))[: SETTINGS_MAX // 2]
    wanted = {f"scan_elements/{mark}": str(int(mark.removesuffix("_en") in axes)) for mark in marks}
    if _word(f"{folder}/trigger/current_trigger", missing="none needed") == "":
        wanted["trigger/current_trigger"] = _trigger(root, device)
    wanted["buffer/length"] = str(KEPT)
    wanted[_ENABLE] = "1"
    return wanted, [elements[places[name]] for name in axes], size


def _trigger(root: str, device: str) -> str:
    """The trigger that a device has of its own, as ``accel_3d-dev1``: it fires when there is something new.

    :raises ValueError: where there is none.
    """
    folder, number = f"{root}{iio.FOLDER}", device.removeprefix("iio:device")
    name = _word(f"{folder}/{device}/name")
    triggers = sorted(entry for entry in os.listdir(folder) if entry.startswith("trigger"))[: iio.DEVICES_MAX]
    for trigger in triggers:
        if (called := _word(f"{folder}/{trigger}/name", missing="")) == f"{name}-dev{number}":
            return called
    raise ValueError("it has no trigger of its own; expected one in trigger/current_trigger")


def _samples(descriptor: int, size: int, over: Event) -> tuple[list[bytes], float]:
    """Read for a second what comes, or until it is over; gives samples, and for how long they came.

    :raises OSError: as the kernel says.
    """
    samples: list[bytes] = []
    begin_s = monotonic()
    rest = b""
    while (took_s := monotonic() - begin_s) < LENGTH_S and len(samples) < SAMPLES_MAX and not over.is_set():
        over.wait(min(DRAIN_S, LENGTH_S - took_s))
        with suppress(BlockingIOError):
            while more := os.read(descriptor, KEPT * size):
                rest += more
                whole = len(rest) - len(rest) % size
                samples += (rest[at : at + size] for at in range(0, whole, size))
                rest = rest[whole:]
                if len(samples) >= SAMPLES_MAX:
                    break
    return samples, monotonic() - begin_s


def _row(axes: list[list[int]], scales: list[float], took_s: float) -> tuple[int, ...]:
    """RMS and peak of all axes together, RMS of each, in µm/s²; and how many samples a second there were.

    Gravity, the mean of each axis, is not counted.
    """
    count = len(axes[0])
    squares = [0.0] * count
    means = []
    for axis, scale in zip(axes, scales, strict=True):
        middle = sum(axis) / count
        parts = [((value - middle) * scale) ** 2 for value in axis]
        squares = [before + part for before, part in zip(squares, parts, strict=True)]
        means.append(sum(parts) / count)
    numbers = sqrt(sum(means)), sqrt(max(squares)), *map(sqrt, means)
    micro = [round(number * 1e6) for number in numbers]
    return *(number if number < -ABSENT else ABSENT for number in micro), round(count / took_s * 1000)


def _scale(folder: str, axis: str) -> float:
    """What one of the raw numbers is, in m/s².

    :raises ValueError: where it is no number.
    """
    for name in (f"in_accel_{axis}_scale", "in_accel_scale"):
        with suppress(FileNotFoundError):
            return iio.exact(_word(f"{folder}/{name}").encode()) / 10**12
    return 1.0


def _word(path: str, missing: str | None = None) -> str:
    """Read a file of one word; ``missing``: what it is where there is none.

    :raises OSError: as the kernel says.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(4096).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        if missing is None:
            raise
        return missing


def _write(path: str, word: str) -> None:
    """Write a word; nothing is an empty line, since the kernel is not told of a write of no bytes."""
    with open(path, "wb", buffering=0) as file:
        file.write(f"{word}\n".encode())


class Vibrations:
    """Measures each accelerometer after a reading, in a thread, and tells it at the next: no other table waits."""

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self._rows: list[Row] = []
        self._measured: dict[str, Absence | tuple[int, ...] | None] = {}
        self._thread: Thread | None = None
        self._over = Event()
        self._accelerometers = iio.IioSensors(*((f"accel_{axis}", 6) for axis in AXES))

    def read(self, host: Host, *, wake: bool = False) -> Iterable[Row]:
        """Give a row for each accelerometer that could be measured, or could not; while it is, that told before."""
        noted = f"{host.folder}/{NOTE}" if host.folder else ""
        if self._thread is None:
            BufferSettings.left(host.root, noted)
            host.at_close(self.stop)
        elif self._thread.is_alive():
            return self._rows
        due: list[str] = []
        self._rows = []
        for sensor in self._accelerometers.sensors(host):
            device = os.path.basename(sensor.folder)
            if absence := iio.resting(host, sensor.folder, wake=wake):
                self._rows.append((sensor.instance, absence))
                continue
            due.append(device)
            if (row := self._measured.get(device)) is not None:
                self._rows.append((sensor.instance, row))
        self._begin(host.root, due, noted)
        return self._rows

    def _begin(self, root: str, devices: list[str], noted: str) -> None:
        over, measured = self._over, dict[str, Absence | tuple[int, ...] | None]()

        def run() -> None:
            over.wait(PAUSE_S if devices else 0.0)
            for device in devices:
                if not over.is_set():
                    measured[device] = measure(root, device, noted, over)

        self._measured = measured
        self._thread = Thread(target=run, name="vibration", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End what is going on; the devices are as they were then."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(END_S)
