# SPDX-License-Identifier: Apache-2.0
"""The sampler in this process: what probes may do wrong, what hangs, what is short of room, and that nothing grows."""

import errno
import gc
import os
import select
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sysmond.base.model import ABSENT, Absence, Cause, Lane, Sensitivity
from sysmond.machine.folders import Folders, create_classes
from sysmond.plan.plan import builtin, import_plugin, offered_probes
from sysmond.plan.settings import Settings
from sysmond.probe import Host, Table, counter, text
from sysmond.ring.frame import SUFFIX
from sysmond.ring.leftovers import culprits, remove_sealed
from sysmond.ring.progress import Progress, Sealed
from sysmond.ring.snapshot import fill, snapshot
from sysmond.ring.writer import RingWriter
from sysmond.sampler import rings as ring_room
from sysmond.sampler.lane import Sampler
from sysmond.sampler.rings import OLD_RINGS_MAX
from sysmond.store.of_ring import Hole, of_snapshot
from tests.support.bench import SECOND, Bench, Many, Read, steady
from tests.support.waiting import wait_until

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture
def bench(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(runtime, monkeypatch)


def absences(path: str, name: str) -> list[Hole]:
    return [hole for hole in of_snapshot(snapshot(path)).holes if hole.table == name]


def rows(path: str, name: str) -> int:
    """At how many ticks a table has a value."""
    count = 0
    for block in of_snapshot(snapshot(path)).blocks:
        mine = [row for row, key in enumerate(block.keys) if key.table == name]
        if mine:
            count += int((block.read(mine) != ABSENT).any(axis=0).sum())
    return count


def raising(problem: BaseException) -> Read:
    def read(host: Host) -> Any:
        raise problem

    return read


class Unspeakable(Exception):  # noqa: N818  its name is what is left to say
    def __str__(self) -> str:
        raise ValueError("not even this")


def half(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
    yield "a", (1, 2)
    raise OSError(errno.EIO, "half way")


WRONG: dict[str, Any] = {
    "too_few": lambda host: [("a", (1,))],
    "too_many": lambda host: [("a", (1, 2, 3))],
    "a_float": lambda host: [("a", (1, 2.5))],
    "a_string": lambda host: [("a", (1, "two"))],
    "none_value": lambda host: [("a", (1, None))],
    "none_row": lambda host: [("a", None)],
    "none_pair": lambda host: [None],
    "none_at_all": lambda host: None,
    "a_number": lambda host: 5,
    "twice": lambda host: [("a", (1, 2)), ("a", (3, 4))],
    "number_name": lambda host: [(7, (1, 2))],
    "zero_byte": lambda host: [("a\0b", (1, 2))],
    "endless": lambda host: iter(lambda: ("a", (1, 2)), None),
    "half": half,
    "exits": raising(SystemExit(1)),
    "recursion": raising(RecursionError("deep")),
    "memory": raising(MemoryError()),
    "unspeakable": raising(Unspeakable()),
}


def test_an_instance_may_say_why_it_has_nothing_and_keeps_its_place(bench: Bench) -> None:
    def read(host: Host) -> Iterator[tuple[str, Sequence[int | str]]]:
        yield "a", (1, 2)
        yield "b", Absence(Cause.ASLEEP, "suspended") if host.tick == 2 else (3, 4)

    bench.offer("sleepy", read)
    sampler = bench.sampler()
    for tick in range(1, 4):
        sampler.tick(tick * SECOND)
    (ring,) = bench.rings()
    assert [(hole.start_ns // SECOND, hole.cause, hole.detail) for hole in absences(ring, "sleepy")] == [
        (2, Cause.ASLEEP, "sleepy@b: suspended")
    ]
    (block,) = of_snapshot(snapshot(ring)).blocks
    assert block.read(range(4)).tolist() == [
        [1, 1, 1],
        [2, 2, 2],
        [3, ABSENT, 3],
        [4, ABSENT, 4],
    ]
    sampler.close()


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_probe_does_wrong_is_a_gap_and_the_others_go_on(bench: Bench, wrong: str) -> None:
    bench.offer("wrong", WRONG[wrong])
    bench.offer("good", steady)
    sampler = bench.sampler()
    for tick in range(1, 4):
        sampler.tick(tick * SECOND)
    (ring,) = bench.rings()
    holes = absences(ring, "wrong")
    assert {hole.cause for hole in holes} == {Cause.PROBE_FAILED}
    assert sum(hole.end_ns - hole.start_ns for hole in holes) == 3 * SECOND
    assert (rows(ring, "wrong"), rows(ring, "good")) == (0, 3)
    sampler.close()


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        (PermissionError(errno.EACCES, "no"), Cause.NO_PERMISSION),
        (FileNotFoundError(errno.ENOENT, "no"), Cause.NO_SOURCE),
        (FileNotFoundError("no such thing"), Cause.NO_SOURCE),
        (OSError(errno.ENODEV, "no"), Cause.NO_SOURCE),
        (OSError(errno.EIO, "no"), Cause.PROBE_FAILED),
        (ValueError("no"), Cause.PROBE_FAILED),
    ],
)
def test_a_failure_says_what_it_means(bench: Bench, problem: Exception, cause: Cause) -> None:
    bench.offer("wrong", raising(problem))
    sampler = bench.sampler()
    sampler.tick(SECOND)
    (hole,) = absences(bench.rings()[0], "wrong")
    assert hole.cause is cause
    assert "no" in hole.detail
    sampler.close()


def test_a_pure_probe_is_asked_again_only_when_its_files_change(bench: Bench, tmp_path: Path) -> None:
    asked = 0

    def read(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        nonlocal asked
        asked += 1
        yield "a", (int(host.read(str(tmp_path / "file"))), 2**63 if asked > 2 else 0)

    bench.offer("pure", read)
    bench.probes["pure"] = bench.probes["pure"]._replace(pure=True)
    sampler = bench.sampler()
    for tick, content in enumerate("1112222x3", 1):
        (tmp_path / "file").write_text(content)
        sampler.tick(tick * SECOND)
    assert asked == 4
    recording = of_snapshot(snapshot(bench.rings()[0]))
    (block,) = recording.blocks
    values, large = block.read([0, 1]).tolist()
    assert values == [1, 1, 1, 2, 2, 2, 2, ABSENT, 3]
    assert [hole.start_ns // SECOND for hole in recording.holes] == [8]
    assert large[-1] == ABSENT
    assert sampler.own.dropped == 1
    sampler.close()


def test_pure_probes_read_nothing_but_files() -> None:
    class Files(Host):
        def names(self, path: str) -> list[str]:
            raise AssertionError(path)

        read_anew = names  # type: ignore[assignment]

    pure = [probe for module in builtin_modules() for probe in offered_probes(module) if probe.pure]
    assert len(pure) > 10
    for probe in pure:
        host = Files(str(FIXTURES / "linux618"))
        first = [(name, list(row)) for name, row in probe.read(host)]
        noted = host.note()
        assert noted, probe.table.name
        host.new_tick()
        assert host.is_unchanged(noted)
        assert [(name, list(row)) for name, row in probe.read(host)] == first
        host.close()


def builtin_modules() -> list[ModuleType]:
    return [import_plugin(planned.plugin) for planned in {p.plugin: p for p in builtin().probes}.values()]


def test_texts_become_ids_and_back(bench: Bench) -> None:
    declared = Table("named", (text("kind", "A word."), counter("count", "1", "A number.")), per="thing")
    bench.offer("named", lambda host: [("a", ("röd", 1)), ("b", ("", 2))], declared=declared)
    sampler = bench.sampler()
    sampler.tick(SECOND)
    recording = of_snapshot(snapshot(bench.rings()[0]))
    (block,) = recording.blocks
    words = {key.instance: int(block.read([row])[0][0]) for row, key in enumerate(block.keys) if key.metric == "kind"}
    assert {name: recording.texts[ident] for name, ident in words.items()} == {"a": "röd", "b": ""}
    sampler.close()


def test_each_probe_has_its_own_interval_below_a_second_too(bench: Bench) -> None:
    bench.offer("fast", steady, interval_ns=SECOND // 10)
    bench.offer("slow", steady, interval_ns=2 * SECOND)
    sampler = bench.sampler()
    for tick in range(10, 51):
        sampler.tick(tick * SECOND // 10)
    (ring,) = bench.rings()
    by_interval = {block.strand.interval_ns: len(block.ticks) for block in of_snapshot(snapshot(ring)).blocks}
    assert by_interval == {SECOND // 10: 41, 2 * SECOND: 3}  # The slow one first, and at 2 s and 4 s.
    sampler.close()


def test_classes_do_not_mix(bench: Bench) -> None:
    bench.offer("open", steady)
    bench.offer("secret", steady, sensitivity=Sensitivity.RESTRICTED)
    sampler = bench.sampler()
    sampler.tick(SECOND)
    for sensitivity, mode in (("public", 0o644), ("restricted", 0o640)):
        (ring,) = bench.rings(sensitivity=sensitivity)
        assert os.stat(ring).st_mode & 0o777 == mode
        assert rows(ring, "open" if sensitivity == "public" else "secret") == 1
    sampler.close()


def test_no_room_is_counted_said_once_and_heals(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    bench.offer("good", steady)
    sampler = bench.sampler()
    monkeypatch.setattr(ring_room, "RingWriter", full)
    for tick in range(1, 25):
        sampler.tick(tick * SECOND)
    assert sampler.own.dropped == 24
    assert [line for line in bench.said if "no room for a ring" in line] == bench.said
    assert len(bench.said) == 1
    monkeypatch.setattr(ring_room, "RingWriter", RingWriter)
    for tick in range(25, 45):
        sampler.tick(tick * SECOND)
    assert rows(bench.rings()[0], "good") == 14  # Tried again every 10 s: from 31 s on.
    assert "again" in bench.said[-1]
    sampler._begin_anew("public")
    sampler.tick(45 * SECOND)
    assert len(bench.said) == 2  # It healed once.
    monkeypatch.setattr(ring_room, "RingWriter", full)
    sampler._begin_anew("public")
    sampler.tick(46 * SECOND)
    assert "no room for a ring" in bench.said[-1]
    sampler.close()


def test_a_background_probe_that_is_slow_costs_itself_only_and_is_recorded_a_tick_later(bench: Bench) -> None:
    released = threading.Event()

    def slow(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        released.wait()
        yield from steady(host)

    bench.offer("slow", slow, lane=Lane.BACKGROUND, interval_ns=10 * SECOND)
    bench.probes["slow"] = bench.probes["slow"]._replace(deadline_s=0.05)
    bench.offer("good", steady, lane=Lane.BACKGROUND)
    sampler = bench.sampler(Lane.BACKGROUND)
    others = set(threading.enumerate())  # Those of tests before may end meanwhile.
    for tick in range(10, 20):
        sampler.tick(tick * SECOND)
    (ring,) = bench.rings("background")
    assert (rows(ring, "slow"), rows(ring, "good")) == (0, 10)
    (hole,) = absences(ring, "slow")
    assert (hole.start_ns, hole.end_ns, hole.detail) == (10 * SECOND, 20 * SECOND, "no answer within 0.05 s")
    assert len(set(threading.enumerate()) - others) == 2  # The slow one has its own.
    released.set()
    wait_until(lambda: len(set(threading.enumerate()) - others) == 1)
    bench.probes["slow"] = bench.probes["slow"]._replace(deadline_s=60.0)
    sampler.tick(20 * SECOND)
    wait_until(lambda: len(set(threading.enumerate()) - others) == 1)  # Who was late is read by itself.
    assert rows(ring, "slow") == 1  # What took longer than its deadline, but was done by now.
    source = sampler._roster.sources[0]
    source.deadline_ns = 60 * SECOND
    sampler.tick(30 * SECOND)
    assert (rows(ring, "slow"), len(absences(ring, "slow"))) == (2, 1)
    sampler.close()


def test_rings_that_are_over_and_sealed_are_removed(bench: Bench) -> None:
    bench.offer("good", steady)
    for closes in (True, False):
        sampler = bench.sampler()
        sampler.tick(SECOND)
        if closes:
            sampler.close()
    closed, running = bench.rings()
    folders = Folders(str(bench.runtime / "state"), str(bench.runtime))
    (bench.runtime / "archiver").mkdir()
    remove_sealed(folders, "sampler")
    assert bench.rings() == [closed, running]  # Nothing is sealed.
    Progress({path: Sealed(fill(path)[0], SECOND, int(path == closed)) for path in (closed, running)}).write(folders)
    remove_sealed(folders, "background")
    assert bench.rings() == [closed, running]  # Another writer's.
    remove_sealed(folders, "sampler")
    assert bench.rings() == [running]  # Its writer, this process, is alive.


@pytest.mark.parametrize("interval_ns", [SECOND, 20 * SECOND])
def test_instances_that_find_no_room_have_a_larger_ring_follow(bench: Bench, interval_ns: int) -> None:
    many = Many()
    bench.offer("many", many, interval_ns=interval_ns)
    bench.offer("good", steady)
    sampler = bench.sampler(ring_bytes=16 << 20)
    sampler.tick(SECOND)
    many.count = 10_000  # As of a first reading that came too late to be judged by.
    for tick in range(20, 64):
        sampler.tick(tick * SECOND)
    sampler.close()
    assert sampler.own.dropped == 20_000
    dropped = {source.table: source.cost.dropped for _, group in sampler._roster.groups for source in group}
    assert dropped == {"good": 0, "many": 20_000}
    first, second = bench.rings()
    assert os.path.getsize(second) > os.path.getsize(first)
    keys = [key for block in of_snapshot(snapshot(second)).blocks for key in block.keys]
    assert sum(key.table == "many" for key in keys) == 20_000
    assert [hole.cause for hole in of_snapshot(snapshot(first)).holes] == [Cause.DROPPED]


def test_a_machine_without_one_more_thread_is_an_absence(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.offer("good", steady, lane=Lane.BACKGROUND)
    sampler = bench.sampler(Lane.BACKGROUND)

    def start(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", start)
        sampler.tick(SECOND)
    sampler.tick(2 * SECOND)
    sampler.tick(3 * SECOND)
    sampler.close()
    (ring,) = bench.rings("background")
    assert rows(ring, "good") == 2
    assert [hole.detail for hole in absences(ring, "good")] == ["RuntimeError: can't start new thread"]


def test_what_no_ring_may_hold_has_none_follow(bench: Bench) -> None:
    many = Many()
    bench.offer("many", many)
    sampler = bench.sampler(ring_bytes=1 << 20)
    sampler.tick(SECOND)
    many.count = 60_000
    for tick in range(2, 12):
        sampler.tick(tick * SECOND)
    assert len(bench.rings()) <= 2
    assert sampler.own.dropped == 10 * 120_000
    sampler.close()


def test_old_rings_are_bounded_and_the_oldest_by_number_goes_first(bench: Bench) -> None:
    bench.offer("good", steady)
    sampler = bench.sampler()
    sampler.tick(SECOND)
    (ring,) = bench.rings()
    content = Path(ring).read_bytes()
    sampler.close()
    os.unlink(ring)
    folder = bench.runtime / "sampler/public"
    for started in (999, *range(1000, 1000 + OLD_RINGS_MAX)):  # As text "999" would be the newest.
        (folder / f"{started}{SUFFIX}").write_bytes(content)
    (folder / f"5{SUFFIX}.new").write_bytes(content)
    sampler = bench.sampler()
    assert {path.name for path in folder.iterdir()} == {f"{n}{SUFFIX}" for n in range(1000, 1000 + OLD_RINGS_MAX)}
    assert sampler.own.dropped == 1


def test_a_lane_that_died_names_its_culprit_once_and_whatever_lies_there_is_in_nobodys_way(bench: Bench) -> None:
    for name in ("first", "second"):
        bench.offer(name, steady)
    bench.offer("third", steady, sensitivity=Sensitivity.RESTRICTED)
    died = bench.sampler()
    for tick in range(1, 400):
        died.tick(tick * SECOND)
    folder = bench.runtime / "sampler"
    assert culprits(str(folder), 0) == set()
    died._rings.mark(died._roster.sources[1])
    died._rings.mark(died._roster.sources[2])
    early = bench.sampler()  # It dies before it has a ring.
    early._rings.mark(early._roster.sources[0])
    os.mkfifo(folder / f"public/{2**60}.ring")
    os.mkfifo(folder / "1.reading")
    (folder / f"public/{2**61}.ring").write_bytes(b"a wedding ring")
    assert culprits(str(folder), 2**59) == {"first"}
    assert culprits(str(folder), 0) == {"second", "third"}
    died.close()
    assert culprits(str(folder), 0) == set()


def test_orders_to_forget_are_checked(bench: Bench) -> None:
    bench.offer("good", steady)
    sampler = bench.sampler()
    sampler.tick(SECOND)
    name = f"public/{os.path.basename(bench.rings()[0])}"
    assert "being written" in str(sampler._obey({"do": "forget", "ring": name}))
    for wrong in ("../x", "public/x", "secret/1.ring", "public/../1.ring", "public/a/b/1.ring", 5):
        assert "not a ring" in str(sampler._obey({"do": "forget", "ring": wrong}))
    assert "not an order" in str(sampler._obey({"do": "sing"}))
    other = bench.runtime / "sampler/public" / f"1{SUFFIX}"
    other.touch()
    assert sampler._obey({"do": "forget", "ring": f"public/{other.name}"}) == {"ok": "gone"}
    assert sampler._obey({"do": "forget", "ring": f"public/{other.name}"}) == {"ok": "already gone"}
    sampler.close()


@contextmanager
def signals_kept() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        wakeup = signal.set_wakeup_fd(-1)
        if wakeup >= 0:
            os.close(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        gc.unfreeze()
        gc.enable()


def test_a_lane_told_to_end_before_its_first_tick_ticks_once_on_the_grid(bench: Bench) -> None:
    bench.offer("good", steady, lane=Lane.BACKGROUND, interval_ns=3600 * SECOND)
    with signals_kept():
        sampler = bench.sampler(Lane.BACKGROUND, ticks=1)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        signal.raise_signal(signal.SIGTERM)
        assert sampler.run() == 0
        assert gc.get_freeze_count()  # What there is after the first tick is not looked at for garbage again.
    (block,) = of_snapshot(snapshot(bench.rings("background")[0])).blocks
    assert [int(tick) % SECOND for tick in block.ticks] == [0]


def hour_long(bench: Bench, read: Read, ticks: int) -> list[int]:
    """Run a background lane that reads one probe once an hour; give the seconds at which it ticked."""
    bench.offer("seldom", read, lane=Lane.BACKGROUND, interval_ns=3600 * SECOND)
    with signals_kept():
        assert bench.sampler(Lane.BACKGROUND).run(ticks) == 0
    (block,) = of_snapshot(snapshot(bench.rings("background")[0])).blocks
    assert all(tick % SECOND == 0 for tick in block.ticks)
    return [int(tick) // SECOND for tick in block.ticks]


def test_a_probe_that_waits_for_something_is_read_again_at_the_next_second(bench: Bench) -> None:
    def read(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        if host.tick < 3:
            host.read_soon()
        yield "a", (host.tick, 2)

    first, second, third = hour_long(bench, read, 3)
    assert first < second < third < first + 60


def test_a_probe_is_read_at_the_next_second_when_what_it_waits_for_comes(bench: Bench) -> None:
    reading, writing = os.pipe()

    def read(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        if host.wakes is None:
            host.wakes = select.epoll()
            host.wakes.register(reading, select.EPOLLIN | select.EPOLLET)
            threading.Timer(0.1, os.write, (writing, b"!")).start()
        yield "a", (host.tick, 2)

    first, second = hour_long(bench, read, 2)
    assert first < second < first + 60
    os.close(reading)
    os.close(writing)


def test_the_end_of_the_parent_ends_a_lane_that_waits_for_long(bench: Bench) -> None:
    bench.offer("good", steady, lane=Lane.BACKGROUND, interval_ns=3600 * SECOND)
    reading, writing = os.pipe()
    with signals_kept():
        sampler = bench.sampler(Lane.BACKGROUND)
        sampler._settings = sampler._settings._replace(lifeline=reading)
        os.close(writing)
        assert sampler.run() == 0
    os.close(reading)


def test_an_hour_of_ticks_with_failing_probes_leaves_nothing_to_collect(bench: Bench) -> None:
    count = iter(range(10**9))

    def changing(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        number = next(count)
        yield f"thing{number % 7}", (number, number)

    def reraising(host: Host) -> Any:
        try:
            host.read("/nowhere")
        except OSError as missing:
            raise ValueError("not understood") from missing

    bench.offer("good", steady)
    bench.offer("changing", changing)
    bench.offer("half", half)
    bench.offer("missing", lambda host: [("", (host.integer("/nowhere"), len(host.read("/nowhere"))))])
    bench.offer("reraising", reraising)
    for name in ("too_few", "a_float", "twice", "exits", "none_row", "unspeakable"):
        bench.offer(name, WRONG[name])
    sampler = bench.sampler()

    def hour(start: int, seconds: int) -> None:
        for tick in range(start, start + seconds):
            sampler.tick(tick * SECOND)

    hour(1, 200)  # What is kept for good, as descriptors and the last names, is there by then.
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        hour(1000, 3600)
        grown = len(gc.get_objects()) - before
        assert gc.collect() == 0
        assert grown <= 10
    finally:
        if was_enabled:
            gc.enable()
    sampler.close()


@pytest.mark.parametrize(("lane", "stays"), [(Lane.REALTIME, True), (Lane.BACKGROUND, False)])
def test_only_the_real_time_lane_has_its_rings_in_memory_before_it_writes_there(
    runtime: Path, lane: Lane, stays: bool
) -> None:
    part = "sampler" if lane is Lane.REALTIME else "background"
    create_classes(str(runtime / part))
    settings = Settings(Folders(str(runtime / "state"), str(runtime)), root=str(FIXTURES / "linux612"))
    sampler = Sampler(settings, builtin(), lane, lambda _: None)
    sampler.tick(SECOND)
    sizes = [line.split() for line in Path("/proc/self/smaps").read_text().splitlines()]
    at = next(number for number, words in enumerate(sizes) if words[-1].startswith(f"{runtime}/{part}/public/"))
    mapped, resident = (next(words for words in sizes[at:] if words[0] == name)[1] for name in ("Size:", "Rss:"))
    sampler.close()
    assert (mapped == resident) == stays


def test_every_built_in_probe_samples_an_hour_without_garbage(runtime: Path) -> None:
    """With the real probes, on files of a real machine that is not this one."""
    create_classes(str(runtime / "sampler"))
    folders = Folders(str(runtime / "state"), str(runtime))
    said: list[str] = []
    sampler = Sampler(Settings(folders, root=str(FIXTURES / "linux612")), builtin(), Lane.REALTIME, said.append)
    for tick in range(1, 60):
        sampler.tick(tick * SECOND)
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for tick in range(100, 1000):
            sampler.tick(tick * SECOND)
        grown = len(gc.get_objects()) - before
        assert gc.collect() == 0
        assert grown <= 10
    finally:
        if was_enabled:
            gc.enable()
    assert said == []
    sampler.close()
