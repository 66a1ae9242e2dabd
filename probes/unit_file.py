# SPDX-License-Identifier: Apache-2.0
"""Unit files of systemd that were added, edited or removed: numbers, and each run of changes as an event.

Source: the folders of systemd.unit(5), which ``sysmond.sources.unit_files`` watches.
"""

from sysmond.probe import Lane, Probe, Table, counter, gauge, hookimpl
from sysmond.sources.unit_files import DONE, FILES_MAX, FOLDERS, KIND, SYSTEMD, TABLE, UnitFiles

INTERVAL_S = 10.0
ORIGIN = f"{FOLDERS[0]}, …"

UNIT_FILE = Table(
    TABLE,
    doc="Unit files of the system, with what is added to them (NAME.d) and what they pull in (NAME.wants and the like),"
    f" in {', '.join(FOLDERS)}. What changes together is an event that names them.",
    metrics=(
        *(
            counter(done, "1", f"Unit files that were {done} since the recorder started.", origin=ORIGIN)
            for done in DONE
        ),
        gauge("files", "1", "How many there are.", origin=ORIGIN),
        gauge(
            "left_out", "1", f"How many there are beyond {FILES_MAX}; changes of these are not noticed.", origin=ORIGIN
        ),
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``unit_file``, where there is a systemd."""
    return [Probe(UNIT_FILE, UnitFiles().read, INTERVAL_S, Lane.BACKGROUND, needs=(SYSTEMD,), told_kinds=(KIND,))]
