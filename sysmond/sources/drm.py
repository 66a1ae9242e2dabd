# SPDX-License-Identifier: Apache-2.0
"""Graphics cards: which there are, and what their drivers tell in sysfs. No device node is opened.

Source: the kernel's ``Documentation/gpu/amdgpu/thermal.rst`` and ``driver-misc.rst``,
``Documentation/ABI/testing/sysfs-class-devfreq``, and the sources of other drivers: ``i915/gt/intel_gt_sysfs_pm.c``,
``xe/xe_gt_freq.c``, ``xe/xe_gt_idle.c``, ``v3d/v3d_sysfs.c``. Reading most of that takes the device a reference of
runtime power management, which wakes it: one that sleeps is not asked, and none so often that it could not fall asleep.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from sysmond.probe import ABSENT, Absence, Cause, Host, Row
from sysmond.sources import nvml
from sysmond.sources.bus_address import address
from sysmond.sources.slots import Slots
from sysmond.sources.unread import printable, why

FOLDER = "/sys/class/drm"
NVIDIA = "/proc/driver/nvidia/gpus"
NVIDIA_DRIVER = "nvidia"
# NVIDIA's driver has no autosuspend delay to be read: where it may put a card to sleep, NVML asks it so seldom.
NVIDIA_SLOT_S = 60.0
PCI = "/sys/bus/pci/devices"
CARDS_MAX = 64
_CARD = re.compile(r"card\d{1,9}")
MHZ = 1_000_000
# What a bus gives for registers of a device that fell off it.
_ALL_ONES = frozenset((2**16 - 1, 2**32 - 1, 2**64 - 1))
_PERCENT_MAX, _FREQUENCY_MAX, _NUMBER_MAX = 100, 10**11, 2**63 - 1


def percent(content: bytes) -> int:
    """Read a share of time, as ``37``.

    :raises ValueError: where it is none.
    """
    return _bounded(int(content), _PERCENT_MAX)


def load(content: bytes) -> int:
    """Read the load of a device of devfreq, as ``12@200000000Hz``.

    :raises ValueError: where it is none.
    """
    return percent(content.partition(b"@")[0])


def mhz(content: bytes) -> int:
    """Read a frequency in MHz, as Hz.

    :raises ValueError: where it is none.
    """
    return _bounded(int(content), _FREQUENCY_MAX // MHZ) * MHZ


def hz(content: bytes) -> int:
    """Read a frequency in Hz.

    :raises ValueError: where it is none.
    """
    return _bounded(int(content), _FREQUENCY_MAX)


def number(content: bytes) -> int:
    """Read a number that is not negative.

    :raises ValueError: where it is none.
    """
    return _bounded(int(content), _NUMBER_MAX)


def level(content: bytes) -> int:
    """Read the level of ``pp_dpm_sclk`` that is in use, marked by a star, in Hz; ABSENT where none is.

    :raises ValueError: where it has no such line.
    """
    levels = _levels(content)
    return next((mhz(frequency) for frequency, star in levels if star), ABSENT)


def highest_level(content: bytes) -> int:
    """Read the highest level of ``pp_dpm_sclk``, in Hz.

    :raises ValueError: where it has no level.
    """
    return max(mhz(frequency) for frequency, _ in _levels(content))


def render_time(content: bytes) -> int:
    """Read of v3d's ``gpu_stats`` for how long the queue ``render`` was busy, in ns.

    :raises ValueError: where it has no such queue.
    """
    for line in content.splitlines()[1:]:
        queue, *_, runtime = line.split() or [b""]
        if queue == b"render":
            return number(runtime)
    raise ValueError("no queue called render")


def _levels(content: bytes) -> list[tuple[bytes, bytes]]:
    levels = re.findall(rb"^\s*\w+:\s*(\d{1,9})\s*Mhz\s*(\*?)", content, re.MULTILINE | re.IGNORECASE)
    if not levels:
        raise ValueError("no level")
    return levels


def _bounded(value: int, high: int) -> int:
    if not 0 <= value <= high or value in _ALL_ONES:
        raise ValueError(f"{value}; expected 0 to {high}")
    return value


# By metric where it may be, the best first, and how it is read; a folder called * is the only one there.
_FREQ0 = "device/tile0/gt0/freq0"
ATTRIBUTES: dict[str, tuple[tuple[str, Callable[[bytes], int]], ...]] = {
    "busy": (("device/gpu_busy_percent", percent), ("device/devfreq/*/load", load)),
    "busy_time": (("device/gpu_stats", render_time),),
    "idle_time": (
        ("gt/gt0/rc6_residency_ms", number),
        ("power/rc6_residency_ms", number),
        ("device/tile0/gt0/gtidle/idle_residency_ms", number),
    ),
    "frequency": (
        ("gt/gt0/rps_act_freq_mhz", mhz),
        ("gt_act_freq_mhz", mhz),
        (f"{_FREQ0}/act_freq", mhz),
        ("device/pp_dpm_sclk", level),
        ("device/devfreq/*/cur_freq", hz),
    ),
    "frequency_asked": (
        ("gt/gt0/rps_cur_freq_mhz", mhz),
        ("gt_cur_freq_mhz", mhz),
        (f"{_FREQ0}/cur_freq", mhz),
        ("device/devfreq/*/target_freq", hz),
    ),
    "frequency_max": (
        ("gt/gt0/rps_max_freq_mhz", mhz),
        ("gt_max_freq_mhz", mhz),
        (f"{_FREQ0}/max_freq", mhz),
        ("device/pp_dpm_sclk", highest_level),
        ("device/devfreq/*/max_freq", hz),
    ),
    "memory_busy": (("device/mem_busy_percent", percent),),
    "memory_frequency": (("device/pp_dpm_mclk", level),),
    "memory_used": (("device/mem_info_vram_used", number),),
    "memory_total": (("device/mem_info_vram_total", number),),
    "shared_used": (("device/mem_info_gtt_used", number),),
    "shared_total": (("device/mem_info_gtt_total", number),),
}


class Card:
    """A graphics card: its instance, driver and address, which of its attributes there are, and its last row.

    ``folder``: of the card, or "" of one that NVIDIA's driver has without DRM; ``device``: that of the device.
    ``address``: as ``drm-pdev`` spells it, ``0000:03:00.0``.
    """

    def __init__(self, host: Host, folder: str, device: str) -> None:
        """Look what it is, without asking it for anything.

        :raises OSError: where it is gone.
        """
        self.folder, self.device = folder, device
        real = os.path.realpath(host.root + device)
        self.address = printable(os.fsencode(os.path.basename(real)))
        try:
            driver = os.path.basename(os.readlink(f"{real}/driver"))
        except OSError:  # Of a device that is none, as that of vkms.
            os.stat(real)
            driver = os.path.basename(real)
        self.driver = printable(os.fsencode(driver))
        self.instance = self.driver
        self.attributes = _attributes(host, folder) if folder else {}
        self.row: Absence | tuple[int | str, ...] | None = None
        is_seldom = self.is_nvidia and host.word(f"{device}/power/control") == "auto"
        self._slots = Slots(host.root, device, NVIDIA_SLOT_S if is_seldom else 0.0)

    @property
    def is_nvidia(self) -> bool:
        """Whether NVML tells of it."""
        return self.driver == NVIDIA_DRIVER

    def is_due(self, host: Host) -> bool:
        """Whether it may be asked: it has had the time to fall asleep, or somebody else keeps it awake anyway."""
        return self._slots.is_due() or self.row is None or host.integer(f"{self.device}/power/runtime_usage") > 0

    def values(self, host: Host) -> dict[str, int]:
        """Read what it tells; what cannot be read is left out.

        :raises OSError: where nothing of what is there can be read, as the kernel says of the first.
        :raises ValueError: where nothing that can be read is a number.
        """
        values: dict[str, int] = {}
        failure: OSError | ValueError | None = None
        for metric, (path, parse) in self.attributes.items():
            try:
                values[metric] = parse(host.read(path))
            except (OSError, ValueError) as problem:
                failure = failure or problem
        if failure and not values:
            raise failure
        return values


class Cards:
    """Reads the table of cards. Which there are is looked up when a listing changes."""

    def __init__(self, metrics: tuple[str, ...] = (), library: nvml.Nvml | None = None) -> None:
        """``metrics``: those of the table, of which the first two are texts: driver and address.

        ``library``: what tells of cards of NVIDIA, where that is not the one of this process.
        """
        self._metrics = metrics[2:]
        self._library = library
        self._links: tuple[str, ...] | None = None
        self._host: Host | None = None
        self._cards: list[Card] = []

    def read(self, host: Host) -> Iterator[Row]:
        """Give a row for each card; one that sleeps, or cannot be read, says so."""
        cards = self.cards(host)
        answer = self._nvidia(host, cards)
        return ((card.instance, self._row(host, card, answer)) for card in cards)

    def nvidia(self, host: Host) -> nvml.Answer | Absence | None:
        """What NVML says of NVIDIA's cards, or why it is not asked: it may wake one while it looks for another.

        None where it is not asked yet again, or there are none.
        """
        return self._nvidia(host, self.cards(host))

    def _nvidia(self, host: Host, there: list[Card]) -> nvml.Answer | Absence | None:
        cards = [card for card in there if card.is_nvidia]
        library = self._library or (None if host.root else nvml.shared())
        if not cards or library is None:
            return None
        if any(host.is_asleep(card.device) for card in cards):
            return Absence(Cause.ASLEEP, "an NVIDIA card is asleep; NVML could wake it")
        due = [card.is_due(host) for card in cards]
        if not all(due):
            return None
        try:
            return library.ask([card.address for card in cards])
        except nvml.LostError as lost:
            return Absence(Cause.NO_SOURCE, str(lost))

    @property
    def has_nvidia(self) -> bool:
        """Whether any of the cards found last is NVIDIA's."""
        return any(card.is_nvidia for card in self._cards)

    def cards(self, host: Host) -> list[Card]:
        """The cards there are now, and the devices of NVIDIA's driver that are none."""
        links = tuple(_links(host))
        if host is not self._host or links != self._links:
            self._host, self._links, cards = host, links, []
            for folder, device in _seen(host):
                with suppress(OSError):  # It is gone again.
                    cards.append(Card(host, folder, device))
            self._cards = _distinct(host.root, cards)
        return self._cards

    def _row(self, host: Host, card: Card, answer: nvml.Answer | Absence | None) -> Absence | tuple[int | str, ...]:
        if host.is_asleep(card.device):
            return Absence(Cause.ASLEEP)
        if card.is_nvidia:
            return self._by_nvml(card, answer)
        if card.is_due(host):
            try:
                card.row = self._row_of(card, card.values(host))
            except (OSError, ValueError) as problem:
                card.row = why(card.instance, problem)
        return card.row or self._row_of(card, {})

    def _by_nvml(self, card: Card, answer: nvml.Answer | Absence | None) -> Absence | tuple[int | str, ...]:
        """What NVML says of a card; where it is not asked again yet, what it said last."""
        if isinstance(answer, Absence):
            card.row = None  # It is asked as soon as it may be.
            return answer
        if answer is not None:
            of_card = answer.cards.get(card.address, nvml.LostError("NVML: it was asked before this card was there"))
            if isinstance(of_card, nvml.NvmlCard):
                card.row = self._row_of(card, of_card.values)
            else:
                card.row = Absence(Cause.NO_SOURCE, str(of_card))
        return card.row or self._row_of(card, {})

    def _row_of(self, card: Card, values: Mapping[str, int]) -> tuple[int | str, ...]:
        return card.driver, card.address, *(values.get(metric, ABSENT) for metric in self._metrics)


def _names(host: Host) -> list[str]:
    """The names of cards, not those of their connectors."""
    return [name for name in host.names(FOLDER) if _CARD.fullmatch(name)][:CARDS_MAX]


def _links(host: Host) -> Iterator[str]:
    """Which cards there are and where each leads, as its links say: a number may be that of another card tomorrow."""
    for name in _names(host):
        for link in (name, f"{name}/device"):
            try:
                yield os.readlink(f"{host.root}{FOLDER}/{link}")
            except OSError:  # A folder, or gone.
                yield link
    yield from (name for name in host.names_anew(NVIDIA) if os.path.isdir(f"{host.root}{PCI}/{name}"))


def _seen(host: Host) -> tuple[tuple[str, str], ...]:
    """The folders of cards and the devices behind them."""
    seen: dict[str, str] = {}
    for name in _names(host):
        if len(seen) < CARDS_MAX:
            real = os.path.realpath(f"{host.root}{FOLDER}/{name}/device")
            real = real if os.path.isdir(real) else os.path.realpath(f"{host.root}{FOLDER}/{name}")
            seen.setdefault(real, f"{FOLDER}/{name}")
    for name in host.names_anew(NVIDIA):
        real = os.path.realpath(f"{host.root}{PCI}/{name}")
        if re.fullmatch(r"[\da-fA-F:.]{1,20}", name) and len(seen) < CARDS_MAX and os.path.isdir(real):
            seen.setdefault(real, "")
    root = os.path.realpath(host.root) if host.root else ""
    return tuple((folder, device.removeprefix(root)) for device, folder in seen.items())


def _attributes(host: Host, folder: str) -> dict[str, tuple[str, Callable[[bytes], int]]]:
    """Which attributes a card has, and how each is read."""
    there: dict[str, tuple[str, Callable[[bytes], int]]] = {}
    for metric, places in ATTRIBUTES.items():
        for place, parse in places:
            before, star, after = place.partition("*")
            path = f"{folder}/{before}"
            if star:
                path += "".join(host.names_anew(path.rstrip("/"))[:1]) + after
            if os.path.isfile(host.root + path):
                there[metric] = path, parse
                break
    return there


def _distinct(root: str, cards: list[Card]) -> list[Card]:
    """Add the address to the names of those that one driver has, and a number where that is the same, too."""
    drivers = [card.driver for card in cards]
    known: set[str] = set()
    for card in cards:
        if drivers.count(card.driver) > 1:
            card.instance = f"{card.driver}-{address(root, card.device)}"
        first, count = card.instance, 1
        while card.instance in known:
            count += 1
            card.instance = f"{first} #{count}"
        known.add(card.instance)
    return cards
