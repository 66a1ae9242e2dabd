# SPDX-License-Identifier: Apache-2.0
"""Writes what a machine did around a moment as one page for a browser: ``sysmon report``.

One HTML file that loads nothing from elsewhere and runs nothing: curves as SVG, who used most, what was waited for, and
what happened. Only what everybody may read, unless more is asked for.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

from sysmon_tools.output import put_text
from sysmon_tools.snapshot import add_anonymize, check_for_whom, names_whom
from sysmond.base import timespec
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.base.terminal import printable, put
from sysmond.errors import Error, UsageError

if TYPE_CHECKING:
    from sysmon_tools.moment import MomentScene, ProcessShare
    from sysmon_tools.picture import Picture
    from sysmon_tools.style import Style
    from sysmond.history import Archive

SUFFIX = ".html"
AROUND = "10min"
BUCKETS = 400
ROWS_MAX = 20
# Each a picture of its own: what there is not is left out.
PICTURES = (
    ("CPU", ("cpu/busy@total", "pressure/some_percent@cpu")),
    ("Memory", ("memory/used_percent", "memory/swap_used_percent", "pressure/some_percent@memory")),
    ("Disks", ("disk/utilization", "pressure/some_percent@io")),
    ("Disk throughput", ("disk/read_bytes", "disk/written_bytes")),
    ("Network", ("network/received_bytes", "network/sent_bytes")),
    ("Temperature", ("temperature/value",)),
    ("Load", ("load/tasks_runnable", "load/average_1min")),
)
# Nothing is loaded and nothing runs: also where a name that is shown would be taken for more.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    ":root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:2em auto;max-width:960px;padding:0 1em}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}table{border-collapse:collapse}.s{color:#888}"
    "td,th{padding:.15em 1em .15em 0;text-align:left;vertical-align:top}"
    "svg{max-width:100%;height:auto}"
)


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add = made.add_argument
    add("--at", metavar="T", required=True, help="the moment, such as '10 minutes ago' or 14:05")
    add("--around", metavar="LENGTH", default=AROUND, help="how much time the curves show (default: %(default)s)")
    add("--restricted", action="store_true", help="include what only some people may read, as far as you may: the"
        " kernel's messages, what threads waited for")  # fmt: skip
    add_anonymize(made)
    add("--output-file", "-o", metavar="F.html", required=True, help="write the page to this file")


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """Write the report, say what is in it, and give the warnings.

    :raises UsageError: for a time or a file that is wrong. :raises Error: where nothing is recorded.
    """
    from sysmon_tools import moment  # noqa: PLC0415  here and below: not before the command line is right
    from sysmon_tools.anonymizing import Anonymizer  # noqa: PLC0415  as above
    from sysmon_tools.style import Style  # noqa: PLC0415  as above
    from sysmond.history import Archive  # noqa: PLC0415  as above

    file: str = options.output_file
    if not file.endswith(SUFFIX):
        raise UsageError(f"{file}: a report is a page for a browser; expected a name that ends in {SUFFIX}")
    check_for_whom(options)
    at_ns = timespec.parse_moment(options.at, archive.now())
    around_ns = timespec.parse_step(options.around)
    if not options.restricted:
        archive = Archive(archive.place, classes=(Sensitivity.PUBLIC,))
    seen = moment.look(archive, moment.View(at_ns), archive.now().realtime_ns)
    by_disk = moment.processes(archive, seen.view._replace(order="disk"))
    pictures = _pictures(archive, seen.view.at_ns, around_ns)
    warnings = seen.warnings
    if options.anonymize:
        nameless = Anonymizer.of(archive)
        seen, by_disk = nameless.scene(seen), nameless.processes(by_disk)
        pictures = [(name, nameless.picture(picture)) for name, picture in pictures]
    whole = "".join(_page(seen, by_disk, pictures, Style(), is_restricted=options.restricted))

    put_text(file, whole, is_restricted=options.restricted)
    names = ", ".join(name for name, _ in pictures)
    if seen.asked_ns is not None:
        put(f"nothing is recorded at {timespec.format_time(at_ns)}; this is the nearest moment, "
            f"{timespec.format_time(seen.view.at_ns // SECOND_NS * SECOND_NS)}")  # fmt: skip
    counted = f"{min(ROWS_MAX, len(seen.processes))} processes, {min(ROWS_MAX, len(seen.waits))} waits"
    whom = names_whom(is_anonymous=options.anonymize or archive.is_anonymous)
    put(f"{file}: {names}; {counted}, {len(seen.events)} events. {whom}")
    return list(dict.fromkeys(warnings))


def _pictures(archive: "Archive", at_ns: int, around_ns: int) -> list[tuple[str, "Picture"]]:
    """The curves around a moment, of what this machine records."""
    from sysmon_tools import picture  # noqa: PLC0415  as above

    start_ns = (at_ns - around_ns // 2) // SECOND_NS * SECOND_NS
    end_ns = min(start_ns + around_ns, archive.now().realtime_ns)
    there = {name for entry in archive.catalogue(derived=True) for name in (entry.path, entry.path.partition("@")[0])}
    drawn = []
    for name, paths in PICTURES:
        # What this machine has not would hide the others.
        recorded = [path for path in paths if path in there]
        with suppress(Error):
            if recorded:
                drawn.append((name, picture.look(archive, recorded, start_ns, end_ns, BUCKETS)))
    return drawn


def _page(
    seen: "MomentScene",
    by_disk: Sequence["ProcessShare"],
    pictures: Sequence[tuple[str, "Picture"]],
    style: "Style",
    *,
    is_restricted: bool,
) -> Iterator[str]:
    from sysmon_tools import svg  # noqa: PLC0415  as above

    when = style.time(seen.view.at_ns // SECOND_NS * SECOND_NS)
    title = f"{seen.host or 'sysmond'}, {when}"
    yield f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n<title>{_text(title)}</title>\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>\n<style>{_STYLE}</style>\n'
    yield f"</head>\n<body>\n<h1>{_text(title)}</h1>\n"
    if seen.asked_ns is not None:
        asked = style.time(seen.asked_ns // SECOND_NS * SECOND_NS)
        yield f"<p>Nothing is recorded at {_text(asked)}; this is the nearest moment.</p>\n"
    whose = "the person who made this page" if is_restricted else "everybody on that machine"
    span = f"{round(seen.view.span_ns / SECOND_NS)} s around it"
    yield f'<p class="s">Recorded by sysmond. It contains what {whose} may read; the tables are of the {span}.</p>\n'
    yield from _table("Who used the processors most", _PROCESS_HEAD, _processes(seen.processes))
    yield from _table("Who used the disks most", _PROCESS_HEAD, _processes(by_disk))
    yield from _table("What threads waited for", ("seen", "program", "state", "in"), _waits(seen))
    yield from _table("What happened", ("time", "kind", "about", "what"), _events(seen, style))
    missing = dict.fromkeys(f"{gap.table}: {gap.cause}{f' ({gap.detail})' if gap.detail else ''}" for gap in seen.gaps)
    yield from _table("What is missing", ("table and cause",), [(line,) for line in missing])
    for name, picture in pictures:
        yield f"<h2>{_text(name)}</h2>\n{svg.draw(picture, name, style)}"
    yield "</body>\n</html>\n"


_PROCESS_HEAD = ("pid", "program", "user", "CPU", "memory", "disk", "state")


def _processes(shares: Sequence["ProcessShare"]) -> list[tuple[str, ...]]:
    from sysmon_tools.moment_page import spelled  # noqa: PLC0415  as above

    return [
        (
            str(share.pid),
            share.comm,
            share.user,
            spelled(share.cpu_percent, "%"),
            spelled(share.resident_bytes, "B"),
            spelled(share.disk_bytes_s, "B/s"),
            share.state or "ended",
        )
        for share in shares[:ROWS_MAX]
    ]


def _waits(seen: "MomentScene") -> list[tuple[str, ...]]:
    return [(str(wait.seen), wait.comm, wait.state, wait.place) for wait in seen.waits[:ROWS_MAX]]


def _events(seen: "MomentScene", style: "Style") -> list[tuple[str, ...]]:
    return [
        (style.time(event.time_ns // SECOND_NS * SECOND_NS), event.kind, event.subject, event.text)
        for event in seen.events
    ]


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table with its title; nothing where it has no rows."""
    if not rows:
        return
    yield f"<h2>{_text(title)}</h2>\n<table>\n<tr>{''.join(f'<th>{_text(name)}</th>' for name in head)}</tr>\n"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>\n"
    yield "</table>\n"


def _text(text: str) -> str:
    return escape(printable(text))
