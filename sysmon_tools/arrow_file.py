# SPDX-License-Identifier: Apache-2.0
"""Writes a result as a file of Apache Arrow or Parquet, for programs that read columns."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("parquet", "arrow")


class ArrowAnswer(Protocol):
    """An answer that can be a table of Arrow: series and rows, or what SQL found."""

    def to_arrow(self) -> "pa.Table":
        """As a table, a column each of its own."""


def write(result: ArrowAnswer, path: str, chosen: str) -> None:
    """Write it there, as ``parquet`` or ``arrow``: Arrow's file is that of its IPC, which Feather 2 is, too.

    :raises Error: where pyarrow is not installed.
    """
    table = result.to_arrow()
    if chosen == "parquet":
        from pyarrow import parquet  # noqa: PLC0415  it is there, since there is a table

        parquet.write_table(table, path)
        return
    from pyarrow import feather  # noqa: PLC0415  as above

    feather.write_feather(table, path)
