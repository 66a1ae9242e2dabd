# SPDX-License-Identifier: Apache-2.0
"""What the tests of answers share: a machine that has recorded nothing yet."""

from pathlib import Path

import pytest

from tests.support.machine import Machine
from tests.support.untilnow import now_ns, rings_first

__all__ = ["now_ns", "rings_first"]


@pytest.fixture
def machine(runtime: Path) -> Machine:
    """A machine whose rings, files and clocks a test writes, in RAM."""
    return Machine(runtime)
