# SPDX-License-Identifier: Apache-2.0
"""The table interrupt: names of sources on several machines, what is summed, garbage, and what /proc/stat says."""

from pathlib import Path

import pytest
from sysmond_probes import interrupt

from sysmond.base.model import check_table
from sysmond.probe import Host
from tests.support import sysfs

HEAD = "           CPU0       CPU1\n"


class Machine:
    """A machine whose interrupts are as told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(str(root))
        self.sources = interrupt.Sources()

    def read(self) -> dict[str, int]:
        self.host.new_tick()
        return {name: int(count) for name, (count,) in self.sources.read(self.host)}

    def tell(self, *lines: str) -> dict[str, int]:
        (self.root / "proc").mkdir(exist_ok=True)
        (self.root / "proc/interrupts").write_text(HEAD + "".join(f"{line}\n" for line in lines))
        return self.read()


def test_the_table_is_sound() -> None:
    (probe,) = interrupt.sysmond_probes()
    check_table(probe.table)
    assert probe.table.metrics[0].origin


def test_sources_of_a_laptop_have_the_names_that_drivers_give(tmp_path: Path) -> None:
    assert Machine(sysfs.build(tmp_path, "laptop", "none")).read() == {
        "i8042": 25_614,
        "acpi": 301_215,
        "idma64.0, i801_smbus": 80,
        "PCIe PME, aerdrv": 42,
        "nvme0q1": 90_210,
        "nvme0q2": 88_171,
        "NMI": 46,
        "LOC": 5_421_330 + 5_100_211 + 5_003_101 + 4_920_110,
        "TRM": 56,
        "MIS": 7,
        "other": 1000,
    }


def test_other_machines_write_other_columns(tmp_path: Path) -> None:
    assert Machine(sysfs.build(tmp_path, "arm", "none")).read() == {
        "arch_timer": 3_695_989,
        "mmc1, sdhci": 51_203,
        "Power key": 9,
        "IPI0": 104_782,
        "other": 0,
    }


def test_the_busiest_are_apart_and_stay_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "APART_MAX", 2)
    machine = Machine(tmp_path)
    lines = "{}: {} 0 GIC 7 Level {}"
    told = machine.tell(*(lines.format(*line) for line in ((1, 10, "a"), (2, 30, "b"), (3, 20, "c"))))
    assert told == {"b": 30, "c": 20, "other": 10}
    told = machine.tell(*(lines.format(*line) for line in ((1, 500, "a"), (2, 31, "b"), (3, 21, "c"))))
    assert told == {"b": 31, "c": 21, "other": 500}
    # One goes: who is busiest has its place, and what it counted among the others stays there.
    told = machine.tell(*(lines.format(*line) for line in ((1, 600, "a"), (2, 32, "b"))))
    assert told == {"a": 600, "b": 32, "other": 600}
    told = machine.tell(*(lines.format(*line) for line in ((1, 700, "a"), (2, 33, "b"), (3, 4, "c"))))
    assert told == {"a": 700, "b": 33, "other": 604}


def test_a_line_whose_handler_goes_and_comes_is_not_counted_twice(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.tell("4: 1000 0 IO-APIC 4-edge ttyS0") == {"ttyS0": 1000, "other": 0}
    assert machine.tell("4: 1000 0 IO-APIC 4-edge") == {"other": 0}
    assert machine.tell("4: 1005 0 IO-APIC 4-edge ttyS0") == {"ttyS0": 1005, "other": 5}


def test_a_count_that_begins_anew_never_lowers_the_others(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.tell("4: 1000 0 IO-APIC 4-edge") == {"other": 1000}
    assert machine.tell("4: 3 0 IO-APIC 4-edge") == {"other": 1003}


def test_a_cpu_whose_counter_wraps_is_no_reset_of_the_sum(tmp_path: Path) -> None:
    """The kernel counts of each CPU in 32 bits; several may wrap at once, as timers do."""
    machine = Machine(tmp_path)
    counts = [(2**32 - 2, 2**32 - 5), (2**32 - 1, 3), (7, 4), (8, 2**32 - 1), (9, 1)]
    told = [machine.tell(f"LOC: {one:10} {other:10} Local timer interrupts")["LOC"] for one, other in counts]
    assert [later - told[0] for later in told] == [0, 9, 18, 2**32 + 14, 2**32 + 17]


def test_a_cpu_that_goes_offline_takes_its_count_along(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.tell(f"LOC: {2**32 - 2:10} {2**32 - 5:10} Local timer interrupts")
    (tmp_path / "proc/interrupts").write_text("           CPU0\nLOC: 20 Local timer interrupts\n")
    assert machine.read()["LOC"] == 20


def test_a_name_is_short_and_printable(tmp_path: Path) -> None:
    told = Machine(tmp_path).tell(f"4: 1 1 IO-APIC 4-edge \x1b[2J{'x' * 100}", "5: 1 1")
    assert told == {"[2J" + "x" * 61: 2, "other": 2}


@pytest.mark.parametrize(
    "content", ["", "garbage\n", f"{HEAD}1: 3 x IO-APIC 1-edge timer\n", f"{HEAD}1: 3 IO-APIC 1-edge timer\n"]
)
def test_garbage_is_refused(tmp_path: Path, content: str) -> None:
    machine = Machine(tmp_path)
    machine.tell("1: 3 3 IO-APIC 1-edge timer")
    (tmp_path / "proc/interrupts").write_text(content)
    with pytest.raises(ValueError, match=r"interrupts begins with|invalid literal"):
        machine.read()


def test_without_the_file_there_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Machine(tmp_path).read()


def test_a_machine_of_256_cpus_is_read_in_pieces(tmp_path: Path) -> None:
    heading = "     " + "".join(f"{f'CPU{number}':>11}" for number in range(256))
    lines = [f"{line:>4}:{'         2' * 256}  PCI-MSI {line}-edge      q{line}" for line in range(400)]
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/interrupts").write_text("\n".join([heading, *lines]) + "\n")
    assert (tmp_path / "proc/interrupts").stat().st_size > 10**6
    told = Machine(tmp_path).read()
    assert len(told) == interrupt.APART_MAX + 1
    assert told["other"] == (400 - interrupt.APART_MAX) * 512


def test_here_each_line_has_what_proc_stat_says_of_it() -> None:
    """/proc/stat numbers the same interrupts; it is read before and after."""

    def numbered() -> list[int]:
        return [int(word) for word in host.read_anew("/proc/stat").partition(b"\nintr ")[2].split(b"\n")[0].split()[1:]]

    host = Host()
    before = numbered()
    counted = {
        int(label): count for label, (_, count) in interrupt.parse(host.read_anew(interrupt.PATH)) if label.isdigit()
    }
    after = numbered()
    assert counted
    assert all(before[line] <= count <= after[line] for line, count in counted.items())
