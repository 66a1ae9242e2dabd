# SPDX-License-Identifier: Apache-2.0
"""Lays out the live view: numbers in, lines of text out, for a terminal of any size. Pure.

No line is wider than the terminal; where there are too few lines, what matters least is left out.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sysmon_tools.busiest import Busy
from sysmon_tools.quantities import duration, number, size
from sysmon_tools.show import Text, cell_len
from sysmon_tools.signs import SIGNS, Signs, sparkline
from sysmond.base.clock import SECOND_NS
from sysmond.base.terminal import printable
from sysmond.ring.newest import Now

# Without a tick for so long the sampler is missing.
LATE_S = 3.5
# A CPU's cell: name, bar, number.
_CELL_WIDTH = 26
_CPU_ROWS_MAX = 4
_BAR_WIDTH_MAX = 40
_CURVE_WIDTH_MAX = 120
_HOTTEST_MAX = 3

_IDLE_SHARE = "iowait"  # Told, but not part of a bar: nothing ran.
# Of which cpu has the derived column NAME_percent.
_SHARES = (
    ("user", "green"),
    ("system", "yellow"),
    (_IDLE_SHARE, "blue"),
    ("steal", "red"),
    ("nice", "cyan"),
    ("irq", "magenta"),
)
_LABEL = "bold"
_DIM = "dim"


class Storage(NamedTuple):
    """What lies in RAM and on disk: rings, segments, bytes; ``flushed_s``: when the disk got its newest, UTC."""

    ram_files: int = 0
    ram_bytes: int = 0
    disk_files: int = 0
    disk_bytes: int = 0
    flushed_s: float | None = None
    state_dir: str = ""


class Scene(NamedTuple):
    """Everything that one frame shows."""

    now: Now
    stored: Storage
    boottime_ns: int
    realtime_s: float
    messages: Sequence[str] = ()
    keys: str = "q ends"
    busiest: Sequence[Busy] = ()


class Section(NamedTuple):
    """Lines that belong together; ``keep`` of them at least, others go where ``rank`` is highest."""

    rank: int
    keep: int
    lines: list[Text]


def frame(scene: Scene, width: int, height: int, signs: Signs = SIGNS) -> list[Text]:
    """Give at most ``height`` lines of at most ``width`` columns."""
    now = scene.now
    late_s = None if now.tick_ns is None else (scene.boottime_ns - now.tick_ns) / SECOND_NS
    sections = [Section(0, 1, [_header(scene, late_s, width, signs)])]
    if late_s is None or late_s > LATE_S:
        sections.append(Section(0, 1, [_waiting(late_s)]))
    if late_s is not None:
        sections += [
            Section(2, 2, _cpus(now, width, signs)),
            Section(1, 1, _memory(now, width, signs)),
            Section(1, 1, _load(now, width, signs)),
            Section(3, 0, _busiest(scene.busiest, width, signs)),
            Section(3, 0, [*_heat(now, width, signs), *_batteries(now, width, signs)]),
            Section(4, 2, _disks(now, width, signs)),
            Section(5, 2, _networks(now, width, signs)),
            Section(6, 0, _filesystems(now, width, signs)),
            Section(3, 1, _sysmond(scene, width, signs)),
        ]
    said = [Text(line, "yellow") for line in scene.messages]
    sections.append(Section(7, min(1, len(said)), said))
    lines = _fitted([section for section in sections if section.lines], height - 1)
    footer = Text(scene.keys, _DIM)
    lines += [Text() for _ in range(height - 1 - len(lines))]
    for line in (*lines, footer):
        line.truncate(width)
    return [*lines, footer][-height:]


def _fitted(sections: list[Section], height: int) -> list[Text]:
    """Put sections below each other, with an empty line between them where there is room."""
    counts = [len(section.lines) for section in sections]
    for keep in (lambda section: section.keep, lambda section: min(1, section.keep), lambda _: 0):
        for index in sorted(range(len(sections)), key=lambda index: -sections[index].rank):
            surplus = max(0, sum(counts) - height)
            counts[index] -= min(surplus, max(0, counts[index] - _at_least(keep, sections[index])))
    spare = height - sum(counts)
    lines: list[Text] = []
    for section, count in zip(sections, counts, strict=True):
        if lines and count and spare > 0:
            lines.append(Text())
            spare -= 1
        lines += section.lines[:count]
    return lines


def _at_least(keep: Callable[[Section], int], section: Section) -> int:
    return keep(section)


def _header(scene: Scene, late_s: float | None, width: int, signs: Signs) -> Text:
    recording = late_s is not None and late_s <= LATE_S
    right = Text.assemble((f"{signs.record} ", "bold red"), "recording  ") if recording else Text()
    right.append(time.strftime("%H:%M:%S", time.localtime(scene.realtime_s)))
    said = [scene.now.text("host", "hostname"), scene.now.text("host", "kernel")]
    said.append(f"up {duration(scene.boottime_ns / SECOND_NS)}")
    left = _joined(Text("sysmond", "bold cyan"), map(Text, filter(None, said)), width - right.cell_len - 2, signs)
    return Text.assemble(left, " " * max(1, width - left.cell_len - right.cell_len), right)


def _joined(line: Text, items: Iterable[Text], width: int, signs: Signs | None = None) -> Text:
    """Append what fits as a whole, in order; with a dot between where ``signs`` has one."""
    between = "  " if signs is None else f" {signs.dot} "
    for item in items:
        if line.cell_len + len(between) + item.cell_len > width:
            break
        line = Text.assemble(line, (between, _DIM), item)
    return line


def _named(label: str, value: str, style: str = "") -> Text:
    return Text.assemble((f"{label} ", _DIM), (value, style))


def _waiting(late_s: float | None) -> Text:
    if late_s is None:
        return Text("waiting for the sampler: nothing recorded yet", "yellow")
    return Text(f"waiting for the sampler: no tick for {duration(late_s)}; these are the last values", "yellow")


def _cpus(now: Now, width: int, signs: Signs) -> list[Text]:
    names = now.instances("cpu")
    cpus = [name for name in names if name != "total"]
    line = Text.assemble(("CPU      ", _LABEL), _percent(_busy(now, "total")), "  ")
    room = max(8, min(_CURVE_WIDTH_MAX, width - line.cell_len - 44))
    curve = [_share(percent) for percent in now.course("cpu", "busy", "total", room)]
    line.append(sparkline(curve, signs).rjust(room), "green")
    shares = [(label, now.derived("cpu", f"{label}_percent", "total"), style) for label, style in _SHARES]
    known = (_named(label, f"{percent:.1f} %", style) for label, percent, style in shares if percent is not None)
    line = _joined(line, known, width)
    per_row = max(1, width // _CELL_WIDTH)
    if len(cpus) > per_row * _CPU_ROWS_MAX:
        levels = sparkline((_busy(now, cpu) for cpu in cpus), signs)
        rows = [levels[start : start + width - 9] for start in range(0, len(levels), width - 9)]
        return [line, *(Text(f"{'' if index else 'each':9}{row}") for index, row in enumerate(rows))]
    cell = width // per_row if len(cpus) >= per_row else _CELL_WIDTH + 10
    lines = [line]
    cells = [_cpu_cell(now, cpu, cell, signs) for cpu in cpus]
    return lines + [Text.assemble(*cells[start : start + per_row]) for start in range(0, len(cells), per_row)]


def _cpu_cell(now: Now, cpu: str, width: int, signs: Signs) -> Text:
    room = width - 9 - 9
    parts = [
        (_share(now.derived("cpu", f"{label}_percent", cpu)) or 0.0, style)
        for label, style in _SHARES
        if label != _IDLE_SHARE
    ]
    cell = Text.assemble((f"{cpu:9}", _DIM), _bar(parts, room, signs), " ", _percent(_busy(now, cpu)))
    cell.pad_right(width - cell.cell_len)
    return cell


def _busy(now: Now, cpu: str) -> float | None:
    return _share(now.derived("cpu", "busy", cpu))


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _added(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _memory(now: Now, width: int, signs: Signs) -> list[Text]:
    lines = []
    for label, prefix in (("Memory", ""), ("Swap", "swap_")):
        total, used, percent = (
            now.value("memory", f"{prefix}total"),
            now.derived("memory", f"{prefix}used"),
            now.derived("memory", f"{prefix}used_percent"),
        )
        if total is not None and used is not None and percent is not None:
            lines.append(_used(label, used, total, percent / 100, width, signs))
    if lines:
        more = ((name, now.value("memory", name)) for name in ("cached", "dirty", "anon", "slab"))
        lines[0] = _joined(lines[0], (_named(name, size(value)) for name, value in more if value is not None), width)
    return lines


def _used(label: str, used: float, total: float, share: float, width: int, signs: Signs) -> Text:
    room = max(4, min(_BAR_WIDTH_MAX, width - 60))
    return Text.assemble(
        (f"{label:9}", _LABEL),
        _bar([(share, _warmth(share))], room, signs),
        " ",
        _percent(share),
        f"  {size(used)} of {size(total)}",
    )


def _load(now: Now, width: int, signs: Signs) -> list[Text]:
    averages = [now.value("load", f"average_{span}") for span in ("1min", "5min", "15min")]
    spelled = "  ".join(_spelled(value, "{:.2f}".format, signs) for value in averages)
    items = []
    tasks, runnable = now.value("load", "tasks"), now.value("load", "tasks_runnable")
    if tasks is not None and runnable is not None:
        items.append(_named("tasks", f"{tasks:.0f}, {runnable:.0f} runnable"))
    for metric in ("context_switches", "interrupts", "forks"):
        rate = now.rate("system", metric)
        if rate is not None:
            items.append(_named(metric, f"{number(rate)}/s"))
    lines = [_joined(Text.assemble(("Load     ", _LABEL), spelled), items, width)]
    items = []
    for resource in now.instances("pressure"):
        some, full = (now.derived("pressure", f"{kind}_percent", resource) for kind in ("some", "full"))
        if some is not None:
            item = _named(resource, _waited(some), _warmth(some / 100))
            items.append(Text.assemble(item, "" if full is None else f", all {_waited(full)}"))
    if items:
        first, *others = items
        lines.append(_joined(Text.assemble(("Pressure ", _LABEL), first), others, width, signs))
    return lines


def _busiest(busiest: Sequence[Busy], width: int, signs: Signs) -> list[Text]:
    """Who uses most CPU: a line, or none."""
    items = [
        Text.assemble(f"{process.comm} {process.pid} ", (f"{process.cpus * 100:.1f} %", _warmth(process.cpus)))
        for process in busiest
    ]
    if not items:
        return []
    first, *others = items
    return [_joined(Text.assemble(("Busiest  ", _LABEL), first), others, width, signs)]


def _heat(now: Now, width: int, signs: Signs) -> list[Text]:
    """The hottest, whether that slows CPUs down, and the fastest fan: a line, or none."""
    known = ((now.value("temperature", "value", name), name) for name in now.instances("temperature"))
    hottest = sorted(((value, name) for value, name in known if value is not None), reverse=True)[:_HOTTEST_MAX]
    items = []
    for value, name in hottest:
        limits = (now.value("temperature", limit, name) for limit in ("crit", "max"))
        limit = next((limit for limit in limits if limit is not None), None)
        style = "" if limit is None else _headroom(limit - value)
        items.append(Text.assemble(f"{printable(name)} ", (f"{value:.1f} °C", style)))
    throttled = [now.derived("cpu_throttle", "throttled_percent", name) for name in now.instances("cpu_throttle")]
    if slowed := max(filter(None, throttled), default=None):
        items.insert(1, _named("slowed down", f"{slowed:.1f} %", "red"))
    if fastest := max(filter(None, (now.value("fan", "value", name) for name in now.instances("fan"))), default=None):
        items.append(_named("fan", f"{fastest:.0f} rpm"))
    if not items:
        return []
    first, *others = items
    return [_joined(Text.assemble(("Heat     ", _LABEL), first), others, width, signs)]


def _batteries(now: Now, width: int, signs: Signs) -> list[Text]:
    """The batteries that feed this machine: a line, or none."""
    items = []
    for name in now.instances("battery"):
        capacity = now.value("battery", "capacity", name)
        if capacity is None or now.text("battery", "scope", name) == "Device":
            continue
        status = now.text("battery", "status", name)
        said = [status.lower()]
        power = now.value("battery", "power", name)
        if power := power if power is not None else now.derived("battery", "power_by_current", name):
            said.append(f"{abs(power):.1f} W")
        if status == "Discharging":
            left_s = now.derived("battery", "time_left", name)
            said += [f"{duration(left_s)} left"] if left_s else []
        level = (f"{capacity:.0f} %", _warmth(1 - capacity / 100))
        items.append(Text.assemble(f"{printable(name)} ", level, " ", ", ".join(filter(None, said))))
    if not items:
        return []
    first, *others = items
    return [_joined(Text.assemble(("Battery  ", _LABEL), first), others, width, signs)]


class _Column(NamedTuple):
    """``title``: the name under which its numbers can be asked for."""

    title: str
    width: int
    cell: Callable[[str], str]


def _grid(title: str, names: Sequence[str], columns: Sequence[_Column], width: int) -> list[Text]:
    """A table with its heading; columns that do not fit are left out from the right."""
    first = 12
    shown: list[_Column] = []
    for column in columns:
        if first + sum(other.width for other in (*shown, column)) <= width:
            shown.append(column)
    heading = Text.assemble(
        (f"{title:{first}}", _LABEL), *((f"{column.title:>{column.width}}", _DIM) for column in shown)
    )
    rows = [
        Text.assemble(_clipped(name, first), *(f"{column.cell(name):>{column.width}}" for column in shown))
        for name in names
    ]
    return [heading, *rows] if rows else []


def _clipped(name: str, width: int) -> str:
    name = printable(name)
    text = name if cell_len(name) < width else name[: width - 2] + "…"
    return text + " " * (width - cell_len(text))


def _disks(now: Now, width: int, signs: Signs) -> list[Text]:
    used = [
        name for name in now.instances("disk") if now.value("disk", "reads", name) or now.value("disk", "writes", name)
    ]

    def rate(metric: str, spell: Callable[[float], str]) -> Callable[[str], str]:
        return lambda name: _spelled(now.rate("disk", metric, name), spell, signs)

    def derived(column: str, spell: Callable[[float], str]) -> Callable[[str], str]:
        return lambda name: _spelled(now.derived("disk", column, name), spell, signs)

    columns = (
        _Column("read_bytes", 11, rate("read_bytes", lambda value: f"{size(value)}/s")),
        _Column("written_bytes", 14, rate("written_bytes", lambda value: f"{size(value)}/s")),
        _Column("utilization", 12, derived("utilization", lambda value: f"{value:.1f} %")),
        _Column("reads", 9, rate("reads", lambda value: f"{number(value)}/s")),
        _Column("writes", 9, rate("writes", lambda value: f"{number(value)}/s")),
        _Column("await", 11, derived("await", lambda value: f"{value * 1000:.2f} ms")),
        _Column("queue_length", 13, derived("queue_length", lambda value: f"{value:.2f}")),
    )
    return _grid("Disk", used, columns, width)


def _networks(now: Now, width: int, signs: Signs) -> list[Text]:
    names = [name for name in now.instances("network") if now.value("network", "received_bytes", name)]
    names.sort(key=lambda name: name == "lo")

    def cell(ask: Callable[[str, str, str], float | None], column: str, unit: str) -> Callable[[str], str]:
        spell = size if unit == "B" else number
        return lambda name: _spelled(ask("network", column, name), lambda value: f"{spell(value)}/s", signs)

    columns = (
        _Column("received_bytes", 15, cell(now.rate, "received_bytes", "B")),
        _Column("sent_bytes", 12, cell(now.rate, "sent_bytes", "B")),
        _Column("errors", 9, cell(now.derived, "errors", "1")),
        _Column("drops", 9, cell(now.derived, "drops", "1")),
        _Column("received_packets", 17, cell(now.rate, "received_packets", "1")),
        _Column("sent_packets", 13, cell(now.rate, "sent_packets", "1")),
    )
    return _grid("Network", names, columns, width)


def _filesystems(now: Now, width: int, signs: Signs) -> list[Text]:
    lines = []
    for mount in now.instances("filesystem"):
        total, used = now.value("filesystem", "size", mount), now.value("filesystem", "used", mount)
        percent = now.derived("filesystem", "used_percent", mount)
        device = now.text("filesystem", "device", mount)
        if total and used is not None and percent is not None and (device.startswith("/") or ":" in device):
            line = _used("", used, total, percent / 100, width, signs)
            line.append(f"  {mount}")
            lines.append(line)
    if lines:
        lines[0] = Text.assemble(("Files    ", _LABEL), lines[0][9:])
    return lines


def _sysmond(scene: Scene, width: int, signs: Signs) -> list[Text]:
    now, stored = scene.now, scene.stored
    parts = [name for name in now.instances("self") if not name.startswith("probe:")]
    resident = _added(now.value("self", "rss", part) for part in parts)
    cpu = _added(now.rate("self", "cpu", part) for part in parts)
    probes = [name for name in now.instances("self") if name.startswith("probe:")]
    reading = _added(now.rate("self", "duration", probe) for probe in probes)
    lateness = now.value("self", "lateness", "sampler")
    missed, dropped = (_added(now.value("self", metric, part) for part in parts) for metric in ("missed", "dropped"))
    costs = [
        "" if cpu is None else f"CPU {cpu * 1000:.2f} ms/s",
        "" if reading is None else f"probes {reading * 1000:.2f} ms/s",
        "" if resident is None else f"RSS {size(resident)}",
    ]
    ticks = [
        f"{now.series} series",
        "" if lateness is None else f"late {lateness * 1000:.2f} ms",
        "" if missed is None else f"{missed:.0f} missed",
        "" if dropped is None else f"{dropped:.0f} dropped",
    ]
    storage = [
        f"in RAM {_files(stored.ram_files, stored.ram_bytes)}",
        f"on disk {_files(stored.disk_files, stored.disk_bytes)}",
        "" if stored.flushed_s is None else f"{duration(max(0.0, scene.realtime_s - stored.flushed_s))} ago",
        stored.state_dir,
    ]
    lines = []
    for label, items in (("sysmond", costs), ("ticks", ticks), ("kept", storage)):
        first, *others = [*filter(None, items)] or [signs.dash]
        lines.append(_joined(Text.assemble((f"{label:9}", _LABEL), first), map(Text, others), width, signs))
    for table, cause, detail in now.absences:
        lines.append(Text.assemble(("gap      ", _LABEL), (f"{table}: {cause}", "red"), f" {detail}"))
    return lines


def _files(count: int, size_bytes: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}, {size(size_bytes)}" if count else "nothing yet"


def _bar(parts: Sequence[tuple[float, str]], width: int, signs: Signs) -> Text:
    """A bar of several shares of one; as long as their sum, however they round."""
    bar = Text()
    total = 0.0
    for share, style in parts:
        total = min(1.0, total + max(0.0, share))
        bar.append(signs.full * (round(total * width) - bar.cell_len), style)
    bar.append(signs.empty * (width - bar.cell_len), _DIM)
    return bar


def _percent(share: float | None) -> Text:
    return Text("     ?  ") if share is None else Text(f"{share * 100:5.1f} %", _warmth(share))


def _waited(percent: float) -> str:
    """Time that somebody waited. The kernel adds it up in periods of its own, so one second may get more than one."""
    return f"{min(percent, 100.0):.1f} %"


def _warmth(share: float) -> str:
    return "red" if share >= 0.9 else "yellow" if share >= 0.6 else "green"  # noqa: PLR2004  where eyes should go


def _headroom(left_celsius: float) -> str:
    """By how far it is from the limit: a share of it means nothing where 0 is as good as any other temperature."""
    return "red" if left_celsius <= 10 else "yellow" if left_celsius <= 30 else "green"  # noqa: PLR2004  as above


def _spelled(value: float | None, spell: Callable[[float], str], signs: Signs) -> str:
    return signs.dash if value is None else spell(value)
