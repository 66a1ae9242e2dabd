# SPDX-License-Identifier: Apache-2.0
"""What a program says of wrong usage: one line on standard error, and nothing else."""

import pytest


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Give the one line that was said, where nothing was written beside it."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err
