# SPDX-License-Identifier: Apache-2.0
"""Which files of a tier become one: few in the end, and none of them rewritten often."""

from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.clock import SECOND_NS
from sysmond.store import tiers
from sysmond.store.archive import Name
from sysmond.store.tiers import TierFile

BOOT = "b" * 32
LARGEST_BYTES = 6_250_000
FANOUT = tiers.MERGE_FANOUT


def file(first: int, last: int, size_bytes: int) -> TierFile:
    name = Name(BOOT, first, last)
    return TierFile(name.file, size_bytes, (name,), first * SECOND_NS, last * SECOND_NS, {})


def files(*sizes: int) -> list[TierFile]:
    return [file(index + 1, index + 1, size) for index, size in enumerate(sizes)]


def merged(group: list[TierFile]) -> TierFile:
    size = sum(each.size_bytes for each in group)
    return file(group[0].covers[0].first, group[-1].covers[-1].last, size)


def test_what_fills_a_file_becomes_one_though_it_is_fewer_than_eight() -> None:
    one, two, three = files(3_000_000, 3_000_000, 3_000_000)
    assert tiers.plan_merges([one, two, three], LARGEST_BYTES) == [[one, two]]
    assert tiers.plan_merges([one, two], LARGEST_BYTES) == []


def test_eight_small_ones_become_one() -> None:
    small = files(*[20_000] * FANOUT)
    assert tiers.plan_merges(small, LARGEST_BYTES) == [small]
    assert tiers.plan_merges(small[1:], LARGEST_BYTES) == []


@given(st.lists(st.integers(1_000, 1_500_000), min_size=1, max_size=200))
def test_few_files_are_left_and_a_row_is_rewritten_seldom(sizes: list[int]) -> None:
    there: list[TierFile] = []
    written_bytes = 0
    for index, size in enumerate(sizes):
        there.append(file(index + 1, index + 1, size))
        while groups := tiers.plan_merges(there, LARGEST_BYTES):
            for group in groups:
                at = there.index(group[0])
                there[at : at + len(group)] = [merged(group)]
                written_bytes += there[at].size_bytes
    total_bytes = sum(sizes)
    assert sum(each.size_bytes for each in there) == total_bytes
    assert all(each.size_bytes <= LARGEST_BYTES for each in there)
    # What is half a file or more, and at most seven of each of the four smaller classes between two of those.
    assert len(there) <= 2 * (total_bytes // LARGEST_BYTES) + 1 + 4 * FANOUT * (1 + total_bytes // LARGEST_BYTES)
    assert written_bytes <= 8 * total_bytes
