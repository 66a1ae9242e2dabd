# SPDX-License-Identifier: Apache-2.0
"""Writes what was recorded in a span of time into one file to send or to keep: ``sysmon snapshot``.

Every program reads that file as it reads a state folder: ``sysmon --state-dir incident.sysmon``. It has what everybody
may read, unless more is asked for, and nothing of another time.
"""

import argparse
import os
import time
from collections import Counter
from typing import TYPE_CHECKING

from sysmon_tools.output import put_in_place
from sysmon_tools.quantities import with_unit
from sysmond import CREATED_BY
from sysmond.base import timespec
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.base.terminal import put
from sysmond.errors import UsageError
from sysmond.machine import snapshot_file
from sysmond.machine.snapshot_file import SUFFIX

if TYPE_CHECKING:
    from sysmond.history import Archive

_LENGTH = "10min"
WIDE = "all other tables"


def add_options(made: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    add = made.add_argument
    add("--from", "--since", dest="start", metavar="T", help="first moment (default: 10 minutes ago; in an archive"
        " that no recorder writes to, its last 10 minutes)")  # fmt: skip
    add("--to", "--until", dest="end", metavar="T", help="up to this moment (default: now)")
    add("--restricted", action="store_true", help="include what only some people may read, as far as you may: command"
        " lines, addresses, the kernel's messages, what threads waited for")  # fmt: skip
    add_anonymize(made)
    add("--list", action="store_true", help="only list what the file would contain")
    add("--output-file", "-o", metavar=f"F{SUFFIX}", help="write to this file"
        f" (default: sysmon-YYYYmmdd-HHMM{SUFFIX}, after its last moment)")  # fmt: skip
    add("--force", action="store_true", help="replace an existing file")


def add_anonymize(made: argparse.ArgumentParser) -> None:
    """Add the option of whatever is made to be sent."""
    made.add_argument("--anonymize", action="store_true", help="for strangers: replace names by numbers (program-1,"
        " device-2), and leave out other texts")  # fmt: skip


def check_for_whom(options: argparse.Namespace) -> None:
    """Refuse what would be for strangers, and have what not even everybody on the machine may read.

    :raises UsageError: naming both options.
    """
    if options.anonymize and options.restricted:
        raise UsageError("--anonymize and --restricted: expected only one of them")


def file_name(at_ns: int) -> str:
    """How a snapshot of a moment is called where nobody says it: by the local time."""
    return f"sysmon-{time.strftime('%Y%m%d-%H%M', time.localtime(at_ns // SECOND_NS))}{SUFFIX}"


def names_whom(*, is_anonymous: bool) -> str:
    """Tell whom a file names that somebody may send."""
    return "It names nobody." if is_anonymous else "It names programs, users and devices."


def run(archive: "Archive", options: argparse.Namespace) -> list[str]:
    """Tell what is in the snapshot, write it, and give the warnings.

    :raises UsageError: for a time or a file that is wrong. :raises Error: where nothing is recorded.
    """
    from sysmond.history import Archive  # noqa: PLC0415  not before the command line is right

    file: str | None = options.output_file
    if file is not None and not file.endswith(SUFFIX):
        raise UsageError(f"--output-file {file}: expected a name that ends in {SUFFIX}")
    check_for_whom(options)
    start_ns, end_ns = archive.span(options.start, options.end, _LENGTH)
    end_ns = max(start_ns + 1, min(end_ns, archive.now().realtime_ns))  # Of what is still to come it knows nothing.
    file = file or file_name(end_ns)
    if not options.list and not options.force and os.path.lexists(file):
        raise UsageError(f"{file}: already exists; expected another name (-o), or --force to overwrite it")
    classes = tuple(Sensitivity) if options.restricted else (Sensitivity.PUBLIC,)
    archive = Archive(archive.place, classes=classes)
    files = archive.excerpt(start_ns, end_ns, anonymous=options.anonymize)
    sizes: Counter[str] = Counter()
    for path, image, table in files:
        sizes[f"{table or WIDE}{' (restricted)' * path.startswith(Sensitivity.RESTRICTED)}"] += len(image)
    first, last = (timespec.format_time(time_ns) for time_ns in (start_ns, end_ns))
    put(f"from {first} to {last}:", *(f"  {with_unit(size, 'B'):>10}  {what}" for what, size in sorted(sizes.items())))
    if not options.list:
        about: dict[str, object] = {"created_by": CREATED_BY, "from": first, "to": last, "classes": list(classes)}
        about["anonymous"] = options.anonymize or archive.is_anonymous
        contents = [(path, image) for path, image, _ in files]

        def write(where: str) -> None:
            with open(where, "wb") as target:
                snapshot_file.write(target, about, contents)

        put_in_place(file, write, is_restricted=options.restricted)
        names = names_whom(is_anonymous=options.anonymize or archive.is_anonymous)
        put(f"{file}: written; 'sysmon --state-dir {file}' shows it. {names}")
    return archive.warnings
