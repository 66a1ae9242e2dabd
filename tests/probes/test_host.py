# SPDX-License-Identifier: Apache-2.0
"""The table host against trees of three machines and against this one."""

import os
import platform
import shutil
from pathlib import Path

import pytest
from sysmond_probes import host

from sysmond.base.model import check_table
from sysmond.probe import ABSENT, Host, Lane


def read(machine: Host) -> dict[str, int | str]:
    ((instance, values),) = host.read(machine)
    assert instance == ""
    return dict(zip((metric.name for metric in host.HOST.metrics), values, strict=True))


def test_the_table_is_sound() -> None:
    (probe,) = host.sysmond_probes()
    check_table(probe.table)
    assert probe.table.doc
    assert probe.lane is Lane.BACKGROUND
    assert probe.interval_s == 60.0


def test_texts_are_str_and_numbers_int(repository: Path) -> None:
    for metric, value in zip(
        host.HOST.metrics, read(Host(str(repository / "tests/fixtures/linux510"))).values(), strict=True
    ):
        assert isinstance(value, str) == (metric.is_text and value != ABSENT), metric.name


def test_this_sample(repository: Path) -> None:
    assert read(Host(str(repository / "tests/fixtures/linux618"))) == {
        "cpu_model": "Intel(R) Xeon(R) Processor",
        "kernel": "6.18.44",
        "kernel_version": "#1 SMP PREEMPT_DYNAMIC @0",
        "command_line": "BOOT_IMAGE=/boot/vmlinuz-6.18 root=/dev/vda quiet psi=1",
        "architecture": "x86_64",
        "hostname": "vm",
        "timezone": "Etc/UTC",
        "distribution": "Debian GNU/Linux 12 (bookworm)",
        "vendor": ABSENT,
        "product": ABSENT,
        "firmware": ABSENT,
        "memory": 24684092 * 1024,
        "cpus": 2,
        "cpus_present": 2,
        "cores": 2,
        "sockets": 1,
        "page_size": os.sysconf("SC_PAGESIZE"),
        "user_hz": os.sysconf("SC_CLK_TCK"),
    }


def test_a_server_with_a_cpu_offline(repository: Path) -> None:
    values = read(Host(str(repository / "tests/fixtures/linux510")))
    assert values["cpu_model"] == "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz"
    assert (values["cpus"], values["cpus_present"], values["cores"], values["sockets"]) == (3, 4, 2, 2)
    assert (values["vendor"], values["product"], values["firmware"]) == ("Example Corp.", "Server 3000", "2.10.2")
    assert values["timezone"] == "Europe/Paris"  # From /etc/timezone: there is no /etc/localtime.
    assert values["distribution"] == "Debian GNU/Linux 11 (bullseye)"  # From /usr/lib, with single quotes.
    assert values["architecture"] == ABSENT  # A kernel too old to say; this program's own says nothing of it.


def test_a_board(repository: Path) -> None:
    values = read(Host(str(repository / "tests/fixtures/linux26")))
    assert values["cpu_model"] == "ARM926EJ-S rev 5 (v5l)"
    assert values["product"] == "Example Board"
    assert values["cpus"] == ABSENT
    assert values["cores"] == ABSENT
    assert values["hostname"] == ABSENT


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        ("", ""),
        ("processor\t: 0\nmodel name\t: A\n\nprocessor\t: 1\nmodel name\t: B\n", "A"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("system type\t: X\nprocessor\t: 0\ncpu model\t: MIPS 24Kc V7.4\n", "MIPS 24Kc V7.4"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "ARM implementer 0x41 part 0xd0c"),
        ("processor\t: 0\nmodel name\t:\nuarch\t: sifive,u74-mc\n", "sifive,u74-mc"),
    ],
)
def test_cpu_models(cpuinfo: str, model: str) -> None:
    assert host.parse_cpu_model(cpuinfo) == model


@pytest.mark.parametrize(
    ("ranges", "cpus"), [("", []), ("0\n", [0]), ("0-3\n", [0, 1, 2, 3]), ("0,2-3,8\n", [0, 2, 3, 8])]
)
def test_cpu_lists(ranges: str, cpus: list[int]) -> None:
    assert host.parse_cpu_list(ranges) == cpus


def test_a_replaced_file_is_seen(repository: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(repository / "tests/fixtures/linux510", tmp_path / "root"))
    machine = Host(str(root))
    assert read(machine)["timezone"] == "Europe/Paris"
    (tmp_path / "new").write_text("Asia/Tokyo\n")
    (tmp_path / "new").replace(root / "etc/timezone")
    machine.new_tick()
    assert read(machine)["timezone"] == "Asia/Tokyo"


def test_no_proc_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        host.read(Host(str(tmp_path)))


def test_this_machine_agrees() -> None:
    values = read(Host())
    assert values["kernel"] == platform.release()
    assert values["architecture"] == platform.machine()
    assert values["hostname"] == platform.node()
    assert values["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert values["memory"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
