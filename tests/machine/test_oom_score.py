# SPDX-License-Identifier: Apache-2.0
"""Whom the kernel kills when memory runs out: others first, and nobody earlier than he was before."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sysmond.machine import oom_score
from tests.support.waiting import HANG_S, wait_until

UNITS = Path(__file__).parents[2] / "etc/systemd/system"
CAP_SYS_RESOURCE = 1 << 24


def may_spare() -> bool:
    """Whether we may lower a score, which not even every root may."""
    status = Path("/proc/self/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) & CAP_SYS_RESOURCE)


@pytest.mark.parametrize(
    ("part", "usual", "wanted"), [("sampler", 200, -900), ("bus", 200, 200), ("archiver", -1000, -1000)]
)
def test_a_score_is_lowered_for_who_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, usual: int, wanted: int
) -> None:
    file = tmp_path / "oom_score_adj"
    monkeypatch.setattr(oom_score, "FILE", str(file))
    assert oom_score.read() == 0
    oom_score.spare(part, usual)
    assert oom_score.read() == wanted


@pytest.mark.parametrize("part", ["sampler", "background", "archiver"])
def test_by_hand_a_part_is_spared_as_by_its_unit(part: str) -> None:
    assert f"OOMScoreAdjust={oom_score.SCORES[part]}\n" in (UNITS / f"sysmond-{part}.service").read_text()


def test_every_process_of_a_recorder_asks_to_be_spared(runtime: Path, tmp_path: Path) -> None:
    """It is started with a high score: whoever may not lower it further than to what it was may at least do that."""
    prefix = ["sh", "-c", 'echo 300 >/proc/self/oom_score_adj; exec "$@"', "sh"]
    command = [sys.executable, "-P", "-m", "sysmond", "--user", "--bus", "none"]
    places = ["--state-dir", str(tmp_path / "state"), "--runtime-dir", str(runtime / "run")]
    notes = [runtime / "run" / part / "pid" for part in oom_score.SCORES]
    recorder = subprocess.Popen([*prefix, *command, *places], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
        for note in notes:
            score = int(Path(f"/proc/{int(note.read_text())}/oom_score_adj").read_text())
            assert score == (oom_score.SCORES[note.parent.name] if may_spare() else 300)
    finally:
        recorder.send_signal(signal.SIGTERM)
        assert recorder.wait(HANG_S) == 0


def test_who_may_not_be_spared_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    if may_spare():
        pytest.skip("here a score may be lowered")
    before = oom_score.read()
    oom_score.spare("sampler", before)
    assert oom_score.read() == before
