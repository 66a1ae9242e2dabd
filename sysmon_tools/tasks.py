# SPDX-License-Identifier: Apache-2.0
"""sysmon-extract, where it is asked for the rows of a table: of a long one always, of a wide one where options say so.

The options are those of ``sysmon-extract``, and some of its own. Imports are late, as there.
"""

import argparse
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from sysmon_tools.arrow_file import FORMATS as ARROW_FORMATS
from sysmon_tools.output import FILE_FORMATS, ROW_FORMATS, put_file, send, show
from sysmond.base.column_groups import groups_of
from sysmond.base.model import ABSENT, EVENTS, Cause, Sensitivity, Table
from sysmond.errors import Error, UsageError
from sysmond.machine import recorders
from sysmond.machine.folders import Folders
from sysmond.store import archive as archives

if TYPE_CHECKING:
    from sysmon_tools.style import Style
    from sysmond.base.result import Event, Result
    from sysmond.history import Archive

_TABLE = re.compile(r"[a-z][a-z0-9_]*")
_ONE_TABLE = "expected one table as PATH, such as disk or process"
FORMATS = (*ROW_FORMATS, *FILE_FORMATS)
# The pattern that means every series.
EVERYTHING = "*"
# Options by the name argparse gives them.
_ROWS = ("records", "top", "by", "where", "columns", "group_by", "percentile")
_OF_PROCESSES = ("tree", "at", "pid", "started")
# What means nothing with another option, and what does instead.
_WHOLE = ("top", "by", "group_by", "percentile", "stat", "raw", "explain")
_SENSELESS = {
    "list": ("", (*_WHOLE, "where", "columns", "sample", "drop")),
    "tree": ("--at says when", (*_WHOLE, "start", "end", "drop", "summary")),
    "pid": ("it has one row for each step", (*_WHOLE, "drop", "summary")),
    "sql": ("the query says that", (*_WHOLE, "where", "columns", "sample", "drop", "summary")),
}
# How long the processor time of a process tree is measured before its moment.
TREE_SPAN = "10s"
# Steps of the life of one process, and how many there are at most where nobody says how long they are.
_STEPS_S = (1, 10, 60, 300, 3600, 86400)
_STEPS_MAX = 1000
_TREE_COLUMNS = "pid,ppid,comm,username,cpu,rss:last,threads:last,state,unit"
_LIFE_COLUMNS = "comm,state,cpu,rss:last,rss_anon:max,read_bytes,written_bytes,major_faults:sum,run_delay,threads:last"
# What is shown of how a process began and ended: table, kind of the event, columns.
_EVENTS = (("command", "exec", "exe,command"), ("exits", "exit", "exit_code,signal,core_dumped,cpu,peak_rss"))
_SECOND_NS = 1_000_000_000

HELP = """\
rows (process, thread, exits and similar tables always print rows; other tables do so with --records,
--top, --where or any option marked 'rows:' above; TABLE --list lists the columns):
  sysmon-extract disk --from=yesterday --to=today --top=3 --by=written_bytes
  sysmon-extract process --from=-10min --top=10 --by=cpu
  sysmon-extract process --from=yesterday --to=today --sample=1min --where='comm ~ ^post and cpu > 5%'
  sysmon-extract process --from=-1h --group-by=unit --columns=unit,cpu,rss,read_bytes:sum
  sysmon-extract process --tree --at=14:32
  sysmon-extract process --pid=4711
  sysmon-extract exits --from=-1d --where='signal = 9' --format=csv
  sysmon-extract event --from=yesterday --where='kind = mark'
  sysmon-extract --sql='select comm, sum(cpu) from process group by 1 order by 2 desc' --from=-1h
"""


def add_options(made: argparse.ArgumentParser) -> None:
    """Add what asks for rows of a table."""
    add = made.add_argument
    add("--records", action="store_true", help="print one table as rows: for each step, one row per disk, CPU, process"
        " ..., with one column per metric")  # fmt: skip
    add("--top", "--limit", type=int, metavar="N", help="rows: only the first N of each step")
    add("--by", "--sort", metavar="COLUMN", help="rows: sort by this column, the largest first (default: cpu for"
        " process, otherwise the first counter)")  # fmt: skip
    add("--where", metavar="CONDITION", help="rows: only those that meet this: COLUMN OPERATOR VALUE, with"
        " = != < <= > >= ~ !~, joined by and, or, not and parentheses")  # fmt: skip
    add("--columns", metavar="C,...", help="rows: show these columns: METRIC, METRIC:STATISTIC or a group such as io;"
        " TABLE --list lists them")  # fmt: skip
    add("--group-by", metavar="C,...", help="rows: add up those with the same user, cgroup, unit, slice, container,"
        " exe, comm, state ...")  # fmt: skip
    add(
        "--percentile",
        type=float,
        metavar="P",
        help="rows: one row per process, disk ... for the whole range: percentile P of its values over all steps",
    )
    add("--tree", action="store_true", help="show the process tree at a moment")
    add("--at", metavar="T", help="with --tree: the moment (default: now)")
    add("--pid", type=int, metavar="PID", help="show one process over its life, and how it began and ended")
    add(
        "--start",
        dest="started",
        metavar="T",
        help="with --pid: start time of the process you mean, if the pid was reused",
    )
    add("--sql", metavar="QUERY", help="run a query with DuckDB, if it is installed. TABLE has the rows as"
        " recorded, TABLE_1min one for each minute. For a counter, column NAME is its increase, NAME_total its value"
        " and NAME_rate its rate")  # fmt: skip


def concerns(options: argparse.Namespace) -> bool:
    """Whether a command line asks for rows, and check that it makes sense.

    :raises UsageError: where it is half so.
    """
    long_tables = _tables(options)
    asking = next((name for name in (*_ROWS, *_OF_PROCESSES) if is_given(getattr(options, name))), "")
    if options.sql is None and not long_tables and not asking:
        return False
    if options.sql is not None:
        if options.paths != [EVERYTHING]:
            raise UsageError(f"--sql and {options.paths[0]}: the query names its tables; expected no PATH")
    elif len(options.paths) > 1 and options.list and not asking:
        return False  # Each is listed.
    elif len(options.paths) > 1:
        raise UsageError(f"{' '.join(options.paths)}: rows come from one table at a time; {_ONE_TABLE}")
    elif not _TABLE.fullmatch(options.paths[0]):
        given = "no PATH" if options.paths == [EVERYTHING] else options.paths[0]
        right = f"rows come from one table; {_instead(options)}"
        if asking in _OF_PROCESSES:
            right = "expected process as PATH"
        raise UsageError(f"{_spelled(asking)} with {given}: {right}")
    _check_together(options)
    if options.instances and long_tables:
        table = long_tables[0]
        raise UsageError(f"--instances of {table}: its rows come and go; {table} --from=T shows them")
    return not options.instances


def is_table(*paths: str) -> bool:
    """Whether these are the name of one table."""
    return len(paths) == 1 and _TABLE.fullmatch(paths[0]) is not None


def is_given(value: object) -> bool:
    """Whether an option was given; 0 and the empty text were."""
    return value is not None and value is not False


def _instead(options: argparse.Namespace) -> str:
    """What to ask for where rows are wanted of a path that is no table."""
    table, _, metric = options.paths[0].partition("@")[0].partition("/")
    if not _TABLE.fullmatch(table) or not _TABLE.fullmatch(metric) or not options.where or table in built_in_tables():
        return _ONE_TABLE
    import shlex  # noqa: PLC0415  for this message

    where, instance = options.where, options.paths[0].partition("@")[2]
    if instance:
        where = f"({where})" if " or " in where else where
        where += f" and instance = {shlex.quote(instance)}"
    return f"expected {table} --where={shlex.quote(where)}"


@cache
def built_in_tables() -> Mapping[str, Table]:
    """The long tables that come with sysmond, by their names."""
    from sysmond.tasks import tables  # noqa: PLC0415  what asks for series needs none of them

    declared = (table for table in vars(tables).values() if isinstance(table, Table))
    return {table.name: table for table in declared if table.packing is not None}


def _tables(options: argparse.Namespace) -> list[str]:
    """The paths that are long tables: of those that come with sysmond, and of others that are recorded."""
    words = [path for path in options.paths if _TABLE.fullmatch(path)]
    if not words:
        return []
    known = {*built_in_tables(), EVENTS}
    if not known.issuperset(words):
        place = place_of(options)
        if os.path.isfile(place.state):
            from sysmond.store.alone import look  # noqa: PLC0415  numpy and h5py

            known.add(look(place.state).table)
        else:
            known.update(archives.long_tables(place))
    return [path for path in words if path in known]


def place_of(options: argparse.Namespace) -> Folders:
    """Where that lies which is asked about."""
    return recorders.asked(
        user=options.user,
        system=options.system,
        state_dir=options.state_dir,
        runtime_dir=options.runtime_dir,
        or_file=True,
    )


def _check_together(options: argparse.Namespace) -> None:
    """Refuse options that mean nothing together.

    :raises UsageError: naming them.
    """
    modes = [name for name in ("list", "tree", "pid", "sql") if is_given(getattr(options, name))]
    if len(modes) > 1:
        raise UsageError(f"--{' and --'.join(modes)}: expected only one of them")
    for name in modes:
        why, others = _SENSELESS[name]
        for other in others:
            if is_given(getattr(options, other)):
                raise UsageError(f"{_spelled(other)} has no meaning with --{name}{'; ' + why if why else ''}")
    if modes and modes[0] in {"tree", "pid"} and options.paths != ["process"]:
        raise UsageError(f"--{modes[0]} {options.paths[0]}: expected 'process'")
    if options.top is not None and options.top < 1:
        raise UsageError(f"--top {options.top}: expected 1 or more")
    for name, needed in (("at", "tree"), ("started", "pid")):
        if getattr(options, name) is not None and needed not in modes:
            raise UsageError(f"{_spelled(name)}: expected --{needed}, too")


def _spelled(name: str) -> str:
    spelled = {"started": "start", "start": "from", "end": "to"}.get(name, name)
    return f"--{spelled.replace('_', '-')}"


def run(archive: "Archive", options: argparse.Namespace, chosen: str, style: "Style") -> tuple[list[str], list[str]]:
    """Answer, and give the warnings and the notes."""
    known = (*ROW_FORMATS, *ARROW_FORMATS) if options.sql is not None else FORMATS
    if chosen not in known:
        raise UsageError(f"rows cannot be written as {chosen!r}; expected {', '.join(known)}")
    if options.list:
        return _list(archive, options, chosen, style), []
    if options.sql is not None:
        return _sql(archive, options, chosen, style)
    if options.tree:
        answer = _tree(archive, options, indented=chosen == "table")
    elif options.pid is not None:
        answer = _life(archive, options)
    else:
        answer = _ask(archive, options, options.columns or "")
    _write(answer, options, chosen, style)
    # Of one process it is told from its own start on, which may be earlier: nobody asked for that.
    is_asked = options.start is not None or options.pid is None
    beginning = style.beginning(answer.gaps, answer.times_ns) if is_asked else []
    return list(answer.warnings), [*beginning, *answer.notes]


def _ask(
    archive: "Archive",
    options: argparse.Namespace,
    columns: str,
    **changed: Any,  # noqa: ANN401  as below
) -> "Result":
    """Ask as the options say, but for what is changed."""
    said: dict[str, Any] = {
        "start": options.start,
        "end": options.end,
        "step": options.sample,
        "where": options.where or "",
        "group_by": options.group_by or "",
        "by": options.by or "",
        "top": options.top or 0,
        "percentile": options.percentile,
        "boot": options.boot,
        "stat": options.stats,
        "drop": options.drop or (),
        "summary": options.summary,
        "columns": columns,
        "raw": options.raw,
        "explain": options.explain,
    }
    return archive.records(options.paths[0], **{**said, **changed})


def _tree(archive: "Archive", options: argparse.Namespace, *, indented: bool) -> "Result":
    """The processes that were there at a moment, children below their parents."""
    import numpy as np  # noqa: PLC0415  as above

    from sysmond.base import timespec  # noqa: PLC0415  as above
    from sysmond.base.result import Column  # noqa: PLC0415  as above

    now = archive.now()
    at_ns = now.realtime_ns if options.at is None else timespec.parse_moment(options.at, now)
    start_ns = at_ns - timespec.parse_step(options.sample or TREE_SPAN)
    labels = options.columns or _TREE_COLUMNS
    asked = f"{labels},pid,ppid,comm,end,start"
    answer = _ask(
        archive,
        options,
        asked,
        start=start_ns,
        end=at_ns + 1,
        step=None,
        group_by="",
        top=0,
        percentile=None,
        stat=None,
    )
    there = np.flatnonzero(np.isnat(answer.column("end").times))
    if not len(there):
        why = f"; {answer.gaps[-1].cause}" if answer.gaps else ""
        raise Error(f"process: nothing recorded at {timespec.format_time(at_ns)}{why}")
    records = answer.records
    order, depths = _in_order(records["pid"][there].tolist(), records["ppid"][there].tolist())
    rows = there[order]
    # Behind what was asked for stands what the tree itself needs.
    named = {column.path: column for column in answer.columns}
    wanted = [label.strip() for label in labels.split(",") if label.strip()]
    wanted = [member for label in wanted for member in ([label] if label in named else groups_of("process")[label])]
    columns = [named[label].at(rows) for label in dict.fromkeys(wanted)]
    if indented:
        columns = [
            column._replace(
                texts=tuple("  " * depth + (text or "") for depth, text in zip(depths, column.texts, strict=True))
            )
            if column.path == "comm" and column.texts is not None
            else column
            for column in columns
        ]
    else:
        semantics = answer.column("pid").semantics
        columns.append(Column("depth", "1", semantics, "last", integers=np.array(depths, np.int64)))
    second_ns = at_ns // _SECOND_NS * _SECOND_NS
    # Nobody asked for the time before the moment: it is for measuring.
    gaps = tuple(gap for gap in answer.gaps if gap.end_ns > at_ns or gap.cause is not Cause.BEFORE_RECORDING)
    return answer._replace(times_ns=np.full(len(rows), second_ns), columns=tuple(columns), gaps=gaps)


def _in_order(pids: Sequence[int], parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """The order of rows in which children follow their parents, and how deep each is.

    Whose parent is not there is a root.
    """
    row = {pid: number for number, pid in enumerate(pids)}
    children: dict[int, list[int]] = {}
    roots: list[int] = []
    for number in sorted(range(len(pids)), key=pids.__getitem__):
        parent = row.get(parents[number])
        # Rows of one moment make no circle but by a number that was used again: the smallest is a root then.
        if parent is None or parents[number] == pids[number]:
            roots.append(number)
        else:
            children.setdefault(parent, []).append(number)
    order: list[int] = []
    depths: list[int] = []
    seen: set[int] = set()
    for root in [*roots, *sorted(range(len(pids)), key=pids.__getitem__)]:
        waiting = [(root, 0)]
        while waiting:
            number, depth = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            order.append(number)
            depths.append(depth)
            waiting += [(child, depth + 1) for child in reversed(children.get(number, []))]
    return order, depths


def _life(archive: "Archive", options: argparse.Namespace) -> "Result":
    """One process, a row a step, and what is recorded of its begin and end."""
    import numpy as np  # noqa: PLC0415  as above

    from sysmond.base import timespec  # noqa: PLC0415  as above

    where = f"pid = {options.pid}"
    if options.started is not None:
        start_ns = timespec.parse_moment(options.started, archive.now())
        low, high = (
            timespec.format_time(start_ns + off, timespec.Notation.EPOCH) for off in (-_SECOND_NS, 2 * _SECOND_NS)
        )
        where += f" and start >= {low} and start < {high}"
    asked_ns = archive.now().realtime_ns
    whole = _ask(
        archive, options, "start,end,comm", where=where, step=None, group_by="", top=0, percentile=None, stat=None
    )
    if not len(whole.times_ns):
        raise Error(
            f"process {options.pid}: nothing is recorded in that range; ask for a longer range, or another process"
        )
    first_ns = int(whole.column("start").times.min().view(np.int64))
    ends = whole.column("end").times
    last_ns = asked_ns if np.isnat(ends).any() else int(ends.max().view(np.int64))
    # A recording that ended tells nothing about the time since then: its last gap reaches up to now.
    last_ns = min([last_ns, *(gap.start_ns for gap in whole.gaps if gap.end_ns >= asked_ns)])
    first_ns = max(first_ns, int(whole.times_ns[0]))
    step = options.sample or next(
        (f"{step}s" for step in _STEPS_S if (last_ns - first_ns) // _SECOND_NS <= step * _STEPS_MAX), "1d"
    )
    start = first_ns // _SECOND_NS * _SECOND_NS if options.start is None else options.start
    base = where
    if options.where:
        where += f" and ({options.where})"
    labels = options.columns or _LIFE_COLUMNS
    changed = {"where": where, "start": start, "step": step, "top": 0, "group_by": "", "percentile": None, "stat": None}
    # The second in which it ended is whole; what is still to come of it is no gap.
    end = min(last_ns + _SECOND_NS, archive.now().realtime_ns) if options.end is None else options.end
    answer = _ask(archive, options, labels, **changed, end=end)
    order = np.argsort(answer.times_ns, kind="stable")
    columns = tuple(column.at(order) for column in answer.columns)
    return answer._replace(
        times_ns=answer.times_ns[order],
        columns=columns,
        events=_in_order_of_time(_events(archive, options, base, whole)),
    )


def _in_order_of_time(events: "Iterator[Event]") -> "tuple[Event, ...]":
    """Events of a process as they came: at the same time it started first, and ended last."""
    kinds = ["start", *(kind for _, kind, _ in _EVENTS)]
    return tuple(sorted(events, key=lambda event: (event.time_ns, kinds.index(event.kind))))


def _events(archive: "Archive", options: argparse.Namespace, where: str, whole: "Result") -> "Iterator[Event]":
    """How a process began and ended, as far as that is recorded."""
    from sysmond.base.result import Event  # noqa: PLC0415  as above
    from sysmond.store.stretches.ends import GRAIN_NS  # noqa: PLC0415  as above

    subject = str(options.pid)
    starts = whole.column("start").integers
    started = starts.tolist() if starts is not None else []
    for start_ns, comm in zip(started, whole.column("comm").texts or (), strict=True):
        yield Event(start_ns, "start", subject, comm or "")
    for table, kind, names in _EVENTS:
        try:
            answer = archive.records(
                table, start=options.start, end=options.end, boot=options.boot, columns=f"start,{names}", where=where
            )
        except Error:
            continue  # Not recorded, or not for us: what is there is shown.
        times = answer.times_ns if kind == "exit" else answer.column("start").integers
        assert times is not None  # noqa: S101  points in time are integers
        for row, time_ns in zip(answer.records, times.tolist(), strict=True):
            said = [f"{name}={row[name]}" for name in names.split(",") if row[name] not in {None, "", ABSENT}]
            # /proc, from which programs are known, tells starts in ticks only: none executes anything before its start.
            late_ns = min((at_ns for at_ns in started if 0 <= at_ns - time_ns < GRAIN_NS), default=time_ns)
            yield Event(late_ns if kind == "exec" else time_ns, kind, subject, " ".join(said))


def _write(answer: "Result", options: argparse.Namespace, chosen: str, style: "Style") -> None:
    from sysmon_tools import formats  # noqa: PLC0415  as above

    is_restricted = answer.sensitivity is Sensitivity.RESTRICTED
    if options.explain:
        from sysmon_tools import explaining  # noqa: PLC0415  as above

        told = explaining.WRITERS[chosen](answer.explanations, style)
        show(told, options.output_file, style, is_restricted=is_restricted)
        return
    if chosen in FILE_FORMATS:
        put_file(answer, options.output_file, chosen, is_restricted=is_restricted)
        return
    if options.summary:
        from sysmon_tools.summary import written  # noqa: PLC0415  as above

        show(written(answer, chosen, style), options.output_file, style, is_restricted=is_restricted)
        return
    is_of_one_time = len(set(answer.times_ns.tolist())) == 1 and not _is_of_moments(options)
    if style.screen is not None:
        from sysmon_tools import terminal_answer  # noqa: PLC0415  as above

        asked = terminal_answer.Arrangement(
            options.by or "", has_time=not is_of_one_time, is_chosen=options.columns is not None
        )
        show(
            terminal_answer.write(answer, style, style.screen, asked),
            options.output_file,
            style,
            is_restricted=is_restricted,
        )
        return
    pieces: Iterable[bytes] = formats.WRITERS[chosen](answer, style)
    if chosen == "table" and is_of_one_time:
        pieces = formats.without_time(pieces, len(style.time(int(answer.times_ns[0]))))
    send(pieces, options.output_file, is_restricted=is_restricted)


def _is_of_moments(options: argparse.Namespace) -> bool:
    """Whether the time of a row is its own, not that of the bucket that it is in."""
    if options.group_by or options.percentile is not None or options.tree:
        return False
    table = built_in_tables().get(options.paths[0])
    packing = table and table.packing
    return options.raw or options.paths[0] == EVENTS or (packing is not None and not packing.lasting)


def _list(archive: "Archive", options: argparse.Namespace, chosen: str, style: "Style") -> list[str]:
    """The columns of a table."""
    from sysmon_tools.rows import WRITERS  # noqa: PLC0415  as above
    from sysmond.answers.records import described  # noqa: PLC0415  as above

    name = options.paths[0]
    built_in = built_in_tables().get(name)
    columns = archive.columns(name) if built_in is None else list(described(built_in))
    columns += [(group, "", f"Together: {', '.join(members)}.") for group, members in groups_of(name).items()]
    names = ("column", "unit", "meaning")
    if style.screen is None:
        send(WRITERS[chosen](names, columns), options.output_file, is_restricted=False)
    else:
        from sysmon_tools import terminal_answer  # noqa: PLC0415  as above

        show(terminal_answer.write_rows(names, columns, style.screen), options.output_file, style, is_restricted=False)
    return []


def _sql(archive: "Archive", options: argparse.Namespace, chosen: str, style: "Style") -> tuple[list[str], list[str]]:
    """What a query finds; gives the warnings and the notes."""
    from sysmon_tools.rows import answered  # noqa: PLC0415  as above
    from sysmond.answers.sql.run import SqlTime  # noqa: PLC0415  as above

    answer = archive.sql(options.sql, start=options.start, end=options.end, boot=options.boot)

    # Of all that there is, recording begins where it does.
    is_asked = options.start is not None or options.end is not None
    beginning = style.beginning(answer.gaps) if is_asked else []
    is_restricted = answer.sensitivity is Sensitivity.RESTRICTED
    if chosen in ARROW_FORMATS:
        put_file(answer, options.output_file, chosen, is_restricted=is_restricted)
        return list(answer.warnings), beginning

    def shown(cell: object) -> object:
        return style.time(cell.time_ns) if isinstance(cell, SqlTime) else cell

    rows = [list(map(shown, row)) for row in answer.rows]
    show(answered(chosen, answer.names, rows, answer, style), options.output_file, style, is_restricted=is_restricted)
    return list(answer.warnings), beginning
