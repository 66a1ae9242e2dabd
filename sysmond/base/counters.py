# SPDX-License-Identifier: Apache-2.0
"""The rule of counters, wherever one value is compared with the next: what a fall of one means.

A counter that falls by more than half began anew: by how much it grew meanwhile nobody knows, so that counts nowhere,
and has a cause, ``counter reset``. A smaller fall is the kernel's correction (iowait does that), and counts as it is.
Nothing counts from 0 but what is new: since the boot, or since it started.

What is told of an end is no reading. The kernel tells it before it has accounted the last slice, which a later reading
may have: so a counter ends with the larger of both, and an end never is a reset.
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from sysmond.base.result import Int64Array

_Value = TypeVar("_Value", int, "Int64Array")


def floor_of(before: _Value) -> _Value:
    """Below which value a counter began anew that was ``before``: a number, or int64[n] of as many counters."""
    return before // 2
