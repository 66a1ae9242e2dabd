# SPDX-License-Identifier: Apache-2.0
"""Which program is the first process, that starts all others: where it is not systemd nobody says when a boot is over.

Source: ``/proc/1/comm``, see proc_pid_comm(5).
"""

from collections.abc import Iterator

from sysmond.probe import Host, Lane, Probe, Row, Table, hookimpl, text
from sysmond.sources.unread import printable

PATH = "/proc/1/comm"

INIT = Table(
    "init",
    doc="The first process of the machine, or of the container.",
    metrics=(text("name", "Its name: systemd, init, runit, s6-svscan …", PATH),),
)


def read(host: Host) -> Iterator[Row]:
    """Give the one row.

    :raises OSError: where there is no /proc, or it hides the processes of others.
    """
    yield "", (printable(host.read_anew(PATH)),)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``init``."""
    return [Probe(INIT, read, 300.0, Lane.BACKGROUND, needs=(PATH,))]
