# SPDX-License-Identifier: Apache-2.0
"""The locked packages below ``locks/``: written from pyproject.toml, checked against it, and audited.

Every version has the hashes of all its files, so that what ``make setup`` installs is what was looked at, whichever
registry it comes from. ``write`` needs uv and a registry, ``audit`` pip-audit and a registry with advisories.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDER = "locks"
BIN = REPOSITORY / ".venv/tools/bin"
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
# The oldest glibc of a distribution with the oldest of these Pythons.
WHEELS = "manylinux_2_28"
# Nobody offers these built: plain Python, made where it is installed, by the build tools that are locked.
SOURCE_ONLY = frozenset(("argparse-manpage",))
MADE_FROM = "# made from "
AUDIT_S = 600


class LockError(Exception):
    """What is wrong with the locks, and what would put it right, in one line."""


def wanted(pyproject: dict[str, Any]) -> dict[str, list[str]]:
    """Give what each lock is to hold, as pyproject.toml asks for it."""
    groups = pyproject["dependency-groups"]
    return {
        "build": pyproject["build-system"]["requires"],
        "dev": pyproject["project"]["dependencies"] + groups["dev"],
        "older-dbus": groups["older-dbus"],
        "tools": groups["tools"],
    }


def read_wanted(repository: Path) -> dict[str, list[str]]:
    """Give what each lock of a repository is to hold."""
    return wanted(tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8")))


def digest(requirements: Sequence[str]) -> str:
    """Name a list of requirements, in whatever order."""
    return hashlib.sha256("\n".join(sorted(requirements)).encode()).hexdigest()


def check(repository: Path) -> None:
    """Compare the locks with what pyproject.toml asks for now.

    :raises LockError: where one is older than that, or holds something without a hash.
    """
    for name, requirements in read_wanted(repository).items():
        path = repository / FOLDER / f"{name}.txt"
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise LockError(f"{FOLDER}/{name}.txt: not there; 'make lock' writes it") from None
        if f"{MADE_FROM}{digest(requirements)}\n" not in text:
            raise LockError(f"{FOLDER}/{name}.txt: older than pyproject.toml; 'make lock' brings it up to date")
        for pinned in entries(text):
            if not re.fullmatch(r"[a-z0-9-]+==\S+( ;.*?)?( --hash=sha256:[0-9a-f]{64})+", pinned):
                raise LockError(f"{FOLDER}/{name}.txt: {pinned[:60]!r}: expected a version and its hashes")


def entries(text: str) -> list[str]:
    """Give what a lock pins: a line each."""
    lines = text.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip() and not line.startswith("#")]


def write(repository: Path, more: Sequence[str]) -> None:
    """Write all locks; what is pinned already stays as it is where it may.

    ``more``: arguments for uv; ``--upgrade`` takes the newest of everything.

    :raises LockError: where no versions go together, or where a machine finds no file of one.
    """
    for name, requirements in read_wanted(repository).items():
        path = repository / FOLDER / f"{name}.txt"
        compiled = _uv(
            *("pip", "compile", "--universal", "--python-version", PYTHONS[0], "--generate-hashes", "--no-annotate"),
            *("--no-header", "--quiet", "--output-file", str(path), *more, "-"),
            given="\n".join(requirements),
        )
        if compiled.returncode:
            raise LockError(f"{FOLDER}/{name}.txt: {_one_line(compiled.stderr)}")
        pinned = path.read_text(encoding="utf-8")
        head = f"# SPDX-License-Identifier: Apache-2.0\n# Written by 'make lock'.\n{MADE_FROM}{digest(requirements)}\n"
        path.write_text(head + pinned, encoding="utf-8")
        _prove(name, pinned)


def _prove(name: str, pinned: str) -> None:
    """See that each Python on each machine finds files of everything, with a hash that is locked."""
    built = [each for each in entries(pinned) if each.partition("==")[0] not in SOURCE_ONLY]
    for python in PYTHONS:
        for machine in MACHINES:
            found = _uv(
                *("pip", "install", "--dry-run", "--quiet", "--no-deps", "--no-build", "--require-hashes"),
                *("--python-version", python, "--python-platform", f"{machine}-{WHEELS}"),
                *("--target", str(REPOSITORY / "build/none"), "--requirements", "-"),
                given="\n".join(built),
            )
            if found.returncode:
                raise LockError(f"{name}, Python {python}, {machine}: {_one_line(found.stderr)}")


def audit(repository: Path) -> None:
    """Ask for advisories about what is locked; says how many were asked about, or why none.

    :raises LockError: where there are some, or where only some packages could be looked up.
    """
    looked_up = 0
    for name in read_wanted(repository):
        command = [str(BIN / "pip-audit"), "--disable-pip", "--require-hashes", "--progress-spinner=off"]
        command += ["--format=json", "--requirement", str(repository / FOLDER / f"{name}.txt")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=AUDIT_S, check=False)  # noqa: S603
        try:
            packages = json.loads(done.stdout)["dependencies"]
        except ValueError:
            print(f"audit: skipped: {_one_line(done.stderr)}")
            return
        advised = [f"{each['name']} {hole['id']}" for each in packages for hole in each.get("vulns", ())]
        if advised:
            raise LockError(f"{FOLDER}/{name}.txt: {', '.join(advised)}; 'make lock ARGS=--upgrade' takes newer ones")
        skipped = [each for each in packages if "skip_reason" in each]
        if len(skipped) == len(packages):
            print(f"audit: skipped: this registry has no advisories: {skipped[0]['skip_reason']}")
            return
        if skipped:
            raise LockError(f"{FOLDER}/{name}.txt: not audited: {', '.join(each['skip_reason'] for each in skipped)}")
        looked_up += len(packages)
    print(f"audit: no advisory for {looked_up} packages")


def _uv(*arguments: str, given: str) -> "subprocess.CompletedProcess[str]":
    # Without a cache of its own nothing is left in anybody's home folder.
    command = [str(BIN / "uv"), "--no-cache", "--no-config", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)  # noqa: S603


def _one_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def main() -> int:
    """Do what the command line says; give the exit code."""
    parser = argparse.ArgumentParser(prog="tools/locks.py", description=__doc__.partition("\n")[0])
    parser.add_argument("act", choices=("write", "check", "audit"))
    options, more = parser.parse_known_args()
    try:
        if options.act == "write":
            write(REPOSITORY, more)
        elif options.act == "audit":
            audit(REPOSITORY)
        check(REPOSITORY)
    except LockError as wrong:
        print(f"{options.act}: {wrong}", file=sys.stderr)
        return 1
    if options.act == "check":
        print("locks: current")
    return 0


if __name__ == "__main__":
    sys.exit(main())
