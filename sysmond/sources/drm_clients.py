# SPDX-License-Identifier: Apache-2.0
"""Clients of graphics cards: which processes hold one open, for how long engines worked for them, and their memory.

Source: the kernel's ``Documentation/gpu/drm-usage-stats.rst``, by ``/proc/PID/fdinfo``; of NVIDIA's driver, which has
nothing there, NVML. No card is opened. Drivers leave a card asleep for it; a client of one that sleeps is not read
anyway, since it cannot have changed.
"""

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from sysmond.base import clock
from sysmond.base.clock import SECOND_NS
from sysmond.probe import ABSENT, Host
from sysmond.sources.nvml import Answer, GpuProcess, NvmlCard
from sysmond.sources.unread import printable

TICK_NS = SECOND_NS // os.sysconf("SC_CLK_TCK")
NODE = re.compile(r"/dev/dri/((?:card|renderD)\d{1,9})")
FDINFO_BYTES_MAX = 16384
LINES_MAX = 256
CLIENTS_MAX = 4096
PROCESSES_MAX = 4096
# Of a process so many descriptors are looked at, and in a reading so many in all, but for those of one process.
DESCRIPTORS_MAX = 4096
LOOKS_MAX = 8192
# Every process is looked at once in so many readings; one that is new in each of its first three, and one that holds a
# card in each third, since it may open it again.
ROUND = 12
YOUNG_READINGS = 3
_NUMBER_MAX = 2**62
_PID_DIGITS_MAX = 10
_STAT_BYTES_MAX, _START = 1024, 19  # In stat, from the state on: field 22 of proc(5).
_UNITS = {b"": 1, b"B": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}
# Memory of a region is told by one of these; the first that is there counts.
_MEMORY = ("drm-resident-", "drm-memory-", "drm-total-")
_OWN_MEMORY = re.compile(r"(vram|local|lmem)\d*")

RENDER, COMPUTE, COPY, VIDEO, OTHER = range(5)
# What drivers call their engines: amdgpu, i915, xe, v3d, panfrost and panthor, msm, etnaviv.
_KINDS = {
    **dict.fromkeys(("gfx", "render", "rcs", "bin", "fragment", "vertex-tiler", "panthor", "gpu", "3d"), RENDER),
    **dict.fromkeys(("compute", "ccs", "csd"), COMPUTE),
    **dict.fromkeys(("dma", "sdma", "copy", "bcs", "tfu", "2d"), COPY),
    **dict.fromkeys(("dec", "enc", "jpeg", "vcn", "uvd", "vce", "vpe", "video", "video-enhance", "vcs", "vecs"), VIDEO),
}


class DrmClient(NamedTuple):
    """What the kernel says of one open descriptor of a card.

    ``engines``: nanoseconds by name. ``cycles``: of engines of which only these are told, their own and those of the
    clock. ``memory``, ``own_memory``: bytes, in all regions, and of these in the card's own.
    """

    card: str
    number: int
    engines: dict[str, int]
    cycles: dict[str, tuple[int, int]]
    memory: int
    own_memory: int


class Use(NamedTuple):
    """What a process has used: ``by_kind_ns``: of ``RENDER`` to ``OTHER``; ``card``: that which worked most for it.

    ``memory``, ``own_memory``: as of a client, ABSENT where NVML does not know it.
    """

    pid: int
    start_ns: int
    uid: int
    comm: bytes
    card: str
    by_kind_ns: tuple[int, ...]
    memory: int
    own_memory: int
    clients: int


def parse(content: bytes) -> DrmClient | None:
    """Read an fdinfo; None where it is none of a client. What is no number, or too large for one, is left out."""
    words: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for line in content[:FDINFO_BYTES_MAX].splitlines()[:LINES_MAX]:
        key, colon, value = line.partition(b":")
        if not colon or not key.startswith(b"drm-"):
            continue
        name = printable(key)
        words[name] = printable(value)
        digits, _, unit = value.strip().partition(b" ")
        factor = _UNITS.get(unit.strip(), 1)
        if digits.isdigit() and len(digits) <= len(str(_NUMBER_MAX)) and int(digits) * factor < _NUMBER_MAX:
            numbers.setdefault(name, int(digits) * factor)
    if "drm-client-id" not in numbers:
        return None
    engines = {name: value for name, value in _named(numbers, "drm-engine-") if not name.startswith("capacity-")}
    clocks = dict(_named(numbers, "drm-total-cycles-"))
    cycles = {
        name: (value, clocks[name])
        for name, value in _named(numbers, "drm-cycles-")
        if name in clocks and name not in engines
    }
    regions: dict[str, int] = {}
    for prefix in _MEMORY:
        for region, size_bytes in _named(numbers, prefix):
            if not region.startswith("cycles-"):
                regions.setdefault(region, size_bytes)
    own = sum(value for region, value in regions.items() if _OWN_MEMORY.fullmatch(region))
    card = words.get("drm-pdev") or words.get("drm-driver", "")
    return DrmClient(card, numbers["drm-client-id"], engines, cycles, sum(regions.values()), own)


def _fdinfo(path: str) -> DrmClient | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return parse(file.read(FDINFO_BYTES_MAX))
    except OSError:  # It was closed, or its process ended.
        return None


def _stat(proc: str, name: str) -> tuple[int, bytes]:
    """When a process began, in ns since boot, and its name, which may hold any byte: the last parenthesis ends it.

    :raises OSError: where it is gone. :raises ValueError: where this is no stat.
    """
    with open(f"{proc}/{name}/stat", "rb", buffering=0) as file:
        before, _, behind = file.read(_STAT_BYTES_MAX).rpartition(b")")
    return int(behind.split()[_START]) * TICK_NS, before.partition(b"(")[2]


def kind_of(engine: str) -> int:
    """Which kind of work an engine does, by its name: ``enc_1`` encodes, as ``enc`` does."""
    name = engine.lower()
    return _KINDS.get(name, _KINDS.get(name.rstrip("0123456789").rstrip("_"), OTHER))


def _named(numbers: dict[str, int], prefix: str) -> Iterator[tuple[str, int]]:
    return ((key.removeprefix(prefix), value) for key, value in numbers.items() if key.startswith(prefix))


class _Account:
    """What one client has used so far, and who it is counted for."""

    def __init__(self) -> None:
        self.client: DrmClient | None = None
        self.read_ns = 0
        self._most: dict[str, int] = {}

    def grown(self, client: DrmClient, now_ns: int) -> list[int]:
        """By how much each kind of work grew since the reading before, in ns; the first counts from its opening on.

        A smaller value than before is a driver that will catch up with it.
        """
        grown = [0] * (OTHER + 1)
        for name, value in client.engines.items():
            before = self._most.get(name, 0)
            grown[kind_of(name)] += max(0, value - before)
            self._most[name] = max(value, before)
        if self.client is not None:
            for name, (value, clock) in client.cycles.items():
                value_before, clock_before = self.client.cycles.get(name, (value, clock))
                if 0 < value - value_before <= clock - clock_before:
                    share = (value - value_before) / (clock - clock_before)
                    grown[kind_of(name)] += round(share * (now_ns - self.read_ns))
        self.client, self.read_ns = client, now_ns
        return grown


class _Holder:
    """A process that holds a card, or did. ``nodes``: of cards, by descriptor; ``seen``: what was read last."""

    def __init__(self, proc: str, name: str) -> None:
        """Look who it is.

        :raises OSError: where it is gone. :raises ValueError, IndexError: where its files are none.
        """
        self.pid, self.uid = int(name), os.stat(f"{proc}/{name}").st_uid
        self.start_ns, self.comm = _stat(proc, name)
        self.nodes: dict[str, str] = {}
        self.seen: dict[str, DrmClient] = {}
        self.by_kind_ns = [0] * (OTHER + 1)
        self.by_card_ns: dict[str, int] = {}
        self.by_nvml: dict[str, GpuProcess] = {}

    def add(self, card: str, grown_ns: Sequence[int]) -> None:
        """Count what a card worked for it, by kind."""
        self.by_kind_ns = [before + grown for before, grown in zip(self.by_kind_ns, grown_ns, strict=True)]
        self.by_card_ns[card] = self.by_card_ns.get(card, 0) + sum(grown_ns)

    def use(self, clients: Iterable[DrmClient]) -> Use:
        """What it has used, with the clients that are counted for it now."""
        now = [*clients]
        card = max(self.by_card_ns, key=lambda card: self.by_card_ns[card], default="")
        by_nvml = [process.memory for process in self.by_nvml.values()]
        memory = own = ABSENT
        if None not in by_nvml:
            known = sum(size for size in by_nvml if size is not None)
            memory = known + sum(client.memory for client in now)
            own = known + sum(client.own_memory for client in now)
        by_kind, count = tuple(self.by_kind_ns), len(now) + len(by_nvml)
        return Use(self.pid, self.start_ns, self.uid, self.comm, card, by_kind, memory, own, count)


class Clients:
    """Finds processes that hold a card, and reads what they use.

    ``left_out``: how many processes and clients there are more than can be counted.
    """

    def __init__(self) -> None:
        """Know nobody yet."""
        self.left_out = 0
        self._ages: dict[str, int] = {}
        self._refused: set[str] = set()
        self._turn: deque[str] = deque()
        self._holders: dict[str, _Holder] = {}
        self._accounts: dict[tuple[str, int], _Account] = {}
        self._owners: dict[tuple[str, int], str] = {}
        self._nvml_ns = 0

    @property
    def unread(self) -> int:
        """How many processes may not be looked into."""
        return len(self._refused)

    def read(self, host: Host, now_ns: int | None = None, nvml: Answer | None = None) -> list[Use]:
        """Give what each process has used that holds a card, or did since this began to look.

        ``now_ns``: the boot time, where that is not the clock's. ``nvml``: what NVIDIA's library says.

        :raises OSError: where there is no /proc.
        """
        proc = f"{host.root}/proc"
        self._look(proc)
        if nvml is not None:
            self._take(proc, nvml)
        asleep: dict[str, bool] = {}
        holding: dict[tuple[str, int], dict[str, DrmClient]] = {}
        for name, holder in self._holders.items():
            for client in self._clients(host, proc, holder, asleep):
                holding.setdefault((client.card, client.number), {}).setdefault(name, client)
        counted = self._count(holding, clock.boottime_ns() if now_ns is None else now_ns)
        return [holder.use(counted.get(name, ())) for name, holder in self._holders.items()]

    def _look(self, proc: str) -> None:
        """Look for processes that hold a card: at some of all, and at those that are new."""
        there = [name for name in os.listdir(proc) if name.isdecimal() and len(name) < _PID_DIGITS_MAX]
        is_first = not self._ages
        self._ages = {name: self._ages.get(name, YOUNG_READINGS * is_first - 1) + 1 for name in there}
        self._refused &= self._ages.keys()
        for name in [*self._holders]:
            if not self._is_the_same(proc, name):
                del self._holders[name]
        if not self._turn:
            self._turn.extend(there)
        turn = [self._turn.popleft() for _ in range(len(there) if is_first else -(-len(there) // ROUND)) if self._turn]
        due = [name for name, age in self._ages.items() if age < YOUNG_READINGS] + turn
        due += [name for name in self._holders if self._ages[name] % YOUNG_READINGS == 0]
        looks, self.left_out = 0, 0
        for name in dict.fromkeys(due):
            if looks < LOOKS_MAX:
                looks += self._look_into(proc, name)
            elif name in self._ages and len(self._turn) < 2 * len(there):
                self._turn.append(name)  # It is looked at in a later reading.

    def _look_into(self, proc: str, name: str) -> int:
        """Look at the descriptors of a process; how many there are."""
        nodes: dict[str, str] = {}
        looks = 0
        try:
            with os.scandir(f"{proc}/{name}/fd") as entries:
                for entry in islice(entries, DESCRIPTORS_MAX):
                    looks += 1
                    with suppress(OSError):  # It was closed.
                        if match := NODE.fullmatch(os.readlink(entry.path)):
                            nodes[entry.name] = match[1]
        except PermissionError:
            self._refused.add(name)
            return 1
        except OSError:
            return 1
        self._refused.discard(name)
        if nodes and name not in self._holders:
            self._hold(proc, name)
        if name in self._holders:
            self._holders[name].nodes = nodes
        return looks

    def _hold(self, proc: str, name: str) -> _Holder | None:
        """Follow a process from now on; None where it is gone, or there are too many."""
        if name in self._holders:
            return self._holders[name]
        if len(self._holders) >= PROCESSES_MAX:
            self.left_out += 1
            return None
        try:
            self._holders[name] = _Holder(proc, name)
        except (OSError, ValueError, IndexError):
            return None
        return self._holders[name]

    def _is_the_same(self, proc: str, name: str) -> bool:
        """Whether a process is still there, and none that was given its number since."""
        holder = self._holders[name]
        try:
            start_ns, holder.comm = _stat(proc, name)
        except (OSError, ValueError, IndexError):
            return False
        return start_ns == holder.start_ns

    def _clients(self, host: Host, proc: str, holder: _Holder, asleep: dict[str, bool]) -> Iterator[DrmClient]:
        """The clients of a process: as they are now, and of a card that sleeps as they were."""
        before, holder.seen = holder.seen, {}
        for descriptor, node in holder.nodes.items():
            if node not in asleep:
                asleep[node] = host.is_asleep(f"/sys/class/drm/{node}/device")
            client = before.get(descriptor)
            if not asleep[node]:
                client = _fdinfo(f"{proc}/{holder.pid}/fdinfo/{descriptor}")
            if client is not None:
                holder.seen[descriptor] = client
                yield client

    def _count(self, holding: dict[tuple[str, int], dict[str, DrmClient]], now_ns: int) -> dict[str, list[DrmClient]]:
        """Count each client once, for the process that had it first; give those of each process."""
        counted: dict[str, list[DrmClient]] = {}
        keys = [*islice(holding, CLIENTS_MAX)]
        self.left_out += len(holding) - len(keys)
        self._accounts = {key: self._accounts.get(key) or _Account() for key in keys}
        self._owners = {key: self._owners.get(key, "") for key in keys}
        for key in keys:
            names = holding[key]
            owner = self._owners[key]
            if owner not in names:
                owner = self._owners[key] = min(names, key=lambda name: self._holders[name].start_ns)
            client, holder = names[owner], self._holders[owner]
            holder.add(client.card, self._accounts[key].grown(client, now_ns))
            counted.setdefault(owner, []).append(client)
        return counted

    def _take(self, proc: str, answer: Answer) -> None:
        """Take what NVML says of processes: percent of the time since it was asked before become time."""
        took_ns = answer.taken_ns - (self._nvml_ns or answer.taken_ns)
        if took_ns <= 0 and self._nvml_ns:
            return  # It is what was said before.
        self._nvml_ns = answer.taken_ns
        for holder in self._holders.values():
            holder.by_nvml = {}
        for address, card in answer.cards.items():
            for pid, process in card.processes.items() if isinstance(card, NvmlCard) else ():
                if used := self._hold(proc, str(pid)):
                    grown_ns = [0] * (OTHER + 1)
                    grown_ns[OTHER], grown_ns[VIDEO] = process.busy * took_ns // 100, process.video * took_ns // 100
                    used.add(address, grown_ns)
                    used.by_nvml[address] = process
