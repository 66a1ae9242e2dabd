# SPDX-License-Identifier: Apache-2.0
"""Processes, and optionally threads: what each uses, every second; only changes are recorded.

``sysmond/tasks`` reads them, by BPF or by /proc. All three tables come from one pass a tick.
"""

from sysmond.probe import Host, Option, Probe, Records, Sensitivity, hookimpl
from sysmond.tasks.hidepid import sensitivity
from sysmond.tasks.passes import passes_of
from sysmond.tasks.tables import PROCESS, PROCESS_PRIVATE, THREAD

# By /proc, ten thousand that begin or end within a second take 0.1 s; in the background it would take longer.
# Tables with a ring of their own are read after all others, so nothing waits for it.
DEADLINE_S = 0.5
_THREADS = Option("threads", default=False, doc="Whether the table thread is recorded, too.", enables=THREAD.name)


def process(host: Host, full: bool, *, threads: bool = False) -> Records:  # noqa: FBT001  as every long probe has it
    """Give the processes that changed, or all."""
    passes = passes_of(host)
    host.tell_way(PROCESS.name, passes.way)
    return passes.records(PROCESS.name, host.tick, full=full, threads=threads)


def thread(host: Host, full: bool) -> Records:  # noqa: FBT001
    """Give the threads that changed, or all."""
    return passes_of(host).records(THREAD.name, host.tick, full=full)


def process_private(host: Host, full: bool) -> Records:  # noqa: FBT001
    """Give the processes of which private values changed, or all."""
    return passes_of(host).records(PROCESS_PRIVATE.name, host.tick, full=full)


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the tables ``process``, ``thread`` and ``process_private``."""
    seen, privilege = sensitivity(), "CAP_BPF and CAP_PERFMON for the loader, or nothing by /proc"
    return [
        Probe(
            PROCESS, records=process, sensitivity=seen, options=(_THREADS,), deadline_s=DEADLINE_S, privilege=privilege
        ),
        Probe(THREAD, records=thread, sensitivity=seen, enabled=False, deadline_s=DEADLINE_S, privilege=privilege),
        Probe(
            PROCESS_PRIVATE,
            records=process_private,
            sensitivity=Sensitivity.RESTRICTED,
            deadline_s=DEADLINE_S,
            privilege="CAP_BPF and CAP_PERFMON for the loader, or CAP_SYS_PTRACE for processes of others",
        ),
    ]
