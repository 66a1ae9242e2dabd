# SPDX-License-Identifier: Apache-2.0
"""A library in place of NVIDIA's, made from C by the compiler that is there. Files say how it behaves."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "nvml_stand_in.c"


class StandIn:
    """The library. ``path``: where it is."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder / "behaviour"
        self.folder.mkdir()
        self.path = str(folder / "libnvidia-ml.so.1")
        compiler = shutil.which("cc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("no compiler of C (cc, clang)")
        defined = [f'-DFOLDER="{self.folder}"', *options]
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-Wall", "-Werror", *defined, "-o", self.path, SOURCE], check=True
        )

    def behaves(self, *how: str) -> None:
        """Have it behave so, and no other way."""
        for path in self.folder.iterdir():
            if path.name not in {"log", *how}:
                path.unlink()
        for name in how:
            (self.folder / name).touch()

    def calls(self) -> list[str]:
        """How often it was initialized and shut down, in order."""
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []
