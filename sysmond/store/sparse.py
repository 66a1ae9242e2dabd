# SPDX-License-Identifier: Apache-2.0
"""The sparse coding as jobs see it: of when the rows of a file of a long table are."""

from sysmond.base.wall_clock import course_of
from sysmond.store import sparse_file


def span_ns(path: str) -> tuple[int, int]:
    """UTC of the outermost readings of a file, in nanoseconds; where it has none, of what else it says of that time.

    :raises Error: where it is damaged.
    """
    with sparse_file.open_file(path) as opened:
        told = [*opened.ticks[:1].tolist(), *opened.ticks[-1:].tolist()]
        told = told or [each.start_ns for each in opened.holes] or [life.first_ns for life in opened.lives]
        if not told:
            return 0, 0
        course = course_of(opened.relations, opened.interval_ns)
        return course.moment_ns(min(told)), course.moment_ns(max(told))
