# SPDX-License-Identifier: Apache-2.0
"""Settings: what they are, and that each change is told once, also by a reader that begins anew."""

import sys
from pathlib import Path

import pytest
from sysmond_probes import setting as probe

from sysmond.base.model import Lane, Sensitivity, check_table
from sysmond.probe import Host
from sysmond.sources import settings as sources
from sysmond.sources.settings import NOTE_BEFORE, PLAN, KernelSettings, parse


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this machine has just started."""
    monkeypatch.setattr(sources, "SETTLED_S", 0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    write(made, "proc/sys/vm/swappiness", "60\n")
    write(made, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    write(made, "sys/block/sda/queue/scheduler", "none [mq-deadline]\n")
    write(made, "proc/cpuinfo", "processor\t: 0\nmicrocode\t: 0xf0\n\nprocessor\t: 1\nmicrocode\t: 0xf1\n")
    (tmp_path / "lane").mkdir()
    return made


def write(root: Path, path: str, content: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content)


def host_of(root: Path) -> Host:
    made = Host(str(root))
    made.runtime = str(root.parent)
    made.folder = str(root.parent / "lane")
    return made


def told(settings: KernelSettings, host: Host) -> list[tuple[str, str]]:
    host.new_tick()
    list(settings.read(host))
    return [event[1:3] for event in host.take_events()]


def test_the_table_is_public_and_in_the_background() -> None:
    [offered] = probe.sysmond_probes()
    check_table(offered.table)
    assert (offered.lane, offered.sensitivity) == (Lane.BACKGROUND, Sensitivity.PUBLIC)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"60\n", "60"),
        (b"a [b] c\n", "b"),
        (b"1\t2\n", "1 2"),
        (b"\x1b[2J\xff", "[2J\ufffd"),
        (b"", ""),
        (b"x" * 99, "x" * 64),
    ],
)
def test_a_value_is_read(content: bytes, expected: str) -> None:
    assert parse(content) == expected


def test_what_there_is_is_a_row_each(root: Path) -> None:
    (root.parent / "plan.json").write_text("{}")
    rows = dict(KernelSettings().read(host_of(root)))
    assert rows.pop(PLAN) == ("a3a6bf43",)
    assert rows == {
        "vm.swappiness": ("60",),
        "transparent_hugepage": ("madvise",),
        "io_scheduler.sda": ("mq-deadline",),
        "microcode": ("0xf0",),
    }


def test_a_change_is_told_once_also_where_it_came_between_two_readers(root: Path) -> None:
    host, settings = host_of(root), KernelSettings()
    assert told(settings, host) == []
    write(root, "proc/sys/vm/swappiness", "10\n")
    assert told(settings, host) == [("vm.swappiness", "60 → 10")]
    assert told(settings, host) == []
    write(root, "sys/block/sda/queue/scheduler", "[none] mq-deadline\n")
    again = KernelSettings()
    assert told(again, host) == [("io_scheduler.sda", "mq-deadline → none")]
    assert told(again, host) == []
    assert told(KernelSettings(), host) == []


def test_another_kernel_after_a_boot_is_told_and_is_no_row(root: Path) -> None:
    host = host_of(root)
    (root.parent / "archiver").mkdir()
    (root.parent / "archiver" / NOTE_BEFORE).write_text('{"kernel": "6.1", "vm.swappiness": "60", "gone": "1"}')
    write(root, "proc/sys/kernel/osrelease", "6.12\n")
    write(root, "proc/cmdline", "quiet [a]\x1b[2J\n")
    settings = KernelSettings()
    assert told(settings, host) == [("kernel", "6.1 → 6.12")]
    assert "kernel" not in dict(settings.read(host))
    write(root, "proc/cmdline", "quiet [b]\n")
    assert told(KernelSettings(), host) == [("command_line", "quiet [a][2J → quiet [b]")]


def test_while_a_machine_starts_nothing_is_compared(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, settings = host_of(root), KernelSettings()
    monkeypatch.setattr(sources, "SETTLED_S", float("inf"))
    assert told(settings, host) == []
    write(root, "proc/sys/vm/swappiness", "10\n")
    assert told(settings, host) == []
    monkeypatch.setattr(sources, "SETTLED_S", 0.0)
    assert told(settings, host) == []
    write(root, "proc/sys/vm/swappiness", "20\n")
    assert told(settings, host) == [("vm.swappiness", "10 → 20")]


def test_what_comes_or_goes_is_no_change(root: Path) -> None:
    host, settings = host_of(root), KernelSettings()
    told(settings, host)
    write(root, "sys/block/sdb/queue/scheduler", "[none]\n")
    (root / "proc/sys/vm/swappiness").unlink()
    host.look_again()
    assert told(settings, host) == []


@pytest.mark.parametrize("content", ["", "[]", "\x00", '{"vm.swappiness": 5', "{" * 100_000])
def test_a_damaged_note_is_none(root: Path, content: str) -> None:
    host = host_of(root)
    (root.parent / "lane/setting.seen").write_text(content)
    assert told(KernelSettings(), host) == []


OPENED: list[str] = []
sys.addaudithook(lambda event, said: OPENED.append(str(said[0])) if event == "open" else None)


def test_what_stays_as_it_is_is_not_opened_again(root: Path) -> None:
    plan = root.parent / "plan.json"
    plan.write_text("{}")
    settings, host = KernelSettings(), host_of(root)
    assert told(settings, host) == []
    OPENED.clear()
    assert told(settings, host) == []
    again = {path.removeprefix(str(root)) for path in OPENED}
    assert again.isdisjoint({str(plan), "/proc/sys/vm/swappiness", "/sys/kernel/mm/transparent_hugepage/enabled"})
    assert "/sys/block/sda/queue/scheduler" in again, "a disk may go"
    plan.write_text('{"another": 1}')
    write(root, "proc/sys/vm/swappiness", "10\n")
    assert [subject for subject, _ in told(settings, host)] == ["vm.swappiness", PLAN]
    host.close()
