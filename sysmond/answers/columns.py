# SPDX-License-Identifier: Apache-2.0
"""The columns that answers about a long table may have: metrics with a statistic, and what follows from them.

A column is spelled ``METRIC`` or ``METRIC:STATISTIC``. Of a counter there are ``mean`` (its rate), ``sum`` (what it
grew by) and ``last`` (as stored), of a gauge ``mean`` (over the time that it was known), ``max`` and ``last``; the
first is meant where none is said. A state is what it was last.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from sysmond.base.model import Metric, Semantics, Table, rate_unit
from sysmond.base.result import TIME_SCALE, TIME_UNIT
from sysmond.errors import UsageError, nearest
from sysmond.rollup.condition import TEXT, Kind
from sysmond.rollup.portion import SUMS, sums_in
from sysmond.store.chain import END, START
from sysmond.store.stretch import key_of, lasts

MEAN, SUM, MAX, LAST = "mean", "sum", "max", "last"
_STATS = {Semantics.COUNTER: (MEAN, SUM, LAST), Semantics.GAUGE: (MEAN, MAX, LAST), Semantics.STATE: (LAST,)}
# Of points in time, in boot time as stored.
_MOMENTS = frozenset({START, END})

USERNAME, EXE, COMMAND, COUNT = "username", "exe", "command", "count"
SYSCALL_NAME, FUNCTIONS = "syscall_name", "functions"
# What the path of a cgroup tells; ``cgroup_path`` is the path itself.
PATH = "cgroup_path"
OWNERS = (PATH, "runtime", "container", "pod", "unit", "user_unit", "slice", "session")
# What the table of exits tells of a process.
EXITED = ("exit_code", "signal")
# In groups and conditions people name what they mean by these.
MEANT = {"user": USERNAME, "cgroup": PATH, "syscall": SYSCALL_NAME, "stack": FUNCTIONS}

_DEFAULTS = {
    "process": "pid,comm,username,cpu,cpu:sum,rss:last,rss_anon:max,read_bytes:sum,written_bytes:sum,state,unit",
    "thread": "tid,pid,comm,username,cpu,cpu:sum,run_delay,last_cpu,state",
    "process_private": "pid,namespace_pid,descriptors:last,tcp_received:sum,tcp_sent:sum,udp_received:sum,udp_sent:sum,"
    "syscall_name,wchan",
    "exits": "pid,comm,exe,start,end,exit_code,signal,core_dumped,ppid,uid,username,cgroup,cgroup_path,cpu,user,system,"
    "peak_rss,minor_faults,major_faults,read_bytes,written_bytes",
    "thread_state": "pid,tid,comm,username,state,syscall_name,wchan,functions",
}
_GROUP_DEFAULTS = {
    "process": "cpu,cpu:sum,rss,read_bytes:sum,written_bytes:sum",
    "thread": "cpu,cpu:sum,run_delay:sum",
    "process_private": "tcp_received:sum,tcp_sent:sum,udp_received:sum,udp_sent:sum",
    "exits": "cpu,read_bytes,written_bytes",
}
# By what the first are chosen where nobody says.
_BY = {"process": "cpu", "thread": "cpu", "exits": "cpu", "process_private": "tcp_received:sum"}


class Of(StrEnum):
    """Where a column comes from."""

    METRIC = "metric"
    KEY = "key"
    JOIN = "join"  # Texts that follow from numbers: names of users, paths, programs.
    LIFE = "life"  # When and how it ended.
    COUNT = "count"  # How many were counted together.


# Of every row, and no column of the table.
TIME = "time"


class Spec(NamedTuple):
    """A column: how it is called, the metric and statistic it is of, its unit as shown, decimals of its integers."""

    label: str
    name: str
    stat: str
    unit: str
    scale: int
    semantics: Semantics
    of: Of

    @property
    def is_text(self) -> bool:
        """Whether it holds texts."""
        return self.unit == TEXT

    @property
    def decimals(self) -> int:
        """How many decimal places its averages carry."""
        return {"B": 0, "%": 3}.get(self.unit, 3)


class Offer(NamedTuple):
    """The columns of a table, by label, in order."""

    table: Table
    specs: Mapping[str, Spec]

    def find(self, labels: Iterable[str]) -> list[Spec]:
        """The columns called so.

        :raises UsageError: for one that there is not, naming those that come nearest.
        """
        found = []
        for label in labels:
            if label == TIME:
                continue  # Every row begins with it.
            if label not in self.specs:
                close = nearest(label, self.specs) or f"; there are {', '.join(self._plain())}"
                raise UsageError(f"table {self.table.name!r} has no column {label!r}{close}")
            found.append(self.specs[label])
        return list(dict.fromkeys(found))

    def groups(self, labels: Iterable[str]) -> list[Spec]:
        """The columns by which rows are put together.

        :raises UsageError: for one that there is not, and for one that is no condition of a row.
        """
        found = []
        for label in labels:
            (spec,) = self.find([MEANT.get(label, label) if MEANT.get(label) in self.specs else label])
            if spec.semantics is not Semantics.STATE or spec.of in {Of.LIFE, Of.COUNT}:
                states = [each for each, known in self.specs.items() if known.semantics is Semantics.STATE]
                raise UsageError(f"group by {label!r}: it differs all the time; right are {', '.join(states)}")
            found.append(spec._replace(label=label))
        return list(dict.fromkeys(found))

    def kinds(self) -> dict[str, Kind]:
        """The columns as conditions see them."""
        kinds = {}
        for label, spec in self.specs.items():
            grown = self.specs.get(f"{spec.name}:{SUM}") if spec.stat == MEAN else None
            named = MEANT.get(label, "")
            kinds[label] = Kind(
                spec.unit, (grown.label, grown.unit) if grown else None, named if named in self.specs else ""
            )
        return kinds

    def defaults(self, *, grouped: bool) -> list[Spec]:
        """The columns where nobody says which."""
        known = (_GROUP_DEFAULTS if grouped else _DEFAULTS).get(self.table.name, "")
        labels = [label for label in known.split(",") if label in self.specs]
        if not labels and not grouped:
            labels = [label for label in self._plain() if self.specs[label].of is not Of.COUNT]
        return self.find(labels)

    def by(self, *, grouped: bool) -> Spec:
        """The column by which the first are chosen where nobody says."""
        label = _BY.get(self.table.name, "")
        first = next((each for each, spec in self.specs.items() if spec.semantics is Semantics.COUNTER), COUNT)
        return self.specs[label if label in self.specs else first if not grouped else COUNT]

    def _plain(self) -> list[str]:
        return [label for label in self.specs if ":" not in label]


def offer(table: Table) -> Offer:
    """The columns that answers about a table may have."""
    key = key_of(table)
    specs: dict[str, Spec] = {}
    for metric in _in_order(table):
        for number, stat in enumerate(_STATS[metric.semantics] if lasts(table) else (LAST,)):
            made = _spec(metric, stat, Of.KEY if metric.name in key and lasts(table) else Of.METRIC)
            specs[f"{metric.name}:{stat}"] = made._replace(label=f"{metric.name}:{stat}")
            if number == 0:
                specs[metric.name] = made
        if len(_STATS[metric.semantics]) == 1 or not lasts(table):
            del specs[f"{metric.name}:{LAST}"]
    names = {metric.name for metric in table.metrics}
    joined = [USERNAME] if "uid" in names else []
    joined += (
        OWNERS
        if "cgroup" in names
        else [each for each in OWNERS if each != PATH]
        if table.name == "cgroup_name"
        else []
    )
    joined += [SYSCALL_NAME] if "syscall" in names else []
    joined += [FUNCTIONS] if "stack" in names else []
    joined += [each for each in (EXE, COMMAND) if "pid" in names and each not in names]
    for name in joined:
        specs.setdefault(name, Spec(name, name, LAST, TEXT, 0, Semantics.STATE, Of.JOIN))
    if lasts(table) and START in key:
        specs[END] = Spec(END, END, LAST, TIME_UNIT, TIME_SCALE, Semantics.STATE, Of.LIFE)
        if "pid" in key:
            specs.update({name: Spec(name, name, LAST, "1", 0, Semantics.STATE, Of.LIFE) for name in EXITED})
    specs[COUNT] = Spec(COUNT, COUNT, LAST, "1", 0, Semantics.GAUGE, Of.COUNT)
    return Offer(table, specs)


def _in_order(table: Table) -> Sequence[Metric]:
    """The metrics, and sums of them after what they are made of."""
    found = []
    sums = {SUMS[metric.name][-1]: metric for metric in sums_in(table)}
    for metric in table.metrics:
        found += [metric, *([sums[metric.name]] if metric.name in sums else [])]
    return found


def _spec(metric: Metric, stat: str, of: Of) -> Spec:
    unit, scale = metric.unit, metric.scale
    if metric.semantics is Semantics.COUNTER and stat == MEAN:
        unit = rate_unit(unit)
    if metric.name in _MOMENTS and metric.semantics is Semantics.STATE:
        unit, scale = TIME_UNIT, TIME_SCALE
    return Spec(metric.name, metric.name, stat, unit, scale, metric.semantics, of)


def is_amount(spec: Spec) -> bool:
    """Whether a number of a record that is about its own moment can be summed."""
    return spec.unit in {"s", "B"} or spec.name.endswith(("_faults", "_bytes"))
