# SPDX-License-Identifier: Apache-2.0
"""What the kernel reports: how many messages of which level, and those that tell of trouble as events.

Source: ``/dev/kmsg``, which ``sysmond.sources.kmsg`` reads. Texts of the kernel may name programs, files and addresses,
so they are restricted.
"""

from sysmond.probe import Lane, Probe, Sensitivity, Table, counter, hookimpl
from sysmond.sources.kmsg import KINDS, LEVELS, OTHER, PATH, KernelMessages

KERNEL_MESSAGE = Table(
    "kernel_message",
    doc="Kernel messages by level, starting with the oldest that the kernel still had when the"
    " recorder started. Those that report trouble are events, too.",
    metrics=(
        *(counter(level, "1", f"Messages of level {number}.", origin=PATH) for number, level in enumerate(LEVELS)),
        counter("missed", "1", "Messages that were overwritten before they could be read.", origin=PATH),
    ),
)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``kernel_message``. Between messages nothing is read but once a minute."""
    probe = Probe(KERNEL_MESSAGE, KernelMessages().read, 60.0, Lane.BACKGROUND, Sensitivity.RESTRICTED, needs=(PATH,))
    return [probe._replace(privilege="CAP_SYSLOG, where kernel.dmesg_restrict is 1", told_kinds=(*KINDS, OTHER))]
