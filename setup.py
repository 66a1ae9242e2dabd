# SPDX-License-Identifier: Apache-2.0
"""The one thing that pyproject.toml cannot say: that the BPF programs in ``bpf/`` are compiled, where clang is there.

Without clang the package is whole but for them; what is read by them is then read from /proc.
"""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCES = Path(__file__).resolve().parent / "bpf"
PACKAGE = "sysmond/tasks/bpf"
FLAGS = ("-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter")
# Declarations that not every program needs.
FLAGS_OF_HEADERS = ("-Wno-unused-const-variable", "-Wno-unused-function")
# Which registers a program finds is a matter of the processor.
ARCHITECTURES = {"x86_64": "x86", "i686": "x86", "aarch64": "arm64"}


def compile_to(folder: Path) -> list[Path]:
    """Compile every program into a folder; what could not be is said and left out."""
    clang, strip = shutil.which("clang"), shutil.which("llvm-strip")
    if clang is None:
        sys.stderr.write("clang is not there: BPF programs are left out\n")
        return []
    machine = platform.machine()
    architecture = f"-D__TARGET_ARCH_{ARCHITECTURES.get(machine, machine)}"
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for source in sorted(SOURCES.glob("*.bpf.c")):
        target = folder / source.with_suffix(".o").name
        unfinished = target.with_suffix(".unfinished")
        command = [clang, *FLAGS, *FLAGS_OF_HEADERS, architecture, "-c", str(source), "-o", str(unfinished)]
        try:
            subprocess.run(command, check=True)  # noqa: S603  the packager's own compiler
            if strip is not None:
                # What debuggers need; the types stay, by which the kernel fits a program to itself.
                subprocess.run([strip, "-g", str(unfinished)], check=True)  # noqa: S603  as above
        except (OSError, subprocess.CalledProcessError) as failure:
            unfinished.unlink(missing_ok=True)
            sys.stderr.write(f"{source.name} is left out: {failure}\n")
            continue
        unfinished.replace(target)
        made.append(target)
    return made


class BuildWithPrograms(build_py):
    """Build as always, and compile. An editable install has the objects beside the sources, and links them."""

    def run(self) -> None:
        """Copy the modules and compile the programs."""
        super().run()
        beside_sources = Path(__file__).resolve().parent / PACKAGE
        self.objects = compile_to(beside_sources if self.editable_mode else Path(self.build_lib) / PACKAGE)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:  # noqa: FBT001, FBT002  as its base has it
        """Name what is built."""
        return [*super().get_outputs(include_bytecode), *self._built()]

    def get_output_mapping(self) -> dict[str, str]:
        """Name what an editable install links to the sources."""
        return {**super().get_output_mapping(), **(self._built() if self.editable_mode else {})}

    def _built(self) -> dict[str, str]:
        found = getattr(self, "objects", [])
        return {str(Path(self.build_lib) / PACKAGE / each.name): str(each) for each in found}


setup(cmdclass={"build_py": BuildWithPrograms})
