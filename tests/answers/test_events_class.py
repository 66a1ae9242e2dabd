# SPDX-License-Identifier: Apache-2.0
"""An answer about a public table has only what happened in public: whoever may read it may be given it."""

from pathlib import Path

import pytest

from sysmond.base import clock
from sysmond.base.model import Metric, Semantics, Sensitivity, Table
from sysmond.history import Archive
from sysmond.machine.folders import Folders, create_classes
from sysmond.ring.frame import Identity, Layout
from sysmond.ring.writer import RingWriter

SECONDS = 30


@pytest.fixture
def archive(folders: Folders) -> Archive:
    create_classes(f"{folders.runtime}/background")
    now_ns = clock.boottime_ns() // 10**9 * 10**9
    started_ns = now_ns - SECONDS * 10**9
    for name, sensitivity in (("open", Sensitivity.PUBLIC), ("closed", Sensitivity.RESTRICTED)):
        layout = Layout(Table(name, (Metric("n", "1", Semantics.GAUGE, "A number."),)), 10**9)
        identity = Identity(clock.boot_id(), "background", sensitivity, 1, started_ns)
        path = Path(folders.runtime, "background", sensitivity, f"{started_ns}.ring")
        writer = RingWriter(str(path), 2**17, identity, [layout])
        writer.clock(clock.relation())
        for tick_ns in range(started_ns, now_ns, 10**9):
            writer.rows(0, tick_ns, ("",), [1])
        is_open = sensitivity is Sensitivity.PUBLIC
        writer.event(started_ns + (1 if is_open else 2) * 10**9, "packages" if is_open else "crash", name, "")
        writer.close(is_over=False)
    return Archive(folders)


def test_what_is_restricted_stands_beside_what_is_restricted_alone(archive: Archive) -> None:
    public, restricted, both = archive.select("open"), archive.select("closed"), archive.select("open", "closed")
    assert ([event.subject for event in public.events], public.sensitivity) == (["open"], Sensitivity.PUBLIC)
    for result in (restricted, both):
        assert [event.subject for event in result.events] == ["open", "closed"]
        assert result.sensitivity is Sensitivity.RESTRICTED
    assert [event.subject for event in archive.events()] == ["open", "closed"]
    assert [event.subject for event in archive.records("open").events] == ["open"]
