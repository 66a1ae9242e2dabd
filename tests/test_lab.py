# SPDX-License-Identifier: Apache-2.0
"""The lab where it cannot be: what is missing is said. The lab itself is `make lab`."""

import subprocess
import sys
from pathlib import Path

from tests.lab import lab


def test_what_is_missing_is_named_in_one_line(repository: Path, tmp_path: Path) -> None:
    for tool in lab.TOOLS:
        if tool != "mmdebstrap":
            (tmp_path / tool).touch(mode=0o755)
    script = "import sys; from tests.lab import lab; lab.SBIN = ''; sys.exit(lab.main())"
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(repository)}
    told = subprocess.run(
        [sys.executable, "-P", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "lab: mmdebstrap not installed (Debian: apt install mmdebstrap)\n"


def test_every_check_that_is_named_is_there(repository: Path) -> None:
    names = [each.removeprefix("--deselect=").partition("::")[0] for each in lab.CHECKS]
    assert [name for name in names if not (repository / name).is_file()] == []
