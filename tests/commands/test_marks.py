# SPDX-License-Identifier: Apache-2.0
"""Marks and flushes that somebody asks for: done or refused, never answered with ``ok`` and lost."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sysmond.archiver.disk_writes import DROPPED
from sysmond.base.allowance import KEYS_MAX, PER_KIND_MAX, PER_USER_MAX, SPAN_S, Allowance
from sysmond.base.model import Cause
from sysmond.errors import TooMuchError
from sysmond.history import Archive
from sysmond.machine.control import Order, ask
from sysmond.machine.folders import Folders
from tests.archiver.test_archiver import Station, stop
from tests.support.waiting import HANG_S, wait_until

MANY = 3000
TEXT = "x" * 900


def tries(allowance: Allowance, kind: str, uid: int, now_s: float, count: int) -> int:
    """How many of so many tries succeed."""
    done = 0
    for _ in range(count):
        try:
            allowance.take(kind, uid, now_s)
        except TooMuchError:
            continue
        done += 1
    return done


def test_ten_a_minute_for_each_user_and_more_for_root() -> None:
    allowance = Allowance()
    assert tries(allowance, "mark", 1000, 0.0, 15) == PER_USER_MAX
    assert tries(allowance, "mark", 1001, 0.0, 15) == PER_USER_MAX
    assert tries(allowance, "flush", 1000, 0.0, 15) == PER_USER_MAX
    assert tries(allowance, "mark", 0, 0.0, 1000) == PER_KIND_MAX
    assert tries(allowance, "died", 0, 0.0, 1000) == PER_KIND_MAX
    assert tries(allowance, "mark", 1000, SPAN_S - 0.1, 1) == 0
    assert tries(allowance, "mark", 1000, SPAN_S, 15) == PER_USER_MAX


def test_however_many_kinds_and_users_there_are_what_is_kept_is_bounded() -> None:
    allowance = Allowance()
    done = sum(tries(allowance, f"kind {number}", 0, 0.0, 1) for number in range(10 * KEYS_MAX))
    assert done == KEYS_MAX + PER_KIND_MAX
    assert len(allowance._times) == KEYS_MAX + 1
    assert tries(allowance, "another", 0, SPAN_S, 1) == 1
    assert len(allowance._times) == 1


@pytest.fixture
def archiver(runtime: Path, tmp_path: Path) -> Iterator[Station]:
    """An archiver that runs."""
    station = Station(runtime, tmp_path)
    process = station.start()
    yield station
    if process.poll() is None:
        assert stop(process) == 0


def give(station: Station, order: Order) -> Order:
    return ask(f"{station.folders.runtime}/archiver", order, HANG_S)


BEFORE: Order = {"do": "event", "by": "daemon", "kind": "died", "subject": "disk", "text": "before"}


def mark(text: str, **further: object) -> Order:
    return {"do": "event", "kind": "mark", "subject": "", "text": f"{text} {TEXT}", **further}


def recorded(folders: Folders, kind: str = "mark") -> list[str]:
    return [event.text.partition(" ")[0] for event in Archive(folders).events() if event.kind == kind]


def said_yes(station: Station, orders: list[tuple[str, Order]]) -> list[str]:
    """The names of those orders that were answered with ok; all others are refused as too much."""
    done = []
    for name, order in orders:
        answer = give(station, order)
        assert answer == {"ok": True} or answer["too_much"] is True, answer
        if "ok" in answer:
            done.append(name)
    return done


def test_of_thousands_of_marks_every_one_that_was_answered_is_there(archiver: Station) -> None:
    assert give(archiver, BEFORE)["ok"] is True
    done = said_yes(archiver, [(f"n{number}", mark(f"n{number}")) for number in range(MANY)])
    assert 0 < len(done) <= PER_KIND_MAX
    assert give(archiver, {"do": "flush"})["ok"] is True
    assert recorded(archiver.folders) == done
    assert recorded(archiver.folders, "died") == ["before"]


def test_a_part_records_no_kind_but_its_own(archiver: Station) -> None:
    order = {"do": "event", "subject": "disk", "text": "forged"}
    for by, kind, own in (
        ("bus", "died", "a part that records events"),
        ("daemon", "flush", "died, removed, stuck"),
        ("people", "clock step", "mark, incident, pin, unpin"),
        ("", "died", "a part that records events"),
        ("nobody", "mine", "a part that records events"),
    ):
        said = f"event {kind!r} by {by!r}: not its kind; expected {own}"
        assert give(archiver, {**order, "by": by, "kind": kind}) == {"error": said}
    assert give(archiver, mark("a\0b"))["error"] == "an event of the kind 'mark' about '': expected no NUL"
    assert [event for event in Archive(archiver.folders).events() if "forged" in event.text] == []


def test_strangers_are_refused_before_the_ring_is_full_and_wipe_nothing(archiver: Station) -> None:
    assert give(archiver, BEFORE)["ok"] is True
    orders = [(f"u{uid}-{n}", mark(f"u{uid}-{n}", uid=uid)) for n in range(15) for uid in range(1000, 1020)]
    done = said_yes(archiver, orders)
    for uid in range(1000, 1020):
        assert sum(name.startswith(f"u{uid}-") for name in done) <= PER_USER_MAX
    wait_until(lambda: said_yes(archiver, [("root", mark("root"))]))
    assert give(archiver, {"do": "flush"})["ok"] is True
    assert set(done) <= set(recorded(archiver.folders))
    assert recorded(archiver.folders, "died") == ["before"]


def test_a_user_who_has_made_his_marks_is_told_so_and_others_go_on(archiver: Station) -> None:
    assert all(give(archiver, mark(str(number), uid=1000)) == {"ok": True} for number in range(PER_USER_MAX))
    answer = give(archiver, mark("more", uid=1000))
    assert answer == {"error": "mark: 10 of uid 1000 within a minute; try again later", "too_much": True}
    assert give(archiver, mark("other", uid=1001)) == {"ok": True}
    assert give(archiver, mark("root", uid=0)) == {"ok": True}


def test_a_user_has_the_disk_written_ten_times_a_minute(archiver: Station) -> None:
    began_s = time.monotonic()
    assert all(give(archiver, {"do": "flush", "uid": 1000})["ok"] is True for _ in range(PER_USER_MAX))
    # Where ten take longer than a minute, one more is none too many.
    assert give(archiver, {"do": "flush", "uid": 1000}).get("too_much") or time.monotonic() - began_s > SPAN_S
    assert give(archiver, {"do": "flush", "uid": 1001})["ok"] is True
    assert give(archiver, {"do": "flush"})["ok"] is True
    assert give(archiver, {"do": "flush", "reason": "suspend", "uid": 1000})["ok"] is True


HASTY = """
import sys
import time
from sysmond.archiver import disk_writes
from sysmond.daemon import runner
disk_writes.INTERVAL_NS = 10**9
sys.exit(runner.main([sys.argv[1]]))
"""
LOST = 30


def test_events_of_our_own_that_find_no_room_are_counted_and_a_gap(runtime: Path, tmp_path: Path) -> None:
    station = Station(runtime, tmp_path)
    settings = json.dumps({"folders": station.folders, "part": "archiver"})
    with station.log.open("ab") as log:
        process = subprocess.Popen([sys.executable, "-P", "-c", HASTY, settings], stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or station.answers())
        event: Order = {"do": "event", "by": "daemon", "kind": "died", "subject": "disk", "text": "again"}
        answers = [give(station, event)["ok"] for _ in range(PER_KIND_MAX + LOST)]
        assert answers == [True] * PER_KIND_MAX + [False] * LOST
        wait_until(lambda: recorded(station.folders, DROPPED))
        assert stop(process) == 0
    finally:
        process.kill()
        process.wait()
    assert len(recorded(station.folders, "died")) == PER_KIND_MAX
    assert sum(map(int, recorded(station.folders, DROPPED))) == LOST
    gaps = [gap for gap in Archive(station.folders).select("flush/flushes").gaps if gap.cause is Cause.DROPPED]
    assert gaps
    assert all("events found no room" in gap.detail for gap in gaps)
