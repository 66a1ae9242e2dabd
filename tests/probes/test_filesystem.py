# SPDX-License-Identifier: Apache-2.0
"""The table ``filesystem``: which mounts count, exact values, and that what hangs hides only itself."""

import errno
import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sysmond_probes import filesystem
from sysmond_probes.filesystem import ANSWERED, AUTOMOUNTED, HUNG, REFUSED, FileSystems

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Host, Lane
from sysmond.sources import statvfs as statvfs_module
from sysmond.sources.statvfs import MACHINES_PATH, Statvfs
from tests.faults import trial

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures"
MOUNTINFO = (FIXTURES / "linux419/proc/self/mountinfo").read_bytes()
NAMES = [metric.name for metric in filesystem.FILESYSTEM.metrics]
NUMBERS = NAMES[:7]
Row = dict[str, int | str]
Ask = Callable[[bytes], os.statvfs_result]


def answer(blocks: int = 1000, inodes: int = 80) -> os.statvfs_result:
    """Make what statvfs(3) might say: bsize, frsize, blocks, bfree, bavail, files, ffree, favail, flag, namemax."""
    return os.statvfs_result((4096, 512, blocks, 400, 350, inodes, 30, 30, 0, 255))


def rows_of(root: Path | str, statvfs: Statvfs | None = None) -> dict[str, Row]:
    host = Host(str(root))
    rows = {mount: dict(zip(NAMES, values, strict=True)) for mount, values in FileSystems(statvfs).read(host)}
    host.close()
    return rows


def write(root: Path, *lines: bytes) -> None:
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/mountinfo").write_bytes(b"\n".join(lines) + b"\n")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What a hanging call waits for; at the end nothing hangs any more."""
    event = threading.Event()
    yield event
    event.set()


def test_the_table_is_well_formed() -> None:
    probe, _ = filesystem.sysmond_probes()
    check_table(probe.table)
    assert (probe.table.name, probe.lane, probe.interval_s) == ("filesystem", Lane.BACKGROUND, 30.0)


def test_real_file_systems_count_once_a_mount_point() -> None:
    asked: list[bytes] = []

    def ask(path: bytes) -> os.statvfs_result:
        asked.append(path)
        return answer()

    rows = rows_of(FIXTURES / "linux419", Statvfs(ask))
    root = os.fsencode(FIXTURES / "linux419")
    assert sorted(asked) == sorted(
        root + point
        for point in (
            *(b"/", b"/boot/efi", b"/home", b"/media/my disk\\one\t\nx", b"/media/caf\xe9", b"/mnt/nfs"),
            *(b"/srv/bound", b"/mnt/twice", b"/mnt/deep", b"/mnt/deep/inside2", b"/mnt/nameless"),
        )
    ), "neither pseudo file systems, nor hidden mounts, nor anything of an automounter"
    assert rows["/mnt/twice"]["device"] == "above"
    assert rows["/mnt/deep"]["device"] == "hiding"
    assert rows["/home"]["type"] == "btrfs"
    assert rows["/mnt/nfs"]["device"] == "server:/export one"
    assert rows["/mnt/nameless"]["device"] == ""
    assert rows["/media/my disk\\one\t\nx"]["type"] == "fuseblk"


def test_what_an_automounter_mounted_is_shown_and_not_asked() -> None:
    rows = rows_of(FIXTURES / "linux419", Statvfs(lambda _: answer()))
    assert "/net" not in rows
    assert "/proc/sys/fs/binfmt_misc" not in rows
    for point in ("/net/filer", "/net/filer/sub"):
        assert rows[point]["status"] == AUTOMOUNTED
        assert {rows[point][name] for name in NUMBERS} == {ABSENT}
    assert rows["/net/filer"]["device"] == "filer:/"


def test_numbers_are_in_bytes() -> None:
    assert rows_of(FIXTURES / "linux419", Statvfs(lambda _: answer()))["/"] == {
        "size": 512000,
        "used": 307200,
        "free": 204800,
        "available": 179200,
        "inodes": 80,
        "inodes_used": 50,
        "inodes_free": 30,
        "read_only": 0,
        "status": ANSWERED,
        "type": "ext4",
        "device": "/dev/nvme0n1p2",
    }


def test_no_inodes_are_absent_inodes() -> None:
    row = rows_of(FIXTURES / "linux419", Statvfs(lambda _: answer(inodes=0)))["/home"]
    assert [row[name] for name in ("size", "inodes", "inodes_used", "inodes_free")] == [512000, ABSENT, ABSENT, ABSENT]


def test_read_only_is_of_the_mount_or_of_the_file_system() -> None:
    rows = rows_of(FIXTURES / "linux419", Statvfs(lambda _: answer()))
    assert {point for point, row in rows.items() if row["read_only"]} == {"/media/caf\udce9", "/mnt/nfs"}


def test_what_a_service_manager_made_read_only_for_us_alone_is_not_read_only(tmp_path: Path) -> None:
    """As ProtectSystem=strict with ProtectHome=read-only leaves it, whose mount of /home the machine does not have."""
    line = b"%d %d %s / %s %s - ext4 /dev/%s %s"
    ours = [
        line % (1, 0, b"8:1", b"/", b"ro", b"sda1", b"rw"),
        line % (2, 1, b"8:1", b"/home", b"ro", b"sda1", b"rw"),
        line % (3, 1, b"8:2", b"/srv", b"ro", b"sda2", b"ro"),
        line % (4, 1, b"8:3", b"/bound", b"ro", b"sda3", b"rw"),
        line % (5, 1, b"8:4", b"/mine", b"ro", b"sda4", b"rw"),
    ]
    theirs = [
        line % (11, 0, b"8:1", b"/", b"rw", b"sda1", b"rw"),
        line % (13, 11, b"8:2", b"/srv", b"rw", b"sda2", b"ro"),
        line % (14, 11, b"8:3", b"/bound", b"ro", b"sda3", b"rw"),
    ]
    write(tmp_path, *ours)
    statvfs = Statvfs(lambda _: answer())
    assert {row["read_only"] for row in rows_of(tmp_path, statvfs).values()} == {1}
    (tmp_path / "proc/1").mkdir()
    (tmp_path / "proc/1/mountinfo").write_bytes(b"\n".join(theirs) + b"\n")
    read_only = {point: row["read_only"] for point, row in rows_of(tmp_path, statvfs).items()}
    assert read_only == {"/": 0, "/home": 0, "/srv": 1, "/bound": 1, "/mine": 1}


CLONE_NEWNS, MS_READ_ONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 1, 32, 4096, 0x4000, 1 << 18
IN_A_NAMESPACE = f"""
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
point = sys.argv[1].encode()
refused = libc.unshare({CLONE_NEWNS}) or libc.mount(b"none", b"/", None, {MS_REC | MS_PRIVATE}, None)
if refused or libc.mount(b"none", point, None, {MS_READ_ONLY | MS_REMOUNT | MS_BIND}, None):
    sys.exit(ctypes.get_errno())
from sysmond_probes.filesystem import FileSystems
from sysmond.probe import Host
from sysmond.sources.statvfs import PATH, parse
[seen] = [mount.read_only for mount in parse(open(PATH, "rb").read()) if mount.point == point]
rows = dict(FileSystems().read(Host()))
print(json.dumps([seen, rows[sys.argv[1]][{NAMES.index("read_only")}]]))
"""


@pytest.mark.skipif(bool(trial.cannot_mount()), reason="mounts a file system of its own, and changes it in a namespace")
def test_a_mount_namespace_of_our_own_makes_nothing_read_only_for_the_machine(tmp_path: Path) -> None:
    point = tmp_path / "mounted"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(point)], check=True)
    try:
        if str(point) not in Path(MACHINES_PATH).read_text():
            pytest.skip("the first process is in another mount namespace")
        for options, expected in (("rw", [True, 0]), ("remount,ro", [True, 1])):
            if options != "rw":
                subprocess.run(["mount", "-o", options, str(point)], check=True)
            words = [sys.executable, "-P", "-c", IN_A_NAMESPACE, str(point)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == expected
    finally:
        subprocess.run(["umount", str(point)], check=True)


def test_a_name_that_is_not_utf8_survives() -> None:
    rows = rows_of(FIXTURES / "linux419", Statvfs(lambda _: answer()))
    assert b"/media/caf\xe9" in map(os.fsencode, rows)


def test_what_holds_nothing_or_is_gone_has_no_row() -> None:
    def ask(path: bytes) -> os.statvfs_result:
        if path.endswith(b"/home"):
            raise FileNotFoundError(errno.ENOENT, "gone")
        return answer(blocks=0 if path.endswith(b"/nfs") else 1000)

    rows = rows_of(FIXTURES / "linux419", Statvfs(ask))
    assert "/srv/bound" in rows
    assert not {"/home", "/mnt/nfs"} & rows.keys()


def test_a_refusal_is_told_and_concerns_one_mount() -> None:
    def ask(path: bytes) -> os.statvfs_result:
        if path.endswith(b"/home"):
            raise PermissionError(errno.EACCES, "no")
        return answer()

    rows = rows_of(FIXTURES / "linux419", Statvfs(ask))
    assert rows["/home"]["status"] == REFUSED
    assert {rows["/home"][name] for name in NUMBERS} == {ABSENT}
    assert rows["/"]["status"] == ANSWERED


def test_a_mount_that_hangs_hides_only_itself_and_is_asked_once(release: threading.Event) -> None:
    asked: list[bytes] = []

    def ask(path: bytes) -> os.statvfs_result:
        asked.append(path)
        if path.endswith(b"/nfs"):
            release.wait()
        return answer()

    statvfs = Statvfs(ask, deadline_s=0.5)
    file_systems, host = FileSystems(statvfs), Host(str(FIXTURES / "linux419"))

    def read() -> dict[str, Row]:
        host.new_tick()
        return {mount: dict(zip(NAMES, values, strict=True)) for mount, values in file_systems.read(host)}

    first = read()
    assert first["/mnt/nfs"]["status"] == HUNG
    assert {first["/mnt/nfs"][name] for name in NUMBERS} == {ABSENT}
    assert first["/mnt/nfs"]["device"] == "server:/export one"
    assert {row["status"] for point, row in first.items() if not point.startswith(("/mnt/nfs", "/net"))} == {ANSWERED}
    for _ in range(5):
        assert read() == first
    assert len([path for path in asked if path.endswith(b"/nfs")]) == 1
    [thread] = statvfs._stuck.values()
    assert thread.daemon
    release.set()
    thread.join()
    assert read()["/mnt/nfs"]["status"] == ANSWERED


def test_what_hangs_is_waited_for_together(release: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven mounts, one deadline, first one at a time: by a clock that only waiting moves."""
    waited_s: list[float] = []
    monkeypatch.setattr(statvfs_module, "monotonic", lambda: sum(waited_s))
    monkeypatch.setattr(threading.Thread, "join", lambda _, timeout_s: waited_s.append(timeout_s))

    def ask(_: bytes) -> os.statvfs_result:
        release.wait()
        return answer()

    rows = rows_of(FIXTURES / "linux419", Statvfs(ask, deadline_s=0.5))
    assert (len(waited_s), sum(waited_s), waited_s[0]) == (12, 0.5, statvfs_module.IN_TURN_S)
    assert {row["status"] for row in rows.values()} == {HUNG, AUTOMOUNTED}


def test_one_thread_asks_them_all_where_none_hangs() -> None:
    askers: list[threading.Thread] = []

    def ask(_: bytes) -> os.statvfs_result:
        askers.append(threading.current_thread())
        return answer()

    rows_of(FIXTURES / "linux419", Statvfs(ask))
    assert len(askers) > 1
    assert len(set(askers)) == 1


def test_a_new_mount_at_the_point_of_one_that_hangs_is_asked(tmp_path: Path, release: threading.Event) -> None:
    hanging = iter([True, False])

    def ask(_: bytes) -> os.statvfs_result:
        if next(hanging):
            release.wait()
        return answer()

    file_systems, host = FileSystems(Statvfs(ask, deadline_s=0.1)), Host(str(tmp_path))
    seen = []
    for number in (b"30", b"31"):
        write(tmp_path, number + b" 1 0:40 / /mnt rw - nfs4 server:/ rw")
        host.new_tick()
        [(_, values)] = file_systems.read(host)
        seen.append(values[NAMES.index("status")])
    assert seen == [HUNG, ANSWERED]


def test_threads_are_bounded(tmp_path: Path, release: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_: bytes) -> os.statvfs_result:
        release.wait()
        return answer()

    monkeypatch.setattr(statvfs_module, "THREADS_MAX", 3)
    statvfs = Statvfs(ask, deadline_s=0.05)
    file_systems, host = FileSystems(statvfs), Host(str(tmp_path))
    for number in range(30, 36):
        write(tmp_path, b"%d 1 0:40 / /mnt rw - nfs4 server:/ rw" % number)
        host.new_tick()
        [(_, values)] = file_systems.read(host)
        assert values[NAMES.index("status")] == HUNG
    assert len(statvfs._stuck) == 3


def test_mounts_are_bounded(tmp_path: Path) -> None:
    write(tmp_path, *(b"%d 1 0:40 / /mnt/%d rw - tmpfs tmpfs rw" % (number, number) for number in range(10, 310)))
    rows = rows_of(tmp_path, Statvfs(lambda _: answer()))
    assert list(rows) == [f"/mnt/{number}" for number in range(10, 10 + statvfs_module.MOUNTS_MAX)]


def test_mounts_beyond_the_bound_are_counted(tmp_path: Path) -> None:
    _, probe = filesystem.sysmond_probes()
    check_table(probe.table)
    of_all = [b"%d 1 0:40 / /mnt/%d rw - tmpfs tmpfs rw" % (number, number) for number in range(10, 310)]
    write(tmp_path, *of_all, b"9 1 0:4 / /proc rw - proc proc rw")
    assert list(probe.read(Host(str(tmp_path)))) == [("", (301, 300, 300 - statvfs_module.MOUNTS_MAX))]
    (tmp_path / "proc/self/mountinfo").write_text("9 1 0:4 / /proc rw - proc proc rw\n")
    assert list(probe.read(Host(str(tmp_path)))) == [("", (1, 0, 0))]


def test_a_root_whose_parent_is_itself(tmp_path: Path) -> None:
    write(tmp_path, b"1 1 0:2 / / rw - rootfs rootfs rw", b"20 1 8:1 / / rw - ext4 /dev/sda1 rw")
    assert list(rows_of(tmp_path, Statvfs(lambda _: answer()))) == ["/"]


def test_of_two_at_one_point_of_the_same_parent_the_later_counts(tmp_path: Path) -> None:
    write(tmp_path, b"30 1 8:1 / /mnt rw - ext4 /dev/sda1 rw", b"31 1 8:2 / /mnt rw - ext4 /dev/sda2 rw")
    rows = rows_of(tmp_path, Statvfs(lambda _: answer()))
    assert [(point, row["device"]) for point, row in rows.items()] == [("/mnt", "/dev/sda2")]


def test_a_virtual_machine_of_today() -> None:
    rows = rows_of(FIXTURES / "linux618", Statvfs(lambda _: answer()))
    assert list(rows) == ["/dev", "/", "/opt/tools", "/dev/shm", "/sys/fs/cgroup"]


def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    write(tmp_path, b"2 3 0:2 / /a rw - tmpfs tmpfs rw", b"3 2 0:3 / /b rw - tmpfs tmpfs rw")
    assert list(rows_of(tmp_path, Statvfs(lambda _: answer()))) == ["/a", "/b"]


@pytest.mark.parametrize("line", [b"garbage", b"1 2 3 - ext4", b"30 1 8:1 / /mnt rw - ext4 /dev/sda1"])
def test_garbage_is_refused(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, line)
    with pytest.raises(ValueError, match=r"missing|unpack"):
        rows_of(tmp_path, Statvfs(lambda _: answer()))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rows_of(tmp_path)


def test_the_injected_root_is_asked(tmp_path: Path) -> None:
    write(tmp_path, b"30 1 8:1 / /there rw - ext4 /dev/sda1 rw", b"31 1 8:1 / /gone rw - ext4 /dev/sda1 rw")
    (tmp_path / "there").mkdir()
    rows = rows_of(tmp_path)
    assert list(rows) == ["/there"]
    assert rows["/there"]["size"] == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


def test_nothing_collectable_grows() -> None:
    def ask(path: bytes) -> os.statvfs_result:
        if path.endswith(b"/home"):
            raise PermissionError(errno.EACCES, "no")
        return answer()

    file_systems, host = FileSystems(Statvfs(ask)), Host(str(FIXTURES / "linux419"))
    list(file_systems.read(host))
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            host.new_tick()
            list(file_systems.read(host))
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_it_agrees_with_df_on_this_machine() -> None:
    row = rows_of("/")["/"]
    lines = subprocess.run(
        ["df", "-B1", "--output=size,used,avail,itotal,fstype", "/"], capture_output=True, check=True, text=True
    ).stdout.splitlines()
    size, used, available, inodes, kind = lines[1].split()
    assert (row["size"], row["type"]) == (int(size), kind)
    assert row["inodes"] == (int(inodes) if inodes not in ("0", "-") else ABSENT)
    # Others write meanwhile.
    assert abs(int(row["used"]) - int(used)) < 2**30
    assert abs(int(row["available"]) - int(available)) < 2**30


def test_a_real_mount_that_hangs_hides_only_itself(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, str(HERE / "hanging_fuse.py"), str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
    )
    if finished.returncode == 77:
        pytest.skip("needs root and FUSE")
    assert finished.returncode == 0, finished.stderr
    hanging, known, failed = json.loads(finished.stdout)
    status = NAMES.index("status")
    assert [reading["silent"][status] for reading in (hanging, known, failed)] == [HUNG, HUNG, REFUSED]
    assert [reading["root"][status] for reading in (hanging, known, failed)] == [ANSWERED] * 3
    assert hanging["silent"][NAMES.index("type")] == "fuse.silent"
