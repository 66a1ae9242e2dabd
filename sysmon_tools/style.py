# SPDX-License-Identifier: Apache-2.0
"""How a result is written, whatever the format."""

from collections.abc import Iterable, Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING, NamedTuple

from sysmond.base.event_kinds import is_minor
from sysmond.base.model import Cause
from sysmond.base.timespec import FOREVER_NS, Notation, format_time

if TYPE_CHECKING:
    from sysmon_tools.grid import Display
    from sysmond.base.result import Event, Gap, Int64Array


class Style(NamedTuple):
    """How times are written.

    ``docs``: sentences about series by path, for formats that carry them; ``per``: what a table has a row for, by its
    name, for those that call instances so. ``is_newest``: only the newest values, untimed.
    ``all_events``: also those that seldom explain anything. Of lines of fields: ``has_units`` in the header,
    ``has_comments`` about gaps, events and units; ``is_spreadsheet``: no text may be taken for a formula.
    ``screen``: the terminal on which people read it.
    """

    notation: Notation = Notation.LOCAL
    zone: tzinfo | None = None
    docs: Mapping[str, str] | None = None
    all_events: bool = False
    has_units: bool = False
    has_comments: bool = True
    is_spreadsheet: bool = False
    screen: "Display | None" = None
    per: Mapping[str, str] | None = None
    is_newest: bool = False

    def shown(self, events: "Iterable[Event]") -> "list[Event]":
        """Choose the events that are said beside an answer."""
        return [event for event in events if self.all_events or not is_minor(event.kind)]

    def time(self, time_ns: int) -> str:
        """Write one point in time."""
        return format_time(time_ns, self.notation, self.zone)

    def beginning(self, gaps: "Iterable[Gap]", times_ns: "Int64Array | None" = None) -> list[str]:
        """Say when recording begins, where a range begins before that; nothing where it begins with it.

        Then only the interval before the first reading is a gap, which begins before the steps of the answer do.
        ``times_ns``: of those, int64[step].
        """
        first_ns = -FOREVER_NS if times_ns is None or not len(times_ns) else int(times_ns[0])
        begins_ns = [gap.end_ns for gap in gaps if gap.cause is Cause.BEFORE_RECORDING and gap.start_ns >= first_ns]
        return [f"recording begins at {self.time(min(begins_ns))}"] if begins_ns else []
