# SPDX-License-Identifier: Apache-2.0
"""Draws the first minutes of a boot, a bar for each unit and process: ``sysmon bootchart``, as SVG or as a page.

Only what everybody may read is in it, so that it can be sent.
"""

import argparse
import sys
from typing import TYPE_CHECKING

from sysmon_tools.output import put_text
from sysmond.base import timespec
from sysmond.base.clock import SECOND_NS
from sysmond.base.terminal import put
from sysmond.errors import UsageError

if TYPE_CHECKING:
    from sysmond.history import Archive

SVG, HTML = ".svg", ".html"
ORDERS = ["tree", "start"]
LENGTH_MAX_S = 3600


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add = made.add_argument
    add("--boot", "-b", metavar="-1|ID", default="0", help="which boot: 0 is the current one (default), -1 the one"
        " before, or a boot id")  # fmt: skip
    add("--first", metavar="LENGTH", help="how much of the boot to draw, such as 3min (default: until it had started,"
        " and a little more)")  # fmt: skip
    add("--sort", choices=ORDERS, default=ORDERS[0], help="order of bars: children below parents (tree, the default),"
        " or by start (start)")  # fmt: skip
    add("--all", action="store_true", help="include processes that used next to nothing")
    add("--output-file", "-o", metavar="F", help="write an SVG file, F.svg, or a page for a browser that zooms, F.html"
        " (default: SVG to standard output)")  # fmt: skip
    add("--utc", action="store_true", help="times in UTC (default: local time)")


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """Draw, and give the warnings.

    :raises UsageError: for a boot that is not recorded, and for a file of another kind. :raises Error: where nothing
        is recorded of its first minutes.
    """
    from datetime import UTC  # noqa: PLC0415  here and below: not before the command line is right

    from sysmon_tools import boot_page, boot_scene, boot_svg  # noqa: PLC0415  as above
    from sysmon_tools.style import Style  # noqa: PLC0415  as above

    file: str | None = options.output_file
    if file is None and sys.stdout.isatty():
        raise UsageError("a terminal shows no pictures; expected --output-file with a name that ends in .svg or .html")
    if file is not None and not file.endswith((SVG, HTML)):
        raise UsageError(f"{file}: a chart is SVG or HTML; expected a name that ends in {SVG} or {HTML}")
    length_s = None if options.first is None else timespec.parse_step(options.first) / SECOND_NS
    if length_s is not None and length_s > LENGTH_MAX_S:
        raise UsageError(f"--first {options.first}: expected at most 1h")
    seen = boot_scene.look(archive, options.boot, length_s, has_all=options.all, is_by_start=options.sort == ORDERS[1])
    style = Style(timespec.Notation.UTC if options.utc else timespec.Notation.LOCAL, UTC if options.utc else None)
    is_page = file is not None and file.endswith(HTML)
    drawn = boot_page.draw(seen, style) if is_page else boot_svg.draw(seen, style)
    if file is None:
        put(*drawn.splitlines())
    else:
        put_text(file, drawn, is_restricted=False)
    return list(dict.fromkeys(seen.warnings))
