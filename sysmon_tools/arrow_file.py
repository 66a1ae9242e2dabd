# SPDX-License-Identifier: Apache-2.0
"""Writes a result as a file of Apache Arrow or Parquet, for programs that read columns."""

from sysmond.base.result import Result


def write(result: Result, path: str, chosen: str) -> None:
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
