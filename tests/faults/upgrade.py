# SPDX-License-Identifier: Apache-2.0
"""Upgrade in mid-run: rings that another version's writer left are sealed, or refused by name and left alone.

``tests/compat/ring-1.gz`` was written by the first version of the ring, with the values that
``tests/support/machine.py`` foretells. It must be read, and sealed beside a ring of today. A ring of a later version is
refused by name, stays where it is, and is in nobody's way.

    python tests/faults/upgrade.py [--rounds 1] [--json]
"""

import gzip
import os
import sys
import tempfile
from pathlib import Path
from struct import Struct
from zlib import crc32

sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Sensitivity
from sysmond.ring import frame
from tests.faults.trial import Totals, main
from tests.support.machine import Machine, counter

COMPAT = Path(__file__).resolve().parent.parent / "compat"
SECONDS = range(1, 61)
PATH = "disk/read_bytes@sda"
_VERSION = Struct("=I")


def write_fixture() -> None:
    """Write a ring of today's version, for the tests of all later ones; closed by a writer that was upgraded."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as base:
        machine = Machine(Path(base))
        writer = machine.start(0.5)
        writer.tick(SECONDS)
        writer.ring.close()
        (path,) = Path(machine.folders.runtime).rglob("*.ring")
        COMPAT.mkdir(exist_ok=True)
        (COMPAT / f"ring-{frame.VERSION}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def of_later_version(content: bytes) -> bytes:
    """Make a ring say that a later version wrote it."""
    later = content[:8] + _VERSION.pack(frame.VERSION + 1) + content[12 : frame.HEADER.size]
    return later + _VERSION.pack(crc32(later)) + content[frame.HEADER.size + _VERSION.size :]


def run(rounds: int, seed: int) -> Totals:
    """Put rings of all versions beside one of today's, and seal them."""
    problems: list[str] = []
    fixtures = sorted(COMPAT.glob("ring-*.gz"))
    if [int(path.stem.rpartition("-")[2]) for path in fixtures] != list(frame.VERSIONS_READ):
        problems.append(f"fixtures {[path.name for path in fixtures]} for versions {frame.VERSIONS_READ}")
    for fixture in fixtures:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as base:
            machine = Machine(Path(base))
            folder = Path(machine.folders.runtime, "sampler", str(Sensitivity.PUBLIC))
            content = gzip.decompress(fixture.read_bytes())
            (folder / f"{SECOND_NS // 2}.ring").write_bytes(content)
            later = folder / "7.ring"
            later.write_bytes(of_later_version(content))
            machine.start(60.5).tick(range(61, 81))
            for job in (lambda _: None, Machine.seal, Machine.flush):
                job(machine)
                result = machine.archive.select(PATH, raw=True)
                values = result.columns[0].integers
                if values is None or values.tolist() != [counter(second) for second in range(1, 81)]:
                    problems.append(f"{fixture.name}: rows are missing")
                if not any(str(later) in warning and "version" in warning for warning in result.warnings):
                    problems.append(f"{fixture.name}: nothing is said of the later version: {result.warnings}")
            if not later.exists():
                problems.append("a ring of a later version was removed")
    return {"versions": len(fixtures), "problems": problems}


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", run, rounds=1))
