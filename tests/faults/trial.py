# SPDX-License-Identifier: Apache-2.0
"""What the fault programs share: their command line, how they tell what they found, and mounts of their own.

A program gives one object: ``problems`` (none, or it failed), ``skipped`` (what cannot be tried here, and why),
and figures of its own.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

Totals = dict[str, Any]
"""What a program found, as its JSON object."""

PATH = "/sbin:/usr/sbin:/bin:/usr/bin"
SHOWN_MAX = 20
RELEASED_S = 300.0


def main(doc: str, run: Callable[[int, int], Totals], *, rounds: int, missing: Callable[[], str] = str) -> int:
    """Run a program; exit code 0 where it found no problem, or cannot run here and says why."""
    name = os.path.basename(sys.argv[0]).removesuffix(".py")
    options = argparse.ArgumentParser(description=doc.splitlines()[0])
    options.add_argument("--rounds", type=int, default=rounds, help=f"how long to go on; default {rounds}")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    chosen = options.parse_args()
    reason = missing()
    began_s = time.monotonic()
    totals: Totals = {"skipped": [f"{name}: {reason}"]} if reason else run(chosen.rounds, chosen.seed)
    totals.setdefault("problems", [])
    totals["seconds"] = round(time.monotonic() - began_s, 1)
    if chosen.json:
        print(json.dumps(totals))
    else:
        _tell(name, totals)
    return 1 if totals["problems"] or not totals.get("ok", True) else 0


def _tell(name: str, totals: Totals) -> None:
    figures = {key: value for key, value in totals.items() if key not in {"problems", "skipped", "said", "ok"}}
    told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in figures.items())
    print(f"{name}: {'FAILED' if totals['problems'] else 'passed'}: {told}")
    for reason in totals.get("skipped", ()):
        print(f"  not tried: {reason}")
    for problem in totals["problems"][:SHOWN_MAX]:
        print(f"  {problem}")
    if len(totals["problems"]) > SHOWN_MAX:
        print(f"  … and {len(totals['problems']) - SHOWN_MAX} more")


def cannot_mount(*tools: str) -> str:
    """Say why no file system can be mounted here, or nothing."""
    if os.geteuid() != 0:
        return "only root mounts a file system"
    lacking = [tool for tool in ("mount", "umount", *tools) if shutil.which(tool, path=PATH) is None]
    return f"{', '.join(lacking)} not installed" if lacking else ""


def command(*words: str) -> None:
    """Run a program of the system.

    :raises CalledProcessError: where it fails.
    """
    subprocess.run(words, check=True, env={**os.environ, "PATH": PATH}, capture_output=True)


def wait_until_released(image: str) -> None:
    """Wait until no file system of an image is mounted any more, anywhere.

    A process that copied all mounts meanwhile, as tests of access do, holds on to it: mounted again, it would be the
    same one, with what the kernel remembers of it.

    :raises RuntimeError: where that does not end.
    """

    def is_released() -> bool:
        words, environ = ["losetup", "--associated", image], {**os.environ, "PATH": PATH}
        return not subprocess.run(words, check=True, env=environ, capture_output=True).stdout

    if not wait_until(is_released, RELEASED_S):
        raise RuntimeError(f"{image}: still mounted elsewhere after {RELEASED_S:.0f} s")


def wait_until(met: Callable[[], object], limit_s: float) -> bool:
    """Wait until something holds; whether it came to that in time."""
    limit = time.monotonic() + limit_s
    while not met():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True
