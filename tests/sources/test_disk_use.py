# SPDX-License-Identifier: Apache-2.0
"""A disk is in use when somebody else reads or writes it: not by sysmond's own writes, nor by being asked."""

from pathlib import Path

from sysmond.archiver.disk_writes import FILE
from sysmond.probe import Host
from sysmond.ring.progress import ARCHIVER
from sysmond.sources.disk_use import LEDGER, DiskUse

STAT = "/sys/block/sda/stat"


class Machine:
    """A disk and a ledger below a folder."""

    def __init__(self, folder: Path) -> None:
        self.stat, self.ledger = folder / STAT[1:], folder / "run" / LEDGER
        self.stat.parent.mkdir(parents=True)
        self.ledger.parent.mkdir(parents=True)
        self.host = Host(str(folder))
        self.host.runtime = str(folder / "run")
        self.use = DiskUse(STAT)
        self.count = 0
        self.moves()
        self.flushes()

    def moves(self) -> None:
        self.count += 1
        self.stat.write_text(f"{self.count} 0 8 0 0 0 0 0 0 0 0\n")

    def flushes(self) -> None:
        self.ledger.write_text(f"{self.count}")

    def at(self, now_s: float) -> bool:
        return self.use.is_used(self.host, now_s)


def test_growth_counts_for_a_minute_from_the_next_look_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert not machine.at(100)
    machine.moves()
    assert not machine.at(140)  # Whether that was our own, the next look tells.
    assert machine.at(150)
    assert machine.at(200)
    assert not machine.at(201)


def test_our_own_writes_do_not_count_nor_what_follows_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.at(100)
    machine.moves()  # A flush is under way …
    machine.at(150)
    machine.flushes()  # … and done.
    assert not machine.at(160)
    machine.moves()  # The journal follows it.
    assert not any(machine.at(now_s) for now_s in (170, 180, 190))
    machine.moves()
    machine.at(200)
    assert machine.at(210)


def test_being_asked_is_no_use(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.at(100)
    machine.moves()
    machine.use.asked(machine.host)
    assert not any(machine.at(now_s) for now_s in (110, 120))


def test_the_ledger_is_that_of_the_archiver() -> None:
    assert f"{ARCHIVER}/{FILE}" == LEDGER
