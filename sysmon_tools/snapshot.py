# SPDX-License-Identifier: Apache-2.0
"""Writes what was recorded in a span of time into one file to send or to keep: ``sysmon snapshot``.

Every program reads that file as it reads a state folder: ``sysmon --state-dir incident.sysmon``. It has what everybody
may read, unless more is asked for, and nothing of another time.
"""

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from sysmon_tools.output import put_in_place
from sysmon_tools.quantities import with_unit
from sysmond import CREATED_BY
from sysmond.base import clock, timespec
from sysmond.base.model import Sensitivity
from sysmond.base.terminal import put
from sysmond.errors import UsageError
from sysmond.machine import snapshot_file
from sysmond.machine.snapshot_file import SUFFIX

if TYPE_CHECKING:
    from sysmond.history import Archive

_START = "-10min"
WIDE = "all other tables"


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add = made.add_argument
    add("--from", "--since", dest="start", metavar="T", default=_START, help="first moment (default: 10 minutes ago)")
    add("--to", "--until", dest="end", metavar="T", default="now", help="up to this moment (default: now)")
    add("--restricted", action="store_true", help="also what not everybody may read, as far as you may: command lines,"
        " addresses, the kernel's messages, what threads waited for")  # fmt: skip
    add("--anonymize", action="store_true", help="names become numbers (program-1, disk-2), other texts are left out:"
        " for strangers")  # fmt: skip
    add("--list", action="store_true", help="only tell what would be in it")
    add("--output-file", "-o", metavar=f"F{SUFFIX}", help="write it there")


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """Tell what is in the snapshot, write it, and give the warnings.

    :raises UsageError: for a time or a file that is wrong. :raises Error: where nothing is recorded.
    """
    from sysmond.history import Archive  # noqa: PLC0415  not before the command line is right

    file: str | None = options.output_file
    if not options.list and (file is None or not file.endswith(SUFFIX)):
        raise UsageError(f"--output-file {file or ''}: expected a name that ends in {SUFFIX}".replace("  ", " "))
    if options.anonymize and options.restricted:
        raise UsageError("--anonymize and --restricted: expected only one of them")
    start_ns, end_ns = timespec.parse_span(options.start, options.end, clock.relation())
    classes = tuple(Sensitivity) if options.restricted else (Sensitivity.PUBLIC,)
    archive = Archive(archive.place, classes=classes)
    files = archive.excerpt(start_ns, end_ns, anonymous=options.anonymize)
    sizes: Counter[str] = Counter()
    for path, image, table in files:
        sizes[f"{table or WIDE}{' (restricted)' * path.startswith(Sensitivity.RESTRICTED)}"] += len(image)
    first, last = (timespec.format_time(time_ns) for time_ns in (start_ns, end_ns))
    put(f"from {first} to {last}:", *(f"  {with_unit(size, 'B'):>10}  {what}" for what, size in sorted(sizes.items())))
    if not options.list and file is not None:
        about: dict[str, object] = {"created_by": CREATED_BY, "from": first, "to": last, "classes": list(classes)}
        about["anonymous"] = options.anonymize
        contents = [(path, image) for path, image, _ in files]

        def write(where: str) -> None:
            with open(where, "wb") as target:
                snapshot_file.write(target, about, contents)

        put_in_place(file, write, is_restricted=options.restricted)
        names = "It names nobody." if options.anonymize else "It names programs, users and devices."
        put(f"{file}: written; 'sysmon --state-dir {file}' shows it. {names}")
    return archive.warnings
