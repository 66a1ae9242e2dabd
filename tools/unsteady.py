# SPDX-License-Identifier: Apache-2.0
"""Runs tests, and those that fail beside others once more, each by itself.

A test that fails twice has failed. One that then passes is unsteady: something beside it, or the time that it was left,
decided. It is named in the last lines, so that somebody mends it, and stops nobody else's work. Where more than a few
fail, nothing is run again: that is no matter of luck.

    python -P tools/unsteady.py [words for pytest]
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

UNSTEADY_MAX = 5
TESTS_FAILED = 1
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(words: Sequence[str]) -> int:
    """Give the exit code: of pytest, or 0 where all that failed passed by itself."""
    _FAILED.unlink(missing_ok=True)  # What failed in a run before is of no interest.
    code = pytest(words)
    failed = failed_tests() if code == TESTS_FAILED else []
    if not failed or len(failed) > UNSTEADY_MAX:
        return code
    print(f"unsteady: run once more, each by itself: {', '.join(failed)}", flush=True)
    if any(pytest(["--quiet", test]) for test in failed):
        return code
    for test in failed:
        print(f"unsteady: {test}: failed beside others, passed by itself", flush=True)
    return 0


def pytest(words: Sequence[str]) -> int:
    """Run it; gives its exit code."""
    program = os.path.join(os.path.dirname(sys.executable), "pytest")
    return subprocess.run([program, *words], check=False).returncode  # noqa: S603  that of this environment


def failed_tests() -> list[str]:
    """What pytest noted as failed."""
    try:
        return sorted(json.loads(_FAILED.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
