# SPDX-License-Identifier: Apache-2.0
"""Build the packages in a Debian of their own, and check them there: ``make package``, ``make check-package``.

Needs root, ``mmdebstrap`` and a mirror (``PACKAGE_MIRROR``, or that of mmdebstrap). The check builds a second
time with another folder, day, locale, zone and umask and compares the bytes; asks lintian everything; and installs into
a Debian without anything else, has the installed programs record and answer, removes, and purges. ``--release`` does
the same in an Ubuntu. Exit code 0: all passed; 1: not; 2: it cannot run here.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Release(NamedTuple):
    """What is built in, and where that is to be had. ``keys``: who signs it, where apt here does not know that.

    ``of_others``: what its lintian says of a package that is written for another release, and is right there.
    """

    name: str
    suite: str
    mirror: str = ""
    components: str = "main"
    keys: str = ""
    keys_package: str = ""
    of_others: tuple[str, ...] = ()


RELEASES = (
    Release("Debian 13", "trixie"),
    Release(
        "Ubuntu 26.04",
        "resolute",
        "https://archive.ubuntu.com/ubuntu",
        "main universe",
        "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        "ubuntu-keyring",
        (
            *("bad-distribution-in-changes-file", "out-of-date-standards-version"),
            *("redundant-priority-optional-field", "redundant-rules-requires-root-no-field"),
        ),
    ),
)
# What apt inside trusts when it asks a mirror by https: what it trusts outside.
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
BUILDERS = ("build-essential", "devscripts", "equivs", "faketime", "lintian", "locales-all")
# What sysmond's own folders are when it is installed, and whose they are for.
CONFIGURATION = "etc/sysmond/sysmond.yaml"
ARCHIVE = "var/lib/sysmond"
ONE, OTHER = "/build/one/sysmond", "/build/another/further-down/sysmond-0"
DIFFERENT = {"LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Kiritimati", "HOME": "/nowhere"}


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="check what was built, too")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="where the packages go (default: dist)")
    names = [release.suite for release in RELEASES]
    parser.add_argument("--release", choices=names, default=names[0], help=f"what to build in (default: {names[0]})")
    words = parser.parse_args()
    release = RELEASES[names.index(words.release)]
    if why := why_not(release):
        print(f"package: {why}", file=sys.stderr)
        return 2
    work = ROOT / "build/package"
    work.mkdir(parents=True, exist_ok=True)
    builder = tree(work, release, "builder", BUILDERS, with_build_dependencies=True)
    packages = build(builder, ONE, words.into)
    passed(f"{', '.join(path.name for path in packages)} in {words.into}")
    if not words.check:
        return 0
    with tempfile.TemporaryDirectory(dir=work) as again:
        others = build(builder, OTHER, Path(again), umask=0o027, faked="+400d", **DIFFERENT)
        differing = [path.name for path, other in zip(packages, others, strict=True) if digest(path) != digest(other)]
    assert not differing, f"not the same when built elsewhere: {differing}"
    passed("two builds gave the same bytes")
    # Whoever ships a package puts their own address there; the one in debian/ is for those who build for themselves.
    ignored = ("bogus-mail-host", "bogus-mail-host-in-debian-changelog", *release.of_others)
    asked = f"--suppress-tags {','.join(ignored)} --allow-root --pedantic --display-info --fail-on none"
    inside(
        builder, ["sh", "-c", f'said=$(lintian {asked} /build/one/*.changes) && echo "$said" >&2 && test -z "$said"']
    )
    passed("lintian has nothing to say, pedantic")
    check_installed(tree(work, release, "bare"), packages, work)
    sys.path.append(str(ROOT))
    from tests.packaging import boot  # noqa: PLC0415  it reads archives, as who only builds cannot

    if why := boot.why_not():
        passed(f"not booted: {why}")
        return 0
    boot.check(tree(work, release, "machine", boot.INCLUDE), packages, work)
    passed("a machine was booted with them")
    return 0


def why_not(release: Release) -> str:
    """Why it cannot run here; nothing where it can."""
    if os.geteuid() != 0:
        return f"needs root, to enter the {release.name} that it builds in"
    lacking = [tool for tool in ("mmdebstrap", "unshare", "git") if shutil.which(tool) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed (Debian: apt-get install mmdebstrap util-linux git)"
    if release.keys and not os.path.exists(release.keys):
        return f"{release.keys}: not there, to trust {release.name} (Debian: apt-get install {release.keys_package})"
    return ""


def passed(what: str) -> None:
    """Say what was checked."""
    print(f"package: {what}", flush=True)


def tree(
    work: Path, release: Release, name: str, include: Sequence[str] = (), *, with_build_dependencies: bool = False
) -> Path:
    """Give the root of a release, made once: to build in, or one to copy, with these packages and what they need."""
    control = (ROOT / "debian/control").read_bytes() if with_build_dependencies else b""
    recipe = zlib.crc32(control + repr((release.suite, release.mirror, release.components, include)).encode())
    root = work / f"{name}-{release.suite}-{recipe:08x}"
    if root.is_dir():
        return root
    unfinished = root.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    passed(f"making {release.name} below {work.name}; once")
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--format=directory", "--mode=root"]
    command += ["--dpkgopt=force-unsafe-io", "--skip=cleanup/apt/lists"]
    mirror = os.environ.get("PACKAGE_MIRROR", release.mirror)
    if mirror.startswith("https:"):
        include = (*include, "ca-certificates")
        command += [f"--customize-hook=upload '{CERTIFICATES}' '{CERTIFICATES}'"]
    command += [f"--include={','.join(('apt', *include))}"]  # What is essential in an Ubuntu has none.
    if with_build_dependencies:
        install = "cd /tmp && apt-get -qq -y --no-install-recommends build-dep ./control-of >/dev/null"
        command += ['--customize-hook=mkdir -p "$1/tmp/control-of/debian"']
        command += [f"--customize-hook=cp '{ROOT}/debian/control' \"$1/tmp/control-of/debian\""]
        command += [f'--customize-hook=chroot "$1" sh -c "{install}"']
    command += [f"--keyring={release.keys}"] if release.keys else []
    source = f"deb {mirror} {release.suite} {release.components}"
    command += [release.suite, str(unfinished), *([source] if mirror else [])]
    subprocess.run(command, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    unfinished.rename(root)
    return root


def inside(root: Path, command: Sequence[str], *, log: Path | None = None, **environment: str) -> None:
    """Run a command in a Debian, with a /proc of its own that goes with it."""
    clean: Mapping[str, str] = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "HOME": "/root",
        "DEBIAN_FRONTEND": "noninteractive",
        **environment,
    }
    # Its root is a mount, as that of every machine is: the archiver writes to nothing that is not mounted.
    mounts = 'mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    enter = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", mounts, str(root), *command]
    if log is None:
        subprocess.run(enter, check=True, env=clean)
        return
    with log.open("wb") as output:
        done = subprocess.run(enter, check=False, env=clean, stdout=output, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.stderr.write("".join(log.read_text(errors="replace").splitlines(keepends=True)[-40:]))
        raise SystemExit(f"package: it could not be built; all of it is in {log}")


def build(root: Path, folder: str, into: Path, umask: int = 0o022, faked: str = "+0", **environment: str) -> list[Path]:
    """Build what git knows of the sources in a folder of a Debian; move the packages out."""
    target = Path(f"{root}{folder}")
    shutil.rmtree(target.parent, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
        copy.chmod(0o777 & ~umask if os.access(ROOT / name, os.X_OK) else 0o666 & ~umask)
    words = f"umask {umask:o}; cd {folder} && exec faketime -f {faked} dpkg-buildpackage --no-sign --build=full"
    inside(root, ["sh", "-c", words], log=root.parent / f"{target.parent.name}.log", **environment)
    into.mkdir(parents=True, exist_ok=True)
    made = []
    for package in sorted(target.parent.glob("*.deb")):
        made.append(into / package.name)
        shutil.copyfile(package, made[-1])
    return made


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_installed(bare: Path, packages: Sequence[Path], work: Path) -> None:
    """Install into a copy of what has nothing else, record, remove and purge."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        root = Path(folder) / "root"
        subprocess.run(["cp", "-a", bare, root], check=True)
        for path in packages:
            shutil.copy(path, root / "tmp")
        shutil.copy(ROOT / "debian/tests/records", root / "tmp")
        quietly = "apt-get -qq -y --no-install-recommends -o Dpkg::Use-Pty=0"
        inside(root, ["sh", "-c", f"{quietly} install /tmp/*.deb >/tmp/log 2>&1 || {{ cat /tmp/log; exit 1; }}"])
        passed("installed")
        inside(root, ["sh", "/tmp/records"])
        changed = (root / CONFIGURATION).read_text() + "# Mine.\n"
        (root / CONFIGURATION).write_text(changed)
        (root / ARCHIVE / "kept").write_text("recorded")
        inside(root, ["sh", "-c", f"{quietly} install --reinstall /tmp/*.deb >/tmp/log 2>&1"])
        assert (root / CONFIGURATION).read_text() == changed, "installing again changed the configuration"
        inside(root, ["sh", "-c", f"{quietly} remove sysmond >/tmp/log 2>&1"])
        assert not (root / "usr/bin/sysmond").exists(), "the program is there after removal"
        assert (root / ARCHIVE / "kept").read_text() == "recorded"
        assert (root / CONFIGURATION).read_text() == changed
        passed("installed again and removed: configuration and recordings stayed")
        inside(root, ["sh", "-c", f"{quietly} purge sysmond python3-sysmond sysmond-doc >/tmp/log 2>&1"])
        left = [str(path) for path in root.glob("*/**/*sysmond*") if not path.is_relative_to(root / "tmp")]
        assert not left, f"left after purge: {left}"
        passed("purged: nothing is left")


if __name__ == "__main__":
    sys.exit(main())
