# SPDX-License-Identifier: Apache-2.0
"""Which differences between two readings are events: values, counters that begin to grow, rows that come and go."""

from collections.abc import Mapping, Sequence

from sysmond.base.model import ABSENT, Absence, Cause
from sysmond.probe import Tells
from sysmond.sampler.changes import LISTED_MAX, RowChange, RowChanges
from sysmond.sampler.source import Reading

LID = Tells("lid", "closed", {0: "opened", 1: "closed"})


def reading(rows: Mapping[str, Sequence[int | str]]) -> Reading:
    return Reading(tuple(rows), [value for row in rows.values() for value in row])


def told(names: Sequence[str], tells: Tells, *readings: Mapping[str, Sequence[int | str]]) -> list[list[RowChange]]:
    changes = RowChanges(names, [tells])
    return [changes.of(reading(rows)) for rows in readings]


def test_a_value_that_changes_is_an_event_and_the_first_reading_is_none() -> None:
    assert told(["closed"], LID, {"LID": [0]}, {"LID": [1]}, {"LID": [1]}, {"LID": [0]}) == [
        [],
        [RowChange("lid", "LID", "closed")],
        [],
        [RowChange("lid", "LID", "opened")],
    ]


def test_what_is_not_to_be_had_is_compared_with_what_was_known_before() -> None:
    rows = ({"LID": [0]}, {"LID": [ABSENT]}, {"LID": [0]}, {"LID": [ABSENT]}, {"LID": [1]})
    assert told(["closed"], LID, *rows) == [[], [], [], [], [RowChange("lid", "LID", "closed")]]


def test_a_text_is_told_with_what_it_was() -> None:
    assert told(["mtu", "state"], Tells("link", "state"), {"eth0": [1, "down"]}, {"eth0": [2, "up"]})[1] == [
        RowChange("link", "eth0", "state: down → up")
    ]


def test_a_counter_is_told_of_when_it_begins_to_grow() -> None:
    tells = Tells("memory error", "corrected", grows=True)
    rows = [{"m": [value]} for value in (5, 5, 7, 9, 9, 10, 3, 4)]
    changes = [[change.text for change in changes] for changes in told(["corrected"], tells, *rows)]
    assert changes == [[], [], ["corrected: 2 more"], [], [], ["corrected: 1 more"], [], ["corrected: 1 more"]]


def test_rows_that_come_and_go_are_told_of_with_what_they_are() -> None:
    tells = Tells("mounted", gone="unmounted", shows="device")
    assert told(["device"], tells, {"/": ["sda"]}, {"/": ["sda"], "/mnt": ["sdb"]}, {"/": ["sda"]}) == [
        [],
        [RowChange("mounted", "/mnt", "sdb")],
        [RowChange("unmounted", "/mnt", "sdb")],
    ]
    assert told(["n"], Tells("link", gone="link", words={1: "is there", 0: "is gone"}), {}, {"a": [1]}, {})[1:] == [
        [RowChange("link", "a", "is there")],
        [RowChange("link", "a", "is gone")],
    ]


def test_an_instance_that_was_away_is_not_compared_with_the_one_before() -> None:
    assert told(["closed"], LID, {"LID": [0]}, {}, {"LID": [1]}) == [[], [], []]


def test_what_is_compared_may_follow_from_a_row_and_what_was_before() -> None:
    def level(row: Mapping[str, int | str], before: int | str) -> int | str:
        used = row["used"]
        return 90 if used >= (88 if before == 90 else 90) else 0  # type: ignore[operator]

    tells = Tells("disk space", value=level, words={0: "room again", 90: "90 % full"})
    rows = [{"/": [used]} for used in (80, 90, 89, 87, 89)]
    assert [[change.text for change in changes] for changes in told(["used"], tells, *rows)] == [
        [], ["90 % full"], [], ["room again"], [],
    ]  # fmt: skip


def test_many_at_once_are_one_event_that_names_them() -> None:
    many = {f"m{number}": ["x"] for number in range(LISTED_MAX + 1)}
    [change] = told(["device"], Tells("mounted", gone="unmounted", shows="device"), {}, many)[1]
    assert (change.kind, change.subject, change.text) == ("mounted", "", f"{LISTED_MAX + 1} at once")
    assert change.detail.startswith("m0 x, m1 x, ")
    assert change.detail.endswith(f"m{LISTED_MAX} x")


def test_the_same_reading_again_is_nothing_new_and_an_instance_without_values_is_no_change() -> None:
    changes = RowChanges(["closed"], [LID])
    first = reading({"LID": [0]})
    assert changes.of(first) == []
    assert changes.of(first) == []
    asleep = Reading(("LID",), [ABSENT], (Absence(Cause.ASLEEP),))
    assert changes.of(asleep) == []
    assert changes.of(reading({"LID": [1]})) == [RowChange("lid", "LID", "closed")]
