# SPDX-License-Identifier: Apache-2.0
"""Maps of BPF programs as their readers see them: what is mapped is what is looked at, and nothing is missed for it."""

import os
import subprocess
from pathlib import Path

import pytest

from sysmond.kernel import loader, pins
from sysmond.kernel.pins import Array, Drain
from sysmond.records import record_bytes
from sysmond.tasks.tables import EXITS, PROCESS
from sysmond.tasks.walk import Walk
from tests.pinned import loaded, rows, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF programs run here")


def mapped_bytes() -> int:
    """How much of BPF maps this process has mapped."""
    sizes = (
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if "bpf-map" in line
    )
    return sum(int(end, 16) - int(begin, 16) for begin, end in sizes)


def test_no_more_of_an_array_is_mapped_than_was_looked_at(tmp_path: Path) -> None:
    with loaded(tmp_path) as report:
        before = mapped_bytes()
        array = Array(f"{report['folder']}/process_rows", record_bytes(PROCESS))
        assert mapped_bytes() == before
        few = array.first(2)
        assert mapped_bytes() == before + pins.WINDOW_BYTES
        walk = Walk(report["folder"])
        taken = walk.take(full=True, threads=False)
        told = bytes(few)
        assert told == bytes(taken.process.rows)[: 2 * record_bytes(PROCESS)]
        del taken
        walk.close()
        beside = mapped_bytes()  # The two windows that the walk had are gone but for what `few` is part of.
        assert beside == before + pins.WINDOW_BYTES
        assert len(array.first(array.count)) == array.count * record_bytes(PROCESS) > 40 * pins.WINDOW_BYTES
        assert mapped_bytes() > beside + 40 * pins.WINDOW_BYTES
        assert bytes(few) == told  # What was given holds.
        del few
        array.first(1)
        assert mapped_bytes() == before + pins.WINDOW_BYTES
        array.close()
        assert mapped_bytes() == before


@pytest.mark.parametrize("window_bytes", [4096, 65536])
def test_records_are_taken_once_however_often_a_buffer_begins_anew(
    window_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "EXITS_BYTES", 64 * 1024)  # 512 records: room for those of whatever else runs here.
    monkeypatch.setattr(pins, "WINDOW_BYTES", window_bytes)
    with loaded(tmp_path) as report:
        before, descriptors = mapped_bytes(), len(os.listdir("/proc/self/fd"))
        drain = Drain(f"{report['folder']}/exits", record_bytes(EXITS) - pins.RECORD_HEAD_BYTES)
        for _ in range(24):
            with subprocess.Popen(["sh", "-c", "for i in $(seq 40); do /bin/true; done; exit 7"]) as shell:
                shell.wait()
            found = rows(EXITS, drain.take())
            assert [row["exit_code"] for row in found if row["ppid"] == shell.pid] == [0] * 41  # And seq.
            assert [row["exit_code"] for row in found if row["pid"] == shell.pid] == [7]
        drain.close()
        assert (mapped_bytes(), len(os.listdir("/proc/self/fd"))) == (before, descriptors)
