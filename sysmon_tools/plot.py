# SPDX-License-Identifier: Apache-2.0
"""Draws series over a range of time: ``sysmon plot``, on the terminal, into an SVG file or a page that zooms."""

import argparse
import shutil
from typing import TYPE_CHECKING

from sysmon_tools import presets
from sysmon_tools.output import put_text
from sysmon_tools.snapshot import add_anonymize
from sysmond.base import timespec
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.base.terminal import put
from sysmond.errors import UsageError

if TYPE_CHECKING:
    from sysmond.history import Archive

SVG, HTML = ".svg", ".html"
SVG_BUCKETS = 800
# Values that a page has in all at its finest: some 200 kB.
HTML_VALUES = 26_000
HTML_CURVES_OF = 3
_ROOM = 14
_LENGTH = "1h"


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add = made.add_argument
    add("paths", nargs="*", metavar="PATH", help="series to draw, as for sysmon-extract: cpu/busy@total, 'disk/await'")
    add(
        "--preset",
        metavar="NAME,...",
        action="append",
        default=[],
        help="draw what these presets name: cpu, disk, network ...",
    )
    add("--from", "--since", dest="start", metavar="T", help="first moment (default: an hour ago; in an archive"
        " that no recorder writes to, its last hour)")  # fmt: skip
    add("--to", "--until", dest="end", metavar="T", help="up to this moment (default: now)")
    add("--sample", "--interval", "--step", dest="sample", metavar="STEP", default="", help="length of a step"
        " (default: what fits the width)")  # fmt: skip
    add("--output-file", "-o", metavar="F", help="write an SVG file, F.svg, or a page for a browser that zooms, F.html"
        " (default: draw on the terminal)")  # fmt: skip
    add_anonymize(made)
    add("--utc", action="store_true", help="times in UTC (default: local time)")


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """Draw, and give the warnings.

    :raises UsageError: for a path or time that is wrong, and for a file of another kind.
    """
    from datetime import UTC  # noqa: PLC0415  here and below: not before the command line is right

    from sysmon_tools import html_plot, picture, show, svg, terminal_plot  # noqa: PLC0415  as above
    from sysmon_tools.anonymizing import Anonymizer  # noqa: PLC0415  as above
    from sysmon_tools.style import Style  # noqa: PLC0415  as above
    from sysmond.history import Archive  # noqa: PLC0415  as above

    paths = [*options.paths, *(presets.paths(options.preset) if options.preset else [])]
    if not paths:
        raise UsageError("nothing to draw; expected a PATH such as cpu/busy@total, or --preset=cpu")
    file: str | None = options.output_file
    if file is not None and not file.endswith((SVG, HTML)):
        raise UsageError(f"{file}: a picture is SVG or HTML; expected a name that ends in {SVG} or {HTML}")
    start_ns, end_ns = archive.span(options.start, options.end, _LENGTH)
    if options.sample:
        timespec.parse_step(options.sample)
    notation = timespec.Notation.UTC if options.utc else timespec.Notation.LOCAL
    style = Style(notation, UTC if options.utc else None)
    size = shutil.get_terminal_size()
    buckets = SVG_BUCKETS if file is not None else max(20, 2 * (size.columns - _ROOM))
    if options.anonymize:
        archive = Archive(archive.place, classes=(Sensitivity.PUBLIC,))
    seen = picture.look(archive, paths, start_ns, end_ns, buckets, options.sample)
    warnings, title, pictures = seen.warnings, ", ".join(paths), [seen]
    finest = HTML_VALUES // (HTML_CURVES_OF * sum(len(panel.curves) for panel in seen.panels))
    if file is not None and file.endswith(HTML) and not options.sample and finest > buckets:
        finer = picture.look(archive, paths, start_ns, end_ns, finest)
        pictures += [finer] if finer.step_ns < seen.step_ns else []
    if options.anonymize:
        nameless = Anonymizer.of(archive)
        pictures = [nameless.picture(one) for one in pictures]
        title = ", ".join({curve.path.partition("@")[0]: 0 for panel in seen.panels for curve in panel.curves})
    if file is None:
        is_ascii = show.console().options.ascii_only
        put(*terminal_plot.draw(pictures[0], style, size.columns, size.lines - 2, is_ascii=is_ascii))
    else:
        draw = svg.draw(pictures[0], title, style) if file.endswith(SVG) else html_plot.draw(pictures, title, style)
        put_text(file, draw, is_restricted=seen.is_restricted)
        span = " to ".join(timespec.format_time(time_ns // SECOND_NS * SECOND_NS) for time_ns in (start_ns, end_ns))
        put(f"{file}: written; {title} from {span}")
    return list(dict.fromkeys(warnings))
