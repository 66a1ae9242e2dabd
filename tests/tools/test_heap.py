# SPDX-License-Identifier: Apache-2.0
"""When the screen looks for garbage."""

import gc

from sysmon_tools.screen import heap


def test_garbage_is_looked_for_from_the_first_answer_on() -> None:
    gc.disable()
    try:
        heap.settle(is_live=True)
        assert gc.isenabled()
        assert gc.get_freeze_count()
    finally:
        gc.enable()
        gc.unfreeze()
