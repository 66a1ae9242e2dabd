# SPDX-License-Identifier: Apache-2.0
"""The table ``input``: exact counts, and nothing that was typed in memory or in what is recorded."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import h5py
import pytest
from sysmond_probes import input as probes

from sysmond.base.model import ABSENT, Absence, Cause, Lane, Sensitivity, check_table
from sysmond.probe import Host
from sysmond.ring.frame import RELATION
from sysmond.ring.snapshot import snapshot
from sysmond.sources import evdev
from sysmond.store import dense
from sysmond.store.of_ring import of_snapshot
from tests.support import uinput
from tests.support.bench import SECOND, Bench
from tests.support.inputs import (
    DROPPED,
    EV_ABS,
    EV_KEY,
    EV_REL,
    EVENT_BYTES,
    LEFT,
    REPORT,
    TOUCH,
    Event,
    Inputs,
    pressed,
)
from tests.support.waiting import HANG_S, wait_until

A = ABSENT


class Listening:
    """A host that is listened to; each reading is of a period of its own."""

    def __init__(self, root: Path) -> None:
        self.host = Host(str(root))
        self.minute = 0
        self._counting = evdev.Counting()

    def rows(self, *, later: bool = True) -> dict[str, object]:
        self.minute += later
        self.host.look_again()
        self.host.new_tick()
        return dict(self._counting.read(self.host))

    def wait_for(self, **expected: tuple[int, ...]) -> None:
        """Wait until devices have counted so much."""
        wait_until(lambda: self.rows().items() >= expected.items(), self.rows)


@pytest.fixture
def bench(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(runtime, monkeypatch)


@pytest.fixture
def inputs(tmp_path: Path) -> Iterator[Inputs]:
    made = Inputs(tmp_path)
    yield made
    made.close()


@pytest.fixture
def listening(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    made = Listening(inputs.root)
    monkeypatch.setattr(evdev, "mask", lambda *_: None)
    monkeypatch.setattr(evdev, "boottime_ns", lambda: made.minute * 60 * SECOND)
    yield made
    made.host.close()


def test_the_table_is_well_formed_restricted_and_off() -> None:
    [probe] = probes.sysmond_probes()
    check_table(probe.table)
    assert (probe.sensitivity, probe.enabled, probe.interval_s) == (Sensitivity.RESTRICTED, False, 60.0)


def test_a_machine_without_devices_has_no_rows_and_no_probe(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert list(evdev.Counting().read(host)) == []
    host.close()
    assert not any(
        (tmp_path / need.lstrip("/")).exists() for [probe] in [probes.sysmond_probes()] for need in probe.needs
    )


def test_keys_are_counted_once_whatever_they_are(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event0", "keyboard")
    assert listening.rows() == {"keyboard": (0, A, A, A, A, A)}
    inputs.send(
        "event0", *pressed(30, 42, 0x74), (EV_KEY, 30, 1), REPORT, (EV_KEY, 30, 2), REPORT, (EV_KEY, 30, 2), REPORT
    )
    listening.wait_for(keyboard=(4, A, A, A, A, A))


def test_a_mouse_has_buttons_steps_in_all_directions_and_the_way_it_went(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event3", "mouse")
    listening.rows()
    moves: list[Event] = [(EV_REL, 0, 3), (EV_REL, 1, -4), REPORT] * 1000
    for at in range(0, len(moves), 300):
        inputs.send("event3", *moves[at : at + 300])
    inputs.send("event3", (EV_REL, 8, -2), (EV_REL, 11, -240), REPORT, (EV_REL, 6, 1), REPORT, *pressed(LEFT, LEFT + 1))
    listening.wait_for(mouse=(A, 2, 3, 5000, A, A))


def test_a_touchpad_is_stroked_from_where_it_was_touched(
    inputs: Inputs, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evdev.Device, "_resolution", lambda _: (20_000, 40_000))  # Units a metre of its two axes.
    inputs.plug("event5", "touchpad")
    assert listening.rows() == {"touchpad": (A, 0, A, A, 0, 0)}
    stroke = [(EV_ABS, 0, 1000), (EV_ABS, 1, 1000), (EV_KEY, TOUCH, 1), REPORT]
    stroke += [(EV_ABS, 0, 1060), (EV_ABS, 1, 1160), REPORT, (EV_ABS, 1, 1360), REPORT, (EV_KEY, TOUCH, 0), REPORT]
    inputs.send("event5", *stroke, (EV_ABS, 0, 9000), REPORT, *stroke)
    listening.wait_for(touchpad=(A, 0, A, A, 2, 2 * (5000 + 5000)))


def test_a_surface_that_does_not_know_its_size_has_touches_only(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event5", "touchpad")  # A pipe answers no question about axes.
    listening.rows()
    inputs.send(
        "event5", (EV_ABS, 0, 1), (EV_KEY, TOUCH, 1), REPORT, (EV_ABS, 0, 90), REPORT, (EV_KEY, TOUCH, 0), REPORT
    )
    listening.wait_for(touchpad=(A, 0, A, A, 1, A))


def test_the_pointer_of_a_virtual_machine_goes_where_it_is_put(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event5", "tablet")
    listening.rows()
    inputs.send("event5", (EV_ABS, 0, 500), (EV_ABS, 1, 500), REPORT, (EV_ABS, 0, 530), (EV_ABS, 1, 540), REPORT)
    listening.wait_for(tablet=(A, 0, 0, 50, A, A))


def test_a_joystick_has_buttons_and_goes_nowhere_and_a_lid_is_not_opened(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event1", "lid")
    inputs.plug("event2", "joystick")
    listening.rows()
    inputs.send("event2", (EV_ABS, 0, 500), REPORT, *pressed(0x120))
    listening.wait_for(joystick=(A, 1, A, A, A, A))
    assert listening.rows().keys() == {"joystick"}


def test_counts_move_on_once_in_a_period_however_often_they_are_read(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event0", "keyboard")
    inputs.plug("event1", "keyboard", "other")
    listening.rows()
    inputs.send("event0", *pressed(30, 31, 32))
    inputs.send("event1", *pressed(30))
    wait_until(lambda: listening._counting._devices["event1"]._keys == 1)
    assert listening.rows(later=False)["keyboard"] == (0, A, A, A, A, A)
    listening.wait_for(keyboard=(3, A, A, A, A, A), other=(1, A, A, A, A, A))


def test_a_count_is_unknown_where_the_kernel_dropped_events_and_goes_on(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event0", "mouse")
    listening.rows()
    torn: list[Event] = [(EV_REL, 0, 90), DROPPED, (EV_REL, 0, 7), (EV_KEY, LEFT, 1), REPORT]
    inputs.send("event0", (EV_REL, 0, 4), REPORT, *torn, (EV_REL, 0, 5), REPORT)
    device = listening._counting._devices["event0"]
    wait_until(lambda: device._moved == 9.0)
    assert listening.rows() == {"mouse": Absence(Cause.DROPPED, "more events than the kernel keeps")}
    assert listening.rows() == {"mouse": (A, 0, 0, 9, A, A)}


def test_a_device_comes_goes_and_comes_again(inputs: Inputs, listening: Listening) -> None:
    assert listening.rows() == {}
    inputs.plug("event7", "keyboard")
    assert listening.rows() == {"keyboard": (0, A, A, A, A, A)}
    inputs.send("event7", *pressed(30))
    listening.wait_for(keyboard=(1, A, A, A, A, A))
    inputs.unplug("event7")
    wait_until(lambda: listening.rows() == {})
    inputs.plug("event7", "mouse")
    assert listening.rows() == {"mouse": (A, 0, 0, 0, A, A)}


def test_devices_of_one_name_are_told_apart(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event0", "keyboard", "Receiver", "usb-0000:00:14.0-2/input0")
    inputs.plug("event1", "mouse", "Receiver", "usb-0000:00:14.0-2/input1")
    inputs.plug("event2", "mouse", "Receiver", "usb-0000:00:14.0-2/input1")
    inputs.plug("event3", "mouse", "\x1b[31mwild\n\tname" + 200 * "!")
    assert [name[:36] for name in listening.rows()] == [
        "Receiver (usb-0000:00:14.0-2/input0)",
        "Receiver (usb-0000:00:14.0-2/input1)",
        "Receiver (event2)",
        "[31mwild name" + 23 * "!",
    ]


def test_what_cannot_be_opened_or_masked_says_why(
    inputs: Inputs, listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs.plug("event0", "keyboard")
    monkeypatch.undo()  # A pipe refuses the mask, as a kernel before 4.4 does.
    rows = dict(evdev.Counting().read(listening.host))
    assert rows == {"keyboard": Absence(Cause.PROBE_FAILED, "event0: Inappropriate ioctl for device")}
    (inputs.root / "dev/input/event0").unlink()
    assert dict(evdev.Counting().read(listening.host)) == {
        "keyboard": Absence(Cause.NO_SOURCE, "event0: No such file or directory")
    }
    (inputs.root / "sys/class/input/event0/device/capabilities/key").write_text("no bits\n")
    assert dict(evdev.Counting().read(listening.host)) == {
        "event0": Absence(Cause.PROBE_FAILED, "event0 is not a number")
    }


def test_a_device_that_sleeps_is_not_opened(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event0", "keyboard")
    listed = inputs.root / "sys/class/input/event0"
    device = inputs.root / "sys/devices/usb1/event0"
    device.parent.mkdir(parents=True)
    listed.rename(device)
    listed.symlink_to(device)
    (device.parent / "power").mkdir()
    (device.parent / "power/runtime_status").write_text("suspended\n")
    assert listening.rows() == {"keyboard": Absence(Cause.ASLEEP)}
    (device.parent / "power/runtime_status").write_text("active\n")
    assert listening.rows() == {"keyboard": (0, A, A, A, A, A)}


def test_nothing_stays_open_once_nobody_reads_any_more(inputs: Inputs, listening: Listening) -> None:
    inputs.plug("event0", "keyboard")
    listening.rows()
    thread = listening._counting._thread
    assert thread is not None
    listening.host.close()
    thread.join(HANG_S)
    with pytest.raises(OSError, match="No such device or address"):  # Nobody reads that pipe.
        os.open(inputs.root / "dev/input/event0", os.O_WRONLY | os.O_NONBLOCK)


# --- What is typed stays unknown

TYPIST = """
import json, sys
from sysmond.probe import Host
from sysmond.sources import evdev

root, keeps = sys.argv[1:]
minute = 0
evdev.mask = lambda *_: None
evdev.boottime_ns = lambda: minute * 60 * 10**9
counting, host = evdev.Counting(), Host(root)
rows = list(counting.read(host))
if keeps == "events":  # What would be found if nothing were written over them.
    counting._thread._zeros = counting._thread._buffer
held = []
take = evdev.Device.take
def holding(self, events):
    held.extend(code for kind, code, value in evdev._EVENT.iter_unpack(events) if kind == 1 and value == 1)
    take(self, events)
if keeps == "codes":
    evdev.Device.take = holding
print(json.dumps([id(number) for number in range(256)]), flush=True)
for line in sys.stdin:
    minute += 1
    print(json.dumps(list(counting.read(host))), flush=True)
"""
RUN = 8
CLOCKS = {"clocks", "block/0 started_ns"}


def memory_of(pid: int) -> list[bytes]:
    """What a process can write to, as it is now."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            words = line.split()
            if words[1].startswith("rw") and words[-1] != "[vvar]":
                begin, end = (int(word, 16) for word in words[0].split("-"))
                memory.seek(begin)
                found.append(memory.read(end - begin))
    return found


def in_memory(memory: list[bytes], codes: list[int], events: list[bytes], addresses: list[int]) -> set[str]:
    """What is found of what was typed: whole events, or runs of codes, as numbers of any size or as objects."""
    found = {"events" for event in events for piece in memory if event in piece}
    # As they are typed between two readings, and across such: to look for all of them takes five times as long.
    runs = [codes[at : at + RUN] for at in range(0, len(codes) - RUN + 1, RUN // 2)]
    for size in "BHIQ":
        spelled = [pack(f"={RUN}{size}", *run) for run in runs]
        found |= {"codes" for run in spelled for piece in memory if run in piece}
    held = [pack(f"={RUN}Q", *(addresses[code] for code in run)) for run in runs]
    return found | {"codes" for run in held for piece in memory if run in piece}


@pytest.mark.parametrize("keeps", ["nothing", "events", "codes"])
def test_nothing_that_was_typed_is_in_memory_after_the_reading(inputs: Inputs, keeps: str) -> None:
    """By the same search that finds it where somebody keeps it."""
    inputs.plug("event0", "keyboard")
    chance = random.Random(7)
    codes = [chance.randrange(2, 0xF0) for _ in range(24)]
    command = [sys.executable, "-P", "-c", TYPIST, str(inputs.root), keeps]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        addresses = json.loads(process.stdout.readline())
        times = sorted(chance.randrange(1 << 50) for _ in range(len(codes) // RUN))
        events = [
            inputs.send("event0", (EV_KEY, code, 1), (EV_KEY, code, 0), REPORT, at_us=time_us + at)
            for number, time_us in enumerate(times)
            for at, code in enumerate(codes[number * RUN : (number + 1) * RUN])
        ]

        def counted() -> bool:
            print("read", file=process.stdin, flush=True)
            assert process.stdout is not None
            return bool(json.loads(process.stdout.readline()) == [["keyboard", [len(codes), A, A, A, A, A]]])

        wait_until(counted)
        some = events[:: RUN // 2]  # For the same reason: a buffer has them one behind the other.
        whole = [event[at : at + EVENT_BYTES] for event in some for at in range(0, len(event), EVENT_BYTES)]
        found = in_memory(memory_of(process.pid), codes, whole, addresses)
        process.stdin.close()
    assert found == ({keeps} if keeps != "nothing" else set())


def recorded(
    bench: Bench, inputs: Inputs, monkeypatch: pytest.MonkeyPatch, texts: list[list[int]]
) -> tuple[list[tuple[int, int, bytes]], dict[str, object]]:
    """Record some minutes of typing: the frames of the ring, and the datasets of its segment, without clocks."""
    [probe] = probes.sysmond_probes()
    bench.probes.clear()
    bench.planned.clear()
    bench.root = str(inputs.root)
    bench.take(probe)
    minute = 0
    monkeypatch.setattr(evdev, "boottime_ns", lambda: minute * 60 * SECOND)
    sampler = bench.sampler(Lane.BACKGROUND)
    sampler.tick(0)
    counting = probe.read.__self__  # type: ignore[attr-defined]
    typed = 0
    for text in texts:
        typed += len(text)
        inputs.send("event0", *pressed(*text))
        device = counting._devices["event0"]
        wait_until(lambda device=device, typed=typed: device._keys == typed)  # type: ignore[misc]
        minute += 1
        sampler.tick(minute * 60 * SECOND)
    [ring] = bench.rings("background", "restricted")
    copied = snapshot(ring)
    frames = [copied.frame(place) for place in copied.frames]
    sampler.close()
    segment = bench.runtime / "segment.h5"
    segment.write_bytes(dense.encode([of_snapshot(copied)]))
    datasets: dict[str, object] = {}

    def note(name: str, item: h5py.Group | h5py.Dataset) -> None:
        datasets.update({f"{name} {word}": str(value) for word, value in item.attrs.items()})
        if isinstance(item, h5py.Dataset):
            datasets[name] = str(item.dtype), item.shape, item[()].tobytes()

    with h5py.File(segment) as file:
        file.visititems(note)
    os.unlink(ring)
    return [(kind, ident, payload) for kind, ident, _, payload in frames if kind != RELATION], datasets


def test_two_texts_of_equal_length_and_rhythm_are_recorded_alike(
    inputs: Inputs, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evdev, "mask", lambda *_: None)
    inputs.plug("event0", "keyboard")
    chance = random.Random(11)
    rhythm = [12, 0, 31, 7]
    first, second, longer = (
        recorded(bench, inputs, monkeypatch, [[chance.randrange(1, 0x100) for _ in range(count)] for count in counts])
        for counts in (rhythm, rhythm, [12, 0, 32, 7])
    )
    frames, datasets = first
    assert frames == second[0]
    assert datasets.keys() == second[1].keys()
    assert {name for name in datasets if datasets[name] != second[1][name]} <= CLOCKS
    assert frames != longer[0]
    assert {name for name in datasets if datasets[name] != longer[1][name]} - CLOCKS


# --- The kernel's own devices


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    made = Listening(Path("/"))
    monkeypatch.setattr(evdev, "boottime_ns", lambda: made.minute * 60 * SECOND)
    yield made
    made.host.close()


@pytest.mark.skipif(not os.access(uinput.NODE, os.W_OK), reason="no /dev/uinput here that may be written to")
def test_devices_of_the_kernel_are_counted_and_what_does_not_count_never_comes(counting: Listening) -> None:
    keyboard = uinput.Device("sysmond test keyboard", range(1, 200))
    mouse = uinput.Device("sysmond test mouse", range(LEFT, LEFT + 8), (0, 1, 6, 8, 11, 12))
    pad = uinput.Device("sysmond test pad", (LEFT, TOUCH, 0x145), axes={0: 20, 1: 40})
    names = {"sysmond test keyboard", "sysmond test mouse", "sysmond test pad"}
    wait_until(lambda: counting.rows().keys() >= names)
    for code in range(2, 102):
        keyboard.send((uinput.EV_MSC, uinput.MSC_SCAN, code), *pressed(code))
        time.sleep(0.01)  # As fast as nobody types, and slower than the kernel drops.
    for _ in range(100):
        mouse.send((EV_REL, 0, 3), (EV_REL, 1, -4), REPORT)
        time.sleep(0.001)
    mouse.send((EV_REL, 8, -1), (EV_REL, 11, -120), REPORT, *pressed(LEFT))
    pad.send((EV_ABS, 0, 1000), (EV_ABS, 1, 1000), (EV_KEY, TOUCH, 1), (EV_KEY, 0x145, 1), REPORT)
    pad.send((EV_ABS, 0, 1060), (EV_ABS, 1, 1160), REPORT, (EV_KEY, TOUCH, 0), (EV_KEY, 0x145, 0), REPORT)
    expected = {
        "sysmond test keyboard": (100, A, A, A, A, A),
        "sysmond test mouse": (A, 1, 1, 500, A, A),
        "sysmond test pad": (A, 0, A, A, 1, 5000),
    }
    counting.wait_for(**expected)
    for device in (keyboard, mouse, pad):
        device.unplug()
    wait_until(lambda: names.isdisjoint(counting.rows()))
