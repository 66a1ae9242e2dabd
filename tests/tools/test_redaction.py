# SPDX-License-Identifier: Apache-2.0
"""What tells whose machine it is is masked, and what helps to find a bug stays."""

from pathlib import Path

import pytest

from sysmon_tools import redaction
from sysmon_tools.redaction import Known, Redaction

KNOWN = Known(
    hosts=("zebra-laptop", "zebra"),
    people=("quentin", "Quentin Tarn"),
    homes=("/data/people/quentin",),
    serials=("S4EWNX0R123456", "50:eb:f6:11:22:33"),
)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("zebra-laptop sysmond[12]: begins", "<host> sysmond[12]: begins"),
        ("ZEBRA.example: gone", "<host>.example: gone"),
        ("zebrafish quentinet", "zebrafish quentinet"),
        ("user Quentin Tarn, quentin_old", "user <user>, <user>_old"),
        ("/home/quentin/secret plans/x.yaml:3: wrong", "<home> plans/x.yaml:3: wrong"),
        ("'/home/quentin/secret plans/x.yaml'", "'<home>'"),
        ("/data/people/quentin/x.py", "<home>"),
        ("/media/stick/diary and /root/.cache", "<home> and <home>"),
        ("/usr/lib/home/x /rootfs", "/usr/lib/home/x /rootfs"),
        ("disk S4EWNX0R123456 s4ewnx0r123456", "disk <serial> <serial>"),
        ("50:EB:F6:11:22:33, 52:54:00:12:34:56, 52-54-00-12-34-56", "<serial>, <address>, <address>"),
        ("192.0.2.7:80 at 12:30:45, 2026-11-24 08:09:10", "<address>:80 at 12:30:45, 2026-11-24 08:09:10"),
        ("fe80::1ff:fe23:4567:890a and 2001:db8::1", "<address> and <address>"),
        ("Linux 6.12.57, sysmond 0.1.0, D-Bus 1:2.44", "Linux 6.12.57, sysmond 0.1.0, D-Bus 1:2.44"),
        ("boot 0b3ed1a5-0d1c-4d0e-9c7e-1f2a3b4c5d6e", "boot <id>"),
        ("0b3ed1a50d1c4d0e9c7e1f2a3b4c5d6e", "<id>"),
        ("mail someone@example.org", "mail <address>"),
    ],
)
def test_what_is_somebodys_is_masked(text: str, masked: str) -> None:
    assert Redaction(KNOWN).text(text) == masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("probe x: ValueError: no number: geheim", "probe x: ValueError: …"),
        ("struct.error: geheim\nnext", "struct.error: …\nnext"),
        ("TypeError: f() takes 1 argument, 'geheim' given", "TypeError: f() takes 1 argument, '…' given"),
        ("OSError: [Errno 5] Input/output error: '/home/x'", "OSError: [Errno 5] Input/output error: '…'"),
        ("FileNotFoundError: '/home/geheim'", "FileNotFoundError: …"),
        ("no source: '/proc/pressure': No such file", "no source: '/proc/pressure': No such file"),
        ("no source: '/home/geheim': No such file", "no source: '…': No such file"),
        ("cannot open '/opt/my bank'", "cannot open '…'"),
        ("cannot open '/proc/../home/x'", "cannot open '…'"),
        ("the disk's age isn't known", "the disk's age isn't known"),
        ('saying "it\'s mine"', "saying '…'"),
    ],
)
def test_what_an_error_cites_is_masked(text: str, masked: str) -> None:
    assert Redaction(KNOWN).free(text) == masked


def test_every_text_of_a_document_is_masked() -> None:
    document = {"zebra": ["quentin", {"at": ("/home/x", 3, None, 1.5, True)}]}
    assert Redaction(KNOWN).all_of(document) == {"<host>": ["<user>", {"at": ["<home>", 3, None, 1.5, True]}]}


def test_serial_numbers_are_those_of_the_machine(tmp_path: Path) -> None:
    for name, content in (
        ("sys/class/dmi/id/product_serial", "PF3XYZ99\n"),
        ("sys/class/dmi/id/board_serial", "To Be Filled By O.E.M.\n"),
        ("sys/block/nvme0n1/wwid", "eui.0025385b21403be1\n"),
        ("sys/class/net/lo/address", "00:00:00:00:00:00\n"),
        ("sys/class/net/wlan0/address", "50:eb:f6:11:22:33\n"),
        ("sys/bus/usb/devices/1-1/serial", "0\n"),
        ("sys/class/power_supply/BAT0/serial_number", " 41167\n"),
        ("proc/device-tree/serial-number", "10000000a1b2c3d4\0"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    known = set(redaction.of_machine(str(tmp_path)).serials)
    assert known == {"PF3XYZ99", "eui.0025385b21403be1", "50:eb:f6:11:22:33", "41167", "10000000a1b2c3d4"}
