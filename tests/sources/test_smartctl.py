# SPDX-License-Identifier: Apache-2.0
"""What smartctl says of each kind of disk, and what it may say and do instead.

``ata``, ``nvme``, ``scsi`` and ``usb`` were recorded in a virtual machine (smartctl 7.3; QEMU, scsi_debug); the others
are written by its JSON. None is used with a serial number in it that a disk really has.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.probe import ABSENT, Absence, Cause
from sysmond.sources import smartctl
from sysmond.sources.smartctl import Attribute, Health, judge, run
from tests.support.waiting import wait_until

FIXTURES = Path(__file__).parent.parent / "fixtures/smart"


def told(name: str) -> Any:
    return json.loads((FIXTURES / f"{name}.json").read_bytes())


def judged(name: str) -> Health | Absence:
    content = (FIXTURES / f"{name}.json").read_bytes()
    return judge(content, json.loads(content)["smartctl"]["exit_status"])


def health(name: str) -> Health:
    said = judged(name)
    assert isinstance(said, Health)
    return said


def test_a_disk_of_ata() -> None:
    values, attributes = health("ata")
    assert values == {
        "healthy": 1, "verdict": 0, "temperature": 31, "power_on": 3600, "power_cycles": 0, "reallocated": 0,
        "errors_logged": 0, "model": "QEMU HARDDISK", "firmware": "2.5+", "protocol": "ATA",
    }  # fmt: skip
    assert attributes["5 Reallocated_Sector_Ct"] == Attribute(0, 100, 100, 36, 0)
    assert next(iter(attributes)) == "1 Raw_Read_Error_Rate"


def test_a_solid_state_disk_of_ata_tells_its_wear_by_the_statistics_of_the_standard() -> None:
    values, attributes = health("ssd")
    assert values == {
        "healthy": 1, "verdict": 64, "temperature": 34, "power_on": 12345 * 3600, "power_cycles": 2345,
        "unsafe_shutdowns": 41, "percent_used": 6, "reallocated": 3, "crc_errors": 7, "errors_logged": 2,
        "self_test": smartctl.PASSED, "self_test_age": 12000 * 3600, "read_bytes": 60 * 10**9 * 512,
        "written_bytes": 50_000_000_001 * 512, "model": "Samsung SSD 860 EVO 500GB", "firmware": "RVT01B6Q",
        "protocol": "ATA",
    }  # fmt: skip
    assert attributes["177 Wear_Leveling_Count"] == Attribute(121, 93, 93, 0, 0)


def test_without_statistics_the_attributes_of_wear_count() -> None:
    content = told("ssd")
    del content["ata_device_statistics"]
    said = judge(json.dumps(content).encode(), 0)
    assert isinstance(said, Health)
    assert (said.values["percent_used"], said.values["written_bytes"]) == (7, 50_000_000_000 * 512)
    assert "read_bytes" not in said.values


def test_a_failing_disk() -> None:
    values, attributes = health("failing")
    assert values == {
        "healthy": 0, "verdict": 8 + 16 + 128, "temperature": 40, "power_on": 40000 * 3600 + 1800, "power_cycles": 99,
        "reallocated": 4016, "pending": 1024, "uncorrectable": 1023, "media_errors": 88, "crc_errors": 0,
        "self_test": smartctl.FAILED, "self_test_age": 39990 * 3600, "written_bytes": 2**40 * 512,
        "model": "ST3000DM001-1ER166", "firmware": "CC25", "protocol": "ATA",
    }  # fmt: skip
    assert attributes["5 Reallocated_Sector_Ct"].failed == 1
    assert attributes["190 Airflow_Temperature_Cel"] == Attribute(0x24001D0028, 60, 38, 45, 2)


def test_a_disk_of_nvme() -> None:
    assert health("nvme") == Health({
        "healthy": 1, "verdict": 0, "warning": 0, "temperature": 50, "power_on": 0, "power_cycles": 0,
        "unsafe_shutdowns": 0, "percent_used": 0, "spare": 0, "spare_min": 0, "media_errors": 0, "errors_logged": 0,
        "read_bytes": 512_000, "written_bytes": 0, "model": "QEMU NVMe Ctrl", "firmware": "7.2.22", "protocol": "NVMe",
    }, {})  # fmt: skip


def test_a_worn_disk_of_nvme_and_a_number_that_does_not_fit() -> None:
    values, _ = health("worn_nvme")
    assert values == {
        "healthy": 0, "verdict": 8, "warning": 5, "temperature": 83, "power_on": 9999 * 3600, "power_cycles": 400,
        "unsafe_shutdowns": 77, "percent_used": 255, "spare": 3, "spare_min": 10, "media_errors": 12,
        "errors_logged": 3456, "self_test": smartctl.ABORTED, "self_test_age": 9000 * 3600,
        "read_bytes": 18_000_000 * 512_000, "model": "WD Blue SN570 1TB", "firmware": "234100WD", "protocol": "NVMe",
    }  # fmt: skip


def test_disks_of_scsi() -> None:
    assert health("scsi").values == {
        "healthy": 1, "verdict": 0, "temperature": 38, "model": "Linux scsi_debug", "firmware": "0191",
        "protocol": "SCSI",
    }  # fmt: skip
    assert health("sas").values == {
        "healthy": 1, "verdict": 0, "temperature": 31, "power_on": 1000 * 3600 + 59 * 60, "power_cycles": 55,
        "reallocated": 4, "media_errors": 3, "self_test": smartctl.FAILED, "self_test_age": 998 * 3600,
        "read_bytes": 1_234_567_000_000, "written_bytes": 1_000_000, "model": "SEAGATE ST4000NM0025",
        "firmware": "N004", "protocol": "SCSI",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.json") if path.stem != "gone"))
def test_no_serial_number_is_in_what_is_read(name: str) -> None:
    assert "S3CR3T" not in str(judged(name))


@pytest.mark.parametrize(
    ("name", "absence"),
    [
        ("standby", Absence(Cause.ASLEEP, "Device is in STANDBY mode, exit(3)")),
        ("denied", Absence(Cause.NO_PERMISSION, "Smartctl open device: /dev/sda failed: Permission denied")),
        ("usb", Absence(Cause.NO_SOURCE, "/dev/sdc: Unknown USB bridge [0x46f4:0x0001 (0x000)]")),
    ],
)
def test_a_disk_that_tells_nothing_says_why(name: str, absence: Absence) -> None:
    assert judged(name) == absence


def test_a_disk_that_is_gone_has_no_row() -> None:
    with pytest.raises(FileNotFoundError, match="No such device"):
        judged("gone")


@pytest.mark.parametrize(
    ("output", "code", "cause", "detail"),
    [
        (b"", 0, Cause.PROBE_FAILED, "not JSON"),
        (b"\x00\xff garbage", 0, Cause.PROBE_FAILED, "not JSON"),
        (b"[" * 100_000, 0, Cause.PROBE_FAILED, "not JSON"),
        (b"9" * 100_000, 0, Cause.PROBE_FAILED, "not JSON"),
        (b'{"smartctl": {}', 0, Cause.PROBE_FAILED, "not JSON"),
        (b"[1]", 0, Cause.PROBE_FAILED, "without names"),
        (b"{}", 0, Cause.NO_SOURCE, "reports nothing"),
        (b"{}", 1, Cause.NO_SOURCE, "exit code 1"),
        (b"{}", 2, Cause.PROBE_FAILED, "exit code 2"),
        (b'{"smartctl": {"messages": [{"string": "a\\u0000\\u001b[31mb"}]}}', 2, Cause.PROBE_FAILED, "a [31mb"),
    ],
)
def test_garbage_is_an_absence(output: bytes, code: int, cause: Cause, detail: str) -> None:
    said = judge(output, code)
    assert isinstance(said, Absence)
    assert said.cause is cause
    assert detail in said.detail
    assert len(said.detail) < 300


WRONG: list[Any] = [None, True, -1, 2**63, 1e300, "7", "", [], {}, [[]], {"value": {"value": 1}}]


@pytest.mark.parametrize("name", ["ata", "ssd", "failing", "nvme", "worn_nvme", "scsi", "sas"])
def test_anything_may_stand_anywhere(name: str) -> None:
    """Each value of an answer is replaced by each wrong one: what is read stays of its type and within its bounds."""

    def replaced(content: Any) -> Any:
        yield from WRONG
        pairs = (
            content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
        )
        for key, value in list(pairs):
            for other in replaced(value):
                content[key] = other
                yield content
            content[key] = value

    for content in replaced(told(name)):
        said = judge(json.dumps(content).encode(), 0)
        if isinstance(said, Health):
            for value in said.values.values():
                assert type(value) is str or -60 <= value <= smartctl.NUMBER_MAX  # type: ignore[operator]
            for attribute in said.attributes.values():
                assert all(value == ABSENT or 0 <= value <= smartctl.NUMBER_MAX for value in attribute)


NAMES = st.sampled_from(["ata_smart_attributes", "table", "smartctl", "messages", "id", "value", "raw", "temperature"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)), st.integers(0, 255))
def test_no_answer_raises_anything_but_that_the_disk_is_gone(content: Any, code: int) -> None:
    judge(json.dumps(content).encode(), code)


# --- Stand-ins for smartctl


@pytest.fixture
def stand_in(tmp_path: Path) -> Any:
    def make(body: str) -> list[str]:
        path = tmp_path / "smartctl"
        path.write_text(f"#!{sys.executable} -IS\nimport os, sys, time\n{body}\n")
        path.chmod(0o755)
        return [str(path), *smartctl.OPTIONS, "/dev/sda"]

    return make


def test_its_output_and_its_exit_code_are_read(stand_in: Any) -> None:
    command = stand_in("print(sys.argv[1:], os.environ['LC_ALL'], end=''); sys.exit(68)")
    assert run(command) == (f"{command[1:]} C".encode(), 68)


def test_a_disk_behind_a_controller_is_asked_by_its_type(stand_in: Any) -> None:
    """The stand-in says what it was asked, as the message of a disk that tells nothing."""
    body = "import json; words = ' '.join(sys.argv[1:])\n"
    body += "print(json.dumps({'smartctl': {'messages': [{'string': words}]}})); sys.exit(1)"
    (path, *_) = stand_in(body)
    said = smartctl.ask("/dev/sda -d megaraid,12", path)
    assert said == Absence(Cause.NO_SOURCE, f"{' '.join(smartctl.OPTIONS)} /dev/sda -d megaraid,12")


def test_one_that_closes_its_output_and_goes_on_is_waited_for(stand_in: Any) -> None:
    assert run(stand_in("os.write(1, b'{}'); os.close(1); time.sleep(0.05); os._exit(4)")) == (b"{}", 4)


def test_one_that_hangs_is_killed_with_all_that_it_started(stand_in: Any, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"""
child = os.fork()
open({str(pids)!r}, 'a').write(f'{{os.getpid()}} ')
while True: time.sleep(60)"""
    with pytest.raises(TimeoutError, match="no answer within"):
        run(stand_in(body), limit_s=1.0)
    found = [int(pid) for pid in pids.read_text().split()]
    assert found
    wait_until(lambda: not any(is_running(pid) for pid in found))


def test_one_that_says_too_much_is_killed(stand_in: Any) -> None:
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        run(stand_in("while True: os.write(1, b' ' * 65536)"))


def test_one_that_dies_says_of_what(stand_in: Any) -> None:
    with pytest.raises(ValueError, match="died of SIGSEGV"):
        run(stand_in("os.kill(os.getpid(), 11)"))


def test_one_left_behind_by_a_parent_that_is_killed_dies(stand_in: Any, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    command = stand_in(f"open({str(note)!r}, 'w').write(str(os.getpid()) + ' '); time.sleep(600)")
    parent = os.fork()
    if not parent:
        try:
            run(command, limit_s=600.0)
        finally:
            os._exit(0)
    wait_until(lambda: note.exists() and note.read_text().endswith(" "))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    wait_until(lambda: not is_running(int(note.read_text())))


def test_a_program_that_is_none_is_an_absence(tmp_path: Path) -> None:
    path = tmp_path / "smartctl"
    path.write_bytes(b"\x7fELF garbage")
    path.chmod(0o755)
    said = smartctl.ask("/dev/sda", str(path))
    assert isinstance(said, Absence)
    assert said.cause is Cause.PROBE_FAILED


def test_where_it_is_not_installed_the_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="package smartmontools"):
        smartctl.program([str(tmp_path / "smartctl")])


@pytest.mark.skipif(not any(map(os.path.exists, smartctl.PROGRAMS)), reason="smartmontools is not installed")
def test_the_real_one_understands_what_it_is_told(tmp_path: Path) -> None:
    """It knows the options, and says of what is no disk that it is none."""
    disk = tmp_path / "disk"
    disk.touch()
    said = smartctl.ask(str(disk), smartctl.program())
    assert isinstance(said, Absence)
    assert said.cause is Cause.NO_SOURCE
    assert "Unable to detect device type" in said.detail


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
    except OSError:
        return False
