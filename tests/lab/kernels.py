# SPDX-License-Identifier: Apache-2.0
"""Boot one kernel of Debian after the other with a minimal image, and have each read by every way, BPF and others.

    python tests/lab/kernels.py [NAME ...]

``KERNELS`` names them; the newest of each is fetched from a mirror of Debian (``LAB_MIRROR``). What works where goes
into docs/kernels.json and the table of docs/tasks.md. A kernel takes at most two minutes without KVM. Exit code 0: each
gave what it should; 1: one takes a program or a way away that it should have; 2: it cannot run here.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
from sysmond.tasks.bpf.loader import PROGRAMS
from tests.lab import lab
from tests.lab.ways import WAYS

FOLDER = lab.REPOSITORY / "build/lab-kernels"
FIGURES, DOCUMENT = lab.REPOSITORY / "docs/kernels.json", lab.REPOSITORY / "docs/tasks.md"
BEGIN, END = "<!-- booted: make lab-kernels writes what follows -->", "<!-- end of booted -->"
TOOLS = {"apt-get": "apt", "dpkg-deb": "dpkg", **lab.TOOLS}


class Kernel(NamedTuple):
    """A kernel of Debian: of the newest in its suites."""

    name: str
    suites: tuple[str, ...]


KERNELS = (
    Kernel("Debian 11", ("bullseye", "bullseye-security")),
    Kernel("Debian 12", ("bookworm", "bookworm-security")),
    Kernel("Debian 13", ("trixie", "trixie-security")),
    Kernel("backports", ("trixie-backports",)),
    Kernel("unstable", ("sid",)),
)
MIRROR, SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# The metapackage; what has the kernel itself in it was split from its image in 2026.
IMAGE = "linux-image-amd64"
_WITH_KERNEL = ("linux-binary-", "linux-image-")

SUITE, PACKAGES = "trixie", ("base-files", "python3", "libbpf1")
UNUSED = ("./usr/share/", "./var/", "./usr/lib/python3/", "./usr/lib/python3.13/idlelib", "./usr/lib/python3.13/test")
MEMORY_MIB = 1024
LIMIT_S = 300.0
_INODES = itertools.count(1)
# The machine's own console is the first port; what the guest tells comes by the second.
ARGUMENTS = "console=ttyS0 quiet mitigations=off panic=-1 rdinit=/init"
INIT = b"""#!/usr/bin/python3 -IS
import os
surroundings = {"PYTHONPATH": "/project", "PATH": "/usr/bin"}
os.execve("/usr/bin/python3", ["python3", "-P", "-m", "tests.lab.ways"], surroundings)
"""

Found = dict[str, Any]


# --- What is booted


class Apt:
    """apt with an index of its own: of the suites that have the kernels, whatever this machine is."""

    def __init__(self, folder: Path) -> None:
        """Fetch the index.

        :raises CalledProcessError: where there is no mirror.
        """
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        trusted = f"signed-by={KEYRING}" if os.path.exists(KEYRING) else ""
        mirrors = {False: os.environ.get("LAB_MIRROR") or MIRROR, True: os.environ.get("LAB_SECURITY") or SECURITY}
        suites = [suite for kernel in KERNELS for suite in kernel.suites]
        lines = (f"deb [arch=amd64 {trusted}] {mirrors[suite.endswith('-security')]} {suite} main" for suite in suites)
        (folder / "sources.list").write_text("\n".join(lines) + "\n")
        settings = {
            "Dir::State": folder, "Dir::State::lists": folder / "lists", "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache", "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": "/nonexistent", "APT::Architecture": "amd64", "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false", "APT::Sandbox::User": "root",
        }  # fmt: skip
        self._options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        self._said("apt-get", "update")

    def _said(self, program: str, *words: str, folder: Path | None = None) -> str:
        command = [program, "--quiet", *self._options, *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder).stdout

    def newest(self, kernel: Kernel) -> tuple[str, str]:
        """The package that has the newest kernel of some suites in it, and its version."""
        versions = (line.split("|") for line in self._said("apt-cache", "madison", IMAGE).splitlines())
        version = next(v.strip() for _, v, source in versions if source.split()[1].split("/")[0] in kernel.suites)
        package = IMAGE
        while True:
            depends = re.search(
                "^Depends: (.*)$", self._said("apt-cache", "show", f"{package}={version}"), re.MULTILINE
            )
            names = re.findall(r"(linux-[a-z]+-\d\S*) \(= ", depends[1]) if depends else []
            inner = next((name for prefix in _WITH_KERNEL for name in names if name.startswith(prefix)), "")
            if not inner:
                return package, version
            package = inner

    def fetch(self, package: str, version: str, folder: Path) -> Path:
        """Fetch a package."""
        folder.mkdir()
        self._said("apt-get", "download", f"{package}={version}", folder=folder)
        return next(folder.glob("*.deb"))


def kernel_image(apt: Apt, kernel: Kernel) -> Path:
    """The image of the newest of some kernels, fetched where it is not there yet."""
    package, version = apt.newest(kernel)
    image = FOLDER / f"vmlinuz-{package}-{version}"
    if not image.exists():
        folder = FOLDER / "fetched"
        shutil.rmtree(folder, ignore_errors=True)
        archive = apt.fetch(package, version, folder)
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as unpacking:
            for member in (tar := tarfile.open(fileobj=unpacking.stdout, mode="r|")):  # noqa: SIM115  closed with it
                name = os.path.basename(member.name)
                if name.startswith("vmlinuz") and member.isfile() and (content := tar.extractfile(member)):
                    (folder / "vmlinuz").write_bytes(content.read())
            (folder / "vmlinuz").rename(image)
        shutil.rmtree(folder)
    return image


def root() -> Path:
    """An archive of a root file system with Python and libbpf; made where it is not there yet."""
    archive = FOLDER / f"root-{zlib.crc32(repr((SUITE, PACKAGES)).encode()):08x}.tar"
    if not archive.exists():
        print("lab-kernels: fetching Python and libbpf; a minute, once", file=sys.stderr)
        unfinished = archive.with_suffix(".unfinished.tar")
        mirror = os.environ.get("LAB_MIRROR")
        command = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(PACKAGES)}"]
        command += [SUITE, str(unfinished)]
        subprocess.run([*command, *([f"deb {mirror} {SUITE} main"] if mirror else [])], check=True)
        unfinished.rename(archive)
    return archive


def initial_ram(into: Path) -> None:
    """Write what the kernel unpacks into its first file system: the root, the project as a package, and what runs."""
    package = FOLDER / "package"
    lab.package(package, FOLDER / "sources")
    with into.open("wb") as file:
        with tarfile.open(root()) as tar:
            for member in tar:
                if member.name.startswith(UNUSED):
                    continue
                if member.issym():
                    file.write(_entry(member.name, stat.S_IFLNK | 0o777, os.fsencode(member.linkname)))
                elif member.isdir():
                    file.write(_entry(member.name, stat.S_IFDIR | member.mode, b""))
                elif content := tar.extractfile(member):
                    file.write(_entry(member.name, stat.S_IFREG | member.mode, content.read()))
        for path in (package, *sorted(package.rglob("*"))):
            name = f"project/{path.relative_to(package)}"
            file.write(_entry(name, path.stat().st_mode, b"" if path.is_dir() else path.read_bytes()))
        file.write(_entry("init", stat.S_IFREG | 0o755, INIT))
        file.write(_entry("TRAILER!!!", 0, b""))
    shutil.rmtree(package)


def _entry(name: str, mode: int, content: bytes) -> bytes:
    """A file of an archive as Documentation/driver-api/early-userspace/buffer-format.rst has it."""
    path = os.fsencode(os.path.normpath(name)) + b"\0"
    numbers = (next(_INODES), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08x" % number for number in numbers) + path
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)


# --- What is found


def booted(image: Path, ram: Path) -> Found:
    """Boot a kernel and have it try everything; what it tells, and how long that took.

    :raises RuntimeError: where it tells nothing.
    """
    console = FOLDER / f"console-{image.name.removeprefix('vmlinuz-')}.log"
    command = ["nice", "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    command += [*lab.accelerator(), "-machine", "q35", "-smp", "2", "-m", str(MEMORY_MIB)]
    command += ["-kernel", str(image), "-initrd", str(ram), "-append", ARGUMENTS]
    command += ["-serial", f"file:{console}", "-serial", "stdio"]
    began_s = time.monotonic()
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
        found: Found = json.loads(ran.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError) as failure:
        raise RuntimeError(f"{image.name}: told nothing ({failure}); {console} has its console") from None
    return {**found, "seconds": round(time.monotonic() - began_s)}


def complaints(found: Found) -> list[str]:
    """What a kernel takes away that it should have: programs by their version, and all that needs none."""
    since = {name: way.since for name, way in WAYS.items()} | {each.name: each.since for each in PROGRAMS}
    return [
        f"{found['release']}: {name}: {why}"
        for name, why in found["ways"].items()
        if why and _version(found["release"]) >= _version(since[name] or "0.0")
    ]


def _version(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")[:2]))


def table(found: Mapping[str, Found]) -> str:
    """The table of the document: what works where, and why not."""
    releases = [f"{name}: {each['release'].removesuffix('-amd64')}" for name, each in found.items()]
    lines = [f"| | gives | {' | '.join(releases)} |", "|---|---|" + "---|" * len(found)]
    reasons: dict[str, list[str]] = {}
    for name, way in WAYS.items():
        cells = []
        for each in found.values():
            why = each["ways"][name]
            cells.append("–" if why else "yes")
            if why:
                reasons.setdefault(why, []).append(f"{way.label} on {each['release'].removesuffix('-amd64')}")
        lines.append(f"| {way.label} | {way.gives} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"- {', '.join(where)}: {why}." for why, where in reasons.items())])


def document(content: str, found: Mapping[str, Found]) -> str:
    """The document with its table written anew.

    :raises ValueError: where the marks are gone between which it stands.
    """
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT}: expected the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}"


def main() -> int:
    """Boot what is asked for, and write what was found."""
    names = [kernel.name for kernel in KERNELS]
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; default all")
    chosen = options.parse_args().names or names
    if unknown := sorted(set(chosen) - set(names)):
        options.error(f"{unknown[0]!r}: no such kernel; {', '.join(names)} are")
    os.environ["PATH"] += lab.SBIN
    if reason := lab.missing(TOOLS):
        print(f"lab-kernels: {reason}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    wrong, known = [], json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    try:
        apt, ram = Apt(FOLDER / "apt"), FOLDER / "initrd.cpio"
        initial_ram(ram)
        images = {kernel.name: kernel_image(apt, kernel) for kernel in KERNELS if kernel.name in chosen}
    except subprocess.CalledProcessError as failure:
        print(f"lab-kernels: {failure.cmd[0]} failed, as it says above", file=sys.stderr)
        return 2
    for name, image in images.items():
        try:
            known[name] = booted(image, ram)
        except RuntimeError as failure:
            wrong.append(str(failure))
            continue
        wrong += complaints(known[name])
        print(f"lab-kernels: {name}, {known[name]['release']}: {known[name]['seconds']} s", flush=True)
    for line in wrong:
        print(f"lab-kernels: FAILED: {line}")
    known = {name: known[name] for name in names if name in known}
    FIGURES.write_text(json.dumps(known, indent=1) + "\n")
    DOCUMENT.write_text(document(DOCUMENT.read_text(), known))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
