# SPDX-License-Identifier: Apache-2.0
"""What follows from messages of the proc connector and of taskstats: of other kernels, in any order, cut, and lost."""

import struct
from typing import NamedTuple

import pytest

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Sensitivity
from sysmond.errors import Error
from sysmond.tasks import hidepid
from sysmond.tasks.ends import exits_netlink
from sysmond.tasks.ends.connector import Lives, ProcessEnd
from sysmond.tasks.ends.taskstats import READINGS_MAX, SLOT_BYTES, ExitStats, Sums, layout
from sysmond.tasks.tables import EXITS, EXITS_RECORD

SECOND = 1_000_000_000
FORK, EXEC, EXIT = 0x1, 0x2, 0x80000000

# struct taskstats in the kernel's own order, from Documentation/accounting/taskstats-struct.rst and linux/taskstats.h:
# name, type, and the version that brought it. With native alignment it is what the compiler makes of it.
DELAY = ("cpu", "blkio", "swapin")
FIELDS = (
    ("version", "H", 1),
    ("ac_exitcode", "I", 1),
    ("ac_flag", "B", 1),
    ("ac_nice", "B", 1),
    *((f"{name}_{what}", "Q", 1) for name in DELAY for what in ("count", "delay_total")),
    ("cpu_run_real_total", "Q", 1),
    ("cpu_run_virtual_total", "Q", 1),
    ("ac_comm", "32s", 2),
    ("ac_sched", "0QB", 2),
    ("ac_pad", "3s", 2),
    ("ac_uid", "0QI", 2),
    ("ac_gid", "I", 2),
    ("ac_pid", "I", 2),
    ("ac_ppid", "I", 2),
    ("ac_btime", "I", 2),
    *((f"ac_{name}", "Q", 2) for name in ("etime", "utime", "stime", "minflt", "majflt")),
    *((name, "Q", 3) for name in ("coremem", "virtmem", "hiwater_rss", "hiwater_vm", "read_char", "write_char")),
    *((name, "Q", 3) for name in ("read_syscalls", "write_syscalls")),
    *((name, "Q", 4) for name in ("read_bytes", "write_bytes", "cancelled_write_bytes")),
    *((name, "Q", 5) for name in ("nvcsw", "nivcsw")),
    *((name, "Q", 6) for name in ("ac_utimescaled", "ac_stimescaled", "cpu_scaled_run_real_total")),
    *((f"freepages_{what}", "Q", 7) for what in ("count", "delay_total")),
    *((f"thrashing_{what}", "Q", 9) for what in ("count", "delay_total")),
    ("ac_btime64", "Q", 10),
    *((f"compact_{what}", "Q", 11) for what in ("count", "delay_total")),
    ("ac_tgid", "I", 12),
    *((name, "Q", 12) for name in ("ac_tgetime", "ac_exe_dev", "ac_exe_inode")),
    *((f"wpcopy_{what}", "Q", 13) for what in ("count", "delay_total")),
    *((f"irq_{what}", "Q", 14) for what in ("count", "delay_total")),
    *((f"{name}_{what}", "Q", 16) for name in ("cpu", "blkio", "irq") for what in ("delay_max", "delay_min")),
)
VERSIONS = (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)


def taskstats(version: int, **values: int | bytes) -> bytes:
    """The struct of a version, all that is not given being a number that gives itself away."""
    form, packed = "@", []
    for name, code, since in FIELDS:
        if since > version or (version == 15 and since == 16):
            continue
        form += code
        packed.append(values.get(name, version if name == "version" else b"" if code.endswith("s") else 0xEE))
        if version == 15 and name.endswith("delay_total"):  # In this version alone, both lay behind each total.
            form += "QQ"
            packed += [0xEE, 0xEE]
    return struct.pack(form + "0Q", *packed)


class Thread(NamedTuple):
    """A thread as the kernel tells of it when it ends."""

    pid: int
    tgid: int
    flags: int = 0
    lasted_us: int = 2_500_000
    cpu_ns: int = 3_000_500
    code: int = 0
    comm: bytes = b"name"
    rss_kib: int = 100

    def told(self, version: int) -> bytes:
        return taskstats(
            version,
            ac_pid=self.pid,
            ac_tgid=self.tgid,
            ac_ppid=7,
            ac_uid=1000,
            ac_flag=self.flags,
            ac_comm=self.comm,
            ac_exitcode=self.code,
            ac_btime=1_700_000_000,
            ac_etime=self.lasted_us,
            ac_tgetime=self.lasted_us,
            cpu_run_virtual_total=self.cpu_ns,
            ac_utime=2000,
            ac_stime=1000,
            ac_minflt=11,
            ac_majflt=12,
            hiwater_rss=self.rss_kib,
            read_bytes=13,
            write_bytes=14,
        )


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) & 3)


def message(thread: bytes, group: bytes = b"", *, is_padded: bool = False) -> bytes:
    """A message in its slot: TASKSTATS_CMD_NEW with what concerns the thread, and its group where that is dead."""
    pad = attribute(6, b"") if is_padded else b""  # TASKSTATS_TYPE_NULL, where 64 bits must be aligned.
    body = attribute(4 | 0x8000, attribute(1, bytes(4)) + pad + attribute(3, thread))
    if group:
        body += attribute(5 | 0x8000, attribute(2, bytes(4)) + pad + attribute(3, group))
    whole = struct.pack("=IHHIIBBH", 20 + len(body), 31, 0, 1, 0, 2, 1, 0) + body
    return whole.ljust(SLOT_BYTES, b"\xee")


def event(what: int, time_ns: int, *numbers: int) -> bytes:
    """A message of the connector: netlink's header, its own, and the event."""
    return struct.pack("=IHHII IIIIHH IIQ 6I", 76, 3, 0, 1, 0, 1, 1, 1, 0, 40, 0, what, 0, time_ns, *numbers)


def fork(time_ns: int, parent: int, thread: int, process: int) -> bytes:
    return event(FORK, time_ns, parent, parent, thread, process, 0, 0)


def end(time_ns: int, thread: int, process: int, code: int = 0, parent: int = 1) -> bytes:
    return event(EXIT, time_ns, thread, process, code, 17, parent, parent)


def ended(*messages: bytes, lives: Lives | None = None) -> list[ProcessEnd]:
    lives = lives or Lives()
    lives.follow(b"".join(messages), 0)
    return lives.take()


def values(row: bytes) -> dict[str, int | bytes]:
    names = [metric.name for metric in EXITS.metrics]
    return dict(zip(names, EXITS_RECORD.unpack(row), strict=True))


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_the_struct_is_read(version: int, is_padded: bool) -> None:
    sums = Sums()
    sums.follow(message(Thread(42, 42, flags=0x20, code=0x0500).told(version), is_padded=is_padded))
    sums.name({42: 42})
    assert sums.unread == 0
    used = (3000, 2000, 1000, 100 * 1024, 11, 12, 13, 14)
    life = ExitStats(42, 7, 1000, b"name".ljust(16, b"\0"), 0x0500, 1_700_000_002, 2_500_000, *used)
    assert sums.pop(42) == life
    assert sums.pop(42) is None


def test_the_struct_is_as_long_as_the_kernel_says() -> None:
    lengths = {8: 328, 10: 352, 11: 368, 12: 400, 13: 416, 14: 432}
    assert {version: len(taskstats(version)) for version in lengths} == lengths


def test_a_struct_that_is_too_old_or_too_long_is_none() -> None:
    with pytest.raises(Error, match="version 3 of the struct; expected 4 or a later one"):
        layout(3)
    sums = Sums()
    sums.follow(message(taskstats(3)))
    sums.follow(struct.pack("=IHHIIi", 36, 2, 0, 1, 0, -1).ljust(SLOT_BYTES, b"\0"))  # NLMSG_ERROR
    assert sums.unread == 2
    assert not sums.over
    longer = Thread(42, 42, flags=0x20).told(16) + bytes(128)  # A later version adds to the end.
    sums.follow(message(longer))
    assert sums.pop(42) is not None


def test_threads_are_one_process_with_the_sums_of_all() -> None:
    sums = Sums()
    sums.follow(message(Thread(50, 42, comm=b"worker", rss_kib=90).told(16)))
    sums.follow(message(Thread(42, 42, comm=b"leader", rss_kib=95).told(16)))
    assert not sums.over
    last = Thread(51, 42, comm=b"last", flags=0x20, code=9, lasted_us=9_000_000).told(16)
    sums.follow(message(last, Thread(0, 0, cpu_ns=50_000_000).told(16)))
    life = sums.pop(42)
    assert life is not None
    assert life.comm.rstrip(b"\0") == b"leader"
    assert (life.code, life.lasted_us, life.peak_rss) == (9, 9_000_000, 100 * 1024)
    assert (life.user_us, life.system_us, life.minor_faults, life.read_bytes) == (6000, 3000, 33, 39)
    assert life.cpu_us == 50_000  # Of the kernel's sum, which has the threads that ended before as well.


def test_before_version_12_the_connector_names_the_process_of_a_thread() -> None:
    sums = Sums()
    sums.follow(message(Thread(50, 0xEE).told(11)))
    sums.name({})  # The connector has not told yet.
    sums.follow(message(Thread(42, 0xEE, code=0x0300).told(11), Thread(0, 0).told(11)))
    sums.name({50: 42, 42: 42})
    life = sums.pop(42)
    assert life is not None
    assert (life.cpu_us, life.minor_faults, life.code) == (6000, 22, 0x0300)
    assert sums.pop(50) is None


def test_a_thread_that_nobody_names_becomes_a_process_after_a_while() -> None:
    sums = Sums()
    sums.follow(message(Thread(50, 0xEE).told(11)))
    for _ in range(READINGS_MAX):
        sums.name({})
        assert sums.pop(50) is None
    sums.name({})
    assert sums.pop(50) is not None


def test_a_number_given_anew_within_a_reading_is_two_lives() -> None:
    sums = Sums()
    for code in (1, 2):
        sums.follow(message(Thread(42, 42, flags=0x20, code=code).told(16)))
    first, second = sums.pop(42), sums.pop(42)
    assert first is not None
    assert second is not None
    assert (first.code, second.code) == (1, 2)
    found = ended(fork(1, 9, 42, 42), end(2, 42, 42), fork(3, 9, 42, 42), end(4, 42, 42))
    assert [(each.start_ns, each.end_ns) for each in found] == [(1, 2), (3, 4)]


def test_sums_of_threads_are_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysmond.tasks.ends.taskstats.PARTIAL_MAX", 2)
    sums = Sums()
    for process in (10, 20, 30):
        sums.follow(message(Thread(process + 1, process).told(16)))
    assert [sums.pop(process) is None for process in (10, 20, 30)] == [True, False, False]


def test_without_a_time_of_the_scheduler_that_of_the_ticks_stands() -> None:
    sums = Sums()
    sums.follow(message(Thread(42, 42, flags=0x20, cpu_ns=0).told(16)))
    life = sums.pop(42)
    assert life is not None
    assert life.cpu_us == 3000


def test_a_process_ends_with_its_last_thread() -> None:
    lives = Lives()
    begun = (fork(1, 9, 42, 42), fork(2, 9, 43, 42), fork(3, 9, 44, 42))
    assert ended(*begun, end(4, 42, 42, 0x0100), end(5, 43, 42), lives=lives) == []
    assert ended(end(6, 44, 42, parent=0), lives=lives) == [ProcessEnd(42, 1, 6, 0x0100, 9)]
    assert lives.unsure == {}


def test_a_process_whose_thread_called_execve_ends_once_with_its_own_code() -> None:
    lives = Lives()
    begun = (fork(1, 9, 42, 42), fork(2, 9, 43, 42), fork(2, 9, 44, 42))
    # 43 calls execve: the kernel kills 44 and 42, and 43 becomes 42.
    assert ended(*begun, end(3, 42, 42, 9), end(3, 44, 42, 9), event(EXEC, 3, 42, 42, 0, 0, 0, 0), lives=lives) == []
    assert ended(fork(4, 9, 45, 42), end(5, 45, 42), lives=lives) == []
    assert ended(end(6, 42, 42, 0, 9), lives=lives) == [ProcessEnd(42, 1, 6, 0, 9)]


def test_of_what_ran_before_somebody_must_know_that_no_thread_is_left() -> None:
    lives = Lives()
    assert ended(end(5, 42, 42, 0x0200, 9), lives=lives) == []
    lives.settle(lambda last: None)
    assert list(lives.unsure) == [42]
    lives.settle(lambda last: last.end_ns > 5)
    assert lives.take() == []
    assert lives.unsure == {}
    assert ended(end(6, 43, 42, 0, 9), lives=lives) == []
    lives.settle(lambda last: last.end_ns > 5)
    assert lives.take() == [ProcessEnd(42, 0, 6, 0x0200, 9)]


def test_of_what_lost_its_first_thread_before_the_last_one_tells() -> None:
    lives = Lives()
    assert ended(end(5, 43, 42, 0x0300), lives=lives) == []
    lives.settle(lambda _: True)
    assert lives.take() == [ProcessEnd(42, 0, 5, 0x0300, 1)]


def test_a_number_given_anew_is_over() -> None:
    lives = Lives()
    ended(end(5, 42, 42, 0, 9), lives=lives)
    assert ended(fork(7, 9, 42, 42), lives=lives) == [ProcessEnd(42, 0, 5, 0, 9)]


def test_after_a_loss_no_count_of_threads_is_relied_on() -> None:
    lives = Lives()
    ended(fork(1, 9, 42, 42), fork(2, 9, 43, 42), end(3, 42, 42), fork(3, 9, 60, 60), lives=lives)
    lives.doubt(4)
    assert ended(end(8, 60, 60), lives=lives) == []
    lives.settle(lambda _: True)
    assert sorted(each.pid for each in lives.take()) == [42, 60]


def test_a_record_has_what_both_told() -> None:
    sums = Sums()
    sums.follow(message(Thread(42, 42, flags=0x20, comm=b"a\n\x1b\xff").told(16)))
    found = values(exits_netlink.record(ProcessEnd(42, 0, 10 * SECOND, 0x8B, 9), sums.pop(42), None))
    assert found["comm"] == b"a\n\x1b\xff".ljust(16, b"\0")
    assert (found["signal"], found["core_dumped"], found["exit_code"]) == (11, 1, 0)
    assert (found["start"], found["end"]) == (10 * SECOND - 2_500_000_000, 10 * SECOND)
    assert (found["ppid"], found["uid"], found["cgroup"]) == (9, 1000, ABSENT)
    assert (found["cpu"], found["peak_rss"], found["written_bytes"]) == (3000, 102_400, 14)


def test_a_record_without_taskstats_says_that_the_rest_is_absent() -> None:
    found = values(exits_netlink.record(ProcessEnd(42, 0, 10 * SECOND, 0xFF00, 9), None, None))
    assert (found["exit_code"], found["uid"], found["start"], found["cpu"]) == (255, 0xFFFFFFFF, ABSENT, ABSENT)


@pytest.mark.parametrize(
    ("second", "before_s", "right_s"),
    [
        (100.0, 0.0, 100.5),  # Within its second …
        (100.0, 100.6, 100.8),  # … behind the reading before …
        (109.6, 100.0, 109.8),  # … and before this one.
        (500.0, 100.0, 110.0),  # The wall clock was set: not behind now,
        (3.0, 109.0, 109.0),  # nor before the reading before.
    ],
)
def test_alone_taskstats_tells_an_end_between_two_readings(second: float, before_s: float, right_s: float) -> None:
    ahead_s = 1_700_000_000
    now = Relation(110 * SECOND, (110 + ahead_s) * SECOND + SECOND * 2 // 5, 110 * SECOND)
    wall_s = round(second + ahead_s + 0.4)
    life = ExitStats(42, 7, 0, b"", 0, wall_s, 1000, 0, 0, 0, 0, 0, 0, 0, 0)
    found = values(exits_netlink.timed(life, round(before_s * SECOND), now))
    assert isinstance(found["end"], int)
    assert found["end"] / SECOND == pytest.approx(right_s, abs=0.45)
    assert round(before_s * SECOND) <= found["end"] <= now.boottime_ns


MOUNTS = """22 27 0:21 / /proc rw,relatime - proc proc rw{options}
23 27 0:22 / /sys rw,relatime shared:2 - sysfs sysfs rw
99 27 0:40 / /home/x/proc rw - proc proc rw,hidepid=invisible
"""


@pytest.mark.parametrize("options", ["", ",hidepid=0", ",hidepid=off", ",gid=5"])
def test_a_proc_that_shows_all_is_public(options: str) -> None:
    assert hidepid.of_mounts(MOUNTS.format(options=options)) is Sensitivity.PUBLIC


@pytest.mark.parametrize("option", ["1", "2", "4", "noaccess", "invisible", "ptraceable"])
def test_a_proc_that_hides_is_restricted(option: str) -> None:
    assert hidepid.of_mounts(MOUNTS.format(options=f",hidepid={option}")) is Sensitivity.RESTRICTED
