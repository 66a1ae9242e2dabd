# SPDX-License-Identifier: Apache-2.0
"""What processes use of graphics cards: time of engines, and memory.

``sysmond/sources/drm_clients.py`` reads it of the descriptors of cards that processes hold, each client once.
"""

from struct import Struct

from sysmond.probe import (
    Absence,
    Answers,
    Derived,
    Ending,
    Host,
    Join,
    Lane,
    Packing,
    Probe,
    Records,
    Table,
    counter,
    gauge,
    hookimpl,
    text,
)
from sysmond.sources import drm, drm_clients
from sysmond.tasks.hidepid import sensitivity
from sysmond.tasks.tables import COMM, PID, START, UID

INTERVAL_S = 5.0
NAME_BYTES = 16
NUMBER_MAX = 2**63 - 1
_KEY = (("pid", "pid"), ("start", "start"))
_ENGINES = "drm-engine-*, drm-cycles-*, NVML ProcessUtilization"
_RECORD = "<q I I 16s 16s 5q 2q I 4x"

GPU_PROCESS = Table(
    "gpu_process",
    (
        START,
        PID,
        UID._replace(origin="owner of /proc/PID"),
        COMM,
        text(
            "card",
            "Address of the card that worked most for it, as in the table gpu; otherwise the driver.",
            "drm-pdev",
        ),
        counter(
            "gpu_time",
            "s",
            "Time that all engines together worked for it: two at once count twice. For NVIDIA, percent times seconds.",
            9,
            _ENGINES,
        ),
        counter("render_time", "s", "Part of that spent rendering.", 9, "gfx, render, rcs, fragment, gpu"),
        counter("compute_time", "s", "Part of that spent computing.", 9, "compute, ccs, csd"),
        counter("copy_time", "s", "Part of that spent copying.", 9, "dma, copy, bcs, tfu"),
        counter("video_time", "s", "Part of that spent encoding or decoding video.", 9, "enc, dec, jpeg, vcs, vecs"),
        gauge(
            "gpu_memory",
            "B",
            "Resident memory of its buffers, wherever it is.",
            0,
            "drm-resident-*, drm-memory-*, NVML RunningProcesses",
        ),
        gauge("card_memory", "B", "Part of that on graphics cards.", 0, "drm-resident-vram, drm-resident-local"),
        gauge("clients", "1", "Number of graphics clients it has open.", 0, "drm-client-id"),
    ),
    "process",
    "What processes use of graphics cards. A client that several processes share through a"
    " descriptor is counted for the first of them. What a process used before sysmond started is"
    " included if its client is still open.",
    Packing(_RECORD, ("pid", "start")),
    Answers(
        top=(("gpu_time",), ("gpu_memory",)),
        others_by=("uid",),
        show=(
            *("pid", "comm", "username", "card", "gpu_time", "gpu_time:sum"),
            *("gpu_memory:last", "card_memory:last", "clients:last"),
        ),
        show_groups=("gpu_time", "gpu_time:sum", "gpu_memory"),
        joins=(
            Join(":user", (("uid", "id"),), (("username", "name"),)),
            Join("command", _KEY, (("exe", "exe"), ("command", "command"))),
        ),
        ended_by=Ending("exits", _KEY, ("exit_code", "signal")),
        meant=(("user", "username"),),
        derived=(
            Derived("gpu_percent", "%", "gpu_time * 100", "Percentage of one engine; several may work for it at once."),
        ),
    ),
)
_PACK = Struct(_RECORD).pack


class Used:
    """Gives what changed."""

    def __init__(self, cards: drm.Cards | None = None) -> None:
        """Know nothing yet. ``cards``: those that there are."""
        self._cards = cards or drm.Cards()
        self._clients = drm_clients.Clients()
        self._rows: set[bytes] = set()

    def records(self, host: Host, *, full: bool) -> Records:
        """Give the processes of which something changed, or all."""
        told = self._cards.nvidia(host)
        uses = self._clients.read(host, nvml=None if isinstance(told, Absence) else told)
        refused = self._clients.unread
        lacking = f"; {refused} processes may not be looked into; expected CAP_SYS_PTRACE" if refused else ""
        host.tell_way(GPU_PROCESS.name, f"by fdinfo{' and NVML' if self._cards.has_nvidia else ''}{lacking}")
        rows = [_packed(use) for use in uses]
        changed = rows if full else [row for row in rows if row not in self._rows]
        self._rows = set(rows)
        return Records(b"".join(changed), full=full, lost=self._clients.left_out, walked=len(uses))


def _packed(use: drm_clients.Use) -> bytes:
    numbers = sum(use.by_kind_ns), *use.by_kind_ns[: drm_clients.OTHER], use.memory, use.own_memory
    return _PACK(
        use.start_ns,
        use.pid,
        use.uid,
        use.comm,
        use.card.encode()[:NAME_BYTES],
        *(min(each, NUMBER_MAX) for each in numbers),
        use.clients,
    )


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``gpu_process``, where there is a card."""
    needs = (f"{drm.FOLDER}/card*", f"{drm.NVIDIA}/*")
    return [
        Probe(
            GPU_PROCESS,
            interval_s=INTERVAL_S,
            lane=Lane.BACKGROUND,
            sensitivity=sensitivity(),
            subsystems=("drm",),
            needs=needs,
            privilege="CAP_SYS_PTRACE, for processes of others",
            records=Used().records,
        )
    ]
