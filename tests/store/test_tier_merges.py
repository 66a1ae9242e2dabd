# SPDX-License-Identifier: Apache-2.0
"""Which files of a tier become one: few in the end, and none of them rewritten often."""

from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.clock import SECOND_NS
from sysmond.store import tiers
from sysmond.store.archive import SMALL_BYTES, Name
from sysmond.store.tiers import TierFile

BOOT = "b" * 32
LARGEST_BYTES = 6_250_000


def file(first: int, last: int, size_bytes: int) -> TierFile:
    name = Name(BOOT, first, last)
    return TierFile(name.file, size_bytes, (name,), first * SECOND_NS, last * SECOND_NS, {})


def files(*sizes: int) -> list[TierFile]:
    return [file(index + 1, index + 1, size) for index, size in enumerate(sizes)]


def merged(group: list[TierFile]) -> TierFile:
    size = sum(each.size_bytes for each in group)
    return file(group[0].covers[0].first, group[-1].covers[-1].last, size)


def test_what_is_as_large_as_all_after_it_is_merged_with_that_as_far_as_a_file_goes() -> None:
    one, two, three = files(3_000_000, 3_000_000, 3_000_000)
    assert tiers.plan_merges([one, two, three], LARGEST_BYTES) == [[two, three]]
    one, two, three = files(3_000_000, 2_000_000, 1_000_000)
    assert tiers.plan_merges([one, two, three], LARGEST_BYTES) == []


def test_small_ones_are_always_merged() -> None:
    small = files(3_000_000, 60_000, 20_000, 10)
    assert tiers.plan_merges(small, LARGEST_BYTES) == [small[1:]]


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
    # Two neighbours that no file holds together; and after them of each size, halved and halved again, one.
    digits = (LARGEST_BYTES // SMALL_BYTES).bit_length()
    assert len(there) <= 2 * (total_bytes // LARGEST_BYTES) + 2 + digits
    assert written_bytes <= (digits + 1) * total_bytes + 2 * SMALL_BYTES * len(sizes)
