# SPDX-License-Identifier: Apache-2.0
"""Records: the packed rows of long tables, as probes give them and rings hold them.

Standard library only: the real-time sampler writes these. ``docs/format.md`` has the bytes of a frame.
"""

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from sysmond.base.model import Table
from sysmond.errors import UsageError

RECORD_BYTES_MAX = 1024
# A text in the blob of a reading.
REFERENCE = "Q"
TEXT_BYTES_MAX = 4096
_CODE = re.compile(r"(\d*)([xbBhHiIqQs])")


class Records(NamedTuple):
    """One reading of a long table.

    ``rows``: packed records, a whole number of them. ``full``: they are all there are. ``lost``: records that
    should be here and are not. ``walked``: how many things the kernel went through. ``blob``: the texts that
    the rows refer to. ``release``: called once they are in the ring, for a source that keeps them until then.
    """

    rows: bytes | bytearray | memoryview
    full: bool = False
    lost: int = 0
    walked: int = 0
    blob: bytes = b""
    release: Callable[[], object] = bytes


def reference(offset: int, length: int) -> int:
    """Refer to a text in the blob: what a record holds of it."""
    return length << 32 | offset


def codes(table: Table) -> tuple[str, ...]:
    """The code of each metric of a long table, pad bytes left out: ``I``, ``q``, ``16s``.

    :raises UsageError: where the packing does not fit the metrics, or is none that is supported.
    """
    where = f"table {table.name!r}, packing"
    if table.packing is None:
        raise UsageError(f"{where}: there is none")
    form = table.packing.format
    found = [] if not form.startswith("<") else _CODE.findall(form)
    if not found or "<" + "".join(count + code for count, code in found) != form.replace(" ", ""):
        raise UsageError(f"{where}: format {form!r}; expected '<' and codes of x b B h H i I q Q s")
    single: list[str] = []
    for count, code in found:
        if code == "s":
            single.append(f"{count or 1}s")
        elif code != "x":
            single += [code] * int(count or 1)
    metrics = table.metrics
    if len(single) != len(metrics):
        raise UsageError(f"{where}: {len(single)} codes for {len(metrics)} metrics; expected one each")
    for metric, code in zip(metrics, single, strict=True):
        if metric.is_text != (code.endswith("s") or (code == REFERENCE and metric.is_text)):
            raise UsageError(f"{where}: code {code!r} for the metric {metric.name!r} of the unit {metric.unit!r}")
    missing = set(table.packing.key) - {metric.name for metric in metrics}
    if missing or not table.packing.key:
        raise UsageError(f"{where}: key {', '.join(table.packing.key) or '()'}; expected names of its metrics")
    return tuple(single)


def record_bytes(table: Table) -> int:
    """How long a record is.

    :raises UsageError: as ``codes``, and where it is too long.
    """
    codes(table)
    size = struct.calcsize(table.packing.format) if table.packing else 0
    if size > RECORD_BYTES_MAX:
        raise UsageError(f"table {table.name!r}: records of {size} bytes; expected at most {RECORD_BYTES_MAX}")
    return size
