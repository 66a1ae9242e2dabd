# SPDX-License-Identifier: Apache-2.0
"""What everything waits for: threads that run or wait uninterruptibly, each at this moment, and their kernel stacks.

``sysmond/tasks/states.py`` reads them, by BPF or by /proc. Stacks are those of the threads recorded.
"""

from collections.abc import Sequence

from sysmond.probe import Host, Option, Probe, Records, Sensitivity, hookimpl
from sysmond.tasks.states import looking_at
from sysmond.tasks.stuck import KIND, StuckThreads
from sysmond.tasks.tables import KERNEL_STACK, THREAD_STATE

_ALL = Option("all", default=False, doc="Whether sleeping, stopped and dead threads are recorded, too.")
_BY_PROC = Option(
    "by_proc", default=False, doc="Whether /proc is read where BPF is unavailable, at up to 20 ms of CPU per reading."
)

# As for processes: it is worth most when many wait at once.
DEADLINE_S = 0.5
_STACKS = Option(
    "stacks", default=True, doc="Whether their kernel stacks are recorded, too.", enables=KERNEL_STACK.name
)


def thread_state(
    host: Host,
    full: bool,  # noqa: ARG001, FBT001  a moment is all there is
    *,
    all: bool = False,  # noqa: A002  as the option is called
    by_proc: bool = False,
    stacks: bool = True,  # noqa: ARG001  what it enables does that
) -> Records:
    """Give what threads are doing."""
    looking = looking_at(host)
    try:
        records = looking.threads(host.tick, every=all, by_proc=by_proc)
        host.shared(_stuck).look(host, records)
        return records
    finally:
        host.tell_way(THREAD_STATE.name, looking.way)


def _stuck(_: Host) -> StuckThreads:
    return StuckThreads()


def kernel_stack(host: Host, full: bool) -> Sequence[Records]:  # noqa: FBT001
    """Give the stacks not recorded yet, or with ``full`` all recent ones."""
    return looking_at(host).stacks(host.tick, full=full)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``thread_state`` and ``kernel_stack``."""
    restricted, privilege = Sensitivity.RESTRICTED, "CAP_BPF and CAP_PERFMON for the loader"
    return [
        Probe(
            THREAD_STATE,
            records=thread_state,
            sensitivity=restricted,
            options=(_ALL, _BY_PROC, _STACKS),
            deadline_s=DEADLINE_S,
            told_kinds=(KIND,),
            privilege=f"{privilege}, or CAP_SYS_PTRACE by /proc",
        ),
        Probe(
            KERNEL_STACK,
            records=kernel_stack,
            sensitivity=restricted,
            enabled=False,
            deadline_s=DEADLINE_S,
            privilege=f"{privilege}, or CAP_SYS_ADMIN by /proc",
        ),
    ]
