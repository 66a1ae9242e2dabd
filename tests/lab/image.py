# SPDX-License-Identifier: Apache-2.0
"""The disk of the lab's machine: a small Debian with systemd, and what sysmond needs of other projects.

It is built once, from the packages of a Debian mirror, and again when the recipe here changes. Nothing of sysmond is in
it: that comes with each start, by the shared folder.
"""

import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

DEVICES = Path(__file__).with_name("devices.asl")
SUITE = "trixie"
SIZE_BYTES = 3 << 30  # Sparse; a third of it is used.
TOOLS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
"""What it is built with, and the Debian package of each."""

PACKAGES = (
    *("systemd", "systemd-sysv", "libpam-systemd", "udev", "dbus", "kmod"),
    *("linux-image-amd64", "initramfs-tools", "zstd"),
    *("libbpf1", "python3", "python3-dbus-fast", "python3-h5py", "python3-numpy", "python3-pluggy", "python3-pytest"),
    *("python3-hypothesis", "python3-rich", "python3-yaml", "procps", "strace", "gcc", "libc6-dev"),
    # What says the same as a table of ours, and what devices are made with.
    *(
        "acpica-tools",
        "dmsetup",
        "e2fsprogs",
        "ethtool",
        "i2c-tools",
        "iproute2",
        "libsensors5",
        "lm-sensors",
        "mdadm",
        "upower",
    ),
    *(
        "hostapd",
        "iw",
        "wireless-regdb",
        "smartmontools",
        "nfs-common",
        "nfs-kernel-server",
        "python3-evdev",
        "usbutils",
    ),
)

FILES = {
    "etc/hostname": "lab\n",
    "etc/fstab": "/dev/vda / ext4 defaults,noatime 0 0\n"
    "host /host 9p trans=virtio,version=9p2000.L,msize=262144,cache=none 0 0\n",
    # What the host puts into the shared folder is what the machine is for; then it is switched off.
    "etc/systemd/system/lab.service": """[Unit]
Description=What the host asks for
RequiresMountsFor=/host
After=systemd-user-sessions.service
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=idle
Delegate=yes
ExecStart=/bin/sh /host/guest.sh
StandardOutput=file:/dev/virtio-ports/lab
StandardError=inherit
[Install]
WantedBy=multi-user.target
""",
    # For a look by hand.
    "etc/systemd/system/serial-getty@ttyS0.service.d/root.conf": """[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --keep-baud 115200 %I vt220
""",
}
MODULES = ("virtio_pci", "virtio_blk", "ext4")
"""What the kernel needs before it has a root file system."""

# In a hook, $1 is the new root. Only the plain one that is bound is without /proc and other mounts in it.
PREPARE = (
    'cd "$1"',
    "mkdir -p etc/initramfs-tools/conf.d usr/share/initramfs-tools/modules.d",
    f"printf '%s\\n' {' '.join(MODULES)} >usr/share/initramfs-tools/modules.d/lab",
    "printf 'MODULES=list\\nCOMPRESS=zstd\\nRESUME=none\\n' >etc/initramfs-tools/conf.d/lab",
)
FINISH = (
    'cd "$1"',
    "chroot . passwd --quiet --delete root",
    "chroot . systemctl --quiet enable lab.service",
    "mkdir host",
    'cat boot/vmlinuz-* >"$LAB_KERNEL"',
    'cat boot/initrd.img-* >"$LAB_INITRD"',
    "rm -f boot/initrd.img-* var/cache/apt/archives/*.deb",
    # A check starts what it wants of these.
    "chroot . systemctl --quiet mask hostapd smartmontools rpcbind.service rpcbind.socket",
    "chroot . systemctl --quiet disable nfs-server",
    "chroot . iasl -p /tmp/devices /etc/devices.asl >/dev/null",
    'cat tmp/devices.aml >"$LAB_ACPI" && rm tmp/devices.aml',
    "mount --bind . mnt",
    'mke2fs -q -t ext4 -E lazy_itable_init=1 -d mnt "$LAB_ROOT"',
    "umount mnt",
)


class Image(NamedTuple):
    """The files that a machine is booted from: root file system, kernel, initial RAM disk, ACPI table of devices."""

    root: str
    kernel: str
    initrd: str
    acpi: str


MADE = Image("root.img", "vmlinuz", "initrd.img", "devices.aml")


def disk(folder: str) -> Image:
    """Name the files of an image in a folder, after building them where that is to be done.

    :raises CalledProcessError: where they cannot be built; mmdebstrap has said why.
    """
    mirror = os.environ.get("LAB_MIRROR", "")
    recipe = zlib.crc32(repr((SUITE, PACKAGES, FILES, PREPARE, FINISH, SIZE_BYTES, DEVICES.read_text())).encode())
    built = os.path.join(folder, f"image-{recipe:08x}")
    if not os.path.isdir(built):
        print(f"lab: building an image of Debian {SUITE}; some minutes, once", file=sys.stderr)
        unfinished = built + ".unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished)
        _build(unfinished, mirror)
        for each in os.listdir(folder):
            if each.startswith("image-") and each != os.path.basename(unfinished):
                shutil.rmtree(os.path.join(folder, each))
        os.rename(unfinished, built)
    return Image._make(os.path.join(built, each) for each in MADE)


def _build(folder: str, mirror: str) -> None:
    places = {f"LAB_{what.upper()}": os.path.join(folder, name) for what, name in MADE._asdict().items()}
    for place in places.values():
        with open(place, "wb"):
            os.chmod(place, 0o666)  # noqa: S103  in a user namespace the hooks are somebody else
    os.truncate(places["LAB_ROOT"], SIZE_BYTES)
    overlay = os.path.join(folder, "files")
    for path, text in {**FILES, "etc/devices.asl": DEVICES.read_text()}.items():
        os.makedirs(os.path.dirname(os.path.join(overlay, path)), exist_ok=True)
        with open(os.path.join(overlay, path), "w", encoding="utf-8") as file:
            file.write(text)
    command = ["mmdebstrap", "--variant=minbase", "--format=null", f"--include={','.join(PACKAGES)}"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{each}/*" for each in ("doc", "man", "locale")]
    command += ["--dpkgopt=force-unsafe-io", f"--essential-hook={' && '.join(PREPARE)}"]
    command += [f"--customize-hook=sync-in '{overlay}' /", f"--customize-hook={' && '.join(FINISH)}"]
    command += [SUITE, "/dev/null", *([f"deb {mirror} {SUITE} main"] if mirror else [])]
    subprocess.run(command, check=True, env={**os.environ, **places, "LC_ALL": "C.UTF-8"})
    shutil.rmtree(overlay)
