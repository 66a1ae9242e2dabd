# SPDX-License-Identifier: Apache-2.0
"""What holds of long tables that say nothing of answers: those of plugins of API version 1, and of files before that.

``BY_COLUMNS`` holds of every such table, as far as it has the columns; ``BUILT_IN`` has what is more, or other, of the
tables that come with sysmond, as ``tasks.tables`` declares them. What is declared later changes nothing here: it is
how older files are read.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from sysmond.base.declared_answers import parse, within
from sysmond.base.model import READERS, Answers, Join, Table

# Of so many declarations of tables is known what they say.
TABLES_MAX = 64
_KEY = (("pid", "pid"), ("start", "start"))
_OWNERS = tuple((name, name) for name in READERS[":cgroup"][1])
_NUMBERS = (
    (":user", (("uid", "id"),), (("username", "name"),), False, False),
    ("cgroup_name", (("cgroup", "id"),), (("cgroup_path", "path"),), False, False),
    (":cgroup", (("cgroup_path", "path"),), _OWNERS, False, False),
    (":syscall", (("syscall", "number"),), (("syscall_name", "name"),), False, False),
    (":signal", (("signal", "number"),), (("signal_name", "name"),), False, False),
    (":exit", (("exit_code", "number"),), (("exit_name", "name"),), False, False),
    ("kernel_stack", (("stack", "id"),), (("functions", "functions"),), False, True),
)
# Of a table of ends: a number, what knows its names, and the column that has them.
_OF_ENDS = (("signal", ":signal", "signal_name"), ("exit_code", ":exit", "exit_name"))
_COMMAND = ("command", _KEY, (("exe", "exe"), ("command", "command")))
_COMMAND_OF_SENDER = (
    "command",
    (("sender_pid", "pid"), ("sender_start", "start")),
    (("sender_exe", "exe"), ("sender_command", "command")),
)
_STORAGE = ("read_bytes", "written_bytes")
_RSS = ("rss_anon", "rss_file", "rss_shmem")
_TRAFFIC = ("tcp_received", "tcp_sent", "udp_received", "udp_sent")

BY_COLUMNS: Mapping[str, Any] = {
    "others_by": ("cgroup",),
    "totals": (("rss", _RSS, "All resident memory."),),
    "joins": (*_NUMBERS, (*_COMMAND, False, False)),
    "ended_by": ("exits", _KEY, ("exit_code", "signal")),
    "meant": (
        *(("user", "username"), ("cgroup", "cgroup_path"), ("syscall", "syscall_name")),
        *(("signal", "signal_name"), ("stack", "functions")),
    ),
}
_BY_COLUMNS_OF_THREADS = {**BY_COLUMNS, "joins": (*_NUMBERS, (*_COMMAND, True, False))}
# Those of them, and of the tables that they refer to, that not everybody may read.
RESTRICTED = frozenset({"command", "kernel_stack", "thread_state"})
BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "process": {
        **BY_COLUMNS,
        "top": (("cpu",), _STORAGE, _RSS, ("run_delay",)),
        "show": (
            *("pid", "comm", "username", "cpu", "cpu:sum", "rss:last", "rss_anon:max"),
            *("read_bytes:sum", "written_bytes:sum", "state", "unit"),
        ),
        "show_groups": ("cpu", "cpu:sum", "rss", "read_bytes:sum", "written_bytes:sum"),
        "rows_only": ("read_bytes_with_children", "written_bytes_with_children"),
    },
    "thread": {
        **_BY_COLUMNS_OF_THREADS,
        "top": (("cpu",), _STORAGE, ("run_delay",)),
        "show": ("tid", "pid", "comm", "username", "cpu", "cpu:sum", "run_delay", "last_cpu", "state"),
        "show_groups": ("cpu", "cpu:sum", "run_delay:sum"),
    },
    "process_private": {
        **BY_COLUMNS,
        "top": (_TRAFFIC,),
        "by": "tcp_received:sum",
        "show": (
            *("pid", "namespace_pid", "descriptors:last"),
            *(f"{name}:sum" for name in _TRAFFIC),
            *("syscall_name", "wchan"),
        ),
        "show_groups": tuple(f"{name}:sum" for name in _TRAFFIC),
    },
    "exits": {
        **BY_COLUMNS,
        "joins": (*_NUMBERS, (*_COMMAND, False, False), (*_COMMAND_OF_SENDER, False, False)),
        "top": (("cpu",), ("peak_rss",)),
        "others_by": ("cgroup", "comm"),
        "sums": ("cpu", "user", "system", "minor_faults", "major_faults", *_STORAGE),
        "peaks": ("peak_rss",),
        "ended_by": None,
        "show": (
            *("pid", "comm", "exe", "start", "end", "signal_name", "exit_code", "signal", "core_dumped", "ppid"),
            *("uid", "username", "cgroup", "cgroup_path", "cpu", "user", "system", "peak_rss"),
            *("minor_faults", "major_faults", *_STORAGE),
        ),
        "show_groups": ("cpu", *_STORAGE),
    },
    "thread_state": {
        **_BY_COLUMNS_OF_THREADS,
        "top": (),
        "others_by": ("cgroup", "syscall", "state", "wchan"),
        "sums": (),
        "show": ("pid", "tid", "comm", "username", "state", "syscall_name", "wchan", "functions"),
    },
    "cgroup_name": {"joins": ((":cgroup", (("path", "path"),), _OWNERS, False, False),)},
}


WITH_CHILDREN = {
    "process": ("read_bytes", "written_bytes", "read_chars", "written_chars"),
    "exits": ("read_bytes", "written_bytes"),
}
"""By table, the metrics of which a process had what waited-for children did, too, until that got columns of its own."""
_OF_CHILDREN = "_with_children"


def with_children(table: Table) -> tuple[str, ...]:
    """The metrics of a table, as a file declares it, in which what waited-for children did is counted again."""
    told = [metric.name for metric in table.metrics] + [*(table.answers.rows_only if table.answers else ())]
    has_both = any(name.endswith(_OF_CHILDREN) for name in told)
    return () if has_both else tuple(name for name in WITH_CHILDREN.get(table.name, ()) if name in told)


@lru_cache(TABLES_MAX)
def answers_of(table: Table) -> Answers:
    """What a table declares about answers; where it says nothing, what follows from its name and its columns.

    Numbers that it has from a table of ends have the names there that they have everywhere.
    """
    answers = table.answers if table.answers is not None else within(_parsed(table.name), table)
    ends = answers.ended_by.columns if answers.ended_by else ()
    if not ends:
        return answers
    columns = {metric.name for metric in table.metrics} | {name for join in answers.joins for name, _ in join.columns}
    added = [
        Join(reader, ((number, "number"),), ((text, "name"),))
        for number, reader, text in _OF_ENDS
        if number in ends and text not in columns
    ]
    meant = [(join.by[0][0], join.columns[0][0]) for join in added]
    return answers._replace(joins=(*answers.joins, *added), meant=(*answers.meant, *meant))


def declared(table: Table) -> Table:
    """The table, with its answers said."""
    return table._replace(answers=answers_of(table))


@cache
def _parsed(name: str) -> Answers:
    return parse(BUILT_IN.get(name, BY_COLUMNS))
