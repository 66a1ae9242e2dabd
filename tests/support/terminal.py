# SPDX-License-Identifier: Apache-2.0
"""A real terminal (tmux) in which one command runs."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.support.waiting import wait_until

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A terminal of 80 × 24 in which one command runs."""

    def __init__(self, command: str) -> None:
        self._tmux = ["tmux", "-L", f"sysmond-{os.getpid()}-{time.monotonic_ns()}", "-f", "/dev/null"]
        environ = {name: value for name, value in os.environ.items() if name not in {"TMUX", "COLUMNS", "LINES"}}
        environ["LC_ALL"] = "C.UTF-8"
        script = f"trap : INT; {command}; echo exit code $?; stty -a | grep -c ' icanon.* echo '; sleep 600"
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", script], check=True, env=environ
        )

    def screen(self) -> str:
        return subprocess.run([*self._tmux, "capture-pane", "-p"], check=False, capture_output=True, text=True).stdout

    def keys(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def resize(self, width: int, height: int) -> None:
        subprocess.run([*self._tmux, "resize-window", "-x", str(width), "-y", str(height)], check=True)

    def until(self, condition: Callable[[str], object]) -> str:
        shown = ""

        def is_seen() -> object:
            nonlocal shown
            shown = self.screen()
            return condition(shown)

        wait_until(is_seen, lambda: f"not seen on\n{shown}")
        return shown

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


def has_ended(screen: str) -> bool:
    """Whether all is said: the exit code, and after it whether the terminal has its line mode and echo again."""
    return bool(re.search(r"exit code \d+\n\d\n", screen))
