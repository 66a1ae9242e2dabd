# SPDX-License-Identifier: Apache-2.0
"""What probes of the background lane tell becomes events in the ring of their class."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sysmond.base import clock
from sysmond.base.model import Lane, Sensitivity
from sysmond.machine.asleep import woken_by
from sysmond.machine.folders import Folders
from sysmond.probe import EVENTS_MAX, Host, Probe, Table, Tells, state, text
from sysmond.ring.progress import Progress, Sealed
from sysmond.ring.snapshot import snapshot
from sysmond.sampler.device_groups import DeviceChange
from sysmond.sampler.lane import Sampler
from sysmond.sampler.last_rows import last_rows
from sysmond.store.of_ring import BootEvent, of_snapshot
from tests.support.bench import SECOND, Bench

LID = Table("lid", (state("closed", "1 closed; 0 open."),), per="lid")


class Closing(Bench):
    """Closes what it began, whatever becomes of a test."""

    def sampler(self, lane: Lane = Lane.REALTIME, *, ring_bytes: int = 1 << 20, ticks: int | None = None) -> Sampler:
        self.begun = super().sampler(lane, ring_bytes=ring_bytes, ticks=ticks)
        return self.begun


@pytest.fixture
def bench(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Closing]:
    made = Closing(runtime, monkeypatch)
    yield made
    made.begun.close()


class Lid:
    """A lid that a test opens and closes; ``says``: what it tells by itself."""

    def __init__(self) -> None:
        self.closed = 0
        self.fails = False
        self.says: list[tuple[str, str, str]] = []

    def __call__(self, host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        for kind, subject, said in self.says:
            host.tell_event(kind, subject, said, detail="more of it", happened_ns=5, known_from="a log")
        self.says.clear()
        if self.fails:
            raise PermissionError("not for us")
        yield "LID", (self.closed,)


def offered(bench: Closing, sensitivity: Sensitivity = Sensitivity.PUBLIC) -> tuple[Lid, Sampler]:
    lid = Lid()
    tells = (Tells("lid", "closed", {0: "opened", 1: "closed"}),)
    bench.take(Probe(LID, lid, 1.0, Lane.BACKGROUND, sensitivity, tells=tells, told_kinds=("packages",)))
    return lid, bench.sampler(Lane.BACKGROUND)


def events(bench: Closing, sensitivity: str = "public") -> list[BootEvent]:
    return [
        event
        for path in bench.rings("background", sensitivity)
        for event in of_snapshot(snapshot(path)).events
        if not event.kind.startswith("device")
    ]


def ticks(sampler: Sampler, count: int) -> int:
    """Have it tick so often, each at a second of its own; gives the last."""
    first_ns = max(clock.boottime_ns(), sampler._now_ns) // SECOND * SECOND + SECOND
    for number in range(count):
        sampler.tick(first_ns + number * SECOND)
    return first_ns + (count - 1) * SECOND


def test_a_state_that_changes_is_an_event_at_the_tick_that_saw_it(bench: Closing) -> None:
    lid, sampler = offered(bench)
    ticks(sampler, 1)
    lid.closed = 1
    at_ns = ticks(sampler, 1)
    [event] = events(bench)
    assert event[1:5] == (at_ns, "lid", "LID", "closed")


def test_what_a_probe_tells_has_all_that_it_told_and_its_class(bench: Closing) -> None:
    lid, sampler = offered(bench, Sensitivity.RESTRICTED)
    ticks(sampler, 1)
    lid.says = [("packages", "", "installed a\0b")]
    ticks(sampler, 1)
    assert events(bench) == []
    [event] = events(bench, "restricted")
    assert event[2:] == ("packages", "", "installed a b", "more of it", 5, "a log")


def test_a_probe_of_the_real_time_lane_tells_by_itself_and_each_as_itself(bench: Closing) -> None:
    lid, other = Lid(), Lid()
    bench.take(Probe(LID, lid, 1.0, Lane.REALTIME, told_kinds=("fork storm",)))
    bench.take(Probe(LID._replace(name="other"), other, 1.0, Lane.REALTIME, Sensitivity.RESTRICTED))
    sampler = bench.sampler()
    ticks(sampler, 1)
    lid.says, other.says = [("fork storm", "", "many")], [("stuck thread", "bash", "long")]
    at_ns = ticks(sampler, 1)
    by_class = [
        [event[1:5] for path in bench.rings("sampler", name) for event in of_snapshot(snapshot(path)).events]
        for name in ("public", "restricted")
    ]
    assert by_class == [[(at_ns, "fork storm", "", "many")], [(at_ns, "stuck thread", "bash", "long")]]


def test_a_storm_is_bounded_and_its_rest_is_counted(bench: Closing) -> None:
    lid, sampler = offered(bench)
    ticks(sampler, 1)
    lid.says = [("packages", "", str(number)) for number in range(EVENTS_MAX + 5000)]
    ticks(sampler, 1)
    found = events(bench)
    assert [event.text for event in found] == [
        *map(str, range(EVENTS_MAX)),
        f"5000 more at once, the last: {EVENTS_MAX + 4999}",
    ]
    assert (found[-1].happened_ns, found[-1].known_from) == (5, "a log")


@pytest.mark.parametrize("kind", ["flush", "mark", "no such kind"])
def test_the_kind_of_another_is_a_failure_of_the_probe_and_no_event(bench: Closing, kind: str) -> None:
    lid, sampler = offered(bench)
    ticks(sampler, 1)
    lid.says = [(kind, "", "x")]
    ticks(sampler, 1)
    assert events(bench) == []
    [source] = [source for source in sampler._roster.sources if source.table == "lid"]
    assert source.cost.failures == 1


def test_rows_that_cannot_be_compared_are_a_failure_of_the_probe_and_the_lane_goes_on(bench: Closing) -> None:
    wrong = Probe(LID, lambda _: [("LID", (1, 2, 3))], 1.0, Lane.BACKGROUND, tells=(Tells("lid", "closed"),))
    bench.take(wrong)
    sampler = bench.sampler(Lane.BACKGROUND)
    ticks(sampler, 2)
    [source] = [source for source in sampler._roster.sources if source.table == "lid"]
    assert source.cost.failures
    assert events(bench) == []


def test_a_probe_knows_whether_another_table_is_read(bench: Closing) -> None:
    asked: list[bool] = []

    def asking(host: Host) -> Iterator[tuple[str, Sequence[int]]]:
        asked.append(host.is_read("lid"))
        yield "x", (1,)

    lid = Lid()
    bench.take(Probe(LID, lid, 1.0, Lane.BACKGROUND))
    bench.take(Probe(LID._replace(name="other"), asking, 1.0, Lane.BACKGROUND))
    sampler = bench.sampler(Lane.BACKGROUND)
    ticks(sampler, 1)
    lid.fails = True
    ticks(sampler, 1)
    assert asked == [True, False]


def begun_again(bench: Closing) -> Sampler:
    """The lane as it starts after an end that nobody ordered: a second later its first reading is made."""
    bench.begun.close(is_over=False)
    sampler = bench.sampler(Lane.BACKGROUND)
    ticks(sampler, 1)
    return sampler


def of_lids(bench: Closing) -> list[tuple[str, ...]]:
    return [(event.kind, event.subject, event.text) for event in events(bench)]


def test_what_changed_while_a_lane_was_started_again_is_told_once(bench: Closing) -> None:
    lid, sampler = offered(bench)
    ticks(sampler, 1)
    begun_again(bench)
    assert of_lids(bench) == []
    lid.closed = 1
    sampler = begun_again(bench)
    ticks(sampler, 1)
    assert of_lids(bench) == [("lid", "LID", "closed")]
    assert events(bench)[0].detail.endswith("s before, while nothing was recorded")
    begun_again(bench)
    assert len(of_lids(bench)) == 1


def test_what_was_read_last_is_compared_also_where_it_is_sealed(bench: Closing) -> None:
    lid, sampler = offered(bench)
    ticks(sampler, 2)
    sampler.close()
    [path] = bench.rings("background")
    copy = snapshot(path)
    (bench.runtime / "archiver").mkdir()
    folders = Folders(str(bench.runtime / "state"), str(bench.runtime))
    Progress({path: Sealed(copy.end_offset, 0, 1)}).write(folders)
    lid.closed = 1
    ticks(bench.sampler(Lane.BACKGROUND), 1)
    assert path not in bench.rings("background")
    assert of_lids(bench) == [("lid", "LID", "closed")]


def test_what_came_and_went_meanwhile_is_told_by_its_texts(bench: Closing) -> None:
    there = {"/": "sda", "/old": "sdb"}
    mounts = Table("mounted", (text("device", "What is mounted."), state("n", "A number.")), per="mount")
    tells = (Tells("mounted", gone="unmounted", shows="device"), Tells("link", "device"))
    bench.take(Probe(mounts, lambda _: [(name, (value, 7)) for name, value in there.items()], 1.0, Lane.BACKGROUND,
                     tells=tells))  # fmt: skip
    ticks(bench.sampler(Lane.BACKGROUND), 2)
    there.clear()
    there.update({"/": "sdc", "/new": "sdd"})
    begun_again(bench)
    assert sorted(of_lids(bench)) == [
        ("link", "/", "device: sda → sdc"), ("mounted", "/new", "sdd"), ("unmounted", "/old", "sdb"),
    ]  # fmt: skip


def test_a_table_of_other_columns_or_of_another_boot_is_not_compared(
    bench: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    lid, sampler = offered(bench)
    ticks(sampler, 1)
    lid.closed = 1
    bench.begun.close(is_over=False)
    folder, boot = str(bench.runtime / "background"), clock.boot_id()
    assert last_rows(folder, boot, {"lid"})["lid"][1:] == (("closed",), ("LID",), [0])
    assert last_rows(folder, "f" * 32, {"lid"}) == last_rows(folder, boot, {"lids"}) == {}
    bench.planned.clear()
    more = LID._replace(metrics=(*LID.metrics, state("more", "Of another version.")))
    bench.take(Probe(more, lambda _: [("LID", (1, 1))], 1.0, Lane.BACKGROUND, tells=(Tells("lid", "closed"),)))
    ticks(bench.sampler(Lane.BACKGROUND), 1)
    assert of_lids(bench) == []


@pytest.mark.parametrize("seed", range(10))
def test_of_a_damaged_ring_only_what_is_whole_is_compared(bench: Closing, tmp_path: Path, seed: int) -> None:
    _, sampler = offered(bench)
    ticks(sampler, 3)
    [path] = bench.rings("background")
    content = bytearray(Path(path).read_bytes())
    chance = random.Random(seed)
    for _ in range(200):
        content[chance.randrange(8192)] ^= 1 << chance.randrange(8)
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / Path(path).name).write_bytes(content)
    found = last_rows(str(tmp_path), clock.boot_id(), {"lid"})
    assert all(rows.columns == ("closed",) and rows.names == ("LID",) for rows in found.values())


def test_another_interval_costs_no_comparison(bench: Closing) -> None:
    lid, sampler = offered(bench)
    ticks(sampler, 1)
    sampler._hold(["lid"], 0, 60, {"back_ns": 2 * SECOND, "why": "a test"})
    lid.closed = 1
    ticks(sampler, 3)
    assert [event[2] for event in of_lids(bench)] == ["closed"]


def test_two_storms_that_read_alike_are_two_at_their_own_times(bench: Closing) -> None:
    _, sampler = offered(bench)
    ticks(sampler, 1)
    for seconds in (5, 4):
        at_ns = clock.boottime_ns() - seconds * SECOND
        sampler._tell_of_devices([DeviceChange(at_ns, "devices changed", "block", "9 events")])
    ticks(sampler, 1)
    happened = [event for path in bench.rings("background") for event in of_snapshot(snapshot(path)).events]
    first_ns, second_ns = sorted({event.boottime_ns for event in happened if event.kind == "devices changed"})
    assert SECOND <= second_ns - first_ns <= clock.boottime_ns() - first_ns


def test_that_the_machine_slept_is_an_event_with_what_woke_it(bench: Closing, monkeypatch: pytest.MonkeyPatch) -> None:
    root = bench.runtime / "root"
    (root / "sys/power").mkdir(parents=True)
    (root / "proc").mkdir()
    (root / "sys/power/pm_wakeup_irq").write_text("9\n")
    (root / "proc/interrupts").write_text("           CPU0\n  9:   5   IO-APIC   9-fasteoi   acpi\n")
    bench.root = str(root)
    _, sampler = offered(bench)
    ticks(sampler, 1)
    asleep_ns = 3_600 * SECOND
    monkeypatch.setattr("sysmond.sampler.lane.monotonic_ns", lambda: time.monotonic_ns() - asleep_ns)
    for _ in range(2):
        sampler._note_lateness(0, 3600, clock.boottime_ns())
    ticks(sampler, 1)
    assert sampler.own.missed == 3600  # Those of the second time.
    [event] = [event for event in events(bench) if event.kind == "suspended"]
    assert event.text == "for 60 min; woken by interrupt 9: acpi"


def test_where_nobody_knows_what_woke_the_machine_nothing_is_said(tmp_path: Path) -> None:
    assert woken_by(str(tmp_path)) == ""
    (tmp_path / "sys/power").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/interrupts").write_bytes(b"\xff: \n:\n")
    (tmp_path / "sys/power/pm_wakeup_irq").write_bytes(b"\xff\x1b\n")
    assert woken_by(str(tmp_path)) == ""
    (tmp_path / "sys/power/pm_wakeup_irq").write_bytes(b"7\n")
    assert woken_by(str(tmp_path)) == "; woken by interrupt 7"
