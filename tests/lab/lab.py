# SPDX-License-Identifier: Apache-2.0
"""Boot a small machine, and check from inside it what only a whole machine with another kernel can show.

It has Debian's kernel and systemd, all controllers of cgroup v2, two nodes of memory, disks of its own, and the devices
of a laptop (``devices.asl``), which are plugged in, changed and pulled out from outside (``outside.py``). sysmond comes
there as a package built from this folder as it is. Checks are pytest's, and run as root; each is told as it ends.

    python tests/lab/lab.py [--shell] [ARGUMENT OF PYTEST ...]
    python tests/lab/lab.py tests/lab/devices.py -k battery

``CHECKS`` is what is run where no argument says it. It needs qemu, mmdebstrap, clang and, once, a mirror
of Debian (``LAB_MIRROR``); without KVM it takes half an hour. Exit code 0: all passed; 1: not; 2: it cannot run here.
"""

import argparse
import ctypes
import mmap
import os
import platform
import select
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
from tests.lab import image, outside

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FOLDER = REPOSITORY / "build/lab"
SHARE, CONSOLE = FOLDER / "share", FOLDER / "console.log"
MEMORY = (
    Path("/dev/shm") / f"sysmond-lab-{os.getpid()}"
)  # The upper half of its memory, in which the firmware's part is.
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "clang": "clang", "git": "git", **image.TOOLS}

CHECKS = (
    "tests/lab/controllers.py",
    "tests/lab/machine.py",
    "tests/lab/devices.py",
    "tests/lab/system.py",
    "tests/lab/wifi.py",
    "tests/lab/input.py",
    "tests/lab/smart.py",
    # What ordinary tests try with the kernel that is there, with this one: all ways to read processes.
    *(
        "tests/tasks/bpf/test_walk.py",
        "tests/tasks/bpf/test_bpf.py",
        "tests/tasks/command/test_execs.py",
        "tests/tasks/ends/test_exits.py",
    ),
    *("tests/tasks/test_ways.py", "tests/tasks/test_independent.py", "tests/tasks/test_odd_tasks.py"),
    *("tests/tasks/proc/test_proc.py", "tests/tasks/proc/test_proc_states.py", "tests/tasks/test_thread_states.py"),
    *("tests/daemon/test_tasks.py", "tests/tasks/test_access.py"),
    *("tests/tasks/test_cgroup_names.py", "tests/cgroups/test_tree.py"),
    # Samplers are killed faster than an emulated archiver seals what they leave: of more than 8 rings the oldest go.
    "--deselect=tests/tasks/test_odd_tasks.py::test_killing_every_part_loses_no_end_and_tells_none_twice",
    # An emulated processor misses ticks, of which /proc/stat is made.
    "--deselect=tests/tasks/test_independent.py::test_cpu_of_all_processes_is_that_of_the_machine",
)
"""What is run where nobody says it."""

SBIN = ":/usr/sbin:/sbin"  # Where mke2fs is, and others than root do not look.

MEMORY_MIB = 2048
PROCESSORS = 2
SCRATCH_BYTES = 256 << 20  # Of each disk beside that of the system: one to write to, one for swap.
PLUGGED_BYTES = 64 << 20  # Of those that are plugged in, or are there for their bus.
SILENCE_S = 900.0  # Longer than any check takes without KVM.
ENDED = "lab: ended "
# An emulated timer may be late: the kernel is not to try whether it works. A kernel that panics ends the machine.
KERNEL_ARGUMENTS = (
    "root=/dev/vda rw console=ttyS0 quiet no_timer_check panic=-1 net.ifnames=0 mitigations=off psi=1 hugepages=8"
    " systemd.default_device_timeout_sec=600 systemd.default_timeout_start_sec=600"
    f" zswap.enabled=1 zswap.max_pool_percent=50 memmap={outside.SAID_BYTES >> 10}K${outside.SAID_AT:#x}"
)


def missing(tools: Mapping[str, str] = TOOLS) -> str:
    """Say in one line what is not installed, by the Debian package of each tool; nothing where all is."""
    if platform.machine() != "x86_64":
        return f"this machine is {platform.machine()}; expected x86_64, which the image is for"
    lacking = [tool for tool in tools if shutil.which(tool) is None]
    packages = " ".join(dict.fromkeys(tools[tool] for tool in lacking))
    return f"{', '.join(lacking)} not installed (Debian: apt install {packages})" if lacking else ""


def package(into: Path, sources: Path) -> None:
    """Build the project as it is as a package, with what its tests need; ``sources`` is a folder to work in."""
    for folder in (sources, into):
        shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, sources / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--no-compile", "--target", str(into), str(sources)], check=True)
    for name in ("tests", "dbus", "pyproject.toml"):
        os.rename(sources / name, into / name)
    shutil.rmtree(sources)


def share(arguments: list[str]) -> None:
    """Put into the shared folder what the machine is to do, with the project built as a package."""
    shutil.rmtree(SHARE, ignore_errors=True)
    SHARE.mkdir()
    built = FOLDER / "package"
    package(built, FOLDER / "sources")
    with tarfile.open(SHARE / "package.tar", "w") as tar:  # One file: over the shared folder, a thousand take a minute.
        tar.add(built, ".")
    shutil.rmtree(built)
    shutil.copy(Path(__file__).with_name("guest.sh"), SHARE)
    (SHARE / "arguments").write_text(" ".join(map(shlex.quote, arguments)))


def accelerator() -> list[str]:
    """KVM where it is there; not in a machine that is virtual itself, where it may come upon what it cannot emulate."""
    is_virtual = "hypervisor" in Path("/proc/cpuinfo").read_text().split()
    has_kvm = os.access("/dev/kvm", os.R_OK | os.W_OK) and not is_virtual
    chosen = os.environ.get("LAB_ACCEL") or ("kvm" if has_kvm else "tcg,thread=multi,tb-size=512")
    # A processor without AVX2: sorting with it, numpy crashes where qemu 7.2 emulates it. With random numbers from the
    # start, which an emulated machine has few of.
    return ["-accel", chosen, "-cpu", "host" if chosen.startswith("kvm") else "Nehalem,+rdrand"]


def ticks_khz() -> int:
    """How fast the processor's counter of time runs, by which an emulated one goes, too.

    The kernel would find that out by a timer, which is late where others use the processor that emulates it: its clock
    then ran twenty times too fast, and whatever waits gave up at once.
    """
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
    ticks = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    began_ns, before = time.monotonic_ns(), int(ticks())
    time.sleep(1.0)
    ended_ns, after = time.monotonic_ns(), int(ticks())
    return round((after - before) * 1e6 / (ended_ns - began_ns))


def hardware() -> list[str]:
    """Its devices beside disks: memory in two nodes, sockets of USB and PCI Express, a network card, a SATA disk.

    ``nvme`` and ``stick`` are disks that wait to be plugged in, ``receiver`` is the line of a receiver of GPS.
    """
    half = MEMORY_MIB // 2
    words = ["-object", f"memory-backend-ram,id=near,size={half}M", "-numa", "node,memdev=near,cpus=0"]
    words += ["-object", f"memory-backend-file,id=far,size={half}M,mem-path={MEMORY},share=on,discard-data=on"]
    words += ["-numa", "node,memdev=far,cpus=1", "-global", "ICH9-LPC.disable_s3=0"]
    words += ["-device", "qemu-xhci,id=usb", "-device", "pcie-root-port,id=socket,chassis=1,slot=1"]
    words += ["-netdev", "user,id=net,restrict=on", "-device", "e1000e,netdev=net"]
    words += ["-chardev", f"socket,id=receiver,path={_socket('receiver')},server=on,wait=off"]
    for name in ("nvme", "stick", "sata"):
        words += ["-blockdev", f"driver=raw,node-name={name},file.driver=file,file.filename={FOLDER / name}.img"]
    return [*words, "-device", "ide-hd,drive=sata,bus=ide.0,serial=LABSATA,model=LABDISK"]


def command(made: image.Image, *, shell: bool) -> list[str]:
    """How qemu is called. What is written to the disks is forgotten with the machine."""
    words = ["nice", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    words += [*accelerator(), "-machine", "q35", "-acpitable", f"file={made.acpi}"]
    words += ["-smp", str(PROCESSORS), "-m", str(MEMORY_MIB), "-kernel", made.kernel, "-initrd", made.initrd]
    said = f"{KERNEL_ARGUMENTS} tsc_early_khz={ticks_khz()} {'systemd.mask=lab.service' if shell else ''}"
    words += ["-append", said, *hardware()]
    for disk in (made.root, str(FOLDER / "written.img"), str(FOLDER / "swap.img")):
        words += ["-drive", f"file={disk},format=raw,if=virtio,snapshot=on,cache=unsafe"]
    words += ["-virtfs", f"local,path={SHARE},mount_tag=host,security_model=none,readonly=on"]
    words += ["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
    if shell:
        return [*words, "-serial", "stdio"]
    words += ["-serial", f"file:{CONSOLE}", "-chardev", "file,id=told,path=/dev/stdout"]
    words += ["-device", "virtserialport,chardev=told,name=lab"]
    words += ["-qmp", f"unix:{_socket('monitor')},server=on,wait=off"]
    words += ["-chardev", f"socket,id=outside,path={_socket('outside')},server=on,wait=off"]
    return [*words, "-device", "virtserialport,chardev=outside,name=outside"]


def _socket(name: str) -> Path:
    """A socket of qemu's; its path has to be a short one."""
    return MEMORY.with_name(f"{MEMORY.name}-{name}")


def watch(words: list[str]) -> int:
    """Run the machine and tell what it tells; gives the exit code of the checks, 1 where they did not end."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as machine:
        assert machine.stdout is not None
        unfinished, code = b"", 1
        while select.select([machine.stdout], [], [], SILENCE_S)[0]:
            told = os.read(machine.stdout.fileno(), 65536)
            if not told:
                return code
            *lines, unfinished = (unfinished + told).split(b"\n")
            for line in (each.decode("utf-8", "replace").rstrip("\r") for each in lines):
                if line.startswith(ENDED):
                    code = int(line.removeprefix(ENDED))
                else:
                    print(line, flush=True)
        machine.kill()
    print(f"lab: nothing was told for {SILENCE_S:.0f} s, the machine was ended; {CONSOLE} has its console")
    return 1


def main() -> int:
    """Build what is missing, and run."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--shell", action="store_true", help="a shell on the machine instead, until 'poweroff'")
    chosen, arguments = options.parse_known_args()
    os.environ["PATH"] += SBIN
    if reason := missing():
        print(f"lab: {reason}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        made = image.disk(str(FOLDER))
        share(arguments or list(CHECKS))
    except subprocess.CalledProcessError as failure:
        print(f"lab: {failure.cmd[0]} failed, as it says above", file=sys.stderr)
        return 2
    sizes = dict.fromkeys(("written", "swap"), SCRATCH_BYTES) | dict.fromkeys(("nvme", "stick", "sata"), PLUGGED_BYTES)
    for name, size_bytes in sizes.items():
        with (FOLDER / f"{name}.img").open("wb") as disk:
            disk.truncate(size_bytes)
    words = command(made, shell=chosen.shell)
    try:
        with MEMORY.open("wb") as memory:
            memory.truncate(MEMORY_MIB << 19)
        outside.say(MEMORY, outside.AT_FIRST)
        if chosen.shell:
            return subprocess.run(words, check=False).returncode
        receiver = outside.Receiver(_socket("receiver"))
        receiver.start()
        outside.Obeying(_socket("outside"), _socket("monitor"), MEMORY, receiver).start()
        began_s = time.monotonic()
        code = watch(words)
    finally:
        for path in (MEMORY, *map(_socket, ("outside", "monitor", "receiver"))):
            path.unlink(missing_ok=True)
    print(f"lab: {'passed' if code == 0 else 'FAILED'} in {time.monotonic() - began_s:.0f} s")
    return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
