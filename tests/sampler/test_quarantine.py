# SPDX-License-Identifier: Apache-2.0
"""Conduct: how offences are judged, what is forgotten, and what the next incarnation is told."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause
from sysmond.sampler import quarantine
from sysmond.sampler.quarantine import (
    APART_FIRST_NS,
    CHANCE_NS,
    FORGET_NS,
    NEVER_NS,
    QUARANTINE_MAX_NS,
    Conduct,
    Record,
    aged,
    duration,
    offended,
)

BOOT = "b" * 32
NOW = 10_000 * SECOND_NS


def test_once_may_be_chance_and_twice_in_ten_minutes_is_not() -> None:
    once = offended(Record(), NOW, "died")
    assert (once.level, once.until_ns, once.reason) == (0, 0, "died")
    assert offended(once, NOW + CHANCE_NS, "died").until_ns == 0
    twice = offended(once, NOW + CHANCE_NS - 1, "died")
    assert (twice.level, twice.until_ns) == (1, NOW + CHANCE_NS - 1 + 10 * SECOND_NS)


def test_what_was_no_chance_counts_at_once() -> None:
    assert offended(Record(), NOW, "hangs", at_once=True).until_ns == NOW + 10 * SECOND_NS


def test_each_quarantine_is_six_times_as_long_up_to_a_day() -> None:
    held, now = Record(), NOW
    lengths: list[int] = []
    for _ in range(9):
        held = offended(held, now, "died", at_once=not lengths)
        lengths.append((held.until_ns - now) // SECOND_NS)
        now = held.until_ns + SECOND_NS
    assert lengths == [10, 60, 360, 2160, 12960, 77760, 86400, 86400, 86400]


def test_an_hour_without_offence_after_the_quarantine_forgets_the_count() -> None:
    held = offended(Record(), NOW, "died", at_once=True)
    assert aged(held, held.until_ns + FORGET_NS) == held
    assert aged(held, held.until_ns + FORGET_NS + 1).level == 0
    assert offended(held, held.until_ns + FORGET_NS + 1, "died").until_ns == 0


def test_what_hangs_in_its_own_process_too_stays_there_an_hour_after_it_did_so_last(tmp_path: Path) -> None:
    conduct = Conduct(str(tmp_path), BOOT)
    conduct.set_apart("gpu", NOW, "hangs")
    last_ns = NOW + APART_FIRST_NS - SECOND_NS
    conduct.offend("gpu", last_ns, "hangs again")
    assert conduct.is_apart("gpu", last_ns + APART_FIRST_NS - 1)
    assert not conduct.is_apart("gpu", last_ns + APART_FIRST_NS)
    conduct.offend("gpu", last_ns + APART_FIRST_NS, "died with the others")
    assert not conduct.is_apart("gpu", last_ns + APART_FIRST_NS)


def test_each_time_a_table_is_set_apart_is_six_times_as_long_up_to_a_day(tmp_path: Path) -> None:
    conduct, now_ns, hours = Conduct(str(tmp_path), BOOT), NOW, []
    for _ in range(4):
        conduct.set_apart("gpu", now_ns, "hangs")
        hours.append((conduct.ends_ns(["gpu"], now_ns) - now_ns) // (3600 * SECOND_NS))
        now_ns = conduct.ends_ns(["gpu"], now_ns)
    assert hours == [1, 6, 24, 24]


@given(st.lists(st.tuples(st.integers(0, 10**14), st.booleans()), max_size=50))
def test_a_quarantine_never_lasts_longer_than_a_day_nor_shorter_than_ten_seconds(
    offences: list[tuple[int, bool]],
) -> None:
    held, now = Record(), NOW
    for after_ns, at_once in offences:
        now += after_ns
        held = offended(held, now, "x", at_once=at_once)
        assert held.until_ns <= now or 10 * SECOND_NS <= held.until_ns - now <= QUARANTINE_MAX_NS


def test_the_next_incarnation_knows_what_is_held(tmp_path: Path) -> None:
    first = Conduct(str(tmp_path), BOOT)
    first.judged_ns = 7
    assert not first.offend("disk", NOW, "died")
    assert first.offend("disk", NOW + 1, "died again")
    first.move("cpu", "late")
    first.set_apart("gpu", NOW, "hangs")
    later = Conduct(str(tmp_path), BOOT)
    later.read()
    assert (later.records, later.judged_ns) == (first.records, 7)
    assert (later.moved(), later.is_moved("cpu"), later.is_moved("disk")) == ({"cpu"}, True, False)
    assert (later.is_apart("gpu", NOW + 1), later.is_apart("cpu", NOW + 1)) == (True, False)
    assert later.barred("disk", NOW + 2) == (Cause.QUARANTINED, "died again; not read for 10 s")
    assert later.barred("disk", NOW + 1 + 10 * SECOND_NS) is None
    assert later.ends_ns(["disk", "cpu"], NOW + 2) == NOW + 1 + 10 * SECOND_NS
    assert later.ends_ns(["cpu"], NOW + 2) == NEVER_NS
    assert later.ends_ns(["cpu", "gpu"], NOW + 2) == NOW + APART_FIRST_NS
    assert (later.forgive("disk"), later.forgive("disk")) == (True, False)
    last = Conduct(str(tmp_path), BOOT)
    last.read()
    assert last.records.keys() == {"cpu", "gpu"}


def test_of_another_boot_nothing_is_held(tmp_path: Path) -> None:
    Conduct(str(tmp_path), BOOT).move("cpu", "late")
    other = Conduct(str(tmp_path), "c" * 32)
    other.read()
    assert other.records == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"boot": "BOOT", "judged_ns": 1}',
        '{"boot": "BOOT", "judged_ns": 1, "tables": {"disk": {"level": 5}}}',
        '{"boot": "BOOT", "judged_ns": 1, "tables": {"disk": [1, 2]}}',
        '{"boot": "BOOT", "judged_ns": "1", "tables": {"disk": HELD}}'.replace("HELD", json.dumps({"reason": ""})),
        '{"boot": "BOOT", "judged_ns": 1, "tables": {"disk": HELD}}'.replace(
            "HELD", json.dumps(Record(reason="x")._asdict() | {"moved": 1})
        ),
    ],
)
def test_damage_is_nothing_held(tmp_path: Path, content: str) -> None:
    (tmp_path / quarantine.FILE).write_text(content.replace("BOOT", BOOT))
    found = Conduct(str(tmp_path), BOOT)
    found.read()
    assert (found.records, found.judged_ns) == ({}, 0)


def test_where_there_is_no_room_it_is_held_all_the_same(tmp_path: Path) -> None:
    found = Conduct(str(tmp_path / "nowhere"), BOOT)
    assert found.offend("disk", NOW, "hangs", at_once=True)


@pytest.mark.parametrize(
    ("seconds", "said"), [(10, "10 s"), (60, "60 s"), (360, "6 min"), (2160, "36 min"), (12960, "4 h"), (86400, "24 h")]
)
def test_lengths_are_spelled_for_people(seconds: int, said: str) -> None:
    assert duration(seconds * SECOND_NS) == said
