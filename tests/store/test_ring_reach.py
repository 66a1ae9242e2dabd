# SPDX-License-Identifier: Apache-2.0
"""Since when rings have all: by the oldest of each writer and class, unless a later one went round."""

import pytest

from sysmond.base.model import Sensitivity
from sysmond.store.ring_reach import RingBegin, TooLittleError, complete_since

PUBLIC, RESTRICTED = Sensitivity.PUBLIC, Sensitivity.RESTRICTED
OLD = RingBegin("sampler", PUBLIC, "a", 10, went_round=True)
NEXT = RingBegin("sampler", PUBLIC, "a", 50, went_round=False)
OTHER = RingBegin("background", RESTRICTED, "a", 30, went_round=False)


@pytest.mark.parametrize(
    ("rings", "since_ns"),
    [
        ([OLD], 10),
        ([OLD, NEXT], 10),
        ([OLD, NEXT._replace(went_round=True)], 50),
        ([OLD, OTHER, NEXT], 30),
        ([OLD, OLD._replace(sensitivity=RESTRICTED, begins_ns=20)], 20),
    ],
)
def test_it_is_the_oldest_that_nothing_was_lost_after(rings: list[RingBegin], since_ns: int) -> None:
    assert complete_since(rings) == ("a", since_ns)


@pytest.mark.parametrize("rings", [[], [OLD, NEXT._replace(boot="b")], [OTHER]])
def test_files_have_more_where_rings_are_of_two_boots_or_a_writer_lacks(rings: list[RingBegin]) -> None:
    with pytest.raises(TooLittleError):
        complete_since(rings, ["sampler"])
