# SPDX-License-Identifier: Apache-2.0
"""Takes the words of ``below dump`` for those of ``sysmon-extract``: ``sysmon dump``, for who knows below.

A field of below becomes a path or a column, an option the one that means the same. What has no counterpart is named,
and nothing is asked then.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sysmond.base import elsewhere
from sysmond.base.elsewhere import ForeignName
from sysmond.errors import UsageError, nearest

# Of each category: below's program in the list of names, and the table whose rows it has here; none for series.
CATEGORIES = {
    "system": ("below system", ""),
    "disk": ("below disk", "disk"),
    "process": ("below process", "process"),
    "cgroup": ("below cgroup", "cgroup"),
    "iface": ("below iface", "network"),
    "network": ("below network", ""),
}
# What below shows where no field is named: its own defaults, as far as they are recorded.
DEFAULTS = {
    "system": "hostname cpu.usage_pct cpu.user_pct cpu.system_pct mem.total mem.free",
    "disk": "read_bytes_per_sec write_bytes_per_sec disk_total_bytes_per_sec",
    "process": "pid ppid comm state cpu.usage_pct cpu.user_pct cpu.system_pct mem.rss_bytes io.rwbytes_per_sec",
    "cgroup": "cpu.usage_pct mem.total",
    "iface": "rx_bytes_per_sec tx_bytes_per_sec throughput_per_sec",
    "network": "tcp.active_opens_per_sec tcp.passive_opens_per_sec tcp.retrans_segs_per_sec",
}
FORMATS = {"raw": "table", "csv": "csv", "tsv": "tsv", "json": "json", "open-metrics": "openmetrics"}
# Columns of a long table that others have, and that its rows can have as well.
_JOINED = frozenset({"command"})
# How often below samples.
_STEP = "5s"


class AskedFields(NamedTuple):
    """What fields became: paths of series or columns of rows, and a line for each that is not quite the same."""

    words: list[str]
    remarks: list[str]


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line, as below has it."""
    add = made.add_argument
    add("category", choices=list(CATEGORIES), metavar="CATEGORY", help=f"what to dump: {', '.join(CATEGORIES)}")
    add("--begin", "-b", metavar="T", required=True, help="first moment, such as '10 minutes ago'")
    add("--end", "-e", metavar="T", default="now", help="up to this moment (default: now)")
    add("--fields", "-f", metavar="FIELD", nargs="+", default=[], help="what to print, by below's names")
    add("--select", "-s", metavar="FIELD", help="the field that --filter, --top and --rsort use")
    add("--filter", "-F", metavar="REGEX", help="only rows in which the selected field matches")
    add("--top", metavar="N", type=int, default=0, help="only the first N of each sample, by the selected field")
    add("--rsort", action="store_true", help="sort the largest first, which is the default anyway")
    add("--output-format", "-O", metavar="FORMAT", choices=list(FORMATS), default="raw", help=f"{', '.join(FORMATS)}")
    add("--output", "-o", metavar="F", help="write to this file (default: standard output)")
    add("--show", action="store_true", help="only print the sysmon-extract command that means the same")


def words(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Give the arguments of ``sysmon-extract`` that mean the same, and remarks.

    :raises UsageError: for a field that below does not have, or that is not recorded here.
    """
    program, table = CATEGORIES[options.category]
    names = {name.name: name for name in elsewhere.every() if name.program == program}
    wanted = options.fields or DEFAULTS[options.category].split()
    if table == "cgroup":
        # What is below's one table is several here: the first field says which.
        of = [name.paths[0].partition("/")[0] for field in wanted if (name := names.get(field))]
        table = next((one for one in of if one.startswith("cgroup_") and one != "cgroup_name"), table)
    fields = _fields(wanted, names, table)
    made = [f"--from={options.begin}", f"--to={options.end}", f"--format={FORMATS[options.output_format]}"]
    if options.output_format in {"csv", "tsv"}:
        made.append("--no-comments")  # Who reads below's knows none.
    if options.output:
        made.append(f"--output-file={options.output}")
    if not table:
        if options.select or options.filter or options.top:
            raise UsageError(f"--select, --filter and --top: {options.category} has no rows; expected another category")
        return [*dict.fromkeys(fields.words), *made], fields.remarks
    made = [table, "--records", f"--sample={_STEP}", *made, f"--columns={','.join(dict.fromkeys(fields.words))}"]
    if (options.filter or options.top) and not options.select:
        raise UsageError("--filter and --top: expected --select FIELD, too, which says what they apply to")
    if options.select:
        (by, *_), _ = _fields([options.select], names, table)
        made += [f"--top={options.top}", f"--by={by}"] if options.top else []
        made += [f"--where={by} ~ {_quoted(options.filter)}"] if options.filter else []
    return made, fields.remarks


def _quoted(pattern: str) -> str:
    quote = "'" if "'" not in pattern else '"'
    if quote in pattern:
        raise UsageError(f"--filter {pattern!r}: expected at most one kind of quotation mark in it")
    return f"{quote}{pattern}{quote}"


def _fields(wanted: Sequence[str], names: dict[str, ForeignName], table: str) -> AskedFields:
    made = AskedFields([] if table in {"", "process"} else ["instance"], [])
    for word in wanted:
        name = names.get(word)
        if name is None:
            raise UsageError(f"field {word!r}: below has no such field, or it is not recorded here"
                             f"{nearest(word, names)}")  # fmt: skip
        paths = list(_words(name, table))
        if not paths:
            raise UsageError(f"field {word!r}: it is {name.meanings[0]} here, which is not in the rows of {table!r}")
        made.words.extend(paths)
        here = " and ".join(paths)
        if name.is_sum:
            made.remarks.append(f"{word}: the sum of {here}, which stand apart")
        if name.unit:
            made.remarks.append(f"{word}: {here}, which below has in {name.unit}")
        if name.is_about:
            made.remarks.append(f"{word}: {here}, which below computes in another way")
    return made


def _words(name: ForeignName, table: str) -> Iterator[str]:
    """The paths of a field, or its columns in rows of a table; nothing where these do not have it."""
    for path in name.paths:
        of, _, column = path.partition("@")[0].partition("/")
        if not table:
            yield f"{path}@total" if of == "cpu" else path
        elif of == table or column in _JOINED or (of, column) == ("command", "exe"):
            yield column
        elif (of, column) == ("cgroup_name", "path"):
            yield "instance"
