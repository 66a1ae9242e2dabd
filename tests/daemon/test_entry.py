# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a program is still importing: it ends at once, without a word, whatever it was about to import."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from sysmond import entry
from tests.support.order import first

PROGRAMS = {
    "sysmond": ["fsck"],
    "sysmon": ["--plain"],
    "sysmon-extract": ["memory"],
    "sysmonctl": ["--bus=unix:path=/nowhere", "status"],
}
# Runs a program by its entry point. Interrupted as a module is looked for, or it says which are.
LOOKED_FOR = """
import json, os, signal, sys
from importlib.metadata import distribution

names = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        names.append(name)
        if name == interrupt_at:
            signal.raise_signal(signal.SIGINT)

interrupt_at, program, *sys.argv[1:] = sys.argv[1:]
(point,) = distribution("sysmond").entry_points.select(group="console_scripts", name=program)
sys.meta_path.insert(0, Finder())
if not interrupt_at:
    os._exit = sys.exit  # There is something to be said after that.
try:
    code = point.load()()
finally:
    if not interrupt_at:
        print(json.dumps(names), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """As a terminal has them: whoever started the tests may have had them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(program: str, folder: Path, interrupt_at: str = "") -> "subprocess.CompletedProcess[str]":
    (folder / "state").mkdir(exist_ok=True)
    where = [] if program == "sysmonctl" else [f"--state-dir={folder}/state", f"--runtime-dir={folder}/run"]
    command = [sys.executable, "-P", "-c", LOOKED_FOR, interrupt_at, program, *PROGRAMS[program], *where]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", first(1, PROGRAMS))
def test_an_interrupt_while_importing_is_quiet(program: str, tmp_path: Path) -> None:
    *said, looked_for = run(program, tmp_path).stderr.splitlines()
    own = [name for name in json.loads(looked_for) if name not in {"sysmond", "sysmond.entry"}]
    assert len(own) > 30
    chosen = {*own[:: len(own) // 6], *({"h5py", "numpy", "sysmond.store.files.hdf5"} & set(own)), own[-1]}
    for name in sorted(chosen):
        told = run(program, tmp_path, name)
        if program == "sysmonctl" and told.stderr.splitlines() == said:
            continue  # It was about to end already: asyncio found nothing left to interrupt.
        assert (told.returncode, told.stdout, told.stderr) == (128 + signal.SIGINT, "", ""), name


def test_every_program_begins_there() -> None:
    points = distribution("sysmond").entry_points.select(group="console_scripts")
    assert {point.name for point in points} == set(PROGRAMS)
    assert {point.module for point in points} == {entry.__name__}


@pytest.mark.parametrize("program", first(1, PROGRAMS))
def test_who_ignores_interrupts_goes_on_doing_so(program: str, tmp_path: Path) -> None:
    """A shell has what it runs in the background ignore them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        told = run(program, tmp_path, "argparse")
    finally:
        signal.signal(signal.SIGINT, before)
    assert told.returncode == run(program, tmp_path).returncode
    assert "Traceback" not in told.stderr


def test_an_interrupt_later_is_quiet_too(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr("sysmon_tools.extract.main", interrupted)
    assert entry.sysmon_extract() == 130
    assert capfd.readouterr() == ("", "")


def test_what_was_written_is_there_as_a_program_ends_at_once() -> None:
    """Also what waits in buffers; where it cannot be written, the interpreter says so and fails."""
    main = (
        "import sys, types, atexit\nfrom sysmond import entry\n"
        "def main():\n    sys.stdout.write('x' * 100)\n    sys.stderr.write('y')\n    return 3\n"
        "sys.modules['sysmon_tools.extract'] = types.SimpleNamespace(main=main)\n"
        "atexit.register(print, 'taken apart')\nsys.exit(entry.sysmon_extract())\n"
    )
    done = subprocess.run([sys.executable, "-c", main], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "x" * 100, "y")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([sys.executable, "-c", main], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode not in {0, 3}
    assert "No space left on device" in done.stderr
