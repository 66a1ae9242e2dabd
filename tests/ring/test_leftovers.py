# SPDX-License-Identifier: Apache-2.0
"""What writers leave behind: whose rings are over."""

import os
import subprocess
import sys

from sysmond.ring.leftovers import is_alive


def test_who_ended_does_not_write_any_more_also_before_anybody_has_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        os.kill(process.pid, 0)  # The kernel still knows it.
        assert not is_alive(process.pid)
    assert not is_alive(process.pid)
    assert is_alive(os.getpid())
