# SPDX-License-Identifier: Apache-2.0
"""The table ``limits``: exact values, what a kernel lacks, garbage, this machine."""

from pathlib import Path

import pytest
from sysmond_probes import limits

from sysmond.probe import ABSENT, Host
from tests.support import sysfs

NAMES = [metric.name for metric in limits.LIMITS.metrics]


def row(root: Path) -> dict[str, int | str]:
    host = Host(str(root))
    [(instance, values)] = limits.read(host)
    host.close()
    assert instance == ""
    return dict(zip(NAMES, values, strict=True))


def test_a_server(tmp_path: Path) -> None:
    assert row(sysfs.build(tmp_path, "server")) == {
        "files": 13984,
        "files_max": 2**63 - 1,
        "inodes": 412019,
        "inodes_unused": 80211,
        "dentries": 391823,
        "dentries_unused": 350110,
        "aio_requests": 128,
        "aio_requests_max": 1048576,
        "terminals": 9,
        "terminals_max": 4096,
        "pids_max": 4194304,
        "threads_max": 1029551,
    }


def test_a_kernel_without_asynchronous_requests_lacks_these_alone(tmp_path: Path) -> None:
    server = sysfs.build(tmp_path, "server")
    (server / "proc/sys/fs/aio-nr").unlink()
    (server / "proc/sys/fs/aio-max-nr").unlink()
    assert [name for name, value in row(server).items() if value == ABSENT] == ["aio_requests", "aio_requests_max"]


@pytest.mark.parametrize("content", ["13984\n", "", "one two three"])
def test_garbage_is_refused(tmp_path: Path, content: str) -> None:
    server = sysfs.build(tmp_path, "server")
    (server / "proc/sys/fs/file-nr").write_text(content)
    with pytest.raises(ValueError, match=r"expected more numbers|invalid literal"):
        row(server)


def test_no_file_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        row(tmp_path)


def test_it_agrees_with_the_kernel_on_this_machine() -> None:
    found = row(Path("/"))
    for name, path in (
        ("pids_max", "kernel/pid_max"),
        ("threads_max", "kernel/threads-max"),
        ("files_max", "fs/file-max"),
    ):
        assert found[name] == int(Path("/proc/sys", path).read_text()), name
    assert 0 < int(found["files"]) <= int(found["files_max"])
