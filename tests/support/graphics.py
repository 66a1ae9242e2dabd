# SPDX-License-Identifier: Apache-2.0
"""A machine with hybrid graphics, and processes that hold its cards: a /proc and a /sys below a folder.

The fdinfo are after the kernel's ``Documentation/gpu/drm-usage-stats.rst`` and the sources of amdgpu and xe.
"""

import shutil
from pathlib import Path

from sysmond.base.clock import SECOND_NS
from sysmond.probe import Host
from sysmond.sources.drm_clients import Clients, Use
from tests.support import sysfs

AMDGPU = b"""pos:\t0
flags:\t02100002
mnt_id:\t27
ino:\t1107
drm-driver:\tamdgpu
drm-client-id:\t%d
drm-pdev:\t0000:c4:00.0
pasid:\t32774
drm-total-vram:\t20480 KiB
drm-shared-vram:\t0
drm-resident-vram:\t10240 KiB
drm-total-gtt:\t2 MiB
drm-resident-gtt:\t2 MiB
drm-memory-vram:\t10240 KiB
drm-memory-gtt: \t2048 KiB
drm-memory-cpu: \t512 KiB
amd-evicted-vram:\t0 KiB
drm-engine-gfx:\t%d ns
drm-engine-compute:\t300 ns
drm-engine-capacity-compute:\t4
drm-engine-enc_1:\t50 ns
drm-engine-dma:\t7 ns
"""
XE = b"""drm-driver:\txe
drm-client-id:\t9
drm-pdev:\t0000:03:00.0
drm-total-system:\t0
drm-total-vram0:\t4 MiB
drm-resident-vram0:\t3 MiB
drm-cycles-rcs:\t%d
drm-total-cycles-rcs:\t%d
drm-cycles-ccs:\t0
drm-total-cycles-ccs:\t%d
drm-engine-capacity-ccs:\t4
"""


class Machine:
    """The laptop with hybrid graphics, and processes with descriptors."""

    def __init__(self, root: Path) -> None:
        self.root = sysfs.build(root, "laptop", "gpu")
        for node, address in (("renderD128", "0000:c4:00.0"), ("renderD129", "0000:03:00.0")):
            (device,) = self.root.glob(f"sys/devices/pci0000:00/*/{address}")
            path = f"/{device.relative_to(self.root / 'sys')}/drm/{node}"
            sysfs.devices(self.root, f"P: {path}\nE: SUBSYSTEM=drm\nL: device=../../../{address}")
        (self.root / "proc").mkdir(exist_ok=True)
        self.host = Host(str(self.root))
        self.clients = Clients()
        self.now_ns = 0

    def runs(self, pid: int, start: int = 500, comm: str = "game") -> None:
        fields = " ".join(["0"] * 18)
        (self.root / f"proc/{pid}/fd").mkdir(parents=True, exist_ok=True)
        (self.root / f"proc/{pid}/fdinfo").mkdir(exist_ok=True)
        (self.root / f"proc/{pid}/stat").write_text(f"{pid} ({comm}) S {fields} {start} 0 0\n")

    def opens(self, pid: int, descriptor: int, content: bytes, node: str = "renderD128") -> None:
        link = self.root / f"proc/{pid}/fd/{descriptor}"
        link.unlink(missing_ok=True)
        link.symlink_to(f"/dev/dri/{node}")
        (self.root / f"proc/{pid}/fdinfo/{descriptor}").write_bytes(content)

    def closes(self, pid: int, descriptor: int) -> None:
        (self.root / f"proc/{pid}/fd/{descriptor}").unlink()
        (self.root / f"proc/{pid}/fdinfo/{descriptor}").unlink()

    def ends(self, pid: int) -> None:
        shutil.rmtree(self.root / f"proc/{pid}")

    def read(self) -> dict[int, Use]:
        self.now_ns += 5 * SECOND_NS
        self.host.new_tick()
        return {use.pid: use for use in self.clients.read(self.host, self.now_ns)}
