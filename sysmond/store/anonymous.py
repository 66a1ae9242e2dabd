# SPDX-License-Identifier: Apache-2.0
"""What an archive tells without naming anybody: which texts stay, which become numbers, and which go.

``Anonymity`` makes the same of the same name within one excerpt, picture or page, so that rows can still be put
together, and is thrown away with it. What is not listed here goes: texts of plugins, texts and details of events, why
there are gaps.
"""

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sysmond.base.event_kinds import BOOT_ENDED
from sysmond.base.model import ABSENT, Table
from sysmond.base.result import Int64Array
from sysmond.store.of_ring import Block, BootEvent, Hole, Recording, SeriesKey

# Tables whose instances are called alike on all machines.
_PLAIN_INSTANCES = frozenset(
    {"cpu", "cpu_frequency", "cpu_idle", "cpu_throttle", "hugepages", "numa", "pressure", "self", "softnet", "stall"}
)
# Texts that are alike on all machines, by table.
_PLAIN_TEXTS = {
    "battery": {"status", "level", "condition", "technology", "type", "scope"},
    "cgroup_limits": {"cpus", "nodes", "controllers"},
    "cgroup_owner": {"runtime"},
    "cgroup_tree": {"hierarchies"},
    "cpu_frequency": {"governor", "driver", "energy_preference"},
    "edac": {"kind"},
    "filesystem": {"type"},
    "gpu": {"driver"},
    "host": {"architecture", "cpu_model", "distribution", "kernel"},
    "link": {"duplex", "state"},
    "mains": {"type", "usb_type"},
    "md": {"level", "state", "sync_action"},
    "md_member": {"state"},
    "process": {"state"},
    "qdisc": {"kind"},
    "runtime_pm": {"control", "status"},
    "smart": {"protocol"},
    "swap": {"type"},
    "thread": {"state"},
    "wifi": {"type"},
    "zram": {"algorithm"},
    "zswap": {"compressor"},
}
# What others become: a word and a number. The same word stands for the same thing in all tables.
_NUMBERED_TEXTS = {
    ("process", "comm"): "program",
    ("process", "username"): "user",
    ("exits", "comm"): "program",
    ("exits", "sender_comm"): "program",
    ("thread", "comm"): "program",
    ("gpu_process", "comm"): "program",
    ("gpu_process", "card"): "card",
    ("cgroup_name", "path"): "cgroup",
    ("cgroup_owner", "unit"): "unit",
    ("cgroup_owner", "user_unit"): "unit",
    ("cgroup_owner", "slice"): "slice",
    ("cgroup_owner", "session"): "session",
    ("cgroup_owner", "pod"): "pod",
    ("cgroup_owner", "container"): "container",
    ("filesystem", "device"): "device",
    ("smart", "model"): "model",
    ("battery", "model"): "model",
}
# What tables call a block device: the same disk has the same number in all of them.
_DEVICE = "device"
_ALSO_DEVICES = {"array": _DEVICE, "disk": _DEVICE}
_FOLDER = "/dev/"
# A disk, and which namespace and partition of it: smartctl asks about nvme0, of which the kernel reads nvme0n1.
_PART = re.compile(r"((?:sd|hd|vd|xvd)[a-z]+|nvme\d+|mmcblk\d+)(n\d+)?(?:p?(\d+))?")
# What events are about that is called alike on all machines, by kind: what may stand there is listed.
_PLAIN_SUBJECTS = {
    "pressure": {"cpu", "io", "irq", "memory"},
    BOOT_ENDED: {"in order", "panic", "unknown", "watchdog"},
}
# The whole, in tables of parts, and the root of cgroups and file systems.
_PLAIN_NAMES = frozenset({"", "total", "/"})


class Anonymity:
    """What names become: made up as they come, the same for the same."""

    def __init__(self) -> None:
        """Know no name yet."""
        self._numbers: dict[str, dict[str, str]] = {}
        self._boots: dict[str, str] = {}

    def boot(self, boot: str) -> str:
        """Another boot id."""
        return self._boots.setdefault(boot, secrets.token_hex(16))

    def instance(self, table: Table, name: str) -> str:
        """What an instance of a wide table is called."""
        if table.name in _PLAIN_INSTANCES:
            return name
        words = table.per.split(":") if table.per else ["thing"]
        parts = name.rsplit(":", len(words) - 1)
        return ":".join(self._number(word, part) for word, part in zip(words, parts, strict=False))

    def text(self, table: str, metric: str, text: str) -> str | None:
        """What a text becomes; None where it goes."""
        if not text or metric in _PLAIN_TEXTS.get(table, ()):
            return text
        word = _NUMBERED_TEXTS.get((table, metric))
        return None if word is None else self._number(word, text)

    def subject(self, kind: str, subject: str) -> str:
        """What an event of some kind is about."""
        return subject if subject in _PLAIN_SUBJECTS.get(kind, ()) else self._number("thing", subject)

    def event(self, event: BootEvent) -> BootEvent:
        """An event: what happened, and when, and of each thing the same number."""
        subject = self.subject(event.kind, event.subject)
        return event._replace(boot=self.boot(event.boot), subject=subject, text="", detail="")

    def holes(self, holes: Iterable[Hole]) -> Iterator[Hole]:
        """Absences of tables, without why; those of instances go."""
        for hole in holes:
            if not hole.detail.startswith(f"{hole.table}@"):
                yield hole._replace(boot=self.boot(hole.boot), detail="")

    def recording(self, recording: Recording) -> Recording:
        """The rows of wide tables, and what happened."""
        texts = _Texts(self, recording)
        return recording._replace(
            blocks=[_NamelessBlock(block, self, texts) for block in recording.blocks],
            texts=texts.there,
            clocks={self.boot(boot): clocks for boot, clocks in recording.clocks.items()},
            holes=list(self.holes(recording.holes)),
            events=[self.event(event) for event in recording.events],
        )

    def _number(self, word: str, name: str) -> str:
        if name in _PLAIN_NAMES:
            return name
        word = _ALSO_DEVICES.get(word, word)
        if word == _DEVICE:
            name = name.removeprefix(_FOLDER)  # So df(1) and swapon(8) spell it.
            if (part := _PART.fullmatch(name)) and part[1] != name:
                disk, namespace, partition = part.groups("")
                return f"{self._number(word, disk)}{namespace}{partition and f'p{partition}'}"
        numbers = self._numbers.setdefault(word, {})
        return numbers.setdefault(name, f"{word}-{len(numbers) + 1}")


class _Texts:
    """The texts of a recording, under ids of their own: one text may mean something else in another column."""

    def __init__(self, anonymity: Anonymity, recording: Recording) -> None:
        self.tables = recording.tables
        self.there: dict[int, str] = {}
        self._anonymity = anonymity
        self._texts = recording.texts
        self._ids: dict[tuple[str, str, int], int] = {}
        self._are_texts = {
            (table.name, metric.name) for table in self.tables.values() for metric in table.metrics if metric.is_text
        }
        for block in recording.blocks:
            for row, key in enumerate(block.keys):
                if key[:2] in self._are_texts:
                    self.ids(key, block.read([row])[0])

    def ids(self, key: SeriesKey, values: Int64Array) -> Int64Array:
        """What the values of a series become, int64[time], if they are texts."""
        if key[:2] not in self._are_texts:
            return values
        before, where = np.unique(values, return_inverse=True)
        after = [self._id(key.table, key.metric, ident) for ident in before.tolist()]
        return np.array(after, np.int64)[where.reshape(values.shape)]

    def _id(self, table: str, metric: str, ident: int) -> int:
        known = self._ids.get((table, metric, ident))
        if known is None:
            text = None if ident == ABSENT else self._anonymity.text(table, metric, self._texts.get(ident, ""))
            known = ABSENT if text is None else len(self.there)
            if text is not None:
                self.there[known] = text
            self._ids[table, metric, ident] = known
        return known


class _NamelessBlock:
    """A block whose instances and texts have other names."""

    def __init__(self, block: Block, anonymity: Anonymity, texts: _Texts) -> None:
        self._block = block
        self._texts = texts
        self.strand = block.strand._replace(boot=anonymity.boot(block.strand.boot))
        self.ticks = block.ticks
        self.closed = block.closed
        self.significant_bits = block.significant_bits
        self.keys: Sequence[SeriesKey] = [
            key._replace(instance=anonymity.instance(texts.tables[key.table], key.instance)) for key in block.keys
        ]

    def read(self, rows: Sequence[int]) -> Int64Array:
        """Values of the chosen rows, int64[row, time]."""
        values = self._block.read(rows)
        for at, row in enumerate(rows):
            values[at] = self._texts.ids(self._block.keys[row], values[at])
        return values
