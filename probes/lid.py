# SPDX-License-Identifier: Apache-2.0
"""Whether a laptop's lid is closed, as ACPI's button driver tells.

Source: ``acpi_button_state_seq_show`` in the kernel's ``drivers/acpi/button.c``. It asks the firmware (``_LID``) and
wakes nothing; to read the switch as an input device would need the right to read what is typed, too.
"""

from collections.abc import Iterable

from sysmond.probe import Absence, Cause, Host, Lane, Probe, Row, Table, Tells, hookimpl, rows_of, state
from sysmond.sources.slots import COSTLY_S

FOLDER = "/proc/acpi/button/lid"
LIDS_MAX = 8

LID = Table(
    "lid",
    per="lid",
    doc="The lid of a laptop, as the firmware reports it through ACPI. Changes between two readings go unnoticed.",
    metrics=(state("closed", "1 if it is closed, 0 if it is open.", origin=f"{FOLDER}/*/state"),),
)
STATES = {b"open": 0, b"closed": 1}


def parse(content: bytes) -> Absence | tuple[int]:
    """Give the values of one lid.

    :raises ValueError: where it says neither of what the kernel may say.
    """
    word = content.partition(b":")[2].strip()
    if word == b"unsupported":
        return Absence(Cause.NO_SOURCE, "the firmware does not report it")
    if word not in STATES:
        raise ValueError(f"{FOLDER}: {content[:80]!r}; expected a state, open or closed")
    return (STATES[word],)


def read(host: Host) -> Iterable[Row]:
    """Give a row for each lid."""
    return rows_of(host.names(FOLDER)[:LIDS_MAX], lambda lid: parse(host.read(f"{FOLDER}/{lid}/state")))


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``lid``. It is asked of firmware, so seldom: the kernel has no uevent of it."""
    probe = Probe(LID, read, 10.0, Lane.BACKGROUND, needs=(f"{FOLDER}/*/state",), costly_s=COSTLY_S)
    return [probe._replace(tells=(Tells("lid", "closed", {0: "opened", 1: "closed"}),))]
