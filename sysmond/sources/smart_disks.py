# SPDX-License-Identifier: Apache-2.0
"""Which disks there are, when each may be asked for SMART, and what it said last, which lies in a note.

Who calls this runs for a moment only, every few minutes. A disk is asked once in each of its times, half hours by
default; until the next one the note says what it told, or why it told nothing. What sleeps, and a rotating disk that
nobody uses, is left alone, and looked at again each time. Source: the kernel's ``Documentation/ABI/stable/sysfs-block``
and ``testing/sysfs-class-nvme``; to list them there wakes nothing, as ``smartctl --scan`` may.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import ENOENT
from typing import Any, NamedTuple

from sysmond.errors import CorruptError
from sysmond.machine import note
from sysmond.probe import Absence, Cause, Host
from sysmond.sources import smartctl
from sysmond.sources.disk_use import USED_S, DiskUse
from sysmond.sources.smartctl import Attribute, HangsError, Health

BLOCK, NVME = "/sys/block", "/sys/class/nvme"
# Where else a device may be that stands for a controller.
_GENERIC = "/sys/class/scsi_generic"
# Disks behind a controller, as the administrator names them: device and type, as smartctl(8) has them.
_NAMED = r"/dev/[\w/:-]{1,64} -d [a-z0-9][a-z0-9,/+]{0,32}"
NAMED = rf"(?:{_NAMED}(?:; ?{_NAMED}){{0,63}})?"
DISKS_MAX = 64
NOTE = "disks.json"
# Who has just come sees whether a rotating disk is used, and by whom, by looking for a while.
LOOK_S = 5.0
LOOKS = int(USED_S // LOOK_S) + 2
_SCSI, _CONTROLLER = re.compile(r"sd[a-z]{1,4}"), re.compile(r"nvme[0-9]{1,4}")
# When so many disks have hung, there is no time left: the others are asked at the next start.
HANGS_MAX = 2

Answer = Health | Absence
Ask = Callable[[str, str], Answer]


class Disk(NamedTuple):
    """``folder``: in /sys; ``inode``: of that, another one for each disk that comes. ``rotates``: it may.

    ``device``: as smartctl is asked about it, with a type where it has one.
    """

    name: str
    folder: str
    inode: int
    rotates: bool
    device: str


class LastAnswer(NamedTuple):
    """What a disk answered last, or why nothing, and in which time. ``hanging``: a smartctl that the kernel holds."""

    inode: int
    slot: int
    answer: Answer
    hanging: tuple[int, int] = (0, 0)


class Disks:
    """The disks of this machine, asked at one moment."""

    def __init__(self, host: Host) -> None:
        """Ask nobody yet; ``host.folder``: where the note lies."""
        self._host = host
        self._path = f"{host.folder}/{NOTE}" if host.folder else ""
        self._answers: dict[str, Answer] | None = None
        self._last: dict[str, LastAnswer] = {}
        self.ask: Ask = smartctl.ask
        self.pause: Callable[[float], None] = time.sleep
        self.program: Callable[[], str] = self._none if host.root else smartctl.program

    def answers(self, every_s: int, named: str = "") -> dict[str, Answer]:
        """What each disk told last, by name, or why it tells nothing now; asks those whose time it is, once.

        ``named``: disks behind controllers, as ``NAMED`` has them.

        :raises FileNotFoundError: where smartctl is not installed, or this is a copied tree, which has no disks.
        """
        if self._answers is None:
            answers = self._answers = self._asked(every_s, self.program(), named)
            asleep = sum(isinstance(said, Absence) and said.cause is Cause.ASLEEP for said in answers.values())
            told = sum(isinstance(said, Health) for said in answers.values())
            self._host.tell_way("smart", f"by smartctl: of {len(answers)} disks {told} tell, {asleep} are left asleep")
        return self._answers

    def _none(self) -> str:
        raise FileNotFoundError(ENOENT, f"smart: only the running machine has disks to ask, not {self._host.root}")

    def attributes(self, name: str) -> dict[str, Attribute]:
        """The attributes of a disk that tells nothing now, as it told them last."""
        said = self._last.get(name)
        return said.answer.attributes if said is not None and isinstance(said.answer, Health) else {}

    def _asked(self, every_s: int, program: str, named: str) -> dict[str, Answer]:
        there = {disk.name: disk for disk in disks(self._host, named)}
        known = self._read_note()
        self._last = {name: said for name, said in known.items() if name in there and said.inode == there[name].inode}
        slot = int(time.clock_gettime(time.CLOCK_BOOTTIME)) // every_s
        answers: dict[str, Answer] = {}
        due = []
        for disk in there.values():
            said = self._last.get(disk.name)
            if said is not None and said.slot == slot:
                answers[disk.name] = said.answer
            elif (resting := rest(self._host, disk)) is not None:
                answers[disk.name] = resting
            else:
                due.append(disk)
        hung = 0
        for disk in self._used(due, answers):
            if hung >= HANGS_MAX:
                answers[disk.name] = Absence(Cause.PROBE_FAILED, f"not asked: {HANGS_MAX} other disks do not answer")
                continue
            began_s = time.monotonic()
            if (answer := self._ask(disk, slot, program)) is not None:
                answers[disk.name] = answer
            hung += time.monotonic() - began_s >= smartctl.LIMIT_S
        return dict(sorted(answers.items()))

    def _used(self, due: list[Disk], answers: dict[str, Answer]) -> Iterator[Disk]:
        """Give disks when they may be asked: at once, and the rotating ones when somebody else has used them."""
        yield from (disk for disk in due if not disk.rotates)
        waiting = {disk: DiskUse(f"{disk.folder}/stat") for disk in due if disk.rotates}
        for look in range(LOOKS):
            if not waiting:
                return
            if look:
                self.pause(LOOK_S)
                self._host.new_tick()  # What sleeps by now is not asked.
            for disk, use in list(waiting.items()):
                try:
                    is_used = use.is_used(self._host, time.clock_gettime(time.CLOCK_BOOTTIME))
                except OSError:
                    del waiting[disk]
                    continue
                if is_used:
                    del waiting[disk]
                    if (resting := rest(self._host, disk)) is not None:
                        answers[disk.name] = resting
                    else:
                        yield disk
        said = "nobody is using the disk; asking would keep it from spinning down"
        answers.update((disk.name, Absence(Cause.ASLEEP, said)) for disk in waiting)

    def _ask(self, disk: Disk, slot: int, program: str) -> Answer | None:
        """Ask a disk and note what it told; None where it is gone."""
        before = self._last.get(disk.name)
        answer: Answer
        hanging = (0, 0)
        if before is not None and before.hanging[0] and _started(before.hanging[0]) == before.hanging[1]:
            answer, hanging = before.answer, before.hanging
        else:
            try:
                answer = self.ask(disk.device, program)
            except FileNotFoundError:
                return None
            except HangsError as held:
                answer, hanging = Absence(Cause.PROBE_FAILED, str(held)), (held.process, _started(held.process))
        if not (isinstance(answer, Absence) and answer.cause is Cause.ASLEEP):
            self._last[disk.name] = LastAnswer(disk.inode, slot, answer, hanging)
            self._write_note()
        return answer

    def _read_note(self) -> dict[str, LastAnswer]:
        if self._path:
            with suppress(OSError, CorruptError):
                return note.read(self._path, _noted)
        return {}

    def _write_note(self) -> None:
        """Note at once what a disk told: whoever is killed over the next one need not ask this one again."""
        if self._path:
            noted = {name: _spelled(said) for name, said in self._last.items()}
            with suppress(OSError):  # Then they are asked again a little sooner.
                note.write(
                    self._path, {"boot": _boot(), "disks": noted, note.CHECKSUM: note.checksum(noted)}, mode=0o600
                )


def disks(host: Host, named: str = "") -> Iterator[Disk]:
    """Name the disks that may know SMART: those of SCSI, SATA and USB, and controllers of NVMe that are not remote.

    Before them those that are named with their type; the device that leads to them is not asked about itself.
    """
    behind = {each.name: each for each in _behind(host, named)}
    leading = {each.partition(" ")[0].removeprefix("/dev/") for each in (disk.device for disk in behind.values())}
    names = [name for name in host.names_anew(BLOCK) if _SCSI.fullmatch(name)]
    names += [name for name in host.names_anew(NVME) if _CONTROLLER.fullmatch(name)]
    yield from behind.values()
    for name in [name for name in names if name not in leading][: DISKS_MAX - len(behind)]:
        is_scsi = name.startswith("sd")
        folder = f"{BLOCK if is_scsi else NVME}/{name}"
        # One of 0 bytes is a card reader without a card.
        if (is_scsi and host.integer(f"{folder}/size") <= 0) or (
            not is_scsi and host.word(f"{folder}/transport") in {"tcp", "rdma", "fc", "loop"}
        ):
            continue
        with suppress(OSError):
            yield _disk(host, name, folder, f"/dev/{name}", may_rotate=is_scsi)


def _behind(host: Host, named: str) -> Iterator[Disk]:
    """Give the disks behind controllers, as ``sda:megaraid,0``. What has no folder in /sys leaves it to smartctl."""
    for each in [each.strip() for each in named.split(";") if each.strip()][:DISKS_MAX]:
        device, _, kind = each.partition(" -d ")
        name = os.path.basename(device)
        places = (f"{BLOCK}/{name}", f"{NVME}/{name}", f"{_GENERIC}/{name}")
        folder = next((place for place in places if os.path.isdir(f"{host.root}{place}")), "")
        instance = f"{device.removeprefix('/dev/').replace('/', '-')}:{kind}"
        if folder:
            with suppress(OSError):
                yield _disk(host, instance, folder, each, may_rotate=folder.startswith(BLOCK))
        else:
            yield Disk(instance, "", 0, rotates=False, device=each)


def _disk(host: Host, name: str, folder: str, device: str, *, may_rotate: bool) -> Disk:
    inode = os.stat(host.root + folder).st_ino
    return Disk(name, folder, inode, may_rotate and host.integer(f"{folder}/queue/rotational") != 0, device)


def rest(host: Host, disk: Disk) -> Absence | None:
    """Why a disk is not to be asked now; None where it may be."""
    if not disk.folder:
        return None
    if host.is_asleep(disk.folder):
        return Absence(Cause.ASLEEP)
    state = host.word(f"{disk.folder}/{'device/' if disk.folder.startswith(BLOCK) else ''}state")
    if isinstance(state, str) and state not in {"live", "running"}:
        return Absence(Cause.NO_SOURCE, f"the kernel reports the state {state}")
    return None


def _noted(noted: Any) -> dict[str, LastAnswer]:  # noqa: ANN401  what JSON says
    note.check(noted["disks"], noted[note.CHECKSUM])
    if noted["boot"] != _boot():
        return {}
    return {str(name): _read(*said) for name, said in note.fields(noted["disks"]).items()}


def _read(inode: int, slot: int, kind: str, said: Any, attributes: Any, process: int, started: int) -> LastAnswer:  # noqa: ANN401
    answer: Answer
    if kind == "health":
        answer = Health(dict(said), {name: Attribute(*map(note.integer, each)) for name, each in attributes.items()})
    else:
        answer = Absence(Cause(kind), str(said))
    return LastAnswer(note.integer(inode), note.integer(slot), answer, (note.integer(process), note.integer(started)))


def _spelled(said: LastAnswer) -> list[object]:
    if isinstance(said.answer, Health):
        return [said.inode, said.slot, "health", *said.answer, *said.hanging]
    return [said.inode, said.slot, *said.answer, {}, *said.hanging]


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _started(process: int) -> int:
    """When a process began, in ticks since boot; 0 where it is gone, or has ended."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{process}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()  # proc(5): the third field and those behind it
        return 0 if fields[0] in {b"Z", b"X"} else int(fields[19])
    return 0
