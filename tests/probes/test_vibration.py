# SPDX-License-Identifier: Apache-2.0
"""The table ``vibration``: what a buffer gives as numbers, and that it is left as it was found, whatever happens."""

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from sysmond_probes import vibration

from sysmond.machine import note
from sysmond.probe import Absence, Cause, Host, Sensitivity
from sysmond.sources import iio_buffer
from tests.support import sysfs
from tests.support.waiting import wait_until

DEVICE, NAME = "iio:device2", "mpu6050"
# What the fixture has, and what a buffer is set to meanwhile.
BEFORE = {
    "scan_elements/in_accel_x_en": "0",
    "scan_elements/in_accel_y_en": "1",
    "scan_elements/in_timestamp_en": "1",
    "buffer/length": "2",
    "buffer/enable": "0",
    "trigger/current_trigger": "",
}
MEANWHILE = {
    "scan_elements/in_accel_x_en": "1",
    "scan_elements/in_accel_y_en": "1",
    "scan_elements/in_timestamp_en": "0",
    "buffer/length": "1024",
    "buffer/enable": "1",
    "trigger/current_trigger": "mpu6050-dev2",
}
SCALE = 0.000598


class Board:
    """A board whose accelerometer is a pipe that a test writes to. ``fifo``: the end it writes to."""

    def __init__(self, root: Path) -> None:
        self.root = sysfs.build(root, "arm", "iio")
        (root / "dev").mkdir()
        os.mkfifo(root / "dev" / DEVICE)
        self.fifo = os.open(root / "dev" / DEVICE, os.O_RDWR | os.O_NONBLOCK)
        self.folder = root / "sys/bus/iio/devices" / DEVICE
        self.host = Host(str(root))
        self.host.folder = str(root / "runtime")
        os.mkdir(self.host.folder)
        self.note = root / "runtime" / iio_buffer.NOTE
        self.vibrations = iio_buffer.Vibrations()

    def settings(self) -> dict[str, str]:
        return {name: (self.folder / name).read_text().strip() for name in BEFORE}

    def read(self) -> dict[str, object]:
        self.host.new_tick()
        return dict(self.vibrations.read(self.host))

    def shake(self, samples: list[tuple[int, int, int]]) -> None:
        wait_until(lambda: self.settings() == MEANWHILE, self.settings)
        os.write(self.fifo, b"".join(struct.pack(">hhh", *sample) for sample in samples))

    def wait(self) -> None:
        """Wait until it has measured."""
        wait_until(lambda: not self.vibrations._thread or not self.vibrations._thread.is_alive())


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setattr(iio_buffer, "LENGTH_S", 0.4)
    monkeypatch.setattr(iio_buffer, "PAUSE_S", 0.0)
    made = Board(tmp_path)
    yield made
    made.host.close()
    os.close(made.fifo)


def test_shaking_is_told_at_the_next_reading_and_all_is_as_it_was(board: Board) -> None:
    assert board.settings() == BEFORE
    assert board.read() == {}
    board.shake([(1000, -20, 16000), (-1000, -20, 16000)] * 50)
    assert note.read(str(board.note), dict)["before"][-1] == ["buffer/enable", "0"]
    board.wait()
    assert board.settings() == BEFORE
    assert not board.note.exists()
    (row,) = board.read().values()
    assert isinstance(row, tuple)
    rms = round(1000 * SCALE * 1e6)
    assert row[:5] == (rms, rms, rms, 0, 0)  # The mean of each axis is gravity, and does not count.
    assert row[5] > 0
    board.wait()


def test_peak_is_of_all_axes_together(board: Board) -> None:
    board.read()
    board.shake([(0, 0, 0)] * 98 + [(3000, 4000, 0), (-3000, -4000, 0)])
    board.wait()
    ((_, row),) = board.vibrations.read(board.host)
    assert not isinstance(row, Absence)
    assert row[1] == round(5000 * SCALE * 1e6)
    assert row[0] == round((2 * 5000**2 / 100) ** 0.5 * SCALE * 1e6)
    board.wait()


def test_no_samples_is_a_gap(board: Board) -> None:
    board.read()
    board.wait()
    assert board.read() == {NAME: Absence(Cause.NO_SOURCE, "no samples within a second")}
    board.wait()
    assert board.settings() == BEFORE


def test_while_somebody_reads_it_nothing_is_touched(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    (board.folder / "buffer/enable").write_text("1\n")
    before = board.settings()
    assert board.read() == {NAME: Absence(Cause.IN_USE, "another program is reading its buffer")}
    board.wait()
    assert board.settings() == before
    # Who has it open and has not begun: the kernel lets one open it.
    (board.folder / "buffer/enable").write_text("0\n")
    opened = os.open

    def busy(path: str, *words: int, **more: int) -> int:
        if str(path).endswith(DEVICE):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        return opened(path, *words, **more)

    monkeypatch.setattr(os, "open", busy)
    board.read()
    board.wait()
    assert board.read() == {NAME: Absence(Cause.IN_USE, "buffer: Device or resource busy")}
    board.wait()
    assert board.settings() == BEFORE


def test_when_the_lane_ends_it_is_as_it_was(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iio_buffer, "LENGTH_S", 60.0)
    board.read()
    wait_until(lambda: board.settings() == MEANWHILE, board.settings)
    assert board.read() == {}  # It measures still.
    board.host.let_go()
    assert board.settings() == BEFORE


def test_what_a_killed_reader_left_is_restored_by_the_next(board: Board) -> None:
    settings = iio_buffer.BufferSettings(str(board.folder), str(board.note))
    settings.put(MEANWHILE)
    assert board.settings() == MEANWHILE
    board.read()  # Which restores before it measures.
    board.wait()
    assert board.settings() == BEFORE
    assert not board.note.exists()


@pytest.mark.parametrize(
    "said",
    ["", "[]", '{"folder": "/", "before": [["../uevent", "x"]]}', '{"folder": 1, "before": []}',
     '{"folder": "/etc", "before": [["buffer/enable", "0"]]}'],
)  # fmt: skip
def test_a_note_that_makes_no_sense_restores_nothing(said: str, board: Board) -> None:
    board.note.write_text(said)
    board.read()
    board.wait()
    assert board.settings() == BEFORE


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("scan_elements/in_accel_x_type", "le:s12/13>>4"),
        ("scan_elements/in_accel_x_type", "le:s16/16X4>>0"),
        ("scan_elements/in_accel_x_type", ""),
        ("scan_elements/in_accel_x_index", "one"),
        ("scan_elements/in_accel_x_index", "1"),
        ("in_accel_scale", "nan"),
        ("trigger/../../trigger0/name", "another"),
    ],
)
def test_garbage_is_a_gap_and_changes_nothing(name: str, content: str, board: Board) -> None:
    (board.folder / name).resolve().write_text(content + "\n")
    board.read()
    board.wait()
    lacking = board.read()[NAME]
    assert isinstance(lacking, Absence)
    assert lacking.cause is Cause.PROBE_FAILED
    board.wait()
    assert board.settings() == BEFORE


def test_one_that_is_pulled_out_meanwhile_has_no_row(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> bytes:
        board.folder.unlink()
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(iio_buffer, "_samples", gone)
    board.read()
    board.wait()
    board.host.look_again()
    assert board.read() == {}


def test_a_refusal_in_the_middle_restores_what_was_set(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    write = iio_buffer._write

    def refuses(path: str, word: str) -> None:
        if path.endswith("buffer/enable") and word == "1":
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        write(path, word)

    monkeypatch.setattr(iio_buffer, "_write", refuses)
    board.read()
    board.wait()
    assert board.read() == {NAME: Absence(Cause.PROBE_FAILED, "buffer: Invalid argument")}
    board.wait()
    assert board.settings() == BEFORE


def test_samples_that_come_in_pieces_are_whole(board: Board) -> None:
    over = Event()
    taken: list[bytes] = []
    reading = os.open(board.root / "dev" / DEVICE, os.O_RDONLY | os.O_NONBLOCK)
    thread = Thread(target=lambda: taken.extend(iio_buffer._samples(reading, 6, over)[0]))
    thread.start()
    for piece in (b"abc", b"defghi", b"jkl", b"m"):
        os.write(board.fifo, piece)
    thread.join()
    os.close(reading)
    assert taken == [b"abcdef", b"ghijkl"]


@pytest.mark.parametrize(
    ("spelled", "stored", "value"),
    [
        (b"le:s12/16>>4\n", b"\xf0\xff", -1),
        (b"le:s12/16>>4", b"\x0f\x80", -2048),
        (b"be:s16/16>>0", b"\x80\x00", -32768),
        (b"le:u12/16>>0", b"\xff\xff", 4095),
        (b"be:s24/32>>8", b"\xff\xff\xfe\x55", -2),
        (b"le:s64/64>>0", b"\xff" * 8, -1),
        (b"le:s8/8", b"\x7f", 127),
    ],
)
def test_values_are_taken_out_of_what_they_are_packed_in(spelled: bytes, stored: bytes, value: int) -> None:
    assert iio_buffer.parse(spelled).value(stored) == value


@pytest.mark.parametrize(
    "spelled",
    [
        b"",
        b"le:s12/16>>5",
        b"le:s0/16>>0",
        b"le:s99/64>>0",
        b"le:f32/32>>0",
        b"ne:s12/16>>4",
        b"le:s12/16>>4 x",
        b"\xff",
    ],
)
def test_what_is_no_type_is_refused(spelled: bytes) -> None:
    with pytest.raises(ValueError, match="expected"):
        iio_buffer.parse(spelled)


def test_each_value_is_aligned_to_its_size() -> None:
    elements, size = iio_buffer.layout({3: b"le:s64/64>>0", 0: b"le:s8/8>>0", 1: b"le:s16/16>>0", 2: b"le:s32/32>>0"})
    assert {index: element.offset for index, element in elements.items()} == {0: 0, 1: 2, 2: 4, 3: 8}
    assert size == 16
    assert iio_buffer.layout({0: b"le:s32/32>>0", 1: b"le:s16/16>>0"})[1] == 8


def test_a_board_without_an_accelerometer_has_no_rows(tmp_path: Path) -> None:
    assert list(iio_buffer.Vibrations().read(Host(str(tmp_path)))) == []


def test_it_is_restricted_and_off() -> None:
    (probe,) = vibration.sysmond_probes()
    assert probe.sensitivity is Sensitivity.RESTRICTED
    assert not probe.enabled
