# SPDX-License-Identifier: Apache-2.0
"""The critical chain of a boot: that it ends, however units are ordered, and what of it an event has room for."""

from sysmond.ring.frame import EVENT_DETAIL_BYTES_MAX
from sysmond.sources.critical_chain import (
    CHAIN_MAX,
    DETAIL_BYTES_MAX,
    BegunUnit,
    critical_chain,
    detail_of,
    unseen_devices,
)


def test_units_that_are_ordered_in_a_circle_end() -> None:
    units = {"a.target": BegunUnit(1, 5, ["b.service"]), "b.service": BegunUnit(1, 5, ["a.target", "b.service"])}
    assert list(critical_chain(units)) == ["a.target", "b.service"]


def test_what_was_active_again_later_is_not_what_was_waited_for() -> None:
    units = {
        "a.target": BegunUnit(5, 5, ["again.service", "once.service"]),
        "again.service": BegunUnit(6, 7),
        "once.service": BegunUnit(1, 4),
    }
    assert list(critical_chain(units)) == ["a.target", "once.service"]


def test_without_a_target_there_is_no_chain() -> None:
    units = {"a.service": BegunUnit(1_000_000, 3_000_000)}
    assert detail_of(units, ["a.service"]) == "a.service 2.000 s @1.000 s"
    assert detail_of({}, []) == ""


def test_only_devices_that_are_waited_for_are_unseen() -> None:
    units = {"a.mount": BegunUnit(1, 2, ["a.device", "b.device", "c.service"]), "b.device": BegunUnit(1, 1)}
    assert unseen_devices(units) == {"a.device"}


def test_the_chain_has_room_whatever_units_are_called() -> None:
    names = [f"{'x' * 60}{number}.target" for number in range(100)]
    units = {name: BegunUnit(number, 1_000_000 + number, names[:number]) for number, name in enumerate(names)}
    text = detail_of(units, names)
    assert len(text.encode()) <= DETAIL_BYTES_MAX == EVENT_DETAIL_BYTES_MAX
    assert len(list(critical_chain(units))) == CHAIN_MAX
    slowest, _, chain = text.partition("; chain: ")
    assert slowest.startswith(names[0])
    assert chain.startswith(names[-1])
