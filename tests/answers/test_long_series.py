# SPDX-License-Identifier: Apache-2.0
"""Series of long tables: they are called by numbers, so a table whose rows are called by texts alone has none."""

from pathlib import Path

import pytest

from sysmond.errors import UsageError
from sysmond.history import Archive
from tests.support import planted


@pytest.mark.parametrize("path", ["foreign/size", "foreign/*"])
def test_rows_that_are_called_by_texts_are_no_series(tmp_path: Path, path: str) -> None:
    archive = Archive(planted.archive(tmp_path))
    with pytest.raises(UsageError, match="foreign is a long table, .* expected 'sysmon-extract foreign' by itself"):
        archive.select(path)
    assert archive.records("foreign").columns
