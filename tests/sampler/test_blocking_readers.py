# SPDX-License-Identifier: Apache-2.0
"""Sources in threads and processes: what their answers may be, how they end, and that none is left behind."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sysmond.base.model import ABSENT, Absence, Cause, Lane, Sensitivity, Table
from sysmond.plan.plan import PlannedProbe
from sysmond.probe import Host, Probe, counter
from sysmond.sampler import blocking_readers
from sysmond.sampler.blocking_readers import Process, Reader, bury, declared, probe_of, wait_for
from sysmond.sampler.source import Reading, Source
from sysmond.sampler.turns import ReadingTurns

SECOND = 1_000_000_000
LIMIT_S = 60.0

PLUGIN = """
import os, time
from sysmond.probe import Probe, Table, counter, hookimpl, text

def speak(content):
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and os.readlink("/proc/self/fd/" + name).startswith("socket:"):
            os.write(int(name), content)
            return

def read(host):
    {body}

@hookimpl
def sysmond_probes():
    columns = (counter("n", "1", "A number."), text("word", "A word."))
    return [Probe(Table("odd", columns, "thing"), read, subsystems=("block",), deadline_s=20.0)]
"""


class Bench:
    """A judge that keeps what it was told, and the plugin it is told about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.processes: list[Process] = []
        self.bars = False

    def hangs(self, source: Source, reason: str) -> None:
        self.told.append(f"hangs: {reason}")

    def offends(self, source: Source, reason: str) -> None:
        self.told.append(f"offends: {reason}")
        if self.bars:
            source.barred = Absence(Cause.QUARANTINED, reason)

    def fails_to_load(self, planned: PlannedProbe, reason: str) -> None:
        raise AssertionError(reason)

    def planned(self, body: str) -> PlannedProbe:
        plugin = self.folder / "odd.py"
        plugin.write_text(PLUGIN.format(body=body))
        return PlannedProbe("odd", str(plugin), Lane.BACKGROUND, SECOND, Sensitivity.PUBLIC)

    def reader(self, body: str) -> Reader:
        planned = self.planned(body)
        process = Process(planned, "/")
        self.processes.append(process)
        declared([process], LIMIT_S)
        return Reader(Source(planned, probe_of(process), Host(), 4.0), "/", self, process)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for process in made.processes:
        process.kill("the test is over")
    bury(made.processes)
    assert all(process.is_gone() for process in made.processes)


def read(reader: Reader, tick: int = 1) -> object:
    reading = reader.begin(tick * SECOND)
    if reading is None:
        wait_for([reader], time.monotonic())
        reading = reader.finish()
    return reading


def test_what_a_process_declares_and_reads_is_what_the_probe_gives(bench: Bench) -> None:
    reader = bench.reader('yield "a\\udcff", (-(2**62), "röd")\n    yield "b", (-2**63, "")')
    assert reader.source.probe.subsystems == ("block",)
    assert reader.source.deadline_ns == 20 * SECOND
    assert read(reader) == Reading(("a\udcff", "b"), [-(2**62), "röd", ABSENT, ""])
    assert bench.told == []


def test_why_an_instance_has_nothing_comes_over_as_well(bench: Bench) -> None:
    body = (
        'from sysmond.probe import Absence, Cause\n    yield "a", (1, "x")\n    yield "b", Absence(Cause.ASLEEP, "D3")'
    )
    reading = read(bench.reader(body))
    assert reading == Reading(("a", "b"), [1, "x", ABSENT, ABSENT], (Absence(Cause.ASLEEP, "odd@b: D3"),))


@pytest.mark.parametrize(
    ("body", "cause", "detail"),
    [
        ('raise FileNotFoundError(2, "no", "/x")', Cause.NO_SOURCE, "'/x': no"),
        ('raise PermissionError(13, "no")', Cause.NO_PERMISSION, "no"),
        ('yield "a", (b"bytes", "")', Cause.PROBE_FAILED, "TypeError: Object of type bytes is not JSON serializable"),
        ('yield "a", (1, "")\n    yield "a", (1, "")', Cause.PROBE_FAILED, "ValueError: instance 'a' is given twice"),
        (
            'yield "a", (1)',
            Cause.PROBE_FAILED,
            "TypeError: odd.py:11: row 'a': 1 came for its values; expected a tuple",
        ),
        ("raise SystemExit(5)", Cause.PROBE_FAILED, "SystemExit: 5"),
    ],
)
def test_what_a_probe_does_wrong_there_is_the_same_absence(bench: Bench, body: str, cause: Cause, detail: str) -> None:
    reader = bench.reader(body)
    assert read(reader) == Absence(cause, detail)
    assert reader.source.cost.failures == 1
    assert bench.told == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("b'nonsense\\n'", "its answer is not JSON"),
        ("b'[1]\\n'", "its answer is not an object"),
        ("b'[' * 100000 + b'\\n'", "its answer is not JSON"),
    ],
)
def test_an_answer_that_is_none_ends_the_process(bench: Bench, said: str, reason: str) -> None:
    reader = bench.reader(f"speak({said}); time.sleep(3600)")
    assert read(reader) == Absence(Cause.PROBE_FAILED, reason)
    assert bench.told == [f"offends: {reason}"]
    bench.processes.append(reader.process or bench.processes[0])


@pytest.mark.parametrize(
    "said",
    [
        "b'{}\\n'",
        'b\'{"took_s": 1, "names": 5, "values": []}\\n\'',
        'b\'{"took_s": "x", "names": [], "values": []}\\n\'',
        'b\'{"took_s": 1, "names": [[1]], "values": []}\\n\'',
        'b\'{"took_s": 1, "cause": "boredom", "detail": ""}\\n\'',
    ],
)
def test_an_answer_that_makes_no_sense_is_a_gap(bench: Bench, said: str) -> None:
    reading = read(bench.reader(f"speak({said}); time.sleep(3600)"))
    assert isinstance(reading, Absence)
    assert reading.cause is Cause.PROBE_FAILED


def test_an_answer_without_end_is_cut_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_readers, "ANSWER_BYTES_MAX", 1_000_000)
    reader = bench.reader("\n    while True: speak(b'x' * 100_000)")
    assert read(reader) == Absence(Cause.PROBE_FAILED, "its answer is longer than 1000000 bytes")
    bench.processes.append(reader.process or bench.processes[0])


def test_a_process_that_ends_is_replaced_and_judged_once(bench: Bench) -> None:
    reader = bench.reader('yield "a", (os.getpid(), "")')
    first = read(reader)
    process = bench.processes[0]
    os.kill(process.pid, signal.SIGKILL)
    assert read(reader, 2) == Absence(Cause.PROBE_FAILED, "its process ended (SIGKILL)")
    second = read(reader, 3)
    assert reader.process is not None
    bench.processes.append(reader.process)
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    assert first[1] != second[1]
    assert bench.told == ["offends: its process ended (SIGKILL)"]


def test_a_barred_source_has_no_process_until_it_is_released(bench: Bench) -> None:
    bench.bars = True
    reader = bench.reader('yield "a", (1, "")')
    os.kill(bench.processes[0].pid, signal.SIGKILL)
    bench.processes[0].hear()
    deadline_s = time.monotonic() + LIMIT_S
    while not bench.processes[0].end and time.monotonic() < deadline_s:
        bench.processes[0].hear()
    barred = Absence(Cause.QUARANTINED, "its process ended (SIGKILL)")
    assert [read(reader, tick) for tick in (1, 2, 3)] == [barred] * 3
    assert reader.process is bench.processes[0]
    reader.source.barred = None
    assert read(reader, 4) == Reading(("a",), [1, ""])
    assert reader.process is not None
    assert reader.process is not bench.processes[0]
    bench.processes.append(reader.process)


def test_at_most_one_process_that_cannot_be_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = bench.reader("time.sleep(3600)")
    reader.source.deadline_ns = SECOND // 100
    held = bench.processes[0]
    released: list[int] = []
    is_gone: Callable[[Process], bool] = Process.is_gone
    monkeypatch.setattr(Process, "is_gone", lambda process: bool(released) and is_gone(process))
    assert read(reader, 1) == Absence(Cause.PROBE_FAILED, "no answer within 0.01 s")
    assert read(reader, 2) == Absence(Cause.PROBE_FAILED, "no answer within 1 s")
    for tick in (3, 4):  # The kernel holds it.
        assert read(reader, tick) == Absence(
            Cause.PROBE_FAILED, f"process {held.pid}, which reads it, cannot be killed"
        )
        assert reader.process is held
    released.append(1)
    while not held.is_gone():
        time.sleep(0.001)
    assert read(reader, 5) == Absence(Cause.PROBE_FAILED, "no answer within 0.01 s")
    assert reader.process is not held
    assert bench.told == ["offends: no answer within 1 s"]
    bench.processes.append(reader.process or held)


def test_a_process_ends_with_its_lane(bench: Bench, tmp_path: Path) -> None:
    planned = bench.planned("time.sleep(3600)")
    reading, writing = os.pipe()
    lane = os.fork()
    if lane == 0:
        try:
            process = Process(planned, "/")
            declared([process], LIMIT_S)
            process.ask("read")
            os.write(writing, str(process.pid).encode())
        finally:
            os._exit(0)
    pid = int(os.read(reading, 20))
    os.waitpid(lane, 0)
    deadline_s = time.monotonic() + LIMIT_S
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline_s:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break  # Who adopted it has not looked yet.
        time.sleep(0.01)
    assert time.monotonic() < deadline_s
    os.close(reading)
    os.close(writing)


def test_a_thread_that_hangs_is_left_alone_and_a_process_takes_over(bench: Bench) -> None:
    planned = bench.planned('yield "a", (1, "")')
    source = Source(planned, Probe(Table("odd", (counter("n", "1", "N."),)), sleeping), Host(), 0.01)
    reader = Reader(source, "/", bench)
    assert reader.begin(SECOND) is None
    assert reader.in_thread
    ReadingTurns().read([reader.in_thread], lambda _: None)
    ended: list[bool] = []
    source.host.at_close(lambda: ended.append(True))
    assert reader.finish() == Absence(Cause.PROBE_FAILED, "no answer within 0.01 s")
    assert not ended
    assert reader.begin(2 * SECOND) == Absence(Cause.PROBE_FAILED, "no answer within 1 s")
    assert ended == [True]  # What the probe left going in this process.
    assert reader.process is not None
    bench.processes.append(reader.process)
    source.deadline_ns = round(LIMIT_S) * SECOND
    wait_for([reader], time.monotonic())
    assert read(reader, 3) == Reading(("a",), [1, ""])
    assert bench.told == ["hangs: no answer within 1 s"]


def sleeping(host: Host) -> Iterator[tuple[str, list[int]]]:
    time.sleep(3)
    yield "", [1]
