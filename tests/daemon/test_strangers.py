# SPDX-License-Identifier: Apache-2.0
"""An ordinary user against a whole recorder: he locks, prepares and writes what he can, and changes nothing."""

import fcntl
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sysmond.machine.folders import SHARED_MEMORY
from tests.support.waiting import HANG_S
from tests.support.whole import NOBODY, Asker, Recorder, a_recorder

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else as well")


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        yield made


@contextmanager
def a_stranger(does: Callable[[], object]) -> Iterator[int]:
    """A process of an ordinary user that does something, says so, and stays until the end; what it gave counts."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            Asker().become()
            os.write(writing, str(does()).encode())
            os.close(writing)
            signal.pause()
        except BaseException as failure:  # noqa: BLE001  nothing may escape into a second pytest
            sys.stderr.write(f"{failure!r}\n")
        finally:
            os._exit(1)
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        assert said, "the stranger could not even try"
        yield int(said)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def everything_in(*folders: str) -> Iterator[str]:
    """All files and folders, those too that lead to nothing."""
    for top in folders:
        yield top
        for folder, below, names in os.walk(top):
            yield from (f"{folder}/{name}" for name in (*below, *names))


def locks_all(recorder: Recorder) -> int:
    """Lock whatever can be opened, in one way or another; how many files that were."""
    locked = 0
    for path in everything_in(*recorder.folders):
        with suppress(OSError):
            fcntl.flock(os.open(path, os.O_RDONLY | os.O_NONBLOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked += 1
    return locked


def test_who_locks_all_that_he_can_open_stops_neither_flush_nor_pin_nor_the_next_start(recorder: Recorder) -> None:
    recorder.start()
    recorder.wait_for("process", "pid > 0")
    recorder.flush()
    assert recorder.command("pin", "--why=before", "yesterday", "now").code == 0
    with a_stranger(lambda: locks_all(recorder)) as locked:
        assert locked > 10, "files that all may read can be locked by all"
        recorder.flush()
        assert recorder.command("pin", "--why=meanwhile", "yesterday", "now").code == 0
        recorder.end()
        process = recorder.start()
        recorder.wait_for("process", f"pid = {process.pid}")
        recorder.flush()
        recorder.end()


@pytest.mark.parametrize("umask", [0, 0o077])
def test_whatever_umask_it_is_started_with_others_write_nothing_and_read_what_is_public(
    recorder: Recorder, umask: int
) -> None:
    before = os.umask(umask)
    try:
        recorder.start()
    finally:
        os.umask(before)
    recorder.wait_for("process", "pid > 0")
    # It is looked for where it may lie, and until there is some in public, that is also where he may not look.
    recorder.wait_for("cgroup_name", "id > 0")
    recorder.flush()
    modes = {path: os.lstat(path).st_mode for path in everything_in(*recorder.folders) if not os.path.islink(path)}
    assert [path for path, mode in modes.items() if mode & 0o022] == []
    public = [
        path for path in modes if "/public/" in path or path.endswith(("/plan.json", "/bpf.json", "/progress.json"))
    ]
    assert len(public) > 5
    assert [path for path in public if not modes[path] & stat.S_IROTH] == []
    assert recorder.extract("process", by=Asker()).code == 0
    with a_stranger(lambda: sum(os.access(path, os.W_OK) for path in modes)) as writable:
        assert writable == 0
    recorder.end()


@pytest.mark.parametrize("which", ["state", "runtime"])
def test_a_recorder_does_not_begin_in_folders_that_a_stranger_prepared(recorder: Recorder, which: str) -> None:
    """Rings of restricted tables would be his group's, and a plan that he swaps would be code that root runs."""
    prepared = Path(SHARED_MEMORY, f"sysmond-test-{os.getpid()}-{time.monotonic_ns()}")

    def prepare() -> int:
        for part in ("sampler", "background", "archiver"):
            (prepared / part / "restricted").mkdir(parents=True)
        return 1

    try:
        with a_stranger(prepare):
            recorder.folders = recorder.folders._replace(**{which: str(prepared)})
            process = recorder.start("--ticks", "1")
            code = process.wait(HANG_S)
            if which == "runtime":
                assert code != 0
            assert f"{prepared}: belongs to uid {NOBODY}; expected root" in recorder.said()
            assert [path for path in everything_in(str(prepared)) if os.lstat(path).st_uid == 0] == []
    finally:
        shutil.rmtree(prepared)
