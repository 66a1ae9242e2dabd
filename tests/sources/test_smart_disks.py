# SPDX-License-Identifier: Apache-2.0
"""Which disks are asked, and when: once in half an hour, never one that sleeps or that nobody uses."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sysmond_probes import smart

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Absence, Cause, Host
from sysmond.sources import smart_disks, smartctl
from sysmond.sources.smart_disks import HANGS_MAX, LOOK_S, LOOKS, NOTE, Answer, Disks
from sysmond.sources.smartctl import Attribute, HangsError, Health

if TYPE_CHECKING:
    from collections.abc import Callable

HALF_HOUR_S = 1800
IDLE = Absence(Cause.ASLEEP, "nobody is using the disk; asking would keep it from spinning down")


class Machine:
    """Disks below a folder, a clock, and what is asked. Each ``start`` is a new process of the part."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.now_s = 100 * HALF_HOUR_S + 0.5
        self.asked: list[str] = []
        self.said: dict[str, Answer | Exception] = {}
        self.at_look: dict[int, Callable[[], object]] = {}
        self._looks = 0
        for folder in ("sys/block", "sys/class/nvme", "sys/devices/pci", "run/smart", "run/archiver"):
            (root / folder).mkdir(parents=True)
        monkeypatch.setattr(time, "clock_gettime", lambda _: self.now_s)

    def add(self, name: str, *, rotates: bool = False, **files: str) -> Path:
        device = self.root / "sys/devices/pci" / f"of_{name}"
        folder = device / name
        for path, content in {
            "size": "1000", "stat": "1 0 8 0", "queue/rotational": str(int(rotates)), "device/state": "running",
            **({"state": "live", "transport": "pcie"} if name.startswith("nvme") else {}), **files,
        }.items():  # fmt: skip
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content + "\n")
        (device / "power").mkdir(exist_ok=True)
        (device / "power/runtime_status").write_text("active\n")
        (self.root / ("sys/class/nvme" if name.startswith("nvme") else "sys/block") / name).symlink_to(folder)
        return folder

    def remove(self, name: str) -> None:
        (self.root / "sys/block" / name).unlink()
        shutil.rmtree(self.root / f"sys/devices/pci/of_{name}")

    def suspend(self, name: str) -> None:
        (self.root / f"sys/devices/pci/of_{name}/power/runtime_status").write_text("suspended\n")

    def use(self, name: str) -> None:
        path = self.root / f"sys/block/{name}/stat"
        path.write_text(f"{int(path.read_text().split()[0]) + 1} 0 8 0\n")

    def host(self) -> Host:
        host = Host(str(self.root))
        host.runtime, host.folder = str(self.root / "run"), str(self.root / "run/smart")
        disks = host.shared(Disks)
        disks.program = lambda: "smartctl"
        disks.ask, disks.pause = self._ask, self._pause
        return host

    def start(self, named: str = "") -> dict[str, Answer]:
        self.asked.clear()
        self._looks = 0
        return self.host().shared(Disks).answers(HALF_HOUR_S, named)

    def _ask(self, device: str, program: str) -> Answer:
        name = device.removeprefix("/dev/")
        self.asked.append(name)
        answer = self.said.get(
            name, Health({"temperature": 30 + len(self.asked)}, {"5 Spare": Attribute(1, 2, 3, 4, 0)})
        )
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _pause(self, seconds: float) -> None:
        assert seconds == LOOK_S
        self.now_s += seconds
        self._looks += 1
        self.at_look.get(self._looks, int)()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_tables_are_well_formed() -> None:
    for probe in smart.sysmond_probes():
        check_table(probe.table)
        assert probe.needs == smartctl.PROGRAMS


def test_every_metric_is_told_of_some_disk() -> None:
    told: set[str] = set()
    for path in (Path(__file__).parent.parent / "fixtures/smart").glob("*.json"):
        content = path.read_bytes()
        if json.loads(content)["smartctl"]["exit_status"] not in {1, 2, 3}:
            answer = smartctl.judge(content, 0)
            assert isinstance(answer, Health)
            told |= answer.values.keys()
    assert told == {metric.name for metric in smart.SMART.metrics}


def test_a_machine_without_disks_has_no_rows(machine: Machine) -> None:
    assert machine.start() == {}
    assert list(smart.read(machine.host(), every_min=30)) == []


def test_a_copied_tree_has_no_disks(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="only the running machine"):
        list(smart.read(Host(str(tmp_path)), every_min=30))


def test_disks_are_found_in_sysfs_and_only_those_that_may_know_it(machine: Machine) -> None:
    for name in (
        "sda",
        "sdaa",
        "sr0",
        "loop0",
        "zram0",
        "dm-0",
        "md0",
        "vda",
        "nvme0n1",
        "mmcblk0",
        "sd",
        "sda\x1b[1m",
    ):
        machine.add(name)
    machine.add("sdb", size="0")  # A reader without a card.
    machine.add("nvme0")
    machine.add("nvme1", transport="tcp")
    machine.add("nvme2", state="dead")
    assert machine.start()["nvme2"] == Absence(Cause.NO_SOURCE, "the kernel reports the state dead")
    assert sorted(machine.asked) == ["nvme0", "sda", "sdaa"]


MEGARAID = "/dev/sda -d megaraid,0; /dev/sda -d megaraid,12;/dev/bus/0 -d megaraid,3"


def test_disks_behind_a_controller_are_asked_by_their_type_and_what_leads_to_them_is_not(machine: Machine) -> None:
    machine.add("sda")
    machine.add("sdb")
    answers = machine.start(MEGARAID)
    assert list(answers) == ["bus-0:megaraid,3", "sda:megaraid,0", "sda:megaraid,12", "sdb"]
    assert machine.asked == ["sda -d megaraid,0", "sda -d megaraid,12", "bus/0 -d megaraid,3", "sdb"]
    machine.now_s += 300
    assert machine.start(MEGARAID) == answers
    assert machine.asked == []


def test_disks_behind_a_controller_rest_with_what_leads_to_them(machine: Machine) -> None:
    machine.add("sda", rotates=True)
    assert machine.start("/dev/sda -d megaraid,0") == {"sda:megaraid,0": IDLE}
    machine.suspend("sda")
    assert machine.start("/dev/sda -d megaraid,0") == {"sda:megaraid,0": Absence(Cause.ASLEEP)}
    assert machine.asked == []


@pytest.mark.parametrize(
    ("spelled", "is_right"),
    [
        ("", True),
        (MEGARAID, True),
        ("/dev/twa0 -d 3ware,1", True),
        ("/dev/sg2 -d areca,3/2", True),
        ("/dev/sdc -d sat+megaraid,4", True),
        ("/dev/sda", False),
        ("/dev/sda -d", False),
        ("sda -d megaraid,0", False),
        ("/dev/sda -d megaraid,0 --set=security", False),
        ("/dev/sda -d megaraid,0; -t long", False),
        ("/dev/../etc/shadow -d ata", False),
        ("/dev/sda -d megaraid,0\n", False),
        ("; ".join(["/dev/sda -d megaraid,0"] * 65), False),
    ],
)
def test_only_devices_with_their_types_may_be_named(spelled: str, is_right: bool) -> None:
    assert smart.DEVICES.accepts(spelled) is is_right


def test_a_disk_is_asked_once_in_half_an_hour_and_its_row_stands_meanwhile(machine: Machine) -> None:
    machine.add("sda")
    machine.add("nvme0")
    first = machine.start()
    assert machine.asked == ["sda", "nvme0"]
    for _ in range(5):
        machine.now_s += 300
        assert machine.start() == first
        assert machine.asked == []
    machine.now_s += 300
    machine.start()
    assert machine.asked == ["sda", "nvme0"]


def test_a_failure_is_not_tried_again_sooner(machine: Machine) -> None:
    machine.add("sda")
    machine.said["sda"] = failed = Absence(Cause.PROBE_FAILED, "no answer within 30 s; killed")
    assert machine.start() == {"sda": failed}
    machine.now_s += 300
    assert (machine.start(), machine.asked) == ({"sda": failed}, [])


def test_what_sleeps_is_not_asked_and_looked_at_again_five_minutes_later(machine: Machine) -> None:
    machine.add("nvme0")
    machine.suspend("nvme0")
    assert (machine.start(), machine.asked) == ({"nvme0": Absence(Cause.ASLEEP)}, [])
    (machine.root / "sys/devices/pci/of_nvme0/power/runtime_status").write_text("active\n")
    machine.now_s += 300
    machine.start()
    assert machine.asked == ["nvme0"]


def test_one_that_smartctl_found_asleep_is_asked_again_five_minutes_later(machine: Machine) -> None:
    machine.add("sda")
    machine.said["sda"] = asleep = Absence(Cause.ASLEEP, "Device is in STANDBY mode, exit(3)")
    assert machine.start() == {"sda": asleep}
    del machine.said["sda"]
    machine.now_s += 300
    assert isinstance(machine.start()["sda"], Health)


def test_a_rotating_disk_that_nobody_uses_is_never_asked(machine: Machine) -> None:
    machine.add("sda", rotates=True)
    for _ in range(7):
        assert (machine.start(), machine.asked) == ({"sda": IDLE}, [])
        machine.now_s += 300


def test_one_whose_kind_is_not_known_may_rotate(machine: Machine) -> None:
    folder = machine.add("sda")
    (folder / "queue/rotational").write_text("?\n")
    assert (machine.start(), machine.asked) == ({"sda": IDLE}, [])


def test_a_rotating_disk_is_asked_when_somebody_else_uses_it(machine: Machine) -> None:
    machine.add("sda", rotates=True)
    machine.add("sdb", rotates=True)
    machine.at_look[9] = lambda: machine.use("sdb")
    assert isinstance(machine.start()["sdb"], Health)
    assert machine.asked == ["sdb"]


def test_a_rotating_disk_is_not_asked_for_our_own_writes(machine: Machine) -> None:
    machine.add("sda", rotates=True)

    def flush() -> None:
        (machine.root / "run/archiver/ledger.json").write_text("1 flush")
        machine.use("sda")

    machine.at_look[9] = flush
    assert (machine.start(), machine.asked) == ({"sda": IDLE}, [])


def test_one_that_falls_asleep_while_it_is_looked_at_is_not_asked(machine: Machine) -> None:
    machine.add("sda", rotates=True)
    machine.at_look[9] = lambda: machine.use("sda")
    machine.at_look[10] = lambda: machine.suspend("sda")
    assert (machine.start(), machine.asked) == ({"sda": Absence(Cause.ASLEEP)}, [])


def test_one_that_goes_while_it_is_looked_at_has_no_row(machine: Machine) -> None:
    machine.add("sda", rotates=True)
    machine.at_look[2] = lambda: machine.remove("sda")
    assert machine.start() == {}


def test_looking_lasts_a_minute_and_a_bit(machine: Machine) -> None:
    machine.add("sda", rotates=True)
    before_s = machine.now_s
    machine.start()
    assert machine.now_s - before_s == (LOOKS - 1) * LOOK_S == 65


def test_one_that_is_gone_when_it_is_asked_has_no_row(machine: Machine) -> None:
    machine.add("sda")
    machine.said["sda"] = FileNotFoundError("No such device")
    assert machine.start() == {}


def test_another_disk_of_the_same_name_is_asked_at_once(machine: Machine) -> None:
    machine.add("sda")
    machine.start()
    (machine.root / "other").mkdir()  # Its inode may not be used again.
    machine.remove("sda")
    os.rename(machine.root / "other", machine.root / "sys/devices/pci/of_sda")
    machine.add("sda")
    inode = (machine.root / "sys/block/sda").stat().st_ino
    noted = json.loads((machine.root / "run/smart" / NOTE).read_text())["disks"]["sda"][0]
    machine.start()
    assert machine.asked == (["sda"] if inode != noted else [])


@pytest.mark.parametrize("damage", [b"", b"\0\0", b"{}", b'{"disks": {}, "crc32": 1, "boot": ""}', b"[" * 9999])
def test_a_damaged_note_is_none(machine: Machine, damage: bytes) -> None:
    machine.add("sda")
    machine.start()
    (machine.root / "run/smart" / NOTE).write_bytes(damage)
    machine.start()
    assert machine.asked == ["sda"]


def test_a_flipped_bit_in_the_note_makes_it_none(machine: Machine) -> None:
    machine.add("sda")
    machine.start()
    path = machine.root / "run/smart" / NOTE
    path.write_text(path.read_text().replace('"temperature": 31', '"temperature": 30'))
    machine.start()
    assert machine.asked == ["sda"]


def test_the_note_of_another_boot_is_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.add("sda")
    machine.start()
    monkeypatch.setattr(smart_disks, "_boot", lambda: "another")
    machine.start()
    assert machine.asked == ["sda"]


def test_whoever_is_killed_over_one_disk_need_not_ask_the_others_again(machine: Machine) -> None:
    machine.add("sda")
    machine.add("sdb")
    machine.said["sdb"] = RuntimeError("as good as a kill")
    with pytest.raises(RuntimeError):
        machine.start()
    machine.said.clear()
    machine.start()
    assert machine.asked == ["sdb"]


def test_while_the_kernel_holds_a_smartctl_no_other_is_started_for_its_disk(machine: Machine) -> None:
    machine.add("sda")
    with subprocess.Popen(["sleep", "600"]) as held:
        machine.said["sda"] = HangsError(held.pid)
        said = machine.start()["sda"]
        assert isinstance(said, Absence)
        assert "the kernel holds it" in said.detail
        machine.now_s += HALF_HOUR_S
        assert (machine.start(), machine.asked) == ({"sda": said}, [])
        held.kill()
    machine.said.clear()
    machine.now_s += HALF_HOUR_S
    assert isinstance(machine.start()["sda"], Health)


def test_after_some_that_hang_the_others_wait_for_the_next_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for letter in "abcd":
        machine.add(f"sd{letter}")
    monkeypatch.setattr(smartctl, "LIMIT_S", 0.0)  # Each takes longer than that.
    answers = machine.start()
    assert machine.asked == ["sda", "sdb"]
    assert answers["sdd"] == Absence(Cause.PROBE_FAILED, f"not asked: {HANGS_MAX} other disks do not answer")
    machine.now_s += 300
    machine.start()
    assert machine.asked == ["sdc", "sdd"]


def test_rows_of_a_disk_and_its_attributes_stand_and_go_on_while_it_sleeps(machine: Machine) -> None:
    machine.add("sda")
    host = machine.host()
    [(name, row)] = smart.read(host, every_min=30)
    assert name == "sda"
    assert [value for value in row if value != ABSENT] == [31]
    assert list(smart.read_attributes(host, every_min=30)) == [("sda:5 Spare", (1, 2, 3, 4, 0))]
    assert machine.asked == ["sda"]
    machine.suspend("sda")
    machine.now_s += HALF_HOUR_S
    host = machine.host()
    assert list(smart.read(host, every_min=30)) == [("sda", Absence(Cause.ASLEEP))]
    assert list(smart.read_attributes(host, every_min=30)) == [("sda:5 Spare", Absence(Cause.ASLEEP))]


def test_the_doctor_is_told_in_one_line(machine: Machine) -> None:
    machine.add("sda")
    machine.add("sdb", rotates=True)
    machine.start()
    told = (machine.root / "run/smart/smart.way").read_text()
    assert told == "by smartctl: of 2 disks 1 tell, 1 are left asleep\n"
