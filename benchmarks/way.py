# SPDX-License-Identifier: Apache-2.0
"""Which modules a value goes through on its way from the kernel to CSV: one of a wide table, one of a long one.

A value that occurs nowhere else is recorded, sealed, flushed and printed by the project's own parts, all in this
process, while every call and return is looked at. A module is on the way when one of its functions is given the value,
or gives it: by itself, packed in bytes, in an array, as text, or in what holds one of these. The wide value is a number
in a file below a made-up root, ``/proc/loadavg``; the long one the user of a process, so that needs root.
"""

import argparse
import ctypes
import io
import json
import os
import pkgutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from itertools import islice
from types import FrameType, FunctionType, GenericAlias, ModuleType
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import sysmond_probes

from benchmarks import measure
from benchmarks.measure import Figures
from sysmon_tools import extract
from sysmond.archiver import children
from sysmond.base.model import Lane
from sysmond.errors import Error
from sysmond.machine.folders import Folders
from sysmond.plan import plan as plans
from sysmond.plan.settings import Settings
from sysmond.sampler.lane import Sampler
from sysmond.tasks.bpf import loader

# No uid, pid, time or size on any machine, with all four bytes different.
VALUE = 1_836_019_591
PACKED = struct.pack("<I", VALUE)
TEXT = str(VALUE).encode()
TICKS = 4
# How deep in objects, and how many of each, the value is looked for.
DEPTH_MAX, ITEMS_MAX = 5, 400
OURS = ("sysmond.", "sysmond_probes.", "sysmon_tools.")
# What leads everywhere and holds no sample.
OPAQUE = (bool, float, ModuleType, FunctionType, type, GenericAlias, FrameType, io.IOBase)


def holds(thing: Any, depth: int = DEPTH_MAX) -> bool:  # noqa: ANN401, PLR0911  whatever a function is given
    """Tell whether the value is in a thing."""
    if thing is None or isinstance(thing, OPAQUE):
        return False
    if isinstance(thing, int):
        return thing == VALUE
    if isinstance(thing, str):
        return TEXT.decode() in thing
    if isinstance(thing, bytes | bytearray):
        return PACKED in thing or TEXT in thing
    if isinstance(thing, memoryview):
        return holds(thing.tobytes()) if thing.contiguous else False
    if hasattr(thing, "dtype") and hasattr(thing, "tobytes"):
        return _array_holds(thing)
    if isinstance(thing, ctypes.Array | ctypes.Structure):
        return holds(bytes(thing))
    return depth > 0 and any(holds(part, depth - 1) for part in islice(_parts(thing), ITEMS_MAX))


def _array_holds(array: Any) -> bool:  # noqa: ANN401  numpy must not be imported where the sampler runs
    if array.dtype.hasobject:
        return any(holds(part, 1) for part in islice(array.flat, ITEMS_MAX))
    if array.dtype.names or array.dtype.kind in "SU":
        return holds(array.tobytes())
    return array.dtype.kind in "iuf" and bool((array == VALUE).any())


def _parts(thing: Any) -> Iterator[Any]:  # noqa: ANN401  as above
    if isinstance(thing, Mapping):
        yield from thing.keys()
        yield from thing.values()
    elif isinstance(thing, Sequence | set | frozenset):
        yield from thing
    else:
        yield from getattr(thing, "__dict__", {}).values()
        for kind in type(thing).__mro__:
            for name in getattr(kind, "__slots__", ()):
                with suppress(AttributeError):
                    yield getattr(thing, name)


class Way:
    """The modules that the value went through, in order, and by which functions first."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}
        self._is_looking = False

    def look(self, frame: FrameType, event: str, result: Any) -> None:  # noqa: ANN401  as above
        """Be a profile function (sys.setprofile)."""
        if self._is_looking or event not in ("call", "return"):
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(OURS) or module in self.modules:
            return
        self._is_looking = True
        try:
            if any(holds(thing) for thing in ([result] if event == "return" else _arguments(frame))):
                self.modules[module] = frame.f_code.co_qualname
        finally:
            self._is_looking = False


def _arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [frame.f_locals[name] for name in names if name in frame.f_locals and name not in ("self", "cls")]


@contextmanager
def watched() -> Iterator[Way]:
    """Look at all calls."""
    way = Way()
    sys.setprofile(way.look)
    try:
        yield way
    finally:
        sys.setprofile(None)


def wide() -> dict[str, str]:
    """The way of a value of ``load``."""
    with measure.workplace() as folders, tempfile.TemporaryDirectory() as root:
        os.mkdir(f"{root}/proc")
        with open(f"{root}/proc/loadavg", "w", encoding="ascii") as file:
            file.write(f"0.00 0.05 0.01 1/{VALUE} 6020\n")
        return _followed(Settings(folders, root=root), "load", ["load/tasks"])


def long() -> dict[str, str]:
    """The way of a row of ``process``, read by BPF where the kernel has it."""
    with measure.workplace() as folders, subprocess.Popen(["/bin/sleep", "60"], user=VALUE) as process:
        try:
            with suppress(Error):
                loader.load(loader.LoadRequest(folders.runtime))
            return _followed(Settings(folders), "process", ["process", "--columns=pid,uid"])
        finally:
            process.kill()
            with suppress(Error):
                loader.unload(folders.runtime)


def _followed(settings: Settings, table: str, question: Sequence[str]) -> dict[str, str]:
    folders = settings.folders
    plan = _plan(folders, table)
    printed = io.TextIOWrapper(io.BytesIO())
    with watched() as way:
        sampler = Sampler(settings, plan, Lane.REALTIME, lambda _: None)
        for _ in range(TICKS):
            sampler.tick(measure.sleep_until_phase(0.0))
        sampler.close()
        children.seal(folders)
        children.flush(folders)
        with redirect_stdout(printed):
            extract.main([*question, "--format=csv", "--state-dir", folders.state])
    printed.flush()
    csv = printed.buffer.getvalue()
    if TEXT not in csv:
        raise Error(f"{table}: {VALUE} did not arrive: {csv[-300:]!r}")
    return way.modules


def _plan(folders: Folders, table: str) -> plans.Plan:
    tables = [
        probe.table.name
        for module in pkgutil.iter_modules(sysmond_probes.__path__)
        for probe in plans.offered_probes(plans.import_plugin(f"{plans.BUILTIN_PACKAGE}.{module.name}"))
    ]
    config, plan = f"{folders.runtime}/sysmond.yaml", f"{folders.runtime}/plan.json"
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"probes": {name: {"enabled": name == table} for name in tables}}, file)
    command = [sys.executable, "-m", "sysmond.plan.resolver", "--config", config, "--output", plan]
    subprocess.run(command, check=True)
    return plans.read(plan)


def counted(way: Callable[[], Mapping[str, str]]) -> Figures:
    """How many modules and packages, and each module with the first function there that had the value."""
    modules = way()
    rooms = [module.rpartition(".")[0] for module in modules]
    packages = [room for place, room in enumerate(rooms) if room not in rooms[:place]]
    return {"modules": len(modules), "packages": len(packages), "way": [": ".join(step) for step in modules.items()]}


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures: Figures = {}
    for name, way in (("wide", wide), ("long", long)):
        figures[name] = measure.in_child(partial(counted, way), 120)
    if options.json:
        print(json.dumps(figures))
        return
    for name, path in figures.items():
        print(f"{name}: {path['modules']} modules in {path['packages']} packages")
        for step in path["way"]:
            print(f"    {step}")


if __name__ == "__main__":
    main()
