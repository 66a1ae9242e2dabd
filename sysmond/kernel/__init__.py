# SPDX-License-Identifier: Apache-2.0
"""The kernel side: BPF programs loaded and pinned once, and opened by who samples."""

import sys

from sysmond.plan import Plan
from sysmond.settings import Settings, isolation

# The tables that BPF programs serve.
TABLES = frozenset(("process", "thread", "process_private", "exits", "command", "thread_state"))


def loader_command(settings: Settings, plan: Plan) -> list[str]:
    """The program that loads what BPF programs a plan wants, and what it is told; nothing where it wants none."""
    probes = {probe.table: probe for probe in plan.probes if probe.enabled}
    if settings.user or settings.root != "/" or TABLES.isdisjoint(probes):
        return []
    command = [sys.executable, *isolation(), "-m", "sysmond.kernel.loader", "--runtime-dir", settings.folders.runtime]
    states = probes.get("thread_state")
    room = {"--threads": "thread" in probes, "--sleepers": states is not None and bool(states.options.get("all"))}
    return [*command, *(option for option, is_wanted in room.items() if is_wanted)]
