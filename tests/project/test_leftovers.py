# SPDX-License-Identifier: Apache-2.0
"""What a test leaves behind is noticed, whatever it is."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.support.leftovers import present


def a_descriptor() -> Callable[[], object]:
    descriptor = os.open("/", os.O_RDONLY)
    return lambda: os.close(descriptor)


def a_child() -> Callable[[], object]:
    child = subprocess.Popen([sys.executable, "-c", ""])
    return child.wait


def a_thread() -> Callable[[], object]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="left")
    thread.start()

    def tidy() -> None:
        end.set()
        thread.join()

    return tidy


def a_signal() -> Callable[[], object]:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    return lambda: signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("leave", "words"),
    [(a_descriptor, "descriptor of /"), (a_child, "child "), (a_thread, "thread left"), (a_signal, "handler ")],
)
def test_what_is_left_is_named(leave: Callable[[], Callable[[], object]], words: str) -> None:
    before = present()
    tidy = leave()
    (left,) = present() - before
    tidy()
    assert left.startswith(words)
    assert not present() - before
