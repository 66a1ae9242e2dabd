# SPDX-License-Identifier: Apache-2.0
"""The table ``disk``: exact values of three generations of kernels, spare devices, garbage, this machine."""

import os
from pathlib import Path

import pytest
from sysmond_probes import disk

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Host

FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMES = [metric.name for metric in disk.DISK.metrics]


def rows_of(root: Path) -> dict[str, dict[str, int | str]]:
    host = Host(str(root))
    rows = {device: dict(zip(NAMES, values, strict=True)) for device, values in disk.Diskstats().read(host)}
    host.close()
    return rows


def write(root: Path, content: bytes) -> None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/diskstats").write_bytes(content)


def test_the_table_is_well_formed() -> None:
    [probe] = disk.sysmond_probes()
    check_table(probe.table)
    assert probe.table.name == "disk"
    assert len(NAMES) == 17


def test_a_kernel_of_today_has_every_column() -> None:
    rows = rows_of(FIXTURES / "linux618")
    assert list(rows) == ["vda"], "unused loop and zram devices are left out"
    assert rows["vda"] == {
        "reads": 90686,
        "reads_merged": 13495,
        "read_bytes": 6242882 * 512,
        "read_time": 37842,
        "writes": 13043,
        "writes_merged": 70680,
        "written_bytes": 3733232 * 512,
        "write_time": 9490,
        "in_flight": 0,
        "io_time": 13028,
        "weighted_io_time": 48561,
        "discards": 21566,
        "discards_merged": 44,
        "discarded_bytes": 969904 * 512,
        "discard_time": 1191,
        "flushes": 840,
        "flush_time": 36,
    }


def test_before_4_18_there_are_neither_discards_nor_flushes() -> None:
    rows = rows_of(FIXTURES / "linux415")
    assert list(rows["sda"].values()) == [
        *(150232, 21084, 9871234 * 512, 81244, 402311, 99821, 20480016 * 512, 4294967290, 2, 120044, 301228),
        *[ABSENT] * 6,
    ]


def test_before_5_5_there_are_discards_and_no_flushes() -> None:
    rows = rows_of(FIXTURES / "linux419")
    values = list(rows["nvme0n1"].values())
    assert values[8:] == [0, 22000, 40579, 310, 5, 81920 * 512, 77, ABSENT, ABSENT]


def test_only_spare_devices_without_any_request_are_left_out() -> None:
    assert list(rows_of(FIXTURES / "linux415")) == ["loop0", "sda", "sda1", "sda2", "cciss/c0d0"]
    # A request that hangs is I/O, although none is completed.
    assert list(rows_of(FIXTURES / "linux419")) == ["nvme0n1", "loop0"]


def test_a_kernel_to_come_may_have_more_columns(tmp_path: Path) -> None:
    write(tmp_path, b"8 0 sda " + b" ".join(b"%d" % number for number in range(1, 21)) + b"\n")
    assert list(rows_of(tmp_path)["sda"].values())[14:] == [15, 16, 17]


def test_every_tick_shows_the_present_values_and_devices(tmp_path: Path) -> None:
    read, host = disk.Diskstats().read, Host(str(tmp_path))
    seen = []
    for line in (b"8 0 sda 1 0 2", b"8 0 sda 1 0 2", b"8 0 sda 9 0 2", b"8 16 sdb 1 0 2"):
        write(tmp_path, line + b" 0" * 8 + b"\n")
        host.new_tick()
        seen.append([(device, values[0], values[2]) for device, values in read(host)])
    assert seen == [[("sda", 1, 1024)], [("sda", 1, 1024)], [("sda", 9, 1024)], [("sdb", 1, 1024)]]


def test_a_name_that_is_not_utf8_survives(tmp_path: Path) -> None:
    write(tmp_path, b"8 0 sd\xff 1" + b" 0" * 10 + b"\n")
    [device] = rows_of(tmp_path)
    assert os.fsencode(device) == b"sd\xff"


@pytest.mark.parametrize(
    "line",
    [
        b"8 0 sda 1 2 3",
        b"8 0 sda" + b" 1" * 12,
        b"8 0 sda" + b" 1" * 16,
        b"8 0 sda 1 2 x" + b" 1" * 8,
        b"garbage",
        b"8 0 sda 1 2 0x3" + b" 1" * 14,
    ],
)
def test_garbage_is_refused(tmp_path: Path, line: bytes) -> None:
    write(tmp_path, line + b"\n")
    with pytest.raises(ValueError, match=r"columns|invalid literal"):
        rows_of(tmp_path)


def test_a_machine_without_block_devices_has_no_rows(tmp_path: Path) -> None:
    write(tmp_path, b"")
    assert rows_of(tmp_path) == {}


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rows_of(tmp_path)


def test_it_agrees_with_sysfs_on_this_machine() -> None:
    """``/sys/class/block/DEVICE/stat`` has the same numbers, written by another function of the kernel."""
    rows = rows_of(Path("/"))
    if not rows:
        pytest.skip("no block device with I/O here")
    for device, row in rows.items():
        before = [int(word) for word in Path(f"/sys/class/block/{device.replace('/', '!')}/stat").read_text().split()]
        again = rows_of(Path("/"))[device]
        for name, first, then in zip(NAMES, row.values(), again.values(), strict=True):
            if name == "in_flight" or first == ABSENT:
                continue
            column = NAMES.index(name)
            expected = before[column] * (512 if name.endswith("_bytes") else 1)
            assert int(first) <= expected <= int(then), (device, name)
