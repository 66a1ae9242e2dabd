# SPDX-License-Identifier: Apache-2.0
"""How a result is written, whatever the format."""

from collections.abc import Mapping
from datetime import tzinfo
from typing import NamedTuple

from sysmond.base.timespec import Notation, format_time


class Style(NamedTuple):
    """How times are written. ``docs``: sentences about series by path, for formats that carry them."""

    notation: Notation = Notation.LOCAL
    zone: tzinfo | None = None
    docs: Mapping[str, str] | None = None

    def time(self, time_ns: int) -> str:
        """Write one point in time."""
        return format_time(time_ns, self.notation, self.zone)
