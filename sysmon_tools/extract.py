# SPDX-License-Identifier: Apache-2.0
"""sysmon-extract: gives back what sysmond recorded, as text or HDF5.

Imports are late on purpose: a cold start should cost little more than numpy and h5py do.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, NoReturn, Protocol

from sysmon_tools import tasks
from sysmon_tools.output import (
    FILE_FORMATS,
    ROW_FORMATS,
    STANDARD_OUTPUT,
    abandon_standard_output,
    described,
    display,
    put_file,
    send,
    show,
)
from sysmond import __version__
from sysmond.base import statistic
from sysmond.base.model import EVENTS
from sysmond.base.terminal import put, say
from sysmond.errors import EXIT_PARTIAL, Error, NotPermittedError, UsageError, nearest
from sysmond.machine import recorders
from sysmond.machine.commandline import Parser, refuse_unquoted

if TYPE_CHECKING:
    from sysmon_tools.grid import Display
    from sysmon_tools.style import Style
    from sysmond.base.clock import Relation
    from sysmond.base.result import Entry, LongEntry, Result
    from sysmond.history import Archive

PROGRAM = "sysmon-extract"

OPENMETRICS = "openmetrics"
FORMATS = (*ROW_FORMATS, *FILE_FORMATS, OPENMETRICS)
EXPLAIN_FORMATS = ("table", "json", "jsonl")
_DELIMITED = ("csv", "tsv")
_SUFFIXES = {
    ".csv": "csv",
    ".log": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".kv": "kv",
    ".txt": "table",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".prom": "openmetrics",
}

LIST_PRESETS = ["list"]
_HELP_WIDTH = 100
INTERRUPTED = 130
# How old what is newest may be.
NEWEST_BACK = "-10min"
# It ends soon: so many more objects than there were are looked through for garbage, and what is still imported is none.
GARBAGE_MIN = 50_000

DESCRIPTION = """\
Print what sysmond recorded. Without a PATH, print everything.

PATH is table[/metric][@instance], with the wildcards * and ?: cpu, cpu/user, 'disk/*@sda',
filesystem/used@/home. PATH may be prefixed with the state folder:
/var/lib/sysmond/cpu/user means the same as cpu/user.
"""

EPILOG = """\
T is now, today, yesterday, boot, '5 minutes ago', 10m, 3d2h, -1h (that long ago), 2025-01-31,
'2025-01-31 14:30', 2025-01-31T14:30:00+01:00, 14:30 or 2pm (today's), monday or 'Nov 22' (the
last one, or today), '2 months ago', or seconds since the epoch. Steps begin at round times, such
as 14:00 and 14:01. Each is labelled with its start time, and excludes its end.

examples:
  sysmon-extract --list
  sysmon-extract cpu/user memory/available --from='5 minutes ago' --sample=10s
  sysmon-extract 'disk/*@sda' --from=yesterday --to=today --sample=1min --output-file=lastday.csv
  sysmon-extract cpu --from -1h --sample 1min --stat mean,max --format json
  sysmon-extract cpu/user --from -30d --sample 1h --explain

ROWS
exit status: 0 success; 1 failure; 2 wrong usage; 3 something could not be read: stderr names it, and
the output has the rest; 77 no permission.
""".replace("ROWS\n", f"{tasks.HELP}\n")


class Queryable(Protocol):
    """What this program needs of ``sysmond.history``."""

    warnings: list[str]
    state_dir: str

    def now(self) -> "Relation":
        """Read the clocks from which relative times count."""

    def catalogue(self, *patterns: str, boot: str | int | None = None, derived: bool = False) -> "list[Entry]":
        """List what is recorded."""

    def long_tables(self, *patterns: str, boot: str | int | None = None) -> "list[LongEntry]":
        """List the long tables that are recorded."""

    def select(  # noqa: PLR0913  as there
        self,
        *patterns: str,
        start: str | int | None = None,
        end: str | int | None = None,
        step: str | int | None = None,
        stat: str | Sequence[str] | None = None,
        boot: str | int | None = None,
        raw: bool = False,
        explain: bool = False,
        drop: str | Sequence[str] = (),
        summary: bool = False,
    ) -> "Result":
        """Read series over a range of time."""


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=24, width=_HELP_WIDTH)


def parser() -> Parser:
    """Describe the command line; the help in the documentation is made of it."""
    made = Parser(
        PROGRAM,
        usage="%(prog)s [PATH ...] [--from T] [--to T] [--sample STEP] [options]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("paths", nargs="*", metavar="PATH", help="series to print")
    add("--preset", metavar="NAME,...", action="append", default=[], help="common questions by name: cpu,"
        " memory, disk, network ...; 'list' lists them")  # fmt: skip
    add("--from", "--since", dest="start", metavar="T", help="first point in time (default: the first sample)")
    add("--to", "--until", dest="end", metavar="T", help="end, excluded (default: now)")
    add("--boot", metavar="-1|ID", help="only this boot: 0 is the current one, -1 the one before, or a boot id")
    add("--sample", "--interval", "--step", dest="sample", metavar="STEP",
        help="length of a step: 10s, 1min, 1h ... (default: as recorded)")  # fmt: skip
    add("--stat", metavar="STAT,...", help=f"what to compute for each step: {', '.join(statistic.STATISTICS)}"
        " (default: mean); tmax is the time of the maximum; for series also percentiles: p50, p95, p99.9")  # fmt: skip
    add("--summary", action="store_true", help="mean, min, max and p95 of each series or column over the whole range")
    add("--drop", action="append", metavar="PATTERN", help="leave out what matches: a PATH, or METRIC[@INSTANCE]"
        " of any table; repeatable")  # fmt: skip
    add("--format", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: by the file's suffix, else csv;"
        " on a terminal, table); pandas needs comment='#' to read csv, or --no-comments here")  # fmt: skip
    add("--units", action="store_true", help="put units into the header of csv and tsv")
    add("--no-comments", action="store_true", help="in csv, tsv, kv and table: no lines about gaps, events and units")
    add("--spreadsheet", action="store_true", help="csv or tsv for a spreadsheet: --units, --no-comments, and an"
        " apostrophe before text that would be run as a formula")  # fmt: skip
    add("--no-timestamps", action="store_true", help="openmetrics: only the newest values, for node_exporter's textfile"
        " collector")  # fmt: skip
    add("--every", metavar="STEP", help="write --output-file again at this interval, until interrupted")
    add("--exact", action="store_true", help="on a terminal: show all digits of numbers")
    add("--all-columns", action="store_true", help="on a terminal: show all columns, even if they do not fit")
    add("--no-pager", action="store_true", help="on a terminal: do not send long output to a pager (PAGER, less)")
    add("--output-file", "-o", metavar="F", help="write to this file, whole or not at all (default: standard output)")
    add("--import", dest="imported", metavar="FILE", help="turn earlier output in csv, tsv or json"
        " back into an archive; if it was made with --records, PATH is the table's name")  # fmt: skip
    add("--output-dir", metavar="D", help="with --import: a new or empty folder for the archive")
    add("--events", action="store_true", help="list what happened: the rows of the table event")
    add("--all-events", action="store_true", help="also show minor events, such as sessions, devices, addresses and"
        " units that started")  # fmt: skip
    add("--list", action="store_true", help="list what is recorded, not its values: on a terminal all tables, or the"
        " metrics of a table; in a pipe or a file every series")  # fmt: skip
    add("--instances", action="store_true", help="with --list: list instances (disks, CPUs, interfaces ...)")
    add("--explain", action="store_true", help="show how each column is computed, instead of its values: the file in"
        " /proc or /sys, formula, resolutions read, resampling, gaps")  # fmt: skip
    add("--raw", action="store_true", help="print every reading by itself, counters as stored, no rates")
    add("--utc", action="store_true", help="write times in UTC")
    add("--local", action="store_true", help="write times in local time with its offset (default)")
    add("--epoch", action="store_true", help="write times as seconds since the epoch")
    add("--user", action="store_true", help="your own archive (the default while your own recorder runs, or if you"
        " cannot read the machine's)")  # fmt: skip
    add("--system", action="store_true", help="the machine's archive, as far as you may read it (the default in all"
        " other cases)")  # fmt: skip
    add("--state-dir", metavar="D", help="where the archive is: a folder, a file written by 'sysmon snapshot',"
        " a single .h5 file from an archive, or output saved as HDF5 (default: /var/lib/sysmond)")  # fmt: skip
    add("--runtime-dir", metavar="D", help="the recorder's folder in RAM (default: /run/sysmond; with"
        " --state-dir, ignored unless its recorder writes to that archive)")  # fmt: skip
    tasks.add_options(made)
    add("--version", action="version", version=f"{PROGRAM} {__version__}", help="print the version and exit")
    return made


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line.

    :raises UsageError: naming what is wrong, and what comes nearest.
    """
    made = parser()
    options, rest = made.parse_known_intermixed_args(argv)
    made.refuse_unknown(rest)
    refuse_unquoted(options.paths)
    if options.preset and options.preset != LIST_PRESETS:
        from sysmon_tools import presets  # noqa: PLC0415  few answers need them

        options.paths += presets.paths(options.preset)
    if options.events and options.paths:
        raise UsageError(f"--events and {options.paths[0]}: events are the table {EVENTS!r}; expected no PATH")
    options.paths = [EVENTS] if options.events else options.paths or [tasks.EVERYTHING]
    options.stats = _stats(options.stat)
    _check_choice("format", options.format, FORMATS)
    notations = [f"--{name}" for name in ("utc", "local", "epoch") if getattr(options, name)]
    if len(notations) > 1:
        raise UsageError(f"{' and '.join(notations)}: expected only one of them")
    _check_list(options)
    for name in ("sample", "stat", "raw", "explain", "group_by", "percentile"):
        if options.summary and tasks.is_given(getattr(options, name)):
            raise UsageError(f"--summary and --{name.replace('_', '-')}: expected only one of them")
    if options.raw and (options.sample or options.stat):
        raise UsageError("--raw gives every tick as stored; expected neither --sample nor --stat")
    _check_times(options)
    _check_import(options)
    options.is_long = tasks.concerns(options)
    return options


def _check_list(options: argparse.Namespace) -> None:
    """Refuse what a list has nothing of.

    :raises UsageError: naming it.
    """
    if options.list and options.explain:
        raise UsageError("--list and --explain: expected only one of them")
    if options.instances and not options.list:
        raise UsageError("--instances: expected --list, too")
    for name in ("drop", "summary"):
        if options.list and getattr(options, name):
            raise UsageError(f"--{name} has no meaning with --list")


def _check_import(options: argparse.Namespace) -> None:
    """Refuse half of what an import needs.

    :raises UsageError: naming what is missing.
    """
    if (options.imported is None) != (options.output_dir is None):
        raise UsageError("--import=FILE and --output-dir=D: expected both, or neither")
    if options.imported and {*options.paths} & {*tasks.built_in_tables(), EVENTS}:
        raise UsageError(f"--import of {options.paths[0]}: expected series, or rows of instances that last")
    if options.imported and options.paths != [tasks.EVERYTHING] and not tasks.is_table(*options.paths):
        raise UsageError(f"--import and {' '.join(options.paths)}: expected one table as PATH, or none for series")


def _check_choice(kind: str, word: str | None, known: Sequence[str]) -> None:
    if word is not None and word not in known:
        close = nearest(word, known) or f"; there are {', '.join(known)}"
        raise UsageError(f"unknown {kind} {word!r}{close}")


def _stats(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    stats = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for stat in stats:
        statistic.check(stat)
    return stats


def _check_times(options: argparse.Namespace) -> None:
    """Refuse wrong times before anything is read: the archive may be large, or empty."""
    from sysmond.base import timespec  # noqa: PLC0415  --help needs none of it

    for text in (options.start, options.end, options.at, options.started):
        if text is not None:
            timespec.parse_time(text, now_ns=time.time_ns(), boot_ns=0)
    for step in (options.sample, options.every):
        if step is not None:
            timespec.parse_step(step)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit code is returned."""
    try:
        return _run(read_arguments(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:  # as for ``| head``: who reads has enough
        abandon_standard_output()
        return 0
    except Error as problem:
        _say(str(problem))
        return problem.exit_code
    except PermissionError as problem:
        _say(described(problem))
        return NotPermittedError.exit_code
    except OSError as problem:
        _say(described(problem))
    except KeyboardInterrupt:
        return INTERRUPTED
    except MemoryError:
        _say("not enough memory for that; a larger --sample, fewer paths or less time need less")
    return Error.exit_code


def _say(text: str) -> None:
    say(text, PROGRAM)


def _run(options: argparse.Namespace) -> int:
    if options.preset == LIST_PRESETS:
        from sysmon_tools import presets  # noqa: PLC0415  as above

        put(*presets.lines())
        return 0
    if options.imported:
        from sysmon_tools import importing  # noqa: PLC0415  as below

        table = "" if options.paths == [tasks.EVERYTHING] else options.paths[0]
        importing.run(options.imported, table, options.output_dir)
        return 0
    import platform  # noqa: PLC0415  numpy has it, and --help needs none of it

    chosen = choose_format(options)
    # Nothing here multiplies matrices, but OpenBLAS starts a thread a processor: more CPU time than an answer costs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # As it is imported h5py asks what the processor is called, and platform would start a program to find that out.
    vars(platform.uname()).setdefault("processor", os.uname().machine)
    gc.disable()  # What is imported stays: to look for garbage in it takes a tenth of a cold start.
    from sysmond import history  # noqa: PLC0415  numpy and h5py: not before the command line is right

    gc.freeze()
    gc.set_threshold(GARBAGE_MIN)
    gc.enable()
    archive = history.open(
        state_dir=options.state_dir, runtime_dir=options.runtime_dir, user=options.user, system=options.system
    )
    if _is_for_people() and (introduction := recorders.introduction(archive.place, system=options.system)):
        _say(introduction)
    if options.every:
        return _write_again_and_again(archive, options, chosen)
    lines, code = _answer(archive, options, chosen)
    for line in lines:
        _say(line)
    if options.output_file not in {None, STANDARD_OUTPUT} and sys.stdout.isatty():
        put(f"{options.output_file}: written")
    return code


def _answer(archive: "Archive", options: argparse.Namespace, chosen: str) -> tuple[list[str], int]:
    """Ask and write; give what there is to say, a line each, and the exit code."""
    notes: Sequence[str] = ()
    if options.is_long:
        warnings, notes = tasks.run(archive, options, chosen, _style(options, chosen))
    elif options.list:
        warnings = _list(archive, options, chosen)
    else:
        warnings, notes = (
            _of_presets(archive, options, chosen) if options.preset else _extract(archive, options, chosen)
        )
    return [*notes, *(f"warning: {warning}" for warning in warnings)], EXIT_PARTIAL if warnings else 0


def _write_again_and_again(archive: "Archive", options: argparse.Namespace, chosen: str) -> NoReturn:
    """Write the file anew at each step of the wall clock; what goes wrong is tried again, and said when it is new."""
    from sysmond.base import timespec  # noqa: PLC0415  as above

    step_ns = timespec.parse_step(options.every)
    before: list[str] = []
    while True:
        try:
            lines, _ = _answer(archive, options, chosen)
        except (Error, OSError) as problem:
            lines = [described(problem) if isinstance(problem, OSError) else str(problem)]
        for line in lines:
            if line not in before:
                _say(line)
        before = lines
        time.sleep((step_ns - time.time_ns() % step_ns) / 1e9)


def _of_presets(archive: Queryable, options: argparse.Namespace, chosen: str) -> tuple[list[str], list[str]]:
    """Answer, without those tables of presets that this machine does not record: that is no mistake of who asks."""
    from sysmon_tools import presets  # noqa: PLC0415  as above

    try:
        return _extract(archive, options, chosen)
    except UsageError:
        recorded = {entry.path.partition("/")[0] for entry in archive.catalogue()}
        of_presets = presets.paths(options.preset)
        missing = [path for path in of_presets if path.partition("/")[0] not in recorded]
        if not missing:
            raise
    options.paths = [path for path in options.paths if path not in missing]
    if not options.paths:
        raise Error(f"preset {','.join(options.preset)}: nothing is recorded here; --list shows what is")
    warnings, notes = _extract(archive, options, chosen)
    return warnings, [f"not recorded: {', '.join(missing)}", *notes]


def choose_format(options: argparse.Namespace) -> str:
    """Choose by the option, else by the file's suffix, else csv; on a terminal and to explain, a table.

    :raises UsageError: where the format cannot go there.
    """
    asked, output_file = options.format, options.output_file
    if asked is not None:
        chosen = str(asked)
    elif output_file is not None and output_file != STANDARD_OUTPUT:
        suffix = os.path.splitext(output_file)[1].lower()
        if suffix and suffix not in _SUFFIXES:
            expected = ", ".join(_SUFFIXES)
            raise UsageError(f"{output_file}: no format has the suffix {suffix!r}; expected {expected}, or --format")
        chosen = _SUFFIXES.get(suffix, "table" if options.explain else "csv")
    elif options.explain:
        chosen = "table"
    else:
        chosen = "table" if _is_for_people() else "csv"
    _check_format(options, chosen)
    return chosen


def _check_format(options: argparse.Namespace, chosen: str) -> None:
    """Refuse what a format has nothing of.

    :raises UsageError: naming both.
    """
    output_file = options.output_file
    for option, known in (("list", ROW_FORMATS), ("explain", EXPLAIN_FORMATS)):
        if getattr(options, option) and chosen not in known:
            raise UsageError(f"--{option} cannot be written as {chosen!r}; expected {', '.join(known)}")
    for option, formats in (
        ("units", _DELIMITED),
        ("spreadsheet", _DELIMITED),
        ("no_comments", (*_DELIMITED, "kv", "table")),
    ):
        if getattr(options, option) and chosen not in formats:
            raise UsageError(f"--{option.replace('_', '-')} with format {chosen!r}: expected {' or '.join(formats)}")
    if options.no_timestamps and chosen != OPENMETRICS:
        raise UsageError(f"--no-timestamps with format {chosen!r}: expected {OPENMETRICS}")
    if options.every and (output_file in {None, STANDARD_OUTPUT} or options.list or options.explain):
        raise UsageError("--every rewrites a file: expected --output-file=F, and neither --list nor --explain")
    if chosen in FILE_FORMATS and output_file in {None, STANDARD_OUTPUT}:
        raise UsageError(f"format {chosen!r} needs a file: --output-file=F.{FILE_FORMATS[chosen]}")


def _style(options: argparse.Namespace, chosen: str) -> "Style":
    from sysmon_tools.style import Style  # noqa: PLC0415  as above
    from sysmond.base.timespec import Notation  # noqa: PLC0415  as above

    notation = Notation.UTC if options.utc else Notation.EPOCH if options.epoch else Notation.LOCAL
    is_spreadsheet = bool(options.spreadsheet)
    return Style(
        notation,
        all_events=options.all_events,
        has_units=options.units or is_spreadsheet,
        has_comments=not (options.no_comments or is_spreadsheet),
        is_spreadsheet=is_spreadsheet,
        screen=_screen(options, chosen),
    )


def _screen(options: argparse.Namespace, chosen: str) -> "Display | None":
    """The terminal for which an answer is laid out; None where it goes elsewhere, or is for programs."""
    if chosen != "table" or options.output_file not in {None, STANDARD_OUTPUT}:
        return None
    return display(
        all_columns=options.all_columns, is_exact=options.exact or options.raw, has_pager=not options.no_pager
    )


def _is_for_people() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _range_ns(options: argparse.Namespace, now: "Relation") -> tuple[int | None, int | None]:
    """Read --from and --to, for what is decided here; history reads them itself."""
    from sysmond.base import timespec  # noqa: PLC0415  as above

    start, end = options.start, options.end
    return (
        None if start is None else timespec.parse_moment(start, now),
        None if end is None else timespec.parse_moment(end, now),
    )


def _are_chosen(options: argparse.Namespace) -> bool:
    """Whether each column was named, and none comes from a table or a wildcard."""
    return all("/" in path and "*" not in path and "?" not in path for path in options.paths)


def _is_restricted(answer: "Entry | LongEntry | Result") -> bool:
    """Whether an answer may not be for everybody: a file of it is its owner's."""
    return answer.sensitivity == "restricted"


def _list(archive: Queryable, options: argparse.Namespace, chosen: str) -> list[str]:
    from sysmon_tools import listing  # noqa: PLC0415  as above
    from sysmond.base.paths import naming  # noqa: PLC0415  as above

    start_ns, end_ns = _range_ns(options, archive.now())
    recorded: dict[str, Entry | LongEntry] = {}
    long_tables = archive.long_tables(*options.paths, boot=options.boot)
    warnings = list(archive.warnings)
    for path in options.paths:
        is_meant = naming(path)
        meant = {table.path: table for table in long_tables if is_meant(table.path)}
        recorded |= meant
        with suppress(Error) if meant else nullcontext():  # There are no series, only long tables.
            recorded |= {entry.path: entry for entry in _series(archive, path, options.boot)}
            warnings += archive.warnings
    listed = [
        recorded[path]
        for path, entry in sorted(recorded.items())
        if (start_ns is None or entry.end_ns > start_ns) and (end_ns is None or entry.start_ns < end_ns)
    ]
    is_restricted = any(map(_is_restricted, listed))
    style = _style(options, chosen)
    is_short = chosen == "table" and not any("/" in path or "@" in path for path in options.paths)
    if options.instances:
        pieces = listing.instances(chosen, listed, style)
    elif is_short:
        pieces = (listing.tables if options.paths == [tasks.EVERYTHING] else listing.metrics)(listed, style)
    else:
        pieces = listing.write(chosen, listed, style)
    show(pieces, options.output_file, style, is_restricted=is_restricted)
    return list(dict.fromkeys(warnings))


def _series(archive: Queryable, path: str, boot: str | None) -> "list[Entry]":
    """The series that a path means; of a word that is no table, those of what is called so in every table."""
    try:
        return archive.catalogue(path, boot=boot, derived=True)
    except UsageError:
        if "/" not in path and "@" not in path:
            with suppress(UsageError):
                return archive.catalogue(f"*/{path}", boot=boot, derived=True)
        raise


def _extract(archive: Queryable, options: argparse.Namespace, chosen: str) -> tuple[list[str], list[str]]:
    """Write values, or how they come about; gives the warnings and the notes."""
    result = archive.select(
        *options.paths,
        start=options.start or (NEWEST_BACK if options.no_timestamps else None),
        end=options.end,
        step=options.sample,
        stat=options.stats,
        boot=options.boot,
        # Prometheus makes rates itself, of counters.
        raw=options.raw or (chosen == OPENMETRICS and not (options.sample or options.stat or options.summary)),
        explain=options.explain,
        drop=options.drop or (),
        summary=options.summary,
    )
    _write(archive, result, options, chosen)
    # Of what is answered without a start, recording begins where the answer does.
    is_asked = options.start is not None or not len(result.times_ns)
    beginning = _style(options, chosen).beginning(result.gaps, result.times_ns) if is_asked else []
    notes = [*beginning, *result.notes]
    return list(dict.fromkeys((*archive.warnings, *result.warnings))), notes


def _write(archive: Queryable, result: "Result", options: argparse.Namespace, chosen: str) -> None:
    style = _style(options, chosen)
    if options.explain:
        from sysmon_tools import explaining  # noqa: PLC0415  as above

        told = explaining.WRITERS[chosen](result.explanations, style)
        show(told, options.output_file, style, is_restricted=_is_restricted(result))
        return
    if chosen in FILE_FORMATS:
        put_file(result, options.output_file, chosen, is_restricted=_is_restricted(result))
        return
    from sysmon_tools import formats  # noqa: PLC0415  as above

    if options.summary:
        from sysmon_tools.summary import written  # noqa: PLC0415  as above

        show(written(result, chosen, style), options.output_file, style, is_restricted=_is_restricted(result))
        return
    if style.screen is not None:
        from sysmon_tools import terminal_answer  # noqa: PLC0415  as above

        asked = terminal_answer.Arrangement(is_chosen=_are_chosen(options))
        pieces = terminal_answer.write(result, style, style.screen, asked)
        show(pieces, options.output_file, style, is_restricted=_is_restricted(result))
        return
    if chosen == OPENMETRICS:
        with suppress(Error):  # What long tables have is not listed by series.
            entries = archive.catalogue(*options.paths, boot=options.boot)
            style = style._replace(
                docs={entry.path: entry.doc for entry in entries},
                per={entry.path.partition("/")[0]: entry.per for entry in entries},
                is_newest=options.no_timestamps,
            )
    send(
        formats.WRITERS[chosen](result, style),
        options.output_file,
        is_restricted=_is_restricted(result),
    )
