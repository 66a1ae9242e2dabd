# SPDX-License-Identifier: Apache-2.0
"""The kernel side: BPF programs, loaded and pinned once, and opened by the sampler."""

import os
import sys
from contextlib import suppress

from sysmond.machine.folders import is_shared
from sysmond.plan.plan import Plan
from sysmond.plan.settings import Settings, isolation

# Below the runtime folder: where the programs are pinned, and what the loader says of them.
PINS, REPORT = "bpf", "bpf.json"
# The tables that BPF programs serve.
TABLES = frozenset(("process", "thread", "process_private", "exits", "killed", "command", "thread_state"))


def loader_command(settings: Settings, plan: Plan) -> list[str]:
    """The command line that loads the BPF programs of a plan; empty where there is nothing to do.

    Where a plan needs none, it is the one that removes what a killed daemon left.
    """
    probes = {probe.table: probe for probe in plan.probes if probe.enabled}
    if settings.user or settings.root != "/" or TABLES.isdisjoint(probes):
        return unloader_command(settings)
    states = probes.get("thread_state")
    gid = _gid(settings.folders.runtime)
    room = {"--threads": "thread" in probes, "--sleepers": states is not None and bool(states.options.get("all"))}
    return [*_command(settings), *(option for option, is_wanted in room.items() if is_wanted), *gid]


def unloader_command(settings: Settings) -> list[str]:
    """The program that removes all BPF programs: nobody listens to them any more. Nothing where there are none."""
    left = (f"{settings.folders.runtime}/{name}" for name in (PINS, REPORT))
    return [*_command(settings), "--unload"] if any(map(os.path.lexists, left)) else []


def _gid(runtime: str) -> list[str]:
    """Let the group of the parts use what is pinned, where they have users of their own."""
    with suppress(OSError):
        if is_shared(runtime):
            return [f"--gid={os.stat(runtime).st_gid}"]
    return []


def _command(settings: Settings) -> list[str]:
    return [sys.executable, *isolation(), "-m", "sysmond.tasks.bpf.loader", "--runtime-dir", settings.folders.runtime]
