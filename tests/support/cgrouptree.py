# SPDX-License-Identifier: Apache-2.0
"""Machines with control groups, made of files: version 2 alone, version 1 alone, and both beside each other."""

from pathlib import Path

from sysmond.cgroups.batch import NOT_OPEN
from sysmond.cgroups.files import CgroupFiles, File
from sysmond.probe import Host

ROOT_LINE = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
V2_LINE = "30 1 0:26 / {} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
V1_LINE = "{} 1 0:{} / {} rw,nosuid - cgroup cgroup rw,{}\n"

# As Linux 6.12 writes them; see Documentation/admin-guide/cgroup-v2.rst.
SERVICE = {
    "cpu.stat": (
        "usage_usec 7250000\nuser_usec 5000000\nsystem_usec 2250000\nnice_usec 0\ncore_sched.force_idle_usec 0\n"
        "nr_periods 120\nnr_throttled 7\nthrottled_usec 350000\nnr_bursts 0\nburst_usec 0\n"
    ),
    "memory.current": "52428800\n",
    "pids.current": "17\n",
    "cpu.pressure": (
        "some avg10=2.25 avg60=0.85 avg300=0.24 total=3653689\nfull avg10=1.05 avg60=0.00 avg300=0.00 total=9\n"
    ),
    "memory.pressure": (
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    ),
    "io.pressure": (
        "some avg10=12.50 avg60=0.00 avg300=0.00 total=42\nfull avg10=100.00 avg60=0.00 avg300=0.00 total=41\n"
    ),
    "io.stat": (
        "8:0 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=4096 dios=1\n"
        "253:1 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.vrate=100.25 cost.usage=77 cost.wait=3"
        " cost.indebt=2 cost.indelay=1\n"
        "7:0 \n"
    ),
}
# Without controllers there are these.
BARE = {"cpu.stat": "usage_usec 10\nuser_usec 6\nsystem_usec 4\n"}


def put(root: Path, path: str, files: dict[str, str] | None = None) -> Path:
    """Make a folder below ``root`` with files in it."""
    folder = Path(f"{root}{path}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (files or {}).items():
        (folder / name).write_text(content, encoding="ascii")
    return folder


def mount(root: Path, *lines: str) -> None:
    """Write the mount table of a machine."""
    put(root, "/proc/self", {"mountinfo": "".join((ROOT_LINE, *lines))})


def v2(root: Path, point: str = "/sys/fs/cgroup") -> Path:
    """Make a machine with version 2 alone; gives the folder of its root cgroup."""
    mount(root, V2_LINE.format(point))
    return put(root, point, BARE)


def number(content: bytes) -> int:
    """Parse a file of one number."""
    return int(content)


class Machine:
    """A machine of version 2 with one file a cgroup, and a watch over it."""

    def __init__(self, root: Path, *files: File) -> None:
        self.top = v2(root)
        self.host = Host(str(root))
        self.watch = CgroupFiles(files or (File("", ("number",), number),))

    def put(self, path: str, **contents: object) -> Path:
        folder = Path(f"{self.top}{path}")
        folder.mkdir(exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_text(f"{content}\n")
        return folder

    def read(self, limit: int = 100, descriptors: int = 100) -> dict[str, list[object]]:
        self.host.new_tick()
        return {group.path: list(group.parts) for group in self.watch.read(self.host, limit, descriptors)}

    def descriptors(self) -> list[int]:
        batches = [batch for by_parent in self.watch._batches for batch in by_parent.values()]
        return [number for batch in batches for number in batch._descriptors if number != NOT_OPEN]

    def ages(self) -> dict[str, int | None]:
        self.host.new_tick()
        return {group.path: group.age for group in self.watch.read(self.host, 100, 100)}
