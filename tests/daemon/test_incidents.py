# SPDX-License-Identifier: Apache-2.0
"""Incidents of a whole recorder: what is around them is pinned, and threads are looked at more often for a while."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from sysmond.base.clock import SECOND_NS
from sysmond.errors import Error
from sysmond.history import Archive
from sysmond.machine import control
from sysmond.sampler import bursts
from sysmond.store import pins
from tests.support.pinned import why_not
from tests.support.threadticks import ThreadTicks
from tests.support.waiting import HANG_S, wait_until
from tests.support.whole import CAPABILITIES, Recorder, a_recorder, within

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "BPF")
LINK = "sysmondb0"
# The machine of the test may have incidents of its own.
BY_PEOPLE = "incidents: {pins: incident, bursts: incident}\n"
BY_LINKS = "incidents: {pins: 'incident, link', bursts: 'incident, link'}\n"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with a_recorder() as made:
        yield made


@contextmanager
def link() -> Iterator[None]:
    """A link that comes, and goes."""
    words = ["ip", "link", "add", LINK, "type", "veth", "peer", "name", f"{LINK}p"]
    added = subprocess.run(words, capture_output=True, check=False, timeout=HANG_S)
    if added.returncode:
        pytest.skip(f"no link can be added here: {added.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "delete", LINK], check=False, timeout=HANG_S)


def events(recorder: Recorder, kind: str) -> list[str]:
    return [event.text for event in Archive(recorder.folders).events() if event.kind == kind]


def links(recorder: Recorder) -> int:
    """How many links are recorded."""
    with suppress(Error):
        return len(Archive(recorder.folders).select("link/*", raw=True).columns)
    return 0


def wanted(recorder: Recorder) -> list[str]:
    return [pin.why for pin in pins.read(pins.waiting(recorder.folders))]


def seal(recorder: Recorder) -> None:
    assert control.ask(f"{recorder.folders.runtime}/archiver", {"do": "seal"}, HANG_S)["ok"]


@pytest.mark.long
def test_an_incident_of_the_background_lane_is_pinned_and_has_a_burst_that_ends(recorder: Recorder) -> None:
    recorder.config.write_text(BY_LINKS)
    recorder.start()
    ticks = ThreadTicks(recorder)
    wait_until(lambda: len(ticks.seen()) >= 2)
    assert not ticks.between_seconds()
    # Links are compared with those of the first reading.
    wait_until(lambda: links(recorder))
    with link():
        wait_until(lambda: len(ticks.between_seconds()) >= 20)
    [said] = events(recorder, "burst")
    assert said == "read every 0.1 s for 30 s: link"
    os.kill(recorder.pid("background"), signal.SIGKILL)
    # It is over half a minute after it began, whoever died, and no link that went begins another.
    began_ns = ticks.between_seconds()[0]
    until_ns = began_ns + bursts.LASTS_NS + SECOND_NS
    wait_until(lambda: max(ticks.seen()) > until_ns + 3 * SECOND_NS)
    assert ticks.between_seconds()[-1] < until_ns
    assert [text for text in events(recorder, "burst") if not text.startswith("ended after")] == [said]
    seal(recorder)
    assert "link" in wanted(recorder)


def test_a_burst_ends_with_its_lane_and_the_next_incarnation_begins_none(recorder: Recorder) -> None:
    recorder.config.write_text(BY_PEOPLE)
    recorder.start()
    ticks = ThreadTicks(recorder)
    wait_until(lambda: len(ticks.seen()) >= 2)
    assert recorder.command("mark", "--pin", "it", "hangs").out == (
        b"marked 'it hangs'; five minutes before and after it are pinned\n"
    )
    wait_until(lambda: len(ticks.between_seconds()) >= 5)
    before = recorder.pid("sampler")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: recorder.pid("sampler") != before)
    last = ticks.between_seconds()[-1]
    assert recorder.command("mark", "--pin", "again").code == 0
    wait_until(lambda: len([tick for tick in ticks.seen() if tick > last]) >= 4)
    assert ticks.between_seconds()[-1] == last
    assert events(recorder, "incident") == ["it hangs", "again"]
    assert events(recorder, "burst") == ["read every 0.1 s for 30 s: incident"]
    seal(recorder)
    assert {"it hangs", "again"} <= set(wanted(recorder))
    assert b"it hangs" in recorder.command("pins").out


def test_without_bpf_moments_are_pinned_and_threads_are_not_looked_at_more_often(recorder: Recorder) -> None:
    recorder.prefix = within(drop=CAPABILITIES)
    recorder.start()
    wait_until(lambda: os.path.exists(f"{recorder.folders.runtime}/sampler/thread_state.way"))
    assert recorder.command("mark", "--pin", "here").code == 0
    wait_until(lambda: events(recorder, "incident"))
    order: control.Order = {"do": "burst", "kind": "incident"}
    assert control.ask(f"{recorder.folders.runtime}/sampler", order, HANG_S) == {"ok": False}
    seal(recorder)
    assert "here" in wanted(recorder)
    assert events(recorder, "burst") == []


def test_a_configuration_that_wants_neither_has_neither(recorder: Recorder) -> None:
    recorder.config.write_text("incidents: {pins: none, bursts: none}\narchive: {pin_pressure_percent: 0}\n")
    recorder.start()
    ticks = ThreadTicks(recorder)
    wait_until(lambda: len(ticks.seen()) >= 2)
    refused = recorder.command("mark", "--pin", "it hangs")
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "the setting incidents.pins does not include 'incident'" in refused.err
    assert recorder.command("mark", "it hangs").code == 0
    order: control.Order = {"do": "burst", "kind": "incident"}
    assert control.ask(f"{recorder.folders.runtime}/sampler", order, HANG_S) == {"ok": False}
    seal(recorder)
    assert wanted(recorder) == []
