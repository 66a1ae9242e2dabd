# SPDX-License-Identifier: Apache-2.0
"""A part records only kinds of its own; every kind that the sources name has an owner there."""

import re
from pathlib import Path

import pytest

from sysmond.base.event_kinds import ARCHIVER, BACKGROUND, DAEMON, OWNERS, PEOPLE, REALTIME, check
from sysmond.errors import UsageError

# Where parts name kinds, and how: the first text in a call of this name.
NAMED = (
    ("sysmond/sampler/lane.py", r'self\._tell\([^"\n]*"([a-z ]+)"', {REALTIME, BACKGROUND}),
    ("sysmond/daemon/runner.py", r'_event\("([a-z ]+)"', {DAEMON}),
    ("sysmond/archiver/main.py", r'_ledger\.event\("([a-z ]+)"', {ARCHIVER}),
    ("sysmond/archiver/disk_writes.py", r'self\.event\("([a-z ]+)"', {ARCHIVER}),
    ("sysmond/sampler/device_groups.py", r'"(devices? [a-z]+)"', {BACKGROUND}),
    ("sysmond/commands/pins.py", r'_tell\(folders, "([a-z ]+)"', {PEOPLE}),
)


@pytest.mark.parametrize(("path", "pattern", "owners"), NAMED)
def test_every_kind_that_a_part_names_is_its_own(repository: Path, path: str, pattern: str, owners: set[str]) -> None:
    named = set(re.findall(pattern, (repository / path).read_text(encoding="utf-8")))
    assert named
    assert {kind for kind in named if not owners.intersection(OWNERS.get(kind, ()))} == set()


def test_the_kind_of_another_is_refused_in_a_line() -> None:
    check("flush", ARCHIVER)
    with pytest.raises(UsageError, match="^event 'flush' by 'daemon': not its kind; expected died, "):
        check("flush", DAEMON)
    with pytest.raises(UsageError, match="^event 'flush' by 'me': not its kind; expected a part that records events$"):
        check("flush", "me")
