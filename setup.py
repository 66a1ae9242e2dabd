# SPDX-License-Identifier: Apache-2.0
"""The one thing that pyproject.toml cannot say: that the BPF programs in ``bpf/`` are compiled, where clang is there.

They are made for every architecture, whichever builds, so that one wheel serves all. Without clang the package is whole
but for them; what is read by them is then read from /proc.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCES = Path(__file__).resolve().parent / "bpf"
PACKAGE = "sysmond/tasks/bpf"
# Both architectures are little-endian, which the processor that builds need not be.
FLAGS = ("-target", "bpfel", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter")
# Declarations that not every program needs; and the types name no folder of the machine that builds.
FLAGS_OF_HEADERS = ("-Wno-unused-const-variable", "-Wno-unused-function", f"-ffile-prefix-map={SOURCES.parent}=.")
# Which registers a program finds is a matter of the processor.
ARCHITECTURES = ("arm64", "x86")


def compile_to(package: Path) -> list[str]:
    """Compile every program into a folder of each architecture; what could not be is said and left out."""
    clang, strip = shutil.which("clang"), shutil.which("llvm-strip")
    if clang is None:
        sys.stderr.write("clang is not there: BPF programs are left out\n")
        return []
    made = []
    for architecture in ARCHITECTURES:
        (package / architecture).mkdir(parents=True, exist_ok=True)
        for source in sorted(SOURCES.glob("*.bpf.c")):
            name = f"{architecture}/{source.stem}.o"
            unfinished = package / f"{name}.unfinished"
            target = (f"-D__TARGET_ARCH_{architecture}", "-c", str(source), "-o", str(unfinished))
            try:
                subprocess.run([clang, *FLAGS, *FLAGS_OF_HEADERS, *target], check=True)  # noqa: S603  the packager's own
                if strip is not None:
                    # What debuggers need; the types stay, by which the kernel fits a program to itself.
                    subprocess.run([strip, "-g", str(unfinished)], check=True)  # noqa: S603  as above
            except (OSError, subprocess.CalledProcessError) as failure:
                unfinished.unlink(missing_ok=True)
                sys.stderr.write(f"{name} is left out: {failure}\n")
                continue
            unfinished.replace(package / name)
            made.append(name)
    return made


class BuildWithPrograms(build_py):
    """Build as always, and compile. An editable install has the objects beside the sources, and links them."""

    def run(self) -> None:
        """Copy the modules and compile the programs."""
        super().run()
        self.objects = compile_to((SOURCES.parent if self.editable_mode else Path(self.build_lib)) / PACKAGE)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:  # noqa: FBT001, FBT002  as its base has it
        """Name what is built."""
        return [*super().get_outputs(include_bytecode), *self._built()]

    def get_output_mapping(self) -> dict[str, str]:
        """Name what an editable install links to the sources."""
        return {**super().get_output_mapping(), **(self._built() if self.editable_mode else {})}

    def _built(self) -> dict[str, str]:
        sources, built = SOURCES.parent / PACKAGE, Path(self.build_lib) / PACKAGE
        return {str(built / name): str(sources / name) for name in getattr(self, "objects", [])}


setup(cmdclass={"build_py": BuildWithPrograms})
