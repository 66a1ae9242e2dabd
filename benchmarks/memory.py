# SPDX-License-Identifier: Apache-2.0
"""What the parts hold in memory while they do nothing but record.

Resident memory of a part without the rings that it maps, and the proportional set size of all parts
together (each shared page counted once), from /proc/PID/smaps and smaps_rollup. What the kernel keeps for maps of BPF
programs, mapped by a part or not, from the maps' fdinfo; what it keeps with each task is not in that. A megabyte is
1,000,000 bytes.
"""

import os
import sys
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from benchmarks import measure
from benchmarks.measure import Figures
from sysmond.tasks.bpf import bpffs, pins

SECONDS = 60
_KIB = 1024


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) * _KIB for line in file if line.startswith("Pss:"))


def rss_bytes(pid: int) -> tuple[int, int]:
    """Resident memory of a process: without the rings, and in them."""
    own = rings = 0
    in_ring = False
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):  # A mapping; the lines after it are about it.
                in_ring = line.rstrip().removesuffix(" (deleted)").endswith((".ring", ".ring.new"))
            elif words[0] == "Rss:":
                if in_ring:
                    rings += int(words[1]) * _KIB
                else:
                    own += int(words[1]) * _KIB
    return own, rings


def kernel_bytes(runtime: str) -> int:
    """What the kernel keeps for the maps that are pinned for a runtime folder."""
    with bpffs.opened(runtime) as pinned:
        folder, names = pinned.path, pinned.names()
    total = 0
    for name in names:
        if os.path.isdir(f"{folder}/{name}"):
            continue
        descriptor = pins.opened(f"{folder}/{name}")
        try:
            with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
                fields = dict(line.split(":", 1) for line in file if ":" in line)
            if "map_type" in fields:
                total += int(fields["memlock"])
        finally:
            os.close(descriptor)
    return total


def measured(seconds: int) -> Figures:
    """Let the daemon record for so many seconds, and look."""
    with measure.daemon(1) as first:
        first.process.wait(60)  # Whatever had to be compiled is by now.
    with measure.daemon(seconds + 60) as daemon:
        daemon.wait_for_ring()
        time.sleep(seconds)
        pids = daemon.pids()
        resident = {part: rss_bytes(pid) for part, pid in pids.items()}
        shares = {part: pss_bytes(pid) for part, pid in pids.items()}
        in_kernel = kernel_bytes(daemon.folders.runtime)
        in_shared_memory = sum(
            os.stat(os.path.join(folder, name)).st_blocks * 512
            for folder, _, names in os.walk(daemon.folders.runtime)
            for name in names
        )
    return {
        "sampler_rss_mb": _mb(resident["sampler"][0]),
        "pss_mb": _mb(sum(shares.values())),
        "seconds": seconds,
        "rss_mb": {part: _mb(own) for part, (own, _) in resident.items()},
        "ring_rss_mb": {part: _mb(rings) for part, (_, rings) in resident.items()},
        "pss_mb_by_part": {part: _mb(share) for part, share in shares.items()},
        "runtime_folder_mb": _mb(in_shared_memory),
        "kernel_mb": _mb(in_kernel),
    }


def _mb(size_bytes: int) -> float:
    return round(size_bytes / 1e6, 2)


def rows(figures: Figures) -> list[tuple[str, str]]:
    """Tell it to people."""
    lines = [
        ("sampler, resident without its ring", f"{figures['sampler_rss_mb']:.1f} MB"),
        ("all parts, proportional set size", f"{figures['pss_mb']:.1f} MB"),
    ]
    for part, share in figures["pss_mb_by_part"].items():
        own, ring = figures["rss_mb"][part], figures["ring_rss_mb"][part]
        lines.append((f"  {part}", f"{share:.1f} MB (resident {own:.1f}, and {ring:.1f} of rings)"))
    lines.append(("maps of BPF programs in the kernel", f"{figures['kernel_mb']:.1f} MB"))
    lines.append(("rings and segments in RAM", f"{figures['runtime_folder_mb']:.1f} MB"))
    return lines


if __name__ == "__main__":
    parser = measure.arguments(__doc__)
    parser.add_argument("--seconds", type=measure.at_least_one, default=SECONDS, help=f"default {SECONDS}")
    options = parser.parse_args()
    measure.run(lambda: measured(options.seconds), rows, as_json=options.json)
