# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: that BPF programs are compiled, and files of the service lie in the package, too.

The programs in ``bpf/`` are compiled where clang is there, for every architecture, whichever builds, so that one wheel
serves all. Without clang the package is whole but for them; what is read by them is then read from /proc. Units and
what lies beside them are in ``etc/`` and ``dbus/``, for packagers; ``sysmond service install`` takes them from here.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCES = Path(__file__).resolve().parent / "bpf"
PACKAGE = "sysmond/tasks/bpf"
SERVICE_FILES = "sysmond/service_files"
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
                (package / name).unlink(missing_ok=True)  # That of an older source says what this one does not.
                sys.stderr.write(f"{name} is left out: {failure}\n")
                continue
            unfinished.replace(package / name)
            made.append(name)
    return made


def service_files() -> dict[str, Path]:
    """What ``sysmond service install`` writes, by its name in the package: where ``sysmond.commands.service`` looks."""
    etc, dbus = SOURCES.parent / "etc", SOURCES.parent / "dbus"
    folders = {
        **{f"systemd/{kind}": [*(etc / "systemd" / kind).iterdir()] for kind in ("system", "user")},
        **{name: [*(etc / name).iterdir()] for name in ("sysusers.d", "tmpfiles.d")},
        "dbus-1/system.d": [*dbus.glob("*.conf")],
        "dbus-1/system-services": [*dbus.glob("*.service")],
        "polkit-1/actions": [*dbus.glob("*.policy")],
        "sysmond": [etc / "sysmond.yaml"],
    }
    return {f"{SERVICE_FILES}/{folder}/{path.name}": path for folder, paths in folders.items() for path in paths}


class BuildWithPrograms(build_py):
    """Build as always, and compile. An editable install has the objects beside the sources, and links them."""

    def run(self) -> None:
        """Copy the modules and the files of the service, and compile the programs."""
        super().run()
        self.objects = compile_to((SOURCES.parent if self.editable_mode else Path(self.build_lib)) / PACKAGE)
        for name, source in () if self.editable_mode else service_files().items():
            target = Path(self.build_lib) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:  # noqa: FBT001, FBT002  as its base has it
        """Name what is built."""
        return [*super().get_outputs(include_bytecode), *self._built()]

    def get_output_mapping(self) -> dict[str, str]:
        """Name what an editable install links to the sources."""
        return {**super().get_output_mapping(), **(self._built() if self.editable_mode else {})}

    def _built(self) -> dict[str, str]:
        sources, built = SOURCES.parent / PACKAGE, Path(self.build_lib)
        objects = {str(built / PACKAGE / name): str(sources / name) for name in getattr(self, "objects", [])}
        return {**objects, **{str(built / name): str(source) for name, source in service_files().items()}}


setup(cmdclass={"build_py": BuildWithPrograms})
